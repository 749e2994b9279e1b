"""Products of residues by FP8 digits on Hopper: the sums of int8 products, and the bits of a factor."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import forget_plans
from tests.cuda.residue_kernels import PRODUCT_SHAPES, cuda_kernels, random_residues
from tests.host.matrices import FAMILIES
from tests.inside.dense import residue_tiles
from tests.inside.dense import residues as residues_planner
from tests.inside.kernels import folds_products, registry
from tests.inside.precision import COMPLEX128, FP64, MOST_MODULI, MOST_TERMS, ResidueBasis

pytestmark = pytest.mark.cuda(n=1)

SUMS = ["int32", "int8"]


@pytest.fixture(autouse=True)
def _on_hopper():
    if not folds_products(["cuda:0"]):
        pytest.skip("the kernel is for Hopper")


def by_both(count, operands, before, *, accumulates, lower, fmt=FP64):
    """Sums by FP8 and by int8, of the rows and columns of the operands."""
    import cupy as cp

    left, right = operands
    part, found = np.s_[:, : left.shape[1], : right.shape[1]], []
    for units in ("fp8", "int8"):
        sums = before.copy()
        cp.cuda.Device().synchronize()
        with cuda_kernels(count, [1.0], fmt=fmt, units=units) as (kernels, (stream,)):
            kernels.product(stream, sums[part], left, right, accumulates=accumulates, lower=lower)
            stream.stream.synchronize()
        found.append(sums)
    return found


def sums_before(rng, shape, dtype):
    import cupy as cp

    if dtype == "int8":
        return random_residues(rng, shape)
    return cp.asarray(rng.integers(-(2**29), 2**29, shape, dtype=np.int32))


@pytest.mark.parametrize("fmt", [FP64, COMPLEX128], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize(("rows", "cols", "inner"), PRODUCT_SHAPES)
def test_products_have_the_sums_of_int8(fmt, rows, cols, inner):
    import cupy as cp

    rng, count = np.random.default_rng(rows + cols), 5
    planes = ResidueBasis(count, fmt.is_complex).planes
    high, wide = -(-rows // 16) * 16, -(-cols // 16) * 16
    left, right = random_residues(rng, (planes, high, inner + 32)), random_residues(rng, (planes, wide, inner + 32))
    operands = left[:, :rows, 16:-16], right[:, :cols, 16:-16]
    for dtype in SUMS:
        before = sums_before(rng, (planes, high + 16, wide + 16), dtype)
        for accumulates in (False, True):
            ours, theirs = by_both(count, operands, before, accumulates=accumulates, lower=False, fmt=fmt)
            assert bool(cp.array_equal(ours[:, :rows, :cols], theirs[:, :rows, :cols]))
            assert bool(cp.array_equal(ours[:, rows:], before[:, rows:]))
            assert bool(cp.array_equal(ours[:, :, cols:], before[:, :, cols:]))


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("n", [1, 17, 130, 512, 2048])
def test_the_lower_triangle_of_a_diagonal_block(n, dtype):
    import cupy as cp

    rng, high = np.random.default_rng(n), -(-n // 16) * 16
    strip, before = random_residues(rng, (6, high, 1024)), sums_before(rng, (6, high, high), dtype)
    ours, theirs = by_both(6, (strip[:, :n], strip[:, :n]), before, accumulates=True, lower=True)
    assert bool(cp.array_equal(cp.tril(ours[:, :n, :n]), cp.tril(theirs[:, :n, :n])))


def test_all_pairs_of_residues():
    import cupy as cp

    strip = cp.zeros((4, 256, 16), dtype=cp.int8)
    strip[:, :, 0] = cp.arange(-128, 128)
    ours, theirs = by_both(4, (strip, strip), cp.zeros((4, 256, 256), dtype=cp.int32), accumulates=False, lower=False)
    residues = strip[:, :, 0].astype(cp.int32)
    assert bool(cp.array_equal(ours, theirs)) and bool(cp.array_equal(ours, residues[:, :, None] * residues[:, None, :]))


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("count", range(4, MOST_MODULI + 1))
def test_extreme_residues_of_every_modulus(count, dtype):
    import cupy as cp

    moduli = ResidueBasis(count).moduli
    strip = np.empty((count, 128, 32768), dtype=np.int8)
    strip[:, ::2] = np.array([-(m // 2) for m in moduli], dtype=np.int8)[:, None, None]
    strip[:, 1::2] = np.array([(m - 1) // 2 for m in moduli], dtype=np.int8)[:, None, None]
    before = cp.asarray(np.repeat(strip[:, :, :1], 128, axis=2)).astype(dtype)
    operands = cp.asarray(strip), cp.asarray(strip)
    ours, theirs = by_both(count, operands, before, accumulates=True, lower=False)
    assert bool(cp.array_equal(ours, theirs))


@pytest.mark.parametrize("dtype", SUMS)
def test_sums_near_the_largest_that_tensor_cores_meet(dtype):
    """Almost all digits are 8 and -8, sums of their products odd, and as long as they may be."""
    import cupy as cp

    rng, terms = np.random.default_rng(1), MOST_TERMS if dtype == "int32" else MOST_TERMS // 2
    residues, shares = np.array([104, 105, 120, 121], dtype=np.int8), [0.01, 0.01, 0.97, 0.01]
    operands = tuple(cp.asarray(rng.choice(residues, (4, order, terms), p=shares)) for order in (80, 96))
    ours, theirs = by_both(4, operands, cp.zeros((4, 80, 96), dtype=dtype), accumulates=False, lower=False)
    assert bool(cp.array_equal(ours, theirs))


@contextmanager
def in_fp8():
    """Let runs multiply in FP8; gives the types of the sums of each product."""
    from tests.inside.kernels import Fp8ResidueProducts

    found, multiply = [], Fp8ResidueProducts.multiply

    def noted(self, stream, sums, *operands, **options):
        found.append(sums.dtype.name)
        multiply(self, stream, sums, *operands, **options)

    kind = replace(registry.CUDA, residue_units="fp8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fp8ResidueProducts, "multiply", noted)
        patch.setattr(registry, "CUDA", kind)
        patch.setitem(registry._KINDS, kind.name, kind)
        yield found


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("sums", SUMS)
def test_factors_have_the_bits_of_int8(monkeypatch, dtype, sums):
    a = FAMILIES["matern15 nugget 1e-6"](1500).astype(dtype)
    options = {"tile_size": 128, "devices": "cuda:0", "fp64": "residue", "dtype": dtype, "memory_budget": "1 GiB"}
    if sums == "int32":
        for module in (residues_planner, residue_tiles):
            monkeypatch.setattr(module, "folds_products", lambda _: False)
    forget_plans()
    with oc.cholesky(a, **options) as factor:
        expected, key = np.asarray(factor), factor.arithmetic_key
    with in_fp8() as found, oc.cholesky(a, **options) as factor:
        assert np.array_equal(np.asarray(factor), expected) and factor.arithmetic_key == key
    assert set(found) == {sums}
    forget_plans()
