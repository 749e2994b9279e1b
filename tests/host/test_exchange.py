"""Spaces in parts that give each other rows and sums: the bits of one, in shared memory; and an end in time, whatever happens."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests import space_checks as check
from tests.host.registrar import Registrar
from tests.inside.cluster import Exchange, PeerLostError, cancel_exchange, process_begun
from tests.inside.cluster import exchange as module
from tests.inside.eigen import DeviceSpace, Window, plan_space
from tests.inside.hardware import HostKind
from tests.inside.interfaces import AbstractCommonMemory, DeviceBlock
from tests.inside.sparse import diagonals_of, operator_of

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang")]

FFF, FDF, DDD = oc.Precision
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed():
    with oc.block_csr(check.symmetric_chunks(), block_bytes="1 MiB") as found:
        yield found


def side_by_side(works) -> list:
    """Results of works, a thread each; an error of one is its result."""
    found = [None] * len(works)

    def call(number: int) -> None:
        try:
            found[number] = works[number]()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(works))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def joined(rows, piece_bytes: int, name: str = "test") -> list[Exchange]:
    """Exchanges of this process that have taken their seats, in shared memory."""
    found = [Exchange(f"{name} {rank}", rank, rows, piece_bytes) for rank in range(len(rows))]
    for each in found:
        each.join([one.seat for one in found], [True] * len(found))
    return found


def in_parts(packed, precision, block: int, devices: list[int], *, piece_bytes: int | None = None, capacity: int = 6) -> list:
    """Bits of everything, by threads that hold the rows of so many devices each."""
    operator = operator_of(packed)
    names = [f"host:{number}" for number in range(sum(devices))]
    sizes = {"precision": precision, "block": block, "capacity": capacity}
    plan = plan_space(packed.blocks, **sizes, devices=names, budget_bytes=1 << 30, diagonals=diagonals_of(operator))
    shares, parts = list(plan.products.shares), []
    for count in devices:
        parts.append(shares[:count])
        del shares[:count]
    rows = [range(part[0].rows.start, part[-1].rows.stop) for part in parts]
    exchanges = joined(rows, piece_bytes or plan.piece_bytes)

    def work(number: int):
        try:
            with DeviceSpace(operator, plan.of(parts[number]), exchange=exchanges[number]) as space:
                found = check.everything(space)
                assert space.received_bytes > 0
                return found
        finally:
            exchanges[number].close()

    return side_by_side([lambda number=number: work(number) for number in range(len(devices))])


@pytest.mark.parametrize(("precision", "block"), [(DDD, 4), (FDF, 2), (FFF, 1)])
def test_parts_have_the_bits_of_the_whole(packed, precision, block):
    with check.opened(packed, block, precision, "host:0") as space:
        wanted = check.everything(space)
    for devices, piece in (([1, 1], None), ([1, 2], 40_000), ([1, 1, 2], 1 << 20)):
        found = in_parts(packed, precision, block, devices, piece_bytes=piece, capacity=space.capacity)
        for each in found:
            assert not isinstance(each, BaseException), each
            assert each[:-1] == wanted[:-1]
        assert b"".join(each[-1] for each in found) == wanted[-1]


def test_steps_of_any_sizes_bring_what_was_given():
    ends = joined([range(1), range(1, 2), range(2, 3)], 5000, "steps")

    def give(own: Exchange) -> list[bytes]:
        found = []
        for step in range(300):
            room = own.tier._memory(step, own.rank)
            room[: step + 1] = (7 * step + own.rank) % 251
            own.publish(step + 1)
            own.wait()
            found += [bytes(own.tier._memory(step, rank)[: step + 1]) for rank in range(3)]
        return found

    wanted = [bytes([(7 * step + rank) % 251]) * (step + 1) for step in range(300) for rank in range(3)]
    assert side_by_side([lambda each=each: give(each) for each in ends]) == [wanted] * 3
    for each in ends:
        each.close()


class Common(AbstractCommonMemory):
    """Memory that stands for a GPU's: its handle says where others find it."""

    def __init__(self, device: str, address: int) -> None:
        self.device, self.address, self.handle, self.is_open = device, address, str(address).encode(), True

    def close(self) -> None:
        self.is_open = False


