"""Parsers of commands: each gets its arguments when it is named, and shows examples as they are typed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ooc_chol.cli.answers import add_answer_options
from ooc_chol.display.suggestions import SuggestingParser
from ooc_chol.files.zarr_names import is_url

#: What an epilog begins with whose lines are kept.
EXAMPLES = "examples:"


def place(text: str) -> Path | str:
    """A path, or a URL as it was typed."""
    return text if is_url(text) else Path(text)


class HelpFormatter(argparse.HelpFormatter):
    """Wraps texts, but keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(EXAMPLES) else super()._fill_text(text, width, indent)


class CommandParser(SuggestingParser):
    """The parser of a command, which gets its arguments, and ``--json`` and ``--quiet``, when the command is named."""

    _add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    _is_complete = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as ``argparse`` does, once the command's arguments have been added."""
        self.complete()
        return super().parse_known_args(args, namespace)

    def complete(self) -> None:
        """Add the command's arguments, unless they are there."""
        if self._is_complete:
            return
        self._is_complete = True
        if self._add_arguments is not None:
            self._add_arguments(self)
        if self._subparsers is None and self.get_default("json") is None:  # help has no answer
            add_answer_options(self)

    def when_named(self, add_arguments: Callable[[argparse.ArgumentParser], None]) -> None:
        """Let ``add_arguments`` add the command's arguments when it is parsed, and not before."""
        self._add_arguments = add_arguments


def examples(*lines: str) -> str:
    """An epilog that shows these commands."""
    return "\n".join([EXAMPLES, *(f"  {line}" for line in lines)])
