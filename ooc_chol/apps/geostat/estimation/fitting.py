"""Maximum likelihood over range, smoothness and nugget ratio, one out-of-core Cholesky factorization per evaluation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.accounts import Account, check_plan
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.estimation.evaluation_log import LOGS, EvaluationLog, observations_digest
from ooc_chol.apps.geostat.estimation.fit_options import FitOptions, options_of
from ooc_chol.apps.geostat.estimation.fit_plan import FitPlan, FitReport, planned_fit, report_of_fit, searches
from ooc_chol.apps.geostat.estimation.fit_result import FitResult as FitResult
from ooc_chol.apps.geostat.estimation.fit_result import SmoothnessTrial as SmoothnessTrial
from ooc_chol.apps.geostat.estimation.fit_search import Search
from ooc_chol.apps.geostat.estimation.fit_unit import FitUnit, ProgressInUnit
from ooc_chol.apps.geostat.estimation.fit_warnings import warnings_of
from ooc_chol.apps.geostat.estimation.gradient import TraceSums
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions
from ooc_chol.apps.geostat.estimation.optimizers import Method
from ooc_chol.apps.geostat.estimation.precision import certified_check, checked_in_fp64
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress, FitProgress, fit_progress
from ooc_chol.apps.geostat.estimation.search import Model, Nugget
from ooc_chol.apps.geostat.estimation.search_end import TOLERANCE
from ooc_chol.apps.geostat.estimation.smoothness_choice import Chosen, choose_smoothness, overlap_text
from ooc_chol.apps.geostat.estimation.stationary_search import stationary_search
from ooc_chol.apps.geostat.estimation.structure_check import structure_warning
from ooc_chol.apps.geostat.estimation.value_unit import value_unit
from ooc_chol.apps.geostat.estimation.vecchia_check import check_vecchia, check_warning
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS
from ooc_chol.apps.geostat.estimation.vecchia_search import ExactCheck, Starts
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Options of a factorization, beside its threshold, by which the values of a log may differ by more than FP64 rounds.
_ROUNDING = ("moduli", "precision_rule", "half_products", "strict")

#: The same where there is a threshold: formats go by tile, and small products by their arithmetic. What "auto", a budget or the
#: rates of a machine choose is not in a log, so that going on elsewhere with these may mix roundings within the threshold.
_MIXED_ROUNDING = (*_ROUNDING, "fp64", "tile_size")


@tb.documented(
    checkpoint="It is a log, a line of JSON for each evaluation, which is there at once; evaluations and starts are counted. "
    "In mixed precision each evaluation then chooses its formats anew, and last digits differ from those without a log.",
    progress="It counts evaluations. Or an :class:`AbstractFitProgress`, which is told more of each.",
    trace="It is that of the last factorization of all observations: each is planned as the one before.",
    plan="See :func:`plan_fit`. In mixed precision each search plans by its first matrix all the same.",
)
def fit(
    observations: Observations,
    *,
    covariance: AbstractCovariance | None = None,
    fixed: Sequence[str] = (),
    smoothness: float | Literal["auto", "best", "free"] = "auto",
    nugget: Nugget = "free",
    method: Method | None = None,
    reml: bool = False,
    traces: TraceSums = "auto",
    tolerance: float = TOLERANCE,
    max_evaluations: int = 200,
    neighbours: int = NEIGHBOURS,
    starts: Starts = "auto",
    exact_check: ExactCheck | None = None,
    settings: FactorSettings | None = None,
    on_estimate: Callable[[FitResult[Any]], None] | None = None,
    replace: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: FitProgress = None,
    trace: bool = False,
    plan: FitPlan | None = None,
) -> FitResult[Any]:
    """Fit a covariance function by maximum likelihood, mean and variance profiled out: Matérn, exactly, unless told otherwise.

    Parameters
    ----------
    observations : Observations
        The data, in any order. With known error variances, the variance is searched for unless a positive nugget is kept.
    covariance : AbstractCovariance, optional
        Its class is fitted, and the search starts from its values, or near them. By default an isotropic Matérn model.
    fixed : sequence of str
        Parameters of ``covariance`` that keep their values, such as ``("smoothness",)``.
    smoothness : float or {"auto", "best", "free"}
        Without ``covariance``: ``nu``; ``"best"`` of 0.5, 1.5 and 2.5; ``"free"``, estimated; or ``"auto"``, the estimate where
        its likelihood ratio rejects that best one at 1 %.
    nugget : {"free", "zero"} or float
        Estimated (ratio at least 1e-8), none, or kept at this variance.
    method : {"cobyqa", "bobyqa", "lbfgs", "fisher", "vecchia"}, optional
        Without derivatives; by the gradient; by Fisher scoring, the default; or so on Vecchia's approximation.
    reml : bool
        Maximise the restricted likelihood.
    traces : {"auto", "exact", "probes"}
        Gradients exact, by random probes, or exact up to 20,000 observations.
    tolerance : float
        Log-likelihood that the next step must gain for the search to go on.
    max_evaluations : int
        Likelihoods per smoothness on all observations.
    neighbours : int
        Earlier neighbours of each observation in Vecchia's approximation.
    starts : {"auto", "template", "subset", "vecchia", "variogram"}
        Where searches start: at ``covariance``, on five neighbourhoods of 100 sites, where Vecchia's approximation is largest, or
        at a semivariogram's least-squares fit. By default Vecchia's from 5,000 observations on.
    exact_check : {"value", "score", "skip"}, optional
        With ``method="vecchia"`` or a ``precision_threshold``: an exact log-likelihood at the estimate, with its gradient too, or
        none. By default the value with ``"vecchia"``.
    settings : FactorSettings, optional
        How every factorization runs: tile size, devices, budgets, store, precision.
    on_estimate : callable, optional
        Called with the result as the search found it, before any check: the place to keep it.

    Returns
    -------
    FitResult
        Fitted model, log-likelihood and every evaluation. The model is of the class of ``covariance``, or a :class:`Matern`.

    Raises
    ------
    ValueError
        An option makes no sense, two do not go together, the plan is of another fit, or the data cannot carry a fit.
    CheckpointError, OutputError, MissingFolderError
        The checkpoint is of another fit, a file of another kind is where one goes, or there is no folder for it.
    BudgetError, TierError
        Memory or disk does not suffice for the search; found out beforehand from the plan.
    NotPositiveDefiniteError
        No starting point has a positive definite correlation matrix.
    StoppedError, MissingExtraError
        ``progress`` returned True; or NLopt is not installed.

    Notes
    -----
    Each evaluation costs ``n**3 / 3`` flops, with an exact gradient three times that, with one by probes ``n**2`` more. Fisher
    scoring takes 4 to 8 of them from 500 observations on, and reaches the largest log-likelihood to 1e-4. With probes the
    estimate is off by at most about ``1 / sqrt(probes)`` of its standard errors. The search is a local one: with many parameters,
    start from more than one place. A smoothness that is kept and rejected is warned of.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.geostat import (
    ...     GeometricAnisotropy,
    ...     Matern,
    ...     make_observations,
    ...     simulate,
    ... )
    >>> sites = np.random.default_rng(0).uniform(size=(150, 2))
    >>> truth = GeometricAnisotropy(
    ...     Matern(1.0, 0.3, 1.5, 0.01), angle=0.5, ratio=0.3
    ... )
    >>> observations = make_observations(
    ...     sites, simulate(truth, sites, seed=1, target="observation")[0]
    ... )
    >>> start = GeometricAnisotropy(
    ...     Matern(1.0, 0.1, 1.5, 0.1), angle=0.0, ratio=1.0
    ... )
    >>> result = fit(observations, covariance=start, fixed=("smoothness",))
    >>> result.converged, result.estimated
    (True, ('range', 'angle', 'ratio', 'variance', 'nugget'))
    >>> abs(result.model.angle - 0.5) < 0.1
    True
    """
    check_is_observations(observations)
    call = _FitCall(observations, options_of(locals()), on_estimate, replace, checkpoint)
    with fit_progress(progress, FitPlan.call, call.most) as told:
        return call.run(told, plan, is_traced=tb.checked(trace=trace)["trace"])


@tb.documented(like=fit)
def plan_fit(
    observations: Observations,
    *,
    covariance: AbstractCovariance | None = None,
    fixed: Sequence[str] = (),
    smoothness: float | Literal["auto", "best", "free"] = "auto",
    nugget: Nugget = "free",
    method: Method | None = None,
    reml: bool = False,
    traces: TraceSums = "auto",
    tolerance: float = TOLERANCE,
    max_evaluations: int = 200,
    neighbours: int = NEIGHBOURS,
    starts: Starts = "auto",
    exact_check: ExactCheck | None = None,
    settings: FactorSettings | None = None,
    on_estimate: Callable[[FitResult[Any]], None] | None = None,
    replace: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: FitProgress = None,
    trace: bool = False,
) -> FitPlan:
    """Plan a fit without an evaluation: its searches, and what the factorization of each evaluation moves, needs and takes.

    Returns
    -------
    FitPlan
        To be printed, or given to :func:`fit` as ``plan``.

    Raises
    ------
    ValueError, BudgetError, OutputError, MissingFolderError
        As :func:`fit` raises them before it computes anything.

    Notes
    -----
    Bytes and seconds are those of one evaluation. Passes over a factor for gradients and certificates are not in them.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.geostat import make_observations
    >>> sites = np.random.default_rng(0).uniform(size=(150, 2))
    >>> plan = plan_fit(make_observations(sites, sites[:, 0]), smoothness=1.5)
    >>> plan.searched, plan.most_evaluations
    ((('range', 'nugget_ratio'),), 200)
    """
    check_is_observations(observations)
    call = _FitCall(observations, options_of(locals()), on_estimate, replace, checkpoint)
    with fit_progress(progress, FitPlan.call, call.most):
        tb.checked(trace=trace)
        return call.plan()


class _FitCall:
    """A call of ``fit``: what is asked for, checked, before anything is computed.

    Values are fitted in a unit of their own, and results told in the one that they came in.
    """

    def __init__(
        self,
        observations: Observations,
        options: FitOptions,
        on_estimate: Callable[[FitResult[Any]], None] | None,
        replace: bool,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self.account = Account(n=observations.n)
        self.asked = options
        unit = value_unit(observations)
        self.back = FitUnit(unit, degrees_of_freedom(observations, options.reml))
        self.on_estimate = on_estimate
        self.replaces = tb.checked(replace=replace)["replace"]
        path = tb.checked(checkpoint=checkpoint)["checkpoint"]
        self.checkpoint = None if path is None else Path(path)
        self.observations = observations if unit.is_plain else unit.observations(observations)
        self.options = options.in_unit(unit)
        self.options.check(self.observations)
        self.spaces = self.options.spaces(self.observations)
        self.given = self.options.start(self.spaces[0])
        _check_files(options.settings, self.checkpoint)

    @property
    def most(self) -> int:
        """Most evaluations, if no search goes on with another precision."""
        searches = len(self.spaces) + self.options.estimates_smoothness_too(self.observations.n)
        return self.options.max_evaluations * searches

    def plan(self) -> FitPlan:
        """The plan."""
        return planned_fit(self.observations, self.options, self.spaces)

    def run(self, progress: AbstractFitProgress, plan: FitPlan | None, *, is_traced: bool) -> FitResult[Any]:
        """The fit, as planned."""
        if plan is not None:
            check_plan(plan, FitPlan, searches(self.observations, self.options, self.spaces))
        account, settings = self.account, self.options.settings.planned_by(plan)
        account.is_traced = is_traced
        if plan is None:
            with account.part("planning"):
                plan = self.plan()
            settings = settings.planned_by(plan)
        self.options = replace(self.options, settings=replace(settings, account=account))
        memory = oc.HostMemory(spare=True)
        likelihood = self.options.likelihood(memory)
        identity = _identity(self.observations, likelihood)
        with memory, closing(EvaluationLog(identity, self.checkpoint, replace=self.replaces)) as known:
            search = Search(
                self.observations,
                likelihood,
                progress if self.back.unit.is_plain else ProgressInUnit(progress, self.back),
                self.options.search_method(self.observations),
                self.options.limits,
                known,
                self.options.vecchia,
                account,
            )
            return self._searched(search, plan)

    def _searched(self, search: Search, plan: FitPlan) -> FitResult[Any]:
        """The estimate of the searches, and what judges it."""
        simpler = stationary_search(search, self.spaces[0], self.given)
        given = self.given if simpler is None else simpler.start
        outcomes = [search.maximise(space, given) for space in self.spaces]
        found = Chosen(tuple(outcomes), max(outcomes, key=lambda outcome: outcome.likelihood.loglik))
        self._tell(search, found, plan)
        chosen = choose_smoothness(search, self.options, found)
        with self.account.part("checks"):
            if self.options.covariance is not None and chosen.warning is None:
                best, neighbours = (chosen.best.space, chosen.best.point), self.options.neighbours
                warning = structure_warning(self.observations, best, search.options, neighbours=neighbours)
                chosen = replace(chosen, warning=warning)
            if chosen.best is not found.best:
                self._tell(search, chosen, plan)
            result = _judged(self._result(search, chosen, plan), search, chosen, plan.refusal)
        tested = None if simpler is None else simpler.test(chosen.best)
        return self.back.result(replace(result, stationary=tested, report=self._report(search, plan), trace=self.account.trace))

    def _tell(self, search: Search, chosen: Chosen, plan: FitPlan) -> None:
        """Hand the estimate over before anything else judges it."""
        if self.on_estimate is not None:
            self.on_estimate(self.back.result(self._result(search, chosen, plan)))

    def _report(self, search: Search, plan: FitPlan) -> FitReport:
        """The report until now."""
        return report_of_fit(self.account, plan, self.asked, len(search.evaluations), search.reused)

    def _result(self, search: Search, chosen: Chosen, plan: FitPlan) -> FitResult[Any]:
        """The result as the searches found it."""
        return _result(self.observations, search, chosen, self._report(search, plan))


def _check_files(settings: FactorSettings, checkpoint: Path | None) -> None:
    """Refuse a store that is the checkpoint; each alone is looked at where it is made."""
    tb.check_outputs([tb.Output("store", settings.store), tb.Output("checkpoint", checkpoint, LOGS)], replace=True)


def _identity(observations: Observations, options: LikelihoodOptions) -> dict[str, Any]:
    """Facts on which the values in a log depend; the names are those of its first line, which older logs have too."""
    asked, defaults = options.settings.keywords(), FactorSettings().keywords()
    names = _ROUNDING if options.settings.precision_threshold is None else _MIXED_ROUNDING
    # None for defaults, as in logs from before these were options
    rounding = {name: None if asked[name] == defaults[name] else asked[name] for name in names}
    return {
        "observations": observations_digest(observations),
        "reml": options.reml,
        "traces": options.trace_sums,
        "probes": options.probes,
        "seed": options.seed,
        "precision_threshold": options.settings.precision_threshold,
        **rounding,
    }


def _result(observations: Observations, search: Search, chosen: Chosen, report: FitReport) -> FitResult[Any]:
    """The result as the searches found it, before anything else judges it."""
    best, outcomes = chosen.best, chosen.outcomes
    likelihood = best.likelihood
    nugget = () if best.space.nugget is not None else ("nugget",)
    estimated = (*best.space.shape, "variance", *nugget)
    model = _canonical(best.space.model(best.point, likelihood.model.variance), estimated)
    trials = tuple(outcome.trial for outcome in outcomes)
    warnings = warnings_of(observations, trials, best.trial, space=best.space, point=best.point, reml=search.options.reml)
    return FitResult(
        model=model,
        loglik=likelihood.loglik,
        n=observations.n,
        mean_columns=observations.mean_columns,
        coefficients=likelihood.coefficients,
        coefficient_covariance=likelihood.coefficient_covariance,
        trials=trials,
        evaluations=tuple(search.evaluations),
        subset_evaluations=search.subset_evaluations,
        report=report,
        converged=best.trial.converged,
        warnings=warnings,
        method=search.method,
        reml=search.options.reml,
        estimated=estimated,
        start=search.start,
        comparison=chosen.comparison,
        end=best.trial.message,
        vecchia_start=best.vecchia_start,
    )


def _judged(result: FitResult[Any], search: Search, chosen: Chosen, refusal: oc.BudgetError | None) -> FitResult[Any]:
    """The result with its warnings: in mixed precision with what is certified, of the approximation by the exact likelihood."""
    best, texts, exact_check = chosen.best, [chosen.warning], search.vecchia.exact_check
    if search.asked is not None:
        precision = certified_check(best.likelihood, search.asked, best.thresholds, best.problem)
        if exact_check != "skip":
            where, has_score = (best.space, best.point), exact_check == "score"
            found, precision = checked_in_fp64(precision, search.observations, where, search.options, has_score=has_score)
            if found is not None:
                model = _canonical(best.space.model(best.point, found.model.variance), result.estimated)
                spread = found.coefficient_covariance
                result = replace(
                    result, model=model, loglik=found.loglik, coefficients=found.coefficients, coefficient_covariance=spread
                )
        result = replace(result, precision=precision)
        texts += [precision.warning, overlap_text(chosen.outcomes)]
    texts.append(search.memory.problem)
    if search.method == "vecchia":
        check = check_vecchia(
            search.observations,
            result.model,
            (best.space, best.point),
            search.options,
            vecchia=search.vecchia,
            progress=search.progress,
            memory=search.memory,
            refusal=refusal,
        )
        loglik = check.loglik if check.loglik_exact is None else check.loglik_exact
        result = replace(result, vecchia=check, loglik=loglik)
        texts.append(check_warning(check, search.vecchia))
    return replace(result, warnings=(*result.warnings, *filter(None, texts)))


def _canonical(model: Model, estimated: Sequence[str]) -> Model:
    """The model with its parameters in their usual intervals, unless one that was kept would change its value."""
    other = model.canonical()
    return other if all(other.values[name] == value for name, value in model.values.items() if name not in estimated) else model
