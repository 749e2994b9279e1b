"""Pictures of small runs on the host: docs/pictures/card-*.png, for the products on the first page, and imputed-slices.png.

*cholesky*: bytes of an entry in each tile of L under a threshold. *geostat*: a field, known at the dots, predicted by solves with
its covariance. *eigenpairs*: vectors of a graph's Laplacian. *partitions*: the same graph in parts. *gradients*: a sparse matrix,
and the gradient of its log-determinant. *imputation*: matrices of a graph, and the same as imputed. *slices*: two of them, and
their errors. Needs Matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import ooc_chol as oc
from benchmarks.drawing import figure_of, save
from benchmarks.pictures import PICTURES
from benchmarks.running import Options
from ooc_chol import diff
from ooc_chol.apps import imputation, spectral
from ooc_chol.apps.imputation.pictures import slices_figure

#: Width and height of a picture, in inches.
SIZE = (4.8, 2.4)


def panels(columns: int) -> tuple[Any, list[Any]]:
    """A figure with so many bare axes side by side."""
    figure, axes = figure_of(*SIZE, 1, columns)
    for axis in (found := list(np.atleast_1d(axes))):
        axis.set_axis_off()
        axis.set_aspect("equal")
    return figure, found


def add_scale(figure: Any, drawn: Any, axis: Any) -> None:
    """A bar of colours below what was drawn."""
    bar = figure.colorbar(drawn, ax=axis, orientation="horizontal", shrink=0.7, aspect=25, pad=0.02)
    bar.ax.locator_params(nbins=4)
    bar.ax.tick_params(labelsize=7)


def covariance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """An exponential covariance between places."""
    return np.exp(-np.linalg.norm(first[:, None] - second[None], axis=2) / 0.4)


def draw_cholesky(path: Path) -> None:
    """Tiles of L in shades, the darkest in FP64."""
    places = np.sort(np.random.default_rng(0).random((1200, 1)), axis=0) * 8
    plan = oc.plan(covariance(places, places) + 1e-3 * np.eye(1200), precision_threshold=1e-5, tile_size=50, objective="bytes")
    image = np.full((24, 24), np.nan)
    for i, j in zip(*np.tril_indices(24), strict=True):
        image[i, j] = plan.precision.format_of((i, j)).itemsize
    figure, (axis,) = panels(1)
    axis.imshow(np.log2(image), cmap="Blues", vmin=-1, vmax=3.2)
    save(figure, path)


def draw_geostat(path: Path) -> None:
    """The predicted field, with the places at which it is known."""
    generator = np.random.default_rng(3)
    x, y = np.meshgrid(np.linspace(0, 2, 80), np.linspace(0, 1, 40))
    grid, known = np.column_stack([x.ravel(), y.ravel()]), generator.random((150, 2)) * [2, 1]
    with oc.cholesky(covariance(known, known) + 1e-6 * np.eye(len(known))) as factor:
        values = factor.sample(rng=4)
        predicted = covariance(grid, known) @ factor.solve(values)
    figure, (axis,) = panels(1)
    axis.imshow(predicted.reshape(x.shape), origin="lower", extent=(0, 2, 0, 1), cmap="viridis")
    axis.scatter(*known.T, c=values, s=10, cmap="viridis", edgecolors="white", linewidths=0.4)
    save(figure, path)


def ring(vertices: int = 1500) -> tuple[np.ndarray, Any]:
    """Places in an ellipse with a hole, and the graph of neighbours."""
    places = np.random.default_rng(1).random((4 * vertices, 2)) * [4, 2] - [2, 1]
    radius = (places[:, 0] / 2) ** 2 + places[:, 1] ** 2
    places = places[(radius < 1) & (radius > 0.12)][:vertices]
    return places, imputation.neighbour_graph(places, 8)


def draw_eigenpairs(path: Path) -> None:
    """Two vectors over the places of a graph."""
    places, graph = ring()
    with oc.block_csr(graph) as packed:
        vectors = oc.eigsh(oc.laplacian(packed), 7, which="SA", devices="host:0").eigenvectors
    figure, axes = panels(2)
    for axis, number in zip(axes, (3, 5), strict=True):
        vector = vectors[:, number]
        drawn = axis.scatter(*places.T, c=vector, s=4, cmap="RdBu", vmin=-abs(vector).max(), vmax=abs(vector).max())
        add_scale(figure, drawn, axis)
    save(figure, path)


def draw_partitions(path: Path) -> None:
    """The graph with a colour for each part."""
    places, graph = ring()
    labels = spectral.partition(graph, 5, devices="host:0").labels
    figure, (axis,) = panels(1)
    edges = graph.tocoo()
    ends = np.stack([places[edges.row], places[edges.col], np.full_like(places[edges.row], np.nan)], axis=1).reshape(-1, 2)
    axis.plot(*ends.T, color="#cccccc", linewidth=0.25, zorder=0)
    axis.scatter(*places.T, c=labels, s=6, cmap="tab10")
    save(figure, path)


def draw_gradients(path: Path) -> None:
    """The values of a sparse matrix, and the gradient on the same entries."""
    places, graph = ring(60)
    order = np.argsort(places[:, 0])
    adjacency = graph.tocsr()[order][:, order]
    matrix = (scipy.sparse.diags_array(adjacency.sum(axis=0) + 0.2) - adjacency).tocsr()
    matrix.sort_indices()
    gradient = diff.selected_inverse(diff.Pattern(matrix.indptr, matrix.indices, matrix.shape), matrix.data)
    figure, axes = panels(2)
    for axis, values in zip(axes, (matrix.data, gradient), strict=True):
        image = np.full(matrix.shape, np.nan)
        image[matrix.nonzero()] = values
        add_scale(figure, axis.imshow(image, cmap="RdBu_r", vmin=-abs(values).max(), vmax=abs(values).max()), axis)
    save(figure, path)


def draw_imputation(path: Path) -> None:
    """Matrices of eight vertices, some of them missing, above the same as imputed."""
    graph = imputation.neighbour_graph(np.random.default_rng(0).random((120, 2)), 8)
    true = oc.testing.low_rank_tensor(graph, 16, 16, 1)
    gaps = np.where(oc.testing.random_mask(true.shape, 0.6)[:, None, None], true, np.nan)
    filled = oc.impute(gaps, None, graph, devices="host:0").tensor
    figure, axes = figure_of(*SIZE, 3, 5)
    for column in range(5):
        for axis, tensor in zip(axes[:, column], (gaps, filled, true), strict=True):
            axis.imshow(tensor[column], cmap="RdBu_r", vmin=-abs(true[:5]).max(), vmax=abs(true[:5]).max())
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(True)
    for axis, word in zip(axes[:, 0], ("given", "imputed", "true"), strict=True):
        axis.set_ylabel(word, fontsize=8)
    save(figure, path)


def draw_slices(path: Path) -> None:
    """Two missing slices of 200, as ``ooc-chol impute demo`` draws them."""
    fourier = oc.GraphFourier(imputation.neighbour_graph(np.random.default_rng(0).random((200, 2))))
    true = oc.testing.low_rank_tensor(fourier, 24, 24, 3)
    mask = oc.testing.random_mask(true.shape, 0.8)
    found = oc.impute(true, mask, fourier, devices="host:0").tensor
    figure = slices_figure(found, true, mask, true=true, slices=[26, 95])
    for axis in figure.axes:
        if axis.images:  # other pictures have no frames
            axis.spines[:].set_visible(True)
    save(figure, path)


TAKES = {"output": PICTURES}


def run(options: Options) -> None:
    """Draw all of them."""
    draw_cholesky(options.output / "card-cholesky.png")
    draw_geostat(options.output / "card-geostat.png")
    draw_eigenpairs(options.output / "card-eigenpairs.png")
    draw_partitions(options.output / "card-partitions.png")
    draw_gradients(options.output / "card-gradients.png")
    draw_imputation(options.output / "card-imputation.png")
    draw_slices(options.output / "imputed-slices.png")
