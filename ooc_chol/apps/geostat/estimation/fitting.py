"""Maximum likelihood over range, smoothness and nugget ratio, one out-of-core Cholesky factorization per evaluation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.endings import LOG, check_ending
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.evaluation_log import EvaluationLog, goes_on, observations_digest
from ooc_chol.apps.geostat.estimation.fit_options import FitOptions
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
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress, SilentProgress
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
    progress: AbstractFitProgress | None = None,
    log: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    replace_log: bool = False,
    on_estimate: Callable[[FitResult[Any]], None] | None = None,
) -> FitResult[Any]:
    """Fit a covariance function by maximum likelihood, mean and variance profiled out: Matérn, exactly, unless told otherwise.

    Parameters
    ----------
    observations : Observations
        The data, in any order. Where they have known error variances, the variance is not profiled out but searched for, unless
        a positive nugget is kept.
    covariance : AbstractCovariance, optional
        Any covariance function: its class is fitted, and the search starts from its values (of variance and nugget, only their
        ratio), or near them (``starts``). When not given, an isotropic Matérn model is.
    fixed : sequence of str
        Parameters of ``covariance`` that keep their values, such as ``("smoothness",)``.
    smoothness : float or {"auto", "best", "free"}
        Without ``covariance``: ``nu``; ``"best"``, the one of 0.5, 1.5 and 2.5 with the largest likelihood; ``"free"``,
        estimated; or ``"auto"``, up to 20,000 observations the estimated one where its likelihood ratio rejects the best of the
        three at a level of 1 %, else that best one (``comparison`` tells both). A smoothness that is kept and rejected is warned
        of: by those likelihoods, or by Vecchia's of 1,000 of the conditional densities.
    nugget : {"free", "zero"} or float
        Estimated (ratio at least 1e-8), none, or kept at this variance.
    method : {"cobyqa", "bobyqa", "lbfgs", "fisher", "vecchia"}, optional
        Without derivatives, by SciPy's COBYQA or NLopt's BOBYQA; by the gradient; by the gradient and the expected information;
        or so on Vecchia's approximation in place of the likelihood, whose distance from exact is told. ``"fisher"`` when not
        given: it takes the least time to 1e-4 of the largest log-likelihood.
    reml : bool
        Maximise the restricted likelihood.
    traces : {"auto", "exact", "probes"}
        Gradients exact, by random probes, or exact up to 20,000 observations. With probes the estimate is off by a share of its
        standard errors: about ``1 / sqrt(probes)`` of them at most.
    tolerance : float
        In units of the log-likelihood. A search with derivatives ends when the next step would gain less than this, one without
        when ten evaluations together do, or when its trust region is smaller than ``sqrt(tolerance / n)`` in the logarithm of the
        range. At the default the estimate has the largest log-likelihood to 1e-4, unless gradients are by probes: then the result
        says within what error.
    max_evaluations : int
        Likelihoods per smoothness on all observations.
    neighbours : int
        Earlier neighbours of each observation in Vecchia's approximation.
    starts : {"auto", "template", "subset", "vecchia", "variogram"}
        Where searches start: at the values of ``covariance`` (``"template"``) or at the best point on five neighbourhoods of 100
        sites (``"subset"``); where Vecchia's approximation is largest (``"vecchia"``), to a tenth of a standard error and on up
        to 20,000 of the conditional densities (all on GPUs), of which ``vecchia_start`` tells how far it was; or that for 5,000
        observations or more, else one of the former. Of a Matérn model ``"variogram"``: the least-squares fit of its
        semivariogram.
    exact_check : {"value", "score", "skip"}, optional
        With ``method="vecchia"`` or a ``precision_threshold``: one exact log-likelihood in FP64 at the estimate; with its
        gradient too, so that it is told how many standard errors away the exact estimate is; or none. When not given, the value
        with ``"vecchia"``, and none with a threshold, where the interval of the last evaluation says how far off it is.
    settings : FactorSettings, optional
        How every factorization runs: tile size, devices, budgets, store, precision.
    progress : AbstractFitProgress, optional
        Told of every evaluation.
    log : path, optional
        Write a line of JSON for every evaluation to this new file, at once.
    resume : path, optional
        Go on from such a file: evaluations that are in it are not computed again. New ones are added to it, unless there is
        another ``log``.
    replace_log : bool
        Let ``log`` replace whatever file has its name.
    on_estimate : callable, optional
        Called with the result as the search found it, before anything else judges it: the place to keep an estimate that an
        interrupt, or a machine that fails, must not take away.

    Returns
    -------
    FitResult
        Fitted model, log-likelihood and every evaluation. The model is of the class of ``covariance``, or a :class:`Matern`.

    Raises
    ------
    ValueError
        The smoothness, the nugget, the method or another option is no such choice, or two do not go together; the data cannot
        carry a fit (all at one place, all equal, duplicates without nugget); ``fixed`` or the start does not fit ``covariance``
        or the sites; or ``resume`` is no log, or one of another fit.
    FileExistsError, FileNotFoundError
        ``log`` or the store exists already (without ``replace_log``), or ``resume`` or the store's folder does not.
    BudgetError, TierError
        Memory or disk does not suffice for a factorization of the search; what the plan and what is free say is found out before
        the search. Where only a check of the estimate fails, or cannot run, the result says so.
    NotPositiveDefiniteError
        No starting point with a positive definite correlation matrix was found, even at short ranges.
    MissingExtraError
        BOBYQA is asked for, but NLopt is not installed.

    Notes
    -----
    Each evaluation costs ``n**3 / 3`` flops, with an exact gradient three times that, with one by probes ``n**2`` more. To 1e-4
    of the largest log-likelihood COBYQA (Ragonneau and Zhang; in SciPy) takes 24 to 33 of them at a fixed smoothness, L-BFGS-B 6
    to 9 and Fisher scoring 4 to 8 from 500 observations.

    Each covariance function says itself on which scales its parameters are searched for (``AbstractCovariance.scales``). The
    search is a local one: where several maxima are possible, as with many parameters, start from more than one place.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.geostat import GeometricAnisotropy, Matern, make_observations, simulate
    >>> sites = np.random.default_rng(0).uniform(size=(150, 2))
    >>> truth = GeometricAnisotropy(Matern(1.0, 0.3, 1.5, 0.01), angle=0.5, ratio=0.3)
    >>> observations = make_observations(sites, simulate(truth, sites, seed=1, target="observation")[0])
    >>> start = GeometricAnisotropy(Matern(1.0, 0.1, 1.5, 0.1), angle=0.0, ratio=1.0)
    >>> result = fit(observations, covariance=start, fixed=("smoothness",))
    >>> result.converged, result.estimated
    (True, ('range', 'angle', 'ratio', 'variance', 'nugget'))
    >>> abs(result.model.angle - 0.5) < 0.1
    True
    """
    unit = value_unit(observations)
    if not unit.is_plain:
        back = FitUnit(unit, degrees_of_freedom(observations, reml))
        told = fit(
            unit.observations(observations),
            covariance=covariance,
            fixed=fixed,
            smoothness=smoothness,
            nugget=nugget if isinstance(nugget, str) else unit.variance(nugget),
            method=method,
            reml=reml,
            traces=traces,
            tolerance=tolerance,
            max_evaluations=max_evaluations,
            neighbours=neighbours,
            starts=starts,
            exact_check=exact_check,
            settings=settings,
            progress=None if progress is None else ProgressInUnit(progress, back),
            log=log,
            resume=resume,
            replace_log=replace_log,
            on_estimate=back.told(on_estimate),
        )
        return back.result(told)
    start = time.perf_counter()
    options = FitOptions(
        covariance=covariance,
        fixed=fixed,
        smoothness=smoothness,
        nugget=nugget,
        method=method,
        reml=reml,
        traces=traces,
        tolerance=tolerance,
        max_evaluations=max_evaluations,
        neighbours=neighbours,
        starts=starts,
        exact_check=exact_check,
        settings=settings or FactorSettings(),
    )
    options.check(observations)
    spaces = options.spaces(observations)
    given = options.start(spaces[0])
    log_file, resumed = (None if path is None else Path(path) for path in (log, resume))
    _check_files(options.settings, log_file, resumed)
    if options.factors:
        options.settings.check()
    refusal = options.refusal(observations)
    memory = oc.HostMemory(spare=True)
    likelihood = options.likelihood(memory)
    logged = closing(EvaluationLog(_identity(observations, likelihood), log_file, resumed, replace=replace_log))
    with memory, logged as known:
        search = Search(
            observations,
            likelihood,
            progress or SilentProgress(),
            options.search_method(observations),
            options.limits,
            known,
            options.vecchia,
        )
        simpler = stationary_search(search, spaces[0], given)
        given = given if simpler is None else simpler.start
        outcomes = [search.maximise(space, given) for space in spaces]
        found = Chosen(tuple(outcomes), max(outcomes, key=lambda outcome: outcome.likelihood.loglik))
        if on_estimate is not None:
            on_estimate(_result(observations, search, found, start))
        chosen = choose_smoothness(search, options, found)
        if covariance is not None and chosen.warning is None:
            best = chosen.best.space, chosen.best.point
            chosen = replace(chosen, warning=structure_warning(observations, best, likelihood, neighbours=neighbours))
        result = _result(observations, search, chosen, start)
        if on_estimate is not None and chosen.best is not found.best:
            on_estimate(result)
        judged = _judged(result, search, chosen, refusal)
        return replace(
            judged, stationary=None if simpler is None else simpler.test(chosen.best), seconds=time.perf_counter() - start
        )


def _check_files(settings: FactorSettings, log: Path | None, resume: Path | None) -> None:
    """Refuse a store that is the log or what is gone on from; each alone is looked at where it is made."""
    if log is not None:
        check_ending(log, LOG, "logs of evaluations")
    outputs = [tb.Output("store", settings.store), tb.Output("log", None if goes_on(log, resume) else log)]
    tb.check_outputs(outputs, [("resume", resume)], replace=True)


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


def _result(observations: Observations, search: Search, chosen: Chosen, start: float) -> FitResult[Any]:
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
        seconds=time.perf_counter() - start,
        converged=best.trial.converged,
        warnings=warnings,
        method=search.method,
        reml=search.options.reml,
        estimated=estimated,
        reused=search.reused,
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
