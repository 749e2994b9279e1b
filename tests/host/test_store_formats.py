"""Stores of several formats: one value for each tile, whatever holds it; room made for FP64; files that say what is in them."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray

from ooc_chol import CholeskyFactor
from ooc_chol.errors import BudgetError, TierError
from tests.builders import factor_over, memory_store
from tests.host.factor_files import header_of, with_header
from tests.host.stored_factors import KEY, MIXED_STORES, STORES, factor_in, lapack_factor, random_spd, write_factor
from tests.inside.dense import FileHeader, FileStore, MemoryStore, OverwriteStore, TileLayout, load, stream_tiles
from tests.inside.dense import array as store_array
from tests.inside.precision import FORMATS, FP8, FP16, FP32, FP64, Floats, PrecisionFormat, encode
from tests.inside.tasks import TileGrid
from tests.products import share_of_examples
from tests.rounding import round_to

Store = MemoryStore | FileStore
Tiles = dict[tuple[int, int], Floats]

every_store = pytest.mark.parametrize("kind", MIXED_STORES)
sizes = {"n": st.integers(1, 40), "nb": st.integers(1, 45), "seed": st.integers(0, 2**32 - 1)}

GRID = TileGrid(50, 16)
#: All four formats; FP64 on the diagonal, as the planner has it.
MIXED = (FP64, FP32, FP64, FP16, FP8, FP64, FP8, FP16, FP32, FP64)
NARROW = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def random_formats(grid: TileGrid, seed: int) -> tuple[PrecisionFormat, ...]:
    """Any format for any tile."""
    choice = np.random.default_rng(seed).integers(len(FORMATS), size=grid.n_tiles)
    return tuple(list(FORMATS.values())[number] for number in choice)


def random_tiles(grid: TileGrid, seed: int) -> Tiles:
    """Tiles of very different sizes, some all zero; diagonal ones are lower triangular. Everything is inside float32's range."""
    rng = np.random.default_rng(seed)
    tiles = {}
    for i, j in grid.tiles():
        tile = rng.standard_normal(grid.shape(i, j)) * 10.0 ** rng.integers(-3, 3, grid.shape(i, j))
        tile *= rng.choice([0.0, 1.0, 2.0**-40, 1e15])
        tiles[i, j] = np.tril(tile) if i == j else tile
    return tiles


def rounded(store: Store, tiles: Tiles) -> Tiles:
    """What the formats of ``store`` hold of ``tiles``."""
    return {index: rounded_to(tile, store.format_of(index)) for index, tile in tiles.items()}


def rounded_to(tile: Floats, fmt: PrecisionFormat) -> NDArray[np.float64]:
    result = np.array(tile, dtype=np.float64)
    round_to(result, fmt)
    return result


def read_tile(store: Store, index: tuple[int, int], dtype: DTypeLike = np.float64) -> Floats:
    out = np.full(store.grid.shape(*index), np.nan, dtype=dtype)
    store.read(index, out)
    return out


