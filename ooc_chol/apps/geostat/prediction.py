"""Universal kriging: mean and variance at new sites, by half-solves with the out-of-core factor in batches of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri

import ooc_chol as oc
from ooc_chol.apps.geostat.covariance import Matern, cross_covariance
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings, factored
from ooc_chol.apps.geostat.likelihood import Whitened, whiten
from ooc_chol.apps.geostat.observations import Observations, as_sites, design_matrix
from ooc_chol.apps.geostat.ordering import morton_order

#: What is predicted: a new observation (its own nugget included) or the smooth field underneath.
Target = Literal["observation", "field"]

#: Bytes that one batch of new sites may take: cross-covariances and the two copies that a half-solve needs.
BATCH_BYTES = 96 * 2**20


@dataclass(frozen=True, eq=False)
class Prediction:
    """Kriging mean and variance, in the order of the sites given.

    Parameters
    ----------
    mean : (m,) array
        Best linear unbiased prediction.
    variance : (m,) array
        Its error variance, the uncertainty of the estimated mean included; range, variance and nugget are taken as known.
    target : {"observation", "field"}
        What it predicts; the two have one mean, and variances that differ by the nugget.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    target: Target

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Square root of the variance, shape ``(m,)``."""
        return np.sqrt(self.variance)

    def take(self, indices: NDArray[np.intp]) -> Prediction:
        """The predictions at ``indices``, an ``(k,)`` array, in that order."""
        return Prediction(self.mean[indices], self.variance[indices], self.target)

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
            ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
        half = ndtri(0.5 + level / 2) * self.standard_error
        return self.mean - half, self.mean + half


class Kriging:
    """A factored data set, ready to predict; made by :func:`kriging`.

    Parameters
    ----------
    factor : ooc_chol.CholeskyFactor
        Factor of the correlation matrix, open.
    observations : Observations
        The data, in the order of the factor's rows.
    model : Matern
        The covariance function.
    """

    def __init__(self, factor: oc.CholeskyFactor, observations: Observations, model: Matern) -> None:
        self.factor = factor
        self.model = model
        self._observations = observations
        self._whitened: Whitened = whiten(factor, observations)

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Generalised-least-squares coefficients of the mean, shape ``(p,)``."""
        return self._whitened.coefficients

    def predict(
        self,
        sites: ArrayLike,
        *,
        covariates: ArrayLike | None = None,
        target: Target = "observation",
        batch_bytes: int = BATCH_BYTES,
    ) -> Prediction:
        """Predict at new sites.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates, in the unit and dimension of the observations.
        covariates : (m, q) array, optional
            The covariates of the mean there.
        target : {"observation", "field"}
            A new observation, which has a nugget of its own (the default, right for checks against held-out values), or the
            smooth field.
        batch_bytes : int
            Memory for one batch of sites.

        Returns
        -------
        Prediction
            In the order of ``sites``.

        Raises
        ------
        ValueError
            Dimension or covariates do not match the observations, or there is no such target.

        Notes
        -----
        Cost ``n**2`` flops per site, and one reading of the factor per batch.
        """
        places, design = self._check(sites, covariates, target)
        mean, variance = np.empty(len(places)), np.empty(len(places))
        # a batch holds n entries per site three times: cross-covariance, right-hand side and result of the half-solve
        step = max(1, batch_bytes // (3 * 8 * self._observations.n))
        for start in range(0, len(places), step):
            batch = slice(start, start + step)
            mean[batch], variance[batch] = self._predict_batch(places[batch], design[batch])
        if target == "observation":
            variance += self.model.nugget
        return Prediction(mean, variance, target)

    def _predict_batch(
        self, sites: NDArray[np.float64], design: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of the smooth field at a few sites."""
        white = self._whitened
        correlation = Matern(1.0, self.model.range, self.model.smoothness)
        # v = inv(L) r(sites)
        v = self.factor.half_solve(cross_covariance(correlation, self._observations.coordinates, sites))
        # x0' b + r' inv(R) (z - X b)
        mean = design @ white.coefficients + v.T @ white.residual
        # x0 - X' inv(R) r, and its length in the metric of inv(X' inv(R) X)
        gap = design - v.T @ white.design
        trend = solve_triangular(white.root, gap.T, trans="T")
        explained = np.einsum("ij,ij->j", v, v)
        unexplained = np.maximum(1.0 - explained, 0.0)
        return mean, self.model.variance * (unexplained + np.einsum("ij,ij->j", trend, trend))

    def _check(
        self, sites: ArrayLike, covariates: ArrayLike | None, target: Target
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sites and their design matrix, matched with the observations."""
        if target not in ("observation", "field"):
            raise ValueError(f"target is {target!r}, but there are 'observation' and 'field'")
        places = as_sites(sites)
        d = self._observations.coordinates.shape[1]
        if places.shape[1] != d:
            raise ValueError(f"sites have {places.shape[1]} coordinates, but the observations have {d}")
        design = design_matrix(len(places), covariates, self._observations.mean)
        p = self._observations.design.shape[1]
        if design.shape[1] != p:
            raise ValueError(
                f"the mean has {p} columns ({', '.join(self._observations.mean_columns)}), but the sites give {design.shape[1]}: "
                "pass the same covariates as for the observations"
            )
        return places, design


@contextmanager
def kriging(
    observations: Observations,
    model: Matern,
    *,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
    trace: bool = False,
) -> Iterator[Kriging]:
    """Factor once, predict often: the factor is open inside the ``with`` block.

    Parameters
    ----------
    observations : Observations
        The data, in any order.
    model : Matern
        The covariance function, usually of a fit.
    settings : FactorSettings, optional
        How to factor.
    progress : callable, optional
        Called with flops done, flops in all and seconds.
    trace : bool
        Record a trace of the factorization (``kriging.factor.trace``).

    Yields
    ------
    Kriging
        Ready to predict.

    Raises
    ------
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    """
    ordered = observations.take(morton_order(observations.coordinates))
    correlation = Matern(1.0, model.range, model.smoothness, model.nugget / model.variance)
    with factored(correlation, ordered.coordinates, settings or FactorSettings(), progress=progress, trace=trace) as factor:
        yield Kriging(factor, ordered, model)


def predict(
    observations: Observations,
    model: Matern,
    sites: ArrayLike,
    *,
    covariates: ArrayLike | None = None,
    target: Target = "observation",
    settings: FactorSettings | None = None,
) -> Prediction:
    """Kriging mean and variance at new sites, in one call.

    Parameters
    ----------
    observations : Observations
        The data, in any order.
    model : Matern
        The covariance function, usually ``fit(observations).model``.
    sites : (m, d) array
        Where to predict.
    covariates : (m, q) array, optional
        The covariates of the mean there.
    target : {"observation", "field"}
        What to predict.
    settings : FactorSettings, optional
        How to factor.

    Returns
    -------
    Prediction
        In the order of ``sites``.

    Raises
    ------
    ValueError
        Dimension or covariates do not match the observations, or there is no such target.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    """
    with kriging(observations, model, settings=settings) as kriged:
        return kriged.predict(sites, covariates=covariates, target=target)
