"""Seconds of a pass on a space: what the link brings, what is multiplied, and what is orthogonalized beside it."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.hardware.registry import device_kind
from ooc_chol.sparse.dividing import RING_SLOTS
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.sparse.plan import DeviceShare

#: How often a projection reads the basis: for inner products and to subtract, and in half of all cases both once more.
_BASIS_READS = 3.0
#: What a host core takes for a read of the basis, of half a copy: with panels of more than one column, and times that where
#: numbers are made wider on the way (measured: docs/lab-notes.md). GPUs are taken as bound by their memory.
_HOST_READ, _HOST_WIDENING = 2.0, 2.0
#: How often a panel is read or written while it is projected and made orthonormal.
_PANEL_READS = 8.0


@dataclass(frozen=True)
class PassSeconds:
    """Predicted seconds of one product with a panel and of what follows it, on the slowest device."""

    link: float | None  #: Seconds of the link for blocks that are not kept; None from a file, whose rate is not known
    product: float  #: Seconds in which blocks are multiplied
    orthogonalization: float  #: Seconds of projecting a panel, of making it orthonormal, and of its part of a restart
    overlap: float  #: Seconds that the link works for the next product while vectors are orthogonalized

    @property
    def total(self) -> float | None:
        """Seconds from one product to the next; None from a file."""
        if self.link is None:
            return None
        return self.orthogonalization + max(self.product, self.link - self.overlap)


def pass_seconds(space: SpacePlan, kept_panels: int) -> PassSeconds | None:
    """Predicted seconds of a pass by measured rates; None where no rates of the device are known."""
    products, block = space.products, space.block
    if (rates := products.rates) is None:
        return None
    row_bytes = block * products.entry_bytes

    def multiplied(share: DeviceShare) -> float:
        return sum(
            rates.product_seconds(each, row_bytes) for each in products.blocks.blocks[share.blocks.start : share.blocks.stop]
        )

    own = _orthogonalization_seconds(space, kept_panels, rates)
    link = max(((share.copied_bytes(2) - share.copied_bytes(1)) / rates.link for share in products.shares), default=0.0)
    ring = min((share.ring_bytes / rates.link for share in products.shares), default=0.0)
    is_file = products.tier == "file"
    product = max(map(multiplied, products.shares), default=0.0)
    return PassSeconds(None if is_file else link, product, own, 0.0 if is_file else min(ring, own, link))


def _orthogonalization_seconds(space: SpacePlan, kept: int, rates: PassRates) -> float:
    """Seconds of a device's memory for one new panel: projections on a basis that is half full, and its part of a restart."""
    rows = max((len(share.rows) for share in space.products.shares), default=0)
    panel_bytes = rows * space.block * space.products.entry_bytes
    restart = (space.capacity + kept) / max(1, space.capacity - kept)
    seconds = (_BASIS_READS * (space.capacity + kept) / 2 + _PANEL_READS + restart) * panel_bytes / (2 * rates.memory)
    if not device_kind(space.products.devices[0]).is_in_host_memory:
        return seconds
    is_widened = space.precision.storage != space.precision.compute
    return seconds * (_HOST_READ if space.block > 1 else 1.0) * (_HOST_WIDENING if is_widened else 1.0)


def wanted_ring(space: SpacePlan, kept_panels: int) -> int:
    """Slots of the ring with which the link need not wait while a panel is orthogonalized; three without rates, at most all."""
    seconds, rates = pass_seconds(space, kept_panels), space.products.rates
    ringed = [share for share in space.products.shares if share.ring_slots]
    if seconds is None or rates is None or seconds.link is None or not ringed:
        return RING_SLOTS
    largest = max(share.slot_bytes for share in ringed)
    wanted = 1 + -(-int(seconds.orthogonalization * rates.link) // largest)
    return max(RING_SLOTS, min(wanted, max(len(share.blocks) - share.n_kept for share in ringed)))
