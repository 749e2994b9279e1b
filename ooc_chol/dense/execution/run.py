"""Devices that are opened for a call: to execute a plan, or for one pass over tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import ProgressReporter
from ooc_chol.dense.execution.executor import Execution, Salvage, execute
from ooc_chol.dense.execution.page_locking import refused_bytes, source_locked, waited_seconds
from ooc_chol.dense.keeping import flushed
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.stores.array import OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.kernels.registry import kind_of, open_tile_device
from ooc_chol.memory.sources.base import AbstractSource, unchanged
from ooc_chol.tasks.tiling import TileGrid


def run(
    plan: Plan,
    source: AbstractSource,
    store: AbstractStore,
    *,
    report: ProgressReporter,
    salvage: Salvage | None = None,
    probes: NDArray[np.float64] | None = None,
    norms: NDArray[np.float64] | None = None,
    host_cores: int | None = None,
) -> Execution:
    """Open the devices of ``plan`` and execute it, while the memory of A and L is still being page-locked.

    Host devices share ``host_cores`` threads, by default those that BLAS may use; the bits do not depend on it.
    """
    threads = host_threads(len(plan.devices)) if host_cores is None else max(1, host_cores // len(plan.devices))
    tier = SourceTier(source, plan.grid, plan.fmt)
    tiers = {"A": tier, "L": store}
    watched = nullcontext() if isinstance(store, OverwriteStore) else unchanged(source)
    with kind_of(plan.devices[0]).calling(), watched, source_locked(plan, tier), flushed(store):
        before = waited_seconds(tiers)
        devices = [open_tile_device(name, threads, plan.moduli, plan.fmt) for name in plan.devices]
        probes = probes if plan.probe_arrays else None
        execution = execute(plan, devices, tiers, report=report, salvage=salvage, probes=probes, norms=norms)
        return replace(execution, locking_seconds=waited_seconds(tiers) - before, refused_bytes=refused_bytes(tiers))


@contextmanager
def opened_for_a_pass(names: Sequence[str], grid: TileGrid) -> Iterator[list[TileDevice]]:
    """Devices for one pass over tiles; on the host one does it all, with a stream for each of two cores."""
    threads = host_threads(len(names))
    chosen = names[:1] if device_kind(names[0]).shares_processor else names[: grid.n_tiles]
    with kind_of(names[0]).calling():
        yield [open_tile_device(name, threads) for name in chosen]
