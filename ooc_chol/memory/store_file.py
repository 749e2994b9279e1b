"""The file that holds L: where its tiles lie, and what its header says.

Layout: ``MAGIC``, length of the JSON text (little-endian u64), its CRC-32 (u32), the JSON text in UTF-8, zeros up to
``data_offset``, then the tiles of the lower triangle row by row, each row-major and at a multiple of 4096 bytes. Later versions
may add fields to the JSON text: readers ignore fields that they do not know, and refuse a ``version`` that they do not know.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ooc_chol.errors import TierError
from ooc_chol.formats import FP64
from ooc_chol.memory.store_io import read_fully
from ooc_chol.tiling import TileGrid

#: First bytes of every file of ours.
MAGIC = b"OOCCHOL\n"
#: Version of the layout; a reader refuses any other.
VERSION = 1
#: What the file holds; other kinds (checkpoints, narrow factors) will have other names.
KIND = "cholesky-factor"
#: Order of the tiles in the file.
LAYOUT = "lower-tiles-by-rows"
#: Every tile starts at a multiple of this many bytes: a page, and the granularity of direct I/O.
TILE_ALIGNMENT = 4096
#: Least bytes kept for the header, so that later versions add fields without moving tiles.
HEADER_RESERVE = 65536

_PREFIX = struct.Struct("<8sQI")


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to a multiple of 4096."""
    return -(-nbytes // TILE_ALIGNMENT) * TILE_ALIGNMENT


@dataclass(frozen=True)
class TileLayout:
    """Where each tile of the lower triangle starts, in bytes.

    Parameters
    ----------
    grid : TileGrid
        Tiles of L.
    data_offset : int
        Bytes before the first tile, a multiple of 4096.

    Examples
    --------
    >>> layout = TileLayout(TileGrid(n=100, nb=64))
    >>> layout.offset(1, 0), layout.offset(1, 1), layout.end
    (32768, 53248, 65536)
    """

    grid: TileGrid
    data_offset: int = 0

    def nbytes(self, i: int, j: int) -> int:
        """Bytes of tile ``(i, j)``, without the zeros that follow it."""
        return self.grid.entries(i, j) * FP64.itemsize

    def offset(self, i: int, j: int) -> int:
        """First byte of tile ``(i, j)``.

        Notes
        -----
        Closed form: the ``i (i + 1) / 2`` tiles of the rows above are all of order nb, and so are the first ``i`` tile columns.
        """
        rows_above = self.grid.packed(i, 0) * aligned(self.grid.nb**2 * FP64.itemsize)
        return self.data_offset + rows_above + j * aligned(self.grid.size(i) * self.grid.nb * FP64.itemsize)

    @property
    def end(self) -> int:
        """First byte behind the last tile and its zeros: the size of the file."""
        last = self.grid.nt - 1
        return self.offset(last, last) + aligned(self.nbytes(last, last))


def _package_version() -> str:
    """Version of the package that writes, or ``"unknown"`` when it runs from a source tree that is not installed."""
    try:
        return importlib.metadata.version("ooc_chol")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class FileHeader:
    """What a factor file says about itself.

    Parameters
    ----------
    grid : TileGrid
        Order of the matrix and of its tiles.
    arithmetic_key : mapping
        Everything that the bits of L depend on, as a JSON object.
    complete : bool
        Whether all tiles are in the file.
    data_offset : int
        First byte of the first tile; 0 chooses the least that leaves the header room to grow.
    created_by : str
        Version of the package that wrote the file.
    """

    grid: TileGrid
    arithmetic_key: Mapping[str, Any]
    complete: bool = False
    data_offset: int = 0
    created_by: str = field(default_factory=_package_version)

    def __post_init__(self) -> None:
        if self.data_offset == 0:
            room = aligned(2 * (_PREFIX.size + len(self._text())))
            object.__setattr__(self, "data_offset", max(HEADER_RESERVE, room))

    @property
    def layout(self) -> TileLayout:
        """Where the tiles lie."""
        return TileLayout(self.grid, self.data_offset)

    def _text(self) -> bytes:
        fields = {
            "version": VERSION,
            "kind": KIND,
            "n": self.grid.n,
            "nb": self.grid.nb,
            "complete": self.complete,
            "layout": LAYOUT,
            "byte_order": sys.byteorder,
            "data_offset": self.data_offset,
            "tile_alignment": TILE_ALIGNMENT,
            "formats": [FP64.name],
            "format_of_tile": None,
            "arithmetic_key": dict(self.arithmetic_key),
            "created_by": self.created_by,
        }
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()

    def encode(self) -> bytes:
        """The first ``data_offset`` bytes of the file.

        Raises
        ------
        TierError
            A given ``data_offset`` leaves too little room.
        TypeError, ValueError
            ``arithmetic_key`` holds something that JSON cannot hold, such as an array or a NaN.
        """
        text = self._text()
        raw = _PREFIX.pack(MAGIC, len(text), zlib.crc32(text)) + text
        if len(raw) > self.data_offset:
            raise TierError(
                f"a header of {len(raw)} bytes does not fit before data_offset {self.data_offset}; use a larger data_offset"
            )
        return raw.ljust(self.data_offset, b"\0")


def read_header(descriptor: int, path: str) -> FileHeader:
    """Read and check the header of an open factor file.

    Parameters
    ----------
    descriptor : int
        Open file descriptor.
    path : str
        Its name, for errors.

    Returns
    -------
    FileHeader
        The header of a complete file of this version, at least as long as its tiles need.

    Raises
    ------
    TierError
        Not a factor file, damaged, truncated, incomplete, or of a version, layout or format that this version does not know.
    """
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
    """Raise TierError unless every field that decides how tiles are read has the one value this version knows."""
    known = {
        "version": VERSION,
        "kind": KIND,
        "layout": LAYOUT,
        "byte_order": sys.byteorder,
        "tile_alignment": TILE_ALIGNMENT,
        "formats": [FP64.name],
        "format_of_tile": None,
    }
    for name, expected in known.items():
        if name not in fields or fields[name] != expected:
            raise TierError(
                f"{path}: its header says {name} = {fields.get(name)!r} but this version of ooc_chol reads {expected!r} only; "
                f"it was written by version {fields.get('created_by')!r}: read it with that one"
            )


def _header_of(fields: dict[str, Any], path: str) -> FileHeader:
    """The header from known fields; TierError when one is missing or makes no sense."""
    try:
        header = FileHeader(
            TileGrid(int(fields["n"]), int(fields["nb"])),
            dict(fields["arithmetic_key"]),
            bool(fields["complete"]),
            int(fields["data_offset"]),
            str(fields["created_by"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TierError(f"{path}: its header is not that of a factor ({error!r}); factor the matrix again") from error
    if header.data_offset <= 0 or header.data_offset % TILE_ALIGNMENT:
        raise TierError(
            f"{path}: its data_offset {fields['data_offset']} is no positive multiple of {TILE_ALIGNMENT}; factor again"
        )
    return header
