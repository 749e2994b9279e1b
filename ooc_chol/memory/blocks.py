"""Blocks of bytes in host memory, written once, one behind the other, and then only read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.errors import BudgetError, ClosedError
from ooc_chol.interfaces import AbstractLocking, AbstractRegistrar, AbstractTier, BlockIndex
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.pages import Purpose

#: What the memory is for.
FOR_BLOCKS = Purpose("host memory for the blocks of A", "keep them in a file (store=)")


class AbstractBlockSink(ABC):
    """Interface of a sink that takes blocks of bytes in order, each once."""

    @abstractmethod
    def room(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory for the next block, to be filled wholly before :meth:`put`."""

    @abstractmethod
    def put(self, data: NDArray[np.uint8]) -> None:
        """Take the block that :meth:`room` gave memory for."""


class AbstractBlockTier(AbstractTier):
    """A tier of blocks ``(0, 0)``, ``(1, 0)`` and so on that are bytes, of which only devices and kernels make numbers."""

    is_only_read = True
    #: Bytes of each block.
    sizes: list[int]

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(self.sizes)

    def read(self, index: BlockIndex, out: NDArray[Any]) -> NoReturn:
        """Refuse: blocks of bytes have no numbers."""
        raise TypeError(f"block {index} is bytes and no tile of numbers: read_stored reads it")

    def write(self, index: BlockIndex, data: NDArray[Any]) -> NoReturn:
        """Refuse: blocks of bytes are written once, by whoever makes them."""
        raise TypeError(f"block {index} is bytes and no tile of numbers, and it is only read")


@final
class BlockMemory(AbstractBlockTier, AbstractBlockSink):
    """Blocks in one piece of host memory, each at a page; those from number ``first`` on."""

    name = "memory"

    def __init__(self, most_bytes: int, memory: HostMemory | None = None, *, first: int = 0) -> None:
        self._first = first
        self._memory, self._is_own = memory or HostMemory(), memory is None
        self._bytes: NDArray[np.uint8] | None = self._memory.take(self, most_bytes, FOR_BLOCKS)
        self._end = 0
        self._offsets: list[int] = []
        self.sizes = []

    def room(self, nbytes: int) -> NDArray[np.uint8]:
        memory = self._open()
        if self._end + nbytes > memory.size:
            advice = "the source holds more entries than it said; keep the blocks in a file (store=)"
            raise BudgetError("host memory for the blocks of A", self._end + nbytes, memory.size, advice)
        return memory[self._end : self._end + nbytes]

    def put(self, data: NDArray[np.uint8]) -> None:
        """Note the block, which is where it should be."""
        self._offsets.append(self._end)
        self.sizes.append(data.size)
        self._end += whole_pages(data.size)

    def stored(self, index: BlockIndex) -> NDArray[np.uint8]:
        number = index[0] - self._first
        return self._open()[self._offsets[number] : self._offsets[number] + self.sizes[number]]

    def read_stored(self, index: BlockIndex, out: NDArray[np.uint8]) -> None:
        stored = self.stored(index)
        np.copyto(out[: stored.size], stored)

    def host_memory(self) -> NDArray[np.uint8] | None:
        """The memory of all blocks, as whole pages; None once it is closed, or where there are none."""
        return None if self._bytes is None or not self._end else self._bytes[: self._end]

    def lock(self, registrar: AbstractRegistrar, order: Iterable[BlockIndex]) -> None:
        """Begin to page-lock the blocks, those of ``order`` first; copies wait for the piece that they need."""
        if self._end and self._bytes is not None:
            numbers = [index[0] - self._first for index in order]
            starts = [(self._offsets[number], self.sizes[number]) for number in numbers]
            self._memory.lock(registrar, self._end, [(start, start + size) for start, size in starts])

    def locking(self) -> AbstractLocking | None:
        """The page-locking of all blocks, once it has begun."""
        return None if self._bytes is None else self._memory.locking

    def close(self) -> None:
        """Give the memory up or back; a second call does nothing. What is page-locked is freed some seconds later."""
        if self._bytes is not None:
            self._memory.give_back()
            if self._is_own:
                self._memory.close()
        self._bytes = None

    def _open(self) -> NDArray[np.uint8]:
        if self._bytes is None:
            raise ClosedError("these blocks were closed: pack the matrix again, or keep it open for as long as it is used")
        return self._bytes
