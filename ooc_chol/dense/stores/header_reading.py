"""Reading the header of a factor file, which may say anything: what makes no sense is refused before it is believed."""

from __future__ import annotations

import json
import os
import sys
import zlib
from typing import Any

from ooc_chol.config import format_bytes
from ooc_chol.dense.stores.header import (
    COPY_MAGIC,
    FP64_VERSION,
    HEADER_RESERVE,
    KIND,
    LAYOUT,
    MAGIC,
    MIXED_VERSION,
    MOST_TEXT_BYTES,
    PREFIX,
    SIGNATURE,
    TYPED_VERSION,
    VERSION,
    FileHeader,
)
from ooc_chol.dense.stores.layout import TILE_ALIGNMENT
from ooc_chol.errors import DamagedFileError, TierError
from ooc_chol.files.checksums import ALGORITHM, PIECE_BYTES, hash_bytes
from ooc_chol.files.positional_io import read_fully, read_up_to
from ooc_chol.formats import FORMATS, FP64, TYPES, PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid

#: All types of which all tiles may be, by their names in headers.
_TYPES = {fmt.name: fmt for fmt in TYPES.values()}
#: Most rows of a matrix or of a tile: a packed factor of so many is larger than any disk.
_MOST_ROWS = 1 << 40
#: Most tiles that are believed of an unfinished file that does not have its size yet.
_MOST_TILES_UNSEEN = 1 << 20
_AGAIN = "copy it again, or factor the matrix again"


class NothingToGoOnFromError(TierError):
    """An unfinished file is of a version that has no checksums, so that nobody can tell which of its tiles are there."""


def read_header(descriptor: int, path: str) -> FileHeader:
    """Read and check the header of an open factor file, which is complete."""
    size = os.fstat(descriptor).st_size
    header = _header_at(descriptor, path, size)
    if not header.complete:
        raise TierError(f"{path}: the factor is incomplete, its run has not ended or has failed; factor the matrix again")
    if size < header.layout.end:
        raise TierError(f"{path}: truncated, {size} bytes instead of {header.layout.end}; {_AGAIN}")
    return header


def read_any_header(descriptor: int, path: str) -> FileHeader:
    """The header of an open factor file, finished or not, and of whatever size."""
    return _header_at(descriptor, path, os.fstat(descriptor).st_size)


def read_unfinished_header(descriptor: int, path: str) -> FileHeader:
    """The header of a file that a run has not completed, by its copy where a power cut has spoilt it."""
    size = os.fstat(descriptor).st_size
    try:
        header = _header_at(descriptor, path, size)
    except DamagedFileError:
        copy = _place_of_copy(descriptor, size)
        if copy is None:
            raise
        header = _header_at(descriptor, path, size, copy)
    if not header.has_checksums:
        text = f"{path}: a file of version {header.version} has no checksums to go on from; factor the matrix again"
        raise NothingToGoOnFromError(text)
    return header


def check_copy(descriptor: int, path: str, header: FileHeader) -> None:
    """Raise TierError unless the copy of the header is whole and says the same."""
    copy = _header_at(descriptor, path, os.fstat(descriptor).st_size, header.header_room)
    if copy != header:
        raise _damaged(path, "the copy of its header says something else", header.header_room, header.checksums_offset)


def _header_at(descriptor: int, path: str, size: int, offset: int = 0) -> FileHeader:
    """The header at ``offset``, its fields checked, which need not be complete."""
    fields = _read_fields(descriptor, path, size, offset)
    _refuse_unknown(fields, path)
    return _header_of(fields, path, size)


def _place_of_copy(descriptor: int, size: int) -> int | None:
    """Where the copy of a header begins that cannot be read itself."""
    for offset in range(HEADER_RESERVE, min(size, 3 * MOST_TEXT_BYTES), TILE_ALIGNMENT):
        if read_up_to(descriptor, len(COPY_MAGIC), offset) == COPY_MAGIC:
            return offset
    return None


def _read_fields(descriptor: int, path: str, size: int, offset: int = 0) -> dict[str, Any]:
    """The JSON object of the header, its checksums verified."""
    start, magic = read_up_to(descriptor, PREFIX.size, offset), COPY_MAGIC if offset else MAGIC
    if start[: len(magic)] != magic:
        raise DamagedFileError(
            f"{path}: not a factor file, it begins with {start[: len(magic)]!r} instead of {magic!r}; "
            "load reads what save or store= wrote (numpy.load reads .npy files)",
            path,
        )
    if len(start) < PREFIX.size:
        raise DamagedFileError(f"{path}: truncated inside its header at {size} bytes; {_AGAIN}", path)
    _, length, checksum = PREFIX.unpack(start)
    if length > size - PREFIX.size - offset:
        raise DamagedFileError(f"{path}: truncated, its header alone has {length} bytes but the file {size}; {_AGAIN}", path)
    if length > MOST_TEXT_BYTES:
        most = format_bytes(MOST_TEXT_BYTES)
        raise _damaged(path, f"its header claims {length} bytes, but has at most {most}", offset, offset + PREFIX.size)
    # The bytes of a file that is shorter than it should be end early: then there is no signature to compare.
    raw = bytearray(min(PREFIX.size + length + SIGNATURE.size, size - offset))
    read_fully(descriptor, memoryview(raw), offset, path)
    text, signature = memoryview(raw)[PREFIX.size :][:length], raw[PREFIX.size + length :]
    if zlib.crc32(text) != checksum:
        found = f"CRC-32 {zlib.crc32(text):#010x}, expected {checksum:#010x}"
        raise _damaged(path, f"its header is damaged ({found})", offset, offset + len(raw))
    fields = _parsed(bytes(text), path)
    if fields.get("version") == VERSION and signature != SIGNATURE.pack(hash_bytes(raw[: PREFIX.size + length], 0)):
        raise _damaged(path, "its header is damaged (XXH3-64 of its text)", offset, offset + len(raw))
    return fields


