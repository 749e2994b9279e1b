"""The tile kernels of the host: backward errors, flags, and the same bits wherever the tiles lie."""

from __future__ import annotations

import ctypes
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import AbstractFlags
from ooc_chol.kernels import blas
from ooc_chol.kernels.host import HostFlags, HostKernels
from tests.tolerances import potrf_bound, trsm_bound, update_bound

pytestmark = pytest.mark.host

KERNELS = HostKernels()
ORDERS = st.integers(1, 40)
SEEDS = st.integers(0, 2**32 - 1)
# Orders around the one from which SYRK works in halves.
LARGE_ORDERS = [255, 256, 257, 300]


class ImmediateStream:
    """A stream whose operations are done when they are enqueued."""

    def enqueue(self, operation: Callable[[], None]) -> None:
        operation()


STREAM = ImmediateStream()


def lower_tile(rng, n):
    """A well-conditioned lower triangular tile."""
    return np.tril(rng.standard_normal((n, n))) / np.sqrt(n) + 2 * np.eye(n)


def positive_tile(rng, n):
    """A symmetric positive definite tile."""
    factor = lower_tile(rng, n)
    return factor @ factor.T


def strict_upper(n):
    return np.triu(np.ones((n, n), dtype=bool), 1)


def with_leading_dimension(a, extra):
    """``a`` inside a wider array of NaN, and that array."""
    wide = np.full((a.shape[0], a.shape[1] + extra), np.nan)
    wide[:, : a.shape[1]] = a
    return wide[:, : a.shape[1]], wide


# backward errors


@given(m=ORDERS, n=ORDERS, k=ORDERS, extra=st.integers(0, 3), seed=SEEDS)
def test_gemm_is_accurate_at_any_leading_dimension(m, n, k, extra, seed):
    rng = np.random.default_rng(seed)
    before, l_ik, l_jk = rng.standard_normal((m, n)), rng.standard_normal((m, k)), rng.standard_normal((n, k))
    a_ij, wide = with_leading_dimension(before, extra)
    KERNELS.gemm(STREAM, a_ij, with_leading_dimension(l_ik, extra)[0], with_leading_dimension(l_jk, extra)[0], k0=0)
    exact = before - l_ik.astype(np.longdouble) @ l_jk.T
    assert np.all(np.abs(a_ij - exact) <= update_bound(before, l_ik, l_jk))
    assert np.isnan(wide[:, n:]).all()


@given(n=ORDERS, k=ORDERS, extra=st.integers(0, 3), seed=SEEDS)
def test_syrk_is_accurate_and_leaves_the_upper_triangle_alone(n, k, extra, seed):
    check_syrk(n, k, extra, seed)


@pytest.mark.parametrize("n", LARGE_ORDERS)
def test_syrk_in_halves_is_accurate_and_leaves_the_upper_triangle_alone(n):
    check_syrk(n, 17, 1, n)


def check_syrk(n, k, extra, seed):
    rng = np.random.default_rng(seed)
    before, l_ik = rng.standard_normal((n, n)), rng.standard_normal((n, k))
    before[strict_upper(n)] = np.nan
    a_ii, wide = with_leading_dimension(before, extra)
    KERNELS.syrk(STREAM, a_ii, l_ik, k0=0)
    exact = before - l_ik.astype(np.longdouble) @ l_ik.T
    lower = ~strict_upper(n)
    assert np.all(np.abs(a_ii - exact)[lower] <= update_bound(before, l_ik, l_ik)[lower])
    assert np.isnan(a_ii[~lower]).all()
    assert np.isnan(wide[:, n:]).all()


@given(m=ORDERS, n=ORDERS, extra=st.integers(0, 3), seed=SEEDS)
def test_trsm_is_backward_stable_and_does_not_read_the_upper_triangle(m, n, extra, seed):
    rng = np.random.default_rng(seed)
    l_kk, before = lower_tile(rng, n), rng.standard_normal((m, n))
    x, wide = with_leading_dimension(before, extra)
    KERNELS.trsm(STREAM, np.where(strict_upper(n), np.nan, l_kk), x, 0)
    residual = x.astype(np.longdouble) @ l_kk.T - before
    assert np.all(np.abs(residual) <= trsm_bound(x, l_kk))
    assert np.isnan(wide[:, n:]).all()


@given(n=ORDERS, extra=st.integers(0, 3), seed=SEEDS)
def test_potrf_is_backward_stable_and_clears_the_upper_triangle(n, extra, seed):
    check_potrf(n, extra, seed)


