"""Choosing among plans of an L in a file: what their fetches cost, before programs are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import final

from ooc_chol.config import whole_pages
from ooc_chol.dense.planner.file_tier import chosen_tiles
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.residency import AbstractResidencySink
from ooc_chol.tasks.cholesky import Task
from ooc_chol.tasks.tiling import Index

#: What a fetch from host memory costs of one from a file where no rates tell.
_USUAL_SHARE = 0.1


@final
class TileCounter(AbstractResidencySink):
    """Counts how often each tile of L is fetched, and the fetches of A."""

    def __init__(self) -> None:
        self.of_tiles: Counter[Index] = Counter()
        self.of_a = 0

    def fetch(self, index: Index, version: int) -> None:
        if version:
            self.of_tiles[index] += 1
        else:
            self.of_a += 1

    def compute(self, task: Task) -> None:
        """Ignore the move: only fetches count."""

    def write(self, index: Index, version: int) -> None:
        """Ignore the move: only fetches count."""

    def evict(self, index: Index) -> None:
        """Ignore the move: only fetches count."""

    def cost(self, host_bytes: int, stored_bytes: Callable[[Index], int], rates: Rates | None) -> float:
        """Cost of all fetches, in tiles read from a file, with the best of them in so many bytes of host memory."""
        kept = chosen_tiles(self.of_tiles, host_bytes, stored_bytes)
        spared = sum(self.of_tiles[index] for index in kept)
        return self.of_a + self.of_tiles.total() - spared * (1 - _share_of_memory(rates))


def _share_of_memory(rates: Rates | None) -> float:
    """Cost of a fetch from host memory as a share of one from a file, at most 1."""
    if rates is None:
        return _USUAL_SHARE
    from_file = rates.fetch if rates.disk is None else rates.disk.read
    return min(1.0, from_file / (rates.memory_fetch or rates.fetch))


def rates_for_estimates(rates: Rates, host_bytes: int, n_tiles: int, tile_bytes: float, n_devices: int) -> Rates:
    """``rates`` with the bytes of L that one device fetches in a second on an average, from host memory and file together.

    Left-looking, tile (i, j) is fetched about as often as it lies below the diagonal, ``i - j``, in proportion: with a part ``f``
    of all tiles in memory, those with ``i - j >= x nt``, ``x = 1 - sqrt(f)``, a share ``1 - 3 x**2 + 2 x**3`` of the fetches is
    answered there.
    """
    part = min(1.0, host_bytes / (n_tiles * whole_pages(int(tile_bytes))))
    x = 1.0 - sqrt(part)
    kept = 1.0 - 3.0 * x**2 + 2.0 * x**3
    in_memory = 1.0 / (rates.memory_fetch or rates.fetch)
    if rates.disk is None:
        seconds = kept * in_memory + (1.0 - kept) / rates.fetch
    else:
        seconds = max(in_memory, n_devices * (1.0 - kept) / rates.disk.read)
    return replace(rates, fetch=1.0 / seconds)
