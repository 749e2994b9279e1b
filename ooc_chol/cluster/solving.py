"""Solves with a factor on a cluster, products with it and sums over it: on the workers where its blocks are."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster import column_sums
from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.connection import check_alive, distributed_package, is_dask_array
from ooc_chol.cluster.lazy_columns import LazyColumns
from ooc_chol.cluster.sweeps import ClusterSweeps
from ooc_chol.cluster.triangles import Triangle, diagonal_of_block, squares_of_rows
from ooc_chol.cluster.waiting import gathered
from ooc_chol.dense.factor.inverse import PANEL_BYTES, panel_width
from ooc_chol.dense.factor.places import AbstractPlace, LocalPlace
from ooc_chol.dense.factor.trace_sums import HalfSolveSums, InverseTraces
from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.errors import ClusterError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.runtime.passes import Pass, Passes

#: Most right-hand sides that travel through L together: beyond, products of tiles get no faster.
MOST_COLUMNS = 256
#: Groups of columns under way at a time, for each thread of the workers.
_GROUPS_A_THREAD = 2
#: Block columns' groups for each thread of the workers, where few columns are to keep all of them busy.
_SPANS_A_THREAD = 4
#: Entries of L that a task with one column reads at least where it may have several blocks, and fewer with more columns: some 10
#: ms of work, beside 1 to 5 ms that Dask takes for a task.
LEAST_WORK = 1e7
#: The cluster in reports.
CLUSTER = "cluster"


@final
@dataclass(frozen=True)
class ClusterSolver(AbstractPlace):
    """The workers of a cluster, each asked for the block rows that it has.

    Right-hand sides are cut by block rows and, where there are many, into groups of columns; what travels are these pieces, not
    L. Every sum is taken in the order of one machine, so that results depend neither on the number of workers nor on which of
    them did what; one that dies loses nothing that Dask does not compute again. A solve with one column of ``N`` block rows takes
    at most ``N (N + 1) / 2`` tasks, and about ``4 N`` for each thread of the workers. Right-hand sides travel inside tasks, so
    that they are there when a task has to run again.
    """

    client: Any  #: Connected to the cluster
    blocks: BlockGrid  #: How L is cut into blocks
    #: The blocks in the workers' memory, the very mapping that the store of L has and empties when it is closed; or the URL of
    #: the Zarr group that has them
    held: Mapping[BlockPlace, Any] | str
    fmt: PrecisionFormat  #: Format of what is computed with L, as a store's ``fmt``
    #: Address of the worker of each block row, as a hint; when empty, Dask finds it by the bytes that it has
    owners: Sequence[str] = ()

    @property
    def is_quick_to_read(self) -> bool:
        """A reading of L takes ``3 / n`` of the flops of its factorization, on the same workers."""
        return True

    @property
    def of_updated(self) -> AbstractPlace:
        """The calling process, in whose memory or files the factor of an updated matrix is."""
        return LocalPlace()

    def distributed(self, title: str, b: Any, transposed: Sequence[bool], *, flips: bool, passes: Passes) -> Any:
        """Solutions as a Dask array in the workers' memory, with the chunks of ``b``, where that is a Dask array."""
        if not is_dask_array(b):
            return None
        check_alive(self.client)
        columns = LazyColumns(self.client, self.blocks, self.fmt, b, most=self._width(MOST_COLUMNS))
        with self._answering(), passes.running(title, columns.m):
            if not columns.m:
                return b.astype(self.fmt.dtype)
            sweeps = self._sweeps(columns.groups, columns.m // columns.groups)
            found = [self._solved(sweeps, pieces, transposed) for pieces in columns.pieces(flips=flips)]
            return columns.array([pieces for pieces, _ in found], found[0][1], flips=flips)

    def diagonal(self, store: AbstractStore) -> NDArray[Any]:
        """A task for each diagonal block."""
        with self._answering():
            sweeps = self._sweeps(self.blocks.n_blocks)
            rows = range(self.blocks.n_blocks)
            found = [sweeps.submit(diagonal_of_block, row, range(row, row + 1)) for row in rows]
            return np.concatenate(gathered(self.client, found))

    def row_norms(self, store: AbstractStore, run: Pass) -> NDArray[np.float64]:
        """A task for each block row."""
        with self._answering(store, run):
            sweeps = self._sweeps(self.blocks.n_blocks)
            rows = range(self.blocks.n_blocks)
            found = [sweeps.submit(squares_of_rows, row, range(row + 1)) for row in rows]
            squares: NDArray[np.float64] = np.concatenate(gathered(self.client, found))
            return np.sqrt(squares)

    def solve(self, store: AbstractStore, x: NDArray[Any], *, transposed: Sequence[bool], run: Pass) -> None:
        """A group of columns after the other, several under way at a time."""
        groups = self._groups(x.shape[1])
        sweeps = self._sweeps(len(groups), x.shape[1] // max(1, len(groups)))

        def submit(columns: slice) -> list[Any]:
            return self._solved(sweeps, self._pieces(x, columns), transposed)[0]

        with self._answering(store, run, readings=len(groups) * len(transposed)):
            self._in_turn(groups, submit, lambda columns, found: _put(x, columns, found))

    def goes_there_and_back(self, store: AbstractStore, columns: int) -> bool:
        """Never: workers have their blocks at hand in either of two solves."""
        return False

    def there_and_back(self, store: AbstractStore, y: NDArray[Any], x: NDArray[Any], run: Pass) -> None:
        """Two solves."""
        self.solve(store, y, transposed=(False,), run=run)
        x[:, : y.shape[1]] = y
        self.solve(store, x, transposed=(True,), run=run)

    def multiply(self, store: AbstractStore, z: NDArray[Any], run: Pass, *, transposed: bool) -> NDArray[Any]:
        """A group of columns after the other, several under way at a time."""
        groups, y = self._groups(z.shape[1]), np.empty_like(z, order="C")
        sweeps = self._sweeps(len(groups), z.shape[1] // max(1, len(groups)))

        def submit(columns: slice) -> list[Any]:
            pieces = self._pieces(z, columns)
            if transposed:
                return sweeps.adjoint_product(pieces)
            return sweeps.product([sweeps.carried(piece) for piece in pieces])

        with self._answering(store, run, readings=len(groups)):
            self._in_turn(groups, submit, lambda columns, found: _put(y, columns, found))
        return y

    def inverse_panels(
        self, store: AbstractStore, width: int | None, passes: Passes
    ) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
        """Unit columns solved for on the workers, one panel after the other, each brought here."""
        step = panel_width(self.blocks.tiles, width)
        with passes.running("inverse panels", self.blocks.tiles.n) as run:
            for start in range(0, self.blocks.tiles.n, step):
                columns = range(start, min(start + step, self.blocks.tiles.n))
                x = np.zeros((self.blocks.tiles.n, len(columns)))
                x[columns.start : columns.stop] = np.eye(len(columns))
                self.solve(store, x, transposed=(False, True), run=run)
                with run.paused():
                    yield columns, x[start:]

    def inverse_diagonal(self, store: AbstractStore, width: int | None, run: Pass) -> NDArray[np.float64]:
        """Unit columns are made, solved for and summed on the workers."""
        n = self.blocks.tiles.n
        chosen = self._panels(width)
        sweeps = self._sweeps(len(chosen), len(chosen[0]))
        diagonal = np.empty(n)

        def put(columns: range, found: list[NDArray[np.float64]]) -> None:
            diagonal[columns.start : columns.stop] = found[0][:, 0]

        with self._answering(store, run, readings=len(chosen) / 3):
            self._in_turn(chosen, partial(column_sums.unit_squares, sweeps), put)
        return diagonal

    def inverse_traces(
        self, store: AbstractStore, matrices: Sequence[FunctionSource], *, vectors: NDArray[np.float64], run: Pass
    ) -> InverseTraces:
        """Panels of the inverse are made and summed on the workers, on which the tile functions run."""
        chosen = self._panels(None)
        sweeps = self._sweeps(len(chosen), len(chosen[0]))
        diagonal, totals = np.empty(self.blocks.tiles.n), np.zeros((len(matrices), 1 + vectors.shape[1]))

        def put(columns: range, found: list[list[column_sums.PanelPart]]) -> None:
            for part in itertools.chain.from_iterable(found):  # by block rows, however many of them were in a task
                totals[...] += part.totals
                if part.diagonal is not None:
                    diagonal[columns.start : columns.stop] = part.diagonal

        with self._answering(store, run, readings=len(chosen) * 2 / 3):
            told = [sweeps.carried(list(matrices)), sweeps.carried(vectors)]
            self._in_turn(chosen, lambda columns: column_sums.panel_sums(sweeps, columns, *told), put)
        return InverseTraces(diagonal, totals[:, 0], totals[:, 1:])

    def half_solve_sums(
        self,
        store: AbstractStore,
        matrix: FunctionSource,
        columns: range,
        *,
        vectors: NDArray[np.float64],
        width: int | None,
        run: Pass,
    ) -> HalfSolveSums:
        """Columns are made, solved for and summed on the workers, on which the tile function runs."""
        step = self._width(min(width or MOST_COLUMNS, MOST_COLUMNS))
        chosen = [range(start, min(start + step, columns.stop)) for start in range(columns.start, columns.stop, step)]
        sweeps = self._sweeps(len(chosen), step)
        sums = np.empty((len(columns), 1 + vectors.shape[1]))

        def put(part: range, found: list[NDArray[np.float64]]) -> None:
            sums[part.start - columns.start : part.stop - columns.start] = found[0]

        with self._answering(store, run, readings=len(chosen)):
            told = [sweeps.carried(matrix), sweeps.carried(vectors)]
            self._in_turn(chosen, lambda part: column_sums.half_solve_sums(sweeps, part, *told), put)
        return HalfSolveSums(sums[:, 0].copy(), sums[:, 1:])

    def _solved(self, sweeps: ClusterSweeps, pieces: Sequence[Any], transposed: Sequence[bool]) -> tuple[list[Any], list[range]]:
        """Solutions of one group of columns, and of which block rows each of them is."""
        by_block = [range(row, row + 1) for row in range(self.blocks.n_blocks)]
        found, spans = list(pieces), by_block
        for system in transposed:
            assert spans is by_block  # L.H is solved with last
            found, spans = (sweeps.backward(found), list(sweeps.groups())) if system else (sweeps.forward(found), by_block)
        return found, spans

    def _sweeps(self, groups: int, width: int = 1) -> ClusterSweeps:
        """Tasks for so many groups of columns: the fewer these are, the finer are tasks, as long as each is worth its time."""
        check_alive(self.client)
        threads, n_blocks = max(1, sum(self.client.nthreads().values())), self.blocks.n_blocks
        fine = n_blocks * groups // (_SPANS_A_THREAD * threads)
        worth = int(LEAST_WORK / (max(1, len(self.blocks.rows(0))) ** 2 * (1.0 + width / 8)))
        span = min(max(1, fine, worth), n_blocks)
        return ClusterSweeps(self.client, Triangle(self.blocks, self.fmt), self.held, self.owners, span)

    def _width(self, most: int) -> int:
        """Columns of a group, within the bytes of a panel. Bits depend on it: neither workers nor budgets enter."""
        return max(1, min(most, PANEL_BYTES // (self.fmt.itemsize * self.blocks.tiles.n)))

    def _groups(self, m: int) -> list[slice]:
        """Columns in groups of nearly one size."""
        count = -(-m // self._width(MOST_COLUMNS))
        cuts = [m * number // count for number in range(count + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(cuts)]

    def _panels(self, width: int | None) -> list[range]:
        """Columns of the inverse, a panel in one block row each."""
        step = self._width(min(width or MOST_COLUMNS, MOST_COLUMNS))
        blocks = (self.blocks.rows(row) for row in range(self.blocks.n_blocks))
        return [range(start, min(start + step, rows.stop)) for rows in blocks for start in range(rows.start, rows.stop, step)]

    def _pieces(self, x: NDArray[Any], columns: slice) -> list[NDArray[Any]]:
        """Columns cut by block rows: copies, as ``x`` is overwritten while others are under way."""
        rows = map(self.blocks.rows, range(self.blocks.n_blocks))
        return [np.array(x[part.start : part.stop, columns], order="C") for part in rows]

    def _in_turn(self, parts: Sequence[Any], submit: Callable[[Any], list[Any]], put: Callable[[Any, list[Any]], None]) -> None:
        """Submit the tasks of one part after the other and put what they give in its place, a few parts under way at a time."""
        most = max(2, _GROUPS_A_THREAD * sum(self.client.nthreads().values()))
        under_way: deque[tuple[Any, list[Any]]] = deque()
        for part in parts:
            under_way.append((part, submit(part)))
            if len(under_way) == most:
                done, futures = under_way.popleft()
                put(done, gathered(self.client, futures))
        for done, futures in under_way:
            put(done, gathered(self.client, futures))

    @contextmanager
    def _answering(self, store: AbstractStore | None = None, run: Pass | None = None, *, readings: float = 1) -> Iterator[None]:
        """Call errors of Dask by their names here, and count what is read."""
        distributed = distributed_package()
        lost = (distributed.KilledWorker, distributed.client.FutureCancelledError, distributed.CancelledError)
        try:
            # pieces travel inside tasks on purpose
            with import_module("dask").config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
                yield
        except (*lost, distributed.comm.CommClosedError) as error:
            raise ClusterError(
                f"the cluster lost what this needs of L ({error})",
                "workers died or ran out of memory, or the scheduler was restarted: factor again, with more workers or memory or "
                "with store= a Zarr group, which outlives workers",
            ) from error
        if store is not None and run is not None:
            track_of_l(run, CLUSTER).nbytes += int(readings * _stored_bytes(store))


def _put(x: NDArray[Any], columns: slice, pieces: Sequence[NDArray[Any]]) -> None:
    """Pieces one below the other, in place."""
    start = 0
    for piece in pieces:
        x[start : start + len(piece), columns] = piece
        start += len(piece)


def _stored_bytes(store: AbstractStore) -> int:
    """Bytes of L as it is stored."""
    grid = store.grid
    if store.formats is None:
        return sum(grid.size(i) * (grid.start(i) + grid.size(i)) for i in range(grid.nt)) * store.fmt.itemsize
    return sum(fmt.stored_bytes(grid.entries(*index)) for index, fmt in zip(grid.tiles(), store.formats, strict=True))
