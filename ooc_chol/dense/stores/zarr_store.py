"""The tier that holds L in a Zarr group: a chunk for each tile, in a local folder or in object storage."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as with_fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.stores.base import check_stored, check_tile, closed_error
from ooc_chol.dense.stores.checked_tiles import TileStates
from ooc_chol.dense.stores.kept import AbstractKeptStore, AnyPlace
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.dense.stores.zarr_chunks import TileChunks
from ooc_chol.dense.stores.zarr_claim import Claim
from ooc_chol.dense.stores.zarr_header import ZarrHeader, layout_of, read_zarr_header
from ooc_chol.dense.stores.zarr_index import GroupIndex
from ooc_chol.dense.stores.zarr_layout import DOCUMENT, check_installed, chunk_parts, codes_of
from ooc_chol.dense.stores.zarr_replacing import PARTS, check_free, make_way, remove_group
from ooc_chol.dense.stores.zarr_windows import WindowRecords
from ooc_chol.errors import TierError
from ooc_chol.files.checksums import hash_bytes
from ooc_chol.files.object_folders import AbstractObjectFolder, LocalFolder, open_folder
from ooc_chol.files.positional_io import tile_bytes
from ooc_chol.formats import FORMATS, FP64, Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import BlockIndex
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.process.team import ThreadTeam
from ooc_chol.tasks.tiling import Index, TileGrid, TileIndex
from ooc_chol.tasks.windows import Window

#: Tile rows of a block where one machine writes all.
USUAL_HEIGHT = 16


@final
class ZarrStore(AbstractKeptStore):
    """L in a group of Zarr v3; made by :meth:`create`, :meth:`open`, :meth:`open_unfinished` or :meth:`open_for_writing`.

    Each tile is a chunk of the array ``L``, or of that of its format, and appears with all of its bytes or not at all. Its
    checksum is the one that a file has, and lies in the array ``checksums``, of which a chunk holds those of a block of
    ``height`` tile rows and columns. Any number of threads and processes may read and write different tiles; two may write
    the same tile where they write the same bytes. One run writes it (:class:`Claim`). It has no name of its own while it is
    unfinished: it is complete once its attributes say so, which are written last.
    """

    name = "zarr"
    header: ZarrHeader

    def __init__(self, claim: Claim, header: ZarrHeader, layout: TileLayout, *, is_own: bool) -> None:
        self._claim, self.header = claim, header
        self.folder = folder = claim.folder
        self.path = folder.name
        self.grid, self.fmt = header.grid, header.fmt
        self._layout = layout
        #: Whether a run that fails removes the group.
        self._is_own = is_own
        shape = header.shape
        self._index = GroupIndex(folder, shape)
        self._records = WindowRecords(folder, shape)
        self._chunks = TileChunks(folder, shape)
        self._written_at: dict[Index, float] = {}
        #: The tile of which rows were read last.
        self._last: tuple[Index, NDArray[np.uint8]] | None = None
        self._is_closed = self._was_resumed = False
        self._process = os.getpid()

    @classmethod
    def create(
        cls,
        url: AnyPlace | AbstractObjectFolder,
        grid: TileGrid,
        arithmetic_key: Mapping[str, Any] | None = None,
        formats: Sequence[PrecisionFormat] | None = None,
        *,
        fmt: PrecisionFormat = FP64,
        height: int | None = None,
        replace: bool = False,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> ZarrStore:
        """Make the group of an L without tiles, for writing; an earlier factor is removed only where ``replace`` says so.

        ``height`` is that of the blocks whose tiles :meth:`finish_window` makes known at once. ``checkpoint`` is a JSON object
        that :meth:`open_unfinished` finds again. Raises ``OutputError`` and ``MissingPackageError``.
        """
        check_installed()
        layout = TileLayout(grid, formats=None if formats is None else tuple(formats), fmt=fmt)
        in_use = [] if layout.formats is None else [known for known in FORMATS.values() if known in set(layout.formats)]
        folder = open_folder(url)
        check_free(folder, replace=replace)  # before anything is put there
        with HeldInterrupts():
            claim = Claim.locked(folder, make=True)
            shape, key = height or USUAL_HEIGHT, arithmetic_key or {}
            header = ZarrHeader(grid, shape, key, fmt, tuple(in_use), checkpoint=checkpoint, writer=claim.token)
            store = cls(claim, header, layout, is_own=True)
        try:
            make_way(folder, header.writer, replace=replace)
            store._write_header(header)  # first: what a killed run leaves is known for an unfinished factor
            store._write_documents()
            if height is not None:
                store._records.create()
            store._write_formats()
        except BaseException:
            store.discard()
            raise
        return store

    @classmethod
    def open(cls, url: AnyPlace | AbstractObjectFolder) -> ZarrStore:
        """Open a complete group for reading."""
        store = cls._over(url)
        if not store.header.complete:
            raise TierError(f"{store.path} is unfinished; go on from it with the call that began it, or factor the matrix again")
        return store

    @classmethod
    def open_for_writing(cls, url: AnyPlace | AbstractObjectFolder, writer: str | None = None) -> ZarrStore:
        """Open a group that another process made, to write tiles of some windows; it is left as it is when this one fails.

        ``writer`` is the token of the run that this is done for; ``TierError`` where that writes the group no more.
        """
        store = cls._over(url)
        if writer is not None:
            store._claim = Claim(store.folder, writer)
            store._claim.check()
        return store

    @classmethod
    def open_unfinished(cls, url: AnyPlace | AbstractObjectFolder) -> ZarrStore:
        """Open the group of a run that was ended, to go on writing it once it is known for the same; nothing is changed yet.

        Which tiles are there :meth:`verify_tiles` says, and :meth:`take_over` lets it be written. Raises ``FileNotFoundError``
        and ``TierError``.
        """
        check_installed()
        folder = open_folder(url)
        _unfinished_header(folder)
        claim = Claim.locked(folder)
        try:
            header = with_fields(_unfinished_header(folder), writer=claim.token)  # another run may have completed it meanwhile
            store = cls(claim, header, layout_of(folder, header), is_own=True)
            store._was_resumed = True
        except BaseException:
            claim.release()
            raise
        return store

    def take_over(self) -> None:
        """Let the group be this run's, of which an earlier one that is alive takes note."""
        self._write_header(self.header)
        self._remove_widened()

    @property
    def has_windows(self) -> bool:
        """True where a cluster has made it, block by block."""
        return self._records.is_there()

    def cut_anew(self, height: int) -> None:
        """Let what one process left have blocks of another height; a crash meanwhile costs tiles whose checksums are gone."""
        before = self._index
        noted = {index: checksum for index in self.grid.tiles() if (checksum := before.checksum(index))}
        # 1. No checksum is in a chunk of the old shape. 2. The header has the new one. 3. Checksums are there again.
        before.remove()
        self.header = with_fields(self.header, height=height)
        self._write_header(self.header)
        self._write_documents()
        shape = self.header.shape
        self._index, self._records = GroupIndex(self.folder, shape), WindowRecords(self.folder, shape)
        self._records.create()
        for index, checksum in noted.items():
            self._index.note(index, checksum)
        self._index.show_changed()

    @staticmethod
    def checkpoint_at(url: AnyPlace | AbstractObjectFolder) -> str | None:
        """Name of an unfinished group that is a checkpoint; None where there is none to go on from."""
        folder = open_folder(url)
        try:
            header = read_zarr_header(folder)
        except (FileNotFoundError, TierError):  # make_way refuses what is no group of ours
            return None
        return folder.name if header.checkpoint is not None and not header.complete else None

    @classmethod
    def _over(cls, url: AnyPlace | AbstractObjectFolder) -> ZarrStore:
        """The store over a group that is there, and that another run writes or has written."""
        check_installed()
        folder = open_folder(url)
        header = read_zarr_header(folder)
        return cls(Claim(folder, header.writer), header, layout_of(folder, header), is_own=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the name of the group, which may be written by whoever opens it while it is unfinished."""
        return ZarrStore.open_for_writing, (self.folder, self.header.writer)

    def is_there(self) -> bool:
        try:
            found = read_zarr_header(self.folder)
        except (FileNotFoundError, TierError):
            return False
        return found.complete and found.index_hash == self.header.index_hash

    @property
    def partial_path(self) -> str:
        return self.path

    @property
    def layout(self) -> TileLayout:
        """How its tiles are cut and stored; of their places in one file, which it has too, nothing is so here."""
        return self._layout

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def read(self, index: BlockIndex, out: Floats) -> None:
        fmt = self.format_of(index)
        check_tile(out, self.grid.shape(*index), fmt, self.fmt)
        if out.dtype == fmt.dtype and fmt.top is None:
            self._read_checked(index, fmt, np.frombuffer(tile_bytes(out), np.uint8))
            return
        stored = self._stored(index)
        decode(stored, fmt, slice(0, out.size), out)

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        """Fill ``out`` with rows ``rows`` of tile ``index``.

        All of the tile is read and checked; the last one of which rows were read is kept, so that its other rows cost nothing.
        """
        if len(rows) == self.grid.size(index[0]):
            self.read(index, out)
            return
        fmt, columns, key = self.format_of(index), self.grid.size(index[1]), (int(index[0]), int(index[1]))
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        last = self._last
        if last is None or last[0] != key:
            last = self._last = key, self._stored(index)
        decode(last[1], fmt, slice(rows.start * columns, rows.stop * columns), out)

    def write(self, index: BlockIndex, data: Floats) -> None:
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        if data.dtype == fmt.dtype and fmt.top is None:
            self._write_stored(index, fmt, np.frombuffer(tile_bytes(data), np.uint8))
            return
        stored = np.zeros(fmt.stored_bytes(data.size), dtype=np.uint8)
        encode(data, fmt, stored)
        self._write_stored(index, fmt, stored)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        check_stored(out, self._layout.nbytes(*index))
        self._read_checked(index, self.format_of(index), out)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        check_stored(data, self._layout.nbytes(*index))
        self._write_stored(index, self.format_of(index), data)

    def _stored(self, index: BlockIndex) -> NDArray[np.uint8]:
        """The stored bytes of a tile, as new memory."""
        stored = np.empty(self._layout.nbytes(*index), np.uint8)
        self.read_stored(index, stored)
        return stored

    def _read_checked(self, index: BlockIndex, fmt: PrecisionFormat, stored: NDArray[np.uint8]) -> None:
        """Fill the stored bytes of a tile; ``DamagedFileError`` unless they are those that were written."""
        self._check_open()
        expected = self._expected(index)
        exponent = 0 if fmt.top is None else self._index.exponent(index)
        found, _ = self._chunks.read(index, fmt, stored, exponent)
        if found != expected:
            raise self._chunks.damaged(index, fmt, f"it has the XXH3-64 {found:016x}, expected {expected:016x}")

    def _expected(self, index: BlockIndex) -> int:
        """The checksum of a tile, which another process may have written since its block was read."""
        if entry := self._index.newest_checksum(index):
            return entry
        tile, key = (int(index[0]), int(index[1])), self._chunks.key(index, self.format_of(index))
        if self.header.complete:
            raise self._chunks.damaged(index, self.format_of(index), "its checksum is missing")
        raise TierError(f"{self.path}: tile {tile} ({key}) is not there yet: its window was not finished")

    def _write_stored(self, index: BlockIndex, fmt: PrecisionFormat, stored: NDArray[np.uint8]) -> None:
        """Write a tile, then note its checksum."""
        self._check_open()
        if self.header.complete:
            raise TierError(f"{self.path}: tile {tuple(index)} cannot be written, the factor in this group is complete")
        self._claim.look()
        checksum = self._chunks.write(index, fmt, stored)
        self._index.note(index, checksum, None if fmt.top is None else int(stored[-8:].view(np.int64)[0]))
        if self.keeps_unfinished:
            self._written_at[index[0], index[1]] = time.perf_counter()
            self._index.written(index)
            self._show_at_once(index)

    def finish_window(self, window: Window, facts: Mapping[str, Any] | None = None) -> None:
        """Let the tiles of a window be there for others, once all are written: their checksums come last.

        Raises ``TierError`` and ``ValueError``.
        """
        blocks = self._index.blocks_of(window)
        missing = next((index for index in window.tiles() if not self._index.checksum(index)), None)
        if missing is not None:
            raise TierError(f"{self.path}: tile {tuple(missing)} of a window that is to be finished was never written")
        self._claim.check()
        self.folder.flush()
        if facts is not None:
            self._records.save(window, blocks, facts)
        self._index.finish(blocks)
        self.folder.flush()

    def finished_windows(self) -> list[Window]:
        """The windows, each a block, all of whose tiles have checksums in the group, column by column."""
        return self._index.finished_windows()

    def is_finished(self, window: Window) -> bool:
        """Tell whether all tiles of a window have checksums in the group, whichever process has written them."""
        return self._index.is_finished(window)

    def window_facts(self, window: Window) -> dict[str, Any]:
        """Facts of a window that :meth:`finish_window` was given; empty where it was given none."""
        return self._records.load(window)

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        if self.header.complete:
            raise TierError(f"{self.path}: tiles cannot be widened, the factor in this group is complete")
        before, asked = self._layout, [(int(i), int(j)) for i, j in tiles]
        self._layout = before.with_wider(asked)
        added = self._layout.widened[len(before.widened) :]
        self.header = with_fields(
            self.header, widened=(*self.header.widened, *((i, j, before.format_of(i, j).name) for i, j in added))
        )
        for index in added:
            self._index.note(index, 0)
        self._last = None

    def _remove_widened(self) -> None:
        """Remove the narrow chunks of tiles that were widened, and write which format each has."""
        for i, j, name in self.header.widened:
            self.folder.remove(self._chunks.key((i, j), FORMATS[name]))
        self._write_formats()

    def _write_formats(self) -> None:
        """Write the array of formats, where tiles are of several."""
        shape, formats = self.header.shape, self._layout.present_formats
        if shape.is_mixed:
            codes = codes_of(self.grid, formats or (FP64,) * self.grid.n_tiles)
            self.folder.write(shape.format_codes.key(0, 0), chunk_parts(codes))

    def verify_tiles(self, indices: Iterable[tuple[int, int]] | None = None, team: ThreadTeam | None = None) -> TileStates:
        """Read tiles, all by default, and compare them with both checksums of each; nothing that is found is an error."""
        asked = [TileIndex(*index) for index in (self.grid.tiles() if indices is None else indices)]
        missing = {index for index in asked if not self._index.checksum(index)}
        written = [index for index in asked if index not in missing]
        states = [self.damage_of(index) for index in written] if team is None else team.map(self.damage_of, written)
        good = {index for index, damage in zip(written, states, strict=True) if not damage}
        return TileStates(good, set(written) - good, missing)

    def checksum_of(self, index: BlockIndex) -> int:
        """The checksum of a tile; 0 where it is not written."""
        return self._index.checksum(index)

    def key_of(self, index: BlockIndex) -> str:
        """Key of the chunk of a tile within the group."""
        return self._chunks.key(index, self.format_of(index))

    def damage_of(self, index: BlockIndex) -> str:
        """Damage of a tile, in words; empty where it is what was written."""
        fmt, stored = self.format_of(index), np.empty(self._layout.nbytes(*index), np.uint8)
        try:
            if not (expected := self._index.checksum(index)):
                return "its checksum is missing"
            exponent = 0 if fmt.top is None else self._index.exponent(index)
            found, crc = self._chunks.read(index, fmt, stored, exponent, crc=True)
        except TierError as error:
            return str(error)
        if found != expected:
            return f"it has the XXH3-64 {found:016x}, expected {expected:016x}"
        return "" if crc else "its CRC-32C is not that of its bytes"

    def keep_unfinished(self) -> None:
        if not self.header.complete:
            self.keeps_unfinished = True
            self._index.withhold_pivots()
            if self._was_resumed:
                self.take_over()

    def confirm(self, index: BlockIndex) -> None:
        if self._index.confirm(index):
            self._show_at_once(index)

    def forget(self, tiles: Iterable[tuple[int, int]]) -> None:
        if not self.keeps_unfinished:
            return
        self._index.forget(tiles)
        self.flush()

    def _show_at_once(self, index: BlockIndex) -> None:
        """Bring a checksum to a local group, where that costs nothing beside its tile; elsewhere :meth:`flush` does."""
        if isinstance(self.folder, LocalFolder):
            self._index.show(self._index.block_of(index))

    @property
    def n_written(self) -> int:
        return self._index.n_written

    def save_checkpoint(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Keep it in the attributes."""
        if self.header.complete:
            raise TierError(f"{self.path}: no checkpoint can be written, the factor in this group is complete")
        self._claim.check()
        self.header = with_fields(self.header, checkpoint=checkpoint)
        self._write_header(self.header)
        self._remove_widened()
        self.folder.flush()

    def flush(self) -> None:
        """Make durable what was written until now, tiles before their checksums."""
        self.folder.flush()
        if self.keeps_unfinished:
            self._claim.check()
            self._index.show_changed()
            self.folder.flush()

    def complete(self) -> None:
        """Make all durable, then let the attributes say that it is complete; a second call does nothing."""
        if self.header.complete:
            return
        refuse_in_child(self._process, f"the group {self.path}")
        self._claim.check()
        self._index.withhold_nothing()
        for block in self._index.blocks():
            self._index.read_unfinished(block)
        header = self._completed_header()
        self._index.show_changed()
        self._remove_widened()
        if self._was_resumed and isinstance(self.folder, LocalFolder):
            self.folder.remove_left((DOCUMENT, *PARTS))
        # 1. All tiles are on the disk. 2. The attributes say so. A crash between the two leaves no false claim.
        self.folder.flush()
        self._claim.check()
        self._write_header(header)
        self.folder.flush()
        self.header = header
        self._claim.release()

    def _completed_header(self) -> ZarrHeader:
        """The header once the group is complete, all checksums signed; TierError while tiles are missing."""
        packed = self.packed_checksums()
        if not packed.all():
            missing = next(index for index in self.grid.tiles() if not packed[self.grid.packed(*index)])
            raise TierError(f"{self.path}: tile {tuple(missing)} was never written; the factor is not complete")
        return with_fields(self.header, complete=True, index_hash=self.index_hash(packed), writer=None)

    def packed_checksums(self) -> NDArray[np.uint64]:
        """The checksums of all tiles, packed."""
        return self._index.packed()

    def index_hash(self, packed: NDArray[np.uint64]) -> int:
        """Signature of all checksums: XXH3-64 of them, seeded with that of the header's lines on the matrix and its tiles."""
        return hash_bytes(packed, hash_bytes(json.dumps(self.header.geometry(), sort_keys=True).encode(), 0))

    def _write_documents(self) -> None:
        """Write the documents of all arrays."""
        for array in self.header.shape.arrays():
            self.folder.write(f"{array.name}/{DOCUMENT}", [memoryview(array.document())])

    def _write_header(self, header: ZarrHeader) -> None:
        self.folder.write(DOCUMENT, [memoryview(header.document())])

    def keep_out_of_cache(self) -> None:
        """Let no tile of a local group stay in the system's cache, whose pages count against a budget."""
        if isinstance(self.folder, LocalFolder):
            self.folder.is_bounded = True

    def discard(self) -> None:
        """Close the group; remove it unless it is complete, or another process made it or is writing it."""
        is_removed = self._is_own and not self._is_closed and not self.header.complete and self._process == os.getpid()
        if is_removed:
            with suppress(OSError):  # the error that led here goes on
                self._claim.check()
                remove_group(self.folder, self._claim.token)
        self.close()
        if is_removed and isinstance(self.folder, LocalFolder):
            self.folder.remove_itself()

    def close(self) -> None:
        """Let go of the group; one that is not complete stays as it is. A second call does nothing."""
        self._is_closed, self._last = True, None
        self._claim.release()
        self.folder.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_error(self.name)


def _unfinished_header(folder: AbstractObjectFolder) -> ZarrHeader:
    """The header of a group that is not complete; ``FileNotFoundError`` where there is none."""
    header = read_zarr_header(folder)
    if header.complete:
        raise FileNotFoundError(2, "there is no unfinished Zarr group", folder.name)
    return header
