"""Resources that an object holds open on devices from call to call, and lets go of at the first failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import final

from ooc_chol.errors import ClosedError
from ooc_chol.process.fork_safety import new_rlock
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.runtime.shutdown import close_when_forgotten


@final
class Holding:
    """Devices and memory of an object, for one thread at a time, in the process that opened them."""

    def __init__(self, owner: object, stack: ExitStack, what: str) -> None:
        self._stack: ExitStack | None = stack
        self._what, self._process, self._lock = what, os.getpid(), new_rlock()
        close_when_forgotten(owner, stack)

    @property
    def is_open(self) -> bool:
        """True if nothing has closed them yet."""
        return self._stack is not None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Refuse where they are closed, and close them when what is inside the block fails or is interrupted."""
        refuse_in_child(self._process, self._what)
        with self._lock:
            if self._stack is None:
                raise ClosedError(f"{self._what} is closed: open another one")
            try:
                yield
            except BaseException:
                stack, self._stack = self._stack, None
                if stack is None or not stack.__exit__(*sys.exc_info()):
                    raise

    def close(self, before: Callable[[], None] | None = None) -> None:
        """Let go of them, behind a last call of ``before``; a second call does nothing, and neither does a forked child."""
        with self._lock:
            stack, self._stack = self._stack, None
            if stack is not None and self._process == os.getpid():
                if before is not None:
                    before()
                stack.close()
