"""What solves, sums over the inverse and products promise on any device: checks that host and GPU share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.builders import device_solver, open_device, page_locked
from tests.host.stored_factors import STORES, lapack_factor, random_spd, write_factor
from tests.inside.dense import (
    AbstractStore,
    MemoryStore,
    columns_that_fit,
    device_sweeps,
    half_solve_sums,
    inverse_diagonal,
    inverse_traces,
    multiply_on,
    solve,
    solve_there_and_back,
    team_sweeps,
    tile_order,
    trace_sums,
)
from tests.inside.ground import whole_pages
from tests.inside.kernels import TileDevice
from tests.inside.memory import FunctionSource
from tests.inside.runtime import Pass
from tests.inside.tasks import TileGrid
from tests.tolerances import gamma, product_bound, solve_bound, trsm_bound


class DealtStore(MemoryStore):
    """A store whose tile rows lie on two devices, as those of an L that stays on the GPUs that made it."""

    devices = ("host:0", "host:1")

    def tile_on(self, device, index):
        return self.view(index) if device == self.devices[index[0] // 2 % len(self.devices)] else None


class PlacedStore(DealtStore):
    """A store that lies on one device."""

    devices = ("host:0",)


class RowStore(DealtStore):
    """A store whose devices find the tiles of a row in one array, between numbers that nobody may read."""

    def row_on(self, device, i):
        if self.tile_on(device, (i, i)) is None:
            return None
        rows, columns = self.grid.shape(i, 0)
        row = np.full((i, rows * columns + 5), np.nan)
        for j in range(i):
            row[j, : rows * columns] = self.view((i, j)).ravel()
        return row[:, : rows * columns].reshape(i, rows, columns)


class PlacedRowStore(RowStore):
    """Such a store on one device."""

    devices = ("host:0",)


#: Where solves on devices find L.
PLACES = STORES | {
    "dealt": lambda grid, folder: DealtStore(grid),
    "placed": lambda grid, folder: PlacedStore(grid),
    "dealt rows": lambda grid, folder: RowStore(grid),
    "placed rows": lambda grid, folder: PlacedRowStore(grid),
}

#: Orders, tile orders and columns that fit beside the tiles in transit; ragged last tiles and one tile among them.
SHAPES = [(200, 32, 200), (200, 32, 7), (45, 64, 45), (1, 8, 1), (130, 64, 50), (200, 16, 20)]


def share_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let several devices share solves and sums of any size, in small blocks of columns and batches of few tiles."""
    monkeypatch.setattr(device_sweeps, "TEAM_BYTES", 0)
    for module in (device_sweeps, team_sweeps):
        monkeypatch.setattr(module, "BATCH", 3)
    monkeypatch.setattr(team_sweeps, "MOST_IN_BATCHES", 1000)
    for name, columns in (("_LEAST_COLUMNS", 4), ("_MOST_COLUMNS", 16), ("_ALIGNED", 2)):
        monkeypatch.setattr(trace_sums, name, columns)


