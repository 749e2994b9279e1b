"""Base of every source of A: its order, its entries' width, and reading a rectangle of it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import one_line
from ooc_chol.errors import NonFiniteError, NotPositiveDefiniteError, OocCholError, ScheduleError
from ooc_chol.formats import FP64
from ooc_chol.interfaces import Tile
from ooc_chol.memory.sources.chunks import ChunkGrid
from ooc_chol.memory.sources.numbers import lost
from ooc_chol.process.team import ThreadTeam, pieces

#: Most bytes that a thread holds beside ``out`` while it turns what it reads into a row-major tile of float64.
STRIP_BYTES = 1 << 20
#: Rows or columns by the multiple of which a rectangle is shared among threads, and bytes of the smallest that is.
_SHARE_LINES, _LEAST_SHARED_BYTES = 128, 1 << 20
#: Kinds of dtype that are real numbers: floats, integers of either sign, and bool; and arrays of Python's own numbers.
_REAL_KINDS = "fiubO"
#: Bytes of an entry of the widest complex type that there is arithmetic for.
_WIDEST_COMPLEX = 16


class AbstractSource(ABC):
    """An ``(n, n)`` symmetric or Hermitian matrix of whose lower triangle rectangles are read, from several threads at once."""

    name: str  #: Kind of the source in reports, such as ``"array"`` or ``"file"``
    n: int  #: Order of the matrix
    dtype: np.dtype[Any] = FP64.dtype  #: Type of its entries; of a tile function that of the arrays that it fills
    bytes_per_entry: int  #: Bytes of an entry on its way to a device; 0 where the device makes it
    is_transposed: bool = False  #: Whether this is the transpose of the matrix that was given
    #: Whether pages of the system's cache count against a budget: then those of a file are given up as they are read
    is_bounded: bool = False
    #: Whether it can be pickled, and reads the same matrix in another process: on a machine that sees the same files
    is_shared: bool = False
    #: How a sample of both triangles is read: single entries, a block on the diagonal, or not at all
    sampled_by: Literal["entries", "block"] | None = None
    #: Axis by which several threads share a rectangle; None where one reads it no slower
    shared_axis: Literal[0, 1] | None = None

    def read_block(self, rows: range, cols: range, out: NDArray[Any], *, team: ThreadTeam | None = None) -> None:
        """Fill ``out`` with ``A[rows, cols]`` in its type; a large one by all of ``team`` where that is faster.

        What a narrower type cannot hold becomes infinite, and is met as such.
        """
        for axis in (rows, cols):
            if axis.step != 1 or axis.start < 0 or axis.stop > self.n:
                raise ValueError(f"{axis} is not a range of step 1 inside a matrix of order {self.n}")
        holds = out.dtype.kind == "c" or (out.dtype.kind == "f" and self.dtype.kind != "c")
        if out.shape != (len(rows), len(cols)) or not holds or not out.flags.carray:
            raise ValueError(
                f"out is {out.dtype} of shape {out.shape} and strides {out.strides}, but {rows} x {cols} of {self.dtype} is read "
                "into a writable, contiguous, row-major array of its shape, of floats, or of complex numbers where A has some"
            )
        if team is None or team.size == 1 or self.shared_axis is None or out.nbytes < _LEAST_SHARED_BYTES:
            self._read(rows, cols, out)
        elif self.shared_axis == 0:
            team.run([partial(self._read, rows[part], cols, out[part]) for part in _shares(len(rows), team.size)])
        else:
            team.run([partial(self._read, rows, cols[part], out[:, part]) for part in _shares(len(cols), team.size)])

    @abstractmethod
    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Fill ``out``: of checked shape and in row-major order, or columns of an array that is, where these are shared."""

    def view(self, rows: range, cols: range) -> NDArray[Any] | None:
        """``A[rows, cols]`` in place, in its own type and of any strides; None when it must be read."""
        return None

    def host_memory(self) -> NDArray[Any] | None:
        """The memory behind all views, where copies to a device may reach them in place; else None."""
        return None

    @property
    def home(self) -> str | None:
        """Name of the device in whose memory A lies; None for the host, and for what is read or made."""
        return None

    @property
    def is_made_on_cuda(self) -> bool:
        """True if CUDA devices make it by a function of their own."""
        return False

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that A is read from, as far as they are known."""
        return ()

    @property
    def file_bytes(self) -> int:
        """Bytes of the files that A is read from, as far as they can be asked."""
        return sum(os.path.getsize(path) for path in self.files if os.path.isfile(path))

    def prepare(self) -> None:  # noqa: B027 - most sources need no preparation
        """Do what must be done once on the current CUDA device before a run: compile, upload."""

    def function(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Fill ``out`` where it is, for sources that move no bytes over a link (``bytes_per_entry == 0``)."""
        raise ScheduleError(f"a source of kind {self.name!r} is read, not generated on the device")

    def transposed(self) -> AbstractSource:
        """The transpose, whose lower triangle is this one's upper. It takes the place of this source: only one is closed."""
        raise TypeError(f"a source of kind {self.name!r} is read from its lower triangle only")

    def entries(self, rows: NDArray[np.intp], cols: NDArray[np.intp]) -> NDArray[Any]:
        """Single entries of either triangle, for sources that are ``sampled_by`` them."""
        raise ScheduleError(f"a source of kind {self.name!r} is read by rectangles, not by entries")

    def chunk_grid(self) -> ChunkGrid | None:
        """Which chunks were ever written; None where A is not stored in chunks, or nobody can tell."""
        return None

    def describe(self, row: int, col: int) -> str | None:
        """Describe an entry that was read as NaN without being a number, such as ``"masked"``; None for numbers."""
        return None

    def lost(self, row: int, col: int, dtype: np.dtype[Any]) -> str | None:
        """Describe a finite entry that a type has as an infinity or as zero; None for others, and for what only GPUs can read."""
        if np.can_cast(self.dtype, dtype) or self.home is not None or self.is_made_on_cuda:
            return None
        entry = np.empty((1, 1), np.clongdouble if self.dtype.kind == "c" else np.longdouble)
        self.read_block(range(row, row + 1), range(col, col + 1), entry)
        return lost(entry[0, 0], dtype)

    def check_unchanged(self) -> None:  # noqa: B027 - most sources cannot tell
        """Refuse what was read so far if the matrix has changed since the source was opened, as far as that can be told."""

    def __repr__(self) -> str:
        return one_line(self, {"n": self.n, "name": self.name, **({"files": self.files} if self.files else {})})

    def close(self) -> None:  # noqa: B027 - most sources hold nothing to release
        """Release what the source holds; a second call does nothing."""


