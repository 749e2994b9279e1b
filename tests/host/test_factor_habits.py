"""NumPy's and SciPy's habits on a factor: operators, shapes, indices, samples, condition; nothing becomes dense by accident."""

from __future__ import annotations

import copy
import math
import pickle
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol import CholeskyFactor
from ooc_chol.errors import TierError
from tests.builders import device_solver
from tests.host.device_solves import SHAPES, budget_for, stored
from tests.host.matrices import FAMILIES
from tests.host.stored_factors import STORES, factor_in, lapack_factor, random_spd
from tests.inside.dense import conditioning, load, one_norm_estimate
from tests.tolerances import product_bound

every_store = pytest.mark.parametrize("kind", STORES)


@pytest.fixture
def l_dense() -> NDArray[np.float64]:
    return lapack_factor(random_spd(50, seed=1))


@pytest.fixture
def factor(tmp_path: Path, l_dense: NDArray[np.float64]) -> CholeskyFactor:
    """A factor of order 50 in memory."""
    return factor_in("memory", l_dense, 16, tmp_path)


# products


@every_store
def test_operators_multiply_by_l_and_its_transpose(kind: str, tmp_path: Path, l_dense: NDArray[np.float64]) -> None:
    rng = np.random.default_rng(0)
    with factor_in(kind, l_dense, 16, tmp_path) as factor:
        for z in (rng.standard_normal(50), rng.standard_normal((50, 3)), np.empty((50, 0))):
            for operator, dense in ((factor, l_dense), (factor.T, l_dense.T)):
                columns = z.reshape(50, -1)
                long = columns.astype(np.longdouble)
                right, left = operator @ z, z.T @ operator
                assert right.shape == z.shape and left.shape == z.T.shape
                error = np.abs(right.reshape(50, -1) - dense.astype(np.longdouble) @ long)
                assert (error <= product_bound(dense, columns)).all()
                error = np.abs(left.T.reshape(50, -1) - dense.T.astype(np.longdouble) @ long)
                assert (error <= product_bound(dense.T, columns)).all()
        b = rng.standard_normal(50)
        assert np.array_equal(factor @ b, factor.matmul(b)) and np.array_equal(factor.T @ b, factor.matmul(b, transposed=True))
        assert np.array_equal(factor @ b.tolist(), factor @ b) and np.array_equal(b.tolist() @ factor, b @ factor)
        assert np.array_equal(np.dot(factor, b), factor @ b) and np.array_equal(np.dot(b, factor), b @ factor)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposed_products_on_a_device(shape: tuple[int, int, int], tmp_path: Path) -> None:
    from tests.inside.dense import multiply_on_device
    from tests.inside.runtime import Pass

    n, nb, columns = shape
    a, store = stored("file", n, nb, tmp_path)
    z = np.random.default_rng(1).standard_normal((n, min(columns, 9)))
    solver = device_solver("host:0", 2 * budget_for("host:0", store, columns))
    product = multiply_on_device(solver, store, z, Pass(""), transposed=True)
    store.close()
    dense = lapack_factor(a)
    assert (np.abs(product - dense.T.astype(np.longdouble) @ z) <= product_bound(dense.T, z)).all()


def test_shapes_are_those_of_a_matrix(factor: CholeskyFactor, l_dense: NDArray[np.float64]) -> None:
    for each in (factor, factor.T):
        assert (each.shape, each.ndim, each.size, len(each), each.dtype) == ((50, 50), 2, 2500, 50, np.float64)
        assert (np.shape(each), np.ndim(each), np.size(each), np.size(each, 1)) == ((50, 50), 2, 2500, 50)
        assert bool(each)
        assert np.array_equal(np.diag(each), l_dense.diagonal()) and np.array_equal(np.diagonal(each), l_dense.diagonal())
        for same in (np.diag(each, 0), np.diag(each, k=0), np.diagonal(each, 0, 1, 0), np.diagonal(each, offset=0)):
            assert np.array_equal(same, l_dense.diagonal())
        for other in (lambda a: np.diag(a, 1), lambda a: np.diag(a, k=-1), lambda a: np.diagonal(a, offset=1)):
            with pytest.raises(TypeError, match="the main diagonal alone"):
                other(each)
    assert np.transpose(factor, (0, 1)) is factor and np.array_equal(np.asarray(np.transpose(factor, (1, 0))), l_dense.T)
    assert factor.T.T is factor and isinstance(factor.T, tb.TransposedFactor) and np.transpose(factor.T) is factor
    assert np.array_equal(np.asarray(factor.T), l_dense.T) and np.array_equal(np.asarray(factor.mT), l_dense.T)
    assert repr(factor.T) == f"{factor!r}.T"


