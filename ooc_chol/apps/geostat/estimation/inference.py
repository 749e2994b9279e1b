"""How well parameters are determined: standard errors and confidence intervals from the expected information."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.azimuth import is_angle
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.model import check_model
from ooc_chol.apps.geostat.covariances.nested import Nested, effective_range
from ooc_chol.apps.geostat.covariances.reach import reach
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.estimation.certified_loglik import bound_text
from ooc_chol.apps.geostat.estimation.estimates import Row, as_read, estimates_drawing, estimates_text
from ooc_chol.apps.geostat.estimation.gradient import (
    INFORMATION_LIMIT,
    PROBES,
    LikelihoodGradient,
    TraceSums,
    check_trace_sums,
    score,
)
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of, evaluated
from ooc_chol.apps.geostat.estimation.value_unit import value_unit
from ooc_chol.apps.geostat.factorization import FactorSettings, chosen_settings

#: Standard deviation of a combination of logarithms, of powers of length one, above which the likelihood counts as flat along it:
#: a 95 % interval of a factor of 19 up and down.
FLAT_DEVIATION = 1.5

#: Standard errors in mixed precision that may be off by more than this share of them are computed in FP64.
_MOST_OFF = 0.05

#: Step in the logarithm of a parameter for the derivative of a function of the model.
_STEP = 1e-4


#: A positive number that follows from a model.
_Quantity = Callable[[Any], Any]


@dataclass(frozen=True)
class Estimated:
    """One quantity with its uncertainty.

    Parameters
    ----------
    value : float
        Estimate of the parameter, in its own unit.
    standard_error : float
        In its own unit: of a positive quantity the estimate times the standard error of its logarithm (delta method).
    lower, upper : float
        Ends of the confidence interval, which is symmetric for the logarithm; of an angle, a correlation or an interaction, for
        the quantity itself, and may then pass what it can be.
    """

    value: float
    standard_error: float
    lower: float
    upper: float

    __repr__ = tb.brief_repr


@dataclass(frozen=True, eq=False)
class Inference:
    """Uncertainty of the covariance parameters at an estimate.

    Parameters
    ----------
    names : tuple of str
        The ``k`` parameters that were estimated.
    parameters : mapping of str to Estimated
        Each of them.
    effective_range : Estimated or None
        Distance at which the correlation is 0.05; None unless the model is a Matérn model or a sum of isotropic ones.
    microergodic : Estimated or None
        ``variance * range**(-2 nu)``, which data in a bounded region determine where variance and range alone they do not; None
        unless the model is a Matérn model, and where that is no number of float64.
    correlation : (k, k) array
        Correlation of the logarithms of the estimates (of an angle, a correlation or an interaction, of the estimate).
    condition : float
        Condition number of the information of these.
    level : float
        Probability that an interval holds its parameter.
    probes : int
        Probes behind the information; 0 when it is exact.
    relative_error : float
        Largest Monte-Carlo standard error of an entry of the information, relative to the diagonal; 0 when exact.
    warnings : tuple of str
        Flat directions.
    ellipse : mapping of str to Estimated
        For a geometrically anisotropic model: ``range_across``, and where it is a Matérn one ``effective_range_along`` and
        ``effective_range_across``, along and across the main axis.
    structures : mapping of str to Estimated
        For nested structures, the variance and the effective range of each: ``variance_1``, ``effective_range_1`` and so on.
    most_off : float or None
        Share of themselves by which the standard errors are off those of exact arithmetic at most, as the factor in mixed
        precision certifies; None where they are FP64's.
    """

    names: tuple[str, ...]
    parameters: Mapping[str, Estimated]
    effective_range: Estimated | None
    microergodic: Estimated | None
    correlation: NDArray[np.float64]
    condition: float
    level: float
    probes: int
    relative_error: float
    warnings: tuple[str, ...]
    ellipse: Mapping[str, Estimated] = field(default_factory=dict)
    structures: Mapping[str, Estimated] = field(default_factory=dict)
    most_off: float | None = None

    __repr__ = tb.brief_repr

    def __str__(self) -> str:
        return self.text({})

    def text(self, units: Mapping[str, str]) -> str:
        """Every estimate with its interval, an angle as its azimuth in degrees.

        Parameters
        ----------
        units : mapping of str to str
            Units of parameters, by name; that of ``"range"`` is one of the effective range too.

        Returns
        -------
        str
            A title, a line for each quantity, and the warnings.
        """
        return estimates_text(self._title, self._rows(units), self.warnings)

    def _repr_html_(self) -> str:
        """HTML for notebooks: every estimate with its interval, and the text."""
        return tb.notebook_html(str(self), estimates_drawing(self._title, self._rows({})))

    @property
    def _title(self) -> str:
        """Title: meaning of the numbers, and how the information was found."""
        how = f"{self.probes} probes, relative error {self.relative_error:.1g}" if self.probes else "exact"
        known = "" if self.most_off is None else f"; in mixed precision, off by at most {bound_text(100 * self.most_off)} %"
        return f"standard errors and {100 * self.level:g} % intervals (expected information, {how}{known})"

    def _rows(self, units: Mapping[str, str]) -> list[Row]:
        """The parameters, and what follows from them."""
        more = {"effective range": self.effective_range, "variance / range**(2 nu)": self.microergodic}
        more |= {name.replace("_", " "): value for name, value in self.ellipse.items()}
        found = {**self.parameters, **self.structures, **{name: value for name, value in more.items() if value is not None}}
        return [
            as_read(Row(name, one.value, one.standard_error, one.lower, one.upper, unit=_unit_of(name, units)))
            for name, one in found.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; quantities that the data do not determine are null."""
        # an angle under a name that says its unit
        written = {name: f"{name}_radians" if is_angle(name) else name for name in self.parameters}
        content: dict[str, Any] = {written[name]: _plain(value) for name, value in self.parameters.items()}
        content |= {name: _plain(value) for name, value in self.structures.items()}
        more = {"effective_range": self.effective_range, "microergodic": self.microergodic, **self.ellipse}
        content |= {name: _plain(value) for name, value in more.items() if value is not None}
        is_finite = bool(np.isfinite(self.correlation).all())
        return {
            "estimates": content,
            "correlation": self.correlation.tolist() if is_finite else None,
            "condition": self.condition if math.isfinite(self.condition) else None,
            "level": self.level,
            "probes": self.probes,
            "relative_error": self.relative_error,
            "most_off": self.most_off,
            "warnings": list(self.warnings),
        }


