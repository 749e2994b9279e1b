"""Storage formats of a tile: the register that the planner, the tiers and the kernels share.

A format with a scale stores a tile as ``round(2**e L_ij)``, where ``e`` puts the largest entry into the top binade but one of the
format's range: no entry becomes infinite, and none is lost because its tile is small. The exponent follows from the largest entry
*as the format rounds it*, so that rounding a tile that is rounded already changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import frexp, inf, sqrt
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Entries of a tile, real or complex, in the type in which it is computed.
Floats: TypeAlias = NDArray[Any]

#: Entries of a piece that is converted at once: its temporary arrays stay in a core's cache.
_PIECE = 1 << 15
#: Bytes behind the entries of a tile that has a scale: its exponent, an int64.
SCALE_BYTES = 8
#: Largest exponent of a scale, in magnitude, by which norms are measured.
_LARGEST_SCALE = 1000
#: Exponent of the least float32 that is not subnormal.
_LEAST_FLOAT32 = -126


@dataclass(frozen=True)
class PrecisionFormat:
    """One way to store the entries of a tile."""

    name: str  #: Name in plans, file headers and reports, such as ``"fp64"``
    itemsize: int  #: Bytes of one entry
    significand_bits: int  #: Bits of the significand, the leading one included
    top: int | None = None  #: Scaled entries are below ``2**top``; None for a format without a scale
    least: int = 0  #: Exponent of the least number that is not subnormal, ``2**least``; of a format with a scale
    is_complex: bool = False  #: Whether an entry is a complex number, two parts of such a significand

    def __reduce__(self) -> tuple[Any, ...]:
        return format_named, (self.name,)  # formats are told apart by identity

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest an entry that is not subnormal."""
        return 2.0**-self.significand_bits

    @property
    def machine_epsilon(self) -> float:
        """Distance from 1 to the next number: twice the unit roundoff."""
        return 2.0 ** (1 - self.significand_bits)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of stored entries."""
        if self.name != "fp8":
            return np.dtype(f"{'complex' if self.is_complex else 'float'}{8 * self.itemsize}")
        import ml_dtypes  # only where FP8 is used

        return np.dtype(cast(type, ml_dtypes.float8_e4m3fn))

    @cached_property
    def type_name(self) -> str:
        """The name of :attr:`dtype`, which NumPy spells anew each time."""
        return self.dtype.name

    @property
    def real_dtype(self) -> np.dtype[Any]:
        """The NumPy type of a real number, such as a part of an entry: that of the diagonal of L."""
        return np.dtype(f"float{8 * self.itemsize // (2 if self.is_complex else 1)}")

    @property
    def flops_factor(self) -> int:
        """Flops of real numbers that stand for one: a complex product and sum are four real ones each."""
        return 4 if self.is_complex else 1

    def stored_bytes(self, entries: int) -> int:
        """Bytes of a stored tile of so many entries: the entries, and the exponent of a scaled one at a multiple of 8."""
        return self.scale_offset(entries) + SCALE_BYTES if self.top is not None else entries * self.itemsize

    def scale_offset(self, entries: int) -> int:
        """Offset, in bytes, of the exponent behind so many entries."""
        return -(-entries * self.itemsize // SCALE_BYTES) * SCALE_BYTES

    def exponent(self, largest: float) -> int:
        """``e`` for a tile whose largest magnitude is ``largest``; 0 without a scale, or for a tile of zeros."""
        if self.top is None or largest == 0.0 or not np.isfinite(largest):
            return 0
        mantissa, power = frexp(largest)
        # A mantissa that rounds up to 1 is 1/2 of the next binade.
        return self.top - power - (mantissa >= 1.0 - self.unit_roundoff / 2)


FP64 = PrecisionFormat("fp64", 8, 53)
FP32 = PrecisionFormat("fp32", 4, 24)
FP16 = PrecisionFormat("fp16", 2, 11, top=15, least=-14)
#: E4M3, largest number 448; scaled entries stay below 256.
FP8 = PrecisionFormat("fp8", 1, 4, top=8, least=-6)

COMPLEX128 = PrecisionFormat("complex128", 16, 53, is_complex=True)
COMPLEX64 = PrecisionFormat("complex64", 8, 24, is_complex=True)

#: The types in which a whole matrix can be factored, by NumPy's names.
TYPES: dict[str, PrecisionFormat] = {fmt.dtype.name: fmt for fmt in (FP64, FP32, COMPLEX128, COMPLEX64)}


def type_named(dtype: DTypeLike) -> PrecisionFormat:
    """The format that a user asks for by ``dtype``; ``TypeError`` where there is none."""
    with suppress(TypeError):
        asked = np.dtype(dtype)
        if dtype is not None and asked.isnative and asked.name in TYPES:
            return TYPES[asked.name]
    raise TypeError(f"dtype is {dtype!r}; there are {', '.join(map(repr, TYPES))}, in this machine's byte order")


#: Every format that a tile of a real matrix may have in mixed precision, by name, the widest first.
FORMATS: dict[str, PrecisionFormat] = {fmt.name: fmt for fmt in (FP64, FP32, FP16, FP8)}


def format_named(name: str) -> PrecisionFormat:
    """The format of that name, of tiles or of whole matrices."""
    return FORMATS[name] if name in FORMATS else next(fmt for fmt in TYPES.values() if fmt.name == name)


def encode(tile: Floats, fmt: PrecisionFormat, stored: NDArray[np.uint8]) -> None:
    """Round ``tile`` to ``fmt``, once and to nearest even, and write what is stored of it; NaNs and infinities stay."""
    flat, rounding = tile.reshape(-1), Rounding(fmt, largest_magnitude(tile) if fmt.top is not None else 0.0)
    target = stored[: tile.size * fmt.itemsize]
    for start in range(0, tile.size, _PIECE):
        part = slice(start, start + _PIECE)
        target[start * fmt.itemsize : part.stop * fmt.itemsize] = rounding.stored(flat[part])
    if fmt.top is not None:
        stored[fmt.scale_offset(tile.size) :].view(np.int64)[0] = rounding.exponent


def decode(stored: NDArray[np.uint8], fmt: PrecisionFormat, entries: slice, out: Floats) -> None:
    """Widen the stored entries ``entries`` of a tile into ``out``, exactly."""
    behind = len(stored) - SCALE_BYTES if fmt.top is not None else len(stored)
    exponent = int(stored[behind:].view(np.int64)[0]) if fmt.top is not None else 0
    source = stored[entries.start * fmt.itemsize : entries.stop * fmt.itemsize].view(fmt.dtype)
    widen(source, exponent, out)


def widen(source: NDArray[Any], exponent: int, out: Floats) -> None:
    """``out = 2**-exponent source``, for stored entries of any format."""
    flat = out.reshape(-1)
    if source.dtype.itemsize == 1:
        np.take(_times_power_of_two(_all_bytes(source.dtype, out.dtype), -exponent), source.view(np.uint8), out=flat, mode="clip")
        return
    for start in range(0, flat.size, _PIECE):
        part = flat[start : start + _PIECE]
        part[...] = source[start : start + _PIECE]
        _times_power_of_two(part, -exponent, out=part)


@lru_cache
def _all_bytes(stored: np.dtype[Any], wide: np.dtype[Any]) -> Floats:
    """The 256 numbers of a format of one byte, by their bits, in a wide type."""
    return np.arange(256, dtype=np.uint8).view(stored).astype(wide)


@dataclass(frozen=True)
class Rounding:
    """How the entries of one tile are rounded, piece by piece, by any number of threads.

    It rounds once, to nearest even, as NumPy and ml_dtypes convert. Narrow formats are rounded in place, which takes a third of
    that time: ``1.5 * 2**52`` units of an entry's last bit, added and taken off again, leave a whole number of units.
    """

    fmt: PrecisionFormat
    largest: float  #: Largest magnitude of the whole tile, which may be a NaN or infinite

    @cached_property
    def exponent(self) -> int:
        """The exponent ``e`` of the tile's scale: 0 where the format has none."""
        return self.fmt.exponent(self.largest)

    @cached_property
    def scale(self) -> float:
        """A power of two that brings the tile's entries to about 1, so that their squares neither overflow nor vanish."""
        is_plain = 0.0 < self.largest < inf
        return 2.0 ** max(-_LARGEST_SCALE, min(_LARGEST_SCALE, -frexp(self.largest)[1])) if is_plain else 1.0

    def norm(self, squares: float) -> float:
        """The Frobenius norm that belongs to a sum of squares from :meth:`apply`; a NaN stays one."""
        return sqrt(squares) / self.scale if squares >= 0.0 else squares

    def apply(self, part: Floats) -> tuple[float, float]:
        """Round entries of the tile in place; returns sums of scaled squares, of what rounding took away and of what is left."""
        flat, lost, left = part.reshape(-1), 0.0, 0.0
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for start in range(0, flat.size, _PIECE):
                piece = flat[start : start + _PIECE]
                if self.fmt.itemsize < piece.itemsize:
                    rounded = self._rounded(piece)
                    lost += self._squares(np.subtract(piece, rounded))
                    piece[...] = rounded
                left += self._squares(piece)
        return lost, left

    def stored(self, piece: Floats) -> NDArray[np.uint8]:
        """The bytes that the format stores for entries of the tile."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if self.fmt.itemsize > 1 or not self._is_plain(piece.dtype):
                return _narrowed(_times_power_of_two(piece, self.exponent), self.fmt).view(np.uint8)
            rounded = _times_power_of_two(self._rounded(piece), self.exponent).astype(np.float32, copy=False)
            # The exponent of float32 becomes that of the format, also for its subnormal numbers; what moves out is zeros.
            bits = (rounded * np.float32(2.0 ** (_LEAST_FLOAT32 - self.fmt.least))).view(np.uint32)
        return ((bits & 0x7FFFFFFF) >> (24 - self.fmt.significand_bits) | bits >> 24 & 0x80).astype(np.uint8)

    def _squares(self, piece: Floats) -> float:
        """Sum of the squares of scaled entries."""
        scaled = np.multiply(piece, self.scale, dtype=np.float64)
        return float(np.square(scaled, out=scaled).sum())

    def _rounded(self, piece: Floats) -> Floats:
        """Entries as the format rounds them, on the scale of the tile."""
        if self._is_plain(piece.dtype):
            return self._rounded_to_units(piece)
        narrow = _narrowed(_times_power_of_two(piece, self.exponent), self.fmt)
        return _times_power_of_two(narrow.astype(piece.dtype), -self.exponent)

    def _is_plain(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether the format is a narrow one and no number that rounding to units meets leaves the range of ``dtype``."""
        if self.fmt.top is None or not 0.0 < self.largest < inf:
            return False
        numbers = np.finfo(dtype)
        is_low = frexp(self.largest)[1] + numbers.nmant < numbers.maxexp
        return bool(is_low and self.fmt.least - self.exponent >= numbers.minexp)

    def _rounded_to_units(self, piece: Floats) -> Floats:
        """Entries rounded to a multiple of the unit that the format has at their size."""
        numbers = np.finfo(piece.dtype)
        word, exponents = (np.int64, 0x7FF << 52) if piece.itemsize == 8 else (np.int32, 0xFF << 23)
        rounded = np.abs(piece)
        units = np.maximum(rounded, piece.dtype.type(2.0 ** (self.fmt.least - self.exponent)))
        bits: NDArray[Any] = units.view(word)
        bits &= word(exponents)
        units *= piece.dtype.type(1.5 * 2.0 ** (numbers.nmant - self.fmt.significand_bits + 1))
        rounded += units
        rounded -= units
        signs: NDArray[Any] = piece.view(word)
        signed: NDArray[Any] = rounded.view(word)
        signed |= signs & word(np.iinfo(word).min)
        return rounded


