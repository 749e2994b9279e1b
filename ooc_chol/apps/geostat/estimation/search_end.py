"""When a search ends, and how it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.estimation.objective import Known, Objective
from ooc_chol.apps.geostat.estimation.scoring_step import Step, free_part

#: Standard errors of a gradient by probes within which it counts as zero where the likelihood no longer rises along it.
NOISE_AT_END = 4.0

#: A change of the log-likelihood below this times its size is rounding.
ROUNDING = 1e-13

#: Log-likelihood that a fit leaves to be gained unless told otherwise: the maximum is within ten times this.
TOLERANCE = 1e-5

#: A log-likelihood in mixed precision that is known no closer than this is searched for with more digits: it changes an AIC by a
#: tenth.
WIDEST = 0.05

USED_UP = "the evaluations allowed are used up"


@dataclass(frozen=True)
class SearchEnd:
    """How a search ended."""

    converged: bool  #: Whether it ended because of the tolerance
    message: str
    gain: float | None = None  #: Log-likelihood that the next step would gain; None where the search knows no derivatives
    errors: float | None = None  #: The farthest that it would move one parameter, in standard errors


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends."""

    #: Log-likelihood that is left to gain: by the next step with derivatives, by ten evaluations without
    tolerance: float
    max_evaluations: int
    radius: float = 0.5  #: First trust-region radius of COBYQA and BOBYQA

    def last_radius(self, n: int) -> float:
        """Last trust-region radius of COBYQA and BOBYQA, for ``n`` observations.

        A parameter of which each observation tells a unit of information gains half the tolerance within it.
        """
        return min(math.sqrt(self.tolerance / n), self.radius)


def converged_by(step: Step) -> SearchEnd:
    """The end before a step that is not worth taking."""
    return SearchEnd(True, _left_text(step), step.gain, step.errors)


def stopped_before(step: Step, why: str) -> SearchEnd:
    """The end before a step that is worth taking."""
    return SearchEnd(False, f"{why}; {_left_text(step)}", step.gain, step.errors)


def ended_in_noise(step: Step) -> SearchEnd:
    """The end where the gradient by probes is not told from zero."""
    return SearchEnd(True, f"the gradient is within its Monte-Carlo error; {_left_text(step)}", step.gain, step.errors)


def ended_in_rounding(step: Step) -> SearchEnd:
    """The end where what is left to gain is lost in the rounding of the likelihood."""
    return SearchEnd(True, f"rounding hides what is left; {_left_text(step)}", step.gain, step.errors)


def _left_text(step: Step) -> str:
    """Text on the predicted gain of the next step, and on parameters held at bounds."""
    held = f"; held at a bound: {', '.join(step.held)}" if step.held else ""
    noise = f"; the error of the probes hides some {step.noise:.1g} of log-likelihood" if step.noise > 0.0 else ""
    return (
        f"the next step would gain {step.gain:.1g} of log-likelihood and move no parameter by more than {step.errors:.1g} "
        f"standard errors{held}{noise}"
    )


def is_noise(objective: Objective, point: NDArray[np.float64], known: Known, *, errors: float = 1.0) -> bool:
    """Tell whether the gradient by probes is within so many of its standard errors, in every coordinate not held at a bound."""
    if known.gradient is None or known.gradient_error is None or not known.gradient_error.any():
        return False
    return bool(np.all(np.abs(free_part(objective.space, point, known.gradient)) <= errors * known.gradient_error))
