"""The CUDA residue kernels against the host's integer model: the same bits, and the same flagged row."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda.residue_kernels import GUARD, SHAPES, cuda_kernels, flagged, on_device, strips
from tests.host.residue_reference import STREAM, host_kernels, residues
from tests.inside.precision import (
    FP8,
    FP16,
    FP16_SUM_ERROR,
    FP32,
    MOST_MODULI,
    MOST_TERMS,
    ResidueBasis,
    decode,
    encode,
)

pytestmark = pytest.mark.cuda(n=1)

COUNTS = range(4, MOST_MODULI + 1)


def diagonals(rng, n):
    """Entries of every magnitude, subnormal and near the largest too, and just beside powers of four."""
    bits = rng.integers(1, 0x7FF0000000000000, n).view(np.float64)
    beside = 4.0 ** rng.integers(-500, 500, n) * rng.choice([1.0, 1.01, 1 - 2.0**-53, 1 + 2.0**-52], n)
    return np.where(rng.random(n) < 0.5, bits, beside)


def rows_of_a_factor(rng, diagonal, cols):
    """Rows whose squares sum up to half of the diagonal entries."""
    rows = rng.standard_normal((len(diagonal), cols))
    return rows * np.sqrt(diagonal / 2)[:, None] / np.sqrt((rows**2).sum(axis=1))[:, None]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_convert(count, shape):
    rng = np.random.default_rng(count)
    rows, cols = shape
    diagonal = diagonals(rng, rows + 3)
    values = rows_of_a_factor(rng, diagonal[3:], cols)
    expected = np.full((count, rows + 1, cols + 8), GUARD, dtype=np.int8)
    with host_kernels(count, diagonal) as host:
        host.convert(STREAM, values, range(3, rows + 3), expected[:, 1:, 4:-4], is_first=True)
        assert host.flagged_row() is None
    with cuda_kernels(count, diagonal) as (kernels, (stream,)):
        out = on_device(np.full(expected.shape, GUARD, dtype=np.int8))
        kernels.convert(stream, on_device(values), range(3, rows + 3), out[:, 1:, 4:-4], is_first=True)
        assert flagged(kernels, stream) is None
    assert np.array_equal(out.get(), expected)


@pytest.mark.parametrize("count", COUNTS)
def test_convert_at_the_edges(count):
    basis = ResidueBasis(count)
    top = 2.0**basis.bits
    numbers = [0.5, 1.5, 2.5, 126.5, 127.5, 128.5, 0.0, 1e300, np.inf, np.nan, 2.0**63, 2.0**63 * (1 - 2.0**-53), top, top - 1]
    numbers += [float(m // 2 + d) for m in basis.moduli for d in (0, 1)]
    values = np.ldexp(np.array([numbers, [-x for x in numbers]]), -basis.exponent(1.0))
    expected = np.zeros((count, *values.shape), dtype=np.int8)
    with host_kernels(count, [1.0, 1.0]) as host, cuda_kernels(count, [1.0, 1.0]) as (kernels, (stream,)):
        host.convert(STREAM, values, range(2), expected, is_first=False)
        out = on_device(np.zeros_like(expected))
        kernels.convert(stream, on_device(values), range(2), out, is_first=False)
        assert flagged(kernels, stream) is None
    assert np.array_equal(out.get(), expected)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_diagonal_entry_flags_its_row(bad):
    with cuda_kernels(13, [1.0, 2.0, bad, bad, 5e-324]) as (kernels, (stream,)):
        assert flagged(kernels, stream) == 2
        kernels.open(5)
        assert flagged(kernels, stream) is None


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150, 1.01])
def test_a_row_is_flagged_when_its_norm_exceeds_the_bound(scale):
    tile = np.zeros((40, 2000))
    tile[7, ::100] = 0.21 * scale  # 0.88 of the bound
    with cuda_kernels(8, np.full(50, scale**2)) as (kernels, (stream,)):
        values, out = on_device(tile), on_device(np.zeros((8, *tile.shape), dtype=np.int8))
        kernels.convert(stream, values, range(5, 45), out, is_first=True)
        kernels.convert(stream, values, range(5, 45), out, is_first=False)
        assert flagged(kernels, stream) is None
        kernels.convert(stream, values[:, :401], range(5, 45), out[:, :, :401], is_first=True)
        assert flagged(kernels, stream) == 12


@pytest.mark.parametrize(("entry", "row"), [(1.0, None), (1 + 2.0**-22, None), (1 + 2.0**-19, 1), (np.nan, 1), (-np.inf, 1)])
def test_rounding_is_allowed_to_exceed_the_norm_and_nan_is_not(entry, row):
    with cuda_kernels(13, [1.0, 1.0]) as (kernels, (stream,)):
        out = on_device(np.zeros((13, 2, 1), dtype=np.int8))
        kernels.convert(stream, on_device(np.array([[0.0], [entry]])), range(2), out, is_first=True)
        assert flagged(kernels, stream) == row


@pytest.mark.parametrize(("rows", "cols", "inner"), [(1, 1, 16), (97, 130, 48), (512, 256, 2048)])
@pytest.mark.parametrize("accumulates", [False, True])
def test_product(rows, cols, inner, accumulates):
    rng = np.random.default_rng(5)
    left, right = strips(rng, 13, rows, inner), strips(rng, 13, cols, inner)
    before = rng.integers(-(2**30), 2**30, (13, left.shape[1], right.shape[1]), dtype=np.int32)
    expected = before.copy()
    parts = np.s_[:, :rows, 16:-16], np.s_[:, :cols, 16:-16], np.s_[:, :rows, :cols]
    with host_kernels(13, [1.0]) as host, cuda_kernels(13, [1.0]) as (kernels, (stream,)):
        host.product(STREAM, expected[parts[2]], left[parts[0]], right[parts[1]], accumulates=accumulates, lower=False)
        a, b, c = on_device(left), on_device(right), on_device(before)
        kernels.product(stream, c[parts[2]], a[parts[0]], b[parts[1]], accumulates=accumulates, lower=False)
        stream.stream.synchronize()
    assert np.array_equal(c.get()[parts[2]], expected[parts[2]])


@pytest.mark.parametrize(("rows", "offset"), [(2048, 0), (2048, 16), (100, 48)])
def test_long_products_of_many_columns(rows, offset):
    """Those of planes one by one, also where tile orders shift addresses to any multiple of 16; in turn on two streams."""
    import cupy as cp

    planes, cols, inner = 4, 8192 + 16, 16384
    rng = np.random.default_rng(9)
    left, right = (on_device(rng.integers(-128, 128, (planes, order, inner + 64), dtype=np.int8)) for order in (rows + 16, cols))
    before = on_device(rng.integers(-(2**30), 2**30, (planes, rows + 16, cols), dtype=np.int32))
    a, b = left[:, :rows, offset : offset + inner], right[:, :, offset : offset + inner]
    expected = before[:, :rows].copy()
    for plane in range(planes):  # sums in float64 are exact
        expected[plane] += (a[plane].astype(float) @ b[plane].astype(float).T).astype(cp.int32)
    with cuda_kernels(planes, [1.0], streams=2) as (kernels, streams):
        for stream, accumulates in zip(streams, (True, False), strict=True):
            sums = before.copy()
            cp.cuda.Device().synchronize()
            kernels.product(stream, sums[:, :rows], a, b, accumulates=accumulates, lower=False)
            stream.stream.synchronize()
            assert bool(cp.array_equal(sums[:, :rows], expected if accumulates else expected - before[:, :rows]))


@pytest.mark.parametrize("n", [1, 17, 130, 512])
def test_product_of_a_diagonal_block_gives_its_lower_triangle(n):
    rng = np.random.default_rng(6)
    strip = strips(rng, 13, n, 64)
    expected = np.zeros((13, strip.shape[1], strip.shape[1]), dtype=np.int32)
    part, block = np.s_[:, :n, 16:-16], np.s_[:, :n, :n]
    with host_kernels(13, [1.0]) as host, cuda_kernels(13, [1.0]) as (kernels, (stream,)):
        host.product(STREAM, expected[block], strip[part], strip[part], accumulates=False, lower=True)
        a, c = on_device(strip), on_device(np.zeros_like(expected))
        kernels.product(stream, c[block], a[part], a[part], accumulates=False, lower=True)
        stream.stream.synchronize()
    assert np.array_equal(np.tril(c.get()[block]), np.tril(expected[block]))


@pytest.mark.parametrize("count", COUNTS)
def test_the_longest_sums_of_extreme_residues_are_exact_after_a_fold(count):
    halves = np.array([-(m // 2) for m in ResidueBasis(count).moduli])
    strip = np.tile(halves.astype(np.int8)[:, None, None], (1, 16, MOST_TERMS))
    strip[:, 1] = -np.maximum(halves, -127)[:, None]
    expected = np.tile(halves.astype(np.int32)[:, None, None], (1, 16, 16))
    with host_kernels(count, [1.0]) as host, cuda_kernels(count, [1.0]) as (kernels, (stream,)):
        a, c = on_device(strip), on_device(expected)
        for which, on, sums, factor in ((host, STREAM, expected, strip), (kernels, stream, c, a)):
            which.product(on, sums, factor, factor, accumulates=True, lower=False)
            which.fold(on, sums)
        stream.stream.synchronize()
    assert np.array_equal(c.get(), expected)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fold_and_reconstruct(count, shape):
    rng = np.random.default_rng(count)
    rows, cols = shape
    basis = ResidueBasis(count)
    diagonal = diagonals(rng, rows + cols)
    sums = rng.integers(-(2**31), 2**31, (count, rows + 1, cols + 5), dtype=np.int64).astype(np.int32)
    half = basis.product // 2
    edges = [half, half - 1, 1 - half, 2 - half, 0, 1, -1, -(2**31), half // 3, -half // 5]
    sums[:, 1, 2 : 2 + min(cols, 10)] = residues(edges, basis)[:, :cols]
    sums[:, -1, 2:-3] = rng.choice([-(2**31), 2**31 - 1, 0, -1], (count, cols))
    roots = np.sqrt(diagonal)
    entries = roots[:rows, None] * roots[rows:] * rng.uniform(-1, 1, shape) * 2.0 ** -rng.integers(0, 130, shape)
    odd = [0.0, np.inf, np.nan, 1e308, -5e-324][: entries.size]
    entries.flat[: len(odd)] = odd
    expected, folded = entries.copy(), sums.copy()
    inside, first, second = np.s_[:, 1:, 2:-3], range(rows), range(rows, rows + cols)
    with host_kernels(count, diagonal) as host, cuda_kernels(count, diagonal) as (kernels, (stream,)):
        host.reconstruct(STREAM, sums[inside], expected, first, second)
        host.fold(STREAM, folded[inside])
        s, a, again = on_device(sums), on_device(entries), on_device(entries)
        kernels.reconstruct(stream, s[inside], a, first, second)
        kernels.fold(stream, s[inside])
        kernels.reconstruct(stream, s[inside], again, first, second)
        stream.stream.synchronize()
    assert np.array_equal(s.get(), folded)
    assert np.array_equal(a.get().view(np.int64)[~np.isnan(expected)], expected.view(np.int64)[~np.isnan(expected)])
    assert np.array_equal(again.get(), expected, equal_nan=True)


def test_large_tiles_on_several_streams():
    import cupy as cp

    rng = np.random.default_rng(7)
    n, count = 4096, 13
    diagonal = 10.0 ** rng.uniform(-150, 150, 2 * n)
    tiles = [rows_of_a_factor(rng, diagonal[i * n : (i + 1) * n], n) for i in range(2)]
    block = np.sqrt(diagonal[n:, None]) * np.sqrt(diagonal[None, :n]) * rng.uniform(-1, 1, (n, n))
    expected = block[:32].copy()
    q = [np.zeros((count, n, n), dtype=np.int8) for _ in range(2)]
    sums = np.zeros((count, 32, n), dtype=np.int32)
    with host_kernels(count, diagonal) as host:
        for i in range(2):
            host.convert(STREAM, tiles[i], range(i * n, (i + 1) * n), q[i], is_first=True)
        host.product(STREAM, sums, q[1][:, :32], q[0], accumulates=False, lower=False)
        host.reconstruct(STREAM, sums, expected, range(n, n + 32), range(n))
    with cuda_kernels(count, diagonal, streams=3) as (kernels, streams):
        strip, a = cp.zeros((count, 2 * n, n), cp.int8), on_device(block)
        events = []
        for i, stream in enumerate(streams[:2]):
            kernels.convert(stream, on_device(tiles[i]), range(i * n, (i + 1) * n), strip[:, i * n : (i + 1) * n], is_first=True)
            events.append(stream.stream.record())
        accumulators = [cp.zeros((count, n // 2, n), cp.int32) for _ in range(2)]
        cp.cuda.Device().synchronize()
        for i, stream in enumerate(streams[1:]):
            part = range(n + i * n // 2, n + (i + 1) * n // 2)
            for event in events:
                stream.stream.wait_event(event)
            rows = strip[:, part.start : part.stop]
            kernels.product(stream, accumulators[i], rows, strip[:, :n], accumulates=False, lower=False)
            kernels.reconstruct(stream, accumulators[i], a[i * n // 2 : (i + 1) * n // 2], part, range(n))
            stream.stream.synchronize()
        assert flagged(kernels, streams[0]) is None
        result = a.get()
    for i in range(2):
        assert np.array_equal(strip[:, i * n : (i + 1) * n].get(), q[i])
    assert np.array_equal(result[:32], expected)
    # Every entry, by a sum in float64: 50 bits of the rows' norms, and DGEMM's own rounding.
    exact = block - tiles[1] @ tiles[0].T
    assert np.all(np.abs(result - exact) <= n * 2.0**-50 * np.sqrt(diagonal[n:, None]) * np.sqrt(diagonal[None, :n]))


def stored_rows(rng, diagonal, cols, fmt):
    """Rows of a factor as a format stores them, and their values."""
    values = rows_of_a_factor(rng, diagonal, cols)
    stored = np.zeros(fmt.stored_bytes(values.size), dtype=np.uint8)
    encode(values, fmt, stored)
    decode(stored, fmt, slice(0, values.size), values)
    return stored, values


@pytest.mark.parametrize("fmt", [FP32, FP16, FP8], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("magnitude", [1.0, 1e-30, 1e30])
def test_convert_stored_tiles_and_their_entries_in_fp16(shape, fmt, magnitude):
    rng = np.random.default_rng(3)
    (rows, cols), count = shape, 7
    diagonal = np.full(rows + 3, magnitude**2) * rng.uniform(0.5, 2.0, rows + 3)
    stored, values = stored_rows(rng, diagonal[3:], cols, fmt)
    expected, expected_fp16 = np.zeros((count, rows, cols), dtype=np.int8), np.zeros((1, rows, cols), dtype=np.float16)
    with host_kernels(count, diagonal) as host:
        host.convert(STREAM, values, range(3, rows + 3), expected, is_first=False, fp16=expected_fp16)
    with cuda_kernels(count, diagonal) as (kernels, (stream,)):
        out, fp16 = on_device(np.zeros_like(expected)), on_device(np.zeros_like(expected_fp16))
        kernels.convert_stored(stream, on_device(stored), fmt, range(3, rows + 3), out, is_first=True, fp16=fp16)
        assert flagged(kernels, stream) is None
        assert np.array_equal(out.get(), expected) and np.array_equal(fp16.get(), expected_fp16)
        out, fp16 = on_device(np.zeros_like(expected)), on_device(np.zeros_like(expected_fp16))
        kernels.convert(stream, on_device(values), range(3, rows + 3), out, is_first=False, fp16=fp16)
        assert flagged(kernels, stream) is None
    assert np.array_equal(out.get(), expected) and np.array_equal(fp16.get(), expected_fp16)


@pytest.mark.parametrize("shape", [(16, 16, 16), (128, 256, 512), (97, 130, 64), (256, 1024, 4096)])
def test_fp16_products_and_their_subtraction(shape):
    rng = np.random.default_rng(4)
    rows, cols, inner = shape
    left, right = (rng.standard_normal((1, order, inner)).astype(np.float16) for order in (rows, cols))
    exact = left[0].astype(float) @ right[0].astype(float).T
    # Tensor cores add 16 terms at a time and cut off what is below FP32's last place.
    bound = inner / 16 * 2.0**-22 * (np.abs(left[0]).astype(float) @ np.abs(right[0]).astype(float).T) + 1e-6
    diagonal = rng.uniform(0.5, 2.0, rows + cols) * 4.0 ** rng.integers(-40, 40, rows + cols)
    with host_kernels(7, diagonal) as host, cuda_kernels(7, diagonal) as (kernels, (stream,)):
        sums = on_device(np.full((1, rows, cols), np.nan, dtype=np.float32))
        for accumulates in (False, True):
            kernels.fp16_product(stream, sums, on_device(left), on_device(right), accumulates=accumulates)
            stream.stream.synchronize()
            assert np.all(np.abs(sums.get()[0] - (1 + accumulates) * exact) <= (1 + accumulates) * bound)
            limit = FP16_SUM_ERROR * np.linalg.norm(left[0].astype(float)) * np.linalg.norm(right[0].astype(float))
            assert np.linalg.norm(sums.get()[0] - (1 + accumulates) * exact) <= (1 + accumulates) * limit
        tile = rng.standard_normal((rows, cols))
        expected, found = tile.copy(), on_device(tile)
        host.subtract_narrow(STREAM, sums.get(), expected, range(rows), range(rows, rows + cols))
        kernels.subtract_narrow(stream, sums, found, range(rows), range(rows, rows + cols))
        stream.stream.synchronize()
    assert np.array_equal(found.get(), expected)
