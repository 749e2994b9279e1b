"""Requests of a device to the kernels that it is opened with: room inside its one allocation, and no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from ooc_chol.formats import PrecisionFormat
from ooc_chol.interfaces.streams import AbstractStream, Tile


class AbstractDeviceKernels(ABC):
    """The kernels of one device, as the device sees them; what they compute is the matter of whoever chose them."""

    @abstractmethod
    def workspace_bytes(self, nb: int) -> int:
        """Bytes of explicit workspace inside the budget, for all streams together, at blocks of order up to ``nb``."""

    @abstractmethod
    def bind(self, nb: int, workspace: int) -> None:
        """Take that workspace, at address ``workspace``, on the device that is current; once, before any kernel is enqueued."""

    @abstractmethod
    def close(self) -> None:
        """Release threads, handles and memory; a second call does nothing."""


class AbstractStorageKernels(AbstractDeviceKernels):
    """Kernels of a device that widens and rounds blocks of narrow formats itself, on their way from and to a tier."""

    @abstractmethod
    def encode(
        self, stream: AbstractStream, tile: Tile, fmt: PrecisionFormat, address: int, *, largest: int | None = None
    ) -> None:
        """Enqueue: write what ``fmt`` stores of a tile to a device address.

        ``largest`` is where its largest magnitude is, before or after rounding, if that is known.
        """

    @abstractmethod
    def widen(self, stream: AbstractStream, address: int, fmt: PrecisionFormat, tile: Tile) -> None:
        """Enqueue: make a tile of what is stored of it at a device address."""


#: The kernels that a device is opened with: who opened it finds them there again, by their own type.
KernelSetT = TypeVar("KernelSetT", bound=AbstractDeviceKernels)
#: The type of a device's kernels: a device with kernels of some type is one with kernels of any wider type.
KernelSetT_co = TypeVar("KernelSetT_co", bound=AbstractDeviceKernels, covariant=True)
