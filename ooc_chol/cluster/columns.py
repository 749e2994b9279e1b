"""The time of a run in the plain order, block column by block column: the same model as the simulation, without its events.

Of a column only the chain is followed task by task (its diagonal block, and the block below that, which the next diagonal block
waits for); the other blocks of a worker follow one another, in a formula for all workers at once. So ``N`` block columns cost
``N`` short operations on arrays of ``N`` entries, where the simulation has ``N**2 / 2`` events.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockPlace
from ooc_chol.cluster.model import PartCost
from ooc_chol.cluster.simulation import Case

Floats = NDArray[np.float64]


def column_seconds(case: Case) -> float:
    """Seconds of a run in the plain order, whose block rows have one owner each, predicted column by column."""
    return _Columns(case).run()


class _Columns:
    """Times at which rows, workers and their networks are done with what was before the present column."""

    def __init__(self, case: Case) -> None:
        assert case.reach == 0 and case.owners.n_columns == 1
        self._case, self._costs = case, case.costs
        self._n_blocks, n_workers = case.costs.blocks.n_blocks, len(case.workers)
        self._owners = np.array(case.owners.rows)
        self._rows = np.full((n_workers, int(np.bincount(self._owners).max())), -1)  # of each worker, ascending
        for worker in range(n_workers):
            own = np.flatnonzero(self._owners == worker)
            self._rows[worker, : len(own)] = own
        self._done = np.zeros(self._n_blocks)  # when the last block made of each row is final
        self._free = np.zeros(n_workers)
        self._network_free = np.zeros(n_workers)
        self._storage_rate = case.rates.storage_rate(n_workers)
        different = {rates: number for number, rates in enumerate(dict.fromkeys(case.workers))}
        self._kinds = np.array([different[rates] for rates in case.workers])

    def run(self) -> float:
        """Go through all columns."""
        for column in range(self._n_blocks):
            diagonal_done = self._insert(column, column, self._done[column])
            if column + 1 < self._n_blocks:
                self._finish_column(column, diagonal_done)
        return float(max(self._done.max(), self._free.max()))

    def _finish_column(self, column: int, diagonal_done: float) -> None:
        """The blocks below the diagonal one: the first of them as soon as it can, the others one after the other."""
        arrivals = self._arrivals(column, diagonal_done)
        following = column + 1
        self._insert(following, column, max(self._done[following], arrivals[self._owners[following]]))
        is_there = self._rows > following
        seconds = np.where(is_there, self._bulk_seconds(column), 0.0)
        ready = np.where(is_there, np.maximum(self._done[self._rows], arrivals[:, None]), 0.0)
        before = np.cumsum(seconds, axis=1) - seconds
        starts = np.maximum(np.maximum.accumulate(ready - before, axis=1), self._free[:, None]) + before
        ends = starts + seconds
        self._done[self._rows[is_there]] = ends[is_there]
        self._free = np.where(is_there.any(axis=1), np.maximum(self._free, ends[:, -1]), self._free)

    def _insert(self, row: int, column: int, ready: float) -> float:
        """Run a task of the chain before what waits on its worker, and shift that; when it is done.

        A diagonal block becomes ready as its worker finishes the block left of it, and comes a message later: by then the worker
        has begun another task, all of which it waits for. Of what runs when another block arrives, half is left on average.
        """
        worker, share = int(self._owners[row]), 1.0 if row == column else 0.5
        seconds = self._seconds_of(worker, row, column)
        running = self._below_chain(worker, self._n_blocks - 2, column - 1 if row == column else column) if column else 0.0
        start = ready + min(max(0.0, self._free[worker] - ready), share * running)
        rows = self._rows[worker]
        rows = rows[rows > row]
        self._done[rows[self._done[rows] > start]] += seconds
        self._free[worker] = max(self._free[worker], ready) + seconds
        self._done[row] = start + seconds
        return float(self._done[row])

    def _arrivals(self, column: int, diagonal_done: float) -> Floats:
        """When each worker has the operands that the blocks of a column share."""
        owners, costs, rates = self._owners, self._costs, self._case.rates
        arrivals = np.full(len(self._free), diagonal_done)
        needs = np.zeros(len(self._free))
        if self._case.a_is_sent:
            block = costs.nbytes(BlockPlace(column + 1, column))
            needs += np.bincount(owners[column + 1 :], minlength=len(needs)) * block
        if self._case.store == "memory":
            shared = costs.row_bytes(column, column) + costs.nbytes(BlockPlace(column, column))
            needs += np.where(np.arange(len(needs)) == owners[column], 0, shared)
        first = np.full(len(needs), np.inf)
        np.minimum.at(first, owners[column + 1 :], self._done[column + 1 :])
        fetches = (needs > 0) & np.isfinite(first)
        begun = np.maximum(np.maximum(self._network_free, diagonal_done), first)
        ended = begun + needs / rates.network_bytes_per_second
        self._network_free = np.where(fetches, ended, self._network_free)
        hops = self._case.fan_out_rounds * costs.row_bytes(column, 1) / rates.network_bytes_per_second if column else 0.0
        return np.where(fetches, ended + (hops if self._case.store == "memory" else 0.0), arrivals)

    def _bulk_seconds(self, column: int) -> Floats:
        """Seconds of each block of a column, in the places of their rows."""
        last, is_owner = self._n_blocks - 1, np.arange(len(self._free)) == self._owners[column]
        kinds = self._kinds * 2 + is_owner
        if self._case.store == "zarr":
            kinds = kinds * (self._n_blocks + 1) + self._own_rows(column)
        _, first, kind_of = np.unique(kinds, return_index=True, return_inverse=True)
        each = np.array([self._below_chain(int(worker), last - 1, column) for worker in first])[kind_of]
        seconds = np.repeat(each[:, None], self._rows.shape[1], axis=1)
        seconds[self._rows == last] = self._below_chain(int(self._owners[last]), last, column)
        return seconds

    def _below_chain(self, worker: int, row: int, column: int) -> float:
        """Seconds of a block of a column on a worker, of the height of a row, and not of the chain."""
        return self._seconds_of(worker, max(row, column + 2), column)

    def _own_rows(self, column: int) -> NDArray[np.int64]:
        """How many rows of each worker reach a column."""
        return np.bincount(self._owners[column:], minlength=len(self._free))

    def _seconds_of(self, worker: int, row: int, column: int) -> float:
        place = BlockPlace(row, column)
        cost = self._part(row == self._n_blocks - 1, row == column, column)
        seconds = cost.seconds(self._case.workers[worker])
        if self._case.store == "zarr":
            seconds = self._through_storage(worker, place, seconds)
        return seconds + self._case.rates.overhead_seconds

    def _part(self, is_last: bool, is_diagonal: bool, column: int) -> PartCost:
        row = column if is_diagonal else self._n_blocks - 1 if is_last else self._n_blocks - 2
        return self._costs.part(BlockPlace(max(row, column), column), 0, column)

    def _through_storage(self, worker: int, place: BlockPlace, seconds: float) -> float:
        """Seconds of a task that reads what the worker's cache lacks, and writes its block."""
        assert self._storage_rate is not None
        row, column = place
        written = self._costs.nbytes(place)
        read = self._read_bytes(worker, row, column)
        return max(seconds, read / self._storage_rate) + written / self._storage_rate

    def _read_bytes(self, worker: int, row: int, column: int) -> float:
        """Bytes that a task reads: with room for all rows of its worker, the last block of its row and a share of the column's.

        The first task of a worker in a column reads what the column shares, so that the chain waits for all of it.
        """
        if column == 0:
            return self._costs.nbytes(BlockPlace(0, 0)) if row else 0
        costs, room = self._costs, self._case.workers[worker].memory_bytes - self._case.working_bytes()
        each, mine, own = (
            costs.row_bytes(row, 1),
            costs.row_bytes(row, column),
            int(np.count_nonzero(self._rows[worker] >= column)),
        )
        shared, diagonal = costs.row_bytes(column, column), costs.nbytes(BlockPlace(column, column))
        keeps_all = own * mine + shared <= room
        if row == column:
            return each if keeps_all else mine
        if self._owners[column] == worker and keeps_all:
            shared = 0
        share = shared if row == column + 1 or shared + mine > room else shared / max(1, own)
        return (each if keeps_all else mine) + diagonal + share
