"""Memory that is page-locked in pieces while others use it, and released in the background; what locks them here keeps a list."""

from __future__ import annotations

import gc
import inspect
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol import HostMemory
from ooc_chol.errors import TierError
from tests.builders import planned
from tests.host.matrices import FAMILIES
from tests.host.registrar import MIB, Registrar, User, taken
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.dense import TileLayout, read_order, row_bands, store_opening, written_order
from tests.inside.hardware import HostKind
from tests.inside.interfaces import LockState
from tests.inside.memory import (
    HUGE_PAGE_BYTES,
    PieceLocks,
    allocate_aligned,
    bands,
    completed,
    forget,
    has_whole_rows,
    host_memory,
    locking,
    pages,
    release,
    touch,
)
from tests.inside.tasks import StepKind, TileGrid

pytestmark = pytest.mark.usefixtures("no_hang")

TILE = 4096


@pytest.fixture
def releaser(monkeypatch):
    """A releaser of the test's own, with a grace that never ends unless the test says so."""
    own = release.Releaser(grace_seconds=3600.0)
    monkeypatch.setattr(host_memory, "RELEASER", own)
    monkeypatch.setattr(store_opening, "RELEASER", own)
    yield own
    own.release_now()


def settled(condition) -> bool:
    """Whether a condition comes true; within some seconds."""
    deadline = time.monotonic() + 10.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def tiles_of(locks_or_memory, tiles: int) -> np.ndarray:
    return np.arange(tiles, dtype=np.int64) * TILE + locks_or_memory.ctypes.data


def lock_all(locks: PieceLocks, memory: np.ndarray, tiles: int, order=()) -> tuple[np.ndarray, int]:
    """Begin to lock so many tiles of one page each."""
    starts = tiles_of(memory, tiles)
    locks.begin(int(starts[-1]) + TILE, [(int(starts[tile]), int(starts[tile]) + TILE) for tile in order])
    return starts, int(starts[-1]) + TILE


def pieces_in_sight(tiles=8, *, piece=2, registrar=None, **options):
    """Locks of ``tiles`` pages in pieces of ``piece``, their memory and what locks them."""
    memory, registrar = allocate_aligned(tiles * TILE), registrar or Registrar()
    return PieceLocks(registrar, memory, piece_bytes=piece * TILE, **options), memory, registrar


# cutting


@st.composite
def layouts(draw):
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=30))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return starts[:-1].astype(np.int64), int(starts[-1])


@given(layouts(), st.integers(1, 40))
def test_bands_are_whole_rows_of_tiles_and_cover_all_of_them_once(layout, most):
    starts, end = layout
    pieces = bands(starts, end, most)
    assert [piece.low for piece in pieces[1:]] == [piece.high for piece in pieces[:-1]]
    assert (pieces[0].low, pieces[-1].high) == (0, end)
    assert all(piece.low in starts for piece in pieces)
    largest = max(np.diff([*starts, end]))
    assert all(piece.high - piece.low < most + largest for piece in pieces)
    assert all(piece.high - piece.low >= most for piece in pieces[:-1])


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.integers(1, 40), st.data())
def test_pieces_stay_for_any_later_need_and_what_misses_is_cut(before, after, most, later, data):
    old = [piece for piece in completed((), 5, 5 + before, most) if data.draw(st.booleans())]
    pieces = completed(old, 5, 5 + after, later)
    assert all(any(piece is one for one in pieces) for piece in old)
    assert all(one.high <= other.low for one, other in pairwise(pieces)), "two pieces overlap"
    assert all(sum(piece.low <= at < piece.high for piece in pieces) == 1 for at in range(5, 5 + after))
    assert all(0 < piece.high - piece.low <= later for piece in pieces if not any(piece is one for one in old))
    assert max(piece.high for piece in pieces) == max([5 + after, *(piece.high for piece in old)])


@pytest.mark.parametrize("devices", ["host:0", ("host:0", "host:1")])
def test_the_order_of_writes_is_the_plans(devices):
    plan = planned(600, devices=devices, tile_size=50, memory_budget=12 * 8 * 2500)
    order = written_order(plan)
    assert sorted(order) == list(plan.grid.tiles())
    for program in plan.programs:
        own = [step.tile for step in program.steps if step.kind is StepKind.WRITE]
        assert own == [tile for tile in order if tile in set(own)]
    assert sorted(read_order(plan)) == list(plan.grid.tiles())


