"""Solves, products and sums with a factor on a cluster: the numbers of one machine, the same bits whatever workers do."""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import CholeskyFactor
from tests.cluster_machines import cluster_of
from tests.inside.cluster import BlockGrid, ClusterSolver, LBlock, solving
from tests.inside.dense import MemoryStore
from tests.inside.precision import FP8, FP16, FP32, FP64
from tests.inside.tasks import TileGrid
from tests.tolerances import solve_bound, unit_roundoff

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

#: Order, tile size: seven tile rows, the last one short.
N, NB = 126, 20
LAST = 34


def spd(dtype: str = "float64") -> np.ndarray:
    """A positive definite matrix that is not banded."""
    random = np.random.default_rng(3)
    x = random.standard_normal((N, N))
    if dtype.startswith("complex"):
        x = x + 1j * random.standard_normal((N, N))
    return (x @ x.conj().T / N + np.eye(N)).astype(dtype)


def factored(a: np.ndarray, client, **options) -> CholeskyFactor:
    """The factor on a cluster, of one arithmetic key with that of this machine."""
    with client.as_current():
        return oc.cholesky(a, tile_size=NB, fp64="native", client=client, memory_budget="8 MiB", **options)


def columns(m: int, dtype: str = "float64") -> np.ndarray:
    """Right-hand sides."""
    random = np.random.default_rng(m)
    b = random.standard_normal((N, m))
    return (b + 1j * random.standard_normal((N, m)) if dtype.startswith("complex") else b).astype(dtype)


