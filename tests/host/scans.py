"""What a scan over blocks promises on any device: checks that host and GPU share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from tests.inside.hardware import open_device
from tests.inside.interfaces import AbstractArena, AbstractDeviceKernels, AbstractStream, AbstractTier, AnyDevice, ArraySpec, Tile
from tests.inside.precision import FP32, PrecisionFormat
from tests.inside.runtime import AbstractScanned, BlockNames, BlockScan, Pass, ScanStreams, device_for_a_pass

Key = tuple[int, int]
#: Blocks in a trace.
NAMES = BlockNames("A", "memory")


@final
class NoKernels(AbstractDeviceKernels):
    """Kernels of a device that only copies."""

    def workspace_bytes(self, nb: int) -> int:
        return 0

    def bind(self, nb: int, workspace: int) -> None:
        pass

    def close(self) -> None:
        pass


@final
class ByteBlocks(AbstractTier):
    """Blocks of bytes, which a copy reads through :meth:`read_stored`; every reading is told before it begins."""

    name = "memory"

    def __init__(self, sizes: Sequence[int], seed: int = 0, *, is_only_read: bool = False) -> None:
        self.is_only_read = is_only_read
        random = np.random.default_rng(seed)
        self.blocks = [random.integers(0, 256, size, dtype=np.uint8) for size in sizes]
        self.told: Callable[[int], object] = lambda block: None
        self.reads: list[int] = []

    def format_of(self, index: tuple[int, ...]) -> PrecisionFormat:
        return FP32

    def read_stored(self, index: tuple[int, ...], out: NDArray[np.uint8]) -> None:
        self.told(index[0])
        self.reads.append(index[0])
        out[...] = self.blocks[index[0]]

    def read(self, index: tuple[int, ...], out: NDArray[Any]) -> None:
        raise NotImplementedError

    def write(self, index: tuple[int, ...], data: NDArray[Any]) -> None:
        raise NotImplementedError


@final
class Blocks(AbstractScanned[Key]):
    """The first blocks are kept, in one array, tightly packed; some are used where they are stored."""

    def __init__(self, device: AnyDevice, tier: ByteBlocks, arena: AbstractArena, kept: int, in_place: frozenset[int]) -> None:
        self._device, self._tier, self._arena, self._kept, self._in_place = device, tier, arena, kept, in_place
        self._starts = np.cumsum([0, *(len(block) for block in tier.blocks)]).tolist()
        self.fails_at: int | None = None

    def in_place(self, key: Key) -> Tile | None:
        return self._tier.blocks[key[0]].reshape(1, -1) if key[0] in self._in_place else None

    def is_kept(self, key: Key) -> bool:
        return key[0] < self._kept

    def place(self, key: Key, slot: int | None) -> Tile:
        if slot is None:
            return self._arena.arrays[0][self._starts[key[0]] : self._starts[key[0] + 1]].reshape(1, -1)
        return self._arena.tile(slot, (1, self.nbytes(key)), "uint8")

    def bring(self, stream: AbstractStream, key: Key, tile: Tile) -> None:
        if key[0] == self.fails_at:
            raise TierError(f"block {key[0]} is not to be had")
        self._device.copy_stored(stream, self._tier, key, tile)

    def nbytes(self, key: Key) -> int:
        return len(self._tier.blocks[key[0]])

    def format_of(self, key: Key) -> str:
        return "pattern"


class Opened(NamedTuple):
    """A scan on an open device, and rows of memory on it for what is made of blocks."""

    device: AnyDevice
    tier: ByteBlocks
    scanned: Blocks
    scan: BlockScan[Key]
    streams: ScanStreams
    rows: Tile
    run: Pass

    def use(self, key: Key, tile: Tile, row: int) -> None:
        """Enqueue what uses a block: it is copied to a row."""
        self.device.copy_between(self.streams.computing, tile, self.rows[row : row + 1, : self.scanned.nbytes(key)])

    def host_rows(self) -> NDArray[np.uint8]:
        """All rows, in host memory."""
        rows = self.rows
        return rows.copy() if isinstance(rows, np.ndarray) else rows.get()


@contextmanager
def opened(
    name: str,
    sizes: Sequence[int],
    *,
    slots: int,
    kept: int = 0,
    in_place: frozenset[int] = frozenset(),
    rows: int = 1,
    run: Pass | None = None,
    is_only_read: bool = False,
) -> Iterator[Opened]:
    """Open a device with a scan over blocks of these sizes and what a test looks at."""
    tier, run = ByteBlocks(sizes, is_only_read=is_only_read), run or Pass("scan", is_traced=False)
    largest = -(-max(sizes) // 8) * 8
    specs = [ArraySpec(np.dtype(np.uint8), (max(1, sum(sizes)),)), ArraySpec(np.dtype(np.uint8), (rows, largest))]
    with device_for_a_pass(lambda: open_device(name, NoKernels()), _nothing()) as device:
        arena = device.allocate(slots, largest, 1, specs)
        scanned, streams = Blocks(device, tier, arena, kept, in_place), ScanStreams.of(device)
        scan = BlockScan(device, scanned, slots=slots, streams=streams, track=run.track(name, NAMES))
        try:
            yield Opened(device, tier, scanned, scan, streams, arena.arrays[1], run)
        finally:
            scan.close()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def check_scans(
    name: str,
    sizes: Sequence[int],
    orders: Sequence[Sequence[int]],
    *,
    slots: int,
    kept: int = 0,
    in_place: frozenset[int] = frozenset(),
    ahead: bool = True,
    run: Pass | None = None,
    is_only_read: bool = False,
) -> None:
    """Blocks come in order and whole, in as many scans as there are orders; what is copied is counted, and is the least."""
    uses = [block for order in orders for block in order]
    places = {"kept": kept, "in_place": in_place, "rows": max(1, len(uses)), "is_only_read": is_only_read}
    with opened(name, sizes, slots=slots, run=run, **places) as on:
        row = 0
        for number, order in enumerate(orders):
            keys = [(block, 0) for block in order]
            for key, tile in on.scan.over(keys, flops=lambda key: key[0]):
                assert key == (uses[row], 0)
                on.use(key, tile, row)
                row += 1
            if ahead and number + 1 < len(orders):
                on.scan.run_ahead([(block, 0) for block in orders[number + 1]])
        on.scan.finish()
        made = on.host_rows()
        copied, brought = on.scan.copied_bytes, list(on.tier.reads)
        read = sum(track.nbytes for track in on.run.tracks)
    assert row == len(uses)
    for line, block in zip(made, uses, strict=False):
        assert np.array_equal(line[: sizes[block]], on.tier.blocks[block])
    seen: set[int] = set()
    wanted = []
    for block in uses:
        if block in in_place or block in seen:
            continue
        wanted.append(block)
        if block < kept:
            seen.add(block)
    assert brought == wanted
    assert copied == sum(sizes[block] for block in wanted)
    assert read == copied + sum(sizes[block] for block in uses if block in in_place)
