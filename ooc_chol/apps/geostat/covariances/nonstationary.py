"""A Matérn covariance whose variance and range change from place to place with covariates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.matern import Matern, MaternProfile
from ooc_chol.apps.geostat.covariances.matern_exact import check_smoothness_bounds
from ooc_chol.apps.geostat.covariances.model import (
    AbstractCovariance,
    DeviceForm,
    check_names,
    check_nugget,
    check_positive,
    model_repr,
)
from ooc_chol.apps.geostat.covariances.radial import chunks, euclidean
from ooc_chol.apps.geostat.covariances.radial_table import SCRATCH
from ooc_chol.apps.geostat.covariances.scales import SEARCHED_SMOOTHNESS, Scale, length_scale

#: Before the name of a covariate in the name of its slope.
_VARIANCE, _RANGE = "variance_", "range_"

#: A search lets the logarithm of a standard deviation or a range change by so much over all observations, and a coordinate of one
#: stands for so much over a standard deviation of the covariate.
_LARGEST_CHANGE = 7.0
_SLOPE_STEP = 0.5

_Array = NDArray[np.float64]


class _Local(NamedTuple):
    """Local parameters of sites, for a matrix of pairs of them: by axis, or by axis and matrix of a stack."""

    space: _Array  #: (d, ...): coordinates of space over the range
    log_deviation: _Array  #: (...): logarithm of the standard deviation over that at the centres
    square: _Array  #: (...): square of the local range over the range
    covariates: _Array  #: (q, ...): about their centres

    def part(self, rows: slice) -> _Local:
        """Parameters of some of the sites, or of some of the matrices of a stack."""
        return _Local(self.space[:, rows], self.log_deviation[rows], self.square[rows], self.covariates[:, rows])


@dataclass(frozen=True)
class NonstationaryMatern(AbstractCovariance):
    """Matérn covariance with a standard deviation and a range of each place, both log-linear in covariates.

    ``C(s, t) = sd(s) sd(t) (r(s) r(t) / q)**(d/2) M(|s - t| / sqrt(q))`` with ``q = (r(s)**2 + r(t)**2) / 2``, M of Matérn,
    ``sd(s) = sqrt(variance) exp(z(s)' a)`` and ``r(s) = range exp(z(s)' b)``, where ``z`` are covariates less their centres.

    The last coordinates of a site are the covariates, those of the variance first; the ``d`` before are space.

    Parameters
    ----------
    variance : float
        Variance of the field where all covariates are at their centres, in squared units of the values. Positive.
    range : float
        Range there, in the unit of the coordinates of space. Positive.
    smoothness : float
        ``nu``, the same everywhere.
    variance_slopes, range_slopes : tuple of float
        ``a`` and ``b``: change of the logarithm of the standard deviation, and of the range, over a unit of each covariate.
    variance_covariates, range_covariates : tuple of str
        Names of the covariates of each; the slopes are the parameters ``variance_NAME`` and ``range_NAME``. One that both have is
        one coordinate.
    centres : tuple of float
        Values that are taken off the covariates, in the order of the coordinates; zeros when not given. They change what
        ``variance`` and ``range`` stand for, and no covariance function that can be fitted.
    nugget : float
        Variance of the error of an observation, the same everywhere. Zero or positive.

    Raises
    ------
    ValueError
        A parameter is out of its bounds; there is not one slope for each covariate, or no covariate at all; or a name is there
        twice.

    Notes
    -----
    Paciorek and Schervish (2006), *Spatial modelling using a new class of nonstationary covariance functions*, Environmetrics 17,
    with isotropic local ranges: positive definite in every number of dimensions. Without slopes it is the Matérn covariance.

    Examples
    --------
    >>> model = NonstationaryMatern(
    ...     2.0, 0.3, 1.5, (0.5,), (-1.0,), ("height",), ("height",)
    ... )
    >>> model.parameters
    ('range', 'smoothness', 'variance_height', 'range_height')
    >>> out = np.empty((1, 1))
    >>> model.fill(
    ...     np.array([[0.0], [0.0], [1.0]]),
    ...     np.array([[0.0], [0.0], [1.0]]),
    ...     out,
    ... )
    >>> bool(abs(out[0, 0] - 2.0 * np.exp(1.0)) < 1e-12)
    True
    """

    variance: float
    range: float
    smoothness: float
    variance_slopes: tuple[float, ...]
    range_slopes: tuple[float, ...]
    variance_covariates: tuple[str, ...]
    range_covariates: tuple[str, ...]
    centres: tuple[float, ...] = ()
    nugget: float = 0.0

    __repr__ = model_repr

    def __post_init__(self) -> None:
        check_smoothness_bounds(self.smoothness)
        check_positive(variance=self.variance, range=self.range)
        check_nugget(self.nugget)
        for what, slopes, names in (
            ("variance", self.variance_slopes, self.variance_covariates),
            ("range", self.range_slopes, self.range_covariates),
        ):
            if len(slopes) != len(names) or len(set(names)) < len(names):
                raise ValueError(
                    f"the {what} has {len(slopes)} slopes, and covariates {', '.join(names) or 'none'}: one each, once"
                )
        if not self.covariates:
            raise ValueError("there is no covariate of variance or range; without any, use Matern")
        if not self.centres:
            object.__setattr__(self, "centres", (0.0,) * len(self.covariates))
        if len(self.centres) != len(self.covariates):
            raise ValueError(f"there are {len(self.centres)} centres, but {len(self.covariates)} covariates: {self._named}")
        if not all(map(math.isfinite, (*self.variance_slopes, *self.range_slopes, *self.centres))):
            raise ValueError(
                f"slopes and centres must be finite, but are {self.variance_slopes}, {self.range_slopes}, {self.centres}"
            )

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of the last coordinates of a site: the covariates of the variance, then those of the range alone."""
        return tuple(dict.fromkeys((*self.variance_covariates, *self.range_covariates)))

    @property
    def slopes(self) -> tuple[str, ...]:
        """Names of the parameters that make the covariance function other than stationary."""
        return (*(_VARIANCE + name for name in self.variance_covariates), *(_RANGE + name for name in self.range_covariates))

    @property
    def stationary(self) -> Matern:
        """The Matérn covariance that is left without slopes, of the coordinates of space."""
        return Matern(self.variance, self.range, self.smoothness, self.nugget)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Range, smoothness, then the slopes."""
        return ("range", "smoothness", *self.slopes)

    @property
    def values(self) -> dict[str, float]:
        slopes = dict(zip(self.slopes, (*self.variance_slopes, *self.range_slopes), strict=True))
        return {"range": self.range, "smoothness": self.smoothness, **slopes}

    def scales(self, coordinates: _Array) -> dict[str, Scale]:
        """Logarithms, but for the slopes, which are bounded by how much their covariate varies."""
        d = self._dimension(coordinates.T)
        lengths = {"range": length_scale(coordinates[:, :d]), "smoothness": Scale(*SEARCHED_SMOOTHNESS)}
        return lengths | {name: _slope_scale(coordinates[:, d + place]) for name, place in self._places.items()}

    def canonical(self) -> Self:
        """The same object: each of its parameters has one value only for a function."""
        return self

    def site_variances(self, coordinates: _Array) -> _Array:
        """``variance * exp(2 z' a)`` of each site."""
        return self.variance * np.exp(2.0 * self._local(coordinates.T).log_deviation)

    def local_ranges(self, coordinates: _Array) -> _Array:
        """Range at each site.

        Parameters
        ----------
        coordinates : (n, d + q) array
            Sites with their covariates.

        Returns
        -------
        (n,) array
            ``range * exp(z' b)``, in the unit of the coordinates of space.

        Raises
        ------
        ValueError
            There are no coordinates of space beside the covariates.
        """
        return self.range * np.sqrt(self._local(coordinates.T).square)

    def comparable_sites(self, coordinates: _Array) -> _Array:
        """The places in units of the range: of all neighbours of a site the nearest tell most."""
        return coordinates[:, : self._dimension(coordinates.T)] / self.range

    def with_values(self, **values: float) -> Self:
        check_names(self, values)
        wanted = {**self.values, **values}
        return replace(
            self,
            variance_slopes=tuple(wanted[_VARIANCE + name] for name in self.variance_covariates),
            range_slopes=tuple(wanted[_RANGE + name] for name in self.range_covariates),
            **{name: value for name, value in values.items() if name not in self.slopes},  # type: ignore[arg-type]
        )

    def fill(self, a: _Array, b: _Array, out: _Array) -> None:
        profile, ours, theirs = MaternProfile(self.smoothness), self._local(a), self._local(b)
        for rows, z, scratch in chunks(out, SCRATCH + 1):
            one, other = ours.part(rows), theirs if b.ndim == 2 else theirs.part(rows)
            _distances(one, other, z, scratch)
            profile.correlate(z, scratch[:SCRATCH])
            self._weigh(one, other, z, scratch)

    def _fill_parameter(self, name: str, a: _Array, b: _Array, out: _Array) -> None:
        """The derivative of M, or by a local standard deviation or range that of the factors before it, too."""
        profile, ours, theirs = MaternProfile(self.smoothness), self._local(a), self._local(b)
        for rows, z, scratch in chunks(out, SCRATCH + 2):
            one, other = ours.part(rows), theirs if b.ndim == 2 else theirs.part(rows)
            _distances(one, other, z, scratch)
            if name == "smoothness":
                profile.differentiate(name, z, scratch[:SCRATCH])
            elif name == "range":
                profile.slope(z, scratch[:SCRATCH])
                z *= -1.0 / self.range
            elif name.startswith(_VARIANCE):
                # (z_i + z_j) M
                profile.correlate(z, scratch[:SCRATCH])
                place = self._places[name]
                np.add(one.covariates[place][..., :, None], other.covariates[place][..., None, :], out=scratch[0])
                z *= scratch[0]
            else:
                _by_range(profile, one, other, z, scratch, place=self._places[name])
            self._weigh(one, other, z, scratch)

    def device_form(self, coordinates: _Array) -> DeviceForm:
        """Places over the range; after them the factor of each site, half the square of its range, and the table."""
        table = MaternProfile(self.smoothness).table.arguments(self.variance)
        return DeviceForm("nonstationary", self._points(coordinates), self.site_variances(coordinates), table)

    def derivative_form(self, name: str, coordinates: _Array) -> DeviceForm:
        """The same with another table; by a slope, the covariate is one more coordinate."""
        profile, points = MaternProfile(self.smoothness), self._points(coordinates)
        none = np.zeros(len(coordinates))
        if name == "smoothness":
            return DeviceForm("nonstationary", points, none, profile.derivative_table(name).arguments(self.variance))
        if name == "range":
            table = profile.derivative_table(None).arguments(-self.variance / self.range)
            return DeviceForm("nonstationary", points, none, table)
        own = self._local(coordinates.T).covariates[self._places[name]]
        points, table = np.column_stack([points, own]), profile.table.arguments(self.variance)
        if name.startswith(_VARIANCE):
            return DeviceForm("nonstationary_by_variance", points, 2.0 * own * self.site_variances(coordinates), table)
        slope = profile.derivative_table(None).arguments(self.variance)
        return DeviceForm("nonstationary_by_range", points, none, (*table, *slope))

    def _points(self, coordinates: _Array) -> _Array:
        """Places over the range, then ``sd r**(d/2)`` and ``r**2 / 2`` of each site relative to those at the centres."""
        own = self._local(coordinates.T)
        factor = np.exp(own.log_deviation) * own.square ** (0.25 * len(own.space))
        return np.column_stack([own.space.T, factor, 0.5 * own.square])

    def _local(self, sites: _Array) -> _Local:
        """Local parameters of sites, by axis."""
        d = self._dimension(sites)
        centred = sites[d:] - np.reshape(self.centres, (-1,) + (1,) * (sites.ndim - 1))
        log_deviation, log_range = np.zeros(sites.shape[1:]), np.zeros(sites.shape[1:])
        for name, value in zip(self.slopes, (*self.variance_slopes, *self.range_slopes), strict=True):
            where = log_deviation if name.startswith(_VARIANCE) else log_range
            where += value * centred[self._places[name]]
        return _Local(sites[:d] / self.range, log_deviation, np.exp(2.0 * log_range), centred)

    def _weigh(self, one: _Local, other: _Local, z: _Array, scratch: _Array) -> None:
        """Multiply by ``sd sd' (r r' / q)**(d/2)``, where ``scratch[SCRATCH]`` is q over the squared range."""
        d, share = len(one.space), scratch[0]
        np.multiply(one.square[..., :, None], other.square[..., None, :], out=share)
        np.sqrt(share, out=share)
        share /= scratch[SCRATCH]
        if d != 2:
            np.power(share, 0.5 * d, out=share)
        z *= share
        z *= self.variance * np.exp(one.log_deviation)[..., :, None]
        z *= np.exp(other.log_deviation)[..., None, :]

    @property
    def _places(self) -> dict[str, int]:
        """Place of the covariate of each slope among the covariates."""
        names = (*self.variance_covariates, *self.range_covariates)
        return {slope: self.covariates.index(name) for slope, name in zip(self.slopes, names, strict=True)}

    @property
    def _named(self) -> str:
        """The covariates, for messages."""
        return ", ".join(self.covariates)

    def _dimension(self, sites: _Array) -> int:
        """Number of coordinates of space, of sites by axis."""
        d = len(sites) - len(self.covariates)
        if d < 1:
            raise ValueError(
                f"sites have {len(sites)} coordinates, but NonstationaryMatern needs those of space, and after them "
                f"the covariates {self._named}"
            )
        return d


def _distances(one: _Local, other: _Local, z: _Array, scratch: _Array) -> None:
    """``scratch[SCRATCH] = q`` over the squared range, and ``z = |s - t| / sqrt(q)``."""
    square = scratch[SCRATCH]
    np.add(one.square[..., :, None], other.square[..., None, :], out=square)
    square *= 0.5
    euclidean(one.space, other.space, z, scratch[0])
    np.sqrt(square, out=scratch[0])
    z /= scratch[0]


def _by_range(profile: MaternProfile, one: _Local, other: _Local, z: _Array, scratch: _Array, *, place: int) -> None:
    """Replace z by the derivative by a slope ``b`` of the range, without the weights.

    With ``w = r**2 / (2 q)`` of each site ``d/2 (z_i + z_j - 2 p) M - p z M'`` where ``p = w_i z_i + w_j z_j``.
    """
    slope, p, square = scratch[SCRATCH + 1], scratch[1], scratch[SCRATCH]
    slope[...] = z
    profile.slope(slope, scratch[:SCRATCH])
    profile.correlate(z, scratch[:SCRATCH])
    mine, theirs = one.covariates[place], other.covariates[place]
    np.add((one.square * mine)[..., :, None], (other.square * theirs)[..., None, :], out=p)
    p /= square
    p *= 0.5
    slope *= p
    # d/2 (z_i + z_j) - d p
    np.add(mine[..., :, None], theirs[..., None, :], out=scratch[0])
    scratch[0] *= 0.5
    scratch[0] -= p
    scratch[0] *= len(one.space)
    z *= scratch[0]
    z -= slope


def _slope_scale(covariate: _Array) -> Scale:
    """The scale of a slope; without room where the covariate is the same everywhere."""
    extent, spread = float(np.ptp(covariate)), float(np.std(covariate))
    if extent == 0.0:
        return Scale(0.0, 0.0, is_logarithmic=False)
    largest = _LARGEST_CHANGE / extent
    return Scale(-largest, largest, is_logarithmic=False, step=_SLOPE_STEP / spread)
