"""Operators: diagonals around a packed matrix, and the Laplacians that are made of them."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph

import ooc_chol as oc
from ooc_chol import Precision, block_csr
from tests.inside.kernels import open_product_device
from tests.inside.sparse import operator_of
from tests.tolerances import sparse_product_bound

#: Two triangles, one with weights, an edge, and a vertex alone.
EDGES = {(0, 1): 1.0, (1, 2): 1.0, (0, 2): 1.0, (3, 4): 0.5, (4, 5): 2.0, (3, 5): 3.25, (6, 7): 1.0}


def graph(n=9, edges=EDGES):
    rows, columns = zip(*edges, strict=True)
    half = scipy.sparse.coo_array((list(edges.values()), (rows, columns)), shape=(n, n))
    return scipy.sparse.csr_array(half + half.T)


def dense(operator):
    """The operator by its definition."""
    n_rows, n_columns = operator.shape
    right = np.ones(n_columns) if operator.right is None else operator.right
    product = np.broadcast_to(operator.left, n_rows)[:, None] * operator.matrix.tocsr().toarray() * right
    return product + np.diag(np.broadcast_to(operator.shift, n_rows)) if operator.has_shift else product


def applied(operator, x, precision=Precision.DDD):
    """``operator @ x`` by the host's kernels, in the order that products of operators have."""
    matrix, y = operator.matrix, x.astype(precision.storage)
    scaled = y.copy()
    with closing(open_product_device("host:0", precision, x.shape[1], matrix.blocks.most_segments)) as device:
        device.allocate(0, 0, matrix.shape[1])
        stream, kernels = device.create_stream("compute"), device.kernels
        if operator.right is not None:
            kernels.scale(stream, operator.right, scaled)
        kernels.prepare(stream, scaled)
        for number, block in enumerate(matrix.blocks.blocks):
            rows = slice(block.rows.start, block.rows.stop)
            left, shift = (part if isinstance(part, float) else part[rows] for part in (operator.left, operator.shift))
            kernels.multiply(stream, block, matrix.tier.stored((number, 0)), scaled, y[rows], left=left, shift=shift)
        stream.synchronize()
    return y


@pytest.mark.parametrize("normalized", [False, True])
def test_a_laplacian_is_scipys(normalized):
    a = graph()
    with oc.laplacian(a, normalized).matrix as matrix:
        operator = oc.laplacian(matrix, normalized)
        assert operator.matrix is matrix
        expected = scipy.sparse.csgraph.laplacian(a, normed=normalized).toarray()
        assert np.allclose(dense(operator), expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("normalized", [False, True])
def test_products_with_a_laplacian_are_within_their_bound(normalized, precision):
    a = block_csr(oc.testing.rmat(9, devices="host:0"))
    operator = oc.laplacian(a, normalized)
    x = np.random.default_rng(0).standard_normal((512, 4)).astype(precision.storage)
    matrix = dense(operator).astype(np.longdouble)
    exact, magnitudes = matrix @ x, np.abs(matrix) @ np.abs(x)
    # Roundings of the scaled x, of the diagonals, and of the sum.
    bound = sparse_product_bound(np.full((512, 1), 520), magnitudes, precision.compute, exact, precision.storage)
    in_x = magnitudes * np.finfo(precision.storage).eps if normalized else 0
    assert np.all(np.abs(applied(operator, x, precision) - exact) <= bound + in_x)


def test_zero_is_an_eigenvalue_once_for_each_component():
    for normalized in (False, True):
        operator = oc.laplacian(graph(), normalized)
        values = np.linalg.eigvalsh(dense(operator))
        assert np.sum(np.abs(values) < 1e-14) == 4 and values.min() > -1e-14
        if normalized:
            assert values.max() <= 2 + 1e-14
            assert operator.shift.tolist() == [1.0] * 8 + [0.0] and operator.left[8] == operator.right[8] == 0


def test_degrees_of_whole_numbers_are_exact_and_loops_stay():
    a = scipy.sparse.csr_array(np.array([[2.0, 3.0], [3.0, 0.0]]))
    assert oc.laplacian(a).shift.tolist() == [5.0, 3.0]
    assert np.allclose(dense(oc.laplacian(a)), [[3, -3], [-3, 3]])
    assert np.allclose(np.diag(dense(oc.laplacian(a, normalized=True))), [1 - 2 / 5, 1])


def test_no_vector_is_kept_of_one_number():
    cycle = graph(4, {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (0, 3): 1.0})
    assert oc.laplacian(cycle).left == -1.0 and oc.laplacian(cycle).vector_bytes == 4 * 8
    assert oc.laplacian(cycle, normalized=True).shift == 1.0
    operator = operator_of(cycle)
    assert (operator.left, operator.right, operator.shift, operator.vector_bytes) == (1.0, None, 0.0, 0)


def test_an_operator_is_one_of_whatever_can_be_packed():
    a = block_csr(graph())
    operator = oc.Operator(a, left=2)
    assert operator_of(operator) is operator
    assert operator_of(a).matrix is a
    assert operator_of(graph()).shape == (9, 9)


def test_an_operator_keeps_diagonals_of_its_own():
    ones = np.ones(9)
    operator = oc.Operator(block_csr(graph()), left=ones, right=ones, shift=ones)
    ones[:] = 7
    for kept in (operator.left, operator.right, operator.shift):
        assert (kept == 1).all()
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 2


WIDE = scipy.sparse.csr_array(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("source", "diagonals", "message"),
    [
        (WIDE, {"left": np.ones(3)}, r"left has shape \(3,\), but the matrix has 2 rows"),
        (WIDE, {"right": np.ones(2)}, r"right has shape \(2,\), but the matrix has 3 columns"),
        (WIDE, {"right": np.ones((3, 1))}, r"right has shape \(3, 1\)"),
        (WIDE, {"shift": 1.0}, "2 x 3: only a square matrix"),
        (WIDE, {"shift": np.zeros(2)}, "2 x 3: only a square matrix"),
        (WIDE, {"left": np.nan}, r"left\[0\] is nan"),
        (WIDE, {"right": [1, np.inf, 2]}, r"right\[1\] is inf"),
    ],
)
def test_what_is_no_operator_is_refused(source, diagonals, message):
    with block_csr(source) as a, pytest.raises(ValueError, match=message):
        oc.Operator(a, **diagonals)


def test_what_has_no_laplacian_is_refused():
    with pytest.raises(ValueError, match="square adjacency matrix, but this one is 2 x 3"):
        oc.laplacian(WIDE)
    signed = scipy.sparse.csr_array(np.array([[0.0, -1.0], [-1.0, 0.0]]))
    assert np.allclose(dense(oc.laplacian(signed)), [[-1, 1], [1, -1]])
    with pytest.raises(ValueError, match="row 0 of A has the sum -1, which has no square root"):
        oc.laplacian(signed, normalized=True)
    with block_csr(WIDE) as a, pytest.raises(TypeError, match="complex128"):
        oc.Operator(a, left=np.ones(2, complex))


@pytest.mark.parametrize("matrix", [np.eye(9), graph(), "graph.oocsr"])
def test_what_is_not_packed_is_refused(matrix):
    with pytest.raises(TypeError, match=r"oc\.block_csr"):
        oc.Operator(matrix)


@pytest.mark.parametrize("normalized", ["auto", "no", None, 1, 0])
def test_a_laplacian_is_normalized_by_a_flag_alone(normalized):
    with pytest.raises(TypeError, match=r"normalized is a .*; give True or False"):
        oc.laplacian(scipy.sparse.eye_array(2), normalized=normalized)
