"""Imputation: errors that the issue promises, options, bad input, and what accompanies a run."""

from __future__ import annotations

import json
import math
import os
import signal
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.inside.tensors import (
    ALL_LAMBDAS,
    ALL_THE_SAME,
    ALL_ZERO,
    CALLBACK,
    INTERRUPTED,
    NOISE_FLOOR,
    NOTHING_MISSING,
    noise_floor,
    planning,
)
from tests.inside.tensors import imputation as module
from tests.tensor_runs import D3, ROUTES_RTOL, PlainSpace, error_of, problem, random_graph


@pytest.fixture(scope="module")
def small():
    return problem(60, 12, 1, 0.8)


def imputed(given, **options):
    return oc.impute(given.x, given.mask, given.fourier, **options)


# errors


@pytest.mark.parametrize(("n", "order", "rank"), D3)
def test_errors_of_synthetic_tensors_and_the_stop_at_the_noise_floor(n, order, rank):
    given = problem(n, order, rank, 0.8)
    found = imputed(given)
    assert error_of(found.tensor, given.x) <= D3[n, order, rank]
    assert np.array_equal(found.tensor[given.mask], given.x[given.mask])
    report, history = found.report, found.history
    assert report.stopped == NOISE_FLOOR
    assert 50 <= report.steps <= 80
    assert history[-1].lam > report.floor >= 0.5 * history[-1].lam
    assert abs(history[4].mean_rank - rank) < 0.05  # the true one
    settled = [row.mean_rank for row in history[4:]]
    assert all(later < 2 * earlier for earlier, later in pairwise(settled))


@pytest.mark.usefixtures("long")
def test_below_the_noise_floor_ranks_are_those_of_roundings(monkeypatch):
    given = problem(100, 30, 3, 0.8)
    last = imputed(given, shrinkage="soft", momentum=0.0).history[-1]
    monkeypatch.setattr(module, "noise_floor", lambda *_: 0.0)
    beyond = imputed(given, n_lambdas=30, shrinkage="soft", momentum=0.0).history
    assert beyond[29].lam < 1e-3 * last.lam
    assert beyond[29].mean_rank > 27 > 1.3 * last.mean_rank
    assert noise_floor(oc.Precision.FDF, 40, 40, 1.0) == pytest.approx(8 * 2.0**-24 * 40**0.5)


@pytest.mark.usefixtures("long")
def test_errors_fall_with_the_share_that_is_observed():
    fourier = oc.GraphFourier(random_graph(160))
    bounds = {0.5: 2e-4, 0.7: 2e-6, 0.9: 5e-7}
    errors = []
    for share, bound in bounds.items():
        given = problem(160, 30, 3, share, fourier=fourier)
        errors.append(error_of(imputed(given).tensor, given.x))
        assert errors[-1] <= bound
    assert errors == sorted(errors, reverse=True)


@pytest.mark.usefixtures("long")
def test_masks_by_entry_are_no_worse_than_by_slice():
    fourier = oc.GraphFourier(random_graph(120))
    errors = {}
    for by in ("slice", "entry"):
        given = problem(120, 30, 3, 0.7, by=by, fourier=fourier)
        found = imputed(given)
        errors[by] = error_of(found.tensor, given.x)
        assert np.array_equal(found.tensor[given.mask], given.x[given.mask])
    assert errors["entry"] <= errors["slice"] <= 1e-3


@pytest.mark.usefixtures("long")
def test_routes_and_precisions_agree():
    given = problem(50, 48, 2, 0.8)
    found = {svt: imputed(given, svt=svt) for svt in ("gram64", "subspace", "svd")}
    for svt in ("subspace", "svd"):
        assert error_of(found[svt].tensor, found["gram64"].tensor) <= ROUTES_RTOL
    assert found["gram64"].report.full_route > 0.9 > found["subspace"].report.full_route
    assert imputed(given, n_lambdas=2).report.svt == "subspace"  # auto
    wide = imputed(given, precision="DDD", n_lambdas=18)
    assert wide.tensor.dtype == np.float64
    assert error_of(found["gram64"].tensor, wide.tensor) <= 1e-5
    assert imputed(given, precision="FFF").report.precision is oc.Precision.FFF


@pytest.mark.parametrize("shrinkage", ["soft", "garrote"])
def test_a_run_is_that_of_the_model(small, shrinkage):
    options = {"max_inner": 4, "tol": 0.0, "momentum": 0.2, "shrinkage": shrinkage}
    found = imputed(small, precision="DDD", svt="gram64", n_lambdas=8, **options)
    plain = PlainSpace(small.fourier.basis, (12, 12))
    plain.load(small.x, small.mask)
    first = plain.largest()
    for number in range(8):
        for _ in range(4):
            plain.step(first * 0.5**number, 0.2, shrinkage)
    # The first value leaves nothing: its steps change nothing, and tol = 0 ends them at the first.
    assert [row.steps for row in found.history] == [1] + 7 * [4]
    assert error_of(found.tensor, plain.take()) <= 1e-10


def test_momentum_needs_fewer_steps_or_errs_less(small):
    plain, faster = (imputed(small, shrinkage="soft", momentum=each) for each in (0.0, 0.5))
    assert faster.report.steps < plain.report.steps
    assert error_of(faster.tensor, small.x) < error_of(plain.tensor, small.x)


