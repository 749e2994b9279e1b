"""Memory of GPUs: what one call gave back is had again, and is nobody's loss meanwhile."""

from __future__ import annotations

import sys
from contextlib import closing

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import open_device
from tests.host.matrices import FAMILIES
from tests.inside.memory import RELEASER

pytestmark = pytest.mark.cuda

MIB = 1 << 20


@pytest.fixture
def pools():
    from tests.inside.hardware import pools

    return pools


@pytest.fixture
def cp():
    import cupy

    RELEASER.release_now()
    with cupy.cuda.Device(0):
        yield cupy


def test_memory_that_was_given_back_is_had_again(cp, pools):
    pool, _ = pools.pools_of(0)
    memory = pools.device_memory(300 * MIB)
    assert memory.size == 300 * MIB and memory.ptr % 256 == 0
    one = cp.ndarray((300 * MIB,), np.uint8, cp.cuda.MemoryPointer(memory, 0))
    one[...] = 7
    assert int(one[-1]) == 7
    kept = pool.kept_bytes()
    del memory, one
    assert pool.kept_bytes() == kept + 300 * MIB
    again = pools.device_memory(300 * MIB)
    assert pool.kept_bytes() == kept
    del again
    pool.trim()
    assert pool.kept_bytes() < kept + 300 * MIB


def test_an_array_that_lives_keeps_its_memory(cp, pools):
    array = cp.ndarray((MIB,), np.float64, cp.cuda.MemoryPointer(pools.device_memory(8 * MIB), 0))
    array[...] = 3.0
    for each in pools.pools_of(0):
        each.trim()
    others = [pools.device_memory(8 * MIB) for _ in range(4)]
    for each in others:
        cp.cuda.runtime.memset(each.ptr, 0xFF, 8 * MIB)
    assert float(array.min()) == float(array.max()) == 3.0


def test_no_bytes_need_no_memory(cp, pools):
    assert pools.device_memory(0).ptr == 0


def test_memory_is_given_back_behind_all_work_of_the_device(cp, pools):
    """A stream that still writes when nobody holds the memory any more writes into nobody else's."""
    stream = cp.cuda.Stream(non_blocking=True)
    memory = pools.device_memory(64 * MIB)
    for value in range(200):
        cp.cuda.runtime.memsetAsync(memory.ptr, value, 64 * MIB, stream.ptr)
    del memory
    assert stream.done
    other = pools.device_memory(64 * MIB)
    view = cp.ndarray((64 * MIB,), np.uint8, cp.cuda.MemoryPointer(other, 0))
    view[...] = 1
    assert int(view.min()) == int(view.max()) == 1


@pytest.mark.alone
def test_what_is_kept_is_anybodys_in_the_process(cp, pools):
    free, total = pools.free_and_total()
    memory = pools.device_memory(int(0.6 * free))
    del memory
    kept = pools.kept_bytes(0)
    assert kept >= int(0.6 * free)
    assert cp.cuda.runtime.memGetInfo()[0] < 0.5 * free
    now, all_of_it = pools.free_and_total()
    assert abs(now - free) < 64 * MIB and all_of_it == total
    theirs = cp.cuda.Memory(int(0.7 * free))  # cudaMalloc
    del theirs
    assert pools.kept_bytes(0) < kept


@pytest.mark.alone
def test_pieces_that_do_not_fit_give_way_to_a_larger_one(cp, pools):
    free, _ = pools.free_and_total()
    pieces = [pools.device_memory(int(0.2 * free)) for _ in range(4)]
    del pieces[::2]
    del pieces
    whole = pools.device_memory(int(0.9 * free))
    assert whole.ptr


@pytest.mark.alone
def test_what_outlives_a_run_and_what_does_not_give_way_to_each_other(cp, pools):
    free, _ = pools.free_and_total()
    for outlives_run in (False, True, False):
        memory = pools.device_memory(int(0.8 * free), outlives_run=outlives_run)
        del memory
        assert pools.pools_of(0)[outlives_run].kept_bytes() >= int(0.8 * free)
        assert abs(pools.free_and_total()[0] - free) < 64 * MIB


def test_what_stays_after_a_run_is_not_in_the_way_of_the_next(cp, pools):
    """A factor that stays on the GPU lies in a pool of its own: the next run of its kind finds what this one gave back."""
    a = FAMILIES["exponential"](6000)
    with oc.cholesky(a, devices="cuda:0", store="device", tile_size=512, memory_budget="400 MiB"):
        runs, lasting = pools.pools_of(0)
        reserved = cp.cuda.runtime.memPoolGetAttribute(runs._pool, cp.cuda.runtime.cudaMemPoolAttrReservedMemCurrent)
        used = lasting.kept_bytes()
        with oc.cholesky(a, devices="cuda:0", store="device", tile_size=512, memory_budget="400 MiB"):
            now = cp.cuda.runtime.memPoolGetAttribute(runs._pool, cp.cuda.runtime.cudaMemPoolAttrReservedMemCurrent)
            assert now == reserved
            assert lasting.kept_bytes() <= max(used, 32 * MIB)


