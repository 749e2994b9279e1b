"""Fisher scoring: steps by gradient and expected information, between the bounds of the search."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.estimation.objective import Known, Objective
from ooc_chol.apps.geostat.estimation.search_end import (
    NOISE_AT_END,
    NOISE_TEXT,
    ROUNDING,
    SearchEnd,
    SearchLimits,
    free_part,
    is_noise,
)

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


def fisher_scoring(objective: Objective, point: NDArray[np.float64], limits: SearchLimits) -> SearchEnd:
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
        if is_noise(objective, point, known):
            return SearchEnd(True, NOISE_TEXT)
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
            if is_noise(objective, point, known, errors=NOISE_AT_END):
                return SearchEnd(True, NOISE_TEXT)
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
    free = free_part(objective, point, known.gradient) != 0.0
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


def _is_rounding(promise: float, known: Known) -> bool:
    """Whether the gain that a step promises is lost in the rounding of the likelihood."""
    return promise <= 1e3 * ROUNDING * abs(known.loglik)
