"""The tile kernels of a host device: BLAS calls enqueued on its streams, and the flags that they set."""

from __future__ import annotations

from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import ScheduleError
from ooc_chol.formats import Floats, PrecisionFormat, Rounding, largest_magnitude
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.host import blas
from ooc_chol.kernels.host.solves import HostSolveKernels
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.host.survey import HostSurvey
from ooc_chol.kernels.interfaces import (
    NORM_COLUMNS,
    AbstractFlags,
    AbstractKernelSet,
    AbstractResidueKernels,
    AbstractTileNorms,
    FinalTile,
)
from ooc_chol.kernels.interfaces.whole import first_imaginary
from ooc_chol.process.team import ThreadTeam, pieces
from ooc_chol.tasks.tiling import TileGrid

#: Least and most rows of a strip: what one thread computes by one BLAS call. Shapes depend on the tile alone, never on the
#: number of threads, so that the bits do not either.
LEAST_STRIP, MOST_STRIP = 128, 512
#: Largest diagonal tile that one thread factors by one call of LAPACK. A team divides it into two strips at most, whatever the
#: cores, and hands six pieces over: of order 1000 it takes as long on two cores as one thread, and a third more of processors.
MOST_ALONE = 1024
#: Columns of an operand of another type that are converted at once: with 512 rows 2 MiB of float64, twice for each thread.
_CONVERTED_COLUMNS = 512
#: Rows whose magnitudes are summed at once.
_SUMMED_ROWS = 64