def cosines(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """A tile function without a positive definite matrix."""
    np.cos(np.subtract.outer(np.asarray(rows), np.asarray(cols)) / 5.0, out=out)


def function(tile_fn=cosines, n: int = N + LAST):
    """A function that workers get by value: they have no tests to import."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return oc.from_function(n, tile_fn)


def blocks_of(l_dense: np.ndarray, blocks: BlockGrid, formats=None) -> tuple[MemoryStore, dict]:
    """L in a store, and its blocks as tasks of a run give them."""
    grid = blocks.tiles
    store = MemoryStore(grid, formats)
    for i, j in grid.tiles():
        rows, cols = grid.span(i), grid.span(j)
        store.write((i, j), np.ascontiguousarray(l_dense[rows.start : rows.stop, cols.start : cols.stop]))
    store.complete()
    found = {}
    for place in blocks.places():
        window = blocks.window(place)
        tiles = {}
        for index in window.tiles():
            fmt = store.format_of(index)
            raw = store.stored(index).copy()
            tiles[tuple(index)] = raw.view(fmt.dtype).reshape(grid.shape(*index)) if fmt.top is None else raw
        found[place] = LBlock(window, tiles, None, 0.0, ())
    return store, found


@pytest.fixture(scope="module")
def on_cluster(two_workers):
    """A factor in the memory of the workers, its matrix, and the same factor on this machine."""
    a = spd()
    with factored(a, two_workers) as factor, oc.cholesky(a, tile_size=NB, fp64="native") as local:
        assert isinstance(factor._place, ClusterSolver)
        yield factor, a, local


def check_near(found: np.ndarray, expected: np.ndarray, dtype: str = "float64") -> None:
    """Two backward stable solutions of a system whose matrix has a condition of five."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.linalg.norm(found - expected) <= N * unit_roundoff(dtype) * 100 * np.linalg.norm(expected)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
@pytest.mark.commit
def test_solves_and_products_of_every_type(two_workers, dtype):
    a, b = spd(dtype), columns(3, dtype)
    with (
        factored(a, two_workers, dtype=dtype) as factor,
        oc.cholesky(a, tile_size=NB, dtype=dtype, fp64="native") as local,
    ):
        x = factor.solve(b)
        bound = solve_bound(N, np.linalg.norm(a), np.linalg.norm(x), np.empty(0, dtype).real.dtype)
        assert np.linalg.norm(a.astype("complex128") @ x - b) <= bound
        for ours, its in (
            (x, local.solve(b)),
            (factor.solve(b[:, 0]), local.solve(b[:, 0])),
            (factor.half_solve(b), local.half_solve(b)),
            (factor.half_solve(b, transposed=True), local.half_solve(b, transposed=True)),
            (factor @ b, local @ b),
            (factor.T @ b, local.T @ b),
            (factor.H @ b, local.H @ b),
            (factor.diagonal(), local.diagonal()),
        ):
            check_near(ours, its, np.empty(0, dtype).real.dtype)
        assert factor.logdet() == local.logdet()  # of one arithmetic key, and added by this process


def test_intervals_are_those_of_one_machine(on_cluster):
    """The workers solve and multiply by L; A is multiplied here."""
    factor, a, local = on_cluster
    b = columns(1)[:, 0]
    ours, its = factor.certify(b), local.certify(b)
    assert ours.logdet.lower <= np.linalg.slogdet(a)[1] <= ours.logdet.upper
    assert ours.quadratic[0].lower <= b @ np.linalg.solve(a, b) <= ours.quadratic[0].upper
    assert ours.logdet.gap == pytest.approx(its.logdet.gap, rel=1e-2) and ours.logdet.half_width < 1e-9
    check_near(ours.solution.x, its.solution.x)


@pytest.mark.parametrize("m", [1, 100])
def test_bits_do_not_depend_on_how_tasks_are_cut(on_cluster, two_workers, monkeypatch, m):
    factor, _, local = on_cluster
    b = columns(m)
    monkeypatch.setattr(solving, "MOST_COLUMNS", 60)
    expected = [factor.solve(b), factor.half_solve(b), factor @ b, factor.T @ b]
    check_near(expected[0], local.solve(b))
    assert factor.solve(b).tobytes() == expected[0].tobytes()
    monkeypatch.setattr(solving, "LEAST_WORK", 0.0)
    finer = [factor.solve(b), factor.half_solve(b), factor @ b, factor.T @ b]
    assert [each.tobytes() for each in finer] == [each.tobytes() for each in expected]


def test_one_worker_gives_the_bits_of_two(on_cluster, two_workers):
    b = columns(5)
    with cluster_of(1) as alone, factored(spd(), alone) as factor:
        blocks = factor._place.blocks
        _, held = blocks_of(np.asarray(factor), blocks)
        x, y = factor.solve(b), factor.T @ b
    shared = {place: two_workers.submit(_given, block, pure=False) for place, block in held.items()}
    for owners in ((), [sorted(two_workers.nthreads())[row % 2] for row in range(blocks.n_blocks)]):
        place = ClusterSolver(two_workers, blocks, shared, FP64, owners)
        with CholeskyFactor(blocks.tiles, MemoryStore(blocks.tiles), {}, solver=place) as twin:
            assert twin.solve(b).tobytes() == x.tobytes()
            assert (twin.T @ b).tobytes() == y.tobytes()


def _given(block: LBlock) -> LBlock:
    return block


_given.__module__ = "__main__"  # so that it travels by value


@pytest.mark.parametrize("height", [1, 3])
def test_mixed_formats_are_widened_on_the_workers(two_workers, height):
    grid = TileGrid(N, NB)
    formats = [FP64 if i == j else (FP32, FP16, FP8)[(i + j) % 3] for i, j in grid.tiles()]
    store, held = blocks_of(np.linalg.cholesky(spd()), BlockGrid(grid, height), formats)
    shared = {place: two_workers.submit(_given, block, pure=False) for place, block in held.items()}
    place = ClusterSolver(two_workers, BlockGrid(grid, height), shared, FP64)
    b = columns(4)
    with CholeskyFactor(grid, store, {}) as local, CholeskyFactor(grid, store, {}, solver=place) as factor:
        for name in ("solve", "half_solve", "matmul"):
            check_near(getattr(factor, name)(b), getattr(local, name)(b))
        check_near(factor._row_norms(), local._row_norms())


def test_sums_over_the_inverse_are_taken_on_the_workers(on_cluster, monkeypatch):
    factor, _, local = on_cluster
    v, matrix, border = columns(2), function(n=N), function()
    monkeypatch.setattr(solving, "MOST_COLUMNS", 32)
    check_near(factor.inverse_diagonal(), local.inverse_diagonal())
    ours, its = factor.inverse_traces([matrix, matrix], v), local.inverse_traces([matrix, matrix], v)
    for one, other in zip(ours, its, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    ours, its = factor.half_solve_sums(border, range(N, N + LAST), v), local.half_solve_sums(border, range(N, N + LAST), v)
    check_near(ours.squares, its.squares)
    check_near(ours.products, its.products)
    for one, other in zip(factor.inverse_panels(70), local.inverse_panels(70), strict=True):
        assert one[0] == other[0]
        check_near(one[1], other[1])
    with pytest.raises(ValueError, match="width is 0"):
        factor.inverse_diagonal(0)


def test_what_reads_single_tiles_works_on_a_cluster_too(on_cluster):
    factor, a, local = on_cluster
    assert np.asarray(factor).tobytes() == np.asarray(local).tobytes()
    np.testing.assert_allclose(factor.cond(), local.cond(), rtol=1e-10)
    assert factor.residual(a).max_scaled_over_sqrt_n <= 4
    v = columns(2)
    with factor.update(v) as larger, local.update(v) as expected, larger.downdate(v) as back:
        assert np.asarray(larger).tobytes() == np.asarray(expected).tobytes()
        check_near(back.solve(v), local.solve(v))
    y, x = factor.half_solves(v, np.eye(N)[:, :3])
    check_near(y, local.half_solve(v))
    check_near(x[:, :2], local.solve(v))
    check_near(factor.solve(v, refine=True), local.solve(v, refine=True))


@pytest.mark.parametrize(("chunks", "shape"), [((50, 30), (N, 70)), ((64,), (N,))])
def test_a_dask_array_stays_one(on_cluster, two_workers, chunks, shape):
    arrays = pytest.importorskip("dask.array")
    factor, _, _ = on_cluster
    b = columns(70)[:, : shape[1]] if len(shape) == 2 else columns(1)[:, 0]
    lazy = arrays.from_array(b, chunks=chunks)
    for ours, its in (
        (factor.solve(lazy), factor.solve(b)),
        (factor.half_solve(lazy), factor.half_solve(b)),
        (factor.half_solve(lazy, transposed=True), factor.half_solve(b, transposed=True)),
    ):
        assert ours.chunks == lazy.chunks and ours.dtype == its.dtype
        assert two_workers.compute(ours).result().tobytes() == its.tobytes()


def test_what_is_no_right_hand_side_is_refused_as_on_one_machine(on_cluster):
    arrays = pytest.importorskip("dask.array")
    factor, _, local = on_cluster
    hurt = columns(3)
    hurt[101, 2] = np.nan
    for b in (hurt, columns(3)[:-1], columns(3) + 1j, np.ones((N, 2, 2)), np.full(N, "a")):
        with pytest.raises((TypeError, ValueError)) as expected:
            local.solve(b)
        for given in (b, arrays.from_array(b, chunks=-1)):
            with pytest.raises(expected.type, match=re.escape(str(expected.value))):
                factor.solve(given)


def test_a_zarr_group_is_read_by_the_workers(two_workers, tmp_path):
    b, group = columns(3), tmp_path / "L.zarr"
    with factored(spd(), two_workers, store=group) as factor:
        assert isinstance(factor._place.held, str)
        with oc.load(group) as local:
            check_near(factor.solve(b), local.solve(b))
            check_near(factor @ b, local @ b)
            assert factor.logdet() == local.logdet()
    with factored(4.0 * spd(), two_workers, store=group, replace=True) as factor:
        check_near(4.0 * factor.solve(b), np.linalg.solve(spd(), b))  # nothing of the group before is left with the workers


@pytest.mark.parametrize("threshold", [None, 1e-3])
def test_a_group_that_one_machine_wrote_is_loaded_for_the_workers(two_workers, tmp_path, threshold):
    b, group = columns(3), tmp_path / "L.zarr"
    oc.cholesky(spd(), precision_threshold=threshold, tile_size=NB, store=group).close()
    with oc.load(group) as local, oc.load(group, client=two_workers) as factor:
        assert isinstance(factor._place, ClusterSolver) and factor._place.blocks.n_blocks == 7
        check_near(factor.solve(b), local.solve(b))
        check_near(factor.half_solve(b), local.half_solve(b))
        check_near(factor @ b, local @ b)
        check_near(factor.inverse_diagonal(), local.inverse_diagonal())
        assert factor.logdet() == local.logdet()


def test_a_loaded_factor_has_the_bits_of_the_one_that_a_cluster_made(two_workers, tmp_path):
    b, group = columns(3), tmp_path / "L.zarr"
    with factored(spd(), two_workers, store=group) as factor, oc.load(group, client=two_workers) as loaded:
        assert np.array_equal(loaded.solve(b), factor.solve(b))
        assert np.array_equal(loaded.inverse_diagonal(), factor.inverse_diagonal())


def test_what_workers_cannot_load_is_refused(two_workers, tmp_path):
    oc.cholesky(spd(), tile_size=NB, store=tmp_path / "L.ooc").close()
    with pytest.raises(ValueError, match=r"L\.save\('L\.zarr'\)"):
        oc.load(tmp_path / "L.ooc", client=two_workers)
    with pytest.raises(ValueError, match="memory of one process"):
        oc.load("memory://L.zarr", client=two_workers)
    with pytest.raises(TypeError, match="is the address"):
        oc.load(tmp_path / "L.zarr", client=two_workers.scheduler.address)
    with pytest.raises(FileNotFoundError):
        oc.load(tmp_path / "L.zarr", client=two_workers)


def test_a_damaged_chunk_is_named(two_workers, tmp_path):
    group = tmp_path / "L.zarr"
    with factored(spd(), two_workers, store=group) as factor:
        chunk = min((path for path in (group / "L").rglob("*") if path.is_file() and path.name != "zarr.json"), key=str)
        chunk.write_bytes(chunk.read_bytes()[:-8] + b"damaged!")
        with pytest.raises(oc.errors.TierError, match=r"L\.zarr"):
            factor.solve(columns(1))


@pytest.mark.usefixtures("clusters")
def test_a_worker_that_dies_in_a_solve_changes_no_bit(tmp_path):
    flag = str(tmp_path / "died")

    def deadly(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
        if rows.start > 60 and not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        cosines(rows, cols, out, stream)

    b = columns(3)
    with cluster_of(2) as client, factored(spd(), client) as factor:
        expected, sums = factor.solve(b), factor.half_solve_sums(function(), range(N, N + LAST), b)
        ours = factor.half_solve_sums(function(deadly), range(N, N + LAST), b)
        assert Path(flag).exists()
        assert ours.squares.tobytes() == sums.squares.tobytes() and ours.products.tobytes() == sums.products.tobytes()
        assert factor.solve(b).tobytes() == expected.tobytes()


def test_a_closed_connection_is_told(two_workers):
    from distributed import Client

    with Client(two_workers.scheduler.address, security=two_workers.security, set_as_default=False) as client:
        factor = factored(spd(), client)
    with pytest.raises(oc.errors.ClusterError, match="make a new client"):
        factor.solve(columns(1))
    factor.close()


def test_tasks_are_fewer_where_there_is_little_to_do():
    def spans(**changes: int) -> int:
        solver = ClusterSolver(_Threads(8), BlockGrid(TileGrid(64_000, 500), 8), {}, FP64)
        return replace(solver, **changes)._sweeps(1).span

    assert spans() == 1  # 16 block rows for eight threads
    assert spans(blocks=BlockGrid(TileGrid(3200, 200), 1)) == 16


class _Threads:
    """A client of one worker with so many threads, which is asked for nothing else."""

    status = "running"

    def __init__(self, count: int) -> None:
        self._count = count

    def nthreads(self) -> dict[str, int]:
        return {"worker": self._count}
