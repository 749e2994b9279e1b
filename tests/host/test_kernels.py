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
from tests.builders import host_flags, host_kernels
from tests.inside.kernels import AbstractFlags, AbstractTileNorms, FinalTile, blas
from tests.inside.precision import FORMATS, FP8, FP16, FP32, FP64
from tests.products import pairwise
from tests.tolerances import potrf_bound, sum_bound, trsm_bound, unit_roundoff, update_bound

pytestmark = pytest.mark.host

KERNELS = host_kernels()
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
    flags = host_flags(1)
    KERNELS.potrf(STREAM, l_kk, flags, 0)
    residual = l_kk.astype(np.longdouble) @ l_kk.T - before
    lower = ~strict_upper(n)
    assert np.all(np.abs(residual)[lower] <= potrf_bound(l_kk)[lower])
    assert np.all(l_kk[~lower] == 0)
    assert np.isnan(wide[:, n:]).all()
    assert flags.failed_pivot() is None


# float32: a task is computed in the type of the tile that it changes


def conversion_error(dtype, left, right):
    """What rounding both factors of a product to ``dtype`` may add to it."""
    wider = any(operand.dtype.itemsize > np.dtype(dtype).itemsize for operand in (left, right))
    return 2.1 * unit_roundoff(dtype) * (np.abs(left).astype(np.longdouble) @ np.abs(right).astype(np.longdouble).T) * wider


TYPES = [np.float32, np.float64]
#: Strips and pieces of operands that are converted, and what is left of them.
MIXED_SHAPES = [(1, 1, 1), (40, 30, 20), (130, 40, 513), (513, 520, 5), (600, 1030, 6)]


@pytest.mark.parametrize("shape", MIXED_SHAPES, ids=str)
@pytest.mark.parametrize("types", [(a, b, c) for a in TYPES for b in TYPES for c in TYPES], ids=str)
def test_gemm_computes_in_the_type_of_the_tile_that_it_changes(types, shape):
    (m, n, k), (dtype, left, right), rng = shape, types, np.random.default_rng(sum(shape))
    before = rng.standard_normal((m, n)).astype(dtype)
    l_ik, l_jk = rng.standard_normal((m, k)).astype(left), rng.standard_normal((n, k)).astype(right)
    a_ij = before.copy()
    KERNELS.gemm(STREAM, a_ij, l_ik, l_jk, k0=0)
    assert a_ij.dtype == dtype
    bound = update_bound(before, l_ik, l_jk, dtype) + conversion_error(dtype, l_ik, l_jk)
    assert np.all(np.abs(a_ij - (before - l_ik.astype(np.longdouble) @ l_jk.astype(np.longdouble).T)) <= bound)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (40, 20), (130, 513), (513, 30), (1030, 6)])
def test_syrk_subtracts_float32_operands_in_float64(n, k):
    rng = np.random.default_rng(n)
    before, l_ik = rng.standard_normal((n, n)), rng.standard_normal((n, k)).astype(np.float32)
    before[strict_upper(n)] = np.nan
    a_ii = before.copy()
    KERNELS.syrk(STREAM, a_ii, l_ik, k0=0)
    lower = ~strict_upper(n)
    exact = before - l_ik.astype(np.longdouble) @ l_ik.T.astype(np.longdouble)
    assert np.all(np.abs(a_ii - exact)[lower] <= update_bound(before, l_ik, l_ik)[lower])
    assert np.isnan(a_ii[~lower]).all()


@pytest.mark.parametrize("type_of_l", TYPES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (30, 40), (140, 512), (130, 600), (5, 1100)])
def test_trsm_of_float32_does_not_read_the_upper_triangle(m, n, type_of_l):
    rng = np.random.default_rng(m + n)
    l_kk, before = lower_tile(rng, n).astype(type_of_l), rng.standard_normal((m, n)).astype(np.float32)
    x = before.copy()
    KERNELS.trsm(STREAM, np.where(strict_upper(n), type_of_l(np.nan), l_kk), x, 0)
    rounded = l_kk.astype(np.float32).astype(np.longdouble)
    assert np.all(np.abs(x.astype(np.longdouble) @ rounded.T - before) <= trsm_bound(x, rounded, np.float32))


