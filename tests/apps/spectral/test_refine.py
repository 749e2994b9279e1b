"""Refinement of bisections: never worse, balanced wherever that can be, cuts counted right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.spectral.cut_graphs import all_bisections, graph_of, grid, half, small_graphs
from tests.inside.spectral import Rows, Target, levelled, refine
from tests.inside.spectral import refine_module as refining

pytestmark = pytest.mark.host


def drawn_labels(data, graph):
    return np.array(data.draw(st.lists(st.integers(0, 1), min_size=graph.n, max_size=graph.n)), np.int8)


@given(graph=small_graphs(), data=st.data())
def test_the_result_is_balanced_wherever_a_bisection_is_and_never_worse_than_the_start(graph, data):
    share, slack = data.draw(st.floats(0.1, 0.9)), data.draw(st.sampled_from([0.0, 0.5, 2.0]))
    target = Target(share * graph.total_weight, graph.total_weight, slack)
    labels = drawn_labels(data, graph)
    result = refine(graph, labels, target)
    _, cuts, weights = all_bisections(graph)
    excess = np.maximum(0, np.abs(weights - target.weight) - slack)
    assert result.cut == graph.cut(result.labels)
    assert result.weight == graph.vertex_weights[result.labels == 0].sum()
    assert target.excess(result.weight) == pytest.approx(excess.min(), abs=1e-12)
    assert result.cut >= cuts[excess <= excess.min() + 1e-12].min()
    start = target.excess(float(graph.vertex_weights[labels == 0].sum()))
    if start <= excess.min():
        assert result.cut <= graph.cut(labels)


def test_the_best_of_twenty_starts_is_the_least_cut_of_nearly_all_small_graphs():
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(40):
        upper = np.triu(rng.integers(1, 7, (10, 10)) * (rng.random((10, 10)) < 0.5), 1)
        graph = graph_of(upper + upper.T)
        ends = [refine(graph, rng.integers(0, 2, 10).astype(np.int8), half(graph)) for _ in range(20)]
        _, cuts, weights = all_bisections(graph)
        missed += min(one.cut for one in ends) > cuts[weights == 5].min()
    assert missed <= 1


@given(graph=small_graphs(), data=st.data())
def test_gains_are_what_the_cut_lessens_by(graph, data):
    labels = drawn_labels(data, graph)
    gains, at_boundary = Rows(graph).gains(labels)
    for vertex in range(graph.n):
        moved = labels.copy()
        moved[vertex] ^= 1
        assert gains[vertex] == graph.cut(labels) - graph.cut(moved)
        neighbours = graph.adjacency.indices[graph.adjacency.indptr[vertex] : graph.adjacency.indptr[vertex + 1]]
        assert at_boundary[vertex] == bool(np.any(labels[neighbours] != labels[vertex]))


@given(graph=small_graphs(), data=st.data())
def test_the_cut_that_a_pass_keeps_account_of_is_the_one_recounted(graph, data):
    labels, target = drawn_labels(data, graph), half(graph)
    weight = float(graph.vertex_weights[labels == 0].sum())
    done = refining._one_pass(Rows(graph), labels, target, (graph.cut(labels), weight), refining._Left(1000, 1000))
    labels[done.moved] ^= 1
    assert len(set(done.moved)) == len(done.moved)
    assert done.cut == graph.cut(labels)
    assert done.weight == graph.vertex_weights[labels == 0].sum()


@given(data=st.data())
def test_sets_of_moves_balance_weights_that_single_moves_cannot(data):
    weights = np.array(data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=12)), np.float64)
    graph = graph_of(np.ones((len(weights), len(weights))) - np.eye(len(weights)), weights)
    labels, target = drawn_labels(data, graph), Target(weights.sum() / 2, weights.sum(), 0.5)
    level = levelled(Rows(graph), labels, target)
    _, _, sums = all_bisections(graph)
    assert abs(weights[level == 0].sum() - target.weight) <= max(0.5, np.abs(sums - target.weight).min())


def test_weights_without_a_balanced_split_come_as_near_as_their_divisor_allows_at_once():
    weights = np.full(3001, 3.0)
    rng = np.random.default_rng(0)
    band = np.abs(np.subtract.outer(np.arange(3001), np.arange(3001))) == 1
    graph = graph_of(band, weights)
    result = refine(graph, rng.integers(0, 2, 3001).astype(np.int8), half(graph))
    assert abs(2 * result.weight - weights.sum()) == 3.0


def test_fractional_weights_of_edges_and_vertices():
    rng = np.random.default_rng(3)
    upper = np.triu(rng.random((60, 60)) * (rng.random((60, 60)) < 0.1), 1)
    graph = graph_of(upper + upper.T, rng.random(60) + 0.1)
    target = half(graph, slack=0.01)
    start = rng.integers(0, 2, 60).astype(np.int8)
    result = refine(graph, start, target)
    assert target.excess(result.weight) == 0
    assert result.cut == graph.cut(result.labels) < 0.8 * graph.cut(start)


@pytest.mark.parametrize("share", [0.5, 0.25, 0.1])
def test_labels_far_out_of_balance_are_balanced_exactly(share):
    graph = grid(40, 40)
    target = Target(share * graph.n, graph.n, 0.5)
    result = refine(graph, np.zeros(graph.n, np.int8), target)
    assert result.weight == share * graph.n
    assert result.cut <= 1.6 * 40


def test_a_wavy_border_becomes_straight():
    graph = grid(30, 30)
    labels = np.zeros((30, 30), np.int8)
    for row in range(30):
        labels[row, 15 + 3 * (-1) ** (row // 5 % 2) :] = 1
    result = refine(graph, labels.ravel(), half(graph))
    assert (result.cut, result.weight) == (30, 450)
    assert result.moves >= np.count_nonzero(result.labels != labels.ravel()) == 90


def test_a_limit_on_moves_is_told():
    graph = grid(40, 40)
    labels = np.zeros((40, 40), np.int8)
    labels[::2, 20:] = labels[1::2, :20] = 1
    free, limited = refine(graph, labels.ravel(), half(graph)), refine(graph, labels.ravel(), half(graph), most_moves=10)
    assert not free.is_limited
    assert limited.is_limited
    assert limited.cut <= graph.cut(labels.ravel())
    assert limited.weight == 800


def test_edges_at_vertices_that_move_are_limited_too(monkeypatch):
    graph = grid(40, 40)
    labels = np.zeros((40, 40), np.int8)
    labels[::2, 20:] = labels[1::2, :20] = 1
    monkeypatch.setattr(refining, "MOST_EDGES", 200)
    limited = refine(graph, labels.ravel(), half(graph))
    assert limited.is_limited
    assert limited.moves <= 100
    assert limited.weight == 800


def test_labels_out_of_balance_are_balanced_whatever_the_limit():
    graph = grid(40, 40)
    result = refine(graph, np.zeros(1600, np.int8), half(graph), most_moves=10)
    assert result.is_limited
    assert result.weight == 800


def test_two_runs_have_the_same_bits():
    graph = grid(25, 24)
    labels = np.random.default_rng(1).permutation(np.arange(600) % 2).astype(np.int8)
    first, second = refine(graph, labels, half(graph)), refine(graph, labels, half(graph))
    assert np.array_equal(first.labels, second.labels)
    assert first.moves == second.moves


def test_labels_given_are_not_changed():
    graph = grid(6, 6)
    labels = np.arange(36).astype(np.int8) % 2
    kept = labels.copy()
    refine(graph, labels, half(graph))
    assert np.array_equal(labels, kept)


def test_graphs_without_edges_are_balanced_too():
    graph = graph_of(np.zeros((7, 7)))
    result = refine(graph, np.zeros(7, np.int8), half(graph))
    assert result.cut == 0
    assert result.weight in (3, 4)


@pytest.mark.parametrize(
    ("labels", "said"),
    [(np.zeros(3, np.int8), r"labels has shape \(3,\)"), (np.array([0, 1, 2, 0], np.int8), r"labels\[2\] is 2")],
)
def test_other_labels_are_refused(labels, said):
    graph = grid(2, 2)
    with pytest.raises(ValueError, match=said):
        refine(graph, labels, half(graph))


def test_no_moves_at_all_are_refused():
    graph = grid(2, 2)
    with pytest.raises(ValueError, match="most_moves: 0 moves"):
        refine(graph, np.array([0, 1, 0, 1], np.int8), half(graph), most_moves=0)


def test_the_cut_lessens_too_where_the_balance_asked_for_cannot_be():
    graph = grid(20, 20)
    labels = np.zeros((20, 20), np.int8)
    labels[:, 10:] = 1
    labels[3, 8:] = 1
    labels[9, :12] = 0
    assert graph.cut(labels.ravel()) == 28
    result = refine(graph, labels.ravel(), Target(200.5, 400, 0.0))
    assert result.cut <= 21
    assert abs(result.weight - 200.5) == 0.5
