"""Captures of a GPU's streams, which take turns with waits for the whole GPU: the driver refuses these, and voids the capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import RLock
from typing import Any

import cupy as cp

from ooc_chol.hardware.cuda.failures import driver_errors
from ooc_chol.process.fork_safety import new_rlock
from ooc_chol.process.garbage_collector import collector_off

_runtime = cp.cuda.runtime
#: ``cudaErrorStreamCaptureInvalidated``.
_INVALIDATED = 901


@cache
def no_capture(number: int) -> RLock:
    """A lock under which nobody captures on GPU ``number``: for waits, and for handles of libraries, which wait as they go."""
    return new_rlock()


def wait_for_device() -> None:
    """Wait until the current GPU has done all that it was given, by whomever."""
    with no_capture(cp.cuda.Device().id):
        _runtime.deviceSynchronize()


def captured(stream: Any, enqueue: Callable[[], None]) -> Any | None:
    """The graph of what ``enqueue`` gives to a stream of CuPy's, on the current GPU.

    None where somebody else, such as a library on another thread, waits for the whole GPU meanwhile: that voids it.
    """
    with no_capture(cp.cuda.Device().id), collector_off():  # what it collects may free device memory, which voids a capture
        # Of this thread alone: another one may page-lock memory meanwhile, which a capture of all threads would forbid.
        stream.begin_capture(_runtime.streamCaptureModeThreadLocal)
        try:
            enqueue()
        except driver_errors():
            if _is_void(stream):
                return None
            raise
        except BaseException:
            with suppress(*driver_errors()):  # the first error is the one to tell
                stream.end_capture()
            raise
        try:
            return stream.end_capture()
        except _runtime.CUDARuntimeError as error:
            if error.status == _INVALIDATED:
                return None
            raise


def _is_void(stream: Any) -> bool:
    """End a capture, and tell whether it was void."""
    try:
        stream.end_capture()
    except _runtime.CUDARuntimeError as error:
        return bool(error.status == _INVALIDATED)
    return False
