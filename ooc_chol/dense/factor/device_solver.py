"""Solves with many right-hand sides, and sums over the inverse, on the device that factored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.dense.factor.inverse import panel_width
from ooc_chol.dense.factor.sweeps import TriangularSweeps, needed_bytes
from ooc_chol.dense.factor.trace_sums import HalfSolveSums, InverseTraces, row_blocks
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.errors import BudgetError
from ooc_chol.interfaces import ArraySpec, Tile
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.runtime.collector import collector_off

#: Right-hand sides from which on a device is worth its opening and a journey of L, and bytes of L in memory from which on even
#: one is: an H200's host reads L at 15 GB/s for a narrow solve, the link at 55.
LEAST_COLUMNS, LEAST_BYTES = 32, 4 << 30
_DOUBLE = np.dtype(np.float64)
#: Arrays of a pass.
_MOST_ARRAYS = 6


@dataclass(frozen=True, eq=False)
class DeviceSolver:
    """Opens a device for each call, and closes it at its end.

    All methods raise ``BudgetError`` when the budget does not hold one column and the tiles in transit, and ``TierError`` when a
    tile cannot be read.
    """

    open_device: Callable[[], TileDevice]
    #: ``page_locked(arrays)`` page-locks host memory inside a ``with`` block
    page_locked: Callable[[Sequence[NDArray[Any]]], AbstractContextManager[None]]
    budget_bytes: int  #: Most bytes on the device

    def takes(self, store: AbstractStore, columns: int) -> bool:
        """Whether so many right-hand sides are for the device rather than the host."""
        is_long_way = 4 * store.grid.n**2 >= LEAST_BYTES and store.host_memory() is not None
        return columns >= LEAST_COLUMNS or (columns > 0 and is_long_way)

    def solve(self, store: AbstractStore, x: NDArray[np.float64], transposed: Sequence[bool]) -> None:
        """Solve ``L y = x``, or ``L.T y = x``, one after the other, in place of ``x``.

        As many columns at a time as fit the budget; each such group reads L once for each system.
        """
        n, m = x.shape
        with self._device(store, x) as device:
            width = min(m, columns_that_fit(device, store, self.budget_bytes, column_bytes=8 * n))
            sweeps = TriangularSweeps(device, store, budget_bytes=self.budget_bytes, entries=n * width)
            for start in range(0, m, width):
                columns = slice(start, min(start + width, m))
                part = sweeps.array(n, columns.stop - start)
                sweeps.copy_in(part, x, columns)
                for system in transposed:
                    sweeps.solve(part, transposed=system)
                sweeps.copy_out(part, x, columns)
            sweeps.finish()

    def inverse_diagonal(self, store: AbstractStore, width: int | None) -> NDArray[np.float64]:
        """Sums of squares of the columns of ``inv(L)``, which are the diagonal of ``inv(A)``."""
        n = store.grid.n
        diagonal = np.zeros((n, 1))
        with self._device(store, diagonal) as device:
            fitting = columns_that_fit(device, store, self.budget_bytes, column_bytes=8 * n, others=8 * n)
            chosen = panel_width(store.grid, width, fitting)
            sums = ArraySpec(_DOUBLE, (n, 1))
            sweeps = TriangularSweeps(device, store, budget_bytes=self.budget_bytes, entries=n * chosen, arrays=[sums])
            (on_device,) = sweeps.others
            sweeps.copy_in(on_device, diagonal, slice(0, 1))
            for columns, _, x in _unit_solves(sweeps, chosen):
                # inv(A)[j, j] = sum_i inv(L)[i, j]**2
                sweeps.kernels.add_column_squares(sweeps.stream, x, on_device[columns.start : columns.stop, 0])
            sweeps.copy_out(on_device, diagonal, slice(0, 1))
            sweeps.finish()
        return diagonal[:, 0]

    def inverse_traces(
        self, store: AbstractStore, matrices: Sequence[FunctionSource], vectors: NDArray[np.float64]
    ) -> InverseTraces:
        """Sums over ``inv(A)`` and over matrices that the device makes, a panel of columns at a time."""
        with self._device(store, vectors) as device:
            for matrix in matrices:
                device.prepare(matrix.prepare)
            with closing(_TracePass(device, store, self.budget_bytes, matrices, vectors)) as the_pass:
                return the_pass.run()

    def half_solve_sums(
        self, store: AbstractStore, matrix: FunctionSource, columns: range, vectors: NDArray[np.float64], width: int | None
    ) -> HalfSolveSums:
        """Sums over ``Y = inv(L) @ B``, where the device makes B."""
        n, m, q = store.grid.n, len(columns), vectors.shape[1]
        squares, products = np.zeros((m, 1)), np.zeros((m, q))
        with self._device(store, vectors, squares, products) as device:
            device.prepare(matrix.prepare)
            fitting = columns_that_fit(device, store, self.budget_bytes, column_bytes=8 * n, others=8 * (max(1, q) * (n + m) + m))
            step = min(m, fitting, width or m)
            arrays = [ArraySpec(_DOUBLE, shape) for shape in ((n, max(1, q)), (m, 1), (m, max(1, q)))]
            sweeps = TriangularSweeps(device, store, budget_bytes=self.budget_bytes, entries=n * step, arrays=arrays)
            on_device = _Sums(*sweeps.others)
            sweeps.copy_in(on_device.squares, squares, slice(0, 1))
            if q:
                sweeps.copy_in(on_device.vectors, vectors, slice(0, q))
                sweeps.copy_in(on_device.products, products, slice(0, q))
            for start in range(0, m, step):
                _sum_columns(sweeps, matrix, columns[start : start + step], (on_device, start, q))
            sweeps.copy_out(on_device.squares, squares, slice(0, 1))
            if q:
                sweeps.copy_out(on_device.products, products, slice(0, q))
            sweeps.finish()
        # the device subtracts products
        return HalfSolveSums(squares[:, 0], -products)

    @contextmanager
    def _device(self, store: AbstractStore, *arrays: NDArray[Any]) -> Iterator[TileDevice]:
        """The device, current; copies reach L and the arrays in place where they can."""
        memory = store.host_memory()
        locked = [*([] if memory is None else [memory]), *arrays]
        with collector_off(), self.page_locked(locked), closing(self.open_device()) as device, device.current():
            yield device


def columns_that_fit(device: TileDevice, store: AbstractStore, budget_bytes: int, *, column_bytes: int, others: int = 0) -> int:
    """Right-hand sides that a budget holds beside what sweeps need."""
    fixed = needed_bytes(device, store) + others + _MOST_ARRAYS * PAGE_BYTES  # each ends at a page
    fitting = (budget_bytes - fixed) // column_bytes
    if fitting < 1:
        advice = "it holds no right-hand side beside the tiles in transit; give a larger memory_budget, or smaller tiles"
        raise BudgetError(f"solves on {device.name}", fixed + column_bytes, budget_bytes, advice)
    return fitting


class _Sums(NamedTuple):
    """Arrays of the device."""

    vectors: Tile
    squares: Tile
    products: Tile


def _sum_columns(sweeps: TriangularSweeps, matrix: FunctionSource, columns: range, sums: tuple[_Sums, int, int]) -> None:
    """Enqueue: make some columns of B, solve for them, and add what they give to the sums from ``start`` on."""
    (on_device, start, q), grid, stream = sums, sweeps.grid, sweeps.stream
    y = sweeps.array(grid.n, len(columns))
    for i in range(grid.nt):
        sweeps.device.generate(stream, matrix.function, grid.span(i), columns, sweeps.rows(y, i, 0))
    sweeps.solve(y)
    places = slice(start, start + len(columns))
    sweeps.kernels.add_column_squares(stream, y, on_device.squares[places, 0])
    for i in range(grid.nt if q else 0):  # products -= y[i].T @ v[i]
        beside = sweeps.rows(on_device.vectors, i, 0)
        sweeps.kernels.subtract(stream, on_device.products[places], sweeps.rows(y, i, 0), beside, transposed=True)


class _TracePass:
    """One pass over the panels of the inverse."""

    def __init__(
        self,
        device: TileDevice,
        store: AbstractStore,
        budget_bytes: int,
        matrices: Sequence[FunctionSource],
        vectors: NDArray[np.float64],
    ) -> None:
        self._device, self._grid, self._matrices = device, store.grid, matrices
        n, nb, (_, q) = store.grid.n, store.grid.size(0), vectors.shape
        # blocks of a panel: two parts, each cut by tiles
        shape = -(-n // nb) + 2, max(1, len(matrices)) * (1 + q)
        others = 8 * ((1 + max(1, q)) * n + nb + shape[0] * shape[1])
        fitting = columns_that_fit(device, store, budget_bytes, column_bytes=8 * (n + nb), others=others)
        self._width = panel_width(store.grid, None, fitting)
        arrays = [ArraySpec(_DOUBLE, each) for each in ((nb * self._width,), (n, max(1, q)), (nb,), shape, (n, 1))]
        self._sweeps = TriangularSweeps(device, store, budget_bytes=budget_bytes, entries=n * self._width, arrays=arrays)
        self._made, self._vectors, self._scratch, self._results, self._diagonal = self._sweeps.others
        self._found = np.zeros(shape)
        self._q = q
        if q:
            self._sweeps.copy_in(self._vectors, vectors, slice(0, q))

    def close(self) -> None:
        """Let go of the device's arrays, which would outlive it in the traceback of an error."""
        del self._sweeps, self._made, self._vectors, self._scratch, self._results, self._diagonal

    def run(self) -> InverseTraces:
        """Panel after panel."""
        n, k = self._grid.n, len(self._matrices)
        diagonal, sums = np.empty((n, 1)), np.zeros((k, 1 + self._q))
        for columns, top, x in _unit_solves(self._sweeps, self._width):
            # inv(A)[:, j] = inv(L).T @ inv(L)[:, j]
            self._sweeps.solve(x, first=top // self._grid.nb, transposed=True)
            panel = x[columns.start - top :]
            blocks = row_blocks(columns, n, self._grid.size(0))
            self._sum(panel, columns, [rows for rows, _ in blocks])
            weights = np.array([weight for _, weight in blocks])
            sums += np.tensordot(weights, self._found[: len(blocks), : k * (1 + self._q)], 1).reshape(k, 1 + self._q)
        self._sweeps.copy_out(self._diagonal, diagonal, slice(0, 1))
        self._sweeps.finish()
        return InverseTraces(diagonal[:, 0], sums[:, 0], sums[:, 1:])

    def _sum(self, panel: Tile, columns: range, blocks: Sequence[range]) -> None:
        """Fill ``_found``, a row for each block, and the panel's part of the diagonal."""
        kernels, stream, width = self._sweeps.kernels, self._sweeps.stream, len(columns)
        on_diagonal = panel.reshape(-1)[:: width + 1][:width]

        def take(rows: range, cols: range, out: Tile, stream: Any) -> None:
            out[:, 0] = on_diagonal

        self._device.generate(stream, take, columns, range(1), self._diagonal[columns.start : columns.stop])
        for rows, results in zip(blocks, self._results, strict=False):
            part = panel[rows.start - columns.start : rows.stop - columns.start]
            made = self._made[: part.size].reshape(part.shape)
            for number, matrix in enumerate(self._matrices):
                self._device.generate(stream, matrix.function, rows, columns, made)
                at = number * (1 + self._q)
                kernels.inner(stream, part, made, results[at : at + 1])
                for vector in range(self._q):
                    ends = (self._vectors[span.start : span.stop, vector] for span in (rows, columns))
                    kernels.form(stream, tuple(ends), made, self._scratch, results[at + 1 + vector : at + 2 + vector])
        self._sweeps.copy_out(self._results, self._found, slice(0, self._found.shape[1]))
        self._sweeps.finish()


def _unit_solves(sweeps: TriangularSweeps, width: int) -> Iterator[tuple[range, int, Tile]]:
    """Enqueue: columns of ``inv(L)``, from the tile row of the first of them down, with the first row; all in one array."""
    grid = sweeps.grid
    for start in range(0, grid.n, width):
        columns = range(start, min(start + width, grid.n))
        first = start // grid.nb
        top = grid.start(first)
        x = sweeps.array(grid.n - top, len(columns))
        sweeps.device.generate(sweeps.stream, _unit_columns, range(top, grid.n), columns, x)
        sweeps.solve(x, first=first)
        yield columns, top, x


def _unit_columns(rows: range, cols: range, out: Tile, stream: Any) -> None:
    """A tile function of the identity."""
    out[...] = 0.0
    step = len(cols)
    out.reshape(-1)[(cols.start - rows.start) * step :: step + 1][:step] = 1.0
