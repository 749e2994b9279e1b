"""The case and the trial of held-out values: both methods run, and their files have what is claimed of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.competition.trial import HeldOut, Trial, read_modis, run_trial
from benchmarks.running import main
from ooc_chol.apps.geostat import Matern
from tests.apps.geostat.fields import simulate

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]


@pytest.fixture
def folder(tmp_path):
    """A file as MODIS's, of 300 values on a lattice."""
    rng = np.random.default_rng(0)
    places = rng.permutation(20 * 20)
    axis = np.linspace(-1.0, 1.0, 20)
    height = np.rint(50 * (np.sin(4 * axis)[:, None] + np.cos(3 * axis)) + rng.normal(size=(20, 20))) + 15_000
    parts = {"train": places[:300], "test": places[300:]}
    arrays = {"lon_axis": axis, "lat_axis": axis + 30}
    for name, index in parts.items():
        ix, iy = np.divmod(index, 20)
        arrays |= {f"{name}_ix": ix, f"{name}_iy": iy, f"{name}_dn": height[ix, iy]}
    np.savez(tmp_path / "modis.npz", **arrays)
    return tmp_path


def test_the_file_is_read_as_the_comparison_has_it(folder):
    data = read_modis(folder / "modis.npz")
    assert len(data.values) == 300 and len(data.test_values) == 100
    assert data.sites[:, 1].min() >= 29.0 and np.abs(data.values - (0.02 * 15_000 - 273.15)).max() < 3
    few = data.thinned(50, 20)
    assert few.sites.shape == (50, 2) and set(few.test_values) <= set(data.test_values)


@pytest.mark.parametrize("words", [("--exact", "--devices", "host:0"), ("--shared", "60")])
def test_every_part_is_timed_and_scored(folder, words):
    paths = ["--data", str(folder), "--output", str(folder)]
    assert main(["geostat_modis", *paths, *words, "--models", "half-linear"]) == 0
    name = "modis-exact-host" if "--exact" in words else "modis-vecchia-host"
    content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    (model,) = content["models"]
    assert content["n"] == 300 and model["scores"]["n"] == 100 and model["fit"]["mean"]["columns"][0] == "intercept"
    parts = {"fit", "factor", "predict"} if "--exact" in words else {"fit", "predict"}
    assert model["seconds"]["all"] == pytest.approx(sum(model["seconds"][part] for part in parts))
    assert model["scores"]["rmse"] < 0.5 * model["scores"]["rmse_of_mean"]
    assert sum(row["sites"] for row in model["by_distance"]) == 100
    assert ("factorization" in model) == ("--exact" in words) and ("check" in model) != ("--exact" in words)


def test_models_that_are_none_are_refused(folder, capsys):
    assert main(["geostat_modis", "--data", str(folder), "--models", "half-cubic", "--name", "new"]) == 2
    assert "there is no model half-cubic" in capsys.readouterr().err


def test_both_methods_predict_alike():
    observations = simulate(Matern(1.0, 0.1, 0.5, 0.05), 700, seed=4)
    sites, values = observations.coordinates, observations.values
    data = HeldOut("simulated", sites[:600], values[:600], sites[600:], values[600:])
    exact, near = (run_trial(data, Trial(method=method)) for method in ("exact", "vecchia"))
    assert near["scores"]["rmse"] == pytest.approx(exact["scores"]["rmse"], rel=0.03)
    assert near["check"]["is_exact"]