def infer(
    observations: Observations,
    model: AbstractCovariance,
    *,
    estimated: Sequence[str] = ("range", "variance", "nugget"),
    reml: bool = False,
    level: float = 0.95,
    probes: int | None = None,
    settings: FactorSettings | None = None,
) -> Inference:
    """Standard errors and confidence intervals from the expected information at an estimate.

    Parameters
    ----------
    observations : Observations
        The data that ``model`` was fitted to.
    model : AbstractCovariance
        Fitted covariance function, at which the information is taken.
    estimated : sequence of str
        The parameters that were estimated, ``FitResult.estimated``: the others count as known.
    reml : bool
        True if the restricted likelihood was maximised.
    level : float
        Probability that an interval holds its parameter, between 0 and 1.
    probes : int, optional
        Estimate the information with so many random probes, at least 2, or exactly with 0; when not given, only above 3,000
        observations, with 256.
    settings : FactorSettings, optional
        Tile size, devices, memory budgets and store of the factorization. With a ``precision_threshold`` its factor certifies the
        standard errors (``most_off``); one that leaves more than 5 % of them open is replaced by one in FP64, with a warning.

    Returns
    -------
    Inference
        Errors of each parameter and, for a Matérn model, of the effective range and of ``variance * range**(-2 nu)``; of nested
        structures of variance and effective range of each, too.

    Raises
    ------
    ValueError
        ``level`` is not between 0 and 1, there are too few probes, or a name is no parameter or that of one that is zero.

    Notes
    -----
    With ``A = L (I + G) L.T`` of the correlation matrix A, ``||G||_F <= g``, the information lies between that of ``L L.T`` over
    ``(1 + g)**2`` and over ``(1 - g)**2``: ``tr(P D P D)`` grows with the semidefinite P. So each standard error is off by at
    most the share g of itself.

    One factorization, and ``(2 + 3 k) n**3`` flops or, with probes, ``(2 + 3 k) n**2`` for each. The intervals are those of
    large samples; where the likelihood is not quadratic in the logarithms, see :func:`ooc_chol.apps.geostat.profile_likelihood`.
    """
    check_is_observations(observations)
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
    names = checked_names(model, estimated)
    shape = tuple(name for name in names if name not in ("variance", "nugget"))
    count = probes if probes is not None else (0 if observations.n <= INFORMATION_LIMIT else 4 * PROBES)
    if count:
        check_trace_sums("probes", count)
    how = chosen_settings(settings)
    along = (count, 0) if count else None
    unit = value_unit(observations)
    data, scaled = unit.observations(observations), unit.model(model)

    def derived_by(how: FactorSettings) -> tuple[LikelihoodGradient | None, float | None]:
        """The information, and what share of a standard error is open; None for the first where that is too much."""
        with (
            _certified_pivots(how.precision_threshold is not None),
            evaluated(data, correlation_of(scaled), variance=scaled.variance, reml=reml, settings=how, probes=along) as found,
        ):
            gap = None if how.precision_threshold is None else found.factor.logdet(certified=True).gap
            if gap is not None and not gap <= _MOST_OFF:
                return None, gap
            sums: TraceSums = "probes" if count else "exact"
            return score(found, shape, trace_sums=sums, information=max(1, observations.n), probes=max(count, 2)), gap

    notes: tuple[str, ...] = ()
    derived, most_off = derived_by(how)
    if derived is None:
        notes = (f"in mixed precision standard errors are known to {100 * (most_off or 0.0):.2g} % only: these are FP64's",)
        derived, most_off = derived_by(how.in_fp64())
    assert derived is not None and derived.information is not None and derived.information_error is not None
    # by logarithms of those parameters that were estimated, or by themselves
    kept = [derived.names.index(name) for name in names]
    linear = _linear(model, observations)
    values = np.array([1.0 if name in linear else _values(scaled)[name] for name in names])
    scale = np.outer(values, values)
    information = derived.information[np.ix_(kept, kept)] * scale
    errors = derived.information_error[np.ix_(kept, kept)] * scale
    found = _inference(_Estimate(model, names, linear), information, level, count, _relative(errors, information))
    return replace(found, most_off=most_off, warnings=(*notes, *found.warnings))


