"""Families of matrices to factor, by name and order, and the two checks that a factor of any of them must pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ooc_chol import CholeskyFactor
from tests.inside.dense import sample_residual
from tests.inside.tasks import TileGrid
from tests.tolerances import FACTOR_ENTRY_C, factor_entry_bound, factor_norm_bound

Matrix = NDArray[np.float64]

#: Largest order whose residual is computed in long double, entry by entry; a sample is taken above.
LONG_DOUBLE_N = 300


# families


def sites(n: int, seed: int = 0) -> Matrix:
    """``n`` random places in the unit square, in rows of a coarse grid, as an ordering for locality leaves them."""
    places = np.random.default_rng(seed).uniform(size=(n, 2))
    return places[np.lexsort((places[:, 0], np.floor(8 * places[:, 1])))]


def covariance(function: Callable[[Matrix], Matrix], nugget: float) -> Callable[[int], Matrix]:
    """Covariance matrices of random sites: ``function`` of distance over a range of 0.1, and a nugget."""

    def make(n: int) -> Matrix:
        scaled = cdist(sites(n), sites(n)) / 0.1
        return function(scaled) + nugget * np.eye(n)

    return make


def exponential(h: Matrix) -> Matrix:
    """Matérn of smoothness 1/2."""
    return np.exp(-h)


def matern15(h: Matrix) -> Matrix:
    """Matérn of smoothness 3/2."""
    return (1 + h) * np.exp(-h)


def matern25(h: Matrix) -> Matrix:
    """Matérn of smoothness 5/2."""
    return (1 + h + h**2 / 3) * np.exp(-h)


def gaussian(h: Matrix) -> Matrix:
    """The limit of infinite smoothness, the worst conditioned of all."""
    return np.exp(-(h**2) / 2)


def scaled_by(scales: Callable[[int], Matrix]) -> Callable[[int], Matrix]:
    """``D C D`` of an exponential covariance matrix C: as well conditioned as C after scaling, and factored as well."""

    def make(n: int) -> Matrix:
        d = scales(n)
        return np.asarray(d[:, None] * FAMILIES["exponential"](n) * d[None, :])

    return make


def powers_of_two(n: int) -> Matrix:
    """Scales from 2**-60 to 2**60 in random order: multiplying by them is exact."""
    return np.asarray(np.ldexp(1.0, np.random.default_rng(1).integers(-60, 61, n)))


def powers_of_ten(n: int) -> Matrix:
    """Scales 1e-150 and 1e150 by turns: products of two rows reach from 1e-300 to 1e300."""
    return np.where(np.arange(n) % 2 == 0, 1e-150, 1e150)


def random_spd(n: int) -> Matrix:
    """``G G.T`` of a random matrix with twice as many columns: well conditioned."""
    g = np.random.default_rng(2).standard_normal((n, 2 * n))
    return np.asarray(g @ g.T)


def ill_conditioned_spd(n: int) -> Matrix:
    """``G diag(w) G.T`` with weights from 1 to 1e-10, no structure but the decay."""
    g = np.random.default_rng(3).standard_normal((n, n))
    a = (g * np.geomspace(1.0, 1e-10, n)) @ g.T
    return np.asarray((a + a.T) / 2 + 1e-10 * np.eye(n))


#: Every family of positive definite matrices, a function of the order.
FAMILIES: dict[str, Callable[[int], Matrix]] = {
    "exponential": covariance(exponential, 0.0),
    "matern15 nugget 1e-6": covariance(matern15, 1e-6),
    "matern15 nugget 1e-11": covariance(matern15, 1e-11),
    "matern25 nugget 1e-6": covariance(matern25, 1e-6),
    "matern25 nugget 1e-11": covariance(matern25, 1e-11),
    "gaussian nugget 1e-12": covariance(gaussian, 1e-12),
    "graded down": scaled_by(lambda n: np.geomspace(1.0, 1e-12, n)),
    "graded up": scaled_by(lambda n: np.geomspace(1e-12, 1.0, n)),
    "scaled by powers of two": scaled_by(powers_of_two),
    "scaled by 10**150": scaled_by(powers_of_ten),
    "random": random_spd,
    "random, condition 1e10": ill_conditioned_spd,
}


# checks


class DenseRows:
    """A dense lower triangular matrix, read as the residual check reads a factor."""

    def __init__(self, l_dense: Matrix, nb: int) -> None:
        self.grid = TileGrid(len(l_dense), nb)
        self._l = l_dense

    def rows(self, rows: range, stop: int) -> Matrix:
        """Entries ``L[rows, :stop]``."""
        return np.array(self._l[rows.start : rows.stop, :stop])


def lower(a: Matrix) -> Matrix:
    """The lower triangle of ``a`` in float64, whatever stands above it."""
    return np.where(np.tri(len(a), dtype=bool), a, 0.0)


def upper_poisoned(a: Matrix) -> Matrix:
    """A copy of ``a`` with NaN above the diagonal, in the order of its memory."""
    poisoned = a.copy(order="K")
    poisoned[~np.tri(len(a), dtype=bool)] = np.nan
    return poisoned


def lapack_minor(a: Matrix) -> int:
    """Order of the first leading minor of ``a`` that LAPACK's dpotrf finds not positive definite; 0 if there is none."""
    return int(scipy.linalg.lapack.dpotrf(a, lower=1)[1])


