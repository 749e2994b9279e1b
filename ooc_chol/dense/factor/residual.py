"""The residual ``R = A - L @ L.T`` of sampled sub-blocks, computed far more accurately than the factor itself.

A plain FP64 product makes errors as large as the residual that it should measure. Here each row of L is split into two short
slices and a rest: products of slices, and all their partial sums, fit into 53 bits, so that their FP64 GEMM is exact in any order
of summation (Ozaki et al., Numerical Algorithms 59, 2012). The products with a rest are ``2**-42`` as large and may be rounded.
All are added with their rounding errors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import ProgressReporter
from ooc_chol.config import whole_number
from ooc_chol.display.prints import brief_repr
from ooc_chol.errors import NonFiniteError
from ooc_chol.formats import FP64, TYPES
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.memory.sources import AbstractSource
from ooc_chol.process import blas_buffers
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.tasks.tiling import TileGrid

ReadBlock = Callable[[slice, slice], Any]

#: Columns of L in one exact product: shorter ones leave more bits to a slice, and slices of 64 rows in the cache.
_SEGMENT = 512
#: Blocks unless another number is asked for, at large orders and at least, and the square of the order that one of them is worth:
#: a block takes as long as a factorization of order ``sqrt(n * 250_000)`` at order n, so that together they cost one at most.
MOST_BLOCKS, LEAST_BLOCKS, _ORDER_SQUARED_OF_BLOCK = 200, 8, 250_000
#: Blocks that each thread is given between two reports of progress.
_BLOCKS_AT_ONCE = 4


class RowReader(Protocol):
    """Reader of a factor's rows for the sampled residual."""

    @property
    def grid(self) -> TileGrid:
        """How L is cut into tiles."""

    def rows(self, rows: range, stop: int) -> NDArray[Any]:
        """Entries ``L[rows, :stop]``, zero above the diagonal, as a new row-major array of L's type."""


@dataclass(frozen=True)
class ResidualSample:
    """Residuals ``R = A - L @ L.T`` of sampled sub-blocks, in units of the roundoff of L's type."""

    max_scaled: float  #: Largest ``|R_ij| / (u sqrt(A_ii A_jj))`` with ``u = 2**-53``, or ``2**-24`` for an L in single precision
    worst: tuple[int, int]  #: Row and column of that entry
    floor: float  #: Rigorous bound on the error that the check itself makes in any ``|R_ij|``, in the same unit
    #: ``||R||_F / (n u ||A||_F)`` over the sampled entries. Usual, and no test: it is small for wrong factors too.
    classical: float
    blocks: int  #: Blocks that were computed
    entries: int  #: Entries on and below the diagonal in those blocks; an entry in two blocks counts twice
    n: int  #: Order of the matrix

    __repr__ = brief_repr

    @property
    def max_scaled_over_sqrt_n(self) -> float:
        """``max_scaled / sqrt(n)``: at most 4 for a factor that is right in its type."""
        return self.max_scaled / math.sqrt(self.n)

    def __str__(self) -> str:
        return (
            f"max |R_ij| = {self.max_scaled_over_sqrt_n:.3g} sqrt(n) u sqrt(A_ii A_jj) at {self.worst} "
            f"({self.blocks} blocks, floor {self.floor:.1g} u); classical {self.classical:.2g}"
        )


