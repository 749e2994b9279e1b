"""The options of a fit: what must hold between them, and what they mean for its searches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.covariance import SMOOTHNESS, AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.model import kept_nugget
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.gradient import TraceSums, check_trace_sums
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions
from ooc_chol.apps.geostat.estimation.optimizers import METHODS, Method, nlopt_module
from ooc_chol.apps.geostat.estimation.search import Nugget, SearchSpace
from ooc_chol.apps.geostat.estimation.search_end import TOLERANCE, SearchLimits
from ooc_chol.apps.geostat.estimation.smoothness_comparison import COMPARED_LIMIT
from ooc_chol.apps.geostat.estimation.spaces import family_space, search_space
from ooc_chol.apps.geostat.estimation.value_unit import ValueUnit
from ooc_chol.apps.geostat.estimation.vecchia_search import ExactCheck, Starts, VecchiaOptions
from ooc_chol.apps.geostat.factorization import FactorSettings, chosen_settings


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of :func:`~ooc_chol.apps.geostat.fit`, which says what each means, but for progress and logs."""

    covariance: AbstractCovariance | None = None
    fixed: Sequence[str] = ()
    smoothness: float | Literal["auto", "best", "free"] = "auto"
    nugget: Nugget
    method: Method | None
    reml: bool
    traces: TraceSums = "auto"
    tolerance: float = TOLERANCE
    max_evaluations: int
    neighbours: int
    starts: Starts
    exact_check: ExactCheck | None
    settings: FactorSettings

    def check(self, observations: Observations) -> None:
        """Raise ``ValueError`` for an option that is no choice, and for two that do not go together, or with the data."""
        covariance, exact_check = self.covariance, self.exact_check
        check_trace_sums(self.traces, 2)
        if covariance is None and self.fixed:
            raise ValueError("fixed is about the parameters of covariance, which is not given; see smoothness and nugget")
        if covariance is not None and self.smoothness != "auto":
            raise ValueError("smoothness is for fits without covariance: give its value in covariance, and keep it by fixed")
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise ValueError(
                f"tolerance (--tolerance) is {self.tolerance}, but it must be a positive gain of log-likelihood, such as "
                f"{TOLERANCE:g}"
            )
        if self.max_evaluations < 1:
            raise ValueError(f"max_evaluations is {self.max_evaluations}, but a search takes at least one evaluation")
        method, starts = self.search_method(observations), self.vecchia.starts
        if starts == "template" and covariance is None:
            raise ValueError("starts is 'template', but no covariance is given to start from")
        if starts == "subset" and covariance is not None:
            raise ValueError(
                "starts is 'subset', which is for fits without covariance; there are 'auto', 'template' and 'vecchia'"
            )
        is_exact = method != "vecchia" and self.settings.precision_threshold is None
        if is_exact and exact_check not in (None, "value"):
            raise ValueError(
                f"exact_check is {exact_check!r}, but {method} is exact; it is for method 'vecchia' and for precision_threshold"
            )
        if method == "vecchia" and self.settings.precision_threshold is not None:
            raise ValueError(
                "Vecchia's approximation runs in FP64, and its exact check must: leave precision_threshold out, or search "
                "exactly from where the approximation is largest (starts='vecchia', without method)"
            )

    def search_method(self, observations: Observations) -> Method:
        """How the maximum is searched for."""
        return checked_method(self.method)

    @property
    def factors(self) -> bool:
        """True if any matrix is factored."""
        return checked_method(self.method) != "vecchia" or self.vecchia.exact_check != "skip"

    def spaces(self, observations: Observations) -> list[SearchSpace[Any]]:
        """A space for each search: one for each smoothness that is tried, or that of the covariance function."""
        if self.covariance is not None:
            return [family_space(observations, self.covariance, self.nugget, fixed=self.fixed)]
        return [search_space(observations, self.nugget, candidate) for candidate in smoothness_candidates(self.smoothness)]

    def estimates_smoothness_too(self, n: int) -> bool:
        """Tell whether an estimated smoothness is compared with the best of a few, by the likelihood that is maximised."""
        return self.covariance is None and self.smoothness == "auto" and n <= COMPARED_LIMIT

    def start(self, space: SearchSpace[Any]) -> NDArray[np.float64] | None:
        """The point of ``covariance``, shape ``(k,)``, which must lie in the space; None without."""
        return None if self.covariance is None else space.start(self.covariance)

    def in_unit(self, unit: ValueUnit) -> FitOptions:
        """The same of values in another unit."""
        return self if isinstance(self.nugget, str) else replace(self, nugget=unit.variance(kept_nugget(self.nugget) or 0.0))

    def likelihood(self, memory: oc.HostMemory) -> LikelihoodOptions:
        """How every likelihood is computed, in ``memory`` unless the settings have one, or factor on a cluster."""
        given = self.settings
        settings = given if given.kept is not None or given.client is not None else replace(given, memory=given.memory or memory)
        return LikelihoodOptions(settings, reml=self.reml, trace_sums=self.traces)

    @property
    def limits(self) -> SearchLimits:
        """When a search on all observations ends."""
        return SearchLimits(self.tolerance, self.max_evaluations)

    @property
    def vecchia(self) -> VecchiaOptions:
        """Use of Vecchia's approximation."""
        # an interval takes the place of FP64's value
        usual: ExactCheck = "value" if self.settings.precision_threshold is None else "skip"
        return VecchiaOptions(self.neighbours, self.starts, usual if self.exact_check is None else self.exact_check)


def options_of(given: Mapping[str, Any]) -> FitOptions:
    """The options of a fit among all that a call was given, by name."""
    values = {field.name: given[field.name] for field in fields(FitOptions)}
    return FitOptions(**{**values, "settings": chosen_settings(values["settings"])})


def checked_method(method: Method | None) -> Method:
    """How a fit searches: as it is told, or by Fisher scoring."""
    if method is not None and method not in METHODS:
        raise ValueError(f"method is {method!r}, but there are {', '.join(METHODS)}")
    if method == "bobyqa":
        nlopt_module()
    return method or "fisher"


def smoothness_candidates(smoothness: float | Literal["auto", "best", "free"]) -> tuple[float | None, ...]:
    """Values of the smoothness to be tried; None for one that is estimated."""
    if smoothness in ("auto", "best"):
        return SMOOTHNESS
    if smoothness == "free":
        return (None,)
    if not isinstance(smoothness, Real):
        raise ValueError(f"smoothness is {smoothness!r}, but it must be a number, 'auto', 'best' or 'free'")
    Matern(1.0, 1.0, smoothness)
    return (smoothness,)
