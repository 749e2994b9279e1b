"""Vecchia's approximation on the host: stacks of small matrices, whose entries are made and solved with many at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.coincidence import least_pivot
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import Conditioning
from ooc_chol.apps.geostat.estimation.vecchia_sums import Array, VecchiaParts, VecchiaProblem, joined

#: Entries of the matrices of a stack, 1 MiB: with the arrays beside them they stay in a core's share of the cache.
_STACK_ENTRIES = 1 << 17

#: Threads: NumPy's calls on a stack take some microseconds, between which threads wait for the interpreter. Of an evaluation of
#: 20,000 values one took 0.45 s, two 0.36, four 0.54 and 32 took 0.83 on a machine of 32 cores.
_THREADS = 2

#: Up to so many stacks, starting threads takes longer than they save.
_FEW = 4


def parts_on_host(problem: VecchiaProblem, graph: Conditioning) -> VecchiaParts:
    """The approximation by two threads, where there is work for them: each takes the next stack when it has done one."""
    work = _HostWork(problem, np.ascontiguousarray(problem.coordinates.T))
    stacks = graph.blocks(_STACK_ENTRIES)
    found: dict[int, VecchiaParts] = {}
    numbers = itertools.count()  # next() is atomic

    def run(_: int) -> None:
        pairs: _Pairs | None = None
        while (at := next(numbers)) < len(stacks):
            shape = stacks[at].shape[::-1]
            if pairs is None or pairs.shape != shape:
                pairs = _Pairs(shape, len(work.axes))
            found[at] = work.stack(stacks[at], pairs)

    tb.map_in_threads(run, range(_THREADS if len(stacks) > _FEW else 1))
    return joined([work.leading(*graph.leading), *(found[at] for at in range(len(stacks)))])


@dataclass(frozen=True, eq=False)
class _HostWork:
    """Factors small correlation matrices, the target the last of each."""

    problem: VecchiaProblem
    axes: Array  #: (dimensions, n): coordinates by axis

    def stack(self, index: NDArray[np.intp], pairs: _Pairs) -> VecchiaParts:
        """Work on a stack of s matrices, given by the (s, k) indices of their observations.

        Arrays have the matrices of the stack last, so that one operation does the same for all of them.
        """
        problem, own = self.problem, np.ascontiguousarray(index.T)
        pairs.take(self.axes, own)
        packed = pairs.filled(problem.correlation)
        packed[pairs.diagonal] += problem.correlation.nugget
        if problem.noise is not None:
            packed[pairs.diagonal] += problem.noise[own]
        factor = self._named(pairs.factored, packed, index)
        logdet, u = 2.0 * float(np.sum(np.log(factor[-1, -1]))), _last_of_inverse(factor)
        right, q = np.moveaxis(problem.table[own], 2, 1), problem.table.shape[1]
        if problem.shape is None:
            return VecchiaParts(np.einsum("ks,kqs->sq", u, right), logdet, np.empty(0), np.empty((0, 0)), np.empty((0, q, q)))
        x = np.empty((len(own), q + problem.directions, len(index)))
        x[:, :q] = right
        self._put_images(x[:, q:], pairs, own, u)
        _forward(factor, x)
        return _summed(x, q, logdet)

    def _put_images(self, out: Array, pairs: _Pairs, own: NDArray[np.intp], u: Array) -> None:
        """Write ``D u`` of each direction, (k, d, s)."""
        for place, name in enumerate(self.problem.shape or ()):
            pairs.multiply(pairs.filled(self.problem.correlation, name), u, out[:, place])
        if self.problem.noise is not None:
            np.multiply(self.problem.noise[own], u, out=out[:, -2])
        out[:, -1] = u

    def leading(self, index: NDArray[np.intp], rows: NDArray[np.intp]) -> VecchiaParts:
        """Work on the first observations, all conditioned on all before them: one factor has all their densities."""
        matrices, d = self._with_derivatives(index), self.problem.directions
        factor, right = self._named(_factored, matrices[:1], index[np.newaxis])[0], self.problem.table[index]
        w = solve_triangular(factor, right, lower=True)
        logdet = 2.0 * float(np.sum(np.log(np.diag(factor)[rows])))
        # M = inv(L) D inv(L).T of each direction; row i up to its diagonal entry is the f of target i
        half = np.array([solve_triangular(factor, each, lower=True).T for each in matrices[1:]]).reshape(d, *factor.shape)
        m = np.array([solve_triangular(factor, each, lower=True) for each in half]).reshape(half.shape)[:, rows]
        below, diagonal = m * (np.arange(len(index)) < rows[:, None]), m[:, np.arange(len(rows)), rows]
        g = below @ w + 0.5 * diagonal[:, :, None] * w[rows]
        crossed = 2.0 * np.einsum("jrk,lrk->jl", below, below) + diagonal @ diagonal.T
        return VecchiaParts(w[rows], logdet, diagonal.sum(axis=1), crossed, np.einsum("jrq,rs->jqs", g, w[rows]))

    def _named(self, factor: Callable[[Array], Array], matrices: Array, index: NDArray[np.intp]) -> Array:
        """Factors of a stack; what has none is named by the observations of its row of ``index``."""
        try:
            return factor(matrices)
        except oc.NotPositiveDefiniteError as error:
            raise self.problem.refusal(index[error.matrix or 0, : error.minor]) from error

    def _with_derivatives(self, index: NDArray[np.intp]) -> Array:
        """The correlation matrix of some observations, and its directions if derivatives are asked for."""
        places, k = np.ascontiguousarray(self.axes[:, index]), len(index)
        matrices = np.empty((1 + self.problem.directions, k, k))
        noise = np.zeros(k) if self.problem.noise is None else self.problem.noise[index]
        self.problem.correlation.fill(places, places, matrices[0])
        matrices[0] += np.diag(self.problem.correlation.nugget + noise)
        if self.problem.shape is None:
            return matrices
        for name, out in zip(self.problem.shape, matrices[1:], strict=False):
            self.problem.correlation.fill_derivative(name, places, places, out)
        if self.problem.noise is not None:
            matrices[-2] = np.diag(noise)
        matrices[-1] = np.eye(k)
        return matrices


class _Pairs:
    """The lower triangles of s matrices of order k as (pairs, s) arrays, in memory that one stack leaves to the next.

    New arrays of this size come from the system each time, and page faults of many threads wait for each other.
    """

    def __init__(self, shape: tuple[int, ...], dimensions: int) -> None:
        self.shape = shape
        self.order, self.count = shape
        self.rows, self.columns = np.tril_indices(self.order)
        self.diagonal = np.flatnonzero(self.rows == self.columns)
        pairs = len(self.rows)
        self._places = np.empty((dimensions, *shape))
        self._sides = np.empty((2, dimensions, pairs, self.count))
        self._packed = np.empty((pairs, self.count))
        self._full = np.empty((self.order, *shape))
        self._matrices = np.empty((self.count, self.order, self.order))

    def take(self, axes: Array, own: NDArray[np.intp]) -> None:
        """Go to the sites ``own``, (k, s), of some axes."""
        # all indices are inside; "clip" writes to out without a copy between
        np.take(axes, own, axis=1, out=self._places, mode="clip")
        for which, out in zip((self.rows, self.columns), self._sides, strict=True):
            np.take(self._places, which, axis=1, out=out, mode="clip")

    def filled(self, correlation: AbstractCovariance, name: str | None = None) -> Array:
        """Correlations of all pairs, or their derivatives, in the place of those before."""
        # a stack of matrices with one entry each
        a, b = self._sides.reshape(2, len(self._places), -1, 1)
        out = self._packed.reshape(-1, 1, 1)
        if name is None:
            correlation.fill(a, b, out)
        else:
            correlation.fill_derivative(name, a, b, out)
        return self._packed

    def factored(self, packed: Array) -> Array:
        """Cholesky factors, (k, k, s)."""
        self._full[self.rows, self.columns] = packed
        # LAPACK wants the matrices one after the other, and reads the lower triangles
        self._matrices[...] = np.moveaxis(self._full, 2, 0)
        self._full[...] = np.moveaxis(_factored(self._matrices), 0, 2)
        return self._full

    def multiply(self, packed: Array, u: Array, out: Array) -> None:
        """``out = D u`` of symmetric matrices."""
        for i in range(self.order):
            start = i * (i + 1) // 2
            row = packed[start : start + i + 1]
            # out[i] = D[i, :i+1] u[:i+1], out[:i] += D[i, :i].T u[i]
            np.einsum("js,js->s", row, u[: i + 1], out=out[i])
            out[:i] += row[:i] * u[i]


def _factored(matrices: Array) -> Array:
    """Cholesky factors of a stack, (s, k, k); the first that has none is named by its leading minor."""
    try:
        factors = np.asarray(np.linalg.cholesky(matrices))
    except np.linalg.LinAlgError:
        order = next(k for k in range(1, matrices.shape[1] + 1) if not _is_positive(matrices[:, :k, :k]))
        first = next(s for s, matrix in enumerate(matrices) if not _is_positive(matrix[:order, :order]))
        raise oc.NotPositiveDefiniteError(order, (0, 0), first) from None
    pivots, diagonals = np.einsum("skk->sk", factors) ** 2, np.einsum("skk->sk", matrices)
    if (weak := pivots <= least_pivot(matrices.shape[1]) * diagonals).any():
        first, last = np.argwhere(weak)[0]
        raise oc.NotPositiveDefiniteError(int(last) + 1, (0, 0), int(first))
    return factors


def _is_positive(matrices: Array) -> bool:
    """Tell whether all of a stack have Cholesky factors."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return True