@contextmanager
def _certified_pivots(is_certified: bool) -> Iterator[None]:
    """Without a word of pivots that rounding changes, where the factor certifies what follows."""
    with warnings.catch_warnings():
        if is_certified:
            warnings.simplefilter("ignore", oc.errors.PrecisionWarning)
        yield


@dataclass(frozen=True)
class _Estimate:
    """A model, those of its parameters that were estimated, and which of these have intervals of their own, not by logarithms."""

    model: AbstractCovariance
    names: tuple[str, ...]
    linear: frozenset[str]


def _inference(
    estimate: _Estimate, information: NDArray[np.float64], level: float, probes: int, relative_error: float
) -> Inference:
    """From the information of the logarithms to everything that follows."""
    model, names = estimate.model, estimate.names
    covariance = _inverse(information)
    is_known = np.isfinite(np.diag(covariance))
    eigenvalues, vectors = np.linalg.eigh(information)
    condition = math.inf if not is_known.all() or eigenvalues[0] <= 0 else float(eigenvalues[-1] / eigenvalues[0])
    deviations = np.sqrt(np.diag(covariance))
    quantile = float(ndtri(0.5 + level / 2))

    def estimated(value: float, slope: NDArray[np.float64]) -> Estimated:
        known = slope[is_known]
        deviation = (
            math.inf if slope[~is_known].any() else math.sqrt(float(known @ covariance[np.ix_(is_known, is_known)] @ known))
        )
        with np.errstate(over="ignore"):
            factor = float(np.exp(quantile * deviation))
        return Estimated(value, value * deviation, value / factor, value * factor)

    def parameter(k: int, name: str) -> Estimated:
        value = _values(model)[name]
        if name not in estimate.linear:
            return estimated(value, np.eye(len(names))[k])
        deviation = float(deviations[k])
        return Estimated(value, deviation, value - quantile * deviation, value + quantile * deviation)

    def derived(quantity: _Quantity) -> Estimated:
        return estimated(quantity(model), _log_slope(model, names, quantity))

    length = product = None
    if isinstance(model, Matern):
        value, nu = microergodic(model), model.smoothness
        slopes = {"variance": 1.0, "range": -2.0 * nu, "smoothness": -2.0 * nu * math.log(model.range)}
        if np.finfo(np.float64).tiny <= value < math.inf:
            product = estimated(value, np.array([slopes.get(name, 0.0) for name in names]))
    if isinstance(model, Matern | Nested) and effective_range(model) is not None:
        length = derived(effective_range)
    with np.errstate(invalid="ignore"):
        correlation = covariance / np.outer(deviations, deviations)
    return Inference(
        names=names,
        parameters={name: parameter(k, name) for k, name in enumerate(names)},
        effective_range=length,
        microergodic=product,
        correlation=correlation,
        condition=condition,
        level=level,
        probes=probes,
        relative_error=relative_error,
        warnings=_flat_direction(estimate, math.sqrt(condition / eigenvalues[-1]), vectors[:, 0]),
        ellipse={name: derived(quantity) for name, quantity in _ellipse(model).items()},
        structures={name: derived(quantity) for name, quantity in _of_structures(model).items()},
    )


