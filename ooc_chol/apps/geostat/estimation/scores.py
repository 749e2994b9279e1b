"""Parts of gradient and information of a log-likelihood: trace sums ``tr(P D)`` and quadratic forms, exact or by probes.

All are those of a correlation matrix ``R`` with directions ``D``: the derivatives of its correlation function by each shape
parameter, the diagonal ``N`` of known error variances over the variance where there are any, the identity (the nugget), and ``R``
itself (the variance). ``P`` is ``inv(R)``; for the restricted likelihood
``inv(R) - inv(R) X inv(X' inv(R) X) X' inv(R)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product as pairs_of
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import derivative_source
from ooc_chol.apps.geostat.estimation.likelihood import Evaluated, Probed, correlation_of, random_signs
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom

Array = NDArray[np.float64]

#: Entries from which on sums over probes are shared by threads, and rows of each of their parts.
_LEAST_SUMMED, _SUMMED_ROWS = 1 << 20, 1 << 13


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of one pass over the derivatives; the ``d`` directions are the shape parameters, ``N``, the identity and ``R``."""

    squares: Array  #: (d,) ``a' D a`` with ``a = inv(R) (z - X b)``
    trace_sums: Array  #: (1, d) exact ``tr(P D)``, or (m, d) estimates, one by each probe
    crossed: Array | None  #: (1, d, d) or (m, d, d) ``tr(P D P D')``, likewise


def exact_sums(found: Evaluated, shape: Sequence[str]) -> Sums:
    """Exact trace sums in one pass of the panels of ``inv(R)``, every derivative tile made once and forgotten.

    Cost ``2/3 n**3`` flops, whatever the number of parameters, and ``n**2 / 2`` entries of each derivative.
    """
    vectors = _solved(found)
    sums = found.factor.inverse_traces(_derivatives(found, shape), vectors)
    # the diagonal of P
    diagonal = sums.diagonal - np.sum(vectors[:, 1:] ** 2, axis=1)
    products = sums.products - sums.forms[:, 1:].sum(axis=1)
    trace_sums = [*products, *(noise @ diagonal for noise in _errors(found)), diagonal.sum()]
    return Sums(_squares(found, sums.forms[:, 0], vectors[:, 0]), np.append(trace_sums, _freedom(found))[np.newaxis], None)


def dense_sums(found: Evaluated, shape: Sequence[str]) -> Sums:
    """Exact trace sums, crossed ones too: unit vectors in the place of probes.

    Cost ``(2 + 3 k) n**3`` flops and ``8 n**2 (k + 2)`` bytes for ``k`` shape parameters.
    """
    squares, base, v = _images(found, shape, np.eye(found.observations.n))
    trace_sums = np.tensordot(v, base, axes=((1, 2), (0, 1)))
    trace_sums[-1] = _freedom(found)
    return Sums(squares, trace_sums[np.newaxis], np.tensordot(v, v, axes=((1, 2), (1, 2)))[np.newaxis])


def probed_sums(found: Evaluated, shape: Sequence[str], probes: int, seed: int, *, crossed: bool) -> Sums:
    """Estimates by ``u' V`` and ``V' V'`` with ``V = inv(L) D inv(L)' u`` of random signs ``u`` (Hutchinson 1990).

    Cost ``4 n**2`` flops for each probe, ``2 n**2`` more for each shape parameter, ``n**2`` entries of each derivative, and for
    the crossed ones ``n**2`` flops for each probe and parameter and another reading of L. Both estimates are of the symmetric
    form, whose variance is least, and the crossed ones make a Gram matrix.
    """
    probed = _probed(found, probes, seed)
    alpha, without_mean = probed.both[:, 0], _images_without_mean(found, probed)
    products, w = _products(found, shape, probed.both), without_mean(probed.both)
    # u' inv(L) D inv(L)' u = w' D w
    directions = _directions(found, [without_mean(product) for product in products], w)
    trace_sums = np.column_stack([*_inner_products(w, directions), np.full(probes, _freedom(found))])
    squares = _squares(found, _forms(alpha, products), alpha)
    if not crossed:
        return Sums(squares, trace_sums, None)
    v = _half_solved(found, directions, _without_mean(found, probed.signs))
    return Sums(squares, trace_sums, np.einsum("dnm,enm->mde", v, v))


def _probed(found: Evaluated, probes: int, seed: int) -> Probed:
    """Probes and their solutions, made when the observations were whitened, or now in the same way."""
    if found.probed is not None:
        return found.probed
    signs = random_signs(found.observations.n, probes, seed)
    half = np.column_stack([found.whitened.residual, found.whitened.design])
    both = found.factor.half_solve(tb.joined_columns([half, signs]), transposed=True, overwrite_b=True)
    return Probed(signs, both)