def blocks_worth_a_factorization(n: int) -> int:
    """How many blocks cost at most about a factorization of order ``n`` on the host: 200 from order 7100 on, at least 8."""
    return min(MOST_BLOCKS, max(LEAST_BLOCKS, n**2 // _ORDER_SQUARED_OF_BLOCK))


def sample_residual(
    read_a: ReadBlock,
    factor: RowReader,
    *,
    blocks: int = MOST_BLOCKS,
    order: int = 64,
    seed: int = 0,
    report: ProgressReporter = None,
) -> ResidualSample:
    """Compute ``R = A - L @ L.T``, of a complex L ``A - L @ L.H``, on sampled sub-blocks of the lower triangle.

    Per block at most ``12 n order**2`` flops, of a complex L four times as many, and ``16 n order`` bytes read from L; each
    thread takes as much memory. A is read by the calling thread alone.
    """
    if whole_number(blocks, "blocks") < 1 or order < 1:
        raise ValueError(f"blocks is {blocks} and order {order}, but both are at least 1")
    if whole_number(seed, "seed") < 0:
        raise ValueError(f"seed is {seed}; give 0 or more")
    if not factor.grid.n:
        raise ValueError("a matrix of order 0 has no blocks to sample")
    chosen = list(_choose_blocks(factor.grid, blocks, min(order, factor.grid.n), seed))
    fmt = TYPES[factor.rows(range(1), 1).dtype.name]
    flops = [12 * fmt.flops_factor * len(rows) * len(cols) * cols.stop for rows, cols in chosen]
    total, since = _Total(fmt.unit_roundoff), time.perf_counter()
    # Products of 64 rows are too small for several threads of BLAS, which would wait for each other: these share the blocks.
    with blas_threads(1), closing(ThreadTeam(min(len(chosen), cores()))) as team:
        step = _BLOCKS_AT_ONCE * team.size
        for start in range(0, len(chosen), step):
            parts = [_read_block(read_a, factor.grid, rows, cols) for rows, cols in chosen[start : start + step]]
            for part, found in zip(parts, team.map(partial(_block_residual, factor, fmt.unit_roundoff), parts), strict=True):
                total.add(found, part.rows, part.cols)
            if report is not None:
                report(sum(flops[: start + step]), sum(flops), time.perf_counter() - since)
    return total.sample(factor.grid.n)


def source_blocks(source: AbstractSource) -> ReadBlock:
    """Give the function that reads a new sub-block of ``source``, in double precision."""
    dtype = np.dtype(np.complex128 if source.dtype.kind == "c" else np.float64)

    def read(rows: slice, cols: slice) -> NDArray[Any]:
        block = np.empty((rows.stop - rows.start, cols.stop - cols.start), dtype)
        source.read_block(range(rows.start, rows.stop), range(cols.start, cols.stop), block)
        return block

    return read


def _choose_blocks(grid: TileGrid, blocks: int, order: int, seed: int) -> Iterator[tuple[range, range]]:
    """The sampled blocks: all of the lower triangle when that takes no more, else four strata in turn."""
    n, count = grid.n, -(-grid.n // order)
    if count * (count + 1) // 2 <= blocks:
        for tile in TileGrid(n, order).tiles():
            yield TileGrid(n, order).span(tile.i), TileGrid(n, order).span(tile.j)
        return
    rng = np.random.default_rng(seed)
    last = n - order
    for stratum in range(blocks):
        anywhere = sorted((int(rng.integers(last + 1)), int(rng.integers(last + 1))))
        left, top = anywhere
        if stratum % 4 == 0:  # on the diagonal
            left = top
        elif stratum % 4 == 1:  # across tile boundaries, row and column
            left, top = (min(max(round(start / grid.nb) * grid.nb - order // 2, 0), last) for start in anywhere)
        elif stratum % 4 == 2:  # in the last rows
            top = last
        yield range(top, top + order), range(left, left + order)


class _Block(NamedTuple):
    """Contribution of one block to the sample; entries of ``scaled`` above the diagonal are zero."""

    a_norm: float
    residual_norm: float
    scaled: NDArray[np.float64]
    floor: float
    entries: int


class _BlockOfA(NamedTuple):
    """One block of A, zero above the diagonal, and ``sqrt(A_ii)`` of its rows and columns."""

    rows: range
    cols: range
    lower: NDArray[np.bool_]  #: Which entries are on or below the diagonal
    entries: NDArray[Any]
    row_roots: NDArray[np.float64]
    col_roots: NDArray[np.float64]


def _read_block(read_a: ReadBlock, grid: TileGrid, rows: range, cols: range) -> _BlockOfA:
    """Entries of A that one block needs."""
    lower = np.asarray(rows)[:, None] >= np.asarray(cols)[None, :]
    a = _read_lower(read_a, grid, rows=rows, cols=cols, lower=lower)
    return _BlockOfA(rows, cols, lower, a, *(_diagonal_roots(read_a, grid, span) for span in (rows, cols)))


def _block_residual(factor: RowReader, unit_roundoff: float, block: _BlockOfA) -> _Block:
    """``A - L @ L.T`` of one block, real and imaginary parts each by sums of their own."""
    blas_buffers.ensure(numpys=True)
    rows, cols, lower, a, row_roots, col_roots = block
    # Rows scaled by 1e150 would overflow: use A[i, j] / (2**p_i 2**p_j) and L[i, :] / 2**p_i, both exact, p_i = log2 sqrt(A_ii).
    row_powers, col_powers = np.frexp(row_roots)[1], np.frexp(col_roots)[1]
    power = row_powers[:, None] + col_powers[None, :]
    unit = unit_roundoff * np.ldexp(row_roots, -row_powers)[:, None] * np.ldexp(col_roots, -col_powers)[None, :]
    with np.errstate(over="ignore", invalid="ignore"):  # entries of a wrong L may be anything: they end as inf or NaN
        l_rows = _scaled_rows(factor, rows, cols.stop, row_powers)
        l_cols = l_rows if rows == cols else _scaled_rows(factor, cols, cols.stop, col_powers)
        totals = [_CascadedSum(np.ldexp(part, -power)) for part in _parts(a, len(l_rows) == 2)]
        error = sum(_subtract_products(total, terms) for total, terms in zip(totals, _terms(l_rows, l_cols), strict=True))
        residuals = [np.where(lower, total.value(), 0.0) for total in totals]
        return _Block(
            a_norm=_norm(a),
            residual_norm=math.hypot(*(_norm(np.ldexp(residual, power)) for residual in residuals)),
            scaled=np.hypot.reduce(residuals, axis=0) / unit,
            floor=float(np.max(error / unit, where=lower, initial=0.0)),
            entries=int(lower.sum()),
        )


def _scaled_rows(factor: RowReader, rows: range, stop: int, powers: NDArray[np.intc]) -> list[NDArray[np.float64]]:
    """``L[rows, :stop]``, row i divided by ``2**powers[i]``: its real part, of a complex L also its imaginary one."""
    l_rows = factor.rows(rows, stop)
    return [np.ldexp(part, -powers[:, None]) for part in _parts(l_rows, l_rows.dtype.kind == "c")]


def _parts(entries: NDArray[Any], is_complex: bool) -> list[NDArray[np.float64]]:
    """The real part of entries, and the imaginary one where the factor is complex, in FP64."""
    parts = [entries.real, entries.imag] if is_complex else [entries]
    return [np.asarray(part, dtype=np.float64) for part in parts]


def _terms(
    l_rows: list[NDArray[np.float64]], l_cols: list[NDArray[np.float64]]
) -> list[list[tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """Factors ``x`` and ``y`` of the products ``x @ y.T`` whose sums are the parts of ``l_rows @ l_cols.conj().T``."""
    if len(l_rows) == 1:
        return [[(l_rows[0], l_cols[0])]]
    (real, imag), (col_real, col_imag) = l_rows, l_cols
    return [[(real, col_real), (imag, col_imag)], [(imag, col_real), (-real, col_imag)]]


def _subtract_products(total: _CascadedSum, terms: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Subtract the products of all ``terms``; returns a bound on the error of the sums."""
    error = sum(_subtract_product(total, x, y) for x, y in terms) + total.error()
    return np.asarray(error, dtype=np.float64)


def _read_lower(read_a: ReadBlock, grid: TileGrid, *, rows: range, cols: range, lower: NDArray[np.bool_]) -> NDArray[Any]:
    """The block of A in double precision, zero above the diagonal and checked to be finite; the diagonal is real."""
    block = np.asarray(read_a(slice(rows.start, rows.stop), slice(cols.start, cols.stop)))
    block = block.astype(np.result_type(block.dtype, np.float64), copy=False)
    if block.shape != lower.shape:
        raise ValueError(
            f"A[{rows.start}:{rows.stop}, {cols.start}:{cols.stop}] came with shape {block.shape} instead of {lower.shape}"
        )
    block = np.where(lower, block, 0.0)
    if not np.isfinite(block).all():
        r, c = (int(place) for place in np.argwhere(~np.isfinite(block))[0])
        row, col = rows[r], cols[c]
        raise NonFiniteError(row, col, (row // grid.nb, col // grid.nb))
    if block.dtype.kind == "c":
        block.imag[np.asarray(rows)[:, None] == np.asarray(cols)[None, :]] = 0.0
    return block


def _diagonal_roots(read_a: ReadBlock, grid: TileGrid, span: range) -> NDArray[np.float64]:
    """``sqrt(A_ii)`` of the rows in ``span``."""
    diagonal = _read_lower(read_a, grid, rows=span, cols=span, lower=np.tri(len(span), dtype=bool)).diagonal().real
    if diagonal.min() <= 0.0:
        row = span[int(diagonal.argmin())]
        raise ValueError(f"A[{row}, {row}] is {diagonal.min()}, not positive: this is not the matrix of the factor")
    roots: NDArray[np.float64] = np.sqrt(diagonal)
    return roots


class _CascadedSum:
    """Sums of arrays, entry by entry, as accurate as in twice the precision (Ogita, Rump and Oishi 2005, algorithm Sum2)."""

    def __init__(self, first: NDArray[np.float64]) -> None:
        self._sum = first
        self._errors = np.zeros_like(first)
        self._magnitude = np.abs(first)
        self._terms = 1

    def subtract(self, term: NDArray[np.float64]) -> None:
        """Add ``-term``; the rounding error of the addition is exact, and is kept (Knuth's two-sum)."""
        total = self._sum - term
        virtual = total - self._sum
        self._errors += (self._sum - (total - virtual)) - (term + virtual)
        self._sum = total
        self._magnitude += np.abs(term)
        self._terms += 1

    def value(self) -> NDArray[np.float64]:
        """Round the sums to FP64."""
        return self._sum + self._errors

    def error(self) -> NDArray[np.float64]:
        """Bound the error of :meth:`value`, beside its last rounding: ``gamma(m)**2 sum |terms|`` (Proposition 4.5 there)."""
        relative = 1.01 * self._terms * FP64.unit_roundoff
        return relative**2 * self._magnitude


def _subtract_product(total: _CascadedSum, l_rows: NDArray[np.float64], l_cols: NDArray[np.float64]) -> NDArray[np.float64]:
    """``total -= l_rows @ l_cols.T``; returns a bound on the error of the products that are not exact."""
    error = np.zeros((len(l_rows), len(l_cols)))
    for start in range(0, l_cols.shape[1], _SEGMENT):
        x = np.ascontiguousarray(l_rows[:, start : min(start + _SEGMENT, l_cols.shape[1])])
        y = x if l_rows is l_cols else np.ascontiguousarray(l_cols[:, start : start + _SEGMENT])
        k = x.shape[1]
        # Slices are integers of at most 2**bits times a power of two of their row: k products of two stay within 2**53.
        bits = (53 - math.ceil(math.log2(k))) // 2
        x_top = _row_powers(x)
        x1, x2, x_rest = _slices(x, x_top, bits)
        y_top = x_top if x is y else _row_powers(y)
        y1, y2, y_rest = (x1, x2, x_rest) if x is y else _slices(y, y_top, bits)
        for exact in (x1 @ y1.T, x1 @ y2.T, x2 @ y1.T):
            total.subtract(exact)
        for rounded in (x1 @ y_rest.T, x2 @ (y2 + y_rest).T, x_rest @ y.T):
            total.subtract(rounded)
        # Their terms are at most 2**(-2 bits - 2) scale: a rest is at most 2**(-2 bits - 2) of its row, x2 and y2 + y_rest
        # 2**(-bits - 1). So the three err by less than 3 gamma(k) k 2**(-2 bits - 2) scale.
        scale = np.ldexp(1.0, x_top)[:, None] * np.ldexp(1.0, y_top)[None, :]
        error += FP64.unit_roundoff * k**2 * 2.0 ** (-2 * bits) * scale
    return error


def _row_powers(x: NDArray[np.float64]) -> NDArray[np.intc]:
    """A power ``p`` per row such that every entry is below ``2**p``; at least -400, so that no unit below underflows."""
    powers: NDArray[np.intc] = np.frexp(np.maximum(x.max(axis=1), -x.min(axis=1)))[1]
    return np.maximum(powers, -400)


def _slices(
    x: NDArray[np.float64], top: NDArray[np.intc], bits: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Split ``x`` exactly into two slices of ``bits`` bits below ``2**top`` of each row, and the rest."""
    first = _round_to(x, top - bits)
    rest = x - first
    second = _round_to(rest, top - 2 * bits - 1)
    return first, second, rest - second


def _round_to(x: NDArray[np.float64], power: NDArray[np.intc]) -> NDArray[np.float64]:
    """``x``, below ``2**(power + 51)``, rounded to the nearest multiple of ``2**power`` of each row."""
    shift = np.ldexp(1.5, power + 52)[:, None]  # the last bit of a sum with it is worth 2**power
    rounded = x + shift
    rounded -= shift
    return rounded


class _Total:
    """Largest scaled residual and both norms over the blocks so far."""

    def __init__(self, unit_roundoff: float) -> None:
        self.unit_roundoff = unit_roundoff
        self.worst = (-1.0, (0, 0))
        self.floor = self.a_norm = self.r_norm = 0.0
        self.blocks = self.entries = 0

    def add(self, block: _Block, rows: range, cols: range) -> None:
        """Add what one block shows to what the ones before did."""
        row, col = np.unravel_index(int(np.argmax(block.scaled)), block.scaled.shape)  # the first NaN, if there is one
        if not block.scaled[row, col] <= self.worst[0]:
            self.worst = float(block.scaled[row, col]), (rows[int(row)], cols[int(col)])
        self.floor = max(self.floor, block.floor)
        self.a_norm = math.hypot(self.a_norm, block.a_norm)
        self.r_norm = math.hypot(self.r_norm, block.residual_norm)
        self.blocks += 1
        self.entries += block.entries

    def sample(self, n: int) -> ResidualSample:
        """Sample of all blocks so far, together."""
        classical = self.r_norm / self.a_norm / (n * self.unit_roundoff)
        return ResidualSample(
            max_scaled=self.worst[0],
            worst=self.worst[1],
            floor=self.floor,
            classical=classical,
            blocks=self.blocks,
            entries=self.entries,
            n=n,
        )


def _norm(x: NDArray[Any]) -> float:
    """Frobenius norm, also of entries whose squares overflow."""
    largest = float(np.abs(x).max())
    return 0.0 if largest == 0.0 else largest * float(np.linalg.norm(x / largest))
