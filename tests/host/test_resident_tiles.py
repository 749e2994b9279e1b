"""Tiles that devices keep between the tasks of a worker: the same bits, fewer bytes over the link, and nothing left behind."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import ooc_chol as oc
from tests.entries import Entries
from tests.host.matrices import FAMILIES
from tests.host.window_blocks import dense, made_block, made_blocks, needed, run_of
from tests.inside.cluster import (
    BlockGrid,
    BlockPlace,
    ClusterFacts,
    PartCost,
    Placing,
    RowDistances,
    WorkerRates,
    rates,
    resident_tiles,
    task_room,
)
from tests.inside.hardware import HostKind
from tests.inside.interfaces import AbstractDeviceMemory
from tests.inside.memory import RELEASER
from tests.inside.precision import FP64
from tests.inside.tasks import Link, TileGrid

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

#: Order and tile size: ten tile rows, the last one short; tile rows of a block.
N, NB, HEIGHT = 154, 16, 3
A = FAMILIES["exponential"](N)


class Memory(AbstractDeviceMemory):
    """Memory of a device that stands for a GPU; what was given back is NaN."""

    there: ClassVar[set[Memory]] = set()

    def __init__(self, device: str, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self._bytes = np.full(nbytes, 255, np.uint8)  # NaN in every type
        self.there.add(self)

    @property
    def address(self) -> int:
        return self._bytes.ctypes.data

    def array(self, offset, shape, dtype):
        assert self in self.there, "memory is used that was given back"
        return np.ndarray(shape, dtype, buffer=self._bytes, offset=offset)

    def read(self, offset, out, pitch=None):
        raise NotImplementedError

    def write(self, offset, data):
        raise NotImplementedError

    def close(self) -> None:
        self._bytes[:] = 255
        self.there.discard(self)


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """Host devices keep tiles as GPUs do, and no test leaves any."""
    monkeypatch.setattr(HostKind, "keep", lambda self, name, nbytes: Memory(name, nbytes))
    yield Memory.there
    task_room().close_resident()
    assert not Memory.there


def fetched(blocks) -> int:
    return sum(block.link_bytes[Link.FETCH] for block in blocks.values())


WAYS = {
    "native": {},
    "float32": {"dtype": "float32"},
    "complex": {"dtype": "complex128"},
    "residue": {"fp64": "residue", "moduli": 13},
    "two devices": {"devices": "host:0,host:1"},
    "residue on two": {"fp64": "residue", "moduli": 13, "devices": "host:0,host:1"},
}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_what_a_device_keeps_is_not_fetched_again_and_changes_no_bit(options, memory):
    plain = run_of(N, HEIGHT, tile_size=NB, **options)
    a = A.astype(plain.fmt.dtype)
    before = made_blocks(plain, a, HEIGHT)
    after = made_blocks(replace(plain, keeps_tiles=True), a, HEIGHT)
    assert dense(plain, after).tobytes() == dense(plain, before).tobytes()
    assert len(memory) == len(options.get("devices", "one").split(","))
    if len(memory) == 1:
        assert fetched(after) == 0 < fetched(before)  # it has made all of L, and kept it
    else:
        of_l = sum(block.nbytes for block in before.values())
        assert fetched(after) <= min(of_l, fetched(before) / 2)


@pytest.mark.parametrize("budget", ["60 kB", "80 kB", "120 kB"])
def test_with_little_room_some_tiles_stay(budget):
    plain = run_of(N, HEIGHT, tile_size=NB, memory_budget=budget)
    a = A
    before, after = made_blocks(plain, a, HEIGHT), made_blocks(replace(plain, keeps_tiles=True), a, HEIGHT)
    assert dense(plain, after).tobytes() == dense(plain, before).tobytes()
    assert 0 < fetched(after) < fetched(before)


def test_a_worker_fetches_what_others_have_made_once():
    plain = run_of(N, HEIGHT, tile_size=NB)
    a, grid, run = A, BlockGrid(plain.grid, HEIGHT), replace(plain, keeps_tiles=True)
    blocks = made_blocks(plain, a, HEIGHT)
    own = {place: made_block(run, grid, a, place, needed(blocks, place)) for place in grid.places() if place.row % 2}
    assert all(np.array_equal(tile, blocks[place].tiles[index]) for place in own for index, tile in own[place].tiles.items())
    others = sum(block.nbytes for place, block in blocks.items() if not place.row % 2)
    assert 0 < fetched(own) <= others


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_beside_the_first_task_of_a_column_comes_what_the_next_column_needs_of_others(options):
    plain = run_of(N, HEIGHT, tile_size=NB, **options)
    a, grid, run = A.astype(plain.fmt.dtype), BlockGrid(plain.grid, HEIGHT), replace(plain, keeps_tiles=True)
    blocks, placing = made_blocks(plain, a, HEIGHT), Placing(("odd", "even"), (1, 0, 1, 0))
    places = [place for place in grid.places() if place.row % 2]
    made: dict[bool, dict] = {}
    for is_ahead in (False, True):
        task_room().close_resident()
        made[is_ahead] = {}
        for place in places:
            coming = placing.coming(place) if is_ahead else None
            beside = [] if coming is None else [blocks[coming.column, q] for q in range(place.column)]
            made[is_ahead][place] = made_block(run, grid, a, place, [*needed(blocks, place), *beside], coming)
    for place, block in made[True].items():
        assert all(np.array_equal(tile, blocks[place].tiles[index]) for index, tile in block.tiles.items())
    ahead, after = BlockPlace(3, 1), BlockPlace(3, 2)
    assert placing.coming(ahead) == after
    late, early = ({place: fetched({place: one[place]}) for place in places} for one in (made[False], made[True]))
    brought = early[ahead] - late[ahead]
    assert brought == late[after] - early[after] > 0 == sum(late.values()) - sum(early.values())
    assert all(early[place] == late[place] for place in places if place not in (ahead, after))


def test_a_task_for_fewer_devices_may_be_the_first_one():
    plain = run_of(N, HEIGHT, tile_size=NB, devices="host:0,host:1")
    grid, run = BlockGrid(plain.grid, HEIGHT), replace(plain, keeps_tiles=True)
    blocks = made_blocks(plain, A, HEIGHT)
    for place in (BlockPlace(3, 0), BlockPlace(1, 0)):  # of one tile row, and of three
        block = made_block(run, grid, A, place, needed(blocks, place))
        assert all(np.array_equal(tile, blocks[place].tiles[index]) for index, tile in block.tiles.items())


def test_tiles_that_are_not_given_are_not_brought():
    plain = run_of(N, HEIGHT, tile_size=NB)
    grid, run = BlockGrid(plain.grid, HEIGHT), replace(plain, keeps_tiles=True)
    blocks = made_blocks(plain, A, HEIGHT)
    one, other = (
        made_block(run, grid, A, place, needed(blocks, place), coming)
        for place, coming in ((BlockPlace(3, 1), BlockPlace(3, 2)), (BlockPlace(3, 2), None))
    )
    assert one.link_bytes[Link.FETCH] == sum(blocks[place].nbytes for place in ((3, 0), (1, 0), (1, 1)))
    assert all(np.array_equal(tile, blocks[3, 2].tiles[index]) for index, tile in other.tiles.items())


def test_what_comes_next_is_brought_beside_the_first_block_below_the_diagonal_if_its_row_is_another_s():
    placing = Placing(("a", "b"), (0, 1, 1, 0, 0, 1))
    found = {place: placing.coming(place) for place in BlockGrid(TileGrid(60, 5), 2).places()}
    there = {place: coming for place, coming in found.items() if coming is not None}
    assert there == {(3, 0): (3, 1), (3, 1): (3, 2), (5, 2): (5, 3), (5, 3): (5, 4)}


def test_memory_goes_back_when_it_is_asked_for_and_tasks_go_on(memory):
    plain = run_of(N, HEIGHT, tile_size=NB)
    a, grid, run = A, BlockGrid(plain.grid, HEIGHT), replace(plain, keeps_tiles=True)
    blocks = {}
    for place in grid.places():
        blocks[place] = made_block(run, grid, a, place, needed(blocks, place))
        assert len(memory) == 1
        RELEASER.release_now()
        assert not memory
    assert dense(plain, blocks).tobytes() == dense(plain, made_blocks(plain, a, HEIGHT)).tobytes()


def test_a_worker_without_a_task_gives_it_back_by_itself(memory, monkeypatch):
    monkeypatch.setattr(resident_tiles, "IDLE_SECONDS", 0.01)
    run = replace(run_of(N, HEIGHT, tile_size=NB), keeps_tiles=True)
    made_block(run, BlockGrid(run.grid, HEIGHT), A, BlockPlace(0, 0), [])
    last = time.monotonic() + 20
    while memory and time.monotonic() < last:
        time.sleep(0.01)
    assert not memory


def test_another_run_an_error_and_the_word_of_the_client_end_it(memory):
    run = replace(run_of(N, HEIGHT, tile_size=NB), keeps_tiles=True)
    a, grid, room = A, BlockGrid(run.grid, HEIGHT), task_room()
    made_block(run, grid, a, BlockPlace(0, 0), [])
    (first,) = memory
    other = replace(run, name="another")
    made_block(other, grid, a, BlockPlace(0, 0), [])
    assert len(memory) == 1 and first not in memory
    room.let_go(run.name)
    assert len(memory) == 1, "another run's"
    with room.turn:
        room.let_go(other.name)
        assert len(memory) == 1, "a task runs"
    room.let_go(other.name)
    assert not memory
    made_block(run, grid, a, BlockPlace(0, 0), [])
    with pytest.raises(np.linalg.LinAlgError):
        made_block(run, grid, -a, BlockPlace(0, 0), [])
    assert not memory


def on_worker(is_on: bool, dask_worker=None) -> int:
    """Let the host of a worker keep tiles as a GPU does, or no longer; how many pieces of memory it has kept until now."""

    class OnWorker(AbstractDeviceMemory):
        def __init__(self, device, nbytes):
            self.device, self.nbytes, self.bytes = device, nbytes, np.empty(nbytes, np.uint8)
            HostKind.pieces.append(self)

        address = property(lambda self: self.bytes.ctypes.data)
        read = write = None

        def array(self, offset, shape, dtype):
            return np.ndarray(shape, dtype, buffer=self.bytes, offset=offset)

        def close(self):
            self.bytes = None

    if is_on:
        HostKind.plain_keep, HostKind.pieces = HostKind.keep, []
        HostKind.keep = lambda self, name, nbytes: OnWorker(name, nbytes)
        return 0
    HostKind.keep = HostKind.plain_keep
    assert all(piece.bytes is None for piece in HostKind.pieces), "memory is left when the run is over"
    return len(HostKind.pieces)


def test_on_a_cluster_devices_keep_tiles_until_all_are_made(two_workers, monkeypatch):
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    source, how = oc.from_function(len(A), Entries(A)), {"tile_size": NB, "devices": "host:0", "client": two_workers}
    with oc.cholesky(source, **how) as factor:
        expected, plain = np.asarray(factor).tobytes(), factor.report
    monkeypatch.setattr(ClusterFacts, "copies", True)
    two_workers.run(on_worker, True)
    try:
        with oc.cholesky(source, **how) as factor:
            assert np.asarray(factor).tobytes() == expected
    finally:
        pieces = two_workers.run(on_worker, False)
    assert set(pieces.values()) == {1}
    report = factor.report
    assert report.link_bytes["fetch"] <= report.network_bytes < plain.link_bytes["fetch"]  # what others have made, once
    assert report.to_dict()["link_bytes"]["write"] == report.plan.stored_bytes


def test_a_plan_counts_what_stays_on_the_devices():
    grid = TileGrid(64, 8)
    of_l = sum(8 * grid.entries(i, j) for i, j in grid.tiles())
    state = SimpleNamespace(devices=("cuda:0", "cuda:1"))

    def share(budget: int, *, copies: bool = True) -> float | None:
        options = SimpleNamespace(memory_budget=budget)
        return rates._kept_share(SimpleNamespace(copies=copies, options=options, workers={1: state, 2: state}), grid, FP64)

    assert share(1 << 20) == 1.0 and share(1 << 20, copies=False) is None
    assert share(of_l // 4) == pytest.approx(0.5, rel=0.01)
    cost = PartCost(1e9, 0.0, 10**9)
    seconds = [cost.seconds(WorkerRates(1, 1e10, None, 1e9, kept)) for kept in (None, 0.5, 0.95)]
    assert seconds == pytest.approx([1.0, 0.5, 0.1])


def test_rows_that_come_again_first_are_nearest():
    distances, grid = RowDistances(12), BlockGrid(run_of(N, 2, tile_size=NB).grid, 2)
    for place in (BlockPlace(1, 1), BlockPlace(3, 1), BlockPlace(4, 1)):
        distances.begin(grid.window(place))
    row = {name: distances.of(row) for name, row in {"column": 2, "own": 8, "other": 6, "over": 1}.items()}
    assert row["column"] < row["other"] < row["own"] < row["over"]
