"""A scan over blocks: in order, kept ones once, copies ahead of their uses and never over a block that is still in use."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol.errors import ScheduleError, TierError
from tests.host.scans import check_scans, opened
from tests.inside.hardware import HostStream
from tests.inside.interfaces import AbstractStream
from tests.inside.runtime import Passes

pytestmark = pytest.mark.usefixtures("no_hang")

DEVICE = "host:0"
SIZES = [40, 8, 128, 64, 1, 96]
ALL = [(block, 0) for block in range(len(SIZES))]
SECONDS = 10.0


@settings(max_examples=60)
@given(data=st.data())
def test_blocks_come_in_order_and_whole_with_the_fewest_copies(data):
    sizes = data.draw(st.lists(st.integers(1, 64), min_size=1, max_size=6))
    order = st.lists(st.integers(0, len(sizes) - 1), max_size=10)
    check_scans(
        DEVICE,
        sizes,
        data.draw(st.lists(order, min_size=1, max_size=4)),
        slots=data.draw(st.integers(1, 4)),
        kept=data.draw(st.integers(0, len(sizes))),
        in_place=frozenset(data.draw(st.sets(st.integers(0, len(sizes) - 1)))),
        ahead=data.draw(st.booleans()),
    )


@pytest.mark.parametrize(("kept", "in_place"), [(6, ()), (0, range(6)), (3, (3, 4, 5))])
def test_no_ring_where_nothing_passes_through_it(kept, in_place):
    check_scans(DEVICE, SIZES, [range(6), range(6)], slots=0, kept=kept, in_place=frozenset(in_place))


def test_a_block_that_has_to_pass_through_a_ring_that_is_not_there():
    with opened(DEVICE, SIZES, slots=0, kept=5) as on, pytest.raises(ScheduleError, match=r"block \(5, 0\).*host:0.*no ring"):
        list(on.scan.over(ALL))


def test_copies_run_ahead_of_a_slow_kernel_as_far_as_the_ring_goes():
    slots, log, copied = 3, [], threading.Event()

    def told(block: int) -> None:
        log.append(("copy", block))
        if block == slots - 1:
            copied.set()

    with opened(DEVICE, SIZES, slots=slots) as on:
        on.tier.told = told
        for key, _ in on.scan.over(ALL):
            if key[0] == 0:  # runs until the ring is full, which it is only if copies do not wait for kernels
                _enqueue(on.streams.computing, lambda: _must(copied))
            _enqueue(on.streams.computing, lambda block=key[0]: log.append(("use", block)))
        on.scan.finish()
    assert [block for what, block in log if what == "copy"] == [block for what, block in log if what == "use"] == [*range(6)]
    for block in range(slots, len(SIZES)):  # a slot is filled again behind its last use
        assert log.index(("copy", block)) > log.index(("use", block - slots))


def test_kernels_wait_for_slow_copies():
    used = [threading.Event() for _ in SIZES]

    def told(block: int) -> None:
        if block:  # the copy begins once nothing is left that could be computed
            _must(used[block - 1])

    with opened(DEVICE, SIZES, slots=3, kept=2, rows=len(SIZES)) as on:
        on.tier.told = told
        for row, (key, tile) in enumerate(on.scan.over(ALL)):
            on.use(key, tile, row)
            _enqueue(on.streams.computing, used[row].set)
        on.scan.finish()
        for row, block in enumerate(on.tier.blocks):
            assert np.array_equal(on.rows[row, : len(block)], block)


def test_the_ring_fills_while_other_work_is_done_between_two_scans():
    slots, copied = 3, threading.Event()
    with opened(DEVICE, SIZES, slots=slots, kept=2, rows=1) as on:
        list(on.scan.over(ALL))
        before = on.scan.copied_bytes
        on.tier.told = lambda block: copied.set() if block == 4 else None
        on.scan.run_ahead(ALL)
        assert on.scan.copied_bytes - before == sum(SIZES[2:5]), "two are kept, three fill the ring"
        _enqueue(on.streams.computing, lambda: _must(copied))  # work on vectors, which goes on until the copies are there
        for stream in (on.streams.computing, on.streams.copying):
            stream.synchronize()
        assert on.tier.reads[-slots:] == [2, 3, 4]
        on.scan.run_ahead(ALL)  # which is full
        list(on.scan.over(ALL))
        on.scan.finish()
        assert on.scan.copied_bytes == sum(SIZES) + sum(SIZES[2:])


def test_another_scan_than_the_one_that_copies_ran_ahead_for():
    with opened(DEVICE, SIZES, slots=2) as on:
        on.scan.run_ahead(ALL)
        with pytest.raises(ScheduleError, match=r"begins with blocks \[\(0, 0\), \(1, 0\)\].*\[\(5, 0\), \(4, 0\)\]"):
            list(on.scan.over(ALL[::-1]))
        with pytest.raises(ScheduleError, match="this one begins with"):
            on.scan.run_ahead(ALL[:1])
        list(on.scan.over(ALL))
        on.scan.finish()
        assert on.tier.reads == [*range(6)]


def test_an_error_of_a_copy_reaches_who_waits_for_the_scan():
    def told(block: int) -> None:
        if block == 3:
            raise TierError("the disk is gone")

    with pytest.raises(TierError, match="the disk is gone"), opened(DEVICE, SIZES, slots=2, rows=6) as on:
        on.tier.told = told
        for _ in range(3):
            for row, (key, tile) in enumerate(on.scan.over(ALL)):
                on.use(key, tile, row)
            on.scan.run_ahead(ALL)
        on.scan.finish()
    assert on.tier.reads == [0, 1, 2], "nothing is copied behind a copy that failed"


@pytest.mark.parametrize("ahead", [True, False])
def test_an_error_before_a_copy_is_enqueued_leaves_the_scan_usable(ahead):
    with opened(DEVICE, SIZES, slots=3, kept=1, rows=6) as on:
        on.scanned.fails_at = 2
        with pytest.raises(TierError, match="block 2 is not to be had"):
            on.scan.run_ahead(ALL) if ahead else list(on.scan.over(ALL))
        on.scanned.fails_at = None
        for row, (key, tile) in enumerate(on.scan.over(ALL)):
            on.use(key, tile, row)
        on.scan.finish()
        for row, block in enumerate(on.tier.blocks):
            assert np.array_equal(on.rows[row, : len(block)], block)


def test_a_scan_that_is_left_does_not_lose_the_block_in_use():
    begun, later = threading.Event(), threading.Event()
    found = []

    def slow(tile: np.ndarray) -> None:
        begun.set()
        later.wait(0.2)  # in vain, unless the next scan copies over the block
        found.append((tile.copy(), later.is_set()))

    with opened(DEVICE, [64, 64, 64], slots=1, rows=3) as on:
        for _, tile in on.scan.over([(0, 0), (1, 0)]):
            _enqueue(on.streams.computing, lambda tile=tile: slow(tile))
            break
        _must(begun)
        on.tier.told = lambda block: later.set() if block == 2 else None
        for key, tile in on.scan.over([(2, 0), (1, 0)]):
            on.use(key, tile, key[0])
        on.scan.finish()
        ((tile, was_late),) = found
        assert not was_late and np.array_equal(tile[0], on.tier.blocks[0])
        assert np.array_equal(on.rows[1:], on.tier.blocks[1:])


def test_kept_blocks_of_a_scan_that_was_left_are_there_when_they_are_used():
    used = threading.Event()
    with opened(DEVICE, SIZES, slots=3, kept=6, rows=6) as on:
        # in vain, unless the block is used before it is there
        on.tier.told = lambda block: used.wait(0.2) if block == 1 else None
        for _ in on.scan.over(ALL):
            break  # blocks 1 and 2 are on their way
        for row, (key, tile) in enumerate(on.scan.over(ALL)):
            on.use(key, tile, row)
            if row == 1:
                _enqueue(on.streams.computing, used.set)
        on.scan.finish()
        assert on.tier.reads == [*range(6)]
        for row, block in enumerate(on.tier.blocks):
            assert np.array_equal(on.rows[row, : len(block)], block)


def test_records_tell_what_was_copied_and_computed_and_what_waited(tmp_path):
    passes, kept, slots, scans = Passes(is_traced=True), 2, 3, 2
    with passes.running("multiply", 1) as run:
        check_scans(DEVICE, SIZES, [range(6)] * scans, slots=slots, kept=kept, in_place=frozenset({5}), run=run)
    records = passes.records
    by_step = {record.step: record for record in records}
    assert len(by_step) == len(records)
    fetches, computed = ([record for record in records if record.kind == kind] for kind in ("fetch", "compute"))
    assert {(each.stream, each.link, each.fmt) for each in fetches} == {("copy-in", "memory->host:0", "pattern")}
    assert not any(each.role.computes for each in fetches) and all(each.role.computes for each in computed)
    assert {(each.stream, each.link, each.nbytes) for each in computed} == {("compute", "", 0)}
    blocks = [0, 1, 2, 3, 4, 2, 3, 4]
    assert [each.block for each in fetches] == [f"A({block}, 0)v0" for block in blocks]
    assert [each.nbytes for each in fetches] == [SIZES[block] for block in blocks]
    assert [each.flops for each in computed] == [*range(6)] * scans
    for each in records:
        assert all(by_step[step].end_ns <= each.start_ns for _, step in each.after)
    for each in computed:  # behind its own copy, unless it is used where it is stored
        assert [by_step[step].block for _, step in each.after] == ([] if each.block == "A(5, 0)v0" else [each.block])
    for each in fetches[kept + slots :]:  # behind the use of what was in its slot
        assert [by_step[step].kind for _, step in each.after] == ["compute"]
    assert passes.totals["multiply"].nbytes == sum(each.nbytes for each in fetches) + scans * SIZES[5]
    trace = oc.Trace(records)
    assert "compute" in trace.summary() and "copy-in" in trace.summary()
    loaded = oc.Trace.load(trace.save(tmp_path / "scan.pftrace")).records
    told = [{(each.step, each.stream, each.block, each.nbytes, each.after) for each in some} for some in (loaded, records)]
    assert told[0] == told[1]


def _must(event: threading.Event) -> None:
    """Wait on a device's thread for what must come."""
    assert event.wait(SECONDS), "it did not come"


def _enqueue(stream: AbstractStream, operation: Callable[[], object]) -> None:
    """Let a stream of the host do something."""
    assert isinstance(stream, HostStream)
    stream.enqueue(operation)