@pytest.mark.parametrize("by", ["slice", "entry"])
@pytest.mark.usefixtures("long")
def test_the_garrote_errs_less_in_fewer_steps_than_soft_thresholds(by):
    given = problem(100, 24, 3, 0.6, by=by)
    soft, garrote = (imputed(given, shrinkage=each, svt="gram64") for each in ("soft", "garrote"))
    assert garrote.report.steps < soft.report.steps
    assert error_of(garrote.tensor, given.x) < 0.1 * error_of(soft.tensor, given.x)


def test_neighbours_that_are_all_missing_are_found_where_eigenvectors_live_at_them():
    """Three fifths of an eigenvector lie at vertices 0 and 1, both missing: little is known of its slice."""
    graph = random_graph(60)
    graph[:2] = graph[:, :2] = 0
    for one, other, weight in ((0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0), (0, 3, 0.5)):
        graph[one, other] = graph[other, one] = weight
    given = problem(60, 16, 1, 0.9, fourier=oc.GraphFourier(graph))
    given.mask[:2] = False
    assert 0.6 < np.square(given.fourier.basis[:2]).sum(axis=0).max() < 0.7
    soft, garrote = (error_of(imputed(given, shrinkage=each).tensor[:2], given.x[:2]) for each in ("soft", "garrote"))
    assert garrote < 0.1 * soft


def test_warm_starts(small):
    whole = imputed(small)
    early = imputed(small, n_lambdas=9)
    assert early.report.stopped == ALL_LAMBDAS
    later = imputed(small, start=early)
    assert later.history[0].lam == early.last_lambda
    assert later.report.steps < whole.report.steps
    assert error_of(later.tensor, small.x) <= 1.5 * error_of(whole.tensor, small.x)
    again = imputed(small, start=early.tensor, first_lambda=early.last_lambda)
    assert np.array_equal(again.tensor, later.tensor)
    with pytest.raises(ValueError, match="give first_lambda too"):
        imputed(small, start=early.tensor)
    with pytest.raises(ValueError, match=r"start has shape \(59, 12, 12\)"):
        imputed(small, start=early.tensor[1:], first_lambda=1.0)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="first_lambda is"):
            imputed(small, first_lambda=wrong)


def test_a_part_of_the_eigenvectors_imputes_smooth_tensors():
    fourier = oc.GraphFourier(random_graph(150), n_components=60)
    given = problem(150, 20, 2, 0.8, fourier=fourier)
    found = imputed(given)
    assert found.report.shape.components == 60
    assert error_of(found.tensor, given.x) <= 1e-4
    rng = np.random.default_rng(4)
    rough = given.x + 0.1 * rng.standard_normal(given.x.shape).astype(np.float32)
    result = oc.impute(rough, given.mask, fourier).tensor
    assert np.array_equal(result[given.mask], rough[given.mask])  # also outside of the span
    missing = result[~given.mask]
    assert np.linalg.norm(missing - given.x[~given.mask]) <= 0.3 * np.linalg.norm(given.x[~given.mask])


# special cases


def test_slices_without_a_path_to_what_is_observed_are_named_and_zero():
    graph = scipy.linalg.block_diag(random_graph(40, seed=2), random_graph(12, 8, seed=3), [[0.0]])
    given = problem(53, 8, 1, 0.8, fourier=oc.GraphFourier(graph))
    given.mask[40:] = False
    with pytest.warns(oc.errors.ImputationWarning, match="slices 40, 41, 42, 43, 44, 45 and 7 more: no path"):
        found = imputed(given)
    assert not found.tensor[40:].any() and found.report.unreached == 13
    assert error_of(found.tensor[:40], given.x[:40]) <= 1e-2
    assert "13 slices have no path" in str(found.report)


def test_a_tensor_without_gaps_is_returned_as_it_is(small):
    with pytest.warns(oc.errors.ImputationWarning, match="nothing is missing"):
        found = oc.impute(small.x, np.ones(60, bool), small.fourier)
    assert found.tensor is small.x and found.report.stopped == NOTHING_MISSING and not found.history
    assert found.last_lambda is None


def test_a_tensor_of_zeros_stays_one(small):
    found = oc.impute(np.zeros_like(small.x), small.mask, small.fourier)
    assert not found.tensor.any() and found.report.stopped == ALL_ZERO


def test_nothing_is_changed_in_place_and_missing_entries_may_be_nan(small):
    x = small.x.copy()
    x[~small.mask] = np.nan
    given, mask = x.copy(), small.mask.copy()
    found = oc.impute(x, mask, small.fourier)
    assert np.array_equal(x, given, equal_nan=True) and np.array_equal(mask, small.mask)
    assert np.array_equal(found.tensor, imputed(small).tensor)