def check_contents(store: Store, tiles: Tiles) -> None:
    """Every tile is read to the bit: whole and by rows, as float64 and, where it is narrow, as float32."""
    for index, tile in tiles.items():
        for dtype in (np.float64, np.float32) if store.format_of(index) != FP64 else (np.float64,):
            assert np.array_equal(read_tile(store, index, dtype), tile)
            for rows in (range(0, 1), range(len(tile) // 2, len(tile)), range(len(tile) // 3, len(tile) // 3 + 1)):
                out = np.full((len(rows), tile.shape[1]), np.nan, dtype=dtype)
                store.read_rows(index, rows, out)
                assert np.array_equal(out, tile[rows.start : rows.stop])


@contextmanager
def mixed_factor(kind: str, n: int, nb: int, seed: int) -> Iterator[tuple[CholeskyFactor, NDArray[np.float64], Path]]:
    """A factor with tiles of all formats, the dense array of what they hold, and a folder."""
    grid, l_dense = TileGrid(n, nb), lapack_factor(random_spd(n, seed))
    with tempfile.TemporaryDirectory() as folder:
        store = MIXED_STORES[kind](grid, random_formats(grid, seed), Path(folder))
        write_factor(l_dense, store)
        with factor_over(store) as factor:
            yield factor, np.asarray(factor), Path(folder)


# layout


@given(n=st.integers(1, 300), nb=st.integers(1, 330), data_offset=st.sampled_from([0, 65536]), seed=sizes["seed"])
def test_tiles_of_any_format_lie_behind_each_other(n: int, nb: int, data_offset: int, seed: int) -> None:
    grid = TileGrid(n, nb)
    formats = random_formats(grid, seed)
    layout = TileLayout(grid, data_offset, formats)
    expected = data_offset
    for (i, j), fmt in zip(grid.tiles(), formats, strict=True):
        assert layout.format_of(i, j) == fmt
        assert layout.nbytes(i, j) == fmt.stored_bytes(grid.entries(i, j))
        assert layout.offset(i, j) == expected
        expected += -(-layout.nbytes(i, j) // 4096) * 4096
    assert layout.end == expected


@given(**sizes)
def test_formats_that_are_all_fp64_are_the_plain_layout(n: int, nb: int, seed: int) -> None:
    grid = TileGrid(n, nb)
    assert TileLayout(grid, formats=(FP64,) * grid.n_tiles) == TileLayout(grid)
    narrow = TileLayout(grid, formats=(FP16,) * grid.n_tiles)
    assert narrow.with_wider(grid.tiles()).present_formats is None


@given(**sizes)
def test_widened_tiles_are_appended_and_others_stay(n: int, nb: int, seed: int) -> None:
    grid = TileGrid(n, nb)
    rng = np.random.default_rng(seed)
    layout = first = TileLayout(grid, formats=random_formats(grid, seed))
    indices = list(grid.tiles())
    for _ in range(3):
        chosen = [indices[place] for place in rng.integers(len(indices), size=3)]
        before, layout = layout, layout.with_wider(chosen)
        place = before.end
        for index in dict.fromkeys(chosen):
            if before.format_of(*index) != FP64:
                assert layout.offset(*index) == place
                place += -(-8 * grid.entries(*index) // 4096) * 4096
            assert layout.format_of(*index) == FP64
            assert layout.nbytes(*index) == 8 * grid.entries(*index)
        assert layout.end == place
    for index in indices:
        if index not in layout.widened:
            assert (layout.offset(*index), layout.format_of(*index)) == (first.offset(*index), first.format_of(*index))


def test_layouts_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="9 formats are given for 10 tiles"):
        TileLayout(GRID, formats=MIXED[1:])
    with pytest.raises(ValueError, match=r"\(4, 0\)"):
        TileLayout(GRID, formats=MIXED).with_wider([(4, 0)])
    for widened in [((1, 1),), ((0, 1),), ((1, 0), (1, 0))]:
        with pytest.raises(ValueError, match="widened"):
            TileLayout(GRID, formats=MIXED, widened=widened)
    for kind in MIXED_STORES:
        with pytest.raises(ValueError, match="9 formats"):
            MIXED_STORES[kind](GRID, MIXED[1:], Path("/nowhere"))


# tiles


@every_store
@share_of_examples(0.4)
@given(**sizes)
def test_a_tile_is_rounded_once_and_read_to_the_bit(kind: str, n: int, nb: int, seed: int) -> None:
    grid = TileGrid(n, nb)
    formats, tiles = random_formats(grid, seed), random_tiles(grid, seed)
    with tempfile.TemporaryDirectory() as folder, closing(MIXED_STORES[kind](grid, formats, Path(folder))) as store:
        assert [store.format_of(index) for index in grid.tiles()] == list(formats)
        expected = rounded(store, tiles)
        for index, tile in tiles.items():
            store.write(index, tile)
        check_contents(store, expected)
        for index, tile in expected.items():  # what is rounded already does not change, and float32 holds it
            store.write(index, tile if store.format_of(index) == FP64 else tile.astype(np.float32))
        store.complete()
        check_contents(store, expected)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
@every_store
def test_tiles_larger_than_a_piece_of_the_codec(kind: str, fmt: PrecisionFormat, tmp_path: Path) -> None:
    grid = TileGrid(400, 231)
    store = MIXED_STORES[kind](grid, (FP64, fmt, FP64), tmp_path)
    tile = np.random.default_rng(1).standard_normal(grid.shape(1, 0))
    store.write((1, 0), tile)
    check_contents(store, {(1, 0): rounded_to(tile, fmt)})
    store.close()


@every_store
def test_stored_bytes_are_those_of_the_codec(kind: str, tmp_path: Path) -> None:
    store = MIXED_STORES[kind](GRID, MIXED, tmp_path)
    for index, tile in random_tiles(GRID, seed=2).items():
        fmt = store.format_of(index)
        expected = np.zeros(fmt.stored_bytes(tile.size), dtype=np.uint8)
        encode(tile, fmt, expected)
        store.write(index, tile)
        raw = np.empty_like(expected)
        store.read_stored(index, raw)
        assert np.array_equal(raw, expected)
        store.write(index, np.zeros_like(tile))
        store.write_stored(index, expected)
        assert np.array_equal(read_tile(store, index), rounded_to(tile, fmt))
        for wrong in (raw[1:], raw.view(np.int8), np.empty(2 * raw.size, dtype=np.uint8)[::2]):
            with pytest.raises(ValueError, match="stored tile"):
                store.read_stored(index, wrong)
            with pytest.raises(ValueError, match="stored tile"):
                store.write_stored(index, wrong)
    store.close()


def test_memory_shows_fp64_tiles_as_arrays_and_all_as_bytes() -> None:
    store = memory_store(GRID, MIXED)
    memory = store.host_memory()
    assert memory is not None
    for index, tile in random_tiles(GRID, seed=3).items():
        store.write(index, tile)
        view, stored = store.view(index), store.stored(index)
        assert np.shares_memory(stored, memory)
        assert (stored.ctypes.data % 4096, len(stored)) == (0, store.layout.nbytes(*index))
        assert (view is None) == (store.format_of(index) != FP64)
        assert view is None or np.array_equal(view, tile)
    assert store.nbytes == memory.nbytes == TileLayout(GRID, formats=MIXED).end
    store.close()
    with pytest.raises(TierError, match="closed"):
        store.stored((1, 0))


def test_a_file_shows_nothing(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY, MIXED)
    assert [store.view((0, 0)), store.stored((0, 0)), store.stored((1, 0))] == [None, None, None]
    assert store.nbytes == os.stat(store.partial_path).st_size == store.layout.end
    store.discard()


@pytest.mark.parametrize("kind", ["over C", "over Fortran", "over strided"])
def test_an_overwritten_array_stays_fp64(kind: str, tmp_path: Path) -> None:
    store = STORES[kind](GRID, tmp_path)
    assert isinstance(store, OverwriteStore)
    tile = np.random.default_rng(4).standard_normal((16, 16))
    store.write((1, 0), tile)
    store.widen(NARROW)
    out = np.empty((16, 16))
    store.read((1, 0), out)
    assert np.array_equal(out, tile)
    assert (store.formats, store.format_of((1, 0)), store.stored((1, 0)), store.nbytes) == (None, FP64, None, 0)


@every_store
def test_wrong_buffers_are_refused_with_what_is_needed(kind: str, tmp_path: Path) -> None:
    store = MIXED_STORES[kind](GRID, MIXED, tmp_path)
    float32 = np.dtype(np.float32)
    for buffer in (np.empty((2, 16), np.float16), np.empty((2, 16), float32, order="F"), np.empty((2, 15), float32)):
        with pytest.raises(ValueError, match=r"float64 or float32 \(2, 16\)"):
            store.read((3, 1), buffer)
        with pytest.raises(ValueError, match=r"float64 or float32 \(2, 16\)"):
            store.write((3, 1), buffer)
    store.widen([(3, 1)])
    with pytest.raises(ValueError, match=r"contiguous float64 \(2, 16\)"):
        store.read((3, 1), np.empty((2, 16), float32))
    store.discard()


def test_reading_takes_no_more_memory_than_a_stored_tile(tmp_path: Path) -> None:
    grid = TileGrid(1400, 700)
    out = np.empty((700, 700))
    for kind in MIXED_STORES:
        with closing(MIXED_STORES[kind](grid, (FP64, FP16, FP64), tmp_path)) as store:
            tracemalloc.start()
            store.write((1, 0), out)
            store.read((1, 0), out)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        # The largest entry needs no copy; the codec's pieces are of 32768 entries.
        assert peak <= (2 * out.size if kind == "file" else 0) + 4 * 8 * 32768


# widening


@every_store
@share_of_examples(0.4)
@given(**sizes)
def test_widened_tiles_hold_fp64_and_others_what_they_held(kind: str, n: int, nb: int, seed: int) -> None:
    grid = TileGrid(n, nb)
    tiles, rng = random_tiles(grid, seed), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = MIXED_STORES[kind](grid, random_formats(grid, seed), Path(folder))
        for index, tile in tiles.items():
            store.write(index, tile)
        for _ in range(2):
            store.widen(chosen := [index for index in grid.tiles() if rng.random() < 0.3])
            for index in chosen:
                store.write(index, tiles[index])
            check_contents(store, rounded(store, tiles))
        store.complete()
        check_contents(store, rounded(store, tiles))
        store.close()
        if isinstance(store, FileStore):
            again = FileStore.open(Path(folder) / "L.ooc")
            assert (again.layout, again.formats, again.nbytes) == (store.layout, store.formats, store.nbytes)
            check_contents(again, rounded(again, tiles))
            again.close()


def test_memory_that_may_be_page_locked_stays_when_tiles_are_widened() -> None:
    store = memory_store(GRID, MIXED)
    memory, diagonal = store.host_memory(), store.view((2, 2))
    store.widen([(2, 1), (3, 0)])
    store.widen([(3, 0), (3, 1), (0, 0)])
    assert store.host_memory() is memory
    assert memory is not None
    assert np.shares_memory(store.view((2, 2)), diagonal)
    for number, index in enumerate(GRID.tiles()):
        tile = np.full(GRID.shape(*index), float(number))
        store.write(index, tile)
        assert store.stored(index).ctypes.data % 4096 == 0
        assert np.shares_memory(store.stored(index), memory) == (index not in store.layout.widened)
    for number, index in enumerate(GRID.tiles()):
        assert (read_tile(store, index) == number).all()
    assert store.layout.widened == ((2, 1), (3, 0), (3, 1))
    view = store.view((2, 1))
    assert view is not None
    assert view.dtype == np.float64
    store.close()
    with pytest.raises(TierError, match="closed"):
        store.stored((2, 1))
    with pytest.raises(TierError, match="closed"):
        store.widen([(2, 0)])


def test_memory_that_is_refused_while_widening_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*shape: Any, dtype: DTypeLike = float) -> NDArray[Any]:
        if dtype == np.uint8:
            raise MemoryError
        return np.zeros(*shape, dtype=dtype)

    store = memory_store(GRID, MIXED)
    before, layout = random_tiles(GRID, seed=5), store.layout
    for index, tile in before.items():
        store.write(index, tile)
    with monkeypatch.context() as patch, pytest.raises(BudgetError):
        patch.setattr(store_array.np, "empty", refuse)
        store.widen(NARROW)
    assert store.layout is layout
    check_contents(store, rounded(store, before))


def test_a_disk_that_is_full_while_widening_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY, MIXED)
    layout = store.layout
    with monkeypatch.context() as patch, pytest.raises(TierError, match="no room for the 8192 bytes"):
        patch.setattr(os, "posix_fallocate", full)
        store.widen(NARROW[:2])
    assert store.layout is layout
    store.widen(NARROW[:2])
    assert os.stat(store.partial_path).st_size == store.layout.end == layout.end + 8192
    store.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_complete_file_is_not_widened(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY, MIXED)
    write_factor(np.eye(50), store)
    with pytest.raises(TierError, match="complete"):
        store.widen([(1, 0)])
    store.close()


@given(nt=st.integers(1, 130), nb=st.integers(1, 3))
def test_the_header_has_room_for_every_widened_tile(nt: int, nb: int) -> None:
    grid = TileGrid(nt * nb, nb)
    header = FileHeader(grid, KEY, formats=(FP8,) * grid.n_tiles)
    tiles = tuple(map(tuple, grid.tiles()))
    widest = replace(header, complete=True, index_hash=2**64 - 1, widened=tiles)
    assert len(widest.encode()) == header.header_room


# files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A complete file of all formats with two widened tiles."""
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY, MIXED)
    store.widen([(3, 0), (2, 1)])
    write_factor(lapack_factor(random_spd(50, seed=6)), store)
    store.close()
    return tmp_path / "L.ooc"