def _parsed(text: bytes, path: str) -> dict[str, Any]:
    """The JSON object that a text is."""
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise DamagedFileError(f"{path}: its header is JSON of more levels than Python reads; {_AGAIN}", path) from error
    except ValueError as error:
        raise DamagedFileError(f"{path}: its header is no JSON object ({error}); {_AGAIN}", path) from error
    if not isinstance(fields, dict):
        raise DamagedFileError(f"{path}: its header is no JSON object, but a {type(fields).__name__}; {_AGAIN}", path)
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _refuse_unknown(fields: dict[str, Any], path: str) -> None:
    """Raise TierError unless every field that decides how tiles are read has a value that this version of ooc_chol knows."""
    version = fields.get("version")
    known: dict[str, tuple[Any, ...]] = {
        "version": (FP64_VERSION, MIXED_VERSION, TYPED_VERSION, VERSION),
        "kind": (KIND,),
        "layout": (LAYOUT,),
        "byte_order": (sys.byteorder,),
        "tile_alignment": (TILE_ALIGNMENT,),
    }
    if version == FP64_VERSION:
        known |= {"formats": ([FP64.name],), "format_of_tile": (None,)}
    if version == TYPED_VERSION:
        known |= {"formats": tuple([name] for name in _TYPES if name != FP64.name), "format_of_tile": (None,)}
    if version == VERSION:
        known |= {"checksum": (ALGORITHM,), "piece_bytes": (PIECE_BYTES,)}
        if fields.get("format_of_tile") is None:
            known |= {"format_of_tile": (None,), "formats": tuple([name] for name in _TYPES)}
    for name, readable in known.items():
        if name not in fields or not _is_one_of(fields[name], readable):
            raise _unknown_error(fields, name, " or ".join(map(repr, readable)), path)
    if version != VERSION and "checksums_offset" in fields:
        raise DamagedFileError(f"{path}: its header says version {version}, which has no checksums, but has some; {_AGAIN}", path)
    names = fields.get("formats")
    if _is_mixed(fields) and (not isinstance(names, list) or any(name not in list(FORMATS) for name in names)):
        raise _unknown_error(fields, "formats", f"lists of {', '.join(map(repr, FORMATS))}", path)


def _is_one_of(value: object, readable: tuple[Any, ...]) -> bool:
    """Tell whether a value is one of some, and of its type: neither is true 1, nor 1.0."""
    return any(type(value) is type(each) and value == each for each in readable)


def _is_mixed(fields: dict[str, Any]) -> bool:
    """Tell whether a header is that of a file of several formats."""
    version = fields["version"]
    return version == MIXED_VERSION or (version == VERSION and fields["format_of_tile"] is not None)


def _unknown_error(fields: dict[str, Any], name: str, readable: str, path: str) -> TierError:
    """The TierError for a field whose value only another version can read."""
    said = repr(fields.get(name))
    return TierError(
        f"{path}: its header says {name} = {said if len(said) <= 80 else said[:77] + '...'} but this version of ooc_chol reads "
        f"{readable} only; it was written by version {str(fields.get('created_by'))[:80]!r}: read it with that one"
    )


def _formats_of(fields: dict[str, Any], grid: TileGrid) -> tuple[PrecisionFormat, ...]:
    """Format of every tile as the header of a mixed file says it; ValueError when it does not make sense."""
    names, digits = fields["formats"], fields["format_of_tile"]
    if not isinstance(digits, str) or len(digits) != grid.n_tiles:
        what = f"{len(digits)} characters" if isinstance(digits, str) else f"{digits!r:.80}"
        raise ValueError(f"format_of_tile must be {grid.n_tiles} digits, one for each tile, but is {what}")
    formats = {str(place): FORMATS[name] for place, name in enumerate(names)}
    unknown = sorted(set(digits) - formats.keys())
    if unknown:
        raise ValueError(f"format_of_tile holds {unknown[:10]}, but formats lists {len(names)} names")
    return tuple(formats[digit] for digit in digits)


def _whole(fields: dict[str, Any], name: str, most: int = _MOST_ROWS) -> int:
    """A field that is a whole number from 0 to ``most``; ValueError when it is none."""
    value = fields[name]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {_said(value)}, but must be a whole number from 0 to {most}")
    return value


