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
        return (
            f"Vecchia's approximation ({self.densities} densities, {self.neighbours} neighbours) is largest {self.errors:.2g} "
            f"standard errors from the exact estimate, {max(0.0, self.gain):.2g} of log-likelihood below"
        )