def _images_without_mean(found: Evaluated, probed: Probed) -> Callable[[Array], Array]:
    """A function from :attr:`Probed.both`, or any matrix times that, to ``inv(L)' u`` of :func:`_without_mean`, or times these.

    It combines columns: those of ``inv(L)' Q`` are ``inv(R) X inv(root)``.
    """
    p, weights = probed.both.shape[1] - probed.signs.shape[1], None
    if found.likelihood.reml:
        weights = solve_triangular(found.whitened.root, _orthonormal(found).T @ probed.signs)

    def combined(columns: Array) -> Array:
        images = columns[:, p:]
        return images if weights is None else np.asarray(images - columns[:, 1:p] @ weights)

    return combined


def _images(found: Evaluated, shape: Sequence[str], vectors: Array) -> tuple[Array, Array, Array]:
    """``a' D a``, the part ``u`` of ``vectors`` orthogonal to the mean, and ``inv(L) D inv(L)' u`` of each direction."""
    base = _without_mean(found, vectors)
    both = found.factor.half_solve(
        tb.joined_columns([found.whitened.residual[:, np.newaxis], base]), transposed=True, overwrite_b=True
    )
    alpha, w = both[:, 0], both[:, 1:]
    products = _products(found, shape, both)
    directions = _directions(found, [product[:, 1:] for product in products], w)
    return _squares(found, _forms(alpha, products), alpha), base, _half_solved(found, directions, base)


def _directions(found: Evaluated, images: list[Array], w: Array) -> list[Array]:
    """``D w`` of every direction but ``R`` itself: the derivatives, the errors, and the identity."""
    return [*images, *(noise[:, np.newaxis] * w for noise in _errors(found)), w]


def _products(found: Evaluated, shape: Sequence[str], columns: Array) -> list[Array]:
    """Each derivative times the columns."""
    derivatives = _derivatives(found, shape)
    return oc.symm(derivatives, columns, **found.settings.here) if derivatives else []


def _forms(alpha: Array, products: Sequence[Array]) -> Array:
    """``a' D a`` of each derivative ``D``, whose product with ``a`` is the first column."""
    return np.array([alpha @ product[:, 0] for product in products])


def _inner_products(w: Array, others: Sequence[Array]) -> Array:
    """Sums over the rows of ``w`` times each of the others: (others, m), by blocks of rows that threads take."""
    parts = list(pairs_of(others, range(0, len(w), _SUMMED_ROWS)))

    def summed(part: tuple[Array, int]) -> Array:
        rows = slice(part[1], part[1] + _SUMMED_ROWS)
        return np.asarray(np.einsum("nm,nm->m", w[rows], part[0][rows]))

    sums = tb.map_in_threads(summed, parts, threads=None if w.size >= _LEAST_SUMMED else 1)
    return np.asarray(np.array(sums).reshape(len(others), -1, w.shape[1]).sum(axis=1))


def _half_solved(found: Evaluated, directions: list[Array], base: Array) -> Array:
    """``inv(L)`` times each direction, all of them by one reading of L, and ``base``."""
    solved = np.hsplit(found.factor.half_solve(tb.joined_columns(directions), overwrite_b=True), len(directions))
    return np.array([*(_without_mean(found, each) for each in solved), base])


def _derivatives(found: Evaluated, shape: Sequence[str]) -> list[Any]:
    """The derivatives of the correlation matrix by its shape parameters, as sources."""
    correlation, places = correlation_of(found.likelihood.model), found.observations.coordinates
    return [derivative_source(correlation, places, name) for name in shape]


def _solved(found: Evaluated) -> Array:
    """``a = inv(R) (z - X b)`` and, for the restricted likelihood, ``inv(R) X inv(root)``: ``P = inv(R)`` less its square."""
    whitened = found.whitened
    columns = [whitened.residual[:, np.newaxis], *([_orthonormal(found)] if found.likelihood.reml else [])]
    return found.factor.half_solve(tb.joined_columns(columns), transposed=True, overwrite_b=True)


def _orthonormal(found: Evaluated) -> Array:
    """Orthonormal basis of the columns of ``inv(L) X``."""
    whitened = found.whitened
    return np.asarray(solve_triangular(whitened.root, whitened.design.T, trans="T").T)


def _without_mean(found: Evaluated, vectors: Array) -> Array:
    """For the restricted likelihood, the part of ``vectors`` that is orthogonal to ``inv(L) X``; else they themselves."""
    if not found.likelihood.reml:
        return vectors
    q = _orthonormal(found)
    return vectors - q @ (q.T @ vectors)


def _squares(found: Evaluated, forms: Array, alpha: Array) -> Array:
    return np.array([*forms, *(noise @ alpha**2 for noise in _errors(found)), alpha @ alpha, found.likelihood.quadratic])


def _errors(found: Evaluated) -> list[Array]:
    """The diagonal ``N``, or nothing where no error variances are known."""
    noise = found.observations.scaled_errors(found.likelihood.model.variance)
    return [] if noise is None else [noise]


def _freedom(found: Evaluated) -> int:
    return degrees_of_freedom(found.observations, found.likelihood.reml)