def strips(rows: int) -> list[slice]:
    """Rows of a tile in strips: halves, but not below 128 rows nor above 512."""
    return pieces(rows, min(MOST_STRIP, max(LEAST_STRIP, -(-rows // 2))))


@final
class HostFlags(AbstractFlags):
    """Failures met by the host kernels, one entry per tile column and one per tile.

    Kernels write single entries from the streams' threads, and any thread may read: an entry is one machine word.
    """

    def __init__(self, nt: int) -> None:
        self.pivot: NDArray[np.int64] = np.zeros(nt, dtype=np.int64)
        self.entry: NDArray[np.int64] = np.zeros(nt * (nt + 1) // 2, dtype=np.int64)
        self.not_real: NDArray[np.int64] = np.zeros(nt, dtype=np.int64)

    def copy_back(self, stream: AbstractStream) -> None:
        """Do nothing: the kernels write these flags in host memory already."""

    def nonfinite(self) -> tuple[int, int] | None:
        first = _first_set(self.entry)
        return None if first is None else (first[0], first[1] - 1)

    def failed_pivot(self) -> tuple[int, int] | None:
        return _first_set(self.pivot)

    def imaginary(self) -> tuple[int, int] | None:
        first = _first_set(self.not_real)
        return None if first is None else (first[0], first[1] - 1)


def _first_set(values: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return position and value of the first entry that is not zero."""
    position = int(np.argmax(values != 0))
    value = int(values[position])
    return (position, value) if value else None


@final
class HostNorms(AbstractTileNorms):
    """Norms of final tiles, written by kernels on the streams' threads, one row each."""

    def __init__(self, n_tiles: int) -> None:
        self.of_tiles: NDArray[np.float64] = np.zeros((n_tiles, len(NORM_COLUMNS)))

    def copy_back(self, stream: AbstractStream) -> None:
        """Do nothing: the kernels write in host memory already."""

    def copy_rows(self, stream: AbstractStream, first: int, count: int) -> None:
        """Do nothing."""

    def rows(self, first: int, count: int) -> NDArray[np.float64]:
        return self.of_tiles[first : first + count]

    def values(self) -> NDArray[np.float64]:
        return self.of_tiles


@final
class HostKernels(AbstractKernelSet):
    """Tile kernels on the host: NumPy arrays of the type that the plan says, row-major, changed in place.

    A task is computed in the type of the tile that it changes. Operands of another type are converted piece by piece on the way.

    For one library, one number of threads a BLAS call and one tile shape, a kernel's result is a function of the entries alone:
    it does not depend on ``threads``, on where in memory the tile lies or on what other threads do.
    """

    def __init__(self, threads: int = 1, residues: AbstractResidueKernels | None = None) -> None:
        self._team = ThreadTeam(threads)
        self.residues = residues

    def close(self) -> None:
        """End the threads of both teams."""
        if self.residues is not None:
            self.residues.close()
        self._team.close()

    def workspace_bytes(self, nb: int) -> int:
        """Return 0: BLAS packs into buffers of its own, which do not grow with the tile."""
        return 0

    def bind(self, nb: int, workspace: int) -> None:
        """Do nothing: there is no workspace."""

    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        enqueue(stream, partial(_potrf, self._team, a_kk, _host_flags(flags), k))

    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T`` by substitution, which does not read the strict upper part of ``l_kk``."""
        enqueue(stream, partial(_trsm, self._team, l_kk, a_ik))

    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile, *, k0: int) -> None:
        """The same arithmetic at any ``k0``."""
        enqueue(stream, partial(_syrk, self._team, a_ii, l_ik))

    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile, *, k0: int) -> None:
        """The same arithmetic at any ``k0``."""
        enqueue(stream, partial(_gemm, self._team, a_ij, l_ik, l_jk))

    def create_flags(self, nt: int) -> HostFlags:
        return HostFlags(nt)

    def create_norms(self, n_tiles: int) -> HostNorms:
        return HostNorms(n_tiles)

    def create_survey(self, grid: TileGrid, step: int | None) -> HostSurvey:
        return HostSurvey(self, grid, step)

    def create_solves(self) -> HostSolveKernels:
        return HostSolveKernels()

    def finish(
        self, stream: AbstractStream, l_ij: Tile, fmt: PrecisionFormat, norms: AbstractTileNorms, index: FinalTile
    ) -> None:
        """Round a final tile to what ``fmt`` stores of it, in place, and measure it.

        Two passes, shared by the team: for the largest magnitude, and to round and square what is then in a core's cache.
        """
        if not isinstance(norms, HostNorms):
            raise TypeError(f"host kernels fill HostNorms, not {type(norms).__name__}; create the norms with host kernels")
        enqueue(stream, partial(_finish, self._team, l_ij, fmt, norms, index))

    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        """Flag tile ``packed`` when it (with ``lower``: its lower triangle) holds a NaN or an infinity.

        One pass at memory speed. A tile whose sum is not finite is looked at row by row: huge entries may overflow the sum.
        """
        enqueue(stream, partial(_check_finite, a_ij, lower, _host_flags(flags), packed))

    def check_real_diagonal(self, stream: AbstractStream, a_kk: Tile, share: float, flags: AbstractFlags, k: int) -> None:
        enqueue(stream, partial(_check_real_diagonal, a_kk, share, _host_flags(flags), k))


def _host_flags(flags: AbstractFlags) -> HostFlags:
    """Refuse flags that are not those of the host device."""
    if not isinstance(flags, HostFlags):
        raise TypeError(f"host kernels set HostFlags, not {type(flags).__name__}; create the flags with host kernels")
    return flags


def _finish(team: ThreadTeam, l_ij: Floats, fmt: PrecisionFormat, norms: HostNorms, index: FinalTile) -> None:
    """Round a tile and fill its row of norms."""
    parts = [l_ij[rows] for rows in strips(len(l_ij))]
    largest = float(np.max(team.map(largest_magnitude, parts)))
    rounding = Rounding(fmt, largest)
    lost, left = np.sum(team.map(rounding.apply, parts), axis=0)  # in the order of the strips
    row = norms.of_tiles[index.packed]
    row[0], row[1], row[4] = rounding.norm(left), rounding.norm(lost), largest
    if index.is_diagonal:
        row[2], row[3] = _largest_sums(l_ij)


def _largest_sums(tile: Floats) -> tuple[float, float]:
    """Largest sums of magnitudes along a row and along a column."""
    columns, largest = np.zeros(tile.shape[1]), []
    for start in range(0, len(tile), _SUMMED_ROWS):
        magnitudes = np.abs(tile[start : start + _SUMMED_ROWS])
        columns += magnitudes.sum(axis=0)
        largest.append(magnitudes.sum(axis=1).max())
    return float(np.max(largest)), float(columns.max())


def _gemm(team: ThreadTeam, a_ij: Floats, l_ik: Floats, l_jk: Floats) -> None:
    """``A[i, j] -= L[i, k] @ L[j, k].T``, strip by strip."""
    team.run([partial(_subtract_product, a_ij[rows], l_ik[rows], l_jk) for rows in strips(len(a_ij))])


def _subtract_product(c: Floats, left: Floats, right: Floats) -> None:
    """``C -= left @ right.T`` in the type of C; of operands that have another one, a piece is converted at a time."""
    if left.dtype == right.dtype == c.dtype:
        blas.gemm(c, left, right)
        return
    with np.errstate(over="ignore"):  # what becomes infinite is found in the tile
        for columns in pieces(left.shape[1], _CONVERTED_COLUMNS):
            piece = left[:, columns].astype(c.dtype, copy=False)
            for start in range(0, len(right), MOST_STRIP):
                rows = slice(start, start + MOST_STRIP)
                blas.gemm(c[:, rows], piece, right[rows, columns].astype(c.dtype, copy=False))


def _trsm(team: ThreadTeam, l_kk: Floats, a_ik: Floats) -> None:
    """``A[i, k] = A[i, k] @ inv(L[k, k]).T``, strip by strip: rows are independent."""
    solve = blas.trsm if l_kk.dtype == a_ik.dtype else _solve_in_type_of_right
    team.run([partial(solve, l_kk, a_ik[rows]) for rows in strips(len(a_ik))])


def _solve_in_type_of_right(l_kk: Floats, a_ik: Floats) -> None:
    """TRSM by blocks of columns, whose diagonal blocks are converted one at a time."""
    for block in pieces(len(l_kk), MOST_STRIP):
        if start := block.start:
            _subtract_product(a_ik[:, block], a_ik[:, :start], l_kk[block, :start])
        blas.trsm(l_kk[block, block].astype(a_ik.dtype), a_ik[:, block])


def _factor(team: ThreadTeam, a_kk: Floats) -> int:
    """Factor a diagonal tile by halves down to one strip; returns LAPACK's ``info``."""
    n = len(a_kk)
    if n <= MOST_STRIP:
        return blas.potrf(a_kk)
    half = n // 2
    info = _factor(team, a_kk[:half, :half])
    if info:
        return info
    _trsm(team, a_kk[:half, :half], a_kk[half:, :half])
    _syrk(team, a_kk[half:, half:], a_kk[half:, :half])
    info = _factor(team, a_kk[half:, half:])
    return half + info if info > 0 else info


def factor_tile(team: ThreadTeam, a_kk: Floats, k: int = 0) -> int:
    """Factor the tile and zero its strict upper part; the order of its first leading minor that fails, else 0."""
    is_small = len(a_kk) <= MOST_ALONE
    info = blas.potrf(a_kk) if is_small else _factor(team, a_kk)
    if info < 0:
        raise ScheduleError(f"potrf refused its argument {-info} for tile ({k}, {k}) of shape {a_kk.shape}; report this as a bug")
    parts = [slice(0, len(a_kk))] if is_small else strips(len(a_kk))
    team.run([partial(_zero_strict_upper, a_kk, rows) for rows in parts])
    # OpenBLAS takes a NaN for a positive pivot. A pivot is its square root on the diagonal by now.
    pivots = a_kk.diagonal().real[: info - 1 if info else None]
    if not pivots.size or (np.minimum.reduce(pivots) > 0 and np.maximum.reduce(pivots) < np.inf):  # not of a NaN
        return info
    bad = np.flatnonzero(~((pivots > 0) & (pivots < np.inf)))
    return int(bad[0]) + 1 if bad.size else info


def _zero_strict_upper(a_kk: Floats, rows: slice) -> None:
    """Set what is above the diagonal of a strip of rows to zero."""
    blas.zero_strict_upper(a_kk[rows, rows])
    a_kk[rows, rows.stop :] = 0.0


def _potrf(team: ThreadTeam, a_kk: Floats, flags: HostFlags, k: int) -> None:
    """Factor the tile and flag its first pivot that is not positive."""
    flags.pivot[k] = factor_tile(team, a_kk, k)


def _syrk(team: ThreadTeam, a_ii: Floats, l_ik: Floats) -> None:
    """``A[i, i] -= L[i, k] @ L[i, k].T``, lower triangle only: of each strip its diagonal block, and what is left of it."""
    parts = strips(len(a_ii))
    below = [partial(_subtract_product, a_ii[rows, : rows.start], l_ik[rows], l_ik[: rows.start]) for rows in parts[1:]]
    blocks = [partial(_subtract_square, a_ii[rows, rows], l_ik[rows]) for rows in parts]
    # The longest are taken first: with two strips the product left of a block is as much work as both blocks.
    team.run([*reversed(below), *blocks])


def _subtract_square(c: Floats, left: Floats) -> None:
    """``C -= left @ left.T``, lower triangle only; of a float32 operand a piece is converted at a time."""
    parts = [slice(None)] if left.dtype == c.dtype else pieces(left.shape[1], _CONVERTED_COLUMNS)
    for columns in parts:
        blas.syrk(c, left[:, columns].astype(c.dtype, copy=False))


def _check_real_diagonal(a_kk: Floats, share: float, flags: HostFlags, k: int) -> None:
    """Flag the first entry of the diagonal of A that is not real."""
    row = first_imaginary(np, a_kk, share)
    if row is not None:
        flags.not_real[k] = row + 1


def _check_finite(a_ij: Floats, lower: bool, flags: HostFlags, packed: int) -> None:
    """Flag the first entry of the tile (or its lower triangle) that is NaN or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(a_ij, axis=None)
    # A sum that met a NaN or an infinity can never become finite again.
    if np.isfinite(total):
        return
    cols = a_ij.shape[1]
    for row, entries in enumerate(a_ij):
        bad = np.flatnonzero(~np.isfinite(entries[: row + 1] if lower else entries))
        if bad.size:
            flags.entry[packed] = row * cols + int(bad[0]) + 1
            return
