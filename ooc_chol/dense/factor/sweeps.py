"""Triangular sweeps over a stored factor, wherever they run: what differs between the host and a device, and what does not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import AbstractEvent, Tile, TileFunction
from ooc_chol.kernels.interfaces import MOST_TARGETS
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.runtime.passes import Pass
from ooc_chol.schedulers.triangular import TriangularScheduler
from ooc_chol.tasks.tiling import TileGrid, TileIndex

Part = TypeVar("Part")


class PanelSums(NamedTuple):
    """Sums over panels of the inverse: ``sum(panel * D)``, and ``v' D v`` of so many vectors."""

    matrices: Sequence[FunctionSource]
    forms: int


class Needs(NamedTuple):
    """Needs of a call beside columns: arrays that it keeps where it runs, others that it copies to and from, sums, checks."""

    arrays: tuple[NDArray[Any], ...] = ()
    locked: tuple[NDArray[Any], ...] = ()
    sums: PanelSums | None = None
    checks: bool = False  #: Whether solves say what they leave of right-hand sides
    streams: int = 1  #: Most streams of a device that compute at once; beside several there is an urgent one
    batches: int = 0  #: Batches of products that each of these has room for: one of its own, another one that came from elsewhere


class Left(NamedTuple):
    """Where a solve says what it leaves of right-hand sides: columns of an array in host memory."""

    array: NDArray[Any]
    columns: slice = slice(None)

    def rows(self, span: range) -> NDArray[Any]:
        """Rows of the array, in place."""
        return self.array[span.start : span.stop]


#: Tiles of a row whose products with right-hand sides are taken at once, counted from the first one.
BATCH = MOST_TARGETS

#: A call that needs columns only.
NOTHING = Needs()


