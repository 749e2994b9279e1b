"""A source of A in a file, read by ``pread`` so that its pages never count as memory: ``.npy`` files and memory maps."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import TierError
from ooc_chol.files.access import drop_pages
from ooc_chol.files.inputs import input_file
from ooc_chol.files.positional_io import file_errors_typed
from ooc_chol.memory.sources.base import STRIP_BYTES, AbstractSource, check_dtype, check_shape
from ooc_chol.memory.sources.numbers import put_numbers, widened

# Version (3, 0) is (2, 0) with field names beyond Latin-1, which no matrix has: its dtype is refused later, by name.
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}
#: Bytes at the start of a file that hold its header: NumPy takes at most 10,000 characters.
_MOST_HEADER = 1 << 16
# Linux moves at most 2 GiB - 4 KiB in one call, and other systems refuse more.
_LARGEST_READ = 1 << 30
#: Entries between the columns of a strip.
_PADDING = 8
#: Pieces of a tile that are asked for at a time, and up to how many before they are read: more gain nothing.
_ASKED_AT_ONCE, _ASKED_AHEAD = 32, 128


class FileState(NamedTuple):
    """State that tells a file from another one, or from itself before a write within another tick of its clock."""

    device: int
    inode: int
    size: int  #: Bytes of the file
    modified_ns: int  #: Nanoseconds from the epoch to the last change of its content

    @classmethod
    def of(cls, descriptor: int) -> FileState:
        """Read the state of an open file."""
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def changes_to(self, later: FileState) -> str:
        """Say what became of the file since this state; empty if it is unchanged."""
        if later[:2] != self[:2]:
            return "another file took its name"
        if later.size != self.size:
            return f"it went from {self.size} to {later.size} bytes"
        if later.modified_ns != self.modified_ns:
            moment = datetime.fromtimestamp(later.modified_ns / 1e9).astimezone()
            return f"it was written at {moment.isoformat(timespec='milliseconds')}"
        return ""


@dataclass(frozen=True)
class MatrixLayout:
    """Where the entries of a matrix lie in a file."""

    path: Path  #: The file
    n: int  #: Order of the matrix
    dtype: np.dtype[Any]  #: Of real numbers, in any byte order
    offset: int  #: Bytes before entry (0, 0)
    row_stride: int  #: Bytes from an entry to the one below; this or the next is the width of an entry
    col_stride: int  #: Bytes from an entry to the one on its right
    #: State of the file that this layout was found in; None if that is unknown
    state: FileState | None = field(default=None, compare=False)

    @property
    def is_row_major(self) -> bool:
        """True if the entries of a row are adjacent."""
        return self.col_stride == self.dtype.itemsize

    def position(self, row: int, col: int) -> int:
        """Bytes before entry ``(row, col)``."""
        return self.offset + row * self.row_stride + col * self.col_stride

    @property
    def end(self) -> int:
        """Least number of bytes of a file that holds the matrix."""
        if self.n == 0:
            return self.offset
        corners = (self.position(row, col) for row in (0, self.n - 1) for col in (0, self.n - 1))
        return max(corners) + self.dtype.itemsize


@final
class NpySource(AbstractSource):
    """A matrix in a file, in row-major or column-major order.

    Beside ``out``, a thread that reads holds at most ``STRIP_BYTES`` or one row (or column) of the tile: none for row-major
    float64. A file that is replaced under its name while it is open stays what it was.
    """

    name = "file"
    sampled_by = "entries"
    is_shared = True

    def __init__(self, layout: MatrixLayout) -> None:
        self.n = layout.n
        self.dtype, self.bytes_per_entry = layout.dtype, layout.dtype.itemsize
        self.shared_axis = 0 if layout.is_row_major else 1
        self._layout = layout
        with file_errors_typed(layout.path, "opening it"):
            self._file = input_file(layout.path)
        try:
            with file_errors_typed(layout.path, "looking at it"):
                self._state = layout.state or FileState.of(self._file.fileno())
                self.check_unchanged()
                _check_length(self._file, layout)
        except BaseException:
            self._file.close()
            raise

    @property
    def files(self) -> tuple[str, ...]:
        """The one file in which the matrix lies."""
        return (str(self._layout.path),)

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Read row pieces straight into ``out`` when they are what it holds, else by strips of converted pieces."""
        if not self._layout.is_row_major:
            self._read_strips(cols, rows, out.T)
        elif self.dtype != out.dtype:
            self._read_strips(rows, cols, out)
        else:
            self._read_lines(rows, cols, out)

    def _read_strips(self, lines: range, entries: range, out: NDArray[Any]) -> None:
        """Fill ``out``, of any order, with pieces of the file's ``lines`` (rows if row-major, else columns)."""
        dtype, width = self._layout.dtype, len(entries)
        # Columns that begin a power of two apart would fall on the same few lines of the cache when they are turned into rows.
        pitch = width if self._layout.is_row_major else width + _PADDING
        depth = min(max(1, STRIP_BYTES // (pitch * dtype.itemsize)), len(lines))
        strip, asked = np.empty((depth, pitch), dtype), _Asked(self._file, self._starts(lines, entries), width * dtype.itemsize)
        for first in range(0, len(lines), depth):
            chosen = lines[first : first + depth]
            self._read_lines(chosen, entries, strip[: len(chosen)], asked)
            put_numbers(strip[: len(chosen), :width], out[first : first + depth])

    def _starts(self, lines: range, entries: range) -> range:
        """Where the pieces of the file's ``lines`` begin."""
        layout = self._layout
        stride = layout.row_stride if layout.is_row_major else layout.col_stride
        start = layout.offset + lines.start * stride + entries.start * layout.dtype.itemsize
        return range(start, start + len(lines) * stride, stride)

    def _read_lines(self, lines: range, entries: range, out: NDArray[Any], asked: _Asked | None = None) -> None:
        """Fill ``out``, contiguous and of the file's dtype, with one piece of each of the file's ``lines``, each in its row.

        Where they are some of those that are read one after the other, ``asked`` knows all of these.
        """
        starts = self._starts(lines, entries)
        piece, pitch = len(entries) * self._layout.dtype.itemsize, out.strides[0]
        buffer = _bytes_of(out)
        if starts.step == piece == pitch:
            self._pread(buffer, starts.start)
        else:
            asked = asked or _Asked(self._file, starts, piece)
            for line, start in enumerate(starts):
                if line % _ASKED_AT_ONCE == 0:
                    asked.ahead_of(start)
                self._pread(buffer[line * pitch : line * pitch + piece], start)
        if self.is_bounded:
            drop_pages(self._file.fileno(), min(starts[0], starts[-1]), abs(starts[-1] - starts[0]) + piece)

    def _pread(self, buffer: memoryview, position: int) -> None:
        """Fill ``buffer`` with the file's bytes from ``position`` on."""
        done, size = 0, len(buffer)
        while done < size:
            try:
                got = os.preadv(self._file.fileno(), [buffer[done : done + _LARGEST_READ]], position + done)
            except (OSError, ValueError) as error:  # ValueError: the file is closed
                raise TierError(f"{self._layout.path}: {size} bytes at byte {position} could not be read: {error}") from error
            if not got:
                raise TierError(f"{self._layout.path} ends before byte {position + size}: it became shorter while it was read")
            done += got

    def transposed(self) -> NpySource:
        """The same open file by exchanged strides."""
        other, layout = copy(self), self._layout
        other._layout = replace(layout, row_stride=layout.col_stride, col_stride=layout.row_stride)
        other.shared_axis = 0 if other._layout.is_row_major else 1
        other.is_transposed = not self.is_transposed
        return other

    def __copy__(self) -> NpySource:
        """Another one over the same open file, which a pickle would open again."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the name of the file and where the entries lie in it: each process opens it for itself."""
        layout = replace(self._layout, path=self._layout.path.absolute(), state=None)
        return _opened_again, (layout, self.is_transposed)

    def entries(self, rows: NDArray[np.intp], cols: NDArray[np.intp]) -> NDArray[Any]:
        """A few entries, each by a read of its own."""
        found = np.empty(len(rows), self._layout.dtype)
        buffer, width = _bytes_of(found), found.itemsize
        for at, place in enumerate(zip(rows.tolist(), cols.tolist(), strict=True)):
            self._pread(buffer[at * width : (at + 1) * width], self._layout.position(*place))
        return widened(found)

    def check_unchanged(self) -> None:
        """Compare size and time of writing with those that the file had when its layout was found."""
        with file_errors_typed(self._layout.path, "looking whether it has changed"):
            state = FileState.of(self._file.fileno())
        if change := self._state.changes_to(state):
            raise TierError(
                f"{self._layout.path}: {change} while it was read, so that what was computed belongs to no matrix: let nothing "
                "write to the file during the call, or give a copy of it"
            )

    def close(self) -> None:
        self._file.close()


@final
class _Asked:
    """Pieces of a file that the system is asked for while those before them are read, so that the disk has always some to read.

    One after the other they take four to eight times as long.
    """

    def __init__(self, file: BinaryIO, starts: range, piece: int) -> None:
        self._file, self._piece = file, piece
        self._left = starts if hasattr(os, "posix_fadvise") else starts[:0]

    def ahead_of(self, start: int) -> None:
        """Ask for some more pieces where too few are on their way behind the one that is read next."""
        while self._left and (self._left.start - start) // self._left.step < _ASKED_AHEAD:
            now, self._left = self._left[:_ASKED_AT_ONCE], self._left[_ASKED_AT_ONCE:]
            with suppress(OSError, ValueError):  # a closed file, say: reading says so
                for begin in now:
                    os.posix_fadvise(self._file.fileno(), begin, self._piece, os.POSIX_FADV_WILLNEED)


def _bytes_of(a: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, of whatever dtype."""
    return a.view(np.uint8).data.cast("B")


def _opened_again(layout: MatrixLayout, is_transposed: bool) -> NpySource:
    """The source of a pickle, over the file as it is here and now."""
    source = NpySource(layout)
    source.is_transposed = is_transposed
    return source


def npy_header(head: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns lie together, and type of what stands in a ``.npy`` file; a damaged header may raise anything."""
    shape, is_fortran, dtype = _HEADER_READERS[np.lib.format.read_magic(head)](head)
    return shape, is_fortran, dtype


def npy_layout(path: str | os.PathLike[str]) -> MatrixLayout:
    """Find where the entries lie in a ``.npy`` file."""
    path = Path(path)
    with file_errors_typed(path, "opening it"), input_file(path) as file:
        head = BytesIO(file.read(_MOST_HEADER))  # what the header says of its own length is not believed
        try:
            shape, is_fortran, dtype = npy_header(head)
        except Exception as error:  # the parser of a damaged header may raise anything
            raise TierError(f"{path} is not a complete .npy file ({error!s:.300}): write it anew with np.save") from error
        offset, state = head.tell(), FileState.of(file.fileno())
    n = check_shape(shape, str(path))
    check_dtype(dtype, str(path))
    if dtype.hasobject:
        raise TypeError(f"{path} holds Python objects, which are not read from files: write it anew as A.astype(float)")
    near, far = dtype.itemsize, n * dtype.itemsize
    return MatrixLayout(path, n, dtype, offset, *((near, far) if is_fortran else (far, near)), state=state)


def memmap_layout(a: NDArray[Any]) -> MatrixLayout | None:
    """Find where the entries of a memory map, or of a view of one, lie in its file.

    Whether the file was replaced is told from 64 entries spread over the matrix, read both ways.
    """
    root = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or not isinstance(root.base, mmap.mmap) or not root.filename or root.mode == "c":
        return None
    if a.itemsize not in a.strides:
        return None
    offset = root.offset + a.ctypes.data - root.ctypes.data
    layout = MatrixLayout(Path(root.filename), a.shape[0], a.dtype, offset, *a.strides)
    state = _state_of_its_file(a, layout)
    return None if state is None else replace(layout, state=state)


def _state_of_its_file(a: NDArray[Any], layout: MatrixLayout) -> FileState | None:
    """State of the file if entries spread over ``a`` have the bytes that the file has at their positions."""
    sample = sorted({(layout.n - 1) * step // 7 for step in range(8)})
    try:
        file = input_file(layout.path)
    except OSError:
        return None
    with file_errors_typed(layout.path, "comparing it with its map"), file:
        state = FileState.of(file.fileno())
        _check_length(file, layout)
        positions = [(row, col) for row in sample for col in sample]
        mapped = a[np.ix_(sample, sample)].tobytes()
        read = b"".join([os.pread(file.fileno(), a.itemsize, layout.position(*entry)) for entry in positions])
    return state if read == mapped else None


def _check_length(file: BinaryIO, layout: MatrixLayout) -> None:
    """Refuse a file that ends before the last entry."""
    size = os.fstat(file.fileno()).st_size
    if size < layout.end:
        raise TierError(
            f"{layout.path} has {size} bytes, but its matrix of order {layout.n} ends at byte {layout.end}: it was cut short, "
            "write it anew"
        )
