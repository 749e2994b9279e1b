"""What the factor object promises: backward stable solves, the same bits from every store, files that come back, clear errors."""

from __future__ import annotations

import math
import os
import pickle
import tempfile
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ooc_chol import CholeskyFactor
from ooc_chol.errors import TierError
from tests.builders import factor_over, file_store, memory_store, overwrite_store
from tests.host.counted_reads import tell_reads
from tests.host.stored_factors import KEY, STORES, factor_in, lapack_factor, random_spd, write_factor
from tests.inside.dense import FileStore, load
from tests.inside.tasks import TileGrid
from tests.products import share_of_examples
from tests.tolerances import factor_entry_bound, gamma, product_bound, solve_bound, sum_bound, trsm_bound

every_store = pytest.mark.parametrize("kind", STORES)
sizes = {
    "n": st.integers(1, 40),
    "nb": st.integers(1, 45),
    "m": st.sampled_from([None, 1, 2, 5]),
    "seed": st.integers(0, 2**32 - 1),
}


def right_hand_side(n: int, m: int | None, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed + 1).standard_normal(n if m is None else (n, m))


@pytest.fixture
def factor(tmp_path: Path) -> CholeskyFactor:
    """A factor of order 50 in memory."""
    return factor_in("memory", lapack_factor(random_spd(50, seed=1)), 16, tmp_path)


# numbers


@every_store
@share_of_examples(0.2)
@given(**sizes)
def test_solve_is_backward_stable(kind: str, n: int, nb: int, m: int | None, seed: int) -> None:
    a = random_spd(n, seed, condition=1e9)
    b = right_hand_side(n, m, seed)
    kept = b.copy()
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, lapack_factor(a), nb, Path(folder)) as factor:
        x = factor.solve(b)
    assert x.shape == b.shape
    assert np.array_equal(b, kept)
    residual = b - (a.astype(np.longdouble) @ x.astype(np.longdouble)).astype(float)
    for r, column in zip(np.atleast_2d(residual.T), np.atleast_2d(x.T), strict=True):
        assert np.linalg.norm(r) <= solve_bound(n, float(np.linalg.norm(a, 2)), float(np.linalg.norm(column)))


@every_store
@share_of_examples(0.2)
@given(**sizes)
def test_half_solve_is_row_wise_backward_stable(kind: str, n: int, nb: int, m: int | None, seed: int) -> None:
    l_dense = lapack_factor(random_spd(n, seed, condition=1e9))
    b = right_hand_side(n, m, seed)
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, l_dense, nb, Path(folder)) as factor:
        y = factor.half_solve(b)
    assert y.shape == b.shape
    y_rows, b_rows = y.reshape(n, -1).T, b.reshape(n, -1).T
    residual = np.abs(y_rows.astype(np.longdouble) @ l_dense.T.astype(np.longdouble) - b_rows)
    assert (residual <= trsm_bound(y_rows, l_dense)).all()


@every_store
@share_of_examples(0.2)
@given(**sizes)
def test_matmul_is_accurate_entry_by_entry(kind: str, n: int, nb: int, m: int | None, seed: int) -> None:
    l_dense = lapack_factor(random_spd(n, seed))
    z = right_hand_side(n, m, seed)
    kept = z.copy()
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, l_dense, nb, Path(folder)) as factor:
        product = factor.matmul(z)
    assert product.shape == z.shape
    assert np.array_equal(z, kept)
    columns = z.reshape(n, -1)
    error = np.abs(product.reshape(n, -1) - l_dense.astype(np.longdouble) @ columns.astype(np.longdouble))
    assert (error <= product_bound(l_dense, columns)).all()


@every_store
@share_of_examples(0.2)
@given(n=sizes["n"], nb=sizes["nb"], seed=sizes["seed"])
def test_diagonal_determinant_and_dense_array_are_those_of_l(kind: str, n: int, nb: int, seed: int) -> None:
    l_dense = lapack_factor(random_spd(n, seed))
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, l_dense, nb, Path(folder)) as factor:
        assert np.array_equal(np.asarray(factor), l_dense)
        assert np.array_equal(factor.diagonal(), l_dense.diagonal())
        logarithms = np.log(l_dense.diagonal().astype(np.longdouble))
        assert abs(factor.logdet() - float(2 * logarithms.sum())) <= 2 * sum_bound(logarithms) + gamma(2) * n


