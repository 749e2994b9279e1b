"""What the runtime asks of devices, streams, kernels and tiers: CUDA's model, kept by the host device too.

A stream runs its operations in order. An event marks a point in a stream; another stream may wait on it once it is *recorded*.
Nothing here blocks the thread that enqueues, except ``synchronize``. A :data:`Tile` is whatever array the device's kernels
take: a NumPy array on the host, a CuPy array on CUDA; always two-dimensional, row-major and contiguous.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64, PrecisionFormat

Tile: TypeAlias = Any
TileFunction: TypeAlias = Callable[[range, range, Tile, Any], None]


class BlockKey(NamedTuple):
    """Name of one value of one block: for a tile, ``version`` counts the tasks applied to it, 0 being A's own."""

    name: str
    coords: tuple[int, int]
    version: int

    def __str__(self) -> str:
        return f"{self.name}{self.coords}v{self.version}"


class FinalTile(NamedTuple):
    """Which tile has become final: its packed number, and whether it is a diagonal one."""

    packed: int
    is_diagonal: bool


class AbstractEvent(ABC):
    """A point in a stream."""

    @abstractmethod
    def query(self) -> bool:
        """Whether all work before the event is complete."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until the event is complete; raise the error of its stream, if any."""

    def succeeded(self) -> bool:
        """Whether all work before the event is known to be done, without an error; a device that cannot tell says no."""
        return False

    @abstractmethod
    def time_ns(self) -> int:
        """When the event completed, in nanoseconds of ``time.perf_counter_ns``; only after completion."""


class AbstractStream(ABC):
    """An ordered queue of operations on one device."""

    name: str

    @abstractmethod
    def wait(self, event: AbstractEvent) -> None:
        """Hold back all later operations of this stream until ``event`` is complete. The event must be recorded already."""

    @abstractmethod
    def record(self) -> AbstractEvent:
        """Record a new event behind all operations enqueued so far."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until the stream is empty; raise its error, if any."""


class AbstractTier(ABC):
    """Memory that only stores: a source of A or the store of L. Reads and writes may come from several threads."""

    #: Name in reports, such as ``"array"``, ``"memory"`` or ``"file"``.
    name: str
    #: Whether another stream may read a block as soon as its writing is recorded (else only once it is durable).
    ordered_by_events: bool = True

    def view(self, index: tuple[int, int]) -> NDArray[np.float64] | None:
        """Block ``index`` in place, an array of any strides for copies to read or write; None when there is none."""
        return None

    def host_memory(self) -> NDArray[Any] | None:
        """The memory behind all views, which a device may page-lock for a run; None when there are no views."""
        return None

    def format_of(self, index: tuple[int, int]) -> PrecisionFormat:
        """Format in which block ``index`` is stored: that of its bytes on the link."""
        return FP64

    def stored(self, index: tuple[int, int]) -> NDArray[np.uint8] | None:
        """The stored bytes of a block of another format than FP64, in place; None when there are none to see."""
        return None

    def read_stored(self, index: tuple[int, int], out: NDArray[np.uint8]) -> None:
        """Fill ``out`` with the stored bytes of block ``index``; for devices that widen a block themselves."""
        raise NotImplementedError(f"a tier of kind {self.name!r} has no blocks of narrow formats")

    def write_stored(self, index: tuple[int, int], data: NDArray[np.uint8]) -> None:
        """Store the bytes of block ``index`` as they are; for devices that round a block themselves."""
        raise NotImplementedError(f"a tier of kind {self.name!r} has no blocks of narrow formats")

    @abstractmethod
    def read(self, index: tuple[int, int], out: NDArray[Any]) -> None:
        """Fill ``out``, a row-major array of the tile's shape, float64 or float32, with block ``index``.

        Raises
        ------
        TierError
            The bytes cannot be read.
        """

    @abstractmethod
    def write(self, index: tuple[int, int], data: NDArray[Any]) -> None:
        """Store ``data``, a row-major array of the tile's shape, float64 or float32, as block ``index``, in its format.

        Raises
        ------
        TierError
            The bytes cannot be written, or the tier is read-only.
        """

    def close(self) -> None:  # noqa: B027 - memory needs no closing
        """Release what the tier holds; a second call does nothing."""


