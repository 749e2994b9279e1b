"""Products in FP16 beside residues: decided by what a run measures, within the certified bound, and the same bits every time."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.checkpoint_runs import StopError, stop_at
from tests.host.matrices import FAMILIES, random_spd
from tests.host.mixed_precision import measured

#: Matrices of these tests are made to be at the limit of what a format can do.
pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]


def exponential(n, correlation_range=0.02, scale=None):
    """Covariance of points along a line, whose far tiles are small; its rows scaled by powers of two, if given."""
    x = np.sort(np.random.default_rng(3).random(n))
    a = np.exp(-np.abs(np.subtract.outer(x, x)) / correlation_range) + 1e-3 * np.eye(n)
    return a if scale is None else np.ldexp(a, np.add.outer(scale, scale))


def factored(a, threshold, products=True, **options):
    """Its factor through residues, out of core: products of a panel's own rows are exact, and there are several panels."""
    options = {"tile_size": 64, "devices": "host:0", "memory_budget": "3 MB", "fp64": "residue", **options}
    return oc.cholesky(a, precision_threshold=threshold, half_products=products, **options)


def check(factor, a, threshold):
    """The error, in long double where that counts, is within the bound, and the bound within the threshold."""
    bound = factor.report.certified_bound.total
    assert measured(np.asarray(factor), a, bound) <= bound <= threshold


@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
def test_the_error_is_within_the_certified_bound(threshold):
    a = exponential(1000)
    factor = factored(a, threshold)
    report = factor.report
    assert report.half_share > 0.3 and not report.escalations
    check(factor, a, threshold)
    assert report.bytes.executed == report.bytes.planned


@pytest.mark.parametrize("products", [None, False])
def test_products_are_exact_unless_measured_or_asked_for(products):
    report = factored(exponential(1000), 1e-4, products).report
    assert not report.half_share and not report.plan.half_share and report.execution.products is None


@pytest.mark.parametrize("spread", ["rows", "tiles", "halves"])
def test_badly_scaled_rows_stay_within_the_bound(spread):
    rng, n = np.random.default_rng(4), 1000
    scale = {
        "rows": rng.integers(-12, 12, n),
        "tiles": np.repeat(rng.integers(-12, 12, -(-n // 64)), 64)[:n],
        "halves": np.where(np.arange(n) < n // 2, -3, 3),
    }[spread]
    a = exponential(n, scale=scale)
    factor = factored(a, 1e-3)
    # Rows of one scale that is small beside A's norm lose their pivots, and FP64 follows.
    assert factor.report.escalations if spread == "tiles" else factor.report.half_share > 0.1
    check(factor, a, 1e-3)


@pytest.mark.parametrize("threshold", [1e-3, 1e-6])
def test_entries_whose_squares_are_no_numbers_are_multiplied_in_residues(threshold):
    """These raised OverflowError once."""
    a = FAMILIES["scaled by 10**150"](400)
    factor = factored(a, threshold, tile_size=32, memory_budget="700 KiB")
    assert factor.report.half_share == 0.0
    check(factor, a, threshold)


def test_what_ran_in_fp16_is_what_was_measured_to_be_small():
    """None of a matrix whose tiles are all alike."""
    shares = [factored(a, 1e-6).report.half_share for a in (exponential(1000), random_spd(1000))]
    assert shares[0] > 0.5 and shares[1] == 0.0
    products = factored(exponential(700), 1e-4).report.execution.products.products()
    i, j, k = np.nonzero(products)
    assert len(i) and np.all((k < j) & (j < i))


@pytest.mark.parametrize(("threshold", "budget"), [(1e-3, "3 MB"), (1e-6, "4 MB")])
def test_two_devices_give_the_bits_of_one(threshold, budget):
    """With the same panels: a product's form depends on norms alone, whoever computes it."""
    a = exponential(1000)
    one, two = (factored(a, threshold, devices=devices, memory_budget=budget) for devices in ("host:0", ["host:0", "host:1"]))
    panels = [(panel.k0, panel.width) for panel in one.report.plan.panels]
    assert [(panel.k0, panel.width) for panel in two.report.plan.panels] == panels
    assert one.arithmetic_key == two.arithmetic_key
    ran = [factor.report.execution.products.products() for factor in (one, two)]
    assert np.array_equal(*ran) and two.report.half_share > 0.1
    assert np.array_equal(np.asarray(one), np.asarray(two))
    check(two, a, threshold)


def test_the_same_plan_gives_the_same_bits():
    a = exponential(700)
    first, second = (factored(a, 1e-3) for _ in range(2))
    assert first.arithmetic_key == second.arithmetic_key and "fp16 by norms" in first.arithmetic_key["engine"]
    assert np.array_equal(np.asarray(first), np.asarray(second))
    again = factored(a, 1e-3, plan=first.report.plan)
    assert np.array_equal(np.asarray(first), np.asarray(again))


@pytest.mark.parametrize("calls", [110, 130])
def test_a_resumed_run_gives_the_bits_of_one_that_was_not_interrupted(calls, tmp_path):
    """Tiles that it finds in the file have norms, too."""
    a = exponential(700)
    whole = factored(a, 1e-3)
    with pytest.raises(StopError):
        factored(stop_at(a, calls), 1e-3, checkpoint=tmp_path / "L")
    with factored(a, 1e-3, checkpoint=tmp_path / "L") as resumed:
        assert 0 < resumed.report.resumed < resumed.grid.n_tiles and not resumed.report.escalations
        assert resumed.arithmetic_key == whole.arithmetic_key
        assert np.array_equal(np.asarray(resumed), np.asarray(whole))
        check(resumed, a, 1e-3)


@pytest.mark.parametrize("word", ["fp8", 0, 1.0])
def test_another_word_is_refused(word):
    with pytest.raises(ValueError, match=f"half_products is {word!r}; give True, False, or None"):
        oc.cholesky(np.eye(4), precision_threshold=1e-3, half_products=word)


def test_the_least_budget_that_is_named_is_enough():
    a, options = exponential(1000), {"tile_size": 64, "devices": "host:0", "fp64": "residue", "precision_threshold": 1e-4}
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(a, half_products=True, memory_budget=100_000, **options)
    least = caught.value.needed_bytes
    assert oc.plan(a, half_products=True, memory_budget=least, **options).half_share is not None
    with pytest.raises(oc.BudgetError):
        oc.plan(a, half_products=True, memory_budget=least - 1, **options)
