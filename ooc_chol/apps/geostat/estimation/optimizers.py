"""The search for the maximum of a likelihood from one starting point: COBYQA, L-BFGS-B, Fisher scoring, or NLopt's BOBYQA."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.errors import MissingExtraError
from ooc_chol.apps.geostat.estimation.objective import Known, Objective

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

#: A search has settled when so many evaluations in a row have together raised the log-likelihood by less than so many tolerances.
_PATIENCE = 10
_LEAST_GAIN_IN_TOLERANCES = 5.0

#: Longest step of Fisher scoring in a coordinate, halvings of a step that does not raise the likelihood, and the share of the
#: gain that the gradient promises which a step must bring.
_LONGEST_STEP = 1.5
_HALVINGS = 8
_LEAST_SHARE = 1e-4

#: A longest step of fewer standard errors is of a coordinate that the data say nothing of, such as a nugget near its floor.
_UNSEEN = 0.1

#: Information below this share of the largest, by coordinate or by direction of scaled coordinates, counts as so much.
_FLAT = 1e-6

#: Curvature so many times that expected makes scoring step too far, and so many times is not believed: it is not quadratic there.
_MORE_CURVED = 1.5
_WILD = 10.0

#: A step, and the difference of the gradients before and after.
Change = tuple[NDArray[np.float64], NDArray[np.float64]]

#: Standard errors of a gradient by probes within which it counts as zero where the likelihood no longer rises along it.
_NOISE_AT_END = 4.0
_NOISE_TEXT = "the gradient is within its Monte-Carlo error"

#: A change of the log-likelihood below this times its size is rounding.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class SearchEnd:
    """How a search ended."""

    converged: bool  #: Whether it ended because of the tolerance
    message: str


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends."""

    #: Last trust-region radius of COBYQA and BOBYQA; for the others the largest gradient in units of one over a standard error,
    #: which is the distance to the maximum in standard errors
    tolerance: float
    max_evaluations: int
    radius: float = 0.5  #: First trust-region radius of COBYQA and BOBYQA


def search_from(objective: Objective, start: NDArray[np.float64], method: SearchMethod, limits: SearchLimits) -> SearchEnd:
    """Look for the maximum from ``start``, or from the first shorter range at which the matrix is positive definite."""
    searches = {"cobyqa": _cobyqa, "bobyqa": _bobyqa, "lbfgs": _lbfgs, "fisher": _fisher}
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
    """Models of second order in a trust region; ends too when ten evaluations gain less than five tolerances."""
    from scipy.optimize import minimize

    space, gain = objective.space, _LEAST_GAIN_IN_TOLERANCES * limits.tolerance
    # COBYQA's first 2 k + 1 evaluations, of which the start was one, only make its model
    since = len(objective.evaluations) + 2 * len(point)

    def stop_when_settled(intermediate_result: object) -> None:
        if _has_settled(objective, gain, since):
            raise StopIteration

    solution = minimize(
        objective,
        point,
        method="COBYQA",
        bounds=list(zip(space.lower, space.upper, strict=True)),
        callback=stop_when_settled,
        options={
            "initial_tr_radius": max(limits.radius, limits.tolerance),
            "final_tr_radius": limits.tolerance,
            "maxfev": limits.max_evaluations,
        },
    )
    if _has_settled(objective, gain, since):
        return SearchEnd(True, f"{_PATIENCE} evaluations raised the log-likelihood by less than {gain:g}")
    return SearchEnd(bool(solution.success), str(solution.message))


def nlopt_module() -> Any:
    """The module of NLopt, or ``MissingExtraError`` with the way to install it."""
    try:
        import nlopt
    except ImportError as error:
        raise MissingExtraError(
            f"BOBYQA is NLopt's, which is not installed; search by cobyqa, its successor, or: {oc.install_hint('nlopt')}"
        ) from error
    return nlopt


