"""Verification of a factor file against what was written: every tile, the header and its copy, the index, the zeros between."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from ooc_chol.config import format_bytes, whole_pages
from ooc_chol.dense.stores.checked_tiles import CheckedTiles, OpenFile
from ooc_chol.dense.stores.header import PREFIX, SIGNATURE, FileHeader
from ooc_chol.dense.stores.header_reading import check_copy, read_any_header
from ooc_chol.errors import DamagedFileError, TierError
from ooc_chol.files.inputs import check_name
from ooc_chol.files.outputs import AnyPath
from ooc_chol.files.positional_io import read_up_to
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.team import ThreadTeam, cores

#: Bytes of zeros that are looked at together.
_ZEROS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Damage:
    """Some bytes of a file that are not what was written."""

    what: str  #: What they are part of: ``"tile (3, 1)"``, ``"header"``, ``"index"``, ...
    first: int | None  #: First byte of the file that may be concerned; None where that is the whole file
    stop: int | None  #: The byte behind the last of these
    tile: tuple[int, int] | None = None  #: The tile whose bytes they are
    text: str = ""  #: The whole message, for damage that keeps the file from being loaded

    def __str__(self) -> str:
        where = "" if self.first is None or self.stop is None else f": bytes {self.first} to {self.stop - 1}"
        return f"{self.what}{where}"


@dataclass(frozen=True)
class Verdict:
    """Result of verifying a factor file.

    ``is_whole`` is true where nothing was found that is not as it was written. A file of a version without checksums is whole
    where its header and its size are right, which says nothing of its tiles; an unfinished one where all that was written is.
    """

    path: str  #: The file
    version: int | None  #: Version of the file; None where its header cannot be read
    n: int | None  #: Order of the matrix
    tile_size: int | None  #: Order of a tile
    is_complete: bool  #: Whether it is a finished factor
    has_checksums: bool  #: Whether its version has checksums
    tiles: int  #: Tiles that were read and compared with their checksums
    missing: int  #: Tiles of an unfinished factor that were not written
    nbytes: int  #: Bytes of these tiles
    seconds: float  #: Seconds that it took
    damage: tuple[Damage, ...]  #: What is damaged

    @property
    def is_whole(self) -> bool:
        """True if no damage was found."""
        return not self.damage

    def __str__(self) -> str:
        if self.version is None:
            return f"{self.path}: {self.damage[0].text}"
        if self.damage:
            broken = len({each.tile for each in self.damage if each.tile is not None})
            head = f"{self.path}: damaged" + (f", {broken} of {self.tiles} tiles" if broken else "")
            return "\n".join([head, *(f"  {each.text or each}" for each in self.damage)])
        if not self.has_checksums:
            return (
                f"{self.path}: its header is whole, but version {self.version} has no checksums, so that nothing is known of its "
                "tiles; load and save it to give it some"
            )
        read = f"{self.tiles} tiles, {format_bytes(self.nbytes)}"
        took = f"{self.seconds:.2f} s, {self.nbytes / max(self.seconds, 1e-9) / 1e9:.1f} GB/s"
        if not self.is_complete:
            return f"{self.path}: unfinished; what was written is whole ({read}; {self.missing} tiles are missing; {took})"
        return f"{self.path}: whole ({read}; {took})"


def verify_file(path: AnyPath) -> Verdict:
    """Read all of a factor file, finished or not, and compare it with its checksums.

    All cores share the tiles, a MiB of memory for each. What the system has of the file in memory is dropped first where it can
    be, so that the bytes are those of the disk. Raises ``FileNotFoundError`` and ``TierError``.
    """
    name, begun = os.fspath(path), time.perf_counter()
    check_ordinary(name)
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return _verdict(OpenFile.cached(descriptor, name), begun)
    finally:
        os.close(descriptor)


def check_ordinary(path: AnyPath) -> None:
    """Raise FileNotFoundError or TierError unless ``path`` is a file, and neither a folder nor a device."""
    check_name(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise TierError(f"{os.fspath(path)}: no ordinary file; give the name of a file that save or store= wrote")


def _verdict(file: OpenFile, begun: float) -> Verdict:
    """Verify an open file."""
    try:
        header = read_any_header(file.descriptor, file.path)
    except DamagedFileError as error:
        header_damage = Damage("header", error.first, error.stop, text=_without_path(error))
        return Verdict(file.path, None, None, None, False, False, 0, 0, 0, time.perf_counter() - begun, (header_damage,))
    size = os.fstat(file.descriptor).st_size
    damage = list(_damage_of_size(header, size))
    tiles = missing = nbytes = 0
    if header.has_checksums:
        checked = CheckedTiles(header)
        damage += _damage_outside_tiles(file, header, checked)
        with closing(ThreadTeam(cores())) as team:
            states = checked.verify(file, header.layout, team=team)
        bad = sorted(states.bad | states.missing if header.complete else states.bad)
        damage += [each for index in bad for each in _damage_of_tile(file, header, checked, index)]
        tiles, missing = len(states.good) + len(bad), len(states.missing)
        nbytes = sum(header.layout.nbytes(*index) for index in states.good | states.bad)
    return Verdict(
        *(file.path, header.version, header.grid.n, header.grid.nb, header.complete, header.has_checksums),
        *(tiles, missing, nbytes, time.perf_counter() - begun, tuple(damage)),
    )


def _without_path(error: DamagedFileError) -> str:
    """The message of an error, of which the file is said already."""
    return str(error).removeprefix(f"{error.path}: ")


def _damage_of_size(header: FileHeader, size: int) -> Iterator[Damage]:
    """A file of another size than its tiles make it."""
    if size < header.layout.end:
        yield Damage(f"end of the file, which is truncated to {size} bytes", size, header.layout.end)
    elif size > header.layout.end:
        yield Damage("bytes behind the last tile, which nothing reads", header.layout.end, size)


def _damage_outside_tiles(file: OpenFile, header: FileHeader, checked: CheckedTiles) -> Iterator[Damage]:
    """Damage to the copy of the header, to the index, and to the zeros between all parts."""
    try:
        check_copy(file.descriptor, file.path, header)
    except TierError:
        yield Damage("copy of the header, which is read where the header is damaged", header.header_room, header.checksums_offset)
    try:
        checked.load_index(file, header)
    except DamagedFileError as error:
        yield Damage("index", error.first, error.stop, text=_without_path(error))
    except TierError:  # it ends within the index, of which its size tells
        return
    for first, stop in _spans_of_zeros(file, header, checked):
        if not _is_zero(file, first, stop):
            yield Damage("zeros between the parts of the file, which nothing reads", first, stop)


def _spans_of_zeros(file: OpenFile, header: FileHeader, checked: CheckedTiles) -> Iterator[tuple[int, int]]:
    """First byte, and the one behind the last, of what is filled up with zeros, in the order of the file."""
    tables, layout = checked.tables, header.layout
    for start in (0, header.header_room):
        prefix = read_up_to(file.descriptor, PREFIX.size, start)
        length = PREFIX.unpack(prefix)[1] if len(prefix) == PREFIX.size else 0
        if start == 0 or length < header.header_room:
            yield start + PREFIX.size + length + SIGNATURE.size, start + header.header_room
    yield tables.offset + tables.index.nbytes, tables.pieces_offset
    yield tables.pieces_end, tables.end
    for index in layout.grid.tiles():
        stop = layout.offset(*index) + layout.nbytes(*index)
        yield stop, whole_pages(stop)


def _is_zero(file: OpenFile, first: int, stop: int) -> bool:
    """Tell whether all these bytes are zero; those behind the end of the file are nobody's."""
    for start in range(first, stop, _ZEROS_AT_ONCE):
        if read_up_to(file.descriptor, min(_ZEROS_AT_ONCE, stop - start), start).strip(b"\0"):
            return False
    return True


def _damage_of_tile(file: OpenFile, header: FileHeader, checked: CheckedTiles, index: BlockIndex) -> Iterator[Damage]:
    """The damaged spans of a tile."""
    tile = int(index[0]), int(index[1])
    never = "" if checked.is_written(header.layout, index) else ", which was never written"
    for first, stop in checked.damage(file, header.layout, index):
        yield Damage(f"tile {tile}{never}", first, stop, tile)
