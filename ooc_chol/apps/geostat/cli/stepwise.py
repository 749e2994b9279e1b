"""A long computation in batches: a live line of how far it is on a terminal, elsewhere a line a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

#: Seconds between two words.
_TERMINAL_SECONDS, _LINE_SECONDS = 0.1, 1.0


class Steps:
    """Says how many steps of many are done, on standard error."""

    def __init__(self, total: int, what: str, *, quiet: bool = False) -> None:
        self._total, self._what = total, what
        self._live = sys.stderr.isatty()
        self._every = float("inf") if quiet else _TERMINAL_SECONDS if self._live else _LINE_SECONDS
        self._start = self._told = time.perf_counter()

    def done(self, count: int) -> None:
        """Say that ``count`` steps are done, unless the last word is younger than a second (on a terminal, a tenth)."""
        now = time.perf_counter()
        if now - self._told < self._every:
            return
        self._told = now
        text = f"{self._what}: {count:,} of {self._total:,}, {now - self._start:.0f} s"
        try:
            print(f"\r\033[K{text}" if self._live else text, end="" if self._live else "\n", file=sys.stderr, flush=True)
        except OSError:  # whoever read this is gone
            self._every = float("inf")

    def close(self) -> None:
        """Clear the live line."""
        if self._live and self._told > self._start:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def told_batches(total: int, size: int, what: str, *, quiet: bool = False) -> Iterator[slice]:
    """Slices of ``total`` steps, ``size`` each, with a word on standard error of how far the loop over them is."""
    steps = Steps(total, what, quiet=quiet)
    try:
        for begin in range(0, total, size):
            yield slice(begin, min(begin + size, total))
            steps.done(min(begin + size, total))
    finally:
        steps.close()
