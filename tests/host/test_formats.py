"""Formats: rounded once and to nearest, the same in memory as in bytes, and nothing lost to a tile's size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.inside.precision import FORMATS, FP8, FP16, FP32, FP64, Floats, PrecisionFormat, decode, encode
from tests.rounding import exponent_of, round_to
from tests.tolerances import gamma

NARROW = (FP32, FP16, FP8)
SCALED = (FP16, FP8)
#: Least magnitude with all significand bits, as stored.
LEAST_NORMAL = {FP64: 2.0**-1022, FP32: 2.0**-126, FP16: 2.0**-14, FP8: 2.0**-6}
#: An entry that makes the exponent of a scaled tile zero: one of the top binade that the format holds exactly.
TOP = {FP16: 2.0**14, FP8: 2.0**7}

every_narrow = pytest.mark.parametrize("fmt", NARROW, ids=lambda fmt: fmt.name)
every_scaled = pytest.mark.parametrize("fmt", SCALED, ids=lambda fmt: fmt.name)
every_format = pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda fmt: fmt.name)

tiles = {
    "seed": st.integers(0, 2**32 - 1),
    "rows": st.integers(1, 40),
    "cols": st.integers(1, 40),
    "decades": st.sampled_from([0.0, 1.0, 8.0]),
    "power": st.integers(-900, 900),
    "dtype": st.sampled_from([np.float64, np.float32]),
}


def random_tile(seed: int, rows: int, cols: int, decades: float, power: int, dtype: type) -> Floats:
    """Entries over so many decades, zeros among them, times a power of two within reach of the type."""
    rng = np.random.default_rng(seed)
    entries = rng.standard_normal((rows, cols)) * 10.0 ** -rng.uniform(0, decades, (rows, cols))
    entries *= rng.random((rows, cols)) < 0.9
    return np.ldexp(entries, power if dtype is np.float64 else power // 16).astype(dtype)


def rounded(tile: Floats, fmt: PrecisionFormat) -> Floats:
    copy = tile.copy()
    round_to(copy, fmt)
    return copy


def stored(tile: Floats, fmt: PrecisionFormat) -> NDArray[np.uint8]:
    out = np.full(fmt.stored_bytes(tile.size), 0xA5, dtype=np.uint8)
    encode(tile, fmt, out)
    return out


def widened(data: NDArray[np.uint8], fmt: PrecisionFormat, shape: tuple[int, ...], dtype: type = np.float64) -> Floats:
    out = np.full(shape, np.nan, dtype=dtype)
    decode(data, fmt, slice(0, out.size), out)
    return out


def in_range(tile: Floats, fmt: PrecisionFormat) -> Floats:
    """``tile``, scaled to about 1 for FP32, which has no scale of its own."""
    if fmt is not FP32 or tile.dtype == np.float32 or not tile.any():
        return tile
    return np.ldexp(tile, -int(np.frexp(np.abs(tile).max())[1]))


# one value


@every_narrow
@given(**tiles)
def test_rounding_twice_changes_nothing(fmt, **shape):
    once = rounded(in_range(random_tile(**shape), fmt), fmt)
    again = once.copy()
    assert round_to(again, fmt) == 0.0
    assert np.array_equal(again, once)


@every_format
@given(**tiles)
def test_bytes_hold_what_rounding_leaves(fmt, **shape):
    tile = in_range(random_tile(**shape), fmt)
    once = rounded(tile, fmt)
    assert np.array_equal(widened(stored(tile, fmt), fmt, tile.shape), once)
    assert np.array_equal(stored(once, fmt), stored(tile, fmt))
    if fmt.itemsize <= once.itemsize:  # float32 gives float32's values back
        assert np.array_equal(widened(stored(once, fmt), fmt, tile.shape, tile.dtype.type), once)


@every_format
@given(first=st.integers(0, 63), count=st.integers(0, 64), seed=st.integers(0, 2**32 - 1))
def test_part_of_a_tile_is_decoded_alone(fmt, first, count, seed):
    tile = random_tile(seed, 8, 8, 1.0, 0, np.float64)
    part = slice(first, min(64, first + count))
    out = np.empty(part.stop - part.start)
    decode(stored(tile, fmt), fmt, part, out)
    assert np.array_equal(out, rounded(tile, fmt).reshape(-1)[part])


def test_more_entries_than_are_converted_at_once():
    tile = random_tile(5, 301, 257, 8.0, 40, np.float64)
    tile[-1, -1] = 2.0 * np.abs(tile).max()  # the largest entry comes last
    for fmt in SCALED:
        assert np.array_equal(widened(stored(tile, fmt), fmt, tile.shape), rounded(tile, fmt))
        assert np.isfinite(rounded(tile, fmt)).all()


@every_narrow
@given(**tiles)
def test_what_was_lost_is_measured(fmt, **shape):
    tile = in_range(random_tile(**shape), fmt)
    copy = tile.copy()
    lost = round_to(copy, fmt)
    difference = np.asarray(tile, np.longdouble) - copy
    size = float(np.abs(difference).max())
    expected = size * float(np.sqrt(np.sum((difference / size) ** 2))) if size else 0.0
    assert abs(lost - expected) <= gamma(tile.size + 8) * expected


# nearest


@every_narrow
@given(**tiles)
def test_an_error_is_at_most_the_unit_roundoff(fmt, **shape):
    tile = in_range(random_tile(**shape), fmt)
    error = np.abs(rounded(tile, fmt).astype(float) - tile)
    size, exponent = np.abs(tile.astype(float)), exponent_of(tile, fmt)
    normal = size >= np.ldexp(LEAST_NORMAL[fmt], -exponent)
    assert np.all(error[normal] <= fmt.unit_roundoff * size[normal])
    assert np.all(error[~normal] <= np.ldexp(fmt.unit_roundoff * LEAST_NORMAL[fmt], -exponent))


def numbers_of(fmt: PrecisionFormat) -> NDArray[np.float64]:
    """Every finite number of the format that is not negative, ascending: each second one, from 0 on, has an even last digit."""
    bits = np.arange(2 ** (8 * fmt.itemsize - 1), dtype=f"u{fmt.itemsize}")
    values = bits.view(fmt.dtype).astype(float)
    return values[np.isfinite(values)]


def nearest(entries: NDArray[np.float64], fmt: PrecisionFormat) -> NDArray[np.float64]:
    """The nearest number of the format, the even one of two, by search."""
    numbers = numbers_of(fmt)
    above = np.clip(np.searchsorted(numbers, np.abs(entries)), 1, len(numbers) - 1)
    # In long double both differences are exact: the numbers have few digits, and entries far below them are nearest to 0.
    size = np.abs(entries).astype(np.longdouble)
    below_is_nearer = np.sign((size - numbers[above - 1]) - (numbers[above] - size))
    takes_below = np.where(below_is_nearer == 0, (above - 1) % 2 == 0, below_is_nearer < 0)
    return np.copysign(np.where(takes_below, numbers[above - 1], numbers[above]), entries)


def around(entries: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers, and their neighbours in float64 and float32 on both sides."""
    single = entries.astype(np.float32)
    sides = [np.nextafter(entries, side) for side in (-np.inf, np.inf)]
    sides += [np.nextafter(single, np.float32(side)).astype(float) for side in (-np.inf, np.inf)]
    # float64 numbers that float32 rounds to the number itself, from either side.
    sides += [entries * (1 + sign * 2.0**-power) for sign in (-1, 1) for power in (25, 26, 40)]
    return np.concatenate([entries, *sides])