def largest_magnitude(part: Floats) -> float:
    """Largest magnitude of entries; a NaN where there is one."""
    return float(np.maximum(part.max(), -part.min())) if part.size else 0.0


def _times_power_of_two(entries: Floats, exponent: int, out: Floats | None = None) -> Floats:
    """``2**exponent entries``, rounded once where the result is subnormal; the entries themselves for an exponent of 0."""
    if exponent == 0:
        return entries
    scaled: Floats
    if abs(exponent) < np.finfo(entries.dtype).maxexp - 1:
        scaled = np.multiply(entries, entries.dtype.type(2.0**exponent), out=out)  # six times as fast as ldexp
    else:
        scaled = np.ldexp(entries, exponent, out=out)
    return scaled


def _narrowed(entries: Floats, fmt: PrecisionFormat) -> NDArray[Any]:
    """``entries`` in ``fmt``, rounded once: ml_dtypes takes float64 by way of float32, which must not round to a tie."""
    if fmt is not FP8 or entries.dtype != np.float64:
        return entries.astype(fmt.dtype)
    # Round to odd: towards zero, and where that is not exact the last bit set.
    single = entries.astype(np.float32)
    bits = single.view(np.uint32)
    is_inexact = single.astype(np.float64) != entries
    bits -= np.abs(single) > np.abs(entries)
    bits |= is_inexact & np.isfinite(entries)
    return single.astype(fmt.dtype)
