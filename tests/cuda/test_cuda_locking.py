"""Host memory that is page-locked in pieces while GPUs work: right, locked once, released, and never waited for in vain."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.conftest import no_hang  # noqa: F401 - a fixture
from tests.host.matrices import FAMILIES, check_factor
from tests.host.runs import check_bytes
from tests.inside.interfaces import LockState
from tests.inside.kernels import workspace_bytes
from tests.inside.memory import RELEASER, locking

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("no_hang", "small_pieces")]

N, NB = 2000, 256
A = FAMILIES["matern25 nugget 1e-6"](N)


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of two tiles, so that a matrix of some MiB has many; what an earlier test has left is released."""
    RELEASER.release_now()
    monkeypatch.setattr(locking, "PIECE_BYTES", 2 * 8 * NB * NB)


@pytest.fixture
def registered(monkeypatch):
    """Addresses that the driver is asked to lock, in order; it is asked as ever."""
    from tests.inside.hardware import CudaRegistrar

    addresses, real = [], CudaRegistrar.register

    def register(self, address, nbytes):
        addresses.append(address)
        return real(self, address, nbytes)

    monkeypatch.setattr(CudaRegistrar, "register", register)
    return addresses


def factored(a=A, devices="cuda:0", slots=12, **options):
    """The factor with some tiles of budget."""
    budget = workspace_bytes(NB) + slots * -(-8 * NB * NB // 4096) * 4096
    options = {"store": "host", **options}
    return oc.cholesky(a, tile_size=NB, devices=devices, memory_budget=budget, fp64="native", **options)


def is_locked(address: int) -> bool:
    """Whether the driver has a page locked."""
    from cupy.cuda import runtime

    return runtime.pointerGetAttributes(address).type == runtime.memoryTypeHost


def locked_pages(memory: np.ndarray) -> int:
    """Pages of an array that are locked."""
    low, high = np.lib.array_utils.byte_bounds(memory)
    return sum(is_locked(address) for address in range(int(low), int(high), 4096))


def blocks_of(factor):
    """The memory that holds a factor, and what is locked of it."""
    return factor._store.memory._held[0]


def test_a_factor_in_many_pieces_is_the_same_and_all_of_it_is_locked(monkeypatch):
    with factored() as factor:
        check_factor(factor, A)
        check_bytes(factor.report.plan, factor.report.execution)
        small = np.asarray(factor)
        pieces = blocks_of(factor).locks.pieces
        assert len(pieces) > 10 and {piece.state for piece in pieces} == {LockState.LOCKED}
        assert all(is_locked(piece.low) and is_locked(piece.high - 1) for piece in pieces)
        assert factor.report.to_dict()["locking_seconds"] >= 0.0
    RELEASER.release_now()
    monkeypatch.setattr(locking, "PIECE_BYTES", 1 << 30)
    with factored() as factor:
        assert np.array_equal(small, np.asarray(factor))


def test_a_second_call_locks_only_what_it_reads(registered):
    import cupy as cp

    a = cp.asarray(A)  # so that only L is locked
    with factored(a) as factor:
        first, memory, nbytes = np.asarray(factor), blocks_of(factor).memory, blocks_of(factor).nbytes
    assert locked_pages(memory) == nbytes // 4096, "it is kept for the next call"
    calls = len(registered)
    assert calls > 10
    with factored(a) as factor:
        assert np.array_equal(first, np.asarray(factor)) and blocks_of(factor).memory is memory
    assert len(registered) == calls


def test_no_page_stays_locked_once_memory_is_released():
    factor = factored()
    memory, pieces = blocks_of(factor).memory, blocks_of(factor).locks.pieces
    factor.close()
    RELEASER.release_now()
    assert not any(is_locked(piece.low) or is_locked(piece.high - 1) for piece in pieces)
    assert locked_pages(memory) == 0
    assert RELEASER.pending_bytes == 0


def test_memory_is_released_after_its_grace(monkeypatch):
    monkeypatch.setattr(RELEASER, "grace_seconds", 0.1)
    factor = factored()
    memory = blocks_of(factor).memory
    factor.close()
    deadline = time.monotonic() + 10.0
    while RELEASER.pending_bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert RELEASER.pending_bytes == 0 and locked_pages(memory) == 0


def test_what_the_driver_refuses_goes_through_staging_buffers():
    from cupy.cuda import runtime

    with oc.HostMemory() as memory:
        with factored(store=memory) as factor:
            expected = np.asarray(factor)
        block = memory._held[0]
        block.locks.close()
        middle = block.memory.ctypes.data + 3 * 8 * NB * NB // 2 // 4096 * 4096  # inside of the second tile
        runtime.hostRegister(middle, 4096, 1)
        try:
            with factored(store=memory) as factor:
                states = {piece.state for piece in block.locks.pieces}
                assert states == {LockState.LOCKED, LockState.REFUSED}
                assert factor.report.execution.refused_bytes > 0
                assert "could not be page-locked" in str(factor.report)
                assert np.array_equal(expected, np.asarray(factor))
                np.testing.assert_allclose(factor.solve(A @ np.ones((N, 40))), np.ones((N, 40)), atol=1e-5)
        finally:
            memory.close()
            RELEASER.release_now()
            runtime.hostUnregister(middle)


def test_a_memory_serves_factors_of_several_tile_orders(registered):
    with oc.HostMemory() as memory:
        for nb in (256, 200, 256, 128):
            with oc.cholesky(A, tile_size=nb, devices="cuda:0", store=memory) as factor:
                check_factor(factor, A)
                block = blocks_of(factor)
                assert {piece.state for piece in block.locks.pieces} == {LockState.LOCKED}
        raw = block.memory
    low = raw.ctypes.data
    own = [address for address in registered if low <= address < low + raw.size]
    assert len(own) == len(set(own)) > 10, "no piece is locked twice"
    RELEASER.release_now()
    assert locked_pages(raw[: 4 << 20]) == 0


@pytest.mark.parametrize(
    "before", [{"fp64": "residue", "tile_size": 128}, {"precision_threshold": 1e-4, "tile_size": 200}], ids=str
)
def test_memory_of_a_call_of_another_engine_serves_the_next(before, registered):
    """Pages that it lacks are locked beside, and none of it anew."""
    import cupy as cp

    a = cp.asarray(A)  # so that only L is locked
    with oc.cholesky(a, devices="cuda:0", store="host", objective="bytes", **before) as factor:
        there = [(piece.low, piece.high) for piece in blocks_of(factor).locks.pieces]
    registered.clear()
    with factored(a) as factor:
        check_factor(factor, A)
        assert {piece.state for piece in blocks_of(factor).locks.pieces} == {LockState.LOCKED}
        low, high = there[0][0], there[-1][1]
        assert not [address for address in registered if low <= address < high]
        if "fp64" in before:
            assert blocks_of(factor).memory.ctypes.data == low


@pytest.mark.parametrize("threshold", [None, 1e-5])
@pytest.mark.parametrize("pages", [11, 300])
def test_copies_are_cut_where_pieces_meet(monkeypatch, threshold, pages):
    monkeypatch.setattr(locking, "PIECE_BYTES", pages * 4096)  # hardly a tile begins or ends with a piece
    a, b = FAMILIES["exponential"](N), np.random.default_rng(0).standard_normal((N, 40))
    nb = NB if threshold is None else 128
    how = {"tile_size": nb, "devices": "cuda:0", "fp64": "native", "precision_threshold": threshold, "objective": "bytes"}
    slots = {"memory_budget": workspace_bytes(NB) + 12 * 8 * NB * NB} if threshold is None else {}
    with oc.cholesky(a, store="host", **how, **slots) as host, oc.cholesky(a, store="device", **how) as device:
        pieces = blocks_of(host).locks.pieces
        assert len(pieces) > 5 and {piece.state for piece in pieces} == {LockState.LOCKED}
        assert host.formats == device.formats and (len(host.formats) > 1) == (threshold is not None)
        assert threshold is not None or host.report.bytes.planned["fetch"] > 0
        assert np.array_equal(np.asarray(host), np.asarray(device))
        np.testing.assert_allclose(host.half_solve(b), device.half_solve(b), rtol=1e-9, atol=1e-9)


# A's memory


@pytest.mark.parametrize("order", "CF")
def test_an_array_is_locked_in_pieces_for_the_run_only(order, registered):
    a = np.array(A, order=order)
    with factored(np.array(A)) as factor:
        expected = np.asarray(factor)
    registered.clear()
    with factored(a) as factor:
        assert np.array_equal(expected, np.asarray(factor))
        low, high = np.lib.array_utils.byte_bounds(a)
        own = [address for address in registered if low <= address < high]
        assert (len(own) > 3) == (order == "C"), "columns are gathered by the host anyway"
    assert locked_pages(a) == 0


def test_an_array_with_a_pitch_and_one_row_too_many_is_read_right():
    n = 7 * NB + 1  # the last tile column is one entry wide: the band's end is part of a tile
    whole = np.zeros((n, n + 10))
    whole[:, :n] = FAMILIES["exponential"](n)
    with factored(whole[:, :n].copy()) as one, factored(whole[:, :n]) as other:
        assert np.array_equal(np.asarray(one), np.asarray(other))
        check_factor(one, whole[:, :n].copy())


def test_an_array_that_the_user_has_locked_stays_locked():
    import cupyx

    a = cupyx.empty_pinned((N, N))
    a[...] = A
    with factored(a) as factor:
        check_factor(factor, A)
    assert is_locked(a.ctypes.data) and is_locked(a.ctypes.data + a.nbytes - 8)


def test_a_mapping_that_is_read_only_is_read_through_staging_buffers(tmp_path):
    (tmp_path / "a.bin").write_bytes(A.tobytes())
    with open(tmp_path / "a.bin", "rb") as file:
        a = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)).reshape(N, N)
    with factored(a) as factor:
        check_factor(factor, A)