@pytest.mark.parametrize("n", LARGE_ORDERS)
def test_potrf_of_a_large_tile_is_backward_stable(n):
    check_potrf(n, 1, n)


def check_potrf(n, extra, seed):
    before = positive_tile(np.random.default_rng(seed), n)
    l_kk, wide = with_leading_dimension(np.where(strict_upper(n), np.nan, before), extra)
    flags = HostFlags(1)
    KERNELS.potrf(STREAM, l_kk, flags, 0)
    residual = l_kk.astype(np.longdouble) @ l_kk.T - before
    lower = ~strict_upper(n)
    assert np.all(np.abs(residual)[lower] <= potrf_bound(l_kk)[lower])
    assert np.all(l_kk[~lower] == 0)
    assert np.isnan(wide[:, n:]).all()
    assert flags.failed_pivot() is None


# flags


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, -np.inf, np.inf])
@pytest.mark.parametrize(("n", "minor"), [(1, 1), (2, 1), (2, 2), (9, 4), (65, 65), (300, 1), (300, 171)])
def test_potrf_flags_the_first_pivot_that_is_not_positive(n, minor, value):
    a_kk = np.eye(n)
    a_kk[minor - 1, minor - 1] = value
    if minor < n:
        a_kk[n - 1, n - 1] = -1.0
    flags = HostFlags(3)
    KERNELS.potrf(STREAM, a_kk, flags, 1)
    assert flags.failed_pivot() == (1, minor)


@given(n=ORDERS, seed=SEEDS, data=st.data())
def test_potrf_flags_the_minor_of_an_indefinite_tile(n, seed, data):
    minor = data.draw(st.integers(1, n))
    factor = lower_tile(np.random.default_rng(seed), n)
    signs = np.where(np.arange(n) == minor - 1, -1.0, 1.0)
    a_kk = (factor * signs) @ factor.T
    flags = HostFlags(1)
    KERNELS.potrf(STREAM, a_kk, flags, 0)
    assert flags.failed_pivot() == (0, minor)


def test_overflow_in_an_update_is_a_failed_pivot():
    # Finite entries of an indefinite tile: 1 - 1e200**2 is minus infinity, and infinity minus infinity is NaN.
    a_kk = np.array([[1.0, 0, 0], [1e200, 1.0, 0], [1e200, 1e200, 1.0]])
    flags = HostFlags(1)
    KERNELS.potrf(STREAM, a_kk, flags, 0)
    assert flags.failed_pivot() == (0, 2)


def test_the_smallest_failed_column_is_told():
    flags = HostFlags(4)
    for k in (3, 1):
        KERNELS.potrf(STREAM, np.diag([1.0, -1.0 * k]), flags, k)
    KERNELS.potrf(STREAM, np.eye(2), flags, 0)
    assert flags.failed_pivot() == (1, 2)


