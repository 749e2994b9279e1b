"""Which call fails: calls are counted by kind, and the one that is aimed at, or all from it on, are told to fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

#: Makes the error of a call that fails.
MakeError = Callable[[], BaseException]


class Injector:
    """Counts the calls of every kind, from any thread, and fails the one that it is armed for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.disarm()

    def disarm(self) -> None:
        """Count from nothing, and let no call fail."""
        with self._lock:
            self.counts = Counter[str]()
            self.kind, self.at, self.goes_on, self.has_failed = "", 0, False, False
            self.before = Counter[str]()  #: The calls before the first one that failed
            self._make: MakeError = RuntimeError

    def arm(self, kind: str, at: int, make: MakeError, *, goes_on: bool = False) -> None:
        """Let call ``at`` of ``kind``, counted from one, fail; with ``goes_on`` every later one, too.

        A kind that ends in a colon stands for all kinds that begin so.
        """
        self.disarm()
        self.kind, self.at, self._make, self.goes_on = kind, at, make, goes_on

    def meets(self, kind: str) -> BaseException | None:
        """Count a call; the error with which it is to fail, if it is."""
        with self._lock:
            self.counts[kind] += 1
            group = f"{kind.partition(':')[0]}:"
            self.counts[group] += 1
            if self.kind not in (kind, group):
                return None
            count = self.counts[self.kind]
            if count != self.at and not (self.goes_on and count > self.at):
                return None
            if not self.has_failed:
                self.before = self.counts - Counter((kind, group))
            self.has_failed = True
            return self._make()

    def check(self, kind: str) -> None:
        """Count a call; raise its error if it is to fail."""
        if (error := self.meets(kind)) is not None:
            raise error
