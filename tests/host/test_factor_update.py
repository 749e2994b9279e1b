"""Updates and downdates of a factor: as accurate as a factorization of the new matrix, in any store, and refused in time."""

from __future__ import annotations

import copy
import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol import CholeskyFactor, HostMemory
from ooc_chol.errors import BudgetError, DowndateError, OutputError, TierError
from tests.builders import factor_over, memory_store
from tests.host.matrices import FAMILIES
from tests.host.stored_factors import STORES, factor_in, lapack_factor, random_spd, write_factor
from tests.host.turns import in_turn
from tests.inside.dense import factor as factor_module
from tests.inside.dense import first_lost_row, load, updating
from tests.inside.precision import FORMATS
from tests.inside.tasks import TileGrid
from tests.products import share_of_examples
from tests.tolerances import factor_entry_bound

every_store = pytest.mark.parametrize("kind", STORES)
sizes = {
    "n": st.integers(1, 90),
    "nb": st.integers(1, 100),
    "k": st.sampled_from([0, 1, 2, 5, 40]),
    "seed": st.integers(0, 2**32 - 1),
}


def longs(x: NDArray[np.float64]) -> NDArray[np.longdouble]:
    return x.astype(np.longdouble)


def check_residual(factor: CholeskyFactor, matrix: NDArray[np.longdouble], scale: NDArray[np.float64]) -> None:
    """``matrix - L @ L.T`` is within the bound of a factorization of a matrix with this diagonal, and L is lower and positive."""
    dense = np.asarray(factor)
    assert np.array_equal(dense, np.tril(dense)) and (dense.diagonal() > 0.0).all()
    residual = np.abs(np.tril(matrix - longs(dense) @ longs(dense).T))
    assert (residual <= factor_entry_bound(len(dense), scale[:, None], scale[None, :])).all()


@every_store
@share_of_examples(0.2)
@given(**sizes)
def test_an_updated_factor_is_that_of_the_sum(kind: str, n: int, nb: int, k: int, seed: int) -> None:
    dense = lapack_factor(random_spd(n, seed, condition=1e12))
    v = np.random.default_rng(seed + 1).standard_normal((n, k))
    kept = v.copy()
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, dense, nb, Path(folder)) as factor:
        with factor.update(v) as larger:
            matrix = longs(dense) @ longs(dense).T + longs(v) @ longs(v).T
            check_residual(larger, matrix, matrix.diagonal().astype(float))
            assert (larger.n, larger.tile_size, larger.report) == (n, nb, None)
        assert np.array_equal(np.asarray(factor), dense) and np.array_equal(v, kept)


@every_store
@share_of_examples(0.2)
@given(**sizes)
def test_a_downdated_factor_is_that_of_the_difference(kind: str, n: int, nb: int, k: int, seed: int) -> None:
    v = np.random.default_rng(seed + 1).standard_normal((n, k))
    larger = random_spd(n, seed, condition=1e12) + v @ v.T
    dense = lapack_factor((larger + larger.T) / 2)
    with tempfile.TemporaryDirectory() as folder, factor_in(kind, dense, nb, Path(folder)) as factor:
        matrix = longs(dense) @ longs(dense).T - longs(v) @ longs(v).T
        try:
            smaller = factor.downdate(v)
        except DowndateError as error:  # rounding the sum lost what is left: then LAPACK must find nothing, either
            with pytest.raises(np.linalg.LinAlgError):
                np.linalg.cholesky(matrix.astype(float) - 4 * n * 2.0**-53 * np.diag(larger.diagonal()))
            assert 1 <= error.minor <= n
            return
        with smaller:
            check_residual(smaller, matrix, larger.diagonal())


@pytest.mark.parametrize(
    ("family", "case"),
    in_turn(["exponential", "matern25 nugget 1e-11", "gaussian nugget 1e-12"], [(300, 64, 3), (300, 300, 70), (257, 128, 1)]),
)
def test_hard_covariances_are_updated_as_well_as_factored(family: str, case: tuple[int, int, int]) -> None:
    n, nb, k = case
    a, v = FAMILIES[family](n), np.random.default_rng(0).standard_normal((n, k))
    powers = np.random.default_rng(1).integers(-490, 490, n)
    plain = oc.cholesky(a, tile_size=nb, devices="host:0").update(v)
    matrix = longs(a) + longs(v) @ longs(v).T
    check_residual(plain, matrix, matrix.diagonal().astype(float))
    check_residual(plain.downdate(v), longs(a), matrix.diagonal().astype(float))
    scaled = oc.cholesky(np.ldexp(a, powers[:, None] + powers[None, :]), tile_size=nb, devices="host:0")
    scaled = scaled.update(np.ldexp(v, powers[:, None])).downdate(np.ldexp(v, powers[:, None]))
    unscaled = memory_store(TileGrid(n, nb))
    write_factor(np.ldexp(np.asarray(scaled), -powers[:, None]), unscaled)
    check_residual(factor_over(unscaled), longs(a), matrix.diagonal().astype(float))


