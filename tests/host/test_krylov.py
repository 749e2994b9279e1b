"""Spaces of NumPy arrays, and bases on them: what their methods promise, and restarts that can be taken up again."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol import Precision
from tests.host.eigen_matrices import BLOCKS, with_spectrum
from tests.inside.eigen import KrylovBasis, Lanczos, OperatorSpace, Wanted
from tests.inside.tasks import CHUNK_ROWS
from tests.tolerances import gamma, unit_roundoff

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

N = CHUNK_ROWS + 700  # two chunks


def space_of(precision, block=4, capacity=5, n=N):
    d = np.linspace(-1, 1, n)[:, None]
    return OperatorSpace(lambda x: (d * x).astype(x.dtype), n, block=block, capacity=capacity, precision=precision)


def filled(space, panels):
    """Random columns in panels, not orthonormal, as the space holds them."""
    for panel in panels:
        space.fill(panel + 1)
        space.store(panel)
    return space.take(panels)


@pytest.mark.parametrize("precision", Precision)
def test_a_projection_leaves_what_is_orthogonal(precision):
    space = space_of(precision)
    for panel in range(3):
        space.fill(panel)
        space.orthonormalize(panel, f"R{panel}", range(panel))
    space.fill(7)
    space.store(4)
    w = space.take(range(4, 5))
    space.project(range(3), "C")
    space.store(3)
    basis, left, c = space.take(range(3)), space.take(range(3, 4)), space.read()["C"]
    bound = gamma(N, precision.compute) + 8 * unit_roundoff(precision.storage)
    norms = np.linalg.norm(w, axis=0)
    assert np.all(np.abs(basis.T @ w - c) <= bound * norms)
    assert np.all(np.abs(w - basis @ c - left) <= bound * norms)
    assert np.all(np.abs(basis.T @ left) <= bound * norms)
    assert np.abs(basis.T @ basis - np.eye(12)).max() <= 16 * bound


@pytest.mark.parametrize("precision", Precision)
def test_columns_that_depend_are_replaced(precision):
    space = space_of(precision)
    space.fill(1)
    space.orthonormalize(0, "first", range(0))
    v0 = space.take(range(1))
    x = np.random.default_rng(0).standard_normal((N, 4))
    x -= v0 @ (v0.T @ x)
    x[:, 2] = -2 * x[:, 0]
    x[:, 3] = v0[:, 0]  # lies in what it must be orthogonal to
    space.bring(x)
    space.orthonormalize(1, "R", range(1))
    r, v = space.read()["R"], space.take(range(2))
    assert np.array_equal(r, np.triu(r))
    assert not r[2:].any()
    assert np.abs(v.T @ v - np.eye(8)).max() <= 64 * unit_roundoff(precision.storage) + gamma(N, precision.compute)
    kept = np.linalg.norm(x[:, :3] - v[:, 4:6] @ r[:2, :3], axis=0)
    assert np.all(
        kept <= (64 * unit_roundoff(precision.storage) + gamma(N, precision.compute)) * np.linalg.norm(x[:, :3], axis=0)
    )


def test_nearly_dependent_columns_keep_what_sets_them_apart():
    space = space_of(Precision.DDD)
    x = np.random.default_rng(0).standard_normal((N, 4))
    x[:, 1:] = x[:, :1] + 1e-11 * x[:, 1:]
    space.bring(x)
    space.orthonormalize(0, "R", range(0))
    r, v = space.read()["R"], space.take(range(1))
    assert np.all(np.diag(r) > 0)
    assert np.abs(v.T @ v - np.eye(4)).max() <= 1e-13
    assert np.abs(v @ r - x).max() <= 1e-14 * np.abs(x).max()


@pytest.mark.parametrize("precision", Precision)
def test_rotations_residuals_and_products(precision):
    space = space_of(precision)
    basis = filled(space, range(4))
    s = np.random.default_rng(1).standard_normal((16, 8))
    space.rotate(range(4), s, range(2))
    bound = 32 * unit_roundoff(precision.storage)
    rotated = space.take(range(2))
    assert np.abs(basis @ s - rotated).max() <= bound * np.abs(s).sum(axis=0).max()
    values = np.linspace(-1, 1, 8)
    d = np.linspace(-1, 1, N)[:, None]
    exact = np.linalg.norm(d * rotated - rotated * values, axis=0) / np.linalg.norm(rotated, axis=0)
    assert space.residuals(range(2), values.tolist()) == pytest.approx(exact, rel=1e-12)
    space.product(1)
    space.store(4)
    assert np.abs(d * rotated[:, 4:] - space.take(range(4, 5))).max() <= bound * np.abs(rotated).max()
    assert space.passes == 3


def test_random_columns_depend_on_seed_row_and_column_alone():
    wide, narrow = space_of(Precision.DDD, block=4), space_of(Precision.DDD, block=1, n=100)
    one, other = filled(wide, range(1)), filled(narrow, range(1))
    assert np.array_equal(one[:100, :1], other)
    assert np.abs(one).max() <= 1 and not np.array_equal(one[:, 0], one[:, 1])


# bases


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("width", [1, 3])
def test_a_basis_knows_its_products(block, width):
    """``A V[done] = V H``, before restarts and after, with one panel in the frontier or more."""
    n = 400
    a = with_spectrum(np.linspace(-1, 2, n))
    space = OperatorSpace(lambda x: a @ x, n, block=block, capacity=16)
    basis = KrylovBasis(space)
    for seed in range(width):
        basis.join(seed)
    for _ in range(3):
        while not basis.is_full:
            basis.multiply(basis.frontier[0])
        basis.read()
        ritz = basis.ritz("LA")
        v = space.take(range(basis.used))
        assert np.abs(v.T @ v - np.eye(v.shape[1])).max() <= 1e-13
        vectors = v @ ritz.coefficients
        residuals = np.linalg.norm(a @ vectors - vectors * ritz.values, axis=0)
        assert np.abs(residuals - ritz.estimates).max() <= 1e-12
        state = basis.restart(ritz, 5)
        assert state.panels(block) == basis.used == 5 + width


def test_a_run_taken_up_at_a_restart_ends_with_the_same_bits():
    a = with_spectrum(np.concatenate([np.linspace(-1, 1, 395), [1.01, 1.02, 1.03, 1.04, 1.05]]))
    states = []

    def keep(run, residual):
        states.append((run.state(), [run.space.take(range(at, at + 1)) for at in range(run.basis.used)], residual))

    def run(at_restart=None, state=None):
        space = OperatorSpace(lambda x: a @ x, 400, block=2, capacity=12)
        lanczos = Lanczos(space, Wanted(3, "LA", 1e-10), max_passes=1000, at_restart=at_restart)
        if state is not None:
            lanczos.resume(*state[:2])
        found = lanczos.run()
        return found.values, space.take(range(2))

    values, vectors = run(keep)
    residuals = [state[2] for state in states]
    assert len(states) > 5 and residuals[-1] < residuals[0]
    for state in states[1:-1:3]:
        again, others = run(state=state)
        assert np.array_equal(values, again) and np.array_equal(vectors, others)


@pytest.mark.parametrize(("done", "frontier"), [([0, 1, 2], [3]), ([0, 2, 1], [3]), ([2, 3], [4, 0])])
def test_ritz_pairs_are_those_of_what_later_products_tell(done, frontier):
    rng, basis = np.random.default_rng(3), KrylovBasis(space_of(Precision.DDD))
    basis.done, basis.frontier, basis.used = done, frontier, 5
    basis._h[:] = rng.standard_normal(basis._h.shape) * (rng.random(basis._h.shape) < 0.8) * -1.0
    at, rest = (np.concatenate([np.arange(4 * panel, 4 * panel + 4) for panel in panels]) for panels in (done, frontier))
    t, panel = basis._h[np.ix_(at, at)], np.arange(len(at)) // 4
    upper = np.triu(np.where(panel[:, None] == panel, (t + t.T) / 2, t))
    values, vectors = np.linalg.eigh(upper + np.triu(upper, 1).T)
    found = basis.ritz("LA")
    assert np.array_equal(found.values, values[::-1]) and not found.coefficients[rest].any()
    assert np.abs(found.coefficients[at] - vectors[:, ::-1]).max() <= 1e-14
    left = basis._h[np.ix_(rest, at)] @ found.coefficients[at]
    assert found.estimates == pytest.approx(np.linalg.norm(left, axis=0), rel=1e-13)
    assert basis.asymmetry() == np.abs(t - t.T).max() / np.abs(t).max() and basis.largest() == np.abs(t).max()