def test_files_instead_of_memory(small, tmp_path):
    expected = imputed(small).tensor
    np.save(tmp_path / "x.npy", small.x)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = oc.impute(x, small.mask, small.fourier, work_folder=tmp_path)
    assert isinstance(found.tensor, np.memmap) and np.array_equal(found.tensor, expected)
    assert [each.name for each in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("svt", ["gram64", "subspace"])
def test_devices_budgets_and_files_change_no_bit(svt, tmp_path):
    given = problem(24, 70, 3, 0.8, by="entry")
    options = {"svt": svt, "n_lambdas": 5, "max_inner": 4, "momentum": 0.2}
    expected = imputed(given, devices="host:0", **options)
    assert expected.report.plan.is_whole and expected.report.plan.is_in_core and not expected.report.bytes.executed
    with pytest.raises(oc.BudgetError) as told:
        imputed(given, devices="host:0", memory_budget=1, **options)
    least = told.value.needed_bytes
    cases = [
        {"devices": "host:0", "memory_budget": least},
        {"devices": ["host:0", "host:1"]},
        {"devices": ["host:0", "host:1"], "memory_budget": least, "work_folder": tmp_path},
        {"devices": "host:0", "trace": True},
    ]
    for case in cases:
        found = imputed(given, **options, **case)
        assert np.array_equal(found.tensor, expected.tensor), case
        for mine, theirs in zip(found.history, expected.history, strict=True):
            assert (mine.lam, mine.steps, mine.mean_rank, mine.change) == (
                theirs.lam,
                theirs.steps,
                theirs.mean_rank,
                theirs.change,
            )
        report = found.report
        assert report.bytes.executed == report.bytes.planned and bool(report.bytes.executed) != report.plan.is_whole
        assert report.plan.is_in_core == ("memory_budget" not in case) and report.plan.is_whole == ("trace" in case)
        assert (found.trace is not None) == ("trace" in case)
        assert ("planned" in str(report)) != report.plan.is_whole and json.dumps(report.to_dict())
    assert not list(tmp_path.iterdir())


def test_a_device_that_does_not_pay_takes_no_part_and_a_plan_of_that_is_taken(small, monkeypatch):
    options = {"devices": ["host:0", "host:1"], "memory_budget": "64 MiB", "n_lambdas": 3}
    expected = imputed(small, **options)
    assert expected.report.devices == ("host:0", "host:1")
    monkeypatch.setattr(planning, "predicted_steps", lambda problem, devices: (1.0, 2.0))
    found = imputed(small, **options)
    assert found.report.devices == ("host:0",) and np.array_equal(found.tensor, expected.tensor)
    again = imputed(small, plan=found.report.plan, **options)
    assert again.report.plan is found.report.plan and np.array_equal(again.tensor, expected.tensor)
    with pytest.raises(ValueError, match="its devices is"):
        imputed(small, plan=found.report.plan, **{**options, "devices": ["host:0"]})


@pytest.mark.parametrize("svt", ["gram64", "subspace"])
def test_whole_arrays_have_a_plan_and_a_trace_of_what_is_done_anyway(svt):
    given = problem(24, 70, 3, 0.8, by="entry")
    options = {"svt": svt, "n_lambdas": 3, "max_inner": 2, "devices": "host:0"}
    plan = oc.plan_impute(given.x, given.mask, given.fourier, **options)
    plain, watched = imputed(given, **options), imputed(given, trace=True, **options)
    for found in (plain, watched):
        assert found.report.plan.shares == plan.shares and plan.is_whole and not plan.bytes and not plan.host_bytes
        assert "in whole arrays" in str(plan)
    assert plain.tensor.tobytes() == watched.tensor.tobytes()
    labels = [record.label for record in watched.trace.records]
    panels = [f"panel {number}" for number in range(len(plan.problem.panels))]
    assert labels[:3] == ["transform 0", "transform 1", "norms"]
    assert labels[3:] == ["threshold", *panels] * watched.report.steps
    assert all(record.end_ns >= record.start_ns > 0 and not record.nbytes for record in watched.trace.records)
    busy = sum(record.end_ns - record.start_ns for record in watched.trace.records) / 1e9
    assert busy <= watched.report.seconds.total


@pytest.mark.parametrize("precision", ["FFF", "DDD"])
def test_memory_of_whole_arrays_is_that_of_their_plan(precision):
    given = problem(40, 64, 3, 0.8)
    options = {"precision": precision, "svt": "subspace", "devices": "host:0"}
    plan = oc.plan_impute(given.x, given.mask, given.fourier, **options)
    held = []

    def at(row, estimate):
        held.append(tracemalloc.get_traced_memory()[0])
        return True

    imputed(given, callback=at, **options)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        imputed(given, callback=at, **options)
    finally:
        tracemalloc.stop()
    copies = given.x.size * 8 if precision == "DDD" else 0  # of X, in the type of storage
    assert held[1] - before - copies == pytest.approx(plan.peak_bytes, rel=0.1)


def test_work_folder_leaves_main_memory_what_is_small(tmp_path):
    shape = (400, 64, 64)
    in_memory = oc.plan_impute(shape, None, None, devices="host:0")
    in_files = oc.plan_impute(shape, None, None, devices="host:0", work_folder=tmp_path)
    assert in_files.is_whole and in_files.tier == "file" and not in_files.host_bytes
    assert in_files.passing_bytes == 2 * 400 * 64 * 64 * 4 == in_memory.peak_bytes - in_files.peak_bytes
    assert "in files" in str(in_files)


def test_a_plan_is_taken_and_one_of_other_options_refused(small, tmp_path):
    options = {"n_lambdas": 2, "devices": "host:0"}
    plan = oc.plan_impute(small.x, small.mask, small.fourier, memory_budget="1 GiB", **options)
    assert imputed(small, plan=plan, **options).report.plan is plan
    others = {
        "precision": {"precision": "DDD"},
        "svt": {"svt": "svd"},
        "devices": {"devices": "host:1"},
        "memory_budget": {"memory_budget": "2 GiB"},
        "work_folder": {"work_folder": tmp_path},
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"plan is of another imputation: its {name}"):
            imputed(small, plan=plan, **{**options, **other})
    by_entry = np.broadcast_to(small.mask[:, None, None], small.x.shape)
    with pytest.raises(ValueError, match="plan is of another imputation: its mask"):
        oc.impute(small.x, by_entry, small.fourier, plan=plan, **options)


def test_a_plan_needs_a_shape_alone_or_what_a_call_is_given(small):
    whole = oc.plan_impute(small.x, small.mask, small.fourier, devices="host:0")
    assert oc.plan_impute((60, 12, 12), None, None, devices="host:0").problem == whole.problem
    assert oc.plan_impute(small.x, None, random_graph(60), devices="host:0").problem == whole.problem
    assert oc.plan_impute((60, 12, 12), "entries", 9, devices="host:0").problem.shape == (60, 9, 12, 12)
    with pytest.raises(ValueError, match="the graph has 59 vertices, but X has 60 slices"):
        oc.plan_impute((60, 12, 12), None, random_graph(59), devices="host:0")
    with pytest.raises(ValueError, match="a mask is of 'slices' or 'entries'"):
        oc.plan_impute((60, 12, 12), "rows", None, devices="host:0")


# what nothing observed tells of


def by_entry(given, hidden):
    """A mask by entry without ``hidden(slices, rows, columns)``, of seven entries in ten."""
    mask = oc.testing.random_mask(given.x.shape, 0.7, by="entry")
    mask[hidden(*np.indices(given.x.shape))] = False
    return mask


#: What of a tensor on two components, of vertices 0 to 23 and 24 to 39, is hidden, and what is said of it.
HIDDEN = {
    "a column": (lambda v, i, j: j == 3, ["column 3 of every slice: no chain"]),
    "rows and columns": (lambda v, i, j: (i == 0) | (i == 5) | (j == 7), ["rows 0, 5 of", "column 7 of"]),
    "a row in one component": (lambda v, i, j: (v >= 24) & (i == 2), ["row 2 of slices 24, 25, 26, 27, 28, 29 and 10 more"]),
    "what two blocks of entries leave": (
        lambda v, i, j: (i < 4) != (j < 5),
        ["rows 4, 5, 6, 7 outside of columns 5, 6, 7, and columns 5, 6, 7 outside of rows 4, 5, 6, 7, of every slice"],
    ),
    "a component": (lambda v, i, j: v >= 24, ["slices 24, 25, 26, 27, 28, 29 and 10 more: no path in the graph"]),
    "a component and a row": (lambda v, i, j: (v >= 24) | (i == 1), ["no path in the graph", "row 1 of slices 0, 1, 2"]),
}


@pytest.fixture(scope="module")
def apart():
    graph = scipy.linalg.block_diag(random_graph(24, 12, seed=2), random_graph(16, 10, seed=3))
    return problem(40, 8, 1, 0.7, fourier=oc.GraphFourier(graph))


@pytest.mark.parametrize("name", HIDDEN)
def test_what_nothing_observed_tells_of_is_named_and_zero(apart, name):
    hidden, words = HIDDEN[name]
    where = hidden(*np.indices(apart.x.shape))
    with pytest.warns(oc.errors.ImputationWarning) as told:
        found = oc.impute(apart.x, by_entry(apart, hidden), apart.fourier, n_lambdas=8)
    text = "\n".join(str(each.message) for each in told)
    assert all(each in text for each in words), text
    assert np.abs(found.tensor[where]).max() <= 1e-6 and np.abs(found.tensor[~where]).max() > 1
    assert "so that the estimate is zero" in text


def test_what_something_tells_of_is_not_named(apart):
    """Each row and column of a component in one slice at least, and all joined: no warning, which would be an error."""
    mask = by_entry(apart, lambda v, i, j: (i == 2) & (v != 3) & (v != 30))
    assert oc.impute(apart.x, mask, apart.fourier, n_lambdas=3).report.unreached == 0


def test_slices_that_no_eigenvector_reaches_are_named():
    graph = scipy.linalg.block_diag(random_graph(20, 12, seed=2), random_graph(10, 8, seed=3), random_graph(10, 8, seed=4))
    fourier = oc.GraphFourier(graph, n_components=2)
    lost = np.flatnonzero(~fourier.basis.any(axis=1))
    mask = np.ones(40, bool)
    mask[[1, lost[4]]] = False
    with pytest.warns(oc.errors.ImputationWarning, match=rf"slice {lost[4]}: none of the 2 eigenvectors reaches them"):
        found = oc.impute(np.ones((40, 3, 3)), mask, fourier, center=False)
    assert not found.tensor[lost[4]].any() and found.tensor[1].all()


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("alone", [[3], [3, 9]])
def test_slices_that_are_joined_too_weakly_are_named(normalized, alone):
    graph = random_graph(20)
    graph[alone] *= 1e-40
    graph[:, alone] = graph[alone].T
    mask = np.isin(np.arange(20), alone, invert=True)
    mask[1] = False
    with pytest.warns(oc.errors.ImputationWarning, match=rf"slices? {', '.join(map(str, alone))}: edges are too weak") as told:
        found = oc.impute(np.ones((20, 3, 3)), mask, oc.GraphFourier(graph, normalized=normalized), center=False)
    assert len(told) == 1 and np.abs(found.tensor[alone]).max() <= 1e-9 and found.tensor[1].all()


# gaps


def test_nan_is_a_gap_where_no_mask_is_given(small):
    for mask in (small.mask, oc.testing.random_mask(small.x.shape, 0.6, by="entry")):
        x = np.where(mask if mask.ndim == 3 else mask[:, None, None], small.x, np.nan)
        assert np.array_equal(tb.observed_mask(x), mask)
        expected = oc.impute(small.x, mask, small.fourier, n_lambdas=4).tensor
        assert np.array_equal(oc.impute(x, None, small.fourier, n_lambdas=4).tensor, expected)
    with pytest.warns(oc.errors.ImputationWarning, match="nothing is missing"):
        oc.impute(small.x, None, small.fourier)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.int64])