def test_many_updates_and_downdates_in_place_do_not_drift() -> None:
    a = FAMILIES["matern15 nugget 1e-6"](200)
    rng, factor = np.random.default_rng(3), oc.cholesky(a, tile_size=64, devices="host:0")
    scale = a.diagonal()
    for _ in range(20):
        v = rng.standard_normal((200, 2))
        scale = np.maximum(scale, a.diagonal() + (v * v).sum(axis=1))
        factor = factor.update(v, overwrite=True).downdate(v, overwrite=True)
    residual = np.abs(longs(a) - longs(np.asarray(factor)) @ longs(np.asarray(factor)).T)
    assert (residual <= 40 * factor_entry_bound(200, scale[:, None], scale[None, :])).all()


def test_rows_that_are_not_changed_keep_their_bits(tmp_path: Path) -> None:
    dense = lapack_factor(random_spd(100, seed=4))
    v = np.zeros(100)
    v[70:] = 1.0
    with factor_in("memory", dense, 32, tmp_path) as factor:
        larger = np.asarray(factor.update(v))
    assert np.array_equal(larger[:, :64], dense[:, :64]) and not np.array_equal(larger[70:, 70:], dense[70:, 70:])


# definiteness


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("row", [0, 40, 99])
def test_a_downdate_that_takes_too_much_says_where(row: int, overwrite: bool, tmp_path: Path) -> None:
    a = random_spd(100, seed=5) + np.eye(100)
    dense = lapack_factor(a)
    v = np.zeros((100, 2))
    v[row] = [0.8, 1.1 * np.sqrt(a[row, row])]
    with factor_in("memory", dense, 32, tmp_path) as factor:
        with pytest.raises(DowndateError, match=f"minor of order {row + 1} of A - V @ V.T is not positive definite") as caught:
            factor.downdate(v, overwrite=overwrite)
        assert (caught.value.minor, caught.value.tile) == (row + 1, (row // 32, row // 32))
        assert isinstance(caught.value, np.linalg.LinAlgError) and isinstance(caught.value, oc.NotPositiveDefiniteError)
        assert not factor.closed and np.array_equal(np.asarray(factor), dense)


@given(n=st.integers(1, 40), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_first_minor_that_is_lost_is_lapacks(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, k)) * rng.choice([0.05, 0.3])
    info = 0
    for order in range(1, n + 1):
        if np.linalg.eigvalsh(np.eye(order) - w[:order] @ w[:order].T).min() <= 0.0:
            info = order
            break
    assert first_lost_row(w) == info


def test_downdate_errors_travel_between_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(DowndateError(7, (0, 0))))
    assert (error.minor, error.tile) == (7, (0, 0)) and "V @ V.T" in str(error)


# where it goes


def test_the_new_factor_goes_where_it_is_asked_to(tmp_path: Path) -> None:
    a, v = random_spd(80, seed=6), np.ones(80)
    with oc.cholesky(a, tile_size=32, devices="host:0") as factor:
        expected = np.asarray(factor.update(v))
        with factor.update(v, store=tmp_path / "L.ooc") as filed:
            assert np.array_equal(np.asarray(filed), expected)
        with load(tmp_path / "L.ooc") as loaded:
            assert np.array_equal(np.asarray(loaded), expected)
            assert loaded.arithmetic_key["updates"] == [{"rank": 1, "sign": 1}]
            with loaded.downdate(v, store=tmp_path / "back.ooc") as back:
                assert [change["sign"] for change in back.arithmetic_key["updates"]] == [1, -1]
        with HostMemory() as memory, factor.update(v, store=memory) as held:
            assert np.array_equal(np.asarray(held), expected)
        with pytest.raises(ValueError, match="no GPU's memory"):
            factor.update(v, store="device")
        (tmp_path / "mine.ooc").write_text("kept")
        with pytest.raises(OutputError):
            factor.update(v, store=tmp_path / "mine.ooc")
        assert (tmp_path / "mine.ooc").read_text() == "kept"
        for name in ("L.txt", "L.npy"):
            with pytest.raises(ValueError, match="not written as"):
                factor.update(v, store=tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["L.ooc", "back.ooc", "mine.ooc"]


@pytest.mark.parametrize("kind", ["memory", "over C", "over strided"])
def test_overwriting_hands_the_store_over(kind: str, tmp_path: Path) -> None:
    dense, v = lapack_factor(random_spd(80, seed=7)), np.ones((80, 3))
    with factor_in("file", dense, 32, tmp_path) as apart:
        expected = np.asarray(apart.update(v))
    factor = factor_in(kind, dense, 32, tmp_path)
    larger = factor.update(v, overwrite=True)
    assert factor.closed and not larger.closed
    factor.close()
    assert np.array_equal(np.asarray(larger), expected)
    assert larger.logdet() == pytest.approx(2 * np.log(expected.diagonal()).sum())
    larger.close()
    with pytest.raises(TierError, match="closed"):
        larger.update(v)


def test_the_file_that_an_updated_factor_lies_over_is_known(tmp_path: Path) -> None:
    path, v = tmp_path / "m.raw", np.ones(40)
    a = np.memmap(path, dtype=float, mode="w+", shape=(40, 40))
    a[:] = random_spd(40, seed=7)
    factor = oc.cholesky(a, tile_size=16, overwrite=True).update(v, overwrite=True).downdate(v, overwrite=True)
    with factor, pytest.raises(OutputError, match=r"m\.raw"):
        factor.save(path, replace=True)


def test_what_must_stay_is_not_overwritten(tmp_path: Path) -> None:
    v = np.ones(40)
    with factor_in("file", np.eye(40), 16, tmp_path) as filed, pytest.raises(ValueError, match="in a file stays as it is"):
        filed.update(v, overwrite=True)
    grid = TileGrid(40, 16)
    mixed = memory_store(grid, [FORMATS["fp64"] if i == j else FORMATS["fp32"] for i, j in grid.tiles()])
    write_factor(np.eye(40), mixed)
    with factor_over(mixed) as narrow:
        with pytest.raises(ValueError, match="mixed precision"):
            narrow.update(v, overwrite=True)
        with narrow.update(v) as wide:
            assert wide.formats == {"fp64": 6}
    with factor_in("memory", np.eye(40), 16, tmp_path) as factor:
        twin = copy.copy(factor)
        with pytest.raises(ValueError, match="copies"):
            factor.update(v, overwrite=True)
        twin.close()
        with pytest.raises(ValueError, match="two places"):
            factor.update(v, store=tmp_path / "x", overwrite=True)
        factor.update(v, overwrite=True).close()


def test_a_second_l_that_memory_does_not_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updating, "free_host_bytes", lambda: 1000)
    with factor_in("memory", np.eye(40), 16, tmp_path) as factor:
        with pytest.raises(BudgetError, match="overwrite=True"):
            factor.update(np.ones(40))
        factor.update(np.ones(40), overwrite=True).close()


def test_memory_is_v_and_three_tiles(tmp_path: Path) -> None:
    n, nb, k = 1500, 100, 2
    factor_in("file", np.eye(n), nb, tmp_path).close()
    v = np.ones((n, k)) / n
    with load(tmp_path / "L.ooc") as factor:
        tracemalloc.start()
        factor.update(v, store=tmp_path / "new.ooc").close()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # three tiles, V, rows of a product for each strip, orthogonal matrices of a tile column, the header of the file and Python
    assert peak <= 4 * nb * nb * 8 + 3 * n * k * 8 + 8 * (nb // 32 + 1) * (32 + k) ** 2 + 400_000
    assert peak < 0.1 * n * n / 2 * 8


@pytest.mark.parametrize(
    ("v", "error"),
    [
        (np.ones(39), ValueError),
        (np.ones(40, complex), TypeError),
        (np.full(40, np.nan), ValueError),
        (np.ones((40, 1, 1)), ValueError),
    ],
)
def test_wrong_columns_are_refused(v: Any, error: type[Exception], tmp_path: Path) -> None:
    with factor_in("memory", np.eye(40), 16, tmp_path) as factor:
        for method in (factor.update, factor.downdate):
            with pytest.raises(error):
                method(v)
        assert np.array_equal(np.asarray(factor), np.eye(40))


def test_a_failure_while_l_is_overwritten_closes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factor = factor_in("memory", np.eye(40), 16, tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(factor_module, "sweep", fail)
    with pytest.raises(KeyboardInterrupt):
        factor.update(np.ones(40), overwrite=True)
    assert factor.closed
