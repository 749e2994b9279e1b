"""Vecchia's approximation on the host: stacks of small matrices, whose entries are made and solved with many at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import Conditioning
from ooc_chol.apps.geostat.estimation.vecchia_sums import Array, VecchiaParts, VecchiaProblem, joined

#: Entries of the matrices of a stack, 1 MiB: with the arrays beside them they stay in a core's share of the cache.
_STACK_ENTRIES = 1 << 17

#: Up to so many stacks, starting threads takes longer than they save.
_FEW = 4


def parts_on_host(problem: VecchiaProblem, graph: Conditioning) -> VecchiaParts:
    """The approximation by all cores, where there is work for them."""
    work = _HostWork(problem, np.ascontiguousarray(problem.coordinates.T))
    stacks = graph.blocks(_STACK_ENTRIES)
    parts = [work.stack(stack) for stack in stacks] if len(stacks) <= _FEW else oc.map_in_threads(work.stack, stacks)
    return joined([work.leading(*graph.leading), *parts])


@dataclass(frozen=True, eq=False)
class _HostWork:
    """Factors small correlation matrices, the target the last of each."""

    problem: VecchiaProblem
    axes: Array  #: (dimensions, n): coordinates by axis

    def stack(self, index: NDArray[np.intp]) -> VecchiaParts:
        """Work on a stack of s matrices, given by the (s, k) indices of their observations.

        Arrays have the matrices of the stack last, so that one operation does the same for all of them.
        """
        own = np.ascontiguousarray(index.T)
        pairs = _Pairs(len(own), self.axes[:, own])
        packed = pairs.filled(self.problem.correlation)
        packed[pairs.diagonal] += self.problem.correlation.nugget + (
            0.0 if self.problem.noise is None else self.problem.noise[own]
        )
        factor = pairs.factored(packed)
        logdet = 2.0 * float(np.sum(np.log(factor[-1, -1])))
        q = self.problem.table.shape[1]
        x = np.empty((len(own), q + self.problem.directions, len(index)))
        x[:, :q] = np.moveaxis(self.problem.table[own], 2, 1)
        if self.problem.shape is not None:
            self._put_images(x[:, q:], pairs, own, _last_of_inverse(factor))
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
        factor, right = _factored(matrices[:1])[0], self.problem.table[index]
        w = solve_triangular(factor, right, lower=True)
        logdet = 2.0 * float(np.sum(np.log(np.diag(factor)[rows])))
        # M = inv(L) D inv(L).T of each direction; row i up to its diagonal entry is the f of target i
        half = np.array([solve_triangular(factor, each, lower=True).T for each in matrices[1:]]).reshape(d, *factor.shape)
        m = np.array([solve_triangular(factor, each, lower=True) for each in half]).reshape(half.shape)[:, rows]
        below, diagonal = m * (np.arange(len(index)) < rows[:, None]), m[:, np.arange(len(rows)), rows]
        g = below @ w + 0.5 * diagonal[:, :, None] * w[rows]
        crossed = 2.0 * np.einsum("jrk,lrk->jl", below, below) + diagonal @ diagonal.T
        return VecchiaParts(w[rows], logdet, diagonal.sum(axis=1), crossed, np.einsum("jrq,rs->jqs", g, w[rows]))

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
    """The lower triangles of matrices of order ``k`` at (dimensions, k, s) places, as (pairs, s) arrays."""

    def __init__(self, k: int, places: Array) -> None:
        self.rows, self.columns = np.tril_indices(k)
        self.diagonal = np.flatnonzero(self.rows == self.columns)
        self.order, self.count = k, places.shape[2]
        # a stack of matrices with one entry each
        self._a, self._b = (np.take(places, which, axis=1).reshape(len(places), -1, 1) for which in (self.rows, self.columns))

    def filled(self, correlation: AbstractCovariance, name: str | None = None) -> Array:
        """Correlations of all pairs, or their derivatives."""
        out = np.empty((self._a.shape[1], 1, 1))
        if name is None:
            correlation.fill(self._a, self._b, out)
        else:
            correlation.fill_derivative(name, self._a, self._b, out)
        return out.reshape(len(self.rows), self.count)

    def factored(self, packed: Array) -> Array:
        """Cholesky factors, (k, k, s)."""
        full = np.empty((self.order, self.order, self.count))
        full[self.rows, self.columns] = packed
        # LAPACK wants the matrices one after the other, and reads the lower triangles
        factors = _factored(np.ascontiguousarray(np.moveaxis(full, 2, 0)))
        full[...] = np.moveaxis(factors, 0, 2)
        return full

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
        return np.asarray(np.linalg.cholesky(matrices))
    except np.linalg.LinAlgError:
        order = next(k for k in range(1, matrices.shape[1] + 1) if not _is_positive(matrices[:, :k, :k]))
        raise oc.NotPositiveDefiniteError(order, (0, 0)) from None


def _is_positive(matrices: Array) -> bool:
    """Whether all of a stack have Cholesky factors."""
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
