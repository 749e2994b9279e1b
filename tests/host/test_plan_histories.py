"""A plan whatever became of it: escalated, resumed or pickled, it serves the same call again, and a matrix like the first."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.checkpoint_runs import ENGINES, StopError, bits, stop_at
from tests.host.escalation_cases import CASES, FP64, IN_A_PANEL, ROW, TWO_ROWS, factor_of
from tests.host.mixed_precision import check_certified
from tests.inside.precision import Remedy

pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

#: Room for products through residues, as the cases need them.
RESIDUE = {"fp64": "residue", "memory_budget": "64 MiB"}
#: Room for those of a threshold, but not for as many moduli as FP64 takes.
FEW_MODULI = {"fp64": "residue", "memory_budget": "300 kB"}


def again(plan: oc.Plan, case, **options) -> oc.CholeskyFactor:
    """The call of ``case`` once more, with a plan that it gave."""
    factor = case.factor(plan=plan, **options)
    assert not factor.report.escalations
    check_certified(factor, case.matrix())
    assert factor.report.certified_bound.holds(case.threshold)
    return factor


@pytest.mark.parametrize("name", CASES)
def test_an_escalated_plan_gives_the_factor_that_it_gave(name):
    first = factor_of(CASES[name])
    assert first.report.escalations
    second = again(first.report.plan, CASES[name])
    third = again(pickle.loads(pickle.dumps(second.report.plan)), CASES[name])
    assert bytes(np.asarray(first)) == bytes(np.asarray(second)) == bytes(np.asarray(third))
    assert first.arithmetic_key == second.arithmetic_key == third.arithmetic_key


@pytest.mark.parametrize("name", CASES)
def test_an_escalated_plan_through_residues_gives_the_factor_that_it_gave(name):
    with CASES[name].factor(**RESIDUE) as first, again(first.report.plan, CASES[name], **RESIDUE) as second:
        assert bytes(np.asarray(first)) == bytes(np.asarray(second))
        assert first.arithmetic_key == second.arithmetic_key


def test_what_ended_in_native_fp64_for_want_of_memory_does_so_again():
    with FP64.factor(**FEW_MODULI) as first:
        assert first.report.escalations[-1].remedy is Remedy.FP64 and first.report.plan.moduli is None
        with again(first.report.plan, FP64, **FEW_MODULI) as second:
            assert second.report.plan.moduli is None
            assert bytes(np.asarray(first)) == bytes(np.asarray(second))


@pytest.mark.parametrize("name", CASES)
def test_an_escalated_plan_serves_a_matrix_like_the_first(name):
    case = CASES[name]
    plan = factor_of(case).report.plan
    for other in (case._replace(nugget=3.0 * case.nugget), case._replace(nugget=0.7 * case.nugget)):
        with other.factor(plan=plan) as factor:
            check_certified(factor, other.matrix())
            assert factor.report.certified_bound.holds(case.threshold)
            plan = factor.report.plan


@pytest.mark.parametrize("name", ["row", "two rows", "fp64"])
def test_a_plan_serves_another_place_for_the_factor(name, tmp_path):
    case = CASES[name]
    with case.factor(store=tmp_path / "L") as filed, again(filed.report.plan, case) as held:
        assert bytes(np.asarray(filed)) == bytes(np.asarray(held))
        with again(held.report.plan, case, store=tmp_path / "again") as back:
            assert bytes(np.asarray(filed)) == bytes(np.asarray(back))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_finished", [False, True], ids=["failed", "finished"])
def test_the_plan_of_a_resumed_run_makes_all_of_the_factor(engine, is_finished, tmp_path):
    a, options = ENGINES[engine]
    right, is_mixed = bits(oc.cholesky(a, **options)), "precision_threshold" in options
    if is_finished:
        oc.cholesky(a, checkpoint=tmp_path / "L", **options).close()
    else:
        with pytest.raises(StopError):
            oc.cholesky(stop_at(a, 118 if is_mixed else 62), checkpoint=tmp_path / "L", **options)
    with oc.cholesky(a, checkpoint=tmp_path / "L", **options) as resumed:
        plan = resumed.report.plan
        assert plan.given and resumed.report.resumed
    beside = options if is_mixed else {name: options[name] for name in options.keys() & {"dtype"}}
    assert bits(oc.cholesky(a, plan=plan, **beside)) == right


@pytest.mark.parametrize(
    ("case", "calls"), [(IN_A_PANEL, 105), (TWO_ROWS, 105), (FP64, 105)], ids=["in a panel", "two rows", "fp64"]
)
def test_a_run_by_an_escalated_plan_is_gone_on_from(case, calls, tmp_path):
    a = case.matrix()
    first = case.factor(stop_at(a, 0))
    how = {"plan": first.report.plan, "checkpoint": tmp_path / "L"}
    with pytest.raises(StopError):
        case.factor(stop_at(a, calls), **how)
    with case.factor(stop_at(a, 0), **how) as factor:
        assert factor.report.resumed and not factor.report.escalations
        assert np.array_equal(np.asarray(factor), np.asarray(first))


def test_a_plan_is_for_what_was_asked_whatever_became_of_it():
    for case in (ROW, FP64):
        plan, a = factor_of(case).report.plan, case.matrix()
        with pytest.raises(ValueError, match=r"the plan is for precision_threshold 0\.01 by .* but 0.001 by"):
            case._replace(threshold=1e-3).factor(plan=plan)
        with pytest.raises(ValueError, match=r"but 0\.01 by 'paper' is asked for"):
            case.factor(plan=plan, precision_rule="paper")
        with pytest.raises(ValueError, match="to both, or to neither"):
            oc.cholesky(a, plan=plan)
    with pytest.raises(ValueError, match="of order 320, but the matrix has order 319"):
        FP64.factor(FP64.matrix()[1:, 1:], plan=factor_of(FP64).report.plan)


@pytest.mark.parametrize("made", [oc.Plan.to_dict, str])
def test_what_only_tells_of_a_plan_is_none(made):
    with pytest.raises(TypeError, match=r"plan is a .*; give a Plan of one machine"):
        oc.cholesky(ROW.matrix(), plan=made(factor_of(ROW).report.plan))


def test_what_was_asked_stands_in_the_plan():
    assert oc.plan(100).asked is None
    for case in CASES.values():
        plan = factor_of(case).report.plan
        assert plan.asked == (case.threshold, "unit-roundoff")
        assert replace(plan, given=frozenset()).asked == plan.asked
