"""Python's garbage collector rests while devices work, and while millions of steps are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ooc_chol.process.fork_safety import RESTING


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's garbage collector off inside the block, on all threads."""
    # One full collection stops the thread that feeds all devices for 50 to 150 ms. And it runs on whichever thread comes next: a
    # function that a CUDA stream calls on the host may make no CUDA call, so that freeing device memory fails there.
    was_enabled, call = gc.isenabled(), object()
    try:
        if was_enabled:
            RESTING.add(call)
        gc.disable()
        yield
    finally:
        RESTING.discard(call)
        if was_enabled:
            try:
                _let_grow_old()
            finally:
                gc.enable()


def _let_grow_old() -> None:
    """Count what was made as long lived: the collector would look through it at once, a tenth of a second for 100,000 steps."""
    if gc.get_freeze_count() == 0:  # else somebody has frozen objects, which must stay so
        gc.freeze()
        gc.unfreeze()
