"""The plan of a call, by rates that are measured on its workers where that pays."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from ooc_chol.cluster.choosing import LEAST_ROWS_OF_A_WORKER, block_height
from ooc_chol.cluster.facts import LIMIT_SHARE, UNMEASURED, ClusterFacts
from ooc_chol.cluster.model import WorkerRates
from ooc_chol.cluster.plan import ClusterPlan, candidate_heights, plan_cluster
from ooc_chol.cluster.rates import measured_rates
from ooc_chol.errors import BudgetError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid

#: Flops of a factorization that takes longer than measuring what it runs on, a few tenths of a second.
LEAST_MEASURED_FLOPS = 1e10
#: Blocks that a task has in memory at a time: of A, of L, and one on its way.
_BLOCKS_OF_A_TASK = 3
#: How many times as much memory a worker must have as all of L takes in one block: from 60 % on Dask writes it to disk.
LEAST_TIMES = 2


def plan_of_call(
    client: Any,
    facts: ClusterFacts,
    n: int,
    fmt: PrecisionFormat,
    *,
    store: str | None = None,
    height: int | None = None,
    a_is_sent: bool = False,
    asks_seconds: bool = False,
) -> ClusterPlan:
    """Plan a call: blocks of the height that is predicted to be fastest, unless one is given, or the matrix is small.

    Where one worker with GPUs makes and keeps all of L, that is one block, whose task moves what one process does. Bits depend on
    the order of tiles, which is settled before, and not on the height of blocks. Raises ``BudgetError`` and ``ClusterError``.
    """
    nb, count = facts.options.tile_size, len(facts.workers)
    assert nb is not None
    tiles = TileGrid(n, nb)
    workers, rates = [WorkerRates(state.room_bytes) for state in facts.workers.values()], UNMEASURED
    chooses = height is None and fmt.flops_factor * n**3 / 3 >= LEAST_MEASURED_FLOPS
    if chooses or asks_seconds:
        workers, rates = measured_rates(client, facts, tiles, fmt, store)
    plan = partial(
        plan_cluster,
        tiles,
        workers,
        rates,
        itemsize=fmt.itemsize,
        store="memory" if store is None else "zarr",
        a_is_sent=a_is_sent,
        order="chains",
    )
    if chooses and store is None and not a_is_sent and is_one_task(client, facts):
        with suppress(BudgetError):
            whole = plan(height=tiles.nt)
            if LEAST_TIMES * whole.peak_bytes <= whole.budget_bytes:
                return whole
    is_known = all(worker.flops_per_second is not None for worker in workers)
    is_known = is_known and (store is None or rates.storage_rate(count) is not None)
    if height is None and not (chooses and is_known):
        height = block_height(tiles.nt, count)
    return plan(height=height, heights=None if height is not None else _heights(tiles, facts, fmt))


def is_one_task(client: Any, facts: ClusterFacts) -> bool:
    """Tell whether one worker alone is to make all of L on its GPUs: no other is there, or on its way as far as is known."""
    (first, *others), expected = facts.workers.values(), getattr(client.cluster, "worker_spec", ())
    return not others and not first.is_host and len(expected) <= 1


def _heights(tiles: TileGrid, facts: ClusterFacts, fmt: PrecisionFormat) -> list[int]:
    """Heights of blocks to choose from: all workers have some, and what a task has at a time is a part of their memory.

    Who calls with a cluster wants L shared out, even where a task takes so long beside its flops that one worker were faster. The
    height that is taken without rates is always among them.
    """
    count, room = len(facts.workers), min(state.room_bytes for state in facts.workers.values()) // LIMIT_SHARE
    usual = block_height(tiles.nt, count)
    found = {usual}
    for height in candidate_heights(tiles.nt):
        has_rows = -(-tiles.nt // height) >= LEAST_ROWS_OF_A_WORKER * count
        if has_rows and _BLOCKS_OF_A_TASK * (height * tiles.nb) ** 2 * fmt.itemsize <= room:
            found.add(height)
    return sorted(found)