class AbstractSweeps(ABC):
    """One call's triangular solves: right-hand sides lie where they are solved, and tiles of L come one after the other.

    What is asked for is done, or enqueued, in order; :meth:`finish` waits for it. A ``Tile`` is an array where the sweeps run.
    """

    grid: TileGrid
    #: Rows of a block in which sums over a panel are taken.
    block_rows: int

    def solve(self, *parts: Tile, first: int = 0, transposed: bool = False, left: Left | None = None) -> None:
        """Solve ``L y = x``, or with L's adjoint, in place of parts that begin with tile row ``first``, as L then does.

        Cost ``(n - n0)**2 m`` flops and one reading of that triangle for all parts. ``left``, of one part, becomes ``x - L y``,
        but for rounding in the sums of products off the diagonal.
        """
        (order,) = TriangularScheduler(first, transposed=transposed).schedule(self.grid).tasks
        in_blocks = [[self.rows(x, i, first) for i in range(first, self.grid.nt)] for x in parts]  # once, not for each tile
        with closing(self.tiles(order, sum(x.shape[1] for x in parts))) as tiles:
            for (i, j), l_ij in tiles:
                for x in self.each(in_blocks):
                    x_i, x_j = x[i - first], x[j - first]
                    if i == j:  # x[i] = inv(L[i, i]) @ x[i]
                        self.solve_block(l_ij, x_i, i, transposed=transposed, left=left)
                    elif transposed:  # x[j] -= L[i, j].T @ x[i]
                        self.subtract(x_j, l_ij, x_i, transposed=True)
                    else:  # x[i] -= L[i, j] @ x[j]
                        self.subtract(x_i, l_ij, x_j, transposed=False)

    @abstractmethod
    def each(self, parts: Sequence[Part]) -> Iterator[Part]:
        """Parts of the columns one after the other; what is asked for one of them does not wait for the one before it."""

    def solve_block(self, l_kk: Tile, x_k: Tile, k: int, *, transposed: bool, left: Left | None) -> None:
        """Solve for one block of rows, and say what that leaves."""
        before = None if left is None else self.copied(x_k)
        self.substitute(l_kk, x_k, transposed=transposed)
        if left is not None and before is not None:
            self.subtract(before, l_kk, x_k, transposed=transposed)
            self.hand_over(before, left.rows(self.grid.span(k)), left.columns)

    def rows(self, x: Tile, i: int, first: int = 0) -> Tile:
        """The rows of ``x`` that belong to tile row ``i``, in place; ``x`` begins with tile row ``first``."""
        start = (i - first) * self.grid.nb
        return x[start : start + self.grid.size(i)]

    @abstractmethod
    def tiles(self, order: Sequence[TileIndex], columns: int) -> Generator[tuple[TileIndex, Tile], None, None]:
        """Tiles of L in order, each valid until the next one is asked for; they meet so many columns."""

    @abstractmethod
    def substitute(self, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        """``x[k] = inv(L[k, k]) @ x[k]``, or with ``inv(L[k, k]).T``."""

    @abstractmethod
    def subtract(self, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        """``target -= L[i, j] @ x``, or with ``L[i, j].T``."""

    @abstractmethod
    def copied(self, x_k: Tile) -> Tile:
        """A copy of a block of rows, in room that the next one takes; for calls that check."""

    @abstractmethod
    def hand_over(self, part: Tile, rows: NDArray[Any], columns: slice) -> None:
        """Copy such a block to columns of rows in host memory."""

    @abstractmethod
    def columns_that_fit(self) -> int | None:
        """Columns that there is room for beside what else is needed; None where the host's memory is all there is."""

    @abstractmethod
    def allocate(self, columns: int) -> tuple[Tile, ...]:
        """Make room for so many columns, and bring the arrays that the call keeps; returns these."""

    @abstractmethod
    def array(self, rows: int, columns: int) -> Tile:
        """The room for columns, as a ``(rows, columns)`` array of anything."""

    @abstractmethod
    def bring(self, x: NDArray[Any], columns: slice) -> Tile:
        """Some columns of a host array, in the room for columns or in place."""

    @abstractmethod
    def take_back(self, part: Tile, x: NDArray[Any], columns: slice = slice(None)) -> None:
        """Copy what was brought of a host array back to it."""

    @abstractmethod
    def prepare(self, matrices: Sequence[FunctionSource]) -> None:
        """Let tile functions compile and upload."""

    @abstractmethod
    def generate(self, function: TileFunction, rows: range, cols: range, out: Tile) -> None:
        """Call a tile function."""

    @abstractmethod
    def fill(self, matrix: FunctionSource, columns: range, y: Tile) -> None:
        """Make columns of a matrix, all rows of L."""

    @abstractmethod
    def add_column_squares(self, x: Tile, out: Tile) -> None:
        """``out[j] += sum_i x[i, j]**2``."""

    @abstractmethod
    def set_product(self, y: Tile, vectors: Tile, out: Tile) -> None:
        """``out = y.T @ vectors``, where ``out`` is zero."""

    @abstractmethod
    def panel_sums(
        self, panel: Tile, columns: range, blocks: Sequence[range], *, sums: PanelSums, vectors: Tile
    ) -> list[NDArray[np.float64]]:
        """Sums over each block of rows of a panel ``inv(A)[j0:, j0:j1]``, ``(k, 1 + q)``: waits for them."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all is done; raise what went wrong on the way."""


class AbstractSolver(ABC):
    """Where solves with a stored factor run."""

    @abstractmethod
    def opened(self, store: AbstractStore, run: Pass, needs: Needs = NOTHING) -> AbstractContextManager[AbstractSweeps]:
        """Sweeps for one call, told to ``run``."""

    def team_for(self, store: AbstractStore) -> Sequence[AbstractTeamSolver]:
        """The solvers of all devices that share a call, where there are several."""
        return ()

    def sweepers_for(self, store: AbstractStore) -> Sequence[AbstractTeamSolver]:
        """As :meth:`team_for`, for solves: also the one on whose device all of L lies, several streams of which share them."""
        return self.team_for(store)


class AbstractTeamSweeps(AbstractSweeps):
    """Sweeps of one device of several that solve together."""

    device: str  #: Name of the device

    @abstractmethod
    def columns_that_fit(self) -> int:
        """Columns that there is room for on the device."""

    @abstractmethod
    def bring_rows(self, x: NDArray[Any], part: Tile) -> None:
        """Copy rows of a host array to rows that lie on the device."""

    @abstractmethod
    def turn_to(self, number: int) -> int:
        """Enqueue on another of the device's streams from now on, by turns; returns which one it is."""

    @abstractmethod
    def hurry(self, *, is_behind: bool = True) -> int:
        """Enqueue on the urgent stream from now on, behind what this one has been given or not; returns which one it is."""

    @abstractmethod
    def wait(self, event: AbstractEvent) -> None:
        """Hold back all that follows on this stream until an event is complete."""

    @abstractmethod
    def record(self) -> AbstractEvent:
        """Record an event behind all that was enqueued on this stream."""

    @abstractmethod
    def copy(self, source: Tile, part: Tile) -> None:
        """Copy rows that lie on another device to rows that lie here."""

    @abstractmethod
    def has_row(self, i: int) -> bool:
        """Tell whether tiles left of the diagonal of row ``i`` lie here so that products of several are taken at once."""

    @abstractmethod
    def multiply_each(self, i: int, tiles: range, x: Tile, *, transposed: bool) -> Tile:
        """``L[i, j] @ x[j]``, or ``L[i, j].T @ x``, of at most :data:`BATCH` tiles, until the stream takes the next ones."""

    @abstractmethod
    def from_elsewhere(self, products: Tile, other: AbstractTeamSweeps) -> Tile:
        """Products of another device: where they are if they can be read there, or a copy until the stream asks for the next."""

    @abstractmethod
    def subtract_products(self, targets: Tile, products: Tile, which: Sequence[int]) -> None:
        """``targets[k] -= products[k, 0]``, then ``products[k, 1]`` and so on, for some k."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until nothing runs any more, whatever became of it."""

    @abstractmethod
    def current(self) -> AbstractContextManager[object]:
        """Make this the current device of the calling thread."""


class AbstractTeamSolver(AbstractSolver):
    """Where solves of one device of several run."""

    @abstractmethod
    def opened(
        self, store: AbstractStore, run: Pass, needs: Needs = NOTHING, *, ranks: Mapping[TileIndex, int] | None = None
    ) -> AbstractContextManager[AbstractTeamSweeps]:
        """Sweeps for one call, which keep tiles by ``ranks``."""

    @abstractmethod
    def reaching(self, store: AbstractStore, arrays: Sequence[NDArray[Any]]) -> AbstractContextManager[None]:
        """Page-lock L and arrays."""

    @abstractmethod
    def without_locking(self) -> Self:
        """The same for a call inside :meth:`reaching`."""
