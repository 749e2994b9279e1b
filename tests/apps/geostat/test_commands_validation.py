"""synth, simulate, cv and loglik as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.running import main as bench
from benchmarks.synth import synthesize
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES, printed
from tests.inside.cli import main
from tests.inside.geostat import io

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A data file, a sites file and the result of a fit."""
    folder = tmp_path_factory.mktemp("fitted")
    rng = np.random.default_rng(0)
    sites = rng.uniform(0, 10, size=(70, 2))
    value = 5 + np.sin(sites[:, 0]) + np.cos(sites[:, 1]) + 0.1 * rng.normal(size=70)
    io.write_table(folder / "data.csv", {"east": sites[:60, 0], "north": sites[:60, 1], "zinc": value[:60]})
    io.write_table(folder / "sites.csv", {"east": sites[60:, 0], "north": sites[60:, 1]})
    columns = ("--x", "east", "--y", "north", "--value", "zinc", "--smoothness", "1.5", "--max-evaluations", "12")
    assert main(["geostat", "fit", str(folder / "data.csv"), *columns, "--output", str(folder / "model.json")]) == 0
    return folder


def observations(folder):
    table = io.read_table(folder / "data.csv", ("east", "north", "zinc"))
    return geostat.make_observations(table.stack(("east", "north")), table.columns["zinc"])


def model(folder):
    fit = json.loads((folder / "model.json").read_text(encoding="utf-8"))["fit"]
    return Matern(*(fit["model"][name] for name in ("variance", "range", "smoothness", "nugget"))), fit["mean"]["coefficients"]


SYNTH = [
    ["--n", "16", "--theta", "1,0.1,0.5"],
    [
        "--N",
        "16",
        "--kernel",
        "univariate_matern_stationary",
        "--ttheta=1:0.1:0.5",
        "--dts",
        "8",
        "--seed",
        "0",
        "--dimension=2D",
    ],
    ["--N=16", "--Kernel=UnivariateMaternStationary", "--initial_theta", "1:0.1:0.5", "--DTS=8", "--Memory_Budget", "1 MiB"],
]


@pytest.mark.parametrize("words", SYNTH)
def test_synth_in_its_own_and_in_exageostats_words(tmp_path, capsys, words):
    path = tmp_path / "data.csv"
    assert bench(["synth", *words, "--output", str(path)]) == 0
    assert "16 observations of variance 1, range 0.1, smoothness 0.5, nugget 0" in capsys.readouterr().out
    table = io.read_table(path, ("x", "y", "value"))
    sample = synthesize(Matern(1.0, 0.1, 0.5), 16)
    assert np.array_equal(table.stack(("x", "y")), sample.coordinates)
    np.testing.assert_allclose(table.columns["value"], sample.values, rtol=TWO_ROUTES)

    assert (
        main(
            ["geostat", "loglik", str(path), "--theta", "1,0.1,0.5", "--mean", "zero", "--kernel", "univariate_matern_stationary"]
        )
        == 0
    )
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert float(told["loglik"]) == pytest.approx(-23.9130238932947, rel=TWO_ROUTES)
    assert float(told["quadratic"]) == pytest.approx(18.993397082619786, rel=TWO_ROUTES)
    assert told["mean"] == "zero"


