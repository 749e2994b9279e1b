"""Estimates, scores and models in words: what commands print."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ooc_chol.apps.geostat.covariances.azimuth import read_values
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.covariances.nested import Nested, effective_range
from ooc_chol.apps.geostat.covariances.nonstationary import NonstationaryMatern
from ooc_chol.apps.geostat.covariances.planar import directional_range
from ooc_chol.apps.geostat.covariances.reach import reach
from ooc_chol.apps.geostat.estimation.certified_loglik import bound_text
from ooc_chol.apps.geostat.estimation.estimates import Row, as_read
from ooc_chol.apps.geostat.estimation.fitting import FitResult
from ooc_chol.apps.geostat.estimation.precision import PrecisionCheck
from ooc_chol.apps.geostat.estimation.stationarity import StationarityTest
from ooc_chol.apps.geostat.estimation.vecchia_check import VecchiaCheck
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores


def fit_text(result: FitResult[Any], units: Mapping[str, str] | None = None) -> str:
    """The estimate on a few lines, of a Matérn covariance with the translation into other packages' parameters.

    Units are those of parameters, by name, where they are known.
    """
    model = result.model
    pairs = zip(result.mean_columns, result.coefficients, np.sqrt(np.diag(result.coefficient_covariance)), strict=True)
    mean = ", ".join(f"{name} {value:.6g} ± {error:.2g}" for name, value, error in pairs) or "zero"
    per_evaluation = np.mean([evaluation.seconds for evaluation in result.evaluations])
    seconds = result.report.seconds.total
    tried = ", ".join(f"nu {trial.smoothness:.4g}: {trial.loglik:.3f}" for trial in result.trials if trial.smoothness is not None)
    is_matern = isinstance(model, Matern)
    known = units or {}
    unit = known.get("range", known.get("range_1", ""))
    lines = _matern_lines(result, unit) if is_matern else [*_family_lines(result, known), *_structure_lines(model, unit)]
    return "\n".join(
        [
            *lines,
            f"  variance     {model.variance:.6g} (standard deviation {math.sqrt(model.variance):.4g})",
            f"  nugget       {model.nugget:.6g} (standard deviation {math.sqrt(model.nugget):.4g})",
            f"  mean         {mean}",
            f"  loglik       {result.loglik:.6f}" + (f" ({tried})" if is_matern else ""),
            *_comparison_lines(result),
            f"  search       {len(result.evaluations)} evaluations of {per_evaluation:.2f} s each, {seconds:.1f} s in all",
            f"  end          {'converged' if result.converged else 'not converged'}: {result.end}",
            *(_elsewhere(model) if is_matern else ()),
            *(f"  warning      {text}" for text in result.warnings),
        ]
    )


def details_text(result: FitResult[Any]) -> str:
    """Lines that :func:`~ooc_chol.apps.geostat.cli.summary.fit_text` leaves out: method, criteria, precision."""
    kind = "restricted likelihood" if result.reml else "likelihood"
    resumed = f", {result.report.resumed} evaluations from the checkpoint" if result.report.resumed else ""
    lines = [f"  method       {kind} by {result.method}{resumed}; AIC {result.aic:.3f}, BIC {result.bic:.3f}"]
    if result.vecchia_start is not None:
        lines.append(f"  start        {result.vecchia_start}")
    if result.stationary is not None:
        lines.append(_stationarity_line(result.stationary))
    if result.precision is not None:
        lines += _precision_lines(result.precision)
    if result.vecchia is not None:
        lines += _vecchia_lines(result.vecchia)
    return "\n".join(lines)


def score_text(scores: HeldOutScores, unit: str = "") -> str:
    """Held-out scores on two lines."""
    suffix = f" {unit}" if unit else ""
    return (
        f"held out     {scores.n} values\n"
        f"  RMSE       {scores.rmse:.4g}{suffix} by kriging, {scores.rmse_of_mean:.4g}{suffix} by the mean of the fitted values\n"
        f"  intervals  of {100 * scores.level:g} % hold {100 * scores.coverage:.1f} % of them; CRPS {scores.crps:.4g}{suffix}"
    )


def model_text(model: AbstractCovariance) -> str:
    """All parameters of a covariance function by name, on one line, angles as azimuths in degrees."""
    values = {"variance": model.variance, **read_values(model.values), "nugget": model.nugget}
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def _comparison_lines(result: FitResult[Any]) -> list[str]:
    """Which smoothness was taken, and why, where the fit chose."""
    found = result.comparison
    return [] if found is None or found.densities is not None else [f"  smoothness   {found}"]


def _matern_lines(result: FitResult[Matern], unit: str) -> list[str]:
    """Lines that name the covariance function and its range."""
    model, suffix = result.model, f" {unit}" if unit else ""
    return [
        f"Matérn covariance with smoothness nu = {model.smoothness:g}, fitted to {result.n} observations",
        f"  range        {model.range:.6g}{suffix}; effective range (correlation 0.05) {model.effective_range:.6g}{suffix}",
    ]


def _family_lines(result: FitResult[Any], units: Mapping[str, str]) -> list[str]:
    """Lines that name the covariance function and its parameters; those that were kept are marked."""
    model = result.model
    kept = {name: "" if name in result.estimated else " (kept)" for name in model.values}
    rows = [as_read(Row(name, value, note=kept[name], unit=units.get(name, ""))) for name, value in model.values.items()]
    name = f"{model_content(model)['covariance']} covariance ({type(model).__name__})"
    return [
        f"{name}, fitted to {result.n} observations",
        *(f"  {row.name:12s} {row.text()}" for row in rows),
        *(_ellipse_lines(model, units.get("range", "")) if isinstance(model, GeometricAnisotropy) else ()),
        *(_centre_lines(model) if isinstance(model, NonstationaryMatern) else ()),
    ]


def _centre_lines(model: NonstationaryMatern) -> tuple[str, ...]:
    """Where range and variance are those that are printed."""
    where = ", ".join(f"{name} {value:.6g}" for name, value in zip(model.covariates, model.centres, strict=True))
    return (f"  centres      range and variance are those at {where}",)


def _ellipse_lines(model: GeometricAnisotropy, unit: str) -> tuple[str, str]:
    """How far the covariance reaches along and across its longer axis."""
    suffix = f" {unit}" if unit else ""
    along, across = (directional_range(model, model.azimuth + turn) for turn in (0.0, 90.0))
    return (
        f"  ellipse      range {model.range_major:.6g}{suffix} along azimuth {model.azimuth:.4g} (clockwise from north), "
        f"{model.range_minor:.6g}{suffix} across",
        f"               effective (correlation 0.05) {along:.6g}{suffix} along it, {across:.6g}{suffix} across",
    )


def _structure_lines(model: AbstractCovariance, unit: str) -> list[str]:
    """A line for each of several nested structures, and one for their sum."""
    if not isinstance(model, Nested):
        return []
    suffix = f" {unit}" if unit else ""
    lines = [
        f"  structure {number}  {model_content(component)['covariance']}, {100 * component.variance / model.variance:.3g} % of "
        f"the variance, effective range {reach(component):.6g}{suffix}"
        for number, component in enumerate(model.components, 1)
    ]
    length = effective_range(model)
    return lines if length is None else [*lines, f"  sum          effective range (correlation 0.05) {length:.6g}{suffix}"]


def _elsewhere(model: Matern) -> tuple[str, ...]:
    """A line with the range in the parameters of other packages."""
    return (
        f"  elsewhere    scikit-learn and GPyTorch length_scale {model.range * math.sqrt(2 * model.smoothness):.6g}, "
        f"GSTools len_scale {model.range * math.sqrt(model.smoothness):.6g}; GpGp, geoR, fields: range as above",
    )


def _stationarity_line(test: StationarityTest) -> str:
    """The likelihood ratio against the stationary model."""
    ends = test.statistic_interval
    known = "" if ends is None else f" (in mixed precision: between {ends[0]:.4g} and {ends[1]:.4g})"
    return (
        f"  stationary   loglik {test.loglik:.6f} without slopes: likelihood ratio {test.statistic:.2f} on {test.degrees} "
        f"degree{'s' if test.degrees > 1 else ''} of freedom, p {test.p_value:.2g}{known}"
    )


def _precision_lines(check: PrecisionCheck) -> list[str]:
    """Lines on how mixed precision may have changed an estimate, and how it did."""
    lines = [f"  precision    {_certified_text(check)}"]
    if len(check.thresholds) > 1:
        used = ", then ".join("in FP64" if each is None else f"at {each:.3g}" for each in check.thresholds)
        lines.append(f"               searched {used}, where the log-likelihood was not known closely before")
    if check.loglik_error is not None:
        lines.append(f"               loglik in mixed precision less that in FP64: {check.loglik_error:+.3g}")
    if check.shift is None or check.shift_in_errors is None:
        return lines
    shifts = ", ".join(f"{name} {100 * shift:+.2g} %" for name, shift in check.shift.items())
    away = f"the estimate in FP64 is {check.shift_in_errors:.2g} standard errors away"
    return [*lines, f"               {away}: {shifts or 'nothing to shift'}"]


def _certified_text(check: PrecisionCheck) -> str:
    """Text on the certified bounds of the log-likelihood."""
    if check.most_off is None:
        return f"nothing is certified of the log-likelihood in mixed precision: {check.problem}"
    return (
        f"FP64 would give the same log-likelihood to {bound_text(check.most_off)}; that of exact arithmetic is between "
        f"{check.lower:.6f} and {check.upper:.6f}"
    )


def _vecchia_lines(check: VecchiaCheck) -> list[str]:
    """How far an estimate by Vecchia's approximation is from exact."""
    approximate = f"  vecchia      loglik {check.loglik:.6f} with {check.neighbours} neighbours"
    spread = [] if check.spread is None else [_spread_line(check.spread)]
    if check.gap is None:
        problem = "" if check.problem is None else f": {check.problem}"
        return [f"{approximate}; not compared with the exact one{problem}", *spread]
    lines = [f"{approximate}, less the exact one: {check.gap:+.4f} ({check.seconds:.1f} s)", *spread]
    if check.shift is not None and check.shift_in_errors is not None:
        shifts = ", ".join(f"{name} {shift:+.2g}" for name, shift in check.shift.items())
        lines.append(f"               the exact estimate is about {check.shift_in_errors:.2g} standard errors away: {shifts}")
    return lines


def _spread_line(spread: float) -> str:
    """How far the approximation depends on the order, and what that means for AIC."""
    return (
        f"               mirror images of the map differ by {spread:.3g}: differences of AIC below {2 * spread:.3g} may be noise"
    )
