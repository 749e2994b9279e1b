"""Devices, which are memory that computes, and the arena that each has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, Generic, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.interfaces.kernels import AbstractDeviceKernels, KernelSetT_co
from ooc_chol.interfaces.streams import AbstractEvent, AbstractStream, Tile, TileFunction
from ooc_chol.interfaces.tiers import AbstractTier, BlockIndex


class ArraySpec(NamedTuple):
    """An array that is part of a device's one allocation."""

    dtype: np.dtype[Any]  #: NumPy's type of its entries
    shape: tuple[int, ...]  #: Its shape; entries are row-major and adjacent

    @property
    def nbytes(self) -> int:
        """Bytes that the array takes of the allocation, rounded up to whole pages."""
        return whole_pages(self.dtype.itemsize * prod(self.shape))


class AbstractDeviceMemory(ABC):
    """Memory of a device that outlives runs: what stays there lies in it."""

    device: str  #: Name of the device
    nbytes: int  #: Its size in bytes

    @property
    @abstractmethod
    def address(self) -> int:
        """Address of its first byte, as the device's copies take it."""

    @abstractmethod
    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tile:
        """Row-major numbers of a type from byte ``offset`` on, in place."""

    @abstractmethod
    def read(self, offset: int, out: NDArray[Any], pitch: int | None = None) -> None:
        """Fill a contiguous ``out`` from byte ``offset`` on; with ``pitch``, each of its rows so many bytes behind the last."""

    @abstractmethod
    def write(self, offset: int, data: NDArray[Any]) -> None:
        """Copy a contiguous array to byte ``offset``."""

    @abstractmethod
    def close(self) -> None:
        """Free it once no array shows it; a second call does nothing."""


class AbstractCommonMemory(ABC):
    """Memory of a device that processes of a machine have in common: of the one that made it, or mapped by its handle."""

    device: str  #: Name of the device here that copies from it and to it
    address: int  #: Of its first byte, as copies of that device take it
    handle: bytes  #: By which other processes map it

    @abstractmethod
    def close(self) -> None:
        """Free it, or map it no more; a second call does nothing."""


#: Streams that may copy tiles of narrow formats between a device and the host: one in, one out.
NARROW_BUFFERS = 2


class AbstractArena(ABC):
    """The one allocation of a device: equal slots, each as large as the largest tile, and arrays of other kinds."""

    n_slots: int  #: Number of slots
    slot_bytes: int  #: Bytes of each slot
    #: The arrays that were asked for beside the slots, uninitialized.
    arrays: tuple[Any, ...]

    @abstractmethod
    def tile(self, slot: int, shape: tuple[int, int], dtype: str = "float64") -> Tile:
        """The first ``shape[0] * shape[1]`` entries of ``slot`` as a row-major tile of ``dtype``: a type of numbers, or uint8."""

    @abstractmethod
    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Tile:
        """Rectangle of ``shape`` of every plane of array ``number``, which begins at row and column ``corner``."""


