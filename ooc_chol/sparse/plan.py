"""The plan of products with a packed sparse matrix: what every device holds, and what crosses each link in a pass."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ooc_chol.config import format_bytes, whole_pages
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import ArraySpec
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision
from ooc_chol.prints import brief_repr, one_line
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.tasks.row_blocks import RowBlock, RowBlocks, ValueKind

#: Slots through which the blocks pass that a device does not keep.
RING_SLOTS = 3
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
    """What one device does in every pass, and how its memory is divided.

    Parameters
    ----------
    device : str
        Its name.
    blocks : range
        Numbers of the blocks that it multiplies.
    rows : range
        Rows of the matrix that these have.
    n_entries : int
        Entries of these.
    stored_bytes : int
        Bytes of these.
    in_place : bool
        Whether it reads them where they are: a host device does, of blocks in host memory.
    vectors : tuple of ArraySpec
        Two replicas of the panels of a scan, current and next, as numbers one behind the other.
    diagonals : tuple of ArraySpec
        The operator's vectors: left and shift of its own rows, right of all columns.
    workspace_bytes : int
        Bytes that the kernels take for partial sums, or for vectors in another type.
    slot_bytes : int
        Bytes of a slot of the ring: its largest block, in whole pages; 0 where all blocks are read in place.
    ring_slots : int
        How many of these there are; 0 where all its blocks are kept, or read in place.
    n_kept : int
        How many of its blocks stay on the device after the first pass, the first ones.
    kept_bytes : int
        Bytes of these, which are tightly packed.
    made : range
        Rows of Y for which it has room: all where Y may be the next X, else its own.
    others : tuple of ArraySpec
        What somebody else keeps on the device, beside the products.
    """

    device: str
    blocks: range
    rows: range
    n_entries: int
    stored_bytes: int
    in_place: bool
    vectors: tuple[ArraySpec, ...]
    diagonals: tuple[ArraySpec, ...]
    workspace_bytes: int
    slot_bytes: int
    ring_slots: int
    n_kept: int
    kept_bytes: int
    made: range
    others: tuple[ArraySpec, ...] = ()

    __repr__ = brief_repr

    @property
    def vector_bytes(self) -> int:
        """Bytes of the two replicas."""
        return _nbytes(self.vectors)

    @property
    def diagonal_bytes(self) -> int:
        """Bytes of the operator's vectors."""
        return _nbytes(self.diagonals)

    @property
    def other_bytes(self) -> int:
        """Bytes of what is kept beside the products."""
        return _nbytes(self.others)

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
        """Bytes of blocks that so many scans copy to the device: the first one all, each later one all but the kept.

        Parameters
        ----------
        scans : int
            How often the device goes through its blocks.

        Returns
        -------
        int
            0 where blocks are read in place.
        """
        if self.in_place or not scans:
            return 0
        return scans * self.stored_bytes - (scans - 1) * self.kept_bytes


def _nbytes(arrays: Sequence[ArraySpec]) -> int:
    return sum(spec.nbytes for spec in arrays)


def panel_widths(columns: int) -> tuple[int, ...]:
    """Widths of the panels of so many columns, by their number alone: sums must not depend on budgets or devices.

    Examples
    --------
    >>> panel_widths(1), panel_widths(13), panel_widths(23)
    ((1,), (8, 4, 1), (8, 8, 8))
    """
    widths, left = [], columns
    while left > 0:
        width = max(width for width in PANEL_COLUMNS if width <= left or _LEAST_FILLED * width <= left)
        widths.append(width)
        left -= width
    return tuple(widths)


def panel_groups(panels: Sequence[int], room: int) -> tuple[tuple[int, ...], ...]:
    """Panels that pass together, each group of no more columns than there is room for.

    Examples
    --------
    >>> panel_groups((8, 8, 8, 4), 16), panel_groups((8, 4), 16)
    (((8, 8), (8, 4)), ((8, 4),))
    """
    groups: list[list[int]] = []
    left = 0  # of the room, beside the panels of the last group
    for width in panels:
        if not groups or width > left:
            groups.append([])
            left = room
        groups[-1].append(width)
        left -= width
    return tuple(map(tuple, groups))


