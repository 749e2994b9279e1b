"""Distances that are not plain Euclidean: geometric anisotropy in the plane, a range for each axis, and the great circle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.azimuth import angle_of, azimuth_of
from ooc_chol.apps.geostat.covariances.model import DeviceForm, check_names, check_positive, model_repr
from ooc_chol.apps.geostat.covariances.radial import (
    AbstractIsotropicCovariance,
    AbstractProfile,
    AbstractRadialCovariance,
    differences,
)
from ooc_chol.apps.geostat.covariances.scales import Scale, length_scale
from ooc_chol.apps.geostat.data.sphere import EARTH_RADIUS_KM, chordal_coordinates

#: Bounds of the ratio of the ranges across and along the main axis, and what one step of a search turns that axis by, in radians.
_RATIO_BOUNDS = (0.02, 50.0)
_ANGLE_STEP = 0.5

#: Stands for the square of a zero distance, where what is divided by it is zero.
_TINY = float(np.finfo(np.float64).tiny)


class AbstractWrappedCovariance(AbstractRadialCovariance):
    """An isotropic covariance function ``base`` of another distance; variance, nugget and shape are those of ``base``."""

    base: AbstractIsotropicCovariance

    @property
    def variance(self) -> float:
        """Variance of the field."""
        return self.base.variance

    @property
    def nugget(self) -> float:
        """Variance of the error of an observation."""
        return self.base.nugget

    @property
    def profile(self) -> AbstractProfile:
        return self.base.profile


@dataclass(frozen=True)
class GeometricAnisotropy(AbstractWrappedCovariance):
    """Geometric anisotropy in the plane: ellipses of equal correlation, ``z**2 = (u**2 + (v / ratio)**2) / range**2``.

    Here u and v are the components of the difference of two sites along and across the main axis.

    Parameters
    ----------
    base : AbstractIsotropicCovariance
        A Matérn or power exponential covariance; its ``range`` holds along the main axis.
    angle : float
        Direction of the main axis, in radians counter-clockwise from the first axis.
    ratio : float
        Range across the main axis divided by that along it. Positive; below 1 unless the axes are to change their names.

    Raises
    ------
    ValueError
        The angle is not finite, or the ratio is not finite and positive.

    Notes
    -----
    :meth:`by_azimuth` makes one from a direction as maps have it, and :attr:`azimuth`, :attr:`range_major` and
    :attr:`range_minor` say it so. As in GSTools (``angles``, ``anis``); geoR's ``psiR`` is ``1 / ratio``, and its ``psiA`` is
    the azimuth in radians. At ratio 1 the angle means nothing, and the derivative in it is zero.

    Examples
    --------
    >>> from ooc_chol.apps.geostat.covariances.matern import Matern
    >>> model = GeometricAnisotropy(
    ...     Matern(1.0, 2.0, 0.5), angle=0.0, ratio=0.5
    ... )
    >>> out = np.empty((1, 2))
    >>> model.fill(np.zeros((2, 1)), np.array([[2.0, 0.0], [0.0, 1.0]]), out)
    >>> out.round(4)
    array([[0.3679, 0.3679]])
    """

    base: AbstractIsotropicCovariance
    angle: float
    ratio: float

    __repr__ = model_repr

    def __post_init__(self) -> None:
        check_positive(ratio=self.ratio)
        if not math.isfinite(self.angle):
            raise ValueError(f"angle is {self.angle}, but it must be finite, in radians")

    @classmethod
    def by_azimuth(cls, base: AbstractIsotropicCovariance, azimuth: float, ratio: float) -> Self:
        """The covariance function whose main axis has an azimuth.

        Parameters
        ----------
        base : AbstractIsotropicCovariance
            A Matérn or power exponential covariance; its ``range`` holds along the main axis.
        azimuth : float
            Degrees clockwise from the second axis (from north).
        ratio : float
            Range across the main axis divided by that along it.

        Returns
        -------
        GeometricAnisotropy
            With the angle in radians.

        Raises
        ------
        ValueError
            The azimuth is not finite, or the ratio is not finite and positive.
        """
        return cls(base, angle_of(azimuth), ratio)

    @property
    def azimuth(self) -> float:
        """Direction of the longer axis, in degrees clockwise from the second axis (from north), from 0 up to 180."""
        return azimuth_of(self.canonical().angle)

    @property
    def range_major(self) -> float:
        """Range along the longer axis, in the unit of the coordinates."""
        return self.base.range * max(1.0, self.ratio)

    @property
    def range_minor(self) -> float:
        """Range along the shorter axis, in the unit of the coordinates."""
        return self.base.range * min(1.0, self.ratio)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those of the isotropic covariance, then angle and ratio."""
        return (*self.base.parameters, "angle", "ratio")

    @property
    def values(self) -> dict[str, float]:
        return {**self.base.values, "angle": self.angle, "ratio": self.ratio}

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """Those of the isotropic covariance; half a turn either way; and the logarithm of the ratio, which may pass 1.

        From a start across the true axis the shortest way leads through ratio 1, where no angle is better than another.
        """
        _check_axes(coordinates.shape[1], 2, "GeometricAnisotropy")
        angle = Scale(self.angle - math.pi, self.angle + math.pi, is_logarithmic=False, step=_ANGLE_STEP)
        return {**self.base.scales(coordinates), "angle": angle, "ratio": Scale(*_RATIO_BOUNDS)}

    def canonical(self) -> Self:
        """The same ellipses with the longer axis as the main one, and an angle from 0 up to pi."""
        if self.ratio <= 1.0:
            return replace(self, angle=self.angle % math.pi)
        base = self.base.with_values(range=self.base.range * self.ratio)
        return replace(self, base=base, angle=(self.angle + 0.5 * math.pi) % math.pi, ratio=1.0 / self.ratio)

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sites, turned to the main axis and stretched across it, in units of the range."""
        return self._turned(coordinates) / self.base.range

    def with_values(self, **values: float) -> Self:
        check_names(self, values)
        angle, ratio = values.pop("angle", self.angle), values.pop("ratio", self.ratio)
        return replace(self, base=self.base.with_values(**values), angle=angle, ratio=ratio)

    def scaled_distance(
        self, a: NDArray[np.float64], b: NDArray[np.float64], z: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> None:
        """``z = hypot(u, v / ratio) / range``."""
        self._components(a, b, scratch)
        np.square(scratch[0], out=z)
        np.square(scratch[1], out=scratch[1])
        z += scratch[1]
        np.sqrt(z, out=z)
        z *= 1.0 / self.base.range

    def log_derivative(
        self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> NDArray[np.float64] | float:
        """``-w**2 / (ratio s)`` and, in the angle, ``u w (ratio - 1 / ratio) / s``, where ``w = v / ratio, s = u**2 + w**2``."""
        if name == "range":
            return -1.0 / self.base.range
        u, w, s = scratch
        self._components(a, b, scratch)
        np.square(u, out=s)
        u *= w
        np.square(w, out=w)
        s += w
        np.maximum(s, _TINY, out=s)
        numerator: NDArray[np.float64] = w if name == "ratio" else u
        numerator /= s
        numerator *= -1.0 / self.ratio if name == "ratio" else self.ratio - 1.0 / self.ratio
        return numerator

    def constant_log_derivative(self, name: str) -> float | None:
        """``-1 / range``; angle and ratio depend on the direction."""
        return -1.0 / self.base.range if name == "range" else None

    def directional_log_derivative(self, name: str) -> tuple[int, int, float]:
        """As :meth:`log_derivative`, whose u and w are the turned coordinates."""
        return (1, 1, -1.0 / self.ratio) if name == "ratio" else (0, 1, self.ratio - 1.0 / self.ratio)

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Sites about their mean, turned to the main axis and stretched across it."""
        return self.table_form("radial", self._turned(coordinates), 1.0 / self.base.range)

    def _turned(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sites about their mean in coordinates along the main axis and, over ``ratio``, across it."""
        _check_axes(coordinates.shape[1], 2, "GeometricAnisotropy")
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        centred = coordinates - coordinates.mean(axis=0)
        return np.asarray(centred @ np.array([[cosine, -sine / self.ratio], [sine, cosine / self.ratio]]))

    def _components(self, a: NDArray[np.float64], b: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """``scratch[0] = u``, ``scratch[1] = v / ratio``, from differences of the coordinates."""
        _check_axes(len(a), 2, "GeometricAnisotropy")
        u, w, spare = scratch
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        differences(a[0], b[0], u)
        differences(a[1], b[1], spare)
        np.multiply(u, -sine / self.ratio, out=w)
        u *= cosine
        # w += cos * dy / ratio, then u += sin * dy
        spare *= cosine / self.ratio
        w += spare
        differences(a[1], b[1], spare)
        spare *= sine
        u += spare


@dataclass(frozen=True)
class AxisRanges(AbstractWrappedCovariance):
    """A range for each axis: ``z**2 = sum_k ((a_k - b_k) / range_k)**2``.

    Parameters
    ----------
    base : AbstractIsotropicCovariance
        A Matérn or power exponential covariance with range 1, as the ranges are given here.
    ranges : tuple of float
        Lengths along the axes, in the units of the coordinates, which may differ. Positive. The parameters are called
        ``range_1``, ``range_2`` and so on.

    Raises
    ------
    ValueError
        A range is not finite and positive, there is none, or that of ``base`` is not 1.
    """

    base: AbstractIsotropicCovariance
    ranges: tuple[float, ...]

    __repr__ = model_repr

    def __post_init__(self) -> None:
        if self.base.range != 1.0:
            raise ValueError(f"the range of base is {self.base.range}, but must be 1: the ranges of the axes take its place")
        if not self.ranges:
            raise ValueError("ranges is empty, but it needs a length for each axis")
        check_positive(**dict(zip(self._names, self.ranges, strict=True)))

    @property
    def _names(self) -> tuple[str, ...]:
        """Names of the ranges."""
        return tuple(f"range_{axis + 1}" for axis in range(len(self.ranges)))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The ranges by axis, then the parameters of the shape."""
        return (*self._names, *self.profile.parameters)

    @property
    def values(self) -> dict[str, float]:
        shape = {name: value for name, value in self.base.values.items() if name != "range"}
        return {**dict(zip(self._names, self.ranges, strict=True)), **shape}

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """Each range by the extent of its axis."""
        _check_axes(coordinates.shape[1], len(self.ranges), "AxisRanges")
        lengths = {name: length_scale(coordinates[:, [axis]]) for axis, name in enumerate(self._names)}
        return {**lengths, **self.profile.scales}

    def canonical(self) -> Self:
        """The same object: each of its parameters has one value only for a function."""
        return self

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each axis in units of its range."""
        _check_axes(coordinates.shape[1], len(self.ranges), "AxisRanges")
        return np.asarray(coordinates / np.array(self.ranges))

    def with_values(self, **values: float) -> Self:
        check_names(self, values)
        ranges = tuple(values.pop(name, old) for name, old in zip(self._names, self.ranges, strict=True))
        return replace(self, base=self.base.with_values(**values), ranges=ranges)

    def scaled_distance(
        self, a: NDArray[np.float64], b: NDArray[np.float64], z: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> None:
        """The root of the sum of squares."""
        self._square(a, b, z, scratch[0])
        np.sqrt(z, out=z)

    def log_derivative(
        self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> NDArray[np.float64] | float:
        """``-((a_k - b_k) / range_k)**2 / (range_k z**2)``."""
        axis = self._names.index(name)
        self._square(a, b, scratch[0], scratch[1])
        np.maximum(scratch[0], _TINY, out=scratch[0])
        share: NDArray[np.float64] = scratch[1]
        self._term(axis, a, b, share)
        share /= scratch[0]
        share *= -1.0 / self.ranges[axis]
        return share

    def constant_log_derivative(self, name: str) -> float | None:
        """None: each range depends on the direction."""
        return None

    def directional_log_derivative(self, name: str) -> tuple[int, int, float]:
        """``-((a_k - b_k) / range_k)**2 / (range_k z**2)``."""
        axis = self._names.index(name)
        return axis, axis, -1.0 / self.ranges[axis]

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Sites about their mean, each axis in units of its range."""
        _check_axes(coordinates.shape[1], len(self.ranges), "AxisRanges")
        return self.table_form("radial", (coordinates - coordinates.mean(axis=0)) / np.array(self.ranges), 1.0)

    def _square(
        self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64], spare: NDArray[np.float64]
    ) -> None:
        """``out = z**2``."""
        _check_axes(len(a), len(self.ranges), "AxisRanges")
        self._term(0, a, b, out)
        for axis in range(1, len(a)):
            self._term(axis, a, b, spare)
            out += spare

    def _term(self, axis: int, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """``out = ((a_k - b_k) / range_k)**2``."""
        differences(a[axis], b[axis], out)
        out *= 1.0 / self.ranges[axis]
        np.square(out, out=out)


@dataclass(frozen=True)
class GreatCircle(AbstractWrappedCovariance):
    """A covariance function of the great-circle distance in kilometres, of longitude and latitude in degrees.

    Parameters
    ----------
    base : AbstractIsotropicCovariance
        A Matérn covariance of smoothness up to 1/2, or a power exponential one of power up to 1; ``range`` in kilometres.

    Raises
    ------
    ValueError
        ``base`` is not positive definite on the sphere.

    Notes
    -----
    Gneiting (2013), *Strictly and non-strictly positive definite functions on spheres*, Bernoulli 19, table 1. Smoother fields
    need the chord (:func:`~ooc_chol.apps.geostat.chordal_coordinates`).
    """

    base: AbstractIsotropicCovariance

    __repr__ = model_repr

    def __post_init__(self) -> None:
        if obstacle := self.base.profile.sphere_obstacle:
            raise ValueError(obstacle)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of ``base``."""
        return self.base.parameters

    @property
    def values(self) -> dict[str, float]:
        return self.base.values

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """The range by the longest chord in kilometres; the shape as far as it is valid on the sphere."""
        _check_sphere(coordinates.T)
        chords = chordal_coordinates(coordinates[:, 0], coordinates[:, 1])
        return {"range": length_scale(chords), **self.profile.sphere_scales}

    def canonical(self) -> Self:
        """The same object: each of its parameters has one value only for a function."""
        return self

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points of the sphere, whose chords grow with the arcs, in units of the range."""
        _check_sphere(coordinates.T)
        return chordal_coordinates(coordinates[:, 0], coordinates[:, 1]) / self.base.range

    def with_values(self, **values: float) -> Self:
        return replace(self, base=self.base.with_values(**values))

    def scaled_distance(
        self, a: NDArray[np.float64], b: NDArray[np.float64], z: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> None:
        """``2 R asin(sqrt(sin(dlat/2)**2 + cos(lat) cos(lat') sin(dlon/2)**2)) / range``, the haversine formula."""
        _check_sphere(a)
        _check_sphere(b)
        across = scratch[0]
        for axis, out in ((1, z), (0, across)):
            differences(a[axis], b[axis], out)
            out *= math.pi / 360.0
            np.sin(out, out=out)
            np.square(out, out=out)
        across *= np.cos(np.radians(a[1]))[..., :, None]
        across *= np.cos(np.radians(b[1]))[..., None, :]
        z += across
        np.sqrt(z, out=z)
        np.minimum(z, 1.0, out=z)
        np.arcsin(z, out=z)
        z *= 2.0 * EARTH_RADIUS_KM / self.base.range

    def log_derivative(
        self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> NDArray[np.float64] | float:
        """``-1 / range``."""
        return -1.0 / self.base.range

    def constant_log_derivative(self, name: str) -> float | None:
        """``-1 / range``."""
        return -1.0 / self.base.range

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Unit vectors, whose angle the kernel takes."""
        _check_sphere(coordinates.T)
        points = chordal_coordinates(coordinates[:, 0], coordinates[:, 1]) / EARTH_RADIUS_KM
        return self.table_form("great_circle", points, EARTH_RADIUS_KM / self.base.range)


def _check_axes(found: int, needed: int, what: str) -> None:
    """Raise ``ValueError`` for another number of coordinates."""
    if found != needed:
        raise ValueError(f"{what} needs sites of {needed} coordinate{'s' if needed > 1 else ''}, but they have {found}")


def _check_sphere(sites: NDArray[np.float64]) -> None:
    """Raise ``ValueError`` unless these are longitudes and latitudes, by axis."""
    _check_axes(len(sites), 2, "GreatCircle")
    if np.abs(sites[1]).max(initial=0.0) > 90.0:
        raise ValueError("a latitude is outside -90..90: GreatCircle takes longitude, then latitude, in degrees")
