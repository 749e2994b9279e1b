"""Planning products: what a call asks for, and what is known of the matrix, whether it is there or not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as replaced
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ooc_chol.calls.machine import Machine
from ooc_chol.config import parse_bytes, whole_number
from ooc_chol.errors import BudgetError
from ooc_chol.files.outputs import AnyPath
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.registry import product_workspace_bytes
from ooc_chol.memory.block_files import is_packed_file
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.canonical import MOST_COLUMNS
from ooc_chol.sparse.dividing import NOTHING_BESIDE, OWN_ROWS, plan_products
from ooc_chol.sparse.operator import Operator, operator_of
from ooc_chol.sparse.pack import block_csr, facts_of
from ooc_chol.sparse.packing import default_block_bytes
from ooc_chol.sparse.pass_rates import pass_rates_of
from ooc_chol.sparse.plan import NO_DIAGONALS, Diagonals, MultiplyPlan
from ooc_chol.tasks.row_blocks import CHUNK_ROWS, GROUP_ENTRIES, MOST_ENTRIES, RowBlock, RowBlocks, ValueKind

#: Rows and columns, entries, and the kind of values of a matrix that need not be there.
Facts: TypeAlias = tuple[tuple[int, int], int, str]
#: Where a call computes: names or words of one kind, a count, or None.
Devices: TypeAlias = str | Sequence[str] | int | None


class Known(NamedTuple):
    """Facts of a matrix for a plan, whether it is there or not."""

    blocks: RowBlocks
    tier: str  #: Where the blocks are, for plans and links
    diagonals: Diagonals
    dtype: np.dtype[Any]  #: Type of the values
    packed_bytes: int = 0  #: Bytes of host memory that the call packs it in


def planned(
    known: Known,
    columns: int,
    precision: Precision,
    machine: Machine,
    *,
    budget_bytes: int | None = None,
    host_budget: int | str | None = None,
    of: range | None = None,
    threads: int | None = None,
) -> MultiplyPlan:
    """The plan for a matrix and a machine, of whose budget it may have a part; or for some blocks ``of`` it and their rows."""
    if whole_number(columns, "columns") < 1:
        raise ValueError(f"columns is {columns}, but X has at least 1")
    blocks, names = known.blocks, machine.names
    if threads is None:
        threads = host_threads(len(names)) if machine.kind.is_in_host_memory else 1
    most_segments, nb = blocks.most_segments, blocks.shape[1]

    def workspace(room: int, threads: int) -> int:
        return product_workspace_bytes(names[0], precision, room, most_segments=most_segments, nb=nb, threads=threads)

    plan = plan_products(
        blocks,
        columns,
        precision,
        devices=names,
        budget_bytes=machine.budget_bytes if budget_bytes is None else budget_bytes,
        workspace=workspace,
        tier=known.tier,
        diagonals=known.diagonals,
        rates=pass_rates_of(machine),
        threads=threads,
        beside=NOTHING_BESIDE if of is None else OWN_ROWS,
        of=of,
    )
    plan = replaced(plan, packed_bytes=known.packed_bytes)
    check_host_budget(plan.host_bytes, host_budget, "Y and the packed A")
    return plan


def check_host_budget(needed: int, host_budget: int | str | None, what: str) -> None:
    """Raise ``BudgetError`` where the host memory of a plan is more than the caller allows."""
    if host_budget is not None and needed > (given := parse_bytes(host_budget, "host_budget")):
        raise BudgetError(f"host_budget for {what}", needed, given, "give a larger one, or keep A in a file: packed=")


def check_plan_of(plan: MultiplyPlan, known: Known, columns: int, precision: Precision | None) -> None:
    """Raise ``ValueError`` unless a plan is of products with this matrix."""
    theirs, ours = plan.blocks, known.blocks
    if theirs.shape != ours.shape or list(theirs.blocks) != list(ours.blocks):
        raise ValueError(f"the plan is of {plan_text(theirs)}, but A is {plan_text(ours)}: plan again, or leave plan out")
    asked = {
        "columns": (plan.columns, columns),
        "diagonals": (plan.diagonals, known.diagonals),
        "A is in a": (plan.tier, known.tier),
    }
    asked |= {} if precision is None else {"precision": (plan.precision, precision)}
    for name, (one, other) in asked.items():
        if one != other:
            raise ValueError(f"the plan is of another call, {name}: {one} there, {other} here; leave plan out")


def plan_text(blocks: RowBlocks) -> str:
    """A packed matrix, in words."""
    rows, columns = blocks.shape
    return f"a {rows} x {columns} matrix of {blocks.n_entries} entries in {len(blocks.blocks)} blocks of {blocks.nbytes} bytes"


def precision_of(precision: Precision | str | None, default: Precision = Precision.DDD) -> Precision:
    """The precision that is meant."""
    if precision is None:
        return default
    if isinstance(precision, Precision):
        return precision
    try:
        return Precision(precision)
    except ValueError:
        names = ", ".join(repr(each.value) for each in Precision)
        raise ValueError(f"precision is {precision!r:.80}; give one of {names}") from None


def diagonals_of(operator: Operator) -> Diagonals:
    """Which factors of an operator are vectors."""
    parts = operator.left, operator.right, operator.shift
    return Diagonals(*(isinstance(part, np.ndarray) for part in parts))


def known_of(a: Any, packed: AnyPath | None = None) -> Known:
    """Facts of a packed matrix, of an operator of one, of facts, or of what a call packs: that is read."""
    if isinstance(a, tuple):
        return Known(_assumed(a), "memory", NO_DIAGONALS, np.dtype(np.float32 if a[2] == ValueKind.FP32.value else np.float64))
    if isinstance(a, BlockCSR | Operator):
        refuse_packed(a, packed)
        operator = operator_of(a)
        matrix = operator.matrix
        return Known(matrix.blocks, matrix.tier.name, diagonals_of(operator), matrix.dtype)
    in_file = packed is not None or (isinstance(a, str | os.PathLike) and is_packed_file(a))
    facts = facts_of(a, anew=packed is not None)
    return Known(facts.blocks, "file" if in_file else "memory", NO_DIAGONALS, facts.dtype, 0 if in_file else facts.blocks.nbytes)


def refuse_packed(a: object, packed: AnyPath | None) -> None:
    """Raise where a file is named for the blocks of a matrix that is packed already."""
    if packed is not None and isinstance(a, BlockCSR | Operator):
        raise ValueError("packed is the file for a matrix that is packed by the call, but A is packed already: leave it out")


@contextmanager
def packed_operator(A: Any, packed: AnyPath | None = None, replace: bool = False) -> Iterator[tuple[Operator, Known]]:
    """The operator of a matrix, packed here where it is not, and its facts; what was packed here is closed at the end."""
    refuse_packed(A, packed)
    if isinstance(A, BlockCSR | Operator):
        yield operator_of(A), known_of(A)
        return
    with block_csr(A, store=packed, replace=replace) as matrix:
        known = known_of(matrix)
        yield Operator(matrix), known._replace(packed_bytes=matrix.nbytes if known.tier == "memory" else 0)


def _assumed(facts: Any) -> RowBlocks:
    """Blocks of a matrix that need not be there, once it is known that its facts are such."""
    if len(facts) != 3 or not isinstance(facts[0], tuple | list) or len(facts[0]) != 2 or not isinstance(facts[2], str):
        raise TypeError(f"A is {facts!r:.80}; give ((rows, columns), entries, kind), such as ((1000, 1000), 5000, 'pattern')")
    return assumed_blocks(*facts)


def assumed_blocks(shape: tuple[int, int], n_entries: int, kind: str) -> RowBlocks:
    """Blocks as packing would make them of a matrix whose rows all have about as many entries."""
    rows, columns = (whole_number(size, "a size of A") for size in shape)
    if min(rows, columns) < 1 or not 0 <= whole_number(n_entries, "entries of A") <= rows * columns:
        raise ValueError(f"there is no {rows} x {columns} matrix with {n_entries} entries: give rows, columns, entries")
    if columns > MOST_COLUMNS:
        raise ValueError(f"A has {columns} columns, but at most {MOST_COLUMNS} are stored: plan with parts of them")
    found = ValueKind(kind) if kind in {each.value for each in ValueKind} else None
    if found is None:
        raise ValueError(f"kind is {kind!r:.40}; values are stored as {', '.join(repr(each.value) for each in ValueKind)}")
    asked = default_block_bytes((4 + found.itemsize) * n_entries)
    a_row = n_entries / rows
    fitting = max(1, int(min(asked / ((4 + found.itemsize) * a_row + 4.1), MOST_ENTRIES / max(a_row, 1))))
    height = fitting // CHUNK_ROWS * CHUNK_ROWS or -(-CHUNK_ROWS // -(-CHUNK_ROWS // fitting))
    blocks, offset, first = [], 0, 0
    while first < rows:
        count = min(height, rows - first, CHUNK_ROWS - first % CHUNK_ROWS if height < CHUNK_ROWS else rows)
        entries = round((first + count) * a_row) - round(first * a_row)
        groups = max(-(-entries // GROUP_ENTRIES), -(-count // GROUP_ENTRIES))
        block = RowBlock(first, count, entries, groups, 0, found, 1.0, offset)
        blocks.append(block)
        first, offset = first + count, offset + block.nbytes
    return RowBlocks((rows, columns), tuple(blocks))