def _ellipse(model: AbstractCovariance) -> dict[str, _Quantity]:
    """Lengths of a geometrically anisotropic model that are no parameters of it."""
    if not isinstance(model, GeometricAnisotropy):
        return {}
    found: dict[str, _Quantity] = {"range_across": lambda m: m.base.range * m.ratio}
    if isinstance(model.base, Matern):
        found["effective_range_along"] = lambda m: m.base.effective_range
        found["effective_range_across"] = lambda m: m.base.effective_range * m.ratio
    return found


def _of_structures(model: AbstractCovariance) -> dict[str, _Quantity]:
    """Variance and effective range of each nested structure, as functions of the model."""
    found: dict[str, _Quantity] = {}
    for k in range(len(model.components) if isinstance(model, Nested) else 0):
        found[f"variance_{k + 1}"] = partial(_variance_of, k)
        found[f"effective_range_{k + 1}"] = partial(_reach_of, k)
    return found


def _variance_of(k: int, model: Nested) -> float:
    """Variance of one structure."""
    return model.components[k].variance


def _reach_of(k: int, model: Nested) -> float:
    """Effective range of one structure."""
    return reach(model.components[k])


def microergodic(model: Matern) -> float:
    """``variance * range**(-2 nu)``: two models of one smoothness that agree in it cannot be told apart in a bounded region.

    Parameters
    ----------
    model : Matern
        Matérn covariance with its parameters.

    Returns
    -------
    float
        In squared units of the values over the unit of the coordinates to the power ``2 nu`` (Zhang 2004); infinity or zero
        beyond the numbers of float64.
    """
    try:
        return float(model.variance * model.range ** (-2.0 * model.smoothness))
    except OverflowError:
        return math.inf


def checked_names(model: AbstractCovariance, estimated: Sequence[str]) -> tuple[str, ...]:
    """The names in a fixed order."""
    check_model(model)
    known = tuple(_values(model))
    unknown = [name for name in estimated if name not in known]
    if unknown:
        raise ValueError(f"there is no parameter {unknown[0]!r}; there are {', '.join(known)}")
    names = tuple(name for name in known if name in estimated)
    if "variance" not in names:
        raise ValueError("the variance is always estimated: name it too")
    if "nugget" in names and model.nugget == 0.0:
        raise ValueError("the nugget is zero, which has no logarithm; leave it out of what was estimated")
    return names


