"""Bases on host devices: right, the same bits however they lie, and exactly the planned bytes."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import block_csr
from tests import space_checks as check
from tests.inside.eigen import open_space
from tests.running_threads import running_threads

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang")]


def thorough(*kinds):
    return [pytest.param(*each, marks=pytest.mark.thorough) for each in kinds]


HOSTS = ["host:0", "host:1", "host:2", "host:3"]
FFF, FDF, DDD = oc.Precision
KINDS = [(DDD, 4), (FDF, 1), (FFF, 2), *thorough((FDF, 8), (DDD, 8), (DDD, 1), (FFF, 8), (FFF, 1))]
every_kind = pytest.mark.parametrize(("precision", "block"), KINDS)


@pytest.fixture(scope="module")
def a():
    return check.symmetric_chunks()


@pytest.fixture(scope="module")
def packed(a):
    with block_csr(a, block_bytes="1 MiB") as found:
        yield found


@pytest.fixture(scope="module")
def stored(packed, tmp_path_factory):
    with block_csr(packed, store=tmp_path_factory.mktemp("packed") / "a.oocsr", block_bytes="1 MiB") as found:
        yield found


def least_budget(a, block, precision, devices, **options):
    with pytest.raises(oc.BudgetError) as told:
        check.opened(a, block, precision, devices, memory_budget=1, **options)
    return told.value.needed_bytes


# right


@every_kind
def test_the_recurrence_of_lanczos_holds(a, packed, precision, block):
    with check.opened(packed, block, precision, HOSTS[:2]) as space:
        check.recurrence(a, space, 4)


@every_kind
def test_panels_sums_and_rotations(packed, precision, block):
    with check.opened(packed, block, precision, "host:0") as space:
        check.panels_come_and_go(space)
        check.sums_are_numpys(space)
        check.one_pass_is_one_where_it_is_asked_for(space)


@every_kind
def test_columns_that_depend_or_nearly_do(packed, precision, block):
    with check.opened(packed, block, precision, HOSTS[:2]) as space:
        check.dependent_columns(space)
        check.columns_in_the_span(space)
        check.spaces_that_end(space)
        check.nearly_dependent_columns(space)


@every_kind
def test_residuals_are_those_of_float64(a, packed, precision, block):
    with check.opened(packed, block, precision, HOSTS[:2]) as space:
        check.residuals(a, space)


@pytest.mark.parametrize(("precision", "block"), [(FDF, 2), (DDD, 1)])
def test_operators_with_diagonals(a, packed, precision, block):
    left, right, shift = np.random.default_rng(1).uniform(0.5, 1.0, (3, packed.shape[0]))
    whole = (left[:, None] * a.multiply(right[None, :])).tocsr()
    whole.setdiag(whole.diagonal() + shift)
    with check.opened(oc.Operator(packed, left=left, right=right, shift=shift), block, precision, HOSTS[:3]) as space:
        check.residuals(whole, space)


def test_a_matrix_without_entries_and_one_of_a_single_row():
    import scipy.sparse

    for n in (1, 10):
        with open_space(block_csr(scipy.sparse.csr_array((n, n))), block=1, capacity=2, devices="host:0") as space:
            check.cycle(space, min(n, 2))
            v = space.take(range(1))
            assert np.allclose(v.T @ v, 1.0)
            assert space.residuals(range(1), [0.5]) == pytest.approx([0.5])


def test_a_full_log_is_read_in_between(packed):
    with check.opened(packed, 1, DDD, "host:0") as space:
        check.cycle(space, 4)
        space.load(0)
        for number in range(200):
            space.inner(range(4), f"I{number}")
        found = space.read()
    assert len(found) == 200
    assert all(np.array_equal(each, found["I0"]) for each in found.values())


# the same bits, and the planned bytes


@pytest.mark.parametrize(("precision", "block"), [(DDD, 1), (FDF, 2), *thorough((DDD, 4), (FFF, 8), (FDF, 8), (FDF, 1))])
@pytest.mark.usefixtures("long")
def test_bits_and_bytes_of_memory_and_of_a_file(packed, stored, precision, block):
    with check.opened(packed, block, precision, "host:0") as space:
        wanted = check.everything(space)
        assert space.copied_bytes == {"memory->host:0": 0}
    for count in (1, 2, 4):
        with check.opened(packed, block, precision, HOSTS[:count]) as space:
            check.bits_and_bytes(space, wanted)
    for count in (1, 2):
        least = least_budget(stored, block, precision, HOSTS[:count])
        for more in (0, 4 << 20) if count == 1 else (2 << 20, 1 << 30):
            with check.opened(stored, block, precision, HOSTS[:count], memory_budget=least + more) as space:
                assert space.plan.peak_bytes <= least + more
                check.bits_and_bytes(space, wanted)


def test_a_deeper_ring_changes_no_bit(stored):
    with check.opened(stored, 2, DDD, "host:0") as space:
        wanted = check.everything(space)
    least = least_budget(stored, 2, DDD, "host:0", ring_slots=6)
    with check.opened(stored, 2, DDD, "host:0", ring_slots=6, memory_budget=least) as space:
        assert space.plan.products.shares[0].ring_slots == 6
        check.bits_and_bytes(space, wanted)
        space.product(0)
        assert space.ahead_bytes > 3 * space.plan.products.blocks.largest_bytes // 2


def test_the_arena_is_what_was_planned(stored, monkeypatch):
    from tests.inside.hardware import HostArena

    allocated = []
    ask = HostArena.bytes_for
    monkeypatch.setattr(HostArena, "bytes_for", staticmethod(lambda *given: allocated.append(ask(*given)) or allocated[-1]))
    for precision, block in ((DDD, 4), (FDF, 1), (FFF, 8)):
        budget = least_budget(stored, block, precision, "host:0") + (1 << 20)
        with check.opened(stored, block, precision, "host:0", memory_budget=budget) as space:
            assert allocated[-1] == space.plan.peak_bytes
            (parts,) = space.plan.memory().values()
            assert 0 <= space.plan.peak_bytes - sum(parts.values()) < 4096


# what it tells, and how it ends


def test_a_trace_names_the_work_on_panels(stored):
    budget = least_budget(stored, 2, DDD, HOSTS[:2])
    with check.opened(stored, 2, DDD, HOSTS[:2], memory_budget=budget, trace=True) as space:
        check.cycle(space, 3)
        trace = space.trace
        moved = sum(record.nbytes for record in trace.records if record.kind == "fetch")
        pulled = sum(record.nbytes for record in trace.records if record.kind == "pull")
        assert moved == sum(space.copied_bytes.values()) + space.ahead_bytes
        assert pulled == space.exchanged_bytes + space.sum_bytes
        labels = {record.label for record in trace.records if record.kind == "compute"}
        assert {"project 0-1", "orthonormalize 2", "fill W"} <= labels
        assert "host:1" in trace.summary()
        assert space.seconds.passes > 0 and space.seconds.panels > 0 and space.seconds.host > 0


def test_blocks_are_on_their_way_before_the_first_panel_is_made(stored):
    budget = least_budget(stored, 2, DDD, HOSTS[:2])
    with check.opened(stored, 2, DDD, HOSTS[:2], memory_budget=budget) as space:
        assert space.ahead_bytes > 0 == sum(space.copied_bytes.values())


def test_a_space_is_closed_once_and_for_all(packed):
    before = running_threads()
    space = check.opened(packed, 1, DDD, HOSTS[:2])
    space.fill(1)
    space.close()
    space.close()
    assert running_threads() == before
    with pytest.raises(oc.errors.ClosedError, match="this space is closed"):
        space.product(0)


def test_an_error_on_a_device_closes_the_space(stored, monkeypatch):
    space = check.opened(stored, 1, DDD, "host:0", memory_budget=least_budget(stored, 1, DDD, "host:0"))
    check.cycle(space, 2)

    def broken(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(type(stored.tier), "read_stored", broken)
    space.product(0)
    space.product(1)
    with pytest.raises(OSError, match="the disk is gone"):
        space.read()
    with pytest.raises(oc.errors.ClosedError):
        space.product(0)


def test_an_interrupt_leaves_no_thread(packed):
    before = running_threads()
    space = check.opened(packed, 4, DDD, HOSTS[:2])
    check.cycle(space, 2)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            space.product(0)
            space.read()
    timer.join()
    assert running_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
@pytest.mark.usefixtures("processes")
def test_a_forked_child_is_told(packed):
    with check.opened(packed, 1, DDD, "host:0") as space:
        child = os.fork()
        if not child:
            try:
                space.fill(1)
            except oc.errors.ForkedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_bad_input(packed):
    with check.opened(packed, 2, DDD, "host:0") as space:
        with pytest.raises(ValueError, match="a panel of this space has shape"):
            space.bring(np.zeros((3, 2)))
        with pytest.raises(ValueError, match="these panels need"):
            space.rotate(range(2), np.zeros((3, 2)), range(1))
        with pytest.raises(ValueError, match="columns"):
            space.residuals(range(1), [1.0, 2.0, 3.0])
        space.fill(1)  # it is not closed by what was refused
    import scipy.sparse

    with pytest.raises(ValueError, match="square"):
        open_space(block_csr(scipy.sparse.csr_array((3, 4))), block=1, capacity=2, devices="host:0")
    with pytest.raises(oc.BudgetError, match="a basis of 10 vectors"):
        check.opened(packed, 2, DDD, "host:0", memory_budget="1 MiB")


def test_a_device_that_lags_behind_reads_its_own_panels(packed):
    """Products without sums between them: others' rows come once the last product has read what they replace."""

    def multiplied(devices, delay=0.0):
        with check.opened(packed, 2, FDF, devices) as space:
            multiply, last = space._products.multiply, space._group.devices[-1]

            def held_back(*arguments, **options):
                with last.device.current():
                    last.kernels._enqueue(last.computing, lambda: time.sleep(delay))
                return multiply(*arguments, **options)

            space._products.multiply = held_back
            for panel in range(2):
                space.fill(panel + 1)
                space.store(panel)
            for step in range(4):
                space.recur(step % 2, (step + 1) % 2, (step + 1) % 2, center=0.5, half=40.0)
            return space.take(range(2))

    assert np.array_equal(multiplied("host:0"), multiplied(HOSTS[:2], 0.05))


