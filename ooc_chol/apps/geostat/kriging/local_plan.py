"""Cost of a prediction from neighbourhoods, and whether one from all data would fit."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LocalPlan:
    """Cost of predicting from neighbourhoods.

    Parameters
    ----------
    n, sites : int
        Number of data, and of sites to predict.
    method : str
        ``"vecchia"`` or ``"nearest"``.
    neighbours : int
        Data from which each site is predicted.
    group : int
        Most sites that share their neighbours.
    device : str or None
        Where matrices are factored; the host when None.
    """

    n: int
    sites: int
    method: str
    neighbours: int
    group: int
    device: str | None = None

    @property
    def groups(self) -> int:
        """Neighbourhoods at least, each with a matrix to be factored; more where many data lie between the sites of one."""
        return math.ceil(self.sites / self.group)

    @property
    def flops(self) -> float:
        """Flops of all their factorizations and solves."""
        k = float(self.neighbours)
        return self.groups * k**3 / 3 + self.sites * k**2

    def __str__(self) -> str:
        what = "each site" if self.group == 1 else f"each group of up to {self.group} sites"
        least = "" if self.group == 1 else "at least "
        how = "kriging from the nearest data" if self.method == "nearest" else "Vecchia's approximation of the prediction"
        return (
            f"{how}: {what} from {self.neighbours} of {self.n:,} observations, {least}{self.groups:,} systems, "
            f"{self.flops:.2g} flops, on {self.device or 'the host'}"
        )
