"""Header of the Zarr group of an L, in the attributes of the group."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ooc_chol.dense.stores.layout import TileLayout, mixed_formats
from ooc_chol.dense.stores.zarr_layout import DOCUMENT, FORMAT_NAMES, GroupShape, formats_of, group_document, unpacked_chunk
from ooc_chol.errors import DamagedFileError, TierError
from ooc_chol.files.checksums import ALGORITHM, hash_bytes
from ooc_chol.files.inputs import parse_json
from ooc_chol.files.object_folders import AbstractObjectFolder, open_folder
from ooc_chol.files.positional_io import package_version
from ooc_chol.formats import FORMATS, FP64, TYPES, PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid

#: Name of our attributes within those of the group.
OURS = "ooc_chol"
#: What the group holds; other kinds will have other names.
KIND = "cholesky-factor"
#: Version of the group; a reader refuses any other.
VERSION = 1
#: Most bytes of a group's document.
_MOST_BYTES = 1 << 26

#: The formats that a whole L may have, by name.
_TYPES = {fmt.name: fmt for fmt in TYPES.values()}


@dataclass(frozen=True)
class ZarrHeader:
    """The attributes of the group of an L."""

    grid: TileGrid  #: Order of the matrix and of its tiles
    height: int  #: Tile rows of a block, whose checksums are one chunk
    arithmetic_key: Mapping[str, Any]  #: Everything that the bits of L depend on, as a JSON object
    fmt: PrecisionFormat = FP64  #: Format of all tiles but those that the array ``formats`` says otherwise of
    #: Formats that tiles had when the group was made, the widest first; none where all are of ``fmt``
    formats: tuple[PrecisionFormat, ...] = ()
    widened: tuple[tuple[int, int, str], ...] = ()  #: Tiles that became FP64 later, and the format of each before
    complete: bool = False  #: Whether all tiles are there: the last that is written
    index_hash: int | None = None  #: What signs all checksums of a complete group
    checkpoint: Mapping[str, Any] | None = None  #: A JSON object of whoever resumes an unfinished run
    writer: str | None = None  #: The run that writes the group, by a token of its own; None once it is complete
    created_by: str = field(default_factory=package_version)  #: Version of the package that wrote the group

    @property
    def shape(self) -> GroupShape:
        """The arrays of the group."""
        return GroupShape(self.grid, self.height, self.fmt, self.formats or (self.fmt,))

    def geometry(self) -> dict[str, Any]:
        """Everything by which a reader finds the tiles: what the checksums are signed with."""
        return {
            "n": self.grid.n,
            "nb": self.grid.nb,
            "height": self.height,
            "dtype": self.fmt.dtype.name,
            "fmt": self.fmt.name,
            "formats": [fmt.name for fmt in self.formats],
            "format_names": list(FORMAT_NAMES),
            "widened": [list(tile) for tile in self.widened],
            "checksum": ALGORITHM,
        }

    def document(self) -> bytes:
        """Document that describes the group."""
        fields = {
            "version": VERSION,
            "kind": KIND,
            "complete": self.complete,
            **self.geometry(),
            "index_hash": None if self.index_hash is None else f"{self.index_hash:016x}",
            "arithmetic_key": dict(self.arithmetic_key),
            "checkpoint": None if self.checkpoint is None else dict(self.checkpoint),
            "created_by": self.created_by,
            **({} if self.writer is None else {"writer": self.writer}),
        }
        return group_document({OURS: {**fields, "signature": _signature(fields)}})


def _signature(fields: Mapping[str, Any]) -> str:
    """XXH3-64 of all fields but itself."""
    text = json.dumps({name: value for name, value in fields.items() if name != "signature"}, sort_keys=True)
    return f"{hash_bytes(text.encode(), 0):016x}"


def is_ours(folder: AbstractObjectFolder) -> bool:
    """Tell whether a folder is the group of an L, of whatever version, damaged or not."""
    try:
        fields = _attributes(folder)
    except (FileNotFoundError, DamagedFileError):
        return False
    return fields is not None and fields.get("kind") == KIND


def check_there(place: str | os.PathLike[str]) -> None:
    """Raise FileNotFoundError where there is no group of that name."""
    with suppress(DamagedFileError):
        _attributes(open_folder(place))


def read_zarr_header(folder: AbstractObjectFolder) -> ZarrHeader:
    """Read the header of a group.

    Raises ``FileNotFoundError``, ``DamagedFileError`` and ``TierError``.
    """
    fields, path = _attributes(folder), f"{folder.name}/{DOCUMENT}"
    if fields is None or fields.get("kind") != KIND:
        raise TierError(f"{folder.name} is no factor of ooc_chol: give the Zarr group that save or store= wrote")
    if fields.get("version") != VERSION:
        found, advice = fields.get("version"), "update ooc_chol, or factor the matrix again"
        raise TierError(f"{folder.name} is of version {found!r}, and version {VERSION} is read: {advice}")
    if (found := _signature(fields)) != fields.get("signature"):
        text = f"{path} is damaged (XXH3-64 {found}, expected {fields.get('signature')!r}); copy the group again, or factor again"
        raise DamagedFileError(text, folder.name)
    try:
        return _header_of(fields)
    except (KeyError, TypeError, ValueError) as error:
        text = f"{path} makes no sense ({error!r}); copy the group again, or factor the matrix again"
        raise DamagedFileError(text, folder.name) from error


def _attributes(folder: AbstractObjectFolder) -> Mapping[str, Any] | None:
    """Our attributes of a group; None where it has none."""
    path = f"{folder.name}/{DOCUMENT}"
    try:
        data = folder.read(DOCUMENT)
    except FileNotFoundError:
        raise FileNotFoundError(2, "there is no Zarr group", folder.name) from None
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has {len(data)} bytes")
        content = parse_json(data.decode())
        fields = content["attributes"].get(OURS) if content["node_type"] == "group" else None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"{path} is no description of a Zarr group of version 3 ({error}); copy the group again, or give another name"
        raise DamagedFileError(text, folder.name) from error
    return fields if isinstance(fields, Mapping) else None


def _header_of(fields: Mapping[str, Any]) -> ZarrHeader:
    """The header from its fields; ``KeyError``, ``TypeError`` or ``ValueError`` where they are none."""
    grid, height = TileGrid(int(fields["n"]), int(fields["nb"])), int(fields["height"])
    if height < 1 or tuple(fields["format_names"]) != FORMAT_NAMES or fields["checksum"] != ALGORITHM:
        raise ValueError(f"height {height}, formats {fields['format_names']!r}, checksums {fields['checksum']!r}")
    signed = fields["index_hash"]
    return ZarrHeader(
        grid,
        height,
        dict(fields["arithmetic_key"]),
        _TYPES[fields["fmt"]],
        tuple(FORMATS[name] for name in fields["formats"]),
        tuple((int(i), int(j), FORMATS[name].name) for i, j, name in fields["widened"]),
        bool(fields["complete"]),
        None if signed is None else int(signed, 16),
        None if fields["checkpoint"] is None else dict(fields["checkpoint"]),
        None if fields.get("writer") is None else str(fields["writer"]),
        str(fields["created_by"]),
    )


def layout_of(folder: AbstractObjectFolder, header: ZarrHeader) -> TileLayout:
    """How the tiles of a group are cut and stored; ``DamagedFileError`` where what says their formats is damaged."""
    if not header.formats:
        return TileLayout(header.grid, fmt=header.fmt)
    shape, path = header.shape.format_codes, f"{folder.name}/formats"
    try:
        codes = unpacked_chunk(shape, folder.read(shape.key(0, 0)), path)
        formats = list(formats_of(header.grid, codes))
    except (FileNotFoundError, ValueError) as error:
        text = f"{path}, which says the formats of tiles, is damaged ({error}); copy the group again, or factor the matrix again"
        raise DamagedFileError(text, folder.name) from error
    for i, j, name in header.widened:
        formats[header.grid.packed(i, j)] = FORMATS[name]
    layout = TileLayout(header.grid, formats=mixed_formats(header.grid, formats), fmt=header.fmt)
    return layout.with_wider((i, j) for i, j, _ in header.widened)
