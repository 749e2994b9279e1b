"""Triangular sweeps on the device that factored: tiles of L stream through it, right-hand sides stay."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES, whole_pages
from ooc_chol.dense.factor.sweeps import BATCH, NOTHING, AbstractTeamSolver, AbstractTeamSweeps, Needs, PanelSums, Part
from ooc_chol.dense.passes import COMPUTES, COPIES, track_of_l
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.errors import BudgetError
from ooc_chol.interfaces import NARROW_BUFFERS, AbstractArena, AbstractEvent, AbstractStream, ArraySpec, Tile, TileFunction
from ooc_chol.kernels.interfaces import AbstractSolveKernels, TileDevice
from ooc_chol.kernels.registry import kind_of
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.runtime.block_scan import AbstractScanned, BlockScan, ScanStreams
from ooc_chol.runtime.passes import Pass, Track, device_for_a_pass, finish
from ooc_chol.runtime.vectors import copy_columns_in, copy_columns_out, vector_arrays
from ooc_chol.tasks.tiling import TileIndex

#: Slots through which tiles pass that the device does not keep.
IN_TRANSIT = 4
#: Right-hand sides from which on a device is worth its opening and a journey of L, and bytes of L in memory from which on even
#: one is: an H200's host reads L at 15 GB/s for a narrow solve, the link at 55.
LEAST_COLUMNS, LEAST_BYTES = 32, 4 << 30
#: Bytes of L from which on several devices are worth their opening: 20 ms of one link.
TEAM_BYTES = 1 << 30
#: Arrays of a pass.
_MOST_ARRAYS = 6


def largest_narrow_bytes(store: AbstractStore) -> int:
    """Stored bytes of the largest tile of a narrow format; 0 where all are FP64."""
    if store.formats is None:
        return 0
    sizes = (
        fmt.stored_bytes(store.grid.entries(*index))
        for index, fmt in zip(store.grid.tiles(), store.formats, strict=True)
        if fmt != store.fmt
    )
    return max(sizes, default=0)


def columns_that_fit(device: TileDevice, store: AbstractStore, budget_bytes: int, *, column_bytes: int, others: int = 0) -> int:
    """Right-hand sides that a budget holds beside slots in transit, workspace, buffers of narrow formats, and other arrays."""
    fixed = _needed_bytes(device, store) + others + _MOST_ARRAYS * PAGE_BYTES  # each ends at a page
    fitting = (budget_bytes - fixed) // column_bytes
    if fitting < 1:
        advice = "it holds no right-hand side beside the tiles in transit; give a larger memory_budget, or smaller tiles"
        raise BudgetError(f"solves on {device.name}", fixed + column_bytes, budget_bytes, advice)
    return fitting


def _needed_bytes(device: TileDevice, store: AbstractStore) -> int:
    """Bytes that a device needs for sweeps beside right-hand sides and other arrays."""
    narrow = NARROW_BUFFERS * whole_pages(largest_narrow_bytes(store))
    return IN_TRANSIT * slot_bytes_of(store.grid, store.fmt) + device.kernels.workspace_bytes(store.grid.nb) + narrow


class _Room(NamedTuple):
    """The device's memory: slots in transit, those of tiles that are kept, arrays; and what uses it."""

    entries: Tile
    scratch: tuple[Tile, ...]
    batches: dict[int, list[Tile]]  #: By the number of a stream: what it has room for of products
    kernels: AbstractSolveKernels  #: Made once the device has memory: they need its workspace
    scan: BlockScan[TileIndex]  #: Of tiles of L