class AbstractFlags(ABC):
    """Failures met by kernels: written on the device, copied back in stream order, read by the host."""

    @abstractmethod
    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue the copy to the host behind the work of ``stream``."""

    @abstractmethod
    def nonfinite(self) -> tuple[int, int] | None:
        """Smallest packed tile number with a non-finite entry, and its row-major position in the tile; None if all are finite."""

    @abstractmethod
    def failed_pivot(self) -> tuple[int, int] | None:
        """Smallest tile column with a failed pivot, and LAPACK's ``info`` within the tile; None if all pivots are positive."""


class AbstractTileNorms(ABC):
    """What is measured of tiles as they become final: one row of :data:`NORM_COLUMNS` numbers for each packed tile."""

    @abstractmethod
    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue the copy to the host behind the work of ``stream``."""

    @abstractmethod
    def values(self) -> NDArray[np.float64]:
        """The ``(n_tiles, len(NORM_COLUMNS))`` array, of all work that is complete; zero for a tile that is not final here."""


#: Numbers of a row of :class:`AbstractTileNorms`: Frobenius norms of the tile as stored and of what rounding took away; of a
#: diagonal tile also its largest sums of magnitudes along a row and along a column (0 for others); and the largest magnitude.
NORM_COLUMNS = ("frobenius", "lost", "row_sum", "column_sum", "largest")


class AbstractKernelSet(ABC):
    """The tile kernels of one device. Every call enqueues on ``stream`` and returns at once; arrays are in place."""

    @abstractmethod
    def workspace_bytes(self, nb: int) -> int:
        """Bytes of explicit workspace inside the budget, for all streams together, at tile order ``nb``."""

    @abstractmethod
    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        """``A[k, k] -> L[k, k]``, strict upper part zeroed; a pivot that is not positive sets the flag of column ``k``."""

    @abstractmethod
    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T``; ``k`` names the diagonal tile, of which a run has one value."""

    def prepare_trsm(self, stream: AbstractStream, l_kk: Tile, k: int) -> None:  # noqa: B027 - substitution needs nothing
        """Make what :meth:`trsm` needs of ``L[k, k]`` beside the tile, for later calls on any stream; else the first does."""

    @abstractmethod
    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile, *, k0: int) -> None:
        """``A[i, i] -= L[i, k] @ L[i, k].T``, lower triangle only; ``k0`` is the first matrix column of tile column ``k``."""

    @abstractmethod
    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile, *, k0: int) -> None:
        """``A[i, j] -= L[i, k] @ L[j, k].T``; ``k0`` is the first matrix column of tile column ``k``."""

    @abstractmethod
    def create_norms(self, n_tiles: int) -> AbstractTileNorms:
        """Norms of ``n_tiles`` packed tiles, all zero."""

    @abstractmethod
    def finish(
        self, stream: AbstractStream, l_ij: Tile, fmt: PrecisionFormat, norms: AbstractTileNorms, index: FinalTile
    ) -> None:
        """Round a final tile to what ``fmt`` stores of it, in place, and measure it: from here on it has this one value."""

    def close(self) -> None:  # noqa: B027 - not every kernel set holds threads or handles
        """Release threads and handles; a second call does nothing."""

    @abstractmethod
    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        """Flag tile ``packed`` when it (with ``lower``: its lower triangle) holds a NaN or an infinity."""


class NarrowParts(NamedTuple):
    """Where a tile's entries go in FP16 and, divided by ``2**exponent``, in FP8 (E4M3, as uint8); None for what is not wanted."""

    half: Tile | None = None
    quarter: Tile | None = None
    exponent: int = 0


#: No parts are wanted.
NOTHING_NARROW = NarrowParts()


