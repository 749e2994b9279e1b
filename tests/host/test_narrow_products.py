"""Products in FP16 beside residues: within the certified bound, and the same bits for the same plan."""

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


def factored(a, threshold, products=True, **options):
    """Its factor through residues, out of core: products of a panel's own rows are exact, and there are several panels."""
    options = {"tile_size": 64, "devices": "host:0", "memory_budget": "3 MB", "fp64": "residue", **options}
    return oc.cholesky(a, precision_threshold=threshold, half_products=products, **options)


@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
def test_the_error_is_within_the_certified_bound(threshold):
    a = exponential(1000)
    factor = factored(a, threshold)
    report = factor.report
    assert report.plan.half_share > 0.3
    bound = report.certified_bound.total
    assert measured(np.asarray(factor), a, bound) <= bound <= 3 * threshold
    assert report.executed_bytes == report.planned_bytes


@pytest.mark.parametrize("products", [None, False])
def test_products_are_exact_unless_measured_or_asked_for(products):
    assert factored(exponential(1000), 1e-4, products).report.plan.half_share == 0


@pytest.mark.parametrize("spread", ["rows", "tiles"])
def test_badly_scaled_rows_stay_within_the_bound(spread):
    rng, n = np.random.default_rng(4), 1000
    scale = rng.integers(-12, 12, n) if spread == "rows" else np.repeat(rng.integers(-12, 12, -(-n // 64)), 64)[:n]
    a = exponential(n, scale=scale)
    factor = factored(a, 1e-3)
    bound = factor.report.certified_bound.total
    assert factor.report.plan.half_share > 0
    assert measured(np.asarray(factor), a, bound) <= bound


def test_two_devices_stay_within_the_bound():
    a = exponential(1000)
    factor = factored(a, 1e-3, devices=["host:0", "host:1"])
    bound = factor.report.certified_bound.total
    assert factor.report.plan.half_share > 0.1
    assert measured(np.asarray(factor), a, bound) <= bound


def test_the_same_plan_gives_the_same_bits():
    a = exponential(700)
    first, second = (factored(a, 1e-3) for _ in range(2))
    assert first.arithmetic_key == second.arithmetic_key and "% in fp16" in first.arithmetic_key["engine"]
    assert np.array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.parametrize("word", ["fp8", 0, 1.0])
def test_another_word_is_refused(word):
    with pytest.raises(ValueError, match=f"half_products is {word!r}; give True, False, or None"):
        oc.cholesky(np.eye(4), precision_threshold=1e-3, half_products=word)


def test_the_least_budget_that_is_named_is_enough():
    a, options = exponential(1000), {"tile_size": 64, "devices": "host:0", "fp64": "residue", "precision_threshold": 1e-4}
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(a, half_products=True, memory_budget=100_000, **options)
    least = caught.value.needed_bytes
    assert oc.plan(a, half_products=True, memory_budget=least, **options).half_share > 0
    with pytest.raises(oc.BudgetError):
        oc.plan(a, half_products=True, memory_budget=least - 1, **options)
