"""Kriging of a data set: factored once for many predictions, or for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.accounts import Account, check_plan
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.data.ordering import morton_order
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of, log_likelihood
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings, chosen_settings, factored
from ooc_chol.apps.geostat.kriging.kriged import BATCH_BYTES as BATCH_BYTES
from ooc_chol.apps.geostat.kriging.kriged import Kriging as Kriging
from ooc_chol.apps.geostat.kriging.kriged import known_coefficients, kriging_kind, match_sites
from ooc_chol.apps.geostat.kriging.predict_plan import PredictPlan, report_of_prediction
from ooc_chol.apps.geostat.kriging.predicted import HalfWidths as HalfWidths
from ooc_chol.apps.geostat.kriging.predicted import Prediction as Prediction
from ooc_chol.apps.geostat.kriging.predicted import Target as Target
from ooc_chol.apps.geostat.kriging.predicted import check_target, new_errors


@tb.documented(like=log_likelihood)
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
    model : AbstractCovariance
        The covariance function, usually of a fit.
    coefficients : (p,) array, optional
        Known coefficients of the columns of the mean: simple kriging. When not given they are estimated: ordinary kriging with
        ``mean="constant"`` and no covariates, universal kriging with covariates. (``mean="zero"`` alone is simple, too.)
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
    check_is_observations(observations)
    order = morton_order(observations.places)
    ordered = observations.take(order)
    correlation = correlation_of(model)
    noise = ordered.scaled_errors(model.variance)
    with factored(
        correlation,
        ordered.coordinates,
        chosen_settings(settings),
        noise=noise,
        rows=ordered.named_rows,
        progress=progress,
        trace=trace,
    ) as factor:
        yield Kriging(factor, ordered, model, coefficients=coefficients, order=order)


@tb.documented(
    progress="It counts flops of the factorization.",
    trace="It is that of the factorization and of the solves with it.",
    plan="See :func:`plan_predict`. In mixed precision the matrix is planned for all the same.",
)
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
    progress: tb.Progress = None,
    trace: bool = False,
    plan: PredictPlan | None = None,
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
        Mean and variance at each site, in the order of ``sites``, with the report of the call.

    Raises
    ------
    ValueError
        Dimension or covariates do not match the observations, there is no such target, or ``plan`` is of another prediction.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.
    StoppedError
        ``progress`` returned True.
    """
    check_is_observations(observations)
    account = Account(n=observations.n)
    tb.checked(trace=trace)
    asked = chosen_settings(settings)
    places = _checked_sites(observations, sites, covariates, target, error_variances, coefficients)
    if plan is not None:
        check_plan(plan, PredictPlan, _problem(observations, model, places, coefficients))
    how = asked.planned_by(plan)
    if plan is None:
        with account.part("planning"):
            plan = planned_kriging(observations, model, places, coefficients, asked)
        how = how.planned_by(plan)
    how = replace(how, account=account)
    with tb.progress_reporter(progress, plan.call, "flop") as tell, ExitStack() as opened:
        with account.part("run"):
            factoring = kriging(observations, model, coefficients=coefficients, settings=how, progress=tell, trace=trace)
            kriged = opened.enter_context(factoring)
        with account.part("sites"):
            found = kriged.predict(
                sites, covariates=covariates, target=target, error_variances=error_variances, certified=certified
            )
        made = kriged.factor.trace
    report = report_of_prediction(account, plan, model, target=target, certified=certified)
    return replace(found, report=report, trace=made if trace else None)


@tb.documented(like=predict)
def plan_predict(
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
    progress: tb.Progress = None,
    trace: bool = False,
) -> PredictPlan:
    """Plan a prediction without a factorization.

    Returns
    -------
    PredictPlan
        To be printed, or given to :func:`predict` as ``plan``.

    Raises
    ------
    ValueError, BudgetError
        As :func:`predict` raises them before it computes anything.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.geostat import Matern, make_observations
    >>> sites = np.random.default_rng(0).uniform(size=(150, 2))
    >>> plan = plan_predict(
    ...     make_observations(sites, sites[:, 0]),
    ...     Matern(1.0, 0.2, 1.5, 0.1),
    ...     [[0.5, 0.5]],
    ... )
    >>> plan.n, plan.kind
    (150, 'ordinary')
    """
    check_is_observations(observations)
    tb.checked(progress=progress, trace=trace)
    places = _checked_sites(observations, sites, covariates, target, error_variances, coefficients)
    return planned_kriging(observations, model, places, coefficients, chosen_settings(settings))


def _checked_sites(
    observations: Observations,
    sites: ArrayLike,
    covariates: ArrayLike | None,
    target: Target,
    error_variances: ArrayLike | None,
    coefficients: ArrayLike | None,
) -> int:
    """Number of new sites, where everything about them is as it must be."""
    check_target(target)
    places, _ = match_sites(observations, sites, covariates)
    new_errors(error_variances, len(places), target)
    if coefficients is not None:
        known_coefficients(observations, coefficients)
    return len(places)


def _problem(observations: Observations, model: AbstractCovariance, sites: int, coefficients: ArrayLike | None) -> dict[str, Any]:
    """Facts of a prediction that its plan has."""
    kind = kriging_kind(observations, is_mean_known=coefficients is not None)
    return {"n": observations.n, "model": type(model).__name__, "kind": kind, "sites": sites}


def planned_kriging(
    observations: Observations, model: AbstractCovariance, sites: int, coefficients: ArrayLike | None, settings: FactorSettings
) -> PredictPlan:
    """The plan of a prediction that has been checked."""
    facts = settings.factoring_facts(covariance_source(correlation_of(model), observations.coordinates))
    if facts["refusal"] is not None:
        raise facts["refusal"]
    return PredictPlan(**facts, **_problem(observations, model, sites, coefficients))
