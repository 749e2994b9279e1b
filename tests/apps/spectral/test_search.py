"""Search of the span of eigenvectors: balanced splits, cuts counted right by bits, sweeps and products, and the best refined."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial import Delaunay, KDTree

import ooc_chol as oc
from tests.apps.spectral.cut_graphs import all_bisections, dense_vectors, graph_of, grid, half, small_graphs
from tests.inside.spectral import Splits, Target, best_cut, search_cuts
from tests.inside.spectral import best as best_module
from tests.inside.spectral import search as searching

pytestmark = pytest.mark.host


def prefixes(graph, values):
    """Labels of all splits along values, equal ones by number."""
    order = np.argsort(values, kind="stable")
    labels = np.ones((graph.n - 1, graph.n), np.int8)
    for size in range(1, graph.n):
        labels[size - 1, order[:size]] = 0
    return labels


@given(graph=small_graphs(), data=st.data())
def test_a_split_is_the_allowed_prefix_of_least_cut(graph, data):
    share, slack = data.draw(st.floats(0.1, 0.9)), data.draw(st.sampled_from([0.0, 0.5, 1.5, 20.0]))
    target = Target(share * graph.total_weight, graph.total_weight, slack)
    # Few different places, so that many are equal.
    places = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).integers(0, 4, (5, graph.n)).astype(float)
    labels, cuts = Splits(graph, target).best(places)
    for values, found, cut in zip(places, labels, cuts, strict=True):
        known = prefixes(graph, values)
        excess = np.maximum(0, np.abs((1 - known) @ graph.vertex_weights - target.weight) - slack)
        allowed = known[excess == excess.min()]
        assert any(np.array_equal(found, one) for one in allowed)
        assert cut == graph.cut(found)
        if excess.min() == 0:
            assert cut == min(graph.cut(one) for one in allowed)


@given(graph=small_graphs(), data=st.data())
def test_products_count_the_same_cuts(graph, data):
    target = half(graph)
    places = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).random((8, graph.n))
    labels, cuts = Splits(graph, target, lambda x: graph.adjacency @ x).best(places)
    assert cuts.tolist() == [graph.cut(one) for one in labels]
    for values, found in zip(places, labels, strict=True):
        known = (1 - prefixes(graph, values)) @ graph.vertex_weights
        assert abs(graph.vertex_weights[found == 0].sum() - target.weight) == np.abs(known - target.weight).min()


def test_products_of_the_package_find_what_the_host_finds():
    graph = grid(24, 20)
    vectors = dense_vectors(graph)
    with oc.multiplier(graph.adjacency, 8, devices="host:0") as multiply:
        there, notes = search_cuts(graph, vectors, half(graph), seed=2, product=multiply)
    here, none = search_cuts(graph, vectors, half(graph), seed=2)
    assert none == []
    assert "products" in notes[0]
    assert [(one.cut, one.weight, one.how) for one in there] == [(one.cut, one.weight, one.how) for one in here]
    assert all(np.array_equal(one.labels, other.labels) for one, other in zip(there, here, strict=True))


@pytest.mark.parametrize(
    ("devices", "is_gpu"),
    [
        (None, False),
        ("host:0", False),
        (["host:0", "host:1"], False),
        ("cuda:0", True),
        ("gpu", True),
        (["cuda:0", "cuda:1"], True),
        ("cuda:0, cuda:1", True),
    ],
)
def test_which_names_are_gpus(devices, is_gpu):
    assert searching._names_gpu(devices) is is_gpu


def test_cuts_come_best_first_balanced_and_no_two_alike():
    graph = grid(25, 21)
    cuts, _ = search_cuts(graph, dense_vectors(graph), half(graph), seed=1)
    assert all(one.cut <= other.cut for one, other in pairwise(cuts))
    for one in cuts:
        assert one.cut == graph.cut(one.labels)
        assert one.weight == np.count_nonzero(one.labels == 0)
        assert abs(2 * one.weight - graph.n) <= 1
    keys = {(one.labels ^ one.labels[0]).tobytes() for one in cuts}
    assert len(keys) == len(cuts)


def test_the_search_finds_a_cut_that_no_single_vector_has():
    # Of a square grid the first two vectors have one eigenvalue: any two orthogonal directions may be given.
    graph = grid(20, 20)
    vectors = dense_vectors(graph)
    angle = np.pi / 5
    turned = vectors @ np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    axes = [graph.cut(np.argsort(np.argsort(one, kind="stable")) >= 200) for one in turned.T]
    cuts, _ = search_cuts(graph, turned, half(graph))
    assert cuts[0].cut == 20 < min(axes)


def test_the_local_search_finds_what_no_first_direction_does():
    points = np.random.default_rng(0).random((900, 2))
    dense = np.zeros((900, 900))
    for triangle in Delaunay(points).simplices:
        dense[np.ix_(triangle, triangle)] = 1
    np.fill_diagonal(dense, 0)
    graph = graph_of(dense)
    cuts, _ = search_cuts(graph, dense_vectors(graph), half(graph))
    assert cuts[0].how.startswith("search from")
    assert cuts[0].cut < min(one.cut for one in cuts if not one.how.startswith("search from"))


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_parts_of_different_sizes_are_looked_for_at_both_ends(share):
    # The narrow end of this graph is at one side of the vector: only one of both ways cuts little.
    dense = np.zeros((40, 40))
    dense[:10, :10] = dense[10:, 10:] = 1
    np.fill_diagonal(dense, 0)
    dense[9, 10] = dense[10, 9] = 1
    graph = graph_of(dense)
    vectors = dense_vectors(graph, 1)
    for sign in (1, -1):
        best = best_cut(graph, sign * vectors, Target(share * 40, 40, 0.5), refine=False)
        assert (best.cut.cut, best.cut.weight) == (1, share * 40)


def test_balance_that_is_allowed_is_used():
    dense = np.zeros((18, 18))
    dense[:8, :8] = dense[8:, 8:] = 1
    np.fill_diagonal(dense, 0)
    dense[0, 8] = dense[8, 0] = 1
    graph = graph_of(dense)
    vectors = dense_vectors(graph)
    assert best_cut(graph, vectors, Target(9, 18, 0.5)).cut.cut > 1
    loose = best_cut(graph, vectors, Target(9, 18, 1.5))
    assert (loose.cut.cut, min(loose.cut.weight, 18 - loose.cut.weight)) == (1, 8)


@given(graph=small_graphs(most=9))
def test_the_best_cut_of_small_graphs_is_balanced_and_no_cut_is_below_the_least(graph):
    target = half(graph)
    best = best_cut(graph, dense_vectors(graph, min(3, graph.n - 1)), target, search=10)
    _, cuts, weights = all_bisections(graph)
    excess = np.array([target.excess(weight) for weight in weights])
    assert target.excess(best.cut.weight) == excess.min()
    assert best.cut.cut == graph.cut(best.cut.labels) >= cuts[excess == excess.min()].min()
    assert any("No set of vertices" in note for note in best.notes) == (excess.min() > 0)


def test_candidates_are_told_with_their_cuts():
    graph = grid(16, 12)
    best = best_cut(graph, dense_vectors(graph), half(graph))
    assert best.cut.cut == 12
    assert best.candidates[0].startswith(best.cut.how + ": cut ")
    assert best.candidates[0].endswith("refined 12")
    assert any(text.startswith("vector 1: cut 12") for text in best.candidates)
    plain = best_cut(graph, dense_vectors(graph), half(graph), refine=False)
    assert all("refined" not in text for text in plain.candidates)


def test_a_limit_on_moves_is_noted():
    dense = np.triu(np.random.default_rng(5).random((200, 200)) < 0.05, 1).astype(float)
    graph = graph_of(dense + dense.T, name="sparse noise")
    best = best_cut(graph, dense_vectors(graph), half(graph), most_moves=1)
    assert any("limit on moves" in note and "sparse noise" in note for note in best.notes)
    free = best_cut(graph, dense_vectors(graph), half(graph))
    assert free.notes == ()
    assert free.cut.cut < best.cut.cut


def test_one_seed_one_answer():
    dense = np.triu(np.random.default_rng(6).random((300, 300)) < 0.03, 1).astype(float)
    graph = graph_of(dense + dense.T)
    vectors = dense_vectors(graph)
    first, second = (best_cut(graph, vectors, half(graph), seed=3) for _ in range(2))
    assert np.array_equal(first.cut.labels, second.cut.labels)
    assert first.candidates == second.candidates
    assert best_cut(graph, vectors, half(graph), seed=4).candidates != first.candidates


def test_two_vertices():
    graph = graph_of([[0, 3], [3, 0]])
    best = best_cut(graph, np.array([[1.0], [-1.0]]) / np.sqrt(2), half(graph))
    assert (best.cut.cut, best.cut.weight) == (3, 1)


@pytest.mark.parametrize(
    ("vectors", "options", "said"),
    [
        (np.ones((3, 2)), {}, r"vectors has shape \(3, 2\)"),
        (np.ones((4, 0)), {}, r"vectors has shape \(4, 0\)"),
        (np.array([[1.0], [np.nan], [0], [0]]), {}, "NaN or infinite"),
        (np.ones((4, 1)), {"search": -1}, "search is -1"),
    ],
)
def test_other_vectors_are_refused(vectors, options, said):
    graph = grid(2, 2)
    with pytest.raises(ValueError, match=said):
        search_cuts(graph, vectors, half(graph), **options)


def test_one_vertex_has_no_two_parts():
    graph = graph_of(np.zeros((1, 1)), name="the dot")
    with pytest.raises(ValueError, match="the dot has 1 vertices"):
        search_cuts(graph, np.ones((1, 1)), Target(0.5, 1, 0.5))


def test_smoothing_finds_what_moves_alone_do_not(monkeypatch):
    rng = np.random.default_rng(3)
    sites = rng.uniform(size=(1200, 2))
    pairs = KDTree(sites).query_pairs(0.05, output_type="ndarray")
    upper = csr_array((np.ones(len(pairs)), pairs.T), shape=(1200, 1200))
    graph = graph_of((upper + upper.T).toarray())
    vectors = dense_vectors(graph, 1)
    wavy = np.sin(sites @ rng.standard_normal((2, 3)) * 9).sum(axis=1) + 4 * vectors[:, 0] / np.abs(vectors).max()
    with_it = best_cut(graph, wavy[:, None], half(graph))
    monkeypatch.setattr(best_module, "_SMOOTHED", 0)
    without = best_cut(graph, wavy[:, None], half(graph))
    assert with_it.cut.cut < without.cut.cut
    assert f", smoothed {with_it.cut.cut:g}" in with_it.candidates[0]
    assert abs(2 * np.count_nonzero(with_it.cut.labels) - graph.n) <= 1


def test_of_many_vectors_a_dozen_are_kept():
    graph = grid(9, 10)
    cuts, _ = search_cuts(graph, dense_vectors(graph, 60), half(graph), search=0)
    assert sum(one.how.startswith("vector") for one in cuts) <= searching.AXES
    assert len(cuts) <= searching.AXES + searching.STARTS
