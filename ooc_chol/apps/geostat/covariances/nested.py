"""Nested structures: the sum of several covariance functions, each of an independent field of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.fall import distance_of_fall
from ooc_chol.apps.geostat.covariances.geometry import GreatCircle
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance, DeviceForm, added, check_names, check_nugget, model_repr
from ooc_chol.apps.geostat.covariances.nested_device import summed
from ooc_chol.apps.geostat.covariances.radial import AbstractIsotropicCovariance, AbstractRadialCovariance, chunks, of_rows
from ooc_chol.apps.geostat.covariances.reach import reach
from ooc_chol.apps.geostat.covariances.scales import Scale
from ooc_chol.apps.geostat.covariances.spacetime import GneitingMatern, SeparableSpaceTime

_ValueT = TypeVar("_ValueT")

#: Before the number of a structure, the name of its variance over that of the first.
RATIO = "variance_ratio_"

#: Bounds of a search for such a ratio: beyond, one of the two structures is nothing beside the other.
_RATIO_BOUNDS = (1e-4, 1e4)

#: Classes whose parameters have scales of their own, independent of others.
_SUMMABLE = (AbstractRadialCovariance, SeparableSpaceTime, GneitingMatern)


@dataclass(frozen=True)
class Nested(AbstractCovariance):
    """Nested structures ``C(a, b) = sum_k C_k(a, b)``: a sum of independent fields, and a nugget.

    ``Matern(2.5, 0.02, 0.9) + Matern(10.0, 0.5, 0.5)`` makes one too.

    Parameters
    ----------
    components : tuple of AbstractCovariance
        Two or more covariance functions, without nugget: isotropic, anisotropic, of the great circle, or of space and time, of
        one family or of several. Their variances add up to that of the field.
    nugget : float
        Variance of the independent error of each observation. Zero or positive.

    Raises
    ------
    ValueError
        There are fewer than two components, one has a nugget, is a sum itself or of two variables, or some take longitude and
        latitude and others do not.

    Notes
    -----
    Parameters of component k end in its number: ``range_1``, ``smoothness_2``, and ``range_1_2`` for the first axis of a second
    component of class ``AxisRanges``. ``variance`` is that of the sum; ``variance_ratio_2`` is the variance of the second
    component over that of the first. Components of one family mean the same in any order: :meth:`canonical` sorts them by
    effective range. Journel and Huijbregts (1978), *Mining geostatistics*, III.A (nested structures).

    Examples
    --------
    >>> from ooc_chol.apps.geostat.covariances.matern import Matern
    >>> model = Matern(2.5, 0.02, 0.9, nugget=0.1) + Matern(10.0, 0.5, 0.5)
    >>> model.parameters
    ('range_1', 'smoothness_1', 'range_2', 'smoothness_2', 'variance_ratio_2')
    >>> model.variance, model.nugget, model.values["variance_ratio_2"]
    (12.5, 0.1, 4.0)
    """

    components: tuple[AbstractCovariance, ...]
    nugget: float = 0.0

    __repr__ = model_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        if len(self.components) < 2:
            raise ValueError(f"nested structures need two components or more, but there are {len(self.components)}")
        for number, component in enumerate(self.components, 1):
            _check_component(number, component)
        if len({_is_spherical(component) for component in self.components}) > 1:
            raise ValueError(
                "some components take longitude and latitude (GreatCircle) and others do not: give all of them one distance"
            )
        check_nugget(self.nugget)

    @property
    def variance(self) -> float:
        """Variance of the field, the sum of those of the components."""
        return math.fsum(component.variance for component in self.components)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those of each component with its number, from the second on with the ratio of its variance."""
        return tuple(self.values)

    @property
    def values(self) -> dict[str, float]:
        return self._by_number(
            [component.values for component in self.components],
            [component.variance / self.components[0].variance for component in self.components],
        )

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """Those of the components, and the logarithm of each ratio."""
        return self._by_number(
            [component.scales(coordinates) for component in self.components], [Scale(*_RATIO_BOUNDS) for _ in self.components]
        )

    def canonical(self) -> Self:
        """A copy with canonical components, those of one family in the order of their effective ranges."""
        found = [component.canonical() for component in self.components]
        for kind in dict.fromkeys(_kind(component) for component in found):
            places = [k for k, component in enumerate(found) if _kind(component) == kind]
            for place, component in zip(places, sorted((found[k] for k in places), key=reach), strict=True):
                found[place] = component
        return replace(self, components=tuple(found))

    def site_variances(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of those of the components."""
        return np.asarray(np.sum([component.site_variances(coordinates) for component in self.components], axis=0))

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Comparable sites of one component where all compare alike, else of all side by side.

        Those are weighted by the roots of the shares of the variance: so smooth fields' semivariances of short distances add up.
        """
        if all(isinstance(component, AbstractIsotropicCovariance | GreatCircle) for component in self.components):
            return self.components[0].comparable_sites(coordinates)
        weights = [math.sqrt(component.variance / self.variance) for component in self.components]
        pairs = zip(weights, self.components, strict=True)
        return np.column_stack([weight * component.comparable_sites(coordinates) for weight, component in pairs])

    def with_values(self, **values: float) -> Self:
        check_names(self, values)
        before = {"variance": self.variance, **self.values}
        wanted = {**before, **values}
        variances = [component.variance for component in self.components]
        if any(wanted[name] != before[name] for name in ("variance", *self._ratios)):
            variances = _divided(wanted["variance"], [1.0, *(wanted[name] for name in self._ratios)])
        components: list[AbstractCovariance] = []
        for number, (component, variance) in enumerate(zip(self.components, variances, strict=True), 1):
            own = {name: wanted[f"{name}_{number}"] for name in component.parameters}
            components.append(component.with_values(variance=variance, **own))
        return replace(self, components=tuple(components), nugget=values.get("nugget", self.nugget))

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write the sum, in chunks."""
        self._fill_weighted([1.0] * len(self.components), a, b, out)

    def _fill_parameter(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """The derivative of the one component whose parameter it is; by a ratio, weights of all."""
        if name in self._ratios:
            self._fill_weighted(self._ratio_weights(name), a, b, out)
        else:
            component, own = self._owner(name)
            component.fill_derivative(own, a, b, out)

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """The sum of the components' forms."""
        return summed([component.device_form(coordinates) for component in self.components])

    def derivative_form(self, name: str, coordinates: NDArray[np.float64]) -> DeviceForm:
        """That of the component whose parameter it is; by a ratio, weights of all."""
        if name in self._ratios:
            forms = [component.device_form(coordinates) for component in self.components]
            return summed(forms, self._ratio_weights(name))
        component, own = self._owner(name)
        return component.derivative_form(own, coordinates)

    @property
    def _ratios(self) -> tuple[str, ...]:
        """Names of the ratios of variances."""
        return tuple(f"{RATIO}{number}" for number in range(2, len(self.components) + 1))

    def _by_number(self, parts: Sequence[Mapping[str, _ValueT]], ratios: Sequence[_ValueT]) -> dict[str, _ValueT]:
        """A value for each parameter of the components, and each ratio but the first, by the names of the sum."""
        found: dict[str, _ValueT] = {}
        for number, (part, ratio) in enumerate(zip(parts, ratios, strict=True), 1):
            found |= {f"{name}_{number}": part[name] for name in self.components[number - 1].parameters}
            found |= {f"{RATIO}{number}": ratio} if number > 1 else {}
        return found

    def _owner(self, name: str) -> tuple[AbstractCovariance, str]:
        """The component of a parameter, and the name that the parameter has there."""
        own, _, number = name.rpartition("_")
        return self.components[int(number) - 1], own

    def _ratio_weights(self, name: str) -> list[float]:
        """Weights of the components in the derivative by a ratio: ``v_1 (C_k / v_k - C / variance)``."""
        first, own = self.components[0].variance, int(name.removeprefix(RATIO)) - 1
        weights = [-first / self.variance] * len(self.components)
        weights[own] += first / self.components[own].variance
        return weights

    def _fill_weighted(
        self, weights: Sequence[float], a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Write ``sum_k weight_k C_k``."""
        for rows, chunk, scratch in chunks(out, 1):
            sites, others = a[:, rows], of_rows(b, rows)
            self.components[0].fill(sites, others, chunk)
            if weights[0] != 1.0:
                chunk *= weights[0]
            for weight, component in zip(weights[1:], self.components[1:], strict=True):
                component.fill(sites, others, scratch[0])
                if weight != 1.0:
                    scratch[0] *= weight
                chunk += scratch[0]


@added.register
def _(first: AbstractCovariance, second: AbstractCovariance) -> Nested:
    """The sum of two covariance functions, whose nuggets add up; sums are taken apart."""
    return Nested((*_without_nugget(first), *_without_nugget(second)), first.nugget + second.nugget)


def covariance_by_distance(model: AbstractCovariance) -> Callable[[NDArray[np.float64]], NDArray[np.float64]] | None:
    """Covariance as a function of Euclidean distance alone, for isotropic functions and their sums; None for any other."""
    if isinstance(model, AbstractIsotropicCovariance):
        return model.covariance
    if not isinstance(model, Nested):
        return None
    parts = [covariance_by_distance(component) for component in model.components]
    known = [part for part in parts if part is not None]
    return (lambda distance: np.sum([part(distance) for part in known], axis=0)) if len(known) == len(parts) else None


def effective_range(model: AbstractCovariance) -> float | None:
    """Distance at which the correlation of the field is 0.05, in the unit of the coordinates; None if it depends on more."""
    by_distance, variance = covariance_by_distance(model), model.variance
    if by_distance is None:
        return None
    if not isinstance(model, Nested):
        return reach(model)
    return distance_of_fall(lambda distance: by_distance(distance) / variance, start=longest_reach(model))


def longest_reach(model: AbstractCovariance) -> float:
    """Effective range of a function, or of that structure of a sum which reaches farthest, as :func:`reach` has it."""
    return max(map(reach, model.components)) if isinstance(model, Nested) else reach(model)


def _without_nugget(model: AbstractCovariance) -> Iterator[AbstractCovariance]:
    """The components of a sum, or the function itself."""
    yield from model.components if isinstance(model, Nested) else (model.with_values(nugget=0.0),)


def _check_component(number: int, component: AbstractCovariance) -> None:
    """Raise ``ValueError`` for what cannot be a part of a sum."""
    if isinstance(component, Nested):
        raise ValueError(f"component {number} is a sum itself: give its components, or write the sum with +")
    if not isinstance(component, _SUMMABLE):
        raise ValueError(f"component {number} is a {type(component).__name__}, of which there are no sums")
    if component.nugget != 0.0:
        raise ValueError(f"component {number} has nugget {component.nugget}, but must have 0: give it to the sum")


def _is_spherical(component: AbstractCovariance) -> bool:
    """Tell whether a component takes longitude and latitude."""
    return isinstance(component.space if isinstance(component, SeparableSpaceTime) else component, GreatCircle)


def _kind(component: AbstractCovariance) -> tuple[type, ...]:
    """Classes of all parts of a component: components of equal classes may change places."""
    parts = (getattr(component, name, None) for name in ("base", "space", "time"))
    return (type(component), *(kind for part in parts if isinstance(part, AbstractCovariance) for kind in _kind(part)))


def _divided(variance: float, ratios: Sequence[float]) -> list[float]:
    """A variance in parts of these ratios that add up to it, to the last digit."""
    whole = math.fsum(ratios)
    parts = [variance * (ratio / whole) for ratio in ratios]
    largest = int(np.argmax(parts))
    parts[largest] = math.fsum([variance, *(-part for k, part in enumerate(parts) if k != largest)])
    return parts
