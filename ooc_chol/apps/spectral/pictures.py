"""Pictures of partitions and of segmentations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.shared.pictures import PictureFiles, new_figure, require_matplotlib
from ooc_chol.apps.spectral.graphs.components import components, joined
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.solving.eigenpairs import lowest_eigenpairs
from ooc_chol.apps.spectral.solving.lowest import SolverOptions

_FILES = PictureFiles("spectral")
#: Files that a new picture may replace.
PICTURES = _FILES.kind
save_figure = _FILES.write

#: Most edges that are all drawn; of more, those that are cut are, and vertices.
MOST_EDGES = 300_000
#: Free space around the drawing of a component, as a share of its side.
_GAP = 0.15


def partition_figure(graph: Graph, labels: NDArray[Any], places: NDArray[np.float64], *, title: str = "") -> Any:
    """Edges in the colours of their parts, and those that are cut in black.

    Shapes: ``labels`` (n,), ``places`` (n, 2) or (n, 3). Raises ``oc.OocCholError`` and ``ValueError``.
    """
    _check_vertices(graph, labels, places)
    flat, depth = _seen(places)
    across, up = np.ptp(flat, axis=0).tolist()
    figure = _figure((9.0, float(np.clip(9.0 * up / across, 2.0, 12.0)) if across else 9.0))
    with tb.guarded_imports(blas=False):
        from matplotlib.collections import LineCollection

    colours = part_colours(int(labels.max()) + 1)
    tails, heads = _edges(graph)
    order = np.argsort(depth[tails] + depth[heads], kind="stable")
    tails, heads = tails[order], heads[order]
    is_cut = labels[tails] != labels[heads]
    axes = figure.add_subplot()
    if len(tails) > MOST_EDGES or not len(tails):
        axes.scatter(*flat.T, c=colours[labels], s=float(np.clip(40_000 / graph.n, 0.2, 40.0)), linewidths=0, rasterized=True)
        shown = is_cut
    else:
        shown = np.ones(len(tails), bool)
    width = float(np.clip(60 / np.sqrt(graph.n), 0.25, 1.5))
    lines = np.stack([flat[tails], flat[heads]], axis=1)[shown]
    shades = np.where(is_cut[:, None], [[0.0, 0.0, 0.0, 1.0]], colours[labels[tails]])[shown]
    widths = np.where(is_cut, 2.5 * width, width)[shown]
    axes.add_collection(LineCollection(list(lines), colors=shades, linewidths=widths, rasterized=True))
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_title(title)
    return figure


def segments_figure(image: NDArray[Any], labels: NDArray[Any], *, title: str = "") -> Any:
    """An image with the borders of its segments, beside the segments in their mean colours.

    Shapes: ``image`` (rows, columns) or (rows, columns, channels), ``labels`` (rows, columns). Raises ``oc.OocCholError`` and
    ``ValueError``.
    """
    if image.shape[:2] != labels.shape or labels.ndim != 2:
        raise ValueError(f"labels of shape {labels.shape} are not those of an image of shape {image.shape}")
    rows, columns = labels.shape
    figure = _figure((14.0, float(np.clip(7.0 * rows / columns + 0.8, 2.5, 14.0))))
    shown = _as_colours(image)
    left, right = figure.subplots(1, 2)
    left.imshow(_with_borders(shown, labels), interpolation="nearest")
    left.set_title("image, with the borders of segments")
    right.imshow(_means(shown, labels), interpolation="nearest")
    right.set_title(f"{len(np.unique(labels[labels >= 0]))} segments, in their mean colours")
    for axes in (left, right):
        axes.set_axis_off()
    figure.suptitle(title)
    return figure


def spectral_coordinates(graph: Graph, **solver: Any) -> NDArray[np.float64]:
    """Two eigenvectors as places of the vertices, components beside one another.

    Returns (n, 2): the two lowest nontrivial eigenvectors of the Laplacian of every component, in a square whose area is its
    share of the vertices; squares stand in rows, the largest first. After Hall (1970): of all placements with unit variances and
    uncorrelated axes, this one has the shortest edges.
    """
    of_vertex = components(graph)
    members = np.split(np.argsort(of_vertex, kind="stable"), np.cumsum(np.bincount(of_vertex))[:-1])
    members.sort(key=len, reverse=True)
    places = np.empty((graph.n, 2))
    corners = _shelves([float(np.sqrt(len(own))) * (1 + _GAP) for own in members])
    for own, corner in zip(members, corners, strict=True):
        drawn = _unit_square(graph.subgraph(own) if len(members) > 1 else graph, SolverOptions(**solver))
        places[own] = corner + np.sqrt(len(own)) * drawn
    return places


def part_colours(count: int) -> NDArray[np.float64]:
    """A colour for each of ``count`` parts, (count, 4), neighbours in the list far apart."""
    with tb.guarded_imports(blas=False):
        from matplotlib import colormaps

    if count <= 10:
        return np.array([colormaps["tab10"](index) for index in range(count)])
    turns = (np.arange(count) * (np.sqrt(5.0) - 1) / 2) % 1.0
    return np.asarray(colormaps["hsv"](turns)) * [0.85, 0.85, 0.85, 1.0]


def _figure(size: tuple[float, float]) -> Any:
    """An empty figure, where Matplotlib is."""
    require_matplotlib()
    return new_figure(size)


def _check_vertices(graph: Graph, labels: NDArray[Any], places: NDArray[Any]) -> None:
    if labels.shape != (graph.n,):
        raise ValueError(f"{graph.name} has {graph.n} vertices, but labels have the shape {labels.shape}")
    if places.ndim != 2 or len(places) != graph.n or places.shape[1] not in (2, 3):
        raise ValueError(f"places of {graph.n} vertices have the shape ({graph.n}, 2) or ({graph.n}, 3), not {places.shape}")


def _edges(graph: Graph) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Both ends of every edge, each edge once."""
    tails = np.repeat(np.arange(graph.n), np.diff(graph.adjacency.indptr))
    heads = graph.adjacency.indices.astype(np.intp)
    once = tails < heads
    return tails[once], heads[once]