def test_whole_numbers_are_those_of_float64(small, dtype):
    counts = np.abs(20 * small.x).astype(dtype)
    found = oc.impute(counts, small.mask, small.fourier, n_lambdas=3)
    same = oc.impute(counts.astype(np.float64), small.mask, small.fourier, n_lambdas=3)
    assert found.tensor.dtype == np.float64 and np.array_equal(found.tensor, same.tensor)
    masked = np.ma.masked_array(counts, np.broadcast_to(~small.mask[:, None, None], counts.shape))
    assert np.array_equal(oc.impute(masked, None, small.fourier, n_lambdas=3).tensor, same.tensor)
    assert oc.plan_impute(counts, small.mask, 60).problem.precision is oc.Precision.DDD


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4"])
def test_numbers_in_the_other_byte_order_are_the_same(small, dtype):
    given = np.rint(9 * small.x)
    found = oc.impute(given.astype(dtype), small.mask, small.fourier, n_lambdas=2).tensor
    assert np.array_equal(found, oc.impute(given.astype(dtype[1:]), small.mask, small.fourier, n_lambdas=2).tensor)
    assert oc.plan_impute(given.astype(dtype), small.mask, small.fourier).problem.shape.rows == 12


def test_whole_numbers_that_are_missing_may_be_any(small):
    counts = np.where(small.mask[:, None, None], np.rint(20 * small.x).astype(int), -(2**63))
    assert np.isfinite(oc.impute(counts, small.mask, small.fourier, n_lambdas=2).tensor).all()


