"""A covariance that is asked for by names and numbers, or given: kept as it is, or fitted from a start of its family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import GreatCircle
from ooc_chol.apps.geostat.covariances.model import kept_nugget
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.fit_options import smoothness_candidates
from ooc_chol.apps.geostat.estimation.fitting import FitResult, fit
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.templates import FAMILIES, candidate_models, starting_model

#: Which parameters of a covariance function are kept: those named, or all of them.
Kept = Sequence[str] | Literal["all"]

#: A family whose covariates have names, which a name of the family does not tell.
_WITH_COVARIATES = "nonstationary"


@dataclass(frozen=True)
class AskedCovariance:
    """Covariance function requested from an estimator; checked when it is fitted."""

    covariance: AbstractCovariance | str | None  #: One to start from, the name of a family, or a Matérn one
    fixed: Kept
    smoothness: float | Literal["auto", "best", "free"]
    nugget: Nugget
    range: float | None  #: Of a Matérn covariance that is kept, with its variance
    variance: float | None
    great_circle: bool

    def given(self) -> AbstractCovariance | None:
        """The covariance, if all of it is given."""
        if self.covariance is not None:
            return self._kept()
        if self.fixed:
            raise ValueError("fixed is about the parameters of covariance, which is not given")
        if self.range is None and self.variance is None:
            return None
        if self.range is None or self.variance is None or self.nugget == "free" or isinstance(self.smoothness, str):
            raise ValueError(
                "range and variance are kept only together, and with a smoothness and a nugget that are numbers (or "
                "nugget='zero'); give all four, or leave range and variance to the fit"
            )
        model = Matern(float(self.variance), float(self.range), float(self.smoothness), kept_nugget(self.nugget) or 0.0)
        return GreatCircle(model) if self.great_circle else model

    def estimated(self, observations: Observations, **options: Any) -> FitResult[Any]:
        """The fit of what is not given."""
        options |= {"nugget": self.nugget}
        if self.covariance is None and not self.great_circle:
            return fit(observations, smoothness=self.smoothness, **options)
        start, kept = self._start(observations)
        return fit(observations, covariance=start, fixed=kept, **options)

    def _kept(self) -> AbstractCovariance | None:
        """The covariance function that is given, if nothing of it is to be estimated."""
        if self.range is not None or self.variance is not None:
            raise ValueError("range and variance are those of a Matérn covariance; give those of covariance in it")
        if self.fixed != "all":
            return None
        if not isinstance(self.covariance, AbstractCovariance):
            raise ValueError(
                f"fixed is 'all', but {self.covariance!r} has no values yet: give a covariance function, such as Matern(...)"
            )
        return self.covariance

    def _start(self, observations: Observations) -> tuple[AbstractCovariance, tuple[str, ...]]:
        """Where the fit starts, and what it keeps: of a family by name a smoothness that is a number."""
        if isinstance(self.covariance, AbstractCovariance):
            return self.covariance, tuple(self.fixed)
        name = self.covariance or "great-circle"
        if name == _WITH_COVARIATES or not all(part in FAMILIES for part in name.split("+")):
            known = ", ".join(other for other in FAMILIES if other != _WITH_COVARIATES)
            raise ValueError(f"covariance is {name!r}, but there are {known}, and covariance functions such as Matern(...)")
        smoothness_candidates(self.smoothness)  # refuses words that mean nothing
        candidate = candidate_models(name, observations, great_circle=self.great_circle)[0]
        is_given = "smoothness" in candidate.parameters and not isinstance(self.smoothness, str)
        values = {"smoothness": float(self.smoothness)} if is_given else {}
        kept = tuple(dict.fromkeys((*self.fixed, *values)))
        words: dict[str, Any] = {"great_circle": self.great_circle, "values": values, "nugget": self.nugget, "fixed": kept}
        return starting_model(name, observations, **words), kept
