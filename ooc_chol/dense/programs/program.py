"""A device's program: every step with its stream, its slot and the earlier steps that it waits on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ooc_chol.dense.programs.residency import AbstractResidencySink
from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import BlockKey
from ooc_chol.schedulers.finishing import FinishingTasks
from ooc_chol.tasks.cholesky import Task, TaskKind
from ooc_chol.tasks.cholesky import flops as task_flops
from ooc_chol.tasks.tiling import Index, TileGrid


class StepKind(IntEnum):
    """What a step does."""

    FETCH = 0  #: tier -> device over a link
    GENERATE = 1  #: a tile function fills the tile on the device
    COMPUTE = 2  #: a tile kernel
    WRITE = 3  #: device -> store
    PULL = 4  #: another device -> device


class StreamKind(IntEnum):
    """The streams of a device."""

    COPY_IN = 0
    COMPUTE = 1
    COPY_OUT = 2
    FINISH = 3  #: what makes tiles final, beside the sweeps of other rows
    CONVERT = 4  #: between formats of a tile; the last three are for kernels on residues
    FINISH_1 = 5
    FINISH_2 = 6
    PEER = 7  #: copies from other devices, of strips those that long products need
    SOURCE = 8  #: tiles of A, read or made, where those of L must not wait for them
    EXCHANGE = 9  #: what the own rows of a panel take from each other, across devices, as soon as it is made


_STREAMS = tuple(StreamKind)  # iterating over an enum is ten times slower

#: Names of the streams in traces and reports.
STREAM_NAMES = ("copy-in", "compute", "copy-out", "finish", "convert", "finish-1", "finish-2", "peer", "source", "exchange")
#: Streams whose kernels go first where streams share a device's processors: others wait for what they make.
URGENT_STREAMS = frozenset(StreamKind) - {StreamKind.COPY_IN, StreamKind.COMPUTE, StreamKind.COPY_OUT}


class Link(IntEnum):
    """The links whose bytes are planned and counted, per device."""

    SOURCE = 0  #: A -> device
    FETCH = 1  #: store of L -> device
    WRITE = 2  #: device -> store of L
    PEER = 3  #: another device -> device


def link_of(kind: StepKind, version: int) -> Link | None:
    """The link that a step's bytes cross; of a fetch, ``version`` 0 is a tile of A."""
    if kind is StepKind.FETCH:
        return Link.SOURCE if version == 0 else Link.FETCH
    if kind is StepKind.PULL:
        return Link.PEER
    return Link.WRITE if kind is StepKind.WRITE else None


def bytes_by_link(moved: Iterable[tuple[Link | None, int]]) -> tuple[int, ...]:
    """Bytes over each :class:`Link`, from the link and bytes of every step."""
    totals = [0] * len(Link)
    for link, nbytes in moved:
        if link is not None:
            totals[link] += nbytes
    return tuple(totals)


def final_keys(tiles: Iterable[Index]) -> list[BlockKey]:
    """Names of the final values of tiles of L."""
    return [BlockKey("L", (i, j), j + 1) for i, j in tiles]


def unseen_waits(stream: StreamKind, latest: Mapping[StreamKind, int], seen: list[int]) -> tuple[int, ...]:
    """The ``latest`` step of each other stream that ``stream`` has not ``seen``, nor a later one; ``seen`` becomes these."""
    waits = []
    for other in _STREAMS:
        position = latest.get(other, -1)
        if other is not stream and position > seen[other]:
            seen[other] = position
            waits.append(position)
    return tuple(waits)


class Step(NamedTuple):
    """One operation on one stream.

    ``waits`` are positions of earlier steps of the same program, on other streams, that must be complete; ``evicts`` are tiles
    dropped just before the step. A copy from another device has its device and slot there as ``source``; ``after`` are steps of
    other devices that must be enqueued before, and another device awaits an ``announced`` step.
    """

    kind: StepKind
    stream: StreamKind
    tile: Index
    version: int
    slot: int
    nbytes: int
    waits: tuple[int, ...]
    task: Task | None
    operands: tuple[int, ...]
    evicts: tuple[Index, ...]
    source: tuple[int, int] | None = None
    after: tuple[BlockKey, ...] = ()
    announced: bool = False

    @property
    def block(self) -> BlockKey:
        """The value that the step brings, makes or writes."""
        return BlockKey("L", self.tile, self.version)

    @property
    def link(self) -> Link | None:
        """The link that its bytes cross."""
        return link_of(self.kind, self.version)

    @property
    def needs_store(self) -> bool:
        """Whether it reads a value that some device must have written to the store before."""
        return self.kind is StepKind.FETCH and self.version > 0

    @property
    def awaits(self) -> tuple[BlockKey, ...]:
        """Values that must be in the store, or on their way there, and steps of other devices, before it is enqueued."""
        return (self.block, *self.after) if self.needs_store else self.after

    @property
    def is_pivot(self) -> bool:
        """Whether it may find that A is not positive definite."""
        return self.task is not None and self.task.kind is TaskKind.POTRF

    def counted_flops(self, grid: TileGrid) -> int:
        """Flops counted for it."""
        return 0 if self.task is None else task_flops(self.task, grid)

    @property
    def label(self) -> str:
        """Short name for traces."""
        return str(self.task) if self.task is not None else f"{self.kind.name.lower()} {tuple(self.tile)}"


