"""Fate of an unfinished factor file: it is flushed while the run goes on, and kept when the run ends early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType

from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.tiered import file_of
from ooc_chol.errors import NonFiniteError, NotHermitianError, NotPositiveDefiniteError, OocCholError, PrecisionError, TierError
from ooc_chol.interfaces import AbstractTier
from ooc_chol.process.threads import LOOK_SECONDS, OwnThread, start

#: Seconds between two flushes: what a power cut takes is what was written since the one before the last began.
FLUSH_SECONDS = 15.0
#: What is said of A itself: with the same A there is nothing to go on to, and another A has no use for these tiles.
VERDICTS = (NotPositiveDefiniteError, NonFiniteError, NotHermitianError, PrecisionError)


def keep_unfinished(store: AbstractStore, owned: ExitStack) -> None:
    """Let ``owned`` keep the file of a run that fails, and close it; only after a verdict on A itself it is removed."""
    owned.push(partial(_leave, store))


def _leave(store: AbstractStore, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
    """Close the store behind an error, to which is added where what was computed is, and how to go on."""
    if kind is not None and issubclass(kind, VERDICTS):
        store.discard()
        return
    file = file_of(store)
    if file.is_closed:  # discarded by a run that began anew, or closed by the store over it
        return
    written, path, is_complete = 0, file.partial_path, file.is_complete
    try:
        # What led here goes on; tiles whose bytes or checksums are lost are computed again.
        with suppress(OocCholError, OSError, MemoryError):
            store.settle()
        with suppress(OSError):
            store.flush()
        written = file.n_written
    finally:
        with suppress(OSError):
            store.close()
    if error is not None and not is_complete:
        error.add_note(f"{written} of {store.grid.n_tiles} tiles are in the checkpoint {path}: the same call goes on from it")


@contextmanager
def flushed(tier: AbstractTier) -> Iterator[None]:
    """Flush a tier that is kept, inside the block, every so many seconds by a thread."""
    if not tier.keeps_unfinished:
        yield
        return
    ended = threading.Event()
    problems: list[BaseException] = []
    thread = OwnThread(_flush_again_and_again, (tier, ended, problems), "flusher")
    try:
        start(thread)
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            while not thread.wait(LOOK_SECONDS):
                continue
    if problems:
        raise problems[0]


def _flush_again_and_again(store: AbstractStore, ended: threading.Event, problems: list[BaseException]) -> None:
    """Flush until told to end; the first failure is raised by who waits: a run must not end as if its file were sound."""
    while not ended.wait(FLUSH_SECONDS):
        try:
            store.flush()
        except TierError as error:
            problems.append(error)
            return
