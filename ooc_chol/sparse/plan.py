"""The plan of products with a packed sparse matrix: what every device holds, and what crosses each link in a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.config import format_bytes, whole_pages
from ooc_chol.display.prints import brief_repr
from ooc_chol.interfaces import ArraySpec
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.tasks.row_blocks import RowBlocks, ValueKind

#: Share of a panel's columns that must be asked for, else it is not padded up to that width.
_LEAST_FILLED = 3 / 4
#: Devices that have a line of their own on the printed page.
_MOST_DEVICES = 8


class Diagonals(NamedTuple):
    """Which factors of an operator are vectors: those take memory on every device, single numbers take none."""

    left: bool = False
    right: bool = False
    shift: bool = False


NO_DIAGONALS = Diagonals()


@dataclass(frozen=True)
class DeviceShare:
    """Share of one device in every pass, and how its memory is divided."""

    device: str
    blocks: range  #: Numbers of the blocks that it multiplies
    rows: range  #: Rows of the matrix that these have
    n_entries: int
    stored_bytes: int
    in_place: bool  #: Whether it reads them where they are: a host device does, of blocks in host memory
    vectors: tuple[ArraySpec, ...]  #: Two replicas of the panels of a scan, current and next, as numbers one behind the other
    diagonals: tuple[ArraySpec, ...]  #: The operator's vectors: left and shift of its own rows, right of all columns
    workspace_bytes: int  #: Bytes that the kernels take for partial sums, or for vectors in another type
    slot_bytes: int  #: Bytes of a slot of the ring: its largest block, in whole pages; 0 where all blocks are read in place
    ring_slots: int  #: How many of these there are; 0 where all its blocks are kept, or read in place
    n_kept: int  #: How many of its blocks stay on the device after the first pass, the first ones
    kept_bytes: int  #: Bytes of these, which are tightly packed
    made: range  #: Rows of Y for which it has room: all where Y may be the next X, else its own
    others: tuple[ArraySpec, ...] = ()  #: What somebody else keeps on the device, beside the products

    __repr__ = brief_repr

    @property
    def vector_bytes(self) -> int:
        """Bytes of the two replicas."""
        return bytes_of(self.vectors)

    @property
    def diagonal_bytes(self) -> int:
        """Bytes of the operator's vectors."""
        return bytes_of(self.diagonals)

    @property
    def other_bytes(self) -> int:
        """Bytes of what is kept beside the products."""
        return bytes_of(self.others)

    @property
    def ring_bytes(self) -> int:
        """Bytes of the slots in transit."""
        return self.ring_slots * self.slot_bytes

    @property
    def peak_bytes(self) -> int:
        """Bytes that the device allocates, in one piece."""
        fixed = self.vector_bytes + self.diagonal_bytes + self.other_bytes + self.workspace_bytes
        return self.ring_bytes + fixed + whole_pages(self.kept_bytes)

    def copied_bytes(self, scans: int) -> int:
        """Bytes of blocks that so many scans copy to the device: the first one all, each later one all but the kept."""
        if self.in_place or not scans:
            return 0
        return scans * self.stored_bytes - (scans - 1) * self.kept_bytes


def bytes_of(arrays: Sequence[ArraySpec]) -> int:
    """Bytes of some arrays together."""
    return sum(spec.nbytes for spec in arrays)


def panel_widths(columns: int) -> tuple[int, ...]:
    """Widths of the panels of so many columns, by their number alone: sums must not depend on budgets or devices."""
    widths, left = [], columns
    while left > 0:
        width = max(width for width in PANEL_COLUMNS if width <= left or _LEAST_FILLED * width <= left)
        widths.append(width)
        left -= width
    return tuple(widths)


def panel_groups(panels: Sequence[int], room: int) -> tuple[tuple[int, ...], ...]:
    """Panels that pass together, each group of no more columns than there is room for."""
    groups: list[list[int]] = []
    left = 0  # of the room, beside the panels of the last group
    for width in panels:
        if not groups or width > left:
            groups.append([])
            left = room
        groups[-1].append(width)
        left -= width
    return tuple(map(tuple, groups))


