"""Products with packed blocks on devices: blocks pass through each, vectors stay there, and devices exchange their rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import AbstractArena, AbstractEvent, AbstractStream, AbstractTier, AnyDevice, ArraySpec, Tile
from ooc_chol.kernels.interfaces.products import AbstractProductKernels
from ooc_chol.memory.blocks import BlockMemory
from ooc_chol.memory.kept_blocks import KeptBlocks
from ooc_chol.runtime.block_scan import AbstractScanned, BlockScan, ScanStreams
from ooc_chol.runtime.passes import BlockNames, Pass, finish, side_by_side
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.panels import bring_panel, bring_vectors, return_panel
from ooc_chol.sparse.plan import DeviceShare, MultiplyPlan
from ooc_chol.tasks.row_blocks import RowBlock

#: Where a block stands among those of the matrix: its number, and 0.
BlockKey: TypeAlias = tuple[int, ...]
#: Which panels: the view of memory, the side that is X, and their widths.
_Panels: TypeAlias = tuple[int, int, tuple[int, ...]]
#: The stream that copies from other devices.
PEER = "peer"
#: In how many parts a device that keeps all its blocks hands its rows on: copies run beside the products of later parts.
_EXCHANGES = 4


@final
class _PackedBlocks(AbstractScanned[BlockKey]):
    """The blocks of one device: the first ones stay in one array, tightly packed, and the others pass through slots."""

    def __init__(
        self, device: AnyDevice, plan: MultiplyPlan, share: DeviceShare, arena: AbstractArena, tier: AbstractTier
    ) -> None:
        self._device, self._share, self._arena, self._tier = device, share, arena, tier
        self._blocks: Sequence[RowBlock] = plan.blocks.blocks
        self._offsets = dict[int, int]()
        at = 0
        for number in share.blocks[: share.n_kept]:
            self._offsets[number] = at
            at += self._blocks[number].nbytes

    def in_place(self, key: BlockKey) -> Tile | None:
        """A view of host memory, for a host device."""
        return self._tier.stored(key) if self._share.in_place else None

    def is_kept(self, key: BlockKey) -> bool:
        """Tell whether it is one of the first."""
        return key[0] in self._offsets

    def place(self, key: BlockKey, slot: int | None) -> Tile:
        """Bytes of the array, or of a slot."""
        nbytes = self._blocks[key[0]].nbytes
        if slot is None:
            return self._arena.arrays[-1][self._offsets[key[0]] : self._offsets[key[0]] + nbytes]
        return self._arena.tile(slot, (1, nbytes), "uint8")[0]

    def bring(self, stream: Any, key: BlockKey, tile: Tile) -> None:
        """Copy the bytes as they are."""
        self._device.copy_stored(stream, self._tier, key, tile)

    def nbytes(self, key: BlockKey) -> int:
        """Bytes of the block's parts."""
        return self._blocks[key[0]].nbytes

    def format_of(self, key: BlockKey) -> str:
        """How its values are stored."""
        return self._blocks[key[0]].kind.value


class _Diagonals(NamedTuple):
    """The factors of an operator on a device: numbers, or vectors of its own rows; right of all columns."""

    left: Tile | float
    shift: Tile | float
    right: Tile | None

    def of_rows(self, rows: slice) -> tuple[Tile | float, Tile | float]:
        """Left and shift of some of the device's rows."""
        left, shift = (part if isinstance(part, float) else part[rows] for part in (self.left, self.shift))
        return left, shift


class _Parts(NamedTuple):
    """Input of a block's product beside X."""

    ys: list[Tile]  #: Its rows of each panel
    left: Tile | float
    shift: Tile | float


class _View(NamedTuple):
    """The memory of X and Y as numbers of one type, and the kernels for it."""

    kernels: AbstractProductKernels
    numbers: list[Tile]  #: X and Y, one behind the other in each