def test_scipy_takes_a_factor_for_an_operator(factor: CholeskyFactor, l_dense: NDArray[np.float64]) -> None:
    columns = np.random.default_rng(2).standard_normal((50, 4))
    for each, dense in ((factor, l_dense), (factor.T, l_dense.T)):
        operator = scipy.sparse.linalg.aslinearoperator(each)
        assert operator.shape == (50, 50) and operator.dtype == np.float64
        for product, expected in (
            (operator @ columns[:, 0], dense @ columns[:, 0]),
            (operator @ columns, dense @ columns),
            (operator.H @ columns, dense.T @ columns),
            (operator.T @ columns[:, 1], dense.T @ columns[:, 1]),
            (each.matmat(columns), dense @ columns),
            (each.rmatmat(columns), dense.T @ columns),
        ):
            assert np.allclose(product, expected, rtol=0, atol=1e-13)
    largest = scipy.sparse.linalg.svds(scipy.sparse.linalg.aslinearoperator(factor), k=1, return_singular_vectors=False)
    assert largest[0] == pytest.approx(np.linalg.norm(l_dense, 2))


ACCIDENTS: dict[str, Callable[[CholeskyFactor, Any], Any]] = {
    "L @ b": lambda factor, b: factor @ b,
    "L.T @ b": lambda factor, b: factor.T @ b,
    "b @ L": lambda factor, b: b @ factor,
    "b @ L.T": lambda factor, b: b @ factor.T,
    "np.dot": lambda factor, b: np.dot(factor, b),
    "aslinearoperator": lambda factor, b: scipy.sparse.linalg.aslinearoperator(factor) @ b,
    "sample": lambda factor, b: factor.sample(rng=1),
    "solve_triangular": lambda factor, b: factor.solve_triangular(b, trans="T"),
    "slogdet": lambda factor, b: factor.slogdet(),
    "cond": lambda factor, b: factor.cond(),
    "rows": lambda factor, b: factor[3:5],
    "copy": lambda factor, b: copy.copy(factor).close(),
}
REFUSED: dict[str, Callable[[CholeskyFactor, Any], Any]] = {
    "L @ L": lambda factor, b: factor @ factor,
    "L @ L.T": lambda factor, b: factor @ factor.T,
    "L.T @ L": lambda factor, b: factor.T @ factor,
    "solve(L)": lambda factor, b: factor.solve(factor),
    "matmul(L.T)": lambda factor, b: factor.matmul(factor.T),
    "np.matmul": lambda factor, b: np.matmul(factor, b),
    "L + b": lambda factor, b: factor + b,
    "b + L": lambda factor, b: b + factor,
    "2 * L": lambda factor, b: 2 * factor,
    "np.exp": lambda factor, b: np.exp(factor),
    "np.linalg.inv": lambda factor, b: np.linalg.inv(factor),
    "np.linalg.solve": lambda factor, b: np.linalg.solve(factor, b),
    "np.linalg.norm": lambda factor, b: np.linalg.norm(factor),
    "np.save": lambda factor, b: np.save("never", factor),
}


