"""Everything that a newcomer gives for A, and what must happen: the right factor, or an error that says what to do."""

from __future__ import annotations

import io
import os
import warnings
from decimal import Decimal
from fractions import Fraction
from functools import cache

import h5py
import numpy as np
import pandas
import pytest
import scipy.sparse
import xarray
from scipy.sparse.linalg import aslinearoperator

import ooc_chol as oc
from tests.host.source_table import h5py_data, saved, wrong_above, wrong_below
from tests.host.turns import in_turn
from tests.inside.memory import as_source, find_asymmetry
from tests.products import pairwise
from tests.tolerances import factor_norm_bound, solve_bound

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

N = 60


def whole(n: int = N) -> np.ndarray:
    """Small whole numbers, which every real type holds exactly; diagonally dominant."""
    lines = np.arange(n)
    return np.where(np.equal.outer(lines, lines), 120.0, (np.add.outer(lines, lines) % 3) / 1.0)


def numpy_matrix(a):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's own, of making one
        return np.matrix(a)


#: What is taken, as a function of a folder and the matrix; the factor must be that of the matrix in float64.
TAKEN = {
    "float64": lambda folder, a: a,
    "Fortran": lambda folder, a: np.asfortranarray(a),
    "strided": lambda folder, a: np.repeat(a, 2, 1)[:, ::2],
    "negative strides": lambda folder, a: a[::-1, ::-1].copy()[::-1, ::-1],
    "memmap": lambda folder, a: np.load(saved(folder, a), mmap_mode="r"),
    "float32": lambda folder, a: a.astype(np.float32),
    "float16": lambda folder, a: a.astype(np.float16),
    "long double": lambda folder, a: a.astype(np.longdouble),
    **{name: (lambda folder, a, name=name: a.astype(name)) for name in ("int8", "int16", "int32", "int64", "uint8", "uint64")},
    "big-endian": lambda folder, a: a.astype(">f8"),
    "big-endian integers": lambda folder, a: a.astype(">i4"),
    "objects": lambda folder, a: a.astype(object),
    "fractions": lambda folder, a: np.vectorize(Fraction, otypes=[object])(a),
    "decimals": lambda folder, a: np.vectorize(Decimal, otypes=[object])(a),
    "list of lists": lambda folder, a: a.tolist(),
    "list of lists of int": lambda folder, a: a.astype(int).tolist(),
    "tuple of tuples": lambda folder, a: tuple(map(tuple, a.tolist())),
    "list of arrays": lambda folder, a: list(a),
    "memoryview": lambda folder, a: memoryview(a),
    "DataFrame": lambda folder, a: pandas.DataFrame(a),
    "DataFrame of int": lambda folder, a: pandas.DataFrame(a.astype(int)),
    "DataFrame of mixed types": lambda folder, a: pandas.DataFrame(a).astype({0: int, 1: "float32"}),
    "DataFrame that may have gaps": lambda folder, a: pandas.DataFrame(a.astype(int)).convert_dtypes(),
    "DataFrame of objects": lambda folder, a: pandas.DataFrame(a).astype(object),
    "xarray": lambda folder, a: xarray.DataArray(a),
    "h5py of int": lambda folder, a: h5py_data(folder, a.astype("i4"), chunks=True),
    "npy of int": lambda folder, a: saved(folder, a.astype(int)),
    "npy big-endian, Fortran": lambda folder, a: saved(folder, np.asfortranarray(a.astype(">f8"))),
    "np.matrix": lambda folder, a: numpy_matrix(a),
    "masked array, nothing masked": lambda folder, a: np.ma.masked_array(a),
    "masked array of int": lambda folder, a: np.ma.masked_array(a.astype(int)),
}


OPTIONS = {"whole": {}, "tiles": {"tile_size": 16}, "mixed": {"precision_threshold": 1e-4, "tile_size": 16}}