@final
class _Tiles(AbstractScanned[TileIndex]):
    """Tiles of L where they lie on the device, else in slots of an arena: in transit, behind these kept ones by their ranks."""

    def __init__(
        self, device: TileDevice, store: AbstractStore, arena: AbstractArena, ranks: Mapping[TileIndex, int] | None
    ) -> None:
        self._device, self._store, self._arena, self._ranks = device, store, arena, ranks
        self._n_held, self._n_tiles, self._type = arena.n_slots - IN_TRANSIT, store.grid.n_tiles, store.fmt.dtype.name
        self._in_place: dict[TileIndex, Tile | None] = {}

    def in_place(self, key: TileIndex) -> Tile | None:
        if key not in self._in_place:
            self._in_place[key] = self._store.tile_on(self._device.name, key)
        return self._in_place[key]

    def _rank(self, index: TileIndex) -> int:
        last = self._n_tiles - 1
        return last - self._store.grid.packed(*index) if self._ranks is None else self._ranks.get(index, self._n_tiles)

    def is_kept(self, key: TileIndex) -> bool:
        return self._rank(key) < self._n_held

    def place(self, key: TileIndex, slot: int | None) -> Tile:
        number = IN_TRANSIT + self._rank(key) if slot is None else slot
        return self._arena.tile(number, self._store.grid.shape(*key), self._type)

    def bring(self, stream: AbstractStream, key: TileIndex, tile: Tile) -> None:
        self._device.copy_in(stream, self._store, key, tile)

    def nbytes(self, key: TileIndex) -> int:
        return self._store.format_of(key).stored_bytes(self._store.grid.entries(*key))

    def format_of(self, key: TileIndex) -> str:
        return self._store.format_of(key).name


