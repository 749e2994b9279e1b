"""Primitives of diff: what they refuse, sums in float64 of float32 numbers, layouts of arrays, and the memory they take."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.diff import Pattern
from tests.host.diff_matrices import dense, entries, poisson, random_matrix
from tests.inside.diff import IndexArray, device_of, primitives, product_structure, trusted
from tests.tolerances import gamma, unit_roundoff

pytestmark = pytest.mark.host

P, V = entries("wide")  # 5 x 9
X, G = np.ones(9), np.ones(5)
ENDS, PLACES = np.array([0, 1, 3]), np.array([0, 1, 2])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: oc.diff.matmul(P, V[1:], X),
            ValueError,
            rf"v has shape \({P.nnz - 1},\), but the matrix .* has {P.nnz} entries",
        ),
        (lambda: oc.diff.matmul(P, V[:, None], X), ValueError, "one value for each entry"),
        (lambda: oc.diff.matmul(P, V, X[1:]), ValueError, r"x has shape \(8,\), but there are 9 columns"),
        (lambda: oc.diff.matmul(P, V, X[:, None, None]), ValueError, r"give \(9,\) or \(9, k\)"),
        (lambda: oc.diff.matmul(P, V.astype(int), X), TypeError, "v is of int64: only real floating-point"),
        (lambda: oc.diff.matmul(P, V, X.astype(complex)), TypeError, "x is of complex128"),
        (lambda: oc.diff.matmul(P, V.astype(np.float32), X), TypeError, "v is of float32, but x of float64"),
        (lambda: oc.diff.matmul(P, list(V), X), TypeError, "v is a list: give an array of NumPy or CuPy"),
        (lambda: oc.diff.matmul(P, V, X, precision="FDF"), TypeError, "these are float64 already"),
        (lambda: oc.diff.matmul(P, V, X, precision="DDD"), ValueError, "precision is 'DDD': give 'FDF'"),
        (lambda: oc.diff.sampled(P, G[1:], X), ValueError, r"g has shape \(4,\), but there are 5 rows"),
        (lambda: oc.diff.sampled(P, G, X[:, None]), ValueError, "they must have as many columns"),
        (lambda: oc.diff.sampled(P, G.astype(np.float32), X), TypeError, "g is of float32, but x of float64"),
        (lambda: oc.diff.permute(V, P.transposing[1:]), ValueError, "a permutation has as many"),
        (
            lambda: oc.diff.permute(V[:2], np.array([0, 2])),
            ValueError,
            r"order\[1\] is 2, but there are 2 values",
        ),
        (lambda: oc.diff.permute(V[:2], np.array([0.0, 1.0])), TypeError, "order is 1-dimensional, of float64"),
        (lambda: oc.diff.permute(V[None, :2], np.array([0, 1])), ValueError, r"v has shape \(1, 2\): give a vector"),
        (lambda: oc.diff.bilinear(ENDS, PLACES, PLACES, V[:2], V[:3]), ValueError, r"of_a\[2\] is 2, but there are 2 values"),
        (lambda: oc.diff.bilinear(ENDS, PLACES, PLACES, V[:3], V[:2]), ValueError, r"of_b\[2\] is 2, but there are 2 values"),
        (lambda: oc.diff.bilinear(ENDS, PLACES - 1, PLACES, V, V), ValueError, r"of_a\[0\] is -1"),
        (lambda: oc.diff.bilinear(ENDS, PLACES[1:], PLACES, V, V), ValueError, "a triple has a place in each"),
        (lambda: oc.diff.bilinear(ENDS[1:], PLACES, PLACES, V, V), ValueError, "do not begin with 0 and end with 3"),
        (lambda: oc.diff.bilinear(np.array([0, 3, 1, 3]), PLACES, PLACES, V, V), ValueError, "fall from 3 to 1 in segment 1"),
        (lambda: oc.diff.bilinear(np.array([0, 9, 3]), PLACES, PLACES, V, V), ValueError, r"ends\[1\] is 9"),
        (lambda: primitives.gather(V[:2], np.array([0, -2])), ValueError, r"places\[1\] is -2, .* places are -1 to 1"),
        (lambda: primitives.scatter(V[:2], np.array([0, 5]), 5), ValueError, r"places\[1\] is 5"),
        (lambda: primitives.scatter(V[:2], np.array([0]), 5), ValueError, "1 places for 2 values"),
        (lambda: primitives.spread(P, X), ValueError, "d has 9 numbers, but .* has 5 rows"),
        (lambda: oc.diff.row_sums(P, V[1:]), ValueError, "v has shape"),
        (lambda: oc.diff.transpose(P, V[1:]), ValueError, "one value for each entry"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_arrays_of_no_known_memory_are_refused():
    with pytest.raises(TypeError, match=r"a builtins.list was given for an array: give NumPy's or CuPy's"):
        device_of([1.0])
    assert device_of(None) is None and device_of(np.float64(1)) is None


def test_index_arrays_say_what_they_are_and_are_never_written():
    places = IndexArray(np.arange(3))
    assert len(places) == 3 and repr(places) == "<3 places, int64>" and places.on(V) is places.host
    with pytest.raises(ValueError, match="read-only"):
        places.host[0] = 1


@pytest.mark.parametrize("columns", [(), (1,), (2,), (40,)])
def test_fdf_rounds_each_sum_once(columns):
    """Rows of a thousand numbers that cancel: float32 loses digits that FDF has."""
    rng = np.random.default_rng(1)
    p, v = Pattern.of(random_matrix((30, 1000), 0.9, 1))
    v32 = v.astype(np.float32)
    x = rng.standard_normal((1000, *columns)).astype(np.float32)
    exact = dense(p, v32).astype(float) @ x.astype(float)
    found = oc.diff.matmul(p, v32, x, precision="FDF")
    magnitudes = np.abs(dense(p, v32)).astype(float) @ np.abs(x).astype(float)
    assert found.dtype == np.float32
    assert (np.abs(found - exact) <= unit_roundoff(np.float32) * np.abs(exact) + gamma(1000) * magnitudes).all()
    plain = oc.diff.matmul(p, v32, x)
    assert np.abs(found - exact).max() < 0.5 * np.abs(plain - exact).max()


def test_fdf_of_sampled_bilinear_and_row_sums_rounds_once():
    rng = np.random.default_rng(2)
    p, _ = entries("dense")  # 4 x 6
    g, x = rng.standard_normal((4, 3000)).astype(np.float32), rng.standard_normal((6, 3000)).astype(np.float32)
    exact = (g.astype(float) @ x.astype(float).T)[p.rows, p.indices]
    found = oc.diff.sampled(p, g, x, precision="FDF")
    bound = gamma(3000) * (np.abs(g).astype(float) @ np.abs(x).astype(float).T).max()
    assert found.dtype == np.float32 and (np.abs(found - exact) <= unit_roundoff(np.float32) * np.abs(exact) + bound).all()
    wide, tall = np.ones((1, 3000)), np.ones((3000, 1))
    triples = product_structure(Pattern.of(_sparse(wide))[0], Pattern.of(_sparse(tall))[0])
    a, b = g[0], x[0]
    for sums, terms in (
        (oc.diff.bilinear(triples.ends, triples.of_a, triples.of_b, a, b, precision="FDF"), a.astype(float) * b),
        (primitives.segment_sums(np.array([0, 3000]), a, precision="FDF"), a.astype(float)),
    ):
        total = terms.sum()
        assert sums.dtype == np.float32 and sums.shape == (1,)
        assert abs(sums[0] - total) <= unit_roundoff(np.float32) * abs(total) + gamma(3000) * np.abs(terms).sum()


def _sparse(a):
    from scipy.sparse import csr_array

    return csr_array(a)


def test_any_layout_of_an_array_gives_the_same_bits():
    rng = np.random.default_rng(3)
    x, g = rng.standard_normal((9, 6)), rng.standard_normal((5, 6))
    wide = np.repeat(V, 2)[::2]
    for layout in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2], lambda a: np.repeat(a, 2, axis=0)[::2]):
        assert oc.diff.matmul(P, wide, layout(x)).tobytes() == oc.diff.matmul(P, V, x).tobytes()
        assert oc.diff.sampled(P, layout(g), layout(x)).tobytes() == oc.diff.sampled(P, g, x).tobytes()
    strided = np.repeat(x[:, 0], 2)[::2]
    assert oc.diff.matmul(P, wide, strided).tobytes() == oc.diff.matmul(P, V, x[:, 0].copy()).tobytes()
    assert oc.diff.permute(wide, P.transposing).tobytes() == V[P.transposing].tobytes()


def test_no_columns_and_columns_one_by_one():
    x = np.random.default_rng(4).standard_normal((9, 5))
    assert oc.diff.matmul(P, V, x[:, :0]).shape == (5, 0)
    assert np.array_equal(oc.diff.sampled(P, np.empty((5, 0)), np.empty((9, 0))), np.zeros(P.nnz))
    together = oc.diff.matmul(P, V, x)
    apart = np.stack([oc.diff.matmul(P, V, x[:, k].copy()) for k in range(5)], axis=1)
    assert np.array_equal(together, apart)


def test_starts_of_int64_give_what_those_of_int32_give():
    """As of a matrix with more entries than int32 counts, whose columns stay int32."""
    p, v = Pattern.of(poisson(40))
    long = trusted(p.indptr, p.indices, p.shape, "long")
    long.indptr = p.indptr.astype(np.int64)
    x = np.random.default_rng(5).standard_normal((p.n_columns, 2))
    for right in (x, x[:, 0].copy()):
        assert oc.diff.matmul(long, v, right).tobytes() == oc.diff.matmul(p, v, right).tobytes()
        assert oc.diff.sampled(long, right, right).tobytes() == oc.diff.sampled(p, right, right).tobytes()
        back = primitives.matmul_transposed(long, v, right)
        assert back.tobytes() == primitives.matmul_transposed(p, v, right).tobytes()
    assert oc.diff.row_sums(long, v).tobytes() == oc.diff.row_sums(p, v).tobytes()


@pytest.mark.parametrize("precision", [None, "FDF"])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_a_transposed_product_has_the_bits_of_that_with_the_transpose(columns, precision):
    """More entries than a piece has, so that sums of a column go on from one to the next."""
    p, v = Pattern.of(random_matrix((500, 400), 0.5, 7))
    v, y = v.astype(np.float32), np.random.default_rng(7).standard_normal((500, *columns)).astype(np.float32)
    found = primitives.matmul_transposed(p, v, y, precision=precision)
    expected = oc.diff.matmul(p.transposed, v[p.transposing], y, precision=precision)
    assert found.dtype == np.float32 and found.tobytes() == expected.tobytes()


def test_pieces_of_many_rows_are_put_together():
    """More entries than a piece has, in both precisions and through places."""
    p, v = Pattern.of(poisson(200))  # 199,200 entries
    x = np.random.default_rng(6).standard_normal(p.n_columns).astype(np.float32)
    exact = dense_free(p, v, x.astype(float))
    assert np.array_equal(oc.diff.matmul(p, v.astype(np.float32), x, precision="FDF"), exact.astype(np.float32))
    places = np.arange(p.nnz, dtype=np.int32)
    found = oc.diff.bilinear(p.indptr, places, p.indices, v, x.astype(float))
    assert np.array_equal(found, exact)


def dense_free(p, v, x):
    """``A @ x`` with the entries of a row added in their order, without a dense matrix."""
    out = np.zeros(p.n_rows)
    np.add.at(out, p.rows, v * x[p.indices])
    return out


def test_what_is_not_finite_stays_in_its_row():
    v = V.copy()
    v[0] = np.nan
    found = oc.diff.matmul(P, v, X)
    assert np.isnan(found).tolist() == [row == P.rows[0] for row in range(5)]
    assert np.array_equal(oc.diff.permute(v, P.transposing), v[P.transposing], equal_nan=True)
    zeros = oc.diff.permute(np.array([-0.0, np.inf]), np.array([1, 0]))
    assert zeros[0] == np.inf and np.signbit(zeros[1])


#: In a process of its own: the gradient of A @ x for n = 200,000, where a dense n x n array would have 320 GB.
_GRADIENT = """
import numpy as np
from tests.inside.bench import memory_of_process
import ooc_chol as oc
from tests.inside.diff import MatMul, Contract
from ooc_chol.diff import vjp
n = 200_000
starts = np.concatenate([[0], 2 + 3 * np.arange(n - 1), [3 * n - 2]])
places = np.arange(1, 3 * n - 1)
columns = places // 3 + places % 3 - 1
pattern = oc.diff.Pattern(starts, columns, (n, n))
values = np.tile([2.0, -1.0, -1.0], n)[: pattern.nnz]
x = np.linspace(-1, 1, n)
dv, dx = vjp(MatMul(pattern), (values, x), x)
assert dv.shape == (pattern.nnz,) == (3 * n - 2,) and np.array_equal(dv, x[pattern.rows] * x[pattern.indices])
assert dx.shape == (n,)
c, squared = oc.diff.spgemm(pattern, values, pattern, values)
triples = oc.diff.functions.structure_of(pattern, pattern)
da, db = vjp(Contract(triples), (values, values), squared)
assert da.shape == db.shape == (pattern.nnz,) and c.nnz == 5 * n - 6
print(memory_of_process("VmHWM"))
"""


@pytest.mark.usefixtures("processes")
def test_gradients_of_a_large_matrix_take_no_dense_array():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", _GRADIENT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout)
    print(f"peak {peak / 1e6:.0f} MB")
    assert peak < 500e6


#: In a process of its own: the structure of the square of Poisson's matrix, whose result has 64 bytes a row and more.
_STRUCTURE = """
from tests.inside.bench import memory_of_process
from ooc_chol.diff import Pattern
from tests.inside.diff import product_structure
from tests.host.diff_matrices import poisson
p, _ = Pattern.of(poisson(600))
before = memory_of_process("VmHWM")
triples = product_structure(p, p, chunk_bytes=8 << 20)
held = sum(array.nbytes for array in (triples.ends, triples.of_a, triples.of_b, triples.pattern.indices, triples.pattern.indptr))
print(memory_of_process("VmHWM") - before, held)
"""


@pytest.mark.usefixtures("processes")
def test_chunks_bound_the_memory_of_a_structure():
    done = subprocess.run([sys.executable, "-c", _STRUCTURE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak, held = map(int, done.stdout.split())
    entries_bytes = 4 * 4_700_000  # columns and lengths of chunks, beside those put together
    print(f"peak {peak / 1e6:.0f} MB for a result of {held / 1e6:.0f} MB")
    assert peak <= held + 2 * entries_bytes + 2 * (8 << 20) + 16e6
