"""The function that a fit maximises: profile log-likelihood, its gradient and information, with a memory of all evaluations."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.certified_loglik import loglik_interval, most_off
from ooc_chol.apps.geostat.estimation.gradient import PROBES, LikelihoodGradient, TraceSums, assembled, has_exact_gradient, score
from ooc_chol.apps.geostat.estimation.likelihood import Evaluated, Likelihood, correlation_of, evaluated
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress, Evaluation
from ooc_chol.apps.geostat.estimation.search import NUGGET_RATIO, VARIANCE, SearchSpace
from ooc_chol.apps.geostat.estimation.vecchia import approximated
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import Conditioning, LastGraph
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Order up to which a search takes the exact information, which costs ``n**3``: it only shapes the steps, for which probes do.
_INFORMATION_LIMIT = 600


@contextmanager
def _small_pivots_allowed() -> Iterator[None]:
    """Without a word of pivots that rounding changes: a search passes such models, and the interval at its end tells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oc.errors.PrecisionWarning)
        yield


@dataclass(frozen=True)
class LikelihoodOptions:
    """How likelihoods and their derivatives are computed in a fit."""

    settings: FactorSettings = field(default_factory=FactorSettings)  #: How every factorization runs
    reml: bool = False
    trace_sums: TraceSums = "auto"  #: Exact gradients, or estimates by random probes
    probes: int = PROBES  #: How many probes, and the seed of their signs: the same in every evaluation
    seed: int = 0
    graph: LastGraph = field(
        default_factory=LastGraph, compare=False, repr=False
    )  #: Of Vecchia's approximation, kept for the next


@dataclass(frozen=True, eq=False)
class Known:
    """The log-likelihood at a point, with its derivatives by the ``k`` coordinates as far as they were asked for."""

    likelihood: Likelihood | None  #: None where the matrix is not positive definite
    gradient: NDArray[np.float64] | None = None  #: (k,)
    information: NDArray[np.float64] | None = None  #: (k, k), expected
    gradient_error: NDArray[np.float64] | None = None  #: (k,) Monte-Carlo standard error; zero when the gradient is exact

    @property
    def loglik(self) -> float:
        """The value; minus infinity where the matrix is not positive definite."""
        return -math.inf if self.likelihood is None else self.likelihood.loglik

    @property
    def hidden(self) -> float:
        """The most that the value is off where its interval is known: smaller differences tell nothing."""
        interval = None if self.likelihood is None else self.likelihood.interval
        return 0.0 if interval is None else most_off(self.loglik, interval)

    def suffices(self, gradient: bool, information: bool, certified: bool = False) -> bool:
        """Tell whether nothing that is wanted is missing."""
        has_all = (self.gradient is not None or not gradient) and (self.information is not None or not information)
        return self.likelihood is None or (has_all and (self.likelihood.interval is not None or not certified))

    def besides(self, before: Known | None) -> Known:
        """Values known now, with the derivatives that an earlier evaluation at the same point had."""
        if before is None or self.likelihood is None or self.gradient is not None:
            return self
        return replace(before, likelihood=self.likelihood)


class AbstractEvaluationMemory(ABC):
    """Evaluations of an earlier run, found by point, and a place for new ones."""

    @property
    def lasts(self) -> bool:
        """True where a later run finds them."""
        return False

    @abstractmethod
    def find(self, space: SearchSpace[Any], point: NDArray[np.float64]) -> Known | None:
        """Look up an earlier run's values at ``point``; None if there are none."""

    @abstractmethod
    def keep(self, space: SearchSpace[Any], point: NDArray[np.float64], known: Known, seconds: float) -> None:
        """Take an evaluation that was made, with its seconds."""


@final
class NoMemory(AbstractEvaluationMemory):
    """Knows nothing, and keeps nothing."""

    def find(self, space: SearchSpace[Any], point: NDArray[np.float64]) -> Known | None:
        """Find nothing."""
        return None

    def keep(self, space: SearchSpace[Any], point: NDArray[np.float64], known: Known, seconds: float) -> None:
        """Do nothing."""