@cache
def expected_of(how, lower):
    """The factor of the matrix in float64."""
    return np.asarray(oc.cholesky(whole(), lower=lower, devices="host:0", **OPTIONS[how]))


@pytest.mark.parametrize(("form", "how", "lower"), in_turn(TAKEN, list(OPTIONS), [None, True, False], each=3))
def test_what_is_taken_gives_the_factor_of_the_matrix_in_float64(tmp_path, form, how, lower):
    a = TAKEN[form](tmp_path, whole())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factor = oc.cholesky(a, lower=lower, devices="host:0", **OPTIONS[how])
        x = factor.solve(np.ones(N), refine=True)
    assert np.array_equal(np.asarray(factor), expected_of(how, lower))
    assert np.linalg.norm(whole() @ x - 1) <= 4 * solve_bound(N, float(np.linalg.norm(whole())), float(np.linalg.norm(x)))


def test_a_covariance_of_a_table_is_taken():
    table = pandas.DataFrame(np.random.default_rng(0).standard_normal((100, 5)), columns=list("abcde"))
    a = table.cov()
    ours, reference = np.asarray(oc.cholesky(a)), np.linalg.cholesky(a)
    norm, lapacks = float(np.linalg.norm(a)), float(np.linalg.norm(a.to_numpy() - reference @ reference.T))
    assert np.linalg.norm(a.to_numpy() - ours @ ours.T) <= factor_norm_bound(5, lapacks, norm)


@pytest.mark.package("polars")
def test_a_table_of_polars_is_taken():
    import polars

    for a in (whole(), whole().astype(int)):
        assert np.array_equal(np.asarray(oc.cholesky(polars.DataFrame(a))), np.asarray(oc.cholesky(whole())))


def test_bool_is_a_number():
    assert oc.cholesky(np.eye(3, dtype=bool)).logdet() == 0


def test_large_matrices_of_other_types_are_converted_tile_by_tile():
    import tracemalloc

    n = 1500
    a = np.eye(n, dtype=np.int8)
    with oc.HostMemory() as memory:
        oc.cholesky(a, tile_size=100, store=memory, memory_budget="4 MB").close()
        tracemalloc.start()
        oc.cholesky(a, tile_size=100, store=memory, memory_budget="4 MB").close()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 * n * n / 2


A = whole()


def spoiled(value, row, col, a=A):
    a = a.copy()
    a[row, col] = value
    return a


def with_object(value):
    return spoiled(value, 7, 3, A.astype(object))


