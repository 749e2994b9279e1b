"""L in a file, of which host memory keeps a fixed set of tiles until the run ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.stores.base import AbstractStore, check_stored, check_tile, closed_error
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.dense.stores.write_behind import WriteBehind
from ooc_chol.formats import Floats, PrecisionFormat, decode, encode
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, BlockIndex
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.process.team import ThreadTeam

#: Threads that write kept tiles to the file: one hashes while the other's disk works; more write no faster.
WRITING_THREADS = 2
#: Kept tiles that may wait to be written. They wait in memory that they have anyway; more would only let the file fall behind.
MOST_WAITING = 64


@final
class TieredStore(AbstractStore):
    """All tiles in a file, and some of them also in host memory, from when they are written until the run ends.

    A kept tile has its place from the beginning, which no other tile ever gets: so what is read there needs no word from anybody
    who might replace it. In left-looking order the tiles that are fetched most often are written early, and each until late: a
    fixed set of these is close to the best that any exchange could do. A kept tile is written to memory, and from there to the
    file by threads; others are written to the file at once. A kept tile is read where it lies, any other from the file. Two
    threads may read and write different tiles at once.
    """

    name = "memory over file"
    wants_word_of_writes = True
    writes_file = True

    def __init__(self, file: AbstractKeptStore, kept: Iterable[tuple[int, int]]) -> None:
        self.file, self.grid, self.fmt = file, file.grid, file.fmt
        self.keeps_unfinished = file.keeps_unfinished
        self._starts: dict[BlockIndex, int] = {}
        end = 0
        for index in sorted({(int(i), int(j)) for i, j in kept}):
            self._starts[index] = end
            end += whole_pages(file.layout.nbytes(*index))
        self.kept_bytes = end
        self._memory = HostMemory()
        self._bytes: NDArray[np.uint8] | None = self._memory.take(self, max(end, 1))
        #: Kept tiles whose bytes went to the file, or are on their way.
        self._sent: set[BlockIndex] = set()
        self._writing = _Writing(file, self._bytes, self._starts)
        self._writer = WriteBehind(self._writing, threads=WRITING_THREADS, most_waiting=MOST_WAITING)

    @property
    def kept(self) -> frozenset[BlockIndex]:
        """Tiles that memory keeps now."""
        return frozenset(self._starts)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.file.nbytes

    @property
    def formats(self) -> tuple[PrecisionFormat, ...] | None:
        return self.file.formats

    def reads_file(self, index: BlockIndex) -> bool:
        """Tell whether memory does not keep tile ``index``."""
        return _key(index) not in self._starts

    def view(self, index: BlockIndex) -> NDArray[Any] | None:
        """Kept tile ``index`` of :attr:`fmt` in place; whoever writes into it says so by :meth:`written`. None for others."""
        raw = self.stored(index)
        if raw is None or self.format_of(index) != self.fmt:
            return None
        return raw.view(self.fmt.dtype).reshape(self.grid.shape(*index))

    def stored(self, index: BlockIndex) -> NDArray[np.uint8] | None:
        start = self._starts.get((index[0], index[1]))
        if start is None:
            return None
        if self._bytes is None:
            raise closed_error(self.name)
        return self._bytes[start : start + self.file.layout.nbytes(*index)]

    def host_memory(self) -> NDArray[np.uint8] | None:
        """All kept tiles, as whole pages; None once there are none."""
        return self._bytes if self._starts else None

    def lock(self, registrar: AbstractRegistrar, order: Iterable[tuple[int, int]]) -> None:
        """Begin to page-lock the kept tiles, those of ``order`` first; copies wait for the piece that they need."""
        if self._starts:
            starts = [(index, self._starts[index]) for index in order if index in self._starts]
            ranges = [(start, start + self.file.layout.nbytes(*index)) for index, start in starts]
            self._memory.lock(registrar, self.kept_bytes, ranges)

    def locking(self) -> AbstractLocking | None:
        """The page-locking of kept tiles, once it has begun."""
        return None if self._bytes is None or not self._starts else self._memory.locking

    def read_by(self, team: ThreadTeam, index: BlockIndex, out: Floats) -> None:
        """Fill ``out`` with tile ``index``, a large one that is in the file alone by all threads of ``team``."""
        if self.stored(index) is None:
            self.file.read_by(team, index, out)
        else:
            self.read(index, out)

    def read_rows(self, index: BlockIndex, rows: range, out: Floats) -> None:
        stored = self.stored(index)
        if stored is None:
            self.file.read_rows(index, rows, out)
            return
        fmt, columns = self.format_of(index), self.grid.size(index[1])
        check_tile(out, (len(rows), columns), fmt, self.fmt)
        tile = self.view(index)
        if tile is not None:
            np.copyto(out, tile[rows.start : rows.stop])
        else:
            decode(stored, fmt, slice(rows.start * columns, rows.stop * columns), out)

    def write(self, index: BlockIndex, data: Floats) -> None:
        """Write ``data`` as tile ``index``, rounded to its format: a kept one to memory, from where it goes to the file."""
        stored = self.stored(index)
        if stored is None:
            self.file.write(index, data)
            return
        fmt = self.format_of(index)
        check_tile(data, self.grid.shape(*index), fmt, self.fmt)
        self._writer.settle(_key(index))
        tile = self.view(index)
        if tile is not None:
            np.copyto(tile, data)
        else:
            encode(data, fmt, stored)
        self.written(index)

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        stored = self.stored(index)
        if stored is None:
            self.file.read_stored(index, out)
        else:
            check_stored(out, len(stored))
            np.copyto(out, stored)

    def write_stored(self, index: BlockIndex, data: NDArray[np.uint8]) -> None:
        stored = self.stored(index)
        if stored is None:
            self.file.write_stored(index, data)
            return
        check_stored(data, len(stored))
        self._writer.settle(_key(index))
        np.copyto(stored, data)
        self.written(index)

    def written(self, index: BlockIndex) -> None:
        """Send kept tile ``index``, which is complete in memory, to the file; waits while too many are on their way."""
        self._sent.add(_key(index))
        self._writer.put(_key(index))

    def widen(self, tiles: Iterable[tuple[int, int]]) -> None:
        """Store these tiles in FP64 from now on, in the file alone: memory has no room for their wider bytes."""
        self._writer.drain()
        before = self.formats
        self.file.widen(wider := [(int(i), int(j)) for i, j in tiles])
        if before is None:
            return
        for index in wider:
            if before[self.grid.packed(*index)] != self.format_of(index):
                self._starts.pop(index, None)
                self._sent.discard(index)

    def confirm(self, index: BlockIndex) -> None:
        self.file.confirm(index)

    def distrust(self, since: float) -> None:
        """Let tiles that the file has got since then be unwritten there."""
        self.settle()
        self.file.distrust(since)

    def forget(self, tiles: Iterable[tuple[int, int]]) -> None:
        self.settle()
        self.file.forget(tiles)

    def settle(self) -> None:
        """Wait until the file has all kept tiles that are complete in memory."""
        if not self._writer.is_closed:
            self._writer.drain()

    def flush(self) -> None:
        """Make durable what is in the file."""
        self.file.flush()

    def describe(self, arithmetic_key: Mapping[str, Any]) -> None:
        """Let the header of the file say this key once it is complete."""
        self.file.describe(arithmetic_key)

    def complete(self) -> None:
        """Wait until all is in the file, complete that, and give the memory up."""
        if not self._writer.is_closed:
            # Of a run that was ended and taken up again, tiles may be complete in memory that nobody has told of.
            for index in sorted(self._starts.keys() - self._sent):
                self.written(index)
            self._writer.drain()
            self._writer.close()
        self.file.complete()
        self._give_up()

    def result(self) -> AbstractStore:
        """The file, once it is complete."""
        return self.file

    def discard(self) -> None:
        """Stop writing, free the memory, and discard the file."""
        self._end(self.file.discard)

    def close(self) -> None:
        """Stop writing, free the memory, and close the file; a second call does nothing."""
        self._end(self.file.close)

    def _end(self, end_file: Any) -> None:
        try:
            self._writer.close()  # no thread writes to a descriptor that is closed
        finally:
            try:
                self._give_up()
            finally:
                end_file()

    def _give_up(self) -> None:
        """Give the memory up or back; all tiles are read from the file from now on."""
        self._starts.clear()
        if self._bytes is not None:
            self._bytes = self._writing.memory = None
            self._memory.give_back()
            self._memory.close()


def file_of(store: AbstractStore) -> AbstractKeptStore:
    """The file, or Zarr group, of a store that has one."""
    file = store.file if isinstance(store, TieredStore) else store
    assert isinstance(file, AbstractKeptStore)
    return file


def _key(index: BlockIndex) -> BlockIndex:
    return index[0], index[1]


@final
class _Writing:
    """Writes a kept tile to the file; it does not know the store, whose end must end its threads."""

    def __init__(self, file: AbstractKeptStore, memory: NDArray[np.uint8], starts: Mapping[BlockIndex, int]) -> None:
        self._file, self._starts = file, starts
        self.memory: NDArray[np.uint8] | None = memory

    def __call__(self, index: BlockIndex) -> None:
        start, memory = self._starts[index], self.memory
        assert memory is not None  # it is given up behind the threads' end
        self._file.write_stored(index, memory[start : start + self._file.layout.nbytes(*index)])