@dataclass(eq=False)
class Objective:
    """Minus the profile log-likelihood at a point of the search space; remembers all evaluations and the best one."""

    observations: Observations
    space: SearchSpace[Any]  #: Parameters that the coordinates of a point stand for
    options: LikelihoodOptions
    progress: AbstractFitProgress  #: Told of every evaluation
    memory: AbstractEvaluationMemory = field(default_factory=NoMemory)  #: Evaluations of an earlier run, and where these are kept
    graph: Conditioning | None = None  #: Neighbours with which Vecchia's approximation takes the place of the exact value
    expected: Conditioning | None = None  #: Neighbours with which it tells the information of exact values, in place of probes
    #: Where a search may end, so that the open factor certifies the value; nowhere when not given
    may_end: Callable[[NDArray[np.float64], Known], bool] | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    reused: int = 0
    best: Likelihood | None = None
    best_point: NDArray[np.float64] | None = None
    last_error: oc.NotPositiveDefiniteError | None = None
    _known: dict[bytes, Known] = field(default_factory=dict)

    def __call__(self, point: NDArray[np.float64]) -> float:
        """Minus the value at ``point``, factored once even when it is asked for twice.

        A matrix that is not positive definite counts as minus infinity, and as a step that looks bad.
        """
        known = self.at(point)
        return -known.loglik if known.likelihood is not None else self._penalty()

    def at(self, point: NDArray[np.float64], *, gradient: bool = False, information: bool = False) -> Known:
        """Evaluate at ``point``: from memory, or by one factorization."""
        name = np.asarray(point, dtype=np.float64).tobytes()
        known = self._known.get(name)
        if known is None or not known.suffices(gradient, information):
            known = self._known[name] = self._recall_or_evaluate(np.array(point, dtype=np.float64), gradient, information)
        return known

    def known(self, point: NDArray[np.float64]) -> Known | None:
        """Evaluation at a point, if there was any."""
        return self._known.get(np.asarray(point, dtype=np.float64).tobytes())

    @property
    def not_positive_definite(self) -> int:
        """Number of evaluations whose matrix was not positive definite."""
        return sum(not math.isfinite(evaluation.loglik) for evaluation in self.evaluations)

    def settle(self, point: NDArray[np.float64]) -> None:
        """Take a point that was evaluated for the best, whatever other values say."""
        self.best, self.best_point = self._known[point.tobytes()].likelihood, point

    def certify_best(self) -> None:
        """Have the interval of the best value: by one more factorization where no evaluation has it."""
        assert self.best_point is not None, "there is a best point"
        known = self._known[self.best_point.tobytes()]
        if not known.suffices(False, False, certified=True):
            known = self._recall_or_evaluate(self.best_point, False, False, certified=True)
            if known.likelihood is None:
                assert self.last_error is not None
                raise self.last_error
            self._known[self.best_point.tobytes()], self.best = known, known.likelihood

    def _recall_or_evaluate(
        self, point: NDArray[np.float64], gradient: bool, information: bool, certified: bool = False
    ) -> Known:
        correlation = self.space.correlation(point)
        self.progress.evaluation_started(correlation)
        start = time.perf_counter()
        known = self.memory.find(self.space, point)
        if known is not None and known.suffices(gradient, information, certified):
            self.reused += 1
        else:
            known = self._evaluate(point, gradient, information, certified).besides(known)
            self.memory.keep(self.space, point, known, time.perf_counter() - start)
        if known.likelihood is not None and (self.best is None or known.loglik > self.best.loglik):
            self.best, self.best_point = known.likelihood, point
        values = {**correlation.values, NUGGET_RATIO: correlation.nugget}
        if VARIANCE in self.space.names:
            values[VARIANCE] = self.space.variance(point)
        evaluation = Evaluation(values, known.loglik, time.perf_counter() - start)
        self.evaluations.append(evaluation)
        self.progress.evaluation_finished(evaluation)
        return known

    @_small_pivots_allowed()
    def _evaluate(self, point: NDArray[np.float64], gradient: bool, information: bool, certified: bool) -> Known:
        """One factorization, and what follows from it."""
        options, correlation, variance = self.options, self.space.correlation(point), self.space.variance(point)
        try:
            if self.graph is not None:
                return self._approximate(self.graph, correlation, variance, gradient or information)
            with evaluated(
                self.observations,
                correlation,
                variance=variance,
                reml=options.reml,
                settings=options.settings,
                progress=self.progress.advanced,
                probes=self._probes(gradient or information),
            ) as found:
                if options.settings.precision_threshold is None or not self.memory.lasts:
                    # All evaluations factor matrices of one order: the first plan serves them all. A log has no formats of mixed
                    # precision: beside one they follow from the matrix alone, so that a fit that goes on has the same bits.
                    self.options = replace(options, settings=options.settings.reusing(found.factor.report.plan))
                if not (gradient or information):
                    return Known(self._certified(found, variance) if certified else found.likelihood)
                is_told = self.expected is not None and found.probed is not None
                full = score(
                    found,
                    self.space.shape,
                    trace_sums=options.trace_sums,
                    information=_INFORMATION_LIMIT if information and not is_told else 0,
                    probes=options.probes,
                    seed=options.seed,
                )
                if information and is_told:
                    full = replace(full, information=self._expected_information(full.likelihood.model))
                slope, expected = profiled(self.space, full)
                error = np.abs(self.space.jacobian(full.likelihood.model)[: len(slope)]) @ full.standard_error
                known = Known(found.likelihood, slope, expected, error)
                if self.may_end is None or expected is None or not self.may_end(point, known):
                    return known
                try:
                    return replace(known, likelihood=self._certified(found, variance))
                except STEP_ERRORS:
                    return known  # who needs the interval asks again, and hears why there is none
        except oc.NotPositiveDefiniteError as error:
            self.last_error = error
            return Known(None)

    def _certified(self, found: Evaluated, variance: float | None) -> Likelihood:
        """The value with its interval, by the open factor."""
        matrix, reml = found.matrix(), self.options.reml
        interval = loglik_interval(found.factor, matrix, found.observations, found.whitened, variance=variance, reml=reml)
        return replace(found.likelihood, interval=interval)

    def _expected_information(self, model: AbstractCovariance) -> NDArray[np.float64] | None:
        """The information of Vecchia's approximation, which has no Monte-Carlo error and takes no reading of L."""
        assert self.expected is not None
        shape, options = self.space.shape, self.options
        found = approximated(
            self.observations,
            correlation_of(model),
            self.expected,
            variance=model.variance,
            reml=options.reml,
            shape=shape,
            settings=options.settings,
        )
        assert found.sums is not None, "sums are asked for"
        return assembled(found.likelihood, shape, found.sums, found.sums).information

    def _probes(self, is_derived: bool) -> tuple[int, int] | None:
        """Number and seed of the probes that the gradient will need, if any."""
        is_exact = has_exact_gradient(self.options.trace_sums, self.observations.n)
        return (self.options.probes, self.options.seed) if is_derived and not is_exact else None

    def _approximate(
        self, graph: Conditioning, correlation: AbstractCovariance, variance: float | None, is_derived: bool
    ) -> Known:
        """The approximation; its gradient and information come together, both exact."""
        shape = self.space.shape
        found = approximated(
            self.observations,
            correlation,
            graph,
            variance=variance,
            reml=self.options.reml,
            shape=shape if is_derived else None,
            settings=self.options.settings,
        )
        if found.sums is None:
            return Known(found.likelihood)
        slope, expected = profiled(self.space, assembled(found.likelihood, shape, found.sums, found.sums))
        return Known(found.likelihood, slope, expected, np.zeros_like(slope))

    def _penalty(self) -> float:
        """A finite value worse than all seen, not so large that it ruins the optimiser's quadratic model."""
        values = [-evaluation.loglik for evaluation in self.evaluations if math.isfinite(evaluation.loglik)]
        return max(values) + (max(values) - min(values)) + 1.0 if values else math.inf


def profiled(space: SearchSpace[Any], full: LikelihoodGradient) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Gradient and information by the coordinates of the space; a variance that is free and none of them is profiled out."""
    jacobian, k = space.jacobian(full.likelihood.model), len(space.names)
    gradient = jacobian[:k] @ full.gradient
    if full.information is None:
        return gradient, None
    information = jacobian @ full.information @ jacobian.T
    if len(information) == k:
        return gradient, information
    mixed = information[:k, k:]
    return gradient, information[:k, :k] - mixed @ mixed.T / information[k, k]
