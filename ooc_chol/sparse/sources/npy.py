"""Arrays in ``.npy`` files, and folders of vectors that hold a matrix in CSR form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import SparseInputError, TierError
from ooc_chol.files.inputs import input_bytes, input_file, parse_json
from ooc_chol.files.outputs import AnyPath
from ooc_chol.files.positional_io import file_errors_typed, read_fully
from ooc_chol.memory.sources.file import FileState, npy_header
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.canonical import Zeros
from ooc_chol.sparse.sources.compressed import Compressed, CompressedRows
from ooc_chol.sparse.sources.vectors import AbstractVector, Take

#: Bytes at the start of a file that hold its header, and of a file that says a shape.
MOST_HEADER, _MOST_SHAPE = 1 << 16, 1 << 12


class Header(NamedTuple):
    """Header of a ``.npy`` file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int  #: Bytes before the first number
    is_fortran: bool = False  #: Whether numbers of a column are adjacent

    @property
    def size(self) -> int:
        """Numbers."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self.size * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Bytes up to the last number."""
        return self.offset + self.nbytes


def header_of(head: bytes, source: str, member: str) -> Header:
    """The header of a ``.npy`` file, from its first bytes."""
    place = BytesIO(head)
    try:
        shape, is_fortran, dtype = npy_header(place)
    except Exception as error:  # the parser of a damaged header may raise anything
        raise SparseInputError(
            source, f"byte 0 of {member}", f"it is no array ({error!s:.200})", "write it anew, with numpy.save"
        ) from error
    if dtype.hasobject or not dtype.itemsize or any(length < 0 for length in shape):
        problem = f"an array of {dtype!s:.80} and shape {shape!s:.80}"
        raise SparseInputError(source, f"byte 0 of {member}", problem, "write it anew as plain numbers, with numpy.save")
    return Header(shape, dtype, place.tell(), is_fortran)


