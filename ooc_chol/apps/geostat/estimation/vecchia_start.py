"""How far an exact estimate is from where its search started."""

from __future__ import annotations

from dataclasses import dataclass

import ooc_chol.toolbox as tb


@dataclass(frozen=True)
class VecchiaStart:
    """An exact estimate beside the place where Vecchia's approximation is largest, from which it was searched for.

    Parameters
    ----------
    neighbours : int
        Earlier neighbours of each observation.
    densities : int
        Conditional densities that the start was found with.
    gain : float
        Exact log-likelihood of the estimate less that of the start; in mixed precision the difference may be rounding.
    errors : float
        Distance of the two in standard errors, by the information at the estimate.
    """

    neighbours: int
    densities: int
    gain: float
    errors: float

    __repr__ = tb.brief_repr

    def __str__(self) -> str:
        """Text on the error that an estimate by the approximation alone would have had."""
        largest = f"Vecchia's approximation ({self.densities} densities, {self.neighbours} neighbours) is largest"
        if self.errors == 0.0:  # no step was taken: what an exact one would be worth is said where the search ended
            return f"{largest} where the exact search ended at once"
        gain = f"{max(0.0, self.gain):.2g} of log-likelihood below"
        return f"{largest} {self.errors:.2g} standard errors from the exact estimate, {gain}"
