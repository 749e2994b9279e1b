"""Covariance functions from which a fit starts when only their name is given: the best of a few on a subset."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.bivariate import BivariateMatern
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges, GeometricAnisotropy, GreatCircle
from ooc_chol.apps.geostat.covariances.nonstationary import NonstationaryMatern
from ooc_chol.apps.geostat.covariances.power_exponential import PowerExponential
from ooc_chol.apps.geostat.covariances.radial import AbstractIsotropicCovariance
from ooc_chol.apps.geostat.covariances.spacetime import GneitingMatern, SeparableSpaceTime
from ooc_chol.apps.geostat.data.extents import search_extent
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.data.sphere import chordal_coordinates
from ooc_chol.apps.geostat.estimation.nested_starts import NUGGET_RATIO, best_start, combinations, with_given
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.spaces import family_space
from ooc_chol.apps.geostat.estimation.subset import neighbourhoods

#: Lengths that are tried, as shares of the extent of the sites.
_SHARES = (0.03, 0.1, 0.3)

#: Directions that are tried, in radians, with a ratio of ranges at which they differ.
_ANGLES = tuple(k * math.pi / 4 for k in range(4))
_RATIO = 0.5

_SMOOTHNESS = 1.0
_POWER = 1.0

#: Where a covariance function of the great-circle distance is valid, away from the bounds.
_SMOOTHNESS_ON_SPHERE = 0.3
_POWER_ON_SPHERE = 0.7

#: Ratios of the variances of two variables farther from 1 count as so much: the search has bounds there.
_LEAST_VARIANCE_RATIO = 1e-3

#: Radial functions of which the others are made.
BASES = ("matern", "power-exponential")

#: Between the names of families whose sum is fitted.
PLUS = "+"

_Array = NDArray[np.float64]


def starting_model(
    name: str,
    observations: Observations,
    *,
    base: str = "matern",
    great_circle: bool = False,
    values: Mapping[str, float] | None = None,
    nugget: Nugget = "free",
    fixed: Sequence[str] = (),
    variance_covariates: Sequence[str] = (),
    range_covariates: Sequence[str] = (),
) -> AbstractCovariance:
    """A covariance function of a family with values from which :func:`~ooc_chol.apps.geostat.fit` can start.

    Parameters
    ----------
    name : str
        The family: one of ``"matern"``, ``"power-exponential"``, ``"anisotropic"``, ``"axis-ranges"``, ``"great-circle"``,
        ``"separable"``, ``"gneiting"``, ``"bivariate"`` and ``"nonstationary"``; or several with plus signs between for nested
        structures, such as ``"matern+matern"``.
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    base : {"matern", "power-exponential"}
        Function of which families that take any radial function are made.
    great_circle : bool
        True if the coordinates are longitude and latitude in degrees, and distances arcs.
    values : mapping of str to float, optional
        Values of parameters that are to be these; the others are found.
    nugget : {"free", "zero"} or float
        Nugget of the fit.
    fixed : sequence of str
        Parameters that the fit is to keep.
    variance_covariates, range_covariates : sequence of str
        For ``"nonstationary"``: names of the covariates, which are the last coordinates of the observations, those of the
        variance first and one that both have once. Their slopes start at zero.

    Returns
    -------
    AbstractCovariance
        Model, of a few combinations of lengths (3, 10 and 30 % of the extent of the sites) and directions the one with the
        largest likelihood on a subset of neighbourhoods. Of nested structures the best that short searches on the subset find,
        from combinations of short and long lengths and from the fit of a single structure.

    Raises
    ------
    ValueError
        There is no such family or base, a value is out of its bounds, or the family is not one for these sites or distances.

    Notes
    -----
    Three to twelve likelihoods of at most 500 observations. The search that follows is a local one.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import make_observations
    >>> sites = np.random.default_rng(0).uniform(size=(30, 2))
    >>> start = starting_model(
    ...     "anisotropic",
    ...     make_observations(sites, sites[:, 0]),
    ...     values={"smoothness": 1.5},
    ... )
    >>> type(start).__name__, start.values["smoothness"]
    ('GeometricAnisotropy', 1.5)
    """
    check_is_observations(observations)
    if PLUS in name:
        singles = nested_families(name, observations, base=base, great_circle=great_circle)
        return best_start(observations, singles, values or {}, nugget=nugget, fixed=fixed)
    distinct = candidate_models(
        name,
        observations,
        base=base,
        great_circle=great_circle,
        values=values,
        variance_covariates=variance_covariates,
        range_covariates=range_covariates,
    )
    return distinct[0] if len(distinct) == 1 else _best(distinct, observations, nugget, fixed)


def candidate_models(
    name: str,
    observations: Observations,
    *,
    base: str = "matern",
    great_circle: bool = False,
    values: Mapping[str, float] | None = None,
    variance_covariates: Sequence[str] = (),
    range_covariates: Sequence[str] = (),
) -> list[AbstractCovariance]:
    """The models of which :func:`starting_model` takes the best, at least one."""
    if PLUS in name:
        singles = nested_families(name, observations, base=base, great_circle=great_circle)
        return list(combinations(singles, values or {}))
    if name not in FAMILIES:
        raise ValueError(f"there is no covariance function {name!r}; there are {', '.join(FAMILIES)}")
    if base not in BASES:
        raise ValueError(f"base is {base!r}, but there are {', '.join(BASES)}")
    if great_circle and name not in _ON_SPHERE:
        raise ValueError(
            f"{name} is not there for the great-circle distance, but {', '.join(_ON_SPHERE)} are; the chord is for all"
        )
    given = dict(values or {})
    made = FAMILIES[name](observations, base, great_circle)
    if name == "nonstationary":
        made = [_nonstationary(model, observations, tuple(variance_covariates), tuple(range_covariates)) for model in made]
    elif variance_covariates or range_covariates:
        raise ValueError(f"covariates of variance and range are for 'nonstationary', not for {name!r}")
    candidates = [with_given(model, given) for model in made]
    return list(dict.fromkeys(candidates))


def nested_families(
    name: str, observations: Observations, *, base: str = "matern", great_circle: bool = False
) -> list[list[AbstractCovariance]]:
    """Functions of each of the families with plus signs between, of the middle of the lengths that are tried."""
    found: list[list[AbstractCovariance]] = []
    for family in name.split(PLUS):
        candidates = candidate_models(family.strip(), observations, base=base, great_circle=great_circle)
        each = len(candidates) // len(_SHARES) if len(candidates) >= len(_SHARES) else len(candidates)
        middle = candidates[each : 2 * each] or candidates
        found.append(middle)
    return found


def _best(
    candidates: Sequence[AbstractCovariance], observations: Observations, nugget: Nugget, fixed: Sequence[str]
) -> AbstractCovariance:
    """The candidate with the largest profile likelihood on a subset, the first where there is none."""
    subset = neighbourhoods(observations)
    if np.ptp(subset.values) == 0.0:
        return candidates[0]

    def minus_loglik(model: AbstractCovariance) -> float:
        space = family_space(observations, model, nugget, fixed=fixed)
        return Objective(subset, space, LikelihoodOptions(), SilentProgress())(space.start(model))

    return min(candidates, key=minus_loglik)


def _radial(base: str, length: float, great_circle: bool, nugget: float = NUGGET_RATIO) -> AbstractIsotropicCovariance:
    """A Matérn or power exponential function, valid for the distance."""
    if base == "matern":
        return Matern(1.0, length, _SMOOTHNESS_ON_SPHERE if great_circle else _SMOOTHNESS, nugget)
    return PowerExponential(1.0, length, _POWER_ON_SPHERE if great_circle else _POWER, nugget)


def _extent(sites: _Array) -> float:
    """Extent of most of the sites; 1 where all sites are one place, as a length must be positive."""
    return search_extent(sites) or 1.0


def _lengths(sites: _Array, great_circle: bool) -> list[float]:
    """Lengths to try in space; in kilometres on the sphere."""
    places = chordal_coordinates(sites[:, 0], sites[:, 1]) if great_circle else sites
    return [share * _extent(places) for share in _SHARES]


def _time_length(sites: _Array) -> float:
    """A length in time: a tenth of the extent, or the usual time between two observations where that is longer."""
    times = np.unique(sites[:, -1])
    return max(0.1 * _extent(sites[:, -1:]), float(np.median(np.diff(times))) if len(times) > 1 else 0.0)


def _isotropic(kind: str) -> Callable[[Observations, str, bool], list[AbstractCovariance]]:
    """Candidates of one radial function."""

    def candidates(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
        radial = [_radial(kind, length, great_circle) for length in _lengths(observations.coordinates, great_circle)]
        return [GreatCircle(model) for model in radial] if great_circle else list(radial)

    return candidates


def _anisotropic(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    return [
        GeometricAnisotropy(_radial(base, length, False), angle, _RATIO)
        for length, angle in product(_lengths(observations.coordinates, False), _ANGLES)
    ]


def _axis_ranges(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    sites = observations.coordinates
    extents = [_extent(sites[:, [axis]]) for axis in range(sites.shape[1])]
    return [AxisRanges(_radial(base, 1.0, False), tuple(share * extent for extent in extents)) for share in _SHARES]


def _great_circle(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    if not great_circle:
        raise ValueError("a great-circle covariance needs the great-circle distance, of longitude and latitude in degrees")
    return _isotropic(base)(observations, base, True)


def _separable(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    sites = observations.coordinates
    time = _radial(base, _time_length(sites), False, nugget=0.0)
    spaces = (_radial(base, length, great_circle) for length in _lengths(sites[:, :-1], great_circle))
    return [SeparableSpaceTime(GreatCircle(space) if great_circle else space, time) for space in spaces]


def _gneiting(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    sites = observations.coordinates
    time = _time_length(sites)
    return [
        GneitingMatern(1.0, length, _SMOOTHNESS, time, 0.5, 1.0, 0.5, NUGGET_RATIO) for length in _lengths(sites[:, :-1], False)
    ]


def _bivariate(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    sites, second = observations.coordinates, observations.coordinates[:, -1] == 1.0
    spreads = [float(np.var(observations.values[rows])) if rows.any() else 0.0 for rows in (~second, second)]
    ratio = spreads[1] / spreads[0] if min(spreads) > 0.0 else 1.0
    ratio, d = min(max(ratio, _LEAST_VARIANCE_RATIO), 1.0 / _LEAST_VARIANCE_RATIO), sites.shape[1] - 1
    return [
        BivariateMatern(1.0, length, _SMOOTHNESS, _SMOOTHNESS, ratio, 0.0, NUGGET_RATIO, d)
        for length in _lengths(sites[:, :-1], False)
    ]


def _stationary(observations: Observations, base: str, great_circle: bool) -> list[AbstractCovariance]:
    """Matérn functions of the places, of which nonstationary candidates are made."""
    return [_radial("matern", length, False) for length in _lengths(observations.places, False)]


def _nonstationary(
    model: Matern, observations: Observations, of_variance: tuple[str, ...], of_range: tuple[str, ...]
) -> NonstationaryMatern:
    """The candidate with slopes of zero about the means of the covariates."""
    count = len(dict.fromkeys((*of_variance, *of_range)))
    if observations.space is None or observations.coordinates.shape[1] - observations.space != count:
        raise ValueError(
            f"{count} covariates of variance and range are named, which must be the last coordinates of the observations: "
            "make_observations(column_stack([sites, covariates]), values, space=sites.shape[1])"
        )
    centres = tuple(observations.coordinates[:, observations.space :].mean(axis=0).tolist())
    slopes = (0.0,) * len(of_variance), (0.0,) * len(of_range)
    return NonstationaryMatern(
        model.variance, model.range, model.smoothness, *slopes, of_variance, of_range, centres, model.nugget
    )


#: Names of families, and functions that make candidates from the data, the base, and whether distances are great circles.
FAMILIES: dict[str, Callable[[Observations, str, bool], list[Any]]] = {
    "matern": _isotropic("matern"),
    "power-exponential": _isotropic("power-exponential"),
    "anisotropic": _anisotropic,
    "axis-ranges": _axis_ranges,
    "great-circle": _great_circle,
    "separable": _separable,
    "gneiting": _gneiting,
    "bivariate": _bivariate,
    "nonstationary": _stationary,
}

_ON_SPHERE = ("matern", "power-exponential", "great-circle", "separable")
