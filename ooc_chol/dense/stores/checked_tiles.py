"""Tiles of a factor file, hashed as they are written and checked as they are read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.checksums import NOT_WRITTEN, ChecksumTables, combined, tile_seed
from ooc_chol.dense.stores.header import FileHeader
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.errors import DamagedFileError, TierError
from ooc_chol.files.access import AbstractAccess, CachedAccess
from ooc_chol.files.checksums import PIECE_BYTES, hash_bytes, pieces
from ooc_chol.files.positional_io import read_fully, write_fully
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.process.team import ThreadTeam
from ooc_chol.tasks.tiling import TileIndex

_AGAIN = "copy the file again, or factor the matrix again (`ooc-chol verify` lists all that is damaged)"


class OpenFile(NamedTuple):
    """A file that is open, and its name."""

    descriptor: int
    path: str
    access: AbstractAccess  #: How the bytes of tiles come and go

    @classmethod
    def cached(cls, descriptor: int, path: str) -> OpenFile:
        """A file that is read and written by way of the system's cache."""
        return cls(descriptor, path, CachedAccess(descriptor))


class TileStates(NamedTuple):
    """States of the tiles of a file."""

    good: set[TileIndex]  #: Their bytes are what was written
    bad: set[TileIndex]  #: Their bytes are not what was written, or cannot be read
    missing: set[TileIndex]  #: They were not written


class _Spot(NamedTuple):
    """A tile: where its bytes lie, where its checksum, and what that is seeded with."""

    tile: BlockIndex
    offset: int
    nbytes: int
    place: int
    seed: int

    def damaged(self, path: str, what: str, first: int, stop: int) -> DamagedFileError:
        """The error for some damaged bytes of the tile or of its checksums."""
        tile = int(self.tile[0]), int(self.tile[1])
        text = f"{path}: tile {tile} is damaged: {what}, bytes {first} to {stop - 1} of the file; {_AGAIN}"
        return DamagedFileError(text, path, tile=tile, first=first, stop=stop)


