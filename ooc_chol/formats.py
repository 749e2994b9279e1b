"""Storage formats of a tile: the register that the planner, the tiers and the kernels share.

A format with a scale stores a tile as ``round(2**e L_ij)``, where ``e`` puts the largest entry into the top binade but one of the
format's range: no entry becomes infinite, and none is lost because its tile is small. The exponent follows from the largest entry
*as the format rounds it*, so that rounding a tile that is rounded already changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import frexp
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

#: float64, or float32 where the tile's products are computed so.
Floats: TypeAlias = NDArray[np.floating[Any]]

#: Entries of a piece that is converted at once: its temporary arrays stay in a core's cache.
_PIECE = 1 << 15
#: Bytes behind the entries of a tile that has a scale: its exponent, an int64.
SCALE_BYTES = 8


@dataclass(frozen=True)
class PrecisionFormat:
    """One way to store the entries of a tile.

    Parameters
    ----------
    name : str
        Name in plans, file headers and reports, such as ``"fp64"``.
    itemsize : int
        Bytes of one entry.
    significand_bits : int
        Bits of the significand, the leading one included.
    top : int or None
        Scaled entries are below ``2**top``; None for a format without a scale.
    """

    name: str
    itemsize: int
    significand_bits: int
    top: int | None = None

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
            return np.dtype(f"float{8 * self.itemsize}")
        import ml_dtypes  # only where FP8 is used

        return np.dtype(cast(type, ml_dtypes.float8_e4m3fn))

    def stored_bytes(self, entries: int) -> int:
        """Bytes of a stored tile of so many entries: the entries, and the exponent of a scaled one at a multiple of 8."""
        return self.scale_offset(entries) + SCALE_BYTES if self.top is not None else entries * self.itemsize

    def scale_offset(self, entries: int) -> int:
        """First byte of the exponent behind so many entries."""
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
FP16 = PrecisionFormat("fp16", 2, 11, top=15)
#: E4M3, largest number 448; scaled entries stay below 256.
FP8 = PrecisionFormat("fp8", 1, 4, top=8)

#: Every format that a tile may have, by name, the widest first.
FORMATS: dict[str, PrecisionFormat] = {fmt.name: fmt for fmt in (FP64, FP32, FP16, FP8)}


def encode(tile: Floats, fmt: PrecisionFormat, stored: NDArray[np.uint8]) -> None:
    """Round ``tile`` to ``fmt`` and write what is stored of it.

    Parameters
    ----------
    tile : (mb, nb) array
        float64 or float32, row-major contiguous.
    fmt : PrecisionFormat
        The format.
    stored : (fmt.stored_bytes(mb * nb),) uint8 array
        Receives the entries row by row, and the exponent of a scaled tile.

    Notes
    -----
    Rounds once, to nearest even. A tile that holds a NaN or an infinity keeps it.
    """
    flat, exponent = tile.reshape(-1), exponent_of(tile, fmt)
    target = stored[: tile.size * fmt.itemsize].view(fmt.dtype)
    for start in range(0, tile.size, _PIECE):
        part = slice(start, start + _PIECE)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            target[part] = _narrowed(np.ldexp(flat[part], exponent) if exponent else flat[part], fmt)
    if fmt.top is not None:
        stored[fmt.scale_offset(tile.size) :].view(np.int64)[0] = exponent


def decode(stored: NDArray[np.uint8], fmt: PrecisionFormat, entries: slice, out: Floats) -> None:
    """Widen stored entries, exactly.

    Parameters
    ----------
    stored : uint8 array
        What :func:`encode` wrote of a whole tile.
    fmt : PrecisionFormat
        Its format.
    entries : slice
        Which of its entries, counted row by row.
    out : array
        As many entries, float64 or float32, row-major contiguous; overwritten. float32 holds a narrower format exactly as long as
        its entries stay within float32's range.
    """
    behind = len(stored) - SCALE_BYTES if fmt.top is not None else len(stored)
    exponent = int(stored[behind:].view(np.int64)[0]) if fmt.top is not None else 0
    source = stored[entries.start * fmt.itemsize : entries.stop * fmt.itemsize].view(fmt.dtype)
    widen(source, exponent, out)


def widen(source: NDArray[Any], exponent: int, out: Floats) -> None:
    """``out = 2**-exponent source``, for stored entries of any format."""
    flat = out.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        part = slice(start, start + _PIECE)
        flat[part] = source[part]
        if exponent:
            np.ldexp(flat[part], -exponent, out=flat[part])


def round_to(tile: Floats, fmt: PrecisionFormat) -> float:
    """Replace the entries of ``tile`` by what ``fmt`` stores of them.

    Parameters
    ----------
    tile : (mb, nb) array
        float64 or float32, row-major contiguous, changed in place.
    fmt : PrecisionFormat
        The format.

    Returns
    -------
    float
        Frobenius norm of what rounding took away.
    """
    flat, exponent, lost = tile.reshape(-1), exponent_of(tile, fmt), 0.0
    if fmt.dtype.itemsize >= tile.dtype.itemsize:
        return 0.0
    for start in range(0, tile.size, _PIECE):
        part = flat[start : start + _PIECE]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = np.ldexp(part, exponent) if exponent else part
            rounded = _narrowed(scaled, fmt).astype(tile.dtype)
            rounded = np.ldexp(rounded, -exponent) if exponent else rounded
            lost += float(np.sum(np.square(part - rounded, dtype=np.float64)))
        part[...] = rounded
    return float(np.sqrt(lost))


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


def exponent_of(tile: Floats, fmt: PrecisionFormat) -> int:
    """``e`` of a tile: 0 where the format has no scale."""
    return fmt.exponent(float(max(tile.max(), -tile.min()))) if fmt.top is not None and tile.size else 0
