"""Kriging of a data set: factored once for many predictions, or for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numpy.typing import ArrayLike

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.data.ordering import morton_order
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings, factored
from ooc_chol.apps.geostat.kriging.kriged import BATCH_BYTES as BATCH_BYTES
from ooc_chol.apps.geostat.kriging.kriged import Kriging as Kriging
from ooc_chol.apps.geostat.kriging.predicted import HalfWidths as HalfWidths
from ooc_chol.apps.geostat.kriging.predicted import Prediction as Prediction
from ooc_chol.apps.geostat.kriging.predicted import Target as Target


@contextmanager
def kriging(
    observations: Observations,
    model: AbstractCovariance,
    *,
    coefficients: ArrayLike | None = None,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
    trace: bool = False,
) -> Iterator[Kriging]:
    """Factor once, predict often: the factor is open inside the ``with`` block.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        The covariance function, usually of a fit.
    coefficients : (p,) array, optional
        Known coefficients of the columns of the mean: simple kriging. When not given they are estimated: ordinary kriging with
        ``mean="constant"`` and no covariates, universal kriging with covariates. (``mean="zero"`` alone is simple, too.)
    settings : FactorSettings, optional
        Tile size, devices, memory budgets and store of the factorization; chosen by the library when not given.
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
    ValueError
        There is not one coefficient per column of the mean, one is not finite, or the columns are linearly dependent.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    """
    order = morton_order(observations.places)
    ordered = observations.take(order)
    correlation = correlation_of(model)
    noise = ordered.scaled_errors(model.variance)
    with factored(
        correlation,
        ordered.coordinates,
        settings or FactorSettings(),
        noise=noise,
        rows=ordered.named_rows,
        progress=progress,
        trace=trace,
    ) as factor:
        yield Kriging(factor, ordered, model, coefficients=coefficients, order=order)


def predict(
    observations: Observations,
    model: AbstractCovariance,
    sites: ArrayLike,
    *,
    covariates: ArrayLike | None = None,
    target: Target = "observation",
    error_variances: ArrayLike | None = None,
    coefficients: ArrayLike | None = None,
    settings: FactorSettings | None = None,
    certified: bool = False,
) -> Prediction:
    """Kriging mean and variance at new sites, in one call.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        The covariance function, usually ``fit(observations).model``.
    sites : (m, d) array
        Coordinates of the new sites, as those of the observations.
    covariates : (m, q) array, optional
        Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.
    target : {"observation", "field"}
        New observations, whose variance includes the nugget, or the smooth field underneath.
    error_variances : (m,) array, optional
        Known variances of the errors of new observations; see :meth:`Kriging.predict`.
    coefficients : (p,) array, optional
        Known coefficients of the mean, see :func:`kriging`.
    settings : FactorSettings, optional
        Tile size, devices, memory budgets and store of the factorization; chosen by the library when not given.
    certified : bool
        Give the most that means and variances are off, too, whatever the precision of the factor; see :meth:`Kriging.predict`.

    Returns
    -------
    Prediction
        Mean and variance at each site, in the order of ``sites``.

    Raises
    ------
    ValueError
        Dimension or covariates do not match the observations, or there is no such target.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    """
    with kriging(observations, model, coefficients=coefficients, settings=settings) as kriged:
        return kriged.predict(sites, covariates=covariates, target=target, error_variances=error_variances, certified=certified)
