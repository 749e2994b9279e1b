"""When a run that converges geometrically is worth a look: each look waits for the devices."""

from __future__ import annotations

import math
from typing import final

#: Logarithm of what a step with a polynomial is expected to gain at least: early ones gain less than later ones, and a look costs
#: less than one.
_GAIN = 3.0


@final
class Forecast:
    """Tells after which step a residual should have come down to a goal, by what was seen of it.

    The next look is due where the line through the logarithms of the last two reaches the goal, rounded down, a step of it being
    at least the least gain. Krylov methods converge ever faster, so that hardly a step is taken in vain.
    """

    def __init__(self, goal: float, due: int, least_gain: float = _GAIN, seen: tuple[int, float] | None = None) -> None:
        self.goal, self.due = goal, due
        self._least_gain, self._seen = least_gain, seen

    def is_reached(self, step: int, residual: float) -> bool:
        """Tell whether a residual, seen after a step, will do; else :attr:`due` is the step for the next look."""
        if residual <= self.goal:
            return True
        steps = 1
        if self._seen is not None and residual < self._seen[1] < math.inf:
            gain = math.log(self._seen[1] / residual) / (step - self._seen[0])
            steps = max(1, int(math.log(residual / self.goal) / max(gain, self._least_gain)))
        self._seen, self.due = (step, residual), step + steps
        return False
