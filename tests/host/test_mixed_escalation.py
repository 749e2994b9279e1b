"""A pivot that fails in narrow formats: what is computed again, that it is no more than promised, and that the end is right."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import Plan
from tests.builders import executed, factor_over, host_device, memory_store, planned
from tests.host.escalation_cases import CASES, FP64, IN_A_PANEL, ROW, TWO_ROWS, Case, Matrix, factor_of
from tests.host.matrices import lapack_minor
from tests.host.mixed_precision import check_certified
from tests.host.runs import jitter_devices, use_devices
from tests.host.spoiled import INDEFINITE, good
from tests.host.turns import in_turn
from tests.inside.dense import AbstractOperations, arithmetic_key
from tests.inside.precision import LOCAL_WORK, MOST_WORK, Remedy, row_tiles
from tests.products import thorough

#: Matrices of these tests are made to be at the limit of what a format can do.
pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]


def of_cases(*usual: str) -> pytest.MarkDecorator:
    """All cases, those of the usual run first; between them the tests take every one."""
    return pytest.mark.parametrize("name", [*usual, *thorough(*(name for name in CASES if name not in usual))])


def remedies(factor: oc.CholeskyFactor) -> list[Remedy]:
    return [step.remedy for step in factor.report.escalations]


def check(factor: oc.CholeskyFactor, a: Matrix) -> None:
    """Assert what holds however often a pivot failed: the error is as certified, formats as stored, the work as promised."""
    report, grid = factor.report, factor.grid
    check_certified(factor, a)
    steps = report.escalations
    assert sum(step.work for step in steps) <= MOST_WORK - 1
    assert remedies(factor) in ([], [Remedy.ROW], [Remedy.FP64], [Remedy.ROW, Remedy.FP64])
    assert report.certified_bound.holds(report.plan.asked[0])
    assert [str(step) for step in steps] == report.to_dict()["escalations"]
    assert all(step.column * grid.nb < step.minor <= (step.column + 1) * grid.nb for step in steps)
    precision = report.plan.precision
    assert factor.formats == ({"fp64": grid.n_tiles} if precision is None else precision.counts)


def from_nothing(plan: Plan, a: Matrix) -> oc.CholeskyFactor:
    """The factor that the formats of ``plan`` give when nothing of it is there."""
    engine = "native" if plan.moduli is None else "residue"
    options = {"devices": plan.devices, "memory_budget": "64 MiB", "fp64": engine, "moduli": plan.moduli}
    fresh = planned(plan.grid.n, precision=plan.precision, tile_size=plan.grid.nb, **options)
    assert arithmetic_key(fresh) == arithmetic_key(plan)
    store = memory_store(plan.grid, plan.precision.formats)
    executed(fresh, a, store, [host_device(name, moduli=plan.moduli) for name in fresh.devices])
    return factor_over(store)


# remedies


@pytest.mark.parametrize("case", [ROW, IN_A_PANEL], ids=["row", "in a panel"])
def test_a_row_is_enough(case):
    factor = factor_of(case)
    assert remedies(factor) == [Remedy.ROW]
    step, plan = factor.report.escalations[0], factor.report.plan
    planned = oc.plan(
        case.matrix(), precision_threshold=case.threshold, tile_size=case.nb, memory_budget="1 MB", devices="host:0"
    )
    widened = {index for index in factor.grid.tiles() if plan.precision.format_of(index) != planned.precision.format_of(index)}
    assert widened and widened <= set(row_tiles([step.column]))
    assert {plan.precision.format_of(index).name for index in row_tiles([step.column])} == {"fp64"}
    assert set(factor.formats) > {"fp64"}, "the rest stays narrow"
    assert plan.precision.threshold == case.threshold and step.work <= LOCAL_WORK
    assert f"minor {step.minor} failed: tile row {step.column} in FP64 again" in str(factor.report)
    check(factor, case.matrix())


def test_a_row_in_a_panel_is_one_of_several():
    step, plan = factor_of(IN_A_PANEL).report.escalations[0], factor_of(IN_A_PANEL).report.plan
    assert any(panel.k0 < step.column < panel.k0 + panel.width for panel in plan.panels)


@pytest.mark.parametrize(
    ("case", "steps"),
    [(TWO_ROWS, [Remedy.ROW, Remedy.FP64]), (FP64, [Remedy.FP64])],
    ids=["a second row", "a row that is too much work"],
)
def test_only_fp64_is_enough(case, steps):
    """Factor that FP64 gives from the start, to the bit."""
    factor = factor_of(case)
    assert remedies(factor) == steps
    last = factor.report.escalations[-1]
    assert last.work == 1.0 and str(last) == f"minor {last.minor} failed: everything in FP64 again (100 % of the work at most)"
    assert factor.report.plan.precision is None and factor.report.plan.asked == (case.threshold, "unit-roundoff")
    plain = oc.cholesky(case.matrix(), tile_size=case.nb, memory_budget=case.budget, devices="host:0", fp64="native")
    assert np.array_equal(np.asarray(factor), np.asarray(plain))
    assert factor.arithmetic_key == plain.arithmetic_key
    check(factor, case.matrix())


def test_the_report_tells_what_failed_though_it_ends_in_fp64():
    """As it did not once."""
    report = factor_of(TWO_ROWS).report
    assert all(f"minor {step.minor} failed" in str(report) for step in report.escalations)


@pytest.mark.parametrize(("nugget", "threshold"), in_turn([1e-5, 1e-6, 1e-9, 1e-12], [1e-2, 1e-3, 1e-4]))
def test_whatever_fails_the_end_is_right(nugget, threshold):
    twins = ((2, 33), (20, 50), (64, 65), (35, 90), (90, 310))
    for chosen in (twins[:1], twins[1:2], twins[2:3], twins[::2], twins[1:4], twins):
        case = Case(320, 32, "150 kB", nugget, threshold, chosen)
        a = case.matrix()
        check(case.factor(a), a)


# resuming


@pytest.mark.parametrize(
    ("name", "devices", "fp64"),
    in_turn(["row", "in a panel"], [["host:0"], ["host:0", "host:1"]], ["native", "residue"], each=3),
)
def test_a_resumed_factor_is_the_one_of_its_formats(name, devices, fp64):
    """Tiles that were kept are what they would be in the widened formats, too."""
    case = CASES[name]
    factor = case.factor(devices=devices, fp64=fp64, memory_budget=case.budget if fp64 == "native" else "64 MiB")
    assert Remedy.ROW in remedies(factor)
    assert (factor.report.plan.moduli is None) == (fp64 == "native")
    check(factor, case.matrix())
    if factor.report.plan.precision is not None:
        assert np.array_equal(np.asarray(factor), np.asarray(from_nothing(factor.report.plan, case.matrix())))


@of_cases("row", "in a panel", "two rows", "fp64")
def test_a_file_holds_the_widened_tiles(name, tmp_path):
    case = CASES[name]
    with case.factor(store=tmp_path / "L.ooc") as factor:
        check(factor, case.matrix())
        assert factor.report.escalations
        dense, formats = np.asarray(factor), factor.formats
        plan = factor.report.plan
    with oc.load(tmp_path / "L.ooc") as back:
        assert np.array_equal(np.asarray(back), dense)
        assert back.formats == formats
        back.save(tmp_path / "again.ooc")
    with oc.load(tmp_path / "again.ooc") as again:
        assert np.array_equal(np.asarray(again), dense)
    if plan.precision is not None:
        assert np.array_equal(dense, np.asarray(from_nothing(plan, case.matrix())))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["L.ooc", "again.ooc"]


@of_cases("row", "in a panel", "two rows")
def test_a_failed_pivot_that_is_noticed_late_leaves_nothing_wrong(name, monkeypatch):
    """What was computed behind it, from a tile that is no factor, is in the store by then."""
    case = CASES[name]
    is_flagged, nt = AbstractOperations.is_flagged, -(-case.n // case.nb)
    monkeypatch.setattr(AbstractOperations, "is_flagged", lambda self, columns: columns >= nt and is_flagged(self, columns))
    factor = case.factor()
    check(factor, case.matrix())
    assert factor.report.escalations


@pytest.mark.parametrize(("seed", "devices"), in_turn(range(3), [1, 2]))
def test_delays_leave_nothing_wrong(seed, devices, monkeypatch):
    use_devices(monkeypatch, jitter_devices(seed))
    for case in (IN_A_PANEL, TWO_ROWS):
        check(case.factor(devices=devices), case.matrix())


# what is not positive definite


@pytest.mark.parametrize(("kind", "fp64"), in_turn(INDEFINITE, ["auto", "residue"]))
def test_an_indefinite_matrix_is_refused_with_the_minor_of_fp64(kind, fp64, tmp_path):
    a = INDEFINITE[kind](good())
    options = {"tile_size": 32, "devices": "host:0", "memory_budget": "64 MiB", "fp64": fp64}
    with pytest.raises(oc.NotPositiveDefiniteError) as plain:
        oc.cholesky(a, **options)
    for threshold, store in ((1e-2, None), (1e-6, tmp_path / "L.ooc")):
        with pytest.raises(oc.NotPositiveDefiniteError) as caught:
            oc.cholesky(a, precision_threshold=threshold, store=store, **options)
        assert caught.value.minor == plain.value.minor == lapack_minor(a)
        assert list(tmp_path.iterdir()) == []
