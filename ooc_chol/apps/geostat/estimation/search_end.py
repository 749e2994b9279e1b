"""When a search ends, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.estimation.objective import Known, Objective

#: Standard errors of a gradient by probes within which it counts as zero where the likelihood no longer rises along it.
NOISE_AT_END = 4.0
NOISE_TEXT = "the gradient is within its Monte-Carlo error"

#: A change of the log-likelihood below this times its size is rounding.
ROUNDING = 1e-13


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


def is_noise(objective: Objective, point: NDArray[np.float64], known: Known, *, errors: float = 1.0) -> bool:
    """Whether the gradient by probes is within so many of its standard errors, in every coordinate not held at a bound."""
    if known.gradient is None or known.gradient_error is None or not known.gradient_error.any():
        return False
    return bool(np.all(np.abs(free_part(objective, point, known.gradient)) <= errors * known.gradient_error))


def free_part(objective: Objective, point: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient, zero where it points out of the box."""
    space = objective.space
    held = ((point <= space.lower) & (gradient < 0)) | ((point >= space.upper) & (gradient > 0))
    return np.where(held, 0.0, gradient)
