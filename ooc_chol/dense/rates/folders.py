"""Rates of the disk under a folder: measured as a run reads and writes tiles, and kept by the file system."""

from __future__ import annotations

import mmap
import os
import platform
import queue
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ooc_chol.config import format_bytes, whole_pages
from ooc_chol.dense.programs.disk import DiskRates
from ooc_chol.dense.rates.rows import RowRates, measured_rows, rate_by_rows, rows_text
from ooc_chol.dense.rates.stored import DISKS, disk_figures
from ooc_chol.errors import MissingFolderError, TierError
from ooc_chol.files.access import AbstractAccess, drop_pages, opened_access
from ooc_chol.files.outputs import write_error
from ooc_chol.files.positional_io import preallocate
from ooc_chol.hardware.rates_file import check_writable, kept_rates, write_rates
from ooc_chol.process.team import ThreadTeam

#: Tiles in flight at once.
IN_FLIGHT = 4
#: Most bytes that are written and read, and where it is to be quick; and the part of the free disk that they may take at most.
_MOST_BYTES, _QUICK_BYTES, _PART_OF_FREE = 2 << 30, 128 << 20, 4
#: Seconds after which either of writing and reading has gone on long enough.
_SECONDS, _QUICK_SECONDS = 4.0, 0.5
#: Part of them after which reading by rows of one length has gone on long enough.
_PART_OF_ROWS = 1 / 4
#: Order of the tiles where none is told.
USUAL_TILE_SIZE = 1024


@dataclass(frozen=True)
class MeasuredFolder:
    """Measured rates of one folder."""

    folder: str
    file_system: str  #: The name under which the rates are stored: machine, device, kind and place of the file system
    read: float  #: Bytes per second past the page cache; writing until all is on the disk
    write: float
    together: float  #: Seconds of both at once over those of one after the other
    nbytes: int  #: Bytes that were written and read
    tile_bytes: int  #: Bytes of a tile, each read and written in one piece
    access: str  #: How: ``"direct"``, or ``"cache dropped behind"`` where the file system has no direct I/O
    #: Bytes per second of tiles of A, which lie in their file row by row: bytes of such a row of a tile, and the rate. Empty
    #: where too little was written for that, or the system does not open a file by its descriptor.
    rows: RowRates = ()

    def __str__(self) -> str:
        rates = f"{self.read / 1e9:.3g} GB/s read, {self.write / 1e9:.3g} GB/s written"
        rates += f", both at once in {100 * self.together:.0f} % of the time of one after the other"
        tiles = f"tiles of {format_bytes(self.tile_bytes)}, {IN_FLIGHT} at once, {format_bytes(self.nbytes)}, {self.access}"
        of_a = f"; A {rows_text(self.rows)}" if self.rows else "; A by rows was not measured"
        return f"{self.folder}: {rates} ({tiles}){of_a}; for {self.file_system}"


def measure_folder(folder: str | os.PathLike[str], tile_size: int = USUAL_TILE_SIZE, *, quick: bool = False) -> MeasuredFolder:
    """Measure how fast tiles of L go to files in a folder and come back, and tiles of A come from there; plans predict from it.

    A file without a name is written and read, at most 2 GiB and a quarter of what is free, four seconds each way; it is gone
    afterwards. Data are random: nothing can be compressed. Tiles of A are read from the same file as from a matrix in a ``.npy``
    file, one piece for each row of a tile, a second for each length of a row: a disk may give a quarter of its rate then. Raises
    ``ValueError``, ``MissingFolderError``, ``TierError`` and ``OSError``.
    """
    if tile_size < 1:
        raise ValueError(f"tile_size is {tile_size}, but a tile has at least 1 row")
    path = os.path.realpath(folder)
    if not os.path.isdir(path):
        raise MissingFolderError(f"there is no folder {folder}: make it, or name another one", "--folder", "", str(folder))
    check_writable()
    tile_bytes = whole_pages(8 * tile_size**2)
    found = _measured(path, tile_bytes, _most_bytes(path, tile_bytes, quick=quick), _QUICK_SECONDS if quick else _SECONDS)
    everything = kept_rates()
    figures = asdict(found)
    everything.setdefault(DISKS, {})[figures.pop("file_system")] = figures
    write_rates(everything)
    return found


def disk_rates(path: str | os.PathLike[str]) -> DiskRates | None:
    """The stored rates of the disk on which a file of this name would lie; None where it was not measured."""
    figures = disk_figures(file_system_of(path))
    return None if figures is None else DiskRates(**{name: rate for name, rate in figures.items() if name != "rows"})


def disk_rates_of(
    store: str | os.PathLike[str] | None, sources: Sequence[str] = (), *, row_bytes: int | None = None
) -> DiskRates | None:
    """The stored rates of the disk of a store, and of reading A from its file; None where the store's is not known.

    A tile of A is read in pieces of ``row_bytes``, None where it is one piece. Where reading by rows was not measured, the rate
    is that of whole tiles, and ``row_bytes`` of the answer is None.
    """
    of_store = None if store is None else disk_rates(store)
    if of_store is None:
        return None
    if not sources:
        return of_store
    name = file_system_of(sources[0])
    is_one = name == file_system_of(store or "")
    figures = disk_figures(name)
    if figures is None:
        return replace(of_store, is_one=is_one)
    if row_bytes is None or not figures["rows"]:
        return replace(of_store, source=figures["read"], is_one=is_one, is_by_rows=row_bytes is None)
    rate = rate_by_rows(figures["rows"], row_bytes, figures["read"])
    return replace(of_store, source=rate, is_one=is_one, row_bytes=row_bytes)


