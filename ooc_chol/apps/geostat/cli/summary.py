"""Estimates, scores and models in words: what commands print."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.estimation.fitting import FitResult
from ooc_chol.apps.geostat.estimation.inference import Estimated, Inference
from ooc_chol.apps.geostat.estimation.precision import PrecisionCheck
from ooc_chol.apps.geostat.estimation.vecchia_check import VecchiaCheck
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores


def fit_text(result: FitResult[Any], unit: str = "") -> str:
    """The estimate on a few lines, of a Matérn covariance with the translation into other packages' parameters."""
    model = result.model
    pairs = zip(result.mean_columns, result.coefficients, np.sqrt(np.diag(result.coefficient_covariance)), strict=True)
    mean = ", ".join(f"{name} {value:.6g} ± {error:.2g}" for name, value, error in pairs) or "zero"
    per_evaluation = np.mean([evaluation.seconds for evaluation in result.evaluations])
    tried = ", ".join(f"nu {trial.smoothness:g}: {trial.loglik:.3f}" for trial in result.trials if trial.smoothness is not None)
    is_matern = isinstance(model, Matern)
    lines = _matern_lines(result, unit) if is_matern else _family_lines(result)
    return "\n".join(
        [
            *lines,
            f"  variance     {model.variance:.6g} (standard deviation {math.sqrt(model.variance):.4g})",
            f"  nugget       {model.nugget:.6g} (standard deviation {math.sqrt(model.nugget):.4g})",
            f"  mean         {mean}",
            f"  loglik       {result.loglik:.6f}" + (f" ({tried})" if is_matern else ""),
            f"  search       {len(result.evaluations)} evaluations of {per_evaluation:.2f} s each, {result.seconds:.1f} s in all",
            f"  end          {'converged' if result.converged else 'not converged'}: {result.end}",
            *(_elsewhere(model) if is_matern else ()),
            *(f"  warning      {text}" for text in result.warnings),
        ]
    )


def details_text(result: FitResult[Any]) -> str:
    """What :func:`~ooc_chol.apps.geostat.cli.summary.fit_text` leaves out: method, criteria, precision."""
    kind = "restricted likelihood" if result.reml else "likelihood"
    reused = f", {result.reused} evaluations from the log" if result.reused else ""
    lines = [f"  method       {kind} by {result.method}{reused}; AIC {result.aic:.3f}, BIC {result.bic:.3f}"]
    if result.precision is not None:
        lines += _precision_lines(result.precision)
    if result.vecchia is not None:
        lines += _vecchia_lines(result.vecchia)
    return "\n".join(lines)


def inference_text(found: Inference) -> str:
    """Standard errors and intervals as a table."""
    more = {"effective range": found.effective_range, "variance / range**(2 nu)": found.microergodic}
    rows: dict[str, Estimated] = {**found.parameters, **{name: value for name, value in more.items() if value is not None}}
    how = f"{found.probes} probes, relative error {found.relative_error:.1g}" if found.probes else "exact"
    lines = [f"standard errors and {100 * found.level:g} % intervals (expected information, {how})"]
    for name, value in rows.items():
        interval = f"{value.lower:.6g} to {value.upper:.6g}" if math.isfinite(value.upper) else "not determined"
        lines.append(f"  {name:26s}{value.value:.6g} ± {value.standard_error:.2g}, {interval}")
    return "\n".join([*lines, *(f"  warning: {text}" for text in found.warnings)])


def score_text(scores: HeldOutScores, unit: str = "") -> str:
    """Held-out scores on two lines."""
    suffix = f" {unit}" if unit else ""
    return (
        f"held out     {scores.n} values\n"
        f"  RMSE       {scores.rmse:.4g}{suffix} by kriging, {scores.rmse_of_mean:.4g}{suffix} by the mean of the fitted values\n"
        f"  intervals  of {100 * scores.level:g} % hold {100 * scores.coverage:.1f} % of them; CRPS {scores.crps:.4g}{suffix}"
    )


def model_text(model: AbstractCovariance) -> str:
    """All parameters of a covariance function by name, on one line."""
    values = {"variance": model.variance, **model.values, "nugget": model.nugget}
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def _matern_lines(result: FitResult[Matern], unit: str) -> list[str]:
    """Lines that name the covariance function and its range."""
    model, suffix = result.model, f" {unit}" if unit else ""
    return [
        f"Matérn covariance with smoothness nu = {model.smoothness:g}, fitted to {result.n} observations",
        f"  range        {model.range:.6g}{suffix}; effective range (correlation 0.05) {model.effective_range:.6g}{suffix}",
    ]


def _family_lines(result: FitResult[Any]) -> list[str]:
    """Lines that name the covariance function and its parameters; those that were kept are marked."""
    values = result.model.values.items()
    kept = {name: "" if name in result.estimated else " (kept)" for name, _ in values}
    name = f"{model_content(result.model)['covariance']} covariance ({type(result.model).__name__})"
    return [
        f"{name}, fitted to {result.n} observations",
        *(f"  {name:12s} {value:.6g}{kept[name]}" for name, value in values),
    ]


def _elsewhere(model: Matern) -> tuple[str, ...]:
    """A line with the range in the parameters of other packages."""
    return (
        f"  elsewhere    scikit-learn and GPyTorch length_scale {model.range * math.sqrt(2 * model.smoothness):.6g}, "
        f"GSTools len_scale {model.range * math.sqrt(model.smoothness):.6g}; GpGp, geoR, fields: range as above",
    )


def _precision_lines(check: PrecisionCheck) -> list[str]:
    """What mixed precision changed of an estimate."""
    if check.loglik_error is None:
        return [f"  precision    loglik in mixed precision, not judged in FP64: {check.problem}"]
    lines = [f"  precision    loglik in mixed precision less that in FP64: {check.loglik_error:+.3g}"]
    if check.shift is None or check.shift_in_errors is None:
        return [*lines, f"               how far the estimate in FP64 is was not judged: {check.problem}"]
    shifts = ", ".join(f"{name} {100 * shift:+.2g} %" for name, shift in check.shift.items())
    away = f"the estimate in FP64 is {check.shift_in_errors:.2g} standard errors away"
    return [*lines, f"               {away}: {shifts or 'nothing to shift'}"]


def _vecchia_lines(check: VecchiaCheck) -> list[str]:
    """How far an estimate by Vecchia's approximation is from exact."""
    approximate = f"  vecchia      loglik {check.loglik:.6f} with {check.neighbours} neighbours"
    if check.gap is None:
        return [f"{approximate}; not compared with the exact one" + ("" if check.problem is None else f": {check.problem}")]
    lines = [f"{approximate}, less the exact one: {check.gap:+.4f} ({check.seconds:.1f} s)"]
    if check.shift is not None and check.shift_in_errors is not None:
        shifts = ", ".join(f"{name} {shift:+.2g}" for name, shift in check.shift.items())
        lines.append(f"               the exact estimate is about {check.shift_in_errors:.2g} standard errors away: {shifts}")
    return lines
