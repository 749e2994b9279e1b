"""A mesh around a wing and an image, made here, for a first look at partitions and segments: no download."""

from __future__ import annotations

import importlib.util
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.sources import as_graph

#: How far points lie from the surface of the wing, in chords, at most: half of them are within a quarter of that.
_REACH = 0.8
#: Share of the points that do not fall into the wing.
_OUTSIDE = 0.8


class Mesh(NamedTuple):
    """A graph with places of its vertices, (n, 2)."""

    graph: Graph
    places: NDArray[np.float64]


class Peer(NamedTuple):
    """Result of another partitioner, and its seconds."""

    name: str
    cut: float
    imbalance: float
    seconds: float


def wing_mesh(points: int, *, seed: int = 0) -> Mesh:
    """A Delaunay triangulation of random points around a wing, dense near it."""
    with tb.guarded_imports():
        from scipy.spatial import Delaunay

    random = np.random.default_rng(seed)
    drawn = round(points / _OUTSIDE)
    along = random.uniform(0.0, 1.0, drawn)
    side = random.choice([-1.0, 1.0], drawn)
    angle = random.uniform(0.0, 2 * np.pi, drawn)
    away = _REACH * random.uniform(0.0, 1.0, drawn) ** 2
    places = np.column_stack([along, side * _half_thickness(along)]) + away[:, None] * np.column_stack(
        [np.cos(angle), np.sin(angle)]
    )
    places = places[~_is_inside(places)]
    corners = Delaunay(places).simplices
    corners = corners[~_is_inside(places[corners].mean(axis=1))]
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    kept, pairs = np.unique(pairs, return_inverse=True)
    tails, heads = pairs.reshape(-1, 2).T
    upper = coo_array((np.ones(len(tails)), (tails, heads)), shape=(len(kept), len(kept)))
    return Mesh(as_graph(csr_array(upper + upper.T), name="mesh around a wing"), places[kept])


def demo_image() -> tuple[NDArray[np.uint8], str]:
    """An image of about 100 x 130 pixels in grey: coins of scikit-image where that is installed, else two discs on noise."""
    if importlib.util.find_spec("skimage") is not None:
        with tb.guarded_imports():
            from skimage.data import coins
            from skimage.transform import resize

        some = coins()[160:280, 15:185]  # type: ignore[no-untyped-call]
        small = resize(some, (84, 119), anti_aliasing=True, preserve_range=True)  # type: ignore[no-untyped-call]
        return np.round(small).astype(np.uint8), "coins of scikit-image"
    rows, columns = np.mgrid[:84, :119]
    grey = np.random.default_rng(0).normal(60.0, 6.0, rows.shape)
    for row, column, radius, brighter in ((40, 32, 22, 70.0), (46, 86, 25, 120.0)):
        grey[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] += brighter
    return np.round(np.clip(grey, 0, 255)).astype(np.uint8), "two discs on noise"


def metis(graph: Graph, n_parts: int) -> Peer | None:
    """Partition of METIS with the least imbalance that it takes; None where pymetis is not installed."""
    if importlib.util.find_spec("pymetis") is None:
        return None
    with tb.guarded_imports(blas=False):
        import pymetis

    neighbours = pymetis.CSRAdjacency(graph.adjacency.indptr.tolist(), graph.adjacency.indices.tolist())
    since = time.perf_counter()
    found = pymetis.part_graph(n_parts, neighbours, options=pymetis.Options(ufactor=1, seed=0))
    seconds = time.perf_counter() - since
    labels = np.array(found.vertex_part, np.int32)
    sizes = graph.part_weights(labels, n_parts)
    return Peer("METIS", graph.cut(labels), float(sizes.max() * n_parts / graph.total_weight - 1), seconds)


def _half_thickness(along: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half thickness of a symmetric NACA aerofoil of 12 % (Jacobs, Ward and Pinkerton 1933), by the place along its chord."""
    x = np.clip(along, 0.0, 1.0)
    return np.asarray(0.6 * (0.2969 * np.sqrt(x) - 0.126 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4))


def _is_inside(places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell whether places are within the wing."""
    x, y = places.T
    return np.asarray((x > 0) & (x < 1) & (np.abs(y) < _half_thickness(x)))
