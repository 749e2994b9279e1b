"""Kernels on panels of vectors on the host: NumPy's products on pieces of rows, by a team of threads.

Strips begin at fixed rows of a chunk, so that the shapes of all calls, and with them the order in which BLAS adds, depend on the
chunk and on the number of panels alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.interfaces.panels import AbstractPanelKernels
from ooc_chol.kernels.panel_shapes import (
    check_basis,
    check_block,
    check_coefficients,
    check_panel,
    check_parts,
    check_small,
    check_together,
    check_wide,
)
from ooc_chol.precision.triples import Precision
from ooc_chol.process import blas_buffers
from ooc_chol.process.team import Job, ThreadTeam, pieces
from ooc_chol.tasks.random_panels import random_rows
from ooc_chol.tasks.row_blocks import CHUNK_ROWS

#: Rows of a job of the team, each a call of BLAS. With a quarter of them whole runs of eigsh on two cores took 1.2 to 1.4 times
#: as long: threads wait for the interpreter between calls.
STRIP_ROWS = 8192
#: Numbers of whole rows of a basis that a thread copies at once, where these are not fewer rows than the least.
_MOST_COPIED, _LEAST_ROWS = 1 << 20, 512
#: Columns of panels up to which products with a basis begin with a copy of so many rows of it: of narrow ones BLAS takes longer.
_MOST_TURNED, _TURNED_ROWS = 4, 4096
#: Panels that are widened at once.
_MOST_PANELS = 16

Floats = NDArray[Any]


@final
class HostPanelKernels(AbstractPanelKernels):
    """Kernels that take NumPy arrays, for streams of host devices."""

    chunk_rows = CHUNK_ROWS

    def __init__(self, precision: Precision, block: int, threads: int = 1) -> None:
        check_block(block)
        self.precision, self.block = precision, block
        self._team = ThreadTeam(threads)
        self._compute = precision.compute

    def close(self) -> None:
        self._team.close()

    def gram(self, stream: AbstractStream, basis: Tile, w: Tile, partial: Tile, *, unless: Tile | None = None) -> None:
        check_basis(self, basis, w)
        chunks = -(-len(w) // self.chunk_rows)
        check_coefficients(self, "partial", partial, (chunks, len(basis) * self.block, self.block))

        def run() -> None:
            strips = _strips(len(w))
            sums = np.empty((len(strips), len(basis), self.block, self.block), self._compute)
            self._by_strips(lambda number, rows: self._gram(basis[:, rows], w[rows], sums[number]), strips)
            per_chunk = self.chunk_rows // STRIP_ROWS
            for number in range(chunks):
                _add_in_order(sums[number * per_chunk : (number + 1) * per_chunk], partial[number].reshape(sums.shape[1:]))

        self._enqueue(stream, run, unless)

    def add_partials(
        self, stream: AbstractStream, parts: Sequence[Tile], out: Tile, *, adds: bool = False, unless: Tile | None = None
    ) -> None:
        check_parts(self, parts, out)

        def run() -> None:
            total = np.empty(out.shape, self._compute)
            _add_in_order([chunk for part in parts for chunk in part], total)
            np.add(out, total, out=out) if adds else np.copyto(out, total)

        self._enqueue(stream, run, unless)

    def subtract(self, stream: AbstractStream, basis: Tile, coefficients: Tile, w: Tile, *, unless: Tile | None = None) -> None:
        check_basis(self, basis, w)
        check_coefficients(self, "coefficients", coefficients, (len(basis) * self.block, self.block))
        run = partial(self._by_strips, lambda _, rows: self._subtract(basis[:, rows], coefficients, w[rows]), _strips(len(w)))
        self._enqueue(stream, run, unless)

    def combine(self, stream: AbstractStream, basis: Tile, coefficients: Tile, out: Tile) -> None:
        check_basis(self, basis, out)
        check_coefficients(self, "coefficients", coefficients, (len(basis) * self.block, len(out) * self.block))
        strips = _strips(basis.shape[1])
        self._enqueue(
            stream, partial(self._by_strips, lambda _, rows: self._combine(basis[:, rows], coefficients, out[:, rows]), strips)
        )

    def factor(
        self,
        stream: AbstractStream,
        g: Tile,
        r: Tile,
        inverse: Tile,
        dependent: Tile,
        *,
        tolerance: float,
        scale: Tile | None = None,
        before: Tile | None = None,
        roundoff: float = 0.0,
        share: float = 0.0,
        weak: Tile | None = None,
    ) -> None:
        check_small(self, g=g, r=r, inverse=inverse, scale=scale, before=before)
        check_together(scale=scale, before=before)

        def run() -> None:
            floors = 0.0
            if scale is not None and before is not None:
                squares = scale.diagonal().astype(np.float64) ** 2
                floors = np.divide(roundoff**2 * before.diagonal().astype(np.float64), squares)
            _factor(g, r, inverse, dependent, tolerance, np.broadcast_to(floors, len(g)))
            if weak is not None and (dependent.any() or np.any(r.diagonal() < share)):
                weak[0] = 1

        self._enqueue(stream, run)

    def factor_clamped(
        self,
        stream: AbstractStream,
        g: Tile,
        r: Tile,
        inverse: Tile,
        weak: Tile | None = None,
        *,
        tolerance: float,
        before: Tile | None = None,
        share: float = 0.0,
        least: float = 0.0,
        fell: Tile | None = None,
        last: Tile | None = None,
        unless: Tile | None = None,
    ) -> None:
        check_small(self, g=g, r=r, inverse=inverse, before=before)
        check_together(before=before, fell=fell)

        def run() -> None:
            clamped = _factor_clamped(g, r, inverse, tolerance, last)
            if weak is not None:
                weak[0] = clamped
            if before is not None and fell is not None:
                squares, pivots = g.diagonal(), r.diagonal() ** 2
                is_low = (squares < share**2 * before.diagonal()) | (pivots > 0) & (pivots < least**2 * squares)
                fell[0] = clamped or is_low.any()

        self._enqueue(stream, run, unless)

    def multiply_right(self, stream: AbstractStream, w: Tile, inverse: Tile, out: Tile, *, unless: Tile | None = None) -> None:
        check_panel(self, "w", w)
        check_panel(self, "out", out)
        check_coefficients(self, "inverse", inverse, (self.block, self.block))
        run = partial(self._by_strips, lambda _, rows: self._multiply_right(w[rows], inverse, out[rows]), _strips(len(w)))
        self._enqueue(stream, run, unless)

    def multiply_right_twice(
        self, stream: AbstractStream, w: Tile, first: Tile, second: Tile, *, made: Tile, flags: Tile
    ) -> None:
        check_panel(self, "w", w)
        check_panel(self, "made", made)
        check_small(self, first=first, second=second)

        def finish(_: int, rows: slice) -> None:
            if flags.any():
                np.copyto(w[rows], made[rows])
                return
            for factor in (first, second):
                self._multiply_right(w[rows], factor, w[rows])

        self._enqueue(stream, partial(self._by_strips, finish, _strips(len(w))))

    def multiply_entries(self, stream: AbstractStream, factors: Tile, w: Tile) -> None:
        for name, each in (("factors", factors), ("w", w)):
            check_panel(self, name, each)

        def multiply(_: int, rows: slice) -> None:
            np.multiply(w[rows], factors[rows], out=w[rows])

        self._enqueue(stream, partial(self._by_strips, multiply, _strips(len(w))))

    def recur(
        self, stream: AbstractStream, w: Tile, x: Tile, previous: Tile | None, out: Tile, *, scale: float, shift: float
    ) -> None:
        for name, each in (("w", w), ("x", x), ("previous", w if previous is None else previous), ("out", out)):
            check_panel(self, name, each)
        factor, move = self._compute.type(scale), self._compute.type(shift)

        def step(_: int, rows: slice) -> None:
            found = w[rows].astype(self._compute)
            found -= move * x[rows].astype(self._compute, copy=False)
            found *= factor
            if previous is not None:
                found -= previous[rows]
            out[rows] = found

        self._enqueue(stream, partial(self._by_strips, step, _strips(len(w))))

    def fill_random(self, stream: AbstractStream, w: Tile, first_row: int, seed: int, *, columns: Tile | None = None) -> None:
        check_panel(self, "w", w)

        def fill(_: int, rows: slice) -> None:
            chosen = slice(None) if columns is None else np.flatnonzero(columns)
            numbers = random_rows(seed, first_row + rows.start, rows.stop - rows.start, self.block)
            w[rows][:, chosen] = numbers[:, chosen]

        def run() -> None:
            if columns is None or columns.any():
                self._by_strips(fill, _strips(len(w)))

        self._enqueue(stream, run)

    def fell(self, stream: AbstractStream, before: Tile, after: Tile, flag: Tile, *, share: float) -> None:
        for name, each in (("before", before), ("after", after)):
            check_coefficients(self, name, each, (self.block, self.block))

        def run() -> None:
            flag[0] = np.any(after.diagonal() < self._compute.type(share * share) * before.diagonal())

        self._enqueue(stream, run)

    def widen(self, stream: AbstractStream, w: Tile, first: int, out: Tile) -> None:
        check_panel(self, "w", w)
        check_wide(self, "out", out, len(w), first)
        chosen = slice(first, first + out.shape[1])

        def copy(_: int, rows: slice) -> None:
            out[rows] = w[rows, chosen]

        self._enqueue(stream, partial(self._by_strips, copy, _strips(len(w))))

    # the arithmetic, on the stream's thread and the team's

    def _enqueue(self, stream: AbstractStream, run: Job, unless: Tile | None = None) -> None:
        """Enqueue calls of BLAS in one thread each, unless ``unless`` is 0 by then."""

        def operation() -> None:
            if unless is None or unless[0]:
                with blas_threads(1), np.errstate(all="ignore"):
                    run()

        enqueue(stream, operation)

    def _by_strips(self, work: Callable[[int, slice], None], strips: list[slice]) -> None:
        """Call ``work(number, rows)`` for all strips, by all threads."""

        def job(number: int, rows: slice) -> None:
            blas_buffers.ensure(numpys=True)
            with np.errstate(all="ignore"):
                work(number, rows)

        self._team.run([partial(job, number, rows) for number, rows in enumerate(strips)])

    def _gram(self, basis: Floats, w: Floats, out: Floats) -> None:
        """``out[i] = V[i].T @ W`` for a strip, summed in float64 whatever ``out`` is."""
        if 1 < self.block <= _MOST_TURNED:
            sums = np.zeros((self.block, len(basis) * self.block))
            for rows in pieces(len(w), _TURNED_ROWS):
                turned, columns = _turned(basis[:, rows], np.float64), np.ascontiguousarray(w[rows].T, np.float64)
                for column, of_column in zip(columns, sums, strict=True):  # a vector at a time is twice as fast as two
                    of_column += turned @ column
            out[...] = sums.T.reshape(out.shape)
            return
        wide = w.astype(np.float64, copy=False)
        for first in range(0, len(basis), _MOST_PANELS):
            some = slice(first, first + _MOST_PANELS)
            out[some] = basis[some].astype(np.float64, copy=False).transpose(0, 2, 1) @ wide

    def _subtract(self, basis: Floats, coefficients: Floats, w: Floats) -> None:
        """``W -= V @ C`` for a strip, rounded to the type of storage once."""
        sums = w.astype(self._compute)
        if self.block == 1:  # all panels at once: a column each
            sums -= basis[:, :, 0].astype(self._compute, copy=False).T @ coefficients
        elif self.block <= _MOST_TURNED:  # all panels at once, a row for each column
            for rows in pieces(len(w), _TURNED_ROWS):
                sums[rows] -= _turned(basis[:, rows], self._compute).T @ coefficients
        else:
            product, of_panel = np.empty_like(sums), coefficients.reshape(len(basis), self.block, self.block)
            for panel, of in zip(basis, of_panel, strict=True):
                np.matmul(panel.astype(self._compute, copy=False), of, out=product)
                np.subtract(sums, product, out=sums)
        w[...] = sums

    def _combine(self, basis: Floats, coefficients: Floats, out: Floats) -> None:
        """``out = V @ S`` for a strip: of some whole rows at a time all is read before anything is written."""
        p, length, b = basis.shape
        for rows in pieces(length, max(_LEAST_ROWS, _MOST_COPIED // (p * b))):
            count = rows.stop - rows.start
            whole = np.empty((count, p, b), self._compute)
            np.copyto(whole, basis[:, rows].transpose(1, 0, 2))
            made = whole.reshape(count, p * b) @ coefficients
            out[:, rows] = made.reshape(count, len(out), b).transpose(1, 0, 2)

    def _multiply_right(self, w: Floats, inverse: Floats, out: Floats) -> None:
        """``out = W @ inverse`` without the columns whose row of the inverse is 0."""
        kept = inverse.any(axis=1)
        chosen = w if kept.all() else w[:, kept]
        out[...] = chosen.astype(self._compute, copy=False) @ inverse[kept]


def _turned(panels: Floats, dtype: Any) -> Floats:
    """Columns of panels (p, rows, b) as rows of an array (p b, rows)."""
    p, length, b = panels.shape
    turned = np.empty((p, b, length), dtype)
    np.copyto(turned, panels.transpose(0, 2, 1))
    return turned.reshape(p * b, length)


def _strips(rows: int) -> list[slice]:
    """Strips of the rows of a device, which begin with a chunk."""
    return pieces(rows, STRIP_ROWS)


def _add_in_order(terms: Sequence[Floats] | Floats, out: Floats) -> None:
    """Sum of all terms, one after the other; zeros where there is none."""
    out[...] = terms[0] if len(terms) else 0
    for term in terms[1:]:
        np.add(out, term, out=out)


def _factor_clamped(g: Floats, r: Floats, inverse: Floats, tolerance: float, last: Floats | None) -> bool:
    """Cholesky of a small matrix with pivots that are not too small, in an order of columns; whether one was."""
    b, is_weak, tiny = len(g), False, np.finfo(g.dtype).tiny
    order = np.arange(b) if last is None else np.argsort(np.asarray(last) != 0, kind="stable")
    good = np.isfinite(g.diagonal()) & (g.diagonal() > 0)
    ordered = np.where(good[:, None] & good, g, 0)[np.ix_(order, order)]
    root, inverted = np.zeros_like(g), np.zeros_like(g)
    for j in range(b):
        if not good[order[j]]:
            continue
        least = np.fmax(g.dtype.type(tolerance) * ordered[j, j], tiny)
        pivot = ordered[j, j] - root[:j, j] @ root[:j, j]
        is_weak = is_weak or not pivot > least
        root[j, j] = np.sqrt(np.fmax(pivot, least))
        root[j, j + 1 :] = (ordered[j, j + 1 :] - root[:j, j] @ root[:j, j + 1 :]) / root[j, j]
        inverted[:j, j] = -(inverted[:j, :j] @ root[:j, j]) / root[j, j]
        inverted[j, j] = 1 / root[j, j]
    r[np.ix_(order, order)], inverse[np.ix_(order, order)] = root, inverted
    return is_weak


def _factor(g: Floats, r: Floats, inverse: Floats, dependent: Floats, tolerance: float, floors: Floats) -> None:
    """Cholesky of a small matrix, row by row of R, and the inverse of R, column by column."""
    b = len(g)
    root, inverted = np.zeros_like(g), np.zeros_like(g)
    for j in range(b):
        pivot = g[j, j] - root[:j, j] @ root[:j, j]
        dependent[j] = not (np.isfinite(pivot) and pivot > tolerance * g[j, j] and not pivot <= min(floors[j], tolerance))
        if dependent[j]:
            continue
        root[j, j] = np.sqrt(pivot)
        root[j, j + 1 :] = (g[j, j + 1 :] - root[:j, j] @ root[:j, j + 1 :]) / root[j, j]
        kept = np.flatnonzero(inverted.diagonal()[:j])
        inverted[:j, j] = -(inverted[:j, kept] @ root[kept, j]) / root[j, j]
        inverted[j, j] = 1 / root[j, j]
    r[...], inverse[...] = root, inverted
