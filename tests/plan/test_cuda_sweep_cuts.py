"""Sweep cuts by the kernels of GPUs, as C++ whose threads take turns, beside those of the host."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral import Graph
from tests.emulated_cuda import Emulated
from tests.inside.spectral import GpuCuts, Subgraph, SweepOptions, best_bipartition, normalized_cut_of, parts_of, runs


@pytest.fixture(scope="module")
def emulated(compilers: None, tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("sweeps"), "sweep_cuts").module


@pytest.fixture
def on_gpu(emulated, monkeypatch):
    """Stands where the GPU takes every segment."""
    monkeypatch.setitem(sys.modules, "ooc_chol.kernels.cuda.sweep_cuts", emulated)
    monkeypatch.setitem(sys.modules, "ooc_chol.hardware.cuda", SimpleNamespace(device_number=lambda name: 0))

    def best(graph, vectors, directions, is_allowed):
        with tb.SweepCuts("cuda:0", graph.whole.adjacency) as sweeps:
            return sweeps.best(graph.vertices, graph.degrees, vectors, directions, is_allowed)

    def components(graph, noticed, joins):
        with tb.SweepCuts("cuda:0", graph.whole.adjacency) as sweeps:
            return sweeps.components(graph.vertices, graph.degrees, noticed, joins)

    def across(graph, side):
        with tb.SweepCuts("cuda:0", graph.whole.adjacency) as sweeps:
            return sweeps.across(graph.vertices, side)

    return SimpleNamespace(takes=lambda segment: True, best=best, components=components, across=across)


def random_graph(n, seed, share=0.1):
    """Random edges beside a path, with weights over six orders of magnitude."""
    rng = np.random.default_rng(seed)
    weights = np.triu(10 ** rng.uniform(-6, 0, (n, n)) * (rng.random((n, n)) < share), 1)
    weights[np.arange(n - 1), np.arange(1, n)] = 10 ** rng.uniform(-6, 0, n - 1)
    return Graph(csr_array(weights + weights.T), np.ones(n))


CASES = {
    "whole": (300, None, SweepOptions()),
    "one chunk": (20, None, SweepOptions()),
    "a chunk and one": (33, None, SweepOptions()),
    "three vectors, more directions than lanes": (150, None, SweepOptions(search=37)),
    "a part": (300, 0.6, SweepOptions()),
    "few points": (200, 0.9, SweepOptions(n_splits=10)),
    "least size": (200, None, SweepOptions(min_size=60)),
    "more chunks than threads": (9000, 0.99, SweepOptions(search=2)),
}


@pytest.mark.parametrize("case", CASES)
def test_cuts_are_those_of_the_host(on_gpu, case):
    n, share, options = CASES[case]
    rng = np.random.default_rng(n)
    graph = random_graph(n, 7, min(0.1, 10 / n)) if n < 1000 else banded(n)
    kept = None if share is None else np.flatnonzero(rng.random(n) < share)
    part = Subgraph(graph, kept)
    vectors = rng.normal(size=(part.n, 3 if "three" in case else 2))
    mine, hosts = (best_bipartition(part, vectors, options, gpu) for gpu in (on_gpu, None))
    assert np.array_equal(mine.side, hosts.side)
    assert mine.ncut == pytest.approx(hosts.ncut, rel=1e-12)


def banded(n):
    """Neighbours at two distances."""
    rng = np.random.default_rng(1)
    near, far = rng.random(n - 1), rng.random(n - 7)
    a = csr_array((np.r_[near, far], (np.r_[: n - 1, : n - 7], np.r_[1:n, 7:n])), shape=(n, n))
    return Graph(csr_array(a + a.T), np.ones(n))


def test_equal_entries_are_in_the_order_of_their_numbers(on_gpu):
    graph = random_graph(60, 2)
    vectors = np.repeat([[-0.0], [0.0], [1.0]], 20, axis=0) * np.ones((1, 2))
    mine, hosts = (best_bipartition(Subgraph(graph), vectors, SweepOptions(search=1), gpu) for gpu in (on_gpu, None))
    assert mine.side.tobytes() == hosts.side.tobytes()


def test_small_cuts_are_not_lost_in_large_degrees(on_gpu):
    """Two pairs that an edge of 1e-14 joins to each other and to a clique of weight one."""
    weights = np.ones((40, 40))
    weights[:4] = weights[:, :4] = 0
    weights[0, 1] = weights[1, 0] = weights[2, 3] = weights[3, 2] = 1e-9
    weights[1, 2] = weights[2, 1] = weights[3, 4] = weights[4, 3] = 1e-14
    np.fill_diagonal(weights, 0)
    graph = Subgraph(Graph(csr_array(weights), np.ones(40)))
    for vector in (np.arange(40.0), -np.arange(40.0)):
        mine, hosts = (best_bipartition(graph, vector[:, None], SweepOptions(), gpu) for gpu in (on_gpu, None))
        assert np.array_equal(mine.side, hosts.side)
        assert mine.ncut == pytest.approx(hosts.ncut, rel=1e-12)


def test_no_split_is_allowed(emulated):
    graph = random_graph(20, 3)
    kernels = emulated.SweepKernels(0, graph.adjacency)
    vertices = np.arange(20, dtype=np.int32)
    assert kernels.best(vertices, graph.degrees, np.ones((20, 1)), np.eye(1), np.zeros(20, np.bool_)) is None


@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize(("n", "per_row", "least"), [(1, 0, 0), (40, 2, 60), (300, 1.5, 30), (3000, 3, 14), (500, 1, 0)])
def test_parts_are_those_of_the_host(on_gpu, n, per_row, least, share):
    """Weights over up to sixty orders of magnitude, of which few join; some vertices are alone, some unnoticed."""
    rng = np.random.default_rng(n)
    count = int(per_row * n / 2)
    begins, ends = rng.integers(0, n, (2, count))
    begins, ends = begins[begins != ends], ends[begins != ends]
    a = csr_array((10.0 ** -rng.uniform(0, least, len(begins)), (begins, ends)), shape=(n, n))
    graph = Graph(csr_array(a.maximum(a.T)), np.ones(n))
    kept = np.flatnonzero(rng.random(n) < share) if share < 1 else None
    mine, hosts = (parts_of(Subgraph(graph, kept), gpu) for gpu in (on_gpu, None))
    assert [each.tolist() for each in mine] == [each.tolist() for each in hosts]


def of_any_lengths(n, seed):
    """Rows of 0 to some hundred entries, and one of all others, with weights over sixty orders of magnitude."""
    rng = np.random.default_rng(seed)
    often = rng.random(n)
    often[-9:] = 0
    weights = np.triu(10 ** rng.uniform(-60, 0, (n, n)) * (rng.random((n, n)) < np.outer(often, often)), 1)
    weights[0, 1:-9] = 10 ** rng.uniform(-3, 0, n - 10)
    return Graph(csr_array(weights + weights.T), np.ones(n))


@pytest.mark.parametrize("kept", ["all", "some", "most", "one", "none"])
def test_rows_have_the_bits_of_the_host(on_gpu, kept):
    graph, rng = of_any_lengths(900, 5), np.random.default_rng(6)
    share = {"all": 1.0, "some": 0.3, "most": 0.98}.get(kept, 0.0)
    vertices = np.flatnonzero(rng.random(graph.n) < share) if kept != "one" else np.array([3])
    part = Subgraph(graph, vertices)
    with tb.SweepCuts("cuda:0", graph.adjacency) as sweeps:
        lengths, sums = sweeps.rows(vertices)
    assert lengths.tolist() == part.lengths.tolist()
    assert sums.tobytes() == part.degrees.tobytes()
    assert kept != "all" or (lengths[0] == 890 and np.sort(lengths)[-2] > 400 and lengths.min() == 0)


@pytest.mark.parametrize("length", [*range(20), 127, 128, 129, 130, 136, 137, 255, 256, 257, 264, 385, 400, 3001])
def test_a_row_of_any_length_is_summed_as_numpy_does(on_gpu, length):
    weights = 10 ** np.random.default_rng(length).uniform(-20, 20, length + 1)
    star = csr_array((weights, (np.zeros(length + 1, int), np.arange(1, length + 2))), shape=(length + 2, length + 2))
    graph = Graph(csr_array(star + star.T), np.ones(length + 2))
    with tb.SweepCuts("cuda:0", graph.adjacency) as sweeps:
        lengths, sums = sweeps.rows(np.delete(np.arange(length + 2), 1 + length // 2))
    kept = np.delete(weights, length // 2)
    assert lengths[0] == length
    assert sums[0] == (np.add.reduceat(kept, [0])[0] if length else 0)
    assert sums[1:].tobytes() == kept.tobytes()


@pytest.mark.parametrize("most", [1, 500, 1 << 19])
@pytest.mark.parametrize("sides", ["random", "one vertex", "nothing"])
def test_a_cut_has_the_bits_of_the_host(on_gpu, monkeypatch, sides, most):
    monkeypatch.setattr(runs, "_MOST_ENTRIES", most)
    graph, rng = of_any_lengths(500, 9), np.random.default_rng(10)
    part = Subgraph(graph, np.flatnonzero(rng.random(graph.n) < 0.8))
    side = rng.random(part.n) < {"random": 0.4, "one vertex": 0, "nothing": 0}[sides]
    side[3] |= sides == "one vertex"
    mine, hosts = (normalized_cut_of(part, side, gpu) for gpu in (on_gpu, None))
    assert mine == hosts and (hosts > 0) == (sides != "nothing")


def test_parts_of_a_graph_on_a_gpu_are_measured_there(on_gpu, monkeypatch):
    monkeypatch.setattr(tb.SweepCuts, "fits", staticmethod(lambda *given: True))
    machine = SimpleNamespace(names=("cuda:0",))
    gpu = GpuCuts(SimpleNamespace(machine=machine, memory_budget=None, gpu_entries=500, are_gpus=True, preconditioner="diagonal"))
    graph, vertices = random_graph(100, 8), np.arange(20, 90)
    early = gpu.measured(Subgraph(graph, vertices))
    assert "degrees" not in vars(early)
    parts_of(Subgraph(graph), gpu)
    part, alone = gpu.measured(Subgraph(graph, vertices)), Subgraph(graph, vertices)
    assert gpu.takes(part) and parts_of(part, gpu)[1].sum() == 70
    best = best_bipartition(part, np.arange(70.0)[:, None], SweepOptions(), gpu)
    assert best.ncut == pytest.approx(best_bipartition(alone, np.arange(70.0)[:, None], SweepOptions()).ncut, rel=1e-12)
    assert part.degrees.tobytes() == alone.degrees.tobytes() and part.starts.tolist() == alone.starts.tolist()
    assert not {"border", "border_rows", "number"} & set(vars(part))
    gpu.forget()


def test_it_is_opened_at_the_first_call_and_again_after_it_was_closed(on_gpu, emulated, monkeypatch):
    graph, opened = random_graph(30, 1), []
    first = emulated.SweepKernels
    monkeypatch.setattr(emulated, "SweepKernels", lambda *given: opened.append(given) or first(*given))
    vertices, allowed = np.arange(30), np.ones(30, np.bool_)
    sweeps = tb.SweepCuts("cuda:0", graph.adjacency)
    assert "30" in repr(sweeps) and not opened
    found = [sweeps.best(vertices, graph.degrees, np.arange(30.0)[:, None], np.eye(1), allowed) for _ in range(2)]
    assert len(opened) == 1
    sweeps.close()
    sweeps.close()
    found.append(sweeps.best(vertices, graph.degrees, np.arange(30.0)[:, None], np.eye(1), allowed))
    sweeps.close()
    assert len(opened) == 2
    assert len({each.side.tobytes() for each in found}) == 1
