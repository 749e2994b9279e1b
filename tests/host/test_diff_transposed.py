"""Products with the transpose that read the values of the matrix itself."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.diff import vjp
from tests.diff_problems import CASES, N_COLUMNS, check_sampled, numbers, pattern_of, short_rows
from tests.inside.diff import MatMul, TransposedMatMul, primitives

pytestmark = pytest.mark.host


@pytest.mark.parametrize("width", [(), (3,)])
@pytest.mark.parametrize("case", CASES)
def test_a_transposed_product_has_the_bits_of_that_with_permuted_values(case, width):
    pattern = pattern_of([0, 7000, 3, 1500, 0, *short_rows(300)])
    v, y = numbers(pattern.nnz, case), numbers((pattern.n_rows, *width), case, 5)
    found = primitives.matmul_transposed(pattern, v, y, precision=case.precision)
    wanted = primitives.matmul(pattern.transposed, v[pattern.transposing], y, precision=case.precision)
    assert found.shape == (N_COLUMNS, *width) and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("width", [(), (3,)])
def test_its_derivatives_are_those_of_the_product(width):
    """``<g, A.T y> = <A g, y>``, and both are the sum of ``v * sampled(y, g)``."""
    case, pattern = CASES[2], pattern_of([0, 700, 3, 150, 0, *short_rows(100)], n_columns=900)
    v, y, g = numbers(pattern.nnz, case), numbers((pattern.n_rows, *width), case, 5), numbers((900, *width), case, 6)
    dv, dy = vjp(TransposedMatMul(pattern), (v, y), g)
    check_sampled(dv, pattern, y, g, case)
    assert np.array_equal(dy, primitives.matmul(pattern, v, g))
    back = vjp(MatMul(pattern), (v, g), y, wanted=(False, True))
    assert back[0] is None and np.array_equal(back[1], primitives.matmul_transposed(pattern, v, y))
    assert vjp(TransposedMatMul(pattern), (v, y), g, wanted=(False, False)) == (None, None)


def test_a_vector_of_another_height_is_refused():
    pattern = pattern_of([2, 1], n_columns=5)
    with pytest.raises(ValueError, match=r"y has shape \(5,\), but there are 2 rows of Pattern"):
        primitives.matmul_transposed(pattern, np.ones(3), np.ones(5))
