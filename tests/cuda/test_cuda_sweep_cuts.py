"""Sweep cuts on a GPU: those of the host, and the same bits in every run."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral import Graph
from tests.inside.spectral import (
    GpuCuts,
    Subgraph,
    SweepOptions,
    best_bipartition,
    normalized_cut_of,
    parts_of,
    solver_options,
)

pytestmark = pytest.mark.cuda


def near_and_far(n):
    """Vertices joined to those up to 20 numbers away, and to some far ones."""
    rng = np.random.default_rng(4)
    steps = [*range(1, 21), 977, 1999]
    begins = [np.arange(n - step) for step in steps]
    weights = [10 ** rng.uniform(-8, 0, n - step) for step in steps]
    ends = [each + step for each, step in zip(begins, steps, strict=True)]
    a = csr_array((np.concatenate(weights), (np.concatenate(begins), np.concatenate(ends))), shape=(n, n))
    return Graph(csr_array(a + a.T), np.ones(n))


@pytest.fixture(scope="module")
def graph():
    return near_and_far(100_000)


def gpu_cuts(**given):
    named = {"tol": 1e-6, "preconditioner": "auto", "precision": None, "max_passes": None, "memory_budget": None}
    named |= {"devices": "cuda:0", "host_budget": None, "progress": None, "trace": False, **given}
    return GpuCuts(solver_options(named, 0))


@pytest.mark.parametrize("share", [1.0, 0.8])
@pytest.mark.parametrize("options", [SweepOptions(), SweepOptions(search=20, min_size=1000), SweepOptions(n_splits=50)])
def test_cuts_are_those_of_the_host_and_the_same_in_every_run(graph, share, options):
    rng = np.random.default_rng(1)
    part = Subgraph(graph, np.flatnonzero(rng.random(graph.n) < share))
    vectors = np.cumsum(rng.normal(size=(part.n, 3)), axis=0)
    gpu = gpu_cuts()
    mine, again, hosts = (best_bipartition(part, vectors, options, each) for each in (gpu, gpu, None))
    gpu.forget()
    assert gpu.refused == 0
    assert (mine.ncut, mine.how, mine.side.tobytes()) == (again.ncut, again.how, again.side.tobytes())
    assert (mine.how, mine.side.tobytes()) == (hosts.how, hosts.side.tobytes())
    assert mine.ncut == pytest.approx(hosts.ncut, rel=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.05])
def test_parts_are_those_of_the_host(share):
    """Weights of which few join: some thousand parts, vertices that are alone, others that nobody notices."""
    n, rng = 200_000, np.random.default_rng(2)
    begins, ends = rng.integers(0, n, (2, 4 * n))
    begins, ends = begins[begins != ends], ends[begins != ends]
    a = csr_array((10.0 ** -rng.uniform(0, 30, len(begins)), (begins, ends)), shape=(n, n))
    part = Subgraph(Graph(csr_array(a.maximum(a.T)), np.ones(n)), np.flatnonzero(rng.random(n) < share))
    gpu = gpu_cuts()
    mine, again, hosts = (parts_of(part, each) for each in (gpu, gpu, None))
    gpu.forget()
    assert len(hosts[1]) > 100
    for one, other, wanted in zip(mine, again, hosts, strict=True):
        assert np.array_equal(one, wanted) and np.array_equal(other, wanted)


@pytest.mark.parametrize("share", [1.0, 0.9, 0.4, 0.0])
def test_rows_have_the_bits_of_the_host(graph, share):
    n, rng = graph.n, np.random.default_rng(3)
    far = np.arange(1, n, 7)
    star = csr_array((10 ** rng.uniform(-20, 0, len(far)), (np.zeros(len(far), int), far)), shape=(n, n))
    whole = Graph(csr_array(graph.adjacency.maximum(star).maximum(star.T)), np.ones(n))
    vertices = np.flatnonzero(rng.random(n) < share)
    part = Subgraph(whole, vertices)
    with tb.SweepCuts("cuda:0", whole.adjacency) as sweeps:
        (lengths, sums), again = sweeps.rows(vertices), sweeps.rows(vertices)
    assert np.array_equal(lengths, part.lengths) and np.array_equal(lengths, again[0])
    assert sums.tobytes() == part.degrees.tobytes() == again[1].tobytes()


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_a_cut_has_the_bits_of_the_host(graph, share):
    rng = np.random.default_rng(8)
    part = Subgraph(graph, np.flatnonzero(rng.random(graph.n) < share))
    side, gpu = rng.random(part.n) < 0.3, gpu_cuts()
    assert normalized_cut_of(part, side, gpu) == normalized_cut_of(part, side)
    gpu.forget()
    assert gpu.refused == 0


def test_the_host_splits_where_memory_is_short_or_counted(graph, monkeypatch):
    part, vectors = Subgraph(graph), np.random.default_rng(1).normal(size=(graph.n, 2))
    allowed, along = np.ones(graph.n, np.bool_), np.eye(2)
    assert gpu_cuts(memory_budget="1 GiB").best(part, vectors, along, allowed) is None
    assert gpu_cuts(devices="host:0").best(part, vectors, along, allowed) is None
    monkeypatch.setattr(tb.SweepCuts, "fits", staticmethod(lambda *given: False))
    short = gpu_cuts()
    assert short.best(part, vectors, along, allowed) is None and short.refused == 1
    assert short.components(part, 1e-6, 1e-10) is None and short.refused == 1


def test_memory_comes_back(graph):
    with tb.SweepCuts("cuda:0", graph.adjacency) as sweeps:
        vertices = np.arange(graph.n, dtype=np.int32)
        vectors = np.random.default_rng(1).normal(size=(graph.n, 1))
        assert sweeps.best(vertices, graph.degrees, vectors, np.eye(1), np.ones(graph.n, np.bool_)) is not None
        memory = sweeps._kernels._memory
        assert memory.total_bytes() > 12 * graph.adjacency.nnz
    assert memory.total_bytes() == 0
    sweeps.close()