#: What is refused, and how.
REFUSED = {
    "complex beyond complex128": (A.astype(np.clongdouble), TypeError, r"up to complex128.*A\.astype\(complex\)"),
    "text": (np.full((3, 3), "1"), TypeError, "str32"),
    "dates": (np.zeros((3, 3), "M8[s]"), TypeError, "datetime64"),
    "records": (np.zeros((3, 3), [("x", float)]), TypeError, "void64"),
    "rows of two lengths": ([[1.0], [2.0, 3.0]], ValueError, "a list that is no matrix.*rows of one length"),
    "an empty list": ([], ValueError, r"shape \(0,\)"),
    "a list with None": ([[1.0, 0.0], [None, 1.0]], oc.errors.NonFiniteError, r"A\[1, 0\] .* is the NoneType None"),
    "an object that is text": (with_object("1.0"), oc.errors.NonFiniteError, r"A\[7, 3\] .* is the str '1\.0', no real number"),
    "an object that is complex": (with_object(1j), oc.errors.NonFiniteError, r"A\[7, 3\] .* is the complex 1j"),
    "an object beyond float64": (
        with_object(10**400),
        oc.errors.NonFiniteError,
        r"A\[7, 3\] .* is about 2\*\*1328, beyond float64",
    ),
    "a long double beyond float64": (
        spoiled(np.longdouble("1e4000"), 7, 3, A.astype(np.longdouble)),
        oc.errors.NonFiniteError,
        r"A\[7, 3\] .* is 1e\+4000, beyond float64 \(scale A\)",
    ),
    "a table with a gap": (
        pandas.DataFrame(A.astype(int)).convert_dtypes().mask(A == 120.0),
        oc.errors.NonFiniteError,
        r"A\[0, 0\]",
    ),
    "a table with text": (
        pandas.DataFrame({"a": [1, 0], "b": ["x", "y"]}),
        oc.errors.NonFiniteError,
        r"A\[1, 1\] .* is the str 'y'",
    ),
    "masked": (
        np.ma.masked_array(A, spoiled(1, 7, 3, 0 * A)),
        oc.errors.NonFiniteError,
        r"A\[7, 3\] .* is masked; only the lower",
    ),
    "masked int": (
        np.ma.masked_array(A.astype(int), spoiled(1, 7, 3, 0 * A)),
        oc.errors.NonFiniteError,
        r"A\[7, 3\] .* is masked",
    ),
    "NaN": (spoiled(np.nan, 7, 3), oc.errors.NonFiniteError, r"A\[7, 3\] .* is NaN or infinite"),
    "infinity": (spoiled(-np.inf, 7, 7), oc.errors.NonFiniteError, r"A\[7, 7\] .* is NaN or infinite"),
    "zeros": (0 * A, oc.NotPositiveDefiniteError, "minor of order 1 "),
    "ones": (0 * A + 1, oc.NotPositiveDefiniteError, "minor of order 2 "),
    "negative": (-A, oc.NotPositiveDefiniteError, "minor of order 1 "),
    "scalar": (4.0, TypeError, "float, without shape"),
    "a scalar of NumPy": (np.float64(4), ValueError, r"shape \(\)"),
    "one-dimensional": (np.ones(4), ValueError, r"shape \(4,\)"),
    "a Series": (pandas.Series([1.0]), ValueError, r"shape \(1,\)"),
    "rectangular": (np.ones((2, 3)), ValueError, r"shape \(2, 3\)"),
    "four dimensions": (np.ones((2, 2, 3, 3)), ValueError, r"shape \(2, 2, 3, 3\)"),
    **{
        kind: (getattr(scipy.sparse, kind)(np.eye(3)), TypeError, rf"scipy\.sparse\.{kind}, .* pass A\.toarray\(\)")
        for kind in ("csr_array", "csc_matrix", "coo_array", "coo_matrix", "bsr_array", "lil_array", "dok_matrix", "dia_array")
    },
    "a linear operator": (aslinearoperator(A), TypeError, "LinearOperator"),
    "None": (None, TypeError, "NoneType"),
    "a dict": ({}, TypeError, "dict"),
    "a file object": (io.BytesIO(), TypeError, "BytesIO"),
    "bytes": (b"A.npy", TypeError, "bytes"),
}


@pytest.mark.parametrize("options", [{}, {"tile_size": 16}], ids=str)
@pytest.mark.parametrize("form", REFUSED)
def test_what_is_refused_says_what_to_do(form, options):
    a, error, text = REFUSED[form]
    with pytest.raises(error, match=text) as caught:
        oc.cholesky(a, devices="host:0", lower=True, **options)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([np.eye(2), np.eye(3)], "a list that is no batch .*inhomogeneous.*; give square matrices of one order"),
        ((np.eye(2), 5.0), "a tuple that is no batch .*; give square matrices of one order"),
        ([scipy.sparse.eye_array(2)] * 2, r"a list that is no batch, but of shape \(2,\); give square matrices of one order"),
    ],
    ids=["two orders", "a number", "sparse"],
)
def test_a_list_that_is_no_batch_says_so(batch, text):
    with pytest.raises(ValueError, match=text):
        oc.cholesky(batch)


@pytest.mark.parametrize("door", [oc.plan, lambda a: oc.solve(a, np.ones(3))], ids=["plan", "solve"])
def test_doors_for_one_matrix_say_that_cholesky_takes_batches(door):
    with pytest.raises(ValueError, match=r"shape \(2, 3, 3\), .*cholesky takes a batch \(b, n, n\).* all else one matrix"):
        door(np.stack([np.eye(3)] * 2))


