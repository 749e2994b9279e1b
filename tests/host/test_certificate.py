"""What mixed precision promises: an error within its bound and a bound within the threshold, for every matrix; or an error."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.escalation_cases import ROW
from tests.host.matrices import FAMILIES, lapack_factor
from tests.host.mixed_precision import measured
from tests.host.structured import STRUCTURED
from tests.host.turns import in_turn
from tests.inside.precision import PROBES, Remedy
from tests.products import pairwise, thorough

pytestmark = [
    pytest.mark.host,
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

#: Matrices of each family and engine: 90 in all, and 2,010 with ``--thorough``.
DRAWS = [3, *thorough(67)]


def check_contract(a: np.ndarray, threshold: float, **options) -> oc.CholeskyFactor:
    """The error, in long double, is at most the bound, and the bound at most the threshold."""
    factor = oc.cholesky(a, precision_threshold=threshold, devices="host:0", memory_budget="64 MiB", **options)
    bound = factor.report.certified_bound
    error = measured(np.asarray(factor), a, float(bound))
    assert error <= float(bound) <= threshold, (error, str(bound), threshold, list(map(str, factor.report.escalations)))
    return factor


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("family", STRUCTURED)
def test_the_error_is_within_the_bound_and_the_bound_within_the_threshold(family, fp64, draws):
    rng = np.random.default_rng(len(family))
    for _ in range(draws):
        n, nb, decades = int(rng.integers(20, 80)), int(rng.choice([16, 32])), rng.uniform(-9, -2)
        a = STRUCTURED[family](n, rng)
        try:
            check_contract(a, 10.0**decades, tile_size=nb, fp64=fp64).close()
        except oc.NotPositiveDefiniteError:
            with pytest.raises(oc.NotPositiveDefiniteError):  # a matrix of subnormal numbers may have lost that, too
                oc.cholesky(a, tile_size=nb, devices="host:0", fp64="native")
        except oc.errors.PrecisionError:
            assert a.max() < 1e-310  # FP64 itself has but few digits there


def brownian(n: int) -> np.ndarray:
    steps = np.arange(1.0, n + 1)
    return 0.3889320525912019 * np.minimum.outer(steps, steps)


def test_equal_rows_through_residues():
    """Rounding errors of equal rows are equal, and add up as K: 1.7e-7 for 1e-8 once."""
    factor = check_contract(brownian(1024), 9e-9, tile_size=64, fp64="residue")
    (step,) = factor.report.escalations
    assert step.remedy is Remedy.FP64 and step.bound > 9e-9 and step.minor is None
    assert f"the error was certified to be at most {step.bound:.2g} only: everything in FP64 again" in str(factor.report)
    assert factor.report.certified_bound.probes == PROBES, "FP64 is measured, too, where something was not as expected"


def test_equal_rows_in_floats():
    a = 1.0805303125409695 * np.ones((768, 768)) + 0.0002907116592475837 * np.eye(768)
    factor = oc.cholesky(a, precision_threshold=1e-6, tile_size=128, fp64="native", devices="host:0")
    dense, bound = np.asarray(factor), float(factor.report.certified_bound)
    assert np.linalg.norm(a - dense @ dense.T) <= bound * np.linalg.norm(a)
    assert bound <= 1e-6


def test_without_strict_the_first_factor_comes_with_its_bound_and_a_warning():
    a = brownian(512)
    with pytest.warns(oc.errors.PrecisionWarning, match=r"more than precision_threshold = 1e-08"):
        factor = oc.cholesky(a, precision_threshold=1e-8, tile_size=64, fp64="residue", devices="host:0", strict=False)
    bound = factor.report.certified_bound
    assert measured(np.asarray(factor), a, float(bound)) <= float(bound)
    assert float(bound) > 1e-8 and not factor.report.escalations


#: What LAPACK itself is within of some thresholds below, but not of all.
OF_FP64 = ["exponential", "matern25 nugget 1e-6", "graded down", "random", "random, condition 1e10", "scaled by powers of two"]


@pytest.mark.parametrize(("family", "fp64"), pairwise(OF_FP64, ["native", "residue"]))
def test_thresholds_near_fp64_are_kept_where_lapack_keeps_them(family, fp64):
    """Random vectors show less than their own rounding there, and models of rounding errors what FP64 is within."""
    n, refused = 180, []
    a = FAMILIES[family](n)
    least = measured(lapack_factor(a), a, 0.0)
    for digits in np.arange(9.0, 16.1, 0.5):
        threshold = 10.0**-digits
        try:
            with check_contract(a, threshold, tile_size=32, fp64=fp64) as factor:
                assert not factor.report.escalations or threshold >= 1e-10
        except oc.errors.PrecisionError as error:
            refused.append(threshold)
            assert error.threshold == threshold < error.bound
    assert all(threshold < least for threshold in refused if threshold >= 1e-13), (least, refused)
    assert 10.0**-16 in refused, "and what is below FP64 is refused"


def test_a_norm_near_subnormal_numbers_is_named():
    with pytest.raises(oc.errors.PrecisionError, match=r"scale A up, whose norm of 4\.5e-184") as caught:
        oc.cholesky(2.0**-610 * (np.eye(3) + 0.1), 1e-13)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.norm == caught.value.norm


@pytest.mark.parametrize("fp64", ["native", "residue"])
def test_what_not_even_fp64_is_certified_for_is_an_error_before_anything_runs(fp64, tmp_path):
    with pytest.raises(oc.errors.PrecisionError, match="even in FP64") as caught:
        oc.cholesky(brownian(100), precision_threshold=1e-16, tile_size=16, fp64=fp64, devices="host:0", store=tmp_path / "L")
    assert caught.value.threshold == 1e-16 < caught.value.bound < 1e-11
    assert not list(tmp_path.iterdir())
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.bound, again.threshold) == (str(caught.value), caught.value.bound, 1e-16)


@pytest.mark.parametrize("tile_size", [None, 20])
def test_a_threshold_that_is_missed_meets_the_bound_of_one_that_is_kept(tile_size):
    a = FAMILIES["random"](60)
    with oc.cholesky(a, 1e-14, tile_size=tile_size, devices="host:0") as factor:
        kept = factor.report.certified_bound
    with pytest.raises(oc.errors.PrecisionError, match=f"at most {kept.total:.2g}") as caught:
        oc.cholesky(a, kept.total / 2, tile_size=tile_size, devices="host:0")
    assert caught.value.bound == kept.total
    with oc.cholesky(a, kept.total / 2, tile_size=tile_size, devices="host:0", strict=False) as factor:
        found = factor.report.certified_bound
    assert found.total == kept.total and found.measured <= kept.total and "nothing was measured" not in str(found)


def test_the_bound_is_a_number_and_the_same_at_each_call():
    first, second = (
        oc.cholesky(brownian(200), precision_threshold=1e-4, tile_size=32, devices="host:0").report for _ in range(2)
    )
    assert float(first.certified_bound) == first.certified_bound.total == float(second.certified_bound)
    assert first.to_dict()["certified_bound"] == float(first.certified_bound)
    assert first.inside_seconds >= first.seconds.parts["certificate"] > 0.0


@pytest.mark.parametrize(
    ("budget", "in_file", "devices"),
    pairwise(["150 KiB", "380 KiB", "64 MiB"], [False, True], [["host:0"], ["host:0", "host:1"]]),
)
def test_the_bound_of_a_factor_is_that_of_its_bits(devices, in_file, budget, tmp_path):
    a = brownian(300)
    reference = oc.cholesky(a, precision_threshold=1e-5, tile_size=32, devices="host:0", memory_budget="64 MiB")
    with oc.cholesky(
        a,
        precision_threshold=1e-5,
        tile_size=32,
        devices=devices,
        memory_budget=budget,
        store=tmp_path / "L" if in_file else None,
    ) as factor:
        assert np.array_equal(np.asarray(factor), np.asarray(reference))
        assert float(factor.report.certified_bound) == pytest.approx(float(reference.report.certified_bound), rel=1e-9)


@pytest.mark.parametrize(("n", "n_devices", "fp64"), pairwise([96, 200, 300], [1, 3], ["native", "residue"]))
def test_vectors_beside_the_run_see_what_a_reading_of_the_factor_sees(n, n_devices, fp64, tmp_path):
    a, least = brownian(n), 16 * 8 * 2 * PROBES * 2 * n
    devices = [f"host:{number}" for number in range(n_devices)]
    beside = oc.cholesky(
        a, precision_threshold=1e-5, tile_size=32, fp64=fp64, devices=devices, memory_budget=2 * least, store=tmp_path / "beside"
    )
    reading = oc.cholesky(a, precision_threshold=1e-5, tile_size=32, fp64=fp64, devices=devices, memory_budget=least // 2)
    assert beside.report.plan.probe_arrays and not reading.report.plan.probe_arrays
    assert "certificate" in reading.report.passes.totals and "certificate" not in beside.report.passes.totals
    assert float(beside.report.certified_bound) == pytest.approx(float(reading.report.certified_bound), rel=1e-6)
    planned = [budget.workspace_bytes for budget in (beside.report.plan.budgets[0], reading.report.plan.budgets[0])]
    held = sum(spec.nbytes for spec in beside.report.plan.probe_arrays)
    assert planned[0] - planned[1] == held >= 8 * 2 * PROBES * 2 * n
    beside.close()


@pytest.mark.parametrize(("n", "nb"), [(1, 16), (2, 16), (11, 16)])
def test_vectors_are_not_held_beside_tiles_smaller_than_a_row_of_them(n, nb):
    """They travel through buffers of a tile's size."""
    factor = check_contract(brownian(n), 1e-2, tile_size=nb, fp64="residue")
    assert not factor.report.plan.probe_arrays and "certificate" in factor.report.passes.totals


