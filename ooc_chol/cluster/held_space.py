"""The part of a basis that a worker holds: tasks open it, run batches of commands in step with other workers, and close it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.connection import distributed_package
from ooc_chol.cluster.exchange import Exchange, PeerLostError, Seat
from ooc_chol.cluster.rows import RowsOf
from ooc_chol.cluster.tasks import Verdict
from ooc_chol.cluster.worker_state import task_room, this_worker
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.errors import OocCholError, TierError
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import AbstractCommonMemory
from ooc_chol.memory.shared import SharedAddress, SharedMemory
from ooc_chol.process.address_space import memory_errors_typed
from ooc_chol.process.fork_safety import new_rlock
from ooc_chol.runtime.shutdown import close_when_forgotten
from ooc_chol.sparse.keeping import with_kept_blocks

#: A method of a space, its arguments and its options.
Command: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]
#: Methods that commands may name: they enqueue.
METHODS = (
    "fill",
    "filter",
    "inner",
    "load",
    "move",
    "multiply_entries",
    "orthonormalize",
    "product",
    "project",
    "recur",
    "rotate",
    "store",
)


class SharedArray(NamedTuple):
    """An array in memory of the caller that this machine's workers map."""

    address: SharedAddress
    shape: tuple[int, ...]
    dtype: str
    columns: range  #: Those that are meant

    def opened(self) -> NDArray[Any]:
        """The columns, to be read or written."""
        whole = in_shared(SharedMemory.open(self.address), self.shape, np.dtype(self.dtype))
        return whole[:, self.columns.start : self.columns.stop]


