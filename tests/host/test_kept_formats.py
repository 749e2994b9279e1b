"""A factorization in mixed precision that is given the plan of a matrix like it: formats and plan stay while they hold."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc

THRESHOLD, TILE = 1e-4, 32
SITES = np.sort(np.random.default_rng(0).uniform(size=(300, 1)), axis=0)
HOW = {"tile_size": TILE, "precision_threshold": THRESHOLD, "devices": "host:0", "memory_budget": "1 MB"}


def matrix(length):
    return np.exp(-np.abs(SITES - SITES.T) / length) + 0.1 * np.eye(len(SITES))


def widths(plan):
    return np.array([fmt.itemsize for fmt in plan.precision.formats])


def test_formats_are_at_least_as_wide_as_the_matrix_needs_and_certified():
    with oc.cholesky(matrix(0.02), **HOW) as first:
        plan = first.report.plan
    with oc.cholesky(matrix(0.1), **HOW) as alone, oc.cholesky(matrix(0.1), plan=plan, **HOW) as second:
        assert np.all(widths(second.report.plan) >= widths(alone.report.plan))
        assert np.all(widths(second.report.plan) >= widths(plan))
        assert second.report.certified_bound.holds(THRESHOLD)
        assert second.logdet() == pytest.approx(np.linalg.slogdet(matrix(0.1))[1], abs=THRESHOLD * len(SITES))


def test_a_plan_that_holds_is_taken_again():
    with oc.cholesky(matrix(0.1), **HOW) as first, oc.cholesky(matrix(0.0999), plan=first.report.plan, **HOW) as second:
        assert second.report.plan.programs is first.report.plan.programs
        assert second.report.plan.precision.formats == first.report.plan.precision.formats


def test_formats_that_were_widened_have_room_for_the_next_matrix():
    plans, lengths = [], (0.02, 0.03, 0.0305, 0.031)
    for length in lengths:
        with oc.cholesky(matrix(length), **HOW, plan=plans[-1] if plans else None) as factor:
            plans.append(factor.report.plan)
    assert not np.array_equal(widths(plans[0]), widths(plans[1]))
    assert plans[3].programs is plans[2].programs is plans[1].programs


def test_a_plan_of_other_arithmetic_is_refused():
    with oc.cholesky(matrix(0.1), **HOW) as mixed:
        with pytest.raises(ValueError, match="leave plan out"):
            oc.cholesky(matrix(0.1), plan=mixed.report.plan, **{**HOW, "precision_threshold": 1e-6})
        with pytest.raises(ValueError, match="to both, or to neither"):
            oc.cholesky(matrix(0.1), plan=mixed.report.plan)
        with pytest.raises(ValueError, match="order 300, but the matrix has order 200"):
            oc.cholesky(matrix(0.1)[:200, :200], plan=mixed.report.plan, **HOW)
    with pytest.raises(ValueError, match="to both, or to neither"):
        oc.cholesky(matrix(0.1), plan=oc.plan(300, tile_size=TILE, devices="host:0"), **HOW)


#: Options of planning in mixed precision, and another value of each.
PLANNED = {
    "tile_size": (48, 64),
    "memory_budget": ("500 kB", "1 MB"),
    "devices": ("host:0,host:1", "host:0"),
    "objective": ("bytes", None),
    "policy": ("v2", "v1"),
    "moduli": (11, 10),
}


def planned(plan):
    return [plan.grid.nb, plan.memory_budget, plan.devices, plan.objective, plan.policy.name, plan.moduli]


@pytest.mark.parametrize("name", PLANNED)
def test_what_a_call_leaves_out_is_as_in_its_plan(name):
    value, other = PLANNED[name]
    how = {"tile_size": TILE, "fp64": "residue"} if name == "moduli" else {}
    a, how = matrix(0.1), {**how, name: value}
    plan = oc.plan(a, THRESHOLD, **how)
    for options in ({}, how):
        with oc.cholesky(a, THRESHOLD, plan=plan, **options) as factor:
            assert planned(factor.plan) == planned(plan)
    if other is not None:
        with pytest.raises(ValueError, match=f"the plan is for {name}=.* leave {name} out"):
            oc.cholesky(a, THRESHOLD, plan=plan, **{name: other})


def test_a_plan_of_another_kind_of_source_is_refused():
    source = oc.from_function(300, lambda *_: None)
    with pytest.raises(ValueError, match=r"from a source of kind 'array'.* of kind 'function'"):
        oc.cholesky(source, THRESHOLD, plan=oc.plan(matrix(0.1), THRESHOLD))


@pytest.mark.parametrize("n", [2, 200])
@pytest.mark.parametrize("threshold", [THRESHOLD, 1e-13])
def test_the_plan_of_a_factor_gives_it_again(n, threshold):
    a = matrix(0.1)[:n, :n]
    with oc.cholesky(a, threshold) as first, oc.cholesky(a, threshold, plan=first.plan) as again:
        assert planned(again.plan) == planned(first.plan)
        assert np.array_equal(np.asarray(again), np.asarray(first))
