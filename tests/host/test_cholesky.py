"""The factor is right: every order, tile size, budget and family of matrices, beside LAPACK's factor of the same matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from tests.host.matrices import FAMILIES, check_factor, lower, powers_of_two, upper_poisoned
from tests.host.runs import budget_of, check_bytes
from tests.host.turns import in_turn
from tests.inside.dense import POLICIES
from tests.products import share_of_examples, thorough
from tests.tolerances import FACTOR_ENTRY_C, gamma, solve_bound

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

#: Tile sizes of each order: more than one tile row, one tile, a tile larger than the matrix, a tile of one entry.
SIZES = {
    1: (1, 7, 500),
    2: (1, 2, 500),
    12: (1, 5),
    63: (8, 64, 500),
    64: (16, 64, 500),
    65: (16, 64, 500),
    210: (37, 64, 100, 500),
    600: (64, 500),
    1025: (2048,),  # in tiles of 250: the hard families
}


def factored(a, nb, tiles=3, **options) -> oc.CholeskyFactor:
    """The factor of ``a`` with a budget of ``tiles`` tiles."""
    factor = oc.cholesky(a, tile_size=nb, memory_budget=budget_of(tiles, len(a), nb), **options)
    check_bytes(factor.report.plan, factor.report.execution)
    return factor


@pytest.mark.parametrize(("n", "nb"), [(n, nb) for n, sizes in SIZES.items() for nb in sizes])
def test_every_order_and_tile_size(n, nb):
    a = FAMILIES["exponential"](n)
    check_factor(factored(a, nb), a)


@pytest.mark.parametrize(("family", "case"), in_turn(FAMILIES, [(65, 9, 3), (200, 24, 14), (230, 64, 3), (400, 56, 9)], each=2))
def test_every_family(family, case):
    n, nb, tiles = case
    a = FAMILIES[family](n)
    factor = factored(a, nb, tiles)
    report = factor.report
    assert report.bytes.executed["fetch"] > 0.5 * report.bytes.executed["write"], "not out of core"
    check_factor(factor, a)


@pytest.mark.parametrize(
    "family", ["matern25 nugget 1e-11", "scaled by 10**150", *thorough("gaussian nugget 1e-12", "random, condition 1e10")]
)
def test_hard_families_at_order_1025(family):
    a = FAMILIES[family](1025)
    check_factor(factored(a, 250, 4), a)


@pytest.mark.parametrize(
    ("family", "policy", "devices"), in_turn(["matern15 nugget 1e-11", "graded down"], ["planned", "sync"], [1, 3], each=2)
)
def test_several_workers(family, policy, devices):
    a = FAMILIES[family](230)
    factor = factored(a, 48, 3, policy=policy, devices=devices)
    assert factor.report.bytes.executed["fetch"] > 0
    check_factor(factor, a)


@share_of_examples(0.6)
@given(
    n=st.integers(1, 90),
    rows=st.integers(1, 8),
    tiles=st.integers(3, 40),
    devices=st.integers(1, 3),
    policy=st.sampled_from(sorted(POLICIES)),
    objective=st.sampled_from(["seconds", "bytes"]),
    family=st.sampled_from(sorted(FAMILIES)),
    order=st.sampled_from("CF"),
)
def test_any_choice_of_options(n, rows, tiles, devices, policy, objective, family, order):
    a = np.array(FAMILIES[family](n), order=order)
    nb = -(-n // rows)
    check_factor(factored(a, nb, tiles, devices=devices, policy=policy, objective=objective), a)


@pytest.mark.parametrize("family", ["exponential", "matern25 nugget 1e-6", "random"])
def test_scaling_rows_by_powers_of_two_scales_the_factor_exactly(family):
    a, d = FAMILIES[family](300), powers_of_two(300)
    plain = np.asarray(factored(a, 64))
    scaled = np.asarray(factored(d[:, None] * a * d[None, :], 64))
    assert np.array_equal(scaled, d[:, None] * plain)


def test_the_default_budget_and_tile_size():
    a = FAMILIES["matern15 nugget 1e-6"](700)
    factor = oc.cholesky(a)
    check_factor(factor, a)
    check_bytes(factor.report.plan, factor.report.execution)


def test_the_upper_triangle_is_never_read_nor_written():
    a = upper_poisoned(FAMILIES["matern25 nugget 1e-6"](200))
    bits = a.tobytes()
    for order in "CF":
        check_factor(factored(np.array(a, order=order), 64), a)
    assert a.tobytes() == bits


def test_float32_input_is_widened_and_factored_in_fp64():
    narrow = FAMILIES["exponential"](200).astype(np.float32)
    factor = factored(narrow, 64)
    check_factor(factor, narrow.astype(np.float64))
    assert np.array_equal(np.asarray(factor), np.asarray(factored(narrow.astype(np.float64), 64)))
    assert factor.report.bytes.executed["source"] * 2 == factored(narrow.astype(float), 64).report.bytes.executed["source"]


def test_the_public_residual_agrees_with_the_long_double_one():
    a = FAMILIES["matern15 nugget 1e-6"](300)
    factor = factored(a, 64)
    l_long = np.asarray(factor).astype(np.longdouble)
    diagonal = np.sqrt(np.diagonal(a).astype(np.longdouble))
    scaled = np.abs(np.tril(a - l_long @ l_long.T)) / np.outer(diagonal, diagonal) / 2.0**-53
    sample = factor.residual(a, blocks=200)
    rounding = 300 * 2.0**-64 / 2.0**-53  # of the long double sum, in the same unit
    assert abs(sample.max_scaled - float(scaled.max())) <= sample.floor + rounding
    assert sample.max_scaled_over_sqrt_n <= FACTOR_ENTRY_C


@pytest.mark.parametrize("store", [None, "L.ooc"])
def test_factor_save_load_solve(tmp_path, store):
    n, nb = 300, 64
    a = FAMILIES["matern15 nugget 1e-6"](n)
    b = np.random.default_rng(5).standard_normal((n, 3))
    factor = factored(a, nb, store=None if store is None else tmp_path / store)
    with factor:
        factor.save(tmp_path / "saved.ooc")
        x, logdet, key = factor.solve(b), factor.logdet(), factor.arithmetic_key
    with oc.load(tmp_path / "saved.ooc") as loaded:
        assert loaded.arithmetic_key == key
        assert np.array_equal(loaded.solve(b), x)
        assert loaded.logdet() == logdet
    residual = np.linalg.norm(b - a @ x, axis=0)
    assert np.all(residual <= solve_bound(n, np.linalg.norm(a, 2), np.linalg.norm(x, axis=0)))
    sign, expected = np.linalg.slogdet(lower(a) + np.tril(a, -1).T)
    assert sign == 1
    # d(logdet) = tr(inv(A) dA), and both factors belong to matrices within gamma(n + 1) |L| |L|.T of A.
    assert abs(logdet - expected) <= 4 * gamma(n + 1) * n * np.linalg.cond(a)
