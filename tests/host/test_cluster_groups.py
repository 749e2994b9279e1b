"""L in a Zarr group on a worker: what is kept is not read again, within its budget, and the bits are the same."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol import from_function
from ooc_chol.errors import TierError
from tests.builders import memory_store
from tests.cluster_machines import cluster_of
from tests.host.matrices import FAMILIES
from tests.host.mixed_precision import RANGES, matern
from tests.host.window_blocks import OPTIONS, in_one_run, made_blocks, run_of
from tests.inside.cluster import BlockGrid, BlockPlace, ClusterRun, KeptTiles, make_block, making, task_room, worker_threads
from tests.inside.dense import Problem, ZarrStore, make_plan
from tests.inside.dense import run as run_plan
from tests.inside.memory import as_source
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB, HEIGHT = 400, 32, 2
A = FAMILIES["exponential"](N)
TILE = NB * NB * 8


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No group of an earlier test is open here."""
    yield
    task_room().close_group()


def group_run(place: object, *, memory_bytes: int, a: NDArray = A, **options) -> ClusterRun:
    """A run into a new group, of which all tasks read A."""
    run = run_of(len(a), HEIGHT, store=str(place), tile_size=NB, **options)
    run = replace(run, source=as_source(a), memory_bytes=memory_bytes)
    formats = None if run.precision is None else run.precision.formats
    ZarrStore.create(place, run.grid, run.arithmetic_key, formats, height=HEIGHT, replace=True).close()
    return run


def made(run: ClusterRun) -> tuple[int, int]:
    """All blocks of a run; bytes read from its group, and bytes that its devices fetched."""
    grid, read, fetched = BlockGrid(run.grid, HEIGHT), 0, 0
    for place in grid.places():
        block = make_block(run, grid.window(place), [])
        read, fetched = read + block.read_bytes, fetched + block.link_bytes[1]
    return read, fetched


def factor_in(run: ClusterRun) -> NDArray:
    """L of a group whose windows are all there."""
    store = ZarrStore.open_unfinished(run.store)
    store.take_over()
    store.complete()
    store.close()
    with oc.load(run.store) as factor:
        return np.asarray(factor)


def whole_factor(a: NDArray = A, **options) -> NDArray:
    with in_one_run(a, tile_size=NB, **options) as factor:
        return np.asarray(factor)


# what is read


@pytest.mark.parametrize("options", [{}, {"fp64": "residue"}, {"devices": "host:0,host:1"}], ids=["native", "residue", "two"])
def test_a_worker_that_makes_all_tiles_and_keeps_them_reads_none(tmp_path, options):
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20, **options)
    read, fetched = made(run)
    assert read == 0 and fetched > 2 * 8 * N * N // 2
    assert factor_in(run).tobytes() == whole_factor(**options).tobytes()


@pytest.mark.parametrize("tiles", [0, 30, 90, 150])
def test_the_budget_bounds_what_is_kept_and_changes_no_bit(tmp_path, tiles):
    run = group_run(tmp_path / "l.zarr", memory_bytes=tiles * TILE)
    read, fetched = made(run)
    there = task_room().group(run)
    assert there.kept.nbytes <= tiles * TILE
    assert (read == fetched) if tiles == 0 else (read < fetched)
    assert factor_in(run).tobytes() == whole_factor().tobytes()


def test_more_memory_reads_less(tmp_path):
    reads = [made(group_run(tmp_path / "l.zarr", memory_bytes=tiles * TILE))[0] for tiles in (0, 60, 150)]
    assert reads == sorted(reads, reverse=True) and reads[-1] < reads[0] // 4


def test_tiles_of_several_formats_are_kept_as_they_are_stored(tmp_path):
    a = matern(N, 1.5, RANGES["weak"], 1e-4)
    with oc.cholesky(a, **{**OPTIONS, "tile_size": NB, "precision_threshold": 1e-5}) as one:
        precision, expected = one.report.plan.precision, np.asarray(one)
        assert len(precision.counts) >= 3
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20, a=a, precision=precision)
    assert made(run)[0] == 0
    assert task_room().group(run).kept.nbytes == sum(precision.stored_bytes(index) for index in run.grid.tiles())
    assert factor_in(run).tobytes() == expected.tobytes()