def file_system_of(path: str | os.PathLike[str]) -> str:
    """The name by which rates of a file system are stored: this machine, its device, kind and place."""
    real = Path(os.path.realpath(path))
    mounts = {place: what for place, what in _mounts() if place == real or place in real.parents}
    if not mounts:
        while not real.exists():
            real = real.parent
        return f"{platform.node()}: device {real.stat().st_dev}"
    place = max(mounts, key=lambda mount: len(mount.parts))
    return f"{platform.node()}: {mounts[place]} at {place}"


def _mounts() -> list[tuple[Path, str]]:
    """Where file systems are mounted, and what each is; none where the system has no such list. The last of a place counts."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        of_place, _, of_kind = line.partition(" - ")
        place, kind = of_place.split(), of_kind.split()
        if len(place) > 4 and len(kind) > 1:
            name = place[4].encode(errors="surrogateescape").decode("unicode_escape")
            found.append((Path(name), f"{kind[1]} ({kind[0]})"))
    return found


def _most_bytes(path: str, tile_bytes: int, *, quick: bool) -> int:
    """Bytes to write and read: whole tiles, one at least for each that is in flight."""
    status = os.statvfs(path)
    most = min(_QUICK_BYTES if quick else _MOST_BYTES, status.f_bavail * status.f_frsize // _PART_OF_FREE)
    return max(IN_FLIGHT, most // tile_bytes) * tile_bytes


def _measured(path: str, tile_bytes: int, nbytes: int, seconds: float) -> MeasuredFolder:
    """Write tiles of a new file, wait for the disk, and read them past the cache."""
    try:
        with tempfile.TemporaryFile(dir=path) as file, closing(ThreadTeam(IN_FLIGHT)) as team:
            descriptor = file.fileno()
            preallocate(descriptor, nbytes, path)
            with closing(opened_access(descriptor)) as access:
                tiles = _Tiles(access, tile_bytes, path)
                began = time.perf_counter()
                written = _moved(team, tiles.write, range(0, nbytes, tile_bytes), seconds)
                os.fsync(descriptor)
                write = written * tile_bytes / (time.perf_counter() - began)
                drop_pages(descriptor, 0, nbytes)
                began = time.perf_counter()
                read = _moved(team, tiles.read, range(0, written * tile_bytes, tile_bytes), seconds)
                rate = read * tile_bytes / (time.perf_counter() - began)
                together = _together(team, tiles, range(0, read * tile_bytes, tile_bytes), descriptor, seconds)
                together /= tile_bytes / rate + tile_bytes / write
                rows = measured_rows(descriptor, written * tile_bytes, team, _PART_OF_ROWS * seconds)
                name = file_system_of(path)
                return MeasuredFolder(path, name, rate, write, together, written * tile_bytes, tile_bytes, access.name, rows)
    except TierError:
        raise
    except OSError as error:
        raise write_error(path, "what its disk is measured with", error) from error


def _moved(team: ThreadTeam, move: Callable[[int], None], offsets: range, seconds: float) -> int:
    """Move tiles, several at once, until all are moved or time is up; returns how many were."""
    deadline = time.perf_counter() + seconds
    for at in range(0, len(offsets), 4 * IN_FLIGHT):
        batch = offsets[at : at + 4 * IN_FLIGHT]
        team.run([partial(move, offset) for offset in batch])
        if time.perf_counter() > deadline:
            return at + len(batch)
    return len(offsets)


def _together(team: ThreadTeam, tiles: _Tiles, offsets: range, descriptor: int, seconds: float) -> float:
    """Seconds of a tile read and a tile written, where both go on at once: every second tile is written anew."""
    drop_pages(descriptor, 0, offsets.stop)
    moves = {True: tiles.write, False: tiles.read}
    began = time.perf_counter()
    moved = _moved(team, lambda at: moves[at // offsets.step % 2 == 1](at), offsets, seconds)
    os.fsync(descriptor)
    return 2 * (time.perf_counter() - began) / moved


class _Tiles:
    """Buffers at pages, as many as are in flight, and their ways to the file and back."""

    def __init__(self, access: AbstractAccess, tile_bytes: int, path: str) -> None:
        self._access, self._path = access, path
        self._buffers: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()
        data = np.random.default_rng(0).bytes(tile_bytes)
        for _ in range(IN_FLIGHT):
            buffer = mmap.mmap(-1, tile_bytes)
            buffer[:] = data
            self._buffers.put(buffer)

    def write(self, offset: int) -> None:
        """Write one tile."""
        self._move(self._access.write, offset)

    def read(self, offset: int) -> None:
        """Read one tile."""
        self._move(self._access.read, offset)

    def _move(self, move: Callable[[memoryview, int, str], None], offset: int) -> None:
        buffer = self._buffers.get()
        try:
            move(memoryview(buffer), offset, self._path)
        finally:
            self._buffers.put(buffer)