@dataclass(frozen=True)
class MultiplyPlan:
    """A frozen description of products ``Y = A X`` with a packed matrix; it holds no matrix data and no device.

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
        What each device does; a device without rows takes no part.
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
    """

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
    def first_seconds(self) -> float | None:
        """Predicted seconds of the first product; None where no rates are known."""
        return self._seconds(is_first=True)

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of each later product, without X on its way in and Y out; None where no rates are known."""
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

    def to_dict(self) -> dict[str, object]:
        """The plan's figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
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
            "devices": list(self.devices),
            "budget_bytes": self.budget_bytes,
            "peak_bytes": self.peak_bytes,
            "kept_blocks": [share.n_kept for share in self.shares],
            "bytes": {"first": self.first_bytes, "later": self.later_bytes, "exchanged": self.exchanged_bytes},
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        facts: dict[str, object] = {"shape": self.blocks.shape, "entries": self.blocks.n_entries, "columns": self.columns}
        facts |= {"precision": self.precision.value, "devices": self.devices, "budget": format_bytes(self.budget_bytes)}
        return one_line(self, facts | {"later_bytes": format_bytes(self.later_bytes)})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the printed page."""
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
        if self.rates is None or self.seconds is None or self.first_seconds is None:
            return "unknown: no rates of this machine; `ooc-chol bench rates --passes` measures them"
        link = sum(max((self._link_seconds(share, 2) for share in self.shares), default=0.0) for _ in self.groups)
        own = sum(max((self._device_seconds(share, widths) for share in self.shares), default=0.0) for widths in self.groups)
        parts = f"link {link:.3g}, memory and gathers {own:.3g}"
        return f"{self.first_seconds:.3g} the first product, {self.seconds:.3g} each later one ({parts}), by measured rates"


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


class Beside(NamedTuple):
    """What whoever makes products of its own vectors, again and again, wants of a plan beside them.

    Parameters
    ----------
    arrays : callable
        ``arrays(rows)`` are those that it keeps on the device which owns these rows.
    made_of_own : bool
        Whether Y has a device's own rows alone, since it never becomes X.
    least_row_bytes : int
        Bytes that a row of X, and one of Y, takes at least: room for numbers of a wider type.
    ring_slots : int
        Slots of the ring, where there is one.
    what : str
        What needs the memory, for who gave too little.
    """

    arrays: Callable[[range], tuple[ArraySpec, ...]]
    made_of_own: bool = True
    least_row_bytes: int = 0
    ring_slots: int = RING_SLOTS
    what: str = "the vectors of one panel"


def _none(rows: range) -> tuple[ArraySpec, ...]:
    return ()


#: Of products alone.
NOTHING_BESIDE = Beside(_none, made_of_own=False)


class _Problem(NamedTuple):
    """What a plan is made from."""

    blocks: RowBlocks
    precision: Precision
    budget_bytes: int
    tier: str
    diagonals: Diagonals
    #: Bytes of workspace that the kernels of the devices take for panels of so many columns together.
    workspace: Callable[[int], int]
    beside: Beside


def plan_products(
    blocks: RowBlocks,
    columns: int,
    precision: Precision,
    *,
    devices: Sequence[str],
    budget_bytes: int,
    workspace: Callable[[int], int],
    tier: str = "memory",
    diagonals: Diagonals = NO_DIAGONALS,
    rates: PassRates | None = None,
    threads: int = 1,
    beside: Beside = NOTHING_BESIDE,
) -> MultiplyPlan:
    """Divide blocks among devices and each device's budget among vectors, ring and kept blocks.

    Parameters
    ----------
    blocks : RowBlocks
        The blocks of the matrix.
    columns : int
        Columns of X, at least 1.
    precision : Precision
        Types of the products.
    devices : sequence of str
        Names of the devices, all of one kind.
    budget_bytes : int
        Most bytes on each.
    workspace : callable
        ``workspace(columns)`` is what kernels take for panels of so many columns together, in bytes.
    tier : str
        ``"memory"`` or ``"file"``.
    diagonals : Diagonals
        Which factors of an operator are vectors.
    rates : PassRates, optional
        Measured rates.
    threads : int
        Threads of each host device.
    beside : Beside
        What is kept on the devices beside products.

    Returns
    -------
    MultiplyPlan
        The plan.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel; it says how many bytes would do.
    """
    problem = _Problem(blocks, precision, budget_bytes, tier, diagonals, workspace, beside)
    owned = [(name, span) for name, span in zip(devices, blocks.shares(len(devices)), strict=True) if len(span)]
    panels = panel_widths(columns)
    rooms = list(accumulate(panels))
    count = bisect_right(rooms, budget_bytes, lo=1, key=lambda room: _most_needed(problem, owned, room)[0])
    room = rooms[count - 1]
    needed, name = _most_needed(problem, owned, room)
    if needed > budget_bytes:
        blocks_text = "three" if beside.ring_slots == RING_SLOTS else str(beside.ring_slots)
        advice = f"it must hold {blocks_text} blocks beside {beside.what}; give a larger memory_budget, or smaller blocks"
        raise BudgetError(f"products on {name}", needed, budget_bytes, advice)
    shares = tuple(_share(problem, name, span, room) for name, span in owned)
    return MultiplyPlan(blocks, columns, precision, panels, room, shares, budget_bytes, tier, diagonals, rates, threads)


def _most_needed(problem: _Problem, owned: Sequence[tuple[str, range]], room: int) -> tuple[int, str]:
    """Least bytes with which all devices can do, and the one that needs them."""
    return max(((_least_bytes(problem, name, span, room), name) for name, span in owned), default=(0, ""))


def _own(problem: _Problem, span: range) -> Sequence[RowBlock]:
    return problem.blocks.blocks[span.start : span.stop]


def _rows(blocks: Sequence[RowBlock]) -> range:
    return range(blocks[0].rows.start, blocks[-1].rows.stop)


def _is_in_place(problem: _Problem, name: str) -> bool:
    return problem.tier == "memory" and device_kind(name).is_in_host_memory


def _vector_arrays(problem: _Problem, rows: range, room: int) -> tuple[ArraySpec, ...]:
    """X, then Y: all rows of it where it is the next product's X, else those of the device."""
    storage = problem.precision.storage
    width = max(room, -(-problem.beside.least_row_bytes // storage.itemsize))
    return tuple(ArraySpec(storage, (height * width,)) for height in (problem.blocks.shape[1], len(_made(problem, rows))))


def _made(problem: _Problem, rows: range) -> range:
    """Rows of Y that a device has room for."""
    n_rows, n_columns = problem.blocks.shape
    return range(n_rows) if n_rows == n_columns and not problem.beside.made_of_own else rows


def _diagonal_arrays(problem: _Problem, rows: range) -> tuple[ArraySpec, ...]:
    """Left, shift and right, those that are vectors."""
    heights = zip(
        (problem.diagonals.left, problem.diagonals.shift, problem.diagonals.right),
        (len(rows), len(rows), problem.blocks.shape[1]),
        strict=True,
    )
    return tuple(ArraySpec(Precision.DDD.storage, (height,)) for is_vector, height in heights if is_vector)


def _slot_bytes(problem: _Problem, name: str, blocks: Sequence[RowBlock]) -> int:
    return 0 if _is_in_place(problem, name) else whole_pages(max(block.nbytes for block in blocks))


def _fixed_bytes(problem: _Problem, blocks: Sequence[RowBlock], room: int) -> int:
    rows = _rows(blocks)
    arrays = (*_vector_arrays(problem, rows, room), *_diagonal_arrays(problem, rows), *problem.beside.arrays(rows))
    return _nbytes(arrays) + problem.workspace(room)


def _least_bytes(problem: _Problem, name: str, span: range, room: int) -> int:
    """Bytes that a device needs at least: without a ring where all its blocks take no more than one."""
    blocks = _own(problem, span)
    if _is_in_place(problem, name):
        return _fixed_bytes(problem, blocks, room)
    ring = problem.beside.ring_slots * _slot_bytes(problem, name, blocks)
    return _fixed_bytes(problem, blocks, room) + min(ring, whole_pages(sum(block.nbytes for block in blocks)))


def _share(problem: _Problem, name: str, span: range, room: int) -> DeviceShare:
    """Divide a budget that is known to be enough."""
    blocks = _own(problem, span)
    rows, slot_bytes = _rows(blocks), _slot_bytes(problem, name, blocks)
    stored, left = sum(block.nbytes for block in blocks), problem.budget_bytes - _fixed_bytes(problem, blocks, room)
    in_place = _is_in_place(problem, name)
    ring_slots = 0 if in_place or whole_pages(stored) <= left else problem.beside.ring_slots
    n_kept, kept = 0, 0
    if not in_place:
        space = left - ring_slots * slot_bytes
        for number, nbytes in enumerate(accumulate(block.nbytes for block in blocks)):
            if whole_pages(nbytes) > space:
                break
            n_kept, kept = number + 1, nbytes
    return DeviceShare(
        name,
        span,
        rows,
        sum(block.n_entries for block in blocks),
        stored,
        in_place,
        _vector_arrays(problem, rows, room),
        _diagonal_arrays(problem, rows),
        problem.workspace(room),
        slot_bytes,
        ring_slots,
        n_kept,
        kept,
        _made(problem, rows),
        problem.beside.arrays(rows),
    )
