"""Fits of values in a unit of their own, told in the unit that the values came in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.estimation.fit_result import FitResult, SmoothnessTrial
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress, Evaluation
from ooc_chol.apps.geostat.estimation.search import VARIANCE
from ooc_chol.apps.geostat.estimation.value_unit import ValueUnit


@dataclass(frozen=True)
class FitUnit:
    """How results of a fit go back; ``freedom`` is that of the likelihood."""

    unit: ValueUnit
    freedom: int

    def result(self, found: FitResult[Any]) -> FitResult[Any]:
        """The result in the unit of the values."""
        if self.unit.is_plain:
            return found
        return replace(
            found,
            model=self.unit.model_back(found.model),
            loglik=self._loglik(found.loglik),
            coefficients=self.unit.coefficients_back(found.coefficients, found.mean_columns),
            coefficient_covariance=self.unit.covariance_back(found.coefficient_covariance),
            trials=tuple(map(self._trial, found.trials)),
            evaluations=tuple(map(self.evaluation, found.evaluations)),
            precision=self._logliks(found.precision, "loglik", "loglik_mixed", "lower", "upper"),
            vecchia=self._logliks(found.vecchia, "loglik", "loglik_exact"),
            stationary=self._logliks(found.stationary, "loglik"),
        )

    def evaluation(self, found: Evaluation) -> Evaluation:
        """An evaluation in the unit of the values."""
        values = dict(found.values)
        if VARIANCE in values:
            values[VARIANCE] = self.unit.variance_back(values[VARIANCE])
        return replace(found, values=values, loglik=self._loglik(found.loglik))

    def _trial(self, found: SmoothnessTrial) -> SmoothnessTrial:
        """A trial in the unit of the values."""
        ends = found.interval
        interval = None if ends is None else (self._loglik(ends[0]), self._loglik(ends[1]))
        return replace(found, loglik=self._loglik(found.loglik), interval=interval)

    def _loglik(self, loglik: float) -> float:
        return self.unit.loglik_back(loglik, self.freedom)

    def _logliks(self, found: Any, *names: str) -> Any:
        """A part of a result, or None, with the log-likelihoods of these names back."""
        known = {name: value for name in names if found is not None and (value := getattr(found, name)) is not None}
        return replace(found, **{name: self._loglik(value) for name, value in known.items()}) if known else found


@final
class ProgressInUnit(AbstractFitProgress):
    """Hands evaluations on in the unit of the values."""

    def __init__(self, progress: AbstractFitProgress, unit: FitUnit) -> None:
        self._progress, self._unit = progress, unit

    def evaluation_started(self, correlation: AbstractCovariance) -> None:
        """Hand it on."""
        self._progress.evaluation_started(correlation)

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Hand it on."""
        self._progress.advanced(done, total, seconds)

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Hand on the evaluation in the unit of the values."""
        self._progress.evaluation_finished(self._unit.evaluation(evaluation))

    def remarked(self, text: str) -> None:
        """Hand it on."""
        self._progress.remarked(text)

    def close(self) -> None:
        """Hand it on."""
        self._progress.close()
