"""A fit in words: what the command line prints."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.estimation.fitting import FitResult
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
            *(_elsewhere(model) if is_matern else ()),
            *(f"  warning      {text}" for text in result.warnings),
        ]
    )


def _matern_lines(result: FitResult[Matern], unit: str) -> list[str]:
    """What it is, and its range."""
    model, suffix = result.model, f" {unit}" if unit else ""
    return [
        f"Matérn covariance with smoothness nu = {model.smoothness:g}, fitted to {result.n} observations",
        f"  range        {model.range:.6g}{suffix}; effective range (correlation 0.05) {model.effective_range:.6g}{suffix}",
    ]


def _family_lines(result: FitResult[Any]) -> list[str]:
    """What it is, and its parameters; those that were kept are marked."""
    values = result.model.values.items()
    kept = {name: "" if name in result.estimated else " (kept)" for name, _ in values}
    name = f"{model_content(result.model)['covariance']} covariance ({type(result.model).__name__})"
    return [
        f"{name}, fitted to {result.n} observations",
        *(f"  {name:12s} {value:.6g}{kept[name]}" for name, value in values),
    ]


def _elsewhere(model: Matern) -> tuple[str, ...]:
    """Lengths in other packages."""
    return (
        f"  elsewhere    scikit-learn and GPyTorch length_scale {model.range * math.sqrt(2 * model.smoothness):.6g}, "
        f"GSTools len_scale {model.range * math.sqrt(model.smoothness):.6g}; GpGp, geoR, fields: range as above",
    )


def score_text(scores: HeldOutScores, unit: str = "") -> str:
    """Held-out scores on two lines."""
    suffix = f" {unit}" if unit else ""
    return (
        f"held out     {scores.n} values\n"
        f"  RMSE       {scores.rmse:.4g}{suffix} by kriging, {scores.rmse_of_mean:.4g}{suffix} by the mean of the fitted values\n"
        f"  intervals  of {100 * scores.level:g} % hold {100 * scores.coverage:.1f} % of them; CRPS {scores.crps:.4g}{suffix}"
    )