@pytest.mark.parametrize(("n", "nb"), [(1500, 500), (1501, 500), (1100, 100), (40, 16), (513, 512)])
@pytest.mark.parametrize("pitch", [0, 24])
def test_bands_of_rows_share_no_page_and_hold_most_tiles(n, nb, pitch):
    grid, whole = TileGrid(n, nb), np.zeros((n, n + pitch))
    a = whole[:, :n]
    starts, end = row_bands(a, grid)
    low, high = np.lib.array_utils.byte_bounds(a)
    assert starts[0] == low and end == high and all(start % 4096 == 0 for start in starts[1:] if start > low)
    bounds = [*map(int, starts), end]
    outside = 0
    for i, j in grid.tiles():
        tile = a[grid.span(i).start : grid.span(i).stop, grid.span(j).start : grid.span(j).stop]
        first, last = np.lib.array_utils.byte_bounds(tile)
        assert first >= bounds[i]
        outside += last > bounds[i + 1]
    # A page holds 512 entries: the band's own end is in the next one only for tiles in the last columns.
    assert outside <= sum(n - grid.span(j).stop < 512 for i, j in grid.tiles() if i < grid.nt - 1)


def test_only_rows_of_adjacent_entries_are_locked():
    a = np.zeros((6, 6))
    assert has_whole_rows(a) and has_whole_rows(a[:, :4]) and has_whole_rows(a[:1]) and has_whole_rows(a[::2])
    assert not any(map(has_whole_rows, (a.T[:5], a[::-1], a[:, ::2], np.broadcast_to(a[:1], (6, 6)))))


# locking


def test_pieces_are_locked_in_the_order_of_use_and_the_others_behind_them():
    locks, memory, registrar = pieces_in_sight(8)
    starts, _ = lock_all(locks, memory, 8, order=[5, 4, 0])
    assert locks.holds(int(starts[7]), int(starts[7]) + TILE)
    assert registrar.registered == [int(starts[tile]) for tile in (4, 0, 2, 6)]
    locks.close()
    assert registrar.locked == {}


def test_fresh_memory_is_touched_and_keeps_what_it_holds():
    locks, memory, registrar = pieces_in_sight(3000, piece=200, is_fresh=True)
    memory[: 100 * TILE] = 7
    before = resident_bytes()
    starts, _ = lock_all(locks, memory, 3000)
    assert all(locks.holds(int(start), int(start) + TILE) for start in starts)
    assert resident_bytes() - before >= 2400 * TILE  # the first huge page was there
    assert np.all(memory[: 100 * TILE] == 7) and not memory[100 * TILE :].any()
    assert sorted(registrar.registered) == [piece.low for piece in locks.pieces]
    locks.close()


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_who_asks_waits_until_the_piece_is_decided_and_the_seconds_are_counted():
    locks, memory, registrar = pieces_in_sight(8)
    registrar.gate.clear()
    starts, _ = lock_all(locks, memory, 8)
    found = []
    asking = threading.Thread(target=lambda: found.append(locks.holds(int(starts[3]), int(starts[3]) + TILE)))
    asking.start()
    time.sleep(0.05)
    assert asking.is_alive() and not found
    registrar.gate.set()
    asking.join()
    assert found == [True] and locks.waited_seconds >= 0.05
    locks.close()


def test_refused_pieces_and_parts_of_two_are_not_held():
    locks, memory, registrar = pieces_in_sight(8, registrar=Registrar(refuses=lambda number: number == 1))
    starts, end = lock_all(locks, memory, 8)
    assert [locks.holds(int(start), int(start) + TILE) for start in starts] == [True] * 2 + [False] * 2 + [True] * 4
    assert locks.refused_bytes == 2 * TILE
    assert not locks.holds(int(starts[1]), int(starts[1]) + 2 * TILE), "a part of it is refused"
    assert not locks.holds(end, end + TILE) and not locks.holds(int(starts[0]) - TILE, int(starts[0]))
    assert not locks.holds(int(starts[7]), end + 1) and not locks.holds(int(starts[0]) - 1, int(starts[1]))
    locks.close()
    assert registrar.locked == {}


