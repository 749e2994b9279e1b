"""Maximum likelihood: COBYQA over log range and log nugget ratio, one out-of-core Cholesky factorization per evaluation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariance import SMOOTHNESS, Matern, check_smoothness
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.likelihood import Likelihood
from ooc_chol.apps.geostat.objective import Objective, search_from
from ooc_chol.apps.geostat.observations import Observations
from ooc_chol.apps.geostat.progress import AbstractFitProgress, Evaluation, SilentProgress
from ooc_chol.apps.geostat.search import Nugget, SearchSpace, neighbourhoods, search_space

#: Trust-region radius of the first steps on the subset and on all observations.
_SUBSET_RADIUS = 1.0
_RADIUS = 0.5

#: Half of the 0.95 quantile of a chi-square variable of two degrees of freedom, range and nugget: less is no sign of correlation.
_LEAST_GAIN = 3.0

_BOUND_TEXTS = {
    "range-lower": "the range is at its lower bound, far below the distances between sites",
    "range-upper": "the range is at its upper bound, ten times the extent of the sites: of variance and range only "
    "variance / range**(2 smoothness) is determined",
    "nugget-lower": "the nugget is at its floor, 1e-8 of the variance: the values show none, and the one reported is no estimate",
    "nugget-upper": "the nugget is at its upper bound, 1000 times the variance",
}


@dataclass(frozen=True)
class SmoothnessTrial:
    """The best that was found at one smoothness.

    Parameters
    ----------
    smoothness : float
        ``nu``.
    loglik : float
        Largest log-likelihood.
    range, nugget_ratio : float
        Where.
    evaluations, not_positive_definite : int
        Likelihoods asked for, and how many of them were minus infinity because the matrix was not positive definite.
    converged : bool
        Whether the search ended by its tolerance, within the evaluations allowed.
    message : str
        Why it ended.
    """

    smoothness: float
    loglik: float
    range: float
    nugget_ratio: float
    evaluations: int
    not_positive_definite: int
    converged: bool
    message: str


@dataclass(frozen=True, eq=False)
class FitResult:
    """Maximum-likelihood estimate of a Matérn model with everything needed to judge it.

    Parameters
    ----------
    model : Matern
        Covariance function, variance and nugget in squared units of the values.
    loglik : float
        Log-likelihood at the estimate.
    n : int
        Number of observations.
    mean_columns : tuple of str
        Names of the columns of the mean.
    coefficients : (p,) array
        Their coefficients.
    coefficient_covariance : (p, p) array
        Covariance of the coefficients, given the covariance function.
    trials : tuple of SmoothnessTrial
        One per smoothness tried.
    evaluations : tuple of Evaluation
        Every likelihood evaluated on all observations, in order.
    subset_evaluations : int
        Likelihoods evaluated on a small subset to find the start.
    seconds : float
        Wall-clock time of the whole fit.
    converged : bool
        Whether the search at the chosen smoothness converged.
    warnings : tuple of str
        What a user should know: parameters at bounds, matrices not positive definite, evaluations used up.
    """

    model: Matern
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

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON; the schema is in ``docs/geostat.md``."""
        return {
            "model": {
                "covariance": "matern",
                "variance": self.model.variance,
                "range": self.model.range,
                "smoothness": self.model.smoothness,
                "nugget": self.model.nugget,
                "effective_range": self.model.effective_range,
            },
            "mean": {
                "columns": list(self.mean_columns),
                "coefficients": self.coefficients.tolist(),
                "standard_errors": np.sqrt(np.diag(self.coefficient_covariance)).tolist(),
            },
            "loglik": self.loglik,
            "n": self.n,
            "converged": self.converged,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "subset_evaluations": self.subset_evaluations,
            "trials": [vars(trial) for trial in self.trials],
            "evaluations": [{**vars(e), "loglik": e.loglik if math.isfinite(e.loglik) else None} for e in self.evaluations],
        }


