"""Blocks, the memory that only stores them, and who leaves a full device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.interfaces.streams import Tile
from ooc_chol.process.team import ThreadTeam

#: Where a block stands among those of its name: as many numbers as whoever named them counts by, two for tiles of a matrix.
BlockIndex: TypeAlias = tuple[int, ...]


class BlockKey(NamedTuple):
    """Name of one value of one block; ``version`` counts how often it was changed, from 0 on."""

    name: str
    coords: BlockIndex
    version: int

    def __str__(self) -> str:
        return f"{self.name}{self.coords}v{self.version}"


class DeviceBlock(NamedTuple):
    """Where the bytes of a block lie in a device's memory."""

    device: str  #: Name of the device
    address: int  #: Of the first byte; the others follow


class LockState(Enum):
    """State of a piece of host memory: whether copies of a device reach it in place."""

    UNDECIDED = "undecided"  #: Not asked yet
    LOCKED = "locked"  #: Page-locked by us, to be unlocked by us
    FOUND = "found"  #: Page-locked by somebody else before
    REFUSED = "refused"  #: The driver will not lock it: copies go through staging buffers


class AbstractRegistrar(ABC):
    """Interface that page-locks host memory for the devices of a kind."""

    def activate(self) -> None:  # noqa: B027 - not every kind needs that
        """Prepare a thread that does nothing but lock and unlock, before it does."""

    @abstractmethod
    def register(self, address: int, nbytes: int) -> LockState:
        """Page-lock ``nbytes`` bytes from ``address`` on: LOCKED, FOUND as all of them were locked before, or REFUSED."""

    @abstractmethod
    def unregister(self, address: int) -> None:
        """Unlock what :meth:`register` has LOCKED from ``address`` on."""


class AbstractLocking(ABC):
    """The page-locking of a tier's memory, piece by piece, which may go on while a run copies."""

    #: Seconds for which those who asked have waited until now.
    waited_seconds: float

    @property
    @abstractmethod
    def refused_bytes(self) -> int:
        """Bytes that the driver would not lock until now: copies of them go through staging buffers, which is slower."""

    @abstractmethod
    def holds(self, low: int, high: int, is_stopped: Callable[[], bool]) -> bool:
        """Tell whether the bytes from address ``low`` to before ``high`` are page-locked.

        Waits until that is decided, or until ``is_stopped()``, of which :meth:`wake` reminds: then the answer is no. Raises
        ``TierError`` where page-locking has failed before it came to them.
        """

    @abstractmethod
    def cuts(self, low: int, high: int) -> Sequence[int]:
        """Addresses between these at which a copy is cut: there one registration ends and the next begins."""

    @abstractmethod
    def wake(self) -> None:
        """Let all who wait ask whether they are stopped."""