def test_what_lies_in_several_pieces_is_held_and_a_copy_is_cut_where_they_meet():
    locks, memory, _ = pieces_in_sight(8)
    starts, end = lock_all(locks, memory, 8)
    first = int(starts[0])
    assert locks.holds(first + 100, end - 100) and locks.cuts(first + 100, end - 100) == [int(starts[k]) for k in (2, 4, 6)]
    assert locks.holds(int(starts[2]), int(starts[4])) and not locks.cuts(int(starts[2]), int(starts[4]))
    assert locks.cuts(int(starts[2]), int(starts[4]) + 1) == [int(starts[4])]
    assert not locks.cuts(first - 1, end) and not locks.cuts(first, end + 1), "a part of it lies elsewhere"
    locks.close()
    assert not locks.holds(first, end) and not locks.cuts(first, end)


def test_memory_that_others_have_locked_is_held_and_left_to_them():
    class Found(Registrar):
        def register(self, address, nbytes):
            super().register(address, nbytes)
            del self.locked[address]
            return LockState.FOUND

    locks, memory, registrar = pieces_in_sight(4, registrar=Found())
    starts, _ = lock_all(locks, memory, 4)
    assert all(locks.holds(int(start), int(start) + TILE) for start in starts)
    locks.close()
    assert [what for what, _ in registrar.calls] == ["register"] * 2


def test_waiting_ends_when_the_run_is_stopped():
    locks, memory, registrar = pieces_in_sight(8)
    registrar.gate.clear()
    starts, _ = lock_all(locks, memory, 8)
    is_stopped, found = threading.Event(), []
    asking = threading.Thread(target=lambda: found.append(locks.holds(int(starts[7]), int(starts[7]) + TILE, is_stopped.is_set)))
    asking.start()
    is_stopped.set()
    locks.wake()
    asking.join(5.0)
    assert found == [False]
    registrar.gate.set()
    assert locks.holds(int(starts[7]), int(starts[7]) + TILE), "locking goes on for the next run"
    locks.close()


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError("no driver"), TierError), (oc.BudgetError("a", 2, 1, "b"), oc.BudgetError)]
)
@pytest.mark.parametrize("is_fresh", [False, True])
def test_an_error_of_the_locking_thread_reaches_who_waits(error, kind, is_fresh):
    locks, memory, registrar = pieces_in_sight(8, is_fresh=is_fresh)
    registrar.error = error
    starts, _ = lock_all(locks, memory, 8)
    with pytest.raises(kind) as caught:
        locks.holds(int(starts[7]), int(starts[7]) + TILE)
    assert caught.value is error or caught.value.__cause__ is error
    registrar.error = None
    lock_all(locks, memory, 8)
    assert locks.holds(int(starts[7]), int(starts[7]) + TILE), "a later run tries again"
    locks.close()


def test_an_interrupt_ends_the_waiting_of_the_main_thread():
    locks, memory, registrar = pieces_in_sight(8)
    registrar.gate.clear()
    starts, _ = lock_all(locks, memory, 8)
    killer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        locks.holds(int(starts[7]), int(starts[7]) + TILE)
    killer.join()
    registrar.gate.set()
    locks.close()
    assert registrar.locked == {}


@pytest.mark.usefixtures("waiting")
@pytest.mark.commit
def test_the_driver_is_left_to_others_twice_as_long_as_a_piece_took_unless_one_waits():
    locks, memory, registrar = pieces_in_sight(6, registrar=Registrar(seconds=0.05))
    starts, _ = lock_all(locks, memory, 6)
    assert settled(lambda: len(registrar.times) == 3)
    gaps = [after[0] - before[1] for before, after in pairwise(registrar.times)]
    assert min(gaps) >= 0.1
    locks.close()
    locks, memory, registrar = pieces_in_sight(6, registrar=Registrar(seconds=0.5))
    starts, _ = lock_all(locks, memory, 6)
    assert locks.holds(int(starts[5]), int(starts[5]) + TILE)
    gaps = [after[0] - before[1] for before, after in pairwise(registrar.times)]
    assert max(gaps) < 0.5
    locks.close()