def budget_for(device: str, store: AbstractStore, columns: int) -> int:
    """Bytes that hold so many columns for every kind of pass, and no tile of L beyond those in transit."""
    n, nb = store.grid.n, store.grid.size(0)
    # what a pass over the inverse needs beside columns: two vectors, a tile's rows of them, and results
    others = 8 * (4 * n + nb + 8 * (-(-n // nb) + 2))
    with closing(open_device(device)) as opened:
        low, high = 0, 1 << 40
        while high - low > 1:  # the least budget that holds them
            middle = (low + high) // 2
            try:
                fits = columns_that_fit(opened, store, middle, column_bytes=8 * (n + nb), others=others) >= columns
            except oc.BudgetError:
                fits = False
            low, high = (low, middle) if fits else (middle, high)
    return high


def stored(kind: str, n: int, nb: int, folder: Path) -> tuple[NDArray[np.float64], AbstractStore]:
    """An ill-conditioned matrix, and its factor in a store."""
    a = random_spd(n, seed=n, condition=1e9)
    store = PLACES[kind](TileGrid(n, nb), folder)
    write_factor(lapack_factor(a), store)
    return a, store


def symmetric_source(d: NDArray[np.float64]) -> FunctionSource:
    """A matrix as a tile function, for the host and for CUDA devices."""

    def host(rows: range, cols: range, out: NDArray[np.float64], stream: object) -> None:
        out[...] = d[rows.start : rows.stop, cols.start : cols.stop]

    code = """extern "C" __global__ void entries(double* out, int rows, int cols, long long row0, long long col0, const double* d,
                                               long long n) {
        const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
        if (r < rows && c < cols) out[(long long)r * cols + c] = d[(row0 + r) * n + col0 + c];
    }"""
    return oc.from_function(len(d), host, cuda=tb.cuda_source(code, "entries", np.ascontiguousarray(d), np.int64(len(d))))


def symmetric(n: int, seed: int) -> NDArray[np.float64]:
    """A symmetric matrix of normal entries."""
    entries = np.random.default_rng(seed).standard_normal((n, n))
    return entries + entries.T


def check_solves(device: str, kind: str, shape: tuple[int, int, int], folder: Path) -> None:
    """Both systems are solved row-wise backward stably, all in place, also when the columns come in groups."""
    n, nb, columns = shape
    a, store = stored(kind, n, nb, folder)
    b = np.random.default_rng(1).standard_normal((n, columns + columns // 2 + 1))
    with closing(store):
        ours = device_solver(device, budget_for(device, store, columns))
        forward, both = b.copy(), b.copy()
        solve(ours, store, forward, transposed=(False,), run=Pass(""))
        solve(ours, store, both, transposed=(False, True), run=Pass(""))
        l_dense = lapack_factor(a)
        for transposed in (False, True):
            check_what_is_left(ours, store, l_dense, b, transposed=transposed)
    residual = np.abs(forward.T.astype(np.longdouble) @ l_dense.T.astype(np.longdouble) - b.T)
    assert (residual <= trsm_bound(forward.T, l_dense)).all()
    left = b - (a.astype(np.longdouble) @ both.astype(np.longdouble)).astype(float)
    norm = float(np.linalg.norm(a, 2))
    for r, x in zip(left.T, both.T, strict=True):
        assert np.linalg.norm(r) <= solve_bound(n, norm, float(np.linalg.norm(x)))


def check_what_is_left(
    solver: object, store: AbstractStore, l_dense: NDArray[np.float64], b: NDArray[np.float64], *, transposed: bool
) -> None:
    """A solve tells what it leaves of right-hand sides, as far as rounding off the diagonal lets it."""
    x, left = b.copy(), np.full_like(b, np.nan)
    solve(solver, store, x, transposed=(transposed,), run=Pass(""), left=left)
    system = (l_dense.T if transposed else l_dense).astype(np.longdouble)
    assert (np.abs(left - (b - system @ x)) <= product_bound(np.column_stack([system, np.eye(len(x))]), np.vstack([x, b]))).all()


def check_inverse_sums(device: str, kind: str, shape: tuple[int, int, int], folder: Path) -> None:
    """Diagonal and traces are those of the inverse, and forms those of the vectors, however many columns fit."""
    n, nb, columns = shape
    a, store = stored(kind, n, nb, folder)
    matrices = [symmetric(n, seed) for seed in (2, 3)]
    vectors = np.random.default_rng(4).standard_normal((n, 2))
    with closing(store):
        ours = device_solver(device, budget_for(device, store, columns))
        diagonal = inverse_diagonal(ours, store, None, Pass(""))
        narrow = inverse_diagonal(ours, store, 5, Pass(""))
        found = inverse_traces(ours, store, [symmetric_source(d) for d in matrices], vectors=vectors, run=Pass(""))
        alone = inverse_traces(ours, store, [], vectors=np.empty((n, 0)), run=Pass(""))
    inverse = np.linalg.inv(a)
    # a residual within a solve's bound is an error of ||inv(A)|| times that in each column; twice, for both inverses
    norms = np.linalg.norm(inverse, axis=0)
    errors = 2 * np.linalg.norm(inverse, 2) * np.array([solve_bound(n, float(np.linalg.norm(a, 2)), x) for x in norms])
    for each in (diagonal, narrow):
        assert (np.abs(each - inverse.diagonal()) <= errors).all()
    for each in (found.diagonal, alone.diagonal):
        assert (np.abs(each - inverse.diagonal()) <= errors).all()
    assert alone.products.shape == (0,) and alone.forms.shape == (0, 0)
    for number, d in enumerate(matrices):
        rounding = gamma(n * n) * np.sum(np.abs(inverse) * np.abs(d))
        assert abs(found.products[number] - np.sum(inverse * d)) <= errors @ np.linalg.norm(d, axis=0) + rounding
        sizes = np.einsum("iq,ij,jq->q", np.abs(vectors), np.abs(d), np.abs(vectors))
        expected = np.einsum("iq,ij,jq->q", vectors, d, vectors)
        assert (np.abs(found.forms[number] - expected) <= 2 * gamma(2 * n) * sizes).all()


def check_half_solve_sums(device: str, kind: str, shape: tuple[int, int, int], folder: Path) -> None:
    """Squares and products are those of the half solve, however many columns fit or are asked for at a time."""
    n, nb, columns = shape
    a, store = stored(kind, n, nb, folder)
    m = columns + columns // 2 + 1
    joint, vectors = symmetric(n + m, seed=7), np.random.default_rng(8).standard_normal((n, 2))
    with closing(store):
        ours = device_solver(device, budget_for(device, store, columns) + 8 * 3 * (n + m))
        b, columns_of_b = symmetric_source(joint), range(n, n + m)
        found = [
            half_solve_sums(ours, store, b, columns_of_b, vectors=vectors, width=width, run=Pass(""))
            for width in (None, 3, 10**6)
        ]
        alone = half_solve_sums(ours, store, b, columns_of_b, vectors=np.empty((n, 0)), width=None, run=Pass(""))
    l_dense = lapack_factor(a)
    y = np.linalg.solve(l_dense.astype(float), joint[:n, n:])
    # row-wise backward stable: an error of inv(|L|) times the bound of each row, for both solutions
    inverse = np.linalg.inv(l_dense)
    errors = 2 * np.abs(inverse) @ trsm_bound(y.T, l_dense).T.astype(float)
    squares = np.sum(y**2, axis=0)
    bounds = 2 * np.sum(np.abs(y) * errors, axis=0) + np.sum(errors**2, axis=0) + gamma(n) * squares
    products = np.abs(vectors).T @ errors + gamma(n) * (np.abs(vectors).T @ np.abs(y))
    assert alone.products.shape == (m, 0)
    for each in (*found, alone):
        assert (np.abs(each.squares - squares) <= bounds).all()
    for each in found:
        assert (np.abs(each.products - y.T @ vectors) <= products.T).all()


def check_product(device: str, n: int, m: int) -> None:
    """The product is accurate entry by entry, also when the columns come in groups."""
    d, x = symmetric(n, seed=5), np.random.default_rng(6).standard_normal((n, m))
    with closing(open_device(device)) as opened:
        tile = min(n, 2048)
        least = opened.kernels.workspace_bytes(tile) + 16 * tile**2 + 16384
    for budget in (least + 8 * (n + 2 * tile), least + 8 * (n + 2 * tile) * (m // 2 + 1)):
        y = np.full_like(x, np.nan)
        with page_locked(device, filled=[x, y]), closing(open_device(device)) as opened, opened.current():
            multiply_by(opened, d, (x, y), budget)
        assert (np.abs(y - (d.astype(np.longdouble) @ x)) <= product_bound(d, x)).all()
    rows, columns = range(n // 3, n), range(n // 4, n - n // 5)
    part, right = d[rows.start :, columns.start : columns.stop], np.ascontiguousarray(x[: len(columns)])
    found = oc.symm(symmetric_source(d), right, rows=rows, columns=columns, devices=device)
    assert found.shape == (len(rows), m)
    assert (np.abs(found - (part.astype(np.longdouble) @ right)) <= product_bound(part, right)).all()
    with pytest.raises(ValueError, match="not inside"):
        oc.symm(symmetric_source(d), right, rows=range(n + 1), columns=columns, devices=device)


def multiply_by(
    opened: TileDevice,
    d: NDArray[np.float64],
    arrays: tuple[NDArray[np.float64], NDArray[np.float64]],
    budget: int,
) -> None:
    """``y = d @ x`` on one device."""
    nb, whole = tile_order(budget, len(d)), range(len(d))
    for _ in multiply_on(
        opened, [symmetric_source(d)], (arrays[0], arrays[1][np.newaxis]), budget, nb=nb, rows=whole, columns=whole
    ):
        pass


def check_team(devices: Sequence[str], kind: str, shape: tuple[int, int, int], folder: Path) -> None:
    """Several devices solve to the bits of one, whichever tiles they keep, and their sums have the bits of one."""
    n, nb, columns = shape
    _, store = stored(kind, n, nb, folder)
    b = np.random.default_rng(1).standard_normal((n, columns + 3))
    joint, derivative = symmetric_source(symmetric(n + 50, 1)), [symmetric_source(symmetric(n, 2))]
    with closing(store):
        budget = budget_for(devices[0], store, columns + 8) + 8 * 3 * 50  # sums of the border
        if "rows" in kind:
            budget += 4 * 8 * 3 * nb * (columns + 8)  # batches of products, so that as many columns fit
        for kept in (0, 3):
            team = tuple(device_solver(name, budget + kept * whole_pages(8 * nb * nb)) for name in devices)
            answers = []
            for solver in (team[0], replace(team[0], team=team)):
                forward, both, half = b.copy(), b.copy(), b[:, :1].copy()
                back = b[:, : min(4, columns + 3)].copy()
                solve(solver, store, forward, transposed=(False,), run=Pass(""))
                solve(solver, store, both, transposed=(False, True), run=Pass(""))
                solve_there_and_back(solver, store, half, back, Pass(""))
                diagonal = inverse_diagonal(solver, store, 5, Pass(""))
                border = {"vectors": b[:, :2].copy(), "run": Pass("")}
                traces = inverse_traces(solver, store, derivative, **border)
                sums = half_solve_sums(solver, store, joint, range(n, n + 50), width=None, **border)
                checked, left = b.copy(), np.full_like(b, np.nan)
                solve(solver, store, checked, transposed=(True,), run=Pass(""), left=left)
                answers.append((forward, both, half, back, diagonal, *traces, *sums, checked, left))
            for one, other in zip(*answers, strict=True):
                assert np.array_equal(one, other)