def test_a_mixed_file_is_read_by_its_documentation_alone(path: Path) -> None:
    import ml_dtypes

    fields, raw = header_of(path), path.read_bytes()
    assert (fields["version"], fields["formats"]) == (4, ["fp64", "fp32", "fp16", "fp8"])
    assert (fields["format_of_tile"], fields["widened"]) == ("0102303210", [[3, 0], [2, 1]])
    assert (fields["complete"], fields["arithmetic_key"]) == (True, KEY)
    types = {"fp64": "<f8", "fp32": "<f4", "fp16": "<f2", "fp8": ml_dtypes.float8_e4m3fn}
    names = [fields["formats"][int(digit)] for digit in fields["format_of_tile"]]
    order = [(i, j, name) for (i, j), name in zip(GRID.tiles(), names, strict=True)]
    offset, l_dense = fields["data_offset"], np.zeros((50, 50))
    for i, j, name in order + [(i, j, "fp64") for i, j in fields["widened"]]:
        rows, columns = min(16, 50 - 16 * i), min(16, 50 - 16 * j)
        dtype = np.dtype(types[name])
        tile = np.frombuffer(raw, dtype, rows * columns, offset).astype(float).reshape(rows, columns)
        nbytes = rows * columns * dtype.itemsize
        if name in ("fp16", "fp8"):
            nbytes = -(-nbytes // 8) * 8 + 8
            tile = tile * 2.0 ** -int.from_bytes(raw[offset + nbytes - 8 : offset + nbytes], "little", signed=True)
        l_dense[16 * i : 16 * i + 16, 16 * j : 16 * j + 16] = tile
        offset += -(-nbytes // 4096) * 4096
    assert len(raw) == offset
    with load(path) as factor:
        assert np.array_equal(np.asarray(factor), l_dense)


def test_a_file_of_fp64_is_the_same_however_it_was_asked_for(tmp_path: Path) -> None:
    l_dense = lapack_factor(random_spd(50, seed=7))
    files = []
    for number, formats in enumerate([None, (FP64,) * 10]):
        store = FileStore.create(tmp_path / str(number), GRID, KEY, formats)
        store.widen([(1, 0)])
        write_factor(l_dense, store)
        store.close()
        files.append((tmp_path / str(number)).read_bytes())
    assert files[0] == files[1]
    fields = header_of(tmp_path / "0")
    assert (fields["version"], fields["formats"], fields["format_of_tile"]) == (4, ["fp64"], None)
    assert "widened" not in fields


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"formats": ["fp64", "fp32", "fp16", "fp4"]}, r"formats.*fp4.*'fp8'.*9\.9"),
        ({"formats": [["fp64"]]}, r"formats.*9\.9"),
        ({"formats": "fp64"}, r"formats.*9\.9"),
        ({"formats": None}, r"formats.*9\.9"),
        ({"formats": ["fp64", "fp16"]}, r"format_of_tile holds \['2', '3'\], but formats lists 2 names"),
        ({"format_of_tile": "010230321"}, "must be 10 digits.*9 characters"),
        ({"format_of_tile": "01023032100"}, "must be 10 digits.*11 characters"),
        ({"format_of_tile": "01023032x0"}, r"format_of_tile holds \['x'\]"),
        ({"format_of_tile": "01²30\n3210"}, "format_of_tile holds"),
        ({"format_of_tile": [0] * 10}, r"must be 10 digits.*\[0"),
        ({"format_of_tile": None}, "format_of_tile"),
        ({"widened": None}, "widened"),
        ({"widened": [[3, 0], [3, 0]]}, "widened twice"),
        ({"widened": [[3, 3]]}, r"\(3, 3\) cannot be widened"),
        ({"widened": [[4, 0]]}, r"\(4, 0\) cannot be widened"),
        ({"widened": [[0, 1]]}, r"\(0, 1\) cannot be widened"),
        ({"widened": [3]}, "not that of a factor"),
        ({"widened": "31"}, "not that of a factor"),
        ({"version": 1}, r"formats.*9\.9"),
        ({"version": 3}, r"formats.*9\.9"),
        ({"version": 5}, r"version = 5.*1 or 2 or 3 or 4 only.*9\.9"),
        ({"n": 100}, "must be 28 digits"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(path: Path, changes: dict[str, Any], match: str) -> None:
    with_header(path, **{"created_by": "9.9", **changes})
    with pytest.raises(TierError, match=f"(?s){path}.*{match}"):
        FileStore.open(path)


def test_a_file_without_its_widened_tiles_is_truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)
    with pytest.raises(TierError, match="truncated"):
        FileStore.open(path)