def input_npy(path: AnyPath, *, mapped: bool = False) -> NDArray[Any]:
    """Read an array of plain numbers from a ``.npy`` file, no larger than the file.

    Parameters
    ----------
    path : str or PathLike
        Name of the file.
    mapped : bool
        Map it, and read nothing but its header.

    Returns
    -------
    array
        Array of the shape, type and order that the file has.

    Raises
    ------
    SparseInputError
        It is no such file, holds Python objects, or ends before the last number.
    BudgetError
        The system does not grant the memory.
    TierError
        It is no regular file, or cannot be read.
    FileNotFoundError
        There is no such file.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "a.npy"), np.eye(2))
    ...     oc.toolbox.input_npy(Path(folder, "a.npy")).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    name = os.fspath(path)
    with file_errors_typed(path, "reading it"), input_file(path) as file:
        header = header_of(file.read(MOST_HEADER), name, os.path.basename(name))
        size = os.fstat(file.fileno()).st_size
        order: Literal["C", "F"] = "F" if header.is_fortran else "C"
        if header.end > size:
            problem = f"{header.size} numbers of {header.dtype} end at byte {header.end}, but it has {size} bytes"
            raise SparseInputError(name, "", problem, "it was cut short: copy it again")
        if mapped and header.size:
            return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)
        check_room(header.end, f"memory for {name}", "give fewer numbers")
        out = np.empty(header.size, header.dtype)
        read_fully(file.fileno(), out.view(np.uint8).data, header.offset, name)
    return out.reshape(header.shape, order=order)


def vector_header(head: bytes, source: str, member: str) -> Header:
    """The header of a ``.npy`` file that holds a vector."""
    header = header_of(head, source, member)
    if len(header.shape) != 1:
        raise SparseInputError(
            source, f"byte 0 of {member}", f"an array of shape {header.shape!s:.80}", "a vector is needed: write it anew"
        )
    return header


@final
class NpyVector(AbstractVector):
    """A vector in a ``.npy`` file, read piece by piece, never mapped."""

    def __init__(self, path: Path, source: str) -> None:
        self.name, self._path, self._source = path.name, path, source
        with file_errors_typed(path, "opening it"), input_file(path) as file:
            self._header = vector_header(file.read(MOST_HEADER), source, path.name)
            self._state = FileState.of(file.fileno())
        self.dtype, self.size = self._header.dtype, self._header.size
        if self._header.end > self._state.size:
            problem = (
                f"{self.size} numbers of {self.dtype.name} end at byte {self._header.end}, but it has {self._state.size} bytes"
            )
            raise SparseInputError(source, f"byte {self._state.size} of {path.name}", problem, "it was cut short: write it anew")

    @contextmanager
    def opened(self) -> Iterator[Take]:
        """Its numbers by ``pread``; a file that changes meanwhile is refused at the end."""
        with file_errors_typed(self._path, "opening it"):
            file = input_file(self._path)
        with file:
            self._check_unchanged(file.fileno())
            at = self._header.offset

            def take(count: int) -> NDArray[Any]:
                nonlocal at
                piece = np.empty(count, self.dtype)
                read_fully(file.fileno(), piece.view(np.uint8).data, at, str(self._path))
                at += piece.nbytes
                if at == self._header.end:
                    self._check_unchanged(file.fileno())
                return piece

            yield take

    def _check_unchanged(self, descriptor: int) -> None:
        if change := self._state.changes_to(FileState.of(descriptor)):
            raise TierError(f"{self._path}: {change} while the matrix was read: let nothing write to it, or give a copy of it")


def folder_rows(folder: Path, *, zeros: Zeros = "keep", name: str | None = None) -> CompressedRows:
    """The matrix in a folder of ``indptr.npy``, ``indices.npy``, and ``data.npy`` unless all values are 1.

    Raises ``SparseInputError`` and ``TierError``.
    """
    source = name or str(folder)
    indptr, indices = (NpyVector(_member(folder, each, source), source) for each in ("indptr.npy", "indices.npy"))
    data = NpyVector(folder / "data.npy", source) if (folder / "data.npy").exists() else None
    shape = _shape(folder, source) or (max(0, indptr.size - 1),) * 2
    compressed = Compressed(source, shape[0], indptr, indices, data)
    _check_end(compressed)
    return CompressedRows(compressed, shape, zeros=zeros)


def _member(folder: Path, name: str, source: str) -> Path:
    """A file of the folder, which must be there."""
    if not (path := folder / name).exists():
        advice = "a folder holds indptr.npy, indices.npy, and data.npy unless all values are 1"
        raise SparseInputError(source, "", f"there is no {name}", advice)
    return path


def _check_end(compressed: Compressed) -> None:
    """Refuse indices that no row has: the files are not of one matrix."""
    with compressed.indptr.opened() as take:
        for at in range(0, compressed.count + 1, _LAST_PIECE):
            last = int(take(min(_LAST_PIECE, compressed.count + 1 - at))[-1])
    if last != compressed.indices.size:
        problem = f"the last row ends at entry {last}, but {compressed.indices.name} has {compressed.indices.size} numbers"
        raise SparseInputError(compressed.name, compressed.indptr.name, problem, "are both files of one matrix? write them anew")


#: Numbers of a vector that are read at a time where only the last is looked at.
_LAST_PIECE = 1 << 20


def _shape(folder: Path, source: str) -> tuple[int, int] | None:
    """The shape that ``shape.json`` says; None without that file."""
    path = folder / "shape.json"
    if not os.path.lexists(path):
        return None
    try:
        found = parse_json(input_bytes(path, _MOST_SHAPE).decode())
    except (ValueError, UnicodeDecodeError) as error:
        raise SparseInputError(
            source, "shape.json", f"it is no list of two numbers ({error!s:.200})", "write it as [rows, columns]"
        ) from error
    whole = isinstance(found, list) and len(found) == 2 and all(type(each) is int and each >= 0 for each in found)
    if not whole:
        raise SparseInputError(source, "shape.json", f"it says {found!s:.80}", "write it as [rows, columns]")
    return found[0], found[1]
