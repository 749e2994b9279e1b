"""Chebyshev filters: what they are, when one is taken, and that pairs are those without it."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import ooc_chol as oc
from ooc_chol import Precision
from tests.few_eigenvalues import complete, copies
from tests.inside.eigen import (
    DEFAULT_TOL,
    ChebyshevFilter,
    FilteredSpace,
    Lanczos,
    OperatorSpace,
    Ritz,
    Wanted,
    chosen_filter,
    lanczos,
)
from tests.inside.tasks import CHUNK_ROWS

HOST = {"devices": "host:0"}


def chebyshev(degree, x):
    return np.polynomial.chebyshev.Chebyshev.basis(degree)(x)


def grid(width, height):
    """The adjacency of a grid, whose lowest Laplacian eigenvalues are close together."""
    lines = [scipy.sparse.diags_array([np.ones(m - 1), np.ones(m - 1)], offsets=[-1, 1]) for m in (width, height)]
    return scipy.sparse.kronsum(*lines).tocsr()


def grid_eigenvalues(width, height, count):
    one, other = (2 - 2 * np.cos(np.pi * np.arange(m) / m) for m in (width, height))
    return np.sort((one[:, None] + other).ravel())[:count]


@pytest.mark.parametrize("block", [1, 2])
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7])
def test_a_product_of_a_filtered_space_is_one_with_the_polynomial(degree, block):
    d = np.linspace(-1.0, 3.0, 50)
    space = OperatorSpace(lambda x: d[:, None] * x, 50, block=block, capacity=6)
    filtered = FilteredSpace(space, ChebyshevFilter(degree, center=0.5, half=-1.25, panels=4))
    filtered.fill(1)
    filtered.orthonormalize(0, "R", range(0))
    x = filtered.take(range(1))
    filtered.product(0)
    filtered.store(1)
    np.testing.assert_allclose(filtered.take(range(1, 2)), chebyshev(degree, (d - 0.5) / -1.25)[:, None] * x, atol=1e-13)
    assert np.array_equal(filtered.take(range(1)), x) and filtered.passes == degree


@pytest.mark.parametrize("half", [2.0, -2.0])
def test_eigenvalues_and_slopes_of_a_filter(half):
    found = ChebyshevFilter(5, center=1.0, half=half, panels=9)
    w = 1.0 + half * np.array([1.5, 1.1, 1.0001, 0.3])
    p = chebyshev(5, (w - 1.0) / half)
    np.testing.assert_allclose(found.values(p)[:3], w[:3], rtol=1e-12)
    step = 1e-6
    slopes = (chebyshev(5, (w[:2] + step - 1.0) / half) - chebyshev(5, (w[:2] - step - 1.0) / half)) / (2 * step)
    np.testing.assert_allclose(found.slopes(p)[:2], np.abs(slopes), rtol=1e-6)
    assert found.slopes(p)[3] == 0.0 and found.values(p)[3] == pytest.approx(1.0 + half)


def ritz(values):
    values = np.asarray(values, dtype=float)
    return Ritz(values, np.zeros((len(values), len(values))), np.full(len(values), 1e-3))


def test_a_filter_is_taken_where_wanted_eigenvalues_are_close_together():
    close = 1 - 1e-4 * np.arange(60) ** 1.5
    found = chosen_filter(ritz(close), Wanted(4, "LA", 1e-8), 1, 62)
    assert found.degree >= 6 and found.center + found.half == pytest.approx(close[4])
    assert found.center - found.half == pytest.approx(close[-1] - 1e-3)
    mirrored = chosen_filter(ritz(-close), Wanted(4, "SA", 1e-8), 1, 62)
    assert (mirrored.degree, mirrored.center, mirrored.half) == (found.degree, -found.center, -found.half)
    assert chosen_filter(ritz(close), Wanted(4, "LM", 1e-8), 1, 62) is None
    assert chosen_filter(ritz(close), Wanted(4, "LA", 1e-8), 1, 62, 1) is None
    assert chosen_filter(ritz(close), Wanted(4, "LA", 1e-8), 1, 9) is None  # no room
    assert chosen_filter(ritz([9, 8, 7, 6, *np.linspace(1, -1, 56)]), Wanted(4, "LA", 1e-8), 1, 62) is None
    # Beside an eigenvalue of a million times the others' distance, roundoff of its powers would drown them.
    assert chosen_filter(ritz([1e4, *close]), Wanted(4, "LA", 1e-8), 1, 62) is None
    # Nor is a degree taken of which its values would overflow.
    assert chosen_filter(ritz([1e4, *close]), Wanted(4, "LA", 1e-8), 1, 62, 64, 1e16).degree == 2
    assert chosen_filter(ritz([1e9, *close]), Wanted(4, "LA", 1e-8), 1, 62, 64, 1e16) is None


@pytest.mark.parametrize(("outlier", "precision", "degree"), [(1e6, "DDD", 64), (1e3, "FFF", 20), (1e3, "FDF", 64)])
def test_beside_an_outlier_no_filter_overflows(outlier, precision, degree):
    """It was called an A that holds NaN."""
    d = np.r_[np.linspace(0.0, 1.0, 1500), outlier]
    pairs = oc.eigsh(scipy.sparse.diags_array(d).tocsr(), 5, which="LA", degree=degree, precision=precision, **HOST)
    assert np.abs(np.sort(pairs.eigenvalues) - np.sort(d)[-5:]).max() <= DEFAULT_TOL[oc.Precision(precision)] * outlier


@pytest.mark.parametrize("block", [1, 8])
def test_a_filter_of_an_interval_of_roundoff_is_none(block):
    """Wanted are copies on both sides of its end, and NumPy said that cosh overflows."""
    made = copies(complete(30), 20)
    pairs = oc.eigsh(made.a, 30, which="LA", degree=None, block=block, **HOST)
    np.testing.assert_allclose(np.sort(pairs.eigenvalues), np.repeat([-1.0, 29.0], [10, 20]), atol=1e-9 * 29)


@pytest.mark.parametrize(("precision", "tol"), [("DDD", 1e-9), ("FDF", 1e-6)])
@pytest.mark.parametrize("block", [1, 4])
def test_the_lowest_pairs_of_a_grid(block, precision, tol):
    width, height = (73, 67) if precision == "DDD" else (83, 79)
    with oc.block_csr(grid(width, height)) as packed:
        laplacian = oc.laplacian(packed)
        options = {"which": "SA", "precision": precision, "tol": tol, "block": block, "ncv": 60, **HOST}
        pairs = oc.eigsh(laplacian, 5, degree=8 if block == 1 else None, **options)
        plain = oc.eigsh(laplacian, 5, **options)
    assert pairs.report.degree >= 6 and plain.report.degree == 1
    assert f"a Chebyshev filter of degree {pairs.report.degree}" in str(pairs.report)
    assert pairs.residuals.max() <= tol and pairs.report.restarts < plain.report.restarts
    np.testing.assert_allclose(pairs.eigenvalues, grid_eigenvalues(width, height, 5), atol=20 * tol)
    assert pairs.report.bytes.executed == pairs.report.bytes.planned


def test_a_degree_that_is_asked_for_is_taken():
    a = aslinearoperator(scipy.sparse.diags_array(np.linspace(0.0, 1.0, 900) ** 2))
    pairs = oc.eigsh(a, 3, which="SA", degree=4, ncv=40, tol=1e-8)
    assert pairs.report.degree == 4
    np.testing.assert_allclose(pairs.eigenvalues, (np.arange(3) / 899) ** 2, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        {"which": "LM", "degree": 4},
        {"which": "SA", "degree": 4, "method": "lobpcg"},
        {"degree": 4, "sigma": 0.5},
        {"which": "LA", "degree": 0},
    ],
)
def test_filters_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match="degree"):
        oc.eigsh(np.diag(np.arange(1.0, 201.0)), 3, **options)
    with pytest.raises(TypeError, match="degree"):
        oc.eigsh(np.diag(np.arange(1.0, 201.0)), 3, which="LA", degree=2.5)


def test_a_filter_that_damps_what_is_wanted_is_given_up(monkeypatch):
    """The run goes on with A, to the right pairs."""
    wrong = ChebyshevFilter(8, center=0.0, half=-5.0, panels=12)
    monkeypatch.setattr(lanczos, "chosen_filter", lambda *_: wrong)
    d = np.linspace(-1.0, 3.0, 400)
    space = OperatorSpace(lambda x: d[:, None] * x, 400, block=1, capacity=31)
    run = Lanczos(space, Wanted(3, "SA", 1e-8), max_passes=5000, degree=None)
    found = run.run()
    assert run.filter is None and not found.why_not and run.counts.degree == 8
    np.testing.assert_allclose(np.sort(found.values), d[:3], atol=1e-8)


def test_a_filtered_run_taken_up_at_a_restart_ends_with_the_same_bits(tmp_path):
    with oc.block_csr(grid(73, 67)) as packed:
        laplacian = oc.laplacian(packed)
        options = {"which": "SA", "precision": "FDF", "tol": 1e-6, "block": 2, "ncv": 40, "degree": None, **HOST}
        whole = oc.eigsh(laplacian, 5, **options)
        assert whole.report.degree >= 6
        for most in (20, 40, whole.report.passes - 10):
            path = tmp_path / f"{most}"
            with pytest.raises(oc.errors.NoConvergenceError):
                oc.eigsh(laplacian, 5, max_passes=most, checkpoint=path, **options)
            again = oc.eigsh(laplacian, 5, checkpoint=path, **options)
            assert again.report.resumed and np.array_equal(again.eigenvectors, whole.eigenvectors) == (most <= 40)
            np.testing.assert_allclose(again.eigenvalues, whole.eigenvalues, atol=1e-5)
        with pytest.raises(oc.errors.CheckpointError, match="degree"):
            oc.eigsh(laplacian, 5, checkpoint=tmp_path / "20", **(options | {"degree": 1}))


@pytest.mark.usefixtures("long")
def test_several_devices_give_the_bits_of_one():
    n = 3 * CHUNK_ROWS
    d = np.concatenate([np.linspace(0.0, 0.3, 20), np.linspace(0.4, 1.0, n - 20)])
    noise = scipy.sparse.diags_array([np.full(n - 1, 1e-3)] * 2, offsets=[-1, 1])
    with oc.block_csr(scipy.sparse.diags_array(d) + noise, block_bytes="1 MiB") as packed:
        options = {"which": "SA", "precision": "FDF", "tol": 1e-5, "block": 2, "ncv": 30, "degree": 8, "check": False}
        one = oc.eigsh(packed, 3, devices="host:0", **options)
        several = oc.eigsh(packed, 3, devices="host:0,host:1,host:2", **options)
    assert several.report.degree == 8 and len(several.report.bytes.executed) == 3
    assert np.array_equal(one.eigenvalues, several.eigenvalues) and np.array_equal(one.eigenvectors, several.eigenvectors)


def test_a_cycle_of_a_polynomial_ends_where_residuals_will_do():
    """Its tolerance tells how many products it takes, and all pairs are certified at the first attempt."""
    passes = []
    with oc.block_csr(grid(73, 67)) as packed:
        for tol in (1e-4, 1e-10):
            found = oc.eigsh(oc.laplacian(packed), 5, which="SA", tol=tol, block=4, degree=20, check=False, **HOST)
            assert found.report.counts.restarts == 2 and found.residuals.max() <= tol
            passes.append(found.report.passes)
    assert passes[0] + 3 * 20 <= passes[1]


def test_steps_of_the_recurrence_are_rounded_once():
    d = np.linspace(0.0, 1.0, 33).astype(np.float32)
    space = OperatorSpace(lambda x: d[:, None] * x, 33, block=1, capacity=4, precision=Precision.FDF)
    for panel, seed in enumerate((1, 2)):
        space.fill(seed)
        space.store(panel)
    x, before = (space.take(range(panel, panel + 1)) for panel in (0, 1))
    space.recur(0, 1, 1, center=0.25, half=0.5)
    product = (d[:, None] * x.astype(np.float32)).astype(np.float64)
    expected = (4.0 * (product - 0.25 * x) - before).astype(np.float32)
    np.testing.assert_allclose(space.take(range(1, 2)), expected, rtol=2e-7, atol=1e-7)
