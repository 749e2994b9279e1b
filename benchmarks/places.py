"""A GPU or the host as cases of kernels see it: where arrays lie, what kernels take as a stream, seconds of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.running import event_seconds


@dataclass(frozen=True)
class Place:
    """Where kernels run."""

    xp: Any  #: Its library of arrays
    stream: Any  #: What kernels take as a stream
    on_gpu: bool

    def seconds(self, run: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> list[float]:
        """Seconds of each call but a first one; ``before`` each is not counted."""
        if self.on_gpu:
            return event_seconds(run, repeats, before=before)
        found = []
        for _ in range(repeats + 1):
            before()
            began = time.perf_counter()
            run()
            found.append(time.perf_counter() - began)
        return found[1:]

    def address(self, array: Any) -> int:
        """Where an array lies."""
        return int(array.data.ptr if self.on_gpu else array.ctypes.data)


def place_of(device: str) -> Place:
    """The current GPU, with a stream that is CuPy's current one from now on, or the host."""
    if not device.startswith("cuda"):
        return Place(np, SimpleNamespace(enqueue=lambda operation: operation()), False)
    import cupy as cp

    stream = cp.cuda.Stream().use()  # kernels are captured, which the default stream forbids
    return Place(cp, SimpleNamespace(stream=stream, record=stream.record, name="compute"), True)