def test_a_refused_lapack_argument_is_a_schedule_error(monkeypatch):
    monkeypatch.setattr(blas, "potrf", lambda a_kk: -4)
    with pytest.raises(ScheduleError, match=r"argument 4 for tile \(2, 2\) of shape \(3, 3\)"):
        KERNELS.potrf(STREAM, np.eye(3), HostFlags(3), 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@given(m=ORDERS, n=ORDERS, data=st.data())
def test_check_finite_tells_the_first_position(value, m, n, data):
    a_ij = np.zeros((m, n))
    positions = sorted(data.draw(st.sets(st.integers(0, m * n - 1), min_size=1, max_size=3)))
    a_ij.flat[positions] = value
    flags = HostFlags(3)
    KERNELS.check_finite(STREAM, a_ij, False, flags, 4)
    assert flags.nonfinite() == (4, positions[0])


def test_check_finite_takes_opposite_infinities_for_what_they_are():
    flags = HostFlags(1)
    KERNELS.check_finite(STREAM, np.array([[1.0, 2.0], [np.inf, -np.inf]]), False, flags, 0)
    assert flags.nonfinite() == (0, 2)


@given(n=ORDERS, data=st.data())
def test_check_finite_of_a_diagonal_tile_ignores_its_upper_triangle(n, data):
    row = data.draw(st.integers(0, n - 1))
    col = data.draw(st.integers(0, row))
    a_ii = np.where(strict_upper(n), np.nan, 1.0)
    flags = HostFlags(1)
    KERNELS.check_finite(STREAM, a_ii, True, flags, 0)
    assert flags.nonfinite() is None
    a_ii[row, col] = np.inf
    KERNELS.check_finite(STREAM, a_ii, True, flags, 0)
    assert flags.nonfinite() == (0, row * n + col)


def test_check_finite_lets_huge_entries_pass_whose_sum_overflows():
    flags = HostFlags(1)
    KERNELS.check_finite(STREAM, np.full((20, 20), 1.7e308), False, flags, 0)
    assert flags.nonfinite() is None


@pytest.mark.parametrize("bad", [[], [700_000]])
def test_check_finite_allocates_little(bad):
    a_ij = np.ones((1000, 1000))
    a_ij.flat[bad] = np.nan
    flags = HostFlags(1)
    tracemalloc.start()
    try:
        KERNELS.check_finite(STREAM, a_ij, False, flags, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < a_ij.nbytes / 50
    assert flags.nonfinite() == ((0, bad[0]) if bad else None)


def test_the_smallest_tile_with_a_nonfinite_entry_is_told():
    flags = HostFlags(4)
    assert flags.nonfinite() is None
    for packed in (9, 2, 5):
        KERNELS.check_finite(STREAM, np.array([[0.0, np.nan]]), False, flags, packed)
    flags.copy_back(STREAM)
    assert flags.nonfinite() == (2, 1)


def test_flags_of_another_device_are_refused():
    class OtherFlags(AbstractFlags):
        copy_back = nonfinite = failed_pivot = None

    with pytest.raises(TypeError, match="OtherFlags"):
        KERNELS.potrf(STREAM, np.eye(2), OtherFlags(), 0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_updates_with_nonfinite_operands_end_and_pass_them_on(value):
    operand = np.eye(40)
    operand[3, 2] = value
    for call in (
        lambda out: KERNELS.gemm(STREAM, out, operand, np.eye(40), k0=0),
        lambda out: KERNELS.syrk(STREAM, out, operand, k0=0),
        lambda out: KERNELS.trsm(STREAM, operand, out, 0),
    ):
        out = np.ones((40, 40))
        call(out)
        assert not np.isfinite(out[3:, 3]).all()


# what BLAS would read outside of is refused


@pytest.mark.parametrize(
    "call",
    [
        lambda: blas.gemm(np.ones((3, 4)), np.ones((3, 5)), np.ones((3, 5))),
        lambda: blas.gemm(np.ones((3, 4)), np.ones((3, 5)), np.ones((4, 6))),
        lambda: blas.gemm(np.ones((3, 4)), np.ones((2, 5)), np.ones((4, 5))),
        lambda: blas.syrk(np.ones((3, 4)), np.ones((3, 5))),
        lambda: blas.trsm(np.ones((3, 3)), np.ones((3, 4))),
        lambda: blas.potrf(np.ones((3, 4))),
        lambda: blas.zero_strict_upper(np.ones((3, 4))),
        lambda: blas.gemm(np.ones((3, 3), order="F"), np.ones((3, 3)), np.ones((3, 3))),
        lambda: blas.potrf(np.eye(6)[::2, ::2]),
        lambda: blas.potrf(np.eye(3)[::-1]),
    ],
)
def test_shapes_and_strides_that_blas_cannot_take_are_refused(call):
    with pytest.raises(ValueError, match="has shape"):
        call()


def test_a_leading_dimension_beyond_32_bits_is_refused():
    one = np.zeros(1)
    far = np.lib.stride_tricks.as_strided(one, (2, 1), (8 * 2**31, 8))
    with pytest.raises(ValueError, match="2147483648 does not fit"):
        blas.gemm(far, np.ones((2, 1)), np.ones((1, 1)))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.dtype(">f8")])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match="takes float64"):
        blas.potrf(np.eye(3, dtype=dtype))


# one tile, one result to the bit


def run_kernel(kind, tiles):
    """Run one kernel on copies that the caller placed; return the changed tile."""
    out, first, second = tiles
    calls = {
        "gemm": lambda: KERNELS.gemm(STREAM, out, first, second, k0=0),
        "syrk": lambda: KERNELS.syrk(STREAM, out, first, k0=0),
        "trsm": lambda: KERNELS.trsm(STREAM, first, out, 0),
        "potrf": lambda: KERNELS.potrf(STREAM, out, HostFlags(1), 0),
    }
    calls[kind]()
    return out.copy()


def kernel_tiles(kind, m, n, k, rng):
    """Output and operands of one kernel call."""
    if kind == "gemm":
        return rng.standard_normal((m, n)), rng.standard_normal((m, k)), rng.standard_normal((n, k))
    if kind == "syrk":
        return rng.standard_normal((m, m)), rng.standard_normal((m, k)), np.ones((1, 1))
    if kind == "trsm":
        return rng.standard_normal((m, n)), lower_tile(rng, n), np.ones((1, 1))
    return positive_tile(rng, n), np.ones((1, 1)), np.ones((1, 1))


