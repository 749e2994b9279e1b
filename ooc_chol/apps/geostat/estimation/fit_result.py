"""What a fit gives: the estimate, and everything needed to judge it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.estimation.optimizers import Method
from ooc_chol.apps.geostat.estimation.precision import PrecisionCheck
from ooc_chol.apps.geostat.estimation.progress import Evaluation
from ooc_chol.apps.geostat.estimation.search import Model
from ooc_chol.apps.geostat.estimation.vecchia_check import VecchiaCheck


@dataclass(frozen=True)
class SmoothnessTrial:
    """The best that one search found.

    Parameters
    ----------
    smoothness : float or None
        ``nu``, which a Matérn model is tried at; None of a covariance function that has none.
    loglik : float
        Largest log-likelihood.
    range : float or None
        Range at that maximum, in the unit of the coordinates; None of a covariance function that has several.
    nugget_ratio : float
        Nugget over variance at that maximum.
    evaluations, not_positive_definite : int
        Likelihoods asked for, and how many of them were minus infinity because the matrix was not positive definite.
    converged : bool
        Whether the search ended by its tolerance, within the evaluations allowed.
    message : str
        Why it ended.
    """

    smoothness: float | None
    loglik: float
    range: float | None
    nugget_ratio: float
    evaluations: int
    not_positive_definite: int
    converged: bool
    message: str


@dataclass(frozen=True, eq=False)
class FitResult(Generic[Model]):
    """Maximum-likelihood estimate of a covariance function with everything needed to judge it.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function, variance and nugget in squared units of the values.
    loglik : float
        Log-likelihood at the estimate: with ``method="vecchia"`` the exact one, unless that was not computed (``vecchia``).
    n : int
        Number of observations.
    mean_columns : tuple of str
        Names of the columns of the mean.
    coefficients : (p,) array
        Estimated coefficients of these columns.
    coefficient_covariance : (p, p) array
        Covariance of the coefficients, given the covariance function.
    trials : tuple of SmoothnessTrial
        One per search: per smoothness tried.
    evaluations : tuple of Evaluation
        Every likelihood evaluated on all observations, in order; with ``method="vecchia"`` approximate ones, as in ``trials``.
    subset_evaluations : int
        Likelihoods evaluated to find the start: on a small subset, or approximate.
    seconds : float
        Wall-clock time of the whole fit.
    converged : bool
        Whether the search at the chosen smoothness converged.
    warnings : tuple of str
        What a user should know: parameters at bounds, matrices not positive definite, evaluations used up, checks and logs
        that failed.
    method : {"cobyqa", "bobyqa", "lbfgs", "fisher", "vecchia"}
        Search that was used; see :func:`~ooc_chol.apps.geostat.fit`.
    reml : bool
        Whether the restricted likelihood was maximised; ``loglik`` is that one then.
    estimated : tuple of str
        The parameters of ``model`` that were estimated.
    reused : int
        Evaluations that came from the log of an earlier run.
    precision : PrecisionCheck or None
        What mixed precision changed; None for a fit in FP64.
    vecchia : VecchiaCheck or None
        How far Vecchia's approximation is from exact; None for an exact fit.
    start : {"template", "subset", "vecchia", "log"}
        Where the search came from: the values given, a fit of a subset, one of the approximation, or the log of an earlier run.
    """

    model: Model
    loglik: float
    n: int
    mean_columns: tuple[str, ...]
    coefficients: NDArray[np.float64]
    coefficient_covariance: NDArray[np.float64]
    trials: tuple[SmoothnessTrial, ...]
    evaluations: tuple[Evaluation, ...]
    subset_evaluations: int
    seconds: float
    converged: bool
    warnings: tuple[str, ...]
    method: Method = "cobyqa"
    reml: bool = False
    estimated: tuple[str, ...] = ()
    reused: int = 0
    precision: PrecisionCheck | None = None
    vecchia: VecchiaCheck | None = None
    start: str = "subset"

    @property
    def parameters(self) -> int:
        """Parameters that the likelihood was maximised over: those of the covariance and, unless restricted, of the mean."""
        return len(self.estimated) + (0 if self.reml else len(self.coefficients))

    @property
    def aic(self) -> float:
        """Akaike's criterion, ``2 parameters - 2 loglik``; restricted ones compare covariances of one mean only."""
        return 2.0 * self.parameters - 2.0 * self.loglik

    @property
    def bic(self) -> float:
        """Schwarz's criterion, ``parameters log(n) - 2 loglik``, with ``n - p`` when restricted."""
        n = self.n - (len(self.coefficients) if self.reml else 0)
        return self.parameters * math.log(n) - 2.0 * self.loglik

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON; the schema is in ``docs/geostat.md``."""
        return {
            "model": model_content(self.model),
            "mean": {
                "columns": list(self.mean_columns),
                "coefficients": self.coefficients.tolist(),
                "standard_errors": np.sqrt(np.diag(self.coefficient_covariance)).tolist(),
            },
            "loglik": self.loglik,
            "aic": self.aic,
            "bic": self.bic,
            "n": self.n,
            "method": self.method,
            "reml": self.reml,
            "estimated": list(self.estimated),
            "reused": self.reused,
            "precision": None if self.precision is None else self.precision.to_dict(),
            "vecchia": None if self.vecchia is None else self.vecchia.to_dict(),
            "start": self.start,
            "converged": self.converged,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "subset_evaluations": self.subset_evaluations,
            "trials": [vars(trial) for trial in self.trials],
            "evaluations": [evaluation.to_dict() for evaluation in self.evaluations],
        }
