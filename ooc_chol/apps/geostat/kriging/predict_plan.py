"""Plan and report of a prediction from all data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ooc_chol.apps.geostat.accounts import AbstractFactoringPlan, AbstractFactoringReport, Account
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.model import exact_text


@dataclass(frozen=True, repr=False, eq=False)
class PredictPlan(AbstractFactoringPlan):
    """Plan of a prediction: what its factorization moves, needs and takes. Solves for the sites are not in it.

    Parameters
    ----------
    model : str
        Class of the covariance function.
    kind : {"simple", "ordinary", "universal"}
        Mean known; constant, estimated; of other columns, estimated.
    sites : int
        Number of new sites.
    """

    call: ClassVar[str] = "predict"
    unit: ClassVar[str] = "factorization"

    model: str = ""
    kind: str = "ordinary"
    sites: int = 0

    @property
    def _title(self) -> str:
        return f"{self.kind} kriging of {self.sites} sites from {self.n} observations, by a {self.model} covariance"

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines on the sites, then the page of the factorization."""
        yield "", self._title
        yield from self.factor_lines()

    def facts(self) -> Mapping[str, object]:
        """The facts of a list."""
        return {"n": self.n, "sites": self.sites, "model": self.model, "kind": self.kind, "devices": self.devices}

    def figures(self) -> Mapping[str, object]:
        """Figures beside the common ones."""
        own = {"n": self.n, "sites": self.sites, "model": self.model, "kind": self.kind}
        return own | {"factorization": None if self.factorization is None else self.factorization.to_dict()}


@dataclass(frozen=True, repr=False, eq=False)
class PredictReport(AbstractFactoringReport):
    """Report of a prediction.

    ``seconds.parts`` are ``"planning"``, the factorization with what the data are multiplied by (``"run"``), and ``"sites"``;
    nothing is ever ``resumed``.
    """

    call: ClassVar[str] = "predict"
    plan: PredictPlan

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines on seconds, the factorization and memory."""
        yield "", self.plan._title
        yield from self.shared_lines()

    def facts(self) -> Mapping[str, object]:
        """The facts of a list."""
        return {"n": self.plan.n, "sites": self.plan.sites, "seconds": self.seconds.total, "devices": self.devices}

    def figures(self) -> Mapping[str, object]:
        """Figures beside the common ones."""
        return {"n": self.plan.n, "sites": self.plan.sites, "factorizations": self.factorizations}


def report_of_prediction(account: Account, plan: PredictPlan, model: AbstractCovariance, **options: Any) -> PredictReport:
    """The report of a prediction that has ended; ``options`` are those that bits depend on."""
    own = {"call": plan.call, "n": plan.n, "sites": plan.sites, "model": exact_text(model), "kind": plan.kind}
    return PredictReport(**account.facts(plan), resumed=0, key={**own, **options, "factorization": plan.key})