@pytest.mark.parametrize("use", [*ACCIDENTS, *REFUSED])
def test_nothing_becomes_dense_by_accident(use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 600
    monkeypatch.chdir(tmp_path)
    with factor_in("file", np.eye(n), 100, tmp_path) as factor:
        b = np.ones(n)
        tracemalloc.start()
        if use in ACCIDENTS:
            ACCIDENTS[use](factor, b)
        else:
            with pytest.raises(TypeError):
                REFUSED[use](factor, b)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 * n * n / 4


def test_refusals_say_what_to_do(factor: CholeskyFactor) -> None:
    with pytest.raises(TypeError, match=r"numpy\.linalg\.inv would make a dense array of 20 kB .*np\.asarray\(L\)"):
        np.linalg.inv(factor)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"L @ \(L\.T @ x\)"):
        factor @ factor.T
    with pytest.raises(ValueError, match=r"\(49,\)"):
        factor.T @ np.ones(49)
    with pytest.raises(ValueError, match=r"\(\)"):
        factor @ 2.0


# entries


@given(n=st.integers(1, 40), nb=st.integers(1, 45), data=st.data())
def test_indices_are_numpys(n: int, nb: int, data: st.DataObject) -> None:
    dense = np.tril(np.arange(1.0, n * n + 1).reshape(n, n))
    axis = st.one_of(st.integers(-n, n - 1), st.slices(n))
    key = data.draw(st.one_of(axis, st.tuples(axis, axis)))
    with factor_in("memory", dense, nb, Path()) as factor:
        found = factor[key]
        assert np.shape(found) == np.shape(dense[key]) and np.array_equal(found, dense[key])