def test_memory_of_devices_is_used_where_each_maps_all_of_it(monkeypatch):
    lent, mapped = [], []

    def lend(self, name, nbytes):
        lent.append((Common(name, 1 << 20 + len(lent)), nbytes))
        return lent[-1][0]

    def maps(self, name, handle):
        mapped.append(None if refused == handle else Common(name, int(handle) + 7))
        return mapped[-1]

    monkeypatch.setattr(HostKind, "lend", lend)
    monkeypatch.setattr(HostKind, "mapped", maps)
    ends = joined([range(1), range(1, 2), range(2, 3)], 5000, "devices")
    handles = [each.lend("host:0").handle for each in ends]
    own, piece = ends[1], ends[1].piece_bytes
    assert [each.seat.handle for each in ends] == handles and {nbytes for _, nbytes in lent} == {2 * piece}
    refused = handles[2]
    assert not own.map(handles, ["host:0", "host:1"])
    own.unmap()
    refused = None
    assert own.map(handles, ["host:0", "host:1"])
    assert own.tier_of("host:1") is own.tier
    own.use_devices()
    for device, rank, step in (("host:0", 0, 4), ("host:1", 2, 5), ("host:1", 1, 3)):
        there = DeviceBlock(device, int(handles[rank]) + 7) if rank != 1 else DeviceBlock("host:0", int(handles[1]))
        index, tier = Window(step, rank, 128, 3, 5, 8), own.tier_of(device)
        assert tier.on_device(index) == (there.device, there.address + step % 2 * piece + 128)
        with pytest.raises(TypeError, match="memory of devices"):
            tier.view(index)
    own.unmap()
    assert not any(each.is_open for each in mapped if each is not None) and lent[1][0].is_open
    assert own.tier_of("host:1") is own.tier
    for each in ends:
        each.close()


# what ends a wait


@pytest.fixture
def pair(request):
    """Two exchanges, the first of which has given its step."""
    with ExitStack() as stack:
        ends = joined([range(1), range(1, 2)], 4096, request.node.name)
        for each in ends:
            stack.callback(each.close)
        ends[0].publish(8)
        yield ends


def lost_in_time(wait, seconds: float = 5.0, match: str | None = None) -> None:
    began = time.monotonic()
    with pytest.raises(PeerLostError, match=match):
        wait()
    assert time.monotonic() - began < seconds


def test_a_peer_that_ends_is_an_error(pair):
    threading.Timer(0.1, pair[1].close).start()
    lost_in_time(pair[0].wait, match="goes on no more")
    pair[1].close()


def test_a_peer_that_never_gives_is_an_error(pair, monkeypatch):
    monkeypatch.setattr(module, "STEP_SECONDS", 0.3)
    lost_in_time(pair[0].wait, match="gave nothing")


def test_what_is_cancelled_ends(pair):
    threading.Timer(0.1, cancel_exchange, (pair[0].name, None)).start()
    lost_in_time(pair[0].wait, match="cancelled")


def test_an_exchange_that_is_cancelled_before_it_is_made_ends_at_its_first_step(request):
    for rank in range(2):
        cancel_exchange(f"{request.node.name} {rank}", None)
    ends = joined([range(1), range(1, 2)], 4096, request.node.name)
    ends[0].publish(0)
    lost_in_time(ends[0].wait, match="cancelled")
    for each in ends:
        each.close()


CHILD = """
import pickle, sys, time
from tests.inside.cluster import Exchange
own = Exchange("child", 1, [range(1), range(1, 2)], 4096)
sys.stdout.buffer.write(pickle.dumps(own.seat).hex().encode() + b"\\n")
sys.stdout.flush()
time.sleep(600)
"""


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_process_that_is_killed_is_an_error(is_reaped):
    import pickle

    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, cwd=ROOT)
    own = Exchange("parent", 0, [range(1), range(1, 2)], 4096)
    try:
        seat = pickle.loads(bytes.fromhex(child.stdout.readline().decode()))
        own.join([own.seat, seat], [True, True])
        own.publish(8)
        os.kill(child.pid, signal.SIGKILL)
        if is_reaped:
            child.wait()
        lost_in_time(own.wait)
        assert process_begun(child.pid) == 0 != process_begun(os.getpid())
        with pytest.raises(PeerLostError):
            again = Exchange("again", 0, [range(1), range(1, 2)], 4096)
            if not is_reaped:
                child.wait()
            again.join([again.seat, seat], [True, True])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        own.close()


def test_numbers_that_are_given_are_the_same_in_both_types():
    data = np.zeros(4096, np.uint8)
    for dtype in (np.float32, np.float64):
        window = Window(0, 0, 128, 3, 5, np.dtype(dtype).itemsize)
        window.of(data)[...] = np.arange(15.0).reshape(3, 5)
        assert window.of(data).dtype == dtype and window.of(data)[2, 4] == 14.0


def test_bytes_are_page_locked_for_devices_and_unlocked_in_the_end():
    registrar = Registrar()
    ends = [Exchange(f"locked {rank}", rank, [range(1), range(1, 2)], 8192) for rank in range(2)]
    ends[0].join([each.seat for each in ends], [True] * 2, registrar)
    locks = ends[0].tier.locking()
    for turn in range(2):
        for rank in range(2):
            view = ends[0].tier.view(Window(turn, rank, 64, 4, 4, 8))
            low = view.ctypes.data
            assert locks.holds(low, low + view.nbytes, lambda: False)
    for each in ends:
        each.close()
    del ends, locks, view, each
    until = time.monotonic() + 30
    while registrar.locked:
        gc.collect()
        assert time.monotonic() < until
        time.sleep(0.05)
