"""Rows of a packed matrix that was numbered anew, in the numbers of its source."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.order import Vertices
from ooc_chol.sparse.rows import Rows
from ooc_chol.sparse.sources.compressed import RUN_ENTRIES, cuts

if TYPE_CHECKING:
    from ooc_chol.sparse.block_csr import BlockCSR

#: In about how many readings of all blocks all rows are handed over, unless so many entries are of one.
_READINGS, _LEAST_ENTRIES = 8, 1 << 24


def in_order(sums: NDArray[Any], order: Vertices) -> NDArray[Any]:
    """Numbers of packed rows as those of the source's rows."""
    found = np.empty_like(sums)
    found[order] = sums
    return found


def ordered_csr(matrix: BlockCSR, order: Vertices, wanted: range) -> csr_array:
    """Consecutive rows of the source, each block that has some of them being read once."""
    places = np.flatnonzero((order >= wanted.start) & (order < wanted.stop))  # packed rows, ascending
    parts = []
    bounds = np.searchsorted(places, [block.first_row for block in matrix.blocks.blocks] + [matrix.shape[0]])
    for number, (low, high) in enumerate(pairwise(bounds.tolist())):
        if high > low:
            parts.append(_rows_of_block(matrix, number, places[low:high] - matrix.blocks.blocks[number].first_row))
    entries = sum(part.nnz for part in parts)
    what = f"memory for {len(wanted)} rows in SciPy's form, twice while they are sorted"
    check_room(3 * (4 + matrix.dtype.itemsize) * entries, what, "take fewer of them at a time: tocsr(rows=)")
    found = vstack(parts, format="csr", dtype=matrix.dtype) if parts else csr_array((0, matrix.shape[1]), dtype=matrix.dtype)
    del parts
    rows = np.empty(len(wanted), np.int64)
    rows[order[places] - wanted.start] = np.arange(len(wanted))
    found = found[rows]
    found.indices = np.take(order, found.indices).astype(found.indices.dtype, copy=False)
    found.has_sorted_indices = False
    found.sort_indices()
    found.has_canonical_format = True
    return found


def _rows_of_block(matrix: BlockCSR, number: int, rows: NDArray[np.int64]) -> csr_array:
    """Some rows of a block, a copy."""
    block, parts = matrix.blocks.blocks[number], matrix.parts(number)
    starts = parts.starts.astype(np.int64)
    counts = starts[rows + 1] - starts[rows]
    indptr = np.zeros(rows.size + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    places = np.repeat(starts[rows] - indptr[:-1], counts)
    places += np.arange(places.size)
    values = np.full(places.size, block.value, matrix.dtype)
    if parts.values is not None:
        values[...] = parts.values[places]
    return csr_array((values, parts.columns[places], indptr), shape=(rows.size, matrix.shape[1]))


def ordered_runs(matrix: BlockCSR, order: Vertices) -> Iterator[Rows]:
    """Rows of the source as it would hand them over: about an eighth of them is held at a time."""
    counts = np.empty(matrix.shape[0], np.int64)
    for number, block in enumerate(matrix.blocks.blocks):
        counts[order[block.first_row : block.first_row + block.n_rows]] = np.diff(matrix.parts(number).starts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    del counts
    for first, stop in cuts(starts, max(_LEAST_ENTRIES, -(-matrix.nnz // _READINGS))):
        found = matrix.tocsr(rows=range(first, stop))
        own = starts[first : stop + 1] - starts[first]
        for low, high in cuts(own, RUN_ENTRIES):
            part = slice(own[low], own[high])
            columns = found.indices[part].astype(np.int32, copy=False)
            yield Rows(first + low, own[low : high + 1] - own[low], columns, found.data[part])
