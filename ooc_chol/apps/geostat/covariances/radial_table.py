"""Functions of one scaled distance as piecewise polynomials that number their pieces by the leading bits of the distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Coefficients of a piece, and mantissa bits that number the pieces of a binade.
COEFFICIENTS = 8
PIECE_BITS = 4

_PLACE_BITS = 52 - PIECE_BITS
_PLACE_MASK = (1 << _PLACE_BITS) - 1
_BIAS = 1023
#: Exponent bits of the numbers from 2 to 4: with the place in its piece as mantissa a number is 3 + s, where -1 <= s < 1.
_TWO = (_BIAS + 1) << 52
_LEAST_BINADE = 1 - _BIAS

#: Scratch arrays that :meth:`RadialTable.evaluate` needs, each of the shape of its argument.
SCRATCH = 3


@dataclass(frozen=True, eq=False)
class RadialTable:
    """A function of ``z >= 0`` as one polynomial for each sixteenth of a binade; made by :func:`tabulate`.

    Covariance functions are smooth but at 0, where they behave like ``z**p``; pieces whose width grows with z therefore need few
    coefficients. Piece and place come from the bits of z without rounding, so that no logarithm, no search and no division is
    needed. The same table serves the host and CUDA devices.
    """

    first: int  #: Number of the first piece: the leading 16 bits of the float64 numbers in it
    #: (pieces, 8) polynomials in the place ``-1 <= s < 1`` in the piece, lowest powers first. The first row is the constant for
    #: all smaller distances and has the number ``first - 1``, the last row that for all larger ones.
    coefficients: NDArray[np.float64]

    @cached_property
    def _columns(self) -> NDArray[np.float64]:
        """The coefficients by power, each contiguous."""
        return np.ascontiguousarray(self.coefficients.T)

    def evaluate(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by the function of it. About 8 ns an entry on one core."""
        bits, piece, value, part = z.view(np.int64), scratch[0].view(np.int64), scratch[1], scratch[2]
        np.right_shift(bits, _PLACE_BITS, out=piece)
        piece -= self.first - 1
        bits &= _PLACE_MASK
        bits <<= PIECE_BITS
        bits |= _TWO
        z -= 3.0
        columns = self._columns
        np.take(columns[-1], piece, out=value, mode="clip")
        for column in columns[-2::-1]:
            value *= z
            np.take(column, piece, out=part, mode="clip")
            value += part
        z[...] = value

    def arguments(self, factor: float = 1.0) -> tuple[NDArray[np.float64], np.int32, np.int32]:
        """Arguments of a kernel in CUDA C for ``factor`` times the function."""
        return factor * self.coefficients, np.int32(self.first - 1), np.int32(len(self.coefficients) - 1)

    def combined(self, factor: float, other: RadialTable, weight: float) -> RadialTable:
        """``factor`` times this function and ``weight`` times one that was tabulated with it, as a table."""
        return RadialTable(self.first, factor * self.coefficients + weight * other.coefficients)

    def __call__(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """The function at an array of distances, as a new array."""
        values = np.array(z, dtype=np.float64, ndmin=1)
        self.evaluate(values, np.empty((SCRATCH, *values.shape)))
        return values.reshape(np.shape(z))


def tabulate(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    binades: tuple[int, int],
    ends: tuple[NDArray[np.float64], ...],
) -> tuple[RadialTable, ...]:
    """Make tables of functions that are computed together."""
    nodes = np.cos(np.pi * (np.arange(COEFFICIENTS) + 0.5) / COEFFICIENTS)
    start, stop = (_BIAS + max(_LEAST_BINADE, binade) << PIECE_BITS for binade in binades)
    edges = (np.arange(start, stop + 1, dtype=np.int64) << _PLACE_BITS).view(np.float64)
    places = edges[:-1, None] + np.diff(edges)[:, None] * ((nodes + 1.0) / 2.0)
    values = function(places.ravel()).reshape(-1, len(places), COEFFICIENTS)
    inverse = np.linalg.inv(np.vander(nodes, COEFFICIENTS, increasing=True))
    return tuple(
        RadialTable(start, _with_ends(_interpolate(rows, inverse), float(below), float(above)))
        for rows, below, above in zip(values, *ends, strict=True)
    )


def _interpolate(values: NDArray[np.float64], inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients of each row; what is common to a row is left out, so that rounding is relative to how it varies."""
    common = values[:, COEFFICIENTS // 2]
    coefficients = (values - common[:, None]) @ inverse.T
    coefficients[:, 0] += common
    return coefficients


def _with_ends(coefficients: NDArray[np.float64], below: float, above: float) -> NDArray[np.float64]:
    """The pieces between two constant ones."""
    rows = np.zeros((len(coefficients) + 2, COEFFICIENTS))
    rows[0, 0], rows[1:-1], rows[-1, 0] = below, coefficients, above
    return rows
