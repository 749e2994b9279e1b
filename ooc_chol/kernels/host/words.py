"""Integers of 128 bits as two NumPy words, and their one rounding to float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Longs: TypeAlias = NDArray[np.int64]
Unsigned: TypeAlias = NDArray[np.uint64]
DIGIT_BITS, DIGITS = 32, 4


def digits_of(number: int) -> list[int]:
    """The 32-bit digits of a number from 0 to 2**128, lowest first.

    >>> digits_of(5 << 32 | 7)
    [7, 5, 0, 0]
    """
    return [(number >> (DIGIT_BITS * d)) % (1 << DIGIT_BITS) for d in range(DIGITS)]


@dataclass(frozen=True)
class Words:
    """Integers of magnitude below 2**127, ``high * 2**64 + low``; arrays of one shape, or that broadcast."""

    high: Longs  #: The upper words, which have the sign
    low: Unsigned  #: The lower words

    @staticmethod
    def of_digits(digits: Sequence[Longs]) -> Words:
        """``sum_d digits[d] 2**(32 d)`` for four digits of any sign, each below 2**62."""
        carried, mask = list(digits), (1 << DIGIT_BITS) - 1
        for d in range(DIGITS - 1):
            carried[d + 1] = carried[d + 1] + (carried[d] >> DIGIT_BITS)
            carried[d] = carried[d] & mask
        low = carried[0].astype(np.uint64) | carried[1].astype(np.uint64) << np.uint64(DIGIT_BITS)
        return Words((carried[3] << DIGIT_BITS) + carried[2], low)

    @staticmethod
    def of_constant(number: int) -> Words:
        """Make a single number, from 0 to 2**127, that broadcasts against arrays."""
        return Words.of_digits([np.array([digit], dtype=np.int64) for digit in digits_of(number)])

    def plus(self, other: Words) -> Words:
        """``self + other``, entry by entry."""
        low = self.low + other.low
        return Words(self.high + other.high + (low < self.low), low)

    def negated(self) -> Words:
        """``-self``, entry by entry."""
        return Words(~self.high + (self.low == 0), ~self.low + np.uint64(1))

    def exceeds(self, other: Words) -> NDArray[np.bool_]:
        """Mark the entries in which ``self > other``."""
        larger: NDArray[np.bool_] = (self.high > other.high) | ((self.high == other.high) & (self.low > other.low))
        return larger

    def negated_where(self, mask: NDArray[np.bool_]) -> Words:
        """``-self`` where ``mask`` holds, else ``self``."""
        negative = self.negated()
        return Words(np.where(mask, negative.high, self.high), np.where(mask, negative.low, self.low))

    def plus_where(self, mask: NDArray[np.bool_], other: Words) -> Words:
        """``self + other`` where ``mask`` holds, else ``self``."""
        return self.plus(Words(np.where(mask, other.high, 0), np.where(mask, other.low, np.uint64(0))))


def rounded(number: Words, exponents: NDArray[np.int32]) -> Floats:
    """``number 2**-e`` rounded once to nearest even, subnormal results too."""
    is_negative = number.high < 0
    magnitude = number.negated_where(is_negative)
    high, low = magnitude.high.astype(np.uint64), magnitude.low
    is_low = high == 0
    high, low = np.where(is_low, low, high), np.where(is_low, np.uint64(0), low)
    # The upper 64 bits, the first of them set; the last one tells whether anything is left below.
    zeros = np.uint64(64) - _bit_length(high)
    rest = _shifted_left(low, zeros) != 0
    top = _shifted_left(high, zeros) | _shifted_right(low, np.uint64(64) - zeros) | rest
    last = 64 - 64 * is_low - zeros.astype(np.int64) - exponents  # the value is top * 2**last
    # 53 bits of 64 are kept, or less: a double is a multiple of 2**-1074.
    drop = np.maximum(11, -1074 - last)
    kept = _nearest_even(top, np.minimum(drop, 65).astype(np.uint64))
    value = np.ldexp(kept.astype(np.float64), last + drop)
    result: Floats = np.where(is_negative, -value, value)
    return result


def _bit_length(numbers: Unsigned) -> Unsigned:
    """Bits of each number, 1 for 0. The second of two leading ones is cleared, lest the conversion round up to a power of two."""
    power = np.frexp((numbers & ~(numbers >> np.uint64(1))).astype(np.float64))[1]
    return np.maximum(power, 1).astype(np.uint64)


def _shifted_left(numbers: Unsigned, by: Unsigned | np.uint64) -> Unsigned:
    """``numbers << by`` modulo 2**64, for shifts from 0 to 64."""
    return np.where(by == 64, np.uint64(0), numbers << (by & np.uint64(63)))


def _shifted_right(numbers: Unsigned, by: Unsigned | np.uint64) -> Unsigned:
    """``numbers >> by``, for shifts from 0 to 64."""
    return np.where(by == 64, np.uint64(0), numbers >> (by & np.uint64(63)))


def _nearest_even(numbers: Unsigned, drop: Unsigned) -> Unsigned:
    """``numbers / 2**drop`` to nearest even, for drops from 1 to 64; 0 for 65, since numbers are below 2**64."""
    within = np.minimum(drop, np.uint64(64))
    kept = _shifted_right(numbers, within)
    rest, half = _shifted_left(numbers, np.uint64(64) - within), np.uint64(1 << 63)
    rounds_up = (rest > half) | ((rest == half) & (kept % np.uint64(2) == 1))
    return np.where(drop > 64, np.uint64(0), kept + rounds_up)
