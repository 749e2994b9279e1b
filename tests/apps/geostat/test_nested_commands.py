"""``fit --covariance matern+matern``, and its result in all other commands, as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, predict_component
from tests.apps.geostat.cases import plane, simulate
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.apps.geostat.shell import refused
from tests.inside.cli import main
from tests.inside.geostat import io, read_result

pytestmark = pytest.mark.usefixtures("one_blas_thread")

WORDS = ["--covariance", "matern + matern", "--fix", "smoothness_1=1.5,smoothness_2=0.5", "--start", "range_1=0.05,range_2=0.4"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Simulated values of two structures."""
    path = tmp_path_factory.mktemp("nested") / "data.csv"
    observations = simulate(Matern(1.0, 0.03, 1.5, 0.05) + Matern(2.0, 0.5, 0.5), plane, 90, 1)
    io.write_table(path, {**dict(zip("xy", observations.coordinates.T, strict=True)), "value": observations.values})
    return path


@pytest.fixture(scope="module")
def model(data):
    """The result of a fit of two structures."""
    path = data.with_name("model.json")
    assert fit(data, *WORDS, "--standard-errors", "--output", str(path)) == 0
    return path


def fit(data, *words):
    return main(["geostat", "fit", str(data), "--x", "x", "--y", "y", "--value", "value", *words])


def test_a_fit_says_what_each_structure_is(data, capsys):
    assert fit(data, *WORDS, "--max-evaluations", "2") == 0
    told = capsys.readouterr().out
    assert "nested covariance (Nested), fitted to 90 observations" in told
    assert "structure 1  matern, " in told and "structure 2  matern, " in told
    assert "smoothness_1 1.5 (kept)" in told and "sum          effective range (correlation 0.05) " in told


def test_the_result_has_every_parameter_with_its_error(model):
    content = json.loads(model.read_text(encoding="utf-8"))
    saved = read_result(model)
    assert saved.estimated == ("range_1", "range_2", "variance_ratio_2", "variance", "nugget")
    assert saved.model.values["smoothness_1"] == 1.5 and len(content["fit"]["model"]["components"]) == 2
    names = {"range_1", "variance_ratio_2", "variance_2", "effective_range_1", "effective_range"}
    assert names <= set(content["inference"]["estimates"])


def test_a_component_is_predicted_alone(data, model, tmp_path, capsys):
    out = tmp_path / "long.csv"
    assert main(["geostat", "predict", str(model), "--grid", "4,3", "--component", "2", "--output", str(out)]) == 0
    assert "12 predictions of structure 2 with their standard errors" in capsys.readouterr().out
    table, saved = io.read_table(out, ("x", "y", "prediction", "standard_error")), read_result(model)
    observations = geostat.load_dataset(saved.spec).observations
    expected = predict_component(observations, saved.model, 2, table.stack(("x", "y")))
    np.testing.assert_allclose(table.columns["prediction"], expected.mean, atol=TWO_ROUTES * np.ptp(observations.values))
    np.testing.assert_allclose(table.columns["standard_error"], expected.standard_error, rtol=TWO_ROUTES)
    words = ["geostat", "predict", str(model), "--grid", "4,3", "--output", str(out), "--force"]
    assert main([*words, "--component", "3"]) == 2
    assert "structures are numbered from 1 to 2" in refused(capsys)


def test_the_other_commands_take_the_result(data, model, tmp_path, capsys):
    picture, profile = tmp_path / "picture.svg", tmp_path / "profile.svg"
    assert main(["geostat", "loglik", "--model", str(model)]) == 0
    assert main(["geostat", "cv", str(model)]) == 0
    assert (
        main(["geostat", "simulate", str(model), "--grid", "3,2", "--box", "0,0,1,1", "--output", str(tmp_path / "out.csv")]) == 0
    )
    assert main(["geostat", "plot", "variogram", str(model), "--simulations", "0", "--output", str(picture)]) == 0
    assert "2 nested structures, effective ranges" in picture.read_text(encoding="utf-8")
    words = ["--parameter", "range_2", "--points", "3", "--from", "0.2", "--to", "0.8", "--output", str(profile)]
    assert main(["geostat", "plot", "profile", str(model), *words]) == 0
    capsys.readouterr()
    assert main(["geostat", "convert", str(model)]) == 0
    told = capsys.readouterr().out
    assert "add.to = vgm(" in told and "gstools.Matern(" in told and "geoR" not in told
    assert main(["geostat", "convert", str(model), "--convert-to", "geoR"]) == 2
    assert "geoR has no sums" in refused(capsys)


def test_a_dry_run_says_over_what_is_searched(data, capsys):
    assert fit(data, *WORDS, "--dry-run") == 0
    assert (
        "1 search by fisher over range_1, range_2, variance_ratio_2, nugget_ratio; profiled out: variance"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--covariance", "matern+cubic"], "'cubic' (choose from matern, power-exponential"),
        (["--covariance", "matern+matern", "--smoothness", "1.5"], "keep those of several by --fix smoothness_1=NU"),
        (["--covariance", "matern+gneiting"], "--covariance gneiting is one of space and time"),
        (["--covariance", "matern+anisotropic", "--lonlat"], "--covariance anisotropic has directions in the plane"),
        (
            ["--covariance", "matern+matern", "--start", "range=1"],
            "Nested has no parameter range; it has variance, nugget, range_1",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(words, told, data, capsys):
    try:
        status = fit(data, *words)
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert told in refused(capsys)
