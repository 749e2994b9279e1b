"""Cholesky of a matrix that is one tile: one routine, on the calling thread, without streams of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import COMPLEX128, FP64, PrecisionFormat
from ooc_chol.interfaces import Tile
from ooc_chol.memory.sources.base import AbstractSource


class AbstractWholeKernels(ABC):
    """Kernels that factor a whole matrix where it lies, row-major, on one device."""

    @abstractmethod
    def current(self) -> AbstractContextManager[Any]:
        """Let the device be current, and what the routine needs of the process hold, inside a ``with`` block around all calls."""

    @abstractmethod
    def beside(self, out: NDArray[Any]) -> Tile:
        """Where to factor a matrix whose L goes to ``out`` in host memory: there, or as much on the device, uninitialised.

        ``BudgetError`` where the device has no room.
        """

    @abstractmethod
    def read(self, source: AbstractSource, tile: Tile) -> None:
        """Fill the lower triangle of ``tile``; what is above it may be anything."""

    @abstractmethod
    def factor(self, tile: Tile) -> int:
        """``A = L @ L.conj().T`` in place, zeros above the diagonal; the order of the first leading minor that fails, else 0.

        A NaN or an infinity in the lower triangle makes a minor fail.
        """

    @abstractmethod
    def first_nonfinite(self, tile: Tile) -> tuple[int, int] | None:
        """Row and column of the first entry of the lower triangle that is NaN or infinite, row by row; None where none is."""

    @abstractmethod
    def first_imaginary(self, tile: Tile, share: float) -> int | None:
        """Row of the first diagonal entry with an imaginary part of more than that share of it; None where none has."""

    @abstractmethod
    def take_out(self, tile: Tile, out: NDArray[Any]) -> None:
        """Copy what :meth:`beside` gave to ``out``, unless it is there."""


class AbstractResidentKernels(ABC):
    """Kernels that compute with an L that stays on a device as one tile, row-major."""

    @abstractmethod
    def current(self) -> AbstractContextManager[Any]:
        """Let the device be current inside a ``with`` block around all calls."""

    @abstractmethod
    def empty(self, n: int) -> Tile:
        """An uninitialised ``(n, n)`` array on the device; ``BudgetError`` where it has no room."""

    @abstractmethod
    def right_hand_side(self, b: Any, n: int, *, copy: bool = True) -> Tile:
        """A checked copy of ``b``, of the host or any device, as an ``(n, m)`` array beside the tile.

        Without ``copy`` ``b`` itself, where it lies there as such an array.

        ``TypeError`` and ``ValueError`` where it is no array of finite numbers of L's kind with ``n`` rows.
        """

    @abstractmethod
    def solve(self, tile: Tile, x: Tile, *, transposed: bool) -> None:
        """``x = inv(L) @ x``, or with ``inv(L).conj().T``, in place."""

    @abstractmethod
    def multiply(self, tile: Tile, z: Tile, *, transposed: bool = False) -> Tile:
        """``L @ z``, or ``L.conj().T @ z``, as a new array."""


def check_right_hand_side(dtype: np.dtype[Any], shape: tuple[int, ...], n: int, fmt: PrecisionFormat = FP64) -> None:
    """Refuse what is no array of numbers with ``n`` rows, complex ones only for a complex factor."""
    is_real = dtype.kind in "fiub" and dtype.itemsize <= FP64.itemsize
    if not (is_real or (fmt.is_complex and dtype.kind == "c" and dtype.itemsize <= COMPLEX128.itemsize)):
        raise TypeError(
            f"the right-hand side has dtype {dtype}, but {'' if fmt.is_complex else 'real '}numbers up to "
            f"{'complex128' if fmt.is_complex else 'float64'} are needed: convert it to {fmt.dtype}"
        )
    if len(shape) not in (1, 2) or shape[0] != n:
        raise ValueError(f"the right-hand side has shape {shape}, but A is ({n}, {n}): it must be ({n},) or ({n}, m)")


def nonfinite_error(place: tuple[int, ...], value: Any, dtype: np.dtype[Any] | None = None) -> ValueError:
    """Describe an entry of a right-hand side that is NaN or infinite, or becomes so in the type of L."""
    where = ", ".join(map(str, place))
    if dtype is not None and np.isfinite(value):
        return ValueError(
            f"entry [{where}] of the right-hand side is {value}, beyond the {dtype} of L: scale it, or factor in float64"
        )
    return ValueError(f"entry [{where}] of the right-hand side is {value}; all must be finite: mend or drop that row")


def lower_pieces(n: int, order: int) -> Iterator[tuple[range, range]]:
    """Rows and columns of the squares of at most that order that cover the lower triangle, row by row."""
    for top in range(0, n, order):
        rows = range(top, min(top + order, n))
        for left in range(0, rows.stop, order):
            yield rows, range(left, min(left + order, n))


def first_imaginary(library: Any, tile: Tile, share: float) -> int | None:
    """Row of the first diagonal entry of a complex array of ``library`` with a larger imaginary part than that share of it."""
    diagonal = tile.diagonal()
    bad = library.abs(diagonal.imag) > share * library.abs(diagonal.real)
    return int(library.argmax(bad)) if bad.any() else None


#: Rows that are looked at together.
SCANNED_ROWS = 64


def first_nonfinite(library: Any, tile: Tile) -> tuple[int, int] | None:
    """As :meth:`AbstractWholeKernels.first_nonfinite`, for an array of ``library``, which is NumPy or has its functions."""
    n = len(tile)
    for start in range(0, n, SCANNED_ROWS):
        stop = min(start + SCANNED_ROWS, n)
        bad = library.tril(~library.isfinite(tile[start:stop, :stop]), start)
        if bad.any():
            row, column = divmod(int(library.argmax(bad)), stop)
            return start + row, column
    return None
