"""Draws on grids by Fourier transforms: exact covariances, data that are honoured, moments of the dense simulator's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.linalg import circulant

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    EmbeddingError,
    GeometricAnisotropy,
    Matern,
    PowerExponential,
    grid_over,
    make_observations,
)
from tests.apps.geostat.geostat_tolerances import ELEMENTARY, MONTE_CARLO_DEVIATIONS
from tests.inside.cli import main
from tests.inside.geostat import embed, off_lattice

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODELS = [
    Matern(2.0, 0.15, 0.5),
    Matern(1.0, 0.05, 2.5),
    PowerExponential(1.0, 0.2, 1.3),
    GeometricAnisotropy(Matern(1.5, 0.2, 1.5), angle=0.6, ratio=0.3),
    AxisRanges(Matern(1.0, 1.0, 1.0), (0.05, 0.2)),
    Matern(0.5, 0.05, 1.5) + GeometricAnisotropy(PowerExponential(1.5, 0.2, 1.0), angle=0.6, ratio=0.4),
]


def grid_of(nx, ny):
    return grid_over([0.0, 1.0], [1.0, 1.5], (nx, ny))


def covariance(model, a, b):
    return geostat.cross_covariance(model, a, b)


def test_eigenvalues_are_those_of_the_circulant_matrix():
    model, grid = Matern(1.0, 0.2, 0.5), grid_over([0.0], [1.0], (5,))
    found = embed(model, grid, least=0.0)
    side = len(found.eigenvalues)
    assert side >= 9
    lag = np.minimum(np.arange(side), side - np.arange(side)) * 0.25
    matrix = circulant(model.covariance(lag))
    assert np.sort(found.eigenvalues) == pytest.approx(np.linalg.eigvalsh(matrix), abs=1e-13)
    # which has the covariance matrix of the grid in its corner
    points = grid.points(0, 5)
    assert matrix[:5, :5] == pytest.approx(covariance(model, points, points), abs=ELEMENTARY)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_torus_has_every_covariance_of_the_grid(model):
    grid = grid_of(7, 5)
    found, points = embed(model, grid, least=1e-8), grid.points(0, grid.size)
    exact = covariance(model, points, points)
    columns = np.column_stack([found.product(np.array([k]), np.ones(1)) for k in range(grid.size)])
    assert columns == pytest.approx(exact, abs=1e-13 * model.variance)
    weights, nodes = np.arange(1.0, 5.0), np.array([3, 3, 20, 34])
    assert found.product(nodes, weights) == pytest.approx(exact[:, nodes] @ weights, abs=1e-12)


@pytest.mark.parametrize("model", [MODELS[0], MODELS[3], MODELS[5]], ids=lambda model: type(model).__name__)
def test_many_draws_have_the_mean_and_the_covariance_of_the_dense_simulator(model):
    grid, count = grid_of(6, 4), 4000
    points = grid.points(0, grid.size)
    exact = covariance(model, points, points)
    deviation = np.sqrt((exact**2 + np.outer(exact.diagonal(), exact.diagonal())) / count)
    for draws in (
        geostat.simulate_grid(model, grid, draws=count, seed=1, mean=3.0),
        geostat.simulate(model, points, draws=count, seed=1, mean=3.0),
    ):
        assert np.all(np.abs(np.cov(draws.T) - exact) < MONTE_CARLO_DEVIATIONS * deviation)
        assert np.all(np.abs(draws.mean(axis=0) - 3.0) < MONTE_CARLO_DEVIATIONS * np.sqrt(model.variance / count))


def test_a_draw_depends_on_seed_and_number_alone_and_observations_have_a_nugget():
    model, grid = Matern(1.0, 0.1, 1.5, 0.5), grid_of(20, 10)
    three = geostat.simulate_grid(model, grid, draws=3, seed=4)
    assert np.array_equal(three[:2], geostat.simulate_grid(model, grid, draws=2, seed=4))
    assert not np.array_equal(three[0], geostat.simulate_grid(model, grid, seed=5)[0])
    noisy = geostat.simulate_grid(model, grid, draws=200, seed=4, target="observation")
    assert noisy.var() == pytest.approx(1.5, rel=0.1)


def test_what_cannot_be_embedded_is_refused_with_its_share_or_clipped_when_asked():
    model, grid = Matern(1.0, 3.0, 2.5), grid_of(30, 30)
    with pytest.raises(EmbeddingError, match="--clip") as raised:
        geostat.simulate_grid(model, grid)
    error = raised.value
    assert 0 < error.share < 1 and error.nodes > 4 * 900
    assert pickle.loads(pickle.dumps(error)).share == error.share
    assert embed(model, grid, least=1e-8, clip=True).clipped == error.share
    assert geostat.simulate_grid(model, grid, clip=True).shape == (1, 900)


def test_other_covariances_and_uneven_grids_are_refused():
    with pytest.raises(ValueError, match="difference of Euclidean coordinates"):
        geostat.simulate_grid(geostat.GreatCircle(Matern(1.0, 100.0, 0.5)), grid_of(4, 4))
    uneven = geostat.Grid((np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0])))
    with pytest.raises(ValueError, match="not evenly spaced"):
        geostat.simulate_grid(Matern(1.0, 1.0, 0.5), uneven)


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("steps", [1 / 3, 2.0, 20.0])
def test_off_the_lattice_covariances_are_right_to_two_thousandths(smoothness, steps):
    """The joint covariance of nodes and sites that the weights imply, against the exact one: sites in clusters and outside."""
    grid, rng = grid_over([0.0, 0.0], [1.0, 1.0], (16, 16)), np.random.default_rng(0)
    model, least = Matern(1.0, steps / 15, smoothness), 1e-8
    sites = np.vstack([rng.uniform(size=(40, 2)), 0.5 + 0.02 * rng.uniform(size=(15, 2)), [[1.02, 0.5], [0.5, -0.01]]])
    found, points = off_lattice(model, grid, sites, least), grid.points(0, grid.size)
    # values = A nodes + B normals, row by row as they are drawn
    a, b = np.zeros((len(sites), grid.size)), np.zeros((len(sites), len(sites)))
    width = found.nodes.shape[1]
    for k in range(len(sites)):
        np.add.at(a[k], found.nodes[k], found.weights[k, :width])
        b[k, k] = found.deviation[k]
        a[k] += found.weights[k, width:] @ a[found.earlier[k]]
        b[k] += found.weights[k, width:] @ b[found.earlier[k]]
    nodes = covariance(model, points, points) + least * np.eye(grid.size)
    ordered = sites[found.order]
    np.testing.assert_allclose(a @ nodes @ a.T + b @ b.T, covariance(model, ordered, ordered), rtol=0, atol=2e-3)
    np.testing.assert_allclose(a @ nodes, covariance(model, ordered, points), rtol=0, atol=2e-3)
    # and what is drawn is that
    draw, normal = rng.normal(size=grid.size), rng.normal(size=len(sites))
    assert found.drawn(draw, normal)[found.order] == pytest.approx(a @ draw + b @ normal, abs=1e-9)


def data_on(grid, nodes, model, seed=0, extra=None):
    sites = grid.points(0, grid.size)[nodes]
    sites = sites if extra is None else np.vstack([sites, extra])
    values = geostat.simulate(model, sites, seed=seed, target="observation", mean=5.0)[0]
    return make_observations(sites, values)


def test_data_at_nodes_are_honoured():
    model, grid = Matern(1.0, 0.2, 0.5), grid_of(40, 30)
    nodes = np.random.default_rng(0).choice(grid.size, size=25, replace=False)
    observations = data_on(grid, nodes, model)
    draws = geostat.simulate_grid_conditional(observations, model, grid, draws=3)
    assert draws[:, nodes] == pytest.approx(np.tile(observations.values, (3, 1)), abs=1e-8)
    assert np.ptp(draws, axis=0).max() > 0.5


@pytest.mark.parametrize("target", ["field", "observation"])
@pytest.mark.parametrize("known", [False, True])
def test_conditional_draws_have_the_moments_of_kriging(known, target):
    """Data with a nugget on the lattice and off it; mean estimated or known."""
    model, grid, count = Matern(1.0, 0.2, 1.5, 0.1), grid_of(8, 6), 1500
    rng = np.random.default_rng(3)
    extra = np.column_stack([rng.uniform(size=10), 1.0 + 0.5 * rng.uniform(size=10)])
    observations = data_on(grid, rng.choice(grid.size, size=12, replace=False), model, extra=extra)
    coefficients = [5.0] if known else None
    draws = geostat.simulate_grid_conditional(
        observations, model, grid, draws=count, seed=2, target=target, coefficients=coefficients
    )
    expected = geostat.predict(observations, model, grid.points(0, grid.size), target=target, coefficients=coefficients)
    errors = (draws.mean(axis=0) - expected.mean) / np.sqrt(expected.variance / count)
    assert np.abs(errors).max() < MONTE_CARLO_DEVIATIONS
    spread = (draws.var(axis=0) / expected.variance - 1) / np.sqrt(2 / count)
    assert np.abs(spread).max() < MONTE_CARLO_DEVIATIONS


def test_the_mean_may_have_covariates():
    model, grid = Matern(0.01, 0.1, 1.5, 1e-4), grid_of(12, 9)
    points = grid.points(0, grid.size)
    nodes = np.arange(0, grid.size, 7)
    observations = make_observations(points[nodes], 2.0 + 30.0 * points[nodes, 0], covariates=points[nodes, 0])
    draw = geostat.simulate_grid_conditional(observations, model, grid, covariates=points[:, 0])[0]
    assert draw == pytest.approx(2.0 + 30.0 * points[:, 0], abs=0.5)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draws")
    grid = grid_of(30, 20)
    observations = data_on(grid, np.random.default_rng(1).choice(grid.size, 60, replace=False), Matern(1.0, 0.1, 0.5, 0.05))
    rows = [f"{x},{y},{z}" for (x, y), z in zip(observations.coordinates, observations.values, strict=True)]
    (folder / "data.csv").write_text("\n".join(["x,y,z", *rows]) + "\n")
    words = ["--x", "x", "--y", "y", "--value", "z", "--smoothness", "0.5", "--output", str(folder / "model.json"), "--quiet"]
    assert main(["geostat", "fit", str(folder / "data.csv"), *words]) == 0
    return folder / "model.json"


def drawn(path, *words):
    code = main(["geostat", "simulate", str(path), "--output", str(path.parent / "out.csv"), "--force", *words])
    return code, np.loadtxt(path.parent / "out.csv", delimiter=",", skiprows=1) if code == 0 else None


def test_the_command_draws_large_grids(model_file, capsys):
    code, table = drawn(model_file, "--grid", "100,80", "--conditional", "--draws", "2")
    assert code == 0 and table.shape == (8000, 4)
    assert "given 60 observations, by Fourier transforms" in capsys.readouterr().out
    code, _ = drawn(model_file, "--grid", "10,10")
    assert code == 0 and "Fourier" not in capsys.readouterr().out
    code, small = drawn(model_file, "--grid", "10,10", "--method", "fft")
    assert code == 0 and small.shape == (100, 3)


def test_the_command_refuses_transforms_where_there_are_none(model_file, capsys):
    sites = str(model_file.parent / "data.csv")
    for words, message in (
        (["--sites", sites, "--method", "fft"], "is for a --grid"),
        (["--sites", sites, "--clip"], "--clip is for draws by Fourier"),
        (["--grid", "1,50", "--method", "fft"], "axis of one point"),
    ):
        assert drawn(model_file, *words)[0] == 2
        assert message in capsys.readouterr().err


def test_a_descending_axis_is_the_same_grid_turned():
    model, up = GeometricAnisotropy(Matern(1.0, 0.2, 0.5), 0.4, 0.3), grid_of(7, 5)
    down = geostat.Grid((up.axes[0], up.axes[1][::-1].copy()))
    points = down.points(0, down.size)
    found = embed(model, down, least=0.0)
    columns = np.column_stack([found.product(np.array([k]), np.ones(1)) for k in range(down.size)])
    assert columns == pytest.approx(covariance(model, points, points), abs=1e-13)
