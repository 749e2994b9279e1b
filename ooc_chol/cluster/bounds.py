"""Lower bounds of a run on a cluster, and the bytes that each worker receives."""

from __future__ import annotations

import numpy as np

from ooc_chol.cluster.blocks import BlockPlace
from ooc_chol.cluster.model import ClusterRates
from ooc_chol.cluster.simulation import Case

#: What limits a run.
BOUNDS = ("arithmetic", "busiest worker", "longest chain", "network", "storage", "scheduler")


def scheduler_seconds(rates: ClusterRates, n_tasks: int, n_dependencies: int) -> float:
    """Seconds of Dask's scheduler for all tasks and their dependencies."""
    return n_tasks * rates.scheduler_seconds + n_dependencies * rates.dependency_seconds


def arithmetic_seconds(case: Case, flops: float) -> float:
    """Seconds of flops at the rate of long products, shared by the workers as they are fast."""
    return flops / sum(worker.flops_per_second or 0.0 for worker in case.workers)


def busiest_seconds(case: Case) -> float:
    """Seconds of all tasks of the worker that has most to do, one after the other, but for what storage takes."""
    totals = np.zeros(len(case.workers))
    last = case.costs.blocks.n_blocks - 1
    owners = np.array(case.owners.rows)
    for column in range(last + 1):
        totals[owners[column]] += _seconds(case, int(owners[column]), column, column)
        full = np.bincount(owners[column + 1 : last], minlength=len(totals))
        known: dict[object, float] = {}
        for worker in np.flatnonzero(full):
            rates = case.workers[worker]
            if rates not in known:
                known[rates] = _seconds(case, int(worker), column + 1, column)
            totals[worker] += full[worker] * known[rates]
        if column < last:
            totals[owners[last]] += _seconds(case, int(owners[last]), last, column)
    return float(totals.max())


def chain_seconds(case: Case) -> float:
    """Seconds of the chain of diagonal blocks and the blocks below them, which wait for each other, without any transfer."""
    last, owners = case.costs.blocks.n_blocks - 1, case.owners.rows
    diagonals = sum(_seconds(case, owners[column], column, column) for column in range(last + 1))
    return diagonals + sum(_seconds(case, owners[column + 1], column + 1, column) for column in range(last))


def _seconds(case: Case, worker: int, row: int, column: int) -> float:
    return case.costs.part(BlockPlace(row, column), 0, column).seconds(case.workers[worker]) + case.rates.overhead_seconds


def received_bytes(case: Case) -> tuple[int, ...]:
    """Bytes that each worker receives: block rows of L that its columns share, each once, and blocks of A where they are sent."""
    costs, n_workers = case.costs, len(case.workers)
    totals, last_row = np.zeros(n_workers, dtype=np.int64), np.full(n_workers, -1)
    last_row[list(case.owners.rows)] = np.arange(costs.blocks.n_blocks)
    for column, owner in enumerate(case.owners.rows):
        needs = last_row > column
        needs[owner] = False
        if case.store == "memory":
            totals[needs] += costs.row_bytes(column, column) + costs.nbytes(BlockPlace(column, column))
        if case.a_is_sent:
            totals[owner] += costs.row_bytes(column, column) + costs.nbytes(BlockPlace(column, column))
    return tuple(int(each) for each in totals)