@pytest.mark.parametrize("fp64", ["native", "residue"])
def test_what_a_run_keeps_of_one_before_is_read_for_its_bound(fp64):
    """Tiles that are given leave no device of the second run, so that no vectors meet them there."""
    for _ in range(20):  # on a busy machine the pivot may fail before it is known that any tile is final
        report = check_contract(ROW.matrix(), ROW.threshold, tile_size=ROW.nb, fp64=fp64).report
        assert [step.remedy for step in report.escalations] == [Remedy.ROW]
        if report.plan.given:
            break
    assert report.plan.given
    assert not report.plan.probe_arrays and report.passes.totals["certificate"].calls == 1


def test_a_tile_that_is_lost_on_its_way_shows_where_the_factor_is_read(monkeypatch):
    """What no accounting of roundings would see: the store gives back something else than was written."""
    from tests.inside.dense import MemoryStore

    write = MemoryStore.write_stored

    def lose(store, index, data):
        write(store, index, 0 * data if index == (2, 1) else data)

    copy = np.array(brownian(128))
    honest = oc.cholesky(copy, precision_threshold=1e-3, tile_size=32, devices="host:0", memory_budget="2 MiB")
    assert not honest.report.escalations
    monkeypatch.setattr(MemoryStore, "write_stored", lose)
    monkeypatch.setattr(
        MemoryStore,
        "write",
        lambda store, index, data, own=MemoryStore.write: own(store, index, 0 * data if index == (2, 1) else data),
    )
    with pytest.raises(oc.errors.PrecisionError):
        oc.cholesky(copy, precision_threshold=1e-3, tile_size=32, devices="host:0", memory_budget="2 MiB")


