"""Float32 and complex matrices on GPUs: as right as LAPACK's in the same type, from every place, in any budget."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.runs import check_bytes
from tests.host.typed import DTYPES, FAMILIES, check_solutions, check_typed, matrix
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.cuda

COMPLEX = ("complex64", "complex128")
TWO = ("cuda:0", "cuda:1")


def on(devices, a, dtype, nb=128, slots=12, **options):
    """The factor of ``a`` with a budget of some tiles beside the workspace."""
    from tests.inside.kernels import typed_workspace_bytes

    budget = typed_workspace_bytes() + slots * -(-np.dtype(dtype).itemsize * nb * nb // 4096) * 4096
    return oc.cholesky(a, dtype=dtype, tile_size=nb, devices=devices, memory_budget=budget, **options)


def on_gpu(a, order="C"):
    import cupy as cp

    return cp.array(a, order=order)


# tiles


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "nb"), [(1, 16), (2, 16), (31, 32), (33, 32), (63, 64), (300, 64), (1000, 100), (2049, 256), (2049, 500)]
)
def test_every_order_and_tile_size(dtype, n, nb):
    a = matrix("exponential", n, dtype)
    factor = on("cuda:0", a, dtype, nb)
    check_bytes(factor.report.plan, factor.report.execution)
    assert factor.residual(a).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
    if n <= 300:
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(dtype, family):
    a = matrix(family, 280, dtype)
    check_typed(np.asarray(on("cuda:0", a, dtype, 96)), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_budget_policy_or_store(dtype, tmp_path):
    a = matrix("exponential", 1300, dtype)
    first = np.asarray(on("cuda:0", a, dtype, slots=200))
    for slots in (3, 5, 9, 22):
        assert np.array_equal(first, np.asarray(on("cuda:0", a, dtype, slots=slots))), slots
    for policy in ("sync", "async", "v3"):
        assert np.array_equal(first, np.asarray(on("cuda:0", a, dtype, policy=policy))), policy
    for store in (tmp_path / "L.ooc", "device", "host", oc.HostMemory()):
        with on("cuda:0", a, dtype, slots=200, store=store) as factor:
            assert np.array_equal(first, np.asarray(factor))
    over = np.array(a)
    with on("cuda:0", over, dtype, overwrite=True) as factor:
        assert np.array_equal(first, np.asarray(factor))


@pytest.mark.multigpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slots", [4, 12, 60])
def test_two_gpus_give_the_bits_of_one(dtype, slots):
    a = matrix("exponential", 1300, dtype)
    two = on(TWO, a, dtype, slots=slots)
    check_bytes(two.report.plan, two.report.execution)
    assert np.array_equal(np.asarray(on("cuda:0", a, dtype)), np.asarray(two))


def in_columns(a, folder):
    return np.asfortranarray(a)


def in_a_file(a, folder):
    np.save(folder / "a.npy", a)
    return folder / "a.npy"


def as_function(a, folder):
    def fill(rows, cols, out, stream):
        out[...] = on_gpu(a[rows.start : rows.stop, cols.start : cols.stop])

    return oc.from_function(len(a), fill, dtype=a.dtype)


SOURCES = {
    "C": lambda a, folder: a,
    "F": in_columns,
    "npy": in_a_file,
    "garbage above": lambda a, folder: np.tril(a) + np.triu(np.full_like(a, np.nan), 1),
    "cupy C": lambda a, folder: on_gpu(a),
    "cupy F": lambda a, folder: on_gpu(a, "F"),
    "function": as_function,
}


@pytest.mark.parametrize("form", SOURCES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_whole", [False, True], ids=["tiles", "whole"])
def test_every_source_gives_the_same_bits(form, dtype, is_whole, tmp_path):
    a = matrix("exponential", 330, dtype)
    make = (
        (lambda given: oc.cholesky(given, dtype=dtype, devices="cuda:0"))
        if is_whole
        else (lambda given: on("cuda:0", given, dtype))
    )
    expected = np.asarray(make(a))
    assert np.array_equal(np.asarray(make(SOURCES[form](a, tmp_path))), expected)


@pytest.mark.parametrize(("of_a", "dtype"), [("complex64", "complex128"), ("complex128", "complex64"), ("float64", "float32")])
@pytest.mark.parametrize("form", ["C", "cupy C", "cupy F", "npy"])
@pytest.mark.parametrize("is_whole", [False, True], ids=["tiles", "whole"])
def test_what_has_another_type_is_converted(of_a, dtype, form, is_whole, tmp_path):
    a = np.array(matrix("exponential", 330, of_a if of_a != "float64" else "float32"), dtype=of_a)
    options = {"dtype": dtype, "devices": "cuda:0"} | ({} if is_whole else {"tile_size": 100})
    expected = np.asarray(oc.cholesky(a.astype(dtype), **options))
    assert np.array_equal(np.asarray(oc.cholesky(SOURCES[form](a, tmp_path), **options)), expected)


def test_a_function_for_another_type_is_refused():
    source = as_function(np.eye(300), None)
    for options in ({}, {"tile_size": 64}):
        with pytest.raises(TypeError, match="dtype='float32'"):
            oc.cholesky(source, dtype="float32", devices="cuda:0", **options)


# one tile


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 64, 300, 1025, 4096])
@pytest.mark.parametrize("store", ["host", "device"])
def test_one_tile_is_right(dtype, n, store):
    a = matrix("exponential", n, dtype)
    with oc.cholesky(a, dtype=dtype, devices="cuda:0", store=store) as factor:
        assert factor.report.plan.engine == "library" and factor.dtype == np.dtype(dtype)
        assert factor.residual(a).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
        if n <= 300:
            # cuSOLVER's routine is another one: in complex arithmetic it errs by more than twice what LAPACK does
            check_typed(np.asarray(factor), a, dtype, beside_lapack=dtype not in COMPLEX)
            check_solutions(factor, a)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_complex_array_on_the_gpu_stays_there(dtype):
    import cupy as cp

    a = matrix("exponential", 300, dtype)
    there = on_gpu(a)
    with oc.cholesky(there, dtype=dtype) as factor:
        assert np.array_equal(there.get(), a), "A is only read"
        dense = cp.asarray(factor)
        assert dense.dtype == np.dtype(dtype)
        check_typed(dense.get(), a, dtype, beside_lapack=False)
        b = on_gpu(np.ones(300, dtype))
        x = factor.solve(b)
        assert isinstance(x, cp.ndarray) and x.dtype == np.dtype(dtype)
        assert float(cp.abs(there @ x - b).max()) < 1e4 * np.finfo(dtype).eps


# what a factor answers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("store", ["host", "device", "file"])
@pytest.mark.parametrize("columns", [1, 40])
def test_solves_and_products(dtype, store, columns, tmp_path):
    a = matrix("exponential", 280, dtype)
    with on("cuda:0", a, dtype, 64, slots=60, store=tmp_path / "L.ooc" if store == "file" else store) as factor:
        check_solutions(factor, a, columns)


# errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"tile_size": 64}], ids=["whole", "tiles"])
@pytest.mark.parametrize("row", [0, 31, 32, 100, 299])
def test_a_failed_minor_is_named(dtype, options, row):
    a = np.array(matrix("exponential", 300, dtype))
    a[row, row] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(a, dtype=dtype, devices="cuda:0", **options)
    assert caught.value.minor == row + 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"tile_size": 64}], ids=["whole", "tiles"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named(dtype, options, value):
    a = np.array(matrix("exponential", 300, dtype))
    a[237, 105] = value * (1j if dtype in COMPLEX else 1)
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        oc.cholesky(a, dtype=dtype, devices="cuda:0", **options)
    assert (caught.value.row, caught.value.col) == (237, 105)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("options", [{}, {"tile_size": 64}], ids=["whole", "tiles"])
@pytest.mark.parametrize("form", ["C", "cupy C"])
def test_a_diagonal_that_is_not_real_is_refused(dtype, options, form, tmp_path):
    a = np.array(matrix("exponential", 300, dtype))
    a[237, 237] += 0.01j
    with pytest.raises(oc.errors.NotHermitianError, match=r"A\[237, 237\]"):
        oc.cholesky(SOURCES[form](a, tmp_path), dtype=dtype, devices="cuda:0", **options)
