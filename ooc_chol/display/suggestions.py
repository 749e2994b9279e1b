"""Parsers of a command line that suggest what was meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

#: How ``argparse`` says that a word is none of those that it may be.
_WRONG_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<choices>.*)\)")


class SuggestingParser(argparse.ArgumentParser):
    """A parser that answers a word which it does not know with the nearest one that it does.

    Parameters
    ----------
    *args, **kwargs
        Those of ``argparse.ArgumentParser``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as ``argparse`` does; a command that is missing behind an unknown option is that option's fault."""
        words = sys.argv[1:] if args is None else list(args)
        options = self._option_string_actions
        if self._subparsers is not None and words and words[0].startswith("--"):
            name = words[0].partition("=")[0]
            if not any(option.startswith(name) for option in options):
                self._refuse(words[:1])
        found, unknown = super().parse_known_args(words, namespace)
        if unknown and self._subparsers is None:
            self._refuse(unknown)
        return found, unknown

    def _refuse(self, unknown: Iterable[str]) -> NoReturn:
        """End with what is not known, and the options that may be meant."""
        words = list(unknown)
        named = (word.partition("=")[0] for word in words if word.startswith("-"))
        near = [match for word in named for match in get_close_matches(word, self._option_string_actions, 1)]
        self.error(f"unrecognized arguments: {' '.join(words)}{_meant(dict.fromkeys(near))}")

    def error(self, message: str) -> NoReturn:
        """End with status 2, and where a choice is no choice with the one that may be meant."""
        if (wrong := _WRONG_CHOICE.search(message)) is not None:
            choices = [choice.strip("'\"") for choice in wrong["choices"].split(", ")]
            message += _meant(get_close_matches(wrong["word"], choices, 1))
        super().error(message)


def _meant(near: Iterable[str]) -> str:
    """The question whether these words were meant."""
    words = " ".join(near)
    return f"; did you mean {words}?" if words else ""
