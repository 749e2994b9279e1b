"""An L in a file as its plan has it: what host memory keeps of it, and whether the system's cache may help."""

from __future__ import annotations

from ooc_chol.config import format_bytes
from ooc_chol.dense.execution.page_locking import lock_store
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.file_tier import stays_out_of_cache
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.dense.stores.tiered import TieredStore
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.memory_limits import host_limit
from ooc_chol.hardware.registry import device_kind
from ooc_chol.memory.release import RELEASER
from ooc_chol.memory.sources.base import AbstractSource


def over_file(file: AbstractKeptStore, plan: Plan, source: AbstractSource, options: FactorOptions) -> AbstractStore:
    """The store of an L in ``file``, of which host memory keeps the tiles that ``plan`` says; an error discards the file.

    One that is kept it closes. Tiles that the plan is given are read from it.

    With a ``host_budget``, or where the files of A and L are large beside what is free, neither stays in the system's cache.
    """
    try:
        keep_out_of_cache(file, source, options)
        if not plan.host_tiles:
            return file
        _make_room(plan)
        store = TieredStore(file, plan.host_tiles)
    except BaseException:
        (file.close if file.keeps_unfinished else file.discard)()
        raise
    try:
        lock_store(plan, store)
    except BaseException:
        (store.close if file.keeps_unfinished else store.discard)()
        raise
    return store


def keep_out_of_cache(file: AbstractKeptStore, source: AbstractSource, options: FactorOptions) -> None:
    """Let neither A nor L stay in the system's cache where memory is bounded, or the cache too small."""
    if stays_out_of_cache(options, file.nbytes + source.file_bytes):
        file.keep_out_of_cache()
        source.is_bounded = True


def _make_room(plan: Plan) -> None:
    """Let there be host memory for the tiles that ``plan`` keeps, beside arenas there; ``BudgetError`` where that cannot be."""
    arenas = len(plan.devices) * plan.layout.arena_bytes if device_kind(plan.devices[0]).is_in_host_memory else 0
    free = free_host_bytes() - arenas
    # What waits for its release is free: the store takes it over, or it is released before anything is allocated.
    if (most := free + RELEASER.pending_bytes) < plan.host_tile_bytes:
        beside = f" beside {format_bytes(arenas)} of memory_budget" if arenas else ""
        advice = f"{host_limit().name} has {format_bytes(max(0, most))} free{beside}; give a smaller host_budget"
        raise BudgetError("host memory for tiles of L", plan.host_tile_bytes, max(0, most), advice)
    RELEASER.make_room(plan.host_tile_bytes, free)
