"""Graphs of files and of places; masks, errors, and means of neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from scipy.sparse.csgraph import connected_components

import ooc_chol as oc
from ooc_chol.apps.imputation import neighbour_graph, neighbour_means, observed_mask, read_graph, relative_error
from tests.apps.imputation.tensors_made import N, edges, graph

pytestmark = pytest.mark.host


def test_a_graph_is_read_from_every_kind_of_file(tmp_path):
    edges(tmp_path / "a.txt")
    save_npz(tmp_path / "a.npz", graph())
    np.save(tmp_path / "a.npy", graph().toarray())
    oc.block_csr(graph(), store=tmp_path / "a.oocsr").close()
    for name in ("a.txt", "a.npz", "a.npy", "a.oocsr"):
        assert abs(read_graph(tmp_path / name, N) - graph()).max() == 0


def test_a_list_of_edges_has_as_many_vertices_as_the_tensor(tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n2 3\n")
    assert read_graph(tmp_path / "a.txt", 7, base=1).shape == (7, 7)
    assert read_graph(tmp_path / "a.txt", base=1).shape == (3, 3)
    with pytest.raises(oc.errors.SparseInputError), pytest.warns(oc.errors.InputWarning, match="vertices begin with 1"):
        read_graph(tmp_path / "a.txt", 2)
    save_npz(tmp_path / "a.npz", graph())
    with pytest.raises(ValueError, match=f"the matrix is {N} x {N}, but the tensor has 7 slices"):
        read_graph(tmp_path / "a.npz", 7)


def test_places_are_joined_with_their_nearest():
    line = neighbour_graph([[0.0], [1.0], [2.5], [10.0]], 1).toarray()
    assert np.array_equal(line > 0, [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    assert np.array_equal(line, line.T) and line[0, 1] > line[1, 2] > line[2, 3] > 0
    assert neighbour_graph(np.zeros((5, 2)), 2).diagonal().sum() == 0
    assert connected_components(graph())[0] == 1
    with pytest.raises(ValueError, match="n_neighbors is 4, but each of 4 places"):
        neighbour_graph(np.zeros((4, 2)), 4)
    with pytest.raises(ValueError, match="finite coordinates"):
        neighbour_graph([[np.nan], [1.0]], 1)


@pytest.mark.parametrize("power", [-1060, -700, 700, 1020])
def test_places_may_be_in_any_unit(power):
    places = np.round(np.random.default_rng(0).random((9, 2)) * 2**10)
    assert abs(neighbour_graph(np.ldexp(places, power - 10), 2) - neighbour_graph(places, 2)).max() == 0


@pytest.mark.parametrize(
    ("places", "number", "error", "said"),
    [(np.zeros((4, 0)), 1, ValueError, "finite coordinates"), (np.zeros((4, 1)), 1.5, TypeError, "n_neighbors is a float")],
)
def test_what_joins_no_places_is_refused(places, number, error, said):
    with pytest.raises(error, match=said):
        neighbour_graph(places, number)


@pytest.mark.parametrize(
    "shapes", [((4, 2, 2), (4, 2), (4, 4)), ((4, 2, 2), (3,), (4, 4)), ((4, 2, 2), (4,), (3, 3)), ((4, 2), (4,), (4, 4))]
)
def test_means_of_neighbours_need_shapes_that_fit(shapes):
    x, mask, weights = shapes
    with pytest.raises(ValueError, match=r"give .N, m, n., a mask of the same"):
        neighbour_means(np.zeros(x), np.ones(mask, bool), csr_array(np.zeros(weights)))


def test_gaps_are_slices_where_all_are_whole():
    x = np.zeros((3, 2, 2))
    x[0] = np.nan
    assert observed_mask(x).tolist() == [False, True, True]
    x[1, 0, 0] = np.nan
    assert observed_mask(x).shape == (3, 2, 2) and observed_mask(x).sum() == 7
    x[2, 0, 0] = np.inf  # which is no gap, and refused later on
    assert observed_mask(x)[2].all()
    with pytest.raises(TypeError, match="in which nothing marks what is missing"):
        observed_mask(np.zeros((3, 2, 2), int))


def test_errors_are_relative_and_of_what_counts():
    true, found = np.ones((3, 2, 2)), np.ones((3, 2, 2))
    found[1] = 3.0
    assert relative_error(found, true) == pytest.approx(np.sqrt(16 / 12))
    assert relative_error(found, true, np.array([False, True, False])) == 2.0
    assert relative_error(found, true, true * [[1, 0], [0, 0]] == 1) == pytest.approx(np.sqrt(4 / 3))
    assert relative_error(true, 0 * true) == np.inf and relative_error(0 * true, 0 * true) == 0.0
    with pytest.raises(ValueError, match="the estimate has shape"):
        relative_error(true, true[0])


def test_means_are_of_neighbours_that_are_observed():
    path = csr_array(np.array([[0, 1.0, 0, 0], [1, 0, 3, 0], [0, 3, 0, 0], [0, 0, 0, 0]]))
    x = np.array([[[1.0, 1.0]], [[np.nan, np.nan]], [[5.0, np.nan]], [[np.nan, np.nan]]])
    means = neighbour_means(x, ~np.isnan(x), path)
    assert means[1].tolist() == [[4.0, 1.0]] and means[2].tolist() == [[5.0, 0.0]] and means[3].tolist() == [[0.0, 0.0]]
    whole = neighbour_means(np.nan_to_num(x), np.array([True, False, True, False]), path)
    for scale, units in [(1e200, 1e150), (1e-200, 1e-150), (5e307, 3e307), (1e-308, 1.0)]:
        assert np.allclose(neighbour_means(x * units, ~np.isnan(x), path * scale) / units, means)
    assert whole[1].tolist() == [[4.0, 0.25]]
