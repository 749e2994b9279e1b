"""Row blocks of a sparse matrix: which rows each has, and where its parts lie in its bytes.

A block is one contiguous run of bytes, so that it is one copy. Its parts, each at a multiple of :data:`ALIGNMENT`:

- starts of rows, uint32: ``n_rows + 1``, entries of the block before each row;
- work groups, uint32: ``n_groups + 1`` pairs (row of the block, entry of the block) at which each begins;
- columns, int32;
- values: none (all entries are one number), int8, float32 or float64.

A work group is a run of at most :data:`GROUP_ROWS` rows of at most :data:`GROUP_ENTRIES` entries together. A row of more entries
is *long*: a segment of :data:`SEGMENT_ENTRIES` entries of it, the last one shorter, is a group of its own. Sums of a row's
segments are added in order. So the sum of a row depends on the row alone, whatever block it is part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ooc_chol.display.prints import brief_repr

#: Entries and rows of a work group, and entries of a segment of a long row.
GROUP_ENTRIES, GROUP_ROWS, SEGMENT_ENTRIES = 2048, 2048, 4096
#: Multiples of bytes at which parts of a block begin, and at which blocks begin in a file or in memory.
ALIGNMENT, BLOCK_ALIGNMENT = 128, 4096
#: Most entries of a block, whose positions in it are int32 numbers to the host's kernels.
MOST_ENTRIES = 2**31 - 1
#: Rows of a chunk: several devices share rows in whole chunks. A block holds whole chunks, or a part of one.
CHUNK_ROWS = 65536


class ValueKind(Enum):
    """How the values of a block are stored: the narrowest kind that holds all of them exactly."""

    PATTERN = "pattern"  #: All are one number, which stands in the block's facts
    INT8 = "int8"
    FP32 = "fp32"
    FP64 = "fp64"

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's type; None where no values are stored."""
        return _TYPES[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return 0 if (dtype := self.dtype) is None else dtype.itemsize


_TYPES: dict[ValueKind, np.dtype[Any] | None] = {
    ValueKind.PATTERN: None,
    ValueKind.INT8: np.dtype(np.int8),
    ValueKind.FP32: np.dtype(np.float32),
    ValueKind.FP64: np.dtype(np.float64),
}


class BlockParts(NamedTuple):
    """The parts of a block, views of its bytes: NumPy's arrays or CuPy's, as the bytes are."""

    starts: Any  #: (n_rows + 1,) uint32
    groups: Any  #: (n_groups + 1, 2) uint32
    columns: Any  #: (n_entries,) int32
    values: Any  #: (n_entries,) of the kind's type; None of a pattern


class RowBlock(NamedTuple):
    """Facts of one block without its bytes."""

    first_row: int
    n_rows: int
    n_entries: int
    n_groups: int
    n_segments: int  #: Groups that are segments of long rows
    kind: ValueKind
    value: float  #: Of every entry of a pattern; 1 for other kinds
    offset: int  #: Of its first byte in what holds all blocks, a multiple of :data:`BLOCK_ALIGNMENT`

    @property
    def rows(self) -> range:
        """Rows of the matrix that it has."""
        return range(self.first_row, self.first_row + self.n_rows)

    @property
    def segment_places(self) -> int:
        """Places for sums of segments of long rows: where a row has its own follows from where in the block it begins.

        Those of a row are numbered from ``first_entry // GROUP_ENTRIES`` on. A row of more than :data:`GROUP_ENTRIES` entries has
        a segment for each :data:`SEGMENT_ENTRIES`, which is twice as many, so that no two rows share a place.
        """
        return self.n_entries // GROUP_ENTRIES if self.n_segments else 0

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return 4 * (self.n_rows + 1), 8 * (self.n_groups + 1), 4 * self.n_entries, self.kind.itemsize * self.n_entries

    @property
    def nbytes(self) -> int:
        """Bytes of its parts, each rounded up to :data:`ALIGNMENT`."""
        return sum(map(_aligned, self._sizes))

    def parts(self, data: Any) -> BlockParts:
        """Its parts in ``data``, an array of :attr:`nbytes` uint8 (or more) that holds its bytes."""
        views: list[Any] = []
        at = 0
        types = (np.dtype(np.uint32), np.dtype(np.uint32), np.dtype(np.int32), self.kind.dtype)
        for size, dtype in zip(self._sizes, types, strict=True):
            views.append(None if dtype is None else data[at : at + size].view(dtype))
            at += _aligned(size)
        starts, groups, columns, values = views
        return BlockParts(starts, groups.reshape(-1, 2), columns, values)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class RowBlocks:
    """All blocks of a matrix, in the order of their rows."""

    shape: tuple[int, int]  #: Rows and columns of the matrix
    blocks: Sequence[RowBlock]  #: They cover all rows, each row once; a matrix without rows has none
    chunk_rows: int = CHUNK_ROWS  #: No block that holds part of a chunk of so many rows holds anything of another chunk

    __repr__ = brief_repr

    @cached_property
    def n_entries(self) -> int:
        """Entries that are stored."""
        return sum(block.n_entries for block in self.blocks)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for block in self.blocks)

    @cached_property
    def largest_bytes(self) -> int:
        """Bytes of the largest block."""
        return max((block.nbytes for block in self.blocks), default=0)

    @cached_property
    def most_segments(self) -> int:
        """Most places for sums of segments of long rows in one block: so many partial sums a column may wait to be added."""
        return max((block.segment_places for block in self.blocks), default=0)

    @property
    def dense_entries(self) -> int:
        """Entries of the matrix, stored or not."""
        return prod(self.shape)

    def shares(self, count: int, of: range | None = None, *, of_chunks: bool = True) -> list[range]:
        """Blocks of each of ``count`` devices: runs of whole chunks, about equal in entries; some may have none.

        Of some blocks that follow each other where these are given, and of parts of chunks unless ``of_chunks``.
        """
        own = range(len(self.blocks)) if of is None else of
        total, before, wanted = sum(self.blocks[number].n_entries for number in own), 0, 1
        ends = [own.start]
        for number in own:
            block = self.blocks[number]
            if wanted < count and number > own.start and (not of_chunks or block.first_row % self.chunk_rows == 0):
                # A boundary lies where it is nearest to the share.
                while wanted < count and before + block.n_entries / 2 >= wanted * total / count:
                    ends.append(number)
                    wanted += 1
            before += block.n_entries
        ends += [own.stop] * (count + 1 - len(ends))
        return [range(first, end) for first, end in pairwise(ends)]