@pytest.mark.parametrize(("precision", "block"), [(FDF, 2), *thorough((DDD, 4), (FFF, 8), (FDF, 1))])
def test_panels_that_are_multiplied_next_are_copied_before(a, packed, precision, block):
    with check.opened(packed, block, precision, "host:0") as space:
        wanted = check.multiplied_next(space)
    for count in (2, 3):
        with check.opened(packed, block, precision, HOSTS[:count]) as space:
            assert check.multiplied_next(space, reads=True) == wanted
        with check.opened(packed, block, precision, HOSTS[:count]) as space:
            assert check.multiplied_next(space) == wanted
            pulled = space.exchanged_bytes
            space.orthonormalize(2, "Q", range(0), is_next=True)
            space.move(2, 4)
            assert space.exchanged_bytes == pulled + (count - 1) * space.n * block * precision.storage.itemsize
            space.product(4)
            assert space.exchanged_bytes == pulled + (count - 1) * space.n * block * precision.storage.itemsize


def test_nothing_changes_before_others_have_copied_it(packed):
    """Copies ahead take long, and so does what follows them; W and the panel are written to at once."""

    def bits(devices, delay=0.0):
        with check.opened(packed, 2, FDF, devices) as space:
            for each in space._group.devices[:-1]:
                copy_from, kernels = each.products.copy_from, each.kernels
                twice = kernels.multiply_right_twice

                def slowly(*arguments, copy_from=copy_from, each=each):
                    each.kernels._enqueue(each.products.peer, lambda: time.sleep(4 * delay))
                    copy_from(*arguments)

                def slowly_twice(stream, *arguments, twice=twice, kernels=kernels, **options):
                    kernels._enqueue(stream, lambda: time.sleep(delay))
                    twice(stream, *arguments, **options)

                each.products.copy_from, kernels.multiply_right_twice = slowly, slowly_twice
            found = []
            for step in range(4):
                if step % 2:
                    space.bring(np.ones((space.n, 2)))  # one column depends on the other
                else:
                    space.fill(9)
                space.orthonormalize(0, "R", range(0), is_next=True)
                if step > 1:
                    space.fill(step)
                space.product(0)
                space.store(0)
                space.store(1)
                found.append(space.take(range(1, 2)).tobytes())
            return found

    assert bits("host:0") == bits(HOSTS[:2], 0.02)


