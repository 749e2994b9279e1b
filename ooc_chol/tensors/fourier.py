"""The Fourier transform over a graph: eigenvectors of its Laplacian, all of them or the smoothest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components

from ooc_chol.config import whole_number
from ooc_chol.display.prints import one_line
from ooc_chol.eigen.solve import EigshCall, eigenpairs
from ooc_chol.errors import BudgetError, SparseInputError
from ooc_chol.files.inputs import check_entries, plain_array
from ooc_chol.hardware.registry import device_kind, memory_info, resolve_devices
from ooc_chol.kernels.registry import dense_eigenpairs, dense_eigenpairs_bytes
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.operator import laplacian
from ooc_chol.sparse.pack import block_csr
from ooc_chol.sparse.planning import Devices

#: Vertices up to which LAPACK computes all eigenvectors of a component even where few are wanted, and the share of them that are
#: wanted from which on it does for any.
_DENSE_ORDER, _DENSE_SHARE = 1500, 0.2
#: Vertices of a component from which on a GPU computes all of its eigenvectors sooner than the way there takes.
_GPU_ORDER = 512
#: Largest asymmetry of weights, relative to the largest of them, that is taken for rounding.
_ROUNDING = 1e-6
#: Eigenvalues whose difference is so small a share of the largest are one; seed of what its eigenvectors are chosen by.
_SAME, _SEED = 1e-10, 0
#: Graphs whose largest weight is within so many powers of two from 1 are taken as they are, weights the sum of two of which is
#: one of float64, and degrees whose reciprocals are.
_POWERS, _HUGE, _TINY = 900, 2.0**1022, 1e-290
#: Columns of an unfolding that are transformed at a time.
_COLUMNS = 4096


@final
class GraphFourier:
    """Fourier transform of data at the vertices of a graph: ``U.T @ X``, U the eigenvectors of the graph's Laplacian.

    Parameters
    ----------
    graph : sparse matrix, BlockCSR, array, or what :func:`block_csr` packs
        Adjacency matrix (N, N): symmetric, of weights that are not negative.
    normalized : bool
        Take the Laplacian ``I - D^-1/2 A D^-1/2``, as for :func:`laplacian`, or ``D - A``.
    n_components : int, optional
        How many eigenvectors, those of the smallest eigenvalues; by default all.
    devices : str, sequence of str, or int, optional
        Where eigenvectors are computed: all of a component of 512 vertices and more on the first device, where that is a GPU, a
        part of those of a large graph on all. By default a GPU that is there and has the memory.

    Attributes
    ----------
    eigenvalues : (r,) array
        Ascending, float64: the graph's frequencies, squared.
    basis : (N, r) array
        U, float64, orthonormal columns.
    n_vertices, n_components : int
        N and r.
    normalized : bool
        Which Laplacian.
    weights : (N, N) csr_array
        The graph, as it was taken: float64, symmetric to the bit.
    eigenspaces : tuple of range
        Columns of the basis that share an eigenvalue and a component, where these are several: their choice is free.
    labels : (N,) array
        Number of the connected component of each vertex.
    devices : tuple of str
        Where eigenvectors of the largest component were computed; empty where no two vertices are neighbours.

    Raises
    ------
    ValueError
        The graph is not square or not symmetric, holds a weight that is negative, NaN or infinite, or has no such number of
        components; ``SparseInputError`` where the entry can be told.
    TypeError
        It is no graph, or holds complex numbers.
    BudgetError
        The memory for all eigenvectors is not there, in host memory or on a device that was named.
    NoConvergenceError
        :func:`eigsh` has not found a part of them.

    Notes
    -----
    Eigenvectors are computed for each connected component by itself, so that none of them mixes components: what is observed
    in one says nothing of another. LAPACK, or cuSOLVER on a GPU, computes all of a component, in ``O(n**3)`` flops and 24 n^2
    bytes of host memory (40 of a GPU's); of more than 1,500 vertices, less than a fifth of the eigenvectors come from
    :func:`eigsh`.

    Multiple eigenvalues leave the choice of their eigenvectors open, and what is of low rank in one need not be so in another.
    Those nearest to fixed random vectors are taken, by QR of the projections of these onto the space of an eigenvalue. So the
    basis depends on the graph and the order of its vertices alone, up to rounding. They are
    spread over all places where the space lives, where a library's may be at home at two vertices alone.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> path = np.diag([1.0, 1.0], 1) + np.diag([1.0, 1.0], -1)
    >>> fourier = oc.GraphFourier(path, normalized=False)
    >>> np.abs(fourier.eigenvalues).round(12).tolist()
    [0.0, 1.0, 3.0]
    >>> x = np.arange(12.0).reshape(3, 2, 2)
    >>> bool(np.allclose(fourier.inverse(fourier.forward(x)), x))
    True
    """

    def __init__(self, graph: Any, *, normalized: bool = True, n_components: int | None = None, devices: Devices = None) -> None:
        if normalized not in (True, False):
            raise ValueError(f"normalized={normalized!r:.40}: give True or False")
        weights = _adjacency(graph)
        n = weights.shape[0]
        count = n if n_components is None else whole_number(n_components, "n_components")
        if not 1 <= count <= n:
            raise ValueError(f"n_components is {count}, but a graph of {n} vertices has 1 to {n}")
        check_room(8 * n * count, f"{count} eigenvectors of a graph of {n} vertices", "take fewer (n_components)")
        self.normalized, self.weights = bool(normalized), weights
        self.labels: NDArray[np.int32] = connected_components(weights, directed=False)[1]
        where = _Where(resolve_devices(devices), devices is not None)
        parts = [_component(weights, rows, self.normalized, count, where) for rows in _members(self.labels)]
        computed = [part for part in parts if part.devices]
        self.devices: tuple[str, ...] = max(computed, key=lambda part: len(part.rows)).devices if computed else ()
        self.eigenvalues: NDArray[np.float64]
        self.basis: NDArray[np.float64]
        self.eigenvalues, self.basis = _merged(parts, n, count)
        adjacent = [each for space in multiple_spaces(self) for each in np.split(space, np.flatnonzero(np.diff(space) > 1) + 1)]
        runs = sorted((int(each[0]), len(each)) for each in adjacent if len(each) > 1)
        self.eigenspaces = tuple(range(first, first + count) for first, count in runs)

    @property
    def n_vertices(self) -> int:
        """Vertices of the graph, N."""
        return len(self.basis)

    @property
    def n_components(self) -> int:
        """Eigenvectors, r."""
        return len(self.eigenvalues)

    def forward(self, X: NDArray[Any]) -> NDArray[Any]:
        """The transform ``U.T @ X``.

        Parameters
        ----------
        X : (N, ...) array
            float32 or float64, with any further axes.

        Returns
        -------
        (r, ...) array
            Array of the same type; computed in float64.

        Raises
        ------
        ValueError
            X has another length than the graph has vertices.
        TypeError
            X holds something else than float32 or float64.
        """
        return self._product(self.basis.T, X, "X", "vertices")

    def inverse(self, Xh: NDArray[Any]) -> NDArray[Any]:
        """The inverse transform ``U @ Xh``; of a part of the eigenvectors, the projection onto them of what was transformed.

        Parameters
        ----------
        Xh : (r, ...) array
            float32 or float64, with any further axes.

        Returns
        -------
        (N, ...) array
            Array of the same type; computed in float64.

        Raises
        ------
        ValueError
            Xh has another length than there are eigenvectors.
        TypeError
            Xh holds something else than float32 or float64.
        """
        return self._product(self.basis, Xh, "Xh", "components")

    def _product(self, left: NDArray[np.float64], given: Any, name: str, what: str) -> NDArray[Any]:
        array = plain_array(name, given)
        if array.dtype not in (np.float32, np.float64):
            raise TypeError(f"{name} holds {array.dtype}; give float32 or float64, such as {name}.astype(numpy.float32)")
        if array.ndim < 1 or len(array) != left.shape[1]:
            raise ValueError(f"{name} has shape {array.shape}, but its first axis is over {left.shape[1]} {what}")
        flat = array.reshape(len(array), -1)
        out = np.empty((len(left), flat.shape[1]), array.dtype)
        for at in range(0, flat.shape[1], _COLUMNS):
            out[:, at : at + _COLUMNS] = left @ flat[:, at : at + _COLUMNS].astype(np.float64)
        return out.reshape(len(left), *array.shape[1:])

    def __repr__(self) -> str:
        return one_line(self, {"n_vertices": self.n_vertices, "n_components": self.n_components, "normalized": self.normalized})


class _Part(NamedTuple):
    """Eigenpairs of one component."""

    rows: NDArray[np.intp]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]  #: (len(rows), len(values))
    devices: tuple[str, ...] = ()


class _Where(NamedTuple):
    """Devices, and whether somebody named them."""

    names: tuple[str, ...]
    is_asked: bool

    def dense(self, n: int) -> str:
        """Which of them computes all eigenvectors of a component of n vertices; of several, the first."""
        first = self.names[0]
        if device_kind(first).is_in_host_memory or n < _GPU_ORDER:
            return "host:0"
        free, needed = memory_info(first)[0], dense_eigenpairs_bytes(first, n)
        if free >= needed:
            return first
        if self.is_asked:
            raise BudgetError(f"memory of {first} for all eigenvectors of {n} vertices", needed, free, "take devices='host'")
        return "host:0"


def fourier_of(graph: Any, devices: Devices = None) -> GraphFourier:
    """A transform as it is, or that of a graph."""
    return graph if isinstance(graph, GraphFourier) else GraphFourier(graph, devices=devices)


def order_of(graph: Any) -> int:
    """Vertices of a graph; what is no matrix yet is packed for that."""
    if isinstance(graph, BlockCSR) or issparse(graph) or isinstance(graph, np.ndarray):
        return int(graph.shape[0])
    return int(_adjacency(graph).shape[0])


def _adjacency(graph: Any) -> csr_array:
    """Weights in float64, symmetric to the bit."""
    if isinstance(graph, BlockCSR):
        given = graph.tocsr()
    elif issparse(graph) or isinstance(graph, np.ndarray):
        given = _sparse(graph)
    else:
        with block_csr(graph) as packed:
            given = packed.tocsr()
    if given.shape[0] != given.shape[1] or not given.shape[0]:
        raise ValueError(f"the graph is {given.shape[0]} x {given.shape[1]}; give a square adjacency matrix of its vertices")
    weights = csr_array(given, dtype=np.float64, copy=True)  # what the caller gave is not changed
    weights.sum_duplicates()
    _check_weights(weights, type(graph).__name__)
    weights.eliminate_zeros()
    if weights.nnz and weights.data.max() > _HUGE:
        return (weights / 2 + weights.T / 2).tocsr()
    return (weights + weights.T).tocsr() / 2


def _sparse(graph: Any) -> csr_array:
    """A sparse or dense matrix of real numbers."""
    if graph.ndim != 2 or graph.dtype.kind not in "biuf":
        raise TypeError(f"the graph is an array of {graph.dtype} with {graph.ndim} axes; give a square matrix of real weights")
    check_entries("the graph", graph)
    return csr_array(graph.astype(np.float64) if issparse(graph) else plain_array("the graph", graph, np.float64))


def _check_weights(weights: csr_array, name: str) -> None:
    """Raise for a weight that is none, and for one that differs the other way."""
    rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    if len(bad := np.flatnonzero(~(np.isfinite(weights.data) & (weights.data >= 0)))):
        at, value = bad[0], weights.data[bad[0]]
        place = f"entry ({rows[at]}, {weights.indices[at]})"
        advice = "give finite weights of at least 0: take abs(A), or leave such edges out"
        raise SparseInputError(name, place, f"the weight is {value:g}", advice)
    difference = abs(weights - weights.T).tocoo()
    if difference.nnz and difference.data.max() > _ROUNDING * weights.data.max():
        at = int(difference.data.argmax())
        one, other = int(difference.row[at]), int(difference.col[at])
        there = f"the weight is {weights[one, other]:g}, but the other way it is {weights[other, one]:g}"
        raise SparseInputError(name, f"entry ({one}, {other})", there, "give an undirected graph, such as (A + A.T) / 2")


def _members(labels: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    """Vertices of each component that has edges between them, and of all others together."""
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    alone = [part for part in parts if len(part) == 1]
    return [part for part in parts if len(part) > 1] + ([np.concatenate(alone)] if alone else [])


def _component(weights: csr_array, rows: NDArray[np.intp], normalized: bool, count: int, where: _Where) -> _Part:
    """The smoothest eigenvectors of a component, at most ``count``; those of vertices without neighbours are unit vectors."""
    n, part = len(rows), weights[rows][:, rows].tocsr()
    wanted = min(n, count)
    if _is_diagonal(part):
        return _Part(rows[:wanted], np.zeros(wanted), np.eye(wanted))
    power = math.frexp(float(part.data.max()))[1]
    if abs(power) > _POWERS:  # sums of weights and reciprocals are numbers of float64
        part.data = np.ldexp(part.data, -power)
        found = _component_of(part, rows, normalized, wanted, where)
        return found if normalized else found._replace(values=_unscaled(found.values, power))
    return _component_of(part, rows, normalized, wanted, where)


def _unscaled(values: NDArray[np.float64], power: int) -> NDArray[np.float64]:
    """Eigenvalues of weights before they were divided by ``2**power``."""
    with np.errstate(over="ignore"):
        found: NDArray[np.float64] = np.ldexp(values, power)
    if not np.isfinite(found).all():
        raise ValueError("an eigenvalue of the Laplacian is more than float64 holds: divide all weights by 1e10")
    return found


def _component_of(part: csr_array, rows: NDArray[np.intp], normalized: bool, wanted: int, where: _Where) -> _Part:
    """The same of a component with edges, by its matrix."""
    n = len(rows)
    if n > _DENSE_ORDER and wanted < _DENSE_SHARE * n:
        operator = laplacian(part, normalized=normalized)
        try:
            values, vectors = eigenpairs(EigshCall(operator, wanted, which="SA", precision="DDD", devices=where.names))
        finally:
            operator.matrix.close()
        return _Part(rows, values, _chosen(values, np.asarray(vectors, np.float64)), where.names)
    check_room(3 * 8 * n * n, f"all eigenvectors of a graph of {n} vertices", "take fewer than a fifth of them (n_components)")
    device = where.dense(n)
    values, vectors = dense_eigenpairs(device, _dense_laplacian(part, normalized))
    vectors = _chosen(values, vectors)
    return _Part(rows, values[:wanted], vectors[:, :wanted], (device,))


def _chosen(values: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors nearest to fixed random R for each eigenvalue: ``V Q``, ``V.T R = Q T`` with a positive diagonal of T."""
    rng = np.random.default_rng(_SEED)
    found = vectors * np.where(rng.standard_normal(len(vectors)) @ vectors < 0, -1.0, 1.0)
    for space in _spaces(values):
        v = vectors[:, space]
        found[:, space] = v @ orthogonal(v.T @ rng.standard_normal(v.shape))
    return found


def _spaces(values: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Numbers of ascending eigenvalues that are one and the same, for each that is there more than once."""
    borders = np.flatnonzero(np.diff(values) > _SAME * float(np.abs(values).max())) + 1
    return [space for space in np.split(np.arange(len(values)), borders) if len(space) > 1]


def orthogonal(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """Q of ``A = Q T`` with a positive diagonal of T: for a normal A, any orthogonal matrix is as likely as any other."""
    q, t = np.linalg.qr(a)
    return q * np.where(np.diagonal(t) < 0, -1.0, 1.0)


def multiple_spaces(fourier: GraphFourier) -> Iterator[NDArray[np.intp]]:
    """Columns of the basis that share an eigenvalue and a component: their choice is the solver's."""
    owners = fourier.labels[np.abs(fourier.basis).argmax(axis=0)]
    order = np.argsort(owners, kind="stable")
    for columns in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
        yield from (columns[space] for space in _spaces(fourier.eigenvalues[columns]))


def _is_diagonal(part: csr_array) -> bool:
    """Tell whether no two vertices are neighbours."""
    entries = part.tocoo()
    return bool((entries.row == entries.col).all())


def _dense_laplacian(part: csr_array, normalized: bool) -> NDArray[np.float64]:
    """The Laplacian of a component whose vertices all have neighbours."""
    a: NDArray[np.float64] = part.toarray()
    degrees = a.sum(axis=1)
    if normalized:
        scaling = 1 / np.sqrt(degrees)
        if degrees.min() < _TINY:  # the product of two is more than float64 holds
            a *= -scaling[:, None]
            a *= scaling[None, :]
        else:
            a *= -scaling[:, None] * scaling[None, :]
        a[np.diag_indices_from(a)] += 1.0
    else:
        np.negative(a, out=a)
        a[np.diag_indices_from(a)] += degrees
    return a


def _merged(parts: list[_Part], n: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ``count`` smoothest eigenvectors of all components, each zero outside of its own.

    Of eigenvalues that are one those of a component stand side by side.
    """
    values = np.concatenate([part.values for part in parts])
    owners = np.repeat(np.arange(len(parts)), [len(part.values) for part in parts])
    columns = np.concatenate([np.arange(len(part.values)) for part in parts])
    chosen = np.argsort(values, kind="stable")[:count]
    numbers = np.cumsum(np.diff(values[chosen], prepend=values[chosen[0]]) > _SAME * float(np.abs(values).max()))
    frequencies, chosen = values[chosen], chosen[np.lexsort((owners[chosen], numbers))]
    basis = np.zeros((n, len(chosen)))
    for number, part in enumerate(parts):
        places = np.flatnonzero(owners[chosen] == number)
        basis[np.ix_(part.rows, places)] = part.vectors[:, columns[chosen[places]]]
    return frequencies, basis