@pytest.mark.parametrize("kind", ["gemm", "syrk", "trsm"])
def test_operands_of_another_type_are_converted_in_pieces(kind):
    n, (changed, other) = 1500, (np.float64, np.float32) if kind == "syrk" else (np.float32, np.float64)
    out, operand = np.zeros((n, n), dtype=changed), np.eye(n, dtype=other)
    call = {
        "gemm": lambda: KERNELS.gemm(STREAM, out, operand, operand, k0=0),
        "syrk": lambda: KERNELS.syrk(STREAM, out, operand, k0=0),
        "trsm": lambda: KERNELS.trsm(STREAM, operand, out, 0),
    }[kind]
    assert peak_bytes(call) < out.nbytes / 3


def peak_bytes(call):
    """Most bytes that Python and NumPy hold at once on top of what they held before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(64, 48, 32), (300, 300, 300), (1100, 600, 520)], ids=str)
@pytest.mark.parametrize("types", [(np.float64, np.float32), (np.float32, np.float64), (np.float32, np.float32)], ids=str)
def test_the_bits_do_not_depend_on_how_many_threads_share_a_tile(types, shape, one_blas_thread):
    (m, n, k), (dtype, other), rng = shape, types, np.random.default_rng(3)
    l_ik, l_jk = rng.standard_normal((m, k)).astype(other), rng.standard_normal((n, k)).astype(other)
    l_kk, before, wide = lower_tile(rng, n).astype(other), rng.standard_normal((m, n)).astype(dtype), np.zeros((m, m))
    results = []
    for threads in (1, 2, 3):
        kernels, flags, norms = host_kernels(threads), host_flags(1), host_kernels(1).create_norms(2)
        try:
            updated, solved, square = before.copy(), before.copy(), wide + np.eye(m) * (3 * k)
            kernels.gemm(STREAM, updated, l_ik, l_jk, k0=0)
            kernels.trsm(STREAM, l_kk, solved, 0)
            kernels.finish(STREAM, solved, FP16, norms, FinalTile(0, False))
            kernels.syrk(STREAM, square, l_ik, k0=0)
            kernels.potrf(STREAM, square, flags, 0)
            kernels.finish(STREAM, square, FP64, norms, FinalTile(1, True))
        finally:
            kernels.close()
        results.append((updated, solved, square, norms.values().copy()))
    assert all(np.array_equal(got, expected) for other in results[1:] for got, expected in zip(other, results[0], strict=True))


# what makes a tile final


def as_stored(tile, fmt):
    """What the format keeps of a tile, by the conversions of NumPy and ml_dtypes."""
    with np.errstate(over="ignore"):
        exponent = fmt.exponent(float(np.abs(tile).max()))
        exact = np.ldexp(tile.astype(np.float64), exponent)  # float64 and FP8: the tests take entries of at most 24 bits
        narrow = exact.astype(np.float32) if fmt is FP8 else exact
        return np.ldexp(narrow.astype(fmt.dtype).astype(np.float64), -exponent).astype(tile.dtype)


def norm_of(tile):
    return float(np.sqrt(np.sum(np.square(tile.astype(np.longdouble)))))


def finished(tile, fmt, *, is_diagonal=False):
    """A finished copy of ``tile`` and its norms."""
    copy, norms = tile.copy(), KERNELS.create_norms(3)
    KERNELS.finish(STREAM, copy, fmt, norms, FinalTile(1, is_diagonal))
    norms.copy_back(STREAM)
    values = norms.values()
    assert not values[[0, 2]].any(), "rows of other tiles"
    return copy, values[1]


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("dtype", TYPES)
@given(m=ORDERS, n=ORDERS, scale=st.integers(-60, 60), decades=st.sampled_from([0, 3, 12]), seed=SEEDS)
def test_finish_rounds_and_measures(fmt, dtype, m, n, scale, decades, seed):
    rng = np.random.default_rng(seed)
    entries = rng.standard_normal((m, n)) * 10.0 ** -rng.uniform(0, decades, (m, n))
    tile = np.ldexp(entries, scale).astype(np.float32).astype(dtype)
    after, norms = finished(tile, fmt)
    expected = as_stored(tile, fmt)
    assert np.array_equal(after.view(np.uint8), expected.view(np.uint8))
    wanted = norm_of(after), norm_of(tile.astype(np.longdouble) - after)
    for got, norm in zip(norms, wanted, strict=False):
        assert abs(got - norm) <= sum_bound(np.full(m * n + 4, norm))
    assert not norms[2:4].any() and norms[4] == np.abs(tile).max()


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
def test_finish_of_a_large_tile_in_strips(fmt):
    tile = np.random.default_rng(0).standard_normal((700, 300)).astype(np.float32).astype(np.float64)
    after, norms = finished(tile, fmt)
    assert np.array_equal(after, as_stored(tile, fmt))
    assert norms[:2] == pytest.approx([norm_of(after), norm_of(tile - after)], rel=1e-13)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_finish_of_a_diagonal_tile_sums_magnitudes(n):
    tile = np.tril(np.random.default_rng(n).standard_normal((n, n)))
    after, norms = finished(tile, FP64, is_diagonal=True)
    assert np.array_equal(after, tile)
    assert norms[2:4] == pytest.approx([np.abs(tile).sum(axis=1).max(), np.abs(tile).sum(axis=0).max()], rel=1e-13)
    assert norms[1] == 0.0 and norms[0] == pytest.approx(norm_of(tile), rel=1e-13)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-160, 1e160, 1e300])
def test_norms_of_final_tiles_neither_overflow_nor_vanish(scale):
    tile = scale * np.random.default_rng(0).standard_normal((50, 60))
    for fmt in (FP64, FP16, FP8):
        after, norms = finished(tile, fmt)
        assert norms[0] == pytest.approx(norm_of(after), rel=1e-13, abs=0.0)
        assert norms[1] == pytest.approx(norm_of(tile.astype(np.longdouble) - after), rel=1e-12, abs=0.0)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_final_tile_that_is_not_finite_has_no_finite_norm(value, fmt):
    tile = np.ones((9, 7))
    tile[4, 3] = value
    after, norms = finished(tile, fmt)
    assert not np.isfinite(norms[0]) and not np.isfinite(after[4, 3])


@pytest.mark.parametrize("fmt", [FP32, FP16, FP8], ids=lambda fmt: fmt.name)
def test_zeros_stay_as_they_are(fmt):
    tile = np.array([[0.0, -0.0], [-0.0, 0.0]])
    after, norms = finished(tile, fmt)
    assert np.array_equal(after.view(np.int64), tile.view(np.int64)) and not norms.any()


def test_finish_allocates_little():
    tile, norms = np.random.default_rng(0).standard_normal((1500, 1500)), KERNELS.create_norms(1)
    for fmt in FORMATS.values():
        assert peak_bytes(lambda fmt=fmt: KERNELS.finish(STREAM, tile, fmt, norms, FinalTile(0, True))) < tile.nbytes / 10


def test_norms_of_another_device_are_refused():
    class OtherNorms(AbstractTileNorms):
        copy_back = values = None

    with pytest.raises(TypeError, match="OtherNorms"):
        KERNELS.finish(STREAM, np.eye(2), FP64, OtherNorms(), FinalTile(0, True))


# flags


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, -np.inf, np.inf])
@pytest.mark.parametrize(("n", "minor"), [(1, 1), (2, 1), (2, 2), (9, 4), (65, 65), (300, 1), (300, 171)])
def test_potrf_flags_the_first_pivot_that_is_not_positive(n, minor, value):
    a_kk = np.eye(n)
    a_kk[minor - 1, minor - 1] = value
    if minor < n:
        a_kk[n - 1, n - 1] = -1.0
    flags = host_flags(3)
    KERNELS.potrf(STREAM, a_kk, flags, 1)
    assert flags.failed_pivot() == (1, minor)


@given(n=ORDERS, seed=SEEDS, data=st.data())
def test_potrf_flags_the_minor_of_an_indefinite_tile(n, seed, data):
    minor = data.draw(st.integers(1, n))
    factor = lower_tile(np.random.default_rng(seed), n)
    signs = np.where(np.arange(n) == minor - 1, -1.0, 1.0)
    a_kk = (factor * signs) @ factor.T
    flags = host_flags(1)
    KERNELS.potrf(STREAM, a_kk, flags, 0)
    assert flags.failed_pivot() == (0, minor)


def test_overflow_in_an_update_is_a_failed_pivot():
    # Finite entries of an indefinite tile: 1 - 1e200**2 is minus infinity, and infinity minus infinity is NaN.
    a_kk = np.array([[1.0, 0, 0], [1e200, 1.0, 0], [1e200, 1e200, 1.0]])
    flags = host_flags(1)
    KERNELS.potrf(STREAM, a_kk, flags, 0)
    assert flags.failed_pivot() == (0, 2)


def test_the_smallest_failed_column_is_told():
    flags = host_flags(4)
    for k in (3, 1):
        KERNELS.potrf(STREAM, np.diag([1.0, -1.0 * k]), flags, k)
    KERNELS.potrf(STREAM, np.eye(2), flags, 0)
    assert flags.failed_pivot() == (1, 2)


def test_a_refused_lapack_argument_is_a_schedule_error(monkeypatch):
    monkeypatch.setattr(blas, "potrf", lambda a_kk: -4)
    with pytest.raises(ScheduleError, match=r"argument 4 for tile \(2, 2\) of shape \(3, 3\)"):
        KERNELS.potrf(STREAM, np.eye(3), host_flags(3), 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@given(m=ORDERS, n=ORDERS, data=st.data())
def test_check_finite_tells_the_first_position(value, m, n, data):
    a_ij = np.zeros((m, n))
    positions = sorted(data.draw(st.sets(st.integers(0, m * n - 1), min_size=1, max_size=3)))
    a_ij.flat[positions] = value
    flags = host_flags(3)
    KERNELS.check_finite(STREAM, a_ij, False, flags, 4)
    assert flags.nonfinite() == (4, positions[0])


def test_check_finite_takes_opposite_infinities_for_what_they_are():
    flags = host_flags(1)
    KERNELS.check_finite(STREAM, np.array([[1.0, 2.0], [np.inf, -np.inf]]), False, flags, 0)
    assert flags.nonfinite() == (0, 2)


@given(n=ORDERS, data=st.data())
def test_check_finite_of_a_diagonal_tile_ignores_its_upper_triangle(n, data):
    row = data.draw(st.integers(0, n - 1))
    col = data.draw(st.integers(0, row))
    a_ii = np.where(strict_upper(n), np.nan, 1.0)
    flags = host_flags(1)
    KERNELS.check_finite(STREAM, a_ii, True, flags, 0)
    assert flags.nonfinite() is None
    a_ii[row, col] = np.inf
    KERNELS.check_finite(STREAM, a_ii, True, flags, 0)
    assert flags.nonfinite() == (0, row * n + col)


def test_check_finite_lets_huge_entries_pass_whose_sum_overflows():
    flags = host_flags(1)
    KERNELS.check_finite(STREAM, np.full((20, 20), 1.7e308), False, flags, 0)
    assert flags.nonfinite() is None


@pytest.mark.parametrize("bad", [[], [700_000]])
def test_check_finite_allocates_little(bad):
    a_ij = np.ones((1000, 1000))
    a_ij.flat[bad] = np.nan
    flags = host_flags(1)
    tracemalloc.start()
    try:
        KERNELS.check_finite(STREAM, a_ij, False, flags, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < a_ij.nbytes / 50
    assert flags.nonfinite() == ((0, bad[0]) if bad else None)


def test_the_smallest_tile_with_a_nonfinite_entry_is_told():
    flags = host_flags(4)
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


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.dtype(">f8"), np.longdouble])
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
        "potrf": lambda: KERNELS.potrf(STREAM, out, host_flags(1), 0),
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


@pytest.mark.parametrize(("shape", "kind", "threads"), pairwise(SHAPES, ["gemm", "syrk", "trsm", "potrf"], [1, 2]))
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


def forget():
    """Let the libraries be looked for again."""
    blas.blas_controllers.cache_clear()
    blas._controller.cache_clear()


@pytest.fixture
def loaded(monkeypatch):
    """A function that says which BLAS libraries the process has loaded; what was known of them is forgotten, before and after."""

    class Library(SimpleNamespace):
        def info(self):
            return vars(self)

    def say(*found):
        controllers = [Library(user_api="blas", internal_api="openblas", num_threads=3, **facts) for facts in found]
        selected = SimpleNamespace(select=lambda user_api: SimpleNamespace(lib_controllers=controllers))
        monkeypatch.setattr(threadpoolctl, "ThreadpoolController", lambda: selected)
        forget()

    yield say
    forget()


def test_blas_identity_is_that_of_scipys_own_library(loaded):
    package = scipy.__file__.removesuffix("/scipy/__init__.py")
    numpys = {"filepath": f"{package}/numpy.libs/a.so", "version": "1"}
    scipys = {"filepath": f"{package}/scipy.libs/b.so", "version": "2"}
    loaded(numpys, scipys)
    assert blas.blas_identity() == {"library": "openblas", "version": "2", "architecture": "unknown"}
    loaded(numpys)
    assert blas.blas_identity()["version"] == "1"
    assert blas.current_threads() == 3


def test_a_library_unknown_to_threadpoolctl_is_named_as_in_scipys_build(loaded):
    loaded()
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
