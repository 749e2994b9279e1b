"""Which arrays a Zarr group of L has, what describes them in version 3 of Zarr, and the bytes of their chunks.

Every chunk is its entries in row-major order, little-endian, and their CRC-32C: Zarr's codecs ``bytes`` and ``crc32c``. A chunk
at the lower or right end of an array is filled up with zeros, as Zarr does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import MissingPackageError, TierError
from ooc_chol.extras import install_hint
from ooc_chol.formats import FORMATS, PrecisionFormat
from ooc_chol.interfaces import BlockIndex
from ooc_chol.kernels.interfaces import NORM_COLUMNS
from ooc_chol.process.address_space import guarded_imports
from ooc_chol.tasks.tiling import TileGrid

#: Key of what describes a group or an array.
DOCUMENT = "zarr.json"
#: Bytes of the CRC-32C behind the entries of a chunk.
CRC_BYTES = 4
#: Type in which the bits of FP8 are kept: Zarr has no such type.
_FP8_BITS = np.dtype(np.uint8)
#: Entry of a tile in the array of formats: its place here, from 1 on; 0 above the diagonal.
FORMAT_NAMES = tuple(FORMATS)


@dataclass(frozen=True)
class ArrayShape:
    """An array of a group: what Zarr must know of it."""

    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    dimensions: tuple[str, ...]

    @property
    def entries(self) -> int:
        """Entries of a chunk."""
        return int(np.prod(self.chunks))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk, its CRC-32C included."""
        return self.entries * self.dtype.itemsize + CRC_BYTES

    def key(self, *chunk: int) -> str:
        """Key of a chunk in the group."""
        return f"{self.name}/c/{'/'.join(map(str, chunk))}"

    def document(self) -> bytes:
        """Document that describes the array, as Zarr itself would write it."""
        names = [{"name": "bytes"} if self.dtype.itemsize == 1 else {"name": "bytes", "configuration": {"endian": "little"}}]
        zero: object = {"c": [0.0, 0.0], "f": 0.0}.get(self.dtype.kind, 0)
        return _json(
            {
                "shape": list(self.shape),
                "data_type": self.dtype.name,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": zero,
                "codecs": [*names, {"name": "crc32c"}],
                "attributes": {},
                "dimension_names": list(self.dimensions),
                "zarr_format": 3,
                "node_type": "array",
                "storage_transformers": [],
            }
        )


@dataclass(frozen=True)
class GroupShape:
    """The arrays of the group of an L."""

    grid: TileGrid  #: How L is cut into tiles
    height: int  #: Tile rows of a block, whose checksums are one chunk
    fmt: PrecisionFormat  #: Format of what is given and taken
    formats: tuple[PrecisionFormat, ...]  #: Formats of its tiles, each once

    @property
    def chunk(self) -> int:
        """Rows of a chunk of L: those of a tile, but of no more than L has."""
        return max(1, min(self.grid.nb, self.grid.n))

    @property
    def is_mixed(self) -> bool:
        """True if tiles may be of several formats."""
        return self.formats != (self.fmt,)

    def of_tiles(self, fmt: PrecisionFormat) -> ArrayShape:
        """The array of the tiles of one format."""
        n, chunk = self.grid.n, self.chunk
        dtype = _FP8_BITS if fmt.name == "fp8" else fmt.dtype
        return ArrayShape("L" if fmt == self.fmt else f"L_{fmt.name}", (n, n), (chunk, chunk), dtype, ("row", "column"))

    def of_blocks(self, name: str, dtype: Any, *, columns: tuple[str, int] | None = None) -> ArrayShape:
        """An array with an entry, or a row of ``columns``, for every tile; a chunk holds those of a block."""
        nt, height, more = self.grid.nt, self.height, () if columns is None else (columns[1],)
        names = ("tile_row", "tile_column", *(() if columns is None else (columns[0],)))
        return ArrayShape(name, (nt, nt, *more), (height, height, *more), np.dtype(dtype), names)

    @property
    def checksums(self) -> ArrayShape:
        """XXH3-64 of every tile; 0 for one that is not written."""
        return self.of_blocks("checksums", np.uint64)

    @property
    def exponents(self) -> ArrayShape:
        """Exponents of the scales of tiles, where formats have some."""
        return self.of_blocks("exponents", np.int32)

    @property
    def norms(self) -> ArrayShape:
        """Norms of every tile, measured by a run in mixed precision."""
        return self.of_blocks("norms", np.float64, columns=("measure", len(NORM_COLUMNS)))

    @property
    def format_codes(self) -> ArrayShape:
        """Format of every tile, in one chunk."""
        side = max(1, self.grid.nt)
        return ArrayShape("formats", (self.grid.nt,) * 2, (side, side), np.dtype(np.uint8), ("tile_row", "tile_column"))

    def arrays(self) -> list[ArrayShape]:
        """All arrays of the group."""
        tiles = [self.of_tiles(fmt) for fmt in dict.fromkeys((self.fmt, *self.formats))]
        mixed = [self.exponents, self.norms, self.format_codes] if self.is_mixed else []
        return [*tiles, self.checksums, *mixed]


