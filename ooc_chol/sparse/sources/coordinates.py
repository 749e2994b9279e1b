"""Matrices in CSC form, and in coordinate form: vectors, as entries in any order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from ooc_chol.errors import SparseInputError
from ooc_chol.sparse.canonical import Zeros, check_index_type, check_value_type
from ooc_chol.sparse.sources.compressed import Compressed
from ooc_chol.sparse.sources.scattered import PIECE_ENTRIES, Entries, ScatteredRows
from ooc_chol.sparse.sources.vectors import AbstractVector


def column_rows(compressed: Compressed, shape: tuple[int, int], *, zeros: Zeros = "keep") -> ScatteredRows:
    """Rows of a matrix in CSC form."""

    def pieces() -> Iterator[Entries]:
        for run in compressed.runs():
            columns = np.repeat(np.arange(run.first, run.first + run.starts.size - 1, dtype=np.int32), np.diff(run.starts))
            yield Entries(run.indices, columns, run.values)

    return ScatteredRows(compressed.name, shape, pieces, compressed.indices.size, zeros=zeros)


def coordinate_rows(
    source: str,
    shape: tuple[int, int],
    vectors: tuple[AbstractVector, AbstractVector, AbstractVector | None],
    *,
    zeros: Zeros = "keep",
) -> ScatteredRows:
    """Rows of a matrix in coordinate form: vectors of rows, columns and values, None where all are 1."""
    rows, columns, data = vectors
    check_index_type(rows.dtype, source, rows.name)
    check_index_type(columns.dtype, source, columns.name)
    if data is not None:
        check_value_type(data.dtype, source)
    there = [vector for vector in vectors if vector is not None]
    if len({vector.size for vector in there}) > 1:
        sizes = ", ".join(f"{vector.size} of {vector.name}" for vector in there)
        raise SparseInputError(source, "", f"its vectors have different lengths: {sizes}", "make the matrix anew")

    def pieces() -> Iterator[Entries]:
        with ExitStack() as stack:
            takes = [stack.enter_context(vector.opened()) for vector in there]
            for at in range(0, rows.size, PIECE_ENTRIES):
                taken = [take(min(PIECE_ENTRIES, rows.size - at)) for take in takes]
                yield Entries(taken[0], taken[1], taken[2] if data is not None else None)

    return ScatteredRows(source, shape, pieces, rows.size, zeros=zeros)