@pytest.mark.parametrize("door", [oc.cholesky, oc.plan, oc.logdet], ids=lambda door: door.__name__)
def test_a_data_set_whose_file_is_closed_is_told_as_such(door, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        a = file.create_dataset("a", data=A)
    with pytest.raises(ValueError, match="A is a closed h5py"):
        door(a)


LARGE, SMALL = np.longdouble("1e4000"), np.longdouble("1e-4000")
#: Numbers beyond the type of L, and small ones on the diagonal that are zero in it: A's type, the number, L's type, and words.
BEYOND = {
    "float32": (
        float,
        1e300,
        1e-50,
        "float32",
        r"(1e\+300, beyond|1e-50, which is 0 in) float32 \(leave dtype out, or scale A\)",
    ),
    "objects": (object, 1e300, 1e-50, "float32", r"(1e\+300, beyond|1e-50, which is 0 in) float32 \(leave dtype out"),
    "complex64": (complex, 1e300j, 1e-50, "complex64", r"(0\+1e\+300j, beyond|1e-50\+0j, which is 0 in) complex64"),
    "long double": (np.longdouble, LARGE, SMALL, None, r"(1e\+4000, beyond|1e-4000, which is 0 in) float64 \(scale A\)"),
    "long double, float32": (
        np.longdouble,
        LARGE,
        SMALL,
        "float32",
        r"(1e\+4000, beyond|1e-4000, which is 0 in) float32 \(scale A\)",
    ),
}


@pytest.mark.parametrize("options", [{}, {"tile_size": 16}], ids=str)
@pytest.mark.parametrize("source", ["array", "upper", "file", "slices", "function"])
@pytest.mark.parametrize("case", BEYOND)
def test_numbers_that_the_type_of_l_does_not_hold_are_told_as_such(case, source, options, tmp_path):
    kind, large, small, dtype, text = BEYOND[case]
    if (source, kind) in [("file", object), ("function", object), ("function", np.longdouble), ("upper", complex)]:
        return  # which are refused for their types
    for value, row, col, error in ((large, 7, 3, oc.errors.NonFiniteError), (small, 7, 7, oc.NotPositiveDefiniteError)):
        a = spoiled(value, row, col, np.eye(40, dtype=kind))
        given = {
            "array": lambda a=a: a,
            "upper": lambda a=a: a.T,
            "file": lambda a=a: saved(tmp_path, a),
            "slices": lambda a=a: np.ma.masked_array(a),
            "function": lambda a=a: oc.from_function(
                40, lambda rows, cols, out, _: np.copyto(out, a[rows.start : rows.stop, cols.start : cols.stop]), dtype=kind
            ),
        }[source]()
        place = f"{col}, {row}" if source == "upper" else f"{row}, {col}"
        with pytest.raises(error, match=rf"A\[{place}\].* is {text}"):
            oc.cholesky(given, devices="host:0", lower=source != "upper", dtype=dtype, **options)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (LARGE, oc.errors.NonFiniteError, r"A\[1, 2, 2\] is 1e\+4000, beyond float64"),
        (SMALL, oc.NotPositiveDefiniteError, r"A\[1, 2, 2\] is 1e-4000, which is 0 in float64"),
        (10**400, oc.errors.NonFiniteError, r"A\[1, 2, 2\] is about 2\*\*1328, beyond float64"),
        (1j, oc.errors.NonFiniteError, r"A\[1, 2, 2\] is the complex 1j, no real number"),
    ],
    ids=str,
)
def test_an_entry_of_a_batch_that_float64_does_not_hold_is_told_as_such(value, error, text):
    batch = np.stack([np.eye(3)] * 2).astype(type(value) if isinstance(value, np.longdouble) else object)
    batch[1, 2, 2] = value
    with pytest.raises(error, match=text):
        oc.cholesky(batch, lower=True)