def test_determinants_far_outside_the_range_of_floats(tmp_path: Path) -> None:
    factor = factor_in("memory", np.diag(np.full(300, 1e150)), 64, tmp_path)
    assert math.isclose(factor.logdet(), 600 * math.log(1e150), rel_tol=gamma(4))


def test_every_store_gives_the_same_bits(tmp_path: Path, one_blas_thread: None) -> None:
    l_dense = lapack_factor(random_spd(130, seed=2, condition=1e8))
    b = right_hand_side(130, 3, seed=2)
    results = []
    for number, kind in enumerate(STORES):
        (tmp_path / str(number)).mkdir()
        with factor_in(kind, l_dense, 32, tmp_path / str(number)) as factor:
            results.append((factor.solve(b), factor.solve(b[:, 0]), factor.half_solve(b), factor.matmul(b)))
    for result in results[1:]:
        for ours, first in zip(result, results[0], strict=True):
            assert np.array_equal(ours, first)


def test_nan_above_the_diagonal_of_the_users_array_never_matters(tmp_path: Path) -> None:
    l_dense = lapack_factor(random_spd(70, seed=3))
    over = np.full((70, 70), np.nan)
    store = overwrite_store(over, TileGrid(70, 30))
    write_factor(l_dense, store)
    b = right_hand_side(70, 2, seed=3)
    with factor_over(store) as factor, factor_in("memory", l_dense, 30, tmp_path) as clean:
        assert np.array_equal(factor.solve(b), clean.solve(b))
        assert np.array_equal(factor.matmul(b), clean.matmul(b))
        assert np.array_equal(np.asarray(factor), l_dense)
        factor.save(tmp_path / "saved")
    with load(tmp_path / "saved") as saved:
        assert np.array_equal(np.asarray(saved), l_dense)
    assert np.isnan(over[np.triu_indices(70, 1)]).all()


# right-hand sides


