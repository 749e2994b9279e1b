"""Planning products: what a call asks for, and what is known of the matrix, whether it is there or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ooc_chol.config import parse_bytes, whole_number
from ooc_chol.hardware.registry import default_budget, device_kind
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.registry import product_workspace_bytes
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.canonical import MOST_COLUMNS
from ooc_chol.sparse.dividing import plan_products
from ooc_chol.sparse.operator import Operator, operator_of
from ooc_chol.sparse.packing import default_block_bytes
from ooc_chol.sparse.pass_rates import stored_pass_rates
from ooc_chol.sparse.plan import NO_DIAGONALS, Diagonals, MultiplyPlan
from ooc_chol.tasks.row_blocks import CHUNK_ROWS, GROUP_ENTRIES, MOST_ENTRIES, RowBlock, RowBlocks, ValueKind

#: Rows and columns, entries, and the kind of values of a matrix that need not be there.
Facts: TypeAlias = tuple[tuple[int, int], int, str]
#: Where a call computes: names or words of one kind, a count, or None.
Devices: TypeAlias = str | Sequence[str] | int | None


def planned(
    blocks: RowBlocks,
    columns: int,
    precision: Precision,
    names: tuple[str, ...],
    *,
    memory_budget: int | str | None,
    tier: str,
    diagonals: Diagonals,
) -> MultiplyPlan:
    """The plan for resolved devices."""
    if whole_number(columns, "columns") < 1:
        raise ValueError(f"columns is {columns}, but X has at least 1")
    threads = host_threads(len(names)) if device_kind(names[0]).is_in_host_memory else 1
    most_segments, nb = blocks.most_segments, blocks.shape[1]

    def workspace(room: int, threads: int) -> int:
        return product_workspace_bytes(names[0], precision, room, most_segments=most_segments, nb=nb, threads=threads)

    return plan_products(
        blocks,
        columns,
        precision,
        devices=names,
        budget_bytes=default_budget(names) if memory_budget is None else parse_bytes(memory_budget, "memory_budget"),
        workspace=workspace,
        tier=tier,
        diagonals=diagonals,
        rates=stored_pass_rates(names),
        threads=threads,
    )


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


class Known(NamedTuple):
    """Facts of a matrix for a plan, whether it is there or not."""

    blocks: RowBlocks
    tier: str  #: Where the blocks are, for plans and links
    diagonals: Diagonals
    dtype: np.dtype[Any]  #: Type of the values


def known_of(a: object) -> Known:
    """Facts of a packed matrix, of an operator of one, or of facts; TypeError for anything else."""
    if isinstance(a, tuple):
        return Known(_assumed(a), "memory", NO_DIAGONALS, np.dtype(np.float32 if a[2] == ValueKind.FP32.value else np.float64))
    if not isinstance(a, BlockCSR | Operator):
        raise TypeError(
            f"A is a {type(a).__name__}; give what oc.block_csr(A) makes of it, an operator, or (rows, columns), entries, kind"
        )
    operator = operator_of(a)
    matrix = operator.matrix
    return Known(matrix.blocks, matrix.tier.name, diagonals_of(operator), matrix.dtype)


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