def placed(a, offset_bytes):
    """A copy of ``a`` that starts ``offset_bytes`` behind a multiple of 4096."""
    memory = np.empty(a.nbytes + 8192, dtype=np.uint8)
    start = -memory.ctypes.data % 4096 + offset_bytes
    copy = memory[start : start + a.nbytes].view(np.float64).reshape(a.shape)
    copy[...] = a
    return copy


SHAPES = [(1, 1, 1), (64, 64, 64), (1, 64, 64), (64, 1, 64), (63, 65, 31), (257, 256, 256), (300, 300, 300), (44, 500, 500)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["gemm", "syrk", "trsm", "potrf"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_bits_do_not_depend_on_where_the_tiles_lie(kind, shape, threads):
    tiles = kernel_tiles(kind, *shape, np.random.default_rng(sum(shape)))
    with blas.blas_threads(threads):
        expected = run_kernel(kind, [placed(tile, 0) for tile in tiles])
        for offsets in ((0, 0, 0), (8, 0, 0), (0, 8, 24), (16, 40, 8), (56, 8, 32), (2048, 1032, 64)):
            got = run_kernel(kind, [placed(tile, offset) for tile, offset in zip(tiles, offsets, strict=True)])
            assert np.array_equal(got, expected), offsets


@pytest.mark.parametrize("kind", ["gemm", "syrk", "trsm", "potrf"])
def test_the_bits_do_not_depend_on_other_threads(kind):
    tiles = kernel_tiles(kind, 200, 180, 160, np.random.default_rng(1))
    with blas.blas_threads(1), ThreadPoolExecutor(3) as pool:
        expected = run_kernel(kind, [tile.copy() for tile in tiles])
        results = pool.map(lambda _: run_kernel(kind, [tile.copy() for tile in tiles]), range(30))
        assert all(np.array_equal(result, expected) for result in results)


def test_the_interpreter_lock_is_released(one_blas_thread):
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    operand, out = np.ones((1200, 1200)), np.zeros((1200, 1200))
    counter = threading.Thread(target=count)
    counter.start()
    try:
        blas.gemm(out, operand, operand)  # once, so that the library's buffers exist
        during = []
        for _ in range(3):
            before = counted[0]
            blas.gemm(out, operand, operand)
            during.append(counted[0] - before)
    finally:
        stop.set()
        counter.join()
    # With the lock held, the other thread could count only around the call: a few times.
    assert max(during) > 300


# the library


def test_blas_identity_names_the_library(one_blas_thread):
    identity = blas.blas_identity()
    assert set(identity) == {"library", "version", "architecture"}
    assert all(isinstance(value, str) and value for value in identity.values())
    assert identity == blas.blas_identity()


def test_blas_identity_is_that_of_scipys_own_library(monkeypatch):
    def library(path, version):
        return {"user_api": "blas", "internal_api": "openblas", "filepath": path, "version": version, "num_threads": 3}

    package = scipy.__file__.removesuffix("/scipy/__init__.py")
    found = [library(f"{package}/numpy.libs/a.so", "1"), library(f"{package}/scipy.libs/b.so", "2")]
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: found)
    assert blas.blas_identity() == {"library": "openblas", "version": "2", "architecture": "unknown"}
    del found[1]
    assert blas.blas_identity()["version"] == "1"
    assert blas.current_threads() == 3


def test_a_library_unknown_to_threadpoolctl_is_named_as_in_scipys_build(monkeypatch):
    monkeypatch.setattr(threadpoolctl, "threadpool_info", list)
    identity = blas.blas_identity()
    assert identity["library"] and identity["architecture"] == "unknown"
    assert blas.current_threads() == 0


def test_blas_threads_limits_and_restores():
    before = blas.current_threads()
    with pytest.raises(KeyError), blas.blas_threads(1):
        assert blas.current_threads() == 1
        raise KeyError
    assert blas.current_threads() == before
    with pytest.raises(ValueError, match="at least 1"), blas.blas_threads(0):
        pass


def test_a_scipy_with_64_bit_integers_is_refused():
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    name = b"void (char *, long *, __pyx_t_5scipy_6linalg_13cython_lapack_d *, long *, long *)"
    module = SimpleNamespace(__pyx_capi__={"dpotrf": new_capsule(1, name, None)})
    with pytest.raises(ImportError, match="32-bit"):
        blas._routine(module, "dpotrf")
