"""Python's garbage collector rests while devices work, and while millions of steps are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep Python's garbage collector off inside the block, on all threads."""
    # One full collection stops the thread that feeds all devices for 50 to 150 ms. And it runs on whichever thread comes next: a
    # function that a CUDA stream calls on the host may make no CUDA call, so that freeing device memory fails there.
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()
