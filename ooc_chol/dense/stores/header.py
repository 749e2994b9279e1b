"""The file that holds L: where its tiles lie, and what its header says.

Layout: ``MAGIC``, length of the JSON text (little-endian u64), its CRC-32 (u32), the JSON text in UTF-8, zeros up to
``data_offset``, then the tiles of the lower triangle row by row, each row-major and at a multiple of 4096 bytes. Later versions
may add fields to the JSON text: readers ignore fields that they do not know, and refuse a ``version`` that they do not know.

Version 1: all tiles are FP64. Version 2, for tiles of several formats: ``formats`` lists the names in use, ``format_of_tile`` is
a text with one digit for each tile, its place in ``formats``, and ``widened`` lists tiles ``[i, j]`` that were made FP64 later:
they lie behind all others in this order, and their first places are not used. A tile of fp16 or fp8 (E4M3) ends with an int64
``e`` at the next multiple of 8 bytes: its entries are ``2**-e`` times the stored ones.

Version 3: all tiles are of one type other than FP64, the one name in ``formats``: ``fp32``, ``complex64`` or ``complex128`` (real
part first). Otherwise as version 1.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.layout import TILE_ALIGNMENT, TileLayout, mixed_formats
from ooc_chol.errors import TierError
from ooc_chol.formats import FORMATS, FP64, TYPES, PrecisionFormat
from ooc_chol.memory.files import read_fully
from ooc_chol.outputs import FileKind
from ooc_chol.tasks.tiling import TileGrid

#: First bytes of every file of ours.
MAGIC = b"OOCCHOL\n"
#: Files that a new factor may replace: factors, finished or not.
FACTOR_FILES = FileKind(
    "factor of ooc_chol", MAGIC, endings=(".ooc",), hint='L.save("L.npy") writes a factor as a dense array of NumPy'
)
#: Version of a file whose tiles are all FP64.
FP64_VERSION = 1
#: Version of a file of several formats.
MIXED_VERSION = 2
#: Version of a file whose tiles are all of one other type; a reader refuses any other than these three.
TYPED_VERSION = 3
#: What the file holds; other kinds (checkpoints) will have other names.
KIND = "cholesky-factor"
#: Order of the tiles in the file.
LAYOUT = "lower-tiles-by-rows"
#: Least bytes kept for the header, so that later versions add fields without moving tiles.
HEADER_RESERVE = 65536

_PREFIX = struct.Struct("<8sQI")
#: Types of version 3 by their names.
_TYPES = {fmt.name: fmt for fmt in TYPES.values() if fmt != FP64}


def _package_version() -> str:
    """Version of the package that writes, or ``"unknown"`` when it runs from a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # it reads e-mail: 10 ms that a factor in memory need not take

    try:
        return version("ooc_chol")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class FileHeader:
    """What a factor file says about itself."""

    grid: TileGrid  #: Order of the matrix and of its tiles
    arithmetic_key: Mapping[str, Any]  #: Everything that the bits of L depend on, as a JSON object
    complete: bool = False  #: Whether all tiles are in the file
    data_offset: int = 0  #: First byte of the first tile; 0 chooses the least that leaves the header room to grow
    created_by: str = field(default_factory=_package_version)  #: Version of the package that wrote the file
    #: Format of every tile in packed order when the file was made; None when all are of ``fmt``
    formats: tuple[PrecisionFormat, ...] | None = None
    widened: tuple[tuple[int, int], ...] = ()  #: Tiles that became FP64 later, as in :class:`TileLayout`
    fmt: PrecisionFormat = FP64  #: Format of all tiles where ``formats`` is None

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", mixed_formats(self.grid, self.formats))
        if self.data_offset == 0:
            room = whole_pages(2 * (_PREFIX.size + len(self._text())) + self._bytes_to_widen())
            object.__setattr__(self, "data_offset", max(HEADER_RESERVE, room))

    def _bytes_to_widen(self) -> int:
        """Bytes of the header once every tile is widened: each is ``[i, j]``, a comma and a blank."""
        return 0 if self.formats is None else self.grid.n_tiles * (2 * len(str(self.grid.nt)) + 6)

    @cached_property
    def layout(self) -> TileLayout:
        """Where in the file each tile lies."""
        return TileLayout(self.grid, self.data_offset, self.formats, self.widened, self.fmt)

    def _text(self) -> bytes:
        mixed = {} if self.formats is None else _fields_of_formats(self.formats, self.widened)
        fields = {
            "version": FP64_VERSION if self.fmt == FP64 else TYPED_VERSION,
            "kind": KIND,
            "n": self.grid.n,
            "nb": self.grid.nb,
            "complete": self.complete,
            "layout": LAYOUT,
            "byte_order": sys.byteorder,
            "data_offset": self.data_offset,
            "tile_alignment": TILE_ALIGNMENT,
            "formats": [self.fmt.name],
            "format_of_tile": None,
            "arithmetic_key": dict(self.arithmetic_key),
            "created_by": self.created_by,
            **mixed,
        }
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()

    def encode(self) -> bytes:
        """The first ``data_offset`` bytes of the file."""
        text = self._text()
        raw = _PREFIX.pack(MAGIC, len(text), zlib.crc32(text)) + text
        if len(raw) > self.data_offset:
            raise TierError(
                f"a header of {len(raw)} bytes does not fit before data_offset {self.data_offset}; use a larger data_offset"
            )
        return raw.ljust(self.data_offset, b"\0")


