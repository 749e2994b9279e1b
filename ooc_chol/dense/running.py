"""What a run is made of beside its plan: the arithmetic key, the store of L, opened devices, norms of A."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ooc_chol.config import format_bytes, parse_bytes
from ooc_chol.dense.execution.executor import Execution, Salvage, execute
from ooc_chol.dense.factor import DeviceSolver
from ooc_chol.dense.factor.products import product_with_transpose
from ooc_chol.dense.key import K_SEGMENT_TILES, ArithmeticKey
from ooc_chol.dense.matrix_norms import measure_matrix
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.passes import Pass
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.progress_bar import ProgressReporter
from ooc_chol.dense.stores.array import MemoryStore, OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.file import FileStore
from ooc_chol.dense.stores.header import FACTOR_FILES
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.errors import BudgetError
from ooc_chol.formats import FP64
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.interfaces import AbstractDevice
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.kernels.machine import HOST, device_facts, kind_of, open_device, page_locked
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources.base import AbstractSource, SourceTier, unchanged
from ooc_chol.outputs import Output, check_outputs
from ooc_chol.precision.certified import CertifiedBound, certified_bound
from ooc_chol.precision.norms import MatrixNorms, Probes
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.tiling import TileGrid


def arithmetic_key(the_plan: Plan) -> ArithmeticKey:
    """The key of ``the_plan`` on this machine."""
    facts = device_facts(the_plan.devices)
    layout = the_plan.layout
    return ArithmeticKey(
        n=the_plan.grid.n,
        nb=the_plan.grid.nb,
        formats=FP64.name if the_plan.precision is None else _formats_text(the_plan.precision),
        engine=_engine_text(the_plan),
        k_segment_tiles=K_SEGMENT_TILES if layout is None else 0,
        trsm=facts.trsm,
        kernels=facts.kernels,
        device_model=facts.model,
        library=facts.library,
        threads_per_call=1,
    )


def _engine_text(the_plan: Plan) -> str:
    """How products are computed. FP32 sums of products in FP16 depend on panels and on the lengths of K, which are added."""
    layout = the_plan.layout
    if layout is None:
        return "native"
    text = f"residue, {layout.moduli} moduli"
    if not layout.halves:
        return text
    widths = ",".join(str(panel.width) for panel in the_plan.panels)
    shares = ", ".join(f"{100 * share:.4f} % in {name}" for name, share in the_plan.product_shares.items())
    return f"{text}, {shares}, chunks of {layout.chunk}, panels {widths}"


def _formats_text(precision: PrecisionMap) -> str:
    """Storage and products of all tiles, packed, a digit each: bytes of an entry."""
    stored = "".join(str(fmt.itemsize) for fmt in precision.formats)
    return f"mixed {stored} products {''.join(str(fmt.itemsize) for fmt in precision.products)}"


def measure(
    source: AbstractSource,
    grid: TileGrid,
    names: Sequence[str],
    *,
    threads: int,
    samples: bool,
    probes: Probes | None = None,
    one: Pass | None = None,
) -> MatrixNorms:
    """Norms of A's tiles, and A's products with random vectors, on the devices."""
    tier = SourceTier(source, grid)
    with unchanged(source), one_thread_per_call(names):
        return measure_matrix(grid, _for_a_pass(names, grid, threads), tier, samples=samples, probes=probes, run=one)


def certify(the_plan: Plan, store: AbstractStore, norms: MatrixNorms, *, threads: int, one: Pass) -> CertifiedBound:
    """The bound of the factor in ``store``, by one more reading of it on the plan's devices."""
    assert norms.probes is not None
    devices = _for_a_pass(the_plan.devices, the_plan.grid, threads)
    with one_thread_per_call(the_plan.devices):
        product = product_with_transpose(store, devices, norms.probes.vectors, the_plan.budgets[0].budget_bytes, one)
    return certified_bound(norms, product)


def _for_a_pass(names: Sequence[str], grid: TileGrid, threads: int) -> list[AbstractDevice]:
    """Devices for one pass over tiles; on the host one does it all, with a stream for each of two cores."""
    chosen = names[:1] if kind_of(names[0]) is HOST else names[: grid.n_tiles]
    return [open_device(name, threads) for name in chosen]


