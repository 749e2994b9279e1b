"""Smoothnesses compared by their likelihoods: one that is kept, and one that is estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scipy.special import chdtrc

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import SMOOTHNESS
from ooc_chol.apps.geostat.estimation.gradient import GRADIENT_LIMIT

#: A smoothness is rejected when its likelihood ratio is larger than would happen with this probability if it were right.
REJECTED = 0.01

#: Observations up to which ``smoothness="auto"`` estimates the smoothness, too: those with exact gradients. Such a search takes
#: less time than the three at fixed ones.
COMPARED_LIMIT = GRADIENT_LIMIT

#: What a likelihood does not judge.
ADVICE = (
    "likelihoods judge predictions beside observations: where those that you need are in gaps, compare both by cross-validation "
    "(folds(how='gaps'), `cv A.json B.json --how gaps`)"
)


@dataclass(frozen=True)
class SmoothnessComparison:
    """A smoothness that is kept against one that is estimated.

    Parameters
    ----------
    kept : float
        The one that was given, or the best of 0.5, 1.5 and 2.5.
    estimated : float
        The one of largest likelihood.
    gain : float
        Log-likelihood of the estimated one less that of the kept one, range, nugget, variance and mean estimated with both; not
        negative.
    p_value : float
        Probability of a larger gain if the kept one is right: that of a chi-square variable with one degree of freedom above
        twice the gain.
    taken : {"kept", "estimated"}
        Which of the two the model of the fit has.
    densities : int or None
        The likelihoods are Vecchia's of so many conditional densities, a sample; None where they are those of the fit.
    gain_interval : (float, float) or None
        Where the gain of exact arithmetic lies, of likelihoods in mixed precision; None in FP64, and where one is not certified.
    """

    kept: float
    estimated: float
    gain: float
    p_value: float
    taken: Literal["kept", "estimated"]
    densities: int | None = None
    gain_interval: tuple[float, float] | None = None

    __repr__ = tb.brief_repr

    @property
    def is_rejected(self) -> bool:
        """True if the likelihood ratio rejects the kept one, at a level of 1 %."""
        return self.p_value < REJECTED

    @property
    def is_close(self) -> bool:
        """True if other values within the intervals of the likelihoods would be judged otherwise."""
        ends = self.gain_interval
        return ends is not None and len({_p_value(end) < REJECTED for end in (*ends, self.gain)}) > 1

    @property
    def aic_difference(self) -> float:
        """Akaike's criterion with the estimated one less that with the kept one: negative where estimating is worth it."""
        return 2.0 - 2.0 * self.gain

    def __str__(self) -> str:
        """Text of the comparison and its outcome."""
        ratio = f"{self.gain:.3g} more log-likelihood (p {self.p_value:.2g}, AIC {self.aic_difference:+.3g})"
        if self.is_close and self.gain_interval is not None:
            low, high = self.gain_interval
            ratio += f", known to be {low:.3g} to {high:.3g} in mixed precision, which may decide otherwise,"
        if self.taken == "estimated":
            return f"estimated, with {ratio} than the best of {_FEW}, {self.kept:g}, which that rejects; {ADVICE}"
        return f"{self.kept:g}, the best of {_FEW}, is kept: the estimate {self.estimated:.4g} has only {ratio}"


_FEW = f"{', '.join(f'{nu:g}' for nu in SMOOTHNESS[:-1])} and {SMOOTHNESS[-1]:g}"


def _p_value(gain: float) -> float:
    """The probability of a larger gain if the kept smoothness is right."""
    return float(chdtrc(1, 2.0 * max(0.0, gain)))


def compared(
    kept: float,
    estimated: float,
    gain: float,
    *,
    densities: int | None = None,
    choose: bool = False,
    interval: tuple[float, float] | None = None,
) -> SmoothnessComparison:
    """The comparison with its p-value; with ``choose`` the estimated one is taken where the kept one is rejected."""
    gain = max(0.0, gain)
    p_value = _p_value(gain)
    taken: Literal["kept", "estimated"] = "estimated" if choose and p_value < REJECTED else "kept"
    return SmoothnessComparison(kept, estimated, gain, p_value, taken, densities, interval)


def rejection_text(found: SmoothnessComparison, n: int) -> str | None:
    """Warn of a smoothness that its likelihood ratio rejects; None where it does not."""
    if not found.is_rejected or found.taken == "estimated":
        return None
    of = "the log-likelihood" + ("" if found.densities is None else f" of {found.densities} of {n} conditional densities")
    return (
        f"smoothness {found.kept:g} is rejected by its likelihood ratio: an estimated one, about nu = {found.estimated:.3g}, has "
        f"{found.gain:.3g} more in {of} (p {found.p_value:.2g}); smoothness='free' (--smoothness free) estimates it; {ADVICE}"
    )
