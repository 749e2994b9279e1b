"""Plans run piece by piece: chosen panels, devices and tiers that take their time, and the bytes that really moved."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol
from ooc_chol import Plan
from tests.builders import executed, factor_over, host_device, memory_store, tile_program
from tests.inside.dense import AbstractStore, Execution, NextUse, ResidencyPlanner, run_module
from tests.inside.hardware import HostDevice, HostStream
from tests.inside.interfaces import AbstractDevice, AbstractEvictionPolicy, AbstractTier
from tests.inside.memory import AbstractSource
from tests.inside.schedulers import FinishingTasks, LeftLookingScheduler
from tests.inside.tasks import Link, Panel

#: Makes a device by its name, threads and moduli.
MakeDevice = Callable[..., AbstractDevice]

#: The command of the shell, and the environment in which a process of its own finds this package, installed or not.
COMMAND = [sys.executable, "-m", "ooc_chol_command"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(ooc_chol.__file__).parents[1]),
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def budget_of(tiles: int, n: int, nb: int) -> int:
    """Bytes that hold ``tiles`` tiles and no more."""
    return tiles * -(-8 * min(n, nb) ** 2 // 4096) * 4096


def with_panels(
    plan: Plan, panels: Sequence[Panel], eviction: AbstractEvictionPolicy | None = None, *, finishes: bool = False
) -> Plan:
    """``plan`` with other panels (another eviction policy, a finish stream): the same factorization in another order."""
    schedule = LeftLookingScheduler().schedule(plan.grid, plan.owners, panels)
    programs = []
    for device, (tasks, budget) in enumerate(zip(schedule.tasks, plan.budgets, strict=True)):
        finishing = FinishingTasks(panels) if finishes else None
        builder = tile_program(
            plan.grid,
            budget.n_slots,
            slot_bytes=budget.slot_bytes,
            device=device,
            overlaps=plan.policy.overlaps,
            finishing=finishing,
        )
        capacity = budget.n_slots - budget.prefetch_slots
        ResidencyPlanner(tasks, capacity, plan.policy, eviction or NextUse()).run(builder)
        programs.append(builder.build())
    return replace(plan, panels=tuple(panels), programs=tuple(programs))


def run_plan(plan: Plan, a: Any, store: AbstractTier | None = None, make_device: MakeDevice = host_device) -> Execution:
    """Execute ``plan`` on the matrix ``a``, into ``store`` if it is given; its bytes are checked."""
    store = memory_store(plan.grid) if store is None else store
    execution = executed(plan, a, store, [make_device(name) for name in plan.devices])
    check_bytes(plan, execution)
    return execution


def factor_of(plan: Plan, a: Any, make_device: MakeDevice = host_device) -> NDArray[np.float64]:
    """L of ``a`` by ``plan``, dense."""
    store = memory_store(plan.grid)
    run_plan(plan, a, store, make_device)
    return np.asarray(factor_over(store))


def check_bytes(plan: Plan, execution: Execution) -> None:
    """Assert that every link of every device carried what was planned, and that no plan takes more than its budget."""
    assert execution.link_bytes == tuple(program.link_bytes for program in plan.programs)
    for program, budget in zip(plan.programs, plan.budgets, strict=True):
        assert program.peak_resident <= program.peak_bytes <= budget.n_slots * budget.slot_bytes <= budget.budget_bytes


# taking time


class JitterStream(HostStream):
    """Sleeps a random while before some operations, copies and kernels alike."""

    def __init__(self, name: str, seed: int) -> None:
        self._random = random.Random(f"{seed} {name}")
        super().__init__(name)

    def enqueue(self, operation: Callable[[], None]) -> None:
        """Append an operation, often with a pause in front of it."""
        if self._random.random() < 0.3:
            pause = self._random.expovariate(1000.0)
            super().enqueue(lambda: time.sleep(pause))
        super().enqueue(operation)


def jitter_kind(seed: int) -> type[HostDevice]:
    """Host devices whose operations take random time, for one seed."""

    class JitterDevice(HostDevice):
        def create_stream(self, name: str, *, is_urgent: bool = False) -> HostStream:
            self._streams.append(JitterStream(f"{self.name} {name}", seed))
            self._streams[-1].start()
            return self._streams[-1]

    return JitterDevice


def jitter_devices(seed: int) -> MakeDevice:
    """A maker of host devices whose operations take random time, for one seed."""
    return partial(host_device, kind=jitter_kind(seed))


def use_devices(monkeypatch: pytest.MonkeyPatch, make_device: MakeDevice) -> None:
    """Let the driver open other devices."""
    monkeypatch.setattr(run_module, "open_tile_device", make_device)


class CountingSource(AbstractSource):
    """Another source's entries, late: before they come ``out`` holds NaN for a while. Counts what it hands out."""

    def __init__(self, source: AbstractSource, pause: float = 0.0) -> None:
        self.name, self.n, self.bytes_per_entry = source.name, source.n, source.bytes_per_entry
        self._source, self._pause = source, pause
        self.nbytes = 0

    def _read(self, rows: range, cols: range, out: NDArray[np.float64]) -> None:
        out.fill(np.nan)
        time.sleep(self._pause)
        self._source.read_block(rows, cols, out)
        self.nbytes += out.size * self.bytes_per_entry


class CountingStore(AbstractTier):
    """Another store, late as :class:`CountingSource`; writes look at their tile late, too. Counts what it moves."""

    name = "memory"

    def __init__(self, store: AbstractStore, pause: float = 0.0, *, ordered_by_events: bool = True) -> None:
        self.store, self._pause = store, pause
        self.ordered_by_events = ordered_by_events
        self.moved = {Link.FETCH: 0, Link.WRITE: 0}

    def read(self, index: tuple[int, int], out: NDArray[np.float64]) -> None:
        """Read late."""
        out.fill(np.nan)
        time.sleep(self._pause)
        self.store.read(index, out)
        self.moved[Link.FETCH] += out.nbytes

    def write(self, index: tuple[int, int], data: NDArray[np.float64]) -> None:
        """Write late."""
        time.sleep(self._pause)
        self.store.write(index, data)
        self.moved[Link.WRITE] += data.nbytes
