"""Every command of the command line, with its options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def commands(parser: argparse.ArgumentParser, *path: str) -> Iterator[tuple[tuple[str, ...], set[str], set[str]]]:
    """Every command of a parser, itself first, with the commands below it and its options."""
    getattr(parser, "complete", lambda: None)()
    below = next((action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)), {})
    yield (
        path,
        set(below),
        {word for action in parser._actions if action.help != argparse.SUPPRESS for word in action.option_strings},
    )
    for name, child in below.items():
        yield from commands(child, *path, name)
