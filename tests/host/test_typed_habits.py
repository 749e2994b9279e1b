"""NumPy's and SciPy's habits on factors in float32 and of complex matrices: each operation beside NumPy's in the same type."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg

import ooc_chol as oc
from ooc_chol import CholeskyFactor
from ooc_chol.errors import DowndateError
from tests.builders import device_solver
from tests.host.matrices import FAMILIES as REAL_FAMILIES
from tests.host.turns import in_turn
from tests.host.typed import DTYPES, matrix, with_phases
from tests.host.typed_operations import COMPLEX, PRODUCTS, SOLVES, added, check_updated, numbers, smooth
from tests.inside.dense import multiply_on_device, one_norm_estimate
from tests.inside.runtime import Pass
from tests.products import pairwise
from tests.tolerances import solve_bound, unit_roundoff

N, NB = 90, 32
EVERY = pytest.mark.parametrize("dtype", DTYPES)
#: Where L is, by name: the options of ``cholesky``.
PLACES: dict[str, dict[str, Any]] = {
    "whole": {},
    "tiles": {"tile_size": NB, "devices": "host:0"},
    "file": {"tile_size": NB, "store": "L.ooc"},
    "over A": {"tile_size": NB, "overwrite": True},
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return PLACES[request.param]


def factor_of(dtype: str, place: dict[str, Any], n: int = N) -> CholeskyFactor:
    return oc.cholesky(np.array(matrix("exponential", n, dtype)), dtype=dtype, **place)


@EVERY
def test_products_are_numpys(dtype: str, place: dict[str, Any]) -> None:
    with factor_of(dtype, place) as factor:
        dense = np.asarray(factor)
        for z in (numbers(dtype, N), numbers(dtype, N, 3), numbers("float32", N, 2)):
            kept = z.copy()
            for name, (multiply, of_dense) in PRODUCTS.items():
                product, other = multiply(factor, z), of_dense(dense)
                assert product.dtype == np.dtype(dtype) and product.shape == z.shape, name
                wrong = np.abs(product - other.astype(np.complex128) @ z)
                assert (wrong <= 2 * N * unit_roundoff(dtype) * (np.abs(other) @ np.abs(z))).all(), name
            assert np.array_equal(z, kept)


@EVERY
def test_views_have_the_entries_and_the_type(dtype: str, place: dict[str, Any]) -> None:
    with factor_of(dtype, place) as factor:
        dense, is_complex = np.asarray(factor), dtype in COMPLEX
        views = {"": factor, ".T": factor.T, ".H": factor.H, ".H.T": factor.conj()}
        for (name, view), entries in zip(views.items(), (dense, dense.T, dense.conj().T, dense.conj()), strict=True):
            assert np.array_equal(np.asarray(view), entries) and view.dtype == np.dtype(dtype)
            assert np.iscomplexobj(view) == is_complex != np.isrealobj(view)  # type: ignore[arg-type]
            assert np.array_equal(np.diag(view), dense.diagonal()) and np.diag(view).dtype == np.dtype(dtype)
            assert repr(view) == f"{factor!r}{name if is_complex else name.removesuffix('.H.T')}"
        assert factor.T.T is factor and factor.H.H is factor and (factor.conj() is factor) == (not is_complex)
        for key in (
            (slice(30, 70), slice(None, 40)),
            (5, 3),
            -1,
            (slice(None, None, 7), slice(2, 60, 3)),
            (slice(80, 10, -9), 4),
        ):
            assert np.array_equal(factor[key], dense[key]) and factor[key].dtype == np.dtype(dtype)


@EVERY
def test_solves_are_scipys_and_overwrite_when_they_may(dtype: str, place: dict[str, Any]) -> None:
    with factor_of(dtype, place) as factor:
        dense = np.asarray(factor)
        for b in (numbers(dtype, N), numbers(dtype, N, 3)):
            for name, (solve, of_dense) in SOLVES.items():
                x, system, kept = solve(factor, b), of_dense(dense), b.copy()
                assert x.dtype == np.dtype(dtype) and x.shape == b.shape and np.array_equal(b, kept), name
                wrong = np.linalg.norm(system.astype(np.complex128) @ x - b, axis=0)
                assert np.all(wrong <= solve_bound(N, float(np.linalg.norm(system)), np.linalg.norm(x, axis=0), dtype)), name
                over = solve(factor, kept, overwrite_b=True)
                assert np.shares_memory(over, kept) and np.array_equal(kept, x) and np.array_equal(over, x), name
                other = numbers("float64", N)
                assert solve(factor, other, overwrite_b=True).dtype == np.dtype(dtype)
                assert np.shares_memory(solve(factor, other, overwrite_b=True), other) is False, name


@EVERY
def test_determinants_have_numpys_form(dtype: str, place: dict[str, Any]) -> None:
    with factor_of(dtype, place) as factor:
        sign, logarithm = factor.slogdet()
        expected = np.linalg.slogdet(matrix("exponential", N, dtype).astype(np.complex128))
        assert (sign, logarithm) == (1.0, factor.logdet()) and expected.sign == pytest.approx(1.0)
        assert abs(logarithm - expected.logabsdet) <= 1e4 * unit_roundoff(dtype) * N


@EVERY
def test_one_call_solves_in_the_type(dtype: str) -> None:
    a, b = matrix("exponential", N, dtype), numbers(dtype, N, 2)
    with oc.cholesky(a, dtype=dtype) as factor:
        assert np.array_equal(oc.solve(a, b, dtype=dtype), factor.solve(b))
        assert oc.logdet(a, dtype=dtype) == factor.logdet()
    if dtype in COMPLEX:  # a complex A needs no dtype, and a real one has no complex solutions but by it
        assert oc.solve(a, b).dtype == np.complex128
        with pytest.raises(TypeError, match="real numbers up to float64"):
            oc.solve(np.eye(N), b)
        assert np.array_equal(oc.solve(np.eye(N), b, dtype=dtype), b)


# samples


@EVERY
def test_samples_are_the_mean_and_l_times_unit_normals(dtype: str, place: dict[str, Any]) -> None:
    is_complex = dtype in COMPLEX
    mean = np.arange(float(N)) * (1 - 2j if is_complex else 1)
    parts = np.random.default_rng(7).standard_normal((6, N, 2) if is_complex else (6, N))
    z = (parts[..., 0] + 1j * parts[..., 1]) / np.sqrt(2) if is_complex else parts
    with factor_of(dtype, place) as factor:
        expected = mean + z @ np.asarray(factor).T
        for size, shape in ((None, (N,)), (6, (6, N)), ((2, 3), (2, 3, N)), (0, (0, N))):
            samples = factor.sample(size, 7, mean=mean)
            assert samples.shape == shape and samples.dtype == np.dtype(dtype)
            found = samples.reshape(-1, N)
            assert np.allclose(found, expected[: len(found)], rtol=0, atol=1e3 * unit_roundoff(dtype) * N)
        if not is_complex:
            for complex_mean in (1j, np.full(N, 1j), [1j] * N):
                with pytest.raises(TypeError, match="the mean is complex"):
                    factor.sample(mean=complex_mean)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_samples_are_circular_with_covariance_a(dtype: str) -> None:
    a = np.array([[4.0, 2.0 - 1j, 1j], [2.0 + 1j, 5.0, 0.5], [-1j, 0.5, 1.0]])
    count = 200_000
    samples = oc.cholesky(a, dtype=dtype).sample(count, 11).astype(np.complex128)
    errors = np.sqrt(np.outer(a.diagonal().real, a.diagonal().real) / count)  # the standard errors of |s_i s_j|
    assert (np.abs(samples.T @ samples.conj() / count - a) <= 5 * errors).all()
    assert (np.abs(samples.T @ samples / count) <= 5 * np.sqrt(2) * errors).all()


# condition


@pytest.mark.parametrize(
    ("dtype", "family", "place"),
    pairwise(DTYPES, ["exponential", "scaled by powers of two"], list(PLACES)),
    indirect=["place"],
)
def test_the_condition_number_is_lapacks(dtype: str, family: str, place: dict[str, Any]) -> None:
    a = matrix(family, N, dtype)
    with oc.cholesky(np.array(a), dtype=dtype, **place) as factor:
        found, equilibrated = factor.cond(), factor.cond(equilibrated=True)
    pocon = scipy.linalg.get_lapack_funcs("pocon", (a,))
    wide = np.tril(a, -1).astype(np.complex128)
    wide = wide + wide.conj().T + np.diag(a.diagonal().real)
    exact, roots = np.linalg.cond(wide, 1), np.sqrt(a.diagonal().real.astype(float))
    scaled = np.linalg.cond(wide / np.outer(roots, roots), 1)
    for norm, estimate in ((exact, found), (scaled, equilibrated)):
        assert norm / 3 <= estimate <= norm * (1 + 100 * N * unit_roundoff(dtype) * scaled)
    if family == "exponential":
        rcond, info = pocon(np.asarray(scipy.linalg.cholesky(a, lower=True)), np.linalg.norm(a, 1), uplo="L")
        assert info == 0 and 1 / 3 <= found * rcond <= 3


@pytest.mark.parametrize("seed", range(30))
def test_the_norm_estimate_of_complex_matrices_is_a_lower_bound(seed: int) -> None:
    g = numbers("complex128", seed + 1, seed + 1, seed=seed)
    hermitian = g + g.conj().T
    exact = np.linalg.norm(hermitian, 1)
    assert exact / 3 <= one_norm_estimate(lambda x: hermitian @ x, len(g)) <= exact * (1 + 1e-12)


@EVERY
def test_the_first_solve_warns_by_the_roundoff_of_the_type(dtype: str, place: dict[str, Any]) -> None:
    n, u = 200, unit_roundoff(dtype)
    x = numbers(dtype, n)
    a = smooth(n, 1e3 * u, dtype)
    hermitian = np.tril(a) + np.tril(a, -1).conj().T
    with oc.cholesky(a.copy(), dtype=dtype, **place) as factor:
        b = (hermitian.astype(np.result_type(dtype, float)) @ x).astype(dtype)
        with pytest.warns(scipy.linalg.LinAlgWarning, match=f"digits? of a solution in {dtype} can be expected") as caught:
            found = factor.solve(b)
        assert [warning.filename for warning in caught] == [__file__]
        assert np.array_equal(factor.solve(b), found)  # once: warnings are errors here
    assert 1e-5 < np.linalg.norm(found - x) / np.linalg.norm(x) < 0.5
    if dtype == "complex128":
        return
    with warnings.catch_warnings():  # what float32 cannot solve, double precision can
        warnings.simplefilter("error")
        double = "complex128" if dtype in COMPLEX else "float64"
        oc.cholesky(a.astype(double), dtype=double, devices="host:0").solve(b)


@pytest.mark.parametrize(("place", "dtype", "scale"), in_turn(PLACES, DTYPES, [1.0, 1e15, 1e-15], each=3), indirect=["place"])
def test_what_is_well_conditioned_does_not_warn(dtype: str, scale: float, place: dict[str, Any]) -> None:
    a = (scale * scale * matrix("exponential", N, dtype).astype("complex128" if dtype in COMPLEX else float)).astype(dtype)
    with oc.cholesky(a, dtype=dtype, **place) as factor:
        factor.solve(np.full(N, scale))


# updates


@pytest.mark.parametrize(("place", "dtype", "columns"), in_turn(PLACES, DTYPES, [1, 5, 40], each=3), indirect=["place"])
def test_updates_are_as_right_as_factorizations(dtype: str, columns: int, place: dict[str, Any], tmp_path: Any) -> None:
    v = numbers(dtype, N, columns)
    kept = v.copy()
    with factor_of(dtype, place) as factor:
        dense = np.asarray(factor)
        wide = added(np.zeros((N, N), dtype), dense, 1)
        larger = added(wide, v, 1)
        scale = larger.diagonal().real.astype(float)
        for store in (None, tmp_path / "larger.ooc"):
            with factor.update(v, store=store) as updated:
                check_updated(updated, larger, scale, dtype)
                assert updated.formats == factor.formats
                with updated.downdate(v) as again:
                    check_updated(again, wide, scale, dtype)
        with oc.load(tmp_path / "larger.ooc") as loaded:
            check_updated(loaded, larger, scale, dtype)
        assert np.array_equal(np.asarray(factor), dense) and np.array_equal(v, kept)
        if "store" not in place:
            over = factor.update(v, overwrite=True)
            assert factor.closed
            check_updated(over, larger, scale, dtype)
            check_updated(over.downdate(v, overwrite=True), wide, scale, dtype)


@EVERY
def test_downdates_that_leave_nothing_are_refused(dtype: str, place: dict[str, Any]) -> None:
    with factor_of(dtype, place) as factor:
        dense = np.asarray(factor)
        v = (dense[:, 40] * (1j if dtype in COMPLEX else 1) * 1.5).astype(dtype)
        for overwrite in (False, True) if "store" not in place else (False,):
            with pytest.raises(DowndateError) as caught:
                factor.downdate(v, overwrite=overwrite)
            assert caught.value.minor == 41 and np.array_equal(np.asarray(factor), dense)


def test_complex_updates_need_a_complex_factor() -> None:
    for dtype in ("float64", "float32"):
        with oc.cholesky(np.eye(4), dtype=dtype) as factor, pytest.raises(TypeError, match="real numbers up to float64"):
            factor.update(1j * np.ones(4))
    with oc.cholesky(np.eye(4), dtype="complex64") as factor, factor.update(np.ones(4)) as real:
        assert np.allclose(np.asarray(real @ (real.H @ np.eye(4))), np.eye(4) + 1)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_hard_covariances_are_updated_as_well_as_factored(dtype: str) -> None:
    a = with_phases(REAL_FAMILIES["matern15 nugget 1e-6"](257) + 100 * 257 * unit_roundoff(dtype) * np.eye(257)).astype(dtype)
    v = numbers(dtype, 257, 3)
    with oc.cholesky(a, dtype=dtype, tile_size=64, devices="host:0") as factor:
        larger = added(a, v, 1)
        updated = factor.update(v)
        check_updated(updated, larger, larger.diagonal().real.astype(float), dtype)
        check_updated(updated.downdate(v), a, larger.diagonal().real.astype(float), dtype)


# on a device


@EVERY
@pytest.mark.parametrize("transposed", [False, True])
def test_products_on_a_device_are_with_the_adjoint(dtype: str, transposed: bool) -> None:
    with factor_of(dtype, PLACES["tiles"]) as factor:
        store, z = factor._store, numbers(dtype, N, 7)
        solver = device_solver("host:0", 40 * 4096 * z.itemsize + 40 * -(-z.itemsize * NB * NB // 4096) * 4096)
        product = multiply_on_device(solver, store, z, Pass(""), transposed=transposed)  # type: ignore[arg-type]
        dense = np.asarray(factor).conj().T if transposed else np.asarray(factor)
        wrong = np.abs(product - dense.astype(np.complex128) @ z)
        assert (wrong <= 2 * N * unit_roundoff(dtype) * (np.abs(dense) @ np.abs(z))).all()
