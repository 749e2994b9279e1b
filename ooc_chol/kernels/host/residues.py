"""Residue kernels of a host device: an exact integer model, in NumPy, of what the CUDA kernels compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import ScheduleError
from ooc_chol.formats import FP64, PrecisionFormat, decode
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.host.remainders import canonical, real_parts, remainders_of, residues_of
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.host.words import Words, rounded
from ooc_chol.kernels.interfaces import AbstractResidueKernels
from ooc_chol.precision.moduli import ROW_SLACK, ResidueBasis
from ooc_chol.process import blas_buffers
from ooc_chol.process.team import ThreadTeam, pieces

Floats: TypeAlias = NDArray[np.float64]
#: Rows of one job: the temporary arrays of a job stay in a core's cache.
_ROWS = 64
#: Terms of which a float32 sum is exact: ``2**10`` products of at most ``2**14``.
_EXACT_TERMS = 1 << 10
#: First magnitude that no int64 holds, and first scaled entry of A to which a reconstructed sum is not added exactly.
_TOO_LARGE, _NO_INTEGER = 2.0**63, 2.0**126


@final
class HostResidueKernels(AbstractResidueKernels):
    """Residues as NumPy arrays: int8 strips, int32 or int8 accumulators, tiles of one type, of any strides.

    Every result is exact or rounded once: it depends neither on ``threads`` nor on the order of sums, and CUDA's is the same.
    The running sums alone are rounded in their own order here and there, 2**32 times finer than what they are compared with.
    """

    def __init__(self, moduli: int, threads: int = 1, fmt: PrecisionFormat = FP64) -> None:
        self.basis = ResidueBasis(moduli, fmt.is_complex)
        self._team = ThreadTeam(threads)
        self._exponents: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._limits: Floats = np.zeros(0)
        self._sums: Floats = np.zeros(0)
        self._flagged: NDArray[np.bool_] = np.zeros(0, dtype=bool)

    def open(self, n: int) -> None:
        self._exponents = np.zeros(n, dtype=np.int32)
        self._limits, self._sums = np.zeros(n), np.zeros(n)
        self._flagged = np.zeros(n, dtype=bool)

    def close(self) -> None:
        """End the team's threads and release the rows' state, but for which row is flagged: a run that failed asks that last."""
        self._team.close()
        flagged = self._flagged
        self.open(0)
        self._flagged = flagged

    def set_diagonal(self, stream: AbstractStream, first: int, a_bb: Tile) -> None:
        enqueue(stream, partial(self._set_diagonal, first, a_bb))

    def convert(
        self, stream: AbstractStream, l_ik: Tile, rows: range, out: Tile, *, is_first: bool, fp16: Tile | None = None
    ) -> None:
        job = partial(self._convert, l_ik.__getitem__, rows.start, (out, fp16), is_first)
        enqueue(stream, partial(self._in_strips, len(rows), job))

    def product(
        self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool
    ) -> None:
        """``S (+)= left[p] @ right[p].T`` for every plane p; with ``lower``, what is above a strip's diagonal block stays."""
        # x + w y of one number is multiplied by x - w y of the other, which is x + w y of its conjugate.
        beside = self.basis.count if self.basis.is_split else 0
        job = partial(_product, accumulator, left, right, accumulates, lower, beside, self.basis.moduli)
        enqueue(stream, partial(self._in_strips, accumulator.shape[1], job, 4 * _ROWS))

    def convert_stored(
        self,
        stream: AbstractStream,
        stored: Tile,
        fmt: PrecisionFormat,
        rows: range,
        out: Tile,
        *,
        is_first: bool,
        fp16: Tile | None = None,
    ) -> None:
        widened = partial(_widened, stored.reshape(-1), fmt, out.shape[2])
        job = partial(self._convert, widened, rows.start, (out, fp16), is_first)
        enqueue(stream, partial(self._in_strips, len(rows), job))

    def fp16_product(self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool) -> None:
        """``F (+)= left @ right.T``: products of FP16 entries are exact in float32, in which they are added."""
        job = partial(_narrow_product, accumulator, left, right, accumulates)
        enqueue(stream, partial(self._in_strips, accumulator.shape[1], job, 4 * _ROWS))

    def subtract_narrow(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        """Subtract in float64."""
        job = partial(self._subtract_narrow, accumulator, a_ij, rows.start, cols)
        enqueue(stream, partial(self._in_strips, len(rows), job))

    def fold(self, stream: AbstractStream, accumulator: Tile) -> None:
        enqueue(stream, partial(self._in_strips, accumulator.shape[1], partial(self._fold, accumulator)))

    def reconstruct(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        job = partial(self._reconstruct, accumulator, a_ij, rows.start, cols)
        enqueue(stream, partial(self._in_strips, len(rows), job))

    def copy_back(self, stream: AbstractStream) -> None:
        """Do nothing: the kernels flag rows in host memory already."""

    def flagged_row(self) -> int | None:
        return int(np.argmax(self._flagged)) if self._flagged.any() else None

    def _in_strips(self, rows: int, job: Callable[[slice], None], height: int = _ROWS) -> None:
        """Run ``job`` for strips of rows, shared by the team's threads."""

        def run(strip: slice) -> None:
            blas_buffers.ensure(numpys=True)
            job(strip)

        self._team.run([partial(run, strip) for strip in pieces(rows, height)])

    def _set_diagonal(self, first: int, a_bb: NDArray[Any]) -> None:
        entries = a_bb.diagonal().real.astype(np.float64, copy=False)
        good = (entries > 0) & (entries < np.inf)
        mantissas, powers = np.frexp(np.where(good, entries, 1.0))
        largest, top = self.basis.limit
        exponents = np.where(good, (top - powers - (mantissas > largest)) >> 1, 0)
        rows = slice(first, first + len(entries))
        self._exponents[rows] = exponents
        # A_ii 4**e_i in two exact steps: 4**e_i alone may overflow.
        self._limits[rows] = np.ldexp(np.ldexp(np.where(good, entries, 0.0), exponents), exponents) * (1 + ROW_SLACK)
        self._flagged[rows] |= ~good

    def _convert(
        self,
        strip_of: Callable[[slice], NDArray[Any]],
        first: int,
        targets: tuple[NDArray[np.int8], NDArray[np.float16] | None],
        is_first: bool,
        part: slice,
    ) -> None:
        """``out[p] = q mod m_p`` with ``q = round(2**e_i L[i, k])``, and ``2**h_i L[i, k]`` in FP16."""
        out, fp16 = targets
        l_ik, rows = strip_of(part), slice(first + part.start, first + part.stop)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = [np.ldexp(each, self._exponents[rows, None]) for each in real_parts(l_ik)]
            if is_first:
                self._sums[rows] += sum((each * each).sum(axis=1) for each in scaled)
                self._flagged[rows] |= ~(self._sums[rows] <= self._limits[rows])
            integers = [np.where(np.abs(each) < _TOO_LARGE, np.rint(each), 0.0).astype(np.int64) for each in scaled]
            if fp16 is not None:
                fp16[0, part] = np.ldexp(l_ik, self._fp16_exponents(rows)[:, None]).astype(np.float16)
        for plane, residues in enumerate(residues_of(self.basis, integers)):
            out[plane, part] = residues

    def _fp16_exponents(self, rows: slice) -> NDArray[np.int32]:
        """``h_i`` of matrix rows."""
        return self._exponents[rows] + np.int32(self.basis.fp16_exponent(0))

    def _subtract_narrow(self, accumulator: NDArray[np.float32], a_ij: Floats, first: int, cols: range, part: slice) -> None:
        """``A -= F 2**-(h_i + h_j)`` for a strip of rows, in two steps: the power of two alone may overflow."""
        rows = slice(first + part.start, first + part.stop)
        columns = self._fp16_exponents(slice(cols.start, cols.stop))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            sums = np.ldexp(accumulator[0, part].astype(np.float64), -self._fp16_exponents(rows)[:, None])
            a_ij[part] -= np.ldexp(sums, -columns[None, :])

    def _fold(self, accumulator: NDArray[np.int32], part: slice) -> None:
        for plane in range(self.basis.planes):
            accumulator[plane, part] = canonical(accumulator[plane, part], self.basis.moduli[plane % self.basis.count])

    def _reconstruct(
        self, accumulator: NDArray[np.signedinteger[Any]], a_ij: NDArray[Any], first: int, cols: range, part: slice
    ) -> None:
        """``A -= X 2**-(e_i + e_j)`` for a strip of rows; float32 is rounded from float64."""
        rows = slice(first + part.start, first + part.stop)
        exponents = np.add.outer(self._exponents[rows], self._exponents[cols.start : cols.stop])
        target = a_ij[part]
        parts = (target.real, target.imag) if self.basis.is_split else (target,)
        with np.errstate(all="ignore"):
            for each, x in zip(parts, remainders_of(self.basis, accumulator[:, part]), strict=True):
                entries = _difference(each.ravel().astype(np.float64, copy=False), x, exponents.ravel())
                each[...] = entries.reshape(exponents.shape)


def _widened(stored: NDArray[np.uint8], fmt: PrecisionFormat, cols: int, part: slice) -> Floats:
    """A strip of rows of a stored tile, in float64."""
    strip = np.empty((part.stop - part.start, cols))
    decode(stored, fmt, slice(part.start * cols, part.stop * cols), strip)
    return strip


def _product(
    accumulator: NDArray[np.signedinteger[Any]],
    left: NDArray[np.int8],
    right: NDArray[np.int8],
    accumulates: bool,
    lower: bool,
    beside: int,
    moduli: Sequence[int],
    part: slice,
) -> None:
    """``S (+)= left @ right.T`` for a strip of rows: in float32, exact for up to 1024 terms, and from there in int32.

    Plane p is multiplied by plane ``p + beside``, counted on from the first behind the last. Sums in int8 are kept modulo
    ``moduli``, which count on likewise.
    """
    cols = part.stop if lower else accumulator.shape[2]
    if lower and accumulator.shape[1] != accumulator.shape[2]:
        raise ScheduleError(f"the lower triangle of a block of {accumulator.shape[1:]} was asked for; report this as a bug")
    target = accumulator[:, part, :cols]
    if not accumulates:
        target[:] = 0
    for plane, kept in enumerate(target):
        other, sums = (plane + beside) % len(target), kept.astype(np.int32, copy=False)
        for k0 in range(0, left.shape[2], _EXACT_TERMS):
            terms = slice(k0, k0 + _EXACT_TERMS)
            factors = left[plane, part, terms].astype(np.float32), right[other, :cols, terms].astype(np.float32)
            sums += (factors[0] @ factors[1].T).astype(np.int32)
        if kept.dtype == np.int8:
            kept[...] = canonical(sums, moduli[plane % len(moduli)])


def _narrow_product(
    accumulator: NDArray[np.float32], left: NDArray[Any], right: NDArray[Any], accumulates: bool, part: slice
) -> None:
    """``F (+)= left @ right.T`` for a strip of rows; what overflows belongs to rows that are flagged."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = left[0, part].astype(np.float32) @ right[0].astype(np.float32).T
        if accumulates:
            accumulator[0, part] += product
        else:
            accumulator[0, part] = product


def _difference(a_ij: Floats, x: Words, exponents: NDArray[np.int32]) -> Floats:
    """``(A_ij 2**e - X) 2**-e``, rounded once where ``A_ij 2**e`` is below 2**126; it is rounded to an integer first."""
    half = exponents >> 1  # in two steps: 2**e alone may overflow
    scaled = np.ldexp(np.ldexp(a_ij, half), exponents - half)
    magnitude = np.rint(np.abs(scaled))
    is_integer = magnitude < _NO_INTEGER
    magnitude = np.where(is_integer, magnitude, 0.0)
    high = np.floor(magnitude * 2.0**-64)
    integer = Words(high.astype(np.int64), (magnitude - high * 2.0**64).astype(np.uint64)).negated_where(scaled < 0)
    result: Floats = np.where(is_integer, 0.0, a_ij) + rounded(integer.plus(x.negated()), exponents)
    return result
