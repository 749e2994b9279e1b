"""Pictures of parts and segments, and the mesh of the demonstration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import ooc_chol as oc
from ooc_chol.apps.spectral import as_graph
from tests.apps.spectral.graphs_made import grid, octahedral_sphere, path, together
from tests.inside.spectral import (
    demo_image,
    metis,
    part_colours,
    partition_figure,
    save_figure,
    segments_figure,
    spectral_coordinates,
    wing_mesh,
)

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]


def test_eigenvectors_lay_a_path_out_in_its_order():
    places = spectral_coordinates(as_graph(path(30)))
    assert (np.all(np.diff(places[:, 0]) > 0) or np.all(np.diff(places[:, 0]) < 0)) and np.ptp(places[:, 0]) <= np.sqrt(30) * (
        1 + 1e-12
    )


def test_components_stand_beside_one_another():
    sizes = (60, 25, 9, 2, 1, 1)
    graph = as_graph(together(grid(10, 6), grid(5, 5), path(9), path(2), csr_array((1, 1)), csr_array((1, 1))))
    places = spectral_coordinates(graph)
    boxes = [(own.min(axis=0), own.max(axis=0)) for own in np.split(places, np.cumsum(sizes)[:-1])]
    for at, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:at]:
            assert np.any(high < other_low) or np.any(other_high < low), (at, low, high, other_low, other_high)


def test_edges_have_the_colour_of_their_part_and_cut_ones_are_black():
    graph = as_graph(path(6))
    labels = np.array([0, 0, 0, 1, 1, 1])
    (lines,) = partition_figure(graph, labels, np.column_stack([np.arange(6.0), np.zeros(6)])).axes[0].collections
    colours = part_colours(2)
    assert np.allclose(lines.get_colors(), [colours[0], colours[0], [0, 0, 0, 1], colours[1], colours[1]])
    assert np.ptp(lines.get_linewidths()) > 0 and len(lines.get_segments()) == 5


def test_of_three_dimensions_what_is_in_front_is_drawn_last():
    graph = as_graph(octahedral_sphere(4))
    points = np.array(
        [(x, y, z) for x in range(-4, 5) for y in range(-4, 5) for z in range(-4, 5) if abs(x) + abs(y) + abs(z) == 4], float
    )
    (lines,) = partition_figure(graph, np.zeros(graph.n, int), points).axes[0].collections
    towards = np.array(
        [np.cos(np.radians(35)) * np.cos(np.radians(25)), np.sin(np.radians(35)) * np.cos(np.radians(25)), np.sin(np.radians(25))]
    )
    depth, flat = points @ towards, np.array([(points @ axis) for axis in _axes(towards)]).T
    of_place = {tuple(np.round(place, 9)): [] for place in flat}
    for place, deep in zip(flat, depth, strict=True):
        of_place[tuple(np.round(place, 9))].append(deep)
    middle = [sum(of_place[tuple(np.round(end, 9))][0] for end in line) for line in lines.get_segments()]
    assert len(of_place) == graph.n and np.all(np.diff(middle) >= -1e-9)


def _axes(towards):
    right = np.array([-np.sin(np.radians(35)), np.cos(np.radians(35)), 0.0])
    return right, np.cross(towards, right)


@pytest.mark.parametrize("count", [1, 2, 10, 11, 64])
def test_parts_have_colours_of_their_own(count):
    colours = part_colours(count)
    assert colours.shape == (count, 4) and len(np.unique(np.round(colours, 3), axis=0)) == count


def test_segments_are_shown_in_their_mean_colours():
    image = np.zeros((4, 6), np.uint8)
    image[:, 3:] = 255
    labels = np.repeat([[0, 0, 0, 1, 1, -1]], 4, axis=0)
    left, right = segments_figure(image, labels).axes
    shown, bordered = right.images[0].get_array(), left.images[0].get_array()
    assert np.allclose(shown[:, :3], 0) and np.allclose(shown[:, 3:], 1)
    assert np.allclose(bordered[:, [2, 4]], [1.0, 0.1, 0.1]) and np.allclose(bordered[:, 1], 0) and np.allclose(bordered[:, 3], 1)


def test_what_does_not_fit_together_is_refused():
    graph = as_graph(path(6))
    with pytest.raises(ValueError, match="6 vertices, but labels"):
        partition_figure(graph, np.zeros(5, int), np.zeros((6, 2)))
    with pytest.raises(ValueError, match=r"not \(6, 4\)"):
        partition_figure(graph, np.zeros(6, int), np.zeros((6, 4)))
    with pytest.raises(ValueError, match="not those of an image"):
        segments_figure(np.zeros((3, 4)), np.zeros((4, 3), int))


def test_a_strangers_picture_is_not_replaced(tmp_path):
    figure = segments_figure(np.zeros((3, 4)), np.zeros((3, 4), int))
    (tmp_path / "a.png").write_bytes(b"a stranger")
    with pytest.raises(oc.errors.OutputError):
        save_figure(figure, tmp_path / "a.png")
    for _ in range(2):
        save_figure(figure, tmp_path / "b.png")
    save_figure(figure, tmp_path / "a.png", replace=True)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_mesh_of_the_demonstration_is_planar_and_leaves_the_wing_out():
    mesh, again = wing_mesh(900, seed=4), wing_mesh(900, seed=4)
    n = mesh.graph.n
    assert abs(n - 900) < 50 and 2 * n < mesh.graph.n_edges <= 3 * n - 6 and np.array_equal(mesh.places, again.places)
    assert connected_components(mesh.graph.adjacency)[0] == 1
    x, y = mesh.places.T
    assert not np.any((np.abs(x - 0.3) < 0.1) & (np.abs(y) < 0.05))
    assert not np.array_equal(wing_mesh(900, seed=5).places[:9], mesh.places[:9])


@pytest.mark.package("pymetis")
def test_metis_is_counted_by_ourselves():
    graph = as_graph(grid(8, 12))
    peer = metis(graph, 2)
    assert peer.name == "METIS" and 8 <= peer.cut <= 14 and 0 <= peer.imbalance < 0.05


def test_the_image_of_the_demonstration_is_grey():
    image, name = demo_image()
    assert image.dtype == np.uint8 and image.ndim == 2 and min(image.shape) > 50 and image.std() > 20 and "coins" in name


@pytest.mark.parametrize("channels", [1, 2])
def test_images_of_one_or_two_channels_are_grey(channels):
    image = np.zeros((4, 6, channels), np.uint8)
    image[:, 3:] = 200
    figure = segments_figure(image, np.repeat([[0, 0, 0, 1, 1, 1]], 4, axis=0))
    assert figure.axes[1].images[0].get_array().shape == (4, 6, 3)