@every_scaled
def test_every_tie_and_near_tie_is_rounded_once(fmt):
    numbers = numbers_of(fmt)
    numbers = numbers[numbers < TOP[fmt]]
    ties = (numbers[1:] + numbers[:-1]) / 2
    entries = around(np.concatenate([numbers, ties]))
    entries = entries[np.abs(entries) < TOP[fmt]]
    entries = np.concatenate([entries, -entries, [TOP[fmt]]])
    assert exponent_of(entries, fmt) == 0
    for dtype in (np.float64, np.float32):
        tile = entries.astype(dtype)
        assert np.array_equal(rounded(tile, fmt), nearest(tile.astype(float), fmt).astype(dtype))
        assert np.array_equal(widened(stored(tile, fmt), fmt, tile.shape), nearest(tile.astype(float), fmt))


def test_fp8_near_a_tie_that_float32_would_make_one():
    tile = np.array([128.0, 17.0, np.nextafter(17.0, 18.0), np.nextafter(17.0, 16.0), 19.0, np.nextafter(19.0, 18.0)])
    assert rounded(tile, FP8).tolist() == [128.0, 16.0, 18.0, 16.0, 20.0, 18.0]


@every_scaled
@given(seed=st.integers(0, 2**32 - 1), decades=st.sampled_from([1.0, 4.0, 12.0]))
def test_random_entries_get_the_nearest_number(fmt, seed, decades):
    rng = np.random.default_rng(seed)
    entries = rng.choice([-1.0, 1.0], 500) * TOP[fmt] * 10.0 ** -rng.uniform(0, decades, 500)
    entries[0] = TOP[fmt]
    assert np.array_equal(rounded(entries, fmt), nearest(entries, fmt))


