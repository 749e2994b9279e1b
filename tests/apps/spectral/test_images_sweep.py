"""Split points: every normalized cut against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from ooc_chol.apps.spectral import Graph
from tests.inside.spectral import Subgraph, SweepOptions, best_bipartition, ncut_profile, normalized_cut_of, runs, sweep

pytestmark = pytest.mark.host


def random_graph(n: int, seed: int) -> Graph:
    """A path, so that it is connected, and random edges."""
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.uniform(0.1, 1, (n, n)) * (rng.random((n, n)) < 0.3), 1)
    weights[np.arange(n - 1), np.arange(1, n)] = rng.uniform(0.1, 1, n - 1)
    return Graph(csr_array(weights + weights.T), np.ones(n))


def by_definition(graph: Graph, side: np.ndarray) -> float:
    weights = graph.adjacency.toarray()
    cut = weights[side][:, ~side].sum()
    return float(cut / weights[side].sum() + cut / weights[~side].sum())


@given(n=st.integers(2, 30), seed=st.integers(0, 2**32 - 1), run=st.sampled_from([1, 7, 1 << 22]))
def test_profile_is_the_definition_at_every_split(n: int, seed: int, run: int) -> None:
    graph, order = random_graph(n, seed), np.random.default_rng(seed + 1).permutation(n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_MOST_ENTRIES", run)
        profile = ncut_profile(Subgraph(graph), order)
        sides = [np.isin(np.arange(n), order[size:]) for size in range(1, n)]
        summed = [normalized_cut_of(Subgraph(graph), side) for side in sides]
    wanted = [by_definition(graph, side) for side in sides]
    np.testing.assert_allclose(profile, wanted, rtol=1e-10)
    np.testing.assert_allclose(summed, wanted, rtol=1e-13)


@pytest.mark.parametrize("run", [1, 50, 1 << 22])
def test_bits_of_sums_are_those_of_each_row_by_itself(monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    graph, order = random_graph(40, 3), np.random.default_rng(5).permutation(40)
    monkeypatch.setattr(runs, "_MOST_ENTRIES", run)
    rank = np.argsort(order)
    wanted = []
    for vertex in range(40):
        part = slice(*graph.adjacency.indptr[vertex : vertex + 2])
        is_before = rank[graph.adjacency.indices[part]] < rank[vertex]
        wanted.append(np.add.reduceat(graph.adjacency.data[part] * is_before, [0])[0])
    assert sweep.weights_before(Subgraph(graph), [order[::-1], order])[1].tobytes() == np.array(wanted).tobytes()


def test_what_is_shared_by_threads_is_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, vectors = random_graph(60, 1), np.random.default_rng(2).normal(size=(60, 3))
    whole = best_bipartition(Subgraph(graph), vectors, SweepOptions(search=11))
    monkeypatch.setattr(sweep, "_FEW", 0)
    monkeypatch.setattr(sweep, "_TOGETHER", 4)
    monkeypatch.setattr(runs, "_MOST_ENTRIES", 30)
    shared = best_bipartition(Subgraph(graph), vectors, SweepOptions(search=11))
    assert shared.side.tobytes() == whole.side.tobytes()
    assert shared.how == whole.how
    assert shared.ncut == pytest.approx(whole.ncut, rel=1e-14)


def test_small_cuts_are_not_lost_in_large_degrees() -> None:
    """Two pairs that an edge of 1e-12 joins to a clique of weight one."""
    weights = np.ones((40, 40))
    weights[:4] = weights[:, :4] = 0
    weights[0, 1] = weights[1, 0] = weights[2, 3] = weights[3, 2] = 1e-9
    weights[1, 2] = weights[2, 1] = weights[3, 4] = weights[4, 3] = 1e-14
    np.fill_diagonal(weights, 0)
    graph = Graph(csr_array(weights), np.ones(40))
    for order in (np.arange(40), np.arange(40)[::-1]):
        profile = ncut_profile(Subgraph(graph), order)
        wanted = [by_definition(graph, np.isin(np.arange(40), order[size:])) for size in range(1, 40)]
        np.testing.assert_allclose(profile, wanted, rtol=1e-6)


def test_points_that_are_looked_at() -> None:
    """A path's best cut is its middle, which few points may miss and a least size may forbid."""
    n = 21
    graph = Graph(csr_array(np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)), np.ones(n))
    vector = np.arange(n, dtype=float)[:, None]
    assert best_bipartition(Subgraph(graph), vector, SweepOptions()).side.sum() in (10, 11)
    assert best_bipartition(Subgraph(graph), vector, SweepOptions(n_splits=1)).side.sum() in (10, 11)
    assert best_bipartition(Subgraph(graph), vector, SweepOptions(n_splits=2)).side.sum() in (7, 14)
    assert best_bipartition(Subgraph(graph), vector, SweepOptions(n_splits=1000)).side.sum() in (10, 11)
    # A vector that runs from both ends to the middle: its first vertices are no good side, however they are cut.
    ends = np.abs(np.arange(n) - 10.0)[:, None]
    for least in (1, 5, 9):
        assert least <= best_bipartition(Subgraph(graph), ends, SweepOptions(min_size=least)).side.sum() <= n - least


def test_directions_between_vectors_are_searched() -> None:
    """Both axes mix two good cuts, which the diagonal has."""
    side = np.repeat([True, False], 20)
    weights = np.where(side[:, None] == side, 1.0, 0.001)
    np.fill_diagonal(weights, 0)
    graph = Graph(csr_array(weights), np.ones(40))
    rng = np.random.default_rng(0)
    noise = rng.normal(size=40)
    vectors = np.stack([side + noise, side - noise], axis=1)
    axes = best_bipartition(Subgraph(graph), vectors, SweepOptions(search=1))
    searched = best_bipartition(Subgraph(graph), vectors, SweepOptions(search=16))
    assert searched.ncut < 0.1 * axes.ncut
    assert "degrees" in searched.how
    three = best_bipartition(Subgraph(graph), np.column_stack([vectors, noise]), SweepOptions(search=60, seed=1))
    assert three.ncut <= axes.ncut
