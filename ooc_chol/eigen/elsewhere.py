"""Interface of what multiplies for eigensolvers, and keeps their bases, in place of devices of this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.elsewhere import ClusterProducts
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Known


class DevicesElsewhere(NamedTuple):
    """Devices of other processes, which share a basis."""

    names: tuple[str, ...]  #: Each with the process that has it: ``"cuda:0 of tcp://..."``
    budget_bytes: int  #: Of each
    threads: int  #: Of each
    rates: PassRates | None = None


#: The plan of a basis on such devices; ``BudgetError`` where they have no room for it.
SpacePlanned: TypeAlias = Callable[[DevicesElsewhere], SpacePlan]


class AbstractElsewhere(ABC):
    """Maker of products with packed matrices, and keeper of bases, in place of devices of this process."""

    @abstractmethod
    def product(self, operator: Operator, precision: Precision, columns: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Function that makes ``A x`` of arrays of up to so many columns, to the bits of a multiplier of this machine."""

    @abstractmethod
    def planned(self, known: Known, columns: int, precision: Precision) -> MultiplyPlan:
        """Plan of such products."""

    @property
    @abstractmethod
    def devices(self) -> DevicesElsewhere:
        """The devices that are there now."""

    @abstractmethod
    def space(self, operator: Operator, planned: SpacePlanned) -> AbstractSpace:
        """A basis there, to the bits of one on devices of this process; whoever asks closes it."""

    @property
    @abstractmethod
    def arithmetic(self) -> str:
        """Kind, model and library of the devices, on which bits depend."""

    @abstractmethod
    def done(self) -> ClusterProducts:
        """All that was done until now."""
