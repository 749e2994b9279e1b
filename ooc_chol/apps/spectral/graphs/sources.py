"""Graphs from matrices, files and NetworkX, looked at before anything is computed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph

AnyPath: TypeAlias = str | os.PathLike[str]
Floats: TypeAlias = NDArray[np.float64]

#: Largest difference of two weights of an edge, relative to the larger, that is taken for rounding and averaged.
_ROUNDING = 1e-12
_METIS = (".graph", ".graph.gz")
#: Largest whole weight such that it and all smaller ones are exact in float64.
_MOST_WHOLE = 2**53


class _Found(NamedTuple):
    """Content of a source."""

    matrix: csr_array
    name: str
    vertex_weights: NDArray[Any] | None = None
    is_file: bool = False
    names: tuple[Any, ...] | None = None  #: Of vertices, where they have other names than numbers


def as_graph(source: Any, *, vertex_weights: ArrayLike | None = None, name: str | None = None) -> Graph:
    """The graph of a symmetric matrix of weights, of a file, or of NetworkX.

    Parameters
    ----------
    source : Graph, sparse matrix, (n, n) array_like, BlockCSR, str or PathLike, rows of a source, or networkx.Graph
        Weights of edges, symmetric and not negative, 0 where there is none: a sparse matrix, an array, a packed matrix, the
        name of a file that :func:`ooc_chol.block_csr` reads, or what :func:`ooc_chol.edge_list` gives. A graph of
        NetworkX has weights of edges and vertices as attributes ``weight``, 1 where one has none; its vertices are numbered in
        its own order, and keep their names. A Graph is returned as it is.
    vertex_weights : (n,) array_like, optional
        Positive weights of vertices; by default those of the source, or ones.
    name : str, optional
        Name of the graph in messages; by default the name of the file or of the type.

    Returns
    -------
    Graph
        Without loops, which are counted, and zeros. It shares the arrays of a CSR matrix of float64 that needs no change.

    Raises
    ------
    oc.errors.SparseInputError
        The matrix is not square, not symmetric, or has negative, infinite or NaN weights, or whole ones beyond 2^53, which
        float64 would round; or a file is not as its format has it.
    TypeError
        The source is no graph, or is complex; or it is an Operator, which has diagonals beside its matrix.
    ValueError
        There are no vertices, or ``vertex_weights`` has another length or holds what is not positive and finite.

    Notes
    -----
    Two weights of an edge that differ by rounding, at most 1e-12 of the larger, are averaged. Repeated entries are added.

    Examples
    --------
    >>> import numpy as np
    >>> graph = as_graph(
    ...     np.array([[5.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]),
    ...     vertex_weights=[1, 1, 3],
    ... )
    >>> graph.n, graph.n_edges, graph.loops, graph.total_weight
    (3, 2, 1, 5.0)
    """
    if isinstance(source, Graph):
        graph = source if name is None else replace(source, name=name)
        if vertex_weights is None:
            return graph
        return replace(graph, vertex_weights=_vertex_weights(vertex_weights, graph.n, "vertex_weights"))
    found = _found(source)
    if name is not None:
        found = found._replace(name=name)
    adjacency, loops = _adjacency(found)
    n = adjacency.shape[0]
    if vertex_weights is not None:
        weights = _vertex_weights(vertex_weights, n, "vertex_weights")
    elif found.vertex_weights is not None:
        weights = _vertex_weights(found.vertex_weights, n, f"{found.name}: weights of its vertices")
    else:
        weights = np.ones(n)
    return Graph(adjacency, weights, found.name, loops, found.names)


def read_graph(path: AnyPath, *, vertex_weights: ArrayLike | None = None) -> Graph:
    """The graph in a file, with weights of edges and vertices: METIS's ``.graph``, or any other that ``oc.block_csr`` reads.

    Parameters
    ----------
    path : str or PathLike
        Name of the file; its ending says the format.
    vertex_weights : (n,) array_like, optional
        In place of those of the file.

    Returns
    -------
    Graph
        As of :func:`as_graph`.

    Raises
    ------
    oc.errors.SparseInputError
        The file is not as its format has it, which the message names with the line, or holds no graph.
    OSError
        There is no such file.
    TypeError
        It is no name of a file.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is a {type(path).__name__}; give the name of a file, or take as_graph")
    return as_graph(path, vertex_weights=vertex_weights)


# sources


def _found(source: Any) -> _Found:
    """The matrix of a source, its values as they are."""
    if isinstance(source, oc.Operator):
        raise TypeError("an Operator has diagonals around its matrix, which are no edges: give the matrix of the graph itself")
    if isinstance(source, str | os.PathLike):
        return _of_file(source)
    if _is_networkx(source):
        return _of_networkx(source)
    if isinstance(source, oc.BlockCSR):
        return _Found(source.tocsr(), source.path or "the packed matrix")
    if issparse(source):
        return _Found(_of_scipy(source), type(source).__name__)
    if tb.is_dense(source):
        return _Found(_of_array(source), "the array")
    with oc.block_csr(source) as packed:  # says what would do of what is no matrix
        name = str(getattr(source, "name", type(source).__name__))
        return _Found(packed.tocsr(), name, getattr(source, "vertex_weights", None))


def _of_file(path: AnyPath) -> _Found:
    """A file; the ending .graph means METIS's format, with weights of vertices."""
    name = os.fspath(path)
    if not os.path.isdir(name):
        tb.input_file(name).close()  # raises what is wrong with its name
    if not name.lower().endswith(_METIS) or Path(path).is_dir():
        with oc.block_csr(path) as packed:
            return _Found(packed.tocsr(), name, is_file=True)
    rows = oc.metis_graph(path)
    weights = rows.vertex_weights
    if weights is not None and weights.ndim == 2:
        problem = f"its vertices have {weights.shape[1]} weights each, but parts are balanced by one"
        raise oc.errors.SparseInputError(name, "", problem, "give one of them as vertex_weights, with the matrix as source")
    with oc.block_csr(rows) as packed:
        return _Found(packed.tocsr(), name, weights, is_file=True)


def _is_networkx(source: Any) -> bool:
    """Tell whether it is a graph of NetworkX, which is imported if there is one."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def _of_networkx(source: Any) -> _Found:
    """Its weights, 1 where there are none."""
    matrix, own = tb.networkx_adjacency(source), dict(source.nodes(data="weight", default=1))
    for vertex, weight in own.items():
        place, name = f"vertex {vertex!r:.40}", "the graph of NetworkX"
        if not isinstance(weight, Real | np.bool_):
            raise oc.errors.SparseInputError(name, place, f"the weight is {weight!r:.40}", "give a positive number")
        _check_whole(weight, place, name)
    weights = np.asarray([weight if isinstance(weight, Integral) else float(weight) for weight in own.values()])
    return _Found(_of_scipy(matrix), "the graph of NetworkX", weights if np.any(weights != 1) else None, names=tuple(own))


def _check_whole(weight: Any, place: str, name: str) -> None:
    """Refuse a whole weight that float64 would round."""
    if isinstance(weight, Integral) and int(weight) > _MOST_WHOLE:
        problem = f"the weight is {weight}, a whole number beyond 2^53, which float64 does not hold exactly"
        raise oc.errors.SparseInputError(name, place, problem, "give it as a float, or divide all weights by the same number")


def _of_scipy(source: Any) -> csr_array:
    """In CSR form with repeated entries added; what is canonical is shared."""
    _check_type(source.dtype, type(source).__name__)
    _check_square(source.shape, type(source).__name__)
    if isinstance(getattr(source, "data", None), np.ma.MaskedArray):  # a conversion would take what lies beneath
        tb.plain_array(f"{type(source).__name__}.data", source.data)
    if (dtype := _plain_type(source.dtype)) != source.dtype:
        source = source.astype(dtype)
    matrix = csr_array(source)
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise oc.errors.SparseInputError(type(source).__name__, "", str(error), "make the matrix anew") from error
    matrix = csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)  # knows nothing of what others promised
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _of_array(source: Any) -> csr_array:
    """Entries of an array that are not zero."""
    array = tb.plain_array("the array", source)
    _check_type(array.dtype, "the array")
    _check_square(array.shape, "the array")
    return csr_array(array.astype(_plain_type(array.dtype), copy=False))


def _plain_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which SciPy has such numbers: in the byte order of the machine, and none of two bytes."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize < 4 else dtype.newbyteorder("=")


def _check_type(dtype: Any, name: str) -> None:
    if np.dtype(dtype).kind == "c":
        raise TypeError(f"{name} is complex, but edges have real weights: take absolute values, or the real part")
    if np.dtype(dtype).kind not in "biuf":
        raise TypeError(f"{name} holds {np.dtype(dtype)}, but edges have real weights")


def _check_square(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        text = " x ".join(map(str, shape)) or "a number"
        raise oc.errors.SparseInputError(
            name, "", f"it is {text}", "the matrix of a graph has a row and a column for each vertex"
        )


# what a graph must be


def _adjacency(found: _Found) -> tuple[csr_array, int]:
    """The matrix without loops and zeros, symmetric to the bit, and how many loops there were."""
    matrix, name = found.matrix, found.name
    _check_square(matrix.shape, name)
    if not matrix.shape[0]:
        raise ValueError(f"{name} has no vertices")
    rows = np.repeat(np.arange(matrix.shape[0], dtype=matrix.indices.dtype), np.diff(matrix.indptr))
    if matrix.data.dtype.kind in "iu" and matrix.nnz and int(matrix.data.max()) > _MOST_WHOLE:
        at = int(matrix.data.argmax())
        _check_whole(int(matrix.data[at]), _place(int(rows[at]), int(matrix.indices[at]), found), name)
    values = matrix.data.astype(np.float64, copy=False)
    _check_values(values, rows, matrix.indices, found)
    is_loop, is_zero = rows == matrix.indices, values == 0.0
    loops = int(np.count_nonzero(is_loop & ~is_zero))
    kept = ~(is_loop | is_zero)
    if kept.all():
        adjacency = csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    else:
        starts = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr].astype(matrix.indptr.dtype)
        adjacency = csr_array((values[kept], matrix.indices[kept], starts), shape=matrix.shape)
    adjacency.has_canonical_format = True
    return _symmetric(adjacency, found), loops


def _check_values(values: Floats, rows: NDArray[Any], columns: NDArray[Any], found: _Found) -> None:
    """Refuse weights that are negative or not finite."""
    good = values >= 0  # not of NaN
    good &= values != np.inf
    if good.all():
        _check_sum(values, f"{found.name}: weights of its edges")
        return
    at = int(np.argmin(good))
    place, weight = _place(int(rows[at]), int(columns[at]), found), values[at]
    if weight < 0:
        problem = f"the weight is {weight:g}, and {np.count_nonzero(values < 0)} entries are negative"
        raise oc.errors.SparseInputError(found.name, place, problem, "edges have positive weights: shift or drop the others")
    raise oc.errors.SparseInputError(
        found.name, place, f"the weight is {weight}", "weights of edges are finite: leave the edge out"
    )


def _place(row: int, column: int, found: _Found) -> str:
    """An edge by its vertices, which METIS counts from 1."""
    if found.names is not None:
        return f"edge of {found.names[row]!r:.40} and {found.names[column]!r:.40}"
    one = found.is_file and found.name.lower().endswith(_METIS)
    return f"edge of vertices {row + one} and {column + one} (counted from {int(one)})"


def _symmetric(matrix: csr_array, found: _Found) -> csr_array:
    """The matrix if it is symmetric to the bit, the mean of both triangles if they differ by rounding only."""
    other = matrix.T.tocsr()
    if np.array_equal(matrix.indptr, other.indptr) and np.array_equal(matrix.indices, other.indices):
        if np.array_equal(matrix.data, other.data):
            return matrix
        if np.all(np.abs(matrix.data - other.data) <= _ROUNDING * np.maximum(matrix.data, other.data)):
            data = matrix.data / 2 + other.data / 2  # the same for both entries of an edge, since sums commute
            mean = csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
            mean.has_canonical_format = True
            return mean
    difference = abs(matrix - other).tocoo()
    at = int(np.argmax(difference.data))
    row, column = int(difference.row[at]), int(difference.col[at])
    problem = (
        f"it is not symmetric: entries ({row}, {column}) and ({column}, {row}) are {matrix[row, column]:g} and "
        f"{matrix[column, row]:g}, and differ the most of {np.count_nonzero(difference.data) // 2} pairs"
    )
    advice = "an edge stands in both triangles: take A + A.T, or np.maximum of both"
    raise oc.errors.SparseInputError(found.name, "", problem, advice)


def _vertex_weights(given: Any, n: int, what: str) -> Floats:
    """Positive weights, one for each vertex."""
    weights = tb.plain_array("vertex_weights", given)
    if weights.dtype.kind not in "biuf":
        raise TypeError(f"{what}: they are {weights.dtype}, but weights are real numbers")
    if weights.shape != (n,):
        raise ValueError(f"{what}: they have shape {weights.shape}, but the graph has {n} vertices: give one for each, ({n},)")
    with np.errstate(over="ignore"):
        values: Floats = weights.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if bad.size:
        raise ValueError(
            f"{what}: that of vertex {bad[0]} is {weights[bad[0]]:g}, and {bad.size} in all are not positive and finite; give "
            "positive weights, or leave these vertices out"
        )
    if weights.dtype.kind in "iu" and n and int(weights.max()) > _MOST_WHOLE:
        _check_whole(int(weights.max()), f"vertex {int(weights.argmax())}", what)
    _check_sum(values, what)
    return values


def _check_sum(values: Floats, what: str) -> None:
    """Refuse weights that are too large to be summed."""
    with np.errstate(over="ignore"):
        total = values.sum()
    if total == np.inf:
        raise ValueError(f"{what}: they sum up to more than float64 holds: divide all of them by {values.max():.1g}")