# scales


@every_scaled
@given(power=st.integers(-1000, 1000), steps=st.integers(-6, 6), ulps=st.integers(-3, 3), sign=st.sampled_from([-1.0, 1.0]))
def test_the_largest_entry_fills_the_top_binade(fmt, power, steps, ulps, sign):
    """Around powers of two, and around those numbers below one that round up to it."""
    largest = np.ldexp(1.0 + steps * fmt.unit_roundoff / 4, power)
    for _ in range(abs(ulps)):
        largest = np.nextafter(largest, np.inf if ulps > 0 else 0.0)
    tile = np.array([sign * largest, largest / 3, 0.0])
    exponent = exponent_of(tile, fmt)
    scaled = float(np.abs(np.ldexp(rounded(tile, fmt), exponent)).max())
    assert 2.0 ** (fmt.top - 1) <= scaled < 2.0**fmt.top
    assert exponent_of(rounded(tile, fmt), fmt) == exponent
    assert abs(scaled - np.ldexp(largest, exponent)) <= fmt.unit_roundoff * np.ldexp(largest, exponent)


@every_scaled
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-30, 1.0, 1e30, 1e200, 1e300])
def test_a_tile_of_any_size_is_as_accurate(fmt, scale):
    tile = scale * np.random.default_rng(0).uniform(0.5, 1.0, (20, 20))
    copy = tile.copy()
    lost = round_to(copy, fmt)
    assert np.all(np.abs(copy - tile) <= fmt.unit_roundoff * tile)
    assert 0.0 < lost <= fmt.unit_roundoff * scale * np.sqrt(tile.size)
    assert np.array_equal(widened(stored(tile, fmt), fmt, tile.shape), copy)


@every_scaled
def test_a_power_of_two_scales_the_result(fmt):
    tile = random_tile(1, 30, 30, 8.0, 0, np.float64)
    for power in (-900, -30, 30, 900):
        assert np.array_equal(rounded(np.ldexp(tile, power), fmt), np.ldexp(rounded(tile, fmt), power))


@every_format
def test_zeros_stay_zeros(fmt):
    tile = np.zeros((3, 5))
    assert round_to(tile, fmt) == 0.0
    assert not tile.any() and not widened(stored(tile, fmt), fmt, tile.shape).any()
    assert exponent_of(tile, fmt) == 0


@every_format
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_not_finite_stays_so(fmt, bad, dtype):
    tile = np.array([[1.0, bad], [0.25, -3.0]], dtype=dtype)
    after, read = rounded(tile, fmt), widened(stored(tile, fmt), fmt, tile.shape)
    for result in (after, read):
        assert not np.isfinite(result[0, 1])
        assert np.isfinite(result).sum() == 3


# sizes


@every_format
@given(entries=st.integers(1, 10_000))
def test_stored_bytes_are_those_of_the_entries_and_of_a_scale(fmt, entries):
    has_scale = fmt in SCALED
    assert 0 <= fmt.stored_bytes(entries) - fmt.itemsize * entries <= (15 if has_scale else 0)
    assert not has_scale or fmt.scale_offset(entries) % 8 == 0


def test_wider_formats_come_first():
    assert list(FORMATS) == ["fp64", "fp32", "fp16", "fp8"]
    assert [fmt.itemsize for fmt in FORMATS.values()] == [8, 4, 2, 1]
    for fmt in (FP64, FP32, FP16):
        assert fmt.unit_roundoff == np.finfo(fmt.dtype).eps / 2
        assert fmt.machine_epsilon == np.finfo(fmt.dtype).eps
    assert (FP8.unit_roundoff, FP8.machine_epsilon) == (2.0**-4, 2.0**-3)
    assert numbers_of(FP8)[-1] == 448.0