@pytest.mark.parametrize("solve", [oc.solve, lambda a, b, **options: oc.cholesky(a, **options).solve(b)])
def test_a_right_hand_side_beyond_the_type_of_l_is_told_as_such(solve):
    with pytest.raises(ValueError, match=r"entry \[1\] .* is 1e\+300, beyond the float32 of L"):
        solve(4 * np.eye(3), [1.0, 1e300, 1.0], dtype="float32")


def test_what_is_no_number_does_not_count_above_the_diagonal():
    above = A.astype(object)
    above[3, 7], above[2, 5], above[1, 9] = None, "text", 1j
    for a in (above, above.tolist(), pandas.DataFrame(above), np.ma.masked_array(A, np.triu(A, 1) > 0)):
        assert np.array_equal(np.asarray(oc.cholesky(a, lower=True)), np.asarray(oc.cholesky(A)))


def test_objects_are_not_read_from_files(tmp_path):
    np.save(tmp_path / "a.npy", A.astype(object), allow_pickle=True)
    with pytest.raises(TypeError, match=r"a\.npy holds Python objects"):
        oc.cholesky(tmp_path / "a.npy")


def test_overwrite_is_for_arrays_of_float64_only():
    for a in (A.tolist(), pandas.DataFrame(A), A.astype(int), A.astype(">f8")):
        with pytest.raises(TypeError, match="overwrite=True"):
            oc.cholesky(a, overwrite=True)


@pytest.mark.package("torch")
def test_tensors_that_keep_their_memory_are_refused_by_type():
    import torch

    a = torch.tensor(A)
    for tensor in (a.clone().requires_grad_(), a.bfloat16(), a.to_sparse()):
        with pytest.raises(TypeError, match="cannot be handed over by DLPack"):
            oc.cholesky(tensor)
    assert np.array_equal(np.asarray(oc.cholesky(a.int())), np.asarray(oc.cholesky(A)))


# a matrix of order 0


@pytest.mark.parametrize(
    "options", [{}, {"store": "L"}, {"precision_threshold": 1e-4}, {"lower": False}, {"trace": True}], ids=str
)
@pytest.mark.parametrize("form", ["array", "file", "list", "int", "slices"])
def test_a_matrix_of_order_0_has_the_factor_of_order_0(tmp_path, monkeypatch, form, options):
    monkeypatch.chdir(tmp_path)
    a = np.zeros((0, 0), int if form == "int" else float)
    given = {"file": lambda: saved(tmp_path, a), "list": lambda: np.zeros((0, 0)), "slices": lambda: np.ma.masked_array(a)}
    with oc.cholesky(given.get(form, lambda: a)(), **options) as factor:
        factor.save(tmp_path / "other")
        factor.save(tmp_path / "other.npy")
        assert np.load(tmp_path / "other.npy").shape == (0, 0)
        with oc.load(tmp_path / "other") as loaded:
            for one in (factor, loaded):
                assert (one.n, one.shape, one.logdet()) == (0, (0, 0), 0.0)
                for shape in ((0,), (0, 3)):
                    assert one.solve(np.zeros(shape)).shape == one.matmul(np.zeros(shape)).shape == shape
                    assert one.half_solve(np.zeros(shape)).shape == shape
                assert one.diagonal().shape == one.inverse_diagonal().shape == (0,)
                assert np.asarray(one).shape == (0, 0) and list(one.inverse_panels()) == []
                with pytest.raises(ValueError, match="order 0"):
                    one.residual(a)
                with pytest.raises(ValueError, match=r"\(3,\)"):
                    one.solve(np.zeros(3))


def test_there_is_nothing_to_plan_of_order_0():
    for nothing in (0, -1, np.zeros((0, 0))):
        with pytest.raises(ValueError, match="at least 1 row"):
            oc.plan(nothing)


# triangles