# solves and mixed precision


def test_solves_find_the_pieces_locked():
    with factored() as factor:
        block = blocks_of(factor)
        b = A @ np.ones((N, 64))
        np.testing.assert_allclose(factor.solve(b), np.ones((N, 64)), atol=1e-5)
        assert {piece.state for piece in block.locks.pieces} == {LockState.LOCKED}
        assert locked_pages(block.memory) == block.nbytes // 4096
    RELEASER.release_now()
    assert locked_pages(block.memory) == 0


@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("threshold", [1e-3, 1e-8])
def test_mixed_precision_in_pieces(fp64, threshold):
    a = FAMILIES["exponential"](N)
    with oc.cholesky(a, precision_threshold=threshold, tile_size=NB, devices="cuda:0", fp64=fp64, store="host") as factor:
        l_dense = np.asarray(factor)
    assert np.linalg.norm(a - l_dense @ l_dense.T) <= threshold * np.linalg.norm(a)


# waiting that ends


def slow(monkeypatch, before):
    """Let ``before()`` run before each piece is locked."""
    from tests.inside.hardware import CudaRegistrar

    real = CudaRegistrar.register

    def register(self, address, nbytes):
        before()
        return real(self, address, nbytes)

    monkeypatch.setattr(CudaRegistrar, "register", register)