def test_a_later_version_may_add_fields(path: Path) -> None:
    with_header(path, signatures=[1, 2, 3])
    store = FileStore.open(path)
    assert store.formats == (FP64, FP32, FP64, FP16, FP64, FP64, FP64, FP16, FP32, FP64)
    store.close()


# factors


@every_store
@share_of_examples(0.4)
@given(**sizes)
def test_a_factor_of_mixed_formats_is_that_of_its_values(kind: str, n: int, nb: int, seed: int) -> None:
    right_hand_sides = np.random.default_rng(seed).standard_normal((n, 3))
    with mixed_factor(kind, n, nb, seed) as (mixed, l_dense, folder), factor_in("over C", l_dense, nb, folder) as plain:
        for method in ("solve", "half_solve", "matmul"):
            assert np.array_equal(getattr(mixed, method)(right_hand_sides), getattr(plain, method)(right_hand_sides))
        assert np.array_equal(mixed.diagonal(), plain.diagonal())
        assert mixed.logdet() == plain.logdet()
        rows = range(n // 3, n // 3 + (n - n // 3) // 2 + 1)
        assert np.array_equal(mixed.rows(rows, n), l_dense[rows.start : rows.stop])


@every_store
@share_of_examples(0.4)
@given(**sizes)
def test_a_saved_factor_keeps_its_formats_to_the_bit(kind: str, n: int, nb: int, seed: int) -> None:
    with mixed_factor(kind, n, nb, seed) as (mixed, l_dense, folder):
        mixed.save(folder / "saved.ooc")
        with load(folder / "saved.ooc") as back:
            assert back.formats == mixed.formats
            assert np.array_equal(np.asarray(back), l_dense)
            back.save(folder / "again.ooc")
        assert (folder / "again.ooc").read_bytes() == (folder / "saved.ooc").read_bytes()
        if kind == "file":
            assert (folder / "L.ooc").read_bytes() == (folder / "saved.ooc").read_bytes()


@every_store
def test_saving_puts_widened_tiles_into_their_places(kind: str, tmp_path: Path) -> None:
    l_dense = lapack_factor(random_spd(50, seed=8))
    store = MIXED_STORES[kind](GRID, MIXED, tmp_path)
    store.widen([(3, 2), (2, 0)])
    write_factor(l_dense, store)
    present = store.formats
    with factor_over(store) as factor:
        assert factor.formats == {"fp64": 6, "fp32": 1, "fp16": 1, "fp8": 2}
        factor.save(tmp_path / "saved.ooc")
        values = np.asarray(factor)
    again = FileStore.open(tmp_path / "saved.ooc")
    assert (again.formats, again.layout.widened) == (present, ())
    # The first places of the two are gone, a page each.
    assert again.layout.end - again.layout.data_offset == store.layout.end - store.layout.data_offset - 2 * 4096
    again.close()
    with load(tmp_path / "saved.ooc") as back:
        assert np.array_equal(np.asarray(back), values)
        assert np.array_equal(values[48:, 32:48], l_dense[48:, 32:48])


def test_a_factor_that_is_all_widened_is_saved_as_fp64(tmp_path: Path) -> None:
    store = memory_store(GRID, MIXED)
    store.widen(NARROW)
    write_factor(np.eye(50), store)
    with factor_over(store) as factor:
        assert factor.formats == {"fp64": 10}
        factor.save(tmp_path / "L.ooc")
    assert header_of(tmp_path / "L.ooc")["formats"] == ["fp64"]


@every_store
def test_a_tile_of_a_stream_is_valid_until_the_next_is_asked_for(kind: str, tmp_path: Path) -> None:
    store = MIXED_STORES[kind](GRID, MIXED, tmp_path)
    store.widen([(2, 0)])
    tiles = random_tiles(GRID, seed=9)
    for index, tile in tiles.items():
        store.write(index, tile)
    expected, order = rounded(store, tiles), list(GRID.tiles())
    for indices in (order, order[::-1], [(k, k) for k in range(4)], [(3, 1)]):
        with closing(stream_tiles(store, indices)) as stream:
            for number, (index, tile) in enumerate(stream):
                assert index == indices[number]
                os.stat(tmp_path)  # a system call, so that the other thread runs
                assert np.array_equal(tile, expected[index])
    store.discard()


def test_only_a_mixed_factor_names_its_formats(tmp_path: Path) -> None:
    with mixed_factor("memory", 3, 1, seed=0) as (mixed, _, folder):
        assert f"formats={mixed.formats}" in repr(mixed)
        assert sum(mixed.formats.values()) == 6
        assert list(mixed.formats) == [name for name in FORMATS if name in mixed.formats]
        with factor_in("file", np.eye(3), 1, folder) as plain:
            assert plain.formats == {"fp64": 6}
            assert "formats" not in repr(plain)