@dataclass(frozen=True)
class Program:
    """All steps of one device in the order in which they are enqueued."""

    steps: tuple[Step, ...]
    n_slots: int  #: Slots of the arena
    peak_slots: int  #: Most slots in use at once
    flops: int  #: Flops counted over its tasks

    @property
    def streams(self) -> tuple[StreamKind, ...]:
        """The streams that it uses, in their order."""
        return tuple(sorted({step.stream for step in self.steps}))

    def link_bytes(self) -> tuple[int, ...]:
        """Planned bytes over each :class:`Link`."""
        return bytes_by_link((step.link, step.nbytes) for step in self.steps)


class ProgramBuilder(AbstractResidencySink):
    """Turns moves into steps: assigns slots first-freed-first-used and finds which steps must wait on which.

    Slots freed longest ago are used first, so that a fetch seldom waits on a task that still reads the slot's old tile: spare
    slots are prefetch depth.
    """

    def __init__(
        self,
        grid: TileGrid,
        n_slots: int,
        source_itemsize: int | None,
        stored_bytes: Callable[[Index], int],
        *,
        overlaps: bool,
        finishing: FinishingTasks | None = None,
    ) -> None:
        self._grid = grid
        self._finishing = finishing
        self._source_itemsize = source_itemsize
        self._stored_bytes = stored_bytes
        self._overlaps = overlaps
        self._steps: list[Step] = []
        self._free: deque[int] = deque(range(n_slots))
        self._n_slots = n_slots
        self._slot_of: dict[Index, int] = {}
        self._waits = SlotWaits(n_slots)
        self._evicts: list[Index] = []
        self._peak = 0
        self._flops = 0

    def build(self) -> Program:
        """The finished program."""
        return Program(tuple(self._steps), self._n_slots, self._peak, self._flops)

    def fetch(self, index: Index, version: int) -> None:
        """Add a fetch, or for A from a tile function a generation, into the slot freed longest ago."""
        if not self._free:
            raise ScheduleError(f"no free slot for tile {tuple(index)}")
        slot = self._free.popleft()
        self._slot_of[index] = slot
        self._peak = max(self._peak, len(self._slot_of))
        kind = StepKind.GENERATE if version == 0 and self._source_itemsize is None else StepKind.FETCH
        of_a = (self._source_itemsize or 0) * self._grid.entries(*index)
        nbytes = of_a if version == 0 else self._stored_bytes(index)
        self._add(kind, StreamKind.COPY_IN, index, version, nbytes=nbytes, writes=(slot,))

    def compute(self, task: Task) -> None:
        """Add a task; its output is changed in place."""
        operands = tuple(self._slot_of[tile] for tile in task.reads)
        self._flops += task_flops(task, self._grid)
        slot = self._slot_of[task.output]
        finishes = self._finishing is not None and self._finishing.takes(task)
        stream = StreamKind.FINISH if finishes else StreamKind.COMPUTE
        self._add(StepKind.COMPUTE, stream, task.output, task.k + 1, task=task, reads=operands, writes=(slot,))

    def write(self, index: Index, version: int) -> None:
        """Add a write to the store."""
        nbytes = self._stored_bytes(index)
        self._add(StepKind.WRITE, StreamKind.COPY_OUT, index, version, nbytes=nbytes, reads=(self._slot_of[index],))

    def evict(self, index: Index) -> None:
        """Free the tile's slot; the step that uses the slot next will wait for what still reads it."""
        self._free.append(self._slot_of.pop(index))
        self._evicts.append(index)

    def _add(
        self,
        kind: StepKind,
        stream: StreamKind,
        index: Index,
        version: int,
        *,
        nbytes: int = 0,
        task: Task | None = None,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
    ) -> None:
        """Append a step with the waits that its reads and writes call for."""
        stream = stream if self._overlaps else StreamKind.COMPUTE
        waits = self._waits.add(stream, reads, writes)
        slot = (*writes, *reads)[0]
        self._steps.append(Step(kind, stream, index, version, slot, nbytes, waits, task, tuple(reads), tuple(self._evicts)))
        self._evicts.clear()


class SlotWaits:
    """Which earlier steps each step must wait on, by the slots that steps read and write."""

    def __init__(self, n_slots: int) -> None:
        self._streams: list[StreamKind] = []
        self._writer: list[int | None] = [None] * n_slots
        self._readers: list[list[int]] = [[] for _ in range(n_slots)]
        self._seen = [[-1] * len(StreamKind) for _ in StreamKind]

    def add(self, stream: StreamKind, reads: Sequence[int], writes: Sequence[int]) -> tuple[int, ...]:
        """The waits of the next step, on ``stream``."""
        position = len(self._streams)
        self._streams.append(stream)
        before = [self._writer[slot] for slot in (*reads, *writes)]
        for slot in writes:
            before.extend(self._readers[slot])
        waits = self._reduce(stream, [earlier for earlier in before if earlier is not None])
        for slot in reads:
            self._readers[slot].append(position)
        for slot in writes:
            self._writer[slot] = position
            self._readers[slot].clear()
        return waits

    def _reduce(self, stream: StreamKind, before: list[int]) -> tuple[int, ...]:
        """The latest step of each other stream among ``before``, unless ``stream`` has waited for it or a later one already."""
        latest: dict[StreamKind, int] = {}
        for step in before:
            other = self._streams[step]
            latest[other] = max(latest.get(other, -1), step)
        return unseen_waits(stream, latest, self._seen[stream])


def waits_of(steps: Sequence[Step], n_slots: int) -> list[tuple[int, ...]]:
    """The waits that the slots of ``steps`` call for, whatever theirs are."""
    tracker = SlotWaits(n_slots)
    return [tracker.add(step.stream, *_slots_of(step)) for step in steps]


def _slots_of(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Slots that a step reads, and that it writes."""
    if step.kind is StepKind.WRITE:
        return (step.slot,), ()
    return step.operands, (step.slot,)