def in_shared(memory: SharedMemory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array at the beginning of shared memory."""
    return np.ndarray(shape, dtype, buffer=memory.lent)


class SpacePart(NamedTuple):
    """The part of a basis that a worker is to hold."""

    name: str  #: Of the exchange with the others
    rank: int
    rows: tuple[range, ...]  #: Of all workers
    plan: SpacePlan  #: Of its own devices
    piece_bytes: int  #: Those of all
    room_bytes: int  #: Host memory for blocks of a file that devices do not keep


class Taking(NamedTuple):
    """Columns of panels that the caller asks for."""

    panels: range
    columns: int
    dtype: str
    into: SharedArray | None  #: Where all workers write their rows; None where these go by Dask


class Question(NamedTuple):
    """The end of a batch, where workers wait for their devices: one of these, or none."""

    reads: bool = False
    taking: Taking | None = None
    residuals: tuple[range, tuple[float, ...]] | None = None


class Batch(NamedTuple):
    """Commands for a worker, which all others have too."""

    number: int  #: From 0 on, since the part was opened
    seats: tuple[Seat, ...]  #: Of all workers
    near: tuple[bool, ...]  #: Those whose memory this one maps
    by_device: bool  #: Whether all map what each lends on its devices
    commands: tuple[Command, ...]
    question: Question


class Figures(NamedTuple):
    """Work of a worker since its part was opened."""

    received_bytes: int  #: From other workers
    seconds: float  #: Of batches
    link_bytes: Mapping[str, int]  #: Of blocks over the links of its devices


class Answer(NamedTuple):
    """The answer of a worker to a batch."""

    passes: int = 0
    found: dict[str, NDArray[np.float64]] | None = None
    rows: NDArray[Any] | None = None  #: Taken, where they go by Dask
    taking_seconds: float = 0.0  #: What that took, once all before it was done
    residuals: NDArray[np.float64] | None = None
    figures: Figures | None = None
    is_missing: bool = False  #: Whether the worker holds no such part


@final
class HeldSpace:
    """Result of a task that stays at its worker as long as the client wants it; a copy that Dask makes of it is empty."""

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._space: DeviceSpace | None = None
        self._exchange: Exchange | None = None
        self._lent: AbstractCommonMemory | None = None  # which goes with this object: by then no worker maps it
        self._opened = ExitStack()
        close_when_forgotten(self, self._opened)  # as where the client has gone
        self._is_joined = False
        self._batches = 0
        self._seconds = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldSpace, ()

    def open(self, rows: RowsOf, part: SpacePart) -> None:
        """Open devices, with the worker's rows."""
        try:
            operator = rows.opened()
            self._opened.callback(operator.matrix.close)
            operator = with_kept_blocks(operator, part.plan.products, part.room_bytes, self._opened)
            if len(part.rows) > 1:
                self._exchange = Exchange(part.name, part.rank, part.rows, part.piece_bytes)
            self._space = self._opened.enter_context(DeviceSpace(operator, part.plan, exchange=self._exchange))
            if self._exchange is not None:  # beside the device's budget, as its libraries are
                self._lent = self._exchange.lend(part.plan.products.devices[0])
        except BaseException:
            self.close()
            raise

    def map(self, handles: Sequence[bytes]) -> bool:
        """Map what others lend on their devices; tells whether all of it is mapped."""
        with self._lock:
            if self._space is None or self._exchange is None:
                return False
            return self._exchange.map(handles, self._space.plan.products.devices)

    @property
    def seat(self) -> Seat | None:
        """Place at which the others find this worker; None where it is alone."""
        return None if self._exchange is None else self._exchange.seat

    def run(self, batch: Batch) -> Answer:
        """Run a batch; a batch that fails closes the part, which the others are told of."""
        with self._lock:
            if self._space is None or batch.number != self._batches:
                self.close()
                return Answer(is_missing=True)  # or made again by Dask, and empty
            self._batches += 1
            began = time.perf_counter()
            try:
                self._join(batch)
                for command in batch.commands:
                    self._do(self._space, *command)
                answer = self._asked(self._space, batch.question)
            except BaseException:
                self.close()
                raise
            self._seconds += time.perf_counter() - began
            return answer._replace(figures=Figures(self._space.received_bytes, self._seconds, self._space.copied_bytes))

    def _join(self, batch: Batch) -> None:
        if self._exchange is not None and not self._is_joined:
            assert self._space is not None
            name = self._space.plan.products.devices[0]
            if batch.by_device:
                self._exchange.use_devices()
            self._exchange.join(batch.seats, batch.near, device_kind(name).registrar(name))
        self._is_joined = True

    def _do(self, space: DeviceSpace, name: str, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Do what a command says."""
        if name in METHODS:
            getattr(space, name)(*given, **options)
        elif name == "bring":
            (x,) = given
            space.bring_rows(x.opened()[space.rows.start : space.rows.stop] if isinstance(x, SharedArray) else x)
        elif name == "passes":
            (space.passes,) = given
        elif name == "read":  # once more, for nobody
            space.read()
        else:
            raise ValueError(f"{name} is no command of a space")

    def _asked(self, space: DeviceSpace, question: Question) -> Answer:
        """Answer a question."""
        found = rows = residuals = None
        seconds = 0.0
        if question.reads:
            found = space.read()
            found = found if self._exchange is None or self._exchange.rank == 0 else None
        if (taking := question.taking) is not None:
            shape, whole = (len(space.rows), taking.columns), taking.into
            rows = np.empty(shape, taking.dtype) if whole is None else whole.opened()[space.rows.start : space.rows.stop]
            space.wait()
            since = time.perf_counter()
            space.take_rows(taking.panels, rows)
            seconds = time.perf_counter() - since
            rows = rows if whole is None else None
        if question.residuals is not None:
            residuals = space.residuals(*question.residuals)
        return Answer(space.passes, found, rows, seconds, residuals)

    def close(self) -> None:
        """Close devices, and let others know; a second call does nothing."""
        with self._lock:
            self._space = None
            if self._exchange is not None:
                self._exchange.close()  # first: others may wait
            self._opened.close()
            if self._exchange is not None:
                self._exchange.unmap()
            self._exchange = None  # and its memory


def open_part(rows: RowsOf, data: SharedArray | None, part: SpacePart) -> HeldSpace | Verdict:
    """Let a worker hold a part of a basis; errors of reading are raised, for Dask to try again.

    ``data`` are bytes of its rows, where they lie in memory of the caller.
    """
    with task_room().turn, ExitStack() as stack:
        stack.enter_context(memory_errors_typed("a basis on a worker"))
        held = HeldSpace()
        try:
            held.open(rows if data is None else replace(rows, data=data.opened()[0]), part)
        except ConnectionError as error:
            return Verdict(PeerLostError(f"rows of A are not there any more ({error})", "they are sent anew"))
        except TierError:
            raise
        except OocCholError as error:
            return Verdict(error)
        return held


def seat_of(held: HeldSpace | Verdict) -> Seat | Verdict | None:
    """Place at which others find the worker that holds a part."""
    return held if isinstance(held, Verdict) else held.seat


def map_lent(held: HeldSpace, handles: Sequence[bytes]) -> bool:
    """Let a worker map what others lend on their devices; tells whether all of it is mapped."""
    return held.map(handles)


def run_batch(held: HeldSpace, batch: Batch) -> Answer | Verdict:
    """Run a batch beside the worker's other tasks: of two callers' batches, each may wait for a worker that runs the other's."""
    if this_worker() is not None:
        distributed_package().secede()
    try:
        with memory_errors_typed("a basis on a worker"):
            return held.run(batch)
    except OocCholError as error:
        return Verdict(error)


def close_part(held: HeldSpace | Verdict) -> None:
    """Close a part, behind what runs there."""
    if isinstance(held, HeldSpace):
        held.close()