def fit(
    observations: Observations,
    *,
    smoothness: float | Literal["best"] = "best",
    nugget: Nugget = "free",
    tolerance: float = 0.01,
    max_evaluations: int = 200,
    settings: FactorSettings | None = None,
    progress: AbstractFitProgress | None = None,
) -> FitResult:
    """Fit a Matérn model by exact maximum likelihood, mean and variance profiled out.

    Parameters
    ----------
    observations : Observations
        The data, in any order.
    smoothness : {0.5, 1.5, 2.5, "best"}
        ``nu``, or the one of the three with the largest likelihood.
    nugget : {"free", "zero"} or float
        Estimated (ratio at least 1e-8), none, or kept at this variance.
    tolerance : float
        A search ends when its trust region is smaller than this (in the logarithm of the range, and a quarter of that of the
        nugget ratio), or when ten evaluations together raise the log-likelihood by less than five times this.
    max_evaluations : int
        Likelihoods per smoothness on all observations.
    settings : FactorSettings, optional
        How every factorization runs: tile size, devices, budgets, store.
    progress : AbstractFitProgress, optional
        Told of every evaluation.

    Returns
    -------
    FitResult
        The estimate.

    Raises
    ------
    ValueError
        The smoothness has no closed form, the nugget is no such choice, the data cannot carry a fit (all at one place, all equal,
        duplicates without nugget).
    NotPositiveDefiniteError
        No starting point with a positive definite correlation matrix was found, even at short ranges.

    Notes
    -----
    Each evaluation costs ``n**3 / 3`` flops. COBYQA (Ragonneau and Zhang; in SciPy) needed 16-24 of them on real terrain where
    Nelder-Mead took 14-37 and Powell's method 37-102, at equal accuracy.
    """
    start = time.perf_counter()
    space = search_space(observations, nugget)
    candidates = SMOOTHNESS if smoothness == "best" else (smoothness,)
    for candidate in candidates:
        check_smoothness(candidate)
    search = _Search(observations, space, settings or FactorSettings(), progress or SilentProgress(), tolerance, max_evaluations)
    outcomes = [search.maximise(candidate) for candidate in candidates]
    best = max(outcomes, key=lambda outcome: outcome.likelihood.loglik)
    return _result(observations, space, search, outcomes, best, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A trial with the likelihood and the point of its maximum."""

    trial: SmoothnessTrial
    likelihood: Likelihood
    point: NDArray[np.float64]


@dataclass(eq=False)
class _Search:
    """Maximises over range and nugget ratio, smoothness by smoothness."""

    observations: Observations
    space: SearchSpace
    settings: FactorSettings
    progress: AbstractFitProgress
    tolerance: float
    max_evaluations: int
    evaluations: list[Evaluation] = field(default_factory=list)
    subset_evaluations: int = 0

    def maximise(self, smoothness: float) -> _Outcome:
        """Start from the subset, then search with all observations."""
        start = self.space.raised(self._start(smoothness))
        objective = Objective(self.observations, self.space, smoothness, self.settings, self.progress)
        end = search_from(objective, start, radius=_RADIUS, tolerance=self.tolerance, max_evaluations=self.max_evaluations)
        self._try_floor(objective)
        self.evaluations += objective.evaluations
        likelihood, point = objective.best, objective.best_point
        assert likelihood is not None and point is not None, "search_from raises when no matrix is positive definite"
        trial = SmoothnessTrial(
            smoothness=smoothness,
            loglik=likelihood.loglik,
            range=likelihood.model.range,
            nugget_ratio=likelihood.model.nugget / likelihood.model.variance,
            evaluations=len(objective.evaluations),
            not_positive_definite=objective.not_positive_definite,
            converged=end.converged,
            message=end.message,
        )
        return _Outcome(trial, likelihood, point)

    def _start(self, smoothness: float) -> NDArray[np.float64]:
        """Best point of a coarse grid on the subset, improved there when the subset is not everything."""
        subset = neighbourhoods(self.observations)
        starts = self.space.starts(subset.diameter)
        if np.ptp(subset.values) == 0.0:
            return starts[len(starts) // 2]
        settings = replace(self.settings, tile_size=None, memory_budget=None, host_budget=None, store=None)
        objective = Objective(subset, self.space, smoothness, settings, SilentProgress())
        point = min(starts, key=objective)
        if subset.n < self.observations.n:
            search_from(objective, point, radius=_SUBSET_RADIUS, tolerance=0.1, max_evaluations=self.max_evaluations)
            point = point if objective.best_point is None else objective.best_point
        self.subset_evaluations += len(objective.evaluations)
        return point

    def _try_floor(self, objective: Objective) -> None:
        """Where the likelihood is flat in a small nugget, see whether it is largest without any."""
        point = objective.best_point
        if self.space.nugget is None and point is not None and self.space.is_small_nugget(point):
            objective(np.array([point[0], self.space.lower[1]]))


def _result(
    observations: Observations, space: SearchSpace, search: _Search, outcomes: list[_Outcome], best: _Outcome, seconds: float
) -> FitResult:
    """Put the result together, with its warnings."""
    return FitResult(
        model=best.likelihood.model,
        loglik=best.likelihood.loglik,
        n=observations.n,
        mean_columns=observations.mean_columns,
        coefficients=best.likelihood.coefficients,
        coefficient_covariance=best.likelihood.coefficient_covariance,
        trials=tuple(outcome.trial for outcome in outcomes),
        evaluations=tuple(search.evaluations),
        subset_evaluations=search.subset_evaluations,
        seconds=seconds,
        converged=best.trial.converged,
        warnings=_warnings(observations, space, outcomes, best),
    )


def _warnings(observations: Observations, space: SearchSpace, outcomes: list[_Outcome], best: _Outcome) -> tuple[str, ...]:
    """What a user should know about the search."""
    texts = [_BOUND_TEXTS[name] for name in space.at_bounds(best.point)]
    gain = best.likelihood.loglik - _independent_loglik(observations)
    if gain < _LEAST_GAIN:
        texts.append(
            f"the log-likelihood is only {gain:.2f} above that of independent values: there may be no spatial correlation"
        )
    if not best.trial.converged:
        texts.append(f"the search did not converge in {best.trial.evaluations} evaluations: {best.trial.message}")
    failed = sum(outcome.trial.not_positive_definite for outcome in outcomes)
    if failed:
        texts.append(
            f"{failed} evaluations met a matrix that is not positive definite in floating point and counted as minus infinity"
        )
    return tuple(texts)


def _independent_loglik(observations: Observations) -> float:
    """Largest log-likelihood of independent values of equal variance, ``-n/2 (log(2 pi s2) + 1)``."""
    coefficients = np.linalg.lstsq(observations.design, observations.values, rcond=None)[0]
    variance = float(np.mean((observations.values - observations.design @ coefficients) ** 2))
    return -0.5 * observations.n * (math.log(2 * math.pi * variance) + 1)
