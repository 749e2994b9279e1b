"""Matrices of every kind as rows of real numbers."""

from __future__ import annotations

from typing import Any

from ooc_chol.files.inputs import check_entries


def float_rows(matrix: Any, name: str) -> Any:
    """A matrix in compressed rows, as SciPy has them: its own entries where it is sparse and of float32 or float64."""
    if hasattr(matrix, "tocsr") and len(getattr(matrix, "shape", ())) == 2 and matrix.dtype in ("float32", "float64"):
        check_entries(name, matrix)
        return matrix.tocsr()
    from ooc_chol.sparse.pack import block_csr  # an operation of NumPy needs no SciPy

    with block_csr(matrix) as packed:
        return packed.tocsr()