def _seen(places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places as they are seen, and how near they are."""
    if places.shape[1] == 2:
        return places, np.zeros(len(places))
    turn, lift = np.radians(35.0), np.radians(25.0)
    right = np.array([-np.sin(turn), np.cos(turn), 0.0])
    towards = np.array([np.cos(turn) * np.cos(lift), np.sin(turn) * np.cos(lift), np.sin(lift)])
    return places @ np.column_stack([right, np.cross(towards, right)]), places @ towards


def _unit_square(graph: Graph, options: SolverOptions) -> NDArray[np.float64]:
    """A connected graph within a square of side 1."""
    if graph.n == 1:
        return np.full((1, 2), 0.5)
    vectors = lowest_eigenpairs(joined(graph), min(2, graph.n - 1), options).vectors
    both = np.column_stack([vectors, np.zeros(graph.n)])[:, :2]
    low, high = both.min(axis=0), both.max(axis=0)
    longest = max(float((high - low).max()), np.finfo(np.float64).tiny)
    return np.asarray(0.5 + (both - (low + high) / 2) / longest)


def _shelves(sides: list[float]) -> NDArray[np.float64]:
    """Lower left corners of squares that descend in size, set in rows of about a square."""
    width = max(sides[0], float(np.sqrt(np.sum(np.square(sides)))))
    x = y = height = 0.0
    corners = []
    for side in sides:
        if x and x + side > width * (1 + 1e-12):
            x, y, height = 0.0, y + height, 0.0
        corners.append((x, y))
        x, height = x + side, max(height, side)
    return np.array(corners)


def _as_colours(image: NDArray[Any]) -> NDArray[np.float64]:
    """Red, green and blue from 0 to 1."""
    values = np.asarray(image, np.float64)
    if values.ndim == 2 or values.shape[2] < 3:  # grey, or grey and alpha
        values = np.repeat(values.reshape(*values.shape[:2], -1)[:, :, :1], 3, axis=2)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if np.issubdtype(image.dtype, np.uint8):
        low, high = 0.0, 255.0
    return (values[:, :, :3] - low) / (high - low if high > low else 1.0)


def _with_borders(shown: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Pixels whose right or lower neighbour is of another segment, in red."""
    border = np.zeros(labels.shape, bool)
    border[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    border[:-1] |= labels[:-1] != labels[1:]
    drawn = shown.copy()
    drawn[border] = (1.0, 0.1, 0.1)
    return drawn


def _means(shown: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Every pixel in the mean colour of its segment; white where it has none."""
    inside = labels >= 0
    drawn = np.ones_like(shown)
    counts = np.maximum(np.bincount(labels[inside]), 1)
    for channel in range(3):
        means = np.bincount(labels[inside], shown[inside][:, channel]) / counts
        drawn[inside, channel] = means[labels[inside]]
    return drawn