def test_a_run_waits_for_slow_locking_and_says_how_long(monkeypatch):
    slow(monkeypatch, lambda: time.sleep(0.02))
    with factored() as factor:
        check_factor(factor, A)
        assert factor.report.execution.locking_seconds > 0.02
        assert "page-locked" in str(factor.report)


@pytest.mark.parametrize("at", [0, 700, N - 1])
def test_a_failed_pivot_ends_a_run_that_waits(monkeypatch, at):
    slow(monkeypatch, lambda: time.sleep(0.02))
    a = 2.0 * np.eye(N)
    a[at, at] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        factored(a)
    assert caught.value.minor == at + 1
    RELEASER.release_now()
    assert locked_pages(a) == 0 and RELEASER.pending_bytes == 0


@pytest.mark.parametrize("devices", ["cuda:0", pytest.param(("cuda:0", "cuda:1"), marks=pytest.mark.multigpu)])
def test_an_interrupt_ends_a_run_that_waits(monkeypatch, devices):
    gate, begun = threading.Event(), threading.Event()

    def wait():
        begun.set()
        gate.wait(30.0)

    def interrupt():
        begun.wait(30.0)
        time.sleep(2.0)  # by then enqueuing waits for the first piece
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)
        gate.set()  # the thread is inside the driver, and is waited for

    slow(monkeypatch, wait)
    killer = threading.Thread(target=interrupt)
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        factored(devices=devices)
    killer.join()
    RELEASER.release_now()
    with factored(devices=devices) as factor:
        check_factor(factor, A)


def test_an_error_of_the_locking_thread_is_the_runs(monkeypatch):
    def fail():
        raise RuntimeError("no such driver")

    with monkeypatch.context() as patch:
        slow(patch, fail)
        with pytest.raises(oc.errors.TierError, match="no such driver"):
            factored()
    with factored() as factor:
        check_factor(factor, A)


@pytest.mark.multigpu
@pytest.mark.parametrize("slots", [6, 40])
def test_two_gpus_share_the_pieces(slots):
    with factored() as factor:
        one = np.asarray(factor)
    with factored(devices=("cuda:0", "cuda:1"), slots=slots) as factor:
        assert np.array_equal(one, np.asarray(factor))
        assert {piece.state for piece in blocks_of(factor).locks.pieces} == {LockState.LOCKED}
