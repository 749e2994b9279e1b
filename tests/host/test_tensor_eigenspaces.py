"""Slices of one eigenvalue are lowered as one matrix: what is imputed does not depend on the choice of its eigenvectors."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from scipy.sparse import diags_array, kronsum

import ooc_chol as oc
from tests.inside.kernels import TensorShape, group_ends, tensors, within_groups
from tests.inside.tensors import TensorProblem, given_of, share, space_of
from tests.tensor_problems import small_pieces
from tests.tensor_runs import error_of, problem, random_graph

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]

PATH = diags_array([1.0, 1.0], offsets=[-1, 1], shape=(8, 8))
GRID = kronsum(PATH, PATH).toarray()
RING = np.roll(np.eye(50), 1, axis=1) + np.roll(np.eye(50), -1, axis=1)


def turned(fourier, seed=0):
    """The same transform with other eigenvectors of its multiple eigenvalues."""
    other = copy.copy(fourier)
    other.basis = fourier.basis.copy()
    for run in fourier.eigenspaces:
        columns = slice(run.start, run.stop)
        other.basis[:, columns] = fourier.basis[:, columns] @ scipy.stats.ortho_group.rvs(len(run), random_state=seed)
    return other


def apart(fourier):
    """The same transform, whose slices are lowered each by itself."""
    other = copy.copy(fourier)
    other.eigenspaces = ()
    return other


def test_eigenvalues_that_are_one_stand_side_by_side_component_by_component():
    """Of two equal components, whose eigenvalues are those of each other, and a third one."""
    fourier = oc.GraphFourier(scipy.linalg.block_diag(RING[:9, :9], np.ones((5, 5)) - np.eye(5), np.ones((5, 5)) - np.eye(5)))
    assert [len(run) for run in fourier.eigenspaces] == [4, 4]
    for run in fourier.eigenspaces:
        columns = fourier.basis[:, run.start : run.stop]
        assert len({int(fourier.labels[at]) for at in np.abs(columns).argmax(axis=0)}) == 1
        assert np.ptp(fourier.eigenvalues[run.start : run.stop]) < 1e-12
    assert np.all(np.diff(fourier.eigenvalues) >= 0)
    assert [len(run) for run in oc.GraphFourier(RING).eigenspaces] == 24 * [2]
    assert oc.GraphFourier(random_graph(40, degree=12)).eigenspaces == ()


def test_groups_end_beside_runs_that_they_can_hold():
    runs = (range(1, 3), range(4, 9), range(9, 21), range(23, 25), range(28, 36))
    assert group_ends(40, 8, runs) == (4, 12, 20, 28, 36, 40) and group_ends(40, 8) == (8, 16, 24, 32, 40)
    assert within_groups(runs, group_ends(40, 8, runs)) == (
        *(range(1, 3), range(4, 9), range(9, 12), range(12, 20), range(23, 25), range(28, 36)),
    )
    for seed in range(200):
        rng = np.random.default_rng(seed)
        cuts = np.unique(np.r_[0, rng.integers(0, 60, 20), 60])
        runs, group = [range(one, other) for one, other in itertools.pairwise(cuts.tolist())], int(rng.integers(1, 15))
        ends = group_ends(60, group, runs)
        assert ends[-1] == 60 and all(1 <= size <= group for size in np.diff((0, *ends)))
        assert all(run in within_groups(runs, ends) for run in runs if 1 < len(run) <= group)


@pytest.mark.parametrize("size", [(12, 12), (12, 10), (10, 12)])
@pytest.mark.parametrize("svt", ["gram64", "subspace", "svd"])
def test_the_choice_of_eigenvectors_does_not_matter(size, svt):
    fourier = oc.GraphFourier(GRID)
    x = oc.testing.low_rank_tensor(fourier, *size, 1, dtype=np.float64)
    mask = oc.testing.random_mask(x.shape, 0.8)
    options = {"svt": svt, "n_lambdas": 12}
    found, other = (oc.impute(x, mask, each, **options) for each in (fourier, turned(fourier)))
    assert np.abs(turned(fourier).basis - fourier.basis).max() > 0.1
    assert error_of(other.tensor, found.tensor) <= 1e-7
    assert [row.steps for row in other.history] == [row.steps for row in found.history]
    assert other.report.largest == pytest.approx(found.report.largest, rel=1e-12)
    each = [oc.impute(x, mask, apart(one), **options).tensor for one in (fourier, turned(fourier))]
    assert error_of(each[1], each[0]) > 1e-6


@pytest.mark.parametrize(("graph", "rank", "share", "bound"), [(GRID, 1, 0.6, 1e-4), (RING, 2, 0.7, 1e-3)])
def test_errors_are_a_tenth_of_those_of_slices_by_themselves(graph, rank, share, bound):
    fourier = oc.GraphFourier(graph)
    given = problem(len(graph), 20, rank, share, fourier=fourier)
    joined, by_themselves = (oc.impute(given.x, given.mask, each).tensor for each in (fourier, apart(fourier)))
    assert error_of(joined, given.x) <= min(bound, 0.1 * error_of(by_themselves, given.x))


@pytest.mark.parametrize("svt", ["gram64", "subspace"])
@pytest.mark.parametrize("columns", [12, 10])
def test_devices_budgets_and_checkpoints_change_no_bit_with_runs_in_several_groups(svt, columns, monkeypatch, tmp_path):
    small_pieces(monkeypatch)
    star = np.zeros((30, 30))
    star[0, 1:] = star[1:, 0] = 1.0  # a 28-fold eigenvalue
    fourier = oc.GraphFourier(star)
    x = oc.testing.low_rank_tensor(fourier, 12, columns, 1)
    mask = oc.testing.random_mask(x.shape, 0.7, by="entry")
    options = {"svt": svt, "n_lambdas": 6, "max_inner": 3, "tol": 0.0}
    whole = oc.impute(x, mask, fourier, **options)
    for way in ({"devices": ["host:0", "host:1"]}, {"memory_budget": "200 KiB"}):
        assert np.array_equal(oc.impute(x, mask, fourier, **options, **way).tensor, whole.tensor)
    rows = []
    kept = options | {"checkpoint": tmp_path / "run.oocimp"}
    oc.impute(x, mask, fourier, callback=lambda row, _: len(rows) == 2 or rows.append(row), **kept)
    assert sum(row.steps for row in whole.history[:3]) % 2 == 1  # it goes on with a step of the other way
    with pytest.raises(oc.errors.CheckpointError):
        oc.impute(x, mask, apart(fourier), **kept)
    found = oc.impute(x, mask, fourier, **kept)
    assert found.report.resumed == 3 and np.array_equal(found.tensor, whole.tensor)
    assert not np.array_equal(oc.impute(x, mask, apart(fourier), **options).tensor, whole.tensor)


@pytest.mark.parametrize("budget", [None, "600 KiB"])
def test_the_size_of_groups_changes_no_bit_where_they_hold_each_eigenspace(budget, monkeypatch):
    fourier = oc.GraphFourier(RING)
    x = oc.testing.low_rank_tensor(fourier, 12, 10, 1, dtype=np.float64)
    mask = oc.testing.random_mask(x.shape, 0.7)
    options = {"n_lambdas": 5, "memory_budget": budget}
    monkeypatch.setattr(share, "_by_reversed_bits", range)  # the order of groups is that of a sum
    whole = oc.impute(x, mask, fourier, n_lambdas=5)
    monkeypatch.setattr(tensors, "_MOST_SLICES", 2)
    planned = oc.plan_impute(x, mask, RING, memory_budget=budget)  # its groups of two cut each eigenspace of the ring
    for plan in (None, planned):
        found = oc.impute(x, mask, fourier, plan=plan, **options)
        problem = found.report.plan.problem
        assert problem == oc.plan_impute(x, mask, fourier, **options).problem and problem.cuts and not planned.problem.cuts
        assert np.array_equal(found.tensor, whole.tensor)
    for group in (3, 4, 7):
        monkeypatch.setattr(tensors, "_MOST_SLICES", group)
        assert np.array_equal(oc.impute(x, mask, fourier, **options).tensor, whole.tensor)


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_adjacent_groups_are_of_all_eigenvalues(count, monkeypatch):
    """Each eigenvector has one slice; the first half of the groups has every other one; eigenspaces go where their groups go."""
    monkeypatch.setattr(tensors, "_MOST_SLICES", 4)
    r = 4 * count - 1
    runs = [range(2, 4), range(r - 2, r)] if count > 1 else []
    problem = TensorProblem(TensorShape(r, r, 6, 5), oc.Precision.DDD, "gram64").beside(runs)
    assert sorted(problem.order) == list(range(r)) and problem.ends[-1] == r
    assert {each.start for each in problem.dealt[: (count + 1) // 2]} == {4 * number for number in range(0, count, 2)}
    moved = problem.placed(runs)
    assert sorted(problem.order[list(run)].tolist() for run in moved) == [list(run) for run in runs]
    assert within_groups(moved, problem.ends) == moved


def test_messages_call_a_slice_by_its_eigenvector():
    fourier = oc.GraphFourier(PATH)
    x = oc.testing.low_rank_tensor(fourier, 4, 4, 1, dtype=np.float64)
    given = given_of(x, np.ones(8, np.bool_), None, False)
    with space_of(oc.plan_impute(x, given.mask, fourier), given, fourier, None, trace=False) as space:
        space.numbers = np.array([4, 7, 3, 0, 1, 2, 5, 6])
        assert "slice 3 of" in str(space._not_finite(np.array([1, 2])))
