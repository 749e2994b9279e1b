"""One step of Fisher scoring: which parameters move, how far, what that promises, and the curvature that steps have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.estimation.objective import Known
from ooc_chol.apps.geostat.estimation.search import NUGGET_RATIO, NUGGET_SCALE, SearchSpace

#: Longest step in a coordinate, most of which are logarithms: beyond it no quadratic model of a likelihood is believed.
_LONGEST_STEP = 1.5

#: Information below this share of the largest, by direction of scaled coordinates, counts as so much; by coordinate it only must
#: not be zero, as each is scaled by its own.
_FLAT = 1e-6
_NONE = 1e-30

#: Curvature that differs so many times from that expected is not believed: the likelihood is not quadratic along that step.
_WILD = 10.0

#: Information along a step that differs so many times from that where it was taken: what the step showed is gone.
_CHANGED = 3.0

#: A standard error of the logarithm of a nugget ratio above which the likelihood goes by the ratio, and not by its logarithm.
_UNSEEN_ERROR = 1.0

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Change:
    """A step that was taken, by its ends and what was known there."""

    points: tuple[_Array, _Array]
    gradients: tuple[_Array, _Array]
    information: _Array  #: (k, k) where the step began


@dataclass(frozen=True, eq=False)
class Step:
    """A step of scoring, and what it promises."""

    move: _Array  #: (k,) in coordinates
    gain: float = 0.0  #: Log-likelihood that it promises
    errors: float = 0.0  #: The farthest that it moves one parameter, in standard errors of that
    length: float = 0.0  #: Its length in standard errors, by the information
    held: tuple[str, ...] = ()  #: Parameters that stay at a bound, as the likelihood falls from there inwards
    noise: float = 0.0  #: Log-likelihood that the error of a gradient by probes is expected to hide


def scoring_step(
    space: SearchSpace[Any], point: _Array, known: Known, changes: Sequence[Change] = (), radius: float = math.inf
) -> Step:
    """The step to the maximum of the quadratic model between the bounds, of at most ``radius`` standard errors.

    A parameter at a bound whose gradient points outwards is held there; at a point where it turns inwards it moves again.
    """
    assert known.gradient is not None and known.information is not None
    free = free_part(space, point, known.gradient) != 0.0
    held = tuple(name for name, gone in zip(space.names, (known.gradient != 0.0) & ~free, strict=True) if gone)
    move = np.zeros_like(point)
    if not free.any():
        return Step(move, held=held)
    diagonal = np.diag(known.information)
    units = 1.0 / np.sqrt(np.maximum(diagonal, _NONE * np.max(diagonal) + np.finfo(np.float64).tiny))
    is_linear = _goes_by_ratio(space, units)
    scaled = (known.information * np.outer(units, units))[np.ix_(free, free)]
    for change in changes:
        scaled = _corrected(scaled, *_shown(change, point, known.information, free, units=units, is_linear=is_linear))
    down, up = _reach(space, point, is_linear)
    gradient = (units * known.gradient)[free]
    step = _boxed(scaled, gradient, (down / units)[free], (up / units)[free])
    length = math.sqrt(max(0.0, float(step @ scaled @ step)))
    if length > radius:
        step, length = step * (radius / length), radius
    gain = float(gradient @ step - 0.5 * step @ scaled @ step)
    errors = np.abs(step) / np.sqrt(np.diag(_solved(scaled, np.eye(len(step)))))
    move[free] = units[free] * step
    move = np.where(is_linear, _logarithmic(move), move)
    return Step(move, max(0.0, gain), float(np.max(errors)), length, held, _noise(known, units, free))


def _noise(known: Known, units: _Array, free: NDArray[np.bool_]) -> float:
    """Half the square of the gradient's error in standard errors: errors of probes are correlated as the information is."""
    return 0.0 if known.gradient_error is None else float(0.5 * np.sum((units * known.gradient_error)[free] ** 2))


def free_part(space: SearchSpace[Any], point: _Array, gradient: _Array) -> _Array:
    """The gradient, zero where it points out of the box."""
    held = ((point <= space.lower) & (gradient < 0)) | ((point >= space.upper) & (gradient > 0))
    return np.where(held, 0.0, gradient)


