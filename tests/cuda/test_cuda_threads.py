"""Threads that use one GPU at once: what one waits for does not void what another one captures."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from scipy.sparse import random_array

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.host.scans import NoKernels
from tests.inside.hardware import open_device
from tests.inside.runtime import device_for_a_pass

pytestmark = pytest.mark.cuda

N = 4000
FOURIER = oc.GraphFourier(np.roll(np.eye(16), 1, axis=1) + np.roll(np.eye(16), -1, axis=1))
T = oc.testing.low_rank_tensor(FOURIER, 40, 30, 2)
MASK = oc.testing.random_mask(T.shape, 0.8)


def eigsh(seed):
    a = random_array((N, N), density=0.01, rng=np.random.default_rng(seed), format="csr")
    return oc.eigsh(a + a.T, k=3, tol=1e-8, devices="cuda:0").eigenvalues


def lobpcg(seed):
    a = random_array((N, N), density=0.01, rng=np.random.default_rng(seed), format="csr")
    return oc.eigsh(oc.laplacian(a + a.T, normalized=True), k=3, which="SA", method="lobpcg", devices="cuda:0").eigenvalues


def cholesky(seed):
    with oc.cholesky(FAMILIES["exponential"](1500) + seed * np.eye(1500), tile_size=256, devices="cuda:0") as factor:
        return np.asarray(factor)


def impute(seed):
    return np.asarray(oc.impute(T + seed, MASK, FOURIER, devices="cuda:0").tensor)


def test_threads_compute_on_one_gpu_at_once():
    """Filters, products and panels are captured while other threads give memory back: the bits are those of calls alone."""
    calls = [(call, seed) for seed in range(3) for call in (eigsh, lobpcg, cholesky, impute)]
    alone = [call(seed) for call, seed in calls]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(lambda each: each[0](each[1]), calls))
            assert all(np.array_equal(one, other) for one, other in zip(found, alone, strict=True))


@pytest.fixture
def opened():
    with device_for_a_pass(lambda: open_device("cuda:0", NoKernels()), nullcontext()) as device:
        yield device, device.create_stream("captured")


def filling(stream, target, what=lambda: None):
    """A function that enqueues the numbers 1 to 50 one after the other into ``target``."""
    from tests.inside.hardware import cuda_stream

    def enqueue():
        with cuda_stream(stream).stream:
            for number in range(1, 51):
                target.fill(number)
                what()

    return enqueue


def test_memory_goes_back_between_captures(opened):
    """The thread that gives it back waits for the whole GPU, which no stream may capture then."""
    import cupy as cp

    from tests.inside.hardware import device_memory

    (device, stream), target, is_over = opened, cp.zeros(4), threading.Event()

    def give_back():
        count = 0
        while not is_over.is_set():
            with cp.cuda.Device(0):
                device_memory(1 << 20)  # which nobody holds
            count += 1
        return count

    with ThreadPoolExecutor(1) as pool:
        given = pool.submit(give_back)
        try:
            for _ in range(100):
                enqueue = filling(stream, target, lambda: time.sleep(1e-5))
                launch = device.captured(stream, enqueue)
                assert launch is not enqueue
                launch()
                stream.synchronize()
                assert target.get().tolist() == [50.0] * 4
        finally:
            is_over.set()
    assert given.result() > 10


def test_what_a_stranger_voids_is_enqueued_as_it_is(opened):
    """A library that waits for the whole GPU on its own thread gets an error, and the capture is void."""
    import cupy as cp

    (device, stream), target, strange = opened, cp.zeros(4), []

    def stranger():
        try:
            cp.cuda.Device(0).synchronize()
        except cp.cuda.runtime.CUDARuntimeError as error:
            strange.append(error)

    def meet():
        thread = threading.Thread(target=stranger)
        thread.start()
        thread.join()

    enqueue = filling(stream, target, meet)
    launch = device.captured(stream, enqueue)
    assert strange and launch is enqueue
    strange.clear()
    launch()
    stream.synchronize()
    assert not strange and target.get().tolist() == [50.0] * 4
    alone = filling(stream, target)
    assert device.captured(stream, alone) is not alone


def test_an_error_of_what_is_captured_is_raised(opened):
    device, stream = opened
    with pytest.raises(ZeroDivisionError):
        device.captured(stream, lambda: 1 // 0)
    import cupy as cp

    target = cp.zeros(4)
    device.captured(stream, filling(stream, target))()
    stream.synchronize()
    assert target.get().tolist() == [50.0] * 4
