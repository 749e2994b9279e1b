"""Workers of one machine map each other's blocks: nothing is copied, nothing stays, and other ends get bytes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from distributed.protocol import deserialize, pickle, serialize

import ooc_chol as oc
from ooc_chol import FactorOptions
from tests.cluster_machines import cluster_of
from tests.host.registrar import Registrar
from tests.inside.cluster import (
    BlockGrid,
    BlockLocks,
    BlockPlace,
    ClusterRun,
    LBlock,
    SharedBlock,
    beacon_here,
    key_here,
    make_block,
    sees_here,
    shared_block,
    shared_blocks,
    shares_memory,
    without_memory,
    worker_addresses,
)
from tests.inside.hardware import HostKind
from tests.inside.memory import KEPT, RELEASER, SharedAddress, SharedMemory, locking, shared, shared_arrays
from tests.inside.precision import FP64
from tests.inside.tasks import Link, TileGrid

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

#: Order, tile size: eleven tile rows, the last one short.
N, NB = 210, 20
#: Two ends of a connection within a machine, and to another one.
HERE = {"sender": {"address": "tcp://10.0.0.1:5001"}, "recipient": {"address": "tcp://10.0.0.1:6002"}}
ELSEWHERE = {"sender": {"address": "tcp://10.0.0.1:5001"}, "recipient": {"address": "tcp://10.0.0.2:6002"}}


def covariance(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    np.exp(-np.abs(np.subtract.outer(np.asarray(rows), np.asarray(cols))) / 9.0, out=out)


@pytest.fixture(scope="module", autouse=True)
def functions_by_value():
    """Workers get functions of this file by value: they have no tests to import."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def block(seed: int = 0) -> SharedBlock:
    """A block of tiles of two shapes, in memory that others may map."""
    window = BlockGrid(TileGrid(7, 2), 2).window(BlockPlace(1, 0))
    shapes = {(i, j): ((1 if i == 3 else 2, 2), np.dtype(np.float64)) for i, j in window.tiles()}
    memory, tiles = shared_arrays(shapes)
    for tile in tiles.values():
        tile[...] = np.random.default_rng(seed).random(tile.shape)
    return shared_block(LBlock(window, tiles, None, 0.5, (1, 2), "me", 3), memory)


def open_files() -> int:
    """Memory like this that the process has open: other files may come and go by threads of Dask."""
    gc.collect()
    return sum("ooc-chol" in place for place in places_open())


