"""Sources of A: every kind gives the plain array's tiles to the bit, and refuses what it cannot read."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol import from_function
from ooc_chol.errors import TierError
from tests.builders import source_tier
from tests.host.source_table import Tensor
from tests.inside.memory import STRIP_BYTES, ArraySource, SliceSource, as_source, base
from tests.inside.process import ThreadTeam
from tests.inside.tasks import TileGrid
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.host

N = 23


class SliceableData:
    """What h5py and Zarr data sets have in common: shape, dtype and slices, which are new arrays."""

    def __init__(self, a):
        self._a = a
        self.shape = a.shape
        self.dtype = a.dtype

    def __getitem__(self, key):
        rows, cols = key
        assert isinstance(rows, slice) and isinstance(cols, slice) and rows.step is None and cols.step is None
        return self._a[key].copy()


def matrix(n=N, dtype=np.float64):
    """Not symmetric, and with a NaN payload: a source neither mirrors nor computes."""
    a = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    a[0, n - 1] = np.nan
    a[n - 1, 0] = -0.0
    return a


def saved(path, a):
    np.save(path, a)
    return path


def larger_map(path, a, where, order="C"):
    """A view of a larger memory map that shows ``a``."""
    whole = np.full((3 * a.shape[0] + 5,) * 2, 7.0, dtype=a.dtype, order=order)
    whole[where] = a
    raw = path.with_suffix(".raw")
    raw.write_bytes(b"header!!" + whole.tobytes(order))
    return np.memmap(raw, dtype=a.dtype, mode="r", offset=8, shape=whole.shape, order=order)[where]


def tile_function(a):
    def fill(rows, cols, out, stream):
        out[...] = a[rows.start : rows.stop, cols.start : cols.stop]

    return fill


MIDDLE = (slice(4, 4 + N), slice(9, 9 + N))
# Input made from a path and the plain array, and the kind of source that reads it.
KINDS = {
    "row-major array": (lambda path, a: a, "array"),
    "column-major array": (lambda path, a: np.asfortranarray(a), "array"),
    "strided view": (lambda path, a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3], "array"),
    "negative strides": (lambda path, a: a[::-1, ::-1].copy()[::-1, ::-1], "array"),
    "negative strides, transposed": (lambda path, a: a[::-1, ::-1].T.copy()[::-1, ::-1].T, "array"),
    "numpy matrix": (lambda path, a: a.view(np.matrix), "array"),
    "row-major file": (lambda path, a: saved(path, a), "file"),
    "column-major file": (lambda path, a: saved(path, np.asfortranarray(a)), "file"),
    "file named by a string": (lambda path, a: str(saved(path, a)), "file"),
    "mapped file": (lambda path, a: np.load(saved(path, a), mmap_mode="r"), "file"),
    "mapped writable file": (lambda path, a: np.load(saved(path, a), mmap_mode="r+"), "file"),
    "mapped column-major file": (lambda path, a: np.load(saved(path, np.asfortranarray(a)), mmap_mode="r"), "file"),
    "plain array over a map": (lambda path, a: np.asarray(np.load(saved(path, a), mmap_mode="r")), "file"),
    "view of a map": (lambda path, a: larger_map(path, a, MIDDLE), "file"),
    "view of a column-major map": (lambda path, a: larger_map(path, a, MIDDLE, "F"), "file"),
    "transposed view of a map": (lambda path, a: larger_map(path, a.T, MIDDLE).T, "file"),
    "every second row of a map": (lambda path, a: larger_map(path, a, (slice(1, 2 * N, 2), slice(2, 2 + N))), "file"),
    "rows of a map upwards": (lambda path, a: larger_map(path, a, (slice(N, 0, -1), slice(2, 2 + N))), "file"),
    "every second entry of a map": (lambda path, a: larger_map(path, a, (slice(0, 2 * N, 2),) * 2), "array"),
    "copy-on-write map": (lambda path, a: np.load(saved(path, a), mmap_mode="c"), "array"),
    "copy of a map": (lambda path, a: np.load(saved(path, a), mmap_mode="r").copy(), "array"),
    "sliceable data": (lambda path, a: SliceableData(a), "slices"),
    "masked array": (lambda path, a: np.ma.masked_array(a), "slices"),
    "function": (lambda path, a: from_function(N, tile_function(a)), "function"),
}


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_tiles_of_the_plain_array(kind, dtype, tmp_path):
    make, name = KINDS[kind]
    a = matrix(dtype=dtype)
    wide = a.astype(np.float64)
    for nb in (1, 5, 8, N, 64):
        grid = TileGrid(N, nb)
        tier = source_tier(make(tmp_path / "a.npy", a), grid)
        assert (tier.name, tier.source.n) == (name, N)
        assert tier.source.bytes_per_entry == (0 if name == "function" else a.dtype.itemsize)
        for i, j in grid.tiles():
            out = np.full(grid.shape(i, j), 3.0)
            tier.read((i, j), out)
            assert same_bits(out, wide[i * nb : (i + 1) * nb, j * nb : (j + 1) * nb]), (nb, i, j)
        tier.close()
        tier.close()


axis_slices = st.tuples(st.integers(0, 11), st.sampled_from([1, 1, 2, -1, -2]))


@given(rows=axis_slices, cols=axis_slices, transposed=st.booleans(), order=st.sampled_from("CF"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_view_of_a_map_is_read_as_numpy_reads_it(rows, cols, transposed, order, tmp_path):
    def part(start, step):
        return slice(start, start + 6 * step, step) if step > 0 else slice(23 - start, 23 - start + 6 * step, step)

    whole = np.arange(24.0 * 24).reshape(24, 24)
    path = tmp_path / "raw"
    path.write_bytes(whole.tobytes(order))
    view = np.memmap(path, dtype=float, mode="r", shape=(24, 24), order=order)[part(*rows), part(*cols)]
    view = view.T if transposed else view
    source = as_source(view)
    out = np.empty((4, 3))
    source.read_block(range(1, 5), range(2, 5), out)
    assert np.array_equal(out, view[1:5, 2:5])
    source.close()


def test_a_view_of_a_single_entry_can_be_read():
    source = as_source(np.arange(9.0).reshape(3, 3)[::3, ::3])
    out = np.empty((1, 1))
    source.read_block(range(1), range(1), out)
    assert out == 0


# several threads


@pytest.fixture(params=[2, 3, 9])
def team(request):
    """A team of so many threads."""
    with closing(ThreadTeam(request.param)) as threads:
        yield threads


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_team_reads_what_one_thread_reads(kind, dtype, tmp_path, team, monkeypatch):
    monkeypatch.setattr(base, "_LEAST_SHARED_BYTES", 0)
    monkeypatch.setattr(base, "_SHARE_LINES", 4)
    a = matrix(dtype=dtype)
    with closing(source_tier(KINDS[kind][0](tmp_path / "a.npy", a), TileGrid(N, 16))) as tier:
        for i, j in tier.grid.tiles():
            out = np.full(tier.grid.shape(i, j), 3.0)
            tier.read_by(team, (i, j), out)
            assert same_bits(out, a.astype(np.float64)[i * 16 : (i + 1) * 16, j * 16 : (j + 1) * 16])


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("in_file", [False, True])
def test_large_and_small_rectangles_are_read_by_a_team(order, in_file, tmp_path, team):
    a = np.array(np.random.default_rng(0).standard_normal((700, 700)), order=order)
    with closing(as_source(saved(tmp_path / "a.npy", a) if in_file else a)) as source:
        for rows, cols in ((range(60), range(60)), (range(100, 700), range(3, 600))):
            out = np.empty((len(rows), len(cols)))
            source.read_block(rows, cols, out, team=team)
            assert same_bits(out, a[rows.start : rows.stop, cols.start : cols.stop])


def test_an_error_of_one_thread_of_a_team_is_raised(tmp_path, team):
    a = np.eye(700)
    with closing(as_source(saved(tmp_path / "a.npy", a))) as source:
        os.truncate(tmp_path / "a.npy", 700 * 4 * 600)
        with pytest.raises(TierError, match="became shorter"):
            source.read_block(range(700), range(700), np.empty((700, 700)), team=team)


# what a GPU copies in place


@pytest.mark.parametrize(
    ("a", "is_copied_in_place"),
    [
        (np.eye(4), True),
        (np.zeros((4, 9))[:, 2:6], True),
        (np.zeros((8, 4))[::2], True),
        (np.asfortranarray(np.eye(4)), False),
        (np.zeros((4, 8))[:, ::2], False),
        (np.eye(4)[::-1], False),
        (np.eye(4)[:, ::-1], False),
        (np.broadcast_to(1.0, (4, 4)), False),
        (np.eye(4, dtype=np.float32), True),
    ],
)
def test_only_memory_of_rows_of_adjacent_entries_is_page_locked(a, is_copied_in_place):
    assert (as_source(a).host_memory() is not None) == is_copied_in_place


# files


@pytest.fixture
def bytes_read(monkeypatch):
    """Sizes of all reads by position."""
    sizes = []

    def counting(descriptor, buffers, position):
        sizes.append(preadv(descriptor, buffers, position))
        return sizes[-1]

    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", counting)
    return sizes


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(("order", "dtype"), [("C", np.float64), ("F", np.float64), ("C", np.float32), ("F", np.float32)])
def test_a_file_is_read_by_position_and_not_through_the_mapping(mapped, order, dtype, tmp_path, bytes_read):
    a = matrix(dtype=dtype)
    path = saved(tmp_path / "a.npy", np.asarray(a, order=order))
    source = as_source(np.load(path, mmap_mode="r") if mapped else path)
    source.read_block(range(10, 20), range(3, 10), np.empty((10, 7)))
    assert sum(bytes_read) == 70 * a.dtype.itemsize
    source.close()


def test_whole_rows_are_one_read(tmp_path, bytes_read):
    source = as_source(saved(tmp_path / "a.npy", matrix()))
    source.read_block(range(10, 20), range(N), np.empty((10, N)))
    assert bytes_read == [10 * N * 8]
    source.close()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice on files")
@pytest.mark.parametrize(("order", "dtype"), [("C", np.float64), ("F", np.float64), ("C", np.float32), ("F", np.float32)])
def test_each_piece_is_asked_for_once_and_not_long_before_it_is_read(order, dtype, tmp_path, monkeypatch):
    source = as_source(saved(tmp_path / "a.npy", np.ones((2000, 2000), dtype, order)))
    asked, read, preadv = [], [], os.preadv

    def reading(descriptor, buffers, position):
        read.append(position)
        assert position in asked and len(asked) - len(read) < 160
        return preadv(descriptor, buffers, position)

    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, start, length, advice: asked.append(start))
    monkeypatch.setattr(os, "preadv", reading)
    source.read_block(range(100, 1900), range(50, 1750), np.empty((1800, 1700)))
    assert asked == read and len(read) == (1800 if order == "C" else 1700)
    source.close()


@pytest.mark.parametrize(("order", "dtype"), [("C", np.float64), ("F", np.float64), ("C", np.float32), ("F", np.float32)])
def test_a_read_holds_little_memory_beside_the_tile(order, dtype, tmp_path):
    n = 600
    source = as_source(saved(tmp_path / "a.npy", np.ones((n, n), dtype, order)))
    out = np.empty((400, 500))
    tracemalloc.start()
    try:
        source.read_block(range(200, n), range(500), out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    source.close()
    direct = order == "C" and dtype == np.float64
    assert peak < (0 if direct else STRIP_BYTES) + 16384
    assert np.all(out == 1)


def test_short_reads_are_continued(tmp_path, monkeypatch):
    a = matrix()
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, position: preadv(fd, [buffers[0][:13]], position))
    source = as_source(saved(tmp_path / "a.npy", a))
    out = np.empty((N, N))
    source.read_block(range(N), range(N), out)
    assert same_bits(out, a)
    source.close()


def test_a_file_may_be_read_by_several_threads(tmp_path):
    a = matrix(200)
    source = as_source(saved(tmp_path / "a.npy", np.asfortranarray(a)))

    def read(start):
        out = np.empty((50, 200))
        source.read_block(range(start, start + 50), range(200), out)
        return out

    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(read, range(0, 150)))
    assert all(same_bits(block, a[start : start + 50]) for start, block in enumerate(blocks))
    source.close()


def test_a_missing_file_is_told_as_usual(tmp_path):
    with pytest.raises(FileNotFoundError):
        as_source(tmp_path / "missing.npy")


@pytest.mark.parametrize("name", ["a.txt", "a.h5", "a"])
def test_the_path_of_another_kind_of_file_is_refused(name, tmp_path):
    (tmp_path / name).write_bytes(b"1 2 3")
    with pytest.raises(ValueError, match=r"\.npy"):
        as_source(tmp_path / name)


@pytest.mark.parametrize("kept", [0, 4, 8, 60, 128, 128 + 8 * N * N - 1])
def test_a_truncated_file_is_refused_at_once(kept, tmp_path):
    path = saved(tmp_path / "a.npy", matrix())
    os.truncate(path, kept)
    with pytest.raises(TierError, match=r"a\.npy"):
        as_source(path)


def test_a_file_truncated_later_is_met_when_read(tmp_path):
    path = saved(tmp_path / "a.npy", matrix())
    tier = source_tier(path, TileGrid(N, 10))
    os.truncate(path, 1000)
    with pytest.raises(TierError, match="became shorter"):
        tier.read((2, 0), np.empty((3, 10)))
    tier.close()


@pytest.mark.parametrize(
    "content", [b"not an array at all" * 9, b"\x93NUMPY\x09\x09" + bytes(200), b"\x93NUMPY\x01\x00\x10\x00({[" + b"x" * 99]
)
def test_a_file_that_is_no_npy_file_is_refused(content, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(TierError, match="not a complete"):
        as_source(path)


def test_a_closed_file_cannot_be_read(tmp_path):
    source = as_source(saved(tmp_path / "a.npy", matrix()))
    source.close()
    with pytest.raises(TierError, match="closed"):
        source.read_block(range(1), range(1), np.empty((1, 1)))


def test_an_error_of_the_file_system_is_a_tier_error(tmp_path, monkeypatch):
    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    source = as_source(saved(tmp_path / "a.npy", matrix()))
    with pytest.raises(TierError, match=r"a\.npy.*Input/output error"):
        source.read_block(range(1), range(1), np.empty((1, 1)))
    source.close()


def test_a_map_of_a_file_truncated_since_is_refused_without_touching_the_map(tmp_path):
    mapped = np.load(saved(tmp_path / "a.npy", matrix(100)), mmap_mode="r")
    os.truncate(tmp_path / "a.npy", 4096)
    with pytest.raises(TierError, match="cut short"):
        as_source(mapped)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_map_of_a_file_that_is_no_longer_there_is_read_through_the_map(replaced, tmp_path):
    a = matrix()
    mapped = np.load(saved(tmp_path / "a.npy", a), mmap_mode="r")
    if replaced:
        os.replace(saved(tmp_path / "b.npy", a + 1), tmp_path / "a.npy")
    else:
        os.remove(tmp_path / "a.npy")
    source = as_source(mapped)
    out = np.empty((N, N))
    source.read_block(range(N), range(N), out)
    assert source.name == "array"
    assert same_bits(out, a)


# what is refused


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize(
    ("dtype", "named"), [(np.clongdouble, np.dtype(np.clongdouble).name), ("U3", "str96"), ("M8[s]", "datetime64")]
)
def test_other_dtypes_are_refused_by_name_with_the_fix(dtype, named, as_file, tmp_path):
    a = np.zeros((3, 3), dtype)
    with pytest.raises(TypeError, match=rf"holds {named}.*A\.astype"):
        as_source(saved(tmp_path / "a.npy", a) if as_file else a)
    with pytest.raises(TypeError, match=rf"holds {named}"):
        as_source(SliceableData(a))
    with pytest.raises(TypeError, match=rf"holds {named}"):
        ArraySource(a)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 1), (2, 2, 2), ()])
def test_other_shapes_are_refused_by_shape(shape, tmp_path):
    a = np.zeros(shape)
    for given_a in (a, saved(tmp_path / "a.npy", a), SliceableData(a)):
        with pytest.raises(ValueError) as caught:
            as_source(given_a)
        assert str(shape) in str(caught.value)


@pytest.mark.parametrize("a", [3, None, b"a.npy", {}, {1.0}])
def test_what_cannot_be_sliced_is_refused_by_type(a):
    with pytest.raises(TypeError, match=type(a).__name__):
        as_source(a)


def test_a_sparse_matrix_is_refused_with_the_fix():
    with pytest.raises(TypeError, match="toarray"):
        as_source(scipy.sparse.csr_array(np.eye(3)))


def test_a_source_is_taken_as_it_is():
    source = from_function(3, tile_function(np.eye(3)))
    assert as_source(source) is source


# reading


def test_the_input_is_never_written():
    tier = source_tier(np.eye(3), TileGrid(3, 2))
    with pytest.raises(TierError, match=r"tile \(1, 0\).*read-only"):
        tier.write((1, 0), np.ones((1, 2)))


def test_a_grid_of_another_order_is_refused():
    with pytest.raises(ValueError, match=r"order 4.*order 3"):
        source_tier(np.eye(3), TileGrid(4, 2))


@pytest.mark.parametrize(
    "out",
    [
        np.empty((2, 3)),
        np.empty((3, 2), order="F"),
        np.empty((3, 4))[:, ::2],
        np.empty((3, 2), int),
        np.broadcast_to(0.0, (3, 2)),
    ],
)
def test_an_output_of_another_shape_or_order_is_refused(out):
    with pytest.raises(ValueError, match="out is"):
        as_source(np.eye(3)).read_block(range(3), range(2), out)


@pytest.mark.parametrize("rows", [range(-1, 1), range(2, 4), range(0, 4, 2)])
def test_ranges_that_leave_the_matrix_are_refused(rows):
    with pytest.raises(ValueError, match="inside a matrix of order 3"):
        as_source(np.eye(3)).read_block(rows, range(1), np.empty((2, 1)))


# sliceable data


def test_an_error_of_sliceable_data_is_a_tier_error():
    class Broken(SliceableData):
        def __getitem__(self, key):
            if key[0].start > 0:
                raise OSError("chunk is damaged")
            return super().__getitem__(key)

    source = as_source(Broken(np.eye(3)))
    with pytest.raises(TierError, match=r"Broken.*chunk is damaged"):
        source.read_block(range(1, 2), range(1), np.empty((1, 1)))


def test_masked_entries_are_read_as_nan():
    source = as_source(np.ma.masked_equal(np.arange(9.0).reshape(3, 3), 7))
    out = np.empty((3, 3))
    source.read_block(range(3), range(3), out)
    assert np.flatnonzero(np.isnan(out)).tolist() == [7]


def test_sliceable_data_is_read_by_one_thread_at_a_time():
    busy = threading.Lock()

    class Exclusive(SliceableData):
        def __getitem__(self, key):
            assert busy.acquire(blocking=False), "two threads read at once"
            try:
                time.sleep(0.002)
                return super().__getitem__(key)
            finally:
                busy.release()

    source = SliceSource(Exclusive(np.eye(3)))
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(source.read_block, range(3), range(3), np.empty((3, 3))) for _ in range(12)]
    assert [read.exception() for read in reads] == [None] * 12


# tile functions


def test_a_tile_function_gets_ranges_the_output_and_the_stream():
    seen = []

    def remember(rows, cols, out, stream):
        out[...] = 1
        seen.append((rows, cols, out, stream))

    source = from_function(np.int64(30), remember)
    out, stream = np.empty((10, 20)), object()
    source.read_block(range(20, 30), range(20), out)
    source.function(range(20, 30), range(20), out, stream)
    assert [call[:2] for call in seen] == [(range(20, 30), range(20))] * 2
    assert all(call[2] is out for call in seen)
    assert [call[3] for call in seen] == [None, stream]


def test_a_tile_function_that_returns_its_tile_is_told_to_fill_out():
    def covariance(rows, cols, out, stream):
        return np.zeros(out.shape)

    with pytest.raises(TypeError, match=r"covariance returned a ndarray.*out\[\.\.\.\] ="):
        from_function(3, covariance).read_block(range(3), range(3), np.empty((3, 3)))


def test_a_tile_function_may_return_the_output():
    out = np.empty((3, 3))
    from_function(3, lambda rows, cols, out, stream: np.multiply(0, 0, out=out)).read_block(range(3), range(3), out)
    assert np.all(out == 0)


def test_a_tile_function_that_fills_nothing_leaves_a_nan():
    out = np.ones((3, 2))
    from_function(3, lambda rows, cols, out, stream: None).read_block(range(3), range(2), out)
    assert np.isnan(out[:, 0]).any()


def test_an_error_of_a_tile_function_is_passed_on():
    def failing(rows, cols, out, stream):
        raise KeyError("sensor 3")

    with pytest.raises(KeyError, match="sensor 3"):
        from_function(3, failing).read_block(range(3), range(3), np.empty((3, 3)))


@pytest.mark.parametrize(
    ("n", "tile_fn", "error"), [(0, print, ValueError), (-1, print, ValueError), (2.0, print, TypeError), (2, 3, TypeError)]
)
def test_from_function_refuses_wrong_arguments(n, tile_fn, error):
    with pytest.raises(error):
        from_function(n, tile_fn)


# what hands its memory over


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tensors_are_read_where_they_lie_in_every_use(order, dtype):
    g = np.random.default_rng(0).standard_normal((60, 60))
    a = np.array(g @ g.T + 60 * np.eye(60), order=order, dtype=dtype)
    exact = a.astype(float)
    b = np.ones(60)
    factor = oc.cholesky(Tensor(a), precision_threshold=1e-3, tile_size=16, devices="host:0")
    assert np.allclose(exact @ factor.solve(b, refine=True), b, rtol=0, atol=1e-12)
    assert np.allclose(
        exact @ oc.cholesky(a, precision_threshold=1e-3, tile_size=16, devices="host:0").solve(b, refine=True, a=Tensor(a)),
        b,
        atol=1e-12,
    )
    plain = oc.cholesky(Tensor(a), tile_size=16, devices="host:0")
    assert plain.residual(Tensor(a)).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
    assert oc.plan(Tensor(a), tile_size=16, devices="host:0").source == "array"


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("writable", [False, True])
def test_what_a_tensor_hands_over_is_not_copied(order, writable):
    a = np.array(matrix(), order=order)
    a.flags.writeable = writable
    view = as_source(Tensor(a)).view(range(3, N), range(5))
    assert np.shares_memory(view, a)
    assert same_bits(view, a[3:, :5])


@pytest.mark.parametrize("error", [RuntimeError("requires grad"), BufferError("no export")])
def test_a_tensor_that_keeps_its_memory_is_refused_by_type(error):
    with pytest.raises(TypeError, match=f"cannot be handed over by DLPack .{error}"):
        oc.cholesky(Tensor(np.eye(3), error))


def test_a_tensor_that_lies_on_no_single_device_is_refused_by_type():
    with pytest.raises(TypeError, match=r"cannot be handed over by DLPack .several devices.*gather it"):
        oc.cholesky(Tensor(np.eye(3), device=BufferError("several devices")))


def test_a_tensor_on_a_gpu_is_refused_by_type_where_no_gpu_can_be_used():
    with pytest.raises(TypeError, match=r"Tensor (lies in a device's memory, but|cannot be handed over)"):
        oc.cholesky(Tensor(np.eye(3), BufferError("another library's"), device=(2, 0)))
