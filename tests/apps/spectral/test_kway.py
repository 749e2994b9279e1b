"""Partitions into any number of parts: sizes next to their targets, and cuts beside the straight ones of a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import ooc_chol as oc
from ooc_chol.apps import spectral
from tests.apps.spectral.graphs_made import (
    clique,
    grid,
    neighbours_in_the_plane,
    octahedral_sphere,
    path,
    recounted,
    ring,
    star,
    straight_cut,
    together,
)
from tests.inside.spectral import Level, evened_parts, gathered, refined_together, refinement, shares_of

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]


@pytest.mark.parametrize("n_parts", [2, 3, 4, 7, 16])
def test_grid_beside_the_straight_cut(n_parts):
    matrix = grid(64, 64)
    found = spectral.partition(matrix, n_parts)
    sizes = np.bincount(found.labels, minlength=n_parts)
    assert len(sizes) == n_parts and np.abs(sizes - 4096 / n_parts).max() < 1 and found.sizes.tolist() == sizes.tolist()
    assert found.cut == recounted(matrix, found.labels) <= 1.1 * straight_cut(64, 64, n_parts)


def test_straight_cuts_are_right():
    assert [straight_cut(64, 64, k) for k in (1, 2, 3, 4, 16)] == [0, 64, pytest.approx(64 + 128 / 3), 128, 384]


def test_target_sizes_as_shares_and_as_weights():
    matrix = grid(10, 20)
    shares = spectral.partition(matrix, 3, target_sizes=[0.5, 0.3, 0.2])
    weights = spectral.partition(matrix, 3, target_sizes=[100, 60, 40])
    assert shares.sizes.tolist() == weights.sizes.tolist() == shares.target_sizes.tolist() == [100, 60, 40]
    assert shares.cut <= 22 and np.array_equal(shares.labels, weights.labels)


@pytest.mark.parametrize("n", [16, 17, 23])
def test_sizes_are_next_to_the_targets(n):
    targets = np.array([0.31, 0.04, 0.2, 0.25, 0.2])
    found = spectral.partition(path(n), 5, target_sizes=targets)
    assert np.abs(found.sizes - targets * n).max() < 1 and found.sizes.min() >= 1 and found.cut == 4


def test_as_many_parts_as_vertices():
    found = spectral.partition(clique(6), 6)
    assert sorted(found.labels) == [*range(6)] and found.cut == 15


def test_a_target_below_a_vertex_is_told():
    found = spectral.partition(grid(4, 5), 3, target_sizes=[0.5, 0.49, 0.01])
    assert found.sizes.tolist()[2] == 1
    told = "Part 2 has a target of 0.2, but the lightest vertex weighs 1"
    assert [note for note in found.report.notes if note.startswith(told)]


def test_one_part():
    found = spectral.partition(path(5), 1)
    assert found.labels.tolist() == [0] * 5 and found.cut == 0 and found.report.bisections == 0
    assert spectral.partition(together(path(5), path(2)), 1).report.components == 2


def test_components_are_parts():
    matrix = together(grid(5, 4), clique(20), path(20), grid(2, 10))
    found = spectral.partition(matrix, 4)
    assert found.cut == 0 and found.sizes.tolist() == [20] * 4


def test_more_parts_than_components_without_edges():
    found = spectral.partition(csr_array((10, 10)), 3)
    assert found.cut == 0 and sorted(found.sizes) == [3, 3, 4]


def test_heavy_vertices_leave_a_vertex_for_each_part():
    found = spectral.partition(path(4), 3, vertex_weights=[100, 1, 1, 1])
    assert sorted(np.bincount(found.labels)) == [1, 1, 2]
    assert any("more than its target" in note for note in found.report.notes)


def test_weighted_vertices():
    weights = np.random.default_rng(2).integers(1, 9, 900)
    found = spectral.partition(grid(30, 30), 5, vertex_weights=weights)
    assert found.sizes.tolist() == np.bincount(found.labels, weights).tolist()
    assert np.abs(found.sizes - weights.sum() / 5).max() <= 3


def test_balance_bounds_every_part():
    matrix = octahedral_sphere(10)
    exact, loose = (spectral.partition(matrix, 5, balance=balance) for balance in (0.0, 0.06))
    assert exact.imbalance < 5 / 402 and loose.imbalance <= 0.06
    assert loose.cut <= exact.cut


@pytest.mark.parametrize("balance", [0.003, 0.01, 0.03])
@pytest.mark.parametrize("kind", ["uniform", "lognormal"])
def test_balance_bounds_parts_of_weights_that_are_not_whole(kind, balance):
    weights = np.random.default_rng(1).random(144) + 0.1 if kind == "uniform" else np.random.default_rng(2).lognormal(size=144)
    found = spectral.partition(grid(12, 12), 8, vertex_weights=weights, balance=balance, devices="host:0")
    assert found.imbalance <= balance * (1 + 1e-9) and found.cut <= 60


def test_moves_between_neighbours_gain(monkeypatch):
    matrix = neighbours_in_the_plane(700, seed=0)
    refined = spectral.partition(matrix, 8)
    monkeypatch.setattr(refinement, "_MOST_ROUNDS", 0)
    plain = spectral.partition(matrix, 8)
    assert refined.cut < plain.cut and np.abs(refined.sizes - 700 / 8).max() < 1
    assert refined.cut == recounted(matrix, refined.labels)


def test_same_labels_on_one_device_and_on_two():
    matrix = grid(26, 27)  # large enough for LOBPCG
    one, two = (spectral.partition(matrix, 5, seed=2, devices=devices) for devices in (["host:0"], ["host:0", "host:1"]))
    assert np.array_equal(one.labels, two.labels)


@pytest.mark.parametrize(
    ("n_parts", "options", "kind", "text"),
    [
        (7, {}, ValueError, "n_parts is 7, but .* has 6 vertices; give 1 to 6"),
        (0, {}, ValueError, "n_parts is 0"),
        (2.0, {}, TypeError, "n_parts is a float; give an int"),
        (2, {"target_sizes": [0.5, 0.6]}, ValueError, "sum up to 1.1; give shares that sum up to 1, or weights that sum up to 6"),
        (2, {"target_sizes": [0.5, 0.3, 0.2]}, ValueError, r"shape \(3,\); give 2 numbers"),
        (2, {"target_sizes": [1.5, -0.5]}, ValueError, r"target_sizes\[1\] is -0.5; give positive numbers"),
        (2, {"target_sizes": [float("nan"), 0.5]}, ValueError, r"target_sizes\[0\] is nan"),
    ],
)
def test_bad_arguments(n_parts, options, kind, text):
    with pytest.raises(kind, match=text):
        spectral.partition(path(6), n_parts, **options)


@pytest.mark.parametrize(
    ("name", "word"), [("nparts", "n_parts"), ("n_clusters", "n_parts"), ("k", "n_parts"), ("tpwgts", "target_sizes")]
)
def test_words_of_other_packages_are_answered_with_ours(name, word):
    for call in (spectral.partition, spectral.plan_partition):
        with pytest.raises(TypeError, match=f"{call.__name__} has no argument {name}: it is called {word}"):
            call(path(6), **{name: 3})


@pytest.mark.parametrize("n_parts", [2, 4])
def test_components_that_are_only_packed_need_no_budget(n_parts):
    matrix = together(*[grid(6, 5)] * 8)
    plan = spectral.plan_partition(matrix, n_parts, memory_budget=64)
    assert (plan.method, plan.eigsh) == ("none", None) and "components stay whole" in str(plan)
    found = spectral.partition(matrix, n_parts, memory_budget=64, plan=plan)
    assert found.cut == 0 and found.report.method == "packing" and found.report.plan == plan
    if n_parts == 2:
        assert spectral.bisect(matrix, memory_budget=64).cut == 0


def test_a_component_that_is_cut_after_packing_is_planned():
    matrix = together(grid(30, 30), grid(30, 30))
    assert spectral.plan_partition(matrix, 2).method == "none"
    plan = spectral.plan_partition(matrix, 4, preconditioner="diagonal", devices="host:0")
    assert (plan.n, plan.method) == (900, "LOBPCG with the diagonal")
    with pytest.raises(oc.BudgetError, match="memory_budget"):
        spectral.partition(matrix, 4, memory_budget=64)


def hubs(n, seed=0):
    """A graph of vertices on a line, the later ones joined to some before them by their degrees, as irregular ones are."""
    random = np.random.default_rng(seed)
    ends = [0, 1]
    for vertex in range(2, n):
        near = [vertex - 1, max(0, vertex - int(random.integers(2, 30)))]
        for other in {*near, ends[int(random.integers(len(ends)))]}:
            ends += [vertex, other]
    pairs = np.array(ends).reshape(-1, 2)
    matrix = csr_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
    joined = csr_array(matrix + matrix.T)
    joined.data[:] = 1
    return joined


@pytest.mark.parametrize("n_parts", [8, 20])
def test_moves_between_all_parts_lessen_the_cut_of_an_irregular_graph(monkeypatch, n_parts):
    matrix = hubs(2000)
    found = spectral.partition(matrix, n_parts)
    monkeypatch.setattr(refinement, "refined_together", lambda graph, labels, *_: (labels, False))
    before = spectral.partition(matrix, n_parts)
    assert found.cut == recounted(matrix, found.labels) < before.cut
    assert np.ptp(found.sizes) <= (2000 % n_parts > 0)


def pieces(matrix, labels):
    """How many pieces all parts have."""
    parts = [np.flatnonzero(labels == part) for part in range(labels.max() + 1)]
    return sum(connected_components(matrix[part][:, part], directed=False)[0] for part in parts)


@pytest.mark.parametrize("n_parts", range(2, 17))
@pytest.mark.parametrize(
    "matrix", [path(100), ring(50), ring(203), grid(10, 10), grid(7, 9), grid(31, 31)], ids=lambda each: str(each.shape[0])
)
def test_parts_of_rings_paths_and_grids_are_connected(matrix, n_parts):
    found = spectral.partition(matrix, n_parts)
    assert pieces(matrix, found.labels) == n_parts and not any("not connected" in note for note in found.report.notes)


def test_a_part_in_pieces_is_told_of():
    found = spectral.bisect(star(8))
    assert pieces(star(8), found.labels) == 5
    (note,) = [each for each in found.report.notes if "not connected" in each]
    assert note.startswith("1 part is not connected") and note.endswith("the largest has 1 vertex.")


def test_pieces_go_to_neighbours_that_have_room():
    line, labels = spectral.as_graph(path(30)), np.repeat(np.array([0, 1, 0, 1], np.int32), [10, 3, 2, 15])
    roomy, tight = np.array([20.0, 20.0]), np.array([12.0, 18.0])
    whole = gathered(line, labels, np.zeros(2), roomy)
    assert pieces(line.adjacency, whole) == 2 and line.cut(whole) == 1
    assert np.array_equal(gathered(line, labels, tight, tight), labels)


@pytest.mark.parametrize("balance", [0.0, 0.05])
def test_parts_of_random_vertices_are_made_again_within_their_bounds(balance):
    graph = spectral.as_graph(grid(30, 40))
    targets = np.array([0.1, 0.2, 0.3, 0.4])
    shares = shares_of(graph.vertex_weights, 4, targets, balance)
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(4, dtype=np.int32), [120, 240, 360, 480]))
    found, _ = refined_together(graph, labels, shares, 0)
    assert graph.cut(found) < 0.2 * graph.cut(labels)
    sizes = np.bincount(found)
    assert np.all(sizes <= (1 + balance) * 1200 * targets) and (balance or sizes.tolist() == [120, 240, 360, 480])


def test_parts_beyond_their_bounds_are_evened_also_where_no_cut_is_less():
    graph = spectral.as_graph(path(30))
    shares = shares_of(graph.vertex_weights, 2, None, 0.03)
    found, _ = refined_together(graph, np.repeat(np.array([0, 1], np.int32), [16, 14]), shares, 0)
    assert np.bincount(found).tolist() == [15, 15] and graph.cut(found) == 1


def test_parts_far_from_their_bounds_are_evened_through_others_and_from_anywhere():
    line = together(path(30), path(30))
    labels = np.repeat([0, 1, 2, 3], [25, 5, 5, 25])
    level = Level(csr_array(line), np.ones(60), labels)
    bounds = np.full(4, 15.0)
    evened = evened_parts(level, bounds, bounds)
    assert np.bincount(evened).tolist() == [15] * 4 and np.count_nonzero(evened != labels) == 20
    parts = np.repeat([0, 1], 30)
    uneven = evened_parts(Level(csr_array(line), np.ones(60), parts), np.array([20.0, 40.0]), np.array([20.0, 40.0]))
    assert np.bincount(uneven).tolist() == [20, 40]
    assert np.bincount(labels).tolist() == [25, 5, 5, 25]