def test_a_later_need_locks_what_misses_and_unlocks_nothing():
    memory, registrar = allocate_aligned(12 * TILE), Registrar()
    locks = PieceLocks(registrar, memory, piece_bytes=2 * TILE)
    base = memory.ctypes.data
    for tiles, registered in ((7, [0, 2, 4, 6]), (3, []), (12, [7, 9, 11])):
        before = len(registrar.calls)
        _, end = lock_all(locks, memory, tiles)
        assert locks.holds(base, end)
        assert [(what, (at - base) // TILE) for what, at in registrar.calls[before:]] == [("register", at) for at in registered]
    assert locks.cuts(base + 6 * TILE, base + 8 * TILE) == [base + 7 * TILE]
    locks.close()
    assert registrar.locked == {}


def test_what_a_range_of_the_order_touches_is_locked_first():
    locks, memory, registrar = pieces_in_sight(12)
    base = memory.ctypes.data
    locks.begin(base + 12 * TILE, [(base + 7 * TILE, base + 9 * TILE), (base + 4 * TILE, base + 6 * TILE)])
    assert locks.holds(base, base + 12 * TILE)
    assert [(at - base) // TILE for at in registrar.registered] == [6, 8, 4, 0, 2, 10]
    locks.close()


def test_memory_stays_mapped_while_it_is_locked_whatever_fails():
    class Failing(Registrar):
        def unregister(self, address):
            raise RuntimeError("the context is gone")

    locks, memory, registrar = pieces_in_sight(4, registrar=Failing())
    starts, _ = lock_all(locks, memory, 4)
    assert locks.holds(int(starts[3]), int(starts[3]) + TILE)
    with pytest.raises(RuntimeError, match="the context is gone"):
        locks.close()
    there = weakref.ref(memory)
    del locks, memory
    gc.collect()
    assert there() is not None
    for address in registrar.locked:
        del locking._KEPT[address]
    assert there() is None


# allocations


@pytest.mark.parametrize("nbytes", [1, TILE, 3 * MIB, 9 * MIB + TILE])
def test_allocations_begin_at_pages_and_large_ones_at_huge_pages(nbytes):
    memory = allocate_aligned(nbytes)
    assert memory.shape == (nbytes,) and memory.flags.writeable
    assert memory.ctypes.data % (HUGE_PAGE_BYTES if nbytes > 8 * MIB else TILE) == 0
    memory[...] = 3
    touch(memory)
    assert np.all(memory == 3)


def test_large_allocations_ask_for_huge_pages():
    assert is_advised(allocate_aligned(16 * MIB)) == Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()


def is_advised(memory: np.ndarray) -> bool:
    """Whether the system was told that a mapping may have huge pages."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            is_inside = low <= memory.ctypes.data < high
        elif is_inside and first == "VmFlags:":
            return "hg" in line.split()
    raise AssertionError("there is no such mapping")


def test_more_memory_than_there_is_has_a_type():
    with pytest.raises(oc.BudgetError, match="host memory for L"):
        allocate_aligned(1 << 60)


def test_pages_are_given_back_while_the_array_lives():
    memory = allocate_aligned(64 * MIB)
    touch(memory)
    before = resident_bytes()
    forget(memory[16 * MIB : 48 * MIB])
    assert before - resident_bytes() >= 30 * MIB


# release


def test_a_second_call_finds_the_memory_locked(releaser):
    registrar, user = Registrar(), User()
    memory = HostMemory()
    address = taken(memory, user, 20, registrar).ctypes.data
    locked = dict(registrar.locked)
    memory.close()
    assert memory.nbytes == 0 and memory.locking is None and releaser.pending_bytes == 20 * MIB
    assert registrar.locked == locked, "it is kept for a while"
    calls = len(registrar.calls)
    again = HostMemory()
    assert taken(again, user, 20, registrar).ctypes.data == address
    assert len(registrar.calls) == calls and releaser.pending_bytes == 0
    again.close()


def test_one_memory_that_is_lent_again_stays_locked(releaser):
    registrar, memory = Registrar(), HostMemory()
    taken(memory, User(), 20, registrar)
    calls = len(registrar.calls)
    taken(memory, User(), 12, registrar)
    assert len(registrar.calls) == calls
    memory.close()


def test_of_memory_more_than_twice_as_large_as_needed_a_part_is_taken_and_the_rest_waits(releaser, monkeypatch):
    monkeypatch.setattr(locking, "PIECE_BYTES", 4 * MIB)
    registrar, user, memory = Registrar(), User(), HostMemory()
    others = [HostMemory() for _ in range(4)]
    address = taken(memory, user, 40, registrar).ctypes.data
    memory.close()
    calls = len(registrar.calls)
    others[3].take(user, 3 * MIB)
    assert releaser.pending_bytes == 40 * MIB, "a piece would be more than twice as much"
    assert taken(others[0], user, 10, registrar).ctypes.data == address
    assert others[0].nbytes == 12 * MIB and releaser.pending_bytes == 28 * MIB, "whole pieces, of 4 MiB"
    assert taken(others[1], user, 28, registrar).ctypes.data == address + 12 * MIB
    assert len(registrar.calls) == calls and releaser.pending_bytes == 0, "all was locked"
    others[1].close()
    assert taken(others[2], user, 30, registrar).ctypes.data == address + 12 * MIB, "the rest has the room behind it"
    assert len(registrar.calls) == calls + 1
    for each in others:
        each.close()
    releaser.release_now()
    assert not registrar.locked


def test_memory_that_waits_grows_to_twice_as_much_and_locks_what_misses(releaser):
    registrar, user, memory, other, third = Registrar(), User(), HostMemory(), HostMemory(), HostMemory()
    address = taken(memory, user, 20, registrar).ctypes.data
    memory.close()
    calls = len(registrar.calls)
    assert taken(other, user, 36, registrar).ctypes.data == address and other.nbytes == 36 * MIB
    assert {what for what, _ in registrar.calls[calls:]} == {"register"}
    assert sorted((at - address) // MIB for _, at in registrar.calls[calls:]) == [20, 24, 28, 32]
    other.close()
    assert releaser.pending_bytes == 36 * MIB
    assert taken(third, user, 41, registrar).ctypes.data != address, "there is no more room"
    third.close()
    assert taken(other, user, 30, registrar).ctypes.data == address, "the smallest one that has as much"
    other.close()
    releaser.release_now()
    assert not registrar.locked


@pytest.mark.parametrize("options", [{"tile_size": 50}, {"tile_size": 100, "precision_threshold": 1e-4}], ids=str)
def test_a_call_with_other_tiles_or_formats_locks_what_it_has_more(releaser, monkeypatch, options):
    monkeypatch.setattr(locking, "PIECE_BYTES", MIB)
    registrar = Registrar()
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    source = oc.from_function(1500, lambda rows, cols, out, stream: np.equal.outer(rows, cols, out=out, casting="unsafe"))
    taken_by, locked_by = [], []
    for each in ({"tile_size": 150}, options, {"tile_size": 150}):
        before = sum(high - low for low, high in registrar.locked.items())
        with oc.cholesky(source, devices="host:0", objective="bytes", **each) as factor:
            locks = factor._store.locking()
            assert settled(lambda locks=locks: all(piece.state is LockState.LOCKED for piece in locks.pieces))
            assert np.array_equal(np.asarray(factor), np.eye(1500))
            taken_by.append(factor._store.layout.end)
        locked_by.append(sum(high - low for low, high in registrar.locked.items()) - before)
    assert locked_by[0] == taken_by[0]
    assert locked_by[1] == max(0, taken_by[1] - taken_by[0])
    is_part = 2 * taken_by[1] < taken_by[0]
    assert locked_by[2] <= (taken_by[1] + MIB if is_part else 0), "of memory that was parted the rest grows"
    assert is_part == ("precision_threshold" in options)
    assert "unregister" not in [what for what, _ in registrar.calls]
    releaser.release_now()
    assert registrar.locked == {}


def test_what_waits_is_unlocked_and_freed_after_the_grace(releaser):
    registrar, memory = Registrar(), HostMemory()
    raw = taken(memory, User(), 64, registrar)
    before, releaser.grace_seconds = resident_bytes(), 0.2
    del raw
    memory.close()
    assert len(registrar.locked) > 1
    assert settled(lambda: not registrar.locked and releaser.pending_bytes == 0)
    assert settled(lambda: before - resident_bytes() > 60 * MIB)
    assert settled(lambda: not [thread for thread in threading.enumerate() if "releaser" in thread.name]), "it ends when idle"


def test_room_is_made_at_once_where_it_is_needed(releaser):
    registrar, memory = Registrar(), HostMemory()
    taken(memory, User(), 20, registrar)
    memory.close()
    releaser.make_room(15 * MIB, free=0)
    releaser.make_room(35 * MIB, free=15 * MIB)
    assert registrar.locked, "that much waits already, or is free behind it"
    releaser.make_room(50 * MIB, free=60 * MIB)
    assert registrar.locked, "that much is free"
    releaser.make_room(50 * MIB, free=40 * MIB)
    assert not registrar.locked and releaser.pending_bytes == 0


def test_memory_that_is_forgotten_is_released_too(releaser):
    registrar = Registrar()
    memory = HostMemory()
    taken(memory, User(), 20, registrar)
    del memory
    gc.collect()
    assert releaser.pending_bytes == 20 * MIB
    releaser.release_now()
    assert not registrar.locked


def test_memory_without_locks_is_freed_at_once(releaser):
    memory = HostMemory()
    memory.take(User(), 20 * MIB)
    memory.close()
    assert releaser.pending_bytes == 0


def test_a_factor_outlives_the_memory_that_is_closed_under_it(releaser, monkeypatch):
    registrar = Registrar()
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    memory = HostMemory()
    factor = oc.cholesky(FAMILIES["exponential"](1500), tile_size=100, devices="host:0", store=memory)
    expected = np.asarray(factor)
    memory.close()
    assert registrar.locked == {} and releaser.pending_bytes == 0
    assert np.array_equal(np.asarray(factor), expected)


def test_memory_grows_while_there_is_room_and_is_released_before_more_is_taken(releaser):
    registrar, memory = Registrar(), HostMemory()
    address = taken(memory, User(), 20, registrar).ctypes.data
    locked = dict(registrar.locked)
    assert memory.take(User(), 30 * MIB).ctypes.data == address and memory.nbytes == 30 * MIB
    assert registrar.locked == locked
    memory.take(User(), 50 * MIB)
    assert not registrar.locked and releaser.pending_bytes == 0 and memory.nbytes == 50 * MIB


def test_where_addresses_are_limited_there_is_no_room(releaser, monkeypatch):
    monkeypatch.setattr(pages, "tightest_limit", lambda: "some")
    registrar, memory, other = Registrar(), HostMemory(), HostMemory()
    address = taken(memory, User(), 20, registrar).ctypes.data
    memory.close()
    assert releaser.pending_bytes == 20 * MIB
    assert taken(other, User(), 21, registrar).ctypes.data != address
    other.close()


def test_a_block_that_another_has_taken_over_is_left_to_it(releaser):
    registrar, user, memory, other = Registrar(), User(), HostMemory(), HostMemory()
    taken(memory, user, 20, registrar)
    block = memory._held[0]
    memory.close()
    taken(other, user, 20, registrar)
    memory._held.append(block)  # as after an interrupt in the middle of closing
    memory.close()
    assert releaser.pending_bytes == 0 and other.nbytes == 20 * MIB
    other.close()


def test_locking_that_goes_on_when_the_memory_is_closed_ends(releaser):
    registrar, memory = Registrar(seconds=0.02), HostMemory()
    memory.take(User(), 160 * MIB)
    memory.lock(registrar, 160 * MIB, ())
    memory.close()
    releaser.release_now()
    assert not registrar.locked and len(registrar.registered) < 16
    assert settled(lambda: not [thread for thread in threading.enumerate() if "page-locker" in thread.name])


@pytest.mark.usefixtures("processes")
def test_a_child_leaves_to_its_parent_what_that_has_locked(monkeypatch):
    monkeypatch.setattr(release.RELEASER, "grace_seconds", 3600.0)  # a fork reaches this one only
    registrar, memory, kept = Registrar(), HostMemory(), HostMemory()
    taken(memory, User(), 20, registrar)
    taken(kept, user := User(), 20, registrar)
    memory.close()
    calls = len(registrar.calls)
    if (child := os.fork()) == 0:
        try:
            kept.close()
            own = HostMemory()
            own.take(user, 20 * MIB)[...] = 1
            own.close()
            os._exit(int(len(registrar.calls) != calls or release.RELEASER.pending_bytes != 0))
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(registrar.calls) == calls and release.RELEASER.pending_bytes == 20 * MIB
    kept.close()
    release.RELEASER.release_now()
    assert not registrar.locked


def test_what_is_due_sooner_is_released_first():
    releaser, registrar = release.Releaser(grace_seconds=3600.0), Registrar()
    for grace in (None, 0.0):
        block = release.MemoryBlock(np.zeros(MIB, np.uint8))
        block.locks, at = PieceLocks(registrar, block.memory), block.memory.ctypes.data
        block.locks.begin(at + MIB, ())
        assert block.locks.holds(at, at + MIB)
        held = [block]
        block.holder = held
        releaser.hand_over(held, grace)
    last = time.monotonic() + 20
    while len(registrar.locked) > 1 and time.monotonic() < last:
        time.sleep(0.01)
    assert list(registrar.locked) == [registrar.registered[0]]
    releaser.release_now()
    assert not registrar.locked


class Told(Registrar):
    """A registrar that tells what is unlocked, so that nobody sleeps until it is."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on, self.empty = threading.Event(), threading.Event(), threading.Event()
        self.unlocked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.go_on.set()

    def unregister(self, address: int) -> None:
        self.begun.set()
        self.go_on.wait(20)
        super().unregister(address)
        self.unlocked.put(address)
        if not self.locked:
            self.empty.set()


def handed_over(releaser: release.Releaser, registrar: Registrar) -> int:
    """Give a block of five locked pieces to a releaser, which may release it at once; how many pieces there are."""
    block = release.MemoryBlock(np.zeros(5 * MIB, np.uint8))
    block.locks, at = PieceLocks(registrar, block.memory, piece_bytes=MIB), block.memory.ctypes.data
    block.locks.begin(at + 5 * MIB, ())
    assert all(block.locks.holds(piece.low, piece.high) for piece in block.locks.pieces)
    pieces = len(block.locks.pieces)
    block.holder = held = [block]
    releaser.hand_over(held, 0.0)
    return pieces


def test_nothing_is_unlocked_while_a_call_launches_kernels(monkeypatch):
    monkeypatch.setattr(release, "BETWEEN_SECONDS", 0.0)
    releaser, registrar = release.Releaser(), Told()
    with releaser.standing_back(), releaser.standing_back():
        handed_over(releaser, registrar)
        assert not registrar.begun.wait(0.1)
    assert registrar.empty.wait(20)


def test_who_waits_for_memory_does_not_wait_for_the_call():
    releaser, registrar = release.Releaser(), Told()
    with releaser.standing_back():
        handed_over(releaser, registrar)
        releaser.release_now()
        assert not registrar.locked


def test_a_long_call_lets_memory_go(monkeypatch):
    monkeypatch.setattr(release, "STANDING_SECONDS", 0.05)
    monkeypatch.setattr(release, "BETWEEN_SECONDS", 0.0)
    releaser, registrar = release.Releaser(), Told()
    with releaser.standing_back():
        handed_over(releaser, registrar)
        assert registrar.empty.wait(20)


def test_a_call_holds_up_a_release_that_has_begun(monkeypatch):
    monkeypatch.setattr(release, "BETWEEN_SECONDS", 0.0)
    releaser, registrar = release.Releaser(), Told()
    registrar.go_on.clear()
    pieces = handed_over(releaser, registrar)
    assert registrar.begun.wait(20)
    with releaser.standing_back():
        registrar.go_on.set()
        registrar.unlocked.get(timeout=20)
        with pytest.raises(queue.Empty):
            registrar.unlocked.get(timeout=0.1)
        assert len(registrar.locked) == pieces - 1
    assert registrar.empty.wait(20)


AT_EXIT = """
import time
import numpy as np
from ooc_chol import HostMemory
from tests.inside.memory import RELEASER
from tests.host.registrar import MIB, Registrar, User, taken
RELEASER.grace_seconds = {grace}
memory, registrar = HostMemory(), Registrar()
taken(memory, User(), 200, registrar)
unregister = registrar.unregister
registrar.unregister = lambda address: (time.sleep(0.05), unregister(address))
memory.close()
time.sleep({then})
"""


@pytest.mark.parametrize(("grace", "then"), [(3600.0, 0.0), (0.0, 0.1)])
@pytest.mark.usefixtures("processes")
def test_a_process_ends_at_once_while_memory_waits_or_is_released(grace, then):
    began = time.monotonic()
    command = [COMMAND[0], "-X", "dev", "-c", AT_EXIT.format(grace=grace, then=then)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 25


# whole calls


def test_calls_lock_what_they_write_and_the_next_one_locks_nothing(releaser, monkeypatch):
    registrar = Registrar()
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    monkeypatch.setattr(locking, "PIECE_BYTES", 4096)
    a = FAMILIES["exponential"](600)
    with oc.cholesky(a, tile_size=100, devices="host:0") as factor:
        first = np.asarray(factor)
        locks = factor._store.locking()
        assert locks is not None and settled(lambda: all(piece.state is LockState.LOCKED for piece in locks.pieces))
        end = TileLayout(factor.grid).end
        assert locks.pieces[-1].high - locks.pieces[0].low == end
        calls = len(registrar.calls)
    # A's own pieces were unlocked with the run; those of L wait for the next call.
    assert sum(high - low for low, high in registrar.locked.items()) == end
    with oc.cholesky(a.copy(), tile_size=100, devices="host:0") as factor:
        assert np.array_equal(np.asarray(factor), first)
        assert factor.report.to_dict()["locking_seconds"] == 0.0
    own = [address for what, address in registrar.calls[calls:] if what == "register" and address in registrar.locked]
    assert own == [], "pieces of L are locked once"
    releaser.release_now()
    assert registrar.locked == {}


def test_the_report_says_what_was_refused(releaser, monkeypatch):
    registrar = Registrar(refuses=lambda number: number < 3)
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    source = oc.from_function(600, lambda rows, cols, out, stream: np.equal.outer(rows, cols, out=out, casting="unsafe"))
    with oc.cholesky(source, tile_size=100, devices="host:0") as factor:
        locks = factor._store.locking()
        assert settled(lambda: all(piece.state is not LockState.UNDECIDED for piece in locks.pieces))
        assert locks.refused_bytes > 0
        report = factor.report
        settled_report = replace(
            report, execution=replace(report.execution, refused_bytes=locks.refused_bytes, locking_seconds=0.5)
        )
        assert "could not be page-locked" in str(settled_report) and "0.5 s of the run waited" in str(settled_report)
        assert settled_report.to_dict()["refused_bytes"] == locks.refused_bytes


@pytest.mark.parametrize("at", [0, 250, 599])
def test_a_run_that_fails_leaves_nothing_locked_and_no_thread(releaser, monkeypatch, at):
    registrar = Registrar(seconds=0.005)
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    a = np.eye(600)
    a[at, at] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(a, tile_size=50, devices="host:0")
    releaser.release_now()
    assert registrar.locked == {}


#: Parts of the package in which an interrupt may come while memory is locked or given up.
PARTS = (
    "memory/",
    "dense/execution/page_locking",
    "dense/execution/run",
    "dense/store_opening",
    "dense/stores/array",
    "process/team",
    "process/threads",
)


def is_finalizing(frame) -> bool:
    """Whether a finalizer calls: what is raised there is told to nobody but ``sys.unraisablehook``."""
    while frame is not None:
        if frame.f_code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


def interrupted(call: Callable[[], object], at: int) -> int:
    """Call, and interrupt when the function number ``at`` of those parts begins on this thread; how many began."""
    root, begun = os.path.dirname(oc.__file__) + os.sep, 0

    def watch(frame, event, _):
        nonlocal begun
        path = frame.f_code.co_filename
        goes_on = frame.f_code.co_flags & inspect.CO_GENERATOR  # an error raised here would end it without its last words
        if event == "call" and not goes_on and path.startswith(root) and path[len(root) :].startswith(PARTS):
            begun += 1
            if at and begun >= at and not is_finalizing(frame):
                sys.setprofile(None)
                os.kill(os.getpid(), signal.SIGINT)

    try:
        sys.setprofile(watch)
        call()
    finally:
        sys.setprofile(None)
    return begun


def test_an_interrupt_at_any_moment_leaves_nothing_locked(releaser, monkeypatch):
    registrar, a = Registrar(seconds=0.0002), FAMILIES["exponential"](300)
    monkeypatch.setattr(HostKind, "registrar", lambda self, name: registrar)
    monkeypatch.setattr(locking, "PIECE_BYTES", 2 * TILE)

    def factored():
        oc.cholesky(a, tile_size=32, devices="host:0", memory_budget="400 kB").close()

    total = interrupted(factored, 0)
    assert total > 300
    interrupts = 0
    for at in range(1, total, total // 8):
        try:
            interrupted(factored, at)  # on another day fewer functions may begin, as who waits looks up by the clock
        except KeyboardInterrupt:
            interrupts += 1
        gc.collect()
        releaser.release_now()
        assert settled(lambda: not registrar.locked), f"locked after an interrupt at {at} of {total}"
    assert interrupts >= 6


def test_an_interrupt_while_memory_is_parted_leaves_nothing_locked(releaser, monkeypatch):
    monkeypatch.setattr(locking, "PIECE_BYTES", 4 * MIB)
    registrar, user, memory, total, interrupts = Registrar(), User(), HostMemory(), 1, 0

    def parted():
        part = HostMemory()
        part.take(user, 5 * MIB)
        part.close()

    at = 0
    while at <= total:
        taken(memory, user, 12, registrar)
        memory.close()
        try:
            begun = interrupted(parted, at)
            total = total if at else begun
        except KeyboardInterrupt:
            interrupts += 1
        gc.collect()
        releaser.release_now()
        assert settled(lambda: not registrar.locked), f"locked after an interrupt at {at} of {total}"
        at += 1
    assert interrupts > total // 2 > 5
