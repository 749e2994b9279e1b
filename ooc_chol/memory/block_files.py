"""Files of blocks of bytes: written once, one behind the other, with checksums that are checked whenever a block is read.

1. The first page: 8 bytes that tell the kind of file, the version, where the header lies, how long it is, and its XXH3-64; zeros;
   and in the last 8 bytes the XXH3-64 of the rest of the page. It is written last: until then only the first 8 bytes are there.
2. Blocks, each at a multiple of 4096 bytes, zeros behind it up to the next.
3. The header, a JSON object, to the end of the file: what it is of (``kind``), the byte order of blocks, the bytes of each block
   and the checksums of its pieces of 1 MiB, the last one with the zeros behind it, and the facts of whoever writes the file.

Numbers of the first page are little-endian. So every byte of the file is checked by whoever reads all blocks.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Self, final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES, format_bytes, whole_pages
from ooc_chol.errors import ClosedError, DamagedFileError, TierError
from ooc_chol.files.checksums import ALGORITHM, PIECE_BYTES, hash_bytes, pieces
from ooc_chol.files.inputs import check_name, input_file, parse_json
from ooc_chol.files.outputs import AnyPath, FileKind, Output, check_outputs, permissions, refuse_strangers
from ooc_chol.files.positional_io import file_errors_typed, package_version, read_fully, write_fully
from ooc_chol.files.unfinished import Unfinished, create_locked, forget_created, sync_directory
from ooc_chol.interfaces import BlockIndex
from ooc_chol.memory.blocks import AbstractBlockSink, AbstractBlockTier
from ooc_chol.memory.pages import allocate_aligned
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.process.team import ThreadTeam, cores

#: Version that is written; a reader refuses any other.
VERSION = 1


class BlockFiles(NamedTuple):
    """Files of blocks of one kind."""

    files: FileKind  #: Those that a new one may replace, with 8 first bytes
    unfinished: Unfinished  #: Such files while they are written
    option: str  #: The argument by which the user names one
    ask: str  #: How the user asks for another file to be replaced; empty where there is no way
    again: str  #: What makes a file anew, in words, such as ``"pack the matrix again"``

    @property
    def magic(self) -> bytes:
        """First bytes of each."""
        return self.files.mark


def block_files(
    mark: bytes, name: str, ending: str, *, becomes: str, opener: str, option: str, ask: str, again: str
) -> BlockFiles:
    """A kind of files of blocks that begin with ``mark``."""
    return BlockFiles(
        FileKind(f"{name} of ooc_chol", mark, endings=(ending,)), Unfinished(mark, becomes, opener), option, ask, again
    )


#: Packed matrices.
PACKED = block_files(
    b"OOCROWS\n",
    "packed sparse matrix",
    ".oocsr",
    becomes="packed matrix",
    opener="block_csr",
    option="store",
    ask="replace=True",
    again="pack the matrix again",
)
MAGIC, PACKED_FILES = PACKED.magic, PACKED.files
#: Magic bytes, version, four bytes of nothing, place of the header, its bytes, and their checksum.
_FIRST = struct.Struct("<8sIIQQQ")
_SIGNATURE = struct.Struct("<Q")
#: Most bytes of a header: that of a file of 15 TB.
_MOST_HEADER_BYTES = 256 << 20
#: Digits of a checksum in the header.
_DIGITS = 16
#: Threads that read one block, and fewest bytes for which a second one is asked.
_READERS, _LEAST_SHARED = 16, 8 << 20


@final
class BlockFileWriter(AbstractBlockSink):
    """A file of blocks while it is written, under ``path + ".partial"`` and a lock; :meth:`complete` gives it its name.

    ``with`` creates it, and at the end of the block removes it unless it is complete. Raises ``OutputError``,
    ``MissingFolderError`` and ``TierError``.
    """

    def __init__(
        self,
        path: AnyPath,
        inputs: Sequence[tuple[str, AnyPath | None]] = (),
        *,
        replace: bool = False,
        kind: BlockFiles = PACKED,
    ) -> None:
        self._output, self._kind, self._may_replace = Output(kind.option, path, kind.files), kind, replace
        check_outputs([self._output], inputs, replace=replace, ask=kind.ask)
        self._name = os.fspath(path)
        self.path = os.path.realpath(path)
        self._partial = f"{self.path}.partial"
        self._blocks: list[tuple[int, str]] = []
        self._end = PAGE_BYTES
        self._buffer: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        kind = self._kind
        try:
            with HeldInterrupts(), file_errors_typed(self._partial, "creating it"):
                self._descriptor = create_locked(self._partial, permissions(self.path), kind.unfinished)
                write_fully(self._descriptor, kind.magic.ljust(PAGE_BYTES, b"\0"), 0, self._partial)
                return self
        except BaseException:
            self.discard()
            raise

    def __exit__(self, *_: object) -> None:
        self.discard()

    def room(self, nbytes: int) -> NDArray[np.uint8]:
        """A buffer, the same for all blocks."""
        if self._buffer.size < nbytes:
            self._buffer = allocate_aligned(whole_pages(nbytes))
        return self._buffer[:nbytes]

    def put(self, data: NDArray[np.uint8]) -> None:
        """Write the block behind the last one, hashed piece by piece, and zeros up to the next page."""
        descriptor, seed = self._open(), len(self._blocks)
        whole = self._buffer[: whole_pages(data.size)]
        whole[data.size :] = 0
        hashes = []
        for start, stop in pieces(data.size):
            piece = whole[start : stop if stop < data.size else whole.size]
            hashes.append(f"{hash_bytes(piece, seed):0{_DIGITS}x}")
            write_fully(descriptor, piece.data, self._end + start, self._partial)
        self._blocks.append((data.size, "".join(hashes)))
        self._end += whole.size

    def complete(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Write the header with ``facts``, a JSON object, let all of it reach the disk, and give the file its name."""
        descriptor = self._open()
        header = {
            "kind": kind,
            "byte_order": sys.byteorder,
            "created_by": package_version(),
            "checksum": ALGORITHM,
            "piece_bytes": PIECE_BYTES,
            "facts": facts,
            "blocks": self._blocks,
        }
        text = json.dumps(header, allow_nan=False).encode()
        with file_errors_typed(self._partial, "completing it"):
            write_fully(descriptor, text, self._end, self._partial)
            os.fsync(descriptor)
            write_fully(descriptor, first_page(self._end, text, self._kind.magic), 0, self._partial)
            os.fsync(descriptor)
            refuse_strangers(
                self._output, self._name, replace=self._may_replace, ask=self._kind.ask
            )  # one may have come meanwhile
            with HeldInterrupts():
                os.replace(self._partial, self.path)
                self._descriptor = None
                os.close(descriptor)
            sync_directory(self.path, self._kind.unfinished)

    def discard(self) -> None:
        """Remove the file unless it is complete; a second call does nothing."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            forget_created(descriptor, self._partial)

    def _open(self) -> int:
        if self._descriptor is None:
            raise ClosedError(f"{self.path} is not being written any more")
        return self._descriptor


def first_page(header_offset: int, header: bytes, magic: bytes = MAGIC) -> bytes:
    """The first page of a file whose header lies there."""
    start = _FIRST.pack(magic, VERSION, 0, header_offset, len(header), hash_bytes(header, 0))
    page = start.ljust(PAGE_BYTES - _SIGNATURE.size, b"\0")
    return page + _SIGNATURE.pack(hash_bytes(page, 0))


@final
class BlockFile(AbstractBlockTier):
    """A complete file of blocks, opened for reading by ``pread``, never mapped.

    Every piece is compared with its checksum whenever it is read, while it is in the core's cache. Blocks of 8 MiB and more are
    read by up to sixteen threads. Raises ``FileNotFoundError``, ``DamagedFileError`` and ``TierError``.
    """

    name = "file"

    def __init__(self, path: AnyPath, kind: str, files: BlockFiles = PACKED) -> None:
        check_name(path)
        self.path, self._kind = os.path.realpath(path), files
        #: What looks at a block that this opening reads for the first time, if it is to: it raises what is wrong with its bytes.
        self.check_block: Callable[[int, NDArray[np.uint8]], None] | None = None
        self._looked_at: set[int] = set()
        self._team = ThreadTeam(min(_READERS, cores()))
        with file_errors_typed(os.fspath(path), "opening it"):
            self._file = _opened(path, self.path, files)
            try:
                self._read_header(kind)
            except BaseException:
                self._file.close()
                raise

    def _read_header(self, kind: str) -> None:
        offset, header = read_header(self._file.fileno(), self.path, self._kind)
        _check_words(header, kind, self.path, self._kind.again)
        try:
            self.sizes, self._hashes = _blocks_of(header)
            self.facts: dict[str, Any] = _typed(header, "facts", dict)
        except (KeyError, TypeError, ValueError) as error:
            what = f"its header is not that of a {self._kind.unfinished.what} ({error})"
            raise DamagedFileError(f"{self.path}: {what}; {self.advice}", self.path) from error
        self._offsets = [PAGE_BYTES]
        for size in self.sizes:
            self._offsets.append(self._offsets[-1] + whole_pages(size))
        if self._offsets[-1] != offset:
            text = f"its blocks end at byte {self._offsets[-1]}, but its header begins at {offset}"
            raise DamagedFileError(f"{self.path}: {text}; {self.advice}", self.path)

    @property
    def advice(self) -> str:
        """Advice about damage, in words."""
        return _advice(self._kind)

    def reads_file(self, index: BlockIndex) -> bool:
        """Always: no block is elsewhere."""
        return True

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        """Fill the first bytes of ``out`` with a block, each piece compared with its checksum."""
        if self._file.closed:
            raise ClosedError(f"{self.path} was closed: open it again, or keep it open for as long as it is used")
        number = index[0]
        data = out[: self.sizes[number]]
        if hasattr(os, "posix_fadvise"):  # all of it at once: a disk is not asked for a piece only when that is waited for
            os.posix_fadvise(self._file.fileno(), self._offsets[number], data.size, os.POSIX_FADV_WILLNEED)
        jobs = [partial(self._read_piece, number, span, data) for span in pieces(data.size)]
        if data.size < _LEAST_SHARED:
            for job in jobs:
                job()
        else:
            self._team.run(jobs)
        if self.check_block is not None and number not in self._looked_at:
            self.check_block(number, data)
            self._looked_at.add(number)

    def _read_piece(self, number: int, span: tuple[int, int], data: NDArray[np.uint8]) -> None:
        """Read some bytes of a block, with the zeros behind its last ones, and compare."""
        start, stop = span
        offset, descriptor = self._offsets[number], self._file.fileno()
        piece = data[start:stop]
        read_fully(descriptor, piece.data, offset + start, self.path)
        hasher = xxhash.xxh3_64(piece.data, number)
        if stop == data.size and (rest := whole_pages(stop) - stop):
            zeros = bytearray(rest)
            read_fully(descriptor, memoryview(zeros), offset + stop, self.path)
            hasher.update(zeros)
        place = start // PIECE_BYTES * _DIGITS
        expected, found = self._hashes[number][place : place + _DIGITS], f"{hasher.intdigest() or 1:0{_DIGITS}x}"
        if found != expected:
            first, last = offset + start, offset + stop - 1
            text = f"block {number} is damaged: its bytes {first} to {last} of the file have XXH3-64 {found}, expected {expected}"
            raise DamagedFileError(f"{self.path}: {text}; {self.advice}", self.path, tile=(number, 0), first=first, stop=last + 1)

    @cached_property
    def fingerprint(self) -> str:
        """Checksum of the sizes and checksums of all blocks."""
        return xxhash.xxh3_64_hexdigest(repr((self.sizes, self._hashes)).encode())

    def span(self, number: int) -> tuple[int, int]:
        """First byte of a block in the file, and the byte behind its last."""
        return self._offsets[number], self._offsets[number] + self.sizes[number]

    def close(self) -> None:
        if not sys.is_finalizing():  # else its threads are gone already, and nobody would answer
            self._team.close()
        self._file.close()


def is_packed_file(path: AnyPath) -> bool:
    """Tell whether there is a file of blocks at ``path``, or one that is being written: opening it says what is wrong with it."""
    name = check_name(path)
    if os.path.isdir(name):
        return False
    if os.path.splitext(name)[1] in PACKED_FILES.endings or (os.path.isfile(path) and PACKED_FILES.has(path)):
        return True
    return not os.path.exists(path) and PACKED_FILES.has(f"{os.path.realpath(path)}.partial")


def _advice(kind: BlockFiles) -> str:
    return f"copy the file again, or {kind.again}"


def _opened(path: AnyPath, real: str, kind: BlockFiles) -> Any:
    """The file, open for reading; TierError where it is only being written."""
    try:
        return input_file(path)
    except FileNotFoundError:
        if os.path.isfile(partial_name := f"{real}.partial") and kind.files.has(partial_name):
            text = f"is being written, or its writing was ended: wait for it, or {kind.again}"
            raise TierError(f"{os.fspath(path)} {text} (it is {partial_name} until it is complete)") from None
        raise


def read_header(descriptor: int, path: str, kind: BlockFiles = PACKED) -> tuple[int, dict[str, Any]]:
    """Where the header of an open file of blocks begins, and the JSON object that it is."""
    size, magic, advice = os.fstat(descriptor).st_size, kind.magic, _advice(kind)
    page = bytearray(min(size, PAGE_BYTES))
    read_fully(descriptor, memoryview(page), 0, path)
    if page[: len(magic)] != magic:
        text = f"begins with {bytes(page[: len(magic)])!r} instead of {magic!r}: it is no {kind.files.name}"
        raise DamagedFileError(f"{path} {text}", path)
    if len(page) < PAGE_BYTES:
        raise DamagedFileError(f"{path}: truncated inside its first page, at {size} bytes; {advice}", path)
    if not any(page[len(magic) :]):
        raise TierError(f"{path}: its writing was ended before it was complete; {kind.again}")
    found, expected = hash_bytes(page[: -_SIGNATURE.size], 0), _SIGNATURE.unpack(page[-_SIGNATURE.size :])[0]
    if found != expected:
        text = f"{path}: its first page is damaged (XXH3-64 {found:016x}, expected {expected:016x})"
        raise DamagedFileError(f"{text}; {advice}", path, first=0, stop=PAGE_BYTES)
    _, version, _, offset, length, checksum = _FIRST.unpack_from(page)
    if version != VERSION:
        raise TierError(f"{path}: it is of version {version}, but this version of ooc_chol reads {VERSION} only: {kind.again}")
    if offset + length != size:
        what = "truncated" if offset + length > size else "too long"
        raise DamagedFileError(f"{path}: {what}, {size} bytes instead of {offset + length}; {advice}", path)
    if length > _MOST_HEADER_BYTES:
        most = format_bytes(_MOST_HEADER_BYTES)
        raise DamagedFileError(f"{path}: its header claims {length} bytes, but has at most {most}; {advice}", path)
    raw = bytearray(length)
    read_fully(descriptor, memoryview(raw), offset, path)
    if (found := hash_bytes(raw, 0)) != checksum:
        said = f"{path}: its header is damaged (XXH3-64 {found:016x}, expected {checksum:016x}), bytes {offset} to {size - 1}"
        raise DamagedFileError(f"{said}; {advice}", path, first=offset, stop=size)
    return offset, _parsed(bytes(raw), path, advice)


def _parsed(text: bytes, path: str, advice: str) -> dict[str, Any]:
    try:
        found = parse_json(text.decode())
    except ValueError as error:
        raise DamagedFileError(f"{path}: its header is no JSON object ({error}); {advice}", path) from error
    if not isinstance(found, dict):
        raise DamagedFileError(f"{path}: its header is no JSON object, but a {type(found).__name__}; {advice}", path)
    return found


def _check_words(header: dict[str, Any], kind: str, path: str, again: str) -> None:
    """Raise TierError unless this version of ooc_chol on this machine reads such blocks."""
    known = {"kind": kind, "byte_order": sys.byteorder, "checksum": ALGORITHM, "piece_bytes": PIECE_BYTES}
    for name, readable in known.items():
        said = header.get(name)
        if type(said) is not type(readable) or said != readable:
            what = f"its header says {name} = {said!r:.80}, but here only {readable!r} is read"
            advice = f"{again} on a machine like this" if name == "byte_order" else again
            raise TierError(f"{path}: {what}; {advice}")


def _blocks_of(header: dict[str, Any]) -> tuple[list[int], list[str]]:
    """Bytes and checksums of all blocks; ValueError or TypeError where they make no sense."""
    sizes, hashes = [], []
    for number, block in enumerate(_typed(header, "blocks", list)):
        if type(block) is not list or len(block) != 2 or type(block[0]) is not int or type(block[1]) is not str:
            raise ValueError(f"block {number} is {block!r:.80}")
        size, digits = block
        if not 0 < size < 1 << 62 or len(digits) != _DIGITS * -(-size // PIECE_BYTES):
            raise ValueError(f"block {number} has {size} bytes and {len(digits)} digits of checksums")
        sizes.append(size)
        hashes.append(digits)
    return sizes, hashes


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a type of JSON; TypeError when it is of another."""
    if type(fields.get(name)) is not kind:
        raise TypeError(f"{name} is {fields.get(name)!r:.80}, but must be of type {kind.__name__}")
    return fields[name]


def whole_field(value: object, name: str, most: int) -> int:
    """A whole number from 0 to ``most`` in a header; ValueError when it is none."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r:.80}, but must be a whole number from 0 to {most}")
    return value
