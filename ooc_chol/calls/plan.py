"""Frame of plans: what each call says of itself before it begins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ooc_chol.calls.page import AbstractPage


class AbstractPlan(AbstractPage):
    """Plan of a call: a frozen record without matrix data and without devices, which any process may keep and give as ``plan=``.

    A system's plan has these eight facts, and its own beside.

    Attributes
    ----------
    call : str
        Name of the call, such as ``"eigsh"``.
    unit : str
        Part of the call that ``bytes`` and ``seconds`` are of: ``"call"``, or ``"pass"`` where their number is not known.
    devices : tuple of str
        Names of the devices that take part.
    budget_bytes, peak_bytes : int
        Most bytes on each device, and most that any of them allocates.
    host_bytes : int
        Bytes of host memory for what devices do not keep, beside what the caller has.
    bytes : mapping of str to int
        Bytes over each link in one unit, all devices together.
    seconds : float or None
        Predicted seconds of one unit; None where no rates are known.
    """

    #: Version of :meth:`to_dict`
    version: ClassVar[int] = 1
    #: Name of the call, such as ``"eigsh"``
    call: ClassVar[str]
    #: Part of the call that ``bytes`` and ``seconds`` are of: ``"call"``, or ``"pass"`` where their number is not known
    unit: ClassVar[str] = "call"

    if TYPE_CHECKING:  # a subclass has each of these as a field or as a property

        @property
        def devices(self) -> tuple[str, ...]:
            """Names of the devices that take part."""

        @property
        def budget_bytes(self) -> int:
            """Most bytes on each device."""

        @property
        def peak_bytes(self) -> int:
            """Most bytes that any device allocates."""

        @property
        def host_bytes(self) -> int:
            """Bytes of host memory for what devices do not keep, beside what the caller has."""

        @property
        def bytes(self) -> Mapping[str, int]:
            """Bytes over each link in one unit, all devices together."""

        @property
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
