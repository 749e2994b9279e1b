"""How good predictions are at held-out sites: errors, coverage of intervals, and proper scores of the whole distribution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of predictions against values that the fit has not seen.

    Parameters
    ----------
    n : int
        Number of held-out values.
    rmse : float
        Root mean square error of the kriging mean, in the unit of the values.
    rmse_of_mean : float
        The same for a predictor that says the mean of the fitted values everywhere.
    coverage : float
        Share of values inside their interval.
    level : float
        Share that should be.
    crps : float
        Mean continuous ranked probability score of the Gaussian predictions, in the unit of the values; smaller is better.
    mae : float
        Mean absolute error of the kriging mean.
    mspe : float
        Mean square prediction error, ``rmse**2``.
    bias : float
        Mean of prediction minus value.
    interval_score : float
        Mean of :func:`interval_score` at ``level``, in the unit of the values; smaller is better.
    log_score : float
        Mean of :func:`gaussian_log_score`, smaller is better; infinite where a variance of zero meets an error.
    """

    n: int
    rmse: float
    rmse_of_mean: float
    coverage: float
    level: float
    crps: float
    mae: float
    mspe: float
    bias: float
    interval_score: float
    log_score: float

    __repr__ = tb.brief_repr


def score(
    prediction: Prediction | BackTransformed, held_out: ArrayLike, fitted: ArrayLike, *, level: float = 0.95
) -> HeldOutScores:
    """Compare predictions of new observations with held-out values.

    Parameters
    ----------
    prediction : Prediction or BackTransformed
        Predictions at the held-out sites, with ``target="observation"``; taken back to the original scale they are scored there.
    held_out : (m,) array
        Observed values at the sites of the prediction, in their order, on its scale.
    fitted : (n,) array
        The values that were fitted; their mean is the predictor to beat.
    level : float
        Level of the intervals.

    Returns
    -------
    HeldOutScores
        Errors, coverage of the intervals and proper scores, over all held-out values.

    Raises
    ------
    ValueError
        The prediction is of the smooth field, whose intervals leave out the error of an observation, shapes differ, or a held-out
        value is not finite.
    """
    values = _values_of(prediction, held_out)
    lower, upper = prediction.interval(level)
    errors = prediction.mean - values
    if isinstance(prediction, BackTransformed):
        crps, log_scores = prediction.crps(values), prediction.log_score(values)
    else:
        crps = gaussian_crps(values, prediction.mean, prediction.standard_error)
        log_scores = gaussian_log_score(values, prediction.mean, prediction.standard_error)
    return HeldOutScores(
        n=len(values),
        rmse=_rms(errors),
        rmse_of_mean=_rms(values - np.mean(tb.plain_array("fitted", fitted, np.float64))),
        coverage=float(np.mean((lower <= values) & (values <= upper))),
        level=level,
        crps=float(np.mean(crps)),
        mae=float(np.mean(np.abs(errors))),
        mspe=float(np.mean(errors**2)),
        bias=float(np.mean(errors)),
        interval_score=float(np.mean(interval_score(values, lower, upper, level=level))),
        log_score=float(np.mean(log_scores)),
    )


def coverage(prediction: Prediction | BackTransformed, held_out: ArrayLike, levels: ArrayLike) -> NDArray[np.float64]:
    """Share of held-out values in their central intervals, at each of several levels.

    Parameters
    ----------
    prediction : Prediction
        Predictions at the held-out sites, with ``target="observation"``.
    held_out : (m,) array
        Observed values at the sites of the prediction, in their order.
    levels : (k,) array
        Probabilities between 0 and 1.

    Returns
    -------
    (k,) array
        The shares; equal to the levels, but for chance, when the model is right.

    Raises
    ------
    ValueError
        The prediction is of the smooth field, shapes differ, or a level is not between 0 and 1.

    Notes
    -----
    Chance: the standard error of a share ``p`` of ``m`` independent values is ``sqrt(p (1 - p) / m)``; neighbours are not
    independent, so it is larger.
    """
    values = _values_of(prediction, held_out)
    intervals = [prediction.interval(float(level)) for level in np.atleast_1d(tb.plain_array("levels", levels, np.float64))]
    return np.array([np.mean((lower <= values) & (values <= upper)) for lower, upper in intervals])


