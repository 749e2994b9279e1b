"""No garbage is collected while a host function runs: what is freed there may be memory of a device, which CUDA refuses."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()
#: Host functions that run now, and whether the collector was on before the first of them.
_RUNNING: list[bool] = []


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's cyclic collector off inside the block, on all threads: it runs on whichever allocates next.

    Notes
    -----
    A function that a stream calls on the host may make no CUDA call ("operation not permitted"). Reference counts are no danger:
    the functions hold nothing that owns device memory. Several devices' functions may run at once; the last one to end turns the
    collector on again, if it was on.
    """
    with _LOCK:
        _RUNNING.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            if len(_RUNNING) == 1 and _RUNNING[0]:
                gc.enable()
            del _RUNNING[-1]
