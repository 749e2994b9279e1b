"""Plan and report of a fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ooc_chol.apps.geostat.accounts import AbstractFactoringPlan, AbstractFactoringReport, Account
from ooc_chol.apps.geostat.covariances.azimuth import read_name
from ooc_chol.apps.geostat.covariances.covariance import covariance_source
from ooc_chol.apps.geostat.covariances.model import exact_text
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.fit_options import FitOptions
from ooc_chol.apps.geostat.estimation.gradient import PROBES
from ooc_chol.apps.geostat.estimation.search import SearchSpace


@dataclass(frozen=True, repr=False, eq=False)
class FitPlan(AbstractFactoringPlan):
    """Plan of a fit: which searches it makes, and what each evaluation on all observations factors.

    Parameters
    ----------
    model : str
        Class of the covariance function.
    searched : tuple of tuple of str
        Parameters of each search; the variance and the coefficients of the mean are profiled out where they are not among them.
    profiled : tuple of str
        Those that are: ``"variance"``, and ``"coefficient of ..."`` each column of the mean.
    method : str
        How the maximum is searched for.
    most_evaluations : int
        Most evaluations of each search.
    compares_smoothness : bool
        True if one more search follows, which estimates the smoothness.
    """

    call: ClassVar[str] = "fit"
    unit: ClassVar[str] = "evaluation"

    model: str = ""
    searched: tuple[tuple[str, ...], ...] = ()
    profiled: tuple[str, ...] = ()
    method: str = "fisher"
    most_evaluations: int = 0
    compares_smoothness: bool = False

    @property
    def most(self) -> int:
        """Most evaluations of all searches, if none goes on with another precision."""
        return self.most_evaluations * (len(self.searched) + self.compares_smoothness)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines on the searches, then the page of a factorization."""
        yield "", f"fit of a {self.model} covariance to {self.n} observations"
        count, names = len(self.searched), ", ".join(map(read_name, self.searched[0]))
        more = ", and one that estimates the smoothness," if self.compares_smoothness else ""
        searches = f"{count} search{'es' if count > 1 else ''}{more} by {self.method} over {names or 'nothing'}"
        yield "search", f"{searches}; profiled out: {', '.join(self.profiled) or 'nothing'}"
        yield "most", f"{self.most_evaluations} evaluations of each search"
        if self.refusal is not None:
            yield "unchecked", f"no exact check of the estimate can run: {self.refusal}"
        yield from self.factor_lines()

    def facts(self) -> Mapping[str, object]:
        """The facts of a list."""
        return {"n": self.n, "model": self.model, "method": self.method, "most": self.most, "devices": self.devices}

    def figures(self) -> Mapping[str, object]:
        """Figures beside the common ones."""
        return {
            "n": self.n,
            "model": self.model,
            "searched": [list(names) for names in self.searched],
            "profiled": list(self.profiled),
            "method": self.method,
            "most_evaluations": self.most_evaluations,
            "compares_smoothness": self.compares_smoothness,
            "refusal": None if self.refusal is None else str(self.refusal),
            "factorization": None if self.factorization is None else self.factorization.to_dict(),
        }


@dataclass(frozen=True, repr=False, eq=False)
class FitReport(AbstractFactoringReport):
    """Report of a fit.

    ``seconds.parts`` are ``"planning"``, ``"starts"``, the searches themselves (``"run"``) and ``"checks"`` of what they found;
    ``resumed`` counts evaluations.

    Parameters
    ----------
    evaluations : int
        Likelihoods on all observations, those of a checkpoint among them.
    """

    call: ClassVar[str] = "fit"
    plan: FitPlan

    evaluations: int = 0

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines on evaluations, seconds, factorizations and memory."""
        yield "", f"fit of a {self.plan.model} covariance to {self.plan.n} observations, by {self.plan.method}"
        resumed = f", {self.resumed} of them from the checkpoint" if self.resumed else ""
        yield "search", f"{self.evaluations} evaluations{resumed}"
        yield from self.shared_lines()

    def facts(self) -> Mapping[str, object]:
        """The facts of a list."""
        return {"n": self.plan.n, "evaluations": self.evaluations, "seconds": self.seconds.total, "devices": self.devices}

    def figures(self) -> Mapping[str, object]:
        """Figures beside the common ones."""
        return {"n": self.plan.n, "evaluations": self.evaluations, "factorizations": self.factorizations}


def planned_fit(observations: Observations, options: FitOptions, spaces: Sequence[SearchSpace[Any]]) -> FitPlan:
    """Plan a fit whose options have been checked: one plan of a factorization serves all its evaluations."""
    source = covariance_source(spaces[0].template, observations.coordinates) if options.factors else None
    facts = options.settings.factoring_facts(source)
    if facts["refusal"] is not None and options.search_method(observations) != "vecchia":
        raise facts["refusal"]
    return FitPlan(**facts, **searches(observations, options, spaces))


def key_of_fit(plan: FitPlan, options: FitOptions) -> dict[str, Any]:
    """All that the bits of an estimate depend on, but for the data."""
    own = ("smoothness", "nugget", "reml", "traces", "tolerance", "neighbours")
    return {
        "call": plan.call,
        "n": plan.n,
        "covariance": None if options.covariance is None else exact_text(options.covariance),
        "searched": [list(names) for names in plan.searched],
        "method": plan.method,
        **{name: getattr(options, name) for name in own},
        "max_evaluations": options.max_evaluations,
        "starts": options.vecchia.starts,
        "exact_check": options.vecchia.exact_check,
        "probes": PROBES,
        "factorization": plan.key,
    }


def report_of_fit(account: Account, plan: FitPlan, options: FitOptions, evaluations: int, resumed: int) -> FitReport:
    """The report of a fit as far as it has come."""
    return FitReport(**account.facts(plan), key=key_of_fit(plan, options), evaluations=evaluations, resumed=resumed)


def searches(observations: Observations, options: FitOptions, spaces: Sequence[SearchSpace[Any]]) -> dict[str, Any]:
    """Facts of a fit that its plan has."""
    return {
        "n": observations.n,
        "model": type(spaces[0].template).__name__,
        "searched": tuple(space.names for space in spaces),
        "profiled": (
            *(("variance",) if spaces[0].is_profiled else ()),
            *map("coefficient of {}".format, observations.mean_columns),
        ),
        "method": options.search_method(observations),
        "most_evaluations": options.max_evaluations,
        "compares_smoothness": options.estimates_smoothness_too(observations.n),
    }
