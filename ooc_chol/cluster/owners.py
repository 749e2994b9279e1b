"""Which worker owns which block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ooc_chol.cluster.blocks import BlockPlace
from ooc_chol.display.prints import brief_repr
from ooc_chol.schedulers.ownership import balanced_rows


@dataclass(frozen=True)
class BlockOwners:
    """Block rows dealt to groups of workers, and the blocks of a row to the workers of its group in turn."""

    n_blocks: int
    n_row_groups: int  #: Groups that block rows are dealt to, balanced
    n_columns: int = 1  #: Workers of a group; with 1, all blocks of a row are one worker's

    __repr__ = brief_repr

    @property
    def n_workers(self) -> int:
        """Workers that own blocks, where there are blocks enough."""
        return self.n_row_groups * self.n_columns

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The group of each block row."""
        return balanced_rows(self.n_blocks, self.n_row_groups)

    def of(self, place: BlockPlace) -> int:
        """The worker of a block."""
        return self.rows[place.row] * self.n_columns + place.column % self.n_columns

    def count_of_others(self, row: int, first: int, stop: int, worker: int) -> int:
        """How many of the blocks ``first <= column < stop`` of a row are not a worker's own."""
        group, turn = divmod(worker, self.n_columns)
        if group != self.rows[row]:
            return stop - first
        own = (stop - turn - 1) // self.n_columns - (first - turn - 1) // self.n_columns
        return stop - first - own