@pytest.mark.parametrize(
    ("key", "error"), [(50, IndexError), ((0, -51), IndexError), ((0, 0, 0), IndexError), ([1, 2], TypeError)]
)
def test_wrong_indices_are_refused(factor: CholeskyFactor, key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        factor[key]


def test_rows_of_a_factor_come_one_after_the_other(factor: CholeskyFactor, l_dense: NDArray[np.float64]) -> None:
    assert np.array_equal(list(factor), l_dense)


# solves


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_overwritten_right_hand_sides_hold_the_solution(kind: str, tmp_path: Path, l_dense: NDArray[np.float64]) -> None:
    rng = np.random.default_rng(3)
    with factor_in(kind, l_dense, 16, tmp_path) as factor:
        for method in (factor.solve, factor.half_solve, factor.solve_triangular):
            for b in (rng.standard_normal(50), rng.standard_normal((50, 3))):
                expected = method(b)
                kept = b.copy()
                kept.flags.writeable = False
                assert np.array_equal(method(kept, overwrite_b=True), expected)
                for other in (np.asfortranarray(np.stack([b, b]))[0], b.astype(int), b.tolist()):
                    assert np.allclose(method(other, overwrite_b=True), method(other))
                x = method(b, overwrite_b=True)
                assert np.shares_memory(x, b) and np.array_equal(b, expected) and x.shape == b.shape


def test_a_refused_right_hand_side_is_not_overwritten(factor: CholeskyFactor) -> None:
    b = np.ones(50)
    b[7] = np.nan
    with pytest.raises(ValueError, match="nan"):
        factor.solve(b, overwrite_b=True)
    assert np.isnan(b[7]) and (np.delete(b, 7) == 1.0).all()


def test_triangular_solves_have_scipys_name_and_words(factor: CholeskyFactor, l_dense: NDArray[np.float64]) -> None:
    b = np.random.default_rng(4).standard_normal((50, 2))
    for trans in (0, 1, 2, "N", "T", "C"):
        expected = scipy.linalg.solve_triangular(l_dense, b, trans=trans, lower=True)
        assert np.allclose(factor.solve_triangular(b, trans), expected)  # type: ignore[arg-type]
    assert np.array_equal(factor.solve_triangular(b, "T"), factor.half_solve(b, transposed=True))
    with pytest.raises(ValueError, match="trans is 'H'"):
        factor.solve_triangular(b, "H")  # type: ignore[arg-type]


def test_the_determinant_has_numpys_form(factor: CholeskyFactor, l_dense: NDArray[np.float64]) -> None:
    sign, logarithm = factor.slogdet()
    assert (sign, logarithm) == (1.0, factor.logdet()) == tuple(factor.slogdet())
    expected = np.linalg.slogdet(l_dense @ l_dense.T)
    assert logarithm == pytest.approx(expected.logabsdet, rel=1e-12) and factor.slogdet().sign == expected.sign


# samples


def test_samples_are_the_mean_and_l_times_unit_normals(factor: CholeskyFactor, l_dense: NDArray[np.float64]) -> None:
    mean = np.arange(50.0)
    z = np.random.default_rng(7).standard_normal((6, 50))
    for size, shape in ((None, (50,)), (1, (1, 50)), (6, (6, 50)), ((2, 3), (2, 3, 50)), (0, (0, 50)), (np.int64(4), (4, 50))):
        samples = factor.sample(size, 7, mean=mean)
        assert samples.shape == shape
        count = math.prod(shape[:-1])
        assert np.allclose(samples.reshape(count, 50), mean + z[:count] @ l_dense.T, rtol=1e-13)
    assert np.array_equal(factor.sample(2, np.random.default_rng(7)), factor.sample(2, 7))
    assert np.array_equal(factor.sample(2, 7, mean=3.0), factor.sample(2, 7) + 3.0)
    assert not np.array_equal(factor.sample(), factor.sample())


def test_samples_have_the_covariance(tmp_path: Path) -> None:
    a = np.array([[4.0, 2.0, 1.0], [2.0, 5.0, 0.5], [1.0, 0.5, 1.0]])
    with factor_in("memory", lapack_factor(a), 2, tmp_path) as factor:
        samples = factor.sample(200_000, 11)
    # the standard error of a covariance is sqrt((a_ij**2 + a_ii a_jj) / count)
    errors = np.sqrt((a**2 + np.outer(a.diagonal(), a.diagonal())) / 200_000)
    assert (np.abs(samples.T @ samples / 200_000 - a) <= 5 * errors).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"size": -1}, ValueError),
        ({"size": 1.5}, TypeError),
        ({"mean": np.zeros(49)}, ValueError),
        ({"mean": np.zeros((50, 1))}, ValueError),
    ],
)
def test_wrong_samples_are_refused(factor: CholeskyFactor, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        factor.sample(**arguments)


# condition


@given(n=st.integers(1, 60), seed=st.integers(0, 2**32 - 1), condition=st.sampled_from([1.0, 1e3, 1e10]))
def test_the_norm_estimate_is_a_lower_bound_within_a_factor_of_three(n: int, seed: int, condition: float) -> None:
    for matrix in (random_spd(n, seed, condition), np.linalg.inv(random_spd(n, seed, condition))):
        exact = np.linalg.norm(matrix, 1)
        estimate = one_norm_estimate(lambda x, matrix=matrix: matrix @ x, n)
        assert exact / 3 <= estimate <= exact * (1 + 1e-12)


def covariances(n: int) -> Iterator[NDArray[np.float64]]:
    """Small covariances, some of which a mean or random signs say nothing of."""
    rng = np.random.default_rng(n)
    for size in range(2, min(n, 12)):
        a = np.eye(n)
        a[:size, :size] += 0.9 * (1.0 - np.eye(size))
        yield a
    for length in rng.uniform(0.05, 1.0, 10):
        sites = rng.uniform(size=(n, 2))
        yield np.exp(-np.linalg.norm(sites[:, None] - sites, axis=2) / length) + 1e-3 * np.eye(n)
        g = rng.standard_normal((n, n // 2 + 1))
        yield (g @ g.T + 0.01 * np.eye(n)) * np.outer(scales := np.exp(rng.normal(size=n)), scales)


@pytest.mark.parametrize("n", [2, 5, 6, 20, 31, 32, 60])
def test_the_condition_of_small_covariances_is_known(n: int) -> None:
    for a in covariances(n):
        with oc.cholesky(a, devices="host:0") as factor:
            share, rounding = factor.cond() / np.linalg.cond(a, 1), 1e-15 * n * np.linalg.cond(a)
        assert (1.0 if n < 32 else 1 / 3) * (1 - rounding) <= share <= 1 + rounding


def test_norms_that_are_no_numbers_stay_so() -> None:
    assert math.isnan(one_norm_estimate(lambda x: x * np.nan, 40))
    assert one_norm_estimate(lambda x: np.abs(x) * np.inf, 40) == math.inf


@every_store
@pytest.mark.parametrize("family", ["exponential", "matern15 nugget 1e-6"])
def test_the_condition_number_is_lapacks(kind: str, family: str, tmp_path: Path) -> None:
    a = FAMILIES[family](120)
    lower = lapack_factor(a)
    rcond, info = scipy.linalg.lapack.dpocon(lower, np.linalg.norm(a, 1), uplo="L")
    with factor_in(kind, lower, 50, tmp_path) as factor:
        cond, equilibrated = factor.cond(), factor.cond(equilibrated=True)
    exact = np.linalg.cond(a, 1)
    assert info == 0 and 1 / 3 <= cond * rcond <= 3 and exact / 3 <= cond <= exact * 1.001
    assert equilibrated == pytest.approx(cond, rel=0.5)  # its diagonal is of ones already, but for a nugget


def test_units_of_rows_do_not_count_in_the_equilibrated_condition(tmp_path: Path) -> None:
    a, powers = FAMILIES["exponential"](120), np.random.default_rng(0).integers(-490, 490, 120)
    lower = lapack_factor(a)
    (tmp_path / "scaled").mkdir()
    with factor_in("memory", lower, 50, tmp_path) as plain:
        expected = plain.cond(equilibrated=True)
    with factor_in("memory", np.ldexp(lower, powers[:, None]), 50, tmp_path / "scaled") as scaled:
        assert scaled.cond(equilibrated=True) == pytest.approx(expected, rel=1e-9)


def smooth(n: int, nugget: float) -> NDArray[np.float64]:
    """A Gaussian covariance with correlations over a third of the square."""
    places = np.random.default_rng(0).random((n, 2))
    squares = ((places[:, None] - places[None]) ** 2).sum(-1)
    return np.asarray(np.exp(-squares / 0.09) + nugget * np.eye(n))


@pytest.mark.parametrize("options", [{}, {"tile_size": 100}, {"store": "L.ooc", "tile_size": 100}])
def test_solves_with_ill_conditioned_matrices_warn_once(options: dict[str, Any], tmp_path: Path) -> None:
    if "store" in options:
        options = {**options, "store": tmp_path / options["store"]}
    a, x = smooth(300, 1e-12), np.random.default_rng(1).standard_normal(300)
    b = a @ x
    with oc.cholesky(a, devices="host:0", **options) as factor:
        with pytest.warns(scipy.linalg.LinAlgWarning, match="2 digits of a solution") as caught:
            found = factor.solve(b)
        assert [warning.filename for warning in caught] == [__file__]
        assert np.array_equal(factor.solve(b), found)  # warnings are errors here
    assert 1e-4 < np.linalg.norm(found - x) / np.linalg.norm(x) < 0.1  # as it says


@pytest.mark.parametrize(
    "a",
    [
        pytest.param(np.exp(-(np.subtract.outer(np.arange(14), np.arange(14)) ** 2) / 54.0), id="Gaussian covariance"),
        pytest.param(np.exp(-(np.subtract.outer(np.arange(20), np.arange(20)) ** 2) / 29.0), id="of a shorter range"),
        pytest.param(scipy.linalg.hilbert(12), id="Hilbert"),
        pytest.param(scipy.linalg.pascal(20).astype(float), id="Pascal"),
        pytest.param((v := np.vander(np.linspace(0, 1, 30), 12)).T @ v, id="normal equations of a polynomial"),
    ],
)
def test_matrices_whose_pivots_are_far_larger_than_their_least_eigenvalue_warn(a: NDArray[np.float64]) -> None:
    pivots = np.diag(np.linalg.cholesky(a)) ** 2 / np.diag(a)
    assert pivots.min() > 1e2 * np.linalg.eigvalsh(a / np.sqrt(np.outer(np.diag(a), np.diag(a))))[0]
    with pytest.warns(scipy.linalg.LinAlgWarning, match="digits? of a solution"):
        oc.solve(a, a @ np.ones(len(a)))


def test_of_large_orders_only_suspect_ones_take_further_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioning, "_ALWAYS_LOOKED_AT", 0)
    with oc.cholesky(smooth(300, 1e-2)) as factor:
        factor.solve(np.ones(300))
        assert "condition" not in factor.report.passes.totals
    for nugget in (1e-8, 1e-11):
        with oc.cholesky(smooth(300, nugget)) as factor, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            factor.solve(np.ones(300))
            assert "condition" in factor.report.passes.totals


@pytest.mark.parametrize("scale", [1.0, 1e150, 1e-150])
def test_what_is_well_conditioned_in_its_own_units_does_not_warn(scale: float) -> None:
    a = smooth(300, 1e-8)
    powers = np.random.default_rng(2).integers(-30, 30, 300)
    for matrix in (a, scale * scale * a, np.ldexp(a, powers[:, None] + powers[None, :])):
        oc.cholesky(matrix).solve(np.ones(300))
        oc.cholesky(matrix.copy(), overwrite=True).solve(np.ones(300))


def test_half_solves_refinement_and_loaded_factors_do_not_warn(tmp_path: Path) -> None:
    a = smooth(300, 1e-12)
    with oc.cholesky(a, devices="host:0") as factor:
        factor.half_solve(np.ones(300))
        factor.logdet()
        factor.solve(a @ np.ones(300), refine=True)
        factor.save(tmp_path / "L.ooc")
        with load(tmp_path / "L.ooc") as loaded:
            loaded.solve(np.ones(300))
        with warnings.catch_warnings(), pytest.warns(scipy.linalg.LinAlgWarning):
            factor.solve(np.ones((300, 2)))


# which triangle of A counts


@pytest.mark.parametrize("passed_on", ["as it is", "pickled", "updated", "copied"])
def test_factors_that_come_of_another_read_its_triangle(passed_on: str, tmp_path: Path) -> None:
    a, b = random_spd(40, seed=1), np.ones(40)
    a += passed_on == "updated"
    with oc.cholesky(np.triu(a - (passed_on == "updated")), lower=False, store=tmp_path / "L", devices="host:0") as factor:
        made = {
            "as it is": lambda: factor,
            "pickled": lambda: pickle.loads(pickle.dumps(factor)),
            "updated": lambda: factor.update(b),
            "copied": lambda: copy.copy(factor),
        }[passed_on]()
        with made:
            np.testing.assert_allclose(made.solve(b, refine=True, a=np.triu(a)), np.linalg.solve(a, b), rtol=1e-10)
            assert made.residual(np.triu(a)).max_scaled_over_sqrt_n < 10


def test_a_loaded_factor_warns_where_only_one_triangle_may_count(tmp_path: Path) -> None:
    a, b = random_spd(40, seed=1), np.ones(40)
    oc.cholesky(np.triu(a), lower=False, store=tmp_path / "L", devices="host:0").close()
    with oc.load(tmp_path / "L") as factor:
        assert factor.residual(a).max_scaled_over_sqrt_n < 10  # warnings are errors here
        calls: list[Callable[[Any], object]] = [
            factor.residual,
            lambda given: factor.solve(b, refine=True, a=given),
            lambda given: factor.certify(b, a=given),
        ]
        for call in calls:
            for given in (np.triu(a), np.tril(a)):
                with pytest.warns(oc.errors.AsymmetryWarning, match="Give the transpose") as caught:
                    call(given)
                assert [warning.filename for warning in caught] == [__file__]


# life


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_closing_a_copy_leaves_the_original_open(kind: str, copied: Callable[[Any], Any], tmp_path: Path) -> None:
    factor = factor_in(kind, np.eye(20), 8, tmp_path)
    twin = copied(factor)
    assert not factor.closed and not twin.closed
    twin.close()
    twin.close()
    assert twin.closed and not factor.closed
    assert np.array_equal(factor.solve(np.ones(20)), np.ones(20))
    other = copy.copy(factor)
    factor.close()
    assert np.array_equal(other.solve(np.ones(20)), np.ones(20))
    other.close()
    with pytest.raises(TierError, match="closed"):
        copy.copy(other)
    for use in (lambda: other @ np.ones(20), lambda: other.T @ np.ones(20), lambda: other.cond(), lambda: other[0], other.sample):
        with pytest.raises(TierError, match="closed"):
            use()


def test_a_factor_in_a_file_pickles_as_its_name_and_one_in_memory_says_what_to_do(tmp_path: Path) -> None:
    with factor_in("file", np.eye(20), 8, tmp_path) as factor:
        raw = pickle.dumps(factor)
        assert len(raw) < 1000
        with pickle.loads(raw) as other:
            assert other.tile_size == 8 and np.array_equal(other.solve(np.ones(20)), np.ones(20))
        assert not factor.closed and np.array_equal(factor.solve(np.ones(20)), np.ones(20))
    with (
        factor_in("memory", np.eye(20), 8, tmp_path) as factor,
        pytest.raises(TypeError, match=r"L\.save\(path\).*ooc_chol\.load"),
    ):
        pickle.dumps(factor)


def test_the_plan_is_that_of_the_report(tmp_path: Path) -> None:
    with oc.cholesky(np.eye(40), devices="host:0") as factor:
        assert factor.plan is factor.report.plan
        factor.save(tmp_path / "L.ooc")
    with load(tmp_path / "L.ooc") as loaded:
        assert loaded.plan is None


# one call


def test_one_call_solves_and_forgets(tmp_path: Path) -> None:
    a, b = random_spd(90, seed=20), np.random.default_rng(0).standard_normal((90, 2))
    np.save(tmp_path / "a.npy", a)
    with oc.cholesky(a, devices="host:0", tile_size=32) as factor:
        expected, logarithm = factor.solve(b), factor.logdet()
    for matrix in (
        a,
        tmp_path / "a.npy",
        oc.from_function(90, lambda r, c, out, s: np.copyto(out, a[r.start : r.stop, c.start : c.stop])),
    ):
        assert np.array_equal(oc.solve(matrix, b, devices="host:0", tile_size=32), expected)
        assert oc.logdet(matrix, devices="host:0", tile_size=32) == logarithm
    over = b.copy()
    assert np.shares_memory(oc.solve(a, over, overwrite_b=True, devices="host:0", tile_size=32), over)
    assert np.array_equal(over, expected)
    refined = oc.solve(a, b, 1e-5, refine=True, devices="host:0", tile_size=32)
    assert np.linalg.norm(a @ refined - b) <= 1e-12 * np.linalg.norm(b)


def test_one_call_looks_at_the_right_hand_side_before_it_factors() -> None:
    asked: list[range] = []

    def tile(rows: range, cols: range, out: NDArray[np.float64], stream: object) -> None:
        asked.append(rows)
        out[...] = 1.0

    with pytest.raises(ValueError, match=r"\(29,\).*\(30, 30\)"):
        oc.solve(oc.from_function(30, tile), np.ones(29))
    assert asked == []


def test_one_call_gives_the_memory_back() -> None:
    n = 1500
    a, b = np.eye(n), np.ones(n)
    for call in (lambda: oc.solve(a, b, devices="host:0", tile_size=256), lambda: oc.logdet(a, devices="host:0", tile_size=256)):
        call()
        tracemalloc.start()
        call()
        left, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert left < 8 * n * n / 20, peak


def test_a_factor_of_one_entry_is_a_matrix_too(tmp_path: Path) -> None:
    with factor_in("memory", np.array([[3.0]]), 1, tmp_path) as factor:
        assert factor.cond() == pytest.approx(1.0) and factor[0, 0] == 3.0 and len(factor) == 1
        assert factor.sample(2, 1).shape == (2, 1) and (factor.T @ [2.0])[0] == 6.0
