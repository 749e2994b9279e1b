"""How blocks are divided among devices, and each device's budget among vectors, ring and kept blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from ooc_chol.config import whole_pages
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import ArraySpec
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.sparse.plan import NO_DIAGONALS, DeviceShare, Diagonals, MultiplyPlan, bytes_of, panel_widths
from ooc_chol.tasks.row_blocks import RowBlock, RowBlocks

#: Slots through which the blocks pass that a device does not keep.
RING_SLOTS = 3


class Beside(NamedTuple):
    """Further needs of a plan for repeated products of vectors that the caller makes."""

    #: ``arrays(rows)`` are those that it keeps on the device which owns these rows
    arrays: Callable[[range], tuple[ArraySpec, ...]]
    made_of_own: bool = True  #: Whether Y has a device's own rows alone, since it never becomes X
    least_row_bytes: int = 0  #: Bytes that a row of X, and one of Y, takes at least: room for numbers of a wider type
    ring_slots: int = RING_SLOTS  #: Slots of the ring, where there is one
    what: str = "the vectors of one panel"  #: What needs the memory, for who gave too little


def _none(rows: range) -> tuple[ArraySpec, ...]:
    return ()


#: Of products alone.
NOTHING_BESIDE = Beside(_none, made_of_own=False)
#: Of products of which only the devices' own rows are wanted.
OWN_ROWS = Beside(_none)


class _Problem(NamedTuple):
    """Input of a plan."""

    blocks: RowBlocks
    precision: Precision
    budget_bytes: int
    tier: str
    diagonals: Diagonals
    #: Bytes of workspace that the kernels of the devices take for panels of so many columns together, with so many threads.
    workspace: Callable[[int, int], int]
    beside: Beside
    threads: int  #: Of each host device


def plan_products(
    blocks: RowBlocks,
    columns: int,
    precision: Precision,
    *,
    devices: Sequence[str],
    budget_bytes: int,
    workspace: Callable[[int, int], int],
    tier: str = "memory",
    diagonals: Diagonals = NO_DIAGONALS,
    rates: PassRates | None = None,
    threads: int = 1,
    beside: Beside = NOTHING_BESIDE,
    of: range | None = None,
) -> MultiplyPlan:
    """Divide blocks, all or those of a range, among devices and each device's budget among vectors, ring and kept blocks.

    Raises ``BudgetError``: the budget does not hold three blocks beside the vectors of one panel; it says how many bytes would
    do.
    """
    problem = _Problem(blocks, precision, budget_bytes, tier, diagonals, workspace, beside, threads)
    owned = [(name, span) for name, span in zip(devices, blocks.shares(len(devices), of), strict=True) if len(span)]
    panels = panel_widths(columns)
    rooms = list(accumulate(panels))
    problem = _with_fitting_threads(problem, owned, rooms[0])
    count = bisect_right(rooms, budget_bytes, lo=1, key=lambda room: _most_needed(problem, owned, room)[0])
    room = rooms[count - 1]
    needed, name = _most_needed(problem, owned, room)
    if needed > budget_bytes:
        blocks_text = "three" if beside.ring_slots == RING_SLOTS else str(beside.ring_slots)
        advice = f"it must hold {blocks_text} blocks beside {beside.what}; give a larger memory_budget, or smaller blocks"
        raise BudgetError(f"products on {name}", needed, budget_bytes, advice)
    shares = tuple(_share(problem, name, span, room) for name, span in owned)
    return MultiplyPlan(blocks, columns, precision, panels, room, shares, budget_bytes, tier, diagonals, rates, problem.threads)


def _with_fitting_threads(problem: _Problem, owned: Sequence[tuple[str, range]], room: int) -> _Problem:
    """The problem with as many threads as the budget has room for beside one panel, at least one."""
    tried = (problem._replace(threads=count) for count in range(problem.threads, 1, -1))
    return next((each for each in tried if _most_needed(each, owned, room)[0] <= each.budget_bytes), problem._replace(threads=1))


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
    return bytes_of(arrays) + problem.workspace(room, problem.threads)


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
        problem.workspace(room, problem.threads),
        slot_bytes,
        ring_slots,
        n_kept,
        kept,
        _made(problem, rows),
        problem.beside.arrays(rows),
    )