def places_open() -> list[str]:
    """What each file that this process has open is, but for those that are closed meanwhile."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def files_in_memory(dask_worker=None) -> int:
    """Files in memory that a worker has open."""
    import contextlib
    import gc
    import os

    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found += "memfd:ooc-chol" in os.readlink(f"/proc/self/fd/{name}")
    return found


def kinds_of_blocks(dask_worker) -> list[bool]:
    """Of each block that a worker keeps, whether it is its own; it raises for one that is not in shared memory."""
    return [value.memory.is_ours for key, value in dask_worker.data.items() if str(key).startswith("block-")]


def soft_limit(files: int, dask_worker=None) -> int:
    """Let a worker have so many files open, and tell how many it could have."""
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return before


def assert_same(one: LBlock, other: LBlock) -> None:
    assert (one.window, one.seconds, one.link_bytes, one.worker, one.read_bytes) == (
        other.window,
        other.seconds,
        other.link_bytes,
        other.worker,
        other.read_bytes,
    )
    assert one.tiles.keys() == other.tiles.keys()
    assert all(np.array_equal(one.tiles[index], other.tiles[index]) for index in one.tiles)


def test_within_a_machine_a_block_is_seen_in_place_and_only_read():
    sent = block()
    header, frames = serialize(sent, context=HERE)
    assert sum(len(frame) for frame in frames) == 0
    got = deserialize(header, frames)
    assert_same(sent, got)
    sent.tiles[2, 0][0, 0] = 5.0
    assert got.tiles[2, 0][0, 0] == 5.0
    with pytest.raises(ValueError, match="read-only"):
        got.tiles[2, 0][0, 0] = 6.0


@pytest.mark.parametrize("context", [ELSEWHERE, None, {}], ids=["another machine", "disk", "nothing said"])
def test_elsewhere_a_block_goes_as_its_bytes(context):
    sent = block()
    header, frames = serialize(sent, context=context)
    assert sum(memoryview(frame).nbytes for frame in frames) >= sent.nbytes
    got = deserialize(header, [bytes(frame) for frame in frames])
    assert type(got) is LBlock
    assert_same(sent, got)
    sent.tiles[2, 0][0, 0] = 5.0
    assert got.tiles[2, 0][0, 0] != 5.0


def test_what_the_client_asks_for_goes_as_its_bytes_even_within_a_machine():
    header, frames = serialize(without_memory(block()), context=HERE)
    assert type(deserialize(header, frames)) is LBlock
    assert type(pickle.loads(pickle.dumps(block()))) is LBlock


def test_nothing_stays_open():
    before = open_files()
    sent = block()
    got = deserialize(*serialize(sent, context=HERE))
    assert open_files() == before + 4  # a file and a mapping each
    tile = got.tiles[2, 0]
    expected = sent.tiles[2, 0].copy()
    del sent, got
    assert open_files() == before + 2
    assert np.array_equal(tile, expected)  # who has a tile has its memory
    del tile
    assert open_files() == before


def test_memory_that_is_gone_is_no_other_memory():
    sent = block()
    header, frames = serialize(sent, context=HERE)
    del sent
    gc.collect()
    # Nothing has its descriptor, or whatever another thread has opened since.
    with pytest.raises(ConnectionError, match=r"cannot be opened|is gone"):
        deserialize(header, frames)
    other = SharedMemory.create(100)
    at = other.address
    for wrong in (at._replace(inode=at.inode + 1), at._replace(nbytes=99), at._replace(device=at.device + 1)):
        with pytest.raises(ConnectionError, match="another file"):
            SharedMemory.open(wrong)
    reader, writer = os.pipe()
    pipe = os.readlink(f"/proc/self/fd/{reader}")
    with pytest.raises(ConnectionError):  # at once, though nobody writes to it
        SharedMemory.open(SharedAddress(os.getpid(), reader, 0, 0, 1, 0))
    assert places_open().count(pipe) == 2
    os.close(reader)
    os.close(writer)


@pytest.mark.usefixtures("processes")
def test_memory_of_a_process_that_was_killed_stays_with_who_has_mapped_it():
    code = (
        "import sys; from tests.inside.memory import SharedMemory\n"
        "memory = SharedMemory.create(3); memory.bytes[:] = 7; print(*memory.address, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        address = SharedAddress(*map(int, process.stdout.readline().split()))
        seen = SharedMemory.open(address)
        process.kill()
        process.wait()
        assert seen.bytes.tolist() == [7, 7, 7]
        with pytest.raises(ConnectionError):
            SharedMemory.open(address)


def test_a_process_short_of_files_gets_a_copy(monkeypatch):
    sent = block()
    monkeypatch.setattr(shared, "_FILES_FOR_ONE", 10**9)
    assert not shared.has_room()
    got = deserialize(*serialize(sent, context=HERE))
    assert type(got) is LBlock
    assert_same(sent, got)


@pytest.fixture
def replicas_stay(two_workers):
    """Dask drops no copy of a block, which it does every two seconds."""
    two_workers.amm.stop()
    yield
    two_workers.amm.start()


@pytest.mark.usefixtures("replicas_stay")
def test_workers_of_a_machine_map_blocks_and_give_all_back(two_workers):
    expected = np.asarray(oc.cholesky(oc.from_function(N, covariance), tile_size=NB, devices="host"))
    assert shares_memory(two_workers, worker_addresses(two_workers))
    before = two_workers.run(files_in_memory)
    with oc.cholesky(oc.from_function(N, covariance), tile_size=NB, client=two_workers) as factor:
        owned = two_workers.run(kinds_of_blocks)
        assert all(any(each) and not all(each) for each in owned.values())  # own blocks, and the other's
        assert np.array_equal(np.asarray(factor), expected)
        assert factor.report.network_bytes == factor.report.plan.network_bytes
    last = time.monotonic() + 20
    while (after := two_workers.run(files_in_memory)) != before and time.monotonic() < last:
        time.sleep(0.05)
    assert after == before


def test_workers_short_of_files_have_the_same_bits(two_workers):
    expected = np.asarray(oc.cholesky(oc.from_function(N, covariance), tile_size=NB, devices="host"))
    limits = two_workers.run(soft_limit, 128)
    try:
        with oc.cholesky(oc.from_function(N, covariance), tile_size=NB, client=two_workers) as factor:
            assert np.array_equal(np.asarray(factor), expected)
    finally:
        for address, files in limits.items():
            two_workers.run(soft_limit, files, workers=[address])


@pytest.mark.usefixtures("clusters")
def test_workers_that_are_threads_and_one_alone_share_nothing():
    with cluster_of(1, processes=False) as client:
        assert not shares_memory(client, worker_addresses(client))
    assert not shares_memory(None, ["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"])


def test_workers_of_which_one_cannot_see_the_others_share_nothing(monkeypatch):
    gone = SharedMemory.create(1).address
    gc.collect()
    assert not sees_here([gone])
    assert sees_here([beacon_here()])
    for answers in ((beacon_here(), True), (beacon_here(), False), (None, True)):
        told = iter(answers)
        monkeypatch.setattr(shared_blocks, "asked_of_all", lambda _, calls, told=told: dict.fromkeys(calls, next(told)))
        assert shares_memory(None, ["tcp://10.0.0.1:1", "tcp://10.0.0.1:2"]) is (None not in answers and False not in answers)


def test_workers_with_gpus_have_such_memory_one_on_each_machine_too(monkeypatch):
    asked = []

    def answered(client, calls):
        asked.append(set(calls))
        return dict.fromkeys(calls, beacon_here() if len(asked) == 1 else True)

    monkeypatch.setattr(shared_blocks, "asked_of_all", answered)
    machines = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"]
    assert shares_memory(None, machines, copies=True)
    assert asked == [set(machines)] * 2
    assert not shares_memory(None, ["inproc://10.0.0.1/1"], copies=True)


def test_workers_that_share_nothing_have_the_same_bits(two_workers, monkeypatch):
    expected = np.asarray(oc.cholesky(oc.from_function(N, covariance), tile_size=NB, devices="host"))
    before = two_workers.run(files_in_memory)
    monkeypatch.setattr(shared_blocks, "shares_memory", lambda client, workers, copies: False)
    with oc.cholesky(oc.from_function(N, covariance), tile_size=NB, client=two_workers) as factor:
        assert two_workers.run(files_in_memory) == before
        assert np.array_equal(np.asarray(factor), expected)


def wait_until_empty(locked: dict) -> None:
    gc.collect()
    last = time.monotonic() + 20
    while locked and time.monotonic() < last:
        time.sleep(0.01)
    assert not locked


def never() -> bool:
    return False


def tiles_of(blocks: list[SharedBlock]) -> list:
    return [(each.memory, each.tiles) for each in blocks]


def lock(registrar: Registrar, given: SharedBlock) -> None:
    """Page-lock a block, and wait for it."""
    locks = BlockLocks(registrar, tiles_of([given]))
    assert all(locks.holds(*ends_of(tile), never) for tile in given.tiles.values())


@pytest.fixture
def kept():
    """Page-locked memory waits for its next use as in a worker that has plenty."""
    KEPT.only_for("a test", 1 << 40)
    yield KEPT
    KEPT.only_for(None, 0)
    RELEASER.release_now()


def test_a_block_is_page_locked_once_and_unlocked_when_it_goes():
    registrar, blocks = Registrar(), [block(1), block(2)]
    first = BlockLocks(registrar, tiles_of(blocks))
    for tile in (tile for each in blocks for tile in each.tiles.values()):
        low = tile.ctypes.data
        assert first.holds(low, low + tile.nbytes, never)
    registered = len(registrar.registered)
    again = BlockLocks(registrar, tiles_of(blocks[:1]))
    tile = blocks[0].tiles[2, 1]
    assert again.holds(tile.ctypes.data, tile.ctypes.data + tile.nbytes, never)
    assert again.waited_seconds == 0 and again.refused_bytes == 0
    assert len(registrar.registered) == registered == len(registrar.locked)
    end = max(each.memory.bytes.ctypes.data + each.memory.bytes.nbytes for each in blocks)
    assert not first.holds(end, end + 8, never) and not first.holds(0, 8, never)
    del first, again, tile, blocks
    wait_until_empty(registrar.locked)


def test_memory_that_was_locked_is_used_again_for_a_block_of_its_size(kept):
    registrar, first = Registrar(), block(1)
    lock(registrar, first)
    before, address = len(registrar.registered), first.memory.address
    del first
    gc.collect()
    assert registrar.locked
    second = block(2)
    assert second.memory.address == address._replace(use=1)
    lock(registrar, second)
    assert len(registrar.registered) == before
    assert_same(second, deserialize(*serialize(second, context=HERE)))
    with pytest.raises(ConnectionError, match="something else"):  # what was told of the first use is of no use any more
        SharedMemory.open(address)
    other = SharedMemory.create(second.memory.bytes.nbytes + 8)
    assert other.address.inode != address.inode
    del second
    RELEASER.release_now()
    assert not registrar.locked
    assert block(3).memory.address.use == 0


@pytest.mark.usefixtures("processes")
def test_memory_that_another_process_still_has_is_not_used_again(kept):
    registrar, sent = Registrar(), block(1)
    lock(registrar, sent)
    code = (
        "import sys; from tests.inside.memory import SharedAddress, SharedMemory\n"
        f"memory = SharedMemory.open(SharedAddress{tuple(sent.memory.address)}); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        address = sent.memory.address
        del sent
        gc.collect()
        assert block(2).memory.address.inode != address.inode
        process.kill()
    assert block(3).memory.address == address._replace(use=1)


def test_memory_of_another_is_mapped_and_locked_once_for_all_its_uses(kept):
    registrar, ours, sent = Registrar(), Registrar(), block(1)
    lock(ours, sent)
    got = deserialize(*serialize(sent, context=HERE))
    lock(registrar, got)
    before, place = len(registrar.registered), got.tiles[2, 0].ctypes.data
    del got
    gc.collect()
    del sent
    gc.collect()
    sent = block(2)
    assert sent.memory.address.use == 1
    got = deserialize(*serialize(sent, context=HERE))
    assert got.tiles[2, 0].ctypes.data == place
    lock(registrar, got)
    assert len(registrar.registered) == before
    assert_same(sent, got)
    twice = deserialize(*serialize(sent, context=HERE))  # while the first one is in use
    assert twice.tiles[2, 0].ctypes.data != place
    assert_same(sent, twice)


def test_memory_of_the_same_purpose_comes_first_whatever_was_given_back_before(kept):
    registrar, shapes = Registrar(), {0: ((1000,), np.dtype(np.float64))}
    inodes = {}
    for order in ("abc", "bca", "cab"):
        held = {}
        for purpose in order:
            held[purpose], _ = shared_arrays(shapes, purpose)
            held[purpose].locks(registrar).begin(held[purpose].bytes.ctypes.data + 8000, ())
            assert inodes.setdefault(purpose, held[purpose].address.inode) == held[purpose].address.inode
        while held:
            held.popitem()
        gc.collect()
    assert len(set(inodes.values())) == 3
    other, _ = shared_arrays(shapes, "d")
    assert other.address.inode in inodes.values()


def test_locked_memory_is_not_kept_where_there_is_little(kept):
    registrar, given = Registrar(), block(1)
    lock(registrar, given)
    kept.only_for("a test", 1)
    del given
    wait_until_empty(registrar.locked)


def test_locked_memory_is_not_kept_for_another_l(kept):
    registrar, given = Registrar(), block(1)
    lock(registrar, given)
    del given
    gc.collect()
    assert registrar.locked
    kept.only_for("another L", 1 << 40)
    wait_until_empty(registrar.locked)


def test_what_the_driver_refuses_is_not_copied_in_place():
    registrar, given = Registrar(refuses=lambda number: True), block()
    locks, tile = BlockLocks(registrar, tiles_of([given])), given.tiles[2, 0]
    assert not locks.holds(tile.ctypes.data, tile.ctypes.data + tile.nbytes, never)
    assert locks.refused_bytes > 0


def test_tasks_lock_what_they_are_given_and_make_where_their_devices_gain_by_it(monkeypatch):
    registrar, blocks = Registrar(), BlockGrid(TileGrid(N, NB), 2)
    options = FactorOptions(tile_size=NB, devices="host:0", fp64="native")
    key = key_here(options, blocks, FP64)
    run = ClusterRun(blocks.tiles, options, FP64, None, key, oc.from_function(N, covariance), shares_memory=True)
    expected = np.asarray(oc.cholesky(oc.from_function(N, covariance), tile_size=NB, devices="host"))
    diagonal = make_block(run, blocks.window(BlockPlace(0, 0)), [])
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    below = make_block(run, blocks.window(BlockPlace(1, 0)), [diagonal])
    assert np.array_equal(below.tiles[2, 0], expected[2 * NB : 3 * NB, :NB])
    assert BlockLocks(registrar, tiles_of([diagonal])).holds(*ends_of(diagonal.tiles[0, 0]), never)
    assert BlockLocks(registrar, tiles_of([below])).holds(*ends_of(below.tiles[2, 0]), never)
    addresses = sorted(each.memory.bytes.ctypes.data for each in (diagonal, below))
    assert sorted(registrar.registered) == addresses, "by the task, and not again"
    del diagonal, below
    wait_until_empty(registrar.locked)


def test_a_task_that_makes_all_of_l_has_the_plan_of_one_process_and_locks_what_it_reads_again(monkeypatch):
    registrar, grid, source = Registrar(), TileGrid(N, NB), oc.from_function(N, covariance)
    how = {"tile_size": NB, "devices": "host:0", "fp64": "native", "memory_budget": 12 * 8 * NB * NB + (1 << 16)}
    with oc.cholesky(source, **how) as factor:
        expected, fetched = np.asarray(factor), factor.report.bytes.executed["fetch"]
    blocks = BlockGrid(grid, grid.nt)
    options = FactorOptions(**how)
    run = ClusterRun(grid, options, FP64, None, key_here(options, blocks, FP64), source, shares_memory=True)
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    monkeypatch.setattr(locking, "PIECE_BYTES", 4096)  # that of a tile, which begins with a page
    (place,) = blocks.places()
    whole = make_block(run, blocks.window(place), [])
    assert all(np.array_equal(whole.tiles[i, j], expected[i * NB :][:NB, j * NB :][:, :NB]) for i, j in grid.tiles() if i > j)
    assert whole.link_bytes[Link.FETCH] == fetched > 0
    last = time.monotonic() + 20
    while len(registrar.registered) < grid.n_tiles and time.monotonic() < last:
        time.sleep(0.01)
    turn = {index: registrar.registered.index(tile.ctypes.data) for index, tile in whole.tiles.items()}
    assert turn[grid.nt - 1, 0] < turn[grid.nt - 2, grid.nt - 2], "in the order of the plan, not of the memory"
    del whole
    wait_until_empty(registrar.locked)


def ends_of(tile: np.ndarray) -> tuple[int, int]:
    return tile.ctypes.data, tile.ctypes.data + tile.nbytes
