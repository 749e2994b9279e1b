"""Result of a fit: the estimate, and everything needed to judge it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.model_content import model_content
from ooc_chol.apps.geostat.estimation.estimates import Row, as_read, estimates_drawing, estimates_text
from ooc_chol.apps.geostat.estimation.fit_plan import FitReport
from ooc_chol.apps.geostat.estimation.optimizers import Method
from ooc_chol.apps.geostat.estimation.precision import PrecisionCheck
from ooc_chol.apps.geostat.estimation.progress import Evaluation
from ooc_chol.apps.geostat.estimation.search import Model
from ooc_chol.apps.geostat.estimation.smoothness_comparison import SmoothnessComparison
from ooc_chol.apps.geostat.estimation.stationarity import StationarityTest
from ooc_chol.apps.geostat.estimation.vecchia_check import VecchiaCheck
from ooc_chol.apps.geostat.estimation.vecchia_start import VecchiaStart

#: Standard errors of half a 95 % interval.
_NORMAL_95 = 1.959964


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
        True if the search ended by its tolerance, within the evaluations allowed.
    message : str
        Why it ended: with derivatives what the next step would gain, and by how many standard errors it would move a parameter at
        most.
    gain, errors : float or None
        These two as numbers, in units of the log-likelihood and in standard errors; None of a search without derivatives.
    interval : (float, float) or None
        Where the log-likelihood of exact arithmetic lies, in mixed precision; None in FP64, and where nothing is certified.
    """

    smoothness: float | None
    loglik: float
    range: float | None
    nugget_ratio: float
    evaluations: int
    not_positive_definite: int
    converged: bool
    message: str
    gain: float | None = None
    errors: float | None = None
    interval: tuple[float, float] | None = None

    __repr__ = tb.brief_repr


