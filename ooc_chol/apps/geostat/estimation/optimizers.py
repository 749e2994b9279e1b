"""The search for the maximum of a likelihood from one starting point: COBYQA, L-BFGS-B, Fisher scoring, or NLopt's BOBYQA."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.errors import MissingExtraError
from ooc_chol.apps.geostat.estimation.objective import Objective
from ooc_chol.apps.geostat.estimation.scoring import fisher_scoring
from ooc_chol.apps.geostat.estimation.scoring_step import scoring_step
from ooc_chol.apps.geostat.estimation.search_end import (
    NOISE_AT_END,
    ROUNDING,
    USED_UP,
    SearchEnd,
    SearchLimits,
    converged_by,
    ended_in_noise,
    is_noise,
)

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult  # 0.1 s, which only a fit needs

SearchMethod = Literal["cobyqa", "bobyqa", "lbfgs", "fisher"]
SEARCHES: tuple[SearchMethod, ...] = ("cobyqa", "bobyqa", "lbfgs", "fisher")

#: Methods of a fit: a search on the exact likelihood, or Fisher scoring on Vecchia's approximation.
Method = SearchMethod | Literal["vecchia"]
METHODS: tuple[Method, ...] = (*SEARCHES, "vecchia")

#: Searches without derivatives.
DERIVATIVE_FREE: tuple[SearchMethod, ...] = ("cobyqa", "bobyqa")

#: Shorter ranges tried when the correlation matrix at the start is not positive definite, each a third of the one before.
_RETREATS = 10

#: A search without derivatives has settled when so many evaluations in a row have together gained less than the tolerance.
_PATIENCE = 10


def search_from(objective: Objective, start: NDArray[np.float64], method: SearchMethod, limits: SearchLimits) -> SearchEnd:
    """Look for the maximum from ``start``, or from the first shorter range at which the matrix is positive definite."""
    searches = {"cobyqa": _cobyqa, "bobyqa": _bobyqa, "lbfgs": _lbfgs, "fisher": fisher_scoring}
    if method not in searches:
        raise ValueError(f"method is {method!r}, but there are {', '.join(SEARCHES)}")
    point = _first_feasible(objective, np.clip(start, objective.space.lower, objective.space.upper), method)
    if not len(point):
        return SearchEnd(True, "nothing is searched for")
    return searches[method](objective, point, limits)


def _first_feasible(objective: Objective, point: NDArray[np.float64], method: SearchMethod) -> NDArray[np.float64]:
    """The start, or a shorter range, at which the matrix is positive definite."""
    derived = method not in DERIVATIVE_FREE and len(point) > 0
    for _ in range(_RETREATS):
        if objective.at(point, gradient=derived, information=derived).likelihood is not None:
            return point
        if not objective.space.lengths:
            break
        shorter = point.copy()
        shorter[objective.space.lengths] -= math.log(3.0)
        point = np.clip(shorter, objective.space.lower, objective.space.upper)
    assert objective.last_error is not None, "only a matrix that is not positive definite gives an infinite value"
    raise objective.last_error


def _cobyqa(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """Models of second order in a trust region; ends too when ten evaluations gain less than the tolerance."""
    with tb.guarded_imports():
        from scipy.optimize import minimize

    space, last = objective.space, limits.last_radius(objective.observations.n)
    # COBYQA's first 2 k + 1 evaluations, of which the start was one, only make its model
    since = len(objective.evaluations) + 2 * len(point)

    def stop_when_settled(intermediate_result: object) -> None:
        if _has_settled(objective, limits.tolerance, since):
            raise StopIteration

    solution = minimize(
        objective,
        point,
        method="COBYQA",
        bounds=list(zip(space.lower, space.upper, strict=True)),
        callback=stop_when_settled,
        options={
            "initial_tr_radius": limits.radius,
            "final_tr_radius": last,
            "maxfev": limits.max_evaluations,
        },
    )
    if _has_settled(objective, limits.tolerance, since):
        return SearchEnd(True, f"{_PATIENCE} evaluations raised the log-likelihood by less than {limits.tolerance:g}")
    return SearchEnd(bool(solution.success), str(solution.message))


def nlopt_module() -> Any:
    """The module of NLopt, or ``MissingExtraError`` with the way to install it."""
    try:
        with tb.guarded_imports(blas=False):
            import nlopt
    except ImportError as error:
        raise MissingExtraError(
            f"BOBYQA is NLopt's, which is not installed; search by cobyqa, its successor, or: {tb.install_hint('nlopt')}"
        ) from error
    return nlopt


def _bobyqa(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """NLopt's BOBYQA; ends too, as COBYQA, when ten evaluations gain less than five tolerances."""
    nlopt, space, last = nlopt_module(), objective.space, limits.last_radius(objective.observations.n)
    # the first 2 k + 1 evaluations, of which the start was one, only make its model
    since = len(objective.evaluations) + 2 * len(point)
    start = len(objective.evaluations) - 1

    raised: list[BaseException] = []
    search = nlopt.opt(nlopt.LN_BOBYQA, len(point))

    def value(where: NDArray[np.float64], _: NDArray[np.float64]) -> float:
        # an exception does not get through every version of NLopt: stop there, and raise it here
        try:
            if len(objective.evaluations) - start < limits.max_evaluations and not _has_settled(
                objective, limits.tolerance, since
            ):
                return objective(where)
        except BaseException as error:
            raised.append(error)
        search.force_stop()
        return math.inf

    search.set_min_objective(value)
    search.set_lower_bounds(space.lower)
    search.set_upper_bounds(space.upper)
    search.set_initial_step(limits.radius)
    search.set_xtol_abs(last)
    try:
        search.optimize(point)
    except nlopt.ForcedStop:
        if raised:
            raise raised[0] from None
        if _has_settled(objective, limits.tolerance, since):
            return SearchEnd(True, f"{_PATIENCE} evaluations raised the log-likelihood by less than {limits.tolerance:g}")
        return SearchEnd(False, USED_UP)
    except nlopt.RoundoffLimited:
        return SearchEnd(True, "rounding of the likelihood limits further progress")
    return SearchEnd(True, f"the trust region is smaller than {last:.1g}")