@final
class DeviceSweeps(AbstractTeamSweeps):
    """Sweeps of one device, which is current.

    What the budget leaves holds tiles of L for later sweeps, the last in stored order first: all sweeps over trailing triangles
    need those. Copies of tiles run ahead by :data:`IN_TRANSIT`. Of an L on GPUs nothing is held: tiles that lie here are used in
    place, and the others are read again rather than memory got and given back for them.
    """

    def __init__(
        self,
        device: TileDevice,
        store: AbstractStore,
        *,
        budget_bytes: int,
        needs: Needs,
        track: Track,
        ranks: Mapping[TileIndex, int] | None = None,
    ) -> None:
        self.grid, self.block_rows, self.device = store.grid, store.grid.size(0), device.name
        self._device, self._store, self._budget_bytes, self._track = device, store, budget_bytes, track
        self._arrays, self._sums, self._checks = needs.arrays, needs.sums, needs.checks
        self._most_streams, self._batches = needs.streams, needs.batches
        self._streams = ScanStreams.of(device, COMPUTES, COPIES)
        self._stream = self._streams.computing  # of what is enqueued now
        self._turn = self._stream, COMPUTES  # with its name in a trace
        self._turns, self._number = [self._turn], 0
        self._in_rows: dict[int, Tile | None] = {}
        self._urgent: tuple[AbstractStream, str] | None = None
        self._beside: AbstractStream | None = None
        # which tile is kept first, second, and so on; the last in stored order where none is given
        self._ranks = {} if store.devices else ranks
        self._room: _Room | None = None

    # room

    def columns_that_fit(self) -> int:
        n, made = self.grid.n, self.grid.size(0) if self._sums is not None or self._checks else 0
        size = self._store.fmt.itemsize
        others = sum(array.nbytes for array in self._arrays) + size * sum(map(np.prod, self._scratch_shapes(0)))
        of_batches = self._least_streams * self._batches * self._batch_entries
        column_bytes = size * (n + made + of_batches)
        return columns_that_fit(self._device, self._store, self._budget_bytes, column_bytes=column_bytes, others=int(others))

    @property
    def _least_streams(self) -> int:
        """Streams that there are whatever the budget."""
        return 1 if self._most_streams == 1 else 2

    @property
    def _batch_entries(self) -> int:
        """Entries of a batch of products for each column."""
        return min(BATCH, self.grid.nt - 1) * self.grid.size(0)

    def _scratch_shapes(self, columns: int) -> list[tuple[int, ...]]:
        """Arrays for sums over a panel of so many columns: a block of a matrix, a vector, and results of all blocks.

        For checks a block of rows.
        """
        if self._sums is None:
            return [(self.grid.size(0) * columns,)] if self._checks else []
        nb = self.grid.size(0)
        # blocks of a panel: two parts, each cut by tiles
        results = -(-self.grid.n // nb) + 2, max(1, len(self._sums.matrices)) * (1 + self._sums.forms)
        return [(nb * columns,), (nb,), results]

    def allocate(self, columns: int) -> tuple[Tile, ...]:
        """Allocate all of the device's memory; arrays without entries stay where they are."""
        grid, narrow = self.grid, largest_narrow_bytes(self._store)
        scratch, batch = self._scratch_shapes(columns), (self._batch_entries * columns,)
        least = [batch] * (self._least_streams * self._batches)
        shapes = [(grid.n * columns,), *scratch, *(array.shape for array in self._arrays if array.size), *least]
        specs = [spec for shape in shapes for spec in vector_arrays(shape, 1, self._store.fmt)]
        fixed = _needed_bytes(self._device, self._store) + sum(spec.nbytes for spec in specs)
        if fixed > self._budget_bytes:
            advice = "solve with fewer columns at a time, or give a larger memory_budget"
            raise BudgetError(f"right-hand sides on {self._device.name}", fixed, self._budget_bytes, advice)
        nbytes = slot_bytes_of(grid, self._store.fmt)
        wanted = grid.n_tiles if self._ranks is None else len(self._ranks)
        lent = self._workspaces(self._budget_bytes - fixed, batch)
        n_held = min(wanted, (self._budget_bytes - fixed - sum(spec.nbytes for spec in lent)) // nbytes)
        specs += lent
        arena = self._device.allocate(IN_TRANSIT + n_held, nbytes, grid.nb, specs, narrow_bytes=narrow)
        self._track.resident_bytes = arena.n_slots * nbytes + sum(spec.nbytes for spec in specs)
        tiles_of_l = _Tiles(self._device, self._store, arena, self._ranks)
        scan = BlockScan(self._device, tiles_of_l, slots=IN_TRANSIT, streams=self._streams, track=self._track)
        there = iter(arena.arrays)  # as their shapes above
        entries, scratch_tiles = next(there), tuple(islice(there, len(scratch)))
        self._room = _Room(entries, scratch_tiles, {}, self._device.kernels.create_solves(), scan)
        tiles = tuple(next(there) if array.size else array for array in self._arrays)
        least_batches = list(islice(there, len(least)))
        self._add_streams(list(there), least_batches)
        for array, tile in zip(self._arrays, tiles, strict=True):
            if array.size:
                copy_columns_in(self._device, self._stream, array, tile, slot_bytes=nbytes)
        return tiles

    def _workspaces(self, spare_bytes: int, batch: tuple[int, ...]) -> list[ArraySpec]:
        """For streams beside the first and the urgent one, as there is room: a workspace, which the kernels have for those two.

        Behind it what it has room for of products.
        """
        count, workspace = self._most_streams - 1, vector_arrays((kind_of(self.device).product_workspace_bytes // 8,), 1)
        each = [*workspace, *vector_arrays(batch, self._batches, self._store.fmt)]
        nbytes = sum(whole_pages(spec.nbytes) for spec in each)
        return each * (count if nbytes == 0 else min(count, spare_bytes // nbytes))

    def _add_streams(self, lent: Sequence[Tile], batches: Sequence[Tile]) -> None:
        """More streams that compute, with what is lent to them, and an urgent one."""
        room, step = self._allocated.batches, 1 + self._batches
        for number, first in enumerate(range(0, len(lent), step), 1):
            name = f"{COMPUTES} {number}"
            self._turns.append((self._device.create_stream(name), name))
            self._kernels.lend(self._turns[-1][0], lent[first])
            room[number] = [*lent[first + 1 : first + step]]
        room[0], room[len(self._turns)] = [*batches[: self._batches]], [*batches[self._batches :]]
        if self._most_streams > 1:
            name = f"{COMPUTES} urgent"
            self._urgent = self._device.create_stream(name, is_urgent=True), name

    def close(self) -> None:
        """Let go of the device's memory, which would outlive it in the traceback of an error."""
        if self._room is not None:
            self._room.scan.close()
        self._room = None

    @property
    def _allocated(self) -> _Room:
        assert self._room is not None
        return self._room

    @property
    def _kernels(self) -> AbstractSolveKernels:
        return self._allocated.kernels

    def array(self, rows: int, columns: int) -> Tile:
        """The large array in which columns lie, as ``rows`` by ``columns``."""
        return self._allocated.entries[: rows * columns].reshape(rows, columns)

    # tiles of L

    def tiles(self, order: Sequence[TileIndex], columns: int) -> Generator[tuple[TileIndex, Tile], None, None]:
        """Tiles that the stream may use."""

        def flops(index: TileIndex) -> int:
            return (1 if index.i == index.j else 2) * self.grid.entries(*index) * columns * self._store.fmt.flops_factor

        return self._allocated.scan.over(order, flops, self._turn)

    def each(self, parts: Sequence[Part]) -> Iterator[Part]:
        """In two streams by turns: the end of one call, which leaves a part of the device idle, is filled by the next."""
        if len(parts) == 1:
            yield parts[0]
            return
        computing, beside = self._streams.computing, self._beside or self._device.create_stream(f"{COMPUTES} beside")
        self._beside = beside
        beside.wait(computing.record())
        for number, part in enumerate(parts):
            self._stream = beside if number % 2 else computing
            yield part
        self._stream = computing
        computing.wait(beside.record())

    def substitute(self, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        self._kernels.substitute(self._stream, l_kk, x_k, transposed=transposed)

    def subtract(self, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        self._kernels.subtract(self._stream, target, l_ij, x, transposed=transposed)

    def copied(self, x_k: Tile) -> Tile:
        """A copy in the scratch array."""
        (entries,) = self._allocated.scratch
        copy = entries[: x_k.size].reshape(x_k.shape)

        def put(rows: range, cols: range, out: Tile, stream: Any) -> None:
            out[...] = x_k

        self.generate(put, range(len(x_k)), range(x_k.shape[1]), copy)
        return copy

    def hand_over(self, part: Tile, rows: NDArray[Any], columns: slice) -> None:
        self.take_back(part, rows, columns)

    # columns

    def bring_rows(self, x: NDArray[Any], part: Tile) -> None:
        copy_columns_in(self._device, self._stream, x, part, slot_bytes=slot_bytes_of(self.grid, self._store.fmt))

    def turn_to(self, number: int) -> int:
        self._number = number % len(self._turns)
        self._turn = self._turns[self._number]
        self._stream = self._turn[0]
        return self._number

    def hurry(self, *, is_behind: bool = True) -> int:
        if self._urgent is not None:
            if is_behind:
                self._urgent[0].wait(self._stream.record())
            self._turn, self._number = self._urgent, len(self._turns)
            self._stream = self._turn[0]
        return self._number

    def wait(self, event: AbstractEvent) -> None:
        self._stream.wait(event)

    def record(self) -> AbstractEvent:
        return self._stream.record()

    def copy(self, source: Tile, part: Tile) -> None:
        self._device.copy_between(self._stream, source, part)

    # products of several tiles

    def has_row(self, i: int) -> bool:
        return self._batches > 0 and self._row(i) is not None

    def _row(self, i: int) -> Tile | None:
        if i not in self._in_rows:
            self._in_rows[i] = self._store.row_on(self.device, i)
        return self._in_rows[i]

    def multiply_each(self, i: int, tiles: range, x: Tile, *, transposed: bool) -> Tile:
        row = self._row(i)
        assert row is not None  # has_row said so
        l_ij = row[tiles.start : tiles.stop]
        out = self._batch(0, (len(tiles), l_ij.shape[2 if transposed else 1], x.shape[-1]))
        begun = self._track.now(self._stream)
        self._kernels.multiply_each(self._stream, out, l_ij, x, transposed=transposed)
        self._track.nbytes += len(tiles) * self._store.fmt.stored_bytes(self.grid.entries(i, 0))
        if begun is not None:
            flops = 2 * l_ij.size * x.shape[-1] * self._store.fmt.flops_factor
            span, label = (begun, self._track.now(self._stream)), f"tiles ({i}, {tiles[0]}) to ({i}, {tiles[-1]})"
            self._track.ran("compute", (i, tiles[0]), self._turn[1], span, flops=flops, label=label)
        return out

    def from_elsewhere(self, products: Tile, other: AbstractTeamSweeps) -> Tile:
        assert isinstance(other, DeviceSweeps)  # one of the same team
        if self._device.reaches(other._device):
            return products
        here = self._batch(1, products.shape)
        self.copy(products, here)
        return here

    def subtract_products(self, targets: Tile, products: Tile, which: Sequence[int]) -> None:
        self._kernels.subtract_products(self._stream, targets, products, which)

    def _batch(self, which: int, shape: tuple[int, ...]) -> Tile:
        """Room of the stream for products."""
        return self._allocated.batches[self._number][which][: math.prod(shape)].reshape(shape)

    def synchronize(self) -> None:
        self._device.synchronize()

    def current(self) -> AbstractContextManager[object]:
        return self._device.current()

    def bring(self, x: NDArray[Any], columns: slice) -> Tile:
        """Copy columns of a host array to the device."""
        part = self.array(len(x), columns.stop - columns.start)
        copy_columns_in(
            self._device, self._stream, x, part, slot_bytes=slot_bytes_of(self.grid, self._store.fmt), columns=columns
        )
        return part

    def take_back(self, part: Tile, x: NDArray[Any], columns: slice = slice(None)) -> None:
        if x.size:
            copy_columns_out(
                self._device, self._stream, part, x, slot_bytes=slot_bytes_of(self.grid, self._store.fmt), columns=columns
            )

    def prepare(self, matrices: Sequence[FunctionSource]) -> None:
        """Let tile functions compile and upload on this device, before anything is timed."""
        for matrix in matrices:
            self._device.prepare(matrix.prepare)

    def generate(self, function: TileFunction, rows: range, cols: range, out: Tile) -> None:
        """Enqueue a call of the function."""
        self._device.generate(self._stream, function, rows, cols, out)

    def fill(self, matrix: FunctionSource, columns: range, y: Tile) -> None:
        """A tile row at a time."""
        for i in range(self.grid.nt):
            self.generate(matrix.function, self.grid.span(i), columns, self.rows(y, i))

    def add_column_squares(self, x: Tile, out: Tile) -> None:
        self._kernels.add_column_squares(self._stream, x, out)

    def set_product(self, y: Tile, vectors: Tile, out: Tile) -> None:
        """``out += y[i].T @ vectors[i]``, a tile row at a time."""
        for i in range(self.grid.nt):
            self._kernels.add_product(self._stream, out, self.rows(y, i), self.rows(vectors, i), transposed=True)

    def panel_sums(
        self, panel: Tile, columns: range, blocks: Sequence[range], *, sums: PanelSums, vectors: Tile
    ) -> list[NDArray[np.float64]]:
        """One block after the other; the numbers come back together."""
        (entries, scratch, results), step = self._allocated.scratch, 1 + sums.forms
        for rows, line in zip(blocks, results, strict=False):
            part = panel[rows.start - columns.start : rows.stop - columns.start]
            made = entries[: part.size].reshape(part.shape)
            for number, matrix in enumerate(sums.matrices):
                self.generate(matrix.function, rows, columns, made)
                numbers = line[number * step : (number + 1) * step]
                self._kernels.inner(self._stream, part, made, numbers[:1])
                for vector in range(sums.forms):
                    ends = vectors[rows.start : rows.stop, vector], vectors[columns.start : columns.stop, vector]
                    self._kernels.form(self._stream, ends, made, scratch, numbers[1 + vector : 2 + vector])
        found = np.zeros(results.shape)
        self.take_back(results, found)
        self.finish()
        return [line.reshape(-1, step)[: len(sums.matrices)] for line in found[: len(blocks)]]

    def finish(self) -> None:
        used = [stream for stream, _ in (*self._turns, *([self._urgent] if self._urgent else []))]
        finish(self._device, [*used, self._streams.copying])
        self._track.settle()


def _bytes_of(store: AbstractStore) -> int:
    """Bytes of the triangle, all in the type of L."""
    return store.fmt.itemsize * store.grid.n**2 // 2


@final
@dataclass(frozen=True, eq=False)
class DeviceSolver(AbstractTeamSolver):
    """Opens a device for each call, and closes it at its end.

    Calls raise ``BudgetError`` when the budget does not hold one column and the tiles in transit, and ``TierError`` when a tile
    cannot be read.
    """

    open_device: Callable[[], TileDevice]
    #: ``page_locked(arrays)`` page-locks host memory inside a ``with`` block
    page_locked: Callable[[Sequence[NDArray[Any]]], AbstractContextManager[None]]
    #: Most bytes on the device: asked when it is opened, as a driver takes longer to answer than to factor a small matrix
    budget: Callable[[], int]
    team: tuple[DeviceSolver, ...] = ()  #: This one and those of all other devices that factored, where there are several

    def takes(self, store: AbstractStore, columns: int) -> bool:
        """Tell whether so many right-hand sides are for the device rather than the host."""
        is_long_way = _bytes_of(store) >= LEAST_BYTES and store.host_memory() is not None
        return columns >= LEAST_COLUMNS or (columns > 0 and (is_long_way or bool(store.devices)))

    def team_for(self, store: AbstractStore) -> Sequence[DeviceSolver]:
        """All devices that factored, where there are several and L is neither small nor on one of them alone."""
        return self.team if len(self.team) > 1 and _bytes_of(store) >= TEAM_BYTES and len(store.devices) != 1 else ()

    def sweepers_for(self, store: AbstractStore) -> Sequence[DeviceSolver]:
        """As :meth:`team_for`, and this one where all of L lies on one device, unless it is small."""
        return (self,) if len(store.devices) == 1 and _bytes_of(store) >= TEAM_BYTES else self.team_for(store)

    @contextmanager
    def opened(
        self, store: AbstractStore, run: Pass, needs: Needs = NOTHING, *, ranks: Mapping[TileIndex, int] | None = None
    ) -> Iterator[DeviceSweeps]:
        """Sweeps on the device, which keeps tiles by ``ranks``; copies reach L and the arrays in place where they can."""
        with device_for_a_pass(self.open_device, self.reaching(store, [*needs.arrays, *needs.locked])) as device:
            track = track_of_l(run, device.name)
            sweeps = DeviceSweeps(device, store, budget_bytes=self.budget(), needs=needs, track=track, ranks=ranks)
            try:
                yield sweeps
            finally:
                sweeps.close()

    def reaching(self, store: AbstractStore, arrays: Sequence[NDArray[Any]]) -> AbstractContextManager[None]:
        """Page-lock L, unless it is locked piece by piece and stays so, and arrays."""
        memory = None if store.locking() is not None else store.host_memory()
        return self.page_locked([*([] if memory is None else [memory]), *arrays])

    def without_locking(self) -> DeviceSolver:
        return replace(self, page_locked=lambda arrays: nullcontext())
