"""The commands of ``ooc-chol spectral``: a module each, of the command's name, which is imported when the command is named."""

from __future__ import annotations

import argparse

from ooc_chol.apps.spectral.cli.parser import CommandParser

#: What ``ooc-chol spectral --help`` says of each command.
COMMANDS = {
    "bisect": "cut a graph into two parts of equal weight, with few edges between them",
    "partition": "cut a graph into N parts",
    "segment": "segment an image by normalized cuts",
    "demo": "cut a mesh and segment an image, with pictures; needs no download",
}


def add_commands(spectral: argparse.ArgumentParser) -> None:
    """Add the commands of ``spectral`` to its parser.

    Errors that a user can mend are left to the caller of a command's ``run``, who shows them on one line.
    """
    actions: argparse._SubParsersAction[CommandParser] = spectral.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=CommandParser
    )
    for name, text in COMMANDS.items():
        actions.add_parser(name, help=text, module=f"{__name__}.{name}", formatter_class=spectral.formatter_class)