def _has_settled(objective: Objective, gain: float, since: int) -> bool:
    """Tell whether the last ten evaluations, all later than the first ``since``, gained less than ``gain``."""
    values = [evaluation.loglik for evaluation in objective.evaluations]
    before = max(values[:-_PATIENCE], default=-math.inf)
    return len(values) - since > _PATIENCE and math.isfinite(before) and max(values) - before < gain


def _lbfgs(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """L-BFGS-B in coordinates whose unit is a standard error at the start."""
    with tb.guarded_imports():
        from scipy.optimize import minimize

    space, start = objective.space, objective.at(point, gradient=True, information=True)
    assert start.information is not None
    units = 1.0 / np.sqrt(np.maximum(np.diag(start.information), 1e-2 * np.max(np.diag(start.information))))
    already = len(objective.evaluations) - 1

    def value_and_gradient(scaled: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        known = objective.at(point + units * scaled, gradient=True)
        if known.likelihood is None or known.gradient is None:
            return objective(point + units * scaled), np.zeros_like(scaled)
        return -known.loglik, -units * known.gradient

    def end_at(here: NDArray[np.float64], errors: float) -> SearchEnd | None:
        """The end of the search there, if it is one; the information is that of the start."""
        known = objective.at(here, gradient=True)
        if known.gradient is None:
            return None
        step = scoring_step(space, here, replace(known, information=start.information))
        if step.gain <= limits.tolerance:
            return converged_by(step)
        return ended_in_noise(step) if is_noise(objective, here, known, errors=errors) else None

    def stop_at_the_end(intermediate_result: OptimizeResult) -> None:
        if end_at(point + units * intermediate_result.x, 1.0) is not None:
            raise StopIteration

    if (end := end_at(point, 1.0)) is not None:
        return end
    solution = minimize(
        value_and_gradient,
        np.zeros_like(point),
        method="L-BFGS-B",
        jac=True,
        callback=stop_at_the_end,
        bounds=list(zip((space.lower - point) / units, (space.upper - point) / units, strict=True)),
        options={"gtol": 0.0, "ftol": ROUNDING, "maxfun": max(1, limits.max_evaluations - already), "maxls": 10},
    )
    assert objective.best_point is not None, "the start has a likelihood"
    return end_at(objective.best_point, NOISE_AT_END) or SearchEnd(bool(solution.success), str(solution.message))
