"""Predictions on the scale on which values were observed, where they were transformed to be Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.transforms import Transform, TransformError
from ooc_chol.apps.geostat.kriging.predicted import Prediction, Target

#: What is predicted by one number: the mean of the predictive distribution, its median, or for logarithms Cressie's unbiased one.
Point = Literal["mean", "median", "unbiased"]

#: Standard deviations that integrals over the Gaussian go to, below and above (a power of a value moves its weight up), and
#: nodes on the way.
_LOWEST, _HIGHEST, _NODES = -12.0, 18.0, 160

#: Numbers held at once by an integral over all sites.
_BATCH = 2**21

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BackTransformed:
    """Kriging of transformed values, seen on their original scale; made by :func:`back_transform`.

    Parameters
    ----------
    gaussian : Prediction
        Mean and variance on the transformed scale.
    transform : Transform
        Transform of the values.
    point : {"mean", "median", "unbiased"}
        Kind of number that :attr:`mean` is.
    """

    gaussian: Prediction
    transform: Transform
    point: Point = "mean"

    __repr__ = tb.brief_repr

    def __post_init__(self) -> None:
        if self.point not in get_args(Point):
            raise ValueError(f"point is {self.point!r}, but there are {', '.join(map(repr, get_args(Point)))}")
        if self.point == "mean" and not self.transform.has_mean:
            raise TransformError(
                f"with lambda {self.transform.power:g} the original values have no mean, as their tail is too heavy; "
                "take medians and quantiles (point='median', --point median), or a lambda of zero or more"
            )
        if self.point == "unbiased" and not self.transform.is_log:
            raise TransformError("the unbiased predictor of Cressie is for logarithms: take 'mean' or 'median'")
        if self.point == "unbiased" and self.gaussian.lagrange is None:
            raise TransformError("this prediction has no Lagrange terms, which that predictor needs: take 'mean' or 'median'")

    @property
    def target(self) -> Target:
        """Predicted quantity: a new observation or the field underneath."""
        return self.gaussian.target

    @property
    def mean(self) -> Array:
        """The prediction, shape ``(m,)``: mean, median or unbiased predictor, as ``point`` says."""
        if self.point == "median":
            return self.median
        return self._moments[0] if self.point == "mean" else self._unbiased

    @property
    def variance(self) -> Array:
        """Mean square error of :attr:`mean` under the predictive distribution, shape ``(m,)``; of its mean, the variance."""
        if not self.transform.has_mean:
            raise TransformError(f"with lambda {self.transform.power:g} the original values have no variance: take quantiles")
        mean, variance = self._moments
        return variance if self.point == "mean" else np.asarray(variance + (mean - self.mean) ** 2)

    @property
    def standard_error(self) -> Array:
        """Square root of :attr:`variance`, shape ``(m,)``."""
        return np.sqrt(self.variance)

    @property
    def median(self) -> Array:
        """The median, exact: the transformation is monotone, shape ``(m,)``."""
        return self.transform.inverse(self.gaussian.mean)

    def quantile(self, probability: ArrayLike) -> Array:
        """Quantiles of the predictive distribution, exact.

        Parameters
        ----------
        probability : float or (k,) array
            Between 0 and 1.

        Returns
        -------
        (m,) or (k, m) array
            In the unit of the original values.

        Raises
        ------
        ValueError
            A probability is not between 0 and 1.
        """
        return self.transform.inverse(self.gaussian.quantile(probability))

    def exceedance(self, threshold: ArrayLike) -> Array:
        """Probability that the predicted value exceeds a threshold, exact.

        Parameters
        ----------
        threshold : float or (k,) array
            In the unit of the original values.

        Returns
        -------
        (m,) or (k, m) array
            Probabilities.
        """
        return self.gaussian.exceedance(self.transform.threshold(tb.plain_array("threshold", threshold, np.float64)))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Central prediction interval.

        Parameters
        ----------
        level : float
            Probability, between 0 and 1.

        Returns
        -------
        lower, upper : (m,) arrays
            Ends of the interval, quantiles both.

        Raises
        ------
        ValueError
            ``level`` is not between 0 and 1.
        """
        lower, upper = self.gaussian.interval(level)
        return self.transform.inverse(lower), self.transform.inverse(upper)

    @property
    def columns(self) -> dict[str, Array]:
        """``prediction``, and ``standard_error`` where there is a variance."""
        error = {"standard_error": self.standard_error} if self.transform.has_mean else {}
        return {"prediction": self.mean, **error}

    def take(self, indices: NDArray[np.intp]) -> BackTransformed:
        """The predictions at ``indices``, a ``(k,)`` array, in that order."""
        return BackTransformed(self.gaussian.take(indices), self.transform, self.point)

    def crps(self, values: Array) -> Array:
        """Continuous ranked probability score of each prediction, by quadrature of quantile scores; infinite without a mean."""
        if not self.transform.has_mean:
            return np.full(len(values), np.inf)
        center = (self.transform.threshold(values) - self.gaussian.mean) / self.gaussian.standard_error
        middle = np.clip(center, _LOWEST, _HIGHEST)
        below = self._quantile_scores(values, np.full_like(middle, _LOWEST), middle, above=False)
        found = below + self._quantile_scores(values, middle, np.full_like(middle, _HIGHEST), above=True)
        for rows in self._cut_rows():
            end, excess = np.minimum(self._ends[rows], _HIGHEST), values[rows] + self.transform.shift
            found[rows] = np.where(excess > 0, excess * ndtr(end) ** 2, -excess * (1.0 - ndtr(-end) ** 2))
            between = np.clip(center[rows], end, _HIGHEST)
            for start, stop, above in ((end, between, False), (between, np.full_like(end, _HIGHEST), True)):
                u, heights, weights = self._nodes_above_end(rows, start, stop)
                away = (heights - excess[:, np.newaxis]) * (ndtr(-u) if above else -ndtr(u))
                found[rows] += 2.0 * np.sum(away * weights, axis=1)
        return found

    def log_score(self, values: Array) -> Array:
        """Negative logarithm of the predictive density at each value: infinity where there is none."""
        y, error = self.transform.threshold(values), self.gaussian.standard_error
        density = -0.5 * ((y - self.gaussian.mean) / error) ** 2 - np.log(error) - 0.5 * np.log(2 * np.pi)
        with np.errstate(invalid="ignore"):
            return np.where(np.isneginf(y), np.inf, -density - self.transform.log_slope(values))

    @property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance of the distribution."""
        mean, variance, transform = self.gaussian.mean, self.gaussian.variance, self.transform
        if transform.is_log:
            m, v = (mean - transform.offset) / transform.scale, variance / transform.scale**2
            level = np.exp(m + 0.5 * v)
            return level - transform.shift, level**2 * np.expm1(v)
        nodes, weights = _normal_nodes()
        first, second = np.empty_like(mean), np.empty_like(mean)
        for part in _batches(len(mean)):
            values = transform.inverse(mean[part, np.newaxis] + np.sqrt(variance[part])[:, np.newaxis] * nodes)
            first[part] = values @ weights
            second[part] = (values - first[part, np.newaxis]) ** 2 @ weights
        for rows in self._cut_rows():
            end = np.minimum(self._ends[rows], _HIGHEST)
            _, heights, above = self._nodes_above_end(rows, end, np.full_like(end, _HIGHEST))
            mean_height = np.sum(heights * above, axis=1)
            first[rows] = mean_height - transform.shift
            second[rows] = mean_height**2 * ndtr(end) + np.sum((heights - mean_height[:, np.newaxis]) ** 2 * above, axis=1)
        return first, second

    @property
    def _ends(self) -> Array:
        """Standardised ends of what the transformation can give, from below: all that is less has the smallest original value."""
        transform = self.transform
        with np.errstate(divide="ignore", invalid="ignore"):
            lowest = -np.inf if transform.is_log else transform.offset - transform.scale / transform.power
            return np.asarray((lowest - self.gaussian.mean) / self.gaussian.standard_error)

    def _cut_rows(self) -> list[NDArray[np.intp]]:
        """Sites, in parts, where such an end is within what integrals go over: it is no smooth place of the integrand."""
        cut = np.flatnonzero((self._ends > _LOWEST) & (self.gaussian.variance > 0))
        return [cut[part] for part in _batches(len(cut))]

    def _nodes_above_end(self, rows: NDArray[np.intp], start: Array, stop: Array) -> tuple[Array, Array, Array]:
        """Standardised nodes between these, original values there above the smallest one, and weights, each ``(k, nodes)``.

        Nodes are equally good in the square root of the distance from the end, of which the values are smoother functions.
        """
        points, weights = np.polynomial.legendre.leggauss(_NODES)
        end, transform = np.minimum(self._ends[rows], _HIGHEST), self.transform
        low, high = np.sqrt(start - end)[:, np.newaxis], np.sqrt(stop - end)[:, np.newaxis]
        half = 0.5 * (high - low)
        root = half * (points + 1.0) + low
        u = end[:, np.newaxis] + root**2
        slope = (transform.power / transform.scale * self.gaussian.standard_error[rows])[:, np.newaxis]
        density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
        return u, (slope * root**2) ** (1.0 / transform.power), half * weights * 2.0 * root * density

    @property
    def _unbiased(self) -> Array:
        """``exp(y + v / 2 - m)`` with the Lagrange term ``m``: Cressie (1993), section 3.2.2."""
        assert self.gaussian.lagrange is not None, "checked when it was made"
        scale = self.transform.scale
        y = (self.gaussian.mean - self.transform.offset) / scale
        return np.exp(y + (0.5 * self.gaussian.variance - self.gaussian.lagrange) / scale**2) - self.transform.shift

    def _quantile_scores(self, values: Array, start: Array, stop: Array, *, above: bool) -> Array:
        """Twice the integral of the quantile scores between two standardised quantiles of each site."""
        points, weights = np.polynomial.legendre.leggauss(_NODES)
        scores = np.empty_like(values)
        for part in _batches(len(values)):
            half = 0.5 * (stop[part] - start[part])[:, np.newaxis]
            u = half * (points + 1.0) + start[part, np.newaxis]
            quantiles = self.transform.inverse(self.gaussian.mean[part, np.newaxis] + self._deviation(part) * u)
            away = (quantiles - values[part, np.newaxis]) * (ndtr(-u) if above else -ndtr(u))
            scores[part] = 2.0 * (half * away * np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)) @ weights
        return scores

    def _deviation(self, part: slice) -> Array:
        return self.gaussian.standard_error[part, np.newaxis]


def back_transform(prediction: Prediction, transform: Transform, *, point: Point = "mean") -> BackTransformed:
    """Take a prediction of transformed values back to their original scale.

    Parameters
    ----------
    prediction : Prediction
        Kriging of ``transform.forward(values)``.
    transform : Transform
        The transformation, such as :func:`box_cox` makes.
    point : {"mean", "median", "unbiased"}
        Point prediction: the mean or the median of the predictive distribution, or, for logarithms, the predictor that is
        unbiased over repeated sampling.

    Returns
    -------
    BackTransformed
        Mean, standard error, quantiles, intervals and probabilities of exceedance in the unit of the original values.

    Raises
    ------
    TransformError
        The moment does not exist, or the unbiased predictor is asked for other than logarithms.

    Notes
    -----
    The *mean* is that of the transform of a Gaussian variable with kriging's mean and variance. With a known mean it is the
    exact conditional mean, with an estimated one Bayesian with a flat prior of its coefficients, as in geoR. The *median* is
    exact by monotonicity. The *unbiased* predictor (lognormal kriging) has the Lagrange term in its exponent; with a known mean
    it is the mean.

    Logarithms in closed form, ``exp(y + v / 2)`` and ``exp(2 y + v) (exp(v) - 1)``; other powers by a quadrature of 160 nodes.
    A positive power gives what is below its reach the original value zero (less the shift), whose probability is in closed
    form. The mean over a block is not the back-transform of the mean of transformed values: average draws or points. Cressie
    (1993), *Statistics for Spatial Data*, section 3.2.2; Diggle and Ribeiro (2007), *Model-based Geostatistics*, section 6.2.3.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import Prediction, box_cox
    >>> logs = Prediction(np.array([1.0]), np.array([0.5]), "field")
    >>> found = back_transform(logs, box_cox(0.0))
    >>> (
    ...     np.allclose(found.mean, np.exp(1.25)),
    ...     np.allclose(found.exceedance(np.e), 0.5),
    ... )
    (True, True)
    """
    return BackTransformed(prediction, transform, point)


def _normal_nodes() -> tuple[Array, Array]:
    """Nodes and weights of integrals over a standard normal."""
    points, weights = np.polynomial.legendre.leggauss(_NODES)
    half = 0.5 * (_HIGHEST - _LOWEST)
    u = half * (points + 1.0) + _LOWEST
    return u, half * weights * np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)


def _batches(m: int) -> list[slice]:
    """Slices of sites whose integrands fit in memory."""
    step = max(1, _BATCH // _NODES)
    return [slice(start, start + step) for start in range(0, m, step)]
