"""Where a fit searches and where it starts: bounds in logarithms, and a small subset that is cheap to fit first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariance import Matern
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

#: A point's second coordinate is the logarithm of the nugget ratio over this: factor for factor it matters less than the range.
_NUGGET_SCALE = 4.0

#: Starting ranges as multiples of the diameter of the sites, and starting nugget ratios.
_START_RANGES = (0.01, 0.05, 0.2)
_START_RATIOS = (1e-3, 3e-2, 0.5)

#: Below this nugget ratio the likelihood may be so flat in its logarithm that a search from there would end where it began.
_FLAT_RATIO = 1e-3


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """The box of a fit: ``log range`` and, unless the nugget is zero, ``log(tau2 / sigma2) / 4``.

    Parameters
    ----------
    lower, upper : (k,) array
        Bounds, ``k`` being 1 or 2.
    nugget : float or None
        A nugget that is kept at this variance (zero included); None when it is estimated.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    nugget: float | None

    @property
    def fixed_nugget(self) -> float | None:
        """The positive variance at which the nugget is kept, if any: then the variance is ``nugget / ratio`` and not profiled."""
        return self.nugget or None

    def correlation(self, point: NDArray[np.float64], smoothness: float) -> Matern:
        """The model of variance 1 at a point of the box.

        Parameters
        ----------
        point : (k,) array
            Scaled logarithms.
        smoothness : float
            ``nu``.

        Returns
        -------
        Matern
            Its nugget is the ratio.
        """
        inside = np.clip(point, self.lower, self.upper)
        ratio = math.exp(_NUGGET_SCALE * inside[1]) if len(inside) == 2 else 0.0
        return Matern(1.0, math.exp(inside[0]), smoothness, ratio)

    def at_bounds(self, point: NDArray[np.float64]) -> tuple[str, ...]:
        """Bounds at which the point lies, nearly: ``"range-lower"``, ``"nugget-upper"`` and so on."""
        near = 0.25
        names = ("range", "nugget")[: len(point)]
        lower = [f"{name}-lower" for name, gap in zip(names, point - self.lower, strict=True) if gap < near]
        upper = [f"{name}-upper" for name, gap in zip(names, self.upper - point, strict=True) if gap < near]
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
        least[1:] = math.log(_FLAT_RATIO) / _NUGGET_SCALE
        return np.maximum(point, least)

    def is_small_nugget(self, point: NDArray[np.float64]) -> bool:
        """Whether the nugget ratio is below 0.001, where the likelihood may be flat."""
        return len(point) == 2 and bool(_NUGGET_SCALE * point[1] < math.log(_FLAT_RATIO))

    def starts(self, diameter: float) -> list[NDArray[np.float64]]:
        """A coarse grid of starting points for sites of the given diameter."""
        axes = [np.log(np.array(_START_RANGES) * diameter), np.log(_START_RATIOS) / _NUGGET_SCALE][: len(self.lower)]
        return [np.array(point) for point in product(*axes)]


def search_space(observations: Observations, nugget: Nugget) -> SearchSpace:
    """The box that a fit of these observations searches.

    Parameters
    ----------
    observations : Observations
        The data; their diameter sets the bounds of the range.
    nugget : {"free", "zero"} or float
        What is done about the nugget.

    Returns
    -------
    SearchSpace
        One dimension for a zero nugget, else two.

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
    lower = [math.log(RANGE_FACTORS[0] * observations.diameter), math.log(NUGGET_RATIO_FLOOR) / _NUGGET_SCALE]
    upper = [math.log(RANGE_FACTORS[1] * observations.diameter), math.log(NUGGET_RATIO_CEILING) / _NUGGET_SCALE]
    k = 1 if fixed == 0.0 else 2
    return SearchSpace(np.array(lower[:k]), np.array(upper[:k]), fixed)


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