def check_store(source: AbstractSource, place: str | os.PathLike[str] | HostMemory | None, *, replace: bool) -> None:
    """Refuse a file for L that is A's own, or exists and is no factor; before anything is measured or planned."""
    if place is not None and not isinstance(place, HostMemory):
        inputs = [("a", file) for file in source.files]
        check_outputs([Output("store", place, FACTOR_FILES)], inputs, replace=replace, ask="replace_store=True")


def create_store(
    a: Any,
    the_plan: Plan,
    place: str | os.PathLike[str] | HostMemory | None,
    options: FactorOptions,
    *,
    overwrite: bool = False,
    replace: bool = False,
) -> AbstractStore:
    """Where L goes: over ``a``, into the file ``place``, or into memory, page-locked as long as L is there when a GPU factors."""
    if overwrite:
        if not isinstance(a, np.ndarray):
            raise TypeError(
                f"overwrite=True keeps L in A's own memory, but A is a {type(a).__name__}; give a writable float64 array"
            )
        return OverwriteStore(a, the_plan.grid)
    formats = None if the_plan.precision is None else the_plan.precision.formats
    if place is not None and not isinstance(place, HostMemory):
        return FileStore.create(place, the_plan.grid, arithmetic_key(the_plan).to_dict(), formats, replace=replace)
    _check_host_memory(the_plan, TileLayout(the_plan.grid, formats=formats).end, place, options)
    store = MemoryStore(the_plan.grid, formats, place)
    store.memory.lock(lambda memory: page_locked(the_plan.devices, fresh=memory))
    return store


def _check_host_memory(the_plan: Plan, needed: int, place: HostMemory | None, options: FactorOptions) -> None:
    """Raise ``BudgetError`` unless the host has so many bytes for L, or ``place`` has them already."""
    on_host = kind_of(the_plan.devices[0]) is HOST
    arenas = _arena_bytes(the_plan) if on_host else 0
    free = free_host_bytes() - arenas + (0 if place is None else place.nbytes)
    allowed = free if options.host_budget is None else min(free, parse_bytes(options.host_budget, "host_budget"))
    if needed > allowed:
        advice = f"keep L in a file (store=) or over A (overwrite=True), or lower memory_budget ({format_bytes(arenas)} in use)"
        raise BudgetError("host memory for L", needed, max(0, allowed), advice)


def _arena_bytes(the_plan: Plan) -> int:
    """Bytes of slots on all devices together."""
    if the_plan.layout is not None:
        return len(the_plan.devices) * the_plan.layout.arena_bytes
    return sum(budget.n_slots * budget.slot_bytes for budget in the_plan.budgets)


def one_thread_per_call(names: Sequence[str]) -> AbstractContextManager[None]:
    """On the host the kernels' own threads share a tile, each making BLAS calls of one thread.

    Threaded calls divide their work beforehand and wait for the slowest: ten times slower where another program takes a core.
    """
    return blas_threads(1) if kind_of(names[0]) is HOST else nullcontext()


def device_solver(the_plan: Plan) -> DeviceSolver | None:
    """Solves with the factor on the first GPU of its plan, within the plan's budget; None where the host factors.

    There a factor's own solves read its tiles in place.
    """
    name = the_plan.devices[0]
    if kind_of(name) is HOST:
        return None
    return DeviceSolver(
        lambda: open_device(name), lambda arrays: page_locked([name], filled=arrays), the_plan.budgets[0].budget_bytes
    )


def run(
    the_plan: Plan,
    source: AbstractSource,
    store: AbstractStore,
    *,
    threads: int,
    report: ProgressReporter,
    salvage: Salvage | None = None,
) -> Execution:
    """Open the devices and execute the plan."""
    tier = SourceTier(source, the_plan.grid)
    watched = nullcontext() if isinstance(store, OverwriteStore) else unchanged(source)
    with watched, page_locked(the_plan.devices, fresh=store.host_memory(), filled=[tier.host_memory()]):
        devices = [open_device(name, threads, the_plan.moduli) for name in the_plan.devices]
        return execute(the_plan, devices, tier, store, report=report, salvage=salvage)
