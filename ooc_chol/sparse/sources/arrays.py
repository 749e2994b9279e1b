"""Matrices in memory: sparse ones of SciPy, cupyx and PyTorch, and all that becomes one."""

from __future__ import annotations

from typing import Any

from scipy.sparse import issparse

from ooc_chol.errors import SparseInputError
from ooc_chol.files.inputs import check_entries
from ooc_chol.sparse.canonical import Zeros
from ooc_chol.sparse.rows import AbstractRows
from ooc_chol.sparse.sources.compressed import Compressed, CompressedRows
from ooc_chol.sparse.sources.coordinates import column_rows, coordinate_rows
from ooc_chol.sparse.sources.others import dense_rows, is_dense, is_networkx, networkx_adjacency, of_jax, of_sparse_table
from ooc_chol.sparse.sources.vectors import ArrayVector

#: The arrays of each format.
_PARTS = {"csr": ("indptr", "indices", "data"), "csc": ("indptr", "indices", "data"), "coo": ("row", "col", "data")}
#: What would do for objects of other libraries, by the beginning of the name of their type.
_ADVICE = {
    "builtins.tuple": "plans are made of facts; pass the matrix that they are of",
    "igraph.": "pass G.get_adjacency_sparse()",
    "networkit.": "pass networkit.algebraic.adjacencyMatrix(G)",
    "sparse.": "pass A.to_scipy_sparse()",
    "scipy.sparse.linalg.": "its entries cannot be read: pass the matrix behind it",
}


def array_rows(matrix: Any, *, zeros: Zeros = "keep", name: str | None = None) -> AbstractRows:
    """The rows of a matrix in memory, which is never changed.

    Raises ``TypeError``, ``UnsupportedTypeError`` and ``SparseInputError``.
    """
    kind = type(matrix)
    source = name or kind.__name__
    if kind.__module__.split(".")[0] == "torch" and str(getattr(matrix, "layout", "")).startswith("torch.sparse_"):
        return _tensor_rows(matrix, source, zeros)
    if is_networkx(matrix):
        matrix, source = networkx_adjacency(matrix), name or "the graph of NetworkX"
    elif (same := of_jax(matrix)) is not None or (same := of_sparse_table(matrix)) is not None:
        matrix = same
    elif is_dense(matrix):
        return dense_rows(matrix, zeros, name)
    if not issparse(matrix) and not (kind.__module__.startswith("cupyx.") and hasattr(matrix, "format")):
        raise TypeError(f"A is a {_full_name(kind)}, which is no sparse matrix: {_advice(matrix)}")
    if len(matrix.shape) != 2:
        raise SparseInputError(source, "", f"it has {len(matrix.shape)} dimensions", "a matrix has two: reshape it")
    check_entries("A", matrix)
    if matrix.format not in _PARTS:
        matrix, source = matrix.tocsr(), name or f"{source}, converted to CSR"
    shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    first, second, data = (ArrayVector(getattr(matrix, part), part, source) for part in _PARTS[matrix.format])
    if matrix.format == "coo":
        return coordinate_rows(source, shape, (first, second, data), zeros=zeros)
    if matrix.format == "csc":
        return column_rows(Compressed(source, shape[1], first, second, data), shape, zeros=zeros)
    return CompressedRows(Compressed(source, shape[0], first, second, data), shape, zeros=zeros)


def _tensor_rows(tensor: Any, source: str, zeros: Zeros) -> AbstractRows:
    """Rows of a sparse tensor of PyTorch."""
    tensor = tensor.detach()
    layout, shape = str(tensor.layout), tuple(int(size) for size in tensor.shape)
    hybrid = f", of which {tensor.dense_dim()} dense" if tensor.dense_dim() else ""
    if len(shape) != 2 or layout not in ("torch.sparse_csr", "torch.sparse_coo") or tensor.dense_dim():
        raise SparseInputError(source, "", f"{layout} of shape {shape}{hybrid}", "a matrix is needed: pass A.to_sparse_csr()")
    if layout == "torch.sparse_csr":
        parts = (tensor.crow_indices(), "crow_indices"), (tensor.col_indices(), "col_indices"), (tensor.values(), "values")
        indptr, indices, data = (ArrayVector(part, what, source) for part, what in parts)
        return CompressedRows(Compressed(source, shape[0], indptr, indices, data), (shape[0], shape[1]), zeros=zeros)
    places = tensor._indices()  # not indices(), which wants repeated entries added first
    rows, columns = (ArrayVector(place, what, source) for place, what in zip(places, ("rows", "columns"), strict=True))
    return coordinate_rows(
        source, (shape[0], shape[1]), (rows, columns, ArrayVector(tensor._values(), "values", source)), zeros=zeros
    )


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _advice(matrix: Any) -> str:
    """Advice on a replacement."""
    full = _full_name(type(matrix))
    known = next((advice for start, advice in _ADVICE.items() if full.startswith(start)), None)
    return known or "pass a sparse array of SciPy (scipy.sparse.csr_array(A)), or the path of a file"