def _log_slope(model: AbstractCovariance, names: tuple[str, ...], quantity: _Quantity) -> NDArray[np.float64]:
    """Derivatives of the logarithm of a quantity by the logarithms of the parameters.

    By differences of second order towards smaller values, and of a parameter at its least towards larger ones.
    """

    def moved(name: str, steps: int) -> AbstractCovariance:
        return model.with_values(**{name: _values(model)[name] * math.exp(steps * _STEP)})

    def slope(name: str) -> float:
        try:
            moved(name, -2)
        except ValueError:
            way = 1
        else:
            way = -1
        start, near, far = (math.log(quantity(moved(name, way * steps))) for steps in range(3))
        return way * (4 * (near - start) - (far - start)) / (2 * _STEP)

    return np.array([slope(name) for name in names])


def _inverse(information: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse, infinite where there is none.

    Scaled to a diagonal of ones first: a nugget at its floor, of which the data say next to nothing, hides nothing of the others.
    Nor does a parameter that nothing depends on, as the azimuth of a circle: its variance alone is infinite.
    """
    is_told = information.any(axis=0)
    told, found = np.ix_(is_told, is_told), np.diag(np.where(is_told, 0.0, np.inf))
    diagonal = np.diag(information)[is_told]
    if not np.all(diagonal > 0):
        return np.full_like(information, np.inf)
    units = 1.0 / np.sqrt(diagonal)
    scale = np.outer(units, units)
    eigenvalues, vectors = np.linalg.eigh(information[told] * scale)
    if len(units) and eigenvalues[0] <= len(units) * np.finfo(np.float64).eps * eigenvalues[-1]:
        return np.full_like(information, np.inf)
    found[told] = (vectors / eigenvalues) @ vectors.T * scale
    return found


def _values(model: AbstractCovariance) -> dict[str, float]:
    """Every parameter by name."""
    return {**model.values, "variance": model.variance, "nugget": model.nugget}


def _linear(model: AbstractCovariance, observations: Observations) -> frozenset[str]:
    """Parameters that have no logarithm."""
    scales = model.scales(observations.coordinates)
    return frozenset(name for name, scale in scales.items() if not scale.is_logarithmic)


def _relative(errors: NDArray[np.float64], information: NDArray[np.float64]) -> float:
    is_told = np.diag(information) > 0
    units = 1.0 / np.sqrt(np.diag(information)[is_told])
    return float(np.max(errors[np.ix_(is_told, is_told)] * np.outer(units, units), initial=0.0))


def _flat_direction(estimate: _Estimate, deviation: float, direction: NDArray[np.float64]) -> tuple[str, ...]:
    """Say in which combination the likelihood is flat, if in any."""
    if deviation < FLAT_DEVIATION:
        return ()
    names, linear = estimate.names, estimate.linear
    powers = direction / direction[np.argmax(np.abs(direction))]
    moved = {name: power for name, power in zip(names, powers, strict=True) if abs(power) > 0.1}
    text = " * ".join(f"exp({power:.2g} {name})" if name in linear else f"{name}**{power:.2g}" for name, power in moved.items())
    is_matern = isinstance(estimate.model, Matern) and {"range", "variance"} <= set(moved)
    advice = "; variance / range**(2 nu) may be, or fix one of them" if is_matern else ""
    return (
        f"the likelihood is nearly flat along {text} (standard deviation of its logarithm {deviation:.2g}), which the data "
        f"therefore do not determine{advice}",
    )


def _unit_of(name: str, units: Mapping[str, str]) -> str:
    """Unit of a quantity: of a parameter its own, of other lengths that of the range they are made of."""
    length = name.replace(" ", "_").replace("effective_range", "range").removesuffix("_along").removesuffix("_across")
    return units.get(name, "") or (units.get(length, "") if "**" not in name else "")


def _plain(value: Estimated) -> dict[str, float | None]:
    return {name: number if math.isfinite(number) else None for name, number in vars(value).items()}
