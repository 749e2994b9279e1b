"""Frame of reports: what each call says of itself when it has ended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ooc_chol.calls.page import AbstractPage
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.display.prints import brief_repr


@dataclass(frozen=True)
class CallSeconds:
    """Seconds of a call.

    Parameters
    ----------
    total : float
        Wall clock of the whole call, that of planning, opening devices and closing them among it.
    parts : mapping of str to float
        Seconds of its parts, by name; parts that overlap add up to more than the total.
    predicted : float or None
        The plan's prediction of ``parts["run"]``; None where no rates were known.
    """

    total: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    predicted: float | None = None

    __repr__ = brief_repr

    def to_dict(self) -> dict[str, object]:
        """The seconds as plain data."""
        return {"total": self.total, "predicted": self.predicted, "parts": dict(self.parts)}


@dataclass(frozen=True)
class CallBytes:
    """Bytes that crossed links, all devices together, by names of links such as ``"memory->cuda:0"``.

    Parameters
    ----------
    planned, executed : mapping of str to int
        As the plan has them, and counted from the copies that were issued.
    """

    planned: Mapping[str, int] = field(default_factory=dict)
    executed: Mapping[str, int] = field(default_factory=dict)

    __repr__ = brief_repr

    def to_dict(self) -> dict[str, object]:
        """The bytes as plain data."""
        return {"planned": dict(self.planned), "executed": dict(self.executed)}


class AbstractReport(AbstractPage):
    """Report of a call: these eight facts, and those of its system beside.

    Attributes
    ----------
    call : str
        Name of the call, such as ``"eigsh"``.
    devices : tuple of str
        Names of the devices that took part.
    seconds : CallSeconds
        Seconds of the whole call and of its parts.
    bytes : CallBytes
        Bytes over each link, planned and executed.
    peak_bytes : int
        Most bytes that any device allocated.
    resumed : int
        Steps taken over from a checkpoint and not done again, in the unit that ``progress`` counts or the system says.
    key : mapping of str to object
        Arithmetic key: all that the bits of the result depend on, but for the entries of the arguments.
    plan : AbstractPlan
        The plan that was executed.
    """

    #: Version of :meth:`to_dict`
    version: ClassVar[int] = 1
    #: Name of the call, such as ``"eigsh"``
    call: ClassVar[str]

    if TYPE_CHECKING:  # a subclass has each of these as a field or as a property

        @property
        def devices(self) -> tuple[str, ...]:
            """Names of the devices that took part."""

        @property
        def seconds(self) -> CallSeconds:
            """Seconds of the whole call and of its parts."""

        @property
        def bytes(self) -> CallBytes:
            """Bytes over each link, planned and executed."""

        @property
        def peak_bytes(self) -> int:
            """Most bytes that any device allocated."""

        @property
        def resumed(self) -> int:
            """Steps taken over from a checkpoint and not done again, in the unit that ``progress`` counts or the system says."""

        @property
        def key(self) -> Mapping[str, Any]:
            """Arithmetic key: all that the bits of the result depend on, but for the entries of the arguments."""

        @property
        def plan(self) -> AbstractPlan:
            """The plan that was executed."""

    @abstractmethod
    def figures(self) -> Mapping[str, object]:
        """Figures of the system beside the common ones, as plain data."""

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds. The plan's are in ``plan.to_dict()``.
        """
        return {
            "version": self.version,
            "call": self.call,
            "devices": list(self.devices),
            "seconds": self.seconds.to_dict(),
            "bytes": self.bytes.to_dict(),
            "peak_bytes": self.peak_bytes,
            "resumed": self.resumed,
            "key": dict(self.key),
            **self.figures(),
        }


class AbstractPlannedReport(AbstractReport):
    """Report of a call whose devices allocate what is planned, in one piece."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that took part."""
        return self.plan.devices

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocated: as many as planned."""
        return self.plan.peak_bytes