def _said(value: object) -> str:
    """A value of a header in a message, which it must not fill."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.80}"


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a type of JSON; ValueError when it is of another."""
    if type(fields[name]) is not kind:
        raise ValueError(f"{name} is {_said(fields[name])}, but must be of type {kind.__name__}")
    return fields[name]


def _grid_of(fields: dict[str, Any], size: int) -> TileGrid:
    """The grid, once it is sure that a file of ``size`` bytes may have so many tiles: each takes a page."""
    grid = TileGrid(_whole(fields, "n"), _whole(fields, "nb"))
    if grid.n_tiles * TILE_ALIGNMENT > size and fields["complete"] is True:
        raise _TruncatedError(grid)
    if grid.n_tiles > _MOST_TILES_UNSEEN and grid.n_tiles * TILE_ALIGNMENT > size:
        raise ValueError(f"n = {grid.n} and nb = {grid.nb} make {grid.n_tiles} tiles, more than a file of {size} bytes has")
    return grid


class _TruncatedError(Exception):
    """A file is shorter than its tiles, however small they are."""

    def __init__(self, grid: TileGrid) -> None:
        self.grid = grid


def _header_of(fields: dict[str, Any], path: str, size: int) -> FileHeader:
    """The header from known fields; TierError when one is missing or makes no sense."""
    try:
        return _checked(fields, _grid_of(fields, size))
    except _TruncatedError as error:
        least = error.grid.n_tiles * TILE_ALIGNMENT
        raise DamagedFileError(
            f"{path}: truncated, {size} bytes instead of {least} at least, for {error.grid}; {_AGAIN}", path
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(
            f"{path}: its header is not that of a factor ({error!r}); factor the matrix again", path
        ) from error


def _checked(fields: dict[str, Any], grid: TileGrid) -> FileHeader:
    """The header from known fields; KeyError, TypeError or ValueError when one is missing or makes no sense."""
    is_mixed, version = _is_mixed(fields), fields["version"]
    data_offset = _whole(fields, "data_offset", 1 << 62)
    if data_offset == 0 or data_offset % TILE_ALIGNMENT:
        raise ValueError(f"data_offset {data_offset} is no positive multiple of {TILE_ALIGNMENT}")
    header = FileHeader(
        grid,
        _typed(fields, "arithmetic_key", dict),
        complete=_typed(fields, "complete", bool),
        data_offset=data_offset,
        created_by=_typed(fields, "created_by", str),
        formats=_formats_of(fields, grid) if is_mixed else None,
        widened=_widened(fields) if is_mixed else (),
        fmt=FP64 if is_mixed or version < TYPED_VERSION else _TYPES[fields["formats"][0]],
        version=version,
        **(_fields_of_checks(fields) if version == VERSION else {}),
    )
    header.layout  # noqa: B018 - refuses widened tiles that cannot be
    if version == VERSION:
        _check_places(fields, header)
    return header


def _widened(fields: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """Tiles that were widened, pairs of whole numbers."""
    pairs = _typed(fields, "widened", list)
    for pair in pairs:
        if type(pair) is not list or [type(part) for part in pair] != [int, int]:
            raise ValueError(f"widened holds {_said(pair)}, which is no tile")
    return tuple((i, j) for i, j in pairs)


def _fields_of_checks(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of checksums and checkpoints in a header, as arguments of a FileHeader."""
    room = _whole(fields, "header_room", 3 * MOST_TEXT_BYTES)
    if room < TILE_ALIGNMENT or room % TILE_ALIGNMENT:
        raise ValueError(f"header_room {room} is no positive multiple of {TILE_ALIGNMENT}")
    signed, checkpoint = fields["index_hash"], fields["checkpoint"]
    if signed is not None and (not isinstance(signed, str) or len(signed) != 16):
        raise ValueError(f"index_hash is {_said(signed)}, but must be 16 hexadecimal digits")
    if checkpoint is not None and not isinstance(checkpoint, dict):
        raise ValueError(f"checkpoint is {_said(checkpoint)}, but must be an object")
    return {"header_room": room, "index_hash": None if signed is None else int(signed, 16), "checkpoint": checkpoint}


def _check_places(fields: dict[str, Any], header: FileHeader) -> None:
    """Raise ValueError unless everything lies where a writer puts it."""
    for name, expected in header.geometry().items():
        if fields.get(name) != expected:
            raise ValueError(f"{name} is {_said(fields.get(name))}, but must be {_said(expected)}")
    if header.data_offset != header.tables().end:
        raise ValueError(f"data_offset is {header.data_offset}, but the checksums end at {header.tables().end}")
    if header.complete and header.index_hash is None:
        raise ValueError("the factor is complete, but nothing signs its index of checksums")


def _damaged(path: str, what: str, first: int, stop: int) -> DamagedFileError:
    """The error for damage to some bytes outside of tiles."""
    return DamagedFileError(f"{path}: {what}, bytes {first} to {stop - 1}; {_AGAIN}", path, first=first, stop=stop)
