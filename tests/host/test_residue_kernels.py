"""The host's residue kernels against Python's integers: every result is exact, or rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import ScheduleError
from tests.builders import host_residue_kernels
from tests.host.residue_reference import STREAM, difference, host_kernels, integer, residues
from tests.inside.hardware import HostStream
from tests.inside.precision import (
    FP8,
    FP16,
    FP32,
    MOST_MODULI,
    MOST_TERMS,
    ResidueBasis,
    decode,
    encode,
)

COUNTS = list(range(4, MOST_MODULI + 1))


def correlation_like(rng, n):
    """A symmetric positive definite matrix with unit diagonal, all but for rounding."""
    g = rng.standard_normal((n, n + 3))
    a = g @ g.T
    return a / np.sqrt(np.outer(a.diagonal(), a.diagonal()))


def with_diagonal(a, diagonal):
    roots = np.sqrt(diagonal)
    return roots[:, None] * a * roots[None, :]


# conversion


@pytest.mark.parametrize("count", COUNTS)
def test_convert_at_the_edges(count):
    basis = ResidueBasis(count)
    top = 2**basis.bits
    numbers = [0, 1, 127, 128, 129, 255, 256, 257, top - 1, top, top + 2**12, basis.largest_norm, *basis.moduli]
    numbers += [m // 2 for m in basis.moduli] + [m // 2 + 1 for m in basis.moduli] + [basis.product % top]
    numbers = [int(float(number)) for number in numbers]  # with at most 53 bits
    values = np.ldexp(np.array([[float(q) for q in numbers], [-float(q) for q in numbers]]), -basis.exponent(1.0))
    out = np.zeros((count, *values.shape), dtype=np.int8)
    with host_kernels(count, [1.0, 1.0]) as kernels:
        kernels.convert(STREAM, values, range(2), out, is_first=False)
        assert kernels.flagged_row() is None
    assert np.array_equal(out, residues([numbers, [-q for q in numbers]], basis))


@given(count=st.sampled_from(COUNTS), numbers=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40))
def test_convert_any_number_to_canonical_residues(count, numbers):
    basis = ResidueBasis(count)
    values = np.ldexp(np.array([numbers], dtype=np.float64), -basis.exponent(1.0))
    out = np.zeros((count, *values.shape), dtype=np.int8)
    with host_kernels(count, [1.0]) as kernels:
        kernels.convert(STREAM, values, range(1), out, is_first=False)
    assert np.array_equal(out, residues([[int(float(q)) for q in numbers]], basis))


def test_convert_rounds_to_nearest_even():
    basis = ResidueBasis(13)
    halves = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, -127.5, -128.5, 0.49999999999999994]])
    out = np.zeros((13, *halves.shape), dtype=np.int8)
    with host_kernels(13, [1.0]) as kernels:
        kernels.convert(STREAM, np.ldexp(halves, -basis.exponent(1.0)), range(1), out, is_first=False)
    assert np.array_equal(out, residues([[0, 2, 2, 0, -2, -2, 126, 128, -128, -128, 0]], basis))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_what_no_integer_holds_gets_residues_of_zero_and_flags_its_row(bad):
    values = np.array([[0.5, 0.5, 0.5], [0.5, bad, 0.5], [0.0, 0.0, 0.0]])
    out = np.full((13, 3, 3), 77, dtype=np.int8)
    with host_kernels(13, [1.0, 1.0, 1.0]) as kernels:
        kernels.convert(STREAM, values, range(3), out, is_first=True)
        assert kernels.flagged_row() == 1
    assert not out[:, 1, 1].any()
    assert np.array_equal(out[:, 1, 0], out[:, 0, 0])


# flags


def test_rows_of_a_true_factor_are_never_flagged():
    rng = np.random.default_rng(1)
    n, nb = 60, 20
    diagonal = np.concatenate([10.0 ** rng.uniform(-300, 300, 20), 1.01 * 4.0 ** rng.integers(-40, 40, 20), np.ones(20)])
    a = correlation_like(rng, n)
    a[-1] = a[:, -1] = a[-2]  # the last two rows are equal up to a nugget
    a[-1, -1] = 1 + 1e-14
    factor = np.sqrt(diagonal)[:, None] * np.linalg.cholesky(a + 1e-14 * np.eye(n))
    out = np.zeros((13, n, nb), dtype=np.int8)
    with host_kernels(13, diagonal) as kernels:
        for c0 in range(0, n, nb):
            kernels.convert(STREAM, factor[:, c0 : c0 + nb], range(n), out, is_first=True)
        assert kernels.flagged_row() is None


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150, 2.0**-511, 1.01])
def test_a_row_is_flagged_when_its_norm_exceeds_the_bound_though_no_entry_does(scale):
    row = np.full((1, 3), 0.55) * scale
    out = np.zeros((8, 1, 3), dtype=np.int8)
    with host_kernels(8, [1.0, 1.0, scale**2, 1.0]) as kernels:
        kernels.convert(STREAM, row, range(2, 3), out, is_first=True)  # 0.91 of the bound
        assert kernels.flagged_row() is None
        kernels.convert(STREAM, row, range(2, 3), out, is_first=False)
        assert kernels.flagged_row() is None
        kernels.convert(STREAM, row[:, :1], range(2, 3), out[:, :, :1], is_first=True)  # 1.21
        assert kernels.flagged_row() == 2


@pytest.mark.parametrize(("excess", "flagged"), [(0.0, None), (2.0**-22, None), (2.0**-19, 0)])
def test_rounding_is_allowed_to_exceed_the_norm(excess, flagged):
    with host_kernels(13, [1.0]) as kernels:
        kernels.convert(STREAM, np.array([[1 + excess]]), range(1), np.zeros((13, 1, 1), dtype=np.int8), is_first=True)
        assert kernels.flagged_row() == flagged


@pytest.mark.parametrize("bad", [0.0, -0.0, -1.0, np.nan, np.inf, -np.inf])
def test_a_diagonal_entry_that_is_not_positive_and_finite_flags_its_row(bad):
    with host_kernels(13, [1.0, 2.0, bad, bad, 5e-324]) as kernels:
        assert kernels.flagged_row() == 2
        kernels.open(5)
        assert kernels.flagged_row() is None


def test_an_indefinite_matrix_that_wraps_to_a_positive_pivot_is_flagged():
    # A = I but for the last row of 0.9: the last pivot is 1 - 6 * 0.81 < 0. With a diagonal as near below a limit as this, the
    # sum is 2.43 P: modulo P it looks like 0.43 P, and the pivot like 0.14. Every entry is below the bound of an entry.
    basis = ResidueBasis(13)
    a_ii = basis.limit[0] * 2.0 ** (basis.limit[1] % 2)
    row = np.array([[0.9] * 6]) * np.sqrt(a_ii)
    out, pivot = np.zeros((13, 1, 6), dtype=np.int8), np.array([[a_ii]])
    accumulator = np.zeros((13, 1, 1), dtype=np.int32)
    with host_kernels(13, [a_ii] * 7) as kernels:
        kernels.convert(STREAM, row, range(6, 7), out, is_first=True)
        kernels.product(STREAM, accumulator, out, out, accumulates=False, lower=False)
        kernels.reconstruct(STREAM, accumulator, pivot, range(6, 7), range(6, 7))
        assert pivot[0, 0] == pytest.approx(0.14 * a_ii, rel=1e-4)  # silently wrong, were it not for the flag
        assert kernels.flagged_row() == 6


# products and folding


@given(st.data())
def test_product_is_that_of_integers(data):
    m, n, k = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 16, 1500])))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    left, right = (rng.integers(-128, 128, (5, rows, k + 2), dtype=np.int8)[:, :, 1:-1] for rows in (m, n))
    before = rng.integers(-(2**30), 2**30, (5, m + 1, n + 1), dtype=np.int32)
    accumulator = before.copy()
    exact = left.astype(np.int64) @ right.astype(np.int64).transpose(0, 2, 1)
    accumulates = data.draw(st.booleans())
    with host_kernels(5, [1.0]) as kernels:
        kernels.product(STREAM, accumulator[:, 1:, 1:], left, right, accumulates=accumulates, lower=False)
    expected = before.copy()
    expected[:, 1:, 1:] = exact + before[:, 1:, 1:] * accumulates
    assert np.array_equal(accumulator, expected)


@given(st.data())
def test_product_in_int8_is_that_of_integers_modulo_each_number(data):
    m, n, k = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 16, 1500])))
    rng, basis = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), ResidueBasis(5)
    left, right = (rng.integers(-128, 128, (5, rows, k), dtype=np.int8) for rows in (m, n))
    before = rng.integers(-128, 128, (5, m + 1, n + 1), dtype=np.int8)
    accumulator, accumulates = before.copy(), data.draw(st.booleans())
    with host_kernels(5, [1.0]) as kernels:
        kernels.product(STREAM, accumulator[:, 1:, 1:], left, right, accumulates=accumulates, lower=False)
    exact = left.astype(np.int64) @ right.astype(np.int64).transpose(0, 2, 1) + before[:, 1:, 1:].astype(np.int64) * accumulates
    for plane, modulus in enumerate(basis.moduli):
        found = accumulator[plane, 1:, 1:].astype(np.int64)
        assert np.array_equal(found % modulus, exact[plane] % modulus)
        assert found.min() >= -(modulus // 2) and found.max() <= (modulus - 1) // 2
    assert np.array_equal(accumulator[:, 0], before[:, 0]) and np.array_equal(accumulator[:, :, 0], before[:, :, 0])


@pytest.mark.parametrize("count", COUNTS)
def test_reconstruct_from_int8_has_the_bits_of_int32(count):
    rng = np.random.default_rng(count)
    sums = rng.integers(-(2**30), 2**30, (count, 7, 9), dtype=np.int32)
    entries = [rng.standard_normal((7, 9))] * 2
    with host_kernels(count, np.ones(16)) as kernels:
        kernels.reconstruct(STREAM, sums, found := entries[0].copy(), range(7), range(7, 16))
        kernels.fold(STREAM, sums)
        kernels.reconstruct(STREAM, sums.astype(np.int8), again := entries[1].copy(), range(7), range(7, 16))
    assert np.array_equal(found, again)


def test_product_of_a_diagonal_block_gives_its_lower_triangle():
    rng = np.random.default_rng(2)
    strip = rng.integers(-128, 128, (4, 700, 48), dtype=np.int8)
    accumulator = np.zeros((4, 700, 700), dtype=np.int32)
    with host_kernels(4, [1.0]) as kernels:
        kernels.product(STREAM, accumulator, strip, strip, accumulates=False, lower=True)
        with pytest.raises(ScheduleError, match="lower triangle"):
            kernels.product(STREAM, accumulator[:, :300], strip[:, :300], strip, accumulates=False, lower=True)
    exact = strip.astype(np.int64) @ strip.astype(np.int64).transpose(0, 2, 1)
    assert np.array_equal(np.tril(accumulator), np.tril(exact))


@pytest.mark.parametrize("count", COUNTS)
def test_the_longest_sums_of_extreme_residues_are_exact_after_a_fold(count):
    basis = ResidueBasis(count)
    halves = np.array([-(m // 2) for m in basis.moduli], dtype=np.int64)
    strip = np.empty((count, 2, MOST_TERMS), dtype=np.int8)
    strip[:, 0] = halves[:, None]
    strip[:, 1] = np.minimum(-halves, 127)[:, None]
    accumulator = np.repeat(halves, 4).reshape(count, 2, 2).astype(np.int32)
    exact = halves[:, None, None] + strip[:, :, :1].astype(np.int64) * strip[:, None, :, 0].astype(np.int64) * MOST_TERMS
    with host_kernels(count, [1.0]) as kernels:
        kernels.product(STREAM, accumulator, strip, strip, accumulates=True, lower=False)
        kernels.fold(STREAM, accumulator)
    for plane, m in enumerate(basis.moduli):
        assert np.array_equal(accumulator[plane] % m, exact[plane] % m)
        assert accumulator[plane].min() >= -(m // 2)
        assert accumulator[plane].max() <= (m - 1) // 2


@given(count=st.sampled_from(COUNTS), sums=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=30))
def test_fold_is_canonical(count, sums):
    basis = ResidueBasis(count)
    sums += [-(2**31), 2**31 - 1, *(m // 2 for m in basis.moduli), *(-(m // 2) for m in basis.moduli), *basis.moduli]
    accumulator = np.tile(np.array(sums, dtype=np.int32), (count, 1, 1))
    with host_kernels(count, [1.0]) as kernels:
        kernels.fold(STREAM, accumulator)
    for plane, m in enumerate(basis.moduli):
        assert np.array_equal(accumulator[plane], residues([sums], ResidueBasis(count))[plane])
        assert accumulator[plane].max() <= (m - 1) // 2


# reconstruction


def reconstructed(basis, totals, a_ij, a_ii, unfolded=0):
    """Reconstruct one row of sums, all matrix rows having the diagonal entry ``a_ii``."""
    planes = residues([totals], basis) + unfolded * np.array(basis.moduli)[:, None, None]
    entries = np.array([a_ij], dtype=np.float64)
    with host_kernels(basis.count, [a_ii] * len(totals)) as kernels:
        kernels.reconstruct(STREAM, planes.astype(np.int32), entries, range(1), range(len(totals)))
    return entries[0]


@pytest.mark.parametrize("unfolded", [0, 1, -(2**23), 2**23])
@pytest.mark.parametrize("count", COUNTS)
def test_reconstruct_around_half_the_product_and_zero(count, unfolded):
    basis = ResidueBasis(count)
    half = basis.product // 2
    totals = [half, half - 1, half - 2, 1 - half, 2 - half, 0, 1, -1, half // 2, -half // 2, 2**30, -(2**30)]
    totals += [sign * (basis.product // m) for m in basis.moduli for sign in (1, -1)]
    e = 2 * basis.exponent(1.0)
    for a_ij in (0.0, 1.0, -0.75, 1e-30, 2.0**-e, -(2.0**-e) / 2, 3 * 2.0**-e / 2):
        result = reconstructed(basis, totals, [a_ij] * len(totals), 1.0, unfolded)
        assert result.tolist() == [difference(a_ij, total, e) for total in totals]


@given(st.data())
def test_reconstruct_rounds_once(data):
    basis = ResidueBasis(data.draw(st.sampled_from(COUNTS)))
    a_ii = data.draw(st.sampled_from([1.0, 1.01 * 4.0**30, 3e-300, 1e-307, 1e300, 5e-324]))
    e = 2 * basis.exponent(a_ii)
    half = basis.product // 2
    integers = st.one_of(st.integers(1 - half, half), st.integers(0, half.bit_length() - 1).map(lambda bit: (1 << bit) - 1))
    totals = data.draw(st.lists(integers, min_size=1, max_size=20))
    near = st.sampled_from(totals).map(lambda total: float(total * Fraction(2) ** -e))
    entry = st.one_of(st.floats(-a_ii, a_ii), st.just(0.0), near)
    entries = data.draw(st.lists(entry, min_size=len(totals), max_size=len(totals)))
    result = reconstructed(basis, totals, entries, a_ii)
    assert result.tolist() == [difference(a_ij, total, e) for a_ij, total in zip(entries, totals, strict=True)]


def test_reconstruct_keeps_what_is_too_large_for_a_positive_definite_matrix():
    basis = ResidueBasis(13)
    entries = [np.inf, -np.inf, np.nan, 1e300, 1e100]
    result = reconstructed(basis, [7] * 5, entries, 1.0)
    assert np.array_equal(result, entries, equal_nan=True)


@given(st.data())
def test_updates_equal_exact_rational_arithmetic(data):
    n, k = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 9))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    count = data.draw(st.sampled_from(COUNTS))
    scales = st.one_of(
        st.integers(-500, 500).map(lambda power: 2.0**power),
        st.integers(-80, 80).map(lambda power: 1.01 * 4.0**power),
        st.sampled_from([1e-300, 1e-150, 1.0, 1e150, 1e300]),
    )
    diagonal = np.array(data.draw(st.lists(scales, min_size=n, max_size=n)))
    a = correlation_like(rng, n)
    factor = np.sqrt(diagonal)[:, None] * np.linalg.cholesky(a)[:, :k]
    entries = np.tril(with_diagonal(a, diagonal))
    result = entries.copy()
    k = factor.shape[1]
    strips, accumulator = np.zeros((count, n, k), dtype=np.int8), np.zeros((count, n, n), dtype=np.int32)
    with host_kernels(count, diagonal) as kernels:
        kernels.convert(STREAM, factor, range(n), strips, is_first=True)
        kernels.product(STREAM, accumulator, strips, strips, accumulates=True, lower=False)
        if data.draw(st.booleans()):
            kernels.fold(STREAM, accumulator)
        kernels.reconstruct(STREAM, accumulator, result, range(n), range(n))
        assert kernels.flagged_row() is None
    exponents = [kernels.basis.exponent(a_ii) for a_ii in diagonal]
    q = [[integer(factor[i, c], exponents[i]) for c in range(k)] for i in range(n)]
    for i in range(n):
        for j in range(i + 1):
            total = sum(x * y for x, y in zip(q[i], q[j], strict=True))
            assert result[i, j] == difference(entries[i, j], total, exponents[i] + exponents[j])


# runs


def test_threads_and_streams_do_not_change_a_bit():
    rng = np.random.default_rng(3)
    n, k = 700, 300
    a = correlation_like(rng, n)
    factor = np.linalg.cholesky(a)[:, :k]
    results = []
    for threads in (1, 3):
        kernels, stream = host_residue_kernels(13, threads), HostStream("test")
        stream.start()
        strips, accumulator, entries = np.zeros((13, n, k), np.int8), np.zeros((13, n, n), np.int32), a.copy()
        kernels.open(n)
        for first in (0, 350):
            kernels.set_diagonal(stream, first, a[first : first + 350, first : first + 350])
        kernels.convert(stream, factor, range(n), strips, is_first=True)
        kernels.product(stream, accumulator, strips, strips, accumulates=False, lower=True)
        kernels.fold(stream, accumulator)
        kernels.reconstruct(stream, accumulator, entries, range(n), range(n))
        kernels.copy_back(stream)
        stream.synchronize()
        assert kernels.flagged_row() is None
        stream.close()
        kernels.close()
        kernels.close()
        results.append(np.tril(entries))
    assert np.array_equal(*results)
    # 50 bits of rows of norm 1: each of 2 k roundings of half a unit, as a rule far less.
    assert np.abs(results[0] - np.tril(a - factor @ factor.T)).max() < k * 2.0**-49


@pytest.mark.parametrize("fmt", [FP32, FP16, FP8], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("magnitude", [1.0, 1e-30, 1e30])
def test_convert_stored_is_convert_of_what_is_stored(fmt, magnitude):
    rng = np.random.default_rng(3)
    values = magnitude * rng.standard_normal((150, 70))
    stored = np.zeros(fmt.stored_bytes(values.size), dtype=np.uint8)
    encode(values, fmt, stored)
    decode(stored, fmt, slice(0, values.size), values)
    diagonal = np.full(160, 1e4 * magnitude**2)
    results = []
    for convert in ("convert", "convert_stored"):
        out, fp16 = np.zeros((6, 150, 70), dtype=np.int8), np.zeros((1, 150, 70), dtype=np.float16)
        with host_kernels(6, diagonal) as kernels:
            what = (values,) if convert == "convert" else (stored, fmt)
            getattr(kernels, convert)(STREAM, *what, range(5, 155), out, is_first=True, fp16=fp16)
            assert kernels.flagged_row() is None
        results.append((out, fp16))
    assert all(np.array_equal(*pair) for pair in zip(*results, strict=True))


def test_entries_in_fp16_have_eleven_bits_far_below_the_largest_entry_of_their_row():
    values = np.ldexp(np.random.default_rng(5).uniform(0.5, 1.0, (2, 64)), -np.arange(64) // 3)
    diagonal = [(values[0] ** 2).sum() * 1.01, (values[1] ** 2).sum() * 4e10]
    basis = ResidueBasis(6)
    out, fp16 = np.zeros((6, 2, 64), dtype=np.int8), np.zeros((1, 2, 64), dtype=np.float16)
    with host_kernels(6, diagonal) as kernels:
        kernels.convert(STREAM, values, range(2), out, is_first=False, fp16=fp16)
    exponents = [basis.fp16_exponent(basis.exponent(a_ii)) for a_ii in diagonal]
    assert np.abs(fp16).max() < 2.0**15
    widened = np.ldexp(fp16[0].astype(float), -np.array(exponents)[:, None])
    normal = np.abs(fp16[0]) >= 2.0**-14
    assert normal[0].all() and np.all(np.abs(widened - values)[normal] <= FP16.unit_roundoff * values[normal])


@pytest.mark.parametrize("accumulates", [False, True])
def test_fp16_products_are_summed_in_float32_and_subtracted_in_float64(accumulates):
    rng = np.random.default_rng(6)
    left, right = (rng.standard_normal((1, order, 48)).astype(np.float16) for order in (130, 90))
    before = rng.standard_normal((1, 130, 90)).astype(np.float32)
    diagonal = rng.uniform(0.5, 2.0, 220) * 4.0 ** rng.integers(-30, 30, 220)
    basis = ResidueBasis(6)
    exponents = np.array([basis.fp16_exponent(basis.exponent(a_ii)) for a_ii in diagonal])
    exact = left[0].astype(float) @ right[0].astype(float).T + (before[0] if accumulates else 0.0)
    sums, tile = before.copy(), rng.standard_normal((130, 90))
    expected = tile.copy()
    with host_kernels(6, diagonal) as kernels:
        kernels.fp16_product(STREAM, sums, left, right, accumulates=accumulates)
        kernels.subtract_narrow(STREAM, sums, tile, range(130), range(130, 220))
    magnitudes = np.abs(left[0]).astype(float) @ np.abs(right[0]).astype(float).T + np.abs(before[0])
    assert np.all(np.abs(sums[0] - exact) <= 50 * FP32.unit_roundoff * magnitudes)
    expected -= np.ldexp(sums[0].astype(float), -exponents[:130, None] - exponents[None, 130:])
    assert np.array_equal(tile, expected)
