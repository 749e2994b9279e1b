"""Graphs for tensors: from files, with as many vertices as there are slices, and from places."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.spatial import KDTree

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: Places whose largest coordinate is within so many powers of two from 1 are compared as they are.
_POWERS = 400
#: Endings of files whose lines are edges, which may not name the last vertices.
_EDGES = (".txt", ".csv", ".tsv", ".edges", ".el")


def read_graph(path: str | os.PathLike[str], n_vertices: int | None = None, *, base: int | None = None) -> csr_array:
    """The adjacency matrix of a graph in a file.

    Parameters
    ----------
    path : str or PathLike
        File that :func:`ooc_chol.block_csr` reads: a list of edges (``.txt``, ``.csv``, ``.tsv``, ``.edges``, ``.el``), METIS's
        ``.graph``, SciPy's ``.npz``, Matrix Market, a packed matrix; or a square array in a ``.npy`` file.
    n_vertices : int, optional
        How many vertices there are. A list of edges does not say so where the last ones have no edge.
    base : {0, 1}
        Number of the first vertex in a list of edges; as for :func:`ooc_chol.edge_list`.

    Returns
    -------
    (N, N) csr_array
        Weights, as they are: :class:`ooc_chol.GraphFourier` looks at them.

    Raises
    ------
    SparseInputError
        The file is not as its format has it.
    TierError
        It cannot be read.
    ValueError
        It has another number of vertices, or ``base`` is given and it is no list of edges.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "path.txt")
    ...     np.savetxt(path, [(0, 1), (1, 2)], fmt="%d")
    ...     read_graph(path, 4).shape
    (4, 4)
    """
    file = Path(path)
    name = file.name.lower().removesuffix(".gz")
    if base is not None and not name.endswith(_EDGES):
        raise ValueError(f"{file}: base is for lists of edges ({', '.join(_EDGES)}), and other files say it: leave it out")
    if name.endswith(".npy"):
        given = tb.input_npy(file, mapped=True)
        if given.ndim != 2 or given.dtype.kind not in "biufc":
            problem = f"it holds {given.dtype} of shape {given.shape}"
            raise oc.errors.SparseInputError(str(file), "", problem, "give a square array of weights")
        matrix = csr_array(given)
    elif name.endswith(_EDGES) and not file.is_dir():
        shape = None if n_vertices is None else (n_vertices, n_vertices)
        with oc.block_csr(oc.edge_list(file, base=base, shape=shape)) as packed:
            matrix = packed.tocsr()
    else:
        with oc.block_csr(file) as packed:
            matrix = packed.tocsr()
    if n_vertices is not None and matrix.shape != (n_vertices, n_vertices):
        rows, columns = matrix.shape
        raise ValueError(f"{file}: the matrix is {rows} x {columns}, but the tensor has {n_vertices} slices, one for each vertex")
    return csr_array(matrix)


def neighbour_graph(places: ArrayLike, n_neighbors: int = 8) -> csr_array:
    """A graph of places, each joined with its nearest ones: weights ``exp(-(d / s)**2)``, d the distance.

    Parameters
    ----------
    places : (N, d) array_like
        Coordinates.
    n_neighbors : int
        Neighbours of each place; two are joined where one is a neighbour of the other.

    Returns
    -------
    (N, N) csr_array
        Symmetric, without loops. The scale s is the median distance of the farthest neighbour.

    Raises
    ------
    ValueError
        Places are not finite numbers in rows, or there are not as many others.
    TypeError
        ``n_neighbors`` is no whole number.

    Examples
    --------
    >>> neighbour_graph([[0.0], [1.0], [3.0]], 1).nnz
    4
    """
    sites: NDArray[np.float64] = tb.plain_array("places", places, np.float64)
    if sites.ndim != 2 or not sites.shape[1] or not np.isfinite(sites).all():
        raise ValueError(f"places have shape {sites.shape}; give finite coordinates, a row for each vertex")
    n, n_neighbors = len(sites), tb.whole_number(n_neighbors, "n_neighbors")
    if not 1 <= n_neighbors < n:
        raise ValueError(f"n_neighbors is {n_neighbors}, but each of {n} places has 1 to {n - 1} others")
    power = math.frexp(float(np.abs(sites).max()))[1]
    if abs(power) > _POWERS:  # squares of distances are numbers of float64
        sites = np.ldexp(sites, -power)
    distances, nearest = KDTree(sites).query(sites, k=[*range(1, n_neighbors + 2)])
    # Of places that coincide any may come first, and not always the place itself.
    others = nearest != np.arange(n)[:, None]
    others &= np.cumsum(others, axis=1) <= n_neighbors
    scale = float(np.median(np.where(others, distances, 0).max(axis=1))) or 1.0
    rows = np.nonzero(others)[0]
    weights = np.exp(-((distances[others] / scale) ** 2))
    one_way = csr_array((weights, (rows, nearest[others])), shape=(n, n))
    return csr_array(one_way.maximum(one_way.T))
