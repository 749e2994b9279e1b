"""``ooc-chol impute``: fit, demo."""

from __future__ import annotations

import argparse

from ooc_chol.apps.shared import commands

#: What ``ooc-chol impute --help`` says of each command.
COMMANDS = {
    "fit": "impute a tensor in a file",
    "demo": "impute a tensor that is made here, and draw it; needs no download",
}


def add_commands(impute: argparse.ArgumentParser) -> None:
    """Add the commands of ``impute`` to its parser."""
    shown = ("ooc-chol impute demo", "ooc-chol impute fit sensors.npy --graph roads.txt --output filled.npz")
    impute.epilog = "\n".join(["examples:", *(f"  {line}" for line in shown)])
    commands.add_commands(impute, __name__, COMMANDS)
