"""The transpose of a packed matrix, made by runs within an eighth of its entries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ooc_chol.errors import SparseInputError
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.canonical import MOST_COLUMNS
from ooc_chol.sparse.rows import AbstractRows
from ooc_chol.sparse.sources.scattered import Entries, ScatteredRows


def transposed_rows(matrix: BlockCSR | AbstractRows) -> AbstractRows:
    """The rows of ``A.T``, to be packed: ``block_csr(transposed_rows(A))``.

    A is read once to count, and then once for every eighth of its entries, of which a copy is held (of 16 million at least).
    Raises ``SparseInputError``: A has more rows than a packed matrix may have columns.
    """
    n_rows, n_columns = matrix.shape
    if isinstance(matrix, BlockCSR):
        name, entries = f"the transpose of {matrix.path or 'A'}", matrix.nnz
    else:
        name, entries = f"the transpose of {matrix.name}", matrix.expected_entries
    if n_rows > MOST_COLUMNS:
        advice = "split A by its rows"
        raise SparseInputError(name, "", f"it would have {n_rows} columns, more than {MOST_COLUMNS}", advice)
    rows = ScatteredRows(name, (n_columns, n_rows), lambda: _entries(matrix), entries)
    rows.path = matrix.path
    return rows


def _entries(matrix: BlockCSR | AbstractRows) -> Iterator[Entries]:
    """Entries of the transpose, a block of A at a time."""
    for run in matrix.runs():
        heights = np.diff(run.starts)
        columns = np.repeat(np.arange(run.first_row, run.first_row + len(heights), dtype=np.int64), heights)
        yield Entries(run.columns, columns.astype(np.int32), run.values)
