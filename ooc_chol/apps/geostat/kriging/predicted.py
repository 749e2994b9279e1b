"""What kriging returns: mean, variance and intervals at the sites, and of what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

import ooc_chol as oc
from ooc_chol.apps.geostat.data.observations import as_error_variances

#: What is predicted: a new observation (its own error included) or the smooth field underneath.
Target = Literal["observation", "field"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Kriging mean and variance, in the order of the sites given.

    Parameters
    ----------
    mean : (m,) array
        Best linear unbiased prediction.
    variance : (m,) array
        Its error variance, the uncertainty of the estimated mean included; range, variance and nugget are taken as known. NaN
        where only the mean was asked for.
    target : {"observation", "field"}
        What it predicts; the two have one mean, and variances that differ by that of the error of an observation.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    target: Target

    __repr__ = oc.brief_repr

    @property
    def has_variance(self) -> bool:
        """Whether variances were computed."""
        return not np.isnan(self.variance).any()

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Square root of the variance, shape ``(m,)``."""
        return np.sqrt(self.variance)

    def take(self, indices: NDArray[np.intp]) -> Prediction:
        """The predictions at ``indices``, an ``(k,)`` array, in that order."""
        return Prediction(self.mean[indices], self.variance[indices], self.target)

    def interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Central Gaussian prediction interval.

        Parameters
        ----------
        level : float
            Probability, between 0 and 1.

        Returns
        -------
        lower, upper : (m,) arrays
            Ends of the interval.

        Raises
        ------
        ValueError
            ``level`` is not between 0 and 1, or only the mean was predicted.
        """
        if not self.has_variance:
            raise ValueError("only means were predicted, and intervals need variances: predict with variance=True")
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
        half = ndtri(0.5 + level / 2) * self.standard_error
        return self.mean - half, self.mean + half


def check_target(target: str) -> None:
    """Raise ``ValueError`` unless ``target`` is one of :data:`Target`."""
    if target not in ("observation", "field"):
        raise ValueError(f"target is {target!r}, but there are 'observation' and 'field'")


def new_errors(error_variances: ArrayLike | None, m: int, target: str) -> NDArray[np.float64] | float:
    """Check known variances of the errors of new observations."""
    if error_variances is None:
        return 0.0
    if target == "field":
        raise ValueError("error variances are those of observations: leave them out, or take target='observation'")
    return as_error_variances(error_variances, m)
