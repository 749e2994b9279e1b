"""Eigenvalues and singular values of matrices of any scale that float64 has: a power of two changes no digit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, splu

import ooc_chol as oc
from tests.tolerances import unit_roundoff

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack", "one_blas_thread")]

HOST = {"devices": "host:0"}
#: Powers of two about those where squares, or their roundoff, underflow or overflow, and the ends of float64.
POWERS = [-1062, -1030, -1000, -660, -540, -450, -330, -200, 0, 200, 330, 500, 660, 1000, 1014]
N = 150
U = unit_roundoff(np.float64)


def tridiagonal(power: int):
    """-1, 2, -1, whose eigenvalues are known, times a power of two: exact, denormal numbers too."""
    entries = [np.full(N - 1, -np.ldexp(1.0, power)), np.full(N, np.ldexp(2.0, power)), np.full(N - 1, -np.ldexp(1.0, power))]
    return scipy.sparse.diags_array(entries, offsets=[-1, 0, 1]).tocsr()


VALUES = 2 - 2 * np.cos(np.pi * np.arange(1, N + 1) / (N + 1))


def solver(power: int, sigma: float):
    """Of the matrix times the power, by the factor of that times 1, in two steps so that nothing overflows."""
    solve = splu((tridiagonal(0) - sigma * scipy.sparse.eye_array(N)).tocsc()).solve
    return lambda x: np.ldexp(solve(np.ldexp(x, -(power // 2))), power // 2 - power)


WAYS = {
    "Lanczos": lambda a, power: oc.eigsh(a, 3, which="LA", **HOST),
    "filtered": lambda a, power: oc.eigsh(a, 3, which="LA", degree=None, **HOST),
    "LAPACK": lambda a, power: oc.eigsh(a, 3, ncv=N, **HOST),
    "array": lambda a, power: oc.eigsh(a.toarray(), 3),
    "operator": lambda a, power: oc.eigsh(aslinearoperator(a), 3),
    "LOBPCG": lambda a, power: oc.eigsh(a, 3, which="LA", method="lobpcg", **HOST),
    "sigma": lambda a, power: oc.eigsh(a, 3, sigma=np.ldexp(4.5, power), **HOST),
    "sigma of few rows": lambda a, power: oc.eigsh(a, 3, sigma=np.ldexp(4.5, power), ncv=N, **HOST),
    "M": lambda a, power: oc.eigsh(a, 3, M=scipy.sparse.eye_array(N, format="csr"), **HOST),
    "M and sigma": lambda a, power: oc.eigsh(a, 3, M=scipy.sparse.eye_array(N, format="csr"), sigma=np.ldexp(4.5, power), **HOST),
    "OPinv": lambda a, power: oc.eigsh(aslinearoperator(a), 3, sigma=np.ldexp(4.5, power), OPinv=solver(power, 4.5)),
    "svds": lambda a, power: oc.svds(a, 3, **HOST),
    "svds of an operator": lambda a, power: oc.svds(aslinearoperator(a), 3),
    "svds by LAPACK": lambda a, power: oc.svds(a.toarray(), 3, ncv=N, **HOST),
}


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("way", WAYS)
def test_values_scale_with_the_matrix(way, power):
    found = WAYS[way](tridiagonal(power), power)
    values = found.s if way.startswith("svds") else found.eigenvalues
    exact = np.ldexp(VALUES[-3:], power)
    half = np.ldexp(0.5, -1074)  # what rounding to a denormal number leaves
    assert np.all(np.abs(values - exact) <= 1e-11 * exact + half)
    assert 0 < found.residuals.max() <= 1e-10


@pytest.mark.parametrize("power", [-1030, -700, 0, 700, 1010])
def test_the_lowest_scale_with_the_matrix_beside_any_preconditioner(power):
    a = tridiagonal(power)
    for given in (0, -power):  # an inverse of the matrix, or of that times 1
        if given > 1000:
            continue
        inverse = np.ldexp(np.linalg.inv(tridiagonal(0).toarray()), given)
        for preconditioner in (inverse, np.full(N, np.ldexp(0.5, given))):
            pairs = oc.eigsh(a, 2, which="SA", preconditioner=preconditioner, tol=1e-8, **HOST)
            assert np.abs(np.ldexp(pairs.eigenvalues, -power) - VALUES[:2]).max() <= 1e-7


@pytest.mark.parametrize("power", [-700, -80, 80, 700])
@pytest.mark.parametrize("precision", ["FFF", "FDF"])
def test_vectors_of_float32_hold_any_scale(precision, power):
    a = tridiagonal(power)
    bound = 1e-5 * np.ldexp(4.0, power)
    for found in (oc.eigsh(a, 3, precision=precision, **HOST).eigenvalues, oc.svds(a, 3, precision=precision, **HOST).s):
        assert np.abs(found - np.ldexp(VALUES[-3:], power)).max() <= bound
    found = oc.eigsh(a.toarray(), 3, precision=precision).eigenvalues
    assert np.abs(found - np.ldexp(VALUES[-3:], power)).max() <= bound


@pytest.mark.parametrize("power", [-1000, -540, 700])
def test_rectangles_of_any_scale(power):
    a = scipy.sparse.random_array((300, 200), density=0.1, rng=1).tocsr()
    exact = np.linalg.svd(a.toarray(), compute_uv=False)[2::-1]
    a.data = np.ldexp(a.data, power)
    for given in (a, a.T.tocsr(), aslinearoperator(a)):
        u, s, vt = triplets = oc.svds(given, 3, **HOST)
        assert np.abs(np.ldexp(s, -power) / exact - 1).max() <= 1e-12
        assert 0 < triplets.residuals.max() <= 1e-10
        assert np.abs(u.T @ u - np.eye(3)).max() <= 1e-12 >= np.abs(vt @ vt.T - np.eye(3)).max()


@pytest.mark.parametrize("power", [-700, 0, 700])
def test_operators_with_diagonals_scale_too(power):
    with oc.block_csr(tridiagonal(0)) as packed:
        operator = oc.Operator(packed, left=np.ldexp(1.0, power), shift=np.ldexp(1.0, power))
        pairs = oc.eigsh(operator, 3, which="LA", **HOST)
    assert np.abs(np.ldexp(pairs.eigenvalues, -power) - 1 - VALUES[-3:]).max() <= 1e-11
    assert pairs.report.scale == pytest.approx(np.ldexp(1 + VALUES[-1], power), rel=1e-9)
    assert np.array_equal(pairs.report.eigenvalues, pairs.eigenvalues)


@pytest.mark.parametrize("power", [-1000, -531, -440, 440, 531, 1000])
@pytest.mark.parametrize("precision", ["FFF", "FDF"])
def test_products_that_are_zero_in_float32_are_scaled(precision, power):
    n = 700
    a = scipy.sparse.diags_array(np.ldexp([-1.0, 2.0, -1.0], power), offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    pairs = oc.eigsh(a, 3, which="LA", precision=precision, tol=1e-4, **HOST)
    exact = 2 - 2 * np.cos(np.pi * np.arange(n - 2, n + 1) / (n + 1))
    assert np.abs(np.ldexp(pairs.eigenvalues, -power) - exact).max() <= 4e-4


@pytest.mark.parametrize("power", [-700, 700])
def test_pairs_of_an_error_are_of_the_callers_scale(power):
    values = np.geomspace(1e-3, 1.0, N)
    with pytest.raises(oc.errors.NoConvergenceError) as told:
        oc.eigsh(scipy.sparse.diags_array(np.ldexp(values, power)).tocsr(), 12, ncv=24, max_passes=42, block=1, **HOST)
    found = np.ldexp(told.value.eigenvalues, -power)
    assert 0 < len(found) < 12
    assert np.abs(found[:, None] - values).min(axis=1).max() <= 1e-8


def test_zeros_are_zeros():
    zero = scipy.sparse.csr_array((N, N))
    for given in (zero, zero.toarray(), aslinearoperator(zero)):
        assert not oc.eigsh(given, 3).eigenvalues.any()
        assert not oc.eigsh(given, 3, which="SA", method="lobpcg").eigenvalues.any()
        assert not oc.svds(given, 3).s.any()
    for sigma in (0.0, 1.0):
        assert not oc.eigsh(zero, 3, sigma=sigma, **HOST).eigenvalues.any()


def test_a_checkpoint_of_what_has_to_be_scaled_is_refused_with_the_power(tmp_path):
    with pytest.raises(ValueError, match=r"give A times 2\^(69|70)\d") as told:
        oc.eigsh(tridiagonal(-700), 3, checkpoint=tmp_path / "run.ooceig", **HOST)
    power = int(str(told.value).split("give A times 2^")[1].split(",")[0])
    pairs = oc.eigsh(tridiagonal(power - 700), 3, checkpoint=tmp_path / "run.ooceig", **HOST)  # what is advised helps
    assert np.abs(np.ldexp(pairs.eigenvalues, 700 - power) / VALUES[-3:] - 1).max() <= 1e-11


def test_ordinary_matrices_take_no_product_more():
    a, calls = tridiagonal(0), []
    operator = LinearOperator(a.shape, matmat=lambda x: calls.append(1) or a @ x, matvec=lambda x: a @ x, dtype=float)
    report = oc.eigsh(operator, 3).report
    assert len(calls) == report.passes + report.certificate_passes + sum(each.passes for each in report.checks)


@pytest.mark.parametrize("ncv", [None, N])
@pytest.mark.parametrize(("power", "sigma"), [(-700, 1.0), (-1000, 1e300), (700, -1e308), (0, 1e17)])
def test_what_is_said_of_a_sigma_is_of_the_callers_scale(ncv, power, sigma):
    with pytest.raises(ValueError, match=r"sigma is too far away: A has eigenvalues of about \S+ at most") as told:
        oc.eigsh(tridiagonal(power), 3, sigma=sigma, ncv=ncv, **HOST)
    most = float(str(told.value).split("about ")[1].split()[0])
    assert np.ldexp(2.0, power) <= most <= np.ldexp(4.004, power)


@pytest.mark.parametrize("power", [-700, 700])
def test_an_inverse_of_another_sigma_is_refused_in_the_callers_scale(power):
    sigma = float(np.ldexp(4.5, power))
    with pytest.raises(ValueError, match=f"OPinv does not solve with A - sigma I, sigma = {sigma!r}: ".replace("+", r"\+")):
        oc.eigsh(aslinearoperator(tridiagonal(power)), 3, sigma=sigma, OPinv=solver(power, 4.7))
