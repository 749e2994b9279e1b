"""Residues of float32 and complex matrices: kernels against Python's integers, factors as right as LAPACK's, bits, and errors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol.errors import UnsupportedTypeError
from tests.builders import host_residue_kernels
from tests.host.matrices import FAMILIES as REAL_FAMILIES
from tests.host.residue_reference import STREAM, canonical, host_kernels, integer
from tests.host.residue_types import diagonals_of, entries_between, planes_of, rows_of_a_factor
from tests.host.spoiled import INDEFINITE, counter_example, spread_out
from tests.host.spoiled import good as good_to_spoil
from tests.host.turns import in_turn
from tests.host.typed import DTYPES, FAMILIES, check_solutions, check_typed, matrix, residual, with_phases
from tests.inside.dense import ResidueOperations
from tests.inside.hardware import HostStream
from tests.inside.precision import COMPLEX64, COMPLEX128, FP32, MOST_MODULI, MOST_TERMS, TYPES, PrecisionFormat, ResidueBasis
from tests.products import pairwise, share_of_examples, thorough
from tests.tolerances import residue_entry_bound

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

FORMATS = [FP32, COMPLEX64, COMPLEX128]
COMPLEX = [COMPLEX64, COMPLEX128]
COUNTS = range(4, MOST_MODULI + 1)
each_format = pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
each_complex = pytest.mark.parametrize("fmt", COMPLEX, ids=lambda fmt: fmt.name)


def basis_of(count: int, fmt: PrecisionFormat) -> ResidueBasis:
    """The basis that tiles of a format take."""
    return ResidueBasis(count, fmt.is_complex)


def parts_of(values, e):
    """``round(2**e values)`` as Python's integers, both parts; ``e`` is one exponent a row."""
    rows = [[(integer(x.real, e_i), integer(x.imag, e_i)) for x in row] for row, e_i in zip(values, e, strict=True)]
    return np.array(rows, dtype=object).transpose(2, 0, 1)


# kernels


@each_format
@pytest.mark.parametrize("count", [4, 7, 15])
def test_conversion_is_that_of_integers(fmt, count):
    rng, basis = np.random.default_rng(count), basis_of(count, fmt)
    diagonal = diagonals_of(rng, 9, fmt)
    values = rows_of_a_factor(rng, diagonal[2:], 40, fmt)
    out = np.zeros((basis.planes, *values.shape), dtype=np.int8)
    with host_kernels(count, diagonal, fmt=fmt) as kernels:
        kernels.convert(STREAM, values, range(2, 9), out, is_first=True)
        assert kernels.flagged_row() is None
    q = parts_of(values, [basis.exponent(a_ii) for a_ii in diagonal[2:]])
    assert np.array_equal(out, planes_of(q[0], q[1], basis))


@share_of_examples(0.3)
@given(data=st.data())
@each_format
def test_updates_equal_exact_rational_arithmetic(fmt, data):
    """Each part of ``A - sum_k q_ik conj(q_jk) 2**-(e_i + e_j)``, rounded to float64 once, and from there to the type."""
    n, k = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    count, rng = data.draw(st.sampled_from(COUNTS)), np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    basis, diagonal = basis_of(count, fmt), diagonals_of(rng, n, fmt)
    factor = rows_of_a_factor(rng, diagonal, k, fmt)
    entries = entries_between(rng, diagonal, diagonal, fmt)
    entries[~np.isfinite(entries)] = 0
    result, strips = entries.copy(), np.zeros((basis.planes, n, k), dtype=np.int8)
    sums = np.zeros((basis.planes, n, n), dtype=np.int32)
    with host_kernels(count, diagonal, fmt=fmt) as kernels:
        kernels.convert(STREAM, factor, range(n), strips, is_first=True)
        kernels.product(STREAM, sums, strips, strips, accumulates=False, lower=False)
        if data.draw(st.booleans()):
            kernels.fold(STREAM, sums)
        kernels.reconstruct(STREAM, sums, result, range(n), range(n))
        assert kernels.flagged_row() is None
    e = [basis.exponent(a_ii) for a_ii in diagonal]
    real, imaginary = parts_of(factor, e)
    totals = real @ real.T + imaginary @ imaginary.T, imaginary @ real.T - real @ imaginary.T
    for part, total in zip(("real", "imag") if fmt.is_complex else ("real",), totals, strict=False):
        for i in range(n):
            for j in range(n):
                exact = rounded_difference(getattr(entries[i, j], part), total[i, j], e[i] + e[j])
                with np.errstate(over="ignore", under="ignore"):
                    assert getattr(result[i, j], part) == fmt.real_dtype.type(exact)


