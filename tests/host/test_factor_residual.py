"""The sampled residual: as exact as it says, wherever it looks, and never content with a wrong factor."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from ooc_chol import CholeskyFactor, from_function
from ooc_chol.errors import NonFiniteError
from tests.builders import factor_over, memory_store
from tests.host.stored_factors import factor_in, lapack_factor, random_spd, write_factor
from tests.inside.dense import _choose_blocks, blocks_worth_a_factorization, load, sample_residual
from tests.inside.tasks import TileGrid
from tests.tolerances import FACTOR_ENTRY_C, factor_entry_bound, unit_roundoff

U = unit_roundoff(np.float64)
_BITS = 1100  # float64 times 2**1100 is an integer


def integers(x: NDArray[np.float64]) -> NDArray[np.object_]:
    """``x * 2**1100`` as exact integers."""

    def exact(value: float) -> int:
        numerator, denominator = value.as_integer_ratio()
        return (numerator << _BITS) // denominator

    return np.vectorize(exact, otypes=[object])(x)


def exact_residual(a: NDArray[np.float64], l_rows: NDArray[np.float64], l_cols: NDArray[np.float64]) -> NDArray[np.float64]:
    """``a - l_rows @ l_cols.T`` in integers, rounded once."""
    difference = (integers(a) << _BITS) - integers(l_rows) @ integers(l_cols).T
    return np.vectorize(lambda value: value / (1 << (2 * _BITS)), otypes=[float])(difference)


class RowsOf:
    """A factor that is only rows: what the sampled residual asks for."""

    def __init__(self, l_dense: NDArray[np.float64], nb: int) -> None:
        self.grid = TileGrid(len(l_dense), nb)
        self.l_dense = l_dense

    def rows(self, rows: range, stop: int) -> NDArray[np.float64]:
        return self.l_dense[rows.start : rows.stop, :stop].copy()


def factor_of(a: NDArray[np.float64], nb: int) -> CholeskyFactor:
    store = memory_store(TileGrid(len(a), nb))
    write_factor(lapack_factor(a), store)
    return factor_over(store)


def reader(a: NDArray[np.float64]) -> Callable[[slice, slice], NDArray[np.float64]]:
    return lambda rows, cols: a[rows, cols]


# accuracy


@given(n=st.integers(1, 30), nb=st.integers(1, 30), spread=st.sampled_from([0, 8, 60]), seed=st.integers(0, 2**32 - 1))
def test_the_largest_residual_is_that_of_exact_arithmetic(n: int, nb: int, spread: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    l_dense = np.tril(rng.standard_normal((n, n)) * 2.0 ** rng.integers(-spread, spread + 1, (n, n)))
    l_dense[np.diag_indices(n)] += 1.0
    a = l_dense @ l_dense.T
    exact = np.tril(exact_residual(a, l_dense, l_dense))
    scaled = np.abs(exact) / (U * np.sqrt(a.diagonal())[:, None] * np.sqrt(a.diagonal())[None, :])
    sample = sample_residual(reader(a), RowsOf(l_dense, nb), order=7)
    assert abs(sample.max_scaled - scaled.max()) <= sample.floor + 8 * U * scaled.max()
    assert sample.floor * U <= 1e-19
    assert sample.entries == n * (n + 1) // 2
    assert math.isclose(
        sample.classical, np.linalg.norm(exact) / np.linalg.norm(np.tril(a)) / (n * U), rel_tol=1e-9, abs_tol=1e-12
    )


class LongRows:
    """Rows of a factor of order 9000 that is never whole in memory: row i repeats row ``i % 12`` of a small strip."""

    def __init__(self) -> None:
        self.grid = TileGrid(9000, 4096)
        self.strip = np.random.default_rng(8).standard_normal((12, 9000))

    def rows(self, rows: range, stop: int) -> NDArray[np.float64]:
        return np.where(np.arange(stop) <= np.asarray(rows)[:, None], self.strip[np.asarray(rows) % 12, :stop], 0.0)

    def matrix(self, rows: slice, cols: slice) -> NDArray[np.float64]:
        """The block of ``L @ L.T``; an entry is rounded alike in every block, which a GEMM does not promise."""
        l_rows, l_cols = (self.rows(range(part.start, part.stop), 9000) for part in (rows, cols))
        return np.asarray((l_rows[:, None, :] * l_cols[None, :, :]).sum(axis=-1))


@pytest.mark.parametrize("seed", range(3))
def test_the_floor_stays_low_over_long_rows(seed: int) -> None:
    factor = LongRows()
    sample = sample_residual(factor.matrix, factor, blocks=12, order=6, seed=seed)
    row, col = (slice(i, i + 1) for i in sample.worst)
    l_row, l_col = (factor.rows(range(i, i + 1), 9000) for i in sample.worst)
    exact = abs(float(exact_residual(factor.matrix(row, col), l_row, l_col)[0, 0]))
    expected = exact / (U * math.sqrt(factor.matrix(row, row)[0, 0]) * math.sqrt(factor.matrix(col, col)[0, 0]))
    assert 0.1 < expected < 1000.0
    assert abs(sample.max_scaled - expected) <= sample.floor + 8 * U * expected
    assert sample.floor * U <= 1e-19


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 300])
def test_lapacks_factor_keeps_the_bound(n: int) -> None:
    a = random_spd(n, seed=n, condition=1e10)
    sample = factor_of(a, 50).residual(a)
    assert sample.max_scaled <= factor_entry_bound(n, 1.0, 1.0) / U
    assert sample.max_scaled_over_sqrt_n == sample.max_scaled / math.sqrt(n)
    assert "floor" in str(sample)


def test_rows_scaled_by_huge_and_tiny_powers_change_nothing() -> None:
    n = 130
    a = random_spd(n, seed=9)
    l_dense = lapack_factor(a)
    powers = np.random.default_rng(1).integers(-498, 498, n)  # about 10**-150 to 10**150
    plain = sample_residual(reader(a), RowsOf(l_dense, 40))
    scaled_l = np.ldexp(l_dense, powers[:, None])
    scaled_a = np.ldexp(a, powers[:, None] + powers[None, :])
    scaled = sample_residual(reader(scaled_a), RowsOf(scaled_l, 40))
    assert (scaled.max_scaled, scaled.worst) == (plain.max_scaled, plain.worst)
    assert math.isfinite(scaled.classical)


# what a wrong factor looks like


@pytest.mark.parametrize("place", [(0, 0), (128, 100), (199, 0), (199, 199), (70, 69)])
def test_one_wrong_entry_of_l_is_found_and_named(place: tuple[int, int]) -> None:
    a = random_spd(200, seed=10, condition=10.0)
    l_dense = lapack_factor(a)
    assert sample_residual(reader(a), RowsOf(l_dense, 64)).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
    l_dense[place] += 1e-11
    sample = sample_residual(reader(a), RowsOf(l_dense, 64))
    assert sample.max_scaled_over_sqrt_n > FACTOR_ENTRY_C
    assert place[0] in sample.worst
    assert sample.classical < 100  # as said: no test


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_nonsense_in_l_never_passes(value: float) -> None:
    a = random_spd(100, seed=11)
    l_dense = lapack_factor(a)
    l_dense[80, 3] = value
    assert not sample_residual(reader(a), RowsOf(l_dense, 64)).max_scaled_over_sqrt_n <= FACTOR_ENTRY_C


# the sample


@given(n=st.integers(600, 5000), nb=st.integers(1, 700), blocks=st.integers(4, 40), seed=st.integers(0, 100))
def test_blocks_are_stratified_seeded_and_inside(n: int, nb: int, blocks: int, seed: int) -> None:
    grid = TileGrid(n, nb)
    chosen = list(_choose_blocks(grid, blocks, 64, seed))
    assert chosen == list(_choose_blocks(grid, blocks, 64, seed))
    assert len(chosen) == blocks
    for rows, cols in chosen:
        assert 0 <= cols.start <= rows.start <= n - 64
        assert len(rows) == len(cols) == 64
    assert all(rows == cols for rows, cols in chosen[0::4])
    assert all(rows.stop == n for rows, _ in chosen[2::4])
    for spans in chosen[1::4]:
        for span in spans:
            boundary = any(start % nb == 0 for start in range(span.start, span.stop + 1))
            assert boundary or span.start == 0 or span.stop == n


def test_another_seed_looks_elsewhere() -> None:
    grid = TileGrid(3000, 256)
    assert list(_choose_blocks(grid, 20, 64, 0)) != list(_choose_blocks(grid, 20, 64, 1))


def test_a_small_matrix_is_computed_as_a_whole() -> None:
    covered = np.zeros((130, 130), dtype=int)
    for rows, cols in _choose_blocks(TileGrid(130, 50), 6, 64, 0):
        covered[rows.start : rows.stop, cols.start : cols.stop] += 1
    assert (covered[np.tril_indices(130)] == 1).all()


@pytest.mark.parametrize("options", [{"blocks": 0}, {"order": 0}])
def test_empty_samples_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        sample_residual(reader(np.eye(4)), RowsOf(np.eye(4), 2), **options)


def test_the_usual_sample_costs_at_most_a_factorization() -> None:
    for n in (500, 2000, 4000, 10_000, 200_000):
        blocks = blocks_worth_a_factorization(n)
        assert 8 <= blocks <= 200
        # exact products of 64 rows run at a third of the rate of a factorization, and are not all that a block takes
        flops = blocks * 12 * 64**2 * n * 2 // 3
        assert flops <= n**3 / 3 or blocks == 8
    assert blocks_worth_a_factorization(10_000) == 200


def test_progress_is_told_until_all_blocks_are_done() -> None:
    a = random_spd(300, seed=12)
    told: list[tuple[int, int, float]] = []
    sample = factor_of(a, 64).residual(a, blocks=15, progress=lambda *numbers: told.append(numbers))
    done, total, seconds = zip(*told, strict=True)
    assert sample.blocks == 15
    assert list(done) == sorted(done) and done[-1] == total[-1] == total[0] > 0
    assert list(seconds) == sorted(seconds)


def test_products_of_blocks_take_no_threads_of_blas() -> None:
    """Two threads that wait for each other at every product of 64 rows took 30 times as long on a busy machine."""
    a, seen = random_spd(200, seed=14), []

    def look(rows: slice, cols: slice) -> NDArray[np.float64]:
        seen.extend(info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas")
        return a[rows, cols]

    factor_of(a, 64).residual(look)
    assert set(seen) == {1}


# the matrix


def test_every_kind_of_matrix_gives_the_same_sample(tmp_path: Path) -> None:
    a = random_spd(300, seed=12)
    with factor_in("file", lapack_factor(a), 128, tmp_path) as factor:
        np.save(tmp_path / "a.npy", a)
        upper_nan = a.copy()
        upper_nan[np.triu_indices(300, 1)] = np.nan
        kinds: list[Any] = [
            upper_nan,
            np.asfortranarray(a),
            np.load(tmp_path / "a.npy", mmap_mode="r"),
            tmp_path / "a.npy",
            from_function(300, lambda rows, cols, out, stream: np.copyto(out, a[rows.start : rows.stop, cols.start : cols.stop])),
            reader(a),
            lambda rows, cols: a[rows, cols].tolist(),
        ]
        expected = factor.residual(a, blocks=9, seed=3)
        assert expected.blocks == 9
        for kind in kinds:
            assert factor.residual(kind, blocks=9, seed=3) == expected


def test_wrong_matrices_are_refused() -> None:
    a = random_spd(100, seed=13)
    factor = factor_of(a, 40)
    with pytest.raises(ValueError, match=r"\(99, 99\).*\(100, 100\)"):
        factor.residual(a[:99, :99])
    with pytest.raises(ValueError, match="shape"):
        factor.residual(lambda rows, cols: a[:3, :3])
    spoiled = a.copy()
    spoiled[90, 7] = np.nan
    with pytest.raises(NonFiniteError) as caught:
        factor.residual(spoiled)
    assert (caught.value.row, caught.value.col, caught.value.tile) == (90, 7, (2, 0))
    spoiled = a.copy()
    spoiled[31, 31] = -1.0
    with pytest.raises(ValueError, match=r"A\[31, 31\] is -1\.0"):
        factor.residual(spoiled)


def test_a_sample_of_a_file_reads_rows_and_not_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, nb = 3000, 1500
    a = np.eye(n) + np.full((n, n), 1e-3)
    factor_in("file", lapack_factor(a), nb, tmp_path).close()
    counted = [0]
    real = os.preadv

    def count(descriptor: int, parts: list[memoryview], offset: int) -> int:
        counted[0] += len(parts[0])
        return real(descriptor, parts, offset)

    with load(tmp_path / "L.ooc") as factor:
        monkeypatch.setattr(os, "preadv", count)
        sample = factor.residual(a, blocks=2)
    assert sample.max_scaled_over_sqrt_n <= FACTOR_ENTRY_C
    # Rows are checked by pieces of 1 MiB, which hold the first and the last of them.
    assert 0 < counted[0] <= 2 * 2 * 2 * (64 * nb * 8 + (2 << 20)) < 0.5 * (tmp_path / "L.ooc").stat().st_size