@final
class DeviceProducts:
    """One device's part: its memory, its streams, and what is enqueued there."""

    def __init__(
        self,
        device: AnyDevice,
        plan: MultiplyPlan,
        share: DeviceShare,
        operator: Operator,
        run: Pass,
        kernels: AbstractProductKernels,
    ) -> None:
        self.device, self.share = device, share
        self._plan, self._blocks = plan, plan.blocks.blocks
        kept = [ArraySpec(np.dtype(np.uint8), (share.kept_bytes,))] if share.kept_bytes else []
        n_columns = plan.blocks.shape[1]
        with device.current():
            arrays = [*share.vectors, *share.diagonals, *share.others, *kept]
            arena = device.allocate(share.ring_slots, share.slot_bytes, n_columns, arrays)
            #: As the plan's precision has them, and perhaps wider.
            self._views = [_View(kernels, list(arena.arrays[:2]))]
            self._view = 0
            behind = len(share.vectors) + len(share.diagonals)
            #: Arrays of what is kept beside the products.
            self.others: tuple[Tile, ...] = arena.arrays[behind : behind + len(share.others)]
            self._scanned = _PackedBlocks(device, plan, share, arena, operator.matrix.tier)
            names = BlockNames("A", plan.tier, copying=("copy-in", PEER))
            self.track = run.track(device.name, names)
            self.track.resident_bytes = share.peak_bytes
            self.streams, self.peer = ScanStreams.of(device), device.create_stream(PEER)
            self.scan = BlockScan(device, self._scanned, slots=share.ring_slots, streams=self.streams, track=self.track)
            self._diagonals = self._bring_diagonals(operator, arena.arrays[2:])
        #: Which of the two replicas is X, and parts of both by that and by the widths of panels, then by blocks.
        self._side = 0
        self._is_traced = run.is_traced
        self._compiled = set[tuple[int, tuple[int, ...]]]()  # views and widths of panels that all blocks have met
        self._has_scanned = False  # so that blocks which are kept are there, or on their way
        self._captured: dict[tuple[_Panels, int], list[tuple[range, Callable[[], None]]]] = {}
        self._parts: dict[_Panels, tuple[list[Tile], dict[int, _Parts]]] = {}
        self._streamed: list[BlockKey] = [(number, 0) for number in share.blocks[share.n_kept :]]
        #: All its blocks, in the order in which they are multiplied.
        self.order: list[BlockKey] = interleaved(self._streamed, [(number, 0) for number in share.blocks[: share.n_kept]])
        self.exchanged_bytes = 0  #: Bytes that came from other devices
        self.brought_bytes = 0  #: Bytes of X
        self.returned_bytes = 0  #: Bytes of Y

    def _bring_diagonals(self, operator: Operator, arrays: Sequence[Tile]) -> _Diagonals:
        """Copy those that are vectors to the device."""
        own, there, order = slice(self.share.rows.start, self.share.rows.stop), iter(arrays), operator.matrix.order

        def brought(part: Any, rows: slice) -> Tile | float:
            if isinstance(part, float):
                return part
            vector = next(there)
            host: NDArray[np.float64] = part[rows if order is None else order[rows]].reshape(-1, 1)
            bring_panel(self.device, self.streams.computing, host, 0, vector.reshape(-1, 1), self.share.slot_bytes)
            return vector

        left, shift = brought(operator.left, own), brought(operator.shift, own)
        right = None if operator.right is None else brought(operator.right, slice(None))
        return _Diagonals(left, shift, right)

    # vectors

    def widen(self, kernels: AbstractProductKernels) -> None:
        """Let the memory of X and Y be seen as float64, too, for kernels of that: as many columns as find room."""
        wide = np.dtype(np.float64)
        numbers = [array[: array.nbytes // wide.itemsize * wide.itemsize // array.itemsize].view(wide) for array in self._numbers]
        self._views.append(_View(kernels, numbers))

    def use(self, view: int) -> None:
        """See the memory of X and Y as the plan has it (0), or wide (1)."""
        self._view = view

    @property
    def kernels(self) -> AbstractProductKernels:
        """Those for the numbers in use."""
        return self._views[self._view].kernels

    @property
    def _numbers(self) -> list[Tile]:
        return self._views[self._view].numbers

    def panels(self, side: int, widths: Sequence[int]) -> list[Tile]:
        """The panels of X (``side`` 0), or of Y (1), for a group of widths: all rows that this device has of them."""
        numbers, at, found = self._numbers[side], 0, []
        height = self._plan.blocks.shape[1] if side == 0 else len(self.share.made)
        for width in widths:
            found.append(numbers[at : at + height * width].reshape(height, width))
            at += height * width
        return found

    def made(self, rows: range) -> slice:
        """Where rows of the matrix are in a panel of Y."""
        return slice(rows.start - self.share.made.start, rows.stop - self.share.made.start)

    def swap(self) -> None:
        """Let Y be the next X."""
        for view in self._views:
            view.numbers.reverse()
        self._side = 1 - self._side

    def bring(self, x: NDArray[Any], first: int, widths: Sequence[int]) -> None:
        """X from the host, columns from ``first`` on: enqueued, or read when this returns."""
        for panel, at in zip(self.panels(0, widths), _firsts(first, widths), strict=True):
            bring_vectors(self.device, self.streams.computing, x, at, panel, self.share.slot_bytes)
            self.brought_bytes += panel.nbytes

    def take_back(self, y: NDArray[Any], first: int, widths: Sequence[int]) -> None:
        """The device's own rows of Y to the host: enqueued, or done when this returns."""
        own = y[self.share.rows.start : self.share.rows.stop]
        for panel, at in zip(self.panels(1, widths), _firsts(first, widths), strict=True):
            part = panel[self.made(self.share.rows)]
            return_panel(self.device, self.streams.computing, part, own, at, self.share.slot_bytes)
            self.returned_bytes += part.nbytes

    # one product

    def begin(self, widths: Sequence[int]) -> None:
        """Enqueue what precedes the blocks: the shift's operand to Y, the right scaling, what kernels make of X."""
        computing, kernels = self.streams.computing, self.kernels
        shift, right = self._diagonals.shift, self._diagonals.right
        own = self.share.rows
        for x, y in zip(self.panels(0, widths), self.panels(1, widths), strict=True):
            if not isinstance(shift, float) or shift != 0.0:
                self.device.copy_between(computing, x[own.start : own.stop], y[self.made(own)])
            if right is not None:
                kernels.scale(computing, right, x)  # x[i] *= right[i]
            kernels.prepare(computing, x)

    def blocks(self, widths: Sequence[int], run_blocks: int) -> Generator[range, None, None]:
        """Enqueue one block after the other, ``y = shift y + left (A x)``; its number is yielded behind that.

        Blocks that are kept, and are there since an earlier scan, are enqueued up to ``run_blocks`` at a time, between those that
        pass: kernels of a run are captured once for each replica that is X, and the link goes on meanwhile.
        """
        runs = list[tuple[range, Callable[[], None]]]()
        if self._has_runs:
            self.run_ahead()
            runs = self._kept_runs(widths, min(run_blocks, -(-self.share.n_kept // max(1, len(self._streamed)))))
        order, columns, done = self._order, sum(widths), 0
        with closing(self.scan.over(order, lambda key: 2 * columns * self._blocks[key[0]].n_entries)) as passing:
            for passed, ((number, _), data) in enumerate(passing, 1):
                self._multiply(number, data, widths, self.streams.computing)
                yield range(number, number + 1)
                due = _due(passed, len(order), len(runs))
                yield from _enqueued(runs[done:due])
                done = due
        yield from _enqueued(runs[done:])
        self._compiled.add((self._view, tuple(widths)))
        self._has_scanned = True

    @property
    def is_steady(self) -> bool:
        """True if a product is kernels alone: all blocks are there, and nobody asks for the times of each."""
        is_there = not self._streamed or (self.share.in_place and self._plan.tier == "memory")
        return is_there and self._has_scanned and not self._is_traced

    def multiply_steadily(self, widths: Sequence[int]) -> None:
        """Enqueue a product with the panels that are there, where it :attr:`is_steady`: kernels that may be captured."""
        self.begin(widths)
        self._multiply_kept([number for number, _ in self.order], widths)

    def run_ahead(self) -> None:
        """Enqueue copies of blocks for the next product, as many as the ring has room for; other work may come before it."""
        if order := self._order:
            self.scan.run_ahead(order)

    @property
    def _has_runs(self) -> bool:
        """True if kept blocks are there, and nobody asks for the times of each: they do not pass then."""
        return self._has_scanned and self.share.n_kept > 0 and not self._is_traced

    @property
    def _order(self) -> list[BlockKey]:
        """Blocks that pass in the next product."""
        return self._streamed if self._has_runs else self.order

    def _multiply(self, number: int, data: Tile, widths: Sequence[int], stream: AbstractStream) -> None:
        """Enqueue the products of one block with all panels."""
        key, kernels = (self._view, self._side, tuple(widths)), self.kernels
        if key not in self._parts:
            self._parts[key] = self.panels(0, widths), {}
        xs, parts = self._parts[key]
        if number not in parts:
            parts[number] = self._parts_of(number, widths)
        ys, left, shift = parts[number]
        for x, y in zip(xs, ys, strict=True):
            kernels.multiply(stream, self._blocks[number], data, x, y, left=left, shift=shift)

    def _kept_runs(self, widths: Sequence[int], run_blocks: int) -> list[tuple[range, Callable[[], None]]]:
        """Runs of kept blocks, and what enqueues the products of each: captured once kernels for such panels are compiled."""
        kept = self.share.blocks[: self.share.n_kept]
        runs = [kept[at : at + run_blocks] for at in range(0, len(kept), run_blocks)]
        if (self._view, tuple(widths)) not in self._compiled:
            return [(run, partial(self._multiply_kept, run, widths)) for run in runs]
        key = (self._view, self._side, tuple(widths)), run_blocks
        if key not in self._captured:
            self._captured[key] = [
                (run, self.device.captured(self.streams.computing, partial(self._multiply_kept, run, widths))) for run in runs
            ]
        return self._captured[key]

    def _multiply_kept(self, run: Sequence[int], widths: Sequence[int]) -> None:
        """Enqueue the products of blocks that are there: no two have the same rows, but long rows share places for their sums."""

        def multiply(numbers: Sequence[int], stream: AbstractStream) -> None:
            for number in numbers:
                data = self._scanned.in_place((number, 0))
                self._multiply(number, self._scanned.place((number, 0), None) if data is None else data, widths, stream)

        with_long_rows = [number for number in run if self._blocks[number].n_segments]
        others = [[number] for number in run if not self._blocks[number].n_segments]
        works = [with_long_rows, *others] if with_long_rows else others
        self.device.fork_join(self.streams.computing, [partial(multiply, numbers) for numbers in works])

    def _parts_of(self, number: int, widths: Sequence[int]) -> _Parts:
        """Rows of Y that a block makes, and its rows of the diagonals; kept, since slicing takes longer than looking up."""
        block, start = self._blocks[number], self.share.rows.start
        left, shift = self._diagonals.of_rows(slice(block.rows.start - start, block.rows.stop - start))
        return _Parts([y[self.made(block.rows)] for y in self.panels(1, widths)], left, shift)

    def pull(self, other: DeviceProducts, run: range, widths: Sequence[int], done: AbstractEvent) -> None:
        """Enqueue: copy the rows of some blocks from the device that made them."""
        self.peer.wait(done)
        rows = range(self._blocks[run[0]].rows.start, self._blocks[run[-1]].rows.stop)
        for mine, theirs in zip(self.panels(1, widths), other.panels(1, widths), strict=True):
            label = f"pull A({run[0]}, 0)"
            self.copy_from(theirs[other.made(rows)], mine[self.made(rows)], label)

    def copy_from(self, source: Tile, target: Tile, label: str) -> None:
        """Enqueue: copy what another device holds, in the stream for that."""
        begun = self.track.now(self.peer)
        self.device.copy_between(self.peer, source, target)
        self.exchanged_bytes += target.nbytes
        if begun is not None:
            link, span = f"{PEER}->{self.device.name}", (begun, self.peer.record())
            fmt = target.dtype.name
            self.track.ran("pull", (), PEER, span, nbytes=target.nbytes, fmt=fmt, link=link, label=label)

    def finish(self) -> None:
        """Wait for all streams; raise what went wrong on the way."""
        finish(self.device, [self.peer])
        self.scan.finish()


def _enqueued(runs: Sequence[tuple[range, Callable[[], None]]]) -> Iterator[range]:
    """Enqueue runs of kept blocks, and yield each behind that."""
    for run, enqueue in runs:
        enqueue()
        yield run


def _due(passed: int, streamed: int, kept: int) -> int:
    """How many of the kept come before the next that passes, once so many of all that pass have passed."""
    return passed * kept // streamed


def interleaved(streamed: Sequence[BlockKey], kept: Sequence[BlockKey]) -> list[BlockKey]:
    """Blocks that pass, with those that are kept spread among them: the link never waits for a run of kept ones.

    >>> interleaved([(2, 0), (3, 0)], [(0, 0), (1, 0)])
    [(2, 0), (0, 0), (3, 0), (1, 0)]
    """
    order, done = list[BlockKey](), 0
    for passed, key in enumerate(streamed, 1):
        due = _due(passed, len(streamed), len(kept))
        order += [key, *kept[done:due]]
        done = due
    return [*order, *kept[done:]]


def _firsts(first: int, widths: Sequence[int]) -> Iterator[int]:
    """First column of each panel."""
    for width in widths:
        yield first
        first += width


@final
class Products:
    """Products on all devices of a plan, enqueued by the calling thread."""

    def __init__(self, plan: MultiplyPlan, members: Sequence[DeviceProducts]) -> None:
        self.plan, self.members = plan, members
        self.scans = 0  #: How often all blocks have passed
        #: Behind the last copies of each device from others.
        self._arrived: list[AbstractEvent] = []

    @property
    def copied_bytes(self) -> dict[str, int]:
        """Bytes of blocks over each link until now, counted from the copies issued."""
        return {f"{self.plan.tier}->{each.device.name}": each.scan.copied_bytes for each in self.members}

    def bring(self, x: NDArray[Any], first: int, widths: Sequence[int]) -> None:
        """X to every device, side by side, once no other device reads what was there: enqueued, or read when this returns."""
        for each in self.members:
            with each.device.current():
                self._meet(each)
        self._on_each(lambda each: each.bring(x, first, widths))

    def take_back(self, y: NDArray[Any], first: int, widths: Sequence[int]) -> None:
        """Rows of Y from the devices that made them, side by side: enqueued, or done when this returns."""
        self._on_each(lambda each: each.take_back(y, first, widths))

    def _on_each(self, work: Callable[[DeviceProducts], None]) -> None:
        """``work`` with every device, side by side."""
        side_by_side([each.device for each in self.members], lambda number: work(self.members[number]))

    def multiply(
        self, widths: Sequence[int], *, exchange: bool, told: Callable[[range, AbstractEvent], None] | None = None
    ) -> tuple[list[AbstractEvent], list[AbstractEvent]]:
        """Enqueue one product of the panels that are there; with ``exchange`` all devices get all rows of Y.

        ``told`` gets numbers of blocks with an event behind their products. Returns events before and behind all, of each
        device's computing stream.
        """
        begun: list[AbstractEvent] = []
        for each in self.members:
            with each.device.current():
                self._meet(each)
                begun.append(each.streams.computing.record())
                each.peer.wait(begun[-1])  # until then what becomes Y is read as X
                each.begin(widths)
        exchange = exchange and len(self.members) > 1
        with ExitStack() as stack:
            parts = _EXCHANGES if exchange else 1
            passing = [stack.enter_context(closing(each.blocks(widths, -(-len(each.order) // parts)))) for each in self.members]
            for runs in zip_longest(*map(self._current, self.members, passing)):
                for owner, run in zip(self.members, runs, strict=True):
                    if run is not None and (exchange or told is not None):
                        done = self._hand_on(owner, run, widths, exchange=exchange)
                        if told is not None:
                            told(run, done)
        self.scans += 1
        self._arrived, ended = [], []
        for each in self.members:
            with each.device.current():
                ended.append(each.streams.computing.record())
                if exchange:
                    self._arrived.append(each.peer.record())
        return begun, ended

    def swap(self) -> None:
        """Let Y be the next X, on all devices."""
        for each in self.members:
            each.swap()

    def finish(self) -> None:
        """Wait for all devices."""
        for each in self.members:
            with each.device.current():
                each.finish()

    def _meet(self, each: DeviceProducts) -> None:
        """Let a device wait until all of them have got each other's rows: what it reads is there, and what it writes not read."""
        for event in self._arrived:
            each.streams.computing.wait(event)

    @staticmethod
    def _current(each: DeviceProducts, passing: Generator[range, None, None]) -> Iterator[range]:
        """Enqueue with the device current, one run of blocks at a time."""
        while True:
            with each.device.current():
                run = next(passing, None)
            if run is None:
                return
            yield run

    def _hand_on(self, owner: DeviceProducts, run: range, widths: Sequence[int], *, exchange: bool) -> AbstractEvent:
        """Record that some blocks' rows are made, and let the other devices copy them."""
        with owner.device.current():
            done = owner.streams.computing.record()
        if exchange:
            for other in self.members:
                if other is not owner:
                    with other.device.current():
                        other.pull(owner, run, widths, done)
        return done


def lock_blocks(operator: Operator, plan: MultiplyPlan, members: Sequence[DeviceProducts]) -> None:
    """Page-lock blocks in host memory for devices that copy them from there, in the order in which they are needed."""
    if not members:
        return
    registrar, tier = device_kind(plan.devices[0]).registrar(plan.devices[0]), operator.matrix.tier
    if registrar is not None and isinstance(tier, BlockMemory | KeptBlocks):
        tier.lock(registrar, [key for keys in zip_longest(*(each.order for each in members)) for key in keys if key])