def test_loglik_at_the_fit_is_the_fits(fitted, capsys):
    fit = json.loads((fitted / "model.json").read_text(encoding="utf-8"))["fit"]
    theta = ",".join(repr(fit["model"][name]) for name in ("variance", "range", "smoothness", "nugget"))
    words = ["--x", "east", "--y", "north", "--value", "zinc", "--theta", theta]
    assert main(["geostat", "loglik", str(fitted / "data.csv"), *words]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert float(told["loglik"]) == pytest.approx(fit["loglik"], rel=TWO_ROUTES)
    assert told["mean"] == f"intercept {fit['mean']['coefficients'][0]:.6g}"
    # log N = -(n log(2 pi) + log det + quadratic) / 2
    parts = 60 * np.log(2 * np.pi) + float(told["logdet"]) + float(told["quadratic"])
    assert float(told["loglik"]) == pytest.approx(-parts / 2, abs=printed(9))


def test_synth_in_three_dimensions_with_nugget(tmp_path, capsys):
    path = tmp_path / "data.csv"
    words = ["--n", "30", "--theta", "2,0.3,1.5,0.1", "--dimension", "3D", "--seed", "7"]
    kernel = ["--kernel", "univariate_matern_nuggets_stationary"]
    assert bench(["synth", *words, *kernel, "--output", str(path)]) == 0
    sample = synthesize(Matern(2.0, 0.3, 1.5, 0.1), 30, seed=7, dimension=3)
    assert np.array_equal(io.read_table(path, ("x", "y", "z")).stack(("x", "y", "z")), sample.coordinates)
    assert main(["geostat", "loglik", str(path), "--z", "z", "--theta", "2,0.3,1.5,0.1", "--mean", "zero"]) == 0
    told = capsys.readouterr().out
    expected = geostat.log_likelihood(sample.observations(), sample.model).loglik
    assert float(told.split("loglik")[1].split()[0]) == pytest.approx(expected, rel=TWO_ROUTES)


@pytest.mark.parametrize("folds", [[], ["--folds", "5", "--how", "tiles"], ["--folds", "5", "--seed", "3"]])
def test_cv(fitted, tmp_path, capsys, folds):
    out = tmp_path / "cv.csv"
    words = [str(fitted / "model.json"), str(fitted / "data.csv"), *folds, "--level", "0.9", "--output", str(out)]
    assert main(["geostat", "cv", *words]) == 0
    told = capsys.readouterr().out
    data, (fitted_model, _) = observations(fitted), model(fitted)
    if folds:
        how, seed = ("tiles", 0) if "tiles" in folds else ("random", 3)
        expected = geostat.cross_validate(data, fitted_model, folds=5, how=how, seed=seed)
    else:
        expected = geostat.leave_one_out(data, fitted_model)
    table = io.read_table(out, ("east", "north", "zinc", "prediction", "standard_error", "fold"))
    assert np.array_equal(table.stack(("east", "north")), data.coordinates)
    np.testing.assert_allclose(table.columns["prediction"], expected.prediction.mean, rtol=TWO_ROUTES)
    np.testing.assert_allclose(table.columns["standard_error"], expected.prediction.standard_error, rtol=TWO_ROUTES)
    assert np.array_equal(table.columns["fold"], expected.folds)
    scores = expected.scores(0.9)
    assert "held out     60 values" in told and "intervals  of 90 %" in told
    assert f"RMSE       {scores.rmse:.4g} by kriging" in told and f"logarithmic {scores.log_score:.4g}" in told


def test_simulate_without_and_with_data(fitted, tmp_path, capsys):
    out = tmp_path / "draws.csv"
    words = ["geostat", "simulate", str(fitted / "model.json"), "--output", str(out), "--force"]
    data, (fitted_model, coefficients) = observations(fitted), model(fitted)
    names = ("draw1", "draw2", "draw3")
    sites = io.read_table(fitted / "sites.csv", ("east", "north")).stack(("east", "north"))

    assert main([*words, "--sites", str(fitted / "sites.csv"), "--draws", "3"]) == 0
    assert "3 draws at 10 sites, without data" in capsys.readouterr().out
    free = geostat.simulate(fitted_model, sites, draws=3, mean=coefficients[0])
    np.testing.assert_allclose(io.read_table(out, names).stack(names).T, free, rtol=TWO_ROUTES)

    given = ["--conditional", str(fitted / "data.csv"), "--draws", "3", "--seed", "4", "--target", "observation"]
    assert main([*words, "--sites", str(fitted / "sites.csv"), *given]) == 0
    assert "given 60 observations" in capsys.readouterr().out
    bound = geostat.simulate_conditional(data, fitted_model, sites, draws=3, seed=4, target="observation")
    np.testing.assert_allclose(io.read_table(out, names).stack(names).T, bound, rtol=TWO_ROUTES)

    for box in (["--conditional", str(fitted / "data.csv")], ["--box", "-1,0,10,5"]):
        assert main([*words, "--grid", "4,3", *box]) == 0
        positions = io.read_table(out, ("east", "north")).stack(("east", "north"))
        corners = [[-1, 0], [10, 5]] if "--box" in box else [data.coordinates.min(axis=0), data.coordinates.max(axis=0)]
        assert np.array_equal(positions[[0, -1]], corners)


def test_the_example_needs_no_data(tmp_path, capsys):
    path, out = tmp_path / "model.json", tmp_path / "out.csv"
    assert (
        main(
            [
                "geostat",
                "fit",
                "--example",
                "jacksboro:60",
                "--smoothness",
                "0.5",
                "--max-evaluations",
                "9",
                "--output",
                str(path),
            ]
        )
        == 0
    )
    assert main(["geostat", "cv", str(path)]) == 0
    assert main(["geostat", "simulate", str(path), "--grid", "3,2", "--conditional", "--output", str(out)]) == 0
    assert main(["geostat", "simulate", str(path), "--grid", "3,2", "--output", str(out), "--force"]) == 0
    capsys.readouterr()
    for words in (["cv", str(path), "other.csv"], ["plot", "map", str(path), "other.csv", "--output", str(tmp_path / "map.png")]):
        assert main(["geostat", *words]) == 2
        assert "the model was fitted to the built-in example jacksboro:60: leave out other.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loglik", "DATA", "--theta", "1,0.1,0.5"], "has no column 'x'"),
        (["loglik", "--theta", "1,0.1,0.5"], "which data? give DATA.csv"),
        (["cv", "MODEL", "DATA", "--folds", "1"], "1 folds of 60"),
        (["simulate", "MODEL", "--grid", "3,3", "--box", "1,2,3", "--output", "OUT"], "--box has 3 numbers"),
        (["simulate", "MODEL", "--sites", "DATA", "--box", "1,2,3,4", "--output", "OUT"], "--box is of a grid"),
        (["simulate", "MODEL", "--sites", "DATA", "--at", "1", "--output", "OUT"], "--at is for a --grid"),
        (["predict", "MODEL", "DATA", "DATA", "--at", "1", "--output", "OUT"], "--at is for a --grid"),
        (["simulate", "MODEL", "--sites", "DATA", "--draws", "0", "--output", "OUT"], "0 draws"),
    ],
)
def test_mistakes_are_said_on_one_line(fitted, tmp_path, capsys, words, message):
    paths = {"DATA": fitted / "data.csv", "MODEL": fitted / "model.json", "OUT": tmp_path / "out.csv"}
    capsys.readouterr()
    assert main(["geostat", *(str(paths.get(word, word)) for word in words)]) == 2
    told = capsys.readouterr().err
    assert message in told and len(told.splitlines()) == 1
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--theta", "1,0.1,0.5", "--seed", "5000", "--output", "OUT"], "seed is 5000"),
        (["--theta", "1,0.1,0.5", "--output", "no/where.csv"], "there is no folder"),
        (
            ["--theta", "1,.1,.5", "--kernel", "univariate_matern_nuggets_stationary", "--output", "OUT"],
            "has 4 parameters, but the nugget of --theta is 0",
        ),
    ],
)
def test_mistakes_of_the_generator_are_said_on_one_line(tmp_path, capsys, words, message):
    out = tmp_path / "out.csv"
    assert bench(["synth", "--n", "9", *(str(out) if word == "OUT" else word for word in words)]) == 2
    told = capsys.readouterr().err
    assert message in told and len(told.splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--theta", "1,0.1"], "is not variance,range,smoothness[,nugget]"),
        (["--theta", "1,-0.1,0.5"], "range is -0.1"),
        (["--theta", "1,b,0.5"], "is not a list of numbers"),
        (["--theta", "1,0.1,0.5", "--lts", "8"], "unrecognized arguments: --lts 8"),
        (["--theta", "1,0.1,0.5", "--Max_Rank=3"], "unrecognized arguments: --Max_Rank=3"),
        (
            ["--theta", "1,0.1,0.5", "--kernel", "bivariate_matern_flexible"],
            "'bivariate_matern_flexible' is none of ExaGeoStat's",
        ),
        (["--theta", "1,0.1,0.5", "--dimension", "ST"], "'ST' is not 2D or 3D"),
    ],
)
def test_words_that_mean_nothing_here_are_refused_by_name(tmp_path, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        bench(["synth", "--n", "9", "--output", str(tmp_path / "out.csv"), *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_help_tells_every_option(capsys):
    for action, options in {
        "simulate": ("--sites", "--grid", "--box", "--conditional", "--draws", "--seed", "--jitter", "--output"),
        "cv": ("--dts", "--folds", "--how", "--seed", "--level", "--output"),
        "loglik": ("--theta", "--mean", "--covariates", "--tile-size"),
    }.items():
        with pytest.raises(SystemExit):
            main(["geostat", action, "--help"])
        text = capsys.readouterr().out
        assert all(option in text for option in options), action
