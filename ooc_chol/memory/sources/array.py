"""Sources of A that slicing reads: arrays in memory, and anything else with ``shape``, ``dtype`` and two-dimensional slices."""

from __future__ import annotations

from copy import copy
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from ooc_chol.formats import FP64
from ooc_chol.memory.sources.base import AbstractSource, check_dtype, check_shape
from ooc_chol.memory.sources.behind import files_behind
from ooc_chol.memory.sources.chunks import ChunkGrid, hdf5_chunks
from ooc_chol.memory.sources.numbers import lost, put_numbers, real_number, widened
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.process.threads import UsersCode

#: Rows and columns of the blocks by which columns are turned into rows, and the entries between the columns of one: those that
#: begin a power of two apart would fall on the same few lines of the cache. Long pieces of columns are read, and long pieces of
#: rows written; the block stays in a core's own cache between. Within 10 % of the best for tiles of orders 1024 to 4096.
_BLOCK_ROWS, _BLOCK_COLUMNS, _PADDING = 256, 128, 8


def has_whole_rows(a: NDArray[Any]) -> bool:
    """Tell whether an array is made of rows of adjacent entries, one behind the other."""
    return a.strides[1] == a.itemsize and (len(a) == 1 or a.strides[0] >= a.itemsize * a.shape[1])


@final
class ArraySource(AbstractSource):
    """A matrix in memory: an array of any strides, negative and zero included."""

    name = "array"
    sampled_by = "entries"

    def __init__(self, a: NDArray[Any], *, is_transposed: bool = False) -> None:
        self.is_transposed = is_transposed
        self.n = check_shape(a.shape, "the array")
        check_dtype(a.dtype, "the array")
        self._a = np.asarray(a)
        self.dtype, self.bytes_per_entry = a.dtype, a.dtype.itemsize
        self.shared_axis = 0 if abs(a.strides[0]) >= abs(a.strides[1]) else 1

    def view(self, rows: range, cols: range) -> NDArray[Any]:
        return self._a[rows.start : rows.stop, cols.start : cols.stop]

    @property
    def files(self) -> tuple[str, ...]:
        """The path of the file that the array maps, if it maps one."""
        return files_behind(self._a)

    def host_memory(self) -> NDArray[Any] | None:
        """The array, when it is made of rows of adjacent entries: others are not copied in place, whatever is page-locked."""
        return self._a if has_whole_rows(self._a) else None

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Copy the rectangle, along whichever axis has the shorter stride."""
        block = self._a[rows.start : rows.stop, cols.start : cols.stop]
        if self.shared_axis == 0 or block.dtype == object:
            put_numbers(block, out)
            return
        columns = np.empty((min(_BLOCK_COLUMNS, len(cols)), min(_BLOCK_ROWS, len(rows)) + _PADDING), block.dtype)
        for c0 in range(0, len(cols), _BLOCK_COLUMNS):
            for r0 in range(0, len(rows), _BLOCK_ROWS):
                piece = block[r0 : r0 + _BLOCK_ROWS, c0 : c0 + _BLOCK_COLUMNS]
                turned = columns[: piece.shape[1], : piece.shape[0]].T
                turned[...] = piece
                put_numbers(turned, out[r0 : r0 + _BLOCK_ROWS, c0 : c0 + _BLOCK_COLUMNS])

    def transposed(self) -> ArraySource:
        """The same memory by exchanged strides."""
        return ArraySource(self._a.T, is_transposed=not self.is_transposed)

    def entries(self, rows: NDArray[np.intp], cols: NDArray[np.intp]) -> NDArray[Any]:
        """A few entries, by NumPy's own indexing."""
        found = self._a[rows, cols]
        return found if found.dtype == np.float64 else widened(found)

    def describe(self, row: int, col: int) -> str | None:
        """The object that stands there, where it is no real number."""
        return _described(self._a[row, col]) if self._a.dtype == object else None


@final
class SliceSource(AbstractSource):
    """Anything with ``shape``, ``dtype`` and slicing ``a[r0:r1, c0:c1]``: h5py and Zarr data sets, Dask arrays, masked arrays.

    Slices are taken by one thread at a time, since such objects seldom say whether two threads may read. A slice is a temporary
    array of the tile's size outside of every budget. Chunks that are aligned with the tiles are read once each.
    """

    name = "slices"
    sampled_by = "block"

    def __init__(self, a: Any) -> None:
        self._what = f"the {type(a).__module__}.{type(a).__qualname__}"
        self.n = check_shape(tuple(a.shape), self._what)
        self._a = a
        self._lock = new_lock()
        self.dtype = self._slice(range(min(1, self.n)), range(min(1, self.n)))[0].dtype
        self.bytes_per_entry = self.dtype.itemsize

    @property
    def files(self) -> tuple[str, ...]:
        """The path of the file that the object is open on, if it tells."""
        return files_behind(self._a)

    def transposed(self) -> SliceSource:
        """The same object, whose slices are turned once they are there."""
        other = copy(self)
        other.is_transposed = not self.is_transposed
        return other

    def _slice(self, rows: range, cols: range) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """One slice as an array, and which of its entries are masked, if any."""
        block, masked = self._taken(cols, rows) if self.is_transposed else self._taken(rows, cols)
        if not self.is_transposed:
            return block, masked
        return block.T, None if masked is None else masked.T

    def _taken(self, rows: range, cols: range) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """The same of the object itself."""
        try:
            with UsersCode(), self._lock:
                piece = self._a[rows.start : rows.stop, cols.start : cols.stop]
                block = np.asarray(piece)
        except OSError as error:
            raise TierError(f"{self._what} could not read rows {rows} x columns {cols}: {error}") from error
        if block.shape != (len(rows), len(cols)):
            raise TypeError(
                f"{self._what} gives an array of shape {block.shape} for [{rows.start}:{rows.stop}, {cols.start}:{cols.stop}]; "
                "pass what gives arrays of the slice's shape (of a sparse matrix A.toarray(), of a table A.to_numpy())"
            )
        check_dtype(block.dtype, self._what)
        return block, np.ma.getmaskarray(piece) if np.ma.is_masked(piece) else None

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Take one slice and copy it, masked entries as NaN."""
        block, masked = self._slice(rows, cols)
        put_numbers(block, out)
        if masked is not None:
            out[masked] = np.nan

    def chunk_grid(self) -> ChunkGrid | None:
        """Chunks of a data set of h5py."""
        with UsersCode(), self._lock:
            return hdf5_chunks(self._a)

    def describe(self, row: int, col: int) -> str | None:
        """Describe an entry that is masked or no real number; None for numbers."""
        block, masked = self._slice(range(row, row + 1), range(col, col + 1))
        if masked is not None:
            return "masked"
        return _described(block[0, 0]) if block.dtype == object else None


def _described(entry: object) -> str | None:
    """An object for a reader; None where it is a number that float64 holds."""
    if real_number(entry) is None:
        return f"the {type(entry).__name__} {entry!r:.40}, no real number"
    return lost(entry, FP64.dtype)
