"""What every store of L promises, and what each kind adds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ooc_chol.errors import BudgetError, TierError
from tests.builders import memory_store, overwrite_store
from tests.host.stored_factors import TIERED_STORES, strided
from tests.inside.dense import AbstractStore
from tests.inside.dense import array as store_array
from tests.inside.tasks import TileGrid
from tests.products import share_of_examples

every_store = pytest.mark.parametrize("kind", TIERED_STORES)


def random_tiles(grid: TileGrid, seed: int) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Tiles of L with entries of all magnitudes; diagonal ones are lower triangular."""
    rng = np.random.default_rng(seed)
    tiles = {}
    for i, j in grid.tiles():
        tile = rng.standard_normal(grid.shape(i, j)) * 10.0 ** rng.integers(-300, 300, grid.shape(i, j))
        tiles[i, j] = np.tril(tile) if i == j else tile
    return tiles


def read_tile(store: AbstractStore, index: tuple[int, int]) -> NDArray[np.float64]:
    out = np.full(store.grid.shape(*index), np.nan)
    store.read(index, out)
    return out


def check_tier(store: AbstractStore, seed: int) -> None:
    """Conformance of one empty store: what is written is what is read, whole or by rows, in any order, until the end."""
    tiles = random_tiles(store.grid, seed)
    rng = np.random.default_rng(seed + 1)
    indices = list(tiles)
    for place in rng.permutation(len(indices)):
        store.write(indices[place], tiles[indices[place]])
    rewritten = indices[rng.integers(len(indices))]
    tiles[rewritten] = tiles[rewritten] / 3.0
    store.write(rewritten, tiles[rewritten])
    check_contents(store, tiles)
    store.complete()
    store.complete()
    check_contents(store, tiles)
    store.close()
    store.close()
    store.discard()
    with pytest.raises(TierError, match="closed"):
        store.read((0, 0), np.empty(store.grid.shape(0, 0)))
    with pytest.raises(TierError):
        store.write((0, 0), tiles[0, 0])


def check_contents(store: AbstractStore, tiles: dict[tuple[int, int], NDArray[np.float64]]) -> None:
    for index, tile in tiles.items():
        assert np.array_equal(read_tile(store, index), tile)
        view = store.view(index)
        assert view is None or (np.array_equal(view, tile) and view.flags.c_contiguous)
        for rows in (range(0, 1), range(len(tile) // 2, len(tile))):
            out = np.full((len(rows), tile.shape[1]), np.nan)
            store.read_rows(index, rows, out)
            assert np.array_equal(out, tile[rows.start : rows.stop])


@every_store
@share_of_examples(0.4)
@given(n=st.integers(1, 40), nb=st.integers(1, 45), seed=st.integers(0, 2**32 - 1))
def test_store_returns_the_bits_it_was_given(kind: str, n: int, nb: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_tier(TIERED_STORES[kind](TileGrid(n, nb), Path(folder)), seed)


@every_store
def test_tiles_larger_than_a_masked_block_and_a_page(kind: str, tmp_path: Path) -> None:
    check_tier(TIERED_STORES[kind](TileGrid(300, 131), tmp_path), seed=5)


@every_store
def test_threads_may_read_and_write_different_tiles_at_once(kind: str, tmp_path: Path) -> None:
    grid = TileGrid(120, 13)
    store = TIERED_STORES[kind](grid, tmp_path)
    tiles = random_tiles(grid, seed=3)

    def write_then_read(index: tuple[int, int]) -> bool:
        store.write(index, tiles[index])
        return np.array_equal(read_tile(store, index), tiles[index])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_then_read, tiles))
    check_contents(store, tiles)
    store.discard()


@every_store
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.empty((4, 3)),
        lambda: np.empty((3, 4), order="F"),
        lambda: np.empty((3, 8))[:, ::2],
        lambda: np.empty((3, 4), dtype=np.float32),
        lambda: np.empty(12),
    ],
    ids=["shape", "Fortran order", "strided", "float32", "flat"],
)
def test_wrong_tile_buffers_are_refused(kind: str, make: Callable[[], NDArray[np.float64]], tmp_path: Path) -> None:
    store = TIERED_STORES[kind](TileGrid(7, 4), tmp_path)  # tile (1, 0) is (3, 4)
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        store.read((1, 0), make())
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        store.write((1, 0), make())
    store.discard()