@dataclass(frozen=True, eq=False)
class FitResult(Generic[Model]):
    """Maximum-likelihood estimate of a covariance function with everything needed to judge it.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function, variance and nugget in squared units of the values.
    loglik : float
        Log-likelihood at the estimate: with ``method="vecchia"`` the exact one, unless that was not computed (``vecchia``); with
        a ``precision_threshold`` that of mixed precision, unless FP64's was asked for (``precision``).
    n : int
        Number of observations.
    mean_columns : tuple of str
        Names of the columns of the mean.
    coefficients : (p,) array
        Estimated coefficients of these columns.
    coefficient_covariance : (p, p) array
        Covariance of the coefficients, given the covariance function.
    trials : tuple of SmoothnessTrial
        One per search: per smoothness tried, then with ``smoothness="auto"`` the one that estimates it.
    evaluations : tuple of Evaluation
        Every likelihood evaluated on all observations, in order; with ``method="vecchia"`` approximate ones, as in ``trials``.
    subset_evaluations : int
        Likelihoods evaluated to find the start: on a small subset, or approximate.
    report : FitReport
        Seconds, bytes and memory of the fit, its plan, and the key of its bits.
    converged : bool
        True if the search at the chosen smoothness converged.
    warnings : tuple of str
        Warnings for the user: parameters at bounds, matrices not positive definite, evaluations used up, checks and logs
        that failed.
    method : {"cobyqa", "bobyqa", "lbfgs", "fisher", "vecchia"}
        Search that was used; see :func:`~ooc_chol.apps.geostat.fit`.
    reml : bool
        True if the restricted likelihood was maximised; ``loglik`` is that one then.
    estimated : tuple of str
        The parameters of ``model`` that were estimated.
    precision : PrecisionCheck or None
        Changes that mixed precision may have made; None for a fit in FP64.
    vecchia : VecchiaCheck or None
        How far Vecchia's approximation is from exact; None for an exact fit.
    start : {"template", "subset", "vecchia", "variogram", "log"}
        Where the search came from: the values given, a fit of a subset, one of the approximation, the semivariogram, or the log
        of an earlier run.
    comparison : SmoothnessComparison or None
        A smoothness that is kept against one that is estimated; None where it was estimated alone, of other covariance functions
        than Matérn's, and where the comparison failed (``warnings``).
    stationary : StationarityTest or None
        For a :class:`NonstationaryMatern`: its likelihood ratio against the same model without slopes.
    end : str
        Why the search that found the estimate ended, as ``message`` of its trial.
    vecchia_start : VecchiaStart or None
        How far the estimate is from where Vecchia's approximation is largest, of an exact search with derivatives from there.
    trace : Trace or None
        Every operation of the last factorization of all observations, where it was asked for.
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
    report: FitReport
    converged: bool
    warnings: tuple[str, ...]
    method: Method = "fisher"
    reml: bool = False
    estimated: tuple[str, ...] = ()
    precision: PrecisionCheck | None = None
    vecchia: VecchiaCheck | None = None
    start: str = "subset"
    comparison: SmoothnessComparison | None = None
    stationary: StationarityTest | None = None
    end: str = ""
    vecchia_start: VecchiaStart | None = None
    trace: oc.Trace | None = None

    def __repr__(self) -> str:
        facts = {"model": type(self.model).__name__, "loglik": self.loglik, "n": self.n, "converged": self.converged}
        return tb.one_line(self, {**facts, "variance": self.model.variance, **self.model.values, "nugget": self.model.nugget})

    def __str__(self) -> str:
        return estimates_text(f"{self._title}; {self._search}", self._rows(), self.warnings)

    def _repr_html_(self) -> str:
        """HTML for notebooks: the coefficients of the mean with 95 % intervals, the parameters, and the text."""
        return tb.notebook_html(str(self), estimates_drawing(self._title, self._rows()))

    @property
    def _title(self) -> str:
        """Title: model and data of the fit, and its quality."""
        kind = "restricted log-likelihood" if self.reml else "log-likelihood"
        return f"{type(self.model).__name__} covariance of {self.n} observations: {kind} {self.loglik:.3f}, AIC {self.aic:.3f}"

    @property
    def _search(self) -> str:
        """How it was found."""
        end = "converged" if self.converged else "not converged"
        return f"{self.method}, {end} after {len(self.evaluations)} evaluations in {self.report.seconds.total:.1f} s"

    def _rows(self) -> list[Row]:
        """Parameters of the covariance function, which ``infer`` has intervals of, then the coefficients with theirs."""
        values = {**self.model.values, "variance": self.model.variance, "nugget": self.model.nugget}
        kept = {name: "" if name in self.estimated else " (kept)" for name in values}
        rows = [as_read(Row(name, value, note=kept[name])) for name, value in values.items()]
        errors = np.sqrt(np.diag(self.coefficient_covariance))
        for name, value, error in zip(self.mean_columns, map(float, self.coefficients), map(float, errors), strict=True):
            rows.append(Row(name, value, error, value - _NORMAL_95 * error, value + _NORMAL_95 * error))
        return rows

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

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the log-likelihood of exact arithmetic lies, of a fit in mixed precision; None in FP64, and if unknown."""
        check = self.precision
        return None if check is None or check.lower is None or check.upper is None else (check.lower, check.upper)

    @property
    def aic_interval(self) -> tuple[float, float] | None:
        """Where :attr:`aic` of exact arithmetic lies, as :attr:`interval`."""
        return _criterion_interval(self.aic, self.loglik, self.interval)

    @property
    def bic_interval(self) -> tuple[float, float] | None:
        """Where :attr:`bic` of exact arithmetic lies, as :attr:`interval`."""
        return _criterion_interval(self.bic, self.loglik, self.interval)

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
            "interval": self.interval,
            "aic_interval": self.aic_interval,
            "bic_interval": self.bic_interval,
            "n": self.n,
            "method": self.method,
            "reml": self.reml,
            "estimated": list(self.estimated),
            "precision": None if self.precision is None else self.precision.to_dict(),
            "vecchia": None if self.vecchia is None else self.vecchia.to_dict(),
            "start": self.start,
            "vecchia_start": None if self.vecchia_start is None else vars(self.vecchia_start),
            "comparison": None if self.comparison is None else vars(self.comparison),
            "stationary": None if self.stationary is None else self.stationary.to_dict(),
            "converged": self.converged,
            "end": self.end,
            "warnings": list(self.warnings),
            "report": self.report.to_dict(),
            "subset_evaluations": self.subset_evaluations,
            "trials": [vars(trial) for trial in self.trials],
            "evaluations": [evaluation.to_dict() for evaluation in self.evaluations],
        }


def _criterion_interval(value: float, loglik: float, interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """The interval of a criterion of which twice the log-likelihood is taken off."""
    return None if interval is None else (value - 2.0 * (interval[1] - loglik), value - 2.0 * (interval[0] - loglik))
