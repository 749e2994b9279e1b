"""Interrupts one call of every phase, again and again; a program of its own: ``python -m tests.host.interrupts fp64 FOLDER``.

Events choose the moments, never the clock: the n-th time that a function of some part of ooc_chol begins on the main thread, the
n-th call of the tile function (on a thread of the device, while the main thread waits), and the n-th flush of a file. The last
interrupt is caught by nobody: the process ends by it.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import ooc_chol as oc
from tests.host.escalation_cases import ROW
from tests.inside.kernels import current_threads

N, NB = 160, 32
OPTIONS: dict[str, dict[str, Any]] = {
    "fp64": {},
    "residue": {"fp64": "residue"},
    "mixed": {"precision_threshold": 1e-4},
    "escalating": {"precision_threshold": 1e-2},
}
#: At how many of the functions that begin there a call is interrupted; once in every other part of the package. Beside the parts:
#: calls of the tile function, and flushes of a file.
MORE = {
    "dense/execution": 3,
    "dense/factor": 3,
    "hardware/host": 2,
    "runtime/shutdown": 2,
    "process/threads": 2,
    "tile": 4,
    "flush": 2,
}
#: Folders whose modules or folders are each a part; all else counts by the first of its names.
SPLIT = ("dense", "display", "files", "hardware", "kernels", "memory", "process", "runtime")
DISTANCE = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
EASY = np.exp(-DISTANCE / 20.0) + 0.1 * np.eye(N)
#: Pivots fail in narrow formats: a tile row is computed again, and then everything.
HARD = ROW._replace(twins=((20, 50), (35, 90))).matrix()
ROOT = os.path.dirname(oc.__file__) + os.sep

Counts = Counter[str]


def call(mode: str, store: Path, calls: Counts, at: tuple[str, int] | None) -> bytes:
    """Factor from a tile function into a file, solve, refine and look at the residual; at the moment ``at``, interrupt."""

    def happened(what: str) -> None:
        calls[what] += 1
        if at == (what, calls[what]):
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGINT)

    def tile(rows: range, cols: range, out: Any, stream: Any) -> None:
        out[...] = a[rows.start : rows.stop, cols.start : cols.stop]
        happened("tile")

    def begun(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        # A generator that goes on has not begun: an error raised here, unlike an interrupt, would end it without its last words.
        goes_on = frame.f_code.co_flags & inspect.CO_GENERATOR
        if event == "call" and path.startswith(ROOT) and not goes_on and not is_finalizing(frame):
            names = path.removeprefix(ROOT).removesuffix(".py").split("/")
            happened("/".join(names[: 2 if names[0] in SPLIT else 1]))

    def is_finalizing(frame: FrameType | None) -> bool:
        """Whether Python collects an object just now: it shows an interrupt that comes then, and goes on."""
        while frame is not None and frame.f_code.co_name != "__del__":
            frame = frame.f_back
        return frame is not None

    def flush(descriptor: int) -> None:
        happened("flush")
        real(descriptor)

    a = HARD if mode == "escalating" else EASY
    real, os.fsync = os.fsync, flush
    try:
        sys.setprofile(begun)
        source = oc.from_function(N, tile)
        with oc.cholesky(source, tile_size=NB, memory_budget="400 kB", devices="host:0", store=store, **OPTIONS[mode]) as factor:
            assert len(factor.report.escalations) == (2 if mode == "escalating" else 0)
            factor.solve(np.ones(N), **({"refine": True, "a": source} if mode == "mixed" else {}))
            factor.residual(source, blocks=4)
            return np.asarray(factor).tobytes()
    finally:
        sys.setprofile(None)
        os.fsync = real


def moments(calls: Counts) -> list[tuple[str, int]]:
    """Where to interrupt, spread over what happened in a call that was not."""
    assert MORE.keys() <= calls.keys(), f"renamed, or never called: {MORE.keys() - calls.keys()}"
    return [
        (what, 1 + (2 * number + 1) * calls[what] // (2 * count))
        for what in calls
        for count in [min(MORE.get(what, 1), calls[what])]
        for number in range(count)
    ]


def left_over(store: Path) -> dict[str, object]:
    """What a call has left: threads, descriptors, files, and settings of the process."""
    names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    descriptors = sorted(os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if is_open(number))
    return {
        "threads": names,
        "descriptors": [name for name in descriptors if name.startswith("/") and not name.startswith("/proc")],
        "files": sorted(path.name for path in store.parent.iterdir()),
        "blas": current_threads(),
        "collector": gc.isenabled(),
    }


def is_open(number: str) -> bool:
    """Whether the descriptor is still there."""
    return os.path.islink(f"/proc/self/fd/{number}")


def settled(look: Callable[[], dict[str, object]], expected: dict[str, object]) -> dict[str, object]:
    """What is left once threads that were told to end have ended; at most some seconds later."""
    deadline = time.monotonic() + 5.0
    while (found := look()) != expected and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def interrupted(mode: str, store: Path, at: tuple[str, int]) -> str:
    """How the call ended; on a busy machine threads are looked at more often, so that a moment may come in one call only."""
    calls = Counter[str]()
    try:
        call(mode, store, calls, at)
    except KeyboardInterrupt:
        return "right"
    return "WRONG: it went on" if calls[at[0]] >= at[1] else "not reached"


def main(mode: str, folder: str) -> None:
    """Interrupt, and say of each moment what was wrong."""
    store, calls = Path(folder) / "L.factor", Counter[str]()
    call(mode, store, Counter(), None)  # the first one imports what all need
    store.unlink()
    right = call(mode, store, calls, None)
    store.unlink()
    for at in moments(calls):
        before = left_over(store)
        end = interrupted(mode, store, at)
        store.unlink(missing_ok=True)  # complete, if it came later
        found = settled(lambda: left_over(store), before)
        print(f"{at[0]} {at[1]} of {calls[at[0]]}: {end if found == before else f'WRONG: {found}'}")
    print("again:", "right" if call(mode, store, Counter(), None) == right else "WRONG")
    sys.stdout.flush()
    call(mode, store, Counter(), ("tile", 3))


if __name__ == "__main__":
    main(*sys.argv[1:])
