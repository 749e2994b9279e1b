"""Mixed precision on a CUDA device: its formats, its certified bound, its one value, its escalation."""

import warnings

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.escalation_cases import CASES
from tests.host.matrices import FAMILIES
from tests.rounding import round_to

pytestmark = pytest.mark.cuda

#: Who asks for fewest bytes gets them, however fast FP64 is.
NARROW = {"objective": "bytes"}


def error(factor, a):
    """``||A - L L.T||_F / ||A||_F``, itself with an error of a few 1e-16."""
    l_dense = np.asarray(factor)
    return float(np.linalg.norm(a - l_dense @ l_dense.T) / np.linalg.norm(a))


def exponential(n, correlation_range=0.1, nugget=1e-3):
    """A covariance of points along a line, whose far tiles are small."""
    x = np.sort(np.random.default_rng(3).random(n))
    return np.exp(-np.abs(np.subtract.outer(x, x)) / correlation_range) + nugget * np.eye(n)


@pytest.mark.parametrize("fp64", ["residue", "native"])
@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize(("n", "nb"), [(1000, 64), (2000, 128)])
def test_the_error_is_within_the_certified_bound(n, nb, threshold, fp64):
    a = exponential(n, 0.02)
    factor = oc.cholesky(a, precision_threshold=threshold, tile_size=nb, devices="cuda:0", fp64=fp64, **NARROW)
    bound = factor.report.certified_bound.total
    assert error(factor, a) <= bound <= 3 * threshold
    assert factor.report.bytes.executed == factor.report.bytes.planned
    assert factor.formats == factor.report.plan.precision.counts
    assert len(factor.formats) > 1


@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("budget", [None, "140 MB"])
def test_products_in_fp16_are_within_the_certified_bound(threshold, budget):
    a = exponential(2000, 0.02)
    options = {"tile_size": 64, "devices": "cuda:0", "fp64": "residue", "memory_budget": budget}
    factor = oc.cholesky(a, precision_threshold=threshold, half_products=True, **options)
    bound = factor.report.certified_bound.total
    assert factor.report.half_share > 0.1
    assert error(factor, a) <= bound <= 3 * threshold
    assert factor.report.bytes.executed == factor.report.bytes.planned


@pytest.mark.parametrize("fp64", ["residue", "native"])
@pytest.mark.parametrize("devices", ["cuda:0", pytest.param("cuda:0,cuda:1", marks=pytest.mark.multigpu)])
def test_vectors_beside_the_run_see_what_a_reading_of_the_factor_sees(fp64, devices, monkeypatch):
    from tests.inside.dense import KEPT_PLANS, problem

    a = exponential(2000, 0.02)
    options = {"tile_size": 128, "devices": devices.split(","), "fp64": fp64, **NARROW}
    beside = oc.cholesky(a, precision_threshold=1e-4, **options).report
    monkeypatch.setattr(problem, "PROBES_PART", 1 << 40)
    KEPT_PLANS.clear()
    reading = oc.cholesky(a, precision_threshold=1e-4, **options).report
    assert beside.plan.probe_arrays and not reading.plan.probe_arrays
    assert "certificate" in reading.passes.totals and "certificate" not in beside.passes.totals
    KEPT_PLANS.clear()
    assert beside.certified_bound.total == pytest.approx(reading.certified_bound.total, rel=1e-6)


def test_every_tile_has_the_value_of_its_format():
    a = exponential(1000, 0.02)
    factor = oc.cholesky(a, precision_threshold=1e-4, tile_size=64, devices="cuda:0", **NARROW)
    dense, precision = np.asarray(factor), factor.report.plan.precision
    for index in precision.grid.tiles():
        rows, cols = precision.grid.span(index.i), precision.grid.span(index.j)
        tile = np.ascontiguousarray(dense[rows.start : rows.stop, cols.start : cols.stop])
        assert round_to(tile.copy(), precision.format_of(index)) == 0.0


def test_the_bits_depend_on_the_arithmetic_key_alone(tmp_path):
    from tests.inside.kernels import workspace_bytes

    a, least = exponential(1300, 0.02), workspace_bytes(64, 4)
    options = {"tile_size": 64, "devices": "cuda:0", "fp64": "residue", **NARROW}
    found = {}
    for products in (False, None):
        for budget in (None, least + (8 << 20), least + (12 << 20), least + (30 << 20)):
            place = tmp_path / f"{products}{budget}.ooc"
            options |= {"half_products": products, "memory_budget": budget, "store": place}
            with oc.cholesky(a, precision_threshold=1e-5, **options) as factor:
                key = tuple(factor.arithmetic_key.items())
                assert np.array_equal(np.asarray(factor), found.setdefault(key, np.asarray(factor))), (products, budget)
        if products is False:
            assert len(found) == 1  # what runs in FP16 follows panels, and these the memory


@pytest.mark.parametrize("name", CASES)
def test_a_failed_pivot_is_computed_again(name):
    case = CASES[name]
    with warnings.catch_warnings():
        # Which rows are widened follows the panels, and so whether a pivot that is still narrow is told to be in doubt.
        warnings.simplefilter("ignore", oc.errors.PrecisionWarning)
        factor = case.factor(devices="cuda:0", memory_budget=None, **NARROW)
    assert 1 <= len(factor.report.escalations) <= 2
    assert error(factor, case.matrix()) <= factor.report.certified_bound.total <= case.threshold


def test_an_indefinite_matrix_is_refused():
    a = exponential(600, 0.02)
    a[400, 400] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(a, precision_threshold=1e-3, tile_size=64, devices="cuda:0")
    assert caught.value.minor == 401


@pytest.mark.parametrize("family", ["exponential", "matern25 nugget 1e-6"])
def test_refinement_reaches_fp64(family):
    a = FAMILIES[family](700)
    b = np.random.default_rng(0).standard_normal(700)
    x = oc.cholesky(a, precision_threshold=1e-4, tile_size=64, devices="cuda:0").solve(b, refine=True)
    full = np.tril(a) + np.tril(a, -1).T
    scale = np.linalg.norm(full, np.inf) * np.abs(x).max() + np.abs(b).max()
    assert np.abs(full @ x - b).max() <= 1e-14 * scale