def _shares(count: int, most: int) -> list[slice]:
    """``count`` lines as at most so many slices, each but the last of a multiple of some lines."""
    return pieces(count, -(-count // (most * _SHARE_LINES)) * _SHARE_LINES)


@final
class unchanged(AbstractContextManager[None]):
    """Refuse what a block makes of a source that changes meanwhile; that goes before the block's verdict on its numbers."""

    def __init__(self, source: AbstractSource) -> None:
        self._source = source

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, OocCholError | ValueError):
            self._source.check_unchanged()


class Given(Protocol):
    """A matrix that was given, as far as errors speak of it."""

    @property
    def is_transposed(self) -> bool:
        """True if its upper triangle is read."""

    def describe(self, row: int, col: int) -> str | None:
        """An entry that is no number, in words."""

    def lost(self, row: int, col: int, dtype: np.dtype[Any]) -> str | None:
        """A finite entry that a type has as an infinity or as zero, in words."""


@final
class entries_named(AbstractContextManager[None]):
    """Name the entry of the matrix that was given, and what stands there, in an error of the factorization within the block.

    ``dtype`` is the one that L is asked in, float64 by default.
    """

    def __init__(self, source: Given, dtype: str | None = None) -> None:
        self._source, self._dtype = source, FP64.dtype if dtype is None else np.dtype(dtype)

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        source = self._source
        if type(error) is NotPositiveDefiniteError and (zero := source.lost(error.minor - 1, error.minor - 1, self._dtype)):
            raise NotPositiveDefiniteError(error.minor, error.tile, held=zero).with_traceback(error.__traceback__) from None
        if not isinstance(error, NonFiniteError):
            return
        held = source.describe(error.row, error.col) or source.lost(error.row, error.col, self._dtype)
        if held is None and not source.is_transposed:
            return
        place, triangle = ((error.col, error.row), "upper") if source.is_transposed else ((error.row, error.col), "lower")
        raise NonFiniteError(*place, error.tile, held, triangle).with_traceback(error.__traceback__) from None


def check_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Refuse every dtype but those of real numbers, which are read as those of the factor, and complex ones up to complex128."""
    if dtype.kind in _REAL_KINDS or (dtype.kind == "c" and dtype.itemsize <= _WIDEST_COMPLEX):
        return
    fix = f"convert it with A.astype({'complex' if dtype.kind == 'c' else 'float'})"
    raise TypeError(f"{what} holds {dtype.name}, but A holds real numbers, or complex ones up to complex128: {fix}")


def check_shape(shape: tuple[int, ...], what: str) -> int:
    """Refuse every shape but ``(n, n)``."""
    if len(shape) != 2 or shape[0] != shape[1]:
        batch = "; cholesky takes a batch (b, n, n), as one array in memory, and all else one matrix" if len(shape) == 3 else ""
        raise ValueError(f"{what} has shape {shape}, but A is a square matrix of shape (n, n){batch}")
    return int(shape[0])
