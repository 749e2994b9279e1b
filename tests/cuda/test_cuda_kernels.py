"""The CUDA tile kernels against FP64 references in long double, with the bounds of the host's kernel table."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import potrf_bound, trsm_bound, update_bound

pytestmark = pytest.mark.cuda

SHAPES = [(1, 1, 1), (5, 3, 7), (64, 64, 64), (130, 97, 257), (513, 512, 512), (700, 1100, 1100), (1024, 1024, 1024)]


@pytest.fixture
def bench():
    """A device with an arena for tiles of order 1100, one stream and flags."""
    from ooc_chol.machine import open_device

    device = open_device("cuda:0")
    device.allocate(4, 8 * 1100 * 1100, 1100)
    try:
        yield device, device.create_stream("test"), device.create_flags(2)
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
