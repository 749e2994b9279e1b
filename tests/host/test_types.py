"""Factors in float32 and of complex Hermitian matrices: as right as LAPACK's in the same type, from every source."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
from tests.builders import device_solver
from tests.host.typed import DTYPES, FAMILIES, Sliceable, check_solutions, check_typed, matrix, residual, with_phases
from tests.inside.dense import HostSolver, solve
from tests.inside.kernels import blas
from tests.inside.memory import ArraySource
from tests.inside.precision import TYPES
from tests.inside.runtime import Pass
from tests.inside.tasks import Link
from tests.products import pairwise
from tests.tolerances import FACTOR_ENTRY_C, trsm_bound, unit_roundoff

COMPLEX = ("complex64", "complex128")


def budget(tiles: int, nb: int, dtype: str) -> int:
    """Bytes that hold so many tiles and no more."""
    return tiles * -(-np.dtype(dtype).itemsize * nb * nb // 4096) * 4096


# right


ORDERS = {"1": {}, "17": {}, "200": {}, "203": {"tile_size": 32}, "256": {"tile_size": 100}}


@pytest.mark.parametrize(("dtype", "family", "order"), pairwise(DTYPES, FAMILIES, list(ORDERS)))
def test_factors_are_as_right_as_lapacks(dtype, family, order):
    n, options = int(order), ORDERS[order]
    a = matrix(family, n, dtype)
    with oc.cholesky(a, dtype=dtype, **options) as factor:
        assert factor.dtype == np.dtype(dtype) and factor.formats == {TYPES[dtype].name: factor.grid.n_tiles}
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_of_core_on_several_devices_the_bits_are_the_same(dtype, tmp_path):
    nb, a = 48, matrix("exponential", 230, dtype)
    options = {"dtype": dtype, "tile_size": nb}
    first = np.asarray(oc.cholesky(a, devices="host:0", **options))
    check_typed(first, matrix("exponential", 230, dtype), dtype)
    for more in (
        {"devices": "host:0", "memory_budget": budget(3, nb, dtype)},
        {"devices": ["host:0", "host:1", "host:2"], "memory_budget": budget(3, nb, dtype)},
        {"devices": "host:0", "memory_budget": budget(6, nb, dtype), "policy": "v3"},
        {"devices": ["host:0", "host:1"], "store": tmp_path / "L.ooc"},
        {"devices": "host:0", "policy": "async"},
    ):
        with oc.cholesky(a, **options, **more) as factor:
            assert np.array_equal(np.asarray(factor), first), more
            report = factor.report
            assert report.bytes.executed == report.bytes.planned
            assert max(report.execution.peak_bytes) <= more.get("memory_budget", 1 << 60)
            if "memory_budget" in more:
                assert report.bytes.executed["fetch"] > 0, "not out of core"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 513, 700])
def test_one_tile_has_the_bits_of_a_run(dtype, n):
    a = matrix("exponential", n, dtype)
    direct, executed = oc.cholesky(a, dtype=dtype), oc.cholesky(a, dtype=dtype, tile_size=n, devices="host:0")
    assert np.array_equal(np.asarray(direct), np.asarray(executed)) and direct.arithmetic_key == executed.arithmetic_key
    assert direct.arithmetic_key["formats"] == TYPES[dtype].name


def test_without_a_dtype_a_factor_is_in_double_precision():
    single = matrix("exponential", 90, "complex64")
    with oc.cholesky(single, tile_size=40) as factor:
        check_typed(np.asarray(factor), single.astype("complex128"), "complex128")
    real = matrix("exponential", 90, "float32")
    with oc.cholesky(real, tile_size=40) as factor:
        check_typed(np.asarray(factor), real.astype("float64"), "float64")


def test_a_real_matrix_may_have_a_complex_factor():
    a = matrix("exponential", 150, "float32").astype(float)
    factor = oc.cholesky(a, dtype=np.complex128, tile_size=64)
    dense = np.asarray(factor)
    check_typed(dense, a, "complex128")
    assert not dense.imag.any()
    assert np.abs(dense.real - np.asarray(oc.cholesky(a, tile_size=64))).max() < 1e-12


def test_float64_is_rounded_once_to_float32():
    a = np.array(matrix("exponential", 120, "complex128")).real
    rounded = np.asarray(oc.cholesky(a.astype(np.float32), dtype="float32", tile_size=50))
    assert np.array_equal(np.asarray(oc.cholesky(a, dtype="float32", tile_size=50)), rounded)
    assert np.array_equal(
        np.asarray(oc.cholesky(a, dtype="float32")), np.asarray(oc.cholesky(a.astype(np.float32), dtype="float32"))
    )


# sources


def function_of(a, dtype=None):
    """A source that copies tiles of ``a``."""

    def fill(rows, cols, out, stream):
        assert out.dtype == a.dtype
        out[...] = a[rows.start : rows.stop, cols.start : cols.stop]

    return oc.from_function(len(a), fill, dtype=a.dtype)


def npy(path: Path, a):
    """The path of a file that holds ``a``."""
    np.save(path, a)
    return path


SOURCES = {
    "C": lambda a, folder: a,
    "F": lambda a, folder: np.asfortranarray(a),
    "strided": lambda a, folder: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda a, folder: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "garbage above": lambda a, folder: np.tril(a) + np.triu(np.full_like(a, np.nan), 1),
    "slices": lambda a, folder: Sliceable(a),
    "npy": lambda a, folder: npy(folder / "a.npy", a),
    "npy F": lambda a, folder: npy(folder / "a.npy", np.asfortranarray(a)),
    "memmap": lambda a, folder: np.load(npy(folder / "a.npy", a), mmap_mode="r"),
    "function": lambda a, folder: function_of(a),
}


CONVERSIONS = [(d, d) for d in DTYPES] + [("complex128", "complex64"), ("complex64", "complex128")]


@pytest.mark.parametrize(
    ("form", "types", "options"), pairwise(list(SOURCES), CONVERSIONS, [{}, {"tile_size": 48, "devices": "host:0"}])
)
def test_every_source_gives_the_same_bits(form, types, options, tmp_path):
    of_a, dtype = types
    a = matrix("exponential", 130, of_a)
    expected = np.asarray(oc.cholesky(a.astype(dtype), dtype=dtype, **options))
    with oc.cholesky(SOURCES[form](a, tmp_path), dtype=dtype, **options) as factor:
        assert np.array_equal(np.asarray(factor), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_read_moves_as_many_bytes_as_it_has(dtype):
    a, size = matrix("exponential", 130, dtype), np.dtype(dtype).itemsize
    plan = oc.plan(a, dtype=dtype, tile_size=48, devices="host:0")
    entries = sum(plan.grid.entries(*index) for index in plan.grid.tiles())
    assert plan.link_bytes(Link.SOURCE) == plan.link_bytes(Link.WRITE) == plan.compulsory_bytes == size * entries
    with oc.cholesky(a, plan=plan, dtype=None) if dtype == "complex128" else oc.cholesky(a, dtype=dtype, tile_size=48) as factor:
        assert factor.report.bytes.executed["write"] == size * entries
    assert plan.to_dict()["dtype"] == dtype and plan.seconds is None and "no rates are measured here" in str(plan)


@pytest.mark.parametrize("dtype", DTYPES)
def test_l_over_a_keeps_its_type(dtype):
    a = np.array(matrix("random", 150, dtype))
    above = np.triu(a, 1)
    expected = np.asarray(oc.cholesky(a, dtype=dtype, tile_size=40))
    with oc.cholesky(a, dtype=dtype, tile_size=40, overwrite=True) as factor:
        check_solutions(factor, matrix("random", 150, dtype))
        assert np.array_equal(np.asarray(factor), expected)
    assert np.array_equal(np.tril(a), expected) and np.array_equal(np.triu(a, 1), above)
    if dtype != "complex128":
        with pytest.raises(TypeError, match=r"NumPy (float64|complex128) array only"):
            oc.cholesky(np.array(matrix("random", 150, dtype)), tile_size=40, overwrite=True)


# what a factor answers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"tile_size": 64}], ids=["whole", "tiles"])
@pytest.mark.parametrize("where", ["memory", "store", "saved"])
def test_solves_products_and_determinants(dtype, options, where, tmp_path):
    a = matrix("exponential", 180, dtype)
    path = tmp_path / "L.ooc"
    factor = oc.cholesky(a, dtype=dtype, store=path if where == "store" else None, **options)
    if where == "saved":
        factor.save(path)
        factor.close()
        factor = oc.load(path)
    with factor:
        check_solutions(factor, a)
        diagonal = factor.diagonal()
        assert diagonal.dtype == np.empty(0, dtype).real.dtype and (diagonal == np.asarray(factor).diagonal().real).all()
        exact = np.linalg.slogdet(a.astype(np.complex128))[1]
        assert abs(factor.logdet() - exact) <= 1e4 * unit_roundoff(dtype) * 180
        assert np.array_equal(factor.rows(range(60, 70), 65), np.asarray(factor)[60:70, :65])
        one = factor.solve(np.ones(180))
        assert one.shape == (180,) and one.dtype == np.dtype(dtype)
        assert repr(factor).count(f"dtype={dtype!r}") == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tiles", [5, 40])
def test_solves_on_a_device_are_those_of_the_host(dtype, tiles):
    n, nb = 300, 40
    with oc.cholesky(matrix("exponential", n, dtype), dtype=dtype, tile_size=nb) as factor:
        store = factor._store
        b = factor.matmul(np.random.default_rng(1).standard_normal((n, 50)))
        for transposed in ((False,), (True,), (False, True)):
            x, expected = b.copy(), b.copy()
            solve(device_solver("host:0", budget(tiles, nb, dtype) + 8 * 4096 + n * 24 * b.itemsize), store, x,
                  transposed=transposed, run=Pass(""))  # fmt: skip
            solve(HostSolver(), store, expected, transposed=transposed, run=Pass(""))
            assert np.abs(x - expected).max() <= 1e3 * n * unit_roundoff(dtype) * np.abs(expected).max()


@pytest.mark.parametrize(
    ("dtype", "n"),
    [
        *((dtype, 150) for dtype in DTYPES),
        ("float32", 700),
        pytest.param("complex64", 700, marks=pytest.mark.thorough),
        ("complex128", 700),
    ],
)
def test_the_residual_is_in_units_of_the_type(dtype, n):
    a = matrix("exponential", n, dtype)
    with oc.cholesky(a, dtype=dtype, tile_size=64) as factor:
        found = factor.residual(a, blocks=66)
        assert 0.01 < found.max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
        if n == 150:  # every block is looked at
            diagonal = np.sqrt(a.diagonal().real.astype(float))
            scaled = np.abs(np.tril(residual(a, np.asarray(factor)))) / unit_roundoff(dtype)
            assert (
                abs(found.max_scaled - float((scaled / np.outer(diagonal, diagonal)).max())) <= 1e-2 * found.max_scaled
            )  # long double has a floor
        spoilt = np.array(a)
        spoilt[n - 1, n - 40] *= 1 + 40 * FACTOR_ENTRY_C * np.sqrt(n) * np.finfo(dtype).eps * (1j if dtype in COMPLEX else 1)
        spoilt[n - 1, n - 40] += (0.5j if dtype in COMPLEX else 0.5) * 40 * np.sqrt(n) * np.finfo(dtype).eps
        assert factor.residual(spoilt, blocks=66).max_scaled_over_sqrt_n > FACTOR_ENTRY_C


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_shown_and_written_has_the_type(dtype, tmp_path):
    a = matrix("random", 90, dtype)
    with oc.cholesky(a, dtype=dtype, tile_size=32, trace=True) as factor:
        assert f"6 tiles in {TYPES[dtype].name}" in factor._repr_html_()
        assert TYPES[dtype].name in str(factor.report.plan) and factor.report.to_dict()["dtype"] == dtype
        for shown in (factor.report, factor.report.plan):
            assert shown._repr_html_() and str(shown) and repr(shown)
        assert TYPES[dtype].name in {record.fmt for record in factor.trace.records}
        assert factor.report.tflops == factor.report.plan.fmt.flops_factor * 90**3 / 3 / factor.report.inside_seconds / 1e12
        factor.save(tmp_path / "L.npy")
        dense = np.load(tmp_path / "L.npy")
        assert dense.dtype == np.dtype(dtype) and np.array_equal(dense, np.asarray(factor))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_says_its_type_and_comes_back_bit_by_bit(dtype, tmp_path):
    path, a = tmp_path / "L.ooc", matrix("random", 100, dtype)
    with oc.cholesky(a, dtype=dtype, store=path, tile_size=30) as factor:
        dense, key = np.asarray(factor), factor.arithmetic_key
    raw = path.read_bytes()
    fields = json.loads(raw[20 : 20 + struct.unpack_from("<Q", raw, 8)[0]])
    assert (fields["version"], fields["formats"], fields["format_of_tile"]) == (4, [TYPES[dtype].name], None)
    first = np.frombuffer(raw, dtype, 30 * 30, fields["data_offset"]).reshape(30, 30)
    assert np.array_equal(first, dense[:30, :30])  # anybody can read it
    with oc.load(path) as loaded:
        assert loaded.dtype == np.dtype(dtype) and np.array_equal(np.asarray(loaded), dense)
        assert loaded.arithmetic_key == key
        loaded.save(tmp_path / "again.ooc")
        copy = (tmp_path / "again.ooc").read_bytes()
        assert copy == raw


# errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"tile_size": 16, "devices": "host:0"}], ids=["whole", "tiles"])
@pytest.mark.parametrize("row", [0, 20, 49])
def test_a_failed_minor_is_named_as_lapack_does(dtype, options, row):
    a = np.array(matrix("exponential", 50, dtype))
    a[row, row] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(a, dtype=dtype, **options)
    potrf = scipy.linalg.get_lapack_funcs("potrf", (a,))
    assert caught.value.minor == row + 1 == potrf(a, lower=True)[1]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(dtype, value) for dtype in DTYPES for value in (np.nan, np.inf)] + [("float32", 1e300), ("complex64", 1e300)],
)
@pytest.mark.parametrize("options", [{}, {"tile_size": 16, "devices": "host:0"}], ids=["whole", "tiles"])
def test_what_is_not_finite_is_named(dtype, options, value):
    a = np.array(matrix("exponential", 50, "complex128" if dtype in COMPLEX else dtype)).astype(np.result_type(dtype, float))
    a[37, 5] = value * (1j if dtype in COMPLEX else 1)
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        oc.cholesky(a, dtype=dtype, **options)
    assert (caught.value.row, caught.value.col) == (37, 5)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("options", [{}, {"tile_size": 16, "devices": ["host:0", "host:1"]}], ids=["whole", "tiles"])
@pytest.mark.parametrize("form", ["C", "function"])
def test_a_diagonal_that_is_not_real_is_refused(dtype, options, form, tmp_path):
    a = np.array(matrix("exponential", 50, dtype))
    a[37, 37] += 0.01j * a[37, 37]
    with pytest.raises(oc.errors.NotHermitianError, match=r"A\[37, 37\]") as caught:
        oc.cholesky(SOURCES[form](a, tmp_path), dtype=dtype, **options)
    assert caught.value.row == 37
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, ValueError) and (again.row, again.tile) == (37, caught.value.tile)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("options", [{}, {"tile_size": 16, "devices": "host:0"}], ids=["whole", "tiles"])
def test_rounding_on_the_diagonal_is_no_reason(dtype, options):
    a = np.array(matrix("exponential", 50, dtype))
    a += np.diag(1j * 20 * unit_roundoff(dtype) * a.diagonal().real).astype(dtype)
    check_typed(np.asarray(oc.cholesky(a, dtype=dtype, **options)), a, dtype)
    widened = oc.cholesky(a, dtype="complex128", **options)  # the rounding is still that of A's own type
    check_typed(np.asarray(widened), a.astype("complex128"), "complex128")


def test_a_complex_matrix_has_no_real_factor():
    a = matrix("exponential", 20, "complex128")
    for dtype in ("float64", "float32"):
        with pytest.raises(oc.errors.UnsupportedTypeError, match="Hermitian matrix is complex"):
            oc.cholesky(a, dtype=dtype)
        with pytest.raises(oc.errors.UnsupportedTypeError):
            oc.plan(a, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_only_float64_has_is_refused(dtype):
    a = matrix("exponential", 40, dtype)
    for call in (oc.cholesky, oc.plan):
        with pytest.raises(oc.errors.UnsupportedTypeError, match=f"precision_threshold is not there for {dtype}") as caught:
            call(a, dtype=dtype, precision_threshold=1e-3)
        assert caught.value.dtype == dtype and isinstance(caught.value, TypeError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_only_float64_factors_answer_is_refused(dtype):
    a = matrix("exponential", 40, dtype)
    ones = oc.from_function(40, lambda rows, cols, out, stream: out.fill(1.0))
    with oc.cholesky(a, dtype=dtype) as factor:
        for call in (
            lambda: factor.solve(np.ones(40), refine=True),
            lambda: factor.inverse_panels(),
            lambda: factor.inverse_diagonal(),
            lambda: factor.inverse_traces([ones]),
            lambda: factor.half_solve_sums(ones, range(2)),
        ):
            with pytest.raises(oc.errors.UnsupportedTypeError, match=f"is not there for {dtype}"):
                call()


def test_a_complex_right_hand_side_needs_a_complex_factor():
    with oc.cholesky(np.eye(4), dtype="float32") as factor, pytest.raises(TypeError, match="real numbers up to float64"):
        factor.solve(np.ones(4, complex))
    with oc.cholesky(np.eye(4), dtype="complex64") as factor:
        assert np.array_equal(factor.solve(1j * np.ones(4)), 1j * np.ones(4))
        with pytest.raises(ValueError, match=r"entry \[2\]"):
            factor.solve(np.array([0, 0, 1e300j, 0]))
        with pytest.raises(TypeError, match="up to complex128"):
            factor.solve(np.ones(4, np.clongdouble))


@pytest.mark.parametrize("dtype", ["float16", "int", "quad", ">f4", 3, object])
def test_other_types_are_refused_by_name(dtype):
    for call in (lambda: oc.cholesky(np.eye(2), dtype=dtype), lambda: oc.plan(2, dtype=dtype)):
        with pytest.raises(TypeError, match=r"dtype is .*there are 'float64', 'float32', 'complex128', 'complex64'"):
            call()


def test_functions_of_other_types_are_refused_where_they_would_be_summed():
    source = function_of(matrix("exponential", 20, "complex128"))
    with pytest.raises(oc.errors.UnsupportedTypeError):
        oc.symm(source, np.ones(20))
    with oc.cholesky(np.eye(20)) as factor, pytest.raises(oc.errors.UnsupportedTypeError):
        factor.residual(source)


# plans


@pytest.mark.parametrize("dtype", DTYPES)
def test_plans_are_for_the_bytes_of_the_type(dtype):
    size, nb = np.dtype(dtype).itemsize, 1024
    plan = oc.plan(10_240, dtype=dtype, tile_size=nb, memory_budget=20 * size * nb * nb, devices="host:0")
    assert plan.budgets[0].slot_bytes == size * nb * nb and plan.budgets[0].n_slots == 20
    assert plan.link_bytes(Link.WRITE) == size * 55 * nb * nb == plan.stored_bytes
    factor = 4 if dtype in COMPLEX else 1
    assert plan.flops == factor * oc.plan(10_240, tile_size=nb, memory_budget="1 GB", devices="host:0").flops
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(10_240, dtype=dtype, tile_size=nb, memory_budget=2 * size * nb * nb, devices="host:0")
    assert caught.value.needed_bytes == 3 * size * nb * nb


def test_a_plan_is_taken_for_its_own_type_only():
    a = matrix("exponential", 100, "float32")
    plan = oc.plan(a, dtype="float32", tile_size=32)
    with pytest.raises(ValueError, match="float32"):
        oc.cholesky(a, plan=plan)
    factor = oc.cholesky(a, plan=plan, dtype="float32")
    assert factor.dtype == np.float32 and factor.report.plan is plan


# kernels


@pytest.mark.parametrize("dtype", (*DTYPES, "float64"))
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 3), (130, 70)])
def test_kernels_conjugate_where_they_must(dtype, m, n):
    rng = np.random.default_rng(m)
    is_complex = np.dtype(dtype).kind == "c"

    def numbers(*shape):
        return (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if is_complex else 0)).astype(dtype)

    left, right, c = numbers(m, n), numbers(7, n), numbers(m, 7)
    expected = c.astype(np.complex128) - left.astype(np.complex128) @ right.conj().T
    blas.gemm(c, left, right)
    assert np.allclose(c, expected, atol=40 * n * unit_roundoff(dtype))
    square = numbers(m, m)
    upper, lower = np.triu(square, 1), square - np.tril(left.astype(np.complex128) @ left.conj().T)
    blas.syrk(square, left)
    assert np.allclose(np.tril(square, -1), np.tril(lower, -1), atol=40 * n * unit_roundoff(dtype))
    assert np.array_equal(np.triu(square, 1), upper)
    l_kk = np.tril(numbers(n, n)) + n * np.eye(n, dtype=dtype)
    x = left.copy()
    blas.trsm(l_kk, x)
    wrong = np.abs(x.astype(np.clongdouble) @ l_kk.conj().T - left)
    assert (wrong <= 8 * trsm_bound(np.abs(x), np.abs(l_kk), dtype)).all()


def test_views_of_other_types_are_not_taken_for_tiles():
    a = ArraySource(matrix("exponential", 20, "complex64"))
    with pytest.raises(ValueError, match="complex numbers where A has some"):
        a.read_block(range(4), range(4), np.empty((4, 4)))


def test_the_check_itself_can_fail():
    a = matrix("exponential", 100, "complex64")
    l_dense = np.asarray(oc.cholesky(a, dtype="complex64"))
    assert np.abs(residual(a, l_dense)).max() < 1e-5
    for spoilt in (l_dense.conj(), np.ascontiguousarray(with_phases(l_dense)).astype("complex64")):
        with pytest.raises(AssertionError):
            check_typed(spoilt, a, "complex64")
