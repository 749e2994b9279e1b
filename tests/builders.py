"""Parts of the package that tests make by hand: devices, stores, sources, plans and runs.

How each is put together is said here and nowhere else in the tests: when the way changes, this file does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol import CholeskyFactor, FactorOptions, Plan
from ooc_chol.toolbox import ClusterPlan
from tests.inside.cluster import ClusterRates, WorkerRates, plan_cluster
from tests.inside.dense import (
    KEPT_PLANS,
    KEPT_WINDOW_PLANS,
    AbstractStore,
    DeviceSolver,
    Execution,
    FileStore,
    MemoryStore,
    OverwriteStore,
    Problem,
    Rates,
    SourceTier,
    TileProgram,
    TileSlots,
    execute,
    fresh_plan,
    measure_matrix,
)
from tests.inside.hardware import HostDevice, registry
from tests.inside.interfaces import AbstractTier
from tests.inside.kernels import HostFlags, HostKernels, HostResidueKernels, TileDevice, open_tile_device
from tests.inside.memory import as_source
from tests.inside.precision import FP64, MatrixNorms, PrecisionFormat, PrecisionMap
from tests.inside.tasks import TileGrid, tile_bytes_of

#: What factors that no run made say of their arithmetic.
KEY = {"n": "as the grid", "engine": "test", "formats": ["fp64"], "threads": 1}


# devices


def host_kernels(threads: int = 1, moduli: int | None = None) -> HostKernels:
    """The kernels of the host, with ``moduli`` also for products through residues."""
    return HostKernels(threads, None if moduli is None else host_residue_kernels(moduli, threads))


def host_residue_kernels(moduli: int, threads: int = 1, fmt: PrecisionFormat = FP64) -> HostResidueKernels:
    """The kernels of the host for products through residues of tiles of one format."""
    return HostResidueKernels(moduli, threads, fmt)


def host_flags(nt: int) -> HostFlags:
    """Clear flags for ``nt`` tile columns."""
    return HostFlags(nt)


def host_device(
    name: str = "host:0",
    threads: int = 1,
    moduli: int | None = None,
    fmt: PrecisionFormat = FP64,
    *,
    kind: type[HostDevice] = HostDevice,
) -> HostDevice:
    """A device of the host with its kernels; ``kind`` is a subclass that watches or delays."""
    return kind(name, host_kernels(threads, moduli))


def open_device(name: str, threads: int = 1, moduli: int | None = None, fmt: PrecisionFormat = FP64) -> TileDevice:
    """Any device by name, as the driver opens it."""
    return open_tile_device(name, threads, moduli, fmt)


def page_locked(name: str, *, fresh: Any = None, filled: Sequence[Any] = ()) -> AbstractContextManager[None]:
    """Page-lock host memory for the named device."""
    return registry.page_locked([name], fresh=fresh, filled=filled)


def device_solver(name: str, budget_bytes: int, fmt: PrecisionFormat = FP64) -> DeviceSolver:
    """A solver on the named device, for factors in ``fmt``."""
    return DeviceSolver(lambda: open_device(name, fmt=fmt), lambda arrays: page_locked(name, filled=arrays), lambda: budget_bytes)


# sources and stores


def source_tier(a: Any, grid: TileGrid) -> SourceTier:
    """A matrix, in any form, as the tier that its tiles come from."""
    return SourceTier(as_source(a), grid)


def memory_store(grid: TileGrid, formats: Sequence[PrecisionFormat] | None = None) -> MemoryStore:
    """An empty store in memory."""
    return MemoryStore(grid, formats)


def file_store(
    path: str | os.PathLike[str], grid: TileGrid, key: Mapping[str, Any] = KEY, formats: Sequence[PrecisionFormat] | None = None
) -> FileStore:
    """An empty store in a new file."""
    return FileStore.create(path, grid, key, formats)


def overwrite_store(a: NDArray[np.float64], grid: TileGrid) -> OverwriteStore:
    """The store that writes L over the lower triangle of ``a``."""
    return OverwriteStore(a, grid)


def factor_over(store: AbstractStore, key: Mapping[str, Any] = KEY, **options: Any) -> CholeskyFactor:
    """The factor whose tiles ``store`` holds."""
    return CholeskyFactor(store.grid, store, key, **options)


# plans and runs


def problem(n: int, itemsize: int = 8, precision: PrecisionMap | None = None) -> Problem:
    """What a planner knows of a matrix of order ``n``: an array, or a function when its entries take no bytes."""
    return Problem(n, itemsize, "array" if itemsize else "function", precision=precision)


def planned(n: int, itemsize: int = 8, rates: Rates | None = None, precision: PrecisionMap | None = None, **options: Any) -> Plan:
    """A plan from options, without a matrix and with these rates."""
    return fresh_plan(problem(n, itemsize, precision), FactorOptions(**options), lambda grid: rates)


def cluster_plan(
    n: int, nb: int, workers: Sequence[Mapping[str, Any]], rates: Mapping[str, float], **options: Any
) -> ClusterPlan:
    """A plan for workers and a network that do what these figures say; nobody is asked."""
    return plan_cluster(TileGrid(n, nb), [WorkerRates(**worker) for worker in workers], ClusterRates(**rates), **options)


def forget_plans() -> None:
    """Let go of the plans that the process keeps: what plans depend on is about to be changed by other ways than options."""
    KEPT_PLANS.clear()
    KEPT_WINDOW_PLANS.clear()


def tile_program(
    grid: TileGrid, slots: int, source_itemsize: int | None = 8, *, slot_bytes: int | None = None, **options: Any
) -> TileProgram:
    """A program of FP64 tiles in the making, in slots of a tile's bytes unless others are given."""
    held, layout = tile_bytes_of(grid), TileSlots(slots, slot_bytes or 8 * grid.size(0) ** 2)
    return TileProgram(grid, layout, source_itemsize=source_itemsize, stored_bytes=held, held_bytes=held, **options)


def executed(plan: Plan, a: Any, store: AbstractTier, devices: Sequence[TileDevice]) -> Execution:
    """Run ``plan`` on the matrix ``a``, into ``store``."""
    return execute(plan, devices, {"A": source_tier(a, plan.grid), "L": store})


def measured_norms(a: Any, nb: int, devices: Sequence[TileDevice]) -> MatrixNorms:
    """Norms of the tiles of a matrix, measured on ``devices``; an array that was given as a path stays open until they are."""
    source = as_source(a)
    try:
        return measure_matrix(TileGrid(source.n, nb), devices, SourceTier(source, TileGrid(source.n, nb)))
    finally:
        source.close()
