"""Places that coincide: pairs of sites whose covariance matrix is singular as far as rounding can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance, check_model
from ooc_chol.apps.geostat.data.observations import ROUNDINGS, Observations
from ooc_chol.apps.geostat.data.rows import Rows
from ooc_chol.apps.geostat.errors import SingularCovarianceError, place_text

_Array = NDArray[np.float64]

#: Pivots of a correlation matrix up to this, times the root of its order, are made of rounding errors.
_PIVOT = 8 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class NearPairs:
    """Pairs of sites, each with its nearest other one."""

    first: NDArray[np.intp]  #: (p,) indices of sites
    second: NDArray[np.intp]  #: (p,)
    is_one_place: NDArray[np.bool_]  #: (p,) whether rounding cannot tell the two places apart


def least_pivot(n: int) -> float:
    """Share of its diagonal entry up to which a pivot of a matrix of order ``n`` is made of rounding errors."""
    return _PIVOT * math.sqrt(n)


#: What to do about either.
_REMEDY = "estimate a nugget or give one (or error variances), or average what is measured at one place"


def check_places(model: AbstractCovariance, sites: _Array, errors: _Array, rows: Rows, *, near_too: bool = True) -> None:
    """Raise ``SingularCovarianceError`` where :func:`singular_pairs` are found, with the first one as the caller counts."""
    pairs = singular_pairs(model, sites, errors, near_too=near_too)
    if not len(pairs):
        return
    called = np.sort(rows.numbers[pairs], axis=1)
    i, j = pairs[np.lexsort((called[:, 1], called[:, 0]))[0]]
    i, j = sorted((i, j), key=lambda row: int(rows.numbers[row]))
    count = len(np.unique(pairs[:, 1]))
    raise SingularCovarianceError(
        (int(rows.numbers[i]), int(rows.numbers[j])),
        int(pairs[:, 1].min()) + 1,
        f"{rows.named(i, j)} share a place, or nearly, so that their correlation rounds to one: at {place_text(sites[i])} and "
        f"{place_text(sites[j])}. Without a nugget the covariance matrix is singular ({count} such in all); {_REMEDY}",
    )


def check_observations(observations: Observations, model: AbstractCovariance) -> None:
    """:func:`check_places` of observations with their known errors."""
    check_model(model)
    errors = np.zeros(observations.n) if observations.error_variances is None else observations.error_variances
    check_places(model, observations.coordinates, model.nugget + errors, observations.named_rows)


def unfactored(model: AbstractCovariance, sites: _Array, rows: Rows, minor: int, given: str) -> SingularCovarianceError:
    """The error where row ``minor - 1`` of some sites has no variance left; ``given`` says given what."""
    last, (i, j) = minor - 1, closest_pair(model, sites)
    i, j = sorted((i, j), key=lambda row: int(rows.numbers[row]))
    return SingularCovarianceError(
        (int(rows.numbers[last]), int(rows.numbers[i]), int(rows.numbers[j])),
        minor,
        f"the leading minor of order {minor} of the covariance matrix is not positive definite in floating point: "
        f"{rows.named(last)}, at {place_text(sites[last])}, has no variance left but rounding errors given {given}; most alike "
        f"of all are {rows.named(i, j)}. The field is too smooth there for so small a nugget: {_REMEDY}",
    )


def singular_pairs(model: AbstractCovariance, sites: _Array, errors: _Array, *, near_too: bool = True) -> NDArray[np.intp]:
    """Pairs of sites whose covariance matrix of order two has no second pivot, ``1 - r**2``, but rounding errors.

    Shapes: ``sites`` (n, d), ``errors`` (n,). Returns (p, 2): indices, the smaller one first; not all pairs of a place where
    several are. Cost ``O(n log n)``, and ``O(n)`` where the errors are larger than roundings.
    """
    variances = model.site_variances(sites)
    least = least_pivot(len(sites))
    # 1 - r**2 / ((1 + e_i) (1 + e_j)) is larger than either of the errors
    exact = np.flatnonzero(errors <= least * variances)
    if len(exact) < 2:
        return np.empty((0, 2), dtype=np.intp)
    pairs = _near_pairs(model, sites[exact])
    if not near_too:
        one = pairs.is_one_place
        pairs = NearPairs(pairs.first[one], pairs.second[one], one[one])
    i, j = exact[pairs.first], exact[pairs.second]
    squares = _covariances(model, sites, NearPairs(i, j, pairs.is_one_place)) ** 2
    pivots = 1.0 - squares / ((variances + errors)[i] * (variances + errors)[j])
    both = np.sort(np.column_stack([i, j])[pivots <= least], axis=1)
    return np.unique(both, axis=0)


def closest_pair(model: AbstractCovariance, sites: _Array) -> tuple[int, int]:
    """The two of several sites whose correlation is largest."""
    pairs, variances = _near_pairs(model, sites), model.site_variances(sites)
    at = int(np.argmax(_covariances(model, sites, pairs) ** 2 / (variances[pairs.first] * variances[pairs.second])))
    first, second = sorted((int(pairs.first[at]), int(pairs.second[at])))
    return first, second


def _near_pairs(model: AbstractCovariance, sites: _Array) -> NearPairs:
    """Each site with the nearest other one, as ``model`` compares them; with and without variables or covariates of its own."""
    points = model.comparable_sites(sites)
    own = sites[:, sites.shape[1] - _own_axes(points, sites) :]
    found = [_nearest(points)]
    if own.shape[1]:
        found.append(_nearest(np.column_stack([points, own])))
    first, second = (np.concatenate(parts) for parts in zip(*found, strict=True))
    lengths = np.linalg.norm(points, axis=1)
    apart = np.linalg.norm(points[first] - points[second], axis=1)
    return NearPairs(first, second, apart <= ROUNDINGS * np.maximum(lengths[first], lengths[second]))


def _own_axes(points: _Array, sites: _Array) -> int:
    """How many of the coordinates, the last ones, are none of places: the number of a variable, or covariates."""
    return max(0, int(sites.shape[1] - points.shape[1]))


def _nearest(points: _Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of each point and the nearest other one; of equal points each with the first of them."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree  # 0.03 s

    distinct, first, which = np.unique(points, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    again = np.flatnonzero(first[which] != np.arange(len(points)))
    if len(distinct) == 1:
        return first[which[again]], again
    near = cKDTree(distinct).query(distinct, k=2)[1]
    other = np.where(near[:, 0] == np.arange(len(distinct)), near[:, 1], near[:, 0])
    return np.concatenate([first[which[again]], first]), np.concatenate([again, first[other]])


def _covariances(model: AbstractCovariance, sites: _Array, pairs: NearPairs) -> _Array:
    """Covariance of each pair; of one that rounding cannot tell apart, that of one place."""
    a, b = sites[pairs.first], sites[pairs.second]
    if pairs.is_one_place.any():
        own = _own_axes(model.comparable_sites(sites[:1]), sites)
        together = np.column_stack([b[:, : b.shape[1] - own], a[:, a.shape[1] - own :]])
        a = np.where(pairs.is_one_place[:, np.newaxis], together, a)
    out = np.empty((len(a), 1, 1))
    # a stack of matrices of one entry each
    model.fill(np.ascontiguousarray(a.T)[..., np.newaxis], np.ascontiguousarray(b.T)[..., np.newaxis], out)
    return out[:, 0, 0]
