"""The box in which a fit of given observations searches: which parameters, and between which bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ooc_chol.apps.geostat.covariances.coincidence import check_places
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.model import kept_nugget
from ooc_chol.apps.geostat.covariances.scales import Scale
from ooc_chol.apps.geostat.data.observations import Observations, least_squares_residuals
from ooc_chol.apps.geostat.estimation.search import (
    NUGGET_RATIO,
    NUGGET_SCALE,
    START_SMOOTHNESS,
    VARIANCE,
    Model,
    Nugget,
    SearchSpace,
)

#: Bounds of a variance that is searched for, as multiples of the one that the values show: that of a long range is far above.
_VARIANCE_FACTOR = 1e6

#: Largest ratio of a nugget to the variance beside it at which rounding leaves anything of that.
_MOST_RATIO = 2.0**53

#: The variance that the values show is at least this share of that of the residuals, whatever their known errors.
_LEAST_VARIANCE_SHARE = 0.01


def search_space(observations: Observations, nugget: Nugget, smoothness: float | None) -> SearchSpace[Matern]:
    """The box in which a fit of a Matérn model of these observations searches."""
    template = Matern(1.0, observations.diameter or 1.0, smoothness or START_SMOOTHNESS[0])
    return family_space(observations, template, nugget, fixed=() if smoothness is None else ("smoothness",))


def family_space(observations: Observations, template: Model, nugget: Nugget, *, fixed: Sequence[str] = ()) -> SearchSpace[Model]:
    """The box in which a fit of any covariance function searches."""
    if observations.diameter == 0.0:
        raise ValueError("all observations are at one place, so no range can be estimated")
    variance = kept_nugget(nugget)
    if variance == 0.0:
        errors = observations.error_variances
        known = np.zeros(observations.n) if errors is None else (errors > 0.0).astype(np.float64)
        # what is only near may be apart enough at other ranges
        unit = template.with_values(variance=1.0, nugget=0.0)
        check_places(unit, observations.coordinates, known, observations.named_rows, near_too=False)
    _check_fixed(template, fixed)
    everything = template.scales(observations.coordinates)
    scales = {name: scale for name, scale in everything.items() if name not in fixed}
    _check_scales(template, everything, scales)
    if variance != 0.0:
        scales[NUGGET_RATIO] = NUGGET_SCALE if variance is None else _kept_scale(observations, variance)
    if observations.error_variances is not None and not variance:
        scales[VARIANCE] = _variance_scale(observations)
    return SearchSpace(tuple(scales), tuple(scales.values()), template.with_values(variance=1.0, nugget=0.0), variance)


def _kept_scale(observations: Observations, nugget: float) -> Scale:
    """The scale of the ratio of a nugget that is kept: the bounds are those of the variance."""
    variance = _variance_scale(observations, nugget)
    least = nugget / variance.upper
    if not least:
        raise ValueError("the nugget that is kept is nothing beside the variance of the values: say nugget='zero'")
    if least > _MOST_RATIO:
        raise ValueError(
            f"the nugget that is kept is {least:.0e} times the largest variance of a search, beside which nothing of a "
            "covariance is left: give it in squared units of the values"
        )
    return Scale(least, nugget / variance.lower, step=NUGGET_SCALE.step)


def _variance_scale(observations: Observations, nugget: float = 0.0) -> Scale:
    """The scale of a variance: a factor either way of what known errors leave of the mean square of the residuals."""
    spread = float(np.mean(least_squares_residuals(observations.design, observations.values) ** 2))
    if spread == 0.0:
        raise ValueError("the mean fits all values exactly, so there is nothing left for a covariance (are all values equal?)")
    errors = 0.0 if observations.error_variances is None else float(np.mean(observations.error_variances))
    shown = max(spread - errors - nugget, _LEAST_VARIANCE_SHARE * spread)
    return Scale(shown / _VARIANCE_FACTOR, shown * _VARIANCE_FACTOR)


def _check_fixed(template: AbstractCovariance, fixed: Sequence[str]) -> None:
    """Raise ``ValueError`` unless each name is one that can be kept."""
    if isinstance(fixed, str):
        raise ValueError(f"fixed is {fixed!r}, but it must be a sequence of names, such as ({fixed!r},)")
    for name in fixed:
        if name == "nugget":
            raise ValueError("fixed names the nugget; say nugget='zero', or nugget=VALUE, to keep it")
        if name not in template.parameters:
            raise ValueError(
                f"fixed names {name!r}, but of {type(template).__name__} there are {', '.join(template.parameters)} to keep (the "
                "variance is always estimated)"
            )


def _check_scales(template: AbstractCovariance, everything: dict[str, Scale], free: dict[str, Scale]) -> None:
    """Raise ``ValueError`` where the sites do not show a parameter, or a kept one may get out of its bounds."""
    for name, scale in free.items():
        if not scale.lower < scale.upper:
            raise ValueError(f"all sites agree in what {name} is about, so it cannot be estimated; keep it by fixed=({name!r},)")
    for name, scale in everything.items():
        if scale.bound and name not in free and template.values[name] != 0.0:
            others = [other for other in scale.bound(template)[1] if other in free]
            if others:
                raise ValueError(f"{name} is kept, but its bounds depend on {', '.join(others)}: keep these too, or estimate all")
