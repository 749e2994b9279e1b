"""Batches ``(b, n, n)``: LAPACK's factors of all, solves, determinants, and errors that name the matrix."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.batch_checks import batch, check

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

#: Number and order of the matrices: those that NumPy's loop takes, those that do not, and those of several strips.
SHAPES = [(1, 1), (5, 3), (300, 17), (7, 96), (7, 97), (40, 130), (2, 600), (0, 4), (4, 0)]
U = 2.0**-53


def swapped(a):
    return a.astype(a.dtype.newbyteorder())


FORMS = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 2)[::2, :, ::3],
    "reversed": lambda a: a[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
    "another byte order": swapped,
    "long double": lambda a: a.astype(np.longdouble),
    "objects": lambda a: a.astype(object),
    "nested lists": lambda a: a.tolist(),
    "list of arrays": list,
    "masked": lambda a: np.ma.masked_array(a),
}


@pytest.mark.parametrize(("count", "n"), SHAPES)
def test_the_factors_are_lapacks(count, n):
    a = batch(count, n)
    before = a.copy()
    with oc.cholesky(a) as factors:
        assert isinstance(factors, oc.BatchFactor)
        check(factors, a)
        assert [one.shape for one in factors] == [(n, n)] * count
    assert np.array_equal(a, before)


@pytest.mark.parametrize("lower", [None, True, False])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_factors(form, lower):
    a = batch(6, 9)
    assert np.array_equal(np.asarray(oc.cholesky(FORMS[form](a), lower=lower)), np.asarray(oc.cholesky(a)))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "bool", "float16", "float32"])
def test_real_numbers_of_every_dtype_are_read_as_float64(dtype):
    a = np.array([np.eye(5), np.eye(5)]).astype(dtype)
    assert np.array_equal(np.asarray(oc.cholesky(a)), a.astype(np.float64))


@pytest.mark.parametrize("columns", [None, 0, 1, 3, 40])
@pytest.mark.parametrize(("count", "n"), SHAPES)
def test_solves_and_products_are_backward_stable(count, n, columns):
    a = batch(count, n)
    factors, l_all = oc.cholesky(a), np.linalg.cholesky(a)
    b = np.random.default_rng(1).standard_normal((count, n) if columns is None else (count, n, columns))
    matrix_of = (lambda x: x[..., None]) if columns is None else (lambda x: x)
    for x, system in (
        (factors.solve(b), a),
        (factors.half_solve(b), l_all),
        (factors.half_solve(b, transposed=True), l_all.swapaxes(1, 2)),
    ):
        assert x.shape == b.shape and x.dtype == np.float64
        sizes = np.linalg.norm(system, axis=(1, 2)) * np.linalg.norm(matrix_of(x), axis=(1, 2))
        assert np.all(np.linalg.norm(system @ matrix_of(x) - matrix_of(b), axis=(1, 2)) <= 4 * (n + 1) * U * sizes)
    product = factors.matmul(b)
    assert product.shape == b.shape
    expected = l_all @ matrix_of(b)
    assert np.all(np.abs(matrix_of(product) - expected) <= np.maximum(1e-12, 1e-12 * np.abs(expected)))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_is_shared_by_threads_to_the_same_bits(threads, monkeypatch):
    from tests.inside.kernels import batch as kernels

    a = batch(700, 20)
    expected = oc.cholesky(a)
    monkeypatch.setattr(kernels, "host_threads", lambda count: threads)
    found = oc.cholesky(a)
    assert np.array_equal(np.asarray(found), np.asarray(expected))
    b = np.ones((700, 20, 2))
    assert np.array_equal(found.solve(b), expected.solve(b))
    a[451, 12, 12] = a[600, 3, 3] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(a)
    assert (caught.value.matrix, caught.value.minor) == (451, 13)


# errors


@pytest.mark.parametrize("n", [5, 97, 600])
@pytest.mark.parametrize("minor", [1, 3, 5])
def test_the_first_matrix_that_is_not_positive_definite_is_named(n, minor):
    a = batch(6, n)
    a[4, minor - 1, minor - 1] = a[5, 0, 0] = -1.0
    with pytest.raises(
        oc.NotPositiveDefiniteError, match=rf"minor of order {minor} .*of matrix 4 of the batch.*A\[4\]"
    ) as caught:
        oc.cholesky(a)
    assert (caught.value.matrix, caught.value.minor, caught.value.tile) == (4, minor, (0, 0))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.matrix, str(again)) == (4, str(caught.value))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 1), (4, 4), (4, 0)])
@pytest.mark.parametrize("n", [5, 97])
def test_an_entry_that_is_not_finite_is_named(n, place, value, lower):
    a = batch(4, n)
    row, col = place if lower else place[::-1]
    a[2, row, col] = value
    with pytest.raises(oc.errors.NonFiniteError, match=rf"A\[2, {row}, {col}\] is NaN or infinite") as caught:
        oc.cholesky(a, lower=lower)
    assert (caught.value.matrix, caught.value.row, caught.value.col) == (2, row, col)
    if row != col:
        oc.cholesky(a, lower=not lower).close()


def test_a_masked_entry_is_named():
    a = batch(3, 4)
    masked = np.ma.masked_equal(a, a[1, 2, 0])
    masked.mask[1, 0, 2] = False
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[1, 2, 0\] is masked"):
        oc.cholesky(masked, lower=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tile_size": 16}, "tile_size"),
        ({"precision_threshold": 1e-6}, "precision_threshold"),
        ({"memory_budget": "1 GB"}, "memory_budget"),
        ({"policy": "v3", "fp64": "native"}, "policy, fp64"),
        ({"store": "L"}, "store"),
        ({"overwrite": True}, "overwrite"),
        ({"progress": True, "trace": True}, "progress, trace"),
    ],
)
def test_options_of_one_matrix_are_refused_by_name(options, named):
    with pytest.raises(ValueError, match=f"batch of matrices.*leave {named} out"):
        oc.cholesky(batch(2, 3), **options)


@pytest.mark.parametrize(
    ("a", "error", "text"),
    [
        (np.zeros((2, 3, 4)), ValueError, r"shape \(2, 3, 4\).*square"),
        (np.zeros((2, 3, 3), complex), oc.errors.UnsupportedTypeError, "complex128: factor its matrices one by one"),
        (np.full((2, 3, 3), "1"), TypeError, "str32"),
        (np.zeros((2, 2, 3, 3)), ValueError, r"shape \(2, 2, 3, 3\)"),
    ],
)
def test_what_is_no_batch_is_refused(a, error, text):
    with pytest.raises(error, match=text):
        oc.cholesky(a)


def test_a_batch_is_factored_on_one_device():
    assert oc.cholesky(batch(2, 3), devices="host:1").device == "host:1"
    with pytest.raises(ValueError, match="one device"):
        oc.cholesky(batch(2, 3), devices=["host:0", "host:1"])


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 3), (2, 3, 1, 1), (1, 3)])
def test_right_hand_sides_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"batch is \(2, 3, 3\): give \(2, 3\)"):
        oc.cholesky(batch(2, 3)).solve(np.zeros(shape))


@pytest.mark.parametrize(("b", "error"), [(np.full((2, 3), 1j), TypeError), (np.full((2, 3), np.nan), ValueError)])
def test_right_hand_sides_that_are_no_finite_real_numbers_are_refused(b, error):
    with pytest.raises(error, match="right-hand side"):
        oc.cholesky(batch(2, 3)).solve(b)


def test_a_batch_that_memory_does_not_hold_is_refused_before_it_is_touched():
    a = np.broadcast_to(np.eye(100), (10**8, 100, 100))
    with pytest.raises(oc.BudgetError, match=r"factors of a batch.*in parts \(80 kB for each matrix\)"):
        oc.cholesky(a)


@pytest.mark.parametrize("change", [np.tril, np.triu], ids=lambda change: change.__name__)
def test_matrices_whose_triangles_differ_are_warned_of(change):
    a = batch(5, 8)
    with pytest.warns(oc.errors.AsymmetryWarning, match=r"matrix 0 of the batch: A\[\d, \d\] is") as caught:
        oc.cholesky(change(a))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", oc.errors.AsymmetryWarning)
        factors = oc.cholesky(change(a), lower=change is np.tril)
        oc.cholesky(a)
    check(factors, a)


# what else the factors are


def test_the_report_is_a_line():
    report = oc.cholesky(batch(3, 8)).report
    assert str(report).startswith("Batch of 3 Cholesky factors of order 8 on host:0: ") and "\n" not in str(report)
    assert report.to_dict()["flops"] == 3 * 8**3 / 3 and 0 < report.seconds.parts["run"] <= report.seconds.total


def test_the_factors_are_handed_over_and_not_to_be_written():
    factors = oc.cholesky(batch(3, 4))
    dense = np.asarray(factors)
    assert np.shares_memory(dense, np.asarray(factors)) and not dense.flags.writeable
    assert np.array_equal(np.from_dlpack(factors), dense)
    assert np.array_equal(factors[1], dense[1])
    assert repr(factors) == "BatchFactor(shape=(3, 4, 4), device='host:0')"


def test_closed_factors_say_so():
    with oc.cholesky(batch(3, 4)) as factors:
        pass
    assert factors.closed
    with pytest.raises(oc.errors.ClosedError, match="closed"):
        factors.solve(np.zeros((3, 4)))
    assert repr(factors) == "BatchFactor(shape=(3, 4, 4), closed=True)"