def test_a_mask_the_other_way_round_is_noticed_where_gaps_are_zero(small):
    x = np.where(small.mask[:, None, None], small.x, 0)
    with pytest.warns(oc.errors.ImputationWarning, match="all that is observed is zero.*mask is True where X is observed"):
        assert not oc.impute(x, ~small.mask, small.fourier).tensor.any()


# small and large entries


@pytest.mark.parametrize("svt", ["gram64", "subspace", "svd"])
@pytest.mark.parametrize("power", [-1000, -531, -120, 252, 253, 400, 1000])
def test_a_power_of_two_changes_no_digit(svt, power, tmp_path):
    given = problem(30, 10, 1, 0.8, dtype=np.float64)
    x = np.where(given.mask[:, None, None], given.x, 7.0)
    rows, late = [], []
    expected = oc.impute(x, given.mask, given.fourier, svt=svt, n_lambdas=7)
    scaled = np.ldexp(x, power)
    before = scaled.copy()
    options = {"svt": svt, "checkpoint": tmp_path / "c"}
    oc.impute(
        scaled, given.mask, given.fourier, n_lambdas=7, callback=lambda *each: len(rows) == 3 or rows.append(each), **options
    )
    found = oc.impute(scaled, given.mask, given.fourier, n_lambdas=7, callback=lambda row, e: late.append((row, e())), **options)
    assert found.report.resumed == 4 and np.array_equal(scaled, before)
    assert np.array_equal(found.tensor, np.ldexp(expected.tensor, power)) and np.array_equal(late[-1][1], found.tensor)
    for mine, other in zip(found.history, expected.history, strict=True):
        assert (mine.lam, mine.steps, mine.change) == (math.ldexp(other.lam, power), other.steps, other.change)
    report, wanted = found.report, expected.report
    assert (report.largest, report.floor) == (math.ldexp(wanted.largest, power), math.ldexp(wanted.floor, power))
    assert late[0][0] == found.history[4]
    later, starts = (oc.impute(*each, given.mask, given.fourier, svt=svt, n_lambdas=2) for each in ((scaled,), (x,)))
    again = oc.impute(scaled, given.mask, given.fourier, svt=svt, n_lambdas=2, start=later)
    plain = oc.impute(x, given.mask, given.fourier, svt=svt, n_lambdas=2, start=starts)
    assert np.array_equal(again.tensor, np.ldexp(plain.tensor, power))