def test_on_a_cluster_a_worker_reads_a_tile_that_another_one_made_once(two_workers, tmp_path):
    place = str(tmp_path / "l.zarr")
    with oc.cholesky(A, tile_size=NB, fp64="native", client=two_workers, memory_budget="16 MiB", store=place) as factor:
        report = factor.report
        assert np.asarray(factor).tobytes() == whole_factor().tobytes()
    store = ZarrStore.open(place)
    needs: set[tuple[str, tuple[int, int]]] = set()
    makes: set[tuple[str, tuple[int, int]]] = set()
    for window in store.finished_windows():
        worker = store.window_facts(window)["worker"]
        needs |= {(worker, index) for index in window.needs()}
        makes |= {(worker, (i, j)) for i, j in window.tiles()}
    store.close()
    assert len({worker for worker, _ in makes}) == 2
    assert 0 < report.read_bytes == TILE * len(needs - makes)
    assert "read by workers" in str(report) and report.to_dict()["bytes"]["executed"]["read"] == report.read_bytes


def test_a_block_that_is_in_the_group_is_not_made_again(tmp_path, monkeypatch):
    """As where a worker is lost behind its last byte, or with all that it told: by the tasks of the same run alone."""
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20)
    windows = [BlockGrid(run.grid, HEIGHT).window(place) for place in BlockGrid(run.grid, HEIGHT).places()]
    first = [make_block(run, window, []) for window in windows]
    task_room().close_group()

    def runs(*given: object, **named: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(making, "run_plan", runs)
    again = [make_block(run, window, []) for window in windows]
    assert all(block.was_there for block in again) and not any(block.was_there for block in first)
    assert [replace(block, was_there=False, read_bytes=0) for block in again] == [replace(block, read_bytes=0) for block in first]
    with pytest.raises(InterruptedError):
        make_block(replace(run, name="another"), windows[0], [])


# what is let go


def test_a_tile_is_read_where_its_chunk_is_right_and_an_error_else(tmp_path):
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20)
    grid = BlockGrid(run.grid, HEIGHT)
    make_block(run, grid.window(BlockPlace(0, 0)), [])
    task_room().close_group()  # as if another worker had made it
    chunk = tmp_path / "l.zarr" / "L" / "c" / "1" / "0"
    good = chunk.read_bytes()
    chunk.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    with pytest.raises(oc.errors.DamagedFileError) as found:
        make_block(run, grid.window(BlockPlace(1, 0)), [])
    assert found.value.tile == (1, 0)
    chunk.write_bytes(good)
    for place in list(grid.places())[1:]:
        make_block(run, grid.window(place), [])
    assert factor_in(run).tobytes() == whole_factor().tobytes()


def test_what_a_window_that_fails_has_written_is_not_kept(tmp_path):
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20)
    grid = BlockGrid(run.grid, HEIGHT)
    with pytest.raises(TierError):
        make_block(run, grid.window(BlockPlace(1, 0)), [])  # needs a block that is not there
    with pytest.raises(oc.NotPositiveDefiniteError):
        make_block(replace(run, source=as_source(-A)), grid.window(BlockPlace(0, 0)), [])
    assert made(run)[0] == 0
    assert factor_in(run).tobytes() == whole_factor().tobytes()


def test_another_run_into_a_group_of_the_same_name_finds_nothing_of_the_first(tmp_path):
    made(group_run(tmp_path / "l.zarr", memory_bytes=64 << 20))
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20, a=2 * A)
    made(run)
    assert factor_in(run).tobytes() == whole_factor(2 * A).tobytes()


def test_a_run_that_is_over_leaves_no_tiles_here(tmp_path):
    run = group_run(tmp_path / "l.zarr", memory_bytes=64 << 20)
    make_block(run, BlockGrid(run.grid, HEIGHT).window(BlockPlace(0, 0)), [])
    assert task_room().is_open
    del run  # as Dask does when its client lets go of it
    gc.collect()
    assert not task_room().is_open


#: Blocks of one tile, which a worker goes through column by column.
SMALL = BlockGrid(TileGrid(8, 1), 1)