SOURCES = {
    "array": lambda folder, a: a,
    "Fortran": lambda folder, a: np.asfortranarray(a),
    "int": lambda folder, a: a if np.isnan(a).any() else a.astype(int),
    "list": lambda folder, a: a.tolist(),
    "table": lambda folder, a: pandas.DataFrame(a),
    "npy": saved,
    "npy F": lambda folder, a: saved(folder, np.asfortranarray(a)),
    "memmap": lambda folder, a: np.load(saved(folder, a), mmap_mode="r"),
    "h5py": lambda folder, a: h5py_data(folder, a, chunks=True),
}
UNEQUAL = {
    "lower only": (np.tril, True),
    "upper only": (np.triu, False),
    "NaN above": (wrong_above, True),
    "NaN below": (wrong_below, False),
    "one triangle twice the other": (lambda a: np.tril(a) + 2 * np.triu(a, 1), True),
}


@pytest.mark.parametrize(("source", "kind", "n"), pairwise(list(SOURCES), list(UNEQUAL), [2, 3, 61, 500]))
def test_triangles_that_differ_are_warned_of_unless_one_is_named(tmp_path, source, kind, n):
    change, lower = UNEQUAL[kind]
    a = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 3.0) + np.eye(n)
    a = a if source != "int" else np.rint(100 * a) + 10 * n * np.eye(n) + 1
    given = SOURCES[source](tmp_path, change(a))
    if lower or kind == "upper only":
        with pytest.warns(oc.errors.AsymmetryWarning, match=r"A\[\d+, \d+\] is .*, but A\[\d+, \d+\] is .*lower=True") as caught:
            oc.cholesky(given).close()
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with oc.cholesky(given, lower=lower) as factor:
            assert np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(a)))
            assert factor.residual(given).max_scaled_over_sqrt_n <= 4


@pytest.mark.parametrize("form", [np.asarray, np.ma.masked_array], ids=lambda form: form.__name__)
def test_a_complex_matrix_is_compared_with_its_adjoint(form):
    pair = r"A\[1, 0\] is 0\+1j, but the conjugate of A\[0, 1\] is 0-1j: A is not Hermitian"
    said = rf"{pair}.* A\.conj\(\)\.T if .* \(A \+ A\.conj\(\)\.T\) / 2$"
    with pytest.warns(oc.errors.AsymmetryWarning, match=said):
        oc.cholesky(form(np.array([[4, 1j], [1j, 4]])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oc.cholesky(form(np.array([[4, -1j], [1j, 4]])))
        with pytest.raises(oc.errors.NotHermitianError, match=r"A\[0, 0\] .* imaginary part"):
            oc.cholesky(form(np.array([[4 + 1j, -1j], [1j, 4]])))


#: Calls that factor A, and the warnings that they give at the caller's line.
WARNED = {
    "cholesky": (oc.cholesky, {}, oc.errors.AsymmetryWarning),
    "solve": (lambda a, **options: oc.solve(a, np.ones(len(a)), **options), {}, oc.errors.AsymmetryWarning),
    "logdet": (oc.logdet, {}, oc.errors.AsymmetryWarning),
    "logdet of a batch": (lambda a, **options: oc.logdet(np.stack([a, a]), **options), {}, oc.errors.AsymmetryWarning),
    "logdet, a threshold": (
        oc.logdet,
        {"lower": True, "precision_threshold": 1e-17, "strict": False},
        oc.errors.PrecisionWarning,
    ),
    "logdet, a budget": (oc.logdet, {"lower": True, "memory_budget": "4000 TB"}, oc.errors.BudgetWarning),
}


@pytest.mark.parametrize("call", WARNED)
def test_warnings_are_shown_at_the_line_of_the_caller(call):
    door, options, warning = WARNED[call]
    with pytest.warns(warning) as caught:
        door(np.tril(A), devices="host:0", **options)
    assert [one.filename for one in caught] == [__file__]


SYMMETRIC = {
    "diagonal": np.eye(200),
    "tridiagonal": 2 * np.eye(200) - np.eye(200, k=1) - np.eye(200, k=-1),
    "graded": np.exp(-np.add.outer(np.arange(200), np.arange(200)) / 10.0) + np.diag(np.exp(-np.arange(200) / 5.0)),
    "to rounding": None,
    "to float32": None,
    "half precision": None,
    "an order of 1": np.ones((1, 1)),
    "large numbers": np.eye(50) * 1e300 + 1e290,
    "denormal numbers": np.eye(50) * 1e-310,
}


@pytest.mark.parametrize("kind", SYMMETRIC)
def test_rounding_is_no_asymmetry(kind):
    rng = np.random.default_rng(0)
    a = SYMMETRIC[kind]
    if a is None:
        g = rng.standard_normal((200, 300))
        noise = {"to rounding": 1e-15, "to float32": 1e-7, "half precision": 3e-4}[kind]
        a = g @ g.T * (1 + noise * rng.standard_normal((200, 200)))
        a = (a / 1000).astype(np.float16) if kind == "half precision" else a
    assert find_asymmetry(as_source(a)) is None


def test_orthogonal_rows_make_noise_of_either_sign_beside_the_diagonal():
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 200)))[0]
    a = np.einsum("ik,jk->ij", q, q)
    a += np.triu(np.random.default_rng(1).standard_normal((200, 200)), 1) * 1e-17
    assert find_asymmetry(as_source(a)) is None


