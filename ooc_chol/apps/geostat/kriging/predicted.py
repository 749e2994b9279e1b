"""Results of kriging: mean, variance and intervals at the sites, with the name of the predicted quantity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.observations import as_error_variances
from ooc_chol.apps.geostat.kriging.predict_plan import PredictReport

#: What is predicted: a new observation (its own error included) or the smooth field underneath.
Target = Literal["observation", "field"]


@dataclass(frozen=True, eq=False)
class HalfWidths:
    """The most that kriging means and variances are off from those of exact arithmetic, at each site.

    Parameters
    ----------
    mean : (m,) array
        Half-widths of the means, in the unit of the values; infinite where the factor is too far from the matrix to certify
        anything.
    variance : (m,) array
        Half-widths of the variances, of which one below zero counts as zero; NaN where only means were predicted.
    gap : float
        Bound of ``||inv(L) R inv(L.T) - I||_F`` of the correlation matrix R; above 0.5 nothing is certified.
    sufficient_threshold : float or None
        A ``precision_threshold`` that would certify if the gap fell with it; None where this factor does, or none is known.
    confidence : float
        Probability that all of them hold, over the choice of random vectors.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    gap: float
    sufficient_threshold: float | None
    confidence: float

    __repr__ = tb.brief_repr

    @property
    def is_certified(self) -> bool:
        """True where anything is certified."""
        return bool(np.isfinite(self.mean).all())

    def take(self, indices: NDArray[np.intp]) -> HalfWidths:
        """Those at ``indices``, a ``(k,)`` array, in that order."""
        return replace(self, mean=self.mean[indices], variance=self.variance[indices])

    def __str__(self) -> str:
        if not self.is_certified:
            advice = "a nugget, or columns of the mean that are less alike"
            if self.sufficient_threshold is not None:
                advice = f"a precision threshold of {self.sufficient_threshold:.1g}"
            return f"nothing is certified: the factor is too far from the matrix (gap {self.gap:.1e}); try {advice}"
        means = f"means are off by at most {self.mean.max(initial=0.0):.1e}"
        variances = "" if np.isnan(self.variance).any() else f", variances by at most {self.variance.max(initial=0.0):.1e}"
        return f"{means}{variances}, whatever the precision of the factor (gap {self.gap:.1e})"