@pytest.mark.alone
def test_other_processes_get_it_after_a_while(cp, pools):
    before = cp.cuda.runtime.memGetInfo()[0]
    kept = pools.device_memory(512 * MIB)
    del kept
    assert cp.cuda.runtime.memGetInfo()[0] < before - 400 * MIB
    RELEASER.release_now()  # two seconds later
    assert cp.cuda.runtime.memGetInfo()[0] > before - 64 * MIB


@pytest.mark.alone
def test_too_much_is_refused_and_nothing_is_lost(cp, pools):
    _, total = pools.free_and_total()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError):
        pools.device_memory(2 * total)
    assert pools.device_memory(MIB).ptr


def test_a_second_factor_takes_the_memory_of_the_first(cp, pools):
    a = FAMILIES["exponential"](3000)
    budget = {"tile_size": 512, "devices": "cuda:0", "memory_budget": "400 MiB", "store": "host"}
    first = oc.cholesky(a, **budget).logdet()
    kept = pools.kept_bytes(0)
    assert kept > 0
    assert oc.cholesky(a, **budget).logdet() == first
    assert pools.kept_bytes(0) == kept


@pytest.mark.multigpu
def test_gpus_reach_each_others_memory(cp, pools):
    with closing(open_device("cuda:0")) as one, closing(open_device("cuda:1")) as other:
        stream = one.create_stream("copies")
        with one.current():
            here = cp.ndarray((512, 512), np.float64, cp.cuda.MemoryPointer(pools.device_memory(2 * MIB), 0))
        with other.current():
            there = cp.ndarray((512, 512), np.float64, cp.cuda.MemoryPointer(pools.device_memory(2 * MIB), 0))
            there[...] = cp.arange(512 * 512, dtype=np.float64).reshape(512, 512)
            cp.cuda.Device().synchronize()
        with one.current():
            one.copy_between(stream, there, here)
            stream.synchronize()
            assert (cp.asnumpy(here) == np.arange(512 * 512.0).reshape(512, 512)).all()
        assert one.reaches(other)


@pytest.mark.multigpu
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float64, np.complex128])
@pytest.mark.parametrize(
    "whole, part",
    [
        ((5, 48, 40), np.s_[:, 8:40, 16:32]),
        ((5, 48, 40), np.s_[:, :, :]),
        ((5, 48, 40), np.s_[1:2, 3:9, :]),
        ((4, 1, 33), np.s_[:, :, 1:]),
        ((3, 7, 16), np.s_[:, ::2, :]),
        ((2, 6, 8), np.s_[:, ::3, 2:3]),
    ],
)
def test_matrices_are_copied_between_gpus_wherever_they_lie(cp, dtype, whole, part):
    """Parts of each plane, to other strides, and planes that are no whole number of rows apart; nothing beside is touched."""
    numbers = (np.arange(np.prod(whole)) % 120).astype(dtype).reshape(whole)
    with closing(open_device("cuda:0")) as one, closing(open_device("cuda:1")) as other:
        with other.current():
            there = cp.asarray(numbers)
            cp.cuda.Device().synchronize()
        with one.current():
            count, rows, columns = numbers[part].shape
            around = cp.full((count, rows + 3, columns + 8), 77, dtype)
            cp.cuda.Device().synchronize()
            stream = one.create_stream("copies")
            one.copy_between(stream, there[part], around[:, 1 : rows + 1, 4 : columns + 4])
            stream.synchronize()
            expected = np.full(around.shape, 77, dtype)
            expected[:, 1 : rows + 1, 4 : columns + 4] = numbers[part]
            assert (cp.asnumpy(around) == expected).all()


def test_memory_for_others_is_freed_wherever_it_is_dropped(cp, monkeypatch):
    """A function that a stream calls must not call CUDA."""
    from tests.inside.hardware import CudaKind

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    lent = [CudaKind().lend("cuda:0", MIB) for _ in range(2)]
    addresses = [each.address for each in lent]
    stream = cp.cuda.Stream(non_blocking=True)
    stream.launch_host_func(lambda _: lent.clear(), None)
    stream.synchronize()
    RELEASER.release_now()
    assert not lent and not told
    of_device = cp.cuda.runtime.cudaMemoryTypeDevice if hasattr(cp.cuda.runtime, "cudaMemoryTypeDevice") else 2
    assert all(cp.cuda.runtime.pointerGetAttributes(address).type != of_device for address in addresses)
