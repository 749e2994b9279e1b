"""Fisher scoring: steps by gradient and information, corrected by the curvature they have shown, in a trust region."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.estimation.objective import Known, Objective
from ooc_chol.apps.geostat.estimation.scoring_step import Change, Step, scoring_step
from ooc_chol.apps.geostat.estimation.search_end import (
    NOISE_AT_END,
    ROUNDING,
    USED_UP,
    WIDEST,
    SearchEnd,
    SearchLimits,
    converged_by,
    ended_in_noise,
    ended_in_rounding,
    is_noise,
    stopped_before,
)

#: Share of the promised gain that a step must bring, and shares below and above which the trust region shrinks and grows.
_LEAST_SHARE = 1e-4
_POOR, _GOOD = 0.25, 0.75

#: By how much the trust region shrinks at most and at least, or where there is no likelihood, how often at one point, and by how
#: much it grows.
_SHRINK_MOST, _SHRINK_LEAST, _SHRINK_BLINDLY = 0.1, 0.5, 0.25
_MOST_TRIALS = 8
#: Tolerances that are left at most at an estimate that counts as the top.
_AT_TOP = 10.0
_GROW = 2.0

#: Coordinates nearer than this to a bound of the search are at it.
_AT_BOUND = 1e-6


def fisher_scoring(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
    """Maximise by steps of scoring, until the next one would gain less than the tolerance.

    The likelihood of data is often half or twice as curved as expected, so that plain scoring approaches the maximum by halves or
    jumps over it; the curvature that the last steps have shown takes the place of that expected. The trust region is an ellipsoid
    of the information: its radius counts standard errors. Where values are not known closely enough to judge a step, what the
    next one promises does.
    """
    first, radius = len(objective.evaluations) - 1, math.inf
    known = objective.at(point, gradient=True, information=True)
    changes: deque[Change] = deque(maxlen=max(1, len(point)))
    while True:
        step = scoring_step(objective.space, point, known, changes)
        if step.gain <= limits.tolerance:
            return converged_by(step)
        if step.gain <= step.noise or is_noise(objective, point, known):
            return ended_in_noise(step)
        if step.gain <= known.hidden and known.hidden > WIDEST:
            return ended_in_rounding(step)
        for _ in range(_MOST_TRIALS):
            if len(objective.evaluations) - first >= limits.max_evaluations:
                return stopped_before(step, USED_UP)
            tried = scoring_step(objective.space, point, known, changes, radius)
            trial = _inside(objective, point + tried.move)
            found = objective.at(trial, gradient=True, information=True)
            share = (found.loglik - known.loglik) / tried.gain
            if tried.gain <= known.hidden and found.gradient is not None:
                share = 1.0 - scoring_step(objective.space, trial, found, changes).gain / tried.gain
            part = _part_by_values(known, share) if math.isinf(radius) else None
            # behind the point no step along this gradient comes; what probes hide may be left there
            if part is not None and part**2 * step.gain <= max(_AT_TOP * limits.tolerance, step.noise if part <= 0.0 else 0.0):
                return ended_in_noise(replace(step, gain=part**2 * step.gain, errors=abs(part) * step.errors))
            radius = _next_radius(radius, tried, share) if part is None or part <= 0.0 else part * tried.length
            if share > _LEAST_SHARE:
                break
        else:
            return _stuck(objective, point, known, step)
        changes.append(_change((point, trial), known, found))
        if tried.gain <= known.hidden:
            objective.settle(trial)
        point, known = trial, found


def _part_by_values(known: Known, share: float) -> float | None:
    """How far along a whole step the top is by the values at its ends, where a gradient by probes promised too much."""
    is_estimated = known.gradient_error is not None and known.gradient_error.any()
    # the parabola through both values, as curved as the one whose top the step goes to
    return 0.5 * (1.0 + share) if is_estimated and share <= _LEAST_SHARE and math.isfinite(share) else None


def _change(points: tuple[NDArray[np.float64], NDArray[np.float64]], before: Known, after: Known) -> Change:
    """Record of a step, for the next ones."""
    assert before.gradient is not None and after.gradient is not None and before.information is not None
    return Change(points, (before.gradient, after.gradient), before.information)


def _inside(objective: Objective, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """The point inside the box, at a bound where only rounding keeps it off."""
    lower, upper = objective.space.lower, objective.space.upper
    inside = np.clip(point, lower, upper)
    inside = np.where(np.abs(inside - lower) < _AT_BOUND, lower, inside)
    return np.where(np.abs(inside - upper) < _AT_BOUND, upper, inside)


def _next_radius(radius: float, tried: Step, share: float) -> float:
    """The trust region after a step that brought this share of what it promised."""
    if share >= _GOOD:
        return max(radius, _GROW * tried.length)
    if share >= _POOR:
        return radius
    # where the parabola through value and slope here and the value there has its top; at a step to the top the slope is twice
    # the promise
    top = 1.0 / (2.0 - share) if math.isfinite(share) else _SHRINK_BLINDLY
    return tried.length * min(max(top, _SHRINK_MOST), _SHRINK_LEAST)


def _stuck(objective: Objective, point: NDArray[np.float64], known: Known, step: Step) -> SearchEnd:
    """The end where no step raises the likelihood."""
    if is_noise(objective, point, known, errors=NOISE_AT_END):
        return ended_in_noise(step)
    threshold = objective.options.settings.precision_threshold or 0.0
    if step.gain <= max(1e3 * ROUNDING * abs(known.loglik), threshold * objective.observations.n, known.hidden):
        return ended_in_rounding(step)
    return stopped_before(step, "no step along the score raises the log-likelihood any more")
