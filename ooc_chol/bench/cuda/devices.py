"""Work on several GPUs at once, their access to each other's memory, and the versions of what drives them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

import cupy as cp

from ooc_chol.hardware.cuda import device_number
from ooc_chol.hardware.cuda.copies import PEER_ALREADY_ENABLED
from ooc_chol.process.team import ThreadTeam

Figure = TypeVar("Figure")


def on_device(name: str, body: Callable[[], Figure]) -> Figure:
    """``body()`` with a device current."""
    with cp.cuda.Device(device_number(name)):
        return body()


def at_once(devices: Sequence[str], body: Callable[[threading.Barrier], float]) -> list[float]:
    """Run ``body(barrier)`` on one thread for each device, that device current; ``barrier.wait()`` lets all start together."""
    barrier = threading.Barrier(len(devices))

    def run(name: str) -> float | BaseException:
        with cp.cuda.Device(device_number(name)):
            try:
                return body(barrier)
            except BaseException as error:  # raised below
                barrier.abort()  # else the other devices would wait for ever
                return error
            finally:
                cp.get_default_memory_pool().free_all_blocks()

    with closing(ThreadTeam(len(devices))) as team:  # as many threads as jobs: none waits at the barrier for one without
        found = team.map(run, devices)
    errors = [each for each in found if isinstance(each, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [each for each in found if not isinstance(each, BaseException)]


@contextmanager
def peer_access(numbers: Sequence[int]) -> Iterator[None]:
    """Let every one of these devices reach the others' memory, where the machine can; what was so before stays so."""
    enabled = []
    try:
        for one in numbers:
            for other in numbers:
                if one != other and _enable_peer(one, other):
                    enabled.append((one, other))
        yield
    finally:
        for one, other in enabled:
            with cp.cuda.Device(one):
                cp.cuda.runtime.deviceDisablePeerAccess(other)


def _enable_peer(one: int, other: int) -> bool:
    """Let device ``one`` reach ``other``; whether it can now and could not before."""
    runtime = cp.cuda.runtime
    if not runtime.deviceCanAccessPeer(one, other):
        return False
    with cp.cuda.Device(one):
        try:
            runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:
            if error.status != PEER_ALREADY_ENABLED:
                raise
            return False
    return True


def versions() -> dict[str, str]:
    """Versions of CuPy, the CUDA runtime and the driver."""
    runtime, driver = cp.cuda.runtime.runtimeGetVersion(), cp.cuda.runtime.driverGetVersion()
    return {"cupy": str(cp.__version__), "cuda_runtime": str(runtime), "cuda_driver": str(driver)}
