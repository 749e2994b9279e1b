"""Memory over file: the bits of a file alone and of memory alone, whatever is kept, and nothing left of a run that fails."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.errors import TierError
from tests.builders import executed, file_store, host_kernels, memory_store, planned
from tests.host.matrices import FAMILIES
from tests.host.registrar import Registrar
from tests.inside.dense import TieredStore, WriteBehind
from tests.inside.hardware import HostDevice
from tests.inside.precision import FP8, FP16, FP32, FP64
from tests.inside.process import ThreadTeam
from tests.inside.tasks import TileGrid
from tests.running_threads import running_threads

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

GRID = TileGrid(50, 16)
FORMATS = tuple(FP64 if i == j else (FP32, FP16, FP8)[(i + j) % 3] for i, j in GRID.tiles())


def tiered_store(path, kept, formats=None):
    """An empty store in a new file, which keeps some tiles."""
    return TieredStore(file_store(path / "L.ooc", GRID, formats=formats), kept)


def filled(store, seed=0):
    """``store`` with random tiles, and as memory alone would give them back."""
    reference, rng = memory_store(GRID, store.formats), np.random.default_rng(seed)
    for index in GRID.tiles():
        tile = rng.standard_normal(GRID.shape(*index))
        store.write(index, tile)
        reference.write(index, tile)
    return reference


def writers():
    """Threads of ours that write behind a run."""
    return [thread for thread in threading.enumerate() if thread.name.endswith("writer")]


def read_tile(store, index):
    out = np.full(GRID.shape(*index), np.nan)
    store.read(index, out)
    return out


ALL = tuple(GRID.tiles())


@pytest.mark.parametrize("formats", [None, FORMATS], ids=["fp64", "mixed"])
@pytest.mark.parametrize("kept", [ALL[:0], ALL[3:4], ALL[::2], ALL], ids=["nothing", "one", "half", "all"])
def test_every_tile_is_what_memory_alone_would_hold_during_the_run_and_in_the_file(tmp_path, kept, formats):
    store = tiered_store(tmp_path, kept, formats)
    reference = filled(store)
    assert {index for index in ALL if store.stored(index) is not None} == set(kept) == set(store.kept)
    for index in ALL:
        assert np.array_equal(read_tile(store, index), read_tile(reference, index))
        view = store.view(index)
        assert (view is not None) == (index in kept and store.format_of(index) == FP64)
        assert view is None or np.array_equal(view, read_tile(reference, index))
        assert store.reads_file(index) == (index not in kept)
        stored = np.empty(store.file.layout.nbytes(*index), np.uint8)
        store.read_stored(index, stored)
        assert np.array_equal(stored, reference.stored(index))
    store.complete()
    result = store.result()
    assert result is store.file and store.stored(ALL[0]) is None and not writers()
    for index in ALL:
        assert np.array_equal(read_tile(result, index), read_tile(reference, index))
    result.close()
    loaded = oc.load(tmp_path / "L.ooc")
    assert np.array_equal(loaded.diagonal(), np.concatenate([read_tile(reference, (k, k)).diagonal() for k in range(GRID.nt)]))
    loaded.close()


def test_a_widened_tile_is_in_the_file_alone(tmp_path):
    narrow = next(index for index in ALL if index[0] != index[1])
    store = tiered_store(tmp_path, ALL, FORMATS)
    filled(store)
    others = {index: read_tile(store, index) for index in ALL if index != narrow}
    kept_bytes = store.host_memory().nbytes
    store.widen([narrow])
    assert narrow not in store.kept and store.format_of(narrow) == FP64 and store.host_memory().nbytes == kept_bytes
    tile = np.random.default_rng(1).standard_normal(GRID.shape(*narrow))
    store.write(narrow, tile)
    assert np.array_equal(read_tile(store, narrow), tile)
    store.complete()
    for index, other in others.items():
        assert np.array_equal(read_tile(store.result(), index), other)
    store.close()


class InPlaceDevice(HostDevice):
    """Writes tiles where they lie, and says so, as a GPU does with page-locked memory."""

    def copy_out(self, stream, tile, tier, index, *, largest=None):
        def copy():
            view = tier.view(index)
            if view is None:
                tier.write(index, tile)
                return
            np.copyto(view, tile)
            assert tier.wants_word_of_writes
            tier.written(index)

        stream.enqueue(copy)


@pytest.mark.parametrize("device", [HostDevice, InPlaceDevice])
@pytest.mark.parametrize("policy", ["planned", "v1"])
def test_a_run_gives_the_bits_of_memory_alone_whatever_is_kept(tmp_path, device, policy):
    n, nb = 200, 16
    a = FAMILIES["exponential"](n)
    plan = planned(n, tile_size=nb, memory_budget=14 * 8 * nb**2, policy=policy, devices=["host:0", "host:1"])
    expected = memory_store(plan.grid)
    executed(plan, a, expected, [HostDevice(name, host_kernels()) for name in plan.devices])
    tiles = list(plan.grid.tiles())
    for kept in ([], tiles[: len(tiles) // 2], tiles):
        store = TieredStore(file_store(tmp_path / "L.ooc", plan.grid), kept)
        executed(plan, a, store, [device(name, host_kernels()) for name in plan.devices])
        store.complete()
        for index in tiles:
            out = np.empty(plan.grid.shape(*index))
            store.result().read(index, out)
            assert np.array_equal(out, expected.view(index))
        store.close()


def test_what_is_complete_in_memory_reaches_the_file_though_nobody_told(tmp_path):
    """As after a run that was stopped between a copy and the word of it, and then taken up."""
    store = tiered_store(tmp_path, ALL)
    for index in ALL:
        store.view(index)[...] = 1.0 + index[0]
    store.complete()
    assert all(np.all(read_tile(store.result(), index) == 1.0 + index[0]) for index in ALL)
    store.close()


def test_only_kept_tiles_are_page_locked_in_the_order_that_is_asked_for(tmp_path):
    registrar = Registrar()
    kept = ALL[::2]
    store = tiered_store(tmp_path, kept)
    store.lock(registrar, reversed(ALL))
    locking = store.locking()
    for index in kept:
        view = store.view(index)
        assert locking.holds(view.ctypes.data, view.ctypes.data + view.nbytes, lambda: False)
    assert sum(end - low for low, end in registrar.locked.items()) == store.kept_bytes
    store.discard()


def test_a_team_reads_large_tiles_of_the_file_and_sees_damage(tmp_path):
    grid = TileGrid(700, 600)
    store = TieredStore(file_store(tmp_path / "L.ooc", grid), [(1, 0)])
    tile, out = np.random.default_rng(0).standard_normal((600, 600)), np.empty((600, 600))
    store.write((0, 0), tile)
    team = ThreadTeam(3)
    store.read_by(team, (0, 0), out)
    assert np.array_equal(out, tile)
    with open(store.file.partial_path, "r+b") as file:
        file.seek(store.file.layout.offset(0, 0) + 1_500_000)
        file.write(b"\x55")
    with pytest.raises(TierError, match=r"tile \(0, 0\) is damaged"):
        store.read_by(team, (0, 0), out)
    team.close()
    store.discard()


# writers


@pytest.mark.usefixtures("waiting")
@pytest.mark.commit
def test_a_slow_disk_holds_up_who_writes_once_the_queue_is_full():
    gate, written = threading.Event(), []

    def write(item):
        gate.wait()
        written.append(item)

    writer = WriteBehind(write, threads=2, most_waiting=3)
    given = []

    def give():
        for item in range(20):
            writer.put(item)
            given.append(item)

    giver = threading.Thread(target=give)
    giver.start()
    time.sleep(0.3)
    assert len(given) == 5 and not written  # two are being written, three wait
    gate.set()
    giver.join()
    writer.drain()
    assert sorted(written) == list(range(20))
    writer.close()
    assert not writers()


def test_an_item_is_never_written_twice_at_once_nor_changed_meanwhile():
    inside, clashes = set(), []

    def write(item):
        if item in inside:
            clashes.append(item)
        inside.add(item)
        time.sleep(0.001)
        inside.discard(item)

    writer = WriteBehind(write, threads=4, most_waiting=8)
    for number in range(60):
        writer.settle(number % 3)
        if number % 3 in inside:
            clashes.append(number)
        writer.put(number % 3)
    writer.drain()
    writer.close()
    assert not clashes


def test_the_first_error_is_raised_by_all_that_follows():
    def write(item):
        raise TierError(f"no room for {item}")

    writer = WriteBehind(write, threads=1, most_waiting=2)
    writer.put(1)
    for call in (writer.drain, lambda: writer.settle(7), lambda: [writer.put(number) for number in range(9)]):
        with pytest.raises(TierError, match="no room for 1"):
            call()
    writer.close()
    assert not writers()


def test_a_store_that_nobody_closed_ends_its_threads(tmp_path):
    store = tiered_store(tmp_path, ALL)
    filled(store)
    assert writers()
    with pytest.warns(ResourceWarning, match="never closed"):
        del store
        gc.collect()
        until = time.monotonic() + 5
        while writers() and time.monotonic() < until:
            time.sleep(0.01)
        gc.collect()
    assert not writers()


N, NB = 240, 32
A = FAMILIES["exponential"](N)
#: What is asked for, by engine; the budget of the device holds a few tiles.
ENGINES = {
    "native": {"memory_budget": "80 kB", "fp64": "native"},
    "residue": {"memory_budget": "420 kB", "fp64": "residue"},
    "mixed": {"memory_budget": "100 kB", "precision_threshold": 1e-4},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("call", [1, 4, 30])
def test_a_write_that_fails_ends_the_run_and_leaves_nothing(tmp_path, monkeypatch, engine, call):
    calls = 0
    before, threads = sorted(os.listdir("/proc/self/fd")), running_threads()

    def failing(original):
        def write(descriptor, *arguments):
            nonlocal calls
            calls += threading.current_thread().name.endswith("writer")
            if calls >= call and threading.current_thread().name.endswith("writer"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(descriptor, *arguments)

        return write

    monkeypatch.setattr(os, "pwritev", failing(os.pwritev))
    monkeypatch.setattr(os, "pwrite", failing(os.pwrite))
    with pytest.raises(TierError, match=r"L\.ooc\.partial: no room"):
        oc.cholesky(A, store=tmp_path / "L.ooc", tile_size=NB, devices="host:0", host_budget="10 MB", **ENGINES[engine])
    assert calls >= call
    assert list(tmp_path.iterdir()) == [] and running_threads() == threads
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    oc.cholesky(A, store=tmp_path / "L.ooc", tile_size=NB, devices="host:0", host_budget="10 MB", **ENGINES[engine]).close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failed_pivot_leaves_nothing_either(tmp_path, engine):
    a = A.copy()
    a[200, 200] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(a, store=tmp_path / "L.ooc", tile_size=NB, devices="host:0", host_budget="10 MB", **ENGINES[engine])
    assert list(tmp_path.iterdir()) == [] and not writers()