def interval_score(values: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, level: float) -> NDArray[np.float64]:
    """Interval score ``(u - l) + 2/a (l - z) [z < l] + 2/a (z - u) [z > u]`` with ``a = 1 - level``.

    Parameters
    ----------
    values, lower, upper : (m,) arrays
        Observed values and the ends of their intervals.
    level : float
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    (m,) array
        Scores in the unit of the values: the width, and a penalty for each miss. Smaller is better.

    Raises
    ------
    ValueError
        ``level`` is not between 0 and 1.

    Notes
    -----
    Gneiting and Raftery (2007), equation 43.
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
    values, lower, upper = _plain(values=values, lower=lower, upper=upper)
    missed = np.maximum(lower - values, 0.0) + np.maximum(values - upper, 0.0)
    return np.asarray(upper - lower + 2.0 / (1.0 - level) * missed)


def gaussian_log_score(values: ArrayLike, mean: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Logarithmic score ``log(s) + log(2 pi)/2 + ((z - mean)/s)**2 / 2``, the negative logarithm of the predictive density.

    Parameters
    ----------
    values, mean, deviation : (m,) arrays
        Observed values, predicted means and standard errors; where the standard error is zero the score is infinite, negative
        infinite if the prediction is the value.

    Returns
    -------
    (m,) array
        Scores; smaller is better. Two units differ by the logarithm of their ratio.

    Notes
    -----
    Gneiting and Raftery (2007), section 4.1, with the sign that makes smaller better.
    """
    values, mean, deviation = _plain(values=values, mean=mean, deviation=deviation)
    safe = np.where(deviation > 0, deviation, 1.0)
    scores = np.log(safe) + 0.5 * math.log(2 * math.pi) + 0.5 * ((values - mean) / safe) ** 2
    return np.where(deviation > 0, scores, np.where(values == mean, -np.inf, np.inf))


def gaussian_crps(values: ArrayLike, mean: ArrayLike, deviation: ArrayLike) -> NDArray[np.float64]:
    """Continuous ranked probability score ``s (w (2 Phi(w) - 1) + 2 phi(w) - 1/sqrt(pi))``, where ``w = (z - mean) / s``.

    Parameters
    ----------
    values, mean, deviation : (m,) arrays
        Observed values, predicted means and standard errors; where the standard error is zero the score is the absolute error.

    Returns
    -------
    (m,) array
        Scores in the unit of the values.

    Notes
    -----
    Gneiting and Raftery (2007), equation 21.
    """
    values, mean, deviation = _plain(values=values, mean=mean, deviation=deviation)
    safe = np.where(deviation > 0, deviation, 1.0)
    w = (values - mean) / safe
    density = np.exp(-0.5 * w**2) / math.sqrt(2 * math.pi)
    scores = safe * (w * (2 * ndtr(w) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    return np.where(deviation > 0, scores, np.abs(values - mean))


def _plain(**given: ArrayLike) -> Iterator[NDArray[np.float64]]:
    """Numbers, none of which is masked."""
    return (tb.plain_array(name, each, np.float64) for name, each in given.items())


def _values_of(prediction: Prediction | BackTransformed, held_out: ArrayLike) -> NDArray[np.float64]:
    """The held-out values, one per prediction of an observation."""
    if prediction.target != "observation":
        raise ValueError("held-out values are observations: predict with target='observation' before scoring")
    values = tb.plain_array("held_out", held_out, np.float64, copy=True)
    if values.shape != prediction.mean.shape:
        raise ValueError(f"{len(prediction.mean)} predictions cannot be scored with held-out values of shape {values.shape}")
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"held-out value {row} (counted from zero) is {values[row]}: leave out sites without a value")
    return values


def _rms(errors: NDArray[np.float64]) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(errors**2)))