def test_a_sample_reads_a_few_entries_of_a_file(tmp_path, monkeypatch):
    import os

    read, preadv = [], os.preadv

    def counting(descriptor, buffers, position):
        read.append(sum(map(len, buffers)))
        return preadv(descriptor, buffers, position)

    path = saved(tmp_path, np.eye(3000))
    source = as_source(path)
    monkeypatch.setattr(os, "preadv", counting)
    assert find_asymmetry(source) is None
    source.close()
    assert len(read) <= 64 and sum(read) <= 8 * 64


def test_a_tile_function_is_asked_for_the_lower_triangle_only():
    asked = []

    def tile_fn(rows, cols, out, stream):
        asked.append((rows, cols))
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    oc.cholesky(oc.from_function(N, tile_fn), tile_size=16, devices="host:0").close()
    assert all(cols.start <= rows.start for rows, cols in asked)
    asked.clear()
    with oc.cholesky(oc.from_function(N, tile_fn), tile_size=16, devices="host:0", lower=False) as factor:
        assert np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(A, tile_size=16, devices="host:0")))
    assert all(rows.start <= cols.start for rows, cols in asked)


def test_a_tile_function_of_the_upper_triangle_meets_the_same_checks():
    with pytest.raises(oc.errors.NonFiniteError, match=r"only the upper triangle"):
        oc.cholesky(oc.from_function(N, lambda rows, cols, out, stream: None), devices="host:0", lower=False)
    with pytest.raises(TypeError, match=r"returned a ndarray.*out\[\.\.\.\]"):
        oc.cholesky(oc.from_function(N, lambda rows, cols, out, stream: A), devices="host:0", lower=False)


@pytest.mark.parametrize("lower", [1, 0, "lower", np.array([True])])
def test_lower_is_true_or_false(lower):
    for call in (oc.cholesky, oc.plan):
        with pytest.raises(TypeError, match=f"lower is a {type(lower).__name__}; give True"):
            call(A, lower=lower)


def test_a_plan_reads_the_norms_of_the_triangle_that_counts():
    options = {"precision_threshold": 1e-4, "tile_size": 16, "devices": "host:0"}
    expected = oc.plan(A, **options).precision.norms.tiles
    assert np.array_equal(oc.plan(wrong_below(A), lower=False, **options).precision.norms.tiles, expected)


# habits of other libraries