@pytest.mark.parametrize(
    "convert",
    [
        list,
        lambda b: b.astype(np.float32),
        lambda b: b.astype(np.int64),
        lambda b: b.astype(np.uint8),
        np.asfortranarray,
        lambda b: np.repeat(b, 2, axis=0)[::2],
        lambda b: b[::-1].copy()[::-1],
    ],
    ids=["list", "float32", "int64", "uint8", "Fortran", "strided", "negative stride"],
)
@pytest.mark.parametrize("shape", [(50,), (50, 3)])
def test_any_real_array_is_a_right_hand_side(
    factor: CholeskyFactor, convert: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    b = np.random.default_rng(0).integers(0, 200, shape).astype(float)
    given_b = convert(b)
    for method in (factor.solve, factor.half_solve, factor.matmul):
        result = method(given_b)
        assert result.dtype == np.float64
        assert np.array_equal(result, method(b))
    assert np.array_equal(np.asarray(given_b), b)


@every_store
def test_no_right_hand_sides_at_all(kind: str, tmp_path: Path) -> None:
    with factor_in(kind, np.eye(10), 4, tmp_path) as factor:
        for method in (factor.solve, factor.half_solve, factor.matmul):
            assert method(np.empty((10, 0))).shape == (10, 0)


def spoiled(shape: tuple[int, ...], place: tuple[int, ...], value: float) -> NDArray[np.float64]:
    b = np.ones(shape)
    b[place] = value
    return b


@pytest.mark.parametrize(
    ("b", "error", "match"),
    [
        (np.ones(50, dtype=complex), TypeError, "complex128"),
        (np.ones(50, dtype=np.longdouble), TypeError, "float128"),
        (np.array(["x"] * 50), TypeError, "<U1"),
        ([None] * 50, TypeError, "object"),
        (np.ones(49), ValueError, r"\(49,\).*\(50, 50\)"),
        (np.ones((49, 2)), ValueError, r"\(49, 2\).*\(50, 50\)"),
        (np.ones((1, 50)), ValueError, r"\(1, 50\)"),
        (1.0, ValueError, r"\(\)"),
        (np.ones((50, 2, 2)), ValueError, r"\(50, 2, 2\)"),
        (spoiled((50,), (17,), np.nan), ValueError, r"\[17\].*nan"),
        (spoiled((50, 4), (49, 2), -np.inf), ValueError, r"\[49, 2\].*-inf"),
    ],
)
def test_wrong_right_hand_sides_are_refused_by_what_is_wrong(
    factor: CholeskyFactor, b: object, error: type[Exception], match: str
) -> None:
    for method in (factor.solve, factor.half_solve, factor.matmul):
        with pytest.raises(error, match=match):
            method(b)  # type: ignore[arg-type]


# dense arrays


def test_dense_arrays_follow_the_array_protocol(factor: CholeskyFactor) -> None:
    dense = np.asarray(factor)
    assert dense.shape == factor.shape == (50, 50)
    assert dense.dtype == factor.dtype == np.float64
    assert np.array_equal(np.asarray(factor, dtype=np.float32), dense.astype(np.float32))
    assert np.array_equal(np.array(factor, copy=True), dense)
    with pytest.raises(ValueError, match="copy"):
        np.array(factor, copy=False)
    dense[...] = 0.0
    assert factor.diagonal().all()


def test_results_belong_to_the_caller(factor: CholeskyFactor) -> None:
    diagonal = factor.diagonal().copy()
    factor.diagonal()[...] = 0.0
    assert np.array_equal(factor.diagonal(), diagonal)


@share_of_examples(0.4)
@given(n=st.integers(1, 60), nb=st.integers(1, 70), data=st.data())
def test_rows_are_those_of_the_dense_factor(n: int, nb: int, data: st.DataObject) -> None:
    l_dense = np.tril(np.arange(1.0, n * n + 1).reshape(n, n))
    start = data.draw(st.integers(0, n - 1))
    rows = range(start, data.draw(st.integers(start + 1, n)))
    stop = data.draw(st.integers(1, n))
    for kind in ("memory", "file", "over strided"):
        with tempfile.TemporaryDirectory() as folder, factor_in(kind, l_dense, nb, Path(folder)) as factor:
            assert np.array_equal(factor.rows(rows, stop), l_dense[rows.start : rows.stop, :stop])


@pytest.mark.parametrize(("rows", "stop"), [(range(-1, 3), 5), (range(48, 51), 5), (range(3), 51), (range(0, 9, 2), 5)])
def test_rows_outside_the_factor_are_refused(factor: CholeskyFactor, rows: range, stop: int) -> None:
    with pytest.raises(ValueError, match=r"\(50, 50\)"):
        factor.rows(rows, stop)


# files


@every_store
@share_of_examples(0.2)
@given(n=sizes["n"], nb=sizes["nb"], seed=sizes["seed"])
def test_a_saved_factor_comes_back_to_the_bit(kind: str, n: int, nb: int, seed: int) -> None:
    l_dense = lapack_factor(random_spd(n, seed))
    b = right_hand_side(n, None, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.ooc"
        with factor_in(kind, l_dense, nb, Path(folder)) as factor:
            factor.save(path)
            solution = factor.solve(b)
        with load(path) as back:
            assert (back.n, back.tile_size, back.arithmetic_key) == (n, nb, KEY)
            assert (back.report, back.trace) == (None, None)
            assert np.array_equal(np.asarray(back), l_dense)
            assert np.array_equal(back.solve(b), solution)
            assert back.logdet() == 2 * math.fsum(np.log(l_dense.diagonal()))


def test_a_key_is_the_same_before_and_after_its_file(tmp_path: Path) -> None:
    store = memory_store(TileGrid(4, 2))
    write_factor(np.eye(4), store)
    factor = factor_over(store, {"moduli": (251, 256), 3: "three"})
    factor.save(tmp_path / "L.ooc")
    with load(tmp_path / "L.ooc") as back:
        assert back.arithmetic_key == factor.arithmetic_key == {"moduli": [251, 256], "3": "three"}


def test_a_failed_save_leaves_the_existing_file_as_it_was(
    factor: CholeskyFactor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "L.ooc"
    factor.save(path)
    before = path.read_bytes()
    other = factor_in("memory", np.eye(50), 16, tmp_path)
    real, calls = os.pwrite, iter(range(100))

    def fail_at_the_fifth(*args: Any) -> int:
        if next(calls) == 5:
            raise OSError(28, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, "pwrite", fail_at_the_fifth)
    with pytest.raises(TierError, match="No space left"):
        other.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["L.ooc"]
    monkeypatch.setattr(os, "pwrite", real)
    other.save(path)
    with load(path) as back:
        assert np.array_equal(np.asarray(back), np.eye(50))


def test_an_interrupted_save_leaves_nothing(factor: CholeskyFactor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FileStore, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        factor.save(tmp_path / "L.ooc")
    assert list(tmp_path.iterdir()) == []


def test_a_factor_may_be_saved_over_its_own_file(factor: CholeskyFactor, tmp_path: Path) -> None:
    factor.save(tmp_path / "L.ooc")
    with load(tmp_path / "L.ooc") as back:
        back.save(tmp_path / "L.ooc")
        assert np.array_equal(np.asarray(back), np.asarray(factor))
    with load(tmp_path / "L.ooc") as again:
        assert np.array_equal(np.asarray(again), np.asarray(factor))


# out of core


def test_memory_is_the_right_hand_sides_and_a_few_tiles(tmp_path: Path) -> None:
    n, nb, m = 1500, 100, 3
    l_dense = np.tril(np.full((n, n), 1.0 / n)) + np.eye(n)
    factor_in("file", l_dense, nb, tmp_path).close()
    del l_dense
    b = np.ones((n, m))
    with load(tmp_path / "L.ooc") as factor:
        for method in (factor.solve, factor.half_solve, factor.matmul):
            tracemalloc.start()
            method(b)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            # Three tiles, the result, the finiteness check, one product; 64 KiB for the order of the tiles and Python itself.
            assert peak <= 3 * nb * nb * 8 + 2 * n * m * 8 + nb * m * 8 + 65536
            assert peak < 0.05 * n * n / 2 * 8


def test_a_sweep_reads_every_tile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factor = factor_in("file", lapack_factor(random_spd(50, seed=4)), 16, tmp_path)
    reads: list[tuple[int, int]] = []
    tell_reads(monkeypatch, lambda layout, index: reads.append(index))
    tiles = [tuple(index) for index in TileGrid(50, 16).tiles()]
    factor.half_solve(np.ones(50))
    assert reads == tiles  # in the order of the file
    reads.clear()
    factor.solve(np.ones(50))
    assert reads == tiles + tiles[::-1]
    reads.clear()
    factor.logdet()
    factor.diagonal()
    assert reads == [(k, k) for k in range(4)]
    factor.close()


def test_the_next_tile_is_read_while_one_is_in_use(tmp_path: Path) -> None:
    from tests.inside.dense import stream_tiles

    store = file_store(tmp_path / "L.ooc", TileGrid(50, 16), KEY)
    write_factor(np.tril(np.arange(2500.0).reshape(50, 50)), store)
    order = list(store.grid.tiles())
    tiles = stream_tiles(store, order)
    for i, j in order:
        index, tile = next(tiles)
        kept = tile.copy()
        if (i, j) != order[-1]:
            os.truncate(store.path, os.stat(store.path).st_size)  # a system call, so that the other thread runs
        assert index == (i, j)
        assert np.array_equal(tile, kept)
        assert tile[0, 0] == 16 * i * 50 + 16 * j
    tiles.close()
    store.close()


@pytest.mark.parametrize("method", ["solve", "half_solve", "matmul"])
def test_a_file_cut_during_a_sweep_is_one_error_and_no_thread(method: str, tmp_path: Path) -> None:
    factor = factor_in("file", lapack_factor(random_spd(50, seed=5)), 16, tmp_path)
    os.truncate(tmp_path / "L.ooc", 65536 + 5 * 4096)
    with pytest.raises(TierError, match="ends at byte"):
        getattr(factor, method)(np.ones(50))
    factor.close()


def test_a_diagonal_that_could_not_be_read_is_not_kept(tmp_path: Path) -> None:
    """The first tiles can be read, the last ones not: the second call is no better than the first."""
    with factor_in("file", lapack_factor(random_spd(60, seed=3)), 16, tmp_path) as factor:
        os.truncate(tmp_path / "L.ooc", 65536 + 3 * 4096)
        for ask in (factor.diagonal, factor.logdet, factor.diagonal):
            with pytest.raises(TierError, match="was cut while in use"):
                ask()


def test_several_threads_solve_at_once(tmp_path: Path, one_blas_thread: None) -> None:
    a = random_spd(120, seed=6)
    b = right_hand_side(120, 8, seed=6)
    with factor_in("file", lapack_factor(a), 32, tmp_path) as factor, ThreadPoolExecutor(4) as pool:
        expected = [factor.solve(column) for column in b.T]
        for ours, first in zip(pool.map(factor.solve, b.T), expected, strict=True):
            assert np.array_equal(ours, first)


# life


@every_store
def test_a_closed_factor_says_so(kind: str, tmp_path: Path) -> None:
    with factor_in(kind, np.eye(10), 4, tmp_path) as factor:
        assert "n=10" in repr(factor)
        assert "tile_size=4" in repr(factor)
    factor.close()
    uses: list[Callable[[], object]] = [
        lambda: factor.solve(np.ones(10)),
        lambda: factor.half_solve(np.ones(10)),
        lambda: factor.matmul(np.ones(10)),
        factor.logdet,
        factor.diagonal,
        lambda: np.asarray(factor),
        lambda: factor.save(tmp_path / "x"),
        lambda: factor.residual(np.eye(10)),
        lambda: factor.rows(range(1), 1),
    ]
    for use in uses:
        with pytest.raises(TierError, match="closed"):
            use()
    assert "closed" in repr(factor)
    assert not (tmp_path / "x").exists()


def test_a_factor_in_a_file_is_pickled_as_its_path(tmp_path: Path) -> None:
    def again(factor: CholeskyFactor) -> CholeskyFactor:
        return pickle.loads(pickle.dumps(factor))  # type: ignore[no-any-return]

    with factor_in("file", np.eye(10), 4, tmp_path) as factor:
        with again(factor) as other:
            assert np.array_equal(np.asarray(other), np.eye(10)) and other.arithmetic_key == factor.arithmetic_key
        assert other.closed and not factor.closed
        assert np.array_equal(factor.solve(np.ones(10)), np.ones(10)), "the copy's end is not the factor's"
        os.replace(tmp_path / "L.ooc", tmp_path / "elsewhere")
        with pytest.raises(TypeError, match=r"L\.save.*ooc_chol\.load"):
            again(factor)


@pytest.mark.parametrize("kind", ["memory", "over C"])
def test_a_factor_in_memory_is_not_pickled(kind: str, tmp_path: Path) -> None:
    with factor_in(kind, np.eye(10), 4, tmp_path) as factor, pytest.raises(TypeError, match=r"L\.save.*ooc_chol\.load"):
        pickle.dumps(factor)


def test_a_singular_factor_is_an_error_of_linear_algebra(tmp_path: Path) -> None:
    factor = factor_in("memory", np.diag([1.0, 2.0, 0.0]), 2, tmp_path)
    with pytest.raises(np.linalg.LinAlgError):
        factor.solve(np.ones(3))


def test_solving_with_the_entry_bound_of_the_factor_itself(tmp_path: Path) -> None:
    a = random_spd(90, seed=7)
    with factor_in("file", lapack_factor(a), 32, tmp_path) as factor:
        product = factor.matmul(np.asarray(factor).T)
    diagonal = a.diagonal()
    bound = factor_entry_bound(90, diagonal[:, None], diagonal[None, :]) + product_bound(lapack_factor(a), lapack_factor(a).T)
    assert (np.abs(product - a) <= bound).all()
