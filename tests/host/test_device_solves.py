"""Solves, sums over the inverse and products, by the code that runs on devices and by that of the host."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.errors import TierError
from tests.builders import device_solver, factor_over, open_device
from tests.host.device_solves import (
    SHAPES,
    budget_for,
    check_half_solve_sums,
    check_inverse_sums,
    check_product,
    check_solves,
    check_team,
    multiply_by,
    share_all,
    stored,
    symmetric,
    symmetric_source,
)
from tests.host.stored_factors import STORES, random_spd
from tests.host.turns import in_turn
from tests.inside.dense import (
    FileStore,
    device_sweeps,
    half_solve_sums,
    inverse_diagonal,
    inverse_traces,
    multiply_on_each,
    solve,
    solve_there_and_back,
)
from tests.inside.dense import symmetric as symmetric_products
from tests.inside.interfaces import AbstractDevice
from tests.inside.process import team
from tests.inside.runtime import Pass
from tests.tolerances import gamma, product_bound

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")
DEVICE = "host:0"


@pytest.mark.parametrize(("kind", "shape"), in_turn(STORES, SHAPES, each=2))
def test_solves_on_a_device(kind, shape, tmp_path):
    check_solves(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize(("shape", "kind"), in_turn(SHAPES, ["memory", "file"]))
def test_sums_over_the_inverse_on_a_device(kind, shape, tmp_path):
    check_inverse_sums(DEVICE, kind, shape, tmp_path)


@pytest.fixture
def small_teams(monkeypatch):
    share_all(monkeypatch)


@pytest.mark.parametrize(("shape", "kind"), in_turn(SHAPES, ["memory", "file"]))
def test_sums_over_half_solves_on_a_device(kind, shape, tmp_path, small_teams):
    check_half_solve_sums(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize(
    ("shape", "count", "kind"), in_turn(SHAPES, [2, 3], ["memory", "file", "dealt", "dealt rows", "placed rows"])
)
def test_several_devices_solve_to_the_bits_of_one(kind, count, shape, tmp_path, small_teams):
    check_team([f"host:{number}" for number in range(count)], kind, shape, tmp_path)


def test_devices_that_do_not_reach_each_other_solve_to_the_bits_of_one(tmp_path, monkeypatch, small_teams):
    monkeypatch.setattr(AbstractDevice, "reaches", lambda self, other: False)
    check_team(["host:0", "host:1"], "dealt rows", SHAPES[0], tmp_path)


@pytest.mark.parametrize("kind", ["placed", "placed rows"])
@pytest.mark.parametrize("shape", SHAPES)
def test_streams_of_one_device_solve_to_the_bits_of_one(shape, kind, tmp_path, monkeypatch, small_teams):
    n, nb, columns = shape
    _, store = stored(kind, n, nb, tmp_path)
    nt, budget = store.grid.nt, budget_for(DEVICE, store, columns + 8)
    beside = set(range(nt - 2))  # urgent products: what takes its turn with others
    if kind == "placed rows":
        budget += 6 * 8 * 3 * nb * (columns + 8)  # three products for each stream
        beside = {*range(4, nt), *range((nt - 2) // 3)}  # rows of L with more than three tiles; batches that are not the last
    solver, b, answers = device_solver(DEVICE, budget), np.ones((n, columns + 3)), []
    for least_bytes, streams in ((1 << 40, 1), (0, 4)):
        monkeypatch.setattr(device_sweeps, "TEAM_BYTES", least_bytes)
        both, half, back, run = b.copy(), b[:, :1].copy(), b[:, : min(4, columns)].copy(), Pass("", is_traced=True)
        solve(solver, store, both, transposed=(False, True), run=run)
        solve_there_and_back(solver, store, half, back, Pass(""))
        used = {record.stream for record in run.tracks[0].records(0) if record.kind == "compute"}
        assert len(used) == (1 if streams == 1 else 1 + len({turn % streams for turn in beside}))  # an urgent one beside
        answers.append((both, half, back))
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", ["dealt", "dealt rows"])
def test_solves_copy_no_tile_that_lies_where_it_is_used(kind, tmp_path, small_teams):
    _, store = stored(kind, 200, 16, tmp_path)
    team = tuple(device_solver(name, budget_for(name, store, 8 if kind == "dealt" else 80)) for name in store.devices)
    fetched = []
    for system in (False, True):
        run = Pass("", is_traced=True)
        solve(replace(team[0], team=team), store, np.ones((200, 3)), transposed=(system,), run=run)
        fetched.append([record for track in run.tracks for record in track.records(0) if record.kind == "fetch"])
    elsewhere = [(i, k) for i, k in store.grid.tiles() if i // 2 % 2 != k // 2 % 2]
    assert not fetched[0] and len(fetched[1]) == (len(elsewhere) if kind == "dealt" else 0)


@pytest.mark.parametrize("kind", ["memory", "dealt rows"])
def test_a_device_that_fails_in_a_team_is_told_and_the_next_call_is_right(kind, tmp_path, small_teams):
    _, store = stored(kind, 200, 32, tmp_path)
    with closing(store):
        budget = budget_for(DEVICE, store, 8 if kind == "memory" else 80)
        team = tuple(device_solver(f"host:{k}", size) for k, size in enumerate((budget, 1 << 10)))
        b = np.random.default_rng(0).standard_normal((200, 4))
        with pytest.raises(oc.BudgetError, match="host:1"):
            solve(replace(team[0], team=team), store, b.copy(), transposed=(False,), run=Pass(""))
        with pytest.raises(oc.BudgetError, match="host:1"):
            inverse_diagonal(replace(team[0], team=team), store, None, Pass(""))
        x, y = b.copy(), b.copy()
        solve(replace(team[0], team=(team[0], replace(team[0]))), store, x, transposed=(False,), run=Pass(""))
        solve(team[0], store, y, transposed=(False,), run=Pass(""))
    assert np.array_equal(x, y)


@pytest.fixture(params=[False, True], ids=["one thread", "threads"])
def maybe_by_threads(request, monkeypatch):
    """Passes over right-hand sides that are shared by threads, however small, or by none."""
    if request.param:
        monkeypatch.setattr(team, "cores", lambda: 3)
        for name, nbytes in (("_LEAST_SHARED", 0), ("_LEAST_SHARE", 64)):
            monkeypatch.setattr(team, name, nbytes)


def test_half_solves_are_two_half_solves(maybe_by_threads):
    a = random_spd(130, seed=5, condition=100.0)
    factor = oc.cholesky(a, tile_size=32)
    b, c = np.random.default_rng(0).standard_normal((2, 130, 3))
    kept = b.copy(), c.copy()
    y, x = factor.half_solves(b, c)
    assert np.array_equal(y, factor.half_solve(b))
    assert np.array_equal(x, factor.half_solve(np.hstack([y, c]), transposed=True))
    np.testing.assert_allclose(a @ x[:, :3], b, atol=1e-10)
    assert np.array_equal(kept[0], b) and np.array_equal(kept[1], c)
    for wrong in (b[:, 0], b[:5]):
        with pytest.raises(ValueError, match="130"):
            factor.half_solves(wrong, c)
    for place in ((0, 0), (70, 1), (129, 2)):
        spoilt = c.copy()
        spoilt[place] = spoilt[129, 2] = np.nan
        with pytest.raises(ValueError, match=re.escape(str(list(place)))):
            factor.half_solves(b, spoilt)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (300, 9), (2100, 3)])
def test_products_on_a_device(n, m):
    check_product(DEVICE, n, m)


def test_products_on_several_devices_have_the_bits_of_one(monkeypatch):
    for name, rows in (("LEAST_ROWS", 32), ("_DEVICE_TILE", 64)):
        monkeypatch.setattr(symmetric_products, name, rows)
    d, x = symmetric(700, 5), np.random.default_rng(6).standard_normal((600, 9))
    where, names = {"rows": range(30, 700), "columns": range(50, 650)}, [f"host:{number}" for number in range(4)]
    found = [multiply_on_each(names[:count], [symmetric_source(d)], x, 1 << 24, **where)[0] for count in (1, 2, 3, 4)]
    assert (np.abs(found[0] - d[30:, 50:650].astype(np.longdouble) @ x) <= product_bound(d[30:, 50:650], x)).all()
    assert all(np.array_equal(found[0], other) for other in found[1:])
    others = [symmetric_source(symmetric(700, seed)) for seed in (5, 7, 8)]
    for count in (1, 3):  # several matrices in one visit, by groups of columns where few fit
        for budget in (1 << 24, 1 << 16):
            together = multiply_on_each(names[:count], others, x, budget, **where)
            for one, product in zip(others, together, strict=True):
                assert np.array_equal(product, multiply_on_each(names[:1], [one], x, budget, **where)[0])

    def faulty(rows, cols, out, stream):
        assert rows.start < 500, "no such rows"
        out[...] = 0.0

    with pytest.raises(AssertionError, match="no such rows"):
        multiply_on_each(names, [oc.from_function(700, faulty)], x, 1 << 24, **where)


def test_the_factor_gives_the_device_what_is_wide_and_the_host_what_is_narrow(tmp_path):
    a, store = stored("memory", 200, 32, tmp_path)
    opened = []

    def open_counted(name=DEVICE):
        opened.append(name)
        return open_device(name)

    ours = device_solver(DEVICE, 1 << 22)
    with factor_over(store, solver=replace(ours, open_device=open_counted)) as factor:
        b = np.random.default_rng(0).standard_normal((200, 40))
        narrow, wide = factor.solve(b[:, :31]), factor.solve(b)
        assert opened == [DEVICE]
        # one system, two routes: each is a solution of A within a solve's bound of the other
        np.testing.assert_allclose(a @ wide[:, :31], a @ narrow, atol=1e3 * gamma(200) * np.abs(narrow).max())
        factor.half_solve(b, transposed=True)
        factor.inverse_diagonal()
        assert len(opened) == 3
        factor.inverse_traces([symmetric_source(symmetric(200, 1))])
        assert len(opened) == 4
        factor.inverse_traces([oc.from_function(200, symmetric_source(symmetric(200, 1)).function)])
        assert len(opened) == 4


def test_traces_on_the_host_are_those_of_the_device(tmp_path):
    _, store = stored("memory", 700, 100, tmp_path)
    matrices, vectors = [symmetric_source(symmetric(700, seed)) for seed in (1, 2)], np.arange(1400.0).reshape(700, 2)
    device = inverse_traces(device_solver(DEVICE, 1 << 24), store, matrices, vectors=vectors, run=Pass(""))
    with factor_over(store) as factor:
        host = factor.inverse_traces(matrices, vectors)
    # sums of 490,000 terms in two orders, whose magnitudes are far above the sums
    for ours, theirs in ((device.products, host.products), (device.forms, host.forms), (device.diagonal, host.diagonal)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize("width", [None, 1, 7, 1000])
def test_sums_over_half_solves_on_the_host_are_those_of_the_device(width, tmp_path):
    _, store = stored("memory", 600, 100, tmp_path)
    joint, vectors = symmetric_source(symmetric(640, 1)), np.arange(1200.0).reshape(600, 2)
    device = half_solve_sums(
        device_solver(DEVICE, 1 << 24), store, joint, range(600, 640), vectors=vectors, width=None, run=Pass("")
    )
    with factor_over(store) as factor:
        host = factor.half_solve_sums(joint, range(600, 640), vectors, width=width)
        assert factor.half_solve_sums(joint, range(600, 600), vectors).products.shape == (0, 2)
        y = factor.half_solve(symmetric(640, 1)[:600, 600:])
    np.testing.assert_allclose(host.squares, np.sum(y**2, axis=0), rtol=1e-8)
    for ours, theirs in ((device.squares, host.squares), (device.products, host.products)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())


def test_a_product_on_the_host():
    d, x = symmetric(1100, 7), np.random.default_rng(8).standard_normal((1100, 3))
    y = oc.symm(symmetric_source(d), x, devices=DEVICE)
    assert (np.abs(y - d.astype(np.longdouble) @ x) <= product_bound(d, x)).all()
    np.testing.assert_allclose(oc.symm(symmetric_source(d), x[:, 1], devices=DEVICE), y[:, 1], rtol=1e-9)
    assert oc.symm(symmetric_source(d), np.empty((1100, 0)), devices=DEVICE).shape == (1100, 0)
    both = oc.symm([symmetric_source(symmetric(1100, 9)), symmetric_source(d)], x, devices=DEVICE)
    assert len(both) == 2 and np.array_equal(both[1], y)
    assert [each.shape for each in oc.symm([symmetric_source(d)], x[:, 1], devices=DEVICE)] == [(1100,)]


def test_budgets_that_hold_no_column_say_what_would_do(tmp_path):
    _, store = stored("memory", 100, 16, tmp_path)
    least = budget_for(DEVICE, store, 1)
    b = np.ones((100, 1))
    solve(device_solver(DEVICE, least), store, b, transposed=(False,), run=Pass(""))
    with pytest.raises(oc.BudgetError, match="right-hand side") as refused:
        solve(device_solver(DEVICE, 5000), store, b, transposed=(False,), run=Pass(""))
    solve(device_solver(DEVICE, refused.value.needed_bytes), store, b, transposed=(False,), run=Pass(""))
    with pytest.raises(oc.BudgetError, match="no column beside a tile"), closing(open_device(DEVICE)) as opened:
        multiply_by(opened, symmetric(50, 1), (np.ones((50, 1)), np.ones((50, 1))), 1000)


@pytest.mark.parametrize(
    "use",
    [
        lambda ours, store: solve(ours, store, np.ones((100, 3)), transposed=(False,), run=Pass("")),
        lambda ours, store: inverse_diagonal(ours, store, None, Pass("")),
        lambda ours, store: inverse_traces(ours, store, [], vectors=np.empty((100, 0)), run=Pass("")),
    ],
    ids=["solve", "inverse_diagonal", "inverse_traces"],
)
def test_a_file_cut_during_a_sweep_is_an_error(use, tmp_path):
    _, store = stored("file", 100, 16, tmp_path)
    ours, path = device_solver(DEVICE, budget_for(DEVICE, store, 10)), tmp_path / "L.ooc"
    assert isinstance(store, FileStore)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with closing(store), pytest.raises(TierError):
        use(ours, store)


def test_what_is_no_matrix_or_no_vector_is_refused(tmp_path: Path):
    with oc.cholesky(np.eye(5)) as factor:
        with pytest.raises(TypeError, match="from_function"):
            factor.inverse_traces([np.eye(5)])
        with pytest.raises(ValueError, match="order 4"):
            factor.inverse_traces([symmetric_source(np.eye(4))])
        with pytest.raises(ValueError, match="right-hand side"):
            factor.inverse_traces([symmetric_source(np.eye(5))], np.ones((4, 1)))
        with pytest.raises(TypeError, match="from_function"):
            factor.half_solve_sums(np.eye(7), range(5, 7))
        with pytest.raises(ValueError, match="not inside a matrix of order 6"):
            factor.half_solve_sums(symmetric_source(np.eye(6)), range(5, 7))
        with pytest.raises(ValueError, match="at least 1 column"):
            factor.half_solve_sums(symmetric_source(np.eye(7)), range(5, 7), width=0)
    with pytest.raises(TypeError, match="from_function"):
        oc.symm(np.eye(5), np.ones(5))
    with pytest.raises(TypeError, match=r"A\[1\] is a ndarray"):
        oc.symm([symmetric_source(np.eye(5)), np.eye(5)], np.ones(5))
    with pytest.raises(ValueError, match=r"A\[1\] has order 4"):
        oc.symm([symmetric_source(np.eye(5)), symmetric_source(np.eye(4))], np.ones(5))
    with pytest.raises(ValueError, match="empty"):
        oc.symm([], np.ones(5))
    with pytest.raises(ValueError, match="right-hand side"):
        oc.symm(symmetric_source(np.eye(5)), np.ones(4), devices=DEVICE)


@pytest.mark.parametrize("name", ["symm", "half_solve_sums", "inverse_traces"])
def test_a_function_that_fills_nothing_is_found(name):
    def wrong(rows, cols, out, stream):
        out = np.ones(out.shape)

    source = oc.from_function(8, wrong)
    with (
        oc.cholesky(np.eye(5)) as factor,
        pytest.raises(oc.errors.NonFiniteError, match=r"\[0, .\] is NaN after .*wrong.* in place"),
    ):
        if name == "symm":
            oc.symm(source, np.ones(8), devices=DEVICE)
        elif name == "half_solve_sums":
            factor.half_solve_sums(source, range(5, 8))
        else:
            factor.inverse_traces([oc.from_function(5, wrong)])
