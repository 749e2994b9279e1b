"""Products of packed row blocks on a GPU: within their bounds for every kind, precision and width, with the same bits."""

from __future__ import annotations

from itertools import cycle, pairwise

import numpy as np
import pytest

from ooc_chol import Precision
from tests.cuda.product_blocks import (
    FP32,
    FP64,
    INT8,
    N_COLUMNS,
    PATTERN,
    device_block,
    lengths_of_all_sorts,
    matrix,
    opened,
    panel,
    product,
)
from tests.inside.kernels import PANEL_COLUMNS
from tests.inside.tasks import ValueKind
from tests.tolerances import sparse_product_bound

pytestmark = pytest.mark.cuda

FFF, FDF, DDD = Precision


def check(a, x, y, precision):
    """Hold the product against the one in extended precision."""
    exact = a.astype(np.longdouble) @ x.astype(np.longdouble)
    magnitudes = abs(a).astype(np.longdouble) @ np.abs(x).astype(np.longdouble)
    entries = np.diff(a.indptr)[:, None]
    assert np.all(np.abs(y - exact) <= sparse_product_bound(entries, magnitudes, precision.compute, exact, precision.storage))


@pytest.mark.parametrize("columns", PANEL_COLUMNS)
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", ValueKind)
def test_a_product_is_within_its_bound(kind, precision, columns):
    a = matrix(lengths_of_all_sorts(), N_COLUMNS, kind)
    x = panel(N_COLUMNS, columns, precision)
    check(a, x, product([device_block(a, range(a.shape[0]), kind)], x, precision), precision)


@pytest.mark.parametrize("columns", PANEL_COLUMNS)
@pytest.mark.parametrize("precision", Precision)
def test_the_bits_of_a_row_depend_on_its_entries_alone(precision, columns):
    """Not on where blocks and groups end, nor on what else stands in them, nor on the kind in which values are stored."""
    rng = np.random.default_rng(3)
    a = matrix(lengths_of_all_sorts(), N_COLUMNS, INT8)
    x, n = panel(N_COLUMNS, columns, precision), a.shape[0]
    once = product([device_block(a, range(n), INT8)], x, precision)
    bounds = np.unique([0, 1, 5001, *rng.integers(5002, n, 12), n]).tolist()
    blocks = [
        device_block(a, range(*pair), kind, lambda row: rng.random() < 0.1)
        for pair, kind in zip(pairwise(bounds), cycle([INT8, FP32, FP64]), strict=False)
    ]
    assert product(blocks, x, precision).tobytes() == once.tobytes()
    order = rng.permutation(n)
    moved = product([device_block(a[order], range(n), FP64)], x, precision)
    assert moved.tobytes() == once[order].tobytes()


@pytest.mark.parametrize("columns", PANEL_COLUMNS)
@pytest.mark.parametrize("precision", Precision)
def test_a_pattern_has_the_bits_of_its_values(precision, columns):
    a = matrix(lengths_of_all_sorts(), N_COLUMNS, PATTERN)
    x, rows = panel(N_COLUMNS, columns, precision), range(a.shape[0])
    pattern, stored = (product([device_block(a, rows, kind)], x, precision) for kind in (PATTERN, FP64))
    assert pattern.tobytes() == stored.tobytes()


def test_two_runs_have_the_same_bits():
    a = matrix(lengths_of_all_sorts(), N_COLUMNS, FP64)
    x = panel(N_COLUMNS, 8, FDF)
    block = device_block(a, range(a.shape[0]), FP64)
    assert len({product([block], x, FDF).tobytes() for _ in range(10)}) == 1


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", [PATTERN, FP64])
def test_a_row_of_a_million_entries(kind, precision):
    """Equal terms, whose roundings are all of one sign: a plain sum in float32 is wrong by a percent."""
    a = matrix([3, 1_000_000, 0, 2, 5000], 1_000_000, PATTERN)
    for columns in (1, 8):
        x = np.full((1_000_000, columns), 0.7, precision.storage)
        check(a, x, product([device_block(a, range(5), kind)], x, precision), precision)