@pytest.mark.parametrize(("power", "precision"), [(-105, "FDF"), (-101, "FFF"), (100, "FDF"), (101, "FFF"), (115, "FDF")])
def test_small_and_large_entries_of_float32(power, precision):
    given = problem(30, 10, 1, 0.8)
    expected = oc.impute(given.x, given.mask, given.fourier, precision=precision)
    found = oc.impute(np.ldexp(given.x, power), given.mask, given.fourier, precision=precision)
    wanted = np.ldexp(expected.tensor, power)
    assert np.array_equal(found.tensor, wanted) and found.report.steps == expected.report.steps


def test_on_devices_and_by_entry_a_power_changes_no_digit():
    given = problem(30, 10, 1, 0.7, by="entry", dtype=np.float64)
    x = np.where(given.mask, given.x, np.nan)
    options = {"devices": ["host:0", "host:1"], "n_lambdas": 5}
    expected = oc.impute(x, given.mask, given.fourier, **options).tensor
    for power in (-600, 600):
        found = oc.impute(np.ldexp(x, power), given.mask, given.fourier, **options).tensor
        assert np.array_equal(found, np.ldexp(expected, power))


def test_what_was_observed_stays_beside_entries_of_any_size():
    given = problem(30, 10, 1, 0.8, dtype=np.float64)
    x = np.ldexp(given.x, 900)
    x[:, 0] = np.ldexp(given.x[:, 0], -900)  # zero once it is divided
    found = oc.impute(x, given.mask, given.fourier, n_lambdas=3).tensor
    assert np.array_equal(found[given.mask], x[given.mask]) and np.isfinite(found).all()
    x = given.x.copy()
    x[~given.mask] = 1e300  # which does not count
    assert np.array_equal(oc.impute(x, given.mask, given.fourier).tensor, imputed(given).tensor)


# what accompanies a run


@pytest.mark.parametrize(("answer", "values"), [(True, 1), (np.True_, 1), (np.False_, 3), (1, 3)])
def test_the_callback_ends_a_run_by_true_alone(small, answer, values):
    assert len(imputed(small, n_lambdas=3, callback=lambda *_: answer).report.history) == values


def test_history_report_callback_and_progress(small):
    rows, told = [], []

    def callback(row, estimate):
        rows.append((row, estimate()))
        return len(rows) == 6

    found = imputed(small, callback=callback, progress=lambda *figures: told.append(figures))
    assert found.report.stopped == CALLBACK
    assert [row for row, _ in rows] == list(found.history)
    assert [row.lam for row in found.history] == [found.report.largest * 0.5**each for each in range(6)]
    assert np.array_equal(rows[-1][1], found.tensor) and not np.array_equal(rows[-2][1], found.tensor)
    assert [done for done, _, _ in told] == list(range(1, found.report.steps + 1))
    assert {total for _, total, _ in told} == {200}
    data = json.loads(json.dumps(found.report.to_dict()))
    assert data["steps"] == found.report.steps and len(data["history"]) == 6
    spent = found.report.seconds
    assert 0 < spent.parts["transform"] + spent.parts["threshold"] <= spent.parts["run"] <= spent.total
    assert "60 slices of 12 x 12" in str(found.report) and len(repr(found)) < 200 and len(repr(found.report)) < 200
    assert np.array_equal(np.asarray(found), found.tensor)


def test_an_interrupt_ends_the_run_after_its_step_with_the_state_so_far(small, tmp_path):
    before, calls = signal.getsignal(signal.SIGINT), []

    def show(done, _, __):
        calls.append(done)
        if done == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(oc.errors.ImputationInterrupted) as told:
        imputed(small, progress=show, checkpoint=tmp_path / "c.oocimp")
    assert calls[-1] == 20 and signal.getsignal(signal.SIGINT) is before
    assert isinstance(told.value, KeyboardInterrupt)
    assert "the same call goes on from it" in told.value.__notes__[0]
    state = told.value.imputed
    assert state.report.stopped == INTERRUPTED and sum(row.steps for row in state.history) <= 20
    assert np.array_equal(state.tensor[small.mask], small.x[small.mask])
    assert error_of(state.tensor, small.x) < error_of(np.where(small.mask[:, None, None], small.x, 0), small.x)
    assert np.array_equal(imputed(small, checkpoint=tmp_path / "c.oocimp").tensor, imputed(small).tensor)


def test_a_second_interrupt_does_not_wait(small, monkeypatch):
    steps = []

    def step(space, lam, momentum=0.0, shrinkage="soft", number=0):
        steps.append(lam)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second interrupt was lost")

    monkeypatch.setattr(module.HostTensorSpace, "step", step)
    with pytest.raises(KeyboardInterrupt) as told:
        imputed(small)
    assert len(steps) == 1 and not isinstance(told.value, oc.errors.ImputationInterrupted)


# bad input


def with_entry(x, place, value):
    changed = x.copy()
    changed[place] = value
    return changed