@dataclass(frozen=True, eq=False)
class Prediction:
    """Kriging mean and variance, in the order of the sites given.

    Parameters
    ----------
    mean : (m,) array
        Best linear unbiased prediction.
    variance : (m,) array
        Its error variance, the uncertainty of the estimated mean included; range, variance and nugget are taken as known. NaN
        where only the mean was asked for.
    target : {"observation", "field"}
        Target of prediction; the two have one mean, and variances that differ by that of the error of an observation.
    lagrange : (m,) array or None
        The Lagrange term of unbiasedness, variance of the prediction less its covariance with what is predicted, which lognormal
        kriging needs; zero where the mean is known, None where it was not computed.
    half_width : HalfWidths or None
        How far mean and variance can be from those of exact arithmetic, where that was asked for.
    report : PredictReport or None
        Seconds, bytes and memory of a call of :func:`~ooc_chol.apps.geostat.predict`, its plan, and the key of its bits; None of
        predictions by a factor that was there.
    trace : Trace or None
        Every operation of such a call, where it was asked for.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    target: Target
    lagrange: NDArray[np.float64] | None = None
    half_width: HalfWidths | None = None
    report: PredictReport | None = None
    trace: oc.Trace | None = None

    __repr__ = tb.brief_repr

    @property
    def has_variance(self) -> bool:
        """True if variances were computed."""
        return not np.isnan(self.variance).any()

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Square root of the variance, shape ``(m,)``."""
        return np.sqrt(self.variance)

    @property
    def standard_error_half_width(self) -> NDArray[np.float64]:
        """The most that the standard error is off, shape ``(m,)``: by as much as ``half_width`` leaves of the variance."""
        if self.half_width is None:
            raise ValueError("nothing was certified: predict with certified=True")
        ends = [np.maximum(self.variance + sign * self.half_width.variance, 0.0) for sign in (-1.0, 1.0)]
        return np.asarray(np.max([np.abs(np.sqrt(end) - self.standard_error) for end in ends], axis=0))

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:
        """``prediction`` and, where variances were computed, ``standard_error``; the half-widths of both where certified."""
        columns = {"prediction": self.mean, **({"standard_error": self.standard_error} if self.has_variance else {})}
        if self.half_width is not None:
            columns["prediction_half_width"] = self.half_width.mean
            if self.has_variance:
                columns["standard_error_half_width"] = self.standard_error_half_width
        return columns

    def take(self, indices: NDArray[np.intp]) -> Prediction:
        """The predictions at ``indices``, an ``(k,)`` array, in that order."""
        lagrange = None if self.lagrange is None else self.lagrange[indices]
        half_width = None if self.half_width is None else self.half_width.take(indices)
        return Prediction(self.mean[indices], self.variance[indices], self.target, lagrange, half_width)

    def quantile(self, probability: ArrayLike) -> NDArray[np.float64]:
        """Quantiles of the Gaussian predictive distribution.

        Parameters
        ----------
        probability : float or (k,) array
            Between 0 and 1.

        Returns
        -------
        (m,) or (k, m) array
            In the unit of the values; a row for each probability where there are several.

        Raises
        ------
        ValueError
            A probability is not between 0 and 1, or only the mean was predicted.
        """
        p = tb.plain_array("probability", probability, np.float64)
        if not np.all((p > 0) & (p < 1)):
            raise ValueError(f"probabilities {p.tolist()} are asked for, but numbers between 0 and 1 are needed")
        self._check_variance()
        return np.asarray(self.mean + ndtri(p)[..., np.newaxis] * self.standard_error)

    def exceedance(self, threshold: ArrayLike) -> NDArray[np.float64]:
        """Probability that the predicted value exceeds a threshold.

        Parameters
        ----------
        threshold : float or (k,) array
            In the unit of the values.

        Returns
        -------
        (m,) or (k, m) array
            Probabilities, a row for each threshold where there are several. Where the standard error is zero it is 0 or 1.

        Raises
        ------
        ValueError
            Only the mean was predicted, or a threshold is no number.
        """
        self._check_variance()
        c = tb.plain_array("threshold", threshold, np.float64)[..., np.newaxis]
        if np.isnan(c).any():
            raise ValueError(f"thresholds {np.asarray(threshold).tolist()} are asked for, but numbers are needed")
        with np.errstate(divide="ignore", invalid="ignore"):
            away = (self.mean - c) / self.standard_error
        return np.where(self.standard_error > 0, ndtr(away), np.where(self.mean > c, 1.0, 0.0))

    def interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Central Gaussian prediction interval.

        Parameters
        ----------
        level : float
            Probability, between 0 and 1.

        Returns
        -------
        lower, upper : (m,) arrays
            Ends of the interval.

        Raises
        ------
        ValueError
            ``level`` is not between 0 and 1, or only the mean was predicted.
        """
        self._check_variance()
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
        half = ndtri(0.5 + level / 2) * self.standard_error
        return self.mean - half, self.mean + half

    def _check_variance(self) -> None:
        """Raise ``ValueError`` where only means were predicted."""
        if not self.has_variance:
            raise ValueError("only means were predicted, and distributions need variances: predict with variance=True")


def check_target(target: str) -> None:
    """Raise ``ValueError`` unless ``target`` is one of :data:`Target`."""
    if target not in ("observation", "field"):
        raise ValueError(f"target is {target!r}, but there are 'observation' and 'field'")


def new_errors(error_variances: ArrayLike | None, m: int, target: str) -> NDArray[np.float64] | float:
    """Check known variances of the errors of new observations."""
    if error_variances is None:
        return 0.0
    if target == "field":
        raise ValueError("error variances are those of observations: leave them out, or take target='observation'")
    return as_error_variances(error_variances, m)
