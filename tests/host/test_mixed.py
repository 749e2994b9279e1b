"""Mixed precision: an error that was certified, one value for each tile, and bytes that are those of the formats."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from tests.host.matrices import FAMILIES, backward_errors, lapack_factor, upper_poisoned
from tests.host.mixed_precision import NB, RANGES, SCALINGS, THRESHOLD, A, Matrix, N, check_certified, factored, matern, mixed
from tests.host.runs import budget_of, check_bytes
from tests.host.turns import in_turn
from tests.inside.precision import FORMATS, RULES
from tests.inside.tasks import Link
from tests.products import share_of_examples
from tests.rounding import round_to
from tests.tolerances import (
    CERTIFIED_RATIO,
    LIKELIHOOD_ERROR,
    refined_bound,
)

#: Matrices of these tests are made to be at the limit of what a format can do.
pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

#: Families whose entries may be scaled by 1e30, or in narrow formats at all.
SCALABLE = [name for name in FAMILIES if name not in ("scaled by powers of two", "scaled by 10**150")]


# matrices


# errors


#: Ragged and odd tiles, products in floats and through residues.
TILINGS = [(61, 13, "auto"), (56, 16, "residue")]


@pytest.mark.parametrize(
    ("family", "scaling", "tiling"),
    in_turn(FAMILIES, ["as it is"], TILINGS) + in_turn(SCALABLE, list(SCALINGS)[1:], TILINGS),
)
def test_every_family_is_as_accurate_as_certified(family, scaling, tiling):
    """Both rules: 66 factors in all, 312 with ``--thorough``."""
    n, nb, fp64 = tiling
    a = SCALINGS[scaling](FAMILIES[family](n))
    for threshold, rule in ((1e-2, RULES[0]), (1e-5, RULES[1]), (1e-9, RULES[0])):
        with mixed(upper_poisoned(a), threshold, nb, fp64=fp64, precision_rule=rule, memory_budget="64 MiB") as factor:
            check_certified(factor, a)


@share_of_examples(0.5)
@given(
    family=st.sampled_from(SCALABLE),
    scaling=st.sampled_from(list(SCALINGS)),
    nt=st.integers(1, 8),
    nb=st.integers(1, 24),
    ragged=st.integers(0, 23),
    decades=st.floats(-10.5, -2.0),
    rule=st.sampled_from(RULES),
    is_residue=st.booleans(),
    devices=st.sampled_from([["host:0"], ["host:0", "host:1"]]),
    tiles=st.sampled_from([3, 5, 9, 40]),
    in_file=st.booleans(),
)
def test_whatever_is_asked_the_error_is_as_certified(
    family, scaling, nt, nb, ragged, decades, rule, is_residue, devices, tiles, in_file
):
    nb = -(-nb // 16) * 16 if is_residue else nb
    a = SCALINGS[scaling](FAMILIES[family](max(1, nt * nb - ragged % nb)))
    options = {"precision_rule": rule, "devices": devices}
    options |= {"fp64": "residue", "memory_budget": "64 MiB"} if is_residue else {"tiles": tiles}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "L.ooc" if in_file else None
        with mixed(upper_poisoned(a), 10.0**decades, nb, store=store, **options) as factor:
            check_certified(factor, a)


@pytest.mark.parametrize(("family", "tiling"), in_turn(["exponential", "matern25 nugget 1e-6", "random"], [(600, 75), (577, 64)]))
def test_larger_matrices_are_as_accurate_as_certified(family, tiling):
    n, nb = tiling
    a = FAMILIES[family](n)
    for threshold in (1e-3, 1e-8):
        check_certified(mixed(a, threshold, nb, 9, devices=["host:0", "host:1"]), a)


@pytest.mark.parametrize("correlation", RANGES)
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_the_bound_of_a_covariance_matrix_is_tight(nu, correlation):
    """At most 100 times the error, at every threshold that tiles are narrow at."""
    for nugget in (1e-6, 1e-3):
        a = matern(192, nu, RANGES[correlation], nugget)
        for threshold in (1e-2, 1e-4, 1e-6, 1e-8):
            factor = mixed(a, threshold, 32)
            ratio = check_certified(factor, a)
            assert ratio <= CERTIFIED_RATIO or set(factor.formats) == {"fp64"}, (nugget, threshold, ratio)


@pytest.mark.parametrize("family", FAMILIES)
def test_where_all_tiles_are_fp64_the_factor_is_the_one_of_fp64(family):
    a = FAMILIES[family](150)
    factor = mixed(a, 1e-300, 32, strict=False)
    assert factor.formats == {"fp64": 15}
    plain = oc.cholesky(a, tile_size=32, devices="host:0", memory_budget="64 MiB", fp64="native")
    assert np.array_equal(np.asarray(factor), np.asarray(plain))


# one value


@pytest.fixture(scope="module")
def expected() -> oc.CholeskyFactor:
    """With all tiles in memory and one worker."""
    with threadpool_limits(limits=1, user_api="blas"):
        factor = factored()
    assert set(factor.formats) == set(FORMATS), "a test of all formats"
    assert set(factor.report.plan.precision.product_counts) == {"fp64", "fp32"}
    return factor


def assert_same(factor: oc.CholeskyFactor, expected: oc.CholeskyFactor) -> None:
    assert factor.arithmetic_key == expected.arithmetic_key
    assert factor.formats == expected.formats
    assert np.array_equal(np.asarray(factor), np.asarray(expected))


@pytest.mark.parametrize("threshold", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("fp64", ["auto", "residue"])
def test_every_tile_holds_what_its_format_holds(threshold, fp64):
    a = matern(208, 1.5, RANGES["weak"], 1e-4)
    factor = mixed(a, threshold, 16, fp64=fp64, memory_budget="64 MiB")
    dense, precision = np.asarray(factor), factor.report.plan.precision
    assert len(precision.counts) > 1
    for i, j in factor.grid.tiles():
        tile = dense[np.ix_(factor.grid.span(i), factor.grid.span(j))]
        before = tile.copy()
        assert round_to(tile, precision.format_of((i, j))) == 0.0
        assert np.array_equal(tile, before)


@pytest.mark.parametrize(("tiles", "devices"), in_turn([3, 4, 7, 12, 20, 36, 50], [1, 2]))
def test_the_memory_does_not_matter(expected, tiles, devices):
    assert_same(factored(tiles=tiles, devices=devices), expected)


@pytest.mark.parametrize(("policy", "devices"), in_turn(["v1", "v2", "v3", "planned"], [["host:0"], ["host:0", "host:1"]]))
def test_neither_policy_nor_store_matter(expected, tmp_path, policy, devices):
    assert_same(factored(tiles=6, policy=policy, devices=devices), expected)
    with factored(tiles=6, policy=policy, devices=devices, store=tmp_path / "L.ooc") as in_file:
        assert_same(in_file, expected)
    with oc.load(tmp_path / "L.ooc") as back:
        assert_same(back, expected)


@pytest.mark.parametrize("devices", [1, 2])
def test_the_source_does_not_matter(expected, tmp_path, devices):
    def tile(rows, cols, out, stream):
        time.sleep(1e-4)
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    np.save(tmp_path / "a.npy", A)
    for source in (oc.from_function(N, tile), np.asfortranarray(A), tmp_path / "a.npy"):
        assert_same(factored(source, tiles=9, devices=devices), expected)


def test_neither_budget_nor_store_matter_through_residues(tmp_path):
    a = matern(208, 1.5, RANGES["weak"], 1e-4)
    first = mixed(a, THRESHOLD, 16, fp64="residue", memory_budget="64 MiB")
    assert first.report.plan.moduli is not None
    for options in ({"memory_budget": "1 MB"}, {"devices": ["host:0", "host:1"]}, {"store": tmp_path / "L.ooc"}):
        with mixed(a, THRESHOLD, 16, fp64="residue", **{"memory_budget": "64 MiB"} | options) as other:
            assert_same(other, first)


def test_repeated_runs_are_the_same(expected):
    for _ in range(5):
        assert_same(factored(tiles=8, devices=2), expected)


def test_keys_of_different_maps_differ(expected):
    others = [mixed(A, threshold, NB, strict=False) for threshold in (1e-2, 1e-8, 1e-300)]
    keys = [str(sorted(factor.arithmetic_key.items())) for factor in (expected, *others)]
    assert len(set(keys)) == 4
    plain = oc.cholesky(A, tile_size=NB, devices="host:0", memory_budget="64 MiB")
    assert plain.arithmetic_key["formats"] == "fp64"


# bytes


@pytest.mark.parametrize(("policy", "tiles", "devices"), in_turn(["v1", "v3", "planned"], [5, 12, 60], [1, 2], each=3))
def test_a_link_carries_tiles_in_their_formats(tiles, devices, policy):
    report = factored(tiles=tiles, devices=devices, policy=policy).report
    precision = report.plan.precision
    check_bytes(report.plan, report.execution)
    assert report.bytes.executed == report.bytes.planned
    assert report.bytes.executed["write"] == precision.total_bytes == report.plan.stored_bytes
    assert report.bytes.executed["source"] == 8 * sum(precision.grid.entries(i, j) for i, j in precision.grid.tiles())
    fetched = [step.tile for program in report.plan.programs for step in program.steps if step.link is Link.FETCH]
    assert report.bytes.executed["fetch"] == sum(precision.stored_bytes(tile) for tile in fetched)
    assert precision.total_bytes < 0.6 * report.bytes.executed["source"]


def test_a_file_is_as_small_as_its_formats(tmp_path):
    with factored(store=tmp_path / "L.ooc") as factor:
        stored, plain = factor.report.plan.stored_bytes, 8 * sum(factor.grid.entries(i, j) for i, j in factor.grid.tiles())
        padding = 4096 * (factor.grid.n_tiles + 3)  # tiles begin at pages, behind a header and an index
        assert stored <= (tmp_path / "L.ooc").stat().st_size <= stored + padding
        assert stored < 0.6 * plain


def test_report_factor_and_plan_agree_on_formats(expected, tmp_path):
    report, plan = (
        expected.report,
        oc.plan(A, precision_threshold=THRESHOLD, tile_size=NB, devices="host:0", memory_budget=budget_of(60, N, NB)),
    )
    precision = plan.precision
    assert precision.formats == report.plan.precision.formats
    assert precision.products == report.plan.precision.products
    assert plan.to_dict()["bytes"] == report.plan.to_dict()["bytes"]
    assert precision.counts == expected.formats == report.to_dict()["formats"] == plan.to_dict()["formats"]
    assert sum(expected.formats.values()) == precision.grid.n_tiles
    rows = [line.strip() for line in str(plan).splitlines()]
    assert [row for row in precision.rows_of_text() if row not in rows] == []
    assert f"threshold {THRESHOLD:g}" in str(plan)
    assert f"certified  error at most {report.certified_bound}" in str(report)
    assert report.to_dict()["certified_bound"] == report.certified_bound.total
    assert "formats=" in repr(expected)


def test_fp64_has_no_bound_to_certify():
    report = oc.cholesky(A, tile_size=NB, devices="host:0", memory_budget="64 MiB").report
    assert report.certified_bound is None
    assert "certified" not in str(report)


# options


@pytest.mark.parametrize("threshold", [0, 1, 0.0, 1.0, -1e-3, 2.0, np.nan, np.inf])
def test_a_threshold_that_makes_no_sense_is_refused(threshold):
    for call in (lambda: oc.cholesky(A, precision_threshold=threshold), lambda: oc.plan(A, precision_threshold=threshold)):
        with pytest.raises(ValueError, match="more than 0 and less than 1"):
            call()


@pytest.mark.parametrize("threshold", ["x", True, 1j, [1e-3]])
def test_a_threshold_that_is_no_number_is_refused(threshold):
    for call in (lambda: oc.cholesky(A, precision_threshold=threshold), lambda: oc.plan(A, precision_threshold=threshold)):
        with pytest.raises(TypeError, match="precision_threshold"):
            call()


@pytest.mark.parametrize("policy", ["sync", "async"])
def test_policies_that_store_half_updated_tiles_are_refused(policy):
    for call in (
        lambda: oc.cholesky(A, precision_threshold=1e-3, policy=policy, devices="host:0"),
        lambda: oc.plan(A, precision_threshold=1e-3, policy=policy, devices="host:0"),
    ):
        with pytest.raises(ValueError, match=f"policy {policy!r} stores half-updated tiles"):
            call()


def test_an_order_is_not_enough_to_plan_formats():
    with pytest.raises(ValueError, match="norms of A's tiles"):
        oc.plan(1000, precision_threshold=1e-3)


def test_a_factor_over_its_matrix_cannot_be_mixed():
    a = np.array(A)
    with pytest.raises(ValueError, match="overwrite=True"):
        oc.cholesky(a, precision_threshold=1e-3, overwrite=True)
    assert np.array_equal(a, A, equal_nan=True)


def test_a_rule_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="precision_rule is 'golden'"):
        oc.cholesky(A, precision_threshold=1e-3, precision_rule="golden")


@pytest.mark.parametrize("place", [(0, 0), (70, 3), (120, 120), (199, 198)])
def test_a_nan_is_named(place):
    a = np.array(A)
    a[place] = np.nan
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        factored(a)
    assert (caught.value.row, caught.value.col) == place


# covariance matrices


@pytest.mark.parametrize("nu", [0.5, 8 / 9])
@pytest.mark.parametrize("correlation", RANGES)
def test_divergence_shrinks_with_the_threshold(nu, correlation):
    """The paper's KL divergence, half of the difference of log-determinants: over seeds, about as the threshold does.

    Where pivots are small, formats for a large threshold are as wide as for a small one.
    """
    thresholds = (1e-3, 1e-6, 1e-9)
    divergences = []
    for seed in range(3):
        a = matern(192, nu, RANGES[correlation], 0.0, seed)
        exact = oc.cholesky(a, tile_size=32, devices="host:0", memory_budget="64 MiB").logdet()
        divergences.append([abs(mixed(a, threshold, 32).logdet() - exact) / 2 for threshold in thresholds])
    medians = np.median(divergences, axis=0)
    assert np.all(medians <= 10.0 * np.array(thresholds)) and np.all(medians[1:] <= medians[:-1]), medians
    assert medians[-1] < 1e-5 * medians[0], medians


def log_likelihood(factor: oc.CholeskyFactor, y: Matrix) -> float:
    z = factor.half_solve(y)
    return -0.5 * float(z @ z) - 0.5 * factor.logdet() - 0.5 * len(y) * np.log(2 * np.pi)


def test_the_likelihood_of_weak_correlation_is_that_of_fp64():
    a = matern(1024, 0.5, RANGES["weak"], 0.0)
    exact = oc.cholesky(a, tile_size=128, devices="host:0", memory_budget="256 MiB")
    y = exact.matmul(np.random.default_rng(0).standard_normal(1024))
    factor = mixed(a, 1e-8, 128)
    assert len(factor.formats) > 1
    assert abs(log_likelihood(factor, y) - log_likelihood(exact, y)) <= LIKELIHOOD_ERROR


# solutions


@pytest.mark.parametrize("family", ["exponential", "matern15 nugget 1e-6", "graded down", "random"])
@pytest.mark.parametrize("threshold", [1e-2, 1e-4, 1e-6])
def test_a_refined_solution_is_as_good_as_lapacks(family, threshold):
    a = FAMILIES[family](220)
    b = np.random.default_rng(0).standard_normal((220, 3))
    factor = mixed(upper_poisoned(a), threshold, 40)
    x = factor.solve(b, refine=True)
    lapack = scipy.linalg.cho_solve((lapack_factor(a), True), b)
    assert np.all(backward_errors(a, x, b) <= refined_bound(220, backward_errors(a, lapack, b)))
    assert np.array_equal(factor.solve(b[:, 0], refine=True).shape, (220,))
    # Without refining it is as accurate as L is.
    plain = factor.solve(b)
    assert np.isfinite(plain).all()
    assert not np.array_equal(plain, x)


def test_a_loaded_factor_refines_with_the_matrix_it_is_given(tmp_path):
    a, b = matern(N, 1.5, RANGES["weak"], 1e-4), np.ones(N)
    with factored(a, store=tmp_path / "L.ooc") as factor:
        x = factor.solve(b, refine=True)
    with oc.load(tmp_path / "L.ooc") as back:
        with pytest.raises(ValueError, match="give it as a="):
            back.solve(b, refine=True)
        assert np.array_equal(back.solve(b, refine=True, a=a), x)
        with pytest.raises(ValueError, match="shape"):
            back.solve(b, refine=True, a=np.eye(N - 1))
    assert backward_errors(a, x[:, None], b[:, None]) <= refined_bound(N)
