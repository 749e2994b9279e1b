"""``.npz`` files: SciPy's of sparse matrices, read as streams, and arrays that are asked for; without pickles."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import SparseInputError, TierError
from ooc_chol.files.inputs import input_file
from ooc_chol.files.outputs import AnyPath
from ooc_chol.files.positional_io import file_errors_typed
from ooc_chol.memory.sources.file import FileState
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.canonical import Zeros
from ooc_chol.sparse.rows import AbstractRows
from ooc_chol.sparse.sources.compressed import Compressed, CompressedRows
from ooc_chol.sparse.sources.coordinates import column_rows, coordinate_rows
from ooc_chol.sparse.sources.npy import MOST_HEADER, Header, header_of, vector_header
from ooc_chol.sparse.sources.scattered import ScatteredRows, check_declared
from ooc_chol.sparse.sources.vectors import AbstractVector, Take

#: Most bytes that a byte of deflated data becomes.
_MOST_GROWTH = 1032
#: Bytes that are inflated at a time, and that a member with a format or a shape has at most.
_PIECE_BYTES, _MOST_FACT = 1 << 22, 1 << 12
_ADVICE = "write it anew, with scipy.sparse.save_npz"


@final
class Archive:
    """A ``.npz`` file; each reading opens it anew, and refuses it where it has changed meanwhile."""

    def __init__(self, path: Path, source: str, advice: str = _ADVICE) -> None:
        self.path, self.source, self._advice = path, source, advice
        with file_errors_typed(path, "opening it"), input_file(path) as file:
            self._state = FileState.of(file.fileno())
        with self._zip() as archive:
            self.names = frozenset(archive.namelist())

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._state.size

    @contextmanager
    def _zip(self) -> Iterator[zipfile.ZipFile]:
        with ExitStack() as stack:
            with file_errors_typed(self.path, "opening it"):
                file = stack.enter_context(input_file(self.path))
            if change := self._state.changes_to(FileState.of(file.fileno())):
                raise TierError(f"{self.path}: {change} while it was read: let nothing write to it, or give a copy of it")
            try:
                archive = stack.enter_context(zipfile.ZipFile(file))
            except Exception as error:  # the parser of a damaged directory may raise anything
                self.refuse("", error)
            yield archive

    def refuse(self, member: str, error: Exception) -> NoReturn:
        """Say what is damaged."""
        if isinstance(error, SparseInputError | MemoryError):
            raise error
        said = str(error) or type(error).__name__
        problem = f"the archive is damaged{' there' if member else ''} ({said:.200})"
        raise SparseInputError(self.source, member, problem, self._advice) from error

    @contextmanager
    def member(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """A member that is opened, and the bytes that it says to have."""
        with self._zip() as archive, self._opened(archive, name) as found:
            yield found

    @contextmanager
    def _opened(self, archive: zipfile.ZipFile, name: str) -> Iterator[tuple[IO[bytes], int]]:
        try:
            info = archive.getinfo(name)
            self._check(info)
            stream = archive.open(info)
        except Exception as error:  # as above
            self.refuse(name, error)
        with stream:
            yield stream, info.file_size

    def headers(self) -> dict[str, Header]:
        """Shapes and types of all arrays in it, of which nothing else is read."""
        found = {}
        with self._zip() as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with self._opened(archive, name) as (stream, nbytes):
                        found[name] = header_of(self.head(stream, name, MOST_HEADER), self.source, name)
                    self.check_end(found[name], name, nbytes)
        return found

    def array(self, name: str) -> NDArray[Any]:
        """An array, read whole; its checksum is compared."""
        with self.member(name) as (stream, nbytes):
            head = self.head(stream, name, MOST_HEADER)
            header = header_of(head, self.source, name)
            self.check_end(header, name, nbytes)
            check_room(nbytes, f"memory for {name} of {self.source}", "give fewer numbers")
            out = np.empty(header.size, header.dtype)
            buffer, there = out.view(np.uint8).data, head[header.offset :]
            buffer[: len(there)] = there
            if self.read(stream, buffer[len(there) :], name) < len(buffer) - len(there) or self.head(stream, name, 1):
                raise SparseInputError(self.source, name, "its bytes are not as many as it says", self._advice)
        return out.reshape(header.shape, order="F" if header.is_fortran else "C")

    def check_end(self, header: Header, name: str, nbytes: int) -> None:
        """Refuse an array whose numbers are not as many as there are bytes for."""
        if header.end != nbytes:
            problem = f"{header.size} numbers of {header.dtype} end at byte {header.end}, but it has {nbytes} bytes"
            raise SparseInputError(self.source, name, problem, self._advice)

    def _check(self, info: zipfile.ZipInfo) -> None:
        """Refuse a member that says to be larger than its bytes can become."""
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise SparseInputError(self.source, info.filename, "it is compressed in another way than deflated", self._advice)
        growth = _MOST_GROWTH if info.compress_type == zipfile.ZIP_DEFLATED else 1
        held = min(info.compress_size, os.path.getsize(self.path))
        if info.file_size > growth * held:
            problem = f"it says to be {info.file_size} bytes, which its {held} bytes cannot become"
            raise SparseInputError(self.source, info.filename, problem, self._advice)

    def read(self, stream: IO[bytes], buffer: memoryview, name: str) -> int:
        """Fill a buffer as far as the member goes; how many bytes that were."""
        done = 0
        try:
            while done < len(buffer) and (piece := stream.read(min(_PIECE_BYTES, len(buffer) - done))):
                buffer[done : done + len(piece)] = piece
                done += len(piece)
        except Exception as error:  # as above: deflated data, checksum, end of the file
            self.refuse(name, error)
        return done

    def head(self, stream: IO[bytes], name: str, most: int) -> bytes:
        """The first bytes of a member."""
        buffer = bytearray(most)
        return bytes(buffer[: self.read(stream, memoryview(buffer), name)])

    def fact(self, name: str) -> NDArray[Any]:
        """A small array, such as the format or the shape."""
        if name not in self.names:
            raise SparseInputError(self.source, "", f"there is no {name} in it", f"it is no sparse matrix of SciPy's: {_ADVICE}")
        with self.member(name) as (stream, _):
            head = self.head(stream, name, _MOST_FACT)
        header = header_of(head, self.source, name)
        if header.end != len(head):
            raise SparseInputError(self.source, name, f"it has {len(head)} bytes, not {header.end}", _ADVICE)
        return np.frombuffer(head, header.dtype, offset=header.offset).reshape(header.shape)


@final
class MemberVector(AbstractVector):
    """A vector that is a member of an archive."""

    def __init__(self, archive: Archive, name: str) -> None:
        self.name, self._archive = name, archive
        with archive.member(name) as (stream, nbytes):
            self._header = vector_header(archive.head(stream, name, MOST_HEADER), archive.source, name)
            archive.check_end(self._header, name, nbytes)
        self.dtype, self.size = self._header.dtype, self._header.size

    @contextmanager
    def opened(self) -> Iterator[Take]:
        """Its numbers as they are inflated; the checksum is compared at their end."""
        archive, left = self._archive, self.size
        with archive.member(self.name) as (stream, _):
            archive.head(stream, self.name, self._header.offset)

            def take(count: int) -> NDArray[Any]:
                nonlocal left
                piece = np.empty(count, self.dtype)
                done = archive.read(stream, piece.view(np.uint8).data, self.name)
                left -= count
                if done < piece.nbytes or (left == 0 and archive.head(stream, self.name, 1)):
                    raise SparseInputError(archive.source, self.name, "its bytes are not as many as it says", _ADVICE)
                return piece

            yield take


def input_npz(path: AnyPath, choose: Callable[[Mapping[str, Header]], Iterable[str]]) -> dict[str, NDArray[Any]]:
    """Read those arrays of an ``.npz`` file that are chosen by their shapes and types.

    Parameters
    ----------
    path : str or PathLike
        Name of the file.
    choose : callable
        ``choose(headers)``: names of the arrays to read, of a mapping from all names to what has a ``shape``, a ``dtype`` and,
        as ``nbytes``, the bytes that the array takes.

    Returns
    -------
    dict of str to array
        The arrays, compared with their checksums.

    Raises
    ------
    SparseInputError
        It is no such file, is damaged, or an array of it says to be larger than its bytes can become.
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
    ...     np.savez(Path(folder, "a.npz"), x=np.eye(2), y=np.zeros(3))
    ...     oc.toolbox.input_npz(
    ...         Path(folder, "a.npz"),
    ...         lambda found: [
    ...             name for name in found if found[name].shape == (2, 2)
    ...         ],
    ...     )
    {'x': array([[1., 0.],
           [0., 1.]])}
    """
    archive = Archive(Path(path), os.fspath(path), "write it anew, with numpy.savez")
    headers = {name.removesuffix(".npy"): header for name, header in archive.headers().items()}
    return {name: archive.array(f"{name}.npy") for name in choose(headers)}


def npz_rows(path: Path, *, zeros: Zeros = "keep", name: str | None = None) -> AbstractRows:
    """The matrix in a file of ``scipy.sparse.save_npz``: CSR, CSC or COO.

    Raises ``SparseInputError`` and ``TierError``.
    """
    archive = Archive(path, name or str(path))
    kind = archive.fact("format.npy")
    text = kind.item() if kind.size == 1 else b""
    kind_name = text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)
    shape = _shape(archive)
    if kind_name in ("csr", "csc"):
        vectors = (MemberVector(archive, _present(archive, each)) for each in ("indptr.npy", "indices.npy", "data.npy"))
        major = shape[0] if kind_name == "csr" else shape[1]
        compressed = Compressed(archive.source, major, *vectors)
        check_declared(archive.source, shape[0], compressed.indices.size, archive.nbytes)
        return (
            CompressedRows(compressed, shape, zeros=zeros) if kind_name == "csr" else column_rows(compressed, shape, zeros=zeros)
        )
    if kind_name == "coo":
        return _coordinates(archive, shape, zeros)
    raise SparseInputError(
        archive.source, "format.npy", f"it is of format {kind_name!r:.40}", "save it as CSR: save_npz(path, A.tocsr())"
    )


def _present(archive: Archive, name: str) -> str:
    """The name of a member, which must be there."""
    if name not in archive.names:
        raise SparseInputError(archive.source, "", f"there is no {name} in it", _ADVICE)
    return name


def _shape(archive: Archive) -> tuple[int, int]:
    shape = archive.fact("shape.npy")
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
        raise SparseInputError(archive.source, "shape.npy", f"it says {shape!s:.80}", f"a matrix has two sizes: {_ADVICE}")
    return int(shape[0]), int(shape[1])


def _coordinates(archive: Archive, shape: tuple[int, int], zeros: Zeros) -> ScatteredRows:
    """A matrix whose entries each have row and column."""
    rows, columns, data = (MemberVector(archive, _present(archive, each)) for each in ("row.npy", "col.npy", "data.npy"))
    check_declared(archive.source, shape[0], rows.size, archive.nbytes)
    return coordinate_rows(archive.source, shape, (rows, columns, data), zeros=zeros)