def _fields_of_formats(formats: tuple[PrecisionFormat, ...], widened: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    """What the header of version 2 says otherwise than that of version 1."""
    in_use = {fmt.name for fmt in formats}
    names = [name for name in FORMATS if name in in_use]
    digit = {name: str(place) for place, name in enumerate(names)}
    return {
        "version": MIXED_VERSION,
        "formats": names,
        "format_of_tile": "".join(digit[fmt.name] for fmt in formats),
        "widened": [list(index) for index in widened],
    }


def read_header(descriptor: int, path: str) -> FileHeader:
    """Read and check the header of an open factor file."""
    size = os.fstat(descriptor).st_size
    fields = _read_fields(descriptor, path, size)
    _refuse_unknown(fields, path)
    header = _header_of(fields, path)
    if not header.complete:
        raise TierError(f"{path}: the factor is incomplete, its run has not ended or has failed; factor the matrix again")
    if size < header.layout.end:
        raise TierError(
            f"{path}: truncated, {size} bytes instead of {header.layout.end}; copy it again, or factor the matrix again"
        )
    return header


def _read_fields(descriptor: int, path: str, size: int) -> dict[str, Any]:
    """The JSON object of the header, its checksum verified."""
    start = os.pread(descriptor, _PREFIX.size, 0)
    if start[: len(MAGIC)] != MAGIC:
        raise TierError(
            f"{path}: not a factor file, it begins with {start[: len(MAGIC)]!r} instead of {MAGIC!r}; "
            "load reads what save or store= wrote (numpy.load reads .npy files)"
        )
    if len(start) < _PREFIX.size:
        raise TierError(f"{path}: truncated inside its header at {size} bytes; copy it again, or factor the matrix again")
    _, length, checksum = _PREFIX.unpack(start)
    if length > size - _PREFIX.size:
        raise TierError(f"{path}: truncated, its header alone has {length} bytes but the file {size}; copy it again")
    text = bytearray(length)
    read_fully(descriptor, memoryview(text), _PREFIX.size, path)
    if zlib.crc32(text) != checksum:
        raise TierError(
            f"{path}: its header is damaged (CRC-32 {zlib.crc32(text):#010x}, expected {checksum:#010x}); "
            "copy it again, or factor the matrix again"
        )
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise TierError(f"{path}: its header is no JSON object ({error}); factor the matrix again") from error


def _refuse_unknown(fields: dict[str, Any], path: str) -> None:
    """Raise TierError unless every field that decides how tiles are read has a value that this version of ooc_chol knows."""
    known: dict[str, tuple[Any, ...]] = {
        "version": (FP64_VERSION, MIXED_VERSION, TYPED_VERSION),
        "kind": (KIND,),
        "layout": (LAYOUT,),
        "byte_order": (sys.byteorder,),
        "tile_alignment": (TILE_ALIGNMENT,),
    }
    if fields.get("version") == FP64_VERSION:
        known |= {"formats": ([FP64.name],), "format_of_tile": (None,)}
    if fields.get("version") == TYPED_VERSION:
        known |= {"formats": tuple([name] for name in _TYPES), "format_of_tile": (None,)}
    for name, readable in known.items():
        if name not in fields or fields[name] not in readable:
            raise _unknown_error(fields, name, " or ".join(map(repr, readable)), path)
    names = fields.get("formats")
    if fields["version"] == MIXED_VERSION and (not isinstance(names, list) or any(name not in list(FORMATS) for name in names)):
        raise _unknown_error(fields, "formats", f"lists of {', '.join(map(repr, FORMATS))}", path)


def _unknown_error(fields: dict[str, Any], name: str, readable: str, path: str) -> TierError:
    """The TierError for a field whose value only another version can read."""
    return TierError(
        f"{path}: its header says {name} = {fields.get(name)!r} but this version of ooc_chol reads {readable} only; "
        f"it was written by version {fields.get('created_by')!r}: read it with that one"
    )


def _formats_of(fields: dict[str, Any], grid: TileGrid) -> tuple[PrecisionFormat, ...]:
    """Format of every tile as the header of version 2 says it; ValueError when it does not make sense."""
    names, digits = fields["formats"], fields["format_of_tile"]
    if not isinstance(digits, str) or len(digits) != grid.n_tiles:
        what = f"{len(digits)} characters" if isinstance(digits, str) else repr(digits)
        raise ValueError(f"format_of_tile must be {grid.n_tiles} digits, one for each tile, but is {what}")
    formats = {str(place): FORMATS[name] for place, name in enumerate(names)}
    unknown = sorted(set(digits) - formats.keys())
    if unknown:
        raise ValueError(f"format_of_tile holds {unknown}, but formats lists {len(names)} names")
    return tuple(formats[digit] for digit in digits)


def _header_of(fields: dict[str, Any], path: str) -> FileHeader:
    """The header from known fields; TierError when one is missing or makes no sense."""
    try:
        grid, mixed = TileGrid(int(fields["n"]), int(fields["nb"])), fields["version"] == MIXED_VERSION
        header = FileHeader(
            grid,
            dict(fields["arithmetic_key"]),
            complete=bool(fields["complete"]),
            data_offset=int(fields["data_offset"]),
            created_by=str(fields["created_by"]),
            formats=_formats_of(fields, grid) if mixed else None,
            widened=tuple((int(i), int(j)) for i, j in fields["widened"]) if mixed else (),
            fmt=_TYPES[fields["formats"][0]] if fields["version"] == TYPED_VERSION else FP64,
        )
        header.layout  # noqa: B018 - refuses widened tiles that cannot be
    except (KeyError, TypeError, ValueError) as error:
        raise TierError(f"{path}: its header is not that of a factor ({error!r}); factor the matrix again") from error
    if header.data_offset <= 0 or header.data_offset % TILE_ALIGNMENT:
        raise TierError(
            f"{path}: its data_offset {fields['data_offset']} is no positive multiple of {TILE_ALIGNMENT}; factor again"
        )
    return header
