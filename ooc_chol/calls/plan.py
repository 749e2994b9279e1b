"""Frame of plans: what each call says of itself before it begins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from ooc_chol.calls.page import AbstractPage


class AbstractPlan(AbstractPage):
    """Plan of a call: a frozen record without matrix data and without devices, which any process may keep and give as ``plan=``.

    A system's plan has these eight facts, and its own beside.
    """

    #: Version of :meth:`to_dict`
    version: ClassVar[int] = 1
    #: Name of the call, such as ``"eigsh"``
    call: ClassVar[str]
    #: Part of the call that :attr:`bytes` and :attr:`seconds` are of: ``"call"``, or ``"pass"`` where their number is not known
    unit: ClassVar[str] = "call"

    @property
    @abstractmethod
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that take part."""

    @property
    @abstractmethod
    def budget_bytes(self) -> int:
        """Most bytes on each device."""

    @property
    @abstractmethod
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""

    @property
    @abstractmethod
    def host_bytes(self) -> int:
        """Bytes of host memory for what devices do not keep, beside what the caller has."""

    @property
    @abstractmethod
    def bytes(self) -> Mapping[str, int]:
        """Bytes over each link in one unit, all devices together."""

    @property
    @abstractmethod
    def seconds(self) -> float | None:
        """Predicted seconds of one unit; None where no rates are known."""

    @abstractmethod
    def figures(self) -> Mapping[str, object]:
        """Figures of the system beside the common ones, as plain data."""

    def to_dict(self) -> dict[str, object]:
        """The plan's figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
        return {
            "version": self.version,
            "call": self.call,
            "unit": self.unit,
            "devices": list(self.devices),
            "budget_bytes": self.budget_bytes,
            "peak_bytes": self.peak_bytes,
            "host_bytes": self.host_bytes,
            "bytes": dict(self.bytes),
            "seconds": self.seconds,
            **self.figures(),
        }