@final
class Withheld:
    """Which diagonal tiles are written, but not known to be right, by their places in the index.

    A pivot that fails is seen some time after its tile was written, as is an entry of its row that is no number. A run that goes
    on from a file must meet it again: so it finds no checksum there before somebody has looked. The tile may be written first, or
    be confirmed first; each happens on a thread of its own.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._written: set[int] = set()
        self._confirmed: set[int] = set()

    def may_show(self, place: int) -> bool:
        """Note that a tile is written; whether its checksum may be shown."""
        with self._lock:
            if place not in self._confirmed:
                self._written.add(place)
            return place in self._confirmed

    def confirm(self, place: int) -> bool:
        """Note that a tile is right; whether it is written already."""
        with self._lock:
            self._confirmed.add(place)
            is_written = place in self._written
            self._written.discard(place)
            return is_written

    def doubt(self, place: int) -> None:
        """Forget all of a tile that is to be written again."""
        with self._lock:
            self._confirmed.discard(place)
            self._written.discard(place)

    def places(self) -> list[int]:
        """Tiles that are written and not confirmed."""
        with self._lock:
            return list(self._written)


@final
class CheckedTiles:
    """The tiles of one factor file of a version that has checksums, and the index of these in memory.

    Several threads may read and write different tiles at once. Each tile is hashed piece by piece on the thread that moves it,
    while the bytes are in the core's cache.
    """

    def __init__(self, header: FileHeader) -> None:
        self.tables: ChecksumTables = header.tables()
        self.tables.clear()
        self._withheld: Withheld | None = None

    def withhold_pivots(self) -> None:
        """Keep checksums of diagonal tiles from the file until these are confirmed: see :class:`Withheld`."""
        self._withheld = Withheld()

    def confirm(self, file: OpenFile, layout: TileLayout, index: BlockIndex) -> None:
        """Let the file have the checksum of a diagonal tile, as soon as the tile is written."""
        place = self.tables.place(layout, index)
        if self._withheld is not None and self._withheld.confirm(place):
            self._write_entry(file, place)

    def forget(self, file: OpenFile, layout: TileLayout, indices: Iterable[BlockIndex]) -> None:
        """Let tiles be unwritten again, in memory and in the file."""
        for index in indices:
            place = self.tables.place(layout, index)
            self.tables.index[place] = NOT_WRITTEN
            if self._withheld is not None:
                self._withheld.doubt(place)
        self.flush_index(file)

    def n_shown(self, layout: TileLayout) -> int:
        """How many tiles are written and not withheld."""
        index = self._shown_index()
        return sum(int(index[self.tables.place(layout, tile)]) != NOT_WRITTEN for tile in layout.grid.tiles())

    def load_index(self, file: OpenFile, header: FileHeader) -> None:
        """Read the index from the file; that of a complete one must be what its header has signed."""
        index = np.empty(self.tables.n_places, self.tables.index.dtype)
        if index.size:
            read_fully(file.descriptor, index.view(np.uint8).data, self.tables.offset, file.path)
        self.tables.index = index
        if header.index_hash is not None and header.complete:
            found = self.tables.index_hash(header.geometry())
            if found != header.index_hash:
                first, stop = self.tables.offset, self.tables.offset + index.nbytes
                text = (
                    f"{file.path}: its index of checksums is damaged, or is that of another matrix (XXH3-64 {found:016x}, "
                    f"expected {header.index_hash:016x}), bytes {first} to {stop - 1}; copy the file again, or factor the matrix "
                    "again"
                )
                raise DamagedFileError(text, file.path, first=first, stop=stop)

    def flush_index(self, file: OpenFile) -> None:
        """Write the whole index to the file, but for checksums that are withheld."""
        if (index := self._shown_index()).size:
            write_fully(file.descriptor, index.view(np.uint8).data, self.tables.offset, file.path)

    def _shown_index(self) -> NDArray[Any]:
        """The index as the file is to have it."""
        index = self.tables.index
        if self._withheld is not None and (places := self._withheld.places()):
            index = index.copy()
            index[places] = NOT_WRITTEN
        return index

    def release(self) -> None:
        """Withhold nothing any more: the run has ended well."""
        self._withheld = None

    def unwritten(self, layout: TileLayout) -> TileIndex | None:
        """The first tile that was not written; None when all were."""
        if not layout.widened and layout.grid.n_tiles:
            place = int(np.argmin(self.tables.index[: layout.grid.n_tiles] != NOT_WRITTEN))
            if self.tables.index[place] != NOT_WRITTEN:
                return None
        return next((index for index in layout.grid.tiles() if not self.is_written(layout, index)), None)

    def is_written(self, layout: TileLayout, index: BlockIndex) -> bool:
        """Tell whether a tile was written, in the format that it has now."""
        return bool(self.tables.index[self.tables.place(layout, index)] != NOT_WRITTEN)

    def write(self, file: OpenFile, layout: TileLayout, index: BlockIndex, data: memoryview) -> None:
        """Write the stored bytes of a tile, then its checksums."""
        spot = self._spot(layout, index)
        hashes = []
        for first, stop in pieces(spot.nbytes):
            hashes.append(hash_bytes(data[first:stop], spot.seed))
            if file.access.is_cached:
                file.access.write(data[first:stop], spot.offset + first, file.path)
        if not file.access.is_cached:  # a disk takes large pieces faster, and several parts of one at once
            file.access.write(data, spot.offset, file.path)
        self.record(file, layout, index, hashes)

    def record(self, file: OpenFile, layout: TileLayout, index: BlockIndex, hashes: list[int]) -> None:
        """Write the checksums of a tile whose bytes are written, given those of its pieces."""
        spot, tables = self._spot(layout, index), self.tables
        if tables.n_pieces:
            write_fully(file.descriptor, np.array(hashes, "<u8").tobytes(), tables.piece_offset(spot.place), file.path)
        tables.index[spot.place] = combined(hashes, spot.seed)
        if self._withheld is None or index[0] != index[1] or self._withheld.may_show(spot.place):
            self._write_entry(file, spot.place)

    def _write_entry(self, file: OpenFile, place: int) -> None:
        """Write an entry of the index."""
        write_fully(file.descriptor, self.tables.entry_bytes(place), self.tables.entry_offset(place), file.path)

    def read(
        self, file: OpenFile, layout: TileLayout, index: BlockIndex, out: memoryview, team: ThreadTeam | None = None
    ) -> None:
        """Fill ``out`` with the stored bytes of a tile; ``DamagedFileError`` unless they are those that were written.

        The threads of a ``team`` read and hash pieces. Else this one does, and past the cache it reads the tile at once, of which
        a disk fetches several parts at a time.
        """
        spot = self._spot(layout, index)
        by_pieces = file.access.is_cached or team is not None

        def hashed(span: tuple[int, int]) -> int:
            first, stop = span
            if by_pieces:
                file.access.read(out[first:stop], spot.offset + first, file.path)
            return hash_bytes(out[first:stop], spot.seed)

        spans = list(pieces(spot.nbytes))
        if not by_pieces:
            file.access.read(out, spot.offset, file.path)
        self._check(file, spot, [hashed(span) for span in spans] if team is None else team.map(hashed, spans))

    def read_unchecked(self, file: OpenFile, layout: TileLayout, index: BlockIndex, out: memoryview) -> None:
        """Fill ``out`` with the stored bytes of a tile, which :meth:`check` is to compare with its checksum."""
        file.access.read(out, layout.offset(*index), file.path)

    def read_part(self, file: OpenFile, layout: TileLayout, index: BlockIndex, first: int, out: memoryview) -> None:
        """Fill ``out`` with stored bytes of a tile from ``first`` on, of which it reads and checks the pieces that hold them."""
        spot, stop = self._spot(layout, index), first + len(out)
        expected = self._piece_hashes(file, spot)
        buffer = memoryview(np.empty(min(PIECE_BYTES, spot.nbytes), np.uint8).data)
        for number in range(first // PIECE_BYTES, -(-stop // PIECE_BYTES)):
            begin, end = number * PIECE_BYTES, min((number + 1) * PIECE_BYTES, spot.nbytes)
            low, high = max(begin, first), min(end, stop)
            target = out[low - first : high - first]
            piece = target if (low, high) == (begin, end) else buffer[: end - begin]
            file.access.read(piece, spot.offset + begin, file.path)
            hashed = hash_bytes(piece, spot.seed)
            if expected is None:
                self._check(file, spot, [hashed])
            elif hashed != expected[number]:
                what = f"a piece has the XXH3-64 {hashed:016x}, expected {int(expected[number]):016x}"
                raise spot.damaged(file.path, what, spot.offset + begin, spot.offset + end)
            if piece is not target:
                target[:] = piece[low - begin : high - begin]

    def check(self, file: OpenFile, layout: TileLayout, index: BlockIndex, data: memoryview) -> None:
        """Raise ``DamagedFileError`` unless ``data``, read from the file, are the stored bytes of a tile that were written."""
        spot = self._spot(layout, index)
        self._check(file, spot, [hash_bytes(data[first:stop], spot.seed) for first, stop in pieces(spot.nbytes)])

    def verify(
        self, file: OpenFile, layout: TileLayout, indices: Iterable[BlockIndex] | None = None, team: ThreadTeam | None = None
    ) -> TileStates:
        """Read tiles and compare them with their checksums, by all threads of ``team``; through a piece of memory a thread."""
        asked = [TileIndex(*index) for index in (layout.grid.tiles() if indices is None else indices)]
        missing = {index for index in asked if not self.is_written(layout, index)}
        written = [index for index in asked if index not in missing]
        is_good = partial(self._is_good, file, layout)
        found = [is_good(index) for index in written] if team is None else team.map(is_good, written)
        good = {index for index, fine in zip(written, found, strict=True) if fine}
        return TileStates(good, set(written) - good, missing)

    def damage(self, file: OpenFile, layout: TileLayout, index: BlockIndex) -> list[tuple[int, int]]:
        """The bytes of the file, as first and behind the last, that hold the damage of a tile: some of its pieces, or all."""
        spot = self._spot(layout, index)
        whole = [(spot.offset, spot.offset + spot.nbytes)]
        try:
            expected = self._piece_hashes(file, spot)
            found = self._hashes(file, spot)
        except TierError:
            return whole
        if expected is None or list(expected) == found:
            return whole
        spans = [span for span, one, other in zip(pieces(spot.nbytes), expected, found, strict=True) if one != other]
        return [(spot.offset + first, spot.offset + stop) for first, stop in spans]

    def _spot(self, layout: TileLayout, index: BlockIndex) -> _Spot:
        seed = tile_seed(layout.grid, index, layout.format_of(*index))
        return _Spot(index, layout.offset(*index), layout.nbytes(*index), self.tables.place(layout, index), seed)

    def _is_good(self, file: OpenFile, layout: TileLayout, index: TileIndex) -> bool:
        spot = self._spot(layout, index)
        try:
            self._check(file, spot, self._hashes(file, spot))
            self._piece_hashes(file, spot)
        except TierError:
            return False
        return True

    def _hashes(self, file: OpenFile, spot: _Spot) -> list[int]:
        """Checksums of the pieces of a tile as they are in the file."""
        buffer = memoryview(np.empty(min(PIECE_BYTES, spot.nbytes), np.uint8).data)
        hashes = []
        for first, stop in pieces(spot.nbytes):
            file.access.read(piece := buffer[: stop - first], spot.offset + first, file.path)
            hashes.append(hash_bytes(piece, spot.seed))
        return hashes

    def _piece_hashes(self, file: OpenFile, spot: _Spot) -> NDArray[Any] | None:
        """Hashes of the pieces of a tile in the file, which its checksum signs; None where every tile is one piece."""
        if not self.tables.n_pieces:
            return None
        hashes = np.empty(-(-spot.nbytes // PIECE_BYTES), "<u8")
        offset = self.tables.piece_offset(spot.place)
        read_fully(file.descriptor, hashes.view(np.uint8).data, offset, file.path)
        recorded = int(self.tables.index[spot.place])
        if recorded == NOT_WRITTEN:
            raise self._never_written(file, spot)
        if hash_bytes(hashes, spot.seed) != recorded:
            raise spot.damaged(file.path, "the checksums of its pieces", offset, offset + hashes.nbytes)
        return hashes

    def _check(self, file: OpenFile, spot: _Spot, hashes: list[int]) -> None:
        recorded, found = int(self.tables.index[spot.place]), combined(hashes, spot.seed)
        if recorded == NOT_WRITTEN:
            raise self._never_written(file, spot)
        if found != recorded:
            what = f"its bytes have the XXH3-64 {found:016x}, expected {recorded:016x}"
            raise spot.damaged(file.path, what, spot.offset, spot.offset + spot.nbytes)

    def _never_written(self, file: OpenFile, spot: _Spot) -> DamagedFileError:
        return spot.damaged(file.path, "it was never written", spot.offset, spot.offset + spot.nbytes)
