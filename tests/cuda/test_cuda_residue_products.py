"""Products reduced in registers on Hopper: the residues, and the bits of a factor, of products in int32."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import forget_plans
from tests.cuda.residue_kernels import PRODUCT_SHAPES, cuda_kernels, random_residues
from tests.host.matrices import FAMILIES
from tests.inside.dense import residue_tiles
from tests.inside.dense import residues as residues_planner
from tests.inside.kernels import folds_products
from tests.inside.precision import COMPLEX128, FP64, MOST_MODULI, ResidueBasis

pytestmark = pytest.mark.cuda(n=1)


@pytest.fixture(autouse=True)
def _on_hopper():
    if not folds_products(["cuda:0"]):
        pytest.skip("the kernel is for Hopper")


def both(kernels, stream, operands, before, *, accumulates, lower):
    """The residues by the kernel of our own, and by products in int32 that are folded."""
    import cupy as cp

    left, right, rows, cols = operands
    ours, theirs = before.copy(), before.astype(cp.int32)
    cp.cuda.Device().synchronize()
    part = np.s_[:, :rows, :cols]
    kernels.product(stream, ours[part], left, right, accumulates=accumulates, lower=lower)
    kernels.product(stream, theirs[part], left, right, accumulates=accumulates, lower=lower)
    kernels.fold(stream, theirs[part])
    stream.stream.synchronize()
    return ours, theirs


@pytest.mark.parametrize("fmt", [FP64, COMPLEX128], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize(("rows", "cols", "inner"), PRODUCT_SHAPES)
def test_products_have_the_residues_of_int32(fmt, rows, cols, inner, accumulates):
    import cupy as cp

    rng, count = np.random.default_rng(rows + cols), 5
    planes = ResidueBasis(count, fmt.is_complex).planes
    high, wide = -(-rows // 16) * 16, -(-cols // 16) * 16
    left, right = random_residues(rng, (planes, high, inner + 32)), random_residues(rng, (planes, wide, inner + 32))
    before = random_residues(rng, (planes, high + 16, wide + 16))
    operands = left[:, :rows, 16:-16], right[:, :cols, 16:-16], rows, cols
    with cuda_kernels(count, [1.0], fmt=fmt) as (kernels, (stream,)):
        ours, theirs = both(kernels, stream, operands, before, accumulates=accumulates, lower=False)
    assert bool(cp.array_equal(ours[:, :rows, :cols], theirs[:, :rows, :cols]))
    assert bool(cp.array_equal(ours[:, rows:], before[:, rows:]))
    assert bool(cp.array_equal(ours[:, :, wide:], before[:, :, wide:]))


@pytest.mark.parametrize("count", range(4, MOST_MODULI + 1))
def test_extreme_residues_of_every_modulus(count):
    import cupy as cp

    moduli = ResidueBasis(count).moduli
    strip = np.empty((count, 128, 32768), dtype=np.int8)
    strip[:, ::2] = np.array([-(m // 2) for m in moduli], dtype=np.int8)[:, None, None]
    strip[:, 1::2] = np.array([(m - 1) // 2 for m in moduli], dtype=np.int8)[:, None, None]
    before = np.repeat(strip[:, :, :1], 128, axis=2)
    with cuda_kernels(count, [1.0]) as (kernels, (stream,)):
        operands = cp.asarray(strip), cp.asarray(strip), 128, 128
        ours, theirs = both(kernels, stream, operands, cp.asarray(before), accumulates=True, lower=False)
    assert bool(cp.array_equal(ours, theirs))


@pytest.mark.parametrize("n", [1, 17, 130, 512, 2048])
def test_the_lower_triangle_of_a_diagonal_block(n):
    import cupy as cp

    rng, high = np.random.default_rng(n), -(-n // 16) * 16
    strip, before = random_residues(rng, (6, high, 1024)), random_residues(rng, (6, high, high))
    with cuda_kernels(6, [1.0]) as (kernels, (stream,)):
        ours, theirs = both(kernels, stream, (strip[:, :n], strip[:, :n], n, n), before, accumulates=True, lower=True)
    assert bool(cp.array_equal(cp.tril(ours[:, :n, :n]), cp.tril(theirs[:, :n, :n])))


def test_products_on_several_streams_at_once():
    import cupy as cp

    rng = np.random.default_rng(1)
    strips = [random_residues(rng, (13, 512, 4096)) for _ in range(3)]
    sums = [cp.zeros((13, 512, 512), dtype=cp.int8) for _ in range(3)]
    expected = [each.astype(cp.int32) for each in sums]
    with cuda_kernels(13, [1.0], streams=3) as (kernels, streams):
        cp.cuda.Device().synchronize()
        for turn in range(20):
            for stream, strip, kept in zip(streams, strips, sums, strict=True):
                kernels.product(stream, kept, strip, strip, accumulates=turn > 0, lower=False)
        for stream, strip, kept in zip(streams, strips, expected, strict=True):
            for turn in range(20):
                kernels.product(stream, kept, strip, strip, accumulates=turn > 0, lower=False)
                kernels.fold(stream, kept)
        cp.cuda.Device().synchronize()
    for found, wanted in zip(sums, expected, strict=True):
        assert bool(cp.array_equal(found, wanted))


@pytest.mark.parametrize(("dtype", "threshold"), [("float64", None), ("float64", 1e-6), ("float32", None), ("complex128", None)])
def test_factors_have_the_bits_of_products_in_int32(monkeypatch, dtype, threshold):
    a = FAMILIES["matern15 nugget 1e-6"](1500).astype(dtype)
    options = {"tile_size": 128, "devices": "cuda:0", "fp64": "residue", "dtype": dtype, "precision_threshold": threshold}
    with oc.cholesky(a, memory_budget="1 GiB", half_products=False if threshold else None, **options) as factor:
        assert factor.report.plan.layout.folds
        ours, key = np.asarray(factor), factor.arithmetic_key
    for module in (residues_planner, residue_tiles):
        monkeypatch.setattr(module, "folds_products", lambda _: False)
    forget_plans()
    with oc.cholesky(a, memory_budget="1 GiB", half_products=False if threshold else None, **options) as factor:
        assert not factor.report.plan.layout.folds
        assert np.array_equal(np.asarray(factor), ours) and factor.arithmetic_key == key
    forget_plans()
