"""``fit --covariance`` of every family, and its result in all other commands, as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.io import netcdf_file

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import load_dataset, log_likelihood, make_observations, predict, starting_model
from tests.apps.geostat.cases import CASES, moments, simulate
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.apps.geostat.shell import refused
from tests.inside.cli import main
from tests.inside.geostat import FAMILIES, io, read_result

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PLANE, SPACE_TIME = ("x", "y"), ("x", "y", "t")

#: Options of fit by family: case of simulated data, columns of its sites, words, class, what is kept, and the grid's --at.
FAMILY = {
    "power-exponential": ("power", PLANE, [], "PowerExponential", {}, []),
    "anisotropic": ("anisotropic", PLANE, ["--fix", "smoothness=1.5", "--start", "azimuth=60"], "GeometricAnisotropy", None, []),
    "axis-ranges": ("axis ranges", PLANE, ["--smoothness", "1.5"], "AxisRanges", {"smoothness": 1.5}, []),
    "great-circle": ("great circle", PLANE, ["--lonlat", "--fix", "smoothness=0.4"], "GreatCircle", {"smoothness": 0.4}, []),
    "separable": (
        "separable",
        SPACE_TIME,
        ["--time", "t", "--base", "power-exponential", "--fix", "power=1,time_power"],
        "SeparableSpaceTime",
        {"power": 1.0, "time_power": 1.0},
        ["--at", "2.5"],
    ),
    "gneiting": (
        "Gneiting",
        SPACE_TIME,
        ["--time", "t", "--fix", "smoothness=0.8,time_decay=0.5,time_power=0.7"],
        "GneitingMatern",
        {"smoothness": 0.8, "time_decay": 0.5, "time_power": 0.7},
        ["--at", "2.5"],
    ),
    "bivariate": (
        "bivariate",
        ("x", "y", "which"),
        ["--variable", "which", "--fix", "smoothness_1=0.5,smoothness_2=1.5"],
        "BivariateMatern",
        {"smoothness_1": 0.5, "smoothness_2": 1.5},
        ["--at", "1"],
    ),
}


@pytest.fixture
def written(tmp_path):
    """Writes simulated data of a case, and says where."""

    def write(case, columns, n=64):
        truth, _, sites, _, seed, _ = CASES[case]
        observations = simulate(truth, sites, n, seed)
        named = dict(zip(columns, observations.coordinates.T, strict=True))
        io.write_table(tmp_path / "data.csv", {**named, "value": observations.values})
        return tmp_path / "data.csv"

    return write


def fit(data, *words):
    return main(["geostat", "fit", str(data), "--x", "x", "--y", "y", "--value", "value", *words])


@pytest.mark.parametrize("family", FAMILY)
def test_every_family_goes_through_the_commands(family, written, tmp_path, capsys):
    case, columns, words, kind, kept, at = FAMILY[family]
    data, model, out = written(case, columns), tmp_path / "model.json", tmp_path / "out.csv"
    limits = ["--max-evaluations", "4", "--output", str(model)]
    assert fit(data, "--covariance", family, *words, *limits) == 0
    told = capsys.readouterr()
    assert f"{family} covariance ({kind}), fitted to 64 observations" in told.out
    saved = read_result(model)
    assert type(saved.model).__name__ == kind
    for name, value in (kept or {}).items():
        assert saved.model.values[name] == value and name not in saved.estimated
    observations = load_dataset(saved.spec).observations
    assert saved.loglik == pytest.approx(log_likelihood(observations, saved.model).loglik, rel=TWO_ROUTES)
    assert main(["geostat", "loglik", str(data), "--model", str(model)]) == 0
    printed = capsys.readouterr().out.split("loglik")[1].split()[0]
    assert float(printed) == pytest.approx(saved.loglik, rel=TWO_ROUTES)

    files = [str(model), str(data)]
    assert main(["geostat", "predict", *files, "--grid", "4,3", *at, "--target", "field", "--output", str(out)]) == 0
    table = io.read_table(out, (*columns, "prediction", "standard_error"))
    sites = table.stack(columns)
    assert not at or np.all(sites[:, -1] == float(at[1]))
    expected = predict(
        observations, saved.model, saved.spec.cartesian(sites), covariates=saved.spec.design(table), target="field"
    )
    np.testing.assert_allclose(table.columns["prediction"], expected.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(table.columns["standard_error"], expected.standard_error, rtol=TWO_ROUTES)
    assert main(["geostat", "cv", *files, "--output", str(out), "--force"]) == 0
    assert io.read_table(out, (*columns, "prediction")).columns["prediction"].shape == (64,)
    words = ["simulate", str(model), "--conditional", str(data), "--grid", "3,2", *at, "--output", str(out), "--force"]
    assert main(["geostat", *words]) == 0
    assert np.isfinite(io.read_table(out, (*columns, "draw1")).columns["draw1"]).all()
    capsys.readouterr()
    if family == "anisotropic":
        assert main(["geostat", "convert", str(model)]) == 0
    else:
        assert main(["geostat", "convert", str(model)]) == 2
        assert "isotropic Matérn models" in refused(capsys)
    if at:
        assert main(["geostat", "predict", *files, "--grid", "4,3", "--output", str(out), "--force"]) == 2
        assert f"a grid has no '{columns[-1]}': say at which one it is meant (--at)" in refused(capsys)


@pytest.mark.parametrize(
    ("family", "what"), [("power-exponential", "variogram"), ("great-circle", "residuals"), ("gneiting", "map")]
)
def test_pictures_of_families(family, what, written, tmp_path, capsys):
    case, columns, words, kind, _, at = FAMILY[family]
    data, model, picture = written(case, columns), tmp_path / "model.json", tmp_path / "picture.svg"
    assert fit(data, "--covariance", family, *words, "--max-evaluations", "3", "--output", str(model)) == 0
    out = ["--output", str(picture), "--simulations", "0"]
    assert main(["geostat", "plot", what, str(model), *at, *out]) == 0
    text = picture.read_text(encoding="utf-8")
    assert what != "map" or "at t 2.5: kriging with GneitingMatern" in text
    capsys.readouterr()
    if what != "variogram":
        assert main(["geostat", "plot", "variogram", str(model), *out]) == 2
        assert f"a {kind} is no function of distance alone" in refused(capsys)
    for name in ("height", "interaction"):
        assert main(["geostat", "plot", "profile", str(model), "--parameter", name, *out]) == 2
        assert f"--parameter is '{name}', but of this {kind} model there are range, " in refused(capsys)


def test_a_space_time_grid_in_netcdf_says_its_time(written, tmp_path):
    data, model, out = written("separable", SPACE_TIME), tmp_path / "model.json", tmp_path / "out.nc"
    words = ["--covariance", "separable", "--time", "t", "--fix", "smoothness=0.5,time_smoothness=0.5", "--max-evaluations", "4"]
    assert fit(data, *words, "--output", str(model)) == 0
    assert main(["geostat", "predict", str(model), str(data), "--grid", "4,3", "--at", "2.5", "--output", str(out)]) == 0
    with netcdf_file(out, mmap=False) as file:
        assert float(file.variables["t"].data) == 2.5 and file.variables["t"].dimensions == ()
        assert file.variables["prediction"].shape == (3, 4)
        assert file.variables["prediction"].coordinates == b"t"


def test_a_bivariate_fit_has_a_mean_of_each_variable(written, tmp_path):
    data, model = written("bivariate", ("x", "y", "which"), n=40), tmp_path / "model.json"
    words = ["--covariance", "bivariate", "--variable", "which", "--fix", "smoothness_1=0.5,smoothness_2=1.5"]
    for mean, columns in (("constant", ["intercept", "which"]), ("zero", [])):
        assert fit(data, *words, "--mean", mean, "--output", str(model), "--max-evaluations", "2") == 0
        content = json.loads(model.read_text(encoding="utf-8"))
        assert content["fit"]["mean"]["columns"] == columns and content["data"]["variable"] == "which"


def test_great_circle_by_the_distance(written, tmp_path, capsys):
    data, model = written("great circle", PLANE), tmp_path / "model.json"
    words = ["--lonlat", "--dm", "gcd", "--max-evaluations", "4", "--output", str(model)]
    assert fit(data, *words, "--smoothness", "0.5") == 0
    saved = read_result(model)
    assert type(saved.model).__name__ == "GreatCircle" and saved.spec.distance == "great-circle"
    assert saved.model.values["smoothness"] == 0.5 and "smoothness" not in saved.estimated
    assert fit(data, *words, "--covariance", "power-exponential") == 0
    assert "power" in read_result(model).estimated
    theta = ["loglik", str(data), "--lonlat", "--distance", "great-circle", "--theta"]
    assert main(["geostat", *theta, "2,150,0.4,0.3"]) == 0
    capsys.readouterr()
    assert fit(data, *words, "--smoothness", "1.5") == 2
    assert "positive definite on the sphere only" in refused(capsys)
    assert main(["geostat", *theta, "2,150,1.5,0.3"]) == 2
    assert "positive definite on the sphere only" in refused(capsys)


@pytest.mark.parametrize("option", ["--fix", "--start"])
def test_parameters_that_are_given_apart_are_all_taken_and_none_twice(written, capsys, option):
    data = written("anisotropic", PLANE)
    words = ["--covariance", "anisotropic", "--dry-run", "--fix", "ratio=0.5", option, "smoothness=1.5"]
    assert fit(data, *words) == 0
    searched = capsys.readouterr().out.partition(" over ")[2].partition(";")[0].split(", ")
    assert searched == ["range", *(["smoothness"] if option == "--start" else []), "azimuth", "nugget_ratio"]
    for twice in (["range=1", option, "range=2"], ["range=1,range=2"]):
        with pytest.raises(SystemExit):
            fit(data, *words, option, *twice)
        assert f"argument {option}: 'range' is given twice" in refused(capsys)


def test_dry_run_of_a_family_factors_nothing(written, capsys, monkeypatch):
    data = written("anisotropic", PLANE)

    def refuse(*arguments, **options):
        raise AssertionError("a dry run must not factor")

    monkeypatch.setattr("ooc_chol.cholesky", refuse)
    assert fit(data, "--covariance", "anisotropic", "--fix", "smoothness=1.5", "--dry-run") == 0
    assert "1 search by fisher over range, azimuth, ratio, nugget_ratio; profiled out: variance" in capsys.readouterr().out


def test_an_automatic_start_leads_to_the_maximum():
    """Where a start at the truth leads, too."""
    truth, _, sites, _, _, fixed = CASES["anisotropic"]
    observations = simulate(truth, sites, 64, 11)
    start = starting_model("anisotropic", observations)
    by_itself, from_truth = (geostat.fit(observations, covariance=model, fixed=fixed) for model in (start, truth))
    assert by_itself.converged and by_itself.loglik == pytest.approx(from_truth.loglik, abs=0.01)


def test_every_family_has_starts_at_any_sites():
    rng = np.random.default_rng(0)
    sites = {
        "great-circle": rng.uniform(0, 50, size=(24, 2)),
        "bivariate": np.column_stack([rng.uniform(size=24), np.arange(24) % 2]),
    }
    sites |= dict.fromkeys(("separable", "gneiting"), moments(rng, 24))
    for name in FAMILIES:
        places = sites.get(name, rng.uniform(size=(24, 2)))
        observations = make_observations(places, rng.normal(size=24))
        words = {"great_circle": name == "great-circle", "values": {"variance": 7.0}}
        if name == "nonstationary":
            observations = make_observations(np.column_stack([places, rng.normal(size=24)]), rng.normal(size=24), space=2)
            words["range_covariates"] = ("height",)
        model = starting_model(name, observations, **words)
        assert model.variance == 7.0 and model.nugget == pytest.approx(0.7)
    same = make_observations(places, np.ones(24))
    assert starting_model("matern", same).values["smoothness"] == 1.0
    for words, message in (
        ({"name": "cubic"}, "there is no covariance function 'cubic'"),
        ({"name": "matern", "base": "linear"}, "base is 'linear'"),
        ({"name": "gneiting", "great_circle": True}, "not there for the great-circle distance"),
        ({"name": "great-circle"}, "needs the great-circle distance"),
        ({"name": "matern", "values": {"angle": 1.0}}, "has no parameter angle"),
    ):
        with pytest.raises(ValueError, match=message):
            starting_model(words.pop("name"), same, **words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--covariance", "gneiting"], "--time COLUMN"),
        (["--covariance", "anisotropic", "--time", "t"], "--time is for"),
        (["--time", "t"], "--time is for"),
        (["--covariance", "bivariate"], "go together"),
        (["--variable", "t"], "go together"),
        (["--covariance", "gneiting", "--time", "t", "--base", "matern"], "--base is for"),
        (["--covariance", "great-circle"], "say that the coordinates are"),
        (["--covariance", "anisotropic", "--start", "angel=1"], "has no parameter angel; it has variance, nugget, range"),
        (["--covariance", "anisotropic", "--fix", "nugget"], "kept by --nugget zero or --nugget VALUE"),
        (["--covariance", "anisotropic", "--lonlat"], "project the coordinates first"),
        (["--covariance", "anisotropic", "--start", "ratio=-1"], "ratio is -1.0"),
        (["--start", "range=100"], "range is 100 at the start, but a search at these sites goes from"),
        (["--covariance", "gneiting", "--time", "t", "--plot", "map.png"], "plot map MODEL.json --at VALUE"),
        (["--covariance", "gneiting", "--time", "x"], "a column plays two parts"),
    ],
)
def test_mistakes_are_said_on_one_line(words, message, written, capsys):
    assert fit(written("separable", SPACE_TIME), *words) == 2
    assert message in refused(capsys)


@pytest.mark.parametrize("word", ["--start", "--fix"])
def test_pairs_are_read(word, written, capsys):
    data = written("matern", PLANE)
    for wrong in ("range=a", "=1", *(["range"] if word == "--start" else [])):
        with pytest.raises(SystemExit):
            fit(data, word, wrong)
        assert "NUMBER" in capsys.readouterr().err


def test_model_or_theta(written, tmp_path, capsys):
    data = written("matern", PLANE)
    model = tmp_path / "model.json"
    assert fit(data, "--start", "range=0.1", "--fix", "smoothness=0.5", "--max-evaluations", "3", "--output", str(model)) == 0
    assert read_result(model).estimated == ("range", "variance", "nugget")
    capsys.readouterr()
    assert main(["geostat", "loglik", str(data), "--model", str(model), "--x", "x"]) == 2
    assert "leave out the options of columns" in refused(capsys)
    assert main(["geostat", "loglik", str(data), "--theta", "1,0.1,0.5", "--time", "t"]) == 2
    assert "give --model MODEL.json" in refused(capsys)
    assert main(["geostat", "predict", str(model), str(data), "--grid", "3,2", "--at", "1", "--output", str(tmp_path / "o")]) == 2
    assert "leave out --at" in refused(capsys)
