"""Devices that are opened for a call: to execute a plan, or for one pass over tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ooc_chol.dense.execution.executor import Execution, Salvage, execute
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.progress_bar import ProgressReporter
from ooc_chol.dense.stores.array import OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import AbstractDevice
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.kernels.machine import HOST, host_threads, kind_of, open_device, page_locked
from ooc_chol.memory.sources.base import AbstractSource, SourceTier, unchanged
from ooc_chol.tasks.tiling import TileGrid


def run(
    plan: Plan, source: AbstractSource, store: AbstractStore, *, report: ProgressReporter, salvage: Salvage | None = None
) -> Execution:
    """Open the devices of ``plan`` and execute it."""
    threads = host_threads(len(plan.devices))
    tier = SourceTier(source, plan.grid)
    watched = nullcontext() if isinstance(store, OverwriteStore) else unchanged(source)
    with (
        _one_thread_per_call(plan.devices),
        watched,
        page_locked(plan.devices, fresh=store.host_memory(), filled=[tier.host_memory()]),
    ):
        devices = [open_device(name, threads, plan.moduli) for name in plan.devices]
        return execute(plan, devices, tier, store, report=report, salvage=salvage)


@contextmanager
def opened_for_a_pass(names: Sequence[str], grid: TileGrid) -> Iterator[list[AbstractDevice]]:
    """Devices for one pass over tiles; on the host one does it all, with a stream for each of two cores."""
    threads = host_threads(len(names))
    chosen = names[:1] if kind_of(names[0]) is HOST else names[: grid.n_tiles]
    with _one_thread_per_call(names):
        yield [open_device(name, threads) for name in chosen]


def _one_thread_per_call(names: Sequence[str]) -> AbstractContextManager[None]:
    """On the host the kernels' own threads share a tile, each making BLAS calls of one thread.

    Threaded calls divide their work beforehand and wait for the slowest: ten times slower where another program takes a core.
    """
    return blas_threads(1) if kind_of(names[0]) is HOST else nullcontext()
