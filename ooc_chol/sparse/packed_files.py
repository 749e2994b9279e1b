"""Packed matrices in files: what a header says of blocks, bounded before it is believed, and blocks looked at when first read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import DamagedFileError
from ooc_chol.files.outputs import AnyPath
from ooc_chol.memory.block_files import BlockFile, whole_field
from ooc_chol.sparse.canonical import MOST_COLUMNS
from ooc_chol.sparse.order import Vertices, is_permutation
from ooc_chol.sparse.rows import RowCounts
from ooc_chol.tasks.row_blocks import BLOCK_ALIGNMENT, MOST_ENTRIES, RowBlock, RowBlocks, ValueKind
from ooc_chol.tasks.work_groups import work_groups

#: What the file holds; other kinds will have other names.
KIND = "row-blocks"
#: Most rows that a header may claim.
_MOST_ROWS = 1 << 62
_AGAIN = "copy the file again, or pack the matrix again"


@dataclass(frozen=True)
class Facts:
    """Facts of a packed matrix beside its entries."""

    blocks: RowBlocks
    dtype: np.dtype[Any]  #: Of the values that were packed: float32 or float64
    counts: RowCounts  #: What the source counted
    longest_row: int = 0  #: Entries of the longest row
    rounded: int = 0  #: Values that packing has rounded to another type
    #: The caller's row and column that each one is, where they were numbered anew; an array of its own, read-only
    order: Vertices | None = field(default=None, compare=False)


def facts_to_json(facts: Facts) -> dict[str, Any]:
    """Facts as plain data for a header."""
    return {
        "shape": list(facts.blocks.shape),
        "chunk_rows": facts.blocks.chunk_rows,
        "dtype": facts.dtype.name,
        "counts": asdict(facts.counts),
        "longest_row": facts.longest_row,
        "rounded": facts.rounded,
        "order": None if facts.order is None else "degree",
        "blocks": [[*block[:5], block.kind.value, block.value.hex()] for block in facts.blocks.blocks],
    }


def opened_packed(path: AnyPath) -> tuple[BlockFile, Facts]:
    """Open a packed file: its header is checked wholly, and an order of its rows; and each block when it is first read.

    Raises ``DamagedFileError`` and ``TierError``.
    """
    file = BlockFile(path, KIND)
    try:
        facts = _facts_of(file)
        if file.facts["order"] is not None:
            facts = replace(facts, order=_order_of(file, facts.blocks))
        file.check_block = block_checker(file, facts.blocks)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        file.close()
        text = f"{file.path}: its header is not that of a packed matrix ({error}); {_AGAIN}"
        raise DamagedFileError(text, file.path) from error
    except BaseException:
        file.close()
        raise
    return file, facts


def _facts_of(file: BlockFile) -> Facts:
    """The facts of a header; KeyError, TypeError, ValueError or OverflowError where they make no sense."""
    facts = file.facts
    shape = facts["shape"]
    if type(shape) is not list or len(shape) != 2:
        raise ValueError(f"shape is {shape!r:.80}")
    n_rows, n_columns = whole_field(shape[0], "shape", _MOST_ROWS), whole_field(shape[1], "shape", MOST_COLUMNS)
    chunk_rows = whole_field(facts["chunk_rows"], "chunk_rows", MOST_ENTRIES)
    if facts["dtype"] not in ("float32", "float64"):
        raise ValueError(f"dtype is {facts['dtype']!r:.80}")
    counts = {name: whole_field(facts["counts"][name], name, _MOST_ROWS) for name in ("duplicates", "zeros", "loops")}
    if facts["order"] not in (None, "degree") or (facts["order"] is not None and not 0 < n_rows == n_columns):
        raise ValueError(f"order is {facts['order']!r:.80} of a {n_rows} x {n_columns} matrix")
    blocks = _blocks_of(facts["blocks"], file.sizes[: len(file.sizes) - (facts["order"] is not None)])
    _check_cover(blocks, n_rows, chunk_rows)
    return Facts(
        RowBlocks((n_rows, n_columns), blocks, chunk_rows),
        np.dtype(facts["dtype"]),
        RowCounts(**counts),
        whole_field(facts["longest_row"], "longest_row", MOST_ENTRIES),
        whole_field(facts["rounded"], "rounded", _MOST_ROWS),
    )


def _order_of(file: BlockFile, blocks: RowBlocks) -> Vertices:
    """The order of rows and columns, which is the block behind those of rows; DamagedFileError where it is no permutation."""
    number, n = len(blocks.blocks), blocks.shape[0]
    first, stop = file.span(number)
    problem = f"the order of rows has {stop - first} bytes, but {n} rows take {4 * n}" if stop - first != 4 * n else ""
    if not problem:
        data = np.empty(4 * n, np.uint8)
        file.read_stored((number, 0), data)
        order: Vertices = data.view(np.int32)
        order.flags.writeable = False
        problem = "" if is_permutation(order) else f"the order of rows has not each of 0 to {n - 1} once"
    if problem:
        text = f"{file.path}: {problem}, bytes {first} to {stop - 1} of the file; {_AGAIN}"
        raise DamagedFileError(text, file.path, tile=(number, 0), first=first, stop=stop)
    return order


def _blocks_of(found: object, sizes: Sequence[int]) -> tuple[RowBlock, ...]:
    """The blocks, each of as many bytes as the file has of it, which bounds all of its numbers."""
    if type(found) is not list or len(found) != len(sizes):
        raise ValueError(f"blocks are {found!r:.80}, but must be a list of {len(sizes)}")
    blocks = []
    offset = 0
    for number, (fields, size) in enumerate(zip(found, sizes, strict=True)):
        if type(fields) is not list or len(fields) != 7 or type(fields[6]) is not str:
            raise ValueError(f"block {number} is {fields!r:.80}")
        first_row, n_rows, n_entries, n_groups, n_segments = (
            whole_field(each, f"a number of block {number}", _MOST_ROWS) for each in fields[:5]
        )
        kind, value = ValueKind(fields[5]), float.fromhex(fields[6])
        block = RowBlock(first_row, n_rows, n_entries, n_groups, n_segments, kind, value, offset)
        if not 0 < n_rows <= MOST_ENTRIES or n_entries > MOST_ENTRIES or block.nbytes != size:
            raise ValueError(f"block {number} would have {block.nbytes} bytes, but has {size}")
        if not math.isfinite(value) or (kind is not ValueKind.PATTERN and value != 1.0):
            raise ValueError(f"block {number} has the value {value}")
        blocks.append(block)
        offset += -(-size // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT
    return tuple(blocks)


def _check_cover(blocks: tuple[RowBlock, ...], n_rows: int, chunk_rows: int) -> None:
    """Raise ValueError unless blocks hold each row once, and no chunk in part beside another."""
    if chunk_rows < 1:
        raise ValueError("chunk_rows is 0")
    row = 0
    for number, block in enumerate(blocks):
        if block.first_row != row:
            raise ValueError(f"block {number} begins with row {block.first_row}, but row {row} is next")
        row += block.n_rows
        is_whole = block.first_row % chunk_rows == 0 and (row % chunk_rows == 0 or row == n_rows)
        if not is_whole and block.first_row // chunk_rows != (row - 1) // chunk_rows:
            raise ValueError(f"block {number} holds part of a chunk beside another")
    if row != n_rows:
        raise ValueError(f"its blocks have {row} rows, but the matrix {n_rows}")


def block_checker(file: BlockFile, blocks: RowBlocks) -> Callable[[int, NDArray[np.uint8]], None]:
    """Check that raises DamagedFileError unless a kernel reads nothing outside of a block, nor of a vector."""

    def check(number: int, data: NDArray[np.uint8]) -> None:
        if problem := block_problem(blocks.blocks[number], data, blocks.shape[1]):
            first, stop = file.span(number)
            text = f"{file.path}: block {number} is damaged, bytes {first} to {stop - 1} of the file: {problem}; {_AGAIN}"
            raise DamagedFileError(text, file.path, tile=(number, 0), first=first, stop=stop)

    return check


def block_problem(block: RowBlock, data: NDArray[np.uint8], n_columns: int) -> str:
    """Problem with the bytes of a block, in words; empty where there is none."""
    parts = block.parts(data)
    starts = parts.starts
    falls = starts[1:] < starts[:-1]
    if falls.any():
        row = int(np.argmax(falls))
        return f"starts of rows decrease from {starts[row]} to {starts[row + 1]} at row {block.first_row + row}"
    if starts[0] != 0 or starts[-1] != block.n_entries:
        return f"its rows have entries {starts[0]} to {starts[-1]} of {block.n_entries}"
    groups, n_segments = work_groups(starts)
    if n_segments != block.n_segments or not np.array_equal(groups, parts.groups):
        return "its work groups are not those of its rows"
    if block.n_entries and parts.columns.view(np.uint32).max() >= n_columns:
        at = int(np.argmax(parts.columns.view(np.uint32) >= n_columns))
        row = block.first_row + int(np.searchsorted(starts, at, side="right")) - 1
        return f"row {row} has an entry in column {parts.columns[at]}, but columns are 0 to {n_columns - 1}"
    if parts.values is not None and parts.values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            total = parts.values.sum()
        if not np.isfinite(total) and not (finite := np.isfinite(parts.values)).all():
            row = block.first_row + int(np.searchsorted(starts, int(np.argmin(finite)), side="right")) - 1
            return f"row {row} has a value that is NaN or infinite"
    return ""
