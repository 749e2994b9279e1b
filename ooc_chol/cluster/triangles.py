"""Tasks of solves and products on a worker: tiles of a block row meet pieces of right-hand sides.

A piece is a row-major array of the matrix rows of one block row, or of several that follow each other, and of a few columns.
Every function returns new arrays and leaves what it is given as it is, so that a task may run twice. Each row of a result takes
its tiles in one order, that of the sweeps of one machine, however tasks are cut: the bits are those of that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockGrid, LBlock
from ooc_chol.dense.factor.host_sweeps import subtract
from ooc_chol.dense.factor.reading import stream_tiles
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.errors import TierError
from ooc_chol.formats import FORMATS, PrecisionFormat, decode
from ooc_chol.kernels.host.solves import substitute
from ooc_chol.process import blas_buffers
from ooc_chol.tasks.tiling import Index, TileIndex

#: Right-hand sides or solutions: rows of one block row or of several, and a few columns.
Piece: TypeAlias = NDArray[Any]
#: Blocks of one block row that are in a worker's memory, or the URL of the Zarr group that they are read from.
Held: TypeAlias = Sequence[LBlock] | str


class Triangle(NamedTuple):
    """How L is cut, and the format in which one computes with it."""

    blocks: BlockGrid
    fmt: PrecisionFormat

    def rows(self, row: int, columns: range) -> list[TileIndex]:
        """Tiles of a block row in these block columns, row by row, as they are stored."""
        first = self.blocks.span(columns.start).start if columns else 0
        stop = self.blocks.span(columns.stop - 1).stop if columns else 0
        return [TileIndex(i, j) for i in self.blocks.span(row) for j in range(first, min(i + 1, stop))]

    def first_row(self, block: int) -> int:
        """The matrix row that a block row begins with."""
        return self.blocks.rows(block).start


def solved_forward(triangle: Triangle, held: Held, row: int, columns: range, b: Piece, solved: Sequence[Piece]) -> Piece:
    """``b - L[s, q0:q1] @ y[q0:q1]`` of block row s; where ``columns`` end with its own also ``inv(L[s, s])`` of that.

    ``solved`` are ``y[q]`` of the other block columns, one after the other.
    """
    grid, x, top = triangle.blocks.tiles, np.array(b, order="C"), triangle.first_row(row)
    for (i, j), l_ij in _tiles(triangle, held, triangle.rows(row, columns)):
        x_i = x[grid.start(i) - top :][: grid.size(i)]
        if i == j:  # x[i] = inv(L[i, i]) @ x[i]
            substitute(l_ij, x_i, transposed=False)
        elif grid.start(j) >= top:  # x[i] -= L[i, j] @ x[j]
            subtract(x_i, l_ij, x[grid.start(j) - top :][: grid.size(j)], transposed=False)
        else:
            subtract(x_i, l_ij, _rows_of(triangle.blocks, solved, j, columns.start), transposed=False)
    return x


def _rows_of(blocks: BlockGrid, pieces: Sequence[Piece], j: int, first: int) -> Piece:
    """Rows of tile row ``j`` in pieces of one block row each, from block row ``first`` on."""
    block = j // blocks.height
    return pieces[block - first][blocks.tiles.start(j) - blocks.rows(block).start :][: blocks.tiles.size(j)]


def solved_backward(
    triangle: Triangle,
    held: Held,
    row: int,
    columns: range,
    x: Piece | Sequence[Piece],
    below: Piece | None = None,
    first: int = 0,
) -> Piece:
    """``x - L[s, p0:p1].H @ z[s]`` for the rows of block columns ``p0:p1``, a piece or several.

    Where these have block column s among them, ``z[s] = inv(L[s, s]).H @ x[s]`` is found first, in its place. Else ``below`` is
    the piece that has ``z[s]``, which begins with block row ``first``.
    """
    grid, x = triangle.blocks.tiles, _one_piece(x)
    begin, rows = triangle.first_row(columns.start), triangle.blocks.rows(row)
    z = x[rows.start - begin :] if below is None else below[rows.start - triangle.first_row(first) :]
    for (i, j), l_ij in _tiles(triangle, held, triangle.rows(row, columns)[::-1]):
        z_i = z[grid.start(i) - rows.start :][: grid.size(i)]
        if i == j:  # z[i] = inv(L[i, i]).H @ z[i]
            substitute(l_ij, z_i, transposed=True)
        else:  # x[j] -= L[i, j].H @ z[i]
            subtract(x[grid.start(j) - begin :][: grid.size(j)], l_ij, z_i, transposed=True)
    return x


def _one_piece(x: Piece | Sequence[Piece]) -> Piece:
    """Pieces one below the other, always a copy that may be written."""
    return np.array(x, order="C") if isinstance(x, np.ndarray) else np.concatenate(list(x))


def multiplied(triangle: Triangle, held: Held, row: int, columns: range, z: Sequence[Piece]) -> Piece:
    """``L[s, 0:s+1] @ z`` of block row s, with one piece of z for each block column."""
    grid, rows = triangle.blocks.tiles, triangle.blocks.rows(row)
    y, z = np.zeros((len(rows), z[0].shape[1]), triangle.fmt.dtype), [aligned(piece) for piece in z]
    product = np.empty((min(grid.nb, grid.n), y.shape[1]), y.dtype)
    for (i, j), l_ij in _tiles(triangle, held, triangle.rows(row, columns)):  # y[i] += L[i, j] @ z[j]
        y_i = y[grid.start(i) - rows.start :][: grid.size(i)]
        y_i += np.matmul(l_ij, _rows_of(triangle.blocks, z, j, columns.start), out=product[: len(y_i)])
    return y


def multiplied_by_adjoint(triangle: Triangle, held: Held, row: int, columns: range, y: Piece | None, z: Piece) -> Piece:
    """``y + L[s, p0:p1].H @ z[s]`` for the rows of block columns ``p0:p1``; None for a y of zeros."""
    grid, rows, begin = triangle.blocks.tiles, triangle.blocks.rows(row), triangle.first_row(columns.start)
    end = triangle.blocks.rows(columns.stop - 1).stop
    y = np.zeros((end - begin, z.shape[1]), triangle.fmt.dtype) if y is None else np.array(y, order="C")
    z = aligned(z.conj())  # L.H @ z is conj(L.T @ conj(z)), and no tile is copied
    product = np.empty((min(grid.nb, grid.n), y.shape[1]), y.dtype)
    for (i, j), l_ij in _tiles(triangle, held, triangle.rows(row, columns)):
        y_j = y[grid.start(j) - begin :][: grid.size(j)]
        y_j += np.conjugate(np.matmul(l_ij.T, z[grid.start(i) - rows.start :][: grid.size(i)], out=product[: len(y_j)]))
    return y


def diagonal_of_block(triangle: Triangle, held: Held, row: int, columns: range) -> NDArray[Any]:
    """The diagonal of L in a block row, real."""
    grid = triangle.blocks.tiles
    order = [TileIndex(k, k) for k in triangle.blocks.span(row)]
    diagonal = np.empty(len(triangle.blocks.rows(row)), triangle.fmt.real_dtype)
    for (k, _), l_kk in _tiles(triangle, held, order):
        diagonal[grid.start(k) - triangle.first_row(row) :][: grid.size(k)] = l_kk.diagonal().real
    return diagonal


def squares_of_rows(triangle: Triangle, held: Held, row: int, columns: range) -> NDArray[np.float64]:
    """``sum_j |L_ij|**2`` of the rows of a block row."""
    grid, top = triangle.blocks.tiles, triangle.first_row(row)
    squares = np.zeros(len(triangle.blocks.rows(row)))
    for (i, _), l_ij in _tiles(triangle, held, triangle.rows(row, columns)):
        for part in (l_ij.real, l_ij.imag) if triangle.fmt.is_complex else (l_ij,):
            squares[grid.start(i) - top :][: grid.size(i)] += np.einsum("ij,ij->i", part, part)
    return squares


def _tiles(triangle: Triangle, held: Held, order: Sequence[TileIndex]) -> Iterator[tuple[TileIndex, NDArray[Any]]]:
    """Tiles in the type in which one computes with them, each valid until the next one is asked for."""
    blas_buffers.ensure(numpys=True)
    if isinstance(held, str):
        with closing(stream_tiles(_group(held), order)) as tiles:
            yield from tiles
        return
    stored: dict[Index, NDArray[Any]] = {}
    for block in held:
        stored.update(block.tiles or {})
    for index in order:
        if index not in stored:
            raise TierError(f"tile {tuple(index)} of L is in none of the blocks that this task was given; its block was not sent")
        yield index, wide_tile(stored[index], triangle.blocks.tiles.shape(*index), triangle.fmt)


def aligned(piece: Piece) -> Piece:
    """An array where NumPy multiplies by BLAS: what came over the network may lie at any byte, and is then copied.

    NumPy's own loop, which takes what is not aligned, adds in another order: bits would tell which worker did what.
    """
    return np.require(piece, requirements=("C", "A"))


def wide_tile(stored: NDArray[Any], shape: tuple[int, int], fmt: PrecisionFormat) -> NDArray[Any]:
    """A tile as a block keeps it, as a row-major array of ``fmt``: in place where it is one, else widened, exactly.

    In mixed precision the number of its bytes tells the format in which a tile is stored.

    >>> from ooc_chol.formats import FP64
    >>> wide_tile(np.ones((1, 2), np.float32), (1, 2), FP64)
    array([[1., 1.]])
    """
    if stored.dtype == fmt.dtype:
        return aligned(stored.reshape(shape))
    raw, entries = stored.reshape(-1).view(np.uint8), shape[0] * shape[1]
    for narrow in FORMATS.values():
        if narrow.stored_bytes(entries) == raw.nbytes:
            decode(raw, narrow, slice(0, entries), out := np.empty(shape, fmt.dtype))
            return out
    raise TierError(f"a tile of shape {shape} has {raw.nbytes} bytes, which is no format of storage: its block is damaged")


def _group(url: str) -> AbstractStore:
    """The Zarr group of L, opened once by a worker, and again where another factor has that name by now."""
    if not _opened_group(url).is_there():
        _opened_group.cache_clear()
    return _opened_group(url)


@lru_cache(maxsize=4)
def _opened_group(url: str) -> AbstractKeptStore:
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    return ZarrStore.open(url)