def _bobyqa(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """NLopt's BOBYQA; ends too, as COBYQA, when ten evaluations gain less than five tolerances."""
    nlopt, space, gain = nlopt_module(), objective.space, _LEAST_GAIN_IN_TOLERANCES * limits.tolerance
    # the first 2 k + 1 evaluations, of which the start was one, only make its model
    since = len(objective.evaluations) + 2 * len(point)
    start = len(objective.evaluations) - 1

    raised: list[BaseException] = []
    search = nlopt.opt(nlopt.LN_BOBYQA, len(point))

    def value(where: NDArray[np.float64], _: NDArray[np.float64]) -> float:
        # an exception does not get through every version of NLopt: stop there, and raise it here
        try:
            if len(objective.evaluations) - start < limits.max_evaluations and not _has_settled(objective, gain, since):
                return objective(where)
        except BaseException as error:
            raised.append(error)
        search.force_stop()
        return math.inf

    search.set_min_objective(value)
    search.set_lower_bounds(space.lower)
    search.set_upper_bounds(space.upper)
    search.set_initial_step(max(limits.radius, limits.tolerance))
    search.set_xtol_abs(limits.tolerance)
    try:
        search.optimize(point)
    except nlopt.ForcedStop:
        if raised:
            raise raised[0] from None
        if _has_settled(objective, gain, since):
            return SearchEnd(True, f"{_PATIENCE} evaluations raised the log-likelihood by less than {gain:g}")
        return SearchEnd(False, "the evaluations allowed are used up")
    except nlopt.RoundoffLimited:
        return SearchEnd(True, "rounding of the likelihood limits further progress")
    return SearchEnd(True, f"the trust region is smaller than {limits.tolerance:g}")


def _has_settled(objective: Objective, gain: float, since: int) -> bool:
    """Whether the last ten evaluations, all later than the first ``since``, gained less than ``gain``."""
    values = [evaluation.loglik for evaluation in objective.evaluations]
    before = max(values[:-_PATIENCE], default=-math.inf)
    return len(values) - since > _PATIENCE and math.isfinite(before) and max(values) - before < gain


def _lbfgs(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """L-BFGS-B in coordinates whose unit is a standard error at the start."""
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

    def stop_in_the_noise(intermediate_result: OptimizeResult) -> None:
        here = point + units * intermediate_result.x
        if _is_noise(objective, here, objective.at(here, gradient=True)):
            raise StopIteration

    solution = minimize(
        value_and_gradient,
        np.zeros_like(point),
        method="L-BFGS-B",
        jac=True,
        callback=stop_in_the_noise,
        bounds=list(zip((space.lower - point) / units, (space.upper - point) / units, strict=True)),
        options={"gtol": limits.tolerance, "ftol": _ROUNDING, "maxfun": max(1, limits.max_evaluations - already), "maxls": 10},
    )
    best = objective.at(objective.best_point if objective.best_point is not None else point, gradient=True)
    if best.gradient is not None and objective.best_point is not None:
        left = _free_part(objective, objective.best_point, best.gradient) * units
        if _is_noise(objective, objective.best_point, best, errors=_NOISE_AT_END):
            return SearchEnd(True, _NOISE_TEXT)
        if np.max(np.abs(left)) <= limits.tolerance:
            return SearchEnd(True, f"the gradient is below {limits.tolerance:g} per standard error")
    return SearchEnd(bool(solution.success), str(solution.message))


def _fisher(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """Steps ``inv(information) gradient`` inside the bounds, halved until the likelihood rises.

    Where the likelihood is twice as curved as expected, plain scoring steps from one side of the maximum to the other. There the
    information is corrected by the curvature seen along the step before, as Broyden, Fletcher, Goldfarb and Shanno do.
    """
    start = len(objective.evaluations) - 1
    known, last = objective.at(point, gradient=True, information=True), None
    while True:
        step, promise = fisher_step(objective, point, known, last)
        if math.sqrt(promise) <= limits.tolerance:
            return SearchEnd(True, f"the next step is below {limits.tolerance:g} standard errors")
        if _is_noise(objective, point, known):
            return SearchEnd(True, _NOISE_TEXT)
        for _ in range(_HALVINGS):
            if len(objective.evaluations) - start >= limits.max_evaluations:
                return SearchEnd(False, "the evaluations allowed are used up")
            trial = np.clip(point + step, objective.space.lower, objective.space.upper)
            found = objective.at(trial, gradient=True, information=True)
            assert known.gradient is not None
            if found.loglik - known.loglik > _LEAST_SHARE * float(known.gradient @ (trial - point)):
                break
            step = step / 2
        else:
            if _is_noise(objective, point, known, errors=_NOISE_AT_END):
                return SearchEnd(True, _NOISE_TEXT)
            return SearchEnd(_is_rounding(promise, known), "no step along the score raises the log-likelihood any more")
        last = _change(trial - point, known, found)
        point, known = trial, found


def _change(step: NDArray[np.float64], before: Known, after: Known) -> Change:
    """A step, and what it took off the gradient."""
    assert before.gradient is not None and after.gradient is not None
    return step, before.gradient - after.gradient


def fisher_step(
    objective: Objective, point: NDArray[np.float64], known: Known, last: Change | None = None
) -> tuple[NDArray[np.float64], float]:
    """The step of Fisher scoring in the coordinates that are not held at a bound."""
    assert known.gradient is not None and known.information is not None
    free = _free_part(objective, point, known.gradient) != 0.0
    step = np.zeros_like(point)
    if not free.any():
        return step, 0.0
    gradient, information = known.gradient[free], known.information[np.ix_(free, free)]
    diagonal = np.diag(information)
    units = 1.0 / np.sqrt(np.maximum(diagonal, _FLAT * np.max(diagonal) + np.finfo(np.float64).tiny))
    scaled = information * np.outer(units, units)
    full = units * _solved(scaled, units * gradient)
    promise = float(gradient @ full)
    if last is not None:
        scaled = _corrected(scaled, last[0][free] / units, last[1][free] * units)
    # one that the data say nothing of must not shorten the step of the others: it stops by itself
    longest = np.where(_UNSEEN * units > _LONGEST_STEP, _LONGEST_STEP, np.inf)
    down = np.maximum((objective.space.lower - point)[free], -longest)
    up = np.minimum((objective.space.upper - point)[free], longest)
    full = units * _boxed(scaled, units * gradient, down / units, up / units)
    step[free] = full * min(1.0, _LONGEST_STEP / max(float(np.max(np.abs(full))), _LONGEST_STEP))
    return step, promise


def _boxed(
    information: NDArray[np.float64], gradient: NDArray[np.float64], down: NDArray[np.float64], up: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The step between bounds: coordinates that would go beyond stop there, and the others are solved for given these."""
    step, free = np.zeros_like(gradient), np.ones(len(gradient), dtype=bool)
    while free.any():
        left = gradient[free] - information[np.ix_(free, ~free)] @ step[~free]
        step[free] = _solved(information[np.ix_(free, free)], left)
        inside = np.clip(step, down, up)
        beyond = np.abs(step - inside)
        if not beyond.any():
            break
        worst = int(np.argmax(np.where(free, beyond / (up - down), -1.0)))  # a free one, even among steps that are no numbers
        step[worst], free[worst] = inside[worst], False
    return step


def _solved(information: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """``inv(information) gradient``; where the data show nothing, no longer steps than where they show a little."""
    values, vectors = np.linalg.eigh(information)
    return np.asarray(vectors @ (vectors.T @ gradient / np.maximum(values, _FLAT)))


def _corrected(information: NDArray[np.float64], step: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """The information; where a step has shown clearly more curvature, with that one: ``taken = corrected @ step``."""
    image = information @ step
    expected, found = float(step @ image), float(step @ taken)
    if not 0.0 < _MORE_CURVED * expected < found < _WILD * expected:
        return information
    return information - np.outer(image, image) / expected + np.outer(taken, taken) / found


def _is_noise(objective: Objective, point: NDArray[np.float64], known: Known, *, errors: float = 1.0) -> bool:
    """Whether the gradient by probes is within so many of its standard errors, in every coordinate not held at a bound."""
    if known.gradient is None or known.gradient_error is None or not known.gradient_error.any():
        return False
    return bool(np.all(np.abs(_free_part(objective, point, known.gradient)) <= errors * known.gradient_error))


def _free_part(objective: Objective, point: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient, zero where it points out of the box."""
    space = objective.space
    held = ((point <= space.lower) & (gradient < 0)) | ((point >= space.upper) & (gradient > 0))
    return np.where(held, 0.0, gradient)


def _is_rounding(promise: float, known: Known) -> bool:
    """Whether the gain that a step promises is lost in the rounding of the likelihood."""
    return promise <= 1e3 * _ROUNDING * abs(known.loglik)