def test_a_device_that_lags_behind_reads_the_sums_of_all(packed):
    """Others make their next sums while it has not yet added the last ones."""

    def bits(devices, delay=0.0):
        with check.opened(packed, 4, FDF, devices) as space:
            share, last = space._group.share, space._group.devices[-1]

            def held_back(*arguments):
                share(*arguments)
                with last.device.current():
                    last.kernels._enqueue(last.computing, lambda: time.sleep(delay))

            space._group.share = held_back
            found = check.cycle(space, 3)
            return [found[name].tobytes() for name in sorted(found)]

    assert bits("host:0") == bits(HOSTS[:2], 0.01)


def test_devices_that_do_not_reach_each_other_copy_their_sums(packed, monkeypatch):
    from tests.inside.hardware import HostDevice

    with check.opened(packed, 2, FDF, "host:0") as space:
        wanted = check.everything(space)
    with check.opened(packed, 2, FDF, HOSTS[:3]) as space:
        check.bits_and_bytes(space, wanted)
        assert space.sum_bytes == 0
    monkeypatch.setattr(HostDevice, "reaches", lambda self, other: self is other)
    with check.opened(packed, 2, FDF, HOSTS[:3]) as space:
        check.bits_and_bytes(space, wanted)
        assert space.sum_bytes > 0


def test_filters_are_captured_and_keep_their_bits(packed):
    """By a device that works alone; what is captured is asked for once, with the same arithmetic."""
    with check.opened(packed, 4, "DDD", "host:0") as space:
        device, asked = space._group.devices[0].device, []
        whole = type(device).captured

        def captured(stream, enqueue):
            asked.append(stream)
            return whole(device, stream, enqueue)

        device.captured = captured
        space.fill(7)
        space.orthonormalize(0, "R", range(0))
        for turn in range(3):
            check.filtered(space, f"T{turn}")
        assert len(asked) == 4 and space.passes == 18
        found = space.read()
        assert np.array_equal(found["T0"], found["T1"]) and np.array_equal(found["T0"], found["T2"])
        assert space.seconds.passes > 0
    with check.opened(packed, 4, "DDD", HOSTS[:2]) as space:
        space.fill(7)
        space.orthonormalize(0, "R", range(0))
        check.filtered(space, "T")
        assert np.array_equal(space.read()["T"], found["T0"])