def rounded_difference(a_ij, total: int, e: int) -> float:
    """``A_ij - total / 2**e`` in float64, of an A_ij that is first rounded to a multiple of ``2**-e`` if below 2**126."""
    scaled = integer(a_ij, e)
    if abs(scaled) < 1 << 126:
        return float((scaled - total) * Fraction(2) ** -e)
    return float(a_ij) - float(total * Fraction(2) ** -e)


@each_complex
def test_the_squares_of_both_parts_count(fmt):
    row = np.array([[0.5, 0.5j, 0.5 + 0.49j, 0.0]], dtype=fmt.dtype)  # squares of 0.99
    out = np.zeros((14, 1, 4), dtype=np.int8)
    with host_kernels(7, [1.0, 1.0], fmt=fmt) as kernels:
        kernels.convert(STREAM, row, range(1, 2), out, is_first=True)
        assert kernels.flagged_row() is None
        kernels.convert(STREAM, 0.4j * row[:, :1], range(1, 2), out[:, :, :1], is_first=True)
        assert kernels.flagged_row() == 1


@each_format
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_what_no_integer_holds_flags_its_row(fmt, bad):
    values = np.array([[0.5, 0.5], [0.5, 0.1]], dtype=fmt.dtype)
    values[1, 1] = bad * (1j if fmt.is_complex else 1)
    out = np.zeros((basis_of(7, fmt).planes, 2, 2), dtype=np.int8)
    with host_kernels(7, [1.0, 1.0], fmt=fmt) as kernels:
        kernels.convert(STREAM, values, range(2), out, is_first=True)
        assert kernels.flagged_row() == 1


