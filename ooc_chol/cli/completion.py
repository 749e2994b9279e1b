"""``ooc-chol completion bash|zsh|fish``: a script that completes commands, options, their words and files, made by shtab."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.cli.parsers import examples, place

_SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser, make_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the argument of ``completion`` to its parser; ``make_parser`` makes that of all commands."""
    parser.description = "Print a script for a shell, which completes commands, options and their values from then on."
    parser.epilog = examples(
        "ooc-chol completion bash > ~/.local/share/bash-completion/completions/ooc-chol",
        "ooc-chol completion zsh > ~/.zfunc/_ooc-chol    # with fpath+=~/.zfunc before compinit in ~/.zshrc",
        "ooc-chol completion fish > ~/.config/fish/completions/ooc-chol.fish",
    )
    parser.add_argument("shell", choices=_SHELLS, help="which shell")
    parser.set_defaults(run=partial(_run, make_parser))


def _run(make_parser: Callable[[], argparse.ArgumentParser], arguments: argparse.Namespace) -> None:
    try:
        with tb.guarded_imports():
            import shtab
    except ImportError as error:
        hint = tb.install_hint("completion")
        raise oc.errors.MissingPackageError(f"scripts for shells are made by shtab, which is not installed: {hint}") from error
    parser = make_parser()
    _complete(parser, shtab.FILE)
    script = shtab.complete(parser, shell=arguments.shell)
    arguments.answer = {"shell": arguments.shell, "script": script}
    print(script)


def _complete(parser: argparse.ArgumentParser, files: Any) -> None:
    """Add the arguments of all commands, and say which take one of a few words, and which perhaps a file."""
    getattr(parser, "complete", lambda: None)()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete(child, files)
        elif action.nargs != 0:
            action.choices = tuple(action.choices or _listed(action.metavar)) or None
            if action.choices is None and action.type in (None, Path, place):
                action.complete = files  # type: ignore[attr-defined]  # where shtab looks


def _listed(metavar: object) -> tuple[str, ...]:
    """Values of an option that its metavar lists as ``{a,b}`` or, in small letters, as ``a|b``."""
    if not isinstance(metavar, str) or not re.search("[{|]", metavar):
        return ()
    return tuple(word for word in re.split("[,|]", metavar.strip("{}")) if re.fullmatch("[a-z-]+", word))
