"""What hangs together in float64: parts, vertices that nobody notices, and the sides that they follow."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.apps.spectral import Graph
from tests.inside.spectral import Subgraph, followed, parts, parts_of, runs

pytestmark = pytest.mark.host


def graph_of(n: int, edges: dict[tuple[int, int], float], cliques: tuple[tuple[range, float], ...]) -> Graph:
    weights = np.zeros((n, n))
    for members, weight in cliques:
        weights[np.ix_(members, members)] = weight
    for (i, j), weight in edges.items():
        weights[i, j] = weights[j, i] = weight
    np.fill_diagonal(weights, 0)
    return Graph(csr_array(weights), np.ones(n))


def told(graph: Graph) -> tuple[list[int], list[int]]:
    part, sizes = parts_of(Subgraph(graph))
    return part.tolist(), sizes.tolist()


TWO = ((range(5), 1.0), (range(5, 9), 1.0))


def test_plain_components_are_parts() -> None:
    assert told(graph_of(10, {}, TWO)) == ([0] * 5 + [1] * 4 + [2], [5, 4, 1])
    assert told(graph_of(10, {(4, 5): 0.1, (0, 9): 0.5}, TWO)) == ([0] * 10, [10])


def test_edges_beyond_float64_join_nothing() -> None:
    assert told(graph_of(9, {(4, 5): 1e-12}, TWO)) == ([0] * 5 + [1] * 4, [5, 4])
    assert told(graph_of(9, {(4, 5): 1e-5}, TWO)) == ([0] * 9, [9])


def test_a_cluster_of_small_weights_counts_by_its_own_scale() -> None:
    """Edges of 1e-13 are a thousandth of what its vertices have."""
    small = ((range(5), 1.0), (range(5, 9), 1e-10))
    assert told(graph_of(9, {(4, 5): 1e-13}, small)) == ([0] * 9, [9])
    assert told(graph_of(9, {(4, 5): 1e-22}, small)) == ([0] * 5 + [1] * 4, [5, 4])


def test_single_vertices_that_nobody_notices_are_no_parts_and_no_bridges() -> None:
    """Vertex 9 hangs on both cliques by 1e-50; a pair of such vertices is a part."""
    assert told(graph_of(10, {(0, 9): 1e-50, (5, 9): 2e-50}, TWO)) == ([0] * 5 + [1] * 4 + [-1], [5, 4])
    assert told(graph_of(11, {(0, 9): 1e-50, (9, 10): 1.0}, TWO)) == ([0] * 5 + [1] * 4 + [2] * 2, [5, 4, 2])


def test_runs_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weights = np.triu(10 ** rng.uniform(-60, 0, (40, 40)) * (rng.random((40, 40)) < 0.06), 1)
    graph = Graph(csr_array(weights + weights.T), np.ones(40))
    whole = told(graph)
    monkeypatch.setattr(runs, "_MOST_ENTRIES", 1)
    monkeypatch.setattr(parts, "_VERTICES", 7)
    assert told(graph) == whole
    assert len(whole[1]) > 2


def by_definition(weights: NDArray[np.float64]) -> tuple[int, int]:
    """Parts and loose vertices of a small matrix, by its definition and the closure of what joins."""
    degrees = weights.sum(axis=1)
    loose = ((weights <= parts._NOTICED * degrees).all(axis=1)) & (degrees > 0)
    joined = (weights > parts._JOINS * np.minimum(degrees[:, None], degrees)) & ~loose & ~loose[:, None]
    reach = np.linalg.matrix_power(joined + np.eye(len(weights)), len(weights)) > 0
    return len({tuple(row) for row in reach[~loose]}), int(loose.sum())


@pytest.mark.parametrize("some", [1, 2, 9])
@pytest.mark.parametrize("seed", range(20))
def test_parts_of_random_weights_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch, seed: int, some: int) -> None:
    """However many edges of each vertex are looked at before the others."""
    monkeypatch.setattr(parts, "_SOME", some)
    rng = np.random.default_rng(seed)
    weights = np.triu(10 ** rng.uniform(-25, 0, (15, 15)) * (rng.random((15, 15)) < 0.25), 1)
    weights += weights.T
    part, sizes = parts_of(Subgraph(Graph(csr_array(weights), np.ones(15))))
    assert (len(sizes), int((part == -1).sum())) == by_definition(weights)
    assert np.array_equal(np.bincount(part[part >= 0], minlength=len(sizes)), sizes)


def test_what_has_no_side_follows_the_larger_weights() -> None:
    """Vertex 9 by itself, 10 and 11 together though they lean to different sides, 12 with no edges to the larger side."""
    edges = {(0, 9): 1e-50, (5, 9): 2e-50, (0, 10): 1e-40, (10, 11): 1.0, (5, 11): 1e-41}
    graph = graph_of(13, edges, TWO)
    part, _ = parts_of(Subgraph(graph))
    known = np.array([1] * 5 + [-1] * 4 + [0] * 4, np.int8)
    assert followed(Subgraph(graph), part, known).tolist() == [True] * 5 + [False] * 4 + [False] + [True] * 2 + [True]
