"""Where a fit searches and where it starts: a coordinate for each parameter, most of them logarithms, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.model import Nugget as Nugget
from ooc_chol.apps.geostat.covariances.scales import Scale
from ooc_chol.apps.geostat.estimation.likelihood import fixed_variance

Model = TypeVar("Model", bound=AbstractCovariance)

#: Least nugget ratio of a fit with a free nugget. Smooth fields (nu = 5/2) have correlation matrices that are singular to working
#: accuracy without a nugget; at 1e-8 their condition number stays below about n * 1e8, far from 1 / unit roundoff, and the
#: likelihood loses nothing that data show.
NUGGET_RATIO_FLOOR = 1e-8
NUGGET_RATIO_CEILING = 1e3

NUGGET_RATIO = "nugget_ratio"
VARIANCE = "variance"

#: A coordinate is the logarithm of the nugget ratio over 4: factor for factor the nugget matters less than the range.
NUGGET_SCALE = Scale(NUGGET_RATIO_FLOOR, NUGGET_RATIO_CEILING, step=4.0)

#: Starting ranges as multiples of the extent of the sites, starting smoothnesses and nugget ratios.
_START_RANGES = (0.01, 0.05, 0.2)
START_SMOOTHNESS = (0.5, 1.5)
_START_RATIOS = (1e-3, 3e-2, 0.5)

#: Below this nugget ratio the likelihood may be so flat in its logarithm that a search from there would end where it began.
_FLAT_RATIO = 1e-3


@dataclass(frozen=True, eq=False)
class SearchSpace(Generic[Model]):
    """The box of a fit: a coordinate for each parameter that is searched for, most of them logarithms."""

    #: The ``k`` parameters searched for: some of the template's, ``"nugget_ratio"`` unless the nugget is zero, and ``"variance"``
    #: where known error variances forbid to profile it out and no positive nugget is kept
    names: tuple[str, ...]
    scales: tuple[Scale, ...]  #: How their coordinates are made, and their bounds
    template: Model  #: A model of variance 1 with the parameters that are not searched for
    nugget: float | None  #: A nugget that is kept at this variance (zero included); None when it is estimated

    @property
    def lower(self) -> NDArray[np.float64]:
        """Lower bounds of the coordinates, shape ``(k,)``."""
        return np.array([scale.coordinate(scale.lower) for scale in self.scales])

    @property
    def upper(self) -> NDArray[np.float64]:
        """Upper bounds of the coordinates, shape ``(k,)``."""
        return np.array([scale.coordinate(scale.upper) for scale in self.scales])

    @property
    def fixed_nugget(self) -> float | None:
        """The positive variance at which the nugget is kept, if any: then the variance is ``nugget / ratio`` and not profiled."""
        return self.nugget or None

    @property
    def is_profiled(self) -> bool:
        """True if the variance is profiled out: neither searched for nor tied to a nugget that is kept."""
        return self.fixed_nugget is None and VARIANCE not in self.names

    @property
    def shape(self) -> tuple[str, ...]:
        """The names without variance and nugget ratio: parameters of the correlation function."""
        return tuple(name for name in self.names if name not in (NUGGET_RATIO, VARIANCE))

    @property
    def lengths(self) -> list[int]:
        """Places of the lengths among the names: at shorter ones the matrix is better conditioned."""
        return [k for k, scale in enumerate(self.scales) if scale.is_length]

    def correlation(self, point: NDArray[np.float64]) -> Model:
        """The model of variance 1 at a point of the box; its nugget is the ratio."""
        inside = np.clip(point, self.lower, self.upper)
        found = {name: (scale, scale.value(x)) for name, scale, x in zip(self.names, self.scales, inside, strict=True)}
        values = {name: 0.0 if found[name][0].bound else found[name][1] for name in self.shape}
        ratio = found[NUGGET_RATIO][1] if NUGGET_RATIO in found else self.template.nugget
        model = self.template.with_values(nugget=ratio, **values)
        # what other parameters bound can be put in only once those are there
        shares = {name: share * scale.bound(model)[0] for name, (scale, share) in found.items() if scale.bound}
        return model.with_values(**shares) if shares else model

    def variance(self, point: NDArray[np.float64]) -> float | None:
        """The variance at a point of the box: searched for, or ``nugget / ratio`` of a nugget that is kept; None if profiled."""
        if VARIANCE in self.names:
            k = self.names.index(VARIANCE)
            return self.scales[k].value(float(np.clip(point, self.lower, self.upper)[k]))
        return fixed_variance(self.correlation(point), self.fixed_nugget)

    def model(self, point: NDArray[np.float64], variance: float) -> Model:
        """The model of this variance at a point of the box, its nugget in squared units of the values."""
        correlation = self.correlation(point)
        return correlation.with_values(variance=variance, nugget=variance * correlation.nugget)

    def point(self, model: AbstractCovariance) -> NDArray[np.float64]:
        """The point of the box nearest to a model, shape ``(k,)``; its variance matters only where that is searched for."""
        values = {**model.values, NUGGET_RATIO: model.nugget / model.variance, VARIANCE: model.variance}
        shares = (values[name] / _bound(scale, model) for name, scale in zip(self.names, self.scales, strict=True))
        coordinates = [scale.coordinate(share) for scale, share in zip(self.scales, shares, strict=True)]
        return np.clip(coordinates, self.lower, self.upper)

    def start(self, template: AbstractCovariance) -> NDArray[np.float64]:
        """The point of a model with which a search begins."""
        for name, scale in zip(self.names, self.scales, strict=True):
            if name in self.shape:
                share = template.values[name] / _bound(scale, template)
                if not scale.lower <= share <= scale.upper:
                    what = f"{name} as a share of its bound" if scale.bound else name
                    raise ValueError(
                        f"{what} is {share:g} at the start, but a search at these sites goes from {scale.lower:g} to "
                        f"{scale.upper:g} (are sites and parameters in one unit?)"
                    )
        ratio = (template.nugget if self.nugget is None else self.nugget) / template.variance
        variance = self._middle(VARIANCE) if VARIANCE in self.names else 1.0
        return self.point(template.with_values(variance=variance, nugget=variance * ratio))

    def _middle(self, name: str) -> float:
        """The value in the middle of the bounds of a name."""
        scale = self.scales[self.names.index(name)]
        return scale.value(0.5 * (scale.coordinate(scale.lower) + scale.coordinate(scale.upper)))

    def jacobian(self, model: AbstractCovariance) -> NDArray[np.float64]:
        """Derivatives of (shape, variance, nugget) by the coordinates and, where it is profiled, by ``log variance``."""
        shape, values = self.shape, model.values
        rows = np.zeros((len(self.names) + 1, len(shape) + 2))
        for row, (name, scale) in enumerate(zip(self.names, self.scales, strict=True)):
            if name in shape:
                bound = _bound(scale, model)
                rows[row, shape.index(name)] = bound * scale.slope(values[name] / bound)
            elif name == VARIANCE:
                rows[row, -2:] = scale.step * model.variance, scale.step * model.nugget
            elif self.fixed_nugget is None:
                rows[row, -1] = scale.step * model.nugget
            else:
                rows[row, -2] = -scale.step * model.variance
        self._add_bounds(rows, model)
        rows[-1, -2:] = model.variance, model.nugget
        return rows if self.is_profiled else rows[:-1]

    def _add_bounds(self, rows: NDArray[np.float64], model: AbstractCovariance) -> None:
        """Move each parameter that others bound along with its bound, as its share stays."""
        shape = self.shape
        for name, scale in zip(self.names, self.scales, strict=True):
            if scale.bound:
                for other, slope in scale.bound(model)[1].items():
                    if other in shape:
                        row, own = self.names.index(other), shape.index(name)
                        rows[row, own] = model.values[name] * slope * rows[row, shape.index(other)]

    def fixed(self, name: str, value: float) -> SearchSpace[Model]:
        """The space in which one of the names is kept at a value."""
        if name not in self.names:
            raise ValueError(f"{name!r} is not estimated here; there are {', '.join(self.names)}")
        kept = [k for k, other in enumerate(self.names) if other != name]
        # what is searched for as a share of a bound has its place below any bound
        shares = {other: 0.0 for other, scale in zip(self.names, self.scales, strict=True) if scale.bound}
        template = self.template.with_values(**{**shares, "nugget" if name == NUGGET_RATIO else name: value})
        return replace(
            self, names=tuple(self.names[k] for k in kept), scales=tuple(self.scales[k] for k in kept), template=template
        )

    def at_bounds(self, point: NDArray[np.float64]) -> tuple[tuple[str, str, float], ...]:
        """Bounds at which the point lies, nearly: the name, ``"lower"`` or ``"upper"``, and the bound."""
        found: list[tuple[str, str, float]] = []
        for side, ends in (("lower", self.lower), ("upper", self.upper)):
            for name, scale, gap in zip(self.names, self.scales, np.abs(point - ends), strict=True):
                if gap < scale.near:
                    found.append((name, side, scale.lower if side == "lower" else scale.upper))
        return tuple(found)

    def shift(self, step: NDArray[np.float64]) -> dict[str, float]:
        """Effect of a step on each parameter: relative to its value, or in its unit where the coordinate is no logarithm."""
        return {name: scale.shift(float(part)) for name, scale, part in zip(self.names, self.scales, step, strict=True)}

    def raised(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point, with a nugget ratio of at least 0.001 where the nugget is free."""
        least = self.lower.copy()
        if NUGGET_RATIO in self.names and self.fixed_nugget is None:
            least[self.names.index(NUGGET_RATIO)] = NUGGET_SCALE.coordinate(_FLAT_RATIO)
        return np.maximum(point, least)

    def is_small_nugget(self, point: NDArray[np.float64]) -> bool:
        """Tell whether the nugget ratio is below 0.001, where the likelihood may be flat."""
        if NUGGET_RATIO not in self.names:
            return False
        return bool(point[self.names.index(NUGGET_RATIO)] < NUGGET_SCALE.coordinate(_FLAT_RATIO))

    def at_floor(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point with the nugget ratio at its lower bound, in a new array."""
        lowest = np.array(point)
        k = self.names.index(NUGGET_RATIO)
        lowest[k] = self.lower[k]
        return lowest

    def starts(self, extent: float) -> list[NDArray[np.float64]]:
        """A coarse grid of starting points for sites of the given extent."""
        values = {
            "range": [share * extent for share in _START_RANGES],
            "smoothness": START_SMOOTHNESS,
            NUGGET_RATIO: _START_RATIOS if self.fixed_nugget is None else [self._middle(NUGGET_RATIO)],
            VARIANCE: [self._middle(VARIANCE)] if VARIANCE in self.names else [],
        }
        axes = [[scale.coordinate(v) for v in values[name]] for name, scale in zip(self.names, self.scales, strict=True)]
        return [np.array(point) for point in product(*axes)]


def _bound(scale: Scale, model: AbstractCovariance) -> float:
    """The bound that a parameter is searched for as a share of; 1 for any other parameter."""
    return scale.bound(model)[0] if scale.bound else 1.0
