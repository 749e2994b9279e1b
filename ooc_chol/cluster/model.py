"""Costs of tasks on a cluster: flops, bytes of operands and of the result, seconds; and the order in which tasks are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.display.prints import brief_repr

#: More block rows than any run has.
_MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class WorkerRates:
    """Rates and memory of one worker.

    Raises ``ValueError``: a rate or the memory is not positive.
    """

    memory_bytes: int  #: Bytes for blocks of L and for the task that runs
    #: Rate of long products; None where nobody measured it, and then no seconds are predicted
    flops_per_second: float | None = None
    panel_flops_per_second: float | None = None  #: Rate of POTRF and TRSM of tiles; by default that of products
    #: From the worker's memory to its GPU; None where the worker computes in that memory
    link_bytes_per_second: float | None = None
    kept_share: float | None = None  #: Part of the operands that its GPUs have kept from tasks before; None where they keep none

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        _check_positive("a worker", vars(self))


@dataclass(frozen=True)
class ClusterRates:
    """Rates of network, storage and scheduler between the workers.

    Raises ``ValueError``: a rate is not positive, or seconds are negative.
    """

    network_bytes_per_second: float  #: Into one worker
    storage_bytes_per_second: float | None = None  #: Between one worker and the Zarr group
    #: Between all workers together and the Zarr group; by default without limit
    storage_total_bytes_per_second: float | None = None
    #: What a task takes beside its work: a run of this package is planned and opened on the worker
    overhead_seconds: float = 0.05
    #: What Dask's scheduler, which is one process, takes for each task, and for each dependency of a task
    scheduler_seconds: float = 1e-3
    dependency_seconds: float = 1e-4

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        _check_positive("a cluster", {name: value for name, value in vars(self).items() if not name.endswith("_seconds")})
        for name in ("overhead_seconds", "scheduler_seconds", "dependency_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} of a cluster is {getattr(self, name)}, but seconds are not negative")

    def storage_rate(self, n_workers: int) -> float | None:
        """Bytes per second between one worker and the Zarr group while all of them use it; None where it is not known."""
        shared = None if self.storage_total_bytes_per_second is None else self.storage_total_bytes_per_second / n_workers
        known = [rate for rate in (self.storage_bytes_per_second, shared) if rate is not None]
        return min(known, default=None)


def _check_positive(owner: str, values: dict[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} of {owner} is {value}, but must be positive")


class PartCost(NamedTuple):
    """Cost of a part of a block's sum; the last part finishes the block."""

    product_flops: float
    panel_flops: float
    operand_bytes: int
    exposed: float = 1.0  #: Share of the panels beside which a GPU has no products

    def seconds(self, rates: WorkerRates) -> float:
        """Seconds on a worker: products, and what follows them, while operands stream to the GPU."""
        assert rates.flops_per_second is not None
        products = self.product_flops / rates.flops_per_second
        panels = self.panel_flops / (rates.panel_flops_per_second or rates.flops_per_second)
        if rates.link_bytes_per_second is None:
            return products + panels
        computing = max(panels, products + self.exposed * panels)
        return max(computing, (1.0 - (rates.kept_share or 0.0)) * self.operand_bytes / rates.link_bytes_per_second)


@dataclass(frozen=True)
class BlockCosts:
    """Flops and bytes of blocks, and of parts of them."""

    blocks: BlockGrid  #: How the triangle is cut
    itemsize: int = 8  #: Bytes of an entry of L

    def nbytes(self, place: BlockPlace) -> int:
        """Bytes of a block of L: of its tiles, those of a diagonal block in its lower triangle only, whole diagonal tiles."""
        rows, columns = len(self.blocks.rows(place.row)), len(self.blocks.rows(place.column))
        if place.row != place.column:
            return rows * columns * self.itemsize
        nb, tiles = self.blocks.tiles.nb, len(self.blocks.span(place.row))
        last = rows - (tiles - 1) * nb
        return (nb * nb * tiles * (tiles - 1) // 2 + last * (tiles - 1) * nb + last * last) * self.itemsize

    def row_bytes(self, row: int, columns: int) -> int:
        """Bytes of the first blocks of a block row, so many of them, all left of its diagonal block."""
        return len(self.blocks.rows(row)) * self.blocks.rows(columns).start * self.itemsize if columns else 0

    def part(self, place: BlockPlace, first: int, stop: int) -> PartCost:
        """The cost of ``A[s, p] -= L[s, q] @ L[p, q].T`` for ``first <= q < stop``, and of POTRF or TRSM where ``stop == p``."""
        (row, column), grid = place, self.blocks
        rows, columns = len(grid.rows(row)), len(grid.rows(column))
        terms = grid.rows(stop).start - grid.rows(first).start
        is_last, is_diagonal = stop == column, row == column
        products = float(rows) * columns * terms * (1 if is_diagonal else 2)
        panel, within = self._finishing(rows, columns, is_diagonal=is_diagonal) if is_last else (0.0, 0.0)
        operands = terms * (rows if is_diagonal else rows + columns) * self.itemsize
        if is_last and not is_diagonal:
            operands += self.nbytes(BlockPlace(column, column))
        # Where all of L is one block, streams of their own make panels beside the products of others but for the last.
        exposed = 1 / len(grid.span(0)) if grid.n_blocks == 1 else 1.0
        return PartCost(products + within, panel, operands, exposed)

    def _finishing(self, rows: int, columns: int, *, is_diagonal: bool) -> tuple[float, float]:
        """Flops that finish a block: of POTRF and TRSM of tiles, and of the products between its tiles."""
        nb = min(self.blocks.tiles.nb, columns)
        if is_diagonal:
            panel = columns * nb * nb / 3 + columns * (columns - nb) * nb / 2
            return panel, columns**3 / 3 - panel
        return float(rows) * columns * nb, float(rows) * columns * (columns - nb)

    def flops(self, place: BlockPlace) -> float:
        """All flops of a block; those of all blocks are ``n**3 / 3``."""
        cost = self.part(place, 0, place.column)
        return cost.product_flops + cost.panel_flops


def column_urgency(place: BlockPlace) -> int:
    """Priority of a block, smaller ones first: column by column, but before each the block that the next one begins with."""
    is_in_chain = place.row - place.column <= 1
    return (place.column - is_in_chain) * _MOST_ROWS + (place.row - place.column if is_in_chain else place.row)


def chain_urgency(place: BlockPlace) -> int:
    """Priority of a block, smaller ones first: the order of the longest chains of tasks that begin with it.

    From block ``(s, p)`` a chain leads along its row, where a block costs ``2 q`` units of work, to the diagonal, and from there
    on down the diagonal and the blocks below it, ``3 q`` units a column: what is left of it falls as ``p**2 + s**2 / 2`` grows.
    """
    return 2 * place.column**2 + place.row**2


#: Orders in which a worker takes the tasks that are ready.
ORDERS = {"columns": column_urgency, "chains": chain_urgency}


def part_bounds(place: BlockPlace, *, reach: int) -> Sequence[int]:
    """Where a block's sum is cut: nowhere in the plain order (``reach`` 0), else so that early parts need not wait for late ones.

    Blocks within ``reach`` of the diagonal are summed in parts that double in length from the last one back: the part of ``m``
    block columns waits for operands that are there ``m`` columns before the block is finished.
    """
    column, bounds, length = place.column, [place.column], 1
    if place.row - column < reach:
        while bounds[0] > length:
            bounds.insert(0, bounds[0] - length)
            length *= 2
    return [0, *bounds] if bounds[0] > 0 or column == 0 else bounds
