"""The CUDA tile kernels against FP64 references in long double, with the bounds of the host's kernel table."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import open_device
from tests.tolerances import potrf_bound, trsm_bound, update_bound

pytestmark = pytest.mark.cuda

SHAPES = [(1, 1, 1), (5, 3, 7), (64, 64, 64), (130, 97, 257), (513, 512, 512), (700, 1100, 1100), (1024, 1024, 1024)]


@pytest.fixture
def bench():
    """A device with an arena for tiles of order 1100, one stream and flags."""
    device = open_device("cuda:0")
    device.activate()
    device.allocate(4, 8 * 1100 * 1100, 1100)
    try:
        yield device, device.create_stream("test"), device.kernels.create_flags(2)
    finally:
        device.close()


def on_device(*arrays):
    import cupy as cp

    copies = [cp.asarray(a) for a in arrays]
    cp.cuda.Device().synchronize()  # the streams under test do not wait for the default stream
    return copies


def lower_tile(rng, n):
    return np.tril(rng.standard_normal((n, n)) / n**0.5) + 2 * np.eye(n)


@pytest.mark.parametrize("k0", [0, 700, 4000])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gemm(bench, m, n, k, k0):
    device, stream, _ = bench
    rng = np.random.default_rng(0)
    a, left, right = rng.standard_normal((m, n)), rng.standard_normal((m, k)), rng.standard_normal((n, k))
    out, *operands = on_device(a, left, right)
    device.kernels.gemm(stream, out, *operands, k0=k0)
    stream.synchronize()
    exact = a - left.astype(np.longdouble) @ right.T.astype(np.longdouble)
    assert np.all(np.abs(out.get() - exact) <= update_bound(a, left, right))


@pytest.mark.parametrize("k0", [0, 700, 4000])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_syrk_changes_the_lower_triangle_rightly(bench, m, n, k, k0):
    device, stream, _ = bench
    rng = np.random.default_rng(1)
    a, left = rng.standard_normal((m, m)), rng.standard_normal((m, k))
    out, operand = on_device(a, left)
    device.kernels.syrk(stream, out, operand, k0=k0)
    stream.synchronize()
    exact = a - left.astype(np.longdouble) @ left.T.astype(np.longdouble)
    lower = np.tri(m, dtype=bool)
    assert np.all((np.abs(out.get() - exact) <= update_bound(a, left, left))[lower])


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_trsm_is_backward_stable(bench, m, n, k):
    device, stream, _ = bench
    rng = np.random.default_rng(2)
    l_kk, a = lower_tile(rng, n), rng.standard_normal((m, n))
    operand, x = on_device(l_kk, a)
    device.kernels.trsm(stream, operand, x, 0)
    stream.synchronize()
    result = x.get()
    assert np.all(np.abs(result.astype(np.longdouble) @ l_kk.T - a) <= trsm_bound(result, l_kk))


def test_trsm_keeps_inverses_per_column_and_makes_them_anew_after_eviction(bench):
    device, stream, _ = bench
    rng = np.random.default_rng(3)
    tiles = [lower_tile(rng, 300) for _ in range(30)]
    for k in [*range(30), 0, 24, 29, 5]:  # 24 and more take the places of the first
        a = rng.standard_normal((64, 300))
        operand, x = on_device(tiles[k], a)
        device.kernels.trsm(stream, operand, x, k)
        stream.synchronize()
        result = x.get()
        assert np.all(np.abs(result.astype(np.longdouble) @ tiles[k].T - a) <= trsm_bound(result, tiles[k]))


def test_two_streams_share_the_inverses_in_any_order(bench):
    device, stream, _ = bench
    rng = np.random.default_rng(5)
    streams = [stream, device.create_stream("finish", is_urgent=True)]
    tiles = [lower_tile(rng, 300) for _ in range(30)]
    operands, runs = on_device(*tiles), []
    for turn in range(120):  # columns k and k + 24 take turns in one place, on changing streams
        k, a = (turn * 24) % 29, rng.standard_normal((64, 300))
        (x,) = on_device(a)
        if turn % 5 == 0:
            device.kernels.prepare_trsm(streams[(turn + 1) % 2], operands[k], k)
        device.kernels.trsm(streams[turn % 2], operands[k], x, k)
        runs.append((k, a, x))
    for each in streams:
        each.synchronize()
    for k, a, x in runs:
        result = x.get()
        assert np.all(np.abs(result.astype(np.longdouble) @ tiles[k].T - a) <= trsm_bound(result, tiles[k]))


def test_an_urgent_stream_has_a_higher_priority(bench):
    device, stream, _ = bench
    urgent = device.create_stream("finish", is_urgent=True)
    assert urgent.stream.priority < stream.stream.priority == 0


def test_a_stream_more_than_planned_is_refused(bench):
    device, stream, _ = bench
    tiles = on_device(*np.zeros((3, 16, 16)))
    for each in (stream, device.create_stream("second")):
        device.kernels.gemm(each, *tiles, k0=0)
    with pytest.raises(RuntimeError, match="stream cuda:0 third multiplies, but all 2 cuBLAS workspaces are taken"):
        device.kernels.gemm(device.create_stream("third"), *tiles, k0=0)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 512, 700, 1100])
def test_potrf_reads_the_lower_triangle_only_and_zeroes_the_upper(bench, n):
    device, stream, flags = bench
    rng = np.random.default_rng(4)
    g = rng.standard_normal((n, 2 * n))
    a = g @ g.T
    poisoned = np.where(np.tri(n, dtype=bool), a, np.nan)
    (tile,) = on_device(poisoned)
    device.kernels.potrf(stream, tile, flags, 1)
    flags.copy_back(stream)
    stream.synchronize()
    l_kk = tile.get()
    assert not np.triu(l_kk, 1).any()
    assert flags.failed_pivot() is None
    exact = l_kk.astype(np.longdouble)
    assert np.all(np.abs(np.tril(a - exact @ exact.T)) <= potrf_bound(l_kk))


@pytest.mark.parametrize("minor", [1, 2, 40, 97, 300])
@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan])
def test_potrf_flags_the_first_bad_pivot(bench, minor, bad):
    device, stream, flags = bench
    a = np.eye(300)
    a[minor - 1, minor - 1] = bad
    (tile,) = on_device(a)
    device.kernels.potrf(stream, tile, flags, 1)
    flags.copy_back(stream)
    stream.synchronize()
    assert flags.failed_pivot() == (1, minor)


@pytest.fixture(scope="module", params=["", "-DFP64_MMA=8", "-DFP64_MMA=0"])
def triangular(request):
    """The kernels as this device compiles them, and as Ampere and devices without FP64 tensor cores do."""
    import cupy as cp

    from tests.inside.kernels import TriangularKernels

    with cp.cuda.Device(0):  # that of the bench: another test may have left another one current
        return TriangularKernels(*filter(None, [request.param]))


@pytest.mark.parametrize("n", [1, 63, 130, 700])
def test_triangular_kernels_of_every_generation(bench, triangular, n):
    import cupy as cp

    from tests.inside.kernels import cuda as sizes

    _, stream, _ = bench
    rng = np.random.default_rng(6)
    g, c = rng.standard_normal((n, 2 * n)), rng.standard_normal((97, n))
    tile, x = on_device(g @ g.T, c)
    workspace, bad = cp.zeros(sizes.potrf_workspace_bytes(), dtype=np.uint8), cp.full(1, 2**31 - 1, dtype=np.int32)
    inverses = cp.full(sizes.inverse_bytes(n) // 8, np.nan)
    cp.cuda.Device().synchronize()
    triangular.potrf(stream, tile, workspace.data.ptr, bad.data.ptr)
    triangular.invert(stream, tile, inverses.data.ptr)
    triangular.trsm(stream, tile, x, inverses.data.ptr)
    stream.synchronize()
    l_kk, solution = tile.get(), x.get()
    exact = l_kk.astype(np.longdouble)
    assert np.all(np.abs(np.tril(g @ g.T - exact @ exact.T)) <= potrf_bound(l_kk))
    assert np.all(np.abs(solution @ exact.T - c) <= trsm_bound(solution, l_kk))
    assert bad.get() == 2**31 - 1
    assert not workspace[sizes.potrf_inverses_bytes() :].any()  # counters are ready for the next call


def test_the_bits_of_potrf_do_not_depend_on_the_number_of_thread_blocks(bench, monkeypatch):
    from tests.inside.kernels import triangular_source

    device, stream, flags = bench
    rng = np.random.default_rng(7)
    g = rng.standard_normal((1100, 2200))
    factors = []
    for blocks in (1, 2, 7, 64):
        monkeypatch.setattr(triangular_source, "POTRF_BLOCKS", blocks)
        (tile,) = on_device(g @ g.T)
        device.kernels.potrf(stream, tile, flags, 0)
        stream.synchronize()
        factors.append(tile.get())
    assert all(np.array_equal(factors[0], other) for other in factors)


def test_potrfs_on_two_streams_at_once_do_not_disturb_each_other(bench):
    device, stream, flags = bench
    rng = np.random.default_rng(8)
    g = rng.standard_normal((1100, 2200))
    streams = [stream, device.create_stream("finish", is_urgent=True)]
    tiles = on_device(*[g @ g.T] * 12)
    for turn, tile in enumerate(tiles):
        device.kernels.potrf(streams[turn % 2], tile, flags, 0)
    for each in streams:
        each.synchronize()
    assert all(np.array_equal(tiles[0].get(), tile.get()) for tile in tiles)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("row", "col"), [(0, 0), (40, 3), (96, 96), (64, 63)])
def test_check_finite_finds_the_first_place(bench, value, row, col):
    device, stream, flags = bench
    a = np.full((97, 97), 1e308)
    a[row, col] = value
    a[96, 96] = value
    (tile,) = on_device(a)
    device.kernels.check_finite(stream, tile, True, flags, 2)
    flags.copy_back(stream)
    stream.synchronize()
    assert flags.nonfinite() == (2, row * 97 + col)


def test_check_finite_ignores_the_strict_upper_triangle_of_a_diagonal_tile(bench):
    device, stream, flags = bench
    (tile,) = on_device(np.where(np.tri(97, dtype=bool), 1.0, np.nan))
    device.kernels.check_finite(stream, tile, True, flags, 0)
    flags.copy_back(stream)
    stream.synchronize()
    assert flags.nonfinite() is None


def test_three_hundred_steps_wait_in_a_stream_without_blocking_who_enqueues_them(bench):
    import time

    import cupy as cp

    device, stream, _ = bench
    code = """
    extern "C" __global__ void spin(long long ns) {
        long long now, end = 0;
        do {
            asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
            end = end ? end : now + ns;
        } while (now < end);
    }
    """
    spin, other = cp.RawKernel(code, "spin"), device.create_stream("other")
    spin((1,), (1,), (np.int64(0),), stream=other.stream)
    device.reserve_events(640)
    spin((1,), (1,), (np.int64(10**9),), stream=other.stream)
    stream.wait(other.record())
    began = time.perf_counter()
    for _ in range(300):
        stream.record(), stream.record()
    took = time.perf_counter() - began
    stream.synchronize()
    assert took < 0.5 < time.perf_counter() - began


def test_streams_wait_on_events_and_tell_when_they_are_complete(bench):
    import threading

    device, stream, _ = bench
    other = device.create_stream("other")
    first = stream.record()
    other.wait(first)
    told = threading.Event()
    last = other.record()
    device.notify(last, lambda error: told.set() if error is None else None)
    assert told.wait(10)
    assert first.query()
    assert last.time_ns() >= first.time_ns()
    gate = threading.Event()
    stream.stream.launch_host_func(lambda _: gate.wait(10), None)
    held = stream.record()
    assert not held.query()
    gate.set()
    held.synchronize()
    assert held.query()