@pytest.mark.parametrize(
    "lengths", [[1], [0], [0, 0, 0], [0, 1, 1], [2, 0], [0] * 5000, [2048], [2049], [0, 2049, 0], [4097, 2049]]
)
@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("columns", [1, 4])
def test_small_and_empty_matrices(lengths, precision, columns):
    a = matrix(lengths, 5000, FP64)
    x = panel(5000, columns, precision)
    y = product([device_block(a, range(len(lengths)), FP64)], x, precision)
    check(a, x, y, precision)
    assert not np.isnan(y).any()


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("kind", [PATTERN, FP64])
@pytest.mark.parametrize("columns", PANEL_COLUMNS)
def test_scalings_and_shifts_are_those_of_the_rows(kind, precision, columns):
    a = matrix([9, 0, 30, 6000, 2, 1500, 300], N_COLUMNS, kind)
    n, rng = a.shape[0], np.random.default_rng(3)
    x, y = panel(N_COLUMNS, columns, precision), panel(n, columns, precision, seed=4)
    sums = a.astype(np.longdouble) @ x.astype(np.longdouble)
    magnitudes = abs(a).astype(np.longdouble) @ np.abs(x).astype(np.longdouble)
    vector, other = rng.standard_normal(n), rng.standard_normal(n)
    block = device_block(a, range(n), kind)
    for left, shift in ((-1.0, vector), (vector, 0.0), (vector, other), (0.5, 2.0), (1.0, -3.0), (0.0, 1.0)):
        found = product([block], x, precision, y=y, left=left, shift=shift)
        factor, add = (np.broadcast_to(part, n)[:, None] for part in (left, shift))
        exact = add * y.astype(np.longdouble) + factor * sums
        size = np.abs(add * y) + np.abs(factor) * magnitudes
        bound = sparse_product_bound(np.diff(a.indptr)[:, None] + 2, size, precision.compute, exact, precision.storage)
        assert np.all(np.abs(found - exact) <= bound), (left, shift)


def test_infinities_and_nans_of_x_reach_the_rows_that_read_them_alone():
    a = matrix([9, 3, 30, 3000, 200], N_COLUMNS, FP32)
    x = panel(N_COLUMNS, 8, FDF)
    clean = product([device_block(a, range(5), FP32)], x, FDF)
    untouched = np.setdiff1d(np.arange(N_COLUMNS), a.indices)[:2]
    x[untouched] = np.array([[np.nan], [np.inf]])
    assert product([device_block(a, range(5), FP32)], x, FDF).tobytes() == clean.tobytes()
    x[a.indices[0]] = np.nan
    reads = (a[:, [a.indices[0]]] != 0).toarray().ravel()
    assert (np.isnan(product([device_block(a, range(5), FP32)], x, FDF)).all(axis=1) == reads).all()


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("columns", PANEL_COLUMNS)
def test_scaling_rounds_once(precision, columns):
    import cupy as cp

    factors, x = np.random.default_rng(5).standard_normal(70_001), panel(70_001, columns, precision)
    on_gpu = cp.asarray(x)
    with opened(precision, columns, 0) as (kernels, stream):
        factors_on_gpu = cp.asarray(factors)
        cp.cuda.Device().synchronize()
        kernels.scale(stream, factors_on_gpu, on_gpu)
        stream.stream.synchronize()
    assert on_gpu.get().tobytes() == (x.astype(float) * factors[:, None]).astype(precision.storage).tobytes()


def test_what_does_not_fit_is_refused():
    import cupy as cp

    a = matrix([5000, 3], N_COLUMNS, FP64)
    block, data = device_block(a, range(2), FP64)
    x, y = cp.zeros((N_COLUMNS, 4)), cp.zeros((2, 4))
    with opened(DDD, 4, 1) as (kernels, stream), pytest.raises(ValueError, match="2 places"):
        kernels.multiply(stream, block, data, x, y)
    with opened(DDD, 4, 2) as (kernels, stream):
        for wrong in (x.astype(np.float32), cp.zeros((N_COLUMNS, 3)), cp.zeros((4, N_COLUMNS)).T):
            with pytest.raises(ValueError, match="row-major float64"):
                kernels.multiply(stream, block, data, wrong, y)
        with pytest.raises(ValueError, match="y has shape"):
            kernels.multiply(stream, block, data, x, cp.zeros((3, 4)))
        with pytest.raises(ValueError, match="bytes are not the block's"):
            kernels.multiply(stream, block, data[:-128], x, y)
        with pytest.raises(ValueError, match="diagonal"):
            kernels.multiply(stream, block, data, x, y, left=cp.zeros(3))