@each_complex
def test_the_longest_sums_of_extreme_residues_are_exact_after_a_fold(fmt):
    basis = ResidueBasis(15, is_split=True)
    halves = np.tile([m // 2 for m in basis.moduli], 2)
    strip = np.tile(halves.astype(np.int8)[:, None, None], (1, 1, MOST_TERMS))
    sums = np.tile(halves.astype(np.int32)[:, None, None], (1, 1, 1))
    with host_kernels(15, [1.0], fmt=fmt) as kernels:
        kernels.product(STREAM, sums, strip, strip, accumulates=True, lower=False)
        kernels.fold(STREAM, sums)
    exact = [canonical(int(h) + int(h) ** 2 * MOST_TERMS, m) for h, m in zip(halves, basis.moduli * 2, strict=True)]
    assert sums.ravel().tolist() == exact


@each_format
def test_threads_and_streams_do_not_change_a_bit(fmt):
    rng, n, k = np.random.default_rng(3), 300, 150
    diagonal = diagonals_of(rng, n, fmt)
    factor, entries = rows_of_a_factor(rng, diagonal, k, fmt), entries_between(rng, diagonal, diagonal, fmt)
    results = []
    for threads in (1, 3):
        kernels, stream = host_residue_kernels(7, threads, fmt), HostStream("test")
        stream.start()
        planes, result = kernels.basis.planes, entries.copy()
        strips, sums = np.zeros((planes, n, k), np.int8), np.zeros((planes, n, n), np.int32)
        kernels.open(n)
        kernels.set_diagonal(stream, 0, np.diag(diagonal).astype(fmt.dtype))
        kernels.convert(stream, factor, range(n), strips, is_first=True)
        kernels.product(stream, sums, strips, strips, accumulates=False, lower=True)
        kernels.fold(stream, sums)
        kernels.reconstruct(stream, sums, result, range(n), range(n))
        stream.synchronize()
        stream.close()
        kernels.close()
        results.append(np.tril(result))
    assert np.array_equal(*results, equal_nan=True)


# right


def through_residues(a, dtype, **options) -> oc.CholeskyFactor:
    """A factor through residues; its bytes and its memory are those of its plan."""
    options = {"tile_size": 32, "devices": "host:0", "memory_budget": "256 MiB", **options}
    factor = oc.cholesky(a, dtype=dtype, fp64="residue", **options)
    report = factor.report
    assert report.plan.engine == "residue" and report.bytes.executed == report.bytes.planned
    for program, held in zip(report.plan.programs, report.plan.budgets, strict=True):
        assert program.peak_resident == program.peak_bytes <= program.layout.arena_bytes
        assert program.layout.arena_bytes + held.workspace_bytes <= held.budget_bytes
    return factor


def least_budget(n: int, dtype: str, **options) -> int:
    """The bytes that the planner says suffice."""
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(n, dtype=dtype, fp64="residue", memory_budget=1, **{"tile_size": 32, "devices": "host:0", **options})
    return caught.value.needed_bytes


@pytest.mark.parametrize(("dtype", "family", "tiling"), pairwise(DTYPES, FAMILIES, [(1, 16), (65, 16), (203, 48)]))
def test_every_family_is_as_right_as_lapack(dtype, family, tiling):
    n, nb = tiling
    a = matrix(family, n, dtype)
    with through_residues(a, dtype, tile_size=nb, memory_budget=least_budget(n, dtype, tile_size=nb)) as factor:
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", thorough("nearly singular", "exponential", "random"))
def test_families_at_order_400_on_two_devices(dtype, family):
    a = matrix(family, 400, dtype)
    with through_residues(a, dtype, tile_size=128, devices=2) as factor:
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("family", ["matern15 nugget 1e-11", "matern25 nugget 1e-11", "gaussian nugget 1e-12"])
def test_matrices_that_lapack_just_survives(dtype, family):
    """Of the least nugget that is a power of two and with which LAPACK factors them: no row is flagged for rounding."""
    n = 160
    smooth = REAL_FAMILIES[family](n)
    smooth = with_phases(smooth) if dtype == "complex64" else smooth
    potrf = scipy.linalg.get_lapack_funcs("potrf", dtype=dtype)
    near = ((smooth + 2.0**power * np.eye(n)).astype(dtype) for power in range(-24, 0))
    a = next(a for a in near if potrf(a, lower=True)[1] == 0)
    with through_residues(a, dtype) as factor:
        check_typed(np.asarray(factor), a, dtype)


@share_of_examples(0.2)
@given(
    n=st.integers(1, 120),
    nb=st.sampled_from([16, 32, 48]),
    devices=st.integers(1, 3),
    share=st.floats(1.0, 4.0),
    family=st.sampled_from(FAMILIES),
    dtype=st.sampled_from(DTYPES),
    order=st.sampled_from("CF"),
)
def test_any_choice_of_options(n, nb, devices, share, family, dtype, order):
    a = np.array(matrix(family, n, dtype), order=order)
    budget = int(share * least_budget(n, dtype, tile_size=nb, devices=devices))
    with through_residues(a, dtype, tile_size=nb, devices=devices, memory_budget=budget) as factor:
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize(("entry", "dtype"), in_turn([1.0, 1.01, 3.99, 1.01 * 4.0**17, 1.01 * 4.0**-29], DTYPES, each=2))
def test_rows_just_beside_powers_of_four(dtype, entry):
    a = (entry * matrix("exponential", 70, dtype)).astype(dtype)
    with through_residues(a, dtype, tile_size=16) as factor:
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [4.0, 1.0 / 4.0])
def test_diagonals_of_growing_powers_of_four(dtype, power):
    d = np.sqrt(1.01 * power ** np.arange(60.0))
    a = (d[:, None] * matrix("exponential", 60, dtype) * d[None, :]).astype(dtype)
    with through_residues(a, dtype, tile_size=16) as factor:
        check_typed(np.asarray(factor), a, dtype)


@each_complex
@pytest.mark.parametrize("n", [65, 140])
def test_hermitian_matrices_of_nearly_imaginary_entries(fmt, n):
    """``I + i S`` with S real and antisymmetric: off its diagonal there are only imaginary parts, as large as can be."""
    rng, dtype = np.random.default_rng(n), fmt.dtype.name
    s = rng.standard_normal((n, n))
    s -= s.T
    a = np.eye(n) + 0.999j * s / np.linalg.norm(s, 2)
    a = a.astype(dtype)
    with through_residues(a, dtype) as factor:
        check_typed(np.asarray(factor), a, dtype)
        check_solutions(factor, a)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_scaling_rows_by_powers_of_two_scales_the_factor_exactly(dtype):
    a, d = matrix("exponential", 150, dtype), np.ldexp(1.0, np.random.default_rng(2).integers(-20, 21, 150))
    scaled = np.asarray(through_residues((d[:, None] * a * d[None, :]).astype(dtype), dtype))
    assert np.array_equal(scaled, d[:, None] * np.asarray(through_residues(a, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [4, 5, *thorough(6, 8, 12)])
def test_every_number_of_moduli_has_the_accuracy_of_its_bits(dtype, count):
    n, a = 96, matrix("random", 96, dtype)
    basis, diagonal = basis_of(count, TYPES[dtype]), a.diagonal().real.astype(float)
    found = np.abs(residual(a, np.asarray(through_residues(a, dtype, moduli=count))))
    bits = min(basis.bits, TYPES[dtype].significand_bits)
    assert np.all(found <= (2 if basis.is_split else 1) * residue_entry_bound(n, bits, diagonal[:, None], diagonal[None, :]))


def test_a_complex_matrix_without_imaginary_parts_has_a_real_factor():
    a = np.array(matrix("exponential", 120, "complex128")).real
    a = (a + a.T) / 2 + 2 * np.eye(120)
    dense = np.asarray(through_residues(a, "complex128"))
    check_typed(dense, a, "complex128")
    assert not dense.imag.any()


# one key, one factor


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_the_same_in_any_memory_order_and_number_of_devices(dtype, tmp_path):
    n, a = 170, matrix("nearly singular", 170, dtype)
    with through_residues(a, dtype) as factor:
        first, key = np.asarray(factor), factor.arithmetic_key
        split = "split " if dtype in ("complex64", "complex128") else ""
        assert key["engine"] == f"residue, {factor.report.plan.moduli} {split}moduli" and key["formats"] == TYPES[dtype].name
    least = least_budget(n, dtype)
    for more in (
        {"memory_budget": least},
        {"memory_budget": int(1.4 * least)},
        {"memory_budget": int(1.4 * least), "store": tmp_path / "L.ooc"},
        {"devices": 2, "memory_budget": int(1.2 * least)},
        {"devices": 3},
        {"overwrite": True},
    ):
        with through_residues(np.array(a), dtype, **more) as factor:
            assert factor.arithmetic_key == key and np.array_equal(np.asarray(factor), first), more
            if "memory_budget" in more:
                assert factor.report.bytes.executed["fetch"] > 0, "not out of core"
    with oc.load(tmp_path / "L.ooc") as loaded:
        assert loaded.arithmetic_key == key and np.array_equal(np.asarray(loaded), first)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nb", [16, 64])
def test_other_moduli_and_tiles_are_other_keys_and_solves_work(dtype, nb):
    a = matrix("exponential", 150, dtype)
    with through_residues(a, dtype, moduli=16, tile_size=nb) as factor:
        check_solutions(factor, a)
        assert factor.arithmetic_key["engine"].startswith("residue, 16 ")


# not positive definite


def minor_of(a, dtype, **options) -> int:
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(a, dtype=dtype, **{"tile_size": 16, "memory_budget": "64 MiB", "devices": "host:0", **options})
    return caught.value.minor


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [4, 7, *thorough(9, 14)])
def test_sums_that_wrap_into_a_positive_pivot_are_flagged_before(dtype, count, monkeypatch):
    a = spread_out(counter_example(count, dtype=dtype)).astype(dtype)
    assert minor_of(a, dtype, fp64="residue", moduli=count, devices=1 + count % 2) == 97
    monkeypatch.setattr(ResidueOperations, "flagged_row", lambda self: None)
    wrong = np.asarray(through_residues(a, dtype, tile_size=16, moduli=count))  # a factor, of another matrix
    assert np.abs(np.tril(wrong @ wrong.conj().T - a)).max() > 1


@pytest.mark.parametrize(("kind", "dtype"), in_turn(INDEFINITE, DTYPES))
def test_every_kind_of_indefinite_matrix_has_the_minor_of_native(dtype, kind):
    a = np.tril(np.asarray(INDEFINITE[kind](good_to_spoil())))
    if dtype.startswith("complex"):
        diagonal = a.diagonal().copy()
        a = np.tril(with_phases(a))
        np.fill_diagonal(a, diagonal)
    with np.errstate(over="ignore"):
        a = a.astype(dtype)
    if not np.isfinite(a).all():
        pytest.skip("no number of the type")
    assert minor_of(a, dtype, fp64="residue") == minor_of(a, dtype, fp64="native")


@pytest.mark.parametrize(("minor", "dtype", "entry"), pairwise([1, 17, 90], DTYPES, [0.0, -1.0]))
def test_zero_and_negative_diagonal_entries(dtype, entry, minor):
    a = np.array(matrix("exponential", 96, dtype))
    a[minor - 1, minor - 1] = entry
    for devices in (1, 3):
        assert minor_of(a, dtype, fp64="residue", devices=devices) == minor


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_or_not_hermitian_is_named(dtype):
    a = np.array(matrix("exponential", 96, dtype))
    a[57, 12] = np.nan
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        through_residues(a, dtype)
    assert (caught.value.row, caught.value.col) == (57, 12)
    if dtype.startswith("complex"):
        a[57, 12], a[40, 40] = 0, 1 + 0.1j
        with pytest.raises(oc.errors.NotHermitianError, match=r"A\[40, 40\]"):
            through_residues(a, dtype)


# plans and arguments


@pytest.mark.parametrize(("dtype", "moduli"), [("float32", (7, 7)), ("complex64", (8, 7)), ("complex128", (15, 14))])
def test_the_default_moduli_and_what_a_plan_says(dtype, moduli):
    options = {"dtype": dtype, "fp64": "residue", "devices": "cuda:0", "memory_budget": "64 GiB"}
    for n, count in zip((20_000, 40_000), moduli, strict=True):
        plan = oc.plan(n, **options)
        assert plan.moduli == count and plan.engine == "residue" and plan.to_dict()["dtype"] == dtype
        assert f"{count} {'split ' if plan.fmt.is_complex else ''}moduli" in str(plan)
        assert plan.layout.accumulator_bytes == 4 * plan.layout.planes * plan.grid.nb**2 * plan.layout.width
        assert plan.flops == pytest.approx(plan.fmt.flops_factor * n**3 / 3)
        assert plan.flops <= plan.flops_executed <= 1.1 * plan.flops


@pytest.mark.parametrize("dtype", DTYPES)
def test_mixed_precision_is_refused_for_these_types(dtype):
    with pytest.raises(UnsupportedTypeError, match=f"precision_threshold is not there for {dtype}"):
        oc.plan(matrix("exponential", 40, dtype), dtype=dtype, fp64="residue", precision_threshold=1e-3)