# in memory


@given(n=st.integers(1, 200), nb=st.integers(1, 100))
def test_memory_tiles_start_at_pages_and_views_are_the_store(n: int, nb: int) -> None:
    store = memory_store(TileGrid(n, nb))
    for number, index in enumerate(store.grid.tiles()):
        view = store.view(index)
        assert view.ctypes.data % 4096 == 0
        view[...] = number  # overlapping tiles would overwrite each other
    for number, index in enumerate(store.grid.tiles()):
        assert (read_tile(store, index) == number).all()


def test_the_memory_behind_the_views_is_whole_pages() -> None:
    store = memory_store(TileGrid(100, 30))
    memory = store.host_memory()
    assert memory is not None
    assert (memory.ctypes.data % 4096, memory.nbytes % 4096) == (0, 0)
    for index in store.grid.tiles():
        start = store.view(index).ctypes.data - memory.ctypes.data
        assert 0 <= start <= memory.nbytes - store.view(index).nbytes
    store.close()
    assert store.host_memory() is None


def test_refused_memory_is_a_budget_error_with_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(store_array.np, "empty", refuse)
    with pytest.raises(BudgetError, match="store=") as caught:
        memory_store(TileGrid(1000, 100))
    assert caught.value.needed_bytes >= 55 * 100 * 100 * 8
    assert caught.value.budget_bytes > 0


# over the user's array


@pytest.mark.parametrize(
    "make",
    [lambda grid: np.empty((grid.n, grid.n)), lambda grid: np.empty((grid.n, grid.n), order="F"), strided],
    ids=["C", "Fortran", "strided"],
)
@pytest.mark.parametrize(("n", "nb"), [(1, 1), (10, 3), (200, 150), (130, 200)])
def test_overwriting_leaves_the_strict_upper_triangle_alone(
    make: Callable[[TileGrid], NDArray[np.float64]], n: int, nb: int
) -> None:
    grid = TileGrid(n, nb)
    a = make(grid)
    a[...] = np.random.default_rng(0).standard_normal((n, n))
    before = a.copy()
    store = overwrite_store(a, grid)
    for (i, j), tile in random_tiles(grid, seed=1).items():
        store.write((i, j), tile + np.triu(np.full_like(tile, 7.0), 1) if i == j else tile)
    upper = np.triu_indices(n, 1)
    assert np.array_equal(a[upper], before[upper])
    assert np.array_equal(a[grid.start(grid.nt - 1) :, 0], read_tile(store, (grid.nt - 1, 0))[:, 0])


def test_overwriting_a_map_of_a_file_reaches_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((6, 6)))
    a = np.load(tmp_path / "a.npy", mmap_mode="r+")
    flushed: list[object] = []
    monkeypatch.setattr(np.memmap, "flush", lambda mapped: flushed.append(mapped))
    store = overwrite_store(a, TileGrid(6, 4))
    store.write((1, 0), np.full((2, 4), 3.0))
    assert not flushed
    store.complete()
    assert [mapped is a for mapped in flushed] == [True]
    assert np.load(tmp_path / "a.npy")[5, 0] == 3.0


def read_only() -> NDArray[np.float64]:
    a = np.empty((4, 4))
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("a", "error", "match"),
    [
        (np.empty((4, 4), dtype=np.float32), TypeError, "float32"),
        (np.empty((4, 4), dtype=">f8"), TypeError, ">f8"),
        ([[1.0]], TypeError, "list"),
        (np.empty((4, 5)), ValueError, r"\(4, 5\)"),
        (read_only(), ValueError, "read-only"),
        (np.lib.stride_tricks.as_strided(np.empty(4), (4, 4), (0, 8)), ValueError, "share memory"),
    ],
    ids=["float32", "big-endian", "list", "shape", "read-only", "broadcast"],
)
def test_arrays_that_cannot_hold_a_factor_are_refused(a: NDArray[np.float64], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        overwrite_store(a, TileGrid(4, 2))
