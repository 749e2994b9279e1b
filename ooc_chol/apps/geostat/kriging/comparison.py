"""Models compared by cross-validation on the same folds: their scores, and paired differences with standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores, gaussian_crps, gaussian_log_score, interval_score
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed
from ooc_chol.apps.geostat.kriging.validation import CrossValidation

#: Scores of single predictions by which models are compared; smaller is better.
Score = Literal["crps", "squared_error", "absolute_error", "interval", "log"]
SCORES: tuple[Score, ...] = ("crps", "squared_error", "absolute_error", "interval", "log")


@dataclass(frozen=True)
class ScoreDifference:
    """How much worse a model predicts than another one, on the same folds.

    Parameters
    ----------
    model, best : str
        Names of the two.
    difference : float
        Mean score of the first less that of the second: positive when it is worse.
    standard_error : float
        Standard error of that mean, from the sums over folds; infinite where there is one fold.
    better_folds : int
        Number of folds in which the first is better.
    """

    model: str
    best: str
    difference: float
    standard_error: float
    better_folds: int

    __repr__ = tb.brief_repr

    @property
    def in_errors(self) -> float:
        """The difference in standard errors; zero where there is none."""
        return 0.0 if self.difference == 0.0 else self.difference / self.standard_error


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores of several models on the same folds; made by :func:`compare`.

    Parameters
    ----------
    score : str
        By which models are compared.
    scores : dict of str to HeldOutScores
        Scores of each model over all held-out values, in the order given.
    differences : tuple of ScoreDifference
        Differences of each model to the best one, itself left out, in the order given.
    best : str
        Model of the least mean score.
    n_folds : int
        Number of folds.
    """

    score: Score
    scores: dict[str, HeldOutScores]
    differences: tuple[ScoreDifference, ...]
    best: str
    n_folds: int

    __repr__ = tb.brief_repr


def compare(validations: Mapping[str, CrossValidation], *, score: Score = "crps", level: float = 0.95) -> Comparison:
    """Compare cross-validations of one data set on the same folds.

    Parameters
    ----------
    validations : mapping of str to CrossValidation
        Cross-validations by the names of their models, two or more, of the same values and folds.
    score : {"crps", "squared_error", "absolute_error", "interval", "log"}
        Score of a prediction that the models are compared by: continuous ranked probability score, error of the mean, interval
        score at ``level``, or logarithmic score.
    level : float
        Level of intervals.

    Returns
    -------
    Comparison
        Scores of all, and their paired differences to the best.

    Raises
    ------
    ValueError
        There are fewer than two, values or folds differ, or there is no such score.

    Notes
    -----
    The standard error of a mean difference takes folds for independent, and nothing within them: with ``d_k`` the sum over fold
    ``k`` of ``K`` of the differences less their mean, it is ``sqrt(K / (K - 1) sum_k d_k**2) / n``. Folds that lie beside each
    other are not independent, so it is rather too small, and with single observations as folds much too small.
    """
    if score not in SCORES:
        raise ValueError(f"score is {score!r}, but there are {', '.join(SCORES)}")
    if len(validations) < 2:
        raise ValueError(f"{len(validations)} cross-validation is no comparison: give two or more")
    (known, first), *others = validations.items()
    for name, other in others:
        if not same_values(first.values, other.values):
            raise ValueError(f"{name} is a cross-validation of other values than {known}, so that scores do not compare")
        if not np.array_equal(first.folds, other.folds):
            raise ValueError(f"{name} has other folds than {known}: cross-validate both with the same ones")
    single = {name: _scores_of(each, score, level) for name, each in validations.items()}
    best = min(single, key=lambda name: float(np.mean(single[name])))
    differences = tuple(_difference(name, best, single, first.folds) for name in single if name != best)
    scores = {name: each.scores(level) for name, each in validations.items()}
    return Comparison(score, scores, differences, best, first.n_folds)


def same_values(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    """Tell whether values are the same, but for the rounding of a transformation and its way back."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=1e-10, atol=0.0))


def _scores_of(validation: CrossValidation, score: Score, level: float) -> NDArray[np.float64]:
    """The score of each prediction."""
    values, prediction = validation.values, validation.prediction
    if isinstance(prediction, BackTransformed) and score in ("crps", "log"):
        return prediction.crps(values) if score == "crps" else prediction.log_score(values)
    if score == "crps":
        return gaussian_crps(values, prediction.mean, prediction.standard_error)
    if score == "log":
        return gaussian_log_score(values, prediction.mean, prediction.standard_error)
    if score == "interval":
        return interval_score(values, *prediction.interval(level), level=level)
    residuals = validation.residuals
    return residuals**2 if score == "squared_error" else np.abs(residuals)


def _difference(name: str, best: str, single: Mapping[str, NDArray[np.float64]], folds: NDArray[np.intp]) -> ScoreDifference:
    """The mean of paired differences, with the error that folds give it."""
    differences = single[name] - single[best]
    mean, sums = float(np.mean(differences)), np.bincount(folds, differences)
    sizes = np.bincount(folds)
    k = len(sums)
    error = math.sqrt(k / (k - 1) * float(np.sum((sums - mean * sizes) ** 2))) / len(folds) if k > 1 else math.inf
    return ScoreDifference(name, best, mean, error, int(np.sum(sums < 0)))
