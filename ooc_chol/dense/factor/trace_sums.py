"""Sums over ``inv(A)`` and over ``inv(L) @ B`` for matrices that are made piece by piece and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_number
from ooc_chol.dense.factor.inverse import ALONE, PANEL_BYTES, Turn, panel_width, panels_of
from ooc_chol.dense.factor.sweeps import AbstractSolver, AbstractSweeps, Needs, PanelSums
from ooc_chol.dense.factor.team_sweeps import by_all
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.display.prints import brief_repr
from ooc_chol.interfaces import Tile, TileFunction
from ooc_chol.memory.sources.function import FunctionSource, check_function
from ooc_chol.runtime.passes import Pass

#: Blocks of columns of B, or a multiple of that: 1, 2, 4 or 8 devices share them evenly.
_BLOCKS = 8
#: Fewest and most columns of a block, of which products run at full rate, and what their number is a multiple of.
_LEAST_COLUMNS, _MOST_COLUMNS, _ALIGNED = 1024, 8192, 128


class InverseTraces(NamedTuple):
    """Results of one pass over ``inv(A)``: its diagonal, traces of products with matrices, and quadratic forms of these.

    Parameters
    ----------
    diagonal : (n,) array
        The diagonal of ``inv(A)``.
    products : (k,) array
        ``tr(inv(A) @ D)`` of each matrix.
    forms : (k, q) array
        ``v' @ D @ v`` of each matrix and vector.
    """

    diagonal: NDArray[np.float64]
    products: NDArray[np.float64]
    forms: NDArray[np.float64]

    def __repr__(self) -> str:
        return brief_repr(self)


class HalfSolveSums(NamedTuple):
    """Sums over ``Y = inv(L) @ B``.

    Parameters
    ----------
    squares : (m,) array
        Column sums of ``Y**2``, the diagonal of ``B' @ inv(A) @ B``.
    products : (m, q) array
        Sums ``Y' @ V`` with the vectors that were given, by columns of B and vectors.
    """

    squares: NDArray[np.float64]
    products: NDArray[np.float64]

    def __repr__(self) -> str:
        return brief_repr(self)


def check_matrices(matrices: Sequence[FunctionSource], n: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless all are tile functions of order ``n``."""
    if not isinstance(matrices, Sequence):
        raise TypeError(f"matrices is a {type(matrices).__name__}; give a list of tile functions")
    for number, matrix in enumerate(matrices):
        check_function(matrix, f"matrix {number}")
        if matrix.n != n:
            raise ValueError(f"matrix {number} has order {matrix.n}, but the factor has order {n}")


