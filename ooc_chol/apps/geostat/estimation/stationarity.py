"""A likelihood ratio of a covariance that changes from place to place against the stationary one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ooc_chol.toolbox as tb


@dataclass(frozen=True)
class StationarityTest:
    """Likelihood ratio of a nonstationary covariance against the same one without slopes.

    Parameters
    ----------
    loglik : float
        Largest log-likelihood of the stationary model; like that of the other by Vecchia's approximation where the fit was.
    range, smoothness : float
        Parameters of that model, in the unit of the coordinates.
    statistic : float
        Twice the difference of the log-likelihoods, not negative.
    degrees : int
        Number of slopes that were estimated.
    p_value : float
        Probability of a larger statistic if all of them are zero, chi-square with so many degrees of freedom.
    statistic_interval : (float, float) or None
        Where the statistic of exact arithmetic lies, of likelihoods in mixed precision; None in FP64, and where one is not
        certified.
    """

    loglik: float
    range: float
    smoothness: float
    statistic: float
    degrees: int
    p_value: float
    statistic_interval: tuple[float, float] | None = None

    __repr__ = tb.brief_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))
