"""Commands of an application: a module each, of the command's name, which is imported when the command is named."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import ooc_chol.toolbox as tb


def add_commands(parser: argparse.ArgumentParser, package: str, commands: Mapping[str, str]) -> None:
    """Add commands, by name with what the help says of each, whose modules are in a package.

    Errors that a user can mend are left to the caller of a command's ``run``, who shows them on one line.
    """
    actions: Any = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in commands.items():
        made = actions.add_parser(name, help=text, formatter_class=parser.formatter_class)
        made.when_named(partial(_add_options, f"{package}.{name}"))


def _add_options(module: str, parser: argparse.ArgumentParser) -> None:
    with tb.guarded_imports():
        command = import_module(module)
    command.add_options(parser)
    parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in command.EXAMPLES)])
    parser.set_defaults(run=command.run)
