"""Known errors and profile likelihoods on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, fit, load_dataset, predict, profile_likelihood, simulate
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.apps.geostat.shell import shell
from tests.inside.cli import main
from tests.inside.geostat import io, read_result

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Fits of rounded and of typed numbers: the values of a file read back exactly.
COLUMNS = ("x", "y", "value", "variance", "sd")


@pytest.fixture
def data(tmp_path):
    """Values with errors of three kinds."""
    rng = np.random.default_rng(2)
    sites, errors = rng.uniform(size=(70, 2)), np.resize([0.05, 0.2, 0.8], 70)
    values = simulate(Matern(2.0, 0.2, 1.5), sites, seed=4, target="observation", error_variances=errors)[0]
    columns = (*sites.T, values, errors, np.sqrt(errors))
    io.write_table(tmp_path / "data.csv", dict(zip(COLUMNS, columns, strict=True)))
    io.write_table(tmp_path / "bare.csv", dict(zip(COLUMNS[:2], sites[:5].T, strict=True)))
    return tmp_path / "data.csv"


def fit_words(data, *words):
    return shell("fit", data, "--x", "x", "--y", "y", "--value", "value", "--smoothness", "1.5", "--nugget", "zero", *words)


def test_known_errors_from_fit_to_prediction(data, tmp_path, capsys):
    model, out = tmp_path / "model.json", tmp_path / "out.csv"
    assert fit_words(data, "--error-sd", "sd", "--output", model, "--standard-errors") == 0
    told = capsys.readouterr().out
    assert "known errors of column sd, of variances 0.05 to 0.8, besides the nugget" in told
    assert "likelihood by fisher" in told
    saved = read_result(model)
    observations = load_dataset(saved.spec).observations
    np.testing.assert_allclose(observations.error_variances, np.resize([0.05, 0.2, 0.8], 70), rtol=TWO_ROUTES)
    expected = fit(observations, smoothness=1.5, nugget="zero")
    assert saved.model == expected.model and saved.estimated == ("range", "variance")
    other = tmp_path / "other.json"
    assert fit_words(data, "--error-variance", "variance", "--output", other) == 0
    assert read_result(other).loglik == pytest.approx(saved.loglik, rel=TWO_ROUTES)
    # new observations have the errors of their column, and none where there is no column
    assert shell("predict", model, data, data, "--output", out) == 0
    with_errors = predict(observations, saved.model, observations.coordinates, error_variances=observations.error_variances)
    np.testing.assert_allclose(
        io.read_table(out, ("standard_error",)).columns["standard_error"], with_errors.standard_error, rtol=TWO_ROUTES
    )
    capsys.readouterr()
    assert shell("predict", model, data, tmp_path / "bare.csv", "--output", out, "--force") == 0
    assert "the sites have no column 'sd'" in capsys.readouterr().err
    field = predict(observations, saved.model, observations.coordinates[:5], target="field")
    np.testing.assert_allclose(
        io.read_table(out, ("standard_error",)).columns["standard_error"], field.standard_error, rtol=TWO_ROUTES
    )
    for words in (
        ("cv", model, data),
        ("simulate", model, "--sites", data, "--conditional", data, "--target", "observation", "--output", out, "--force"),
        ("loglik", data, "--model", model),
        ("loglik", data, "--theta", "2,0.2,1.5", "--error-variance", "variance"),
        ("plot", "variogram", model, "--simulations", "19", "--output", tmp_path / "v.png"),
        ("convert", model, "--convert-to", "gpgp"),
    ):
        assert shell(*words) == 0
    told = capsys.readouterr().err
    assert "leaves out the known errors" in told and "the known errors of column 'sd' are part of the data" in told


def test_dry_run_says_that_the_variance_is_searched_for(data, capsys):
    assert fit_words(data, "--error-variance", "variance", "--dry-run") == 0
    assert "1 search by fisher over range, variance; profiled out: coefficient of intercept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--error-sd", "x"], "a column plays two parts"),
        (["--error-sd", "value"], "a column plays two parts"),
        (["--error-variance", "nothing"], "no column 'nothing'"),
    ],
)
def test_mistakes_are_said_on_one_line(data, words, message, capsys):
    assert fit_words(data, *words) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told


def test_errors_that_are_none(data, tmp_path, capsys):
    text = data.read_text().replace(",0.8,", ",-0.8,")
    (tmp_path / "wrong.csv").write_text(text)
    assert fit_words(tmp_path / "wrong.csv", "--error-variance", "variance") == 2
    assert "the known error 'variance' of line 4 of wrong.csv is -0.8" in capsys.readouterr().err


def test_profile_is_drawn_told_and_kept(data, tmp_path, capsys):
    model, picture, values = tmp_path / "model.json", tmp_path / "profile.svg", tmp_path / "values.csv"
    assert fit_words(data, "--error-sd", "sd", "--output", model) == 0
    saved = read_result(model)
    capsys.readouterr()
    words = ["plot", "profile", model, data, "--points", "5", "--values", values, "--output", picture]
    assert shell(*words) == 0
    told = capsys.readouterr().out
    table = io.read_table(values, ("range", "loglik")).columns
    assert saved.model.range in table["range"] and len(table["range"]) == 5
    observations = load_dataset(saved.spec).observations
    expected = profile_likelihood(observations, saved.model, "range", table["range"], estimated=saved.estimated)
    np.testing.assert_allclose(table["loglik"], expected.loglik, rtol=TWO_ROUTES)
    lower, upper = expected.interval()
    assert f"95 % interval of the range by its profile likelihood: {lower:.6g} to {upper:.6g}" in told
    # the legend of the picture has the same interval
    assert f"95 % interval: {lower:.4g} to {upper:.4g}" in picture.read_text(encoding="utf-8")
    # the file is taken in place of searches, unless it is of another fit
    assert shell(*words) == 0
    again = capsys.readouterr()
    assert "nothing was searched for" in again.err and "interval of the range" in again.out
    content = json.loads(model.read_text(encoding="utf-8"))
    content["fit"]["loglik"] += 1.0
    io.write_json(tmp_path / "other.json", content)
    assert shell("plot", "profile", tmp_path / "other.json", *words[3:]) == 2
    assert "is of another one; remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parameter", "nugget_ratio"], "the nugget is zero"),
        (["--parameter", "variance"], "there are range, smoothness, nugget_ratio to profile"),
        (["--points", "2"], "3 or more"),
        (["--level", "1.5"], "--level is 1.5"),
        (["--from", "2", "--to", "1"], "ascending"),
    ],
)
def test_mistakes_of_profiles(data, tmp_path, words, message, capsys):
    model = tmp_path / "model.json"
    assert fit_words(data, "--max-evaluations", "2", "--output", model) == 0
    assert shell("plot", "profile", model, *words, "--output", tmp_path / "p.png") == 2
    assert message in capsys.readouterr().err


def test_the_likelihood_of_a_restricted_fit_is_the_restricted_one(data, tmp_path, capsys):
    model = tmp_path / "model.json"
    assert fit_words(data, "--reml", "--max-evaluations", "2", "--output", model) == 0
    capsys.readouterr()
    assert shell("loglik", "--model", model, "--certified") == 0
    saved, told = read_result(model), capsys.readouterr().out
    assert saved.reml and float(told.split("loglik")[1].split()[0]) == pytest.approx(saved.loglik, rel=TWO_ROUTES)
    assert " (restricted)\n" in told
    assert shell("loglik", "--model", model, "--certified", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["reml"] and answer["interval"][0] <= answer["loglik"] <= answer["interval"][1]
    assert shell("loglik", data, "--theta", "2,0.2,1.5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["reml"] is False


def test_a_profile_that_ends_too_early_says_so(data, tmp_path, capsys):
    model = tmp_path / "model.json"
    words = ["--x", "x", "--y", "y", "--value", "value", "--smoothness", "1.5", "--method", "fisher", "--output", model]
    assert shell("fit", data, *words) == 0
    out = ["--points", "3", "--output", tmp_path / "p.png"]
    assert shell("plot", "profile", model, "--parameter", "nugget_ratio", *out) == 0
    assert "95 % interval of the nugget ratio by its profile likelihood: " in capsys.readouterr().out
    length = read_result(model).model.range
    assert shell("plot", "profile", model, "--from", 0.99 * length, "--to", 1.01 * length, *out) == 0
    told = capsys.readouterr()
    assert f"range by its profile likelihood: below {0.99 * length:.6g} to above {1.01 * length:.6g}" in told.out
    assert "widen them by --from and --to" in told.err


def test_the_options_of_a_fit_are_shown_in_groups(capsys):
    with pytest.raises(SystemExit):
        main(["geostat", "fit", "--help"])
    page = capsys.readouterr().out
    places = [page.index(f"\n{name}:\n") for name in ("data", "covariance", "search", "results", "factorization", "examples")]
    assert places == sorted(places)
    between = {
        option: page.index(f"\n  {option} ") for option in ("--value", "--smoothness", "--method", "--plot", "--tile-size")
    }
    assert [sum(place < at for place in places) for at in between.values()] == [1, 2, 3, 4, 5]


def test_the_estimator_of_scikit_learns_form_is_listed():
    assert "MaternGP" in dir(geostat)
