"""What mixed precision changed of an estimate: the likelihood in FP64 at the optimum, and how far the maximum in FP64 is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import fisher_step
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import SearchSpace


@dataclass(frozen=True)
class PrecisionCheck:
    """An estimate in mixed precision, judged in FP64.

    Parameters
    ----------
    threshold : float
        The precision threshold of the fit.
    loglik : float
        Log-likelihood at the estimate in FP64.
    loglik_mixed : float
        The same in mixed precision.
    shift : mapping of str to float
        One step of Fisher scoring in FP64 from the estimate: relative change of each parameter that was searched for. The
        estimate in FP64 lies about there.
    shift_in_errors : float
        Length of that step in standard errors.
    """

    threshold: float
    loglik: float
    loglik_mixed: float
    shift: Mapping[str, float]
    shift_in_errors: float

    @property
    def loglik_error(self) -> float:
        """Mixed less FP64."""
        return self.loglik_mixed - self.loglik

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "shift": dict(self.shift), "loglik_error": self.loglik_error}


def check_precision(
    observations: Observations,
    space: SearchSpace[Any],
    point: NDArray[np.float64],
    options: LikelihoodOptions,
    *,
    loglik_mixed: float,
) -> tuple[Likelihood, PrecisionCheck]:
    """Evaluate value, gradient and information in FP64 at an estimate.

    Parameters
    ----------
    observations : Observations
        The data.
    space : SearchSpace
        Where the search was.
    point : (k,) array
        Its end.
    options : LikelihoodOptions
        With a precision threshold.
    loglik_mixed : float
        Log-likelihood at the estimate in mixed precision.

    Returns
    -------
    Likelihood
        In FP64.
    PrecisionCheck
        What differs.

    Raises
    ------
    NotPositiveDefiniteError
        The matrix is not positive definite in FP64.
    """
    threshold = options.settings.precision_threshold
    assert threshold is not None, "asked for in mixed precision only"
    plain = replace(options, settings=replace(options.settings, precision_threshold=None))
    objective = Objective(observations, space, plain, SilentProgress())
    known = objective.at(point, gradient=True, information=True)
    if known.likelihood is None:
        assert isinstance(objective.last_error, oc.NotPositiveDefiniteError)
        raise objective.last_error
    step, promise = fisher_step(objective, point, known)
    return known.likelihood, PrecisionCheck(threshold, known.loglik, loglik_mixed, space.shift(step), math.sqrt(promise))
