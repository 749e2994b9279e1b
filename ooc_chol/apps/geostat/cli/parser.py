"""A parser that does not mind how an option is spelled, and one whose options come from a module of its own."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.cluster import on_cluster


class SpellingParser(tb.SuggestingParser):
    """A parser for which ``--Tile_Size``, ``--tilesize`` and ``--tile-size`` are one option; unknown ones are refused as ever.

    ExaGeoStat's options are read like this, and its users type them so.
    """

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as ``argparse`` does, after known options are spelled as they were added."""
        known = [option for option in self._option_string_actions if option.startswith("--")]
        spellings = {bare(option): option for option in reversed(known)}

        def respelled(word: str) -> str:
            """A long option in its own spelling; any other word as it is."""
            name, equals, value = word.partition("=")
            return f"{spellings.get(bare(name), name)}{equals}{value}" if name.startswith("--") else word

        words = sys.argv[1:] if args is None else list(args)
        end = words.index("--") if "--" in words else len(words)
        return super().parse_known_args([*_joined(map(respelled, words[:end])), *words[end:]], namespace)


class CommandParser(SpellingParser):
    """The parser of one command, which takes options and action from the command's module when it first reads words.

    So the modules of the other commands are not imported; the application itself is, whole.
    """

    def __init__(self, *args: Any, module: str, **kwargs: Any) -> None:
        self._module: str | None = module
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as :class:`SpellingParser` does, after the options are there."""
        self.complete()
        return super().parse_known_args(args, namespace)

    def complete(self) -> None:
        """Add the options of the command, unless they are there."""
        module, self._module = self._module, None
        if module is not None:
            with tb.guarded_imports():
                command = importlib.import_module(module)
            command.add_options(self)
            self.epilog = "\n".join(["examples:", *(f"  {line}" for line in command.EXAMPLES)])
            self.add_argument("--json", action="store_true", help="print one JSON object; the rest goes to standard error")
            self.add_argument("--verbose", action="store_true", help="print the whole plan of a factorization, not a line")
            self.add_argument("--quiet", action="store_true", help="print nothing but that, and warnings and errors; no progress")
            self.set_defaults(run=on_cluster(command.run))


def _joined(words: Iterable[str]) -> list[str]:
    """Words with ``--box -1,0,1,2`` made ``--box=-1,0,1,2``: ``argparse`` takes what begins with a minus for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-[\d.][^=]*[,:]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def bare(text: str) -> str:
    """A name without case, dashes and underscores."""
    return re.sub("[-_]", "", text.lower())