def check_border(matrix: FunctionSource, columns: range, n: int, width: int | None) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless a tile function has ``n`` rows of these columns."""
    check_function(matrix, "matrix")
    if not isinstance(columns, range):
        raise TypeError(f"columns is a {type(columns).__name__}; give a range")
    if columns.step != 1 or columns.start < 0 or max(columns.stop, n) > matrix.n:
        raise ValueError(f"columns {columns} of {n} rows are not inside a matrix of order {matrix.n}")
    if width is not None and whole_number(width, "width") < 1:
        raise ValueError(f"width is {width}, but at least 1 column is solved for at a time")


def row_blocks(columns: range, n: int, height: int) -> list[tuple[range, float]]:
    """Rows of a panel of the inverse from its first column down, in blocks, and what a sum over a symmetric matrix counts them.

    >>> row_blocks(range(2, 4), 7, 2)
    [(range(2, 4), 1.0), (range(4, 6), 2.0), (range(6, 7), 2.0)]
    """
    parts = ((columns, 1.0), (range(columns.stop, n), 2.0))
    return [
        (range(start, min(start + height, rows.stop)), weight)
        for rows, weight in parts
        for start in range(rows.start, rows.stop, height)
    ]


#: The diagonal of some panels of the inverse, and sums over the blocks of each by its first column.
_PanelSums: TypeAlias = tuple[NDArray[np.float64], dict[int, list[NDArray[np.float64]]]]


def inverse_traces(
    solver: AbstractSolver, store: AbstractStore, matrices: Sequence[FunctionSource], *, vectors: NDArray[np.float64], run: Pass
) -> InverseTraces:
    """Compute the sums of :meth:`ooc_chol.CholeskyFactor.inverse_traces`, a panel of the inverse at a time."""
    if team := solver.team_for(store):

        def part(number: int) -> _PanelSums:
            one, turn = team[number].without_locking(), Turn(number, len(team))
            return _inverse_traces(one, store, matrices, vectors=vectors, run=run, turn=turn)

        parts = by_all(team, store, [vectors], part)
    else:
        parts = [_inverse_traces(solver, store, matrices, vectors=vectors, run=run, turn=ALONE)]
    totals = np.zeros((len(matrices), 1 + vectors.shape[1]))
    for _, sums in sorted(panel for _, panels in parts for panel in panels.items()):  # in the order of one device
        for each in sums:
            totals += each
    return InverseTraces(np.sum([diagonal for diagonal, _ in parts], axis=0), totals[:, 0], totals[:, 1:])


def _inverse_traces(
    solver: AbstractSolver,
    store: AbstractStore,
    matrices: Sequence[FunctionSource],
    *,
    vectors: NDArray[np.float64],
    run: Pass,
    turn: Turn,
) -> _PanelSums:
    """The panels whose turn it is."""
    n, q = vectors.shape
    diagonal, wanted, sums = np.zeros((n, 1)), PanelSums(matrices, q), dict[int, list[NDArray[np.float64]]]()
    with solver.opened(store, run, Needs((vectors, diagonal), sums=wanted)) as sweeps:
        sweeps.prepare(matrices)
        width = panel_width(store.grid, None, sweeps.columns_that_fit())
        beside, found = sweeps.allocate(width)
        for columns, panel in panels_of(sweeps, width, turn):
            sweeps.generate(_diagonal_of(panel), columns, range(1), found[columns.start : columns.stop])
            blocks = row_blocks(columns, n, sweeps.block_rows) if matrices else []
            parts = sweeps.panel_sums(panel, columns, [rows for rows, _ in blocks], sums=wanted, vectors=beside) if blocks else []
            sums[columns.start] = [weight * part for (_, weight), part in zip(blocks, parts, strict=True)]
        sweeps.take_back(found, diagonal)
        sweeps.finish()
    return diagonal[:, 0], sums


def _diagonal_of(panel: Tile) -> TileFunction:
    """A tile function of the diagonal of a panel, as a column."""

    def take(rows: range, cols: range, out: Tile, stream: Any) -> None:
        width = len(rows)
        out[:, 0] = panel.reshape(-1)[:: width + 1][:width]

    return take


def column_blocks(columns: range) -> list[range]:
    """Columns in blocks that are solved for by calls of their own, so that no bit depends on how many devices share them.

    >>> [len(block) for block in column_blocks(range(20_000))]
    [2560, 2560, 2560, 2560, 2560, 2560, 2560, 2080]
    """
    m = len(columns)
    count = _BLOCKS * -(-m // (_BLOCKS * _MOST_COLUMNS))
    width = max(_LEAST_COLUMNS, -(-m // (count * _ALIGNED)) * _ALIGNED)
    return [columns[start : start + width] for start in range(0, m, width)]


def column_groups(blocks: Sequence[range], most: int) -> list[list[range]]:
    """Blocks in groups of at most so many columns, for one reading of L each; a block of more columns is cut.

    >>> column_groups([range(0, 4), range(4, 8), range(8, 9)], 5)
    [[range(0, 4)], [range(4, 8), range(8, 9)]]
    >>> column_groups([range(0, 4), range(4, 5)], 3)
    [[range(0, 3)], [range(3, 4), range(4, 5)]]
    """
    pieces = [block[start : start + most] for block in blocks for start in range(0, len(block), most)]
    groups: list[list[range]] = []
    for piece in pieces:
        if groups and sum(map(len, groups[-1])) + len(piece) <= most:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def half_solve_sums(
    solver: AbstractSolver,
    store: AbstractStore,
    matrix: FunctionSource,
    columns: range,
    *,
    vectors: NDArray[np.float64],
    width: int | None,
    run: Pass,
) -> HalfSolveSums:
    """Compute the sums of :meth:`ooc_chol.CholeskyFactor.half_solve_sums`, some columns of B at a time."""
    blocks = column_blocks(columns)
    team = solver.team_for(store)[: len(blocks)]
    if len(team) > 1:
        ends = np.linspace(0, len(blocks), len(team) + 1).astype(int)

        def part(number: int) -> HalfSolveSums:
            one, own = team[number].without_locking(), blocks[ends[number] : ends[number + 1]]
            return _half_solve_sums(one, store, matrix, columns, blocks=own, vectors=vectors, width=width, run=run)

        parts = by_all(team, store, [vectors], part)
        return HalfSolveSums(*(np.sum(each, axis=0) for each in zip(*parts, strict=True)))
    return _half_solve_sums(solver, store, matrix, columns, blocks=blocks, vectors=vectors, width=width, run=run)


def _half_solve_sums(
    solver: AbstractSolver,
    store: AbstractStore,
    matrix: FunctionSource,
    columns: range,
    *,
    blocks: Sequence[range],
    vectors: NDArray[np.float64],
    width: int | None,
    run: Pass,
) -> HalfSolveSums:
    """Those of some blocks of the columns, zero for others."""
    n, m, q = store.grid.n, len(columns), vectors.shape[1]
    squares, products = np.zeros((m, 1)), np.zeros((m, q))
    with solver.opened(store, run, Needs((vectors, squares, products))) as sweeps:
        sweeps.prepare([matrix])
        fitting = sweeps.columns_that_fit()
        if fitting is None:  # the host, which is alone
            blocks, fitting = [columns], max(1, PANEL_BYTES // (8 * n)) if width is None else m
        groups = column_groups(blocks, min(fitting, width or fitting))
        beside, column_squares, column_products = sweeps.allocate(max(sum(map(len, group)) for group in groups))
        for group in groups:
            parts = _apart(sweeps, [len(block) for block in group])
            for y, block in zip(sweeps.each(parts), group, strict=True):
                sweeps.fill(matrix, block, y)
            sweeps.solve(*parts)
            for y, block in zip(sweeps.each(parts), group, strict=True):
                at = slice(block.start - columns.start, block.stop - columns.start)
                sweeps.add_column_squares(y, column_squares[at, 0])
                if q:
                    sweeps.set_product(y, beside, column_products[at])
        sweeps.take_back(column_squares, squares)
        sweeps.take_back(column_products, products)
        sweeps.finish()
    return HalfSolveSums(squares[:, 0], products)


def _apart(sweeps: AbstractSweeps, widths: Sequence[int]) -> list[Tile]:
    """Arrays of so many columns each, one behind the other in the room for columns."""
    n = sweeps.grid.n
    room, ends = sweeps.array(n * sum(widths), 1), np.cumsum([0, *widths]).tolist()
    return [room[n * start : n * end].reshape(n, end - start) for start, end in pairwise(ends)]
