"""The numbers of a residue basis: what they promise to the kernels, in exact arithmetic."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from math import gcd, isqrt, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.kernels import divisions, products_source
from tests.inside.kernels import residue_source as source
from tests.inside.precision import COMPLEX64, COMPLEX128, FP32, FP64, MOST_MODULI, MOST_ROWS, MOST_TERMS, ROW_SLACK, ResidueBasis

COUNTS = range(4, MOST_MODULI + 1)
BASES = [ResidueBasis(count, is_split) for is_split in (False, True) for count in COUNTS]
every_basis = pytest.mark.parametrize("basis", BASES, ids=lambda basis: f"{basis.count}{' split' if basis.is_split else ''}")


def test_the_bits_that_documents_name():
    assert [ResidueBasis(count).bits for count in (7, 13, 14)] == [27, 50, 54]
    assert [ResidueBasis(count, is_split=True).bits for count in (7, 14, 15)] == [26, 51, 55]


@every_basis
def test_moduli_are_coprime_and_their_residues_fit_in_int8(basis):
    moduli = basis.moduli
    assert len(moduli) == basis.count
    assert all(gcd(a, b) == 1 for i, a in enumerate(moduli) for b in moduli[:i])
    assert all(m // 2 <= 128 and (m - 1) // 2 <= 127 for m in moduli)
    assert basis.product == prod(moduli)
    assert moduli == ResidueBasis(MOST_MODULI, basis.is_split).moduli[: basis.count]


@pytest.mark.parametrize("is_split", [False, True])
def test_no_larger_modulus_was_left_out(is_split):
    moduli = ResidueBasis(MOST_MODULI, is_split).moduli
    for candidate in range(moduli[-1] + 1, 257):
        larger = [m for m in moduli if m > candidate]
        has_root = candidate % 2 and any((w * w + 1) % candidate == 0 for w in range(candidate))
        assert candidate in moduli or any(gcd(candidate, m) > 1 for m in larger) or (is_split and not has_root)


@every_basis
def test_roots_of_minus_one_and_both_parts_of_complex_numbers(basis):
    if not basis.is_split:
        assert basis.planes == basis.count
        return
    assert basis.planes == 2 * basis.count and len(basis.roots) == basis.count
    assert all(w * w % m == m - 1 and w <= m // 2 for w, m in zip(basis.roots, basis.moduli, strict=True))
    of_real, of_imaginary = basis.part_weights
    for x, y in ((basis.product // 2, -(basis.product // 3)), (0, 1), (-1, 0), (-(2**40) - 5, 3**20)):
        u, v = ([(x + sign * w * y) % m for w, m in zip(basis.roots, basis.moduli, strict=True)] for sign in (1, -1))
        assert sum((a + b) * w for a, b, w in zip(u, v, of_real, strict=True)) % basis.product == x % basis.product
        assert sum((a - b) * w for a, b, w in zip(u, v, of_imaginary, strict=True)) % basis.product == y % basis.product


@pytest.mark.parametrize("count", [0, 3, MOST_MODULI + 1])
def test_other_counts_are_refused(count):
    with pytest.raises(ValueError, match="from 4 to"):
        ResidueBasis(count)


@every_basis
def test_sums_of_rows_that_are_not_flagged_are_below_half_the_product(basis):
    # A row that passes has a norm of at most largest_norm (1 + slack / 2), and rounding adds sqrt(n) / 2, or of both parts of
    # complex entries sqrt(2 n) / 2; in halves, to be exact.
    rounding = isqrt((2 if basis.is_split else 1) * MOST_ROWS) + 1
    twice = 2 * basis.largest_norm * (1 + Fraction(ROW_SLACK) / 2) + rounding
    assert (twice / 2) ** 2 < Fraction(basis.product, 2)


@every_basis
def test_int32_holds_the_longest_sum_after_a_fold(basis):
    for m in basis.moduli:
        largest = (m // 2) ** 2 * MOST_TERMS + m // 2
        # The sums of the modulus 256 may wrap: 2**32 is a multiple of it.
        assert largest < 2**31 or 2**32 % m == 0


@given(basis=st.sampled_from(BASES), a_ii=st.floats(min_value=5e-324, max_value=sys.float_info.max))
def test_the_exponent_is_the_largest_that_the_norm_allows(basis, a_ii):
    e = basis.exponent(a_ii)
    scaled = Fraction(a_ii) * Fraction(4) ** e
    assert scaled <= basis.largest_norm**2 < 4 * scaled
    assert scaled >= 4 ** (basis.bits - 1)


@every_basis
def test_the_exponent_changes_where_the_norm_is_reached(basis):
    mantissa, power = basis.limit
    reached = mantissa * 2.0 ** (power % 2)
    above = reached * (1 + 2.0**-52)
    assert basis.exponent(above) == basis.exponent(reached) - 1


@given(st.data())
def test_weights_give_back_a_number_from_its_residues(data):
    basis = data.draw(st.sampled_from(BASES))
    number = data.draw(st.integers(0, basis.product - 1))
    assert sum((number % m) * w for m, w in zip(basis.moduli, basis.weights, strict=True)) % basis.product == number


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("count", "fmt"),
    [
        *[(MOST_MODULI, FP64), (7, FP32), (7, COMPLEX64), (MOST_MODULI, COMPLEX128)],
        # Fewer moduli are fewer repetitions of the same lines, in fewer registers.
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in [(4, FP64), (13, FP64), (15, COMPLEX128)]),
    ],
)
@pytest.mark.usefixtures("compilers")
def test_cuda_kernels_compile_without_warnings_and_keep_everything_in_registers(count, fmt, tmp_path):
    code = tmp_path / "residues.cu"
    code.write_text(source(ResidueBasis(count, fmt.is_complex), fmt), encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin"]
    ran = subprocess.run([*words, "-o", str(tmp_path / "out"), str(code)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == (5 if fmt.is_complex else 9)


# products that reduce in registers


@pytest.mark.parametrize("is_split", [False, True])
def test_sums_are_reduced_to_canonical_residues(is_split):
    """The kernel's steps in NumPy, for every modulus: a dot product of bytes, and a quotient in float32."""
    moduli = ResidueBasis(MOST_MODULI, is_split).moduli
    rng = np.random.default_rng(3)
    edges = [sign * (2**30 - d) for sign in (-1, 1) for d in range(3)]
    for m, (modulus, packed, bias, reciprocal) in zip(moduli, divisions(moduli).tolist(), strict=True):
        sums = np.concatenate([rng.integers(-(2**30), 2**30, 5000), np.arange(-700, 700) * m // 2, edges]).astype(np.int64)
        more = rng.integers(-128, 128, len(sums))
        weights = np.array([packed], dtype=np.int32).view(np.int8).astype(np.int64)
        digits = (sums + 2**31)[:, None] >> np.array([0, 8, 16, 24]) & 255
        biased = digits @ weights + bias + more
        t = biased.astype(np.int32).view(np.float32) - np.float32(12582912)
        factor = np.array([reciprocal], dtype=np.int32).view(np.float32)[0]
        quotient = (t.astype(np.float64) * np.float64(factor) + 12582912).astype(np.float32).view(np.int32).astype(np.int64)
        found = (biased - quotient * modulus).astype(np.int8).astype(np.int64)
        assert modulus == m and np.abs(t).max() < 2**19
        assert np.array_equal(found % m, (sums + more) % m)
        assert found.min() >= -(m // 2) and found.max() <= (m - 1) // 2


@pytest.mark.nvcc
@pytest.mark.usefixtures("compilers")
def test_products_compile_without_warnings_or_spills(tmp_path):
    file = tmp_path / "products.cu"
    file.write_text(products_source(), encoding="utf-8")
    words = [
        "nvcc",
        "-std=c++17",
        "-arch=sm_90a",
        "-Werror",
        "all-warnings",
        "-Xptxas",
        "-v",
        "-cubin",
        "-o",
        str(tmp_path / "out"),
    ]
    ran = subprocess.run([*words, str(file)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "0 bytes spill stores" in ran.stderr and "Used 168 registers" in ran.stderr