BAD_CALLS = {
    "order": (lambda g: {"graph": random_graph(59)}, ValueError, "the graph has 59 vertices, but X has 60 slices"),
    "nan": (
        lambda g: {"X": with_entry(g.x, (int(np.flatnonzero(g.mask)[3]), 2, 5), np.nan)},
        ValueError,
        r"X\[\d+, 2, 5\] is nan",
    ),
    "infinite": (lambda g: {"X": with_entry(g.x, (int(np.flatnonzero(g.mask)[3]), 0, 0), -np.inf)}, ValueError, "is -inf"),
    "too large": (
        lambda g: {"X": with_entry(g.x.astype(float), (int(np.flatnonzero(g.mask)[0]), 0, 0), 1e39), "precision": "FDF"},
        oc.errors.NonFiniteTensorError,
        r"1e\+39, more than FDF stores",
    ),
    "infinite without a mask": (
        lambda g: {"X": with_entry(g.x, (7, 0, 0), np.inf), "mask": None},
        ValueError,
        r"X\[7, 0, 0\] is inf",
    ),
    "norm": (lambda g: {"X": g.x.astype(float) * 1e307}, ValueError, "norm of all of it"),
    "too small": (lambda g: {"X": g.x.astype(float) * 1e-60, "precision": "FDF"}, ValueError, "take precision='DDD'"),
    "first beyond": (lambda g: {"X": g.x.astype(float) * 1e-300, "first_lambda": 1e300}, ValueError, "first_lambda is 1e\\+300"),
    "nothing observed": (lambda g: {"mask": np.zeros(60, bool)}, ValueError, "nothing is observed: mask is False"),
    "nothing but NaN": (lambda g: {"X": g.x * np.nan, "mask": None}, ValueError, "nothing is observed: X is NaN"),
    "mask shape": (lambda g: {"mask": np.ones((60, 12), bool)}, ValueError, r"mask has shape \(60, 12\), but X has"),
    "mask type": (lambda g: {"mask": g.mask.astype(int)}, TypeError, "mask holds int64; give bool"),
    "integers without a mask": (lambda g: {"X": g.x.astype(int), "mask": None}, TypeError, "nothing marks what is missing"),
    "beyond 2^53": (
        lambda g: {"X": np.where(g.mask[:, None, None], 2**53 + 1, -(2**63)) * np.ones(g.x.shape, int)},
        ValueError,
        "is 9007199254740993, a whole number beyond",
    ),
    "halves": (lambda g: {"X": g.x.astype(np.float16)}, TypeError, "X holds float16; give float32"),
    "complex": (lambda g: {"X": g.x.astype(complex)}, TypeError, "X holds complex128"),
    "masked array": (lambda g: {"X": np.ma.masked_array(g.x, True)}, ValueError, "is nan; mend it, or set mask to False there"),
    "axes": (lambda g: {"X": g.x[0]}, ValueError, r"X has shape \(12, 12\); give \(N, m, n\)"),
    "empty": (lambda g: {"X": g.x[:, :0]}, ValueError, r"X has shape \(60, 0, 12\)"),
    "decay 1": (lambda g: {"decay": 1.0}, ValueError, "decay is 1, but lambda falls"),
    "decay 0": (lambda g: {"decay": 0.0}, ValueError, "decay is 0"),
    "decay nan": (lambda g: {"decay": np.nan}, ValueError, "decay is nan"),
    "decay text": (lambda g: {"decay": "0.5"}, TypeError, "decay is a str"),
    "lambdas": (lambda g: {"n_lambdas": 0}, ValueError, "n_lambdas is 0"),
    "inner": (lambda g: {"max_inner": 2.5}, TypeError, "max_inner is a float"),
    "tol": (lambda g: {"tol": -1e-8}, ValueError, "tol is -1e-08"),
    "momentum": (lambda g: {"momentum": 1.0}, ValueError, "momentum is 1"),
    "shrinkage": (lambda g: {"shrinkage": "hard"}, ValueError, "shrinkage='hard': singular values are lowered by 'soft' or"),
    "center": (lambda g: {"center": "mean"}, ValueError, "center='mean': give 'auto', True or False"),
    "center number": (lambda g: {"center": 1}, ValueError, "center=1: give 'auto'"),
    "svt": (lambda g: {"svt": "qr"}, ValueError, "svt='qr'"),
    "precision": (lambda g: {"precision": "DFD"}, ValueError, "precision is 'DFD'"),
    "device": (lambda g: {"devices": "host:99999"}, ValueError, "host:99999"),
    "budget": (lambda g: {"memory_budget": "1 KiB"}, oc.BudgetError, "1024 bytes are too few, at least"),
    "budget text": (lambda g: {"memory_budget": "much"}, ValueError, "much"),
    "progress": (lambda g: {"progress": 3}, TypeError, "progress is a int"),
    "checkpoint": (lambda g: {"checkpoint": "/nowhere/at/all.oocimp"}, oc.errors.MissingFolderError, "nowhere"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_told_what_to_do(small, name):
    changes, error, words = BAD_CALLS[name]
    call = {"X": small.x, "mask": small.mask, "graph": small.fourier} | changes(small)
    with pytest.raises(error, match=words):
        oc.impute(call.pop("X"), call.pop("mask"), call.pop("graph"), **call)


def test_generators_say_what_they_lack():
    graph = random_graph(12)
    with pytest.raises(ValueError, match="slices of 5 x 4 have no rank 5"):
        oc.testing.low_rank_tensor(graph, 5, 4, 5)
    with pytest.raises(TypeError, match="int64"):
        oc.testing.low_rank_tensor(graph, 5, 4, 2, dtype=int)
    with pytest.raises(ValueError, match="noise is -1"):
        oc.testing.low_rank_tensor(graph, 5, 4, 2, noise=-1.0)
    with pytest.raises(ValueError, match=r"observed is 1.5"):
        oc.testing.random_mask((3, 4, 5), 1.5)
    with pytest.raises(ValueError, match="by is 'row'"):
        oc.testing.random_mask((3, 4, 5), 0.5, by="row")
    one, other = (oc.testing.low_rank_tensor(graph, 50, 40, 2, noise=noise, seed=3) for noise in (0.0, 0.1))
    assert np.isclose(np.std(other - one), 0.1, rtol=0.05) and np.isclose(one.var(), 1.0, rtol=0.2)


# a mean


def test_a_constant_is_found_where_it_is_an_eigenvector_or_taken_off():
    constant = np.full((60, 6, 5), 5.0)
    unnormalized = oc.GraphFourier(random_graph(60), normalized=False)
    for by in ("slice", "entry"):
        mask = oc.testing.random_mask(constant.shape, 0.5, by=by)
        assert error_of(oc.impute(constant, mask, unnormalized, center=False).tensor, constant) <= 1e-4
        if by == "slice":
            assert error_of(oc.impute(constant, mask, random_graph(60), center=False).tensor, constant) > 0.05
        for dtype, number in ((np.float32, 5.1), (np.float64, -0.1), (np.float64, 2.0**-600)):
            x = (constant / 5 * number).astype(dtype)
            found = oc.impute(x, mask, random_graph(60))
            assert np.array_equal(found.tensor, x)
            assert found.report.center == x[0, 0, 0] and found.report.stopped == ALL_THE_SAME
            assert f"{number:.6g}, the mean of what was observed" in str(found.report)


@pytest.mark.parametrize("by", ["slice", "entry"])
def test_a_mean_is_taken_off_where_it_is_more_than_chance(by):
    given = problem(100, 16, 2, 0.8, by=by, dtype=np.float64)
    plain = imputed(given)
    assert plain.report.center == 0 and "center" not in plain.report.key["tensor"]
    assert np.array_equal(plain.tensor, imputed(given, center=False).tensor)
    for constant in (-1.0, 300.0):
        x = given.x + constant
        found = oc.impute(x, given.mask, given.fourier)
        assert abs(found.report.center - constant) < 0.1 and found.report.to_dict()["center"] == found.report.center
        assert error_of(found.tensor - constant, given.x) <= 5e-3
        if by == "slice":
            assert error_of(oc.impute(x, given.mask, given.fourier, center=False).tensor - constant, given.x) > 0.05
        assert np.array_equal(found.tensor[given.mask], x[given.mask])
    taken = imputed(given, center=True)
    where = given.mask if by == "entry" else given.mask[:, None, None]
    assert taken.report.center == pytest.approx(given.x.mean(where=np.broadcast_to(where, given.x.shape)))
    assert error_of(taken.tensor, given.x) <= 5e-3


def test_devices_files_and_checkpoints_take_the_same_mean_off(tmp_path):
    given = problem(60, 12, 1, 0.7, by="entry")
    x = np.where(given.mask, given.x + 7, np.nan)
    whole = oc.impute(x, None, given.fourier, n_lambdas=6, svt="gram64")
    ways = {"devices": ["host:0", "host:1"]}, {"memory_budget": "400 KiB"}, {"work_folder": tmp_path}
    for way in ways:
        assert np.array_equal(oc.impute(x, None, given.fourier, n_lambdas=6, svt="gram64", **way).tensor, whole.tensor)
    options = {"n_lambdas": 6, "svt": "gram64", "checkpoint": tmp_path / "run.oocimp"}
    seen = []
    oc.impute(x, None, given.fourier, callback=lambda row, tensor: len(seen) == 2 or seen.append(tensor()), **options)
    assert np.array_equal(seen[-1][given.mask], x[given.mask]) and abs(np.mean(seen[-1]) - 7) < 0.2
    with pytest.raises(oc.errors.CheckpointError):
        oc.impute(x, None, given.fourier, center=False, **options)
    found = oc.impute(x, None, given.fourier, **options)
    assert found.report.resumed == 3 and np.array_equal(found.tensor, whole.tensor)


def test_a_start_and_what_nothing_tells_of_are_beside_the_mean(apart):
    x = apart.x + np.float32(50)
    early = oc.impute(x, apart.mask, apart.fourier, n_lambdas=9)
    later, whole = (oc.impute(x, apart.mask, apart.fourier, **how) for how in ({"start": early}, {}))
    assert later.report.steps < whole.report.steps
    assert error_of(later.tensor - 50, apart.x) <= 1.5 * error_of(whole.tensor - 50, apart.x)
    mask = apart.mask.copy()
    mask[24:] = False
    with pytest.warns(oc.errors.ImputationWarning, match="no path.*so that the estimate is the mean of what is observed"):
        found = oc.impute(x, mask, apart.fourier, n_lambdas=3)
    assert found.report.center > 49 and np.all(found.tensor[24:] == found.report.center)
    assert f"no path to what was observed: {found.report.center:.6g}" in str(found.report)
