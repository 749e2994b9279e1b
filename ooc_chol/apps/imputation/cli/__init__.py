"""``ooc-chol impute``: fit, demo."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import ooc_chol.toolbox as tb

#: What ``ooc-chol impute --help`` says of each command.
COMMANDS = {
    "fit": "impute a tensor in a file",
    "demo": "impute a tensor that is made here, and draw it; needs no download",
}


def add_commands(impute: argparse.ArgumentParser) -> None:
    """Add the commands of ``impute`` to its parser.

    Errors that a user can mend are left to the caller of a command's ``run``, who shows them on one line.
    """
    shown = ("ooc-chol impute demo", "ooc-chol impute fit sensors.npy --graph roads.txt --output filled.npz")
    impute.epilog = "\n".join(["examples:", *(f"  {line}" for line in shown)])
    actions: Any = impute.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in COMMANDS.items():
        made = actions.add_parser(name, help=text, formatter_class=impute.formatter_class)
        made.when_named(_adder(name))


def _adder(name: str) -> Callable[[argparse.ArgumentParser], None]:
    """A function that imports the module of a command, and adds its options."""

    def add(parser: argparse.ArgumentParser) -> None:
        from importlib import import_module

        with tb.guarded_imports():
            command = import_module(f"{__name__}.{name}")
        command.add_options(parser)
        parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in command.EXAMPLES)])
        parser.set_defaults(run=command.run)

    return add
