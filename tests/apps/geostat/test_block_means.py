"""Block kriging against dense systems, simulations and limits."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    Blocks,
    FactorSettings,
    GeometricAnisotropy,
    Matern,
    make_observations,
    polygon_blocks,
    predict_block_means,
    rectangular_blocks,
)
from tests.inside.cli import main
from tests.inside.geostat import prediction_covariance

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODELS = [Matern(1.3, 0.2, 1.5, 0.1), GeometricAnisotropy(Matern(1.0, 0.4, 0.5, 0.05), angle=0.4, ratio=0.5)]


def data(n=40, trend=False, mean="constant"):
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(n, 2))
    return make_observations(sites, rng.normal(size=n) + 3 * sites[:, 0], covariates=sites if trend else None, mean=mean)


def system(observations, model, blocks, columns):
    """Means and variances by the bordered system of kriging with covariances that are averaged over points."""
    n, p = observations.design.shape
    s = geostat.cross_covariance(model, observations.coordinates, observations.coordinates) + model.nugget * np.eye(n)
    bordered = np.block([[s, observations.design], [observations.design.T, np.zeros((p, p))]])
    means, variances = [], []
    for points, weights, level in zip(blocks.points, blocks.weights, columns, strict=True):
        right = np.append(geostat.cross_covariance(model, observations.coordinates, points) @ weights, level)
        solution = np.linalg.solve(bordered, right)
        own = weights @ geostat.cross_covariance(model, points, points) @ weights
        means.append(solution[:n] @ observations.values)
        variances.append(own - solution @ right)
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(("trend", "mean"), [(False, "zero"), (False, "constant"), (True, "constant")])
def test_block_means_are_those_of_the_kriging_system(trend, mean, model):
    observations = data(trend=trend, mean=mean)
    blocks = rectangular_blocks([[0.5, 0.5], [0.1, 0.9], [1.5, 0.2]], (0.3, 0.1))
    columns = np.empty((3, 0)) if mean == "zero" else np.ones((3, 1))
    if trend:
        columns = np.column_stack([columns, np.einsum("mqd,mq->md", blocks.points, blocks.weights)])
    with geostat.kriging(observations, model) as kriged:
        found = predict_block_means(kriged, blocks, covariates=blocks.points if trend else None)
    expected = system(observations, model, blocks, columns)
    assert found.mean == pytest.approx(expected[0], rel=1e-9)
    assert found.variance == pytest.approx(expected[1], rel=1e-9)
    assert found.target == "field"


def test_a_block_is_the_mean_of_its_points_together():
    observations, model = data(), MODELS[0]
    blocks = rectangular_blocks([[0.4, 0.6]], (0.2, 0.5), points=3)
    points, weights = blocks.points[0], blocks.weights[0]
    with geostat.kriging(observations, model) as kriged:
        found = predict_block_means(kriged, blocks)
        single = kriged.predict(points, target="field")
    together = prediction_covariance(observations, model, points, np.empty((9, 0)), target="field", settings=FactorSettings())
    assert found.mean[0] == pytest.approx(weights @ single.mean, rel=1e-10)
    assert found.variance[0] == pytest.approx(weights @ together @ weights, rel=1e-9)
    assert found.variance[0] < single.variance.min()


def test_a_small_block_is_a_point_and_more_points_converge():
    observations, model = data(), Matern(1.0, 0.3, 1.5, 0.1)
    with geostat.kriging(observations, model) as kriged:
        point = kriged.predict([[0.3, 0.3]], target="field")
        small = predict_block_means(kriged, rectangular_blocks([[0.3, 0.3]], (1e-6, 1e-6)))
        values = [predict_block_means(kriged, rectangular_blocks([[0.3, 0.3]], (0.5, 0.5), points=k)) for k in (2, 4, 12)]
    assert small.mean == pytest.approx(point.mean, rel=1e-6) and small.variance == pytest.approx(point.variance, rel=1e-4)
    off = [abs(one.mean[0] - values[2].mean[0]) for one in values[:2]]
    assert off[1] < 0.5 * off[0] and off[1] < 0.01


def test_batches_do_not_change_block_means(monkeypatch):
    observations, model = data(), MODELS[0]
    blocks = rectangular_blocks(np.random.default_rng(1).uniform(size=(30, 2)), (0.1, 0.1))
    with geostat.kriging(observations, model) as kriged:
        whole = predict_block_means(kriged, blocks)
        monkeypatch.setattr(sys.modules[Blocks.__module__], "_BATCH_BYTES", 8 * 40 * 16 * 7)
        some = predict_block_means(kriged, blocks)
    assert some.mean == pytest.approx(whole.mean, rel=1e-12) and some.variance == pytest.approx(whole.variance, rel=1e-12)


def test_polygons_are_lattices_of_equal_weights():
    pytest.importorskip("shapely")
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    triangle = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    blocks = polygon_blocks([square, triangle], points=100)
    assert blocks.weights.sum(axis=1) == pytest.approx(1.0)
    middles = np.einsum("mqd,mq->md", blocks.points, blocks.weights)
    assert middles[0] == pytest.approx([0.5, 0.5]) and middles[1] == pytest.approx([1 / 3, 1 / 3], abs=0.02)
    assert np.all(blocks.points[1][blocks.weights[1] > 0].sum(axis=1) < 1)
    observations, model = data(), Matern(1.0, 0.3, 1.5, 0.1)
    with geostat.kriging(observations, model) as kriged:
        found = predict_block_means(kriged, polygon_blocks([square], points=400))
        other = predict_block_means(kriged, rectangular_blocks([[0.5, 0.5]], (1.0, 1.0), points=10))
    assert found.mean == pytest.approx(other.mean, abs=2e-3) and found.variance == pytest.approx(other.variance, rel=0.01)
    with pytest.raises(ValueError, match="no area"):
        polygon_blocks([np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])])


def test_nonsense_is_refused():
    sites = np.random.default_rng(0).uniform(size=(20, 2))
    drift = geostat.make_observations(sites, sites.sum(axis=1), covariates=sites[:, 0])
    with geostat.kriging(drift, Matern(1.0, 0.3, 1.5, 0.1)) as kriged, pytest.raises(ValueError, match=r"\(2, 16, c\) is needed"):
        predict_block_means(kriged, rectangular_blocks(sites[:2], (0.1, 0.1)), covariates=np.ones((5, 7)))
    with pytest.raises(ValueError, match="one positive length for each of 2 axes"):
        rectangular_blocks([[0.0, 0.0]], (1.0,))
    with pytest.raises(ValueError, match="at least one is needed"):
        rectangular_blocks([[0.0, 0.0]], (1.0, 1.0), points=0)
    assert isinstance(rectangular_blocks([[0.0, 0.0]], (1.0, 1.0)), Blocks)


def test_the_command_averages_over_blocks(tmp_path, capsys):
    observations = data(60)
    rows = [f"{x},{y},{z + 20}" for (x, y), z in zip(observations.coordinates, observations.values, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y,z", *rows]) + "\n")
    words = ["geostat", "fit", str(tmp_path / "data.csv"), "--x", "x", "--y", "y", "--smoothness", "1.5", "--quiet", "--output"]
    assert main([*words, str(tmp_path / "m.json"), "--formula", "z ~ x + y"]) == 0
    assert main([*words, str(tmp_path / "log.json"), "--value", "z", "--transform", "log"]) == 0
    for mean in ("constant", "zero"):
        assert main([*words, str(tmp_path / f"{mean}.json"), "--value", "z", "--mean", mean]) == 0
    out = tmp_path / "out.csv"
    words = ["geostat", "predict", str(tmp_path / "m.json"), "--grid", "4,3", "--output"]
    assert main([*words, str(out), "--block", "0.2,0.1"]) == 0
    assert "12 predictions of means over blocks of 0.2 x 0.1 with their standard errors" in capsys.readouterr().out
    table = np.loadtxt(out, delimiter=",", skiprows=1)
    assert main([*words, str(tmp_path / "p.csv"), "--target", "field"]) == 0
    points = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1)
    assert table[:, 2] == pytest.approx(points[:, 2], abs=0.5) and np.all(table[:, 3] <= points[:, 3] + 1e-9)
    for mean in ("constant", "zero"):
        words[2] = str(tmp_path / f"{mean}.json")
        found = []
        for k, more in enumerate((["--block", "1e-7,1e-7"], ["--target", "field"])):
            assert main([*words, str(tmp_path / f"{mean}-{k}.csv"), *more]) == 0
            found.append(np.loadtxt(tmp_path / f"{mean}-{k}.csv", delimiter=",", skiprows=1))
        assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert main(["geostat", "predict", str(tmp_path / "log.json"), "--grid", "4,3", "--block", "0.2,0.1", "--output", "-"]) == 2
    assert "no transform of the mean" in capsys.readouterr().err
