"""Page-locking of the memory of A and L for a run, in the order in which the plan's copies need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.steps import Step
from ooc_chol.dense.stores.array import MemoryStore
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.dense.stores.tiered import TieredStore
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import Tiers
from ooc_chol.memory.locking import PieceLocks
from ooc_chol.tasks.operations import StepKind
from ooc_chol.tasks.tiling import Index, TileGrid


def lock_store(plan: Plan, store: MemoryStore | TieredStore) -> None:
    """Begin to page-lock the memory of L where the plan's devices gain by it; returns at once."""
    registrar = device_kind(plan.devices[0]).registrar(plan.devices[0])
    if registrar is not None:
        store.lock(registrar, written_order(plan))


@contextmanager
def source_locked(plan: Plan, tier: SourceTier) -> Iterator[None]:
    """Page-lock A's memory during the block, where the plan's devices copy tiles of it in place."""
    registrar, memory = device_kind(plan.devices[0]).registrar(plan.devices[0]), tier.host_memory()
    if registrar is None or memory is None:
        yield
        return
    starts, end = row_bands(memory, plan.grid)
    rows = dict.fromkeys(i for i, _ in read_order(plan))
    with closing(PieceLocks(registrar, memory)) as locks:
        locks.begin(end, [(int(starts[i]), int(starts[i]) + 1) for i in rows], starts)
        tier.locks = locks
        try:
            yield
        finally:
            tier.locks = None


def waited_seconds(tiers: Tiers) -> float:
    """Seconds for which copies of these tiers have waited for page-locking until now."""
    return sum(locking.waited_seconds for tier in tiers.values() if (locking := tier.locking()) is not None)


def refused_bytes(tiers: Tiers) -> int:
    """Bytes of these tiers that were to be page-locked, and are not."""
    return sum(locking.refused_bytes for tier in tiers.values() if (locking := tier.locking()) is not None)


def written_order(plan: Plan) -> list[Index]:
    """Tiles of L in the order in which their first copies are enqueued: those that are given as they are fetched."""
    given = plan.given
    return _order(plan, lambda step: step.kind is StepKind.WRITE or (step.kind is StepKind.FETCH and step.tile in given))


def read_order(plan: Plan) -> list[Index]:
    """Tiles of A in the order in which their first copies are enqueued."""
    return _order(plan, lambda step: step.kind is StepKind.FETCH and step.block.version == 0)


def _order(plan: Plan, is_counted: Callable[[Step], bool]) -> list[Index]:
    """Tiles of the steps that count, those of all devices merged by how far each device's program has come."""
    firsts: dict[Index, float] = {}
    for program in plan.programs:
        for position, step in enumerate(program.steps):
            if is_counted(step):
                share = position / len(program.steps)
                firsts[step.tile] = min(share, firsts.get(step.tile, share))
    return sorted(firsts, key=firsts.__getitem__)


def row_bands(memory: NDArray[np.float64], grid: TileGrid) -> tuple[NDArray[np.int64], int]:
    """First addresses of the bands of rows that make a tile row each, and the end of the last one.

    No page is part of two bands: one that two share is the later one's. Of the earlier band it has the end of the last row, which
    but for the last band is mostly above the diagonal, where nothing is read; a tile that needs it goes through staging buffers.
    """
    low, high = (int(address) for address in np.lib.array_utils.byte_bounds(memory))
    starts = low + memory.strides[0] * np.array([grid.start(i) for i in range(grid.nt)], dtype=np.int64)
    starts[1:] -= starts[1:] % PAGE_BYTES
    return np.maximum(starts, low), high
