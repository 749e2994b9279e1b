"""The numbers of a residue basis: what they promise to the kernels, in exact arithmetic."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from math import gcd, isqrt, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.kernels.cuda.residue_source import source
from ooc_chol.precision.moduli import MOST_MODULI, MOST_ROWS, MOST_TERMS, ROW_SLACK, ResidueBasis

COUNTS = range(4, MOST_MODULI + 1)


@pytest.mark.parametrize("count", COUNTS)
def test_moduli_are_coprime_and_their_residues_fit_in_int8(count):
    moduli = ResidueBasis(count).moduli
    assert len(moduli) == count
    assert all(gcd(a, b) == 1 for i, a in enumerate(moduli) for b in moduli[:i])
    assert all(m // 2 <= 128 and (m - 1) // 2 <= 127 for m in moduli)
    assert ResidueBasis(count).product == prod(moduli)
    assert moduli == ResidueBasis(MOST_MODULI).moduli[:count]


def test_no_larger_modulus_was_left_out():
    moduli = ResidueBasis(MOST_MODULI).moduli
    for candidate in range(moduli[-1] + 1, 257):
        larger = [m for m in moduli if m > candidate]
        assert candidate in moduli or any(gcd(candidate, m) > 1 for m in larger)


@pytest.mark.parametrize("count", [0, 3, MOST_MODULI + 1])
def test_other_counts_are_refused(count):
    with pytest.raises(ValueError, match="from 4 to"):
        ResidueBasis(count)


@pytest.mark.parametrize("count", COUNTS)
def test_sums_of_rows_that_are_not_flagged_are_below_half_the_product(count):
    basis = ResidueBasis(count)
    # A row that passes has a norm of at most largest_norm (1 + slack / 2), and rounding adds sqrt(n) / 2; in halves, to be exact.
    twice = 2 * basis.largest_norm * (1 + Fraction(ROW_SLACK) / 2) + isqrt(MOST_ROWS) + 1
    assert (twice / 2) ** 2 < Fraction(basis.product, 2)


@pytest.mark.parametrize("count", COUNTS)
def test_int32_holds_the_longest_sum_after_a_fold(count):
    for m in ResidueBasis(count).moduli:
        largest = (m // 2) ** 2 * MOST_TERMS + m // 2
        # The sums of the modulus 256 may wrap: 2**32 is a multiple of it.
        assert largest < 2**31 or 2**32 % m == 0


@given(count=st.sampled_from(COUNTS), a_ii=st.floats(min_value=5e-324, max_value=sys.float_info.max))
def test_the_exponent_is_the_largest_that_the_norm_allows(count, a_ii):
    basis = ResidueBasis(count)
    e = basis.exponent(a_ii)
    scaled = Fraction(a_ii) * Fraction(4) ** e
    assert scaled <= basis.largest_norm**2 < 4 * scaled
    assert scaled >= 4 ** (basis.bits - 1)


@pytest.mark.parametrize("count", COUNTS)
def test_the_exponent_changes_where_the_norm_is_reached(count):
    basis = ResidueBasis(count)
    mantissa, power = basis.limit
    reached = mantissa * 2.0 ** (power % 2)
    above = reached * (1 + 2.0**-52)
    assert basis.exponent(above) == basis.exponent(reached) - 1


@given(st.data())
def test_weights_give_back_a_number_from_its_residues(data):
    basis = ResidueBasis(data.draw(st.sampled_from(COUNTS)))
    number = data.draw(st.integers(0, basis.product - 1))
    assert sum((number % m) * w for m, w in zip(basis.moduli, basis.weights, strict=True)) % basis.product == number


@pytest.mark.nvcc
@pytest.mark.parametrize("count", [4, 13, MOST_MODULI])
def test_cuda_kernels_compile_without_warnings_and_keep_everything_in_registers(count, tmp_path):
    code = tmp_path / "residues.cu"
    code.write_text(source(ResidueBasis(count)), encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin"]
    ran = subprocess.run([*words, "-o", str(tmp_path / "out"), str(code)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == 8  # one a kernel