# diagnosis


@contextmanager
def warnings_as_errors() -> Iterator[None]:
    """Whatever this module does with the package's warnings otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("threshold", "fp64", "value"), pairwise([1e-1, 1e-3, 1e-6], ["native", "residue"], [1e200, 1e40, -1e300])
)
def test_a_giant_off_the_diagonal_is_finite_and_not_positive_definite(threshold, fp64, value):
    a = brownian(64) + np.eye(64)
    a[47, 0] = a[0, 47] = value
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(a, precision_threshold=threshold, tile_size=16, fp64=fp64, devices="host:0")


@pytest.mark.parametrize(("row", "fp64"), in_turn([3, 50, 99], ["native", "residue"]))
def test_a_singular_matrix_is_not_factored_without_a_word(row, fp64):
    rng = np.random.default_rng(row)
    a = STRUCTURED["Matern 3/2 in 2-D"](100, rng)
    a[row, :], a[:, row] = a[0, :], a[:, 0]
    a[row, row] = a[0, 0]
    for threshold in (1e-2, 1e-4, 1e-6):
        with (
            pytest.raises((oc.errors.PrecisionWarning, oc.NotPositiveDefiniteError), match=rf"row {row} |order"),
            warnings_as_errors(),
        ):
            oc.cholesky(a, precision_threshold=threshold, tile_size=16, fp64=fp64, devices="host:0")


@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("family", ["AR(1)", "Wishart", "factors", "random intercepts", "exponential in 1-D"])
def test_a_regular_matrix_is_factored_without_a_warning(family, fp64):
    rng = np.random.default_rng(0)
    for _ in range(2):
        with warnings_as_errors():
            oc.cholesky(STRUCTURED[family](90, rng), precision_threshold=1e-6, tile_size=16, fp64=fp64, devices="host:0")


def test_a_report_keeps_no_vectors():
    norms = oc.cholesky(brownian(200), precision_threshold=1e-4, tile_size=32, devices="host:0").report.plan.precision.norms
    assert norms.probes is None and norms.form is None
