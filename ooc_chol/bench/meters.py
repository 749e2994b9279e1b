"""Meters while a case runs: NVML's of the GPUs (energy, device memory, clock), and Linux's of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, final

import numpy as np

#: Least seconds between two samples of memory and clock.
SAMPLE_SECONDS = 0.05
#: NVML's number of the clock of the multiprocessors.
_CLOCK_SM = 1


def memory_of_process(name: str) -> int:
    """Bytes of this process's memory by one of Linux's names: ``"VmHWM"``, the resident maximum, or ``"RssAnon"``.

    ``getrusage`` would tell of the process that it was forked from, too.
    """
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return 1024 * int(lines[name].split()[0])


@final
class GpuMeter(AbstractContextManager["GpuMeter"]):
    """Energy, memory and clock of GPUs between enter and exit."""

    def __init__(self, handles: Sequence[tuple[Any, Any]]) -> None:
        self._handles = tuple(handles)
        self._joules: list[float] = []
        self._before: list[int] = []
        self._used: list[list[int]] = []
        self._clocks: list[list[int]] = []
        self._next = 0.0

    def __enter__(self) -> GpuMeter:
        self._before = [self._memory(nvml, handle) for nvml, handle in self._handles]
        self._used = [[used] for used in self._before]
        self._clocks = [[] for _ in self._handles]
        self._joules = self._energy()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._joules = [after - before for after, before in zip(self._energy(), self._joules, strict=True)]

    def sample(self, *_: object) -> None:
        """Note memory and clock, at most every :data:`SAMPLE_SECONDS`; takes the arguments of a progress callback."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAMPLE_SECONDS
        for (nvml, handle), used, clocks in zip(self._handles, self._used, self._clocks, strict=True):
            used.append(self._memory(nvml, handle))
            clocks.append(int(nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)))

    def figures(self) -> dict[str, Any]:
        """Figures for the result file, once the block has ended."""
        taken = [max(used) - before for used, before in zip(self._used, self._before, strict=True)]
        return {
            "joules": sum(self._joules),
            "joules_each": self._joules,
            "device_bytes": max(taken),
            "device_bytes_each": taken,
            "clock_mhz": [float(np.median(clocks)) if clocks else None for clocks in self._clocks],
        }

    def _energy(self) -> list[float]:
        """Joules of each device since its driver was loaded."""
        return [nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3 for nvml, handle in self._handles]

    @staticmethod
    def _memory(nvml: Any, handle: Any) -> int:
        """Bytes in use on a device, by all processes."""
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


@final
class HostMeter(AbstractContextManager["HostMeter"]):
    """A meter without figures: the host has no such counters."""

    sample: Callable[[int, int, float], None] | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def figures(self) -> dict[str, Any]:
        """Return no figures: there are none for the result file."""
        return {}


def meter_for(devices: Sequence[str]) -> GpuMeter | HostMeter:
    """A meter of these devices, all of one kind."""
    if not devices[0].startswith("cuda:"):
        return HostMeter()
    from ooc_chol.hardware import cuda

    return GpuMeter([cuda.nvml_handle(name) for name in devices])
