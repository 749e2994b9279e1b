"""Narrow formats on CUDA devices: the bits of ``ooc_chol.formats``, norms, and copies of stored bytes both ways."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.errors import ScheduleError
from tests.builders import memory_store, open_device, page_locked
from tests.host.narrow_tiles import KINDS, expected_norms, norm, rounded, same, stored_bytes
from tests.inside.interfaces import NARROW_BUFFERS
from tests.inside.kernels import NORM_COLUMNS, FinalTile
from tests.inside.precision import FORMATS, FP8, FP16, FP32, FP64, decode
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.cuda

SHAPES = [(1, 1), (3, 5), (64, 64), (700, 1100)]
NARROW = [FP32, FP16, FP8]


@pytest.fixture
def bench():
    """A device with room for tiles of order 1100, and two streams."""
    device = open_device("cuda:0")
    device.activate()
    device.allocate(4, 8 * 1100 * 1100, 1100, narrow_bytes=FP32.stored_bytes(1100 * 1100))
    try:
        yield device, [device.create_stream("one"), device.create_stream("two")]
    finally:
        device.close()


def on_device(array):
    import cupy as cp

    copy = cp.asarray(array)
    cp.cuda.Device().synchronize()  # the streams under test do not wait for the default stream
    return copy


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_finish_rounds_as_the_host_and_measures(bench, kind, fmt):
    device, (stream, _) = bench
    rng, norms = np.random.default_rng(0), device.kernels.create_norms(2 * len(SHAPES))
    wanted = np.zeros((2 * len(SHAPES), len(NORM_COLUMNS)))
    for number, shape in enumerate(SHAPES):
        before = KINDS[kind](rng, shape, fmt)
        tile, after = on_device(before), rounded(before, fmt)
        is_diagonal = fmt is FP64 and shape[0] == shape[1]
        device.kernels.finish(stream, tile, fmt, norms, FinalTile(2 * number, is_diagonal))
        stream.synchronize()
        assert same(tile.get(), after)
        wanted[2 * number] = expected_norms(before, after, is_diagonal=is_diagonal)
    norms.copy_back(stream)
    stream.synchronize()
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(norms.values()[finite], wanted[finite], rtol=1e-12, atol=1e-320)


def test_a_tile_that_is_finished_twice_is_measured_once(bench):
    device, (stream, _) = bench
    norms, tile = device.kernels.create_norms(3), on_device(np.ones((64, 64)))
    for _ in range(2):
        device.kernels.finish(stream, tile, FP64, norms, FinalTile(1, True))
    norms.copy_back(stream)
    stream.synchronize()
    assert norms.values().tolist() == [[0.0] * 5, [64.0, 0.0, 64.0, 64.0, 1.0], [0.0] * 5]


@pytest.mark.parametrize("fmt", NARROW, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("kind", KINDS)
def test_encode_and_widen_make_the_bytes_and_tiles_of_the_host(bench, kind, fmt):
    import cupy as cp

    device, (stream, _) = bench
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        tile = KINDS[kind](rng, shape, fmt)
        wanted, widened = stored_bytes(tile, fmt), np.empty(shape)
        with np.errstate(over="ignore"):
            decode(wanted, fmt, slice(0, tile.size), widened)
        stored, out = cp.full(wanted.size, 0xAA, dtype=np.uint8), cp.full(shape, np.nan)
        source = on_device(tile)
        device.kernels.encode(stream, source, fmt, stored.data.ptr)
        device.kernels.widen(stream, stored.data.ptr, fmt, out)
        stream.synchronize()
        assert np.array_equal(stored.get(), wanted)
        assert same(out.get(), widened)


@pytest.mark.parametrize("fmt", NARROW, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_entry_before_rounding_gives_the_same_bytes(bench, kind, fmt):
    import cupy as cp

    device, (stream, _) = bench
    rng = np.random.default_rng(5)
    tiles = [KINDS[kind](rng, shape, fmt) for shape in SHAPES]
    for digits in range(2, 15):  # mantissas to both sides of where a format rounds up to the next power of two
        tiles.append(1e-3 * rng.random((9, 7)))
        tiles[-1][3, 4] = 8.0 - 2.0 ** (3 - digits)
    for before in tiles:
        after = rounded(before, fmt)
        if not np.isfinite(after).all():  # entries of 1e308 round to infinity, for which no exponent is right
            continue
        tile, wanted = on_device(before), stored_bytes(after, fmt)
        stored, norms = cp.full(wanted.size, 0xAA, dtype=np.uint8), device.kernels.create_norms(1)
        cp.cuda.Device().synchronize()
        device.kernels.finish(stream, tile, fmt, norms, FinalTile(0, False))
        device.kernels.encode(stream, tile, fmt, stored.data.ptr, largest=norms.largest(0))
        stream.synchronize()
        assert np.array_equal(stored.get(), wanted)


@pytest.mark.parametrize("fmt", NARROW, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("bad", [[np.nan], [np.inf, -np.inf], [np.nan, -np.inf]])
def test_what_is_no_number_stays_so(bench, fmt, bad):
    import cupy as cp

    device, (stream, _) = bench
    before = np.random.default_rng(2).standard_normal((33, 65))
    before.reshape(-1)[100 : 100 + len(bad)] = bad
    tile, after, out = on_device(before), rounded(before, fmt), cp.zeros((33, 65))
    device.kernels.finish(stream, tile, fmt, device.kernels.create_norms(1), FinalTile(0, False))
    stored = cp.zeros(fmt.stored_bytes(before.size), dtype=np.uint8)
    cp.cuda.Device().synchronize()
    device.kernels.encode(stream, tile, fmt, stored.data.ptr)
    device.kernels.widen(stream, stored.data.ptr, fmt, out)
    stream.synchronize()
    assert same(tile.get(), after)
    assert same(out.get(), after)


@pytest.mark.parametrize("fmt", NARROW, ids=lambda fmt: fmt.name)
def test_a_tile_at_any_multiple_of_eight_bytes(bench, fmt):
    """Tiles of odd orders lie side by side in slots of odd lengths."""
    import cupy as cp

    device, (stream, _) = bench
    before = np.random.default_rng(3).standard_normal((65, 31))
    after = rounded(before, fmt)
    tile = on_device(np.concatenate([[7.0], before.reshape(-1)]))[1:].reshape(65, 31)
    stored, out = cp.zeros(fmt.stored_bytes(before.size), dtype=np.uint8), cp.zeros(1 + before.size)[1:].reshape(65, 31)
    norms = device.kernels.create_norms(1)
    cp.cuda.Device().synchronize()
    device.kernels.finish(stream, tile, fmt, norms, FinalTile(0, False))
    device.kernels.encode(stream, tile, fmt, stored.data.ptr, largest=norms.largest(0))
    device.kernels.widen(stream, stored.data.ptr, fmt, out)
    norms.copy_back(stream)
    stream.synchronize()
    assert same(tile.get(), after)
    assert same(out.get(), after)
    np.testing.assert_allclose(norms.values()[0], expected_norms(before, after, is_diagonal=False), rtol=1e-12)


def test_streams_at_once_do_not_disturb_each_other(bench):
    import cupy as cp

    device, streams = bench
    rng = np.random.default_rng(4)
    tiles = [rng.standard_normal((700, 1100)) * 2.0**power for power in range(-10, 10)]
    on_gpu, norms = [on_device(tile) for tile in tiles], device.kernels.create_norms(len(tiles))
    stored = [cp.zeros(FP8.stored_bytes(tile.size), dtype=np.uint8) for tile in tiles]
    cp.cuda.Device().synchronize()
    for number, (tile, out) in enumerate(zip(on_gpu, stored, strict=True)):
        device.kernels.encode(streams[number % 2], tile, FP8, out.data.ptr)
        device.kernels.finish(streams[number % 2], tile, FP8, norms, FinalTile(number, False))
    for each in streams:
        each.synchronize()
    norms.copy_back(streams[0])
    streams[0].synchronize()
    for number, tile in enumerate(tiles):
        assert np.array_equal(stored[number].get(), stored_bytes(tile, FP8))
        after = rounded(tile, FP8)
        assert same(on_gpu[number].get(), after)
        np.testing.assert_allclose(norms.values()[number, 0], norm(after), rtol=1e-12)


GRID = TileGrid(1500, 700)
FORMATS_OF_GRID = (FP64, FP16, FP64, FP8, FP32, FP64)


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "staged"])
def test_copies_out_and_in_move_stored_bytes(bench, is_locked):
    import cupy as cp

    device, (outward, inward) = bench
    rng = np.random.default_rng(5)
    store = memory_store(GRID, FORMATS_OF_GRID)
    indices = [(i, j) for i in range(GRID.nt) for j in range(i + 1)]
    with page_locked("cuda:0", fresh=store.host_memory() if is_locked else None):
        for index, fmt in zip(indices, FORMATS_OF_GRID, strict=True):
            tile = rounded(rng.standard_normal(GRID.shape(*index)), fmt)
            source, back = on_device(tile), cp.full(tile.shape, np.nan)
            cp.cuda.Device().synchronize()
            device.copy_out(outward, source, store, index)
            inward.wait(outward.record())
            device.copy_in(inward, store, index, back)
            inward.synchronize()
            kept = np.empty(tile.shape)
            store.read(index, kept)
            assert same(kept, tile)
            assert same(back.get(), tile)
            if fmt is not FP64:
                assert np.array_equal(store.stored(index), stored_bytes(tile, fmt))
        device.synchronize()
    store.close()


def test_many_copies_in_flight_share_the_buffers_of_their_streams(bench):
    import cupy as cp

    device, (outward, inward) = bench
    rng = np.random.default_rng(6)
    store = memory_store(GRID, FORMATS_OF_GRID)
    narrow = [(1, 0), (2, 0), (2, 1)]
    formats = zip(narrow, (FP16, FP8, FP32), strict=True)
    tiles = {index: rounded(rng.standard_normal(GRID.shape(*index)), fmt) for index, fmt in formats}
    sources = {index: on_device(tile) for index, tile in tiles.items()}
    backs = [(index, cp.full(tiles[index].shape, np.nan)) for index in narrow * 5]
    cp.cuda.Device().synchronize()
    for index in narrow:
        device.copy_out(outward, sources[index], store, index)
    inward.wait(outward.record())
    for index, back in backs:
        device.copy_in(inward, store, index, back)
    inward.synchronize()
    assert all(same(back.get(), tiles[index]) for index, back in backs)
    third = device.create_stream("three")
    with pytest.raises(ScheduleError, match=f"all {NARROW_BUFFERS} buffers"):
        device.copy_in(third, store, (1, 0), backs[0][1])
    store.close()


def test_a_tile_larger_than_its_buffer_is_refused():
    import cupy as cp

    device, store = open_device("cuda:0"), memory_store(GRID, FORMATS_OF_GRID)
    device.activate()
    device.allocate(1, 8 * 700 * 700, 700, narrow_bytes=100)
    try:
        with pytest.raises(ScheduleError, match="100 bytes"):
            device.copy_in(device.create_stream("in"), store, (1, 0), cp.zeros((700, 700)))
    finally:
        device.close()
        store.close()


def test_slots_are_tiles_of_types_of_matrices():
    from tests.inside.hardware import CudaArena

    arena = CudaArena(2, 800, 4096, narrow_bytes=10)
    assert arena.tile(1, (10, 10), "float64").shape == (10, 10)
    assert arena.tile(1, (5, 10), "complex128").nbytes == 800
    with pytest.raises(ValueError, match="float64"):
        arena.tile(1, (10, 10), "float16")
    first, *others = arena.narrow
    assert first - arena.workspace >= 4096
    assert others == [first + 4096 * number for number in range(1, NARROW_BUFFERS)]
    arena.close()


def test_kernels_of_formats_are_loaded_at_their_first_use():
    device = open_device("cuda:0")
    device.activate()
    device.allocate(1, 8 * 64 * 64, 64)
    try:
        assert device.kernels._formats is None, "a factorization in FP64 needs none"
        device.kernels.create_norms(1)
        assert device.kernels._formats is not None, "norms are made before a run, in which nothing is compiled"
    finally:
        device.close()
