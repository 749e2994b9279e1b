"""Tiles that are hard to round to a narrow format, and what the host makes of them: the bits that other kernels must give."""

from __future__ import annotations

import numpy as np

from tests.inside.precision import FP8, encode
from tests.rounding import round_to

SCALES = [1e-300, 1e-160, 1e-30, 1.0, 1e30, 1e160, 1e300]


def any_bits(rng, shape, _):
    bits = rng.integers(0, 2**64, size=shape, dtype=np.uint64)
    return np.where(np.isfinite(bits.view(np.float64)), bits.view(np.float64), 0.5)


def subnormal(rng, shape, _):
    return rng.integers(0, 2**52, size=shape, dtype=np.uint64).view(np.float64) * rng.choice([-1.0, 1.0], shape)


def of_all_sizes(rng, shape, _):
    """Entries far below the largest are subnormal in the format, or vanish."""
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-12, 0, shape)


def ties(rng, shape, fmt):
    """Halfway between two numbers of the format."""
    digits = fmt.significand_bits
    odd = 2 * rng.integers(2 ** (digits - 1), 2**digits, shape) + 1
    return np.ldexp(odd * rng.choice([-1.0, 1.0], shape), rng.integers(-30, 10, shape)) if digits < 53 else odd / 2.0


def below_a_power_of_two(rng, shape, fmt):
    """The largest entry is the least that rounds up to one, its neighbours, or the last number below it."""
    tile = rng.uniform(-0.9, 0.9, shape)
    least = 1.0 - fmt.unit_roundoff / 2
    tile[-1, -1] = rng.choice([least, np.nextafter(least, 0.0), np.nextafter(least, 1.0), np.nextafter(1.0, 0.0), 1.0])
    return np.ldexp(tile * rng.choice([-1.0, 1.0]), int(rng.integers(-900, 900)))


def zeros(rng, shape, _):
    return rng.choice([-0.0, 0.0], shape)


KINDS = {f"{scale:g}": lambda rng, shape, _, scale=scale: scale * rng.standard_normal(shape) for scale in SCALES}

KINDS |= {make.__name__: make for make in (any_bits, subnormal, of_all_sizes, ties, below_a_power_of_two, zeros)}


def same(left, right):
    """Equal bits, but for those of NaNs."""
    both = np.isnan(left) & np.isnan(right)
    return np.array_equal(left.view(np.int64)[~both], right.view(np.int64)[~both])


def norm(tile):
    return float(np.sqrt(np.sum(np.square(tile.astype(np.longdouble)))))


def expected_norms(before, after, *, is_diagonal):
    sums = [float(np.abs(after.astype(np.longdouble)).sum(axis=axis).max()) if is_diagonal else 0.0 for axis in (1, 0)]
    return [norm(after), norm(before.astype(np.longdouble) - after), *sums, float(np.abs(before).max())]


def for_one_rounding(tile, fmt):
    """What the host rounds to FP8 as it should ``tile``: ml_dtypes rounds float64 to float32 first; 24 bits, to odd, stay so."""
    mantissa, power = np.frexp(tile)
    bits, below = mantissa.view(np.int64), (1 << 29) - 1
    odd = np.where(bits & below, bits & ~below | 1 << 29, bits).view(np.float64)
    return np.ldexp(odd, power) if fmt is FP8 else tile.copy()


def rounded(tile, fmt):
    """What the host makes of a tile."""
    after = for_one_rounding(tile, fmt)
    with np.errstate(over="ignore", invalid="ignore"):
        round_to(after, fmt)
    return after


def stored_bytes(tile, fmt):
    """What the host stores of a tile."""
    out = np.zeros(fmt.stored_bytes(tile.size), dtype=np.uint8)
    encode(for_one_rounding(tile, fmt), fmt, out)
    return out
