"""Vecchia's approximation of the log-likelihood: a product of conditional densities given a few earlier neighbours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations, least_squares_residuals
from ooc_chol.apps.geostat.estimation.likelihood import (
    Likelihood,
    Whitened,
    check_variance,
    correlation_of,
    degrees_of_freedom,
    estimate_mean,
    put_together,
)
from ooc_chol.apps.geostat.estimation.scores import Sums
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS, Conditioning, conditioning

#: Entries of the matrices of a stack, 1 MiB: with the arrays beside them they stay in a core's share of the cache.
_STACK_ENTRIES = 1 << 17

#: Up to so many stacks, starting threads takes longer than they save.
_FEW = 4

_Array = NDArray[np.float64]


def vecchia_log_likelihood(
    observations: Observations, model: AbstractCovariance, *, neighbours: int = NEIGHBOURS, reml: bool = False
) -> Likelihood:
    """Vecchia's approximation of the log-likelihood of ``model``, ``sum_i log p(z_i | its nearest earlier neighbours)``.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    neighbours : int
        How many each value is conditioned on. With ``n - 1`` the value is exact.
    reml : bool
        Whether to take the restricted likelihood, that of contrasts free of the mean.

    Returns
    -------
    Likelihood
        As :func:`~ooc_chol.apps.geostat.log_likelihood` gives it: ``quadratic`` and ``logdet`` are those of the precision matrix
        that the approximation stands for, and the mean is its generalised-least-squares estimate.

    Raises
    ------
    ValueError
        ``neighbours`` is not positive.
    NotPositiveDefiniteError
        The covariance matrix of a value and its neighbours is not positive definite in floating point.

    Notes
    -----
    Known error variances of the observations are on the diagonals, those of the neighbours too.

    Cost ``n m**3 / 3`` flops and ``O(n m**2)`` covariances in batches, and ``8 n m`` bytes for the neighbours. Values are
    ordered from coarse to fine, and neighbours are nearest in the coordinates of ``model.comparable_sites``. Vecchia (1988),
    JRSS B 50; Guinness (2018), Technometrics 60; Katzfuss and Guinness (2021), Statistical Science 36.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import Matern, log_likelihood, make_observations
    >>> sites = np.random.default_rng(0).uniform(size=(200, 2))
    >>> observations = make_observations(sites, np.sin(5 * sites[:, 0]) + sites[:, 1])
    >>> model = Matern(1.0, 0.2, 1.5, 0.01)
    >>> abs(vecchia_log_likelihood(observations, model).loglik - log_likelihood(observations, model).loglik) < 0.5
    True
    """
    graph = conditioning(model.comparable_sites(observations.coordinates), neighbours)
    return approximated(observations, correlation_of(model), graph, variance=model.variance, reml=reml).likelihood


@dataclass(frozen=True, eq=False)
class VecchiaEvaluated:
    """An approximate log-likelihood with what its derivatives are made of."""

    likelihood: Likelihood
    #: As those of the exact likelihood, where they were asked for; the crossed ones are those without restriction
    sums: Sums | None


def approximated(
    observations: Observations,
    correlation: AbstractCovariance,
    graph: Conditioning,
    *,
    variance: float | None,
    reml: bool = False,
    shape: Sequence[str] | None = None,
) -> VecchiaEvaluated:
    """The approximate log-likelihood and, where asked for, the sums of its gradient and expected information.

    With the Cholesky factor ``L`` of the correlation matrix of a value (last) and its neighbours, and ``u`` the last column of
    ``inv(L).T``, the whitened value is ``u' z`` and a derivative ``D`` enters by ``f = inv(L) D u`` only: Guinness (2021),
    *Gaussian process learning via Fisher scoring of Vecchia's approximation*, Statistics and Computing 31.
    """
    start = time.perf_counter()
    check_variance(observations, variance)
    targets = observations.take(graph.order[graph.targets])
    # residuals, so that a large mean does not cancel in the sums; the mean is put back into its coefficients
    residuals = least_squares_residuals(observations.design, observations.values)
    offset = np.linalg.lstsq(observations.design, observations.values - residuals, rcond=None)[0]
    table = np.column_stack([residuals, observations.design])
    noise = None if variance is None else observations.scaled_errors(variance)
    work = _BlockWork(correlation, np.ascontiguousarray(observations.coordinates.T), table, shape, noise)
    stacks = graph.blocks(_STACK_ENTRIES)
    parts = [work.leading(*graph.leading), *_over(work, stacks)]
    whitened = estimate_mean(np.concatenate([part.whitened for part in parts]), targets)
    shifted = replace(whitened, coefficients=whitened.coefficients + offset)
    logdet = float(sum(part.logdet for part in parts))
    likelihood = put_together(shifted, logdet, targets, correlation, variance=variance, reml=reml, start=start)
    sums = None if shape is None else _sums(parts, whitened, degrees_of_freedom(targets, reml), reml)
    return VecchiaEvaluated(likelihood, sums)


def _over(work: _BlockWork, stacks: Sequence[NDArray[np.intp]]) -> list[_Part]:
    """Work on each stack, by several threads where there are many."""
    if len(stacks) <= _FEW:
        return [work(stack) for stack in stacks]
    return oc.map_in_threads(work, stacks)


@dataclass(frozen=True, eq=False)
class _Part:
    """What a stack of blocks gives: whitened values and design, and sums over the blocks for ``d`` directions."""

    whitened: _Array  #: (t, 1 + p): values and design of the targets
    logdet: float
    trace_sums: _Array  #: (d,)
    crossed: _Array  #: (d, d)
    products: _Array  #: (d, 1 + p, 1 + p): minus the sum of derivatives of the whitened values and design times these


@dataclass(frozen=True, eq=False)
class _BlockWork:
    """Factors stacks of small correlation matrices, the target the last of each."""

    correlation: AbstractCovariance
    axes: _Array  #: (dimensions, n): coordinates by axis
    table: _Array  #: (n, 1 + p): residuals and design
    shape: Sequence[str] | None  #: Parameters to derive by; None for values alone
    noise: _Array | None  #: (n,) known error variances over the variance, a direction of their own where there are any

    def __call__(self, index: NDArray[np.intp]) -> _Part:
        """Work on a stack, given by the (s, k) indices of its observations."""
        places = self.axes[:, index]
        matrix = np.empty((*index.shape, index.shape[1]))
        self.correlation.fill(places, places, matrix)
        own = np.arange(index.shape[1])
        matrix[:, own, own] += self.correlation.nugget + (0.0 if self.noise is None else self.noise[index])
        factor, right = _factored(matrix), self.table[index]
        u = _last_of_inverse(factor)
        logdet = 2.0 * float(np.sum(np.log(factor[:, -1, -1])))
        if self.shape is None:
            nothing = np.empty(0)
            return _Part(np.einsum("sk,skq->sq", u, right), logdet, nothing, nothing, nothing)
        # D u of each direction; matrix is free to be overwritten
        images = [self._image(name, places, u, matrix) for name in self.shape]
        images += [] if self.noise is None else [self.noise[index] * u]
        solved = _forward(factor, np.concatenate([right, np.stack([*images, u], axis=2)], axis=2))
        w, f = solved[..., : right.shape[2]], solved[..., right.shape[2] :]
        last_w, last_f = w[:, -1], f[:, -1]
        # the diagonal of the triangle counts by half: d inv(L) = -low(inv(L) D inv(L).T) inv(L)
        g = np.einsum("skj,skq->sjq", f, w) - 0.5 * last_f[:, :, None] * last_w[:, None]
        crossed = 2.0 * np.einsum("skj,skl->jl", f, f) - last_f.T @ last_f
        return _Part(last_w, logdet, last_f.sum(axis=0), crossed, np.einsum("sjq,sr->jqr", g, last_w))

    def leading(self, index: NDArray[np.intp], rows: NDArray[np.intp]) -> _Part:
        """Work on the first observations, all conditioned on all before them: one factor has all their densities."""
        matrices = self._with_derivatives(index)
        factor, right = _factored(matrices[:1])[0], self.table[index]
        w = solve_triangular(factor, right, lower=True)
        logdet = 2.0 * float(np.sum(np.log(np.diag(factor)[rows])))
        if self.shape is None:
            nothing = np.empty(0)
            return _Part(w[rows], logdet, nothing, nothing, nothing)
        # M = inv(L) D inv(L).T of each direction; row i up to its diagonal entry is the f of target i
        half = np.stack([solve_triangular(factor, d, lower=True).T for d in matrices[1:]])
        m = np.stack([solve_triangular(factor, d, lower=True) for d in half])[:, rows]
        below, diagonal = m * (np.arange(len(index)) < rows[:, None]), m[:, np.arange(len(rows)), rows]
        g = below @ w + 0.5 * diagonal[:, :, None] * w[rows]
        crossed = 2.0 * np.einsum("jrk,lrk->jl", below, below) + diagonal @ diagonal.T
        return _Part(w[rows], logdet, diagonal.sum(axis=1), crossed, np.einsum("jrq,rs->jqs", g, w[rows]))

    def _with_derivatives(self, index: NDArray[np.intp]) -> _Array:
        """The correlation matrix of some observations, its derivatives if asked for, known errors, and the identity."""
        places, k = np.ascontiguousarray(self.axes[:, index]), len(index)
        shape, errors = self.shape or (), [] if self.noise is None else [np.diag(self.noise[index])]
        matrices = np.empty((len(shape) + len(errors) + 2, k, k))
        matrices[-1] = np.eye(k)
        self.correlation.fill(places, places, matrices[0])
        matrices[0] += self.correlation.nugget * matrices[-1]
        for noise in errors:
            matrices[0] += noise
            matrices[-2] = noise
        for name, out in zip(shape, matrices[1:], strict=False):
            self.correlation.fill_derivative(name, places, places, out)
        return matrices

    def _image(self, name: str, places: _Array, u: _Array, out: _Array) -> _Array:
        """A derivative of the matrices times ``u``."""
        self.correlation.fill_derivative(name, places, places, out)
        return np.asarray((out @ u[..., None])[..., 0])


def _factored(matrix: _Array) -> _Array:
    """Cholesky factors of a stack; the first that has none is named by its leading minor."""
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        order = next(k for k in range(1, matrix.shape[1] + 1) if not _is_positive(matrix[:, :k, :k]))
        raise oc.NotPositiveDefiniteError(order, (0, 0)) from None


def _is_positive(matrix: _Array) -> bool:
    """Whether all of a stack have Cholesky factors."""
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _last_of_inverse(factor: _Array) -> _Array:
    """Last row of ``inv(L)`` of each factor: ``L.T u`` is the last unit vector."""
    u = np.zeros(factor.shape[:2])
    u[:, -1] = 1.0
    for k in range(factor.shape[1] - 1, -1, -1):
        u[:, k] /= factor[:, k, k]
        # u[:k] -= L[k, :k] u[k]
        u[:, :k] -= factor[:, k, :k] * u[:, k, None]
    return u


def _forward(factor: _Array, right: _Array) -> _Array:
    """``inv(L) right`` of each factor, over ``right``, (s, k, q)."""
    for k in range(factor.shape[1]):
        right[:, k] /= factor[:, k, k, None]
        # X[k+1:] -= L[k+1:, k] X[k]
        right[:, k + 1 :] -= factor[:, k + 1 :, k, None] * right[:, k, None]
    return right


def _sums(parts: Sequence[_Part], whitened: Whitened, freedom: int, reml: bool) -> Sums:
    """Add the parts up, and the directions of the matrix itself, for which ``f`` is the last unit vector."""
    names = ("trace_sums", "crossed", "products")
    trace_sums, crossed, products = (sum(getattr(part, name) for part in parts) for name in names)
    weights = np.append(1.0, -whitened.coefficients)
    squares = 2.0 * np.einsum("q,jqr,r->j", weights, products, weights)
    d = len(trace_sums)
    if reml:
        trace_sums = trace_sums - 2.0 * np.einsum("qr,jqr->j", whitened.inverse_information, products[:, 1:, 1:])
    everything = np.empty((d + 1, d + 1))
    everything[:d, :d] = crossed
    everything[d, :d] = everything[:d, d] = trace_sums
    everything[d, d] = freedom
    return Sums(np.append(squares, whitened.quadratic), np.append(trace_sums, freedom)[np.newaxis], everything[np.newaxis])