class AbstractTier(ABC):
    """Memory that only stores blocks, such as an input or a result. Reads and writes may come from several threads.

    A block is bytes in a storage format, that of its index (:meth:`format_of`). What reads it takes numbers, which the tier makes
    of the bytes, or the bytes as they are, where the device makes numbers of them (:meth:`read_stored`).
    """

    #: Name in reports, such as ``"array"``, ``"memory"`` or ``"file"``.
    name: str
    #: Whether what was written is kept when a run fails or is interrupted, so that the next one goes on from it.
    keeps_unfinished: bool = False
    #: Whether another stream may read a block as soon as its writing is recorded (else only once it is durable).
    ordered_by_events: bool = True
    #: Whether what is written ends in a file.
    writes_file: bool = False
    #: Whether no block is ever written, so that one may be read before its turn.
    is_only_read: bool = False

    def reads_file(self, index: BlockIndex) -> bool:
        """Tell whether reading block ``index`` now reads a file."""
        return False

    #: Whether a device that writes a block in place says so by :meth:`written`.
    wants_word_of_writes: bool = False

    def written(self, index: BlockIndex) -> None:  # noqa: B027 - memory needs no word
        """Hear that a copy in place of block ``index`` is complete; from a thread that may wait. Not for :meth:`write`."""

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """Block ``index`` in place, an array of any strides for copies to read or write; None when there is none.

        It is of the type in which the block is computed.
        """
        return None

    def host_memory(self) -> NDArray[Any] | None:
        """The memory behind all views, which a device may page-lock for a run; None where it would copy none of them in place."""
        return None

    def on_device(self, index: BlockIndex) -> DeviceBlock | None:
        """Where the stored bytes of block ``index`` lie in a device's memory; None for blocks in host memory, files, and such."""
        return None

    def kept_on(self, device: str, index: BlockIndex) -> Tile | None:
        """The copy of block ``index`` that a device has kept from a run before, for fetches to take; None where there is none."""
        return None

    def place_on(self, device: str, index: BlockIndex) -> Tile | None:
        """Where a device is to keep what it has fetched or written of block ``index``; None where it keeps nothing of it.

        Once it was asked for, later fetches find the copy: whoever asks enqueues its copy at once.
        """
        return None

    def ahead_on(self, device: str) -> Sequence[BlockIndex]:
        """Blocks that a device copies to their places (:meth:`place_on`) beside a run, for the next one, as it needs none."""
        return ()

    def locking(self) -> AbstractLocking | None:
        """The page-locking of :meth:`host_memory`; None where nobody locks it piece by piece."""
        return None

    def format_of(self, index: BlockIndex) -> PrecisionFormat:
        """Format in which block ``index`` is stored: that of its bytes on the link."""
        return FP64

    def stored(self, index: BlockIndex) -> NDArray[np.uint8] | None:
        """The stored bytes of a block of another format than FP64, in place; None when there are none to see."""
        return None

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` with the stored bytes of block ``index``; for devices that widen a block themselves."""
        raise NotImplementedError(f"a tier of kind {self.name!r} has no blocks of narrow formats")

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        """Store the bytes of block ``index`` as they are; for devices that round a block themselves."""
        raise NotImplementedError(f"a tier of kind {self.name!r} has no blocks of narrow formats")

    @abstractmethod
    def read(self, index: BlockIndex, out: NDArray[Any]) -> None:
        """Fill ``out``, a row-major array of the block's shape, float64 or float32, with block ``index``."""

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: NDArray[Any]) -> None:
        """Fill ``out`` as :meth:`read` does, by all threads of ``team`` where that is faster."""
        self.read(index, out)

    def read_unchecked(self, index: BlockIndex, out: NDArray[Any]) -> Callable[[], None] | None:
        """Fill ``out`` as :meth:`read` does; what is returned checks it, for another thread to call before it uses ``out``.

        None where nothing is left to check.
        """
        self.read(index, out)
        return None

    @abstractmethod
    def write(self, index: BlockIndex, data: NDArray[Any]) -> None:
        """Store ``data``, a row-major array of the block's shape, float64 or float32, as block ``index``, in its format."""

    def write_by(self, team: ThreadTeam, index: BlockIndex, data: NDArray[Any]) -> None:
        """Store ``data`` as :meth:`write` does, by all threads of ``team`` where that is faster."""
        self.write(index, data)

    def confirm(self, index: BlockIndex) -> None:  # noqa: B027 - most tiers are not gone on from
        """Note that a run has found block ``index`` to be right, whose writing may be still to come; for tiers that keep it."""

    def distrust(self, since: float) -> None:  # noqa: B027 - most tiers are not gone on from
        """Let blocks written since then, in seconds of ``time.perf_counter``, be unwritten, in a tier that keeps them."""

    def close(self) -> None:  # noqa: B027 - memory needs no closing
        """Release what the tier holds; a second call does nothing."""


#: The tiers of a run, by the names of the blocks that lie there.
Tiers: TypeAlias = Mapping[str, AbstractTier]


class AbstractEvictionPolicy(ABC):
    """A rule that chooses which block leaves a full device."""

    name: str  #: Name in plans and reports

    @abstractmethod
    def rank(self, last_use: int, next_use: int) -> int:
        """Rank of a block used last at step ``last_use`` and next at ``next_use``: the largest rank is evicted first."""
