"""The memory of a space on devices: what each holds beside the blocks that pass, in the order in which it is given out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.eigen.space_kernels import CERTIFYING, KernelNeeds
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import ArraySpec
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.dividing import RING_SLOTS, Beside, plan_products
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.sparse.plan import DeviceShare, Diagonals, MultiplyPlan
from ooc_chol.tasks.row_blocks import RowBlocks

#: Small matrices (block, block) that a device works with at a time.
SMALL_MATRICES = 7
#: Flags on a device: a norm fell, a column is weak, and columns that depend.
_FLAGS = 2
#: Bytes that a process gives others at a time: while they take these, it copies the next ones from its devices.
_PIECE_BYTES = 16 << 20
#: Bytes beside these, at which arrays begin.
_MARGIN = 4096


class SpaceSizes(NamedTuple):
    """Sizes of what a space keeps on each device beside the vectors of a product."""

    n_rows: int
    precision: Precision
    block: int
    capacity: int  #: Panels of the basis
    chunks: int  #: Of all rows

    @property
    def columns(self) -> int:
        """Columns of the basis."""
        return self.capacity * self.block

    @property
    def log_entries(self) -> int:
        """Coefficients that are kept until they are read: of a whole basis that grows panel by panel, and of each R."""
        return self.block**2 * (self.capacity * (self.capacity + 1) // 2 + 5 * self.capacity + 8)

    @property
    def norms_shape(self) -> tuple[int, int]:
        """Two small matrices and a diagonal for each group of columns that is certified at a time."""
        wide = max(1, self.block * self.precision.storage.itemsize // CERTIFYING.storage.itemsize)
        return 3 * self.columns, wide

    def arrays(self, rows: range) -> tuple[ArraySpec, ...]:
        """Basis, partial sums, coefficients that are kept, coefficients of one step, small matrices, flags, and norms."""
        storage, compute, b = self.precision.storage, self.precision.compute, self.block
        partial_entries = max((self.columns + b) * b, 2 * self.norms_shape[1] ** 2 * 8 // compute.itemsize)
        turns = 1 if len(rows) == self.n_rows else 2  # others read the last sums while the next are made
        return (
            ArraySpec(storage, (self.capacity, len(rows), b)),
            ArraySpec(compute, (turns, self.chunks * partial_entries)),
            ArraySpec(compute, (self.log_entries,)),
            ArraySpec(compute, (max(self.columns**2, b * b),)),
            ArraySpec(compute, (SMALL_MATRICES, b, b)),
            ArraySpec(np.dtype(np.uint32), (_FLAGS + b,)),
            ArraySpec(CERTIFYING.storage, self.norms_shape),
        )


@dataclass(frozen=True)
class SpacePlan:
    """How a space lies on devices."""

    products: MultiplyPlan  #: Blocks, and memory of each device; products of one panel
    sizes: SpaceSizes  #: Of what is kept beside them

    @property
    def precision(self) -> Precision:
        """Types of vectors and arithmetic."""
        return self.sizes.precision

    @property
    def block(self) -> int:
        """Columns of a panel."""
        return self.sizes.block

    @property
    def capacity(self) -> int:
        """Panels of the basis."""
        return self.sizes.capacity

    @property
    def needs(self) -> KernelNeeds:
        """Sizes and types for which kernels of its devices are made."""
        return KernelNeeds(self.precision, self.block, self.products.blocks.most_segments, self.products.threads)

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""
        return self.products.peak_bytes

    def of(self, shares: Sequence[DeviceShare]) -> SpacePlan:
        """Plan of some of the devices: of those of one process."""
        return replace(self, products=replace(self.products, shares=tuple(shares)))

    @property
    def piece_bytes(self) -> int:
        """Bytes that each process gives the others at a time: no more than a staging buffer of its devices holds."""
        numbers, shares = CERTIFYING.storage.itemsize * self.block, self.products.shares
        sums = numbers * (self.sizes.columns + self.block)
        wanted = max(numbers * self.sizes.n_rows, sums * self.sizes.chunks)
        slots = [share.slot_bytes for share in shares if share.slot_bytes]
        return _MARGIN + max(sums, min(wanted, _PIECE_BYTES, *slots))

    def memory(self) -> dict[str, dict[str, int]]:
        """Bytes of each part of each device."""
        found = {}
        for share in self.products.shares:
            basis, *sums = share.others
            x, w = share.vectors
            found[share.device] = {
                "replica": x.nbytes,
                "w": w.nbytes,
                "diagonals": share.diagonal_bytes,
                "ring": share.ring_bytes,
                "basis": basis.nbytes,
                "sums": sum(spec.nbytes for spec in sums),
                "workspace": share.workspace_bytes,
                "kept": share.kept_bytes,
            }
        return found

    def executed_bytes(self, passes: int) -> int:
        """Bytes of blocks over all links in so many passes, each with one panel."""
        return sum(share.copied_bytes(passes) for share in self.products.shares)

    def __repr__(self) -> str:
        facts: dict[str, object] = {"shape": self.products.blocks.shape, "block": self.block, "capacity": self.capacity}
        facts |= {"precision": self.precision.value, "devices": self.products.devices}
        return one_line(self, facts | {"peak": format_bytes(self.peak_bytes)})


def plan_space(
    blocks: RowBlocks,
    *,
    precision: Precision,
    block: int,
    capacity: int,
    devices: Sequence[str],
    budget_bytes: int,
    tier: str = "memory",
    diagonals: Diagonals,
    rates: PassRates | None = None,
    ring_slots: int = RING_SLOTS,
    threads: int | None = None,
) -> SpacePlan:
    """Divide the budget of each device among a replica of a panel, W, the ring, the basis, and kept blocks, in this order.

    ``threads`` are those of each device, where it is not this machine's cores that they share.

    Raises ``BudgetError`` and ``ValueError``.
    """
    if blocks.shape[0] != blocks.shape[1]:
        raise ValueError(
            f"a space of Krylov vectors needs a square matrix, but this one is {blocks.shape[0]} x {blocks.shape[1]}"
        )
    if threads is None:
        threads = host_threads(len(devices)) if device_kind(devices[0]).is_in_host_memory else 1
    sizes = SpaceSizes(blocks.shape[0], precision, block, capacity, -(-blocks.shape[0] // blocks.chunk_rows))
    needs = KernelNeeds(precision, block, blocks.most_segments, threads)
    products = plan_products(
        blocks,
        block,
        precision,
        devices=devices,
        budget_bytes=budget_bytes,
        workspace=lambda room, threads: needs._replace(threads=threads).workspace_bytes(devices[0], blocks.shape[1]),
        tier=tier,
        diagonals=diagonals,
        rates=rates,
        threads=threads,
        beside=Beside(
            partial(SpaceSizes.arrays, sizes),
            least_row_bytes=CERTIFYING.storage.itemsize,
            ring_slots=ring_slots,
            what=f"one panel, W and a basis of {sizes.columns} vectors",
        ),
    )
    return SpacePlan(products, sizes)