@pytest.mark.parametrize(
    ("others", "named", "text"),
    [
        ((True,), {}, r"got True after it: SciPy's second argument is lower; write lower=True"),
        ((False, True), {}, r"write lower=False"),
        ((1e-6, True), {}, r"write lower=True"),
        ((None, 64), {}, r"name the others"),
        ((), {"overwrite_a": True}, r"no argument overwrite_a: .*give overwrite=True"),
        ((), {"check_finite": False}, r"no argument check_finite: .*always checked"),
        ((), {"upper": True}, r"no argument upper: .*lower=False"),
        ((), {"tilesize": 64}, r"did you mean tile_size\?"),
        ((), {"memory_buget": 64}, r"did you mean memory_budget\?"),
        ((), {"xyz": 64}, r"help\(ooc_chol\.cholesky\)"),
    ],
)
def test_arguments_of_others_are_answered_with_ours(others, named, text):
    with pytest.raises(TypeError, match=text):
        oc.cholesky(A, *others, **named)


def test_the_threshold_needs_no_name():
    with oc.cholesky(A, 1e-3, tile_size=16) as one, oc.cholesky(A, precision_threshold=1e-3, tile_size=16) as other:
        assert one.formats == other.formats and np.array_equal(np.asarray(one), np.asarray(other))
        assert one.report.certified_bound.holds(1e-3)


# sizes


@pytest.mark.parametrize("budget", ["8M", "8 MB", "8e6", 8e6, np.int64(8e6), np.float64(8e6), "8000k", "8 m"])
def test_a_budget_as_people_write_it(budget):
    assert oc.plan(2000, tile_size=np.int64(256), memory_budget=budget).budgets[0].budget_bytes == 8_000_000


def test_a_budget_beyond_the_machine_is_warned_of():
    with pytest.warns(oc.errors.BudgetWarning, match=r"memory_budget is 1\.13e\+03 TB|memory_budget is 1126 TB") as caught:
        oc.cholesky(A, memory_budget="1 PiB", devices="host:0").close()
    assert caught[0].filename == __file__
    with pytest.warns(oc.errors.BudgetWarning, match="for each of 2 devices"):
        oc.cholesky(A, memory_budget="1 PiB", devices=2, tile_size=16).close()
    assert oc.plan(2000, memory_budget="1 PiB") is not None  # for another machine, maybe


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("call", [oc.cholesky, oc.plan])
def test_the_file_of_a_matrix_whose_upper_triangle_is_refused_is_closed(tmp_path, call):
    np.save(tmp_path / "c.npy", np.eye(4, dtype=complex))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(oc.errors.UnsupportedTypeError, match="lower=False"):
        call(tmp_path / "c.npy", lower=False)
    assert set(os.listdir("/proc/self/fd")) <= before


class Recorded:
    """A tensor of torch that requires gradients, as far as NumPy sees it."""

    requires_grad, shape, ndim, dtype = True, (N,), 1, np.dtype(float)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


#: What takes vectors beside a factor of A.
TAKES_VECTORS = {
    "solve": lambda factor, b: factor.solve(b),
    "refined": lambda factor, b: factor.solve(b, refine=True),
    "half_solve": lambda factor, b: factor.half_solve(b),
    "update": lambda factor, b: factor.update(b),
    "quadratic": lambda factor, b: factor.quadratic(b),
    "certify": lambda factor, b: factor.certify(b),
    "matmul": lambda factor, b: factor @ b,
    "rmatmul": lambda factor, b: b @ factor,
    "sample": lambda factor, b: factor.sample(mean=b),
    "oc.solve": lambda factor, b: oc.solve(A, b),
    "oc.multiply": lambda factor, b: oc.multiply(scipy.sparse.eye_array(N, format="csr"), b),
    "oc.symm": lambda factor, b: oc.symm(oc.from_function(N, lambda *_: None), b),
}


@pytest.mark.parametrize("name", TAKES_VECTORS)
def test_a_vector_that_requires_gradients_is_to_be_detached(name):
    with oc.cholesky(A, devices="host:0") as factor, pytest.raises(TypeError, match=r"requires grad.*detach it"):
        TAKES_VECTORS[name](factor, Recorded())
