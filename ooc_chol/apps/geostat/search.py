"""Where a fit searches and where it starts: bounds in logarithms, and a small subset that is cheap to fit first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.observations import Observations
from ooc_chol.apps.geostat.ordering import morton_order

#: ``"free"``: estimated; ``"zero"``: none; a number: kept at that variance, in squared units of the values.
Nugget = Literal["free", "zero"] | float

#: Least nugget ratio of a fit with a free nugget. Smooth fields (nu = 5/2) have correlation matrices that are singular to working
#: accuracy without a nugget; at 1e-8 their condition number stays below about n * 1e8, far from 1 / unit roundoff, and the
#: likelihood loses nothing that data show.
NUGGET_RATIO_FLOOR = 1e-8
NUGGET_RATIO_CEILING = 1e3

#: Bounds of the range as multiples of the diameter of the sites.
RANGE_FACTORS = (1e-4, 10.0)

#: Bounds of a smoothness that is estimated: beyond them fields differ by less than data show.
SMOOTHNESS_BOUNDS = (0.05, 10.0)

NUGGET_RATIO = "nugget_ratio"

#: A coordinate is the logarithm of its parameter over this: factor for factor the nugget matters less than the range.
_SCALES = {NUGGET_RATIO: 4.0}

#: Starting ranges as multiples of the diameter of the sites, starting smoothnesses and nugget ratios.
_START_RANGES = (0.01, 0.05, 0.2)
_START_SMOOTHNESS = (0.5, 1.5)
_START_RATIOS = (1e-3, 3e-2, 0.5)

#: Coordinates nearer to a bound than this count as being at it.
NEAR_BOUND = 0.25

#: Below this nugget ratio the likelihood may be so flat in its logarithm that a search from there would end where it began.
_FLAT_RATIO = 1e-3


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """The box of a fit: ``log range``, if free ``log smoothness`` and, unless the nugget is zero, ``log(tau2 / sigma2) / 4``.

    Parameters
    ----------
    names : tuple of str
        The ``k`` parameters searched for: ``"range"``, ``"smoothness"``, ``"nugget_ratio"``.
    lower, upper : (k,) array
        Bounds.
    template : Matern
        A model of variance 1 with the parameters that are not searched for.
    nugget : float or None
        A nugget that is kept at this variance (zero included); None when it is estimated.
    """

    names: tuple[str, ...]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    template: Matern
    nugget: float | None

    @property
    def fixed_nugget(self) -> float | None:
        """The positive variance at which the nugget is kept, if any: then the variance is ``nugget / ratio`` and not profiled."""
        return self.nugget or None

    @property
    def shape(self) -> tuple[str, ...]:
        """The names without the nugget ratio: parameters of the correlation function."""
        return tuple(name for name in self.names if name != NUGGET_RATIO)

    @property
    def scales(self) -> NDArray[np.float64]:
        """Logarithm of each parameter over its coordinate, shape ``(k,)``."""
        return np.array([_SCALES.get(name, 1.0) for name in self.names])

    def correlation(self, point: NDArray[np.float64]) -> Matern:
        """The model of variance 1 at a point of the box; its nugget is the ratio.

        Parameters
        ----------
        point : (k,) array
            Scaled logarithms.

        Returns
        -------
        Matern
            The correlation function.
        """
        inside = np.exp(self.scales * np.clip(point, self.lower, self.upper))
        values = dict(zip(self.names, map(float, inside), strict=True))
        return replace(self.template, nugget=values.pop(NUGGET_RATIO, self.template.nugget), **values)

    def model(self, point: NDArray[np.float64], variance: float) -> Matern:
        """The model of this variance at a point of the box, its nugget in squared units of the values."""
        correlation = self.correlation(point)
        return replace(correlation, variance=variance, nugget=variance * correlation.nugget)

    def point(self, correlation: Matern) -> NDArray[np.float64]:
        """The point of the box nearest to a model of variance 1, shape ``(k,)``."""
        values = [correlation.nugget if name == NUGGET_RATIO else getattr(correlation, name) for name in self.names]
        with np.errstate(divide="ignore"):
            return np.clip(np.log(values) / self.scales, self.lower, self.upper)

    def jacobian(self, model: AbstractCovariance) -> NDArray[np.float64]:
        """Derivatives of (shape, variance, nugget) by the coordinates and, where it is profiled, by ``log variance``.

        Parameters
        ----------
        model : AbstractCovariance
            Where.

        Returns
        -------
        (k, m) or (k + 1, m) array
            ``m`` is the number of shape parameters and 2; the nugget ratio moves the nugget, or the variance when that is fixed.
        """
        shape = self.shape
        rows = np.zeros((len(self.names) + 1, len(shape) + 2))
        for row, (name, scale) in enumerate(zip(self.names, self.scales, strict=True)):
            if name != NUGGET_RATIO:
                rows[row, shape.index(name)] = scale * getattr(model, name)
            elif self.fixed_nugget is None:
                rows[row, -1] = scale * model.nugget
            else:
                rows[row, -2] = -scale * model.variance
        rows[-1, -2:] = model.variance, model.nugget
        return rows if self.fixed_nugget is None else rows[:-1]

    def fixed(self, name: str, value: float) -> SearchSpace:
        """The space in which one of the names is kept at a value.

        Parameters
        ----------
        name : str
            One of :attr:`names`.
        value : float
            Its value.

        Returns
        -------
        SearchSpace
            With one dimension less.

        Raises
        ------
        ValueError
            It is not searched for here.
        """
        if name not in self.names:
            raise ValueError(f"{name!r} is not estimated here; there are {', '.join(self.names)}")
        kept = [k for k, other in enumerate(self.names) if other != name]
        field = "nugget" if name == NUGGET_RATIO else name
        template = replace(self.template, **{field: value})
        return replace(
            self, names=tuple(self.names[k] for k in kept), lower=self.lower[kept], upper=self.upper[kept], template=template
        )

    def at_bounds(self, point: NDArray[np.float64]) -> tuple[str, ...]:
        """Bounds at which the point lies, nearly: ``"range-lower"``, ``"nugget_ratio-upper"`` and so on."""
        lower = [f"{name}-lower" for name, gap in zip(self.names, point - self.lower, strict=True) if gap < NEAR_BOUND]
        upper = [f"{name}-upper" for name, gap in zip(self.names, self.upper - point, strict=True) if gap < NEAR_BOUND]
        return (*lower, *upper)

    def raised(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point, with a nugget ratio of at least 0.001.

        Parameters
        ----------
        point : (k,) array
            A start that comes from a subset.

        Returns
        -------
        (k,) array
            From there the likelihood falls or rises clearly in both directions; seen from below it is flat in the logarithm.
        """
        least = self.lower.copy()
        if NUGGET_RATIO in self.names:
            least[self.names.index(NUGGET_RATIO)] = math.log(_FLAT_RATIO) / _SCALES[NUGGET_RATIO]
        return np.maximum(point, least)

    def is_small_nugget(self, point: NDArray[np.float64]) -> bool:
        """Whether the nugget ratio is below 0.001, where the likelihood may be flat."""
        if NUGGET_RATIO not in self.names:
            return False
        return bool(_SCALES[NUGGET_RATIO] * point[self.names.index(NUGGET_RATIO)] < math.log(_FLAT_RATIO))

    def at_floor(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point with the nugget ratio at its lower bound, in a new array."""
        lowest = np.array(point)
        k = self.names.index(NUGGET_RATIO)
        lowest[k] = self.lower[k]
        return lowest

    def starts(self, diameter: float) -> list[NDArray[np.float64]]:
        """A coarse grid of starting points for sites of the given diameter."""
        values = {"range": np.array(_START_RANGES) * diameter, "smoothness": _START_SMOOTHNESS, NUGGET_RATIO: _START_RATIOS}
        axes = [np.log(np.asarray(values[name])) / scale for name, scale in zip(self.names, self.scales, strict=True)]
        return [np.array(point) for point in product(*axes)]


def search_space(observations: Observations, nugget: Nugget, smoothness: float | None) -> SearchSpace:
    """The box that a fit of these observations searches.

    Parameters
    ----------
    observations : Observations
        The data; their diameter sets the bounds of the range.
    nugget : {"free", "zero"} or float
        What is done about the nugget.
    smoothness : float or None
        ``nu``; None when it is estimated.

    Returns
    -------
    SearchSpace
        One dimension for the range, and one each for a smoothness that is estimated and a nugget that is not zero.

    Raises
    ------
    ValueError
        All sites are one place; the nugget is no such choice; or it is zero although two observations share a place, so that the
        covariance matrix is singular.
    """
    if observations.diameter == 0.0:
        raise ValueError("all observations are at one place, so no range can be estimated")
    fixed = _fixed_nugget(nugget)
    if fixed == 0.0 and observations.duplicates:
        raise ValueError(
            f"{observations.duplicates} observations share a place with another, so without nugget the matrix is singular; "
            "estimate the nugget, give it a value, or average the duplicates"
        )
    bounds = {"range": (RANGE_FACTORS[0] * observations.diameter, RANGE_FACTORS[1] * observations.diameter)}
    if smoothness is None:
        bounds["smoothness"] = SMOOTHNESS_BOUNDS
    if fixed != 0.0:
        bounds[NUGGET_RATIO] = (NUGGET_RATIO_FLOOR, NUGGET_RATIO_CEILING)
    names = tuple(bounds)
    lower, upper = (np.array([math.log(bounds[name][end]) / _SCALES.get(name, 1.0) for name in names]) for end in (0, 1))
    return SearchSpace(names, lower, upper, Matern(1.0, observations.diameter, smoothness or _START_SMOOTHNESS[0]), fixed)


def neighbourhoods(observations: Observations, *, runs: int = 5, size: int = 100) -> Observations:
    """A small subset that shows short and long distances alike: ``runs`` compact neighbourhoods of ``size`` sites each.

    Parameters
    ----------
    observations : Observations
        The data.
    runs, size : int
        How many runs of the Morton order, evenly spread, and how many sites in each.

    Returns
    -------
    Observations
        At most ``runs * size`` observations; their values are residuals of an ordinary-least-squares mean of *all* observations,
        and their mean is constant, so that a covariate that happens to be constant in the subset does no harm.

    Notes
    -----
    A fit of a thinned sample tells nothing about distances below its spacing, where smoothness and nugget show.
    """
    order = morton_order(observations.coordinates)
    if len(order) > runs * size:
        order = np.concatenate([order[start : start + size] for start in np.linspace(0, len(order) - size, runs).astype(int)])
    coefficients = np.linalg.lstsq(observations.design, observations.values, rcond=None)[0]
    residuals = observations.values - observations.design @ coefficients
    return Observations(observations.coordinates[order], residuals[order], np.ones((len(order), 1)), ("intercept",), "constant")


def _fixed_nugget(nugget: Nugget) -> float | None:
    """The variance at which the nugget is kept, or None when it is estimated."""
    if nugget == "free":
        return None
    if nugget == "zero":
        return 0.0
    if isinstance(nugget, str) or not (math.isfinite(nugget) and nugget >= 0):
        raise ValueError(f"nugget is {nugget!r}, but it must be 'free', 'zero' or a variance that is zero or positive")
    return float(nugget)
