"""How good predictions are at held-out sites: root mean square error, interval coverage, CRPS."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ooc_chol.apps.geostat.prediction import Prediction


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
    """

    n: int
    rmse: float
    rmse_of_mean: float
    coverage: float
    level: float
    crps: float


def score(prediction: Prediction, held_out: ArrayLike, fitted: ArrayLike, *, level: float = 0.95) -> HeldOutScores:
    """Compare predictions of new observations with held-out values.

    Parameters
    ----------
    prediction : Prediction
        Predictions at the held-out sites, with ``target="observation"``.
    held_out : (m,) array
        The values there.
    fitted : (n,) array
        The values that were fitted; their mean is the predictor to beat.
    level : float
        Level of the intervals.

    Returns
    -------
    HeldOutScores
        The scores.

    Raises
    ------
    ValueError
        The prediction is of the smooth field, whose intervals leave out the error of an observation, or shapes differ.
    """
    if prediction.target != "observation":
        raise ValueError("held-out values are observations: predict with target='observation' before scoring")
    values = np.array(held_out, dtype=np.float64)
    if values.shape != prediction.mean.shape:
        raise ValueError(f"{len(prediction.mean)} predictions cannot be scored with held-out values of shape {values.shape}")
    lower, upper = prediction.interval(level)
    return HeldOutScores(
        n=len(values),
        rmse=_rms(values - prediction.mean),
        rmse_of_mean=_rms(values - np.mean(np.asarray(fitted, dtype=np.float64))),
        coverage=float(np.mean((lower <= values) & (values <= upper))),
        level=level,
        crps=float(np.mean(gaussian_crps(values, prediction.mean, prediction.standard_error))),
    )


def gaussian_crps(values: NDArray[np.float64], mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
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
    safe = np.where(deviation > 0, deviation, 1.0)
    w = (values - mean) / safe
    density = np.exp(-0.5 * w**2) / math.sqrt(2 * math.pi)
    scores = safe * (w * (2 * ndtr(w) - 1) + 2 * density - 1 / math.sqrt(math.pi))
    return np.where(deviation > 0, scores, np.abs(values - mean))


def _rms(errors: NDArray[np.float64]) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(errors**2)))
