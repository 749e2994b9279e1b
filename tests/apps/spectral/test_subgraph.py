"""Vertices of a graph in its own rows, beside a copy of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from ooc_chol.apps.spectral import Graph
from tests.inside.spectral import Subgraph, SweepOptions, best_bipartition, followed, normalized_cut_of, parts_of, runs, sweep

pytestmark = pytest.mark.host
N = 90


@pytest.fixture(params=[1, 60, 1 << 17])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """Weights of many magnitudes, some of which nobody notices, in runs of one row, some, and all; vertex 7 has no edges."""
    monkeypatch.setattr(runs, "_MOST_ENTRIES", request.param)
    rng = np.random.default_rng(3)
    weights = np.triu(10 ** rng.uniform(-14, 0, (N, N)) * (rng.random((N, N)) < 0.3), 1)
    weights[7] = weights[:, 7] = 0
    weights[20, 21:] *= 1e-30
    return Graph(csr_array(weights + weights.T), np.ones(N))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95, 1.0])
def test_all_that_is_asked_of_it_is_that_of_a_copy_to_the_bit(graph: Graph, share: float) -> None:
    rng = np.random.default_rng(4)
    vertices = np.flatnonzero(rng.random(N) < share)
    shared, copied = Subgraph(graph, vertices), Subgraph(graph.subgraph(vertices))
    assert shared.degrees.tobytes() == copied.degrees.tobytes() == graph.subgraph(vertices).degrees.tobytes()
    assert shared.starts.tolist() == copied.starts.tolist() == copied.whole.adjacency.indptr.tolist()
    assert shared.n_entries == copied.whole.adjacency.nnz
    orders = [rng.permutation(len(vertices)) for _ in range(3)]
    assert sweep.weights_before(shared, orders).tobytes() == sweep.weights_before(copied, orders).tobytes()
    side = rng.random(len(vertices)) < 0.5
    assert normalized_cut_of(shared, side) == normalized_cut_of(copied, side)
    (part, sizes), (part_alone, sizes_alone) = parts_of(shared), parts_of(copied)
    assert part.tolist() == part_alone.tolist() and sizes.tolist() == sizes_alone.tolist()
    known = np.where(part >= 0, rng.integers(-1, 2, len(part)), 0).astype(np.int8)
    assert followed(shared, part, known).tobytes() == followed(copied, part, known).tobytes()
    assert (shared.adjacency != copied.adjacency).nnz == (shared.laplacian() != copied.whole.laplacian()).nnz == 0


def test_its_best_cut_is_that_of_a_copy(graph: Graph) -> None:
    rng = np.random.default_rng(5)
    vertices = np.flatnonzero(rng.random(N) < 0.7)
    vectors = rng.standard_normal((len(vertices), 2))
    shared, copied = (
        best_bipartition(each, vectors, SweepOptions())
        for each in (Subgraph(graph, vertices), Subgraph(graph.subgraph(vertices)))
    )
    assert shared.side.tobytes() == copied.side.tobytes()
    assert shared[1:] == copied[1:]
