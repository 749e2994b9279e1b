"""The file that holds L: where its tiles lie, and what its header says.

Layout of version 4, which is the one that is written:

1. The header: ``MAGIC``, length of the JSON text (little-endian u64), its CRC-32 (u32), the JSON text in UTF-8, the XXH3-64 of
   all that (u64), and zeros up to ``header_room``.
2. A copy of the header, which begins with ``COPY_MAGIC`` instead and is written first wherever the header changes: at each
   moment one of the two is whole. Zeros up to ``2 * header_room``.
3. From ``checksums_offset`` on the index: a checksum for each tile, as :mod:`ooc_chol.dense.stores.checksums` says, and behind
   it, at ``pieces_offset``, those of pieces of large tiles. A complete file says in ``index_hash`` what signs the index.
4. From ``data_offset`` on the tiles of the lower triangle row by row, each row-major and at a multiple of 4096 bytes.

``formats`` lists the names of formats in use. Where there is one, ``format_of_tile`` is null; otherwise it is a text with one
digit for each tile, its place in ``formats``, and ``widened`` lists tiles ``[i, j]`` that were made FP64 later: they lie behind
all others in this order, and their first places are not used. A tile of fp16 or fp8 (E4M3) ends with an int64 ``e`` at the next
multiple of 8 bytes: its entries are ``2**-e`` times the stored ones. ``checkpoint`` is null or an object of whoever resumes a
run. Later versions may add fields to the JSON text: readers ignore fields that they do not know, and refuse a ``version`` that
they do not know.

Versions 1 to 3 are read: they have neither checksums, nor the copy, nor the XXH3-64 behind the text, and their tiles follow the
header. Tiles of version 1 are FP64, those of version 2 of several formats, those of version 3 of one other type.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.checksums import ChecksumTables
from ooc_chol.dense.stores.layout import TILE_ALIGNMENT, TileLayout, mixed_formats
from ooc_chol.errors import TierError
from ooc_chol.files.checksums import ALGORITHM, PIECE_BYTES, hash_bytes
from ooc_chol.files.outputs import FileKind
from ooc_chol.files.positional_io import package_version
from ooc_chol.files.unfinished import Unfinished
from ooc_chol.formats import FORMATS, FP64, PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid

#: First bytes of every file of ours.
MAGIC = b"OOCCHOL\n"
#: First bytes of the copy of the header.
COPY_MAGIC = b"OOCCOPY\n"
#: Files that a new factor may replace: factors, finished or not.
FACTOR_FILES = FileKind(
    "factor of ooc_chol", MAGIC, endings=(".ooc",), hint='L.save("L.npy") writes a factor as a dense array of NumPy'
)
#: Such files while they are written.
UNFINISHED = Unfinished(MAGIC, "factor", "load")
#: Version of a file whose tiles are all FP64, without checksums.
FP64_VERSION = 1
#: Version of a file of several formats, without checksums.
MIXED_VERSION = 2
#: Version of a file whose tiles are all of one other type, without checksums.
TYPED_VERSION = 3
#: Version that is written: of tiles in whatever formats, with checksums. A reader refuses any other than these four.
VERSION = 4
#: What the file holds; other kinds will have other names.
KIND = "cholesky-factor"
#: Order of the tiles in the file.
LAYOUT = "lower-tiles-by-rows"
#: Least bytes kept for the header, so that later versions add fields without moving tiles.
HEADER_RESERVE = 32768
#: Bytes of the header that are kept for a checkpoint.
CHECKPOINT_ROOM = 16384
#: Most bytes of the JSON text: that of half a million tiles of several formats, all widened, has a tenth of them.
MOST_TEXT_BYTES = 1 << 26

PREFIX = struct.Struct("<8sQI")
#: What signs the header, behind its text.
SIGNATURE = struct.Struct("<Q")


@dataclass(frozen=True)
class FileHeader:
    """Header of a factor file."""

    grid: TileGrid  #: Order of the matrix and of its tiles
    arithmetic_key: Mapping[str, Any]  #: Everything that the bits of L depend on, as a JSON object
    complete: bool = False  #: Whether all tiles are in the file
    data_offset: int = 0  #: First byte of the first tile; 0 is behind the tables of checksums
    created_by: str = field(default_factory=package_version)  #: Version of the package that wrote the file
    #: Format of every tile in packed order when the file was made; None when all are of ``fmt``
    formats: tuple[PrecisionFormat, ...] | None = None
    widened: tuple[tuple[int, int], ...] = ()  #: Tiles that became FP64 later, as in :class:`TileLayout`
    fmt: PrecisionFormat = FP64  #: Format of all tiles where ``formats`` is None
    header_room: int = 0  #: Bytes of the header, and of its copy; 0 chooses the least that leaves it room to grow
    index_hash: int | None = None  #: What signs the index of checksums of a complete file
    checkpoint: Mapping[str, Any] | None = None  #: A JSON object of whoever resumes an unfinished run
    version: int = VERSION  #: Version of the file; only the latest is written

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", mixed_formats(self.grid, self.formats))
        if self.has_checksums and self.header_room == 0:
            text = PREFIX.size + len(self._text()) + SIGNATURE.size
            room = whole_pages(2 * text + self._bytes_to_widen() + CHECKPOINT_ROOM)
            object.__setattr__(self, "header_room", max(HEADER_RESERVE, room))
        if self.data_offset == 0:
            object.__setattr__(self, "data_offset", self.tables().end)

    def _bytes_to_widen(self) -> int:
        """Bytes of the header once every tile is widened: each is ``[i, j]``, a comma and a blank."""
        return 0 if self.formats is None else self.grid.n_tiles * (2 * len(str(self.grid.nt)) + 6)

    @property
    def has_checksums(self) -> bool:
        """True if the file has checksums of its tiles."""
        return self.version >= VERSION

    @property
    def checksums_offset(self) -> int:
        """First byte of the index of checksums: behind the header and its copy."""
        return 2 * self.header_room

    @cached_property
    def layout(self) -> TileLayout:
        """Where in the file each tile lies."""
        return TileLayout(self.grid, self.data_offset, self.formats, self.widened, self.fmt)

    def tables(self) -> ChecksumTables:
        """Where the checksums of the file lie, none of them read yet."""
        return ChecksumTables(TileLayout(self.grid, 0, self.formats, (), self.fmt), self.checksums_offset)

    def geometry(self) -> dict[str, Any]:
        """Everything by which a reader finds the tiles: what the index is signed with."""
        tables = self.tables()
        return {
            "n": self.grid.n,
            "nb": self.grid.nb,
            "layout": LAYOUT,
            "byte_order": sys.byteorder,
            "data_offset": self.data_offset,
            "tile_alignment": TILE_ALIGNMENT,
            "header_room": self.header_room,
            "checksum": ALGORITHM,
            "checksums_offset": self.checksums_offset,
            "pieces_offset": tables.pieces_offset,
            "piece_bytes": PIECE_BYTES,
            "formats": [self.fmt.name],
            "format_of_tile": None,
            **({} if self.formats is None else _fields_of_formats(self.formats, self.widened)),
        }

    def _text(self) -> bytes:
        fields = {
            "version": VERSION,
            "kind": KIND,
            "complete": self.complete,
            **self.geometry(),
            "index_hash": None if self.index_hash is None else f"{self.index_hash:016x}",
            "arithmetic_key": dict(self.arithmetic_key),
            "checkpoint": None if self.checkpoint is None else dict(self.checkpoint),
            "created_by": self.created_by,
        }
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()

    def encode(self, magic: bytes = MAGIC) -> bytes:
        """The header of a file as it lies there, or with :data:`COPY_MAGIC` its copy: ``header_room`` bytes."""
        if not self.has_checksums:
            raise TierError(f"a file of version {self.version} is only read; save the factor under another name")
        text = self._text()
        raw = PREFIX.pack(magic, len(text), zlib.crc32(text)) + text
        raw += SIGNATURE.pack(hash_bytes(raw, 0))
        if len(raw) > self.header_room or len(text) > MOST_TEXT_BYTES:
            most = min(self.header_room, MOST_TEXT_BYTES)
            raise TierError(f"a header of {len(raw)} bytes does not fit into {most}; use larger tiles, or a shorter checkpoint")
        return raw.ljust(self.header_room, b"\0")


def _fields_of_formats(formats: tuple[PrecisionFormat, ...], widened: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    """Fields of the header that only a file of several formats has."""
    in_use = {fmt.name for fmt in formats}
    names = [name for name in FORMATS if name in in_use]
    digit = {name: str(place) for place, name in enumerate(names)}
    return {
        "formats": names,
        "format_of_tile": "".join(digit[fmt.name] for fmt in formats),
        "widened": [list(index) for index in widened],
    }