def reads_with(limit: int) -> int:
    """How many tiles are read where there is room for so many."""
    kept, reads = KeptTiles(8), []
    for window in map(SMALL.window, SMALL.places()):
        kept.begin(window, limit)
        for index in sorted(window.needs()):
            if kept.get(index, 1, lambda index=index: reads.append(index) or np.zeros(1, np.uint8)) is None:
                reads.append(index)
            assert kept.nbytes <= limit
    return len(reads)


def test_rows_that_do_not_fit_do_not_push_out_one_another():
    all_needs = sum(SMALL.window(place).n_needs for place in SMALL.places())
    assert reads_with(0) == all_needs
    assert reads_with(36) == 35, "each tile but the last one comes in once"
    assert reads_with(12) < all_needs - 2 * 12, "what is kept is used again and again"


def test_two_threads_that_ask_for_a_tile_read_it_once():
    kept, began, go_on, reads = KeptTiles(4), threading.Event(), threading.Event(), []
    kept.begin(BlockGrid(TileGrid(4, 1), 1).window(BlockPlace(3, 2)), 10)

    def read() -> NDArray[np.uint8]:
        reads.append(threading.get_ident())
        began.set()
        assert go_on.wait(20)
        return np.ones(1, np.uint8)

    found: list[NDArray[np.uint8] | None] = []
    threads = [threading.Thread(target=lambda: found.append(kept.get((3, 0), 1, read))) for _ in range(3)]
    threads[0].start()
    assert began.wait(20)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(reads) == 1 and len(found) == 3 and all(tile is not None and tile[0] == 1 for tile in found)


def test_a_read_that_fails_leaves_its_room():
    kept = KeptTiles(4)
    kept.begin(BlockGrid(TileGrid(4, 1), 1).window(BlockPlace(3, 2)), 1)

    def broken() -> NDArray[np.uint8]:
        raise TierError("storage does not answer")

    with pytest.raises(TierError):
        kept.get((3, 0), 1, broken)
    assert kept.nbytes == 0 and kept.get((3, 0), 1, lambda: np.ones(1, np.uint8)) is not None


# what a worker uses


def test_tasks_of_one_worker_take_turns():
    began = threading.Event()

    def entries(rows, cols, out, stream):
        began.set()
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    run = replace(run_of(N, 20, tile_size=NB), source=from_function(N, entries))
    window, seen = BlockGrid(run.grid, 20).window(BlockPlace(0, 0)), []
    thread = threading.Thread(target=lambda: seen.append(len(make_block(run, window, []).tiles)))
    with task_room().turn:
        thread.start()
        assert not began.wait(0.3), "a task began beside one that has the turn"
    thread.join()
    assert began.is_set() and seen == [window.n_tiles]


@pytest.mark.parametrize("engine", ["native", "residue"])
def test_cores_that_host_devices_are_given_change_no_bit(engine):
    run = run_of(N, 20, tile_size=NB, fp64=engine)
    plan = make_plan(Problem(N, 8, "array"), run.options, lambda tiles: None)
    stores = [memory_store(run.grid) for _ in range(2)]
    for store, cores in zip(stores, (1, 3), strict=True):
        run_plan(plan, as_source(A), store, report=None, host_cores=cores)
    for index in run.grid.tiles():
        assert np.array_equal(np.tril(stores[0].view(index)), np.tril(stores[1].view(index)))


@pytest.mark.usefixtures("clusters")
def test_a_worker_computes_with_the_threads_that_dask_gave_it():
    assert worker_threads() is None, "outside of a cluster BLAS says how many"
    expected = whole_factor()
    with cluster_of(1, threads_per_worker=2) as client:
        assert client.submit(worker_threads).result() == 2
        with oc.cholesky(A, tile_size=NB, fp64="native", client=client, memory_budget="16 MiB") as factor:
            assert np.asarray(factor).tobytes() == expected.tobytes()


def test_blocks_in_memory_need_no_group():
    run = run_of(N, HEIGHT, tile_size=NB)
    blocks = made_blocks(run, A, HEIGHT)
    assert all(block.read_bytes == 0 for block in blocks.values()) and not task_room().is_open