def _goes_by_ratio(space: SearchSpace[Any], units: _Array) -> NDArray[np.bool_]:
    """Which coordinate is of a nugget so small that the likelihood is quadratic in the ratio itself."""
    is_ratio = np.array([name == NUGGET_RATIO and space.fixed_nugget is None for name in space.names])
    return np.asarray(is_ratio & (NUGGET_SCALE.step * units > _UNSEEN_ERROR))


def _reach(space: SearchSpace[Any], point: _Array, is_linear: NDArray[np.bool_]) -> tuple[_Array, _Array]:
    """How far each coordinate may go, down and up; a nugget that goes by its ratio in shares of that over the scale."""
    down, up = space.lower - point, space.upper - point
    return (
        np.where(is_linear, _share(down), np.maximum(down, -_LONGEST_STEP)),
        np.where(is_linear, _share(up), np.minimum(up, _LONGEST_STEP)),
    )


def _share(step: _Array) -> _Array:
    """Change of a nugget ratio by a step of its coordinate, in shares of the ratio over the scale."""
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(NUGGET_SCALE.step * step) / NUGGET_SCALE.step)


def _logarithmic(share: _Array) -> _Array:
    """The step of a coordinate that adds so much, over the scale, to the ratio in shares of it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log1p(NUGGET_SCALE.step * share) / NUGGET_SCALE.step)


def _shown(
    change: Change, point: _Array, information: _Array, free: NDArray[np.bool_], *, units: _Array, is_linear: NDArray[np.bool_]
) -> tuple[_Array, _Array, float]:
    """A step in the free scaled coordinates here, what it took off their gradient, and what it was expected to along itself."""
    # seen from here a nugget that goes by its ratio went by shares of the ratio that it has here
    shares = [np.where(is_linear, np.exp(NUGGET_SCALE.step * (point - end)), 1.0) for end in change.points]
    parts = [np.where(is_linear, _share(end - point), end) for end in change.points]
    step = parts[1] - parts[0]
    taken = shares[0] * change.gradients[0] - shares[1] * change.gradients[1]
    # of coordinates that are held now the others' gradient is told apart by what was expected
    taken = taken[free] - information[np.ix_(free, ~free)] @ step[~free]
    own = (shares[0] * step)[free]
    expected = float(own @ change.information[np.ix_(free, free)] @ own)
    return step[free] / units[free], taken * units[free], expected


def _corrected(information: _Array, step: _Array, taken: _Array, expected: float) -> _Array:
    """The information with the curvature that a step has shown, as Broyden, Fletcher, Goldfarb and Shanno put it in."""
    image = information @ step
    here, found = float(step @ image), float(step @ taken)
    if not (expected / _WILD < found < _WILD * expected and expected / _CHANGED < here < _CHANGED * expected):
        return information
    now = taken * (here / expected)  # as the information changed, so did what the step showed
    return information - np.outer(image, image) / here + np.outer(now, now) / float(step @ now)


def _boxed(information: _Array, gradient: _Array, down: _Array, up: _Array) -> _Array:
    """The maximum of the quadratic model between bounds, as bounded least squares; near the one without where that is inside."""
    with tb.guarded_imports():
        from scipy.optimize import lsq_linear  # 0.1 s, which only a fit needs

    step = _solved(information, gradient)
    if np.all((down <= step) & (step <= up)):
        return step
    values, vectors = np.linalg.eigh(information)
    roots = np.sqrt(np.maximum(values, _FLAT))
    # |R (s - inv(B) g)|**2 with B = R' R is twice what the model of s lacks of its maximum
    found = lsq_linear(roots[:, np.newaxis] * vectors.T, vectors.T @ gradient / roots, (down, up), method="bvls", max_iter=100)
    return np.asarray(np.clip(found.x, down, up))


def _solved(information: _Array, right: _Array) -> _Array:
    """``inv(information) right``; where the data show nothing, no longer steps than where they show a little."""
    values, vectors = np.linalg.eigh(information)
    return np.asarray((vectors / np.maximum(values, _FLAT)) @ (vectors.T @ right))
