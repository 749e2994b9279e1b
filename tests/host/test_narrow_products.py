"""Products in FP16 and FP8 beside residues: within the certified bound, and the same bits for the same plan."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.mixed_precision import measured

#: Matrices of these tests are made to be at the limit of what a format can do.
pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.PrecisionWarning"),
]


def exponential(n, correlation_range=0.02, scale=None):
    """Covariance of points along a line, whose far tiles are small; its rows scaled by powers of two, if given."""
    x = np.sort(np.random.default_rng(3).random(n))
    a = np.exp(-np.abs(np.subtract.outer(x, x)) / correlation_range) + 1e-3 * np.eye(n)
    return a if scale is None else np.ldexp(a, np.add.outer(scale, scale))


def factored(a, threshold, products, **options):
    """Its factor through residues, out of core: products of a panel's own rows are exact, and there are several panels."""
    options = {"tile_size": 64, "devices": "host:0", "memory_budget": "3 MB", "fp64": "residue", **options}
    return oc.cholesky(a, precision_threshold=threshold, half_products=products, **options)


@pytest.mark.parametrize("products", [True, "fp8"])
@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
def test_the_error_is_within_the_certified_bound(threshold, products):
    a = exponential(1000)
    factor = factored(a, threshold, products)
    report = factor.report
    shares = report.plan.product_shares
    assert shares["fp8" if products == "fp8" else "fp16"] > 0.3
    assert products == "fp8" or not shares.get("fp8")
    bound = report.certified_bound.total
    assert measured(np.asarray(factor), a, bound) <= bound <= 3 * threshold
    assert report.executed_bytes == report.planned_bytes


@pytest.mark.parametrize("products", [None, False])
def test_products_are_exact_unless_measured_or_asked_for(products):
    assert not any(factored(exponential(1000), 1e-4, products).report.plan.product_shares.values())


def test_fp8_takes_products_and_leaves_the_others():
    a = exponential(1000)
    only_fp16, both = (factored(a, 1e-5, products).report.plan.product_shares for products in (True, "fp8"))
    assert both["fp8"] > 0.1 and 0 < both["fp16"] < only_fp16["fp16"]
    # What FP8 takes of the threshold, FP16 no longer may.
    assert only_fp16["fp16"] >= sum(both.values()) > 0.5 * only_fp16["fp16"]


@pytest.mark.parametrize("spread", ["rows", "tiles"])
def test_badly_scaled_rows_stay_within_the_bound(spread):
    rng, n = np.random.default_rng(4), 1000
    scale = rng.integers(-12, 12, n) if spread == "rows" else np.repeat(rng.integers(-12, 12, -(-n // 64)), 64)[:n]
    a = exponential(n, scale=scale)
    factor = factored(a, 1e-3, "fp8")
    bound = factor.report.certified_bound.total
    assert measured(np.asarray(factor), a, bound) <= bound
    # One exponent cannot serve rows of one tile that are scaled unlike.
    assert (factor.report.plan.product_shares["fp8"] > 0) == (spread == "tiles")


def test_two_devices_stay_within_the_bound():
    a = exponential(1000)
    factor = factored(a, 1e-3, "fp8", devices=["host:0", "host:1"])
    bound = factor.report.certified_bound.total
    assert factor.report.plan.product_shares["fp8"] > 0.1
    assert measured(np.asarray(factor), a, bound) <= bound


def test_the_same_plan_gives_the_same_bits():
    a = exponential(700)
    first, second = (factored(a, 1e-3, "fp8") for _ in range(2))
    assert first.arithmetic_key == second.arithmetic_key and "% in fp8" in first.arithmetic_key["engine"]
    assert np.array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.parametrize("word", ["fp4", 0, 1.0])
def test_another_word_is_refused(word):
    with pytest.raises(ValueError, match=f"half_products is {word!r}; give True, False, 'fp8', or None"):
        oc.cholesky(np.eye(4), precision_threshold=1e-3, half_products=word)


def test_the_least_budget_that_is_named_is_enough():
    a, options = exponential(1000), {"tile_size": 64, "devices": "host:0", "fp64": "residue", "precision_threshold": 1e-4}
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(a, half_products="fp8", memory_budget=100_000, **options)
    least = caught.value.needed_bytes
    assert oc.plan(a, half_products="fp8", memory_budget=least, **options).product_shares["fp8"] > 0
    with pytest.raises(oc.BudgetError):
        oc.plan(a, half_products="fp8", memory_budget=least - 1, **options)