class AbstractResidueKernels(ABC):
    """Products of rows of L as exact integers, held as residues modulo small coprime numbers.

    Row i of L is held as ``q_ik = round(2**e_i L_ik)``, one plane of int8 a modulus, canonical; an accumulator holds
    ``sum_k q_ik q_jk`` as one plane of int32 a modulus. Arrays have shape ``(planes, rows, columns)`` with adjacent columns;
    the strides of rows and planes are any. Every call enqueues on ``stream`` and returns at once, and calls for one array may
    come on several streams that wait on each other. See :mod:`ooc_chol.residues` for the mathematics.
    """

    #: Whether :meth:`quarter_product` can be called, once the device is known: GPUs before Ada have no units for FP8.
    multiplies_fp8: bool = True

    @abstractmethod
    def open(self, n: int) -> None:
        """Make the state of ``n`` matrix rows on the current device: exponents, limits and running sums, sums all zero."""

    @abstractmethod
    def set_diagonal(self, stream: AbstractStream, first: int, a_bb: Tile) -> None:
        """Exponents and limits of rows ``first, first + 1, ...`` from the diagonal of a square block of A.

        A diagonal entry that is not a positive finite number gets exponent 0 and flags its row.
        """

    @abstractmethod
    def convert(
        self, stream: AbstractStream, l_ik: Tile, rows: range, out: Tile, *, is_first: bool, narrow: NarrowParts = NOTHING_NARROW
    ) -> None:
        """``out[p] = round(2**e_i L[i, k]) mod m_p`` for the matrix rows ``rows``.

        The parts of ``narrow`` become ``2**h_i L[i, k]`` in FP16, with the exponents of
        :meth:`ooc_chol.residues.ResidueBasis.half_exponent`, and in FP8 that divided by a power of two; what is too large for FP8
        becomes its largest number.

        With ``is_first``, add the squares to the rows' running sums and flag each row whose sum exceeds ``A_ii (1 + 2**-20)`` or
        that holds a NaN: the sums wrap only for such a row, and A is not positive definite.
        """

    @abstractmethod
    def convert_stored(
        self,
        stream: AbstractStream,
        stored: Tile,
        fmt: PrecisionFormat,
        rows: range,
        out: Tile,
        *,
        is_first: bool,
        narrow: NarrowParts = NOTHING_NARROW,
    ) -> None:
        """:meth:`convert` of a tile as it is stored in a format narrower than FP64."""

    @abstractmethod
    def product(
        self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool
    ) -> None:
        """``S (+)= left[p] @ right[p].T`` for every plane p; with ``lower``, at least the lower triangle of a square block.

        No sum may have more than :data:`ooc_chol.residues.MOST_TERMS` terms since its last :meth:`fold`.
        """

    @abstractmethod
    def half_product(self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool) -> None:
        """``F (+)= left @ right.T`` for FP16 operands, in FP32."""

    @abstractmethod
    def quarter_product(
        self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, exponent: int, accumulates: bool
    ) -> None:
        """``F (+)= 2**exponent left @ right.T`` for FP8 operands, in FP32."""

    @abstractmethod
    def subtract_halves(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        """``A[i, j] -= F / 2**(h_i + h_j)`` for the rows and columns given."""

    @abstractmethod
    def fold(self, stream: AbstractStream, accumulator: Tile) -> None:
        """``S = S mod m_p``, canonical, in place."""

    @abstractmethod
    def reconstruct(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        """``A[i, j] -= sum_k q_ik q_jk / 2**(e_i + e_j)``, with one rounding to nearest even, for the rows and columns given."""

    @abstractmethod
    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue the copy of the flags to the host behind the work of ``stream``."""

    @abstractmethod
    def flagged_row(self) -> int | None:
        """Smallest flagged matrix row, as of the last copy; None if there is none."""

    def close(self) -> None:  # noqa: B027 - not every one holds memory
        """Release the rows' state; a second call does nothing."""


class ArraySpec(NamedTuple):
    """An array that is part of a device's one allocation."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes, rounded up to whole pages."""
        return -(-self.dtype.itemsize * prod(self.shape) // 4096) * 4096


#: Streams that may copy tiles of narrow formats between a device and the host: one in, one out.
NARROW_BUFFERS = 2


class AbstractArena(ABC):
    """The one allocation of a device: equal slots, each as large as the largest tile, and arrays of other kinds."""

    n_slots: int
    slot_bytes: int
    #: The arrays that were asked for beside the slots, uninitialized.
    arrays: tuple[Any, ...]

    @abstractmethod
    def tile(self, slot: int, shape: tuple[int, int], dtype: str = "float64") -> Tile:
        """The first ``shape[0] * shape[1]`` entries of ``slot`` as a row-major tile of ``dtype``: float64, float32 or uint8."""

    @abstractmethod
    def part(self, number: int, corner: tuple[int, int], shape: tuple[int, int]) -> Tile:
        """Of every plane of array ``number``, the rectangle of ``shape`` that begins at row and column ``corner``."""


class AbstractDevice(ABC):
    """Memory that computes. An instance serves one run; :meth:`close` ends its streams and frees its arena.

    Notes
    -----
    Whoever enqueues has made the device current for the calling thread, by :meth:`activate` or with :meth:`current`: copies,
    generations and kernels, and the recording of events on its streams. None of them does it again, since each would take a
    microsecond or two of the one thread that enqueues for all devices. All else may be called from anywhere.
    """

    name: str
    kernels: AbstractKernelSet
    #: Products through residues, where the device was opened for them.
    residues: AbstractResidueKernels | None
    #: Upper estimate of its rate in flops per second, used only to size the window of enqueued work.
    nominal_flops_per_second: float

    @abstractmethod
    def allocate(
        self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> AbstractArena:
        """Allocate the arena, and the kernels' workspace for tiles of order up to ``nb``; called once, before the run.

        A device that widens and rounds stored tiles itself has room for :data:`NARROW_BUFFERS` of up to ``narrow_bytes`` each.

        Raises
        ------
        BudgetError
            The device has less free memory than that.
        """

    def activate(self) -> None:  # noqa: B027 - the host has no current device
        """Make this the current device of the calling thread, from which all work will be enqueued."""

    def current(self) -> AbstractContextManager[object]:
        """Make this the current device of the calling thread for the time of a ``with`` block."""
        return nullcontext()

    def reserve_events(self, count: int) -> None:  # noqa: B027 - what is cheap to make is made when needed
        """Make ``count`` events ahead, which its streams will record: a worker records two for each step."""

    def prepare(self, once: Callable[[], None]) -> None:  # noqa: B027 - the host compiles and uploads nothing
        """Let a source do what it must do once on this device before a run: ``once()`` with this device current."""

    @abstractmethod
    def open_residues(self, n: int) -> AbstractResidueKernels:
        """The residue kernels, with state for ``n`` matrix rows on this device; after :meth:`allocate`.

        Raises
        ------
        ScheduleError
            The device was opened without them.
        """

    @abstractmethod
    def create_flags(self, nt: int) -> AbstractFlags:
        """Flags for ``nt`` tile columns and their packed tiles, all clear."""

    def create_norms(self, n_tiles: int) -> AbstractTileNorms:
        """Norms of ``n_tiles`` packed tiles, all zero, for :meth:`AbstractKernelSet.finish`."""
        return self.kernels.create_norms(n_tiles)

    @abstractmethod
    def create_stream(self, name: str, *, is_urgent: bool = False) -> AbstractStream:
        """A new stream with the given name; kernels of an urgent one get free processors first, if the device can do that."""

    @abstractmethod
    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: tuple[int, int], tile: Tile) -> None:
        """Enqueue: read block ``index`` of ``tier`` into ``tile``."""

    @abstractmethod
    def copy_stored(self, stream: AbstractStream, tier: AbstractTier, index: tuple[int, int], target: Tile) -> None:
        """Enqueue: read the stored bytes of block ``index`` of ``tier``, of a format narrower than FP64, into ``target``."""

    @abstractmethod
    def copy_out(self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: tuple[int, int]) -> None:
        """Enqueue: write ``tile`` to block ``index`` of ``tier``."""

    @abstractmethod
    def copy_sample(self, stream: AbstractStream, tile: Tile, step: int, out: NDArray[np.float64]) -> None:
        """Enqueue: copy every ``step``-th row and column of ``tile`` to ``out``, an array of the host; not during a run."""

    def wrote(self, tier: AbstractTier, index: tuple[int, int], event: AbstractEvent) -> bool:
        """Whether a copy of block ``index`` to ``tier``, before ``event``, is known to have taken place, also after an abort."""
        return event.succeeded()

    @abstractmethod
    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        """Enqueue: ``function(rows, cols, tile, stream)``."""

    @abstractmethod
    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        """Enqueue: copy ``source``, on this or another device of the same kind, to ``target`` on this one, of equal shape."""

    @abstractmethod
    def notify(self, event: AbstractEvent, callback: Callable[[BaseException | None], None]) -> None:
        """Call ``callback(error)`` from a thread of the device once ``event`` is complete, or can no longer become so.

        The callback is short, takes no locks that an enqueuing thread holds while blocked, and enqueues nothing.
        """

    def failure(self) -> BaseException | None:
        """What an operation of the device raised on the host while later ones went on; None for devices whose streams stop."""
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


class AbstractEvictionPolicy(ABC):
    """Chooses which block leaves a full device."""

    name: str

    @abstractmethod
    def rank(self, last_use: int, next_use: int) -> int:
        """Rank of a block used last at step ``last_use`` and next at ``next_use``: the largest rank is evicted first."""
