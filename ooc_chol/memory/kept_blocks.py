"""Blocks of a file, some of which stay in host memory once they were read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, BlockIndex
from ooc_chol.memory.blocks import FOR_BLOCKS, AbstractBlockTier
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.process.team import ThreadTeam, cores

#: Threads that copy a block which was just read, and bytes that each copies at a time.
_COPYING_THREADS, _COPIED_BYTES = 4, 8 << 20


@final
class KeptBlocks(AbstractBlockTier):
    """The blocks of a file, of which ``kept`` ones are read from it once; the file is not closed by this."""

    name = "file"

    def __init__(self, file: AbstractBlockTier, kept: Sequence[int]) -> None:
        self._file, self.sizes = file, file.sizes
        self._offsets: dict[int, int] = {}
        self._end = 0
        for number in kept:
            self._offsets[number] = self._end
            self._end += whole_pages(file.sizes[number])
        self._memory = HostMemory()
        self._bytes: NDArray[np.uint8] | None = self._memory.take(self, self._end, FOR_BLOCKS)
        self._are_there: set[int] = set()
        self._team = ThreadTeam(min(_COPYING_THREADS, cores()))

    def reads_file(self, index: BlockIndex) -> bool:
        return index[0] not in self._are_there

    def stored(self, index: BlockIndex) -> NDArray[np.uint8] | None:
        return self._place(index[0]) if index[0] in self._are_there else None

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        """Fill the first bytes of ``out`` with a block; one that is kept is there from now on."""
        number, data = index[0], out[: self.sizes[index[0]]]
        if number in self._are_there:
            self._copy(self._place(number), data)
            return
        self._file.read_stored(index, out)
        if number in self._offsets and self._bytes is not None:
            self._copy(data, self._place(number))
            self._are_there.add(number)

    def _place(self, number: int) -> NDArray[np.uint8]:
        assert self._bytes is not None
        return self._bytes[self._offsets[number] : self._offsets[number] + self.sizes[number]]

    def _copy(self, data: NDArray[np.uint8], to: NDArray[np.uint8]) -> None:
        parts = [slice(at, at + _COPIED_BYTES) for at in range(0, data.size, _COPIED_BYTES)]
        self._team.run([partial(np.copyto, to[part], data[part]) for part in parts])

    def host_memory(self) -> NDArray[np.uint8] | None:
        """The memory of the blocks that are kept."""
        return self._bytes

    def lock(self, registrar: AbstractRegistrar, order: Iterable[BlockIndex]) -> None:
        """Begin to page-lock the memory, that of the first blocks of ``order`` first."""
        places = [(self._offsets[number], self.sizes[number]) for number, _ in order if number in self._offsets]
        self._memory.lock(registrar, self._end, [(start, start + size) for start, size in places])

    def locking(self) -> AbstractLocking | None:
        return None if self._bytes is None else self._memory.locking

    def close(self) -> None:
        """Give the memory up; a second call does nothing."""
        self._are_there.clear()
        self._bytes = None
        self._memory.give_back()
        self._memory.close()
        self._team.close()
