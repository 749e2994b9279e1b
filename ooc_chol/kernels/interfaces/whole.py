"""Cholesky of a matrix that is one tile: one routine, on the calling thread, without streams of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64
from ooc_chol.interfaces import Tile
from ooc_chol.memory.sources.base import AbstractSource


class AbstractWholeKernels(ABC):
    """What factors a whole matrix where it lies, row-major, on one device."""

    def current(self) -> AbstractContextManager[Any]:
        """Let the device be current, and what the routine needs of the process hold, inside a ``with`` block around all calls."""
        return nullcontext()

    @abstractmethod
    def empty(self, n: int) -> Tile:
        """An uninitialised ``(n, n)`` array of float64 on the device; ``BudgetError`` where it has no room."""

    @abstractmethod
    def read(self, source: AbstractSource, tile: Tile) -> None:
        """Fill the lower triangle of ``tile``; what is above it may be anything."""

    @abstractmethod
    def factor(self, tile: Tile) -> int:
        """``A = L @ L.T`` in place, with zeros above the diagonal; the order of the first leading minor that fails, else 0.

        A NaN or an infinity in the lower triangle makes a minor fail.
        """

    @abstractmethod
    def right_hand_side(self, b: Any, n: int) -> Tile:
        """A checked copy of ``b``, of the host or any device, as an ``(n, m)`` array beside the tile.

        ``TypeError`` and ``ValueError`` where it is no array of finite real numbers with ``n`` rows.
        """

    @abstractmethod
    def solve(self, tile: Tile, x: Tile, *, transposed: bool) -> None:
        """``x = inv(L) @ x``, or with ``inv(L).T``, in place."""

    @abstractmethod
    def multiply(self, tile: Tile, z: Tile) -> Tile:
        """``L @ z`` as a new array."""

    @abstractmethod
    def take_out(self, tile: Tile, out: NDArray[np.float64]) -> None:
        """Copy a tile to host memory."""


def check_right_hand_side(dtype: np.dtype[Any], shape: tuple[int, ...], n: int) -> None:
    """Refuse what is no array of real numbers with ``n`` rows."""
    if dtype.kind not in "fiub" or dtype.itemsize > FP64.itemsize:
        raise TypeError(
            f"the right-hand side has dtype {dtype}, but real numbers up to float64 are needed: convert it to float64"
        )
    if len(shape) not in (1, 2) or shape[0] != n:
        raise ValueError(f"the right-hand side has shape {shape}, but A is ({n}, {n}): it must be ({n},) or ({n}, m)")


def nonfinite_error(place: tuple[int, ...], value: float) -> ValueError:
    """Describe an entry of a right-hand side that is NaN or infinite."""
    where = ", ".join(map(str, place))
    return ValueError(f"entry [{where}] of the right-hand side is {value}; all must be finite: mend or drop that row")


def find_nonfinite(source: AbstractSource) -> tuple[int, int] | None:
    """Row and column of the first entry of the lower triangle that is NaN or infinite, row by row; None where all are finite."""
    n = source.n
    strip = np.empty(SCANNED_ROWS * n)
    for start in range(0, n, SCANNED_ROWS):
        rows = range(start, min(start + SCANNED_ROWS, n))
        block = strip[: len(rows) * rows.stop].reshape(len(rows), rows.stop)
        source.read_block(rows, range(rows.stop), block)
        for row, entries in zip(rows, block, strict=True):
            bad = np.flatnonzero(~np.isfinite(entries[: row + 1]))
            if bad.size:
                return row, int(bad[0])
    return None


#: Rows of A that are looked at together.
SCANNED_ROWS = 64