def _last_of_inverse(factor: Array) -> Array:
    """Last row of ``inv(L)`` of each factor, (k, s): ``L.T u`` is the last unit vector."""
    u = np.zeros(factor.shape[1:])
    u[-1] = 1.0
    for k in range(len(factor) - 1, -1, -1):
        u[k] /= factor[k, k]
        # u[:k] -= L[k, :k] u[k]
        u[:k] -= factor[k, :k] * u[k]
    return u


def _forward(factor: Array, x: Array) -> None:
    """``x = inv(L) x`` of each factor, (k, columns, s)."""
    for k in range(len(factor)):
        x[k] /= factor[k, k]
        # X[k+1:] -= L[k+1:, k] X[k]
        x[k + 1 :] -= factor[k + 1 :, k, None] * x[k]


def _summed(x: Array, q: int, logdet: float) -> VecchiaParts:
    """Add up over a stack, of ``w`` in the first ``q`` columns and ``f`` in the others."""
    w, f = x[:, :q], x[:, q:]
    last_w, last_f = w[-1], f[-1]
    # the diagonal of the triangle counts by half: d inv(L) = -low(inv(L) D inv(L).T) inv(L)
    g = np.array([[np.einsum("ks,ks->s", a, b) for b in np.moveaxis(w, 1, 0)] for a in np.moveaxis(f, 1, 0)])
    g = g.reshape(*last_f.shape[:1], *last_w.shape) - 0.5 * last_f[:, None] * last_w
    crossed = 2.0 * np.einsum("kjs,kls->jl", f, f, optimize=True) - last_f @ last_f.T
    return VecchiaParts(np.ascontiguousarray(last_w.T), logdet, last_f.sum(axis=1), crossed, np.einsum("jqs,rs->jqr", g, last_w))