def lapack_factor(a: Matrix) -> Matrix:
    """L of ``a`` by LAPACK's POTRF."""
    return np.asarray(scipy.linalg.cholesky(lower(a), lower=True, check_finite=False))


def check_factor(factor: CholeskyFactor, a: Matrix) -> None:
    """Assert that ``factor`` is right for ``a``: every (sampled) entry of its residual, and the norm of it beside LAPACK's.

    Both matrices are divided by powers of two of their rows first, which is exact: no row counts for less because of its units.
    """
    l_dense, a_lower, l_lapack = np.asarray(factor), lower(a), lapack_factor(a)
    powers = np.frexp(np.sqrt(np.diagonal(a_lower)))[1]
    a_unit = np.ldexp(a_lower, -(powers[:, None] + powers[None, :]))
    ours, theirs = (np.ldexp(dense, -powers[:, None]) for dense in (l_dense, l_lapack))
    assert not np.triu(l_dense, 1).any(), "L is not lower triangular"
    if factor.n <= LONG_DOUBLE_N:
        _check_all_entries(ours, theirs, a_unit)
    else:
        _check_sample(ours, theirs, a_unit, factor.tile_size)


def residual(l_dense: Matrix, a_lower: Matrix) -> NDArray[np.longdouble]:
    """``A - L L.T`` on and below the diagonal, in long double; zero above."""
    l_long = np.asarray(l_dense, dtype=np.longdouble)
    return np.tril(np.asarray(a_lower, dtype=np.longdouble) - l_long @ l_long.T)


def _check_all_entries(ours: Matrix, theirs: Matrix, a: Matrix) -> None:
    """Compute both residuals in long double."""
    diagonal = np.diagonal(a)
    r = residual(ours, a)
    share = float(np.max(np.abs(r) / factor_entry_bound(len(a), diagonal[:, None], diagonal[None, :])))
    assert share <= 1, f"max |R_ij| is {share:.3g} x the bound"
    norm, reference = (float(np.sqrt(np.sum(x**2))) for x in (r, residual(theirs, a)))
    allowed = factor_norm_bound(len(a), reference, float(np.linalg.norm(a)))
    assert norm <= allowed, f"||R||_F is {norm:.3g}, that of LAPACK {reference:.3g}"


def _check_sample(ours: Matrix, theirs: Matrix, a: Matrix, nb: int) -> None:
    """Sample both residuals on the same blocks."""
    r, reference = (sample_residual(lambda rows, cols: a[rows, cols], DenseRows(dense, nb)) for dense in (ours, theirs))
    assert r.floor < 0.01 * FACTOR_ENTRY_C, "the check is not far more accurate than what it checks"
    assert r.max_scaled_over_sqrt_n <= FACTOR_ENTRY_C, str(r)
    assert r.classical <= factor_norm_bound(len(a), reference.classical, 0.0), f"{r}; LAPACK: {reference}"


def backward_errors(a: Matrix, x: Matrix, b: Matrix) -> Matrix:
    """``||b - A x|| / (||A|| ||x|| + ||b||)`` in long double, which holds all of 1e300 ** 2."""
    a, x, b = (np.asarray(v, dtype=np.longdouble) for v in (a, x, b))
    return np.asarray(
        np.abs(b - a @ x).max(axis=0) / (np.abs(a).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)), dtype=float
    )
