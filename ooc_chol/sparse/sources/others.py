"""Matrices that are no sparse matrices of SciPy: dense arrays and tables, graphs of NetworkX, sparse arrays of JAX."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Complex, Integral, Rational
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse

from ooc_chol.errors import SparseInputError, UnsupportedTypeError
from ooc_chol.files.inputs import plain_array
from ooc_chol.process.address_space import guarded_imports
from ooc_chol.sparse.canonical import Rules, Zeros, canonical, check_value_type
from ooc_chol.sparse.rows import AbstractRows, RowCounts, Rows
from ooc_chol.sparse.sources.compressed import RUN_ENTRIES
from ooc_chol.sparse.sources.npy import input_npy
from ooc_chol.sparse.values import MOST_WHOLE


@final
class DenseRows(AbstractRows):
    """Rows of a dense matrix, in memory or mapped: of its numbers those that are not zero."""

    def __init__(self, array: NDArray[Any], name: str, zeros: Zeros = "keep") -> None:
        if array.ndim != 2:
            advice = "a matrix has two: reshape it, or give one of several"
            raise SparseInputError(name, "", f"it has {array.ndim} dimensions", advice)
        check_value_type(array.dtype, name)
        self.name, self.shape = name, (int(array.shape[0]), int(array.shape[1]))
        self.expected_entries = int(array.size)
        self.counts = RowCounts()
        self._array, self._rules = array, Rules(name, self.shape[1], zeros)

    def runs(self) -> Iterator[Rows]:
        """Some rows at a time, which are read then."""
        counts, step = RowCounts(), max(1, RUN_ENTRIES // max(1, self.shape[1]))
        for first in range(0, self.shape[0], step):
            piece = np.asarray(self._array[first : first + step])
            rows, columns = np.nonzero(piece)
            starts = np.searchsorted(rows, np.arange(len(piece) + 1)).astype(np.int64)
            yield canonical(first, starts, columns, piece[rows, columns], self._rules, counts)
        self.counts = counts


def is_dense(source: Any) -> bool:
    """Tell whether NumPy makes a dense array of what is given.

    Parameters
    ----------
    source : object
        Object that a caller gave as a matrix.

    Returns
    -------
    bool
        True for an array or a dense tensor of any library, a table, a list.
    """
    if isinstance(source, tuple) and len(source) == 3 and isinstance(source[2], str):
        return False  # facts of a matrix, for plans
    if isinstance(source, np.ndarray | list | tuple):
        return True
    if issparse(source) or hasattr(source, "tocsr") or str(getattr(source, "layout", "")).startswith("torch.sparse_"):
        return False
    return hasattr(source, "__array__") and getattr(source, "ndim", 0) == 2


def dense_rows(source: Any, zeros: Zeros, name: str | None) -> DenseRows:
    """The rows of what :func:`is_dense`.

    Raises ``TypeError``, ``MissingValueError``, ``UnsupportedTypeError`` and ``SparseInputError``.
    """
    return DenseRows(plain_matrix(source), name or f"the {type(source).__name__}", zeros)


def plain_matrix(source: Any) -> NDArray[Any]:
    """The array of what :func:`is_dense`; of a tensor of PyTorch without its gradient.

    Raises ``TypeError``, ``MissingValueError`` and ``UnsupportedTypeError``.
    """
    if type(source).__module__.split(".")[0] == "torch":
        if str(source.dtype) == "torch.bfloat16":
            raise UnsupportedTypeError("a matrix of PyTorch", "bfloat16", "convert it to float32, A.float()")
        source = source.detach().resolve_conj().resolve_neg()
    return plain_array("A", source)


def npy_rows(path: str | PathLike[str], *, zeros: Zeros = "keep", name: str | None = None) -> DenseRows:
    """The rows of a dense matrix in a ``.npy`` file, read as they are wanted."""
    return DenseRows(input_npy(path, mapped=True), name or str(path), zeros)


def is_networkx(source: Any) -> bool:
    """Tell whether it is a graph of NetworkX."""
    return type(source).__module__.startswith("networkx.") and hasattr(source, "edges")


def networkx_adjacency(graph: Any) -> csr_array:
    """The matrix of a graph of NetworkX.

    Parameters
    ----------
    graph : networkx.Graph
        The graph; weights are its attributes ``weight``, 1 where an edge has none.

    Returns
    -------
    csr_array
        Rows and columns in the order of the graph's own vertices; of a directed graph row to column.

    Raises
    ------
    SparseInputError
        A weight is no number, or a whole one that float64 would round.
    ValueError
        The graph has no vertices.
    """
    with guarded_imports(blas=False):
        import networkx

    if not len(graph):
        raise ValueError("the graph of NetworkX has no vertices")
    is_fraction = False
    for one, other, weight in graph.edges(data="weight", default=1):
        place = f"edge of {one!r:.40} and {other!r:.40}"
        if not isinstance(weight, Complex | np.bool_):  # which real numbers are, too
            raise SparseInputError("the graph of NetworkX", place, f"the weight is {weight!r:.40}", "give a number")
        if isinstance(weight, Integral) and abs(int(weight)) > MOST_WHOLE:
            problem = f"the weight is {weight}, a whole number beyond 2^53, which float64 does not hold exactly"
            advice = "give it as a float, or divide all weights by the same number"
            raise SparseInputError("the graph of NetworkX", place, problem, advice)
        is_fraction |= isinstance(weight, Rational) and not isinstance(weight, Integral)
    dtype = np.float64 if is_fraction else None
    return csr_array(networkx.to_scipy_sparse_array(graph, dtype=dtype, weight="weight", format="csr"))


def of_sparse_table(source: Any) -> Any:
    """A matrix of SciPy with the entries of a table of pandas whose columns are all sparse; None of anything else."""
    try:
        return source.sparse.to_coo() if type(source).__module__.startswith("pandas.") else None
    except AttributeError:  # pandas' own answer where a column is dense
        return None


def of_jax(source: Any) -> Any:
    """A matrix of SciPy with the entries of JAX's BCOO or BCSR; None of anything else. Raises ``SparseInputError``."""
    kind = type(source)
    if not kind.__module__.startswith("jax.experimental.sparse") or kind.__name__ not in ("BCOO", "BCSR"):
        return None
    if source.n_batch or source.n_dense or len(source.shape) != 2:
        problem = f"shape {source.shape}, {source.n_batch} axes of batches and {source.n_dense} dense ones"
        raise SparseInputError(kind.__name__, "", problem, "a matrix is needed: give one of them, with update_layout(n_dense=0)")
    data, indices = np.asarray(source.data), np.asarray(source.indices)
    if kind.__name__ == "BCSR":
        return csr_array((data, indices, np.asarray(source.indptr)), shape=source.shape)
    there = (indices < np.asarray(source.shape)).all(1)  # entries beyond the matrix fill JAX's arrays up
    return coo_array((data[there], tuple(indices[there].T)), shape=source.shape)
