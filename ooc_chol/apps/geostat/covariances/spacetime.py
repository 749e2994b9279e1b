"""Covariance functions of space and time: products, and Gneiting's class, which is none; the last coordinate is the time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.matern import MaternProfile
from ooc_chol.apps.geostat.covariances.matern_exact import check_smoothness_bounds
from ooc_chol.apps.geostat.covariances.model import (
    AbstractCovariance,
    AbstractCovarianceOfFields,
    DeviceForm,
    check_names,
    check_nugget,
    check_positive,
    model_repr,
)
from ooc_chol.apps.geostat.covariances.radial import (
    AbstractIsotropicCovariance,
    AbstractRadialCovariance,
    chunks,
    differences,
    euclidean,
    of_rows,
)
from ooc_chol.apps.geostat.covariances.radial_table import SCRATCH
from ooc_chol.apps.geostat.covariances.scales import NEAR_HARD_BOUND, SEARCHED_SMOOTHNESS, Scale, length_scale

#: Before the names of the parameters of the time part.
_TIME = "time_"

#: Bounds and steps of a search for the parameters of Gneiting's class that have no unit.
_LEAST_TIME_POWER = 0.05
_TIME_DECAY_BOUNDS = (0.01, 100.0)
_INTERACTION_STEP = 0.25

#: Stands for a time difference of zero where its logarithm is multiplied by zero.
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class SeparableSpaceTime(AbstractCovariance):
    """A product ``C(h, u) = C_space(h) * rho_time(u)`` of space and time; the last coordinate is the time.

    Parameters
    ----------
    space : AbstractRadialCovariance
        Matérn or power exponential, isotropic or not, of all coordinates but the last; its variance and nugget are those of the
        product.
    time : AbstractIsotropicCovariance
        Covariance of the last coordinate, with variance 1 and no nugget. Its parameters are called ``time_range`` and so on.

    Raises
    ------
    ValueError
        The time part has another variance, or a nugget.

    Examples
    --------
    >>> from ooc_chol.apps.geostat.covariances.matern import Matern
    >>> model = SeparableSpaceTime(
    ...     Matern(2.0, 10.0, 1.5), Matern(1.0, 3.0, 0.5)
    ... )
    >>> model.parameters
    ('range', 'smoothness', 'time_range', 'time_smoothness')
    """

    space: AbstractRadialCovariance
    time: AbstractIsotropicCovariance

    __repr__ = model_repr

    def __post_init__(self) -> None:
        if self.time.variance != 1.0 or self.time.nugget != 0.0:
            raise ValueError(
                f"the time part has variance {self.time.variance} and nugget {self.time.nugget}, but must have 1 and 0: give "
                "them to the space part"
            )

    @property
    def variance(self) -> float:
        """Variance of the field."""
        return self.space.variance

    @property
    def nugget(self) -> float:
        """Variance of the error of an observation."""
        return self.space.nugget

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those of the space part, then those of the time part with ``time_`` before them."""
        return (*self.space.parameters, *(_TIME + name for name in self.time.parameters))

    @property
    def values(self) -> dict[str, float]:
        return {**self.space.values, **{_TIME + name: value for name, value in self.time.values.items()}}

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """Those of the space part at the places, and of the time part at the times."""
        _check_time(coordinates.T)
        of_time = self.time.scales(coordinates[:, -1:])
        return {**self.space.scales(coordinates[:, :-1]), **{_TIME + name: scale for name, scale in of_time.items()}}

    def canonical(self) -> Self:
        """A copy with both parts in their usual intervals."""
        return replace(self, space=self.space.canonical(), time=self.time.canonical())

    def site_variances(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(len(coordinates), self.variance)

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Comparable sites of both parts side by side."""
        _check_time(coordinates.T)
        space, time = self.space.comparable_sites(coordinates[:, :-1]), self.time.comparable_sites(coordinates[:, -1:])
        return np.column_stack([space, time])

    def with_values(self, **values: float) -> Self:
        check_names(self, values)
        of_time = {name: values.pop(_TIME + name) for name in self.time.parameters if _TIME + name in values}
        return replace(self, space=self.space.with_values(**values), time=self.time.with_values(**of_time))

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write the product, in chunks."""
        _check_time(a)
        for rows, chunk, scratch in chunks(out, 1):
            own = of_rows(b, rows)
            self.space.fill(a[:-1, rows], own[:-1], chunk)
            self.time.fill(a[-1:, rows], own[-1:], scratch[0])
            chunk *= scratch[0]

    def _fill_parameter(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """The derivative of one factor times the other."""
        _check_time(a)
        for rows, chunk, scratch in chunks(out, 1):
            own = of_rows(b, rows)
            if name in self.space.parameters:
                self.space.fill_derivative(name, a[:-1, rows], own[:-1], chunk)
                self.time.fill(a[-1:, rows], own[-1:], scratch[0])
            else:
                self.space.fill(a[:-1, rows], own[:-1], chunk)
                self.time.fill_derivative(name.removeprefix(_TIME), a[-1:, rows], own[-1:], scratch[0])
            chunk *= scratch[0]

    def derivative_form(self, name: str, coordinates: NDArray[np.float64]) -> DeviceForm:
        """The derivative of one part beside the other."""
        _check_time(coordinates.T)
        places, times = coordinates[:, :-1], coordinates[:, -1:]
        if name in self.space.parameters:
            return _product(self.space.derivative_form(name, places), self.time.device_form(times))
        return _product(self.space.device_form(places), self.time.derivative_form(name.removeprefix(_TIME), times))

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Points of the space part and times, and both tables."""
        _check_time(coordinates.T)
        return _product(self.space.device_form(coordinates[:, :-1]), self.time.device_form(coordinates[:, -1:]))


@dataclass(frozen=True)
class GneitingMatern(AbstractCovarianceOfFields):
    """Gneiting's nonseparable class: ``C(h, u) = variance w**-(delta + beta d/2) M(h / (range w**(beta/2)))``, M of Matérn.

    Here ``w = 1 + (|u| / time_range)**(2 alpha)``, d is the number of space coordinates, and the last coordinate is the time.

    Parameters
    ----------
    variance : float
        Variance of the field. Positive.
    range, smoothness : float
        Parameters of the Matérn function of space, at one time.
    time_range : float
        Time in which the correlation at one place falls to ``2**-(delta + beta d/2)``. Positive.
    time_power : float
        ``alpha``, more than 0 and up to 1: how smooth the field is in time.
    time_decay : float
        ``delta``, positive: at large time lags and interaction 0 the correlation falls as ``u**(-2 alpha delta)``.
    interaction : float
        ``beta``, from 0 (a product of space and time) to 1: how much the range in space grows with the time lag.
    nugget : float
        Variance of the error of an observation. Zero or positive.

    Raises
    ------
    ValueError
        A parameter is out of its bounds.

    Notes
    -----
    Gneiting (2002), *Nonseparable, stationary covariance functions for space-time data*, JASA 97, theorem 2 with the completely
    monotone Matérn function and ``psi(t) = (1 + a t**alpha)**beta``, times a function of time alone as in his equation 15. It is
    positive definite for every number of space coordinates.
    """

    variance: float
    range: float
    smoothness: float
    time_range: float
    time_power: float
    time_decay: float
    interaction: float
    nugget: float = 0.0

    __repr__ = model_repr

    def __post_init__(self) -> None:
        check_smoothness_bounds(self.smoothness)
        check_positive(variance=self.variance, range=self.range, time_range=self.time_range, time_decay=self.time_decay)
        if not 0.0 < self.time_power <= 1.0:
            raise ValueError(f"time_power is {self.time_power}, but it must be more than 0 and up to 1")
        if not 0.0 <= self.interaction <= 1.0:
            raise ValueError(f"interaction is {self.interaction}, but it must lie within 0 and 1")
        check_nugget(self.nugget)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Space, then time, then their interaction."""
        return ("range", "smoothness", "time_range", "time_power", "time_decay", "interaction")

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """Logarithms, but for the interaction; lengths by the extent in space and in time."""
        _check_time(coordinates.T)
        return {
            "range": length_scale(coordinates[:, :-1]),
            "smoothness": Scale(*SEARCHED_SMOOTHNESS),
            "time_range": length_scale(coordinates[:, -1:]),
            "time_power": Scale(_LEAST_TIME_POWER, 1.0, near=NEAR_HARD_BOUND),
            "time_decay": Scale(*_TIME_DECAY_BOUNDS),
            "interaction": Scale(0.0, 1.0, is_logarithmic=False, step=_INTERACTION_STEP, near=NEAR_HARD_BOUND),
        }

    def site_variances(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(len(coordinates), self.variance)

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Places and times, each in units of its range."""
        _check_time(coordinates.T)
        return np.column_stack([coordinates[:, :-1] / self.range, coordinates[:, -1] / self.time_range])

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        _check_time(a)
        for rows, z, scratch in chunks(out, SCRATCH + 1):
            log_w, own = scratch[-1], of_rows(b, rows)
            self._distances(a[:, rows], own, z, scratch)
            MaternProfile(self.smoothness).correlate(z, scratch[:SCRATCH])
            self._weigh(z, log_w, len(a) - 1)

    def _fill_parameter(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """The derivative, of space by the profile, of time by ``M`` and ``z dM/dz`` together."""
        _check_time(a)
        profile = MaternProfile(self.smoothness)
        for rows, z, scratch in chunks(out, SCRATCH + 2):
            log_w, own = scratch[-1], of_rows(b, rows)
            self._distances(a[:, rows], own, z, scratch)
            if name == "smoothness":
                profile.differentiate(name, z, scratch[:SCRATCH])
            elif name == "range":
                profile.slope(z, scratch[:SCRATCH])
                z *= -1.0 / self.range
            else:
                self._time_derivative(name, z, scratch, len(a) - 1)
                if name == "time_power":
                    z *= self._log_lag(a[:, rows], own, scratch[0])
            self._weigh(z, log_w, len(a) - 1)

    def derivative_form(self, name: str, coordinates: NDArray[np.float64]) -> DeviceForm:
        """As :meth:`device_form`, with the table of a derivative; by what is in w times a weight of w."""
        form, profile = self.device_form(coordinates), MaternProfile(self.smoothness)
        zeros = np.zeros(len(coordinates))
        if name in ("range", "smoothness"):
            table = profile.derivative_table(None if name == "range" else name)
            factor = -self.variance / self.range if name == "range" else self.variance
            own = (form.arguments[0], *table.arguments(factor), *form.arguments[4:])
            return replace(form, variances=zeros, arguments=own)
        of_value, of_slope, kind = self._time_weights(name, coordinates.shape[1] - 1)
        table = profile.table.combined(of_value, profile.derivative_table(None), of_slope)
        own = (form.arguments[0], *table.arguments(self.variance), *form.arguments[4:], np.int32(kind))
        return replace(form, kernel="gneiting_by_time", variances=zeros, arguments=own)

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """The sites themselves, the table of the Matérn function, and the constants of time."""
        _check_time(coordinates.T)
        decay = self.time_decay + 0.5 * self.interaction * (coordinates.shape[1] - 1)
        time = float(1.0 / self.time_range), float(2.0 * self.time_power), float(decay), float(0.5 * self.interaction)
        table = MaternProfile(self.smoothness).table.arguments(self.variance)
        variances = np.full(len(coordinates), self.variance)
        return DeviceForm("gneiting", coordinates, variances, (float(1.0 / self.range), *table, *time))

    def _time_weights(self, name: str, d: int) -> tuple[float, float, int]:
        """Weights of M and of ``z dM/dz`` in :meth:`_time_derivative`, and the number of the kernel's weight for them."""
        if name == "time_decay":
            return -1.0, 0.0, 0
        if name == "interaction":
            return -0.5 * d, -0.5, 0
        factor = -2.0 * self.time_power / self.time_range if name == "time_range" else 2.0
        decay, shrink = self.time_decay + 0.5 * self.interaction * d, 0.5 * self.interaction
        return decay * factor, shrink * factor, 1 if name == "time_range" else 2

    def _time_derivative(self, name: str, z: NDArray[np.float64], scratch: NDArray[np.float64], d: int) -> None:
        """Replace ``z`` by the derivative without ``variance w**-(delta + beta d/2)``, and in alpha without :meth:`_log_lag`."""
        log_w, slope = scratch[-1], scratch[-2]
        profile = MaternProfile(self.smoothness)
        slope[...] = z
        profile.correlate(z, scratch[:SCRATCH])
        if name == "time_decay":
            # -log(w) M
            z *= log_w
            z *= -1.0
            return
        profile.slope(slope, scratch[:SCRATCH])
        if name == "interaction":
            # -log(w) / 2 (d M + slope)
            z *= d
            z += slope
            z *= log_w
            z *= -0.5
            return
        # d/dlog(w) = -(delta + beta d/2) M - beta/2 slope;  dlog(w)/dx = (1 - 1/w) dlog(w - 1)/dx
        z *= self.time_decay + 0.5 * self.interaction * d
        slope *= 0.5 * self.interaction
        z += slope
        np.expm1(-log_w, out=slope)
        z *= slope
        z *= -2.0 * self.time_power / self.time_range if name == "time_range" else 2.0

    def _distances(
        self, a: NDArray[np.float64], b: NDArray[np.float64], z: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> None:
        """``scratch[-1] = log(w)`` and ``z = h / (range w**(beta/2))``."""
        log_w, spare = scratch[-1], scratch[0]
        differences(a[-1], b[-1], log_w)
        np.abs(log_w, out=log_w)
        log_w *= 1.0 / self.time_range
        np.power(log_w, 2.0 * self.time_power, out=log_w)
        np.log1p(log_w, out=log_w)
        euclidean(a[:-1], b[:-1], z, spare)
        np.multiply(log_w, -0.5 * self.interaction, out=spare)
        np.exp(spare, out=spare)
        z *= spare
        z *= 1.0 / self.range

    def _log_lag(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> NDArray[np.float64]:
        """``log(|u| / time_range)``, finite where u is 0."""
        differences(a[-1], b[-1], out)
        np.abs(out, out=out)
        out *= 1.0 / self.time_range
        np.maximum(out, _TINY, out=out)
        return np.log(out, out=out)

    def _weigh(self, z: NDArray[np.float64], log_w: NDArray[np.float64], d: int) -> None:
        """``z *= variance * w**-(delta + beta d/2)``; ``log_w`` is overwritten."""
        log_w *= -(self.time_decay + 0.5 * self.interaction * d)
        np.exp(log_w, out=log_w)
        z *= log_w
        z *= self.variance


def _product(space: DeviceForm, time: DeviceForm) -> DeviceForm:
    """The product of a function of space and one of time, of which one may be a derivative."""
    points = np.column_stack([space.points, time.points])
    variances, arguments = space.variances * time.variances, (*space.arguments, *time.arguments)
    return DeviceForm(f"separable_{space.kernel}", points, variances, arguments)


def _check_time(a: NDArray[np.float64]) -> None:
    """Raise ``ValueError`` without coordinates of space and time."""
    if len(a) < 2:
        raise ValueError(f"a space-time covariance needs coordinates of space and then the time, but sites have {len(a)} in all")