def group_document(attributes: Mapping[str, Any]) -> bytes:
    """Document that describes a group, as Zarr itself would write it."""
    return _json({"attributes": dict(attributes), "zarr_format": 3, "node_type": "group"})


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode()


def chunk_parts(entries: NDArray[Any]) -> list[memoryview]:
    """The bytes of a chunk, whose entries are contiguous: these, and their CRC-32C."""
    flat = np.frombuffer(entries.data.cast("B"), np.uint8) if entries.size else np.empty(0, np.uint8)
    return [flat.data, memoryview(crc32c(flat))]


def unpacked_chunk(shape: ArrayShape, data: bytes, path: str) -> NDArray[Any]:
    """The entries of a chunk from its bytes; ``ValueError`` where these are not what was written."""
    if len(data) != shape.chunk_bytes:
        raise ValueError(f"{path} has {len(data)} bytes, expected {shape.chunk_bytes}")
    entries = np.frombuffer(data, np.uint8, len(data) - CRC_BYTES)
    if (found := crc32c(entries)) != data[-CRC_BYTES:]:
        raise ValueError(f"{path} has the CRC-32C {found[::-1].hex()}, expected {data[: -CRC_BYTES - 1 : -1].hex()}")
    return entries.view(shape.dtype).reshape(shape.chunks)


def crc32c(data: NDArray[np.uint8], before: bytes = bytes(CRC_BYTES)) -> bytes:
    """The CRC-32C of bytes as Zarr keeps it, going on from that of the bytes before."""
    found: int = _crc_module().extend(int.from_bytes(before, "little"), data) if data.size else int.from_bytes(before, "little")
    return found.to_bytes(CRC_BYTES, "little")


def _crc_module() -> ModuleType:
    """The module that computes CRC-32C, which Zarr brings."""
    try:
        with guarded_imports(blas=False):
            import google_crc32c
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"L in a Zarr group needs Zarr, which is not installed: {install_hint('cluster')}") from error
    module: ModuleType = google_crc32c
    return module


def check_installed() -> None:
    """Raise ``MissingPackageError`` where chunks cannot be written, and ``TierError`` where numbers are of another byte order."""
    _crc_module()
    if sys.byteorder != "little":
        raise TierError("Zarr groups of L are little-endian, and this machine is not: keep L in a file, store='L.ooc'")


def codes_of(grid: TileGrid, formats: Iterable[PrecisionFormat]) -> NDArray[np.uint8]:
    """Formats of packed tiles as the array ``formats`` has them."""
    codes = np.zeros((grid.nt, grid.nt), np.uint8)
    number = {name: place + 1 for place, name in enumerate(FORMAT_NAMES)}
    codes[np.tril_indices(grid.nt)] = [number[fmt.name] for fmt in formats]
    return codes


def formats_of(grid: TileGrid, codes: NDArray[np.uint8]) -> tuple[PrecisionFormat, ...]:
    """Formats of packed tiles from the array ``formats``; ``ValueError`` where it holds something else."""
    packed = codes[np.tril_indices(grid.nt)]
    if packed.size and not 1 <= packed.min() <= packed.max() <= len(FORMAT_NAMES):
        raise ValueError(f"formats holds entries other than 1 to {len(FORMAT_NAMES)} in the lower triangle")
    known = [FORMATS[name] for name in FORMAT_NAMES]
    return tuple(known[code - 1] for code in packed)


def tile_part(index: BlockIndex, height: int) -> tuple[int, int]:
    """Where a tile stands within its block."""
    return index[0] % height, index[1] % height
