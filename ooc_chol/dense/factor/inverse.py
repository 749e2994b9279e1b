"""The inverse of A from its factor, a panel of columns at a time: for traces, derivatives of a likelihood, and its diagonal."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_number
from ooc_chol.dense.factor.sweeps import AbstractSolver, AbstractSweeps, Needs
from ooc_chol.dense.factor.team_sweeps import by_all
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.interfaces import Tile
from ooc_chol.runtime.passes import Pass, Passes
from ooc_chol.tasks.tiling import TileGrid

#: Bytes of a panel when its width is left open, and the share of all columns that it holds at most unless a tile has more: zeros
#: above a panel's first row are left out, those inside are not, which costs ``1.5 width / n`` more flops.
PANEL_BYTES = 256 * 2**20
_LARGEST_SHARE = 16


def check_width(width: int | None) -> None:
    """Refuse a panel without columns."""
    if width is not None and whole_number(width, "width") < 1:
        raise ValueError(f"width is {width}, but a panel of the inverse has at least 1 column")


def panel_width(grid: TileGrid, width: int | None, fitting: int | None = None) -> int:
    """Columns of a panel: ``width`` where it is given, else whole tiles that fit."""
    if width is not None:
        check_width(width)
        return min(width, grid.n, fitting or grid.n)
    if not grid.n:
        return 1  # of no columns
    most = fitting or max(1, PANEL_BYTES // (8 * grid.n))
    whole = min(most, max(grid.nb, grid.n // _LARGEST_SHARE)) // grid.nb * grid.nb
    return min(whole or most, grid.n)


def inverse_panels(
    solver: AbstractSolver, store: AbstractStore, width: int, passes: Passes
) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
    """Panels for a caller, on the host; what he does with one is not part of the pass."""
    with passes.running("inverse panels", store.grid.n) as run, solver.opened(store, run) as sweeps:
        sweeps.allocate(width)
        for panel in panels_of(sweeps, width):
            with run.paused():
                yield panel
        sweeps.finish()


class Turn(NamedTuple):
    """Which of several devices that share the panels of an inverse this is."""

    number: int = 0
    devices: int = 1

    def has(self, panel: int) -> bool:
        """Tell whether a panel is its own: they are dealt back and forth, as later ones are shorter."""
        lap, place = divmod(panel, self.devices)
        return place == (self.number if lap % 2 == 0 else self.devices - 1 - self.number)


#: All panels.
ALONE = Turn()


def inverse_diagonal(solver: AbstractSolver, store: AbstractStore, width: int | None, run: Pass) -> NDArray[np.float64]:
    """Sums of squares of the columns of ``inv(L)``, which are the diagonal of ``inv(A)``."""
    if team := solver.team_for(store):
        turns = [Turn(number, len(team)) for number in range(len(team))]
        parts = by_all(team, store, (), lambda turn: _diagonal(team[turn].without_locking(), store, width, run, turns[turn]))
        return np.asarray(sum(parts))
    return _diagonal(solver, store, width, run, ALONE)


def _diagonal(solver: AbstractSolver, store: AbstractStore, width: int | None, run: Pass, turn: Turn) -> NDArray[np.float64]:
    diagonal = np.zeros((store.grid.n, 1))
    with solver.opened(store, run, Needs((diagonal,))) as sweeps:
        chosen = panel_width(store.grid, width, sweeps.columns_that_fit())
        (squares,) = sweeps.allocate(chosen)
        for columns, _, x in _unit_solves(sweeps, chosen, turn):
            # inv(A)[j, j] = sum_i inv(L)[i, j]**2
            sweeps.add_column_squares(x, squares[columns.start : columns.stop, 0])
        sweeps.take_back(squares, diagonal)
        sweeps.finish()
    return diagonal[:, 0]


def panels_of(sweeps: AbstractSweeps, width: int, turn: Turn = ALONE) -> Iterator[tuple[range, Tile]]:
    """Panels ``inv(A)[j0:, j0:j1]``, all in one array."""
    for columns, first, x in _unit_solves(sweeps, width, turn):
        # inv(A)[:, j] = inv(L).T @ inv(L)[:, j]
        sweeps.solve(x, first=first, transposed=True)
        yield columns, x[columns.start - sweeps.grid.start(first) :]


def _unit_solves(sweeps: AbstractSweeps, width: int, turn: Turn) -> Iterator[tuple[range, int, Tile]]:
    """Columns of ``inv(L)`` from the tile row of the first of them down, with that tile row; all in one array."""
    grid = sweeps.grid
    for panel, start in enumerate(range(0, grid.n, width)):
        if not turn.has(panel):
            continue
        columns = range(start, min(start + width, grid.n))
        first = start // grid.nb
        rows = range(grid.start(first), grid.n)
        x = sweeps.array(len(rows), len(columns))
        sweeps.generate(_unit_columns, rows, columns, x)
        sweeps.solve(x, first=first)
        yield columns, first, x


def _unit_columns(rows: range, cols: range, out: Tile, stream: Any) -> None:
    """A tile function of the identity."""
    out[...] = 0.0
    step = len(cols)
    out.reshape(-1)[(cols.start - rows.start) * step :: step + 1][:step] = 1.0
