"""Residues of float32 and complex tiles on CUDA devices: the host's bits kernel by kernel, and factors as right as LAPACK's."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.cuda.residue_kernels import GUARD, SHAPES, cuda_kernels, flagged, on_device, strips
from tests.host.residue_reference import STREAM, host_kernels
from tests.host.residue_types import diagonals_of, entries_between, rows_of_a_factor, sums_with_edges
from tests.host.spoiled import counter_example, spread_out
from tests.host.typed import DTYPES, FAMILIES, check_typed, matrix
from tests.inside.precision import COMPLEX64, COMPLEX128, FP32, MOST_MODULI, MOST_TERMS, ResidueBasis
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.cuda(n=1)

FORMATS = [FP32, COMPLEX64, COMPLEX128]
COUNTS = [4, 7, 14, 15, MOST_MODULI]


def each(*values):
    """Every format with every value."""
    return pytest.mark.parametrize(
        ("fmt", "value"), [(f, v) for f in FORMATS for v in values], ids=lambda v: getattr(v, "name", v)
    )


# kernels


@each(*COUNTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_convert(fmt, value, shape):
    rng = np.random.default_rng(value)
    (rows, cols), planes = shape, ResidueBasis(value, fmt.is_complex).planes
    diagonal = diagonals_of(rng, rows + 3, fmt)
    values = rows_of_a_factor(rng, diagonal[3:], cols, fmt)
    expected = np.full((planes, rows + 1, cols + 8), GUARD, dtype=np.int8)
    with host_kernels(value, diagonal, fmt=fmt) as host:
        host.convert(STREAM, values, range(3, rows + 3), expected[:, 1:, 4:-4], is_first=True)
        assert host.flagged_row() is None
    with cuda_kernels(value, diagonal, fmt=fmt) as (kernels, (stream,)):
        out = on_device(np.full(expected.shape, GUARD, dtype=np.int8))
        kernels.convert(stream, on_device(values), range(3, rows + 3), out[:, 1:, 4:-4], is_first=True)
        assert flagged(kernels, stream) is None
    assert np.array_equal(out.get(), expected)


@each(*COUNTS)
def test_convert_at_the_edges(fmt, value):
    basis = ResidueBasis(value, fmt.is_complex)
    numbers = [0.5, 1.5, 2.5, 126.5, 0.0, np.inf, np.nan, 2.0**63, 2.0**62, 2.0**basis.bits]
    numbers += [float(m // 2 + d) for m in basis.moduli for d in (0, 1)]
    parts = np.ldexp(np.array([numbers, [-x for x in numbers]]), -basis.exponent(1.0))
    values = parts.astype(fmt.dtype)
    if fmt.is_complex:
        values.imag = parts[:, ::-1]
    expected = np.zeros((basis.planes, *values.shape), dtype=np.int8)
    with host_kernels(value, [1.0, 1.0], fmt=fmt) as host, cuda_kernels(value, [1.0, 1.0], fmt=fmt) as (kernels, (stream,)):
        host.convert(STREAM, values, range(2), expected, is_first=False)
        out = on_device(np.zeros_like(expected))
        kernels.convert(stream, on_device(values), range(2), out, is_first=False)
        assert flagged(kernels, stream) is None
    assert np.array_equal(out.get(), expected)


@each(1.0, -1.0)
def test_a_row_is_flagged_when_its_norm_exceeds_the_bound(fmt, value):
    unit = value * 1j if fmt.is_complex else value
    tile = np.zeros((40, 2000), dtype=fmt.dtype)
    tile[7, ::100] = 0.21 * unit  # 0.88 of the bound
    with cuda_kernels(8, np.ones(50), fmt=fmt) as (kernels, (stream,)):
        out = on_device(np.zeros((kernels.basis.planes, *tile.shape), dtype=np.int8))
        values = on_device(tile)
        kernels.convert(stream, values, range(5, 45), out, is_first=True)
        kernels.convert(stream, values, range(5, 45), out, is_first=False)
        assert flagged(kernels, stream) is None
        kernels.convert(stream, values[:, :401], range(5, 45), out[:, :, :401], is_first=True)
        assert flagged(kernels, stream) == 12


@each(0.0, -1.0, np.nan, np.inf)
def test_a_bad_diagonal_entry_flags_its_row(fmt, value):
    with cuda_kernels(7, [1.0, 2.0, value, value, 1e-37], fmt=fmt) as (kernels, (stream,)):
        assert flagged(kernels, stream) == 2


@each(False, True)
@pytest.mark.parametrize(("rows", "cols", "inner"), [(1, 1, 16), (97, 130, 48), (512, 256, 2048)])
def test_product(fmt, value, rows, cols, inner):
    rng = np.random.default_rng(5)
    planes = ResidueBasis(7, fmt.is_complex).planes
    left, right = strips(rng, planes, rows, inner), strips(rng, planes, cols, inner)
    before = rng.integers(-(2**30), 2**30, (planes, left.shape[1], right.shape[1]), dtype=np.int32)
    expected = before.copy()
    parts = np.s_[:, :rows, 16:-16], np.s_[:, :cols, 16:-16], np.s_[:, :rows, :cols]
    with host_kernels(7, [1.0], fmt=fmt) as host, cuda_kernels(7, [1.0], fmt=fmt) as (kernels, (stream,)):
        host.product(STREAM, expected[parts[2]], left[parts[0]], right[parts[1]], accumulates=value, lower=False)
        a, b, c = on_device(left), on_device(right), on_device(before)
        kernels.product(stream, c[parts[2]], a[parts[0]], b[parts[1]], accumulates=value, lower=False)
        stream.stream.synchronize()
    assert np.array_equal(c.get()[parts[2]], expected[parts[2]])


@each(1, 17, 130, 512)
def test_product_of_a_diagonal_block_gives_its_lower_triangle(fmt, value):
    rng = np.random.default_rng(6)
    strip = strips(rng, ResidueBasis(7, fmt.is_complex).planes, value, 64)
    expected = np.zeros((len(strip), strip.shape[1], strip.shape[1]), dtype=np.int32)
    part, block = np.s_[:, :value, 16:-16], np.s_[:, :value, :value]
    with host_kernels(7, [1.0], fmt=fmt) as host, cuda_kernels(7, [1.0], fmt=fmt) as (kernels, (stream,)):
        host.product(STREAM, expected[block], strip[part], strip[part], accumulates=False, lower=True)
        a, c = on_device(strip), on_device(np.zeros_like(expected))
        kernels.product(stream, c[block], a[part], a[part], accumulates=False, lower=True)
        stream.stream.synchronize()
    assert np.array_equal(np.tril(c.get()[block]), np.tril(expected[block]))


@each(7, 15)
def test_the_longest_sums_of_extreme_residues_are_exact_after_a_fold(fmt, value):
    basis = ResidueBasis(value, fmt.is_complex)
    halves = np.tile([-(m // 2) for m in basis.moduli], basis.planes // basis.count)
    strip = np.tile(halves.astype(np.int8)[:, None, None], (1, 16, MOST_TERMS))
    strip[:, 1] = -np.maximum(halves, -127)[:, None]
    expected = np.tile(halves.astype(np.int32)[:, None, None], (1, 16, 16))
    with host_kernels(value, [1.0], fmt=fmt) as host, cuda_kernels(value, [1.0], fmt=fmt) as (kernels, (stream,)):
        a, c = on_device(strip), on_device(expected)
        for which, on, sums, factor in ((host, STREAM, expected, strip), (kernels, stream, c, a)):
            which.product(on, sums, factor, factor, accumulates=True, lower=False)
            which.fold(on, sums)
        stream.stream.synchronize()
    assert np.array_equal(c.get(), expected)


@each(*COUNTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fold_and_reconstruct(fmt, value, shape):
    rng = np.random.default_rng(value)
    (rows, cols), basis = shape, ResidueBasis(value, fmt.is_complex)
    diagonal = diagonals_of(rng, rows + cols, fmt)
    sums = np.zeros((basis.planes, rows + 1, cols + 5), dtype=np.int32)
    inside, first, second = np.s_[:, 1:, 2:-3], range(rows), range(rows, rows + cols)
    sums[inside] = sums_with_edges(rng, basis, shape)
    entries = entries_between(rng, diagonal[:rows], diagonal[rows:], fmt)
    expected, folded = entries.copy(), sums.copy()
    with host_kernels(value, diagonal, fmt=fmt) as host, cuda_kernels(value, diagonal, fmt=fmt) as (kernels, (stream,)):
        host.reconstruct(STREAM, sums[inside], expected, first, second)
        host.fold(STREAM, folded[inside])
        s, a, again = on_device(sums), on_device(entries), on_device(entries)
        kernels.reconstruct(stream, s[inside], a, first, second)
        kernels.fold(stream, s[inside])
        kernels.reconstruct(stream, s[inside], again, first, second)
        stream.stream.synchronize()
    assert np.array_equal(s.get(), folded)
    assert np.array_equal(a.get(), expected, equal_nan=True)
    assert np.array_equal(again.get(), expected, equal_nan=True)


# factors


def through_residues(a, dtype, **options):
    """A factor through residues; its bytes are those of its plan."""
    options = {"tile_size": 128, "devices": "cuda:0", "memory_budget": "4 GiB", **options}
    factor = oc.cholesky(a, dtype=dtype, fp64="residue", **options)
    report = factor.report
    assert report.plan.engine == "residue" and report.bytes.executed == report.bytes.planned
    return factor


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "nb"), [(1, 16), (50, 64), (65, 16), (131, 256), (300, 64)])
def test_factors_are_as_right_as_lapacks(dtype, family, n, nb):
    a = matrix(family, n, dtype)
    with through_residues(a, dtype, tile_size=nb) as factor:
        check_typed(np.asarray(factor), a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "nb"), [(1500, 256), (2049, 512), (2500, 496)])
def test_sampled_blocks_of_larger_tiles(dtype, n, nb):
    a = matrix("nearly singular", n, dtype)
    with through_residues(a, dtype, tile_size=nb) as factor:
        assert factor.residual(a, blocks=66).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_the_same_in_any_memory(dtype):
    a = matrix("nearly singular", 1500, dtype)
    with through_residues(a, dtype) as factor:
        first, key = np.asarray(factor), factor.arithmetic_key
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(a, dtype=dtype, fp64="residue", tile_size=128, devices="cuda:0", memory_budget=1)
    for share in (1.0, 1.5, 4.0):
        with through_residues(a, dtype, memory_budget=int(share * caught.value.needed_bytes)) as factor:
            assert np.array_equal(np.asarray(factor), first) and factor.arithmetic_key == key
    with through_residues(a, dtype, store="device") as factor:
        assert np.array_equal(np.asarray(factor), first)


@pytest.mark.cuda(n=2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_devices_have_the_bits_of_one(dtype):
    a = matrix("nearly singular", 1500, dtype)
    with through_residues(a, dtype) as factor:
        first = np.asarray(factor)
    with through_residues(a, dtype, devices=["cuda:0", "cuda:1"]) as factor:
        assert factor.report.bytes.executed["peer"] > 0
        assert np.array_equal(np.asarray(factor), first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_that_wrap_into_a_positive_pivot_are_flagged_before(dtype):
    a = spread_out(counter_example(8, dtype=dtype), 64).astype(dtype)
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        through_residues(a, dtype, tile_size=64, moduli=8)
    assert caught.value.minor == 6 * 64 + 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_sampled_blocks_at_order_16384(dtype):
    n = 16384
    points = np.arange(n) + np.random.default_rng(0).uniform(-0.4, 0.4, n)
    a = np.exp(-np.abs(points[:, None] - points[None, :]) / 50) + 1e-3 * np.eye(n)
    if dtype.startswith("complex"):
        phases = np.exp(2j * np.pi * np.random.default_rng(4).uniform(size=n))
        a = phases[:, None] * a * phases.conj()
    a = a.astype(dtype)
    with through_residues(a, dtype, tile_size=1024) as factor:
        assert factor.residual(a).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
