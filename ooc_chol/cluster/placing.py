"""Where tasks of a cluster run, and in which order: hints for Dask's scheduler, which decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.model import chain_urgency
from ooc_chol.schedulers.ownership import balanced_rows

#: The resource that workers with a GPU announce by custom (``dask worker --resources GPU=1``): one task takes one.
GPU_RESOURCE = "GPU"


@dataclass(frozen=True)
class Placing:
    """The worker that each block row had best be made on: its earlier blocks are there."""

    workers: tuple[str, ...]  #: Addresses of the workers
    owners: tuple[int, ...]  #: By block row, a position in ``workers``
    #: What each task takes of what workers announce; empty where they announce nothing
    resources: Mapping[str, float] = field(default_factory=dict)
    retries: int = 0  #: How often Dask runs a task again that failed to read or write

    @classmethod
    def of(cls, blocks: BlockGrid, workers: tuple[str, ...], resources: Mapping[str, float], retries: int) -> Placing:
        """Block rows dealt out so that each worker has about as much work."""
        return cls(workers, balanced_rows(blocks.n_blocks, len(workers)), resources, retries)

    def owner(self, place: BlockPlace) -> str:
        """The worker that a block had best be made on."""
        return self.workers[self.owners[place.row]]

    def coming(self, place: BlockPlace) -> BlockPlace | None:
        """The worker's first block of the next column, if it may bring what others made of that column's row beside this block.

        It does so beside the first one below the diagonal that it makes in a column, as others wait for what is diagonal. None
        where this is another one, where the worker has none in the next column, and where that row is its own.
        """
        owner, after = self.owners[place.row], place.column + 1
        if owner not in self.owners[after:] or self.owners[after] == owner or place.row != self.owners.index(owner, after):
            return None
        return BlockPlace(place.row, after)

    def hints(self, place: BlockPlace) -> dict[str, Any]:
        """Hints to Dask for the task of a block: a worker that is lost or late is replaced by another."""
        return {**self.near(place), "priority": priority(place), "retries": self.retries, "resources": self.resources or None}

    def near(self, place: BlockPlace) -> dict[str, Any]:
        """Hints to Dask on where a block's entries of A had best be made."""
        return {"workers": [self.owner(place)], "allow_other_workers": True}


def priority(place: BlockPlace) -> int:
    """Greater for what longer chains of tasks wait for, as plans of a cluster have it."""
    return -chain_urgency(place)