@dataclass(frozen=True, repr=False)
class MultiplyPlan(AbstractPlan):
    """A frozen description of products ``Y = A X`` with a packed matrix; it holds no matrix data and no device.

    Its unit is the first product with all columns; later ones find the blocks that are kept.

    Parameters
    ----------
    blocks : RowBlocks
        The blocks of the matrix.
    columns : int
        Columns of X.
    precision : Precision
        Types in which vectors are stored, products computed, and sums carried on.
    panels : tuple of int
        Columns of each panel, some of the last ones empty where X has fewer.
    room : int
        Columns of all panels that are multiplied while the blocks pass once.
    shares : tuple of DeviceShare
        Share of each device; a device without rows takes no part.
    budget_bytes : int
        Most bytes on each device.
    tier : str
        Where the blocks are, ``"memory"`` or ``"file"``.
    diagonals : Diagonals
        Which factors of an operator are vectors.
    rates : PassRates or None
        Measured rates of the first device; None where none are known, and no seconds are predicted.
    threads : int
        Threads of each host device.
    packed_bytes : int
        Bytes of host memory that the call packs A in; 0 where it is packed already, or in a file.
    """

    call: ClassVar[str] = "multiply"

    blocks: RowBlocks
    columns: int
    precision: Precision
    panels: tuple[int, ...]
    room: int
    shares: tuple[DeviceShare, ...]
    budget_bytes: int
    tier: str = "memory"
    diagonals: Diagonals = NO_DIAGONALS
    rates: PassRates | None = None
    threads: int = 1
    packed_bytes: int = 0

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that take part."""
        return tuple(share.device for share in self.shares)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Widths of the panels of each scan of one product."""
        return panel_groups(self.panels, self.room)

    @property
    def scans(self) -> int:
        """How often the blocks pass in one product with all columns."""
        return len(self.groups)

    @cached_property
    def kinds(self) -> dict[ValueKind, int]:
        """Number of blocks of each kind of values."""
        found = Counter(block.kind for block in self.blocks.blocks)
        return {kind: found[kind] for kind in ValueKind if kind in found}

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""
        return max((share.peak_bytes for share in self.shares), default=0)

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory for Y, and for A where the call packs it there."""
        return self.blocks.shape[0] * self.columns * self.entry_bytes + self.packed_bytes

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes of blocks over each link in the first product."""
        return self.link_bytes()

    @property
    def first_bytes(self) -> int:
        """Bytes of blocks over all links in the first product."""
        return self.copied_bytes(1)

    @property
    def later_bytes(self) -> int:
        """Bytes of blocks over all links in each later product."""
        return self.copied_bytes(2) - self.copied_bytes(1)

    def copied_bytes(self, products: int) -> int:
        """Bytes of blocks that so many products with all columns copy to the devices, from the first one on.

        Parameters
        ----------
        products : int
            Products, one after the other.

        Returns
        -------
        int
            Bytes, all devices together.
        """
        return sum(share.copied_bytes(products * self.scans) for share in self.shares)

    def link_bytes(self, products: int = 1) -> dict[str, int]:
        """Bytes of blocks over each link in so many products with all columns, from the first one on.

        Parameters
        ----------
        products : int
            Products, one after the other.

        Returns
        -------
        dict of str to int
            By names such as ``"memory->cuda:0"``; a link that nothing crosses is left out.
        """
        found = {f"{self.tier}->{share.device}": share.copied_bytes(products * self.scans) for share in self.shares}
        return {name: nbytes for name, nbytes in found.items() if nbytes}

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of a vector on the devices."""
        return self.precision.storage.itemsize

    @property
    def brought_bytes(self) -> int:
        """Bytes of X from the host to all devices, each of which has all of it."""
        return len(self.shares) * self.blocks.shape[1] * sum(self.panels) * self.entry_bytes

    @property
    def returned_bytes(self) -> int:
        """Bytes of Y from the devices to the host."""
        return self.blocks.shape[0] * sum(self.panels) * self.entry_bytes

    @property
    def exchanged_bytes(self) -> int:
        """Bytes that the devices copy from each other between two products: each has the rows of all others."""
        return (len(self.shares) - 1) * self.blocks.shape[0] * sum(self.panels) * self.entry_bytes if self.shares else 0

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of the first product, without X on its way in and Y out; None where no rates are known."""
        return self._seconds(is_first=True)

    @property
    def later_seconds(self) -> float | None:
        """Predicted seconds of each later product; None where no rates are known."""
        return self._seconds(is_first=False)

    def _seconds(self, *, is_first: bool) -> float | None:
        if self.rates is None or (self.tier == "file"):
            return None
        scans = range(1, self.scans + 1) if is_first else range(2, self.scans + 2)
        total = 0.0
        for number, widths in zip(scans, self.groups, strict=True):
            total += max(max(self._link_seconds(share, number), self._device_seconds(share, widths)) for share in self.shares)
        return total

    def _link_seconds(self, share: DeviceShare, scan: int) -> float:
        """Seconds of a device's link in the so-manieth scan."""
        assert self.rates is not None
        return (share.copied_bytes(scan) - share.copied_bytes(scan - 1)) / self.rates.link

    def _device_seconds(self, share: DeviceShare, widths: Sequence[int]) -> float:
        """Seconds of a device's own memory, its gathers and its launches in one scan."""
        assert self.rates is not None
        return sum(
            self.rates.product_seconds(block, width * self.entry_bytes)
            for block in self.blocks.blocks[share.blocks.start : share.blocks.stop]
            for width in widths
        )

    def figures(self) -> Mapping[str, object]:
        """The matrix, panels, kept blocks, and bytes and seconds of later products."""
        return {
            "shape": list(self.blocks.shape),
            "entries": self.blocks.n_entries,
            "blocks": len(self.blocks.blocks),
            "kinds": {kind.value: count for kind, count in self.kinds.items()},
            "stored_bytes": self.blocks.nbytes,
            "tier": self.tier,
            "precision": self.precision.value,
            "columns": self.columns,
            "panels": list(self.panels),
            "scans": self.scans,
            "kept_blocks": [share.n_kept for share in self.shares],
            "later_bytes": self.later_bytes,
            "exchanged_bytes": self.exchanged_bytes,
            "later_seconds": self.later_seconds,
        }

    def facts(self) -> Mapping[str, object]:
        """The matrix, columns, devices and budget."""
        facts: dict[str, object] = {"shape": self.blocks.shape, "entries": self.blocks.n_entries, "columns": self.columns}
        facts |= {"precision": self.precision.value, "devices": self.devices, "budget": format_bytes(self.budget_bytes)}
        return facts | {"later_bytes": format_bytes(self.later_bytes)}

    def lines(self) -> Iterator[Line]:
        """Blocks, the memory of each device, what moves, and predicted seconds."""
        rows, columns = self.blocks.shape
        title = f"Plan: products of a {rows} x {columns} matrix of {self.blocks.n_entries} entries with {self.columns} "
        yield "", f"{title}column{'s' * (self.columns != 1)} in {self.precision.value}"
        yield "blocks", self._blocks_text()
        for share in self.shares[:_MOST_DEVICES]:
            yield "device", device_text(share)
            yield "memory", _memory_text(share, self.budget_bytes)
        if len(self.shares) > _MOST_DEVICES:
            yield "", f"  ... and {len(self.shares) - _MOST_DEVICES} more devices"
        yield "columns", self._columns_text()
        yield "moves", self._moves_text()
        yield "vectors", self._vectors_text()
        yield "host", f"{format_bytes(self.host_bytes)} of host memory"
        yield "seconds", self._seconds_text()

    def _blocks_text(self) -> str:
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in self.kinds.items()) or "none"
        largest, whole = format_bytes(self.blocks.largest_bytes), format_bytes(self.blocks.nbytes)
        return f"{kinds}; {whole} in a {self.tier}, the largest {largest}".replace("in a memory", "in memory")

    def _columns_text(self) -> str:
        widths = ", ".join(f"{count} of {width}" for width, count in Counter(self.panels).items())
        scans = "one scan" if self.scans == 1 else f"{self.scans} scans of up to {self.room} columns"
        return f"panels: {widths}; {scans} a product"

    def _moves_text(self) -> str:
        if not self.first_bytes:
            return "no block: all are read in place"
        first, later = format_bytes(self.first_bytes), format_bytes(self.later_bytes)
        links = ", ".join(self.link_bytes())
        return f"{first} of blocks in the first product, {later} in each later one, over {links}"

    def _vectors_text(self) -> str:
        brought, returned = format_bytes(self.brought_bytes), format_bytes(self.returned_bytes)
        among = f"; {format_bytes(self.exchanged_bytes)} among the devices between two products" if len(self.shares) > 1 else ""
        return f"{brought} of X in, {returned} of Y out{among}"

    def _seconds_text(self) -> str:
        if self.tier == "file":
            return "unknown: they follow the file, whose rate no plan of products knows"
        if self.rates is None or self.seconds is None or self.later_seconds is None:
            return "unknown: no rates of this machine; `ooc-chol bench rates --passes` measures them"
        link = sum(max((self._link_seconds(share, 2) for share in self.shares), default=0.0) for _ in self.groups)
        own = sum(max((self._device_seconds(share, widths) for share in self.shares), default=0.0) for widths in self.groups)
        parts = f"link {link:.3g}, memory and gathers {own:.3g}"
        return f"{self.seconds:.3g} the first product, {self.later_seconds:.3g} each later one ({parts}), by measured rates"


def device_text(share: DeviceShare) -> str:
    """Which part of the matrix a device has, for a reader."""
    count = len(share.blocks)
    part = f"rows {share.rows.start} to {share.rows.stop - 1}, {count} block{'s' * (count != 1)}, {share.n_entries} entries"
    return f"{share.device}: {part}"


def _memory_text(share: DeviceShare, budget_bytes: int) -> str:
    """How a device's memory is divided, for a reader."""
    parts = [("vectors", share.vector_bytes), ("diagonals", share.diagonal_bytes), ("workspace", share.workspace_bytes)]
    parts.append(("beside", share.other_bytes))
    told = [f"{name} {format_bytes(nbytes)}" for name, nbytes in parts if nbytes]
    if share.ring_slots:
        told.append(f"ring {share.ring_slots} x {format_bytes(share.slot_bytes)}")
    if not share.in_place:
        told.append(f"{share.n_kept} of {len(share.blocks)} blocks kept, {format_bytes(share.kept_bytes)}")
    return f"{', '.join(told)}; peak {format_bytes(share.peak_bytes)} of {format_bytes(budget_bytes)}"