class AbstractDevice(ABC, Generic[KernelSetT_co]):
    """Memory that computes. An instance serves one run; :meth:`close` ends its streams and frees its arena.

    Whoever enqueues has made the device current for the calling thread, by :meth:`activate` or with :meth:`current`: copies,
    generations and kernels, and the recording of events on its streams. None of them does it again, since each would take a
    microsecond or two of the one thread that enqueues for all devices. All else may be called from anywhere.
    """

    name: str  #: Name such as ``"host:0"`` or ``"cuda:1"``
    #: The kernels that it was opened with; :meth:`allocate` binds them to it, and :meth:`close` closes them.
    kernels: KernelSetT_co
    #: Upper estimate of its rate in flops per second, used only to size the window of enqueued work.
    nominal_flops_per_second: float
    #: What its driver and its libraries raise: no errors of ours, until somebody says at which step they came.
    driver_errors: tuple[type[Exception], ...] = ()

    @abstractmethod
    def allocate(
        self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> AbstractArena:
        """Allocate the arena, and the kernels' workspace for tiles of order up to ``nb``; called once, before the run.

        A device that widens and rounds stored tiles itself has room for :data:`NARROW_BUFFERS` of up to ``narrow_bytes`` each.
        """

    def activate(self) -> None:
        """Make this the current device of the calling thread, from which all work will be enqueued."""

    def current(self) -> AbstractContextManager[object]:
        """Make this the current device of the calling thread for the time of a ``with`` block."""
        return nullcontext()

    def reserve_events(self, count: int) -> None:
        """Make ``count`` events ahead, which its streams will record: a worker records one for each step."""

    def times_ns(self, events: Sequence[AbstractEvent]) -> list[int]:
        """Times of complete events of this device, as :meth:`AbstractEvent.time_ns` tells each."""
        return [event.time_ns() for event in events]

    def take_back_events(self, events: Iterable[AbstractEvent]) -> None:
        """Take back complete events whose times nobody will ask for any more, for later runs."""

    def prepare(self, once: Callable[[], None]) -> None:
        """Let a source do what it must do once on this device before a run: ``once()`` with this device current."""

    @abstractmethod
    def create_stream(self, name: str, *, is_urgent: bool = False) -> AbstractStream:
        """Make a stream of that name; kernels of an urgent one get free processors first, if the device can do that."""

    def captured(self, stream: AbstractStream, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Function that enqueues on ``stream``, each time it is called, the kernels that ``enqueue()`` would, at the least cost.

        ``enqueue`` has been called before, so that all is compiled; it enqueues kernels only, and allocates nothing. A device
        that captures them calls it once more, now, without running anything.
        """
        return enqueue

    def fork_join(self, stream: AbstractStream, works: Sequence[Callable[[AbstractStream], None]]) -> None:
        """Enqueue works that need nothing of each other, each on the stream that it is given; what follows waits for all.

        All on ``stream``, unless the device captures them, which lets it run them at the same time.
        """
        for work in works:
            work(stream)

    @abstractmethod
    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, tile: Tile) -> None:
        """Enqueue: read block ``index`` of ``tier`` into ``tile``."""

    @abstractmethod
    def copy_stored(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, target: Tile) -> None:
        """Enqueue: read the stored bytes of block ``index`` of ``tier``, of a format narrower than FP64, into ``target``."""

    @abstractmethod
    def copy_out(
        self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: BlockIndex, *, largest: int | None = None
    ) -> None:
        """Enqueue: write ``tile`` to block ``index`` of ``tier``.

        ``largest`` is where the device holds the largest magnitude of the tile, or what rounds to it; else that is looked for.
        """

    def copy_all_in(self, stream: AbstractStream, tier: AbstractTier, tiles: Sequence[Tile]) -> None:
        """Read blocks (0, 0), (1, 0) and so on of ``tier`` into tiles: enqueued, or all read when this returns.

        Each device has a thread of its own that calls this.
        """
        for number, tile in enumerate(tiles):
            self.copy_in(stream, tier, (number, 0), tile)

    def copy_all_out(self, stream: AbstractStream, tiles: Sequence[Tile], tier: AbstractTier) -> None:
        """Write tiles to blocks (0, 0), (1, 0) and so on of ``tier``: enqueued, or done when this returns.

        Each device has a thread of its own that calls this.
        """
        for number, tile in enumerate(tiles):
            self.copy_out(stream, tile, tier, (number, 0))

    def wrote(self, tier: AbstractTier, index: BlockIndex, event: AbstractEvent) -> bool:
        """Tell whether a copy of block ``index`` to ``tier``, before ``event``, is known to be complete, also after an abort."""
        return event.succeeded()

    @abstractmethod
    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        """Enqueue: ``function(rows, cols, tile, stream)``."""

    @abstractmethod
    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        """Enqueue: copy ``source`` to ``target``, of equal shape, each on this or another device of the same kind."""

    def reaches(self, other: AnyDevice) -> bool:
        """Tell whether kernels of this device, which is current, may read the memory of another one of its kind."""
        return True

    @abstractmethod
    def notify(self, event: AbstractEvent, callback: Callable[[BaseException | None], None]) -> None:
        """Call ``callback(error)`` from a thread of the device once ``event`` is complete, or can no longer become so.

        The callback is short, takes no locks that an enqueuing thread holds while blocked, and enqueues nothing.
        """

    #: When that error came, in seconds of ``time.perf_counter``: what any device wrote since may be made of what it spoilt.
    failed_at: float | None = None

    def failure(self) -> BaseException | None:
        """The error that an operation raised on the host while later ones went on; None for devices whose streams stop."""
        return None

    @abstractmethod
    def abort(self) -> None:
        """Drop the operations that have not started; events behind them complete with an error."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until nothing that was enqueued runs any more, with or without errors."""

    @abstractmethod
    def close(self) -> None:
        """Wait for running operations, end all threads and free all memory; a second call does nothing."""


#: A device whose kernels do not matter to the caller.
AnyDevice: TypeAlias = AbstractDevice[AbstractDeviceKernels]
