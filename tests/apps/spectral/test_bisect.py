"""Bisections of graphs whose best cut is known: connected or not, trivial, weighted, and with multiple eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol.apps import spectral
from tests.apps.spectral.graphs_made import clique, from_edges, grid, octahedral_sphere, path, recounted, star, together
from tests.apps.spectral.spectral_graphs import torus_matrix

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]


def cut_of(matrix, **options):
    """A bisection whose cut and sizes are what they are said to be, of halves."""
    found = spectral.bisect(matrix, **options)
    assert found.labels.dtype == np.int32 and set(found.labels.tolist()) <= {0, 1}
    assert found.cut == recounted(matrix, found.labels)
    if "vertex_weights" not in options:
        assert found.sizes.tolist() == np.bincount(found.labels, minlength=2).tolist()
        if not options.get("balance"):
            assert abs(found.sizes[0] - found.sizes[1]) <= 1
    return found


@pytest.mark.parametrize("weight", [1e-3, 1e-8, 1e150])
def test_stars_of_all_sizes_are_cut(weight):
    for n in range(4, 80, 3):
        labels = spectral.partition(weight * star(n), 2).labels
        assert abs(2 * np.count_nonzero(labels) - n) <= 1


@pytest.mark.parametrize(
    ("matrix", "best"),
    [
        pytest.param(path(2), 1, id="path of 2"),
        pytest.param(path(3), 1, id="path of 3"),
        pytest.param(path(101), 1, id="path of 101"),
        pytest.param(clique(3), 2, id="triangle"),
        pytest.param(clique(9), 20, id="clique"),
        pytest.param(star(8), 4, id="star of 8"),
        pytest.param(star(33), 16, id="star of 33"),
        pytest.param(grid(12, 30), 12, id="grid of 12 x 30"),
        pytest.param(grid(20, 31), 21, id="grid of 20 x 31"),
        pytest.param(grid(24, 24), 24, id="square grid"),
        pytest.param(grid(8, 8, 12), 64, id="grid of 8 x 8 x 12"),
        pytest.param(octahedral_sphere(12), 74, id="sphere"),
        pytest.param(together(clique(6), clique(6)), 0, id="two cliques"),
        pytest.param(together(clique(6), clique(3), path(3)), 0, id="packed"),
        pytest.param(together(path(50), star(4), csr_array((7, 7))), 1, id="straddling path"),
        pytest.param(together(grid(10, 10), csr_array((60, 60))), 10, id="grid and isolated vertices"),
        pytest.param(together(clique(16), path(10), path(8)), 1, id="clique beside paths"),
        pytest.param(together(clique(20), path(30), clique(14)), 1, id="the path is cut, not the clique"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_best_cut(matrix, best, seed):
    assert cut_of(matrix, seed=seed).cut <= best


@pytest.mark.parametrize("weighted", [False, True])
def test_beside_all_bisections_of_small_graphs(weighted):
    rng, best = np.random.default_rng(5), []
    for seed in range(60):
        n = int(rng.integers(2, 10))
        upper = np.triu(rng.random((n, n)) < rng.choice([0.1, 0.2, 0.4, 0.8]), 1) * rng.integers(1, 4, (n, n))
        matrix = csr_array((upper + upper.T).astype(float))
        weights = rng.integers(1, 5, n).astype(float) if weighted else np.ones(n)
        found = spectral.bisect(matrix, vertex_weights=weights, seed=seed)
        difference, cut = least_of_all(upper, weights)
        assert abs(found.sizes[0] - found.sizes[1]) == difference
        best.append(found.cut == cut)
    assert np.mean(best) >= 0.95


def least_of_all(upper, weights):
    """The least difference of sizes, and the least cut of all bisections that have it."""
    n = len(weights)
    sides = 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1) - 1
    differences = np.abs(sides @ weights)
    cuts = (upper.sum() - np.einsum("mi,ij,mj->m", sides, upper, sides)) / 2
    return differences.min(), cuts[differences == differences.min()].min()


def test_no_edges():
    found = cut_of(csr_array((5, 5)))
    assert found.cut == 0 and sorted(found.sizes) == [2, 3] and found.report.components == 5
    assert found.report.method == "packing" and not len(found.eigenvalues)


def test_one_vertex_and_none():
    found = cut_of(csr_array((1, 1)))
    assert sorted(found.sizes) == [0, 1] and any("is empty" in note for note in found.report.notes)
    assert "part 1 is empty" in str(found)
    nothing = spectral.bisect(spectral.Graph(csr_array((0, 0)), np.zeros(0)))
    assert nothing.labels.shape == (0,) and nothing.cut == 0 and nothing.imbalance == 0


def test_isolated_vertices_leave_the_straddler_free():
    # a dumbbell of 30 and 50 vertices: cut at its bar, 20 isolated vertices fill up
    bar = together(clique(30), clique(50), csr_array((20, 20))) + from_edges(100, [(0, 30)])
    assert cut_of(bar).cut == 1


@pytest.mark.package("pyamg")
@pytest.mark.parametrize("seed", [0, 3])
def test_as_many_vectors_as_an_eigenvalue_has_copies(seed):
    found = spectral.bisect(torus_matrix(16, 16, 16), devices="host:0", seed=seed)
    assert found.eigenvalues == pytest.approx(np.full(6, 2 - 2 * np.cos(np.pi / 8)), rel=1e-5)
    assert found.cut == 512 and any("is sixfold;" in note for note in found.report.notes)
    assert len(spectral.bisect(torus_matrix(16, 16, 16), devices="host:0", vectors=1, seed=seed).eigenvalues) == 1


def test_multiple_eigenvalues_are_told():
    square, line = cut_of(grid(16, 16)), cut_of(path(40))
    assert any(note.startswith("lambda_2 = ") and "is double;" in note for note in square.report.notes)
    assert square.eigenvalues[:2] == pytest.approx(2 - 2 * np.cos(np.pi / 16), rel=1e-5)
    sphere = cut_of(octahedral_sphere(8))
    assert any("is triple;" in note for note in sphere.report.notes) and len(sphere.eigenvalues) == 3
    complete = cut_of(clique(40))
    assert any("15-fold at least" in note for note in complete.report.notes)
    assert not any("lambda_2" in note for note in line.report.notes)


def weakly_joined(one, other, weight):
    """Two graphs, the weights of the second times this, and its first vertex joined with three of the first by that."""
    both = together(one, weight * other).tolil()
    n = one.shape[0]
    both[n, [0, 5, 9]] = weight
    both[[0, 5, 9], n] = weight
    return csr_array(both)


@pytest.mark.parametrize("weight", [1e-31, 1e-69, 1e-300])
@pytest.mark.parametrize("other", [csr_array((1, 1)), csr_array((3, 3)), path(40)], ids=["one", "three", "path"])
def test_vertices_that_next_to_nothing_joins_are_packed(weight, other):
    found = cut_of(weakly_joined(grid(30, 30), other, weight), devices="host:0")
    assert found.cut <= 31 and found.report.components > 1


@pytest.mark.parametrize("weight", [1e-20, 1e-29, 1e-31, 1e-200, 1e-300])
def test_halves_of_other_magnitudes_are_told_apart(weight):
    found = cut_of(weakly_joined(grid(6, 6), grid(6, 6), weight))
    assert found.cut == 3 * weight and not any("lambda_2" in note for note in found.report.notes)


@pytest.mark.parametrize("n_parts", [2, 5])
def test_weights_of_edges_of_all_magnitudes(n_parts):
    rng = np.random.default_rng(0)
    ends = [(a, b) for a in range(60) for b in range(a) if rng.random() < 0.1]
    matrix = from_edges(60, ends, 10.0 ** rng.uniform(-300, 300, len(ends)))
    found = spectral.partition(matrix, n_parts, devices="host:0")
    assert found.sizes.tolist() == [60 / n_parts] * n_parts and found.cut == pytest.approx(recounted(matrix, found.labels))


def test_weights_of_edges_decide():
    ring = from_edges(8, [(a, (a + 1) % 8) for a in range(8)], [5, 5, 1, 5, 5, 5, 1, 5])
    assert cut_of(ring).cut == 2


def test_weights_of_vertices_are_balanced():
    weights = np.random.default_rng(0).integers(1, 6, 400)
    found = cut_of(grid(20, 20), vertex_weights=weights)
    assert found.sizes.tolist() == np.bincount(found.labels, weights).tolist()
    assert abs(found.sizes[0] - found.sizes[1]) <= 1 and found.cut <= 24


def test_least_imbalance_is_told():
    found = cut_of(path(4), vertex_weights=[5, 1, 1, 1])
    assert sorted(found.sizes) == [3, 5] and found.cut == 1
    assert any("least imbalance is a part of 3 beside one of 5" in note for note in found.report.notes)
    assert found.imbalance == 0.25


def test_weights_that_are_not_whole_differ_by_light_vertices():
    weights = np.random.default_rng(1).uniform(0.5, 1.5, 900)
    found = cut_of(grid(30, 30), vertex_weights=weights)
    assert abs(found.sizes[0] - found.sizes[1]) <= 1.5 and found.cut <= 34


def test_balance_lets_parts_weigh_more():
    matrix = together(grid(9, 45))
    exact, loose = cut_of(matrix), cut_of(matrix, balance=0.05)
    assert exact.cut == 10 and loose.cut == 9
    assert loose.sizes.max() <= 1.05 * 405 / 2


def test_refinement_and_search_can_be_left_out():
    matrix = grid(15, 17)
    plain = cut_of(matrix, vectors=1, search=0, refine=False)
    assert plain.report.seconds.parts["refinement"] == 0 and plain.cut >= cut_of(matrix).cut


@pytest.mark.parametrize("devices", [["host:0"], ["host:0", "host:1"]])
def test_same_labels_on_one_device_and_on_two(devices):
    matrix = octahedral_sphere(13)  # large enough for LOBPCG
    found = spectral.bisect(matrix, seed=3, devices=devices)
    assert np.array_equal(found.labels, spectral.bisect(matrix, seed=3, devices="host:0").labels)


def test_same_seed_same_bits():
    one, two = (spectral.bisect(grid(13, 14), seed=5) for _ in range(2))
    assert np.array_equal(one.labels, two.labels) and np.array_equal(one.eigenvalues, two.eigenvalues)
    assert one.candidates == two.candidates


def test_trace_is_of_the_first_eigenpairs():
    assert cut_of(octahedral_sphere(13), trace=True, devices="host:0").trace is not None
    assert cut_of(octahedral_sphere(13)).trace is None


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"balance": 1.5}, ValueError, "balance is 1.5; give by how much"),
        ({"balance": 1}, ValueError, "balance is 1; give .* 0, or a number below 1"),
        ({"balance": float("nan")}, ValueError, "balance is nan"),
        ({"vectors": 0}, ValueError, "vectors is 0; give 1 or more"),
        ({"search": -1}, ValueError, "search is -1; give 0 or more"),
        ({"seed": 1.5}, TypeError, "seed is a float; give an int"),
        ({"refine": 1}, TypeError, "refine is 1; give True or False"),
        ({"sigma": 1}, TypeError, "bisect has no argument sigma; "),
        ({"nparts": 2}, TypeError, r"bisect has no argument nparts: .* partition\(A, n_parts\)"),
        ({"random_state": 2}, TypeError, "it is called seed"),
        ({"preconditioner": "ilu"}, ValueError, "preconditioner"),
        ({"vertex_weights": [1, 2]}, ValueError, "vertex_weights"),
    ],
)
def test_bad_arguments(options, kind, text):
    with pytest.raises(kind, match=text):
        spectral.bisect(path(6), **options)


@pytest.mark.parametrize("power", [-900, -500, 100, 500, 1000])
@pytest.mark.parametrize("sides", [(5, 6), (25, 26)])
def test_weights_of_edges_of_every_magnitude(power, sides):
    usual, scaled = (spectral.bisect(grid(*sides) * scale, devices="host:0") for scale in (1.0, 2.0**power))
    assert np.array_equal(usual.labels, scaled.labels)
    assert scaled.cut == usual.cut * 2.0**power
    assert np.allclose(scaled.eigenvalues / 2.0**power, usual.eigenvalues, rtol=1e-9)


@pytest.mark.parametrize("unit", [0.1, 2.5, 1e-300, 1e300])
def test_vertices_that_weigh_the_same_are_counted(unit):
    usual, scaled = (spectral.partition(grid(10, 9), 3, vertex_weights=np.full(90, w), devices="host:0") for w in (1.0, unit))
    assert np.array_equal(usual.labels, scaled.labels) and not scaled.report.notes
    assert np.allclose(scaled.sizes, 30 * unit, rtol=1e-12)
    assert scaled.candidates == usual.candidates


@pytest.mark.parametrize("heavy", [1e6, 1e18, 1e300])
def test_a_vertex_that_outweighs_all_others_leaves_them_a_part(heavy):
    found = spectral.bisect(grid(5, 6), vertex_weights=np.r_[heavy, np.ones(29)], devices="host:0")
    assert np.count_nonzero(found.labels == found.labels[0]) < 30 and found.cut > 0


def test_weights_that_cannot_be_summed_are_refused():
    with pytest.raises(ValueError, match="vertex_weights: they sum up to more than float64 holds"):
        spectral.bisect(grid(5, 6), vertex_weights=np.full(30, 1e308))
    with pytest.raises(ValueError, match="weights of its edges: they sum up to more"):
        spectral.bisect(grid(5, 6) * 1e308)


@pytest.mark.parametrize(
    "options",
    [
        {"devices": "host:9999"},
        {"devices": -1},
        {"tol": -1.0},
        {"tol": 2},
        {"precision": "x"},
        {"memory_budget": -1},
        {"max_passes": 0},
    ],
)
def test_small_graphs_take_no_nonsense_either(options):
    named = "|".join([*options, "there is no device"])
    for call in (spectral.bisect, spectral.normalized_cut):
        with pytest.raises(ValueError, match=named):
            call(grid(3, 4), **options)


@pytest.mark.parametrize("vectors", [3, 5])
@pytest.mark.parametrize(("preconditioner", "devices"), [("diagonal", "host:0"), ("auto", "host:0,host:1")])
def test_the_eigensolver_is_planned_as_it_is_called(monkeypatch, preconditioner, devices, vectors):
    eigsh, plans = oc.eigsh, []

    def watched(*given, **options):
        pairs = eigsh(*given, **options)
        plans.append(pairs.report.plan)
        return pairs

    monkeypatch.setattr(oc, "eigsh", watched)
    found = spectral.bisect(grid(40, 31), vectors=vectors, preconditioner=preconditioner, devices=devices, memory_budget="1 GiB")
    planned, run = found.report.plan.eigsh, plans[0]
    assert (planned.k, planned.which, planned.method) == (run.k, run.which, run.method)
    assert (planned.sizes, planned.capacity, planned.devices) == (run.sizes, run.capacity, run.devices)


def test_a_name_that_is_near_no_other_is_answered_with_where_help_is():
    with pytest.raises(TypeError, match=r"help\(ooc_chol\.apps\.spectral\.bisect\) lists"):
        spectral.bisect(np.eye(3), zzz=1)
