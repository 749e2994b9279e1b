"""Factors made window by window: the bits of one run, the same verdicts on A, and nothing read or written but what is planned."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.errors import ClusterError, ScheduleError, TierError
from tests.builders import memory_store
from tests.host.matrices import FAMILIES, upper_poisoned
from tests.host.mixed_precision import RANGES, matern
from tests.host.runs import check_bytes
from tests.host.spoiled import INDEFINITE, PLACES
from tests.host.spoiled import N as ERROR_N
from tests.host.spoiled import good as good_to_spoil
from tests.host.turns import in_turn
from tests.host.window_blocks import OPTIONS, dense, in_one_run, made_block, made_blocks, needed, run_of
from tests.inside.cluster import BlockGrid, BlockPlace, LBlock, WindowSource, WindowStore, key_here, make_block
from tests.inside.dense import Problem, ZarrStore, make_plan
from tests.inside.dense import run as run_plan
from tests.inside.memory import as_source
from tests.inside.precision import FORMATS, FP64, TYPES
from tests.inside.process import ThreadTeam
from tests.inside.tasks import TileGrid, Window
from tests.products import thorough

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 150, 16
A = upper_poisoned(FAMILIES["exponential"](N))
HERMITIAN = FAMILIES["exponential"](N).astype(np.complex128)
HERMITIAN += 1e-3j * (np.tri(N) - np.tri(N).T)

MATRICES = {"float64": A, "float32": A.astype(np.float32), "complex128": HERMITIAN}

#: Type, options, and height of blocks.
CASES = {
    "native, height 1": ("float64", {}, 1),
    "native, height 2, three slots": ("float64", {"memory_budget": 3 * 4096}, 2),
    "native, height 3, two devices": ("float64", {"devices": "host:0,host:1"}, 3),
    "native, whole": ("float64", {}, 20),
    "native, other policy": ("float64", {"policy": "v1"}, 3),
    "float32, height 2": ("float32", {}, 2),
    "complex128, height 3": ("complex128", {}, 3),
    "residue, height 1": ("float64", {"fp64": "residue"}, 1),
    "residue, height 3": ("float64", {"fp64": "residue"}, 3),
    "residue, height 3, two devices": ("float64", {"fp64": "residue", "devices": "host:0,host:1"}, 3),
    "residue, whole": ("float64", {"fp64": "residue"}, 20),
    "residue, few moduli": ("float64", {"fp64": "residue", "moduli": 6}, 4),
    "residue, float32": ("float32", {"fp64": "residue"}, 4),
    "residue, complex128": ("complex128", {"fp64": "residue"}, 4),
}


@pytest.mark.parametrize("case", CASES)
def test_windows_give_the_bits_of_one_run(case):
    dtype, options, height = CASES[case]
    n = 102  # seven tile rows, the last one short
    a = MATRICES[dtype][:n, :n].copy()
    with in_one_run(a, tile_size=NB, dtype=dtype, **{**options, "memory_budget": "64 MiB"}) as one:
        run = run_of(n, height, tile_size=NB, dtype=dtype, **options)
        assert run.arithmetic_key == dict(one.arithmetic_key)
        blocks = made_blocks(run, a, height)
        assert np.array_equal(dense(run, blocks), np.asarray(one))
    for block in blocks.values():
        assert block.norms is None and block.seconds > 0.0 and block.worker == ""


def test_a_budget_of_the_least_that_residues_take_changes_nothing():
    run = run_of(N, 3, tile_size=NB, fp64="residue")
    with pytest.raises(oc.BudgetError) as caught:
        made_blocks(replace(run, options=replace(run.options, memory_budget=10_000)), A, 3)
    tight = replace(run, options=replace(run.options, memory_budget=caught.value.needed_bytes))
    assert np.array_equal(dense(run, made_blocks(run, A, 3)), dense(tight, made_blocks(tight, A, 3)))


def any_order(grid: BlockGrid, seed: int) -> list[BlockPlace]:
    """All blocks, each behind those that it needs, else by lot."""
    choice, made, left = random.Random(seed), set[BlockPlace](), list(grid.places())
    order = []
    while left:
        ready = [
            place
            for place in left
            if all(BlockPlace(place.row, q) in made for q in range(place.column))
            and (place.row == place.column or BlockPlace(place.column, place.column) in made)
            and all(BlockPlace(place.column, q) in made for q in range(place.column))
        ]
        order.append(choice.choice(ready))
        left.remove(order[-1])
        made.add(order[-1])
    return order


@pytest.mark.parametrize("seed", [1, *thorough(2)])
@pytest.mark.parametrize("engine", ["native", "residue"])
def test_any_order_gives_the_same_bits(engine, seed):
    run = run_of(N, 2, tile_size=NB, fp64=engine)
    order = any_order(BlockGrid(run.grid, 2), seed)
    assert np.array_equal(dense(run, made_blocks(run, A, 2, order)), dense(run, made_blocks(run, A, 2)))


@pytest.mark.parametrize("engine", [{"fp64": "native"}, {"fp64": "residue", "half_products": False}], ids=["native", "residue"])
def test_mixed_precision_has_the_bits_and_the_norms_of_one_run(engine):
    a = upper_poisoned(matern(N, 1.5, RANGES["weak"], 1e-4))
    with oc.cholesky(a, **{**OPTIONS, **engine, "tile_size": NB, "precision_threshold": 1e-5}) as one:
        plan, norms = one.report.plan, one.report.execution.norms
        assert not one.report.escalations and len(plan.precision.counts) >= 3
        run = run_of(N, 3, precision=plan.precision, tile_size=NB, moduli=plan.moduli, **engine)
        blocks = made_blocks(run, a, 3)
        assert np.array_equal(dense(run, blocks), np.asarray(one))
    for block in blocks.values():
        assert np.array_equal(block.norms, norms[[run.grid.packed(*index) for index in block.window.tiles()]])
        for index, tile in block.tiles.items():
            assert tile.nbytes == plan.precision.stored_bytes(index)


@pytest.mark.parametrize("engine", ["native", "residue"])
def test_executed_bytes_are_those_planned(engine):
    run = run_of(N, 3, tile_size=NB, fp64=engine)
    grid, source, store = BlockGrid(run.grid, 3), as_source(A), memory_store(run.grid)
    blocks = made_blocks(run, A, 3)
    for place in grid.places():
        plan = make_plan(Problem(N, 8, "array").of_window(grid.window(place)), run.options, lambda tiles: None)
        told: list[tuple[int, int]] = []
        execution = run_plan(plan, source, store, report=lambda done, total, _, told=told: told.append((done, total)))
        if engine == "native":
            check_bytes(plan, execution)
        assert execution.link_bytes == tuple(program.link_bytes for program in plan.programs)
        assert blocks[place].link_bytes == execution.link_bytes[0]
        assert told[-1] == (plan.flops, plan.flops)


def test_given_tiles_are_only_read():
    run = run_of(N, 3, tile_size=NB)
    grid = BlockGrid(run.grid, 3)
    blocks = made_blocks(run, A, 3)
    for block in blocks.values():
        for tile in block.tiles.values():
            tile.flags.writeable = False  # as those are that Dask brings
    place = BlockPlace(2, 1)
    again = made_block(run, grid, A, place, needed(blocks, place))
    assert all(np.array_equal(np.tril(again.tiles[index]), np.tril(tile)) for index, tile in blocks[place].tiles.items())
    store = WindowStore(run.grid, grid.window(place), needed(blocks, place))
    assert not store.view((6, 0)).flags.writeable and store.view((6, 3)).flags.writeable
    with pytest.raises(ScheduleError, match="only read"):
        store.write((6, 0), np.zeros((NB, NB)))
    with pytest.raises(ScheduleError, match="neither given"):
        store.view((9, 9))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_team_copies_what_one_thread_does(dtype):
    n, nb = 900, 700  # tiles of which several threads take some rows each, and a short one
    fmt = TYPES[dtype]
    grid = BlockGrid(TileGrid(n, nb), 1)
    place, random = BlockPlace(1, 0), np.random.default_rng(0)
    diagonal = LBlock(grid.window(BlockPlace(0, 0)), {(0, 0): random.random((nb, nb)).astype(dtype)}, None, 0.0, (0, 0, 0, 0))
    store, tile = WindowStore(grid.tiles, grid.window(place), [diagonal], fmt=fmt), random.random((200, 700)).astype(dtype)
    with closing(ThreadTeam(3)) as team:
        store.read_by(team, (0, 0), out := np.empty((nb, nb), dtype))
        assert np.array_equal(out, diagonal.tiles[0, 0])
        store.write_by(team, (1, 0), tile)
        assert np.array_equal(store.made[1, 0], tile)
        with pytest.raises(ScheduleError, match="only read"):
            store.write_by(team, (0, 0), out)
        with pytest.raises(ValueError, match="row-major contiguous"):
            store.read_by(team, (0, 0), out[:, 1:])


def test_a_team_rounds_and_widens_tiles_of_narrow_formats():
    grid, formats = BlockGrid(TileGrid(8, 4), 1), (FP64, FORMATS["fp16"], FP64)
    store, tile = WindowStore(grid.tiles, grid.window(BlockPlace(1, 0)), [], formats=formats), np.full((4, 4), 1 / 3)
    with closing(ThreadTeam(2)) as team:
        store.write_by(team, (1, 0), tile)
        store.read_by(team, (1, 0), out := np.empty((4, 4)))
    assert np.array_equal(out, tile.astype(np.float16)) and store.made[1, 0].dtype == np.uint8


def test_a_block_that_is_not_given_is_named():
    run = run_of(N, 3, tile_size=NB)
    grid, blocks = BlockGrid(run.grid, 3), made_blocks(run, A, 3)
    with pytest.raises(ScheduleError, match="neither given"):
        made_block(run, grid, A, BlockPlace(2, 1), [blocks[BlockPlace(2, 0)], blocks[BlockPlace(1, 1)]])
    elsewhere = LBlock(grid.window(BlockPlace(1, 0)), None, None, 0.0, (0, 0, 0, 0))
    with pytest.raises(ScheduleError, match="came without its tiles"):
        made_block(run, grid, A, BlockPlace(1, 1), [elsewhere])


def verdict(a, engine: str, nb: int) -> oc.OocCholError:
    """The error of one run over all of A."""
    with pytest.raises(oc.OocCholError) as caught:
        in_one_run(a, tile_size=nb, fp64=engine, lower=True)
    return caught.value


@pytest.mark.parametrize(("kind", "engine"), in_turn(INDEFINITE, ["native", "residue"]))
def test_the_minor_is_that_of_one_run(kind, engine):
    a = INDEFINITE[kind](good_to_spoil())
    nb = NB if engine == "residue" else 20
    expected = verdict(a, engine, nb)
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        made_blocks(run_of(ERROR_N, 2, tile_size=nb, fp64=engine), a, 2)
    assert (caught.value.minor, caught.value.tile) == (expected.minor, expected.tile)


@pytest.mark.parametrize(("place", "engine"), in_turn(PLACES, ["native", "residue"]))
def test_an_entry_that_is_no_number_is_named(place, engine):
    a = good_to_spoil()
    a[place] = np.nan
    nb = NB if engine == "residue" else 20
    expected = verdict(a, engine, nb)
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        made_blocks(run_of(ERROR_N, 2, tile_size=nb, fp64=engine), a, 2)
    assert (caught.value.row, caught.value.col, caught.value.tile) == (*place, expected.tile)


def test_a_window_without_a_pivot_finds_what_is_no_number():
    """Nothing behind its tile asks for flags: they come back at the end of the run."""
    run = run_of(N, 3, tile_size=NB)
    grid, blocks = BlockGrid(run.grid, 3), made_blocks(run, A, 3)
    bad, place = A.copy(), BlockPlace(3, 1)
    bad[N - 1, 6 * NB - 1] = np.inf
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        made_block(run, grid, bad, place, needed(blocks, place))
    assert (caught.value.row, caught.value.col) == (N - 1, 6 * NB - 1)


def test_a_diagonal_with_imaginary_parts_is_refused():
    run = run_of(N, 4, tile_size=NB, dtype="complex128")
    bad = HERMITIAN.copy()
    bad[70, 70] += 0.5j
    with pytest.raises(oc.errors.NotHermitianError) as caught:
        made_blocks(run, bad, 4)
    assert caught.value.row == 70


def test_a_process_with_other_bits_takes_no_part():
    run = run_of(N, 3, tile_size=NB)
    other = replace(run, arithmetic_key={**run.arithmetic_key, "library": "another BLAS 9.9"})
    with pytest.raises(ClusterError) as caught:
        made_blocks(other, A, 3)
    assert "another BLAS 9.9" in str(caught.value) and str(run.arithmetic_key["library"])[:20] in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"fp64": "residue"}], ids=["native", "residue"])
def test_the_key_of_a_window_is_that_of_the_whole(options):
    run = run_of(N, 3, tile_size=NB, **options)
    keys = [key_here(run.options, BlockGrid(run.grid, height), run.fmt) for height in (1, 3, 20)]
    assert keys[0] == keys[1] == keys[2] == run.arithmetic_key


def test_a_source_that_all_tasks_read_needs_no_blocks_of_a():
    run = replace(run_of(N, 3, tile_size=NB, fp64="residue"), source=as_source(A))
    grid, blocks = BlockGrid(run.grid, 3), dict[BlockPlace, LBlock]()
    for place in grid.places():
        blocks[place] = make_block(run, grid.window(place), needed(blocks, place))
    plain = run_of(N, 3, tile_size=NB, fp64="residue")
    assert np.array_equal(dense(run, blocks), dense(plain, made_blocks(plain, A, 3)))
    with pytest.raises(ValueError, match="neither the block of A"):
        make_block(plain, grid.window(BlockPlace(0, 0)), [])


def test_a_block_of_a_knows_its_diagonal_and_nothing_else_outside():
    source = WindowSource(A[32:64, :32], range(32, 64), range(32), diagonal=A.diagonal(), n=N)
    out = np.empty((16, 16))
    source.read_block(range(48, 64), range(16, 32), out)
    assert np.array_equal(out, A[48:64, 16:32])
    source.read_block(range(64, 80), range(64, 80), out)
    assert np.array_equal(out, np.diag(A.diagonal()[64:80]))
    with pytest.raises(ScheduleError, match="is asked of a block"):
        source.read_block(range(64, 80), range(16, 32), out)
    without = WindowSource(A[32:64, :32], range(32, 64), range(32), diagonal=None, n=N)
    with pytest.raises(ScheduleError, match="no diagonal"):
        without.read_block(range(64, 80), range(64, 80), out)
    with pytest.raises(ValueError, match="shape"):
        WindowSource(A[32:60, :32], range(32, 64), range(32), diagonal=None, n=N)
    with pytest.raises(ValueError, match="order 150"):
        WindowSource(A[32:64, :32], range(32, 64), range(32), diagonal=A.diagonal()[1:], n=N)


@pytest.mark.parametrize("options", [{}, {"fp64": "residue"}], ids=["native", "residue"])
def test_tiles_go_to_a_group_and_are_there_once_their_window_is(options, tmp_path):
    run = run_of(N, 3, store=str(tmp_path / "l.zarr"), tile_size=NB, **options)
    grid = BlockGrid(run.grid, 3)
    ZarrStore.create(run.store, run.grid, run.arithmetic_key, height=3).close()
    with pytest.raises(TierError):
        made_block(run, grid, A, BlockPlace(1, 0), [])  # its diagonal block is not there yet
    blocks = made_blocks(run, A, 3)
    assert all(block.tiles is None and block.nbytes == 0 for block in blocks.values())
    store = ZarrStore.open_unfinished(run.store)
    store.take_over()
    assert set(store.finished_windows()) == {grid.window(place) for place in grid.places()}
    assert store.window_facts(Window(range(3, 6), range(3)))["link_bytes"] == list(blocks[BlockPlace(1, 0)].link_bytes)
    store.complete()
    store.close()
    with oc.load(run.store) as there, in_one_run(A, tile_size=NB, **options) as one:
        assert np.array_equal(np.asarray(there), np.asarray(one))
