"""Variograms before any model: trees against loops, directions, maps of lags, least squares, and the command."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from scipy.optimize import minimize

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Direction, Matern, empirical_variogram, fit_variogram, make_observations, variogram_map
from tests.apps.geostat.geostat_tolerances import printed
from tests.inside.cli import main
from tests.inside.geostat import drawn_origins, near_pairs
from tests.inside.geostat import pairs as pairs_module

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def field(n=300, seed=0):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2)) * [2.0, 1.0]
    return make_observations(sites, np.sin(3 * sites[:, 0]) + sites[:, 1] + 0.1 * rng.normal(size=n))


def with_sill(n=400, seed=3):
    """Values whose semivariogram levels off."""
    sites = np.random.default_rng(seed).uniform(size=(n, 2)) * [2.0, 1.0]
    truth = Matern(1.0, 0.08, 1.0, 0.1)
    return make_observations(sites, geostat.simulate(truth, sites, seed=seed, target="observation")[0])


def meuse(data_dir):
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc"))
    return make_observations(table.stack(("x", "y")), np.log(table.columns["zinc"]))


def all_pairs(sites):
    i, j = np.tril_indices(len(sites), -1)
    return i, j, sites[i] - sites[j]


@pytest.mark.parametrize("chunk", [40, 2**20])
def test_every_near_pair_comes_once(chunk, monkeypatch):
    monkeypatch.setattr(pairs_module, "_CHUNK_PAIRS", chunk)
    sites = field(80).coordinates
    i, j, steps = all_pairs(sites)
    length = np.hypot(*steps.T)
    found = [np.concatenate(parts) for parts in zip(*near_pairs(sites, 0.4), strict=True)]
    assert set(zip(found[0], found[1], strict=True)) == set(zip(i[length <= 0.4], j[length <= 0.4], strict=True))
    assert len(found[0]) == np.sum(length <= 0.4)
    assert found[2] == pytest.approx(np.hypot(*(sites[found[0]] - sites[found[1]]).T), rel=1e-14)
    boxed = sum(len(one[0]) for one in near_pairs(sites, 0.4, is_box=True))
    assert boxed == np.sum(np.abs(steps).max(axis=1) <= 0.4)


def test_drawn_pairs_are_those_of_the_drawn_sites_and_nearly_as_many_as_asked_for():
    sites = field(2000).coordinates
    total = sum(len(d) for _, _, d in near_pairs(sites, 0.3))
    origins = drawn_origins(sites, 0.3, total // 5, 0)
    pairs = [np.concatenate(parts) for parts in zip(*near_pairs(sites, 0.3, origins=origins), strict=True)]
    assert len(pairs[0]) == pytest.approx(total / 5, rel=0.1)
    assert len(set(zip(pairs[0], pairs[1], strict=True))) == len(pairs[0])
    assert np.all(np.isin(pairs[0], origins) | np.isin(pairs[1], origins))
    assert drawn_origins(sites, 0.3, 10 * total, 0) is None


def test_a_sample_of_pairs_estimates_what_all_pairs_do_and_is_said():
    observations = field(3000)
    whole = empirical_variogram(observations, longest=0.5)
    some = empirical_variogram(observations, longest=0.5, max_pairs=int(whole.pairs.sum()) // 4)
    assert "of the pairs" in some.notes[0] and not whole.notes
    # another sample differs by its standard error, which some tenths of a per cent of pairs leave: 5 % at most here
    assert some.semivariance == pytest.approx(whole.semivariance, rel=0.05)
    assert not np.array_equal(some.pairs, whole.pairs)


def test_bins_have_the_width_that_was_asked_for():
    found = empirical_variogram(field(), longest=0.5, width=0.15)
    assert found.edges == pytest.approx([0.0, 0.15, 0.3, 0.45, 0.5])
    assert empirical_variogram(field(), longest=0.45, width=0.15).edges == pytest.approx([0.0, 0.15, 0.3, 0.45])
    with pytest.raises(ValueError, match="not both"):
        empirical_variogram(field(), bins=3, width=0.1)
    with pytest.raises(ValueError, match="width above 0"):
        empirical_variogram(field(), longest=0.1, width=0.2)


def test_directions_have_one_set_of_bins_and_each_its_own_pairs():
    observations = field()
    curves = geostat.directional_variograms(observations, (0.0, 90.0), tolerance=45.0)
    assert [one.direction for one in curves] == [Direction(0.0, 45.0), Direction(90.0, 45.0)]
    whole = empirical_variogram(observations)
    assert all(np.array_equal(one.edges, whole.edges) for one in curves)
    assert curves[0].pairs + curves[1].pairs == pytest.approx(whole.pairs)
    # sin(3 x) varies along the first axis
    assert curves[1].semivariance[5] > 1.5 * curves[0].semivariance[5]


def test_the_map_is_the_mean_over_pairs_by_lag():
    observations, width = field(60), 0.2
    found = variogram_map(observations, longest=0.4, width=width)
    i, j, steps = all_pairs(observations.coordinates)
    residual = observations.values - observations.values.mean()
    both = np.vstack([steps, -steps])
    half_squares = np.tile(0.5 * (residual[i] - residual[j]) ** 2, 2)
    for row, dy in enumerate(found.lags):
        for column, dx in enumerate(found.lags):
            inside = np.all(np.abs(both - [dx, dy]) < width / 2, axis=1)
            count = inside.sum() // (2 if dx == dy == 0 else 1)
            assert found.pairs[row, column] == count
            if count:
                assert found.semivariance[row, column] == pytest.approx(half_squares[inside].mean(), rel=1e-10)
    assert np.array_equal(found.pairs, found.pairs[::-1, ::-1])


@pytest.mark.parametrize("weights", ["gstat", "pairs"])
@pytest.mark.parametrize("smoothness", [0.5, 1.5])
def test_least_squares_are_least(weights, smoothness):
    variogram = empirical_variogram(with_sill(), longest=1.0)
    found = fit_variogram(variogram, smoothness=smoothness, weights=weights)
    h, w = variogram.distance, variogram.pairs / (variogram.distance**2 if weights == "gstat" else 1.0)

    def loss(logs):
        variance, length, nugget = np.exp(logs)
        model = Matern(variance, length, smoothness, nugget)
        return float(np.sum(w * (geostat.model_variogram(model, h) - variogram.semivariance) ** 2))

    starts = [np.log([1.0, length, 0.01]) for length in (0.05, 0.2, 1.0)]
    other = min(minimize(loss, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-9}).fun for start in starts)
    assert found.loss <= other * (1 + 1e-6)
    assert found.loss == pytest.approx(other, rel=1e-3)


def test_the_best_smoothness_has_the_least_loss_and_a_kept_nugget_stays():
    variogram = empirical_variogram(with_sill())
    losses = {nu: fit_variogram(variogram, smoothness=nu).loss for nu in geostat.SMOOTHNESS}
    best = fit_variogram(variogram, smoothness="best")
    assert losses[best.model.smoothness] == min(losses.values()) == best.loss
    assert fit_variogram(variogram, nugget=0.02).model.nugget == 0.02
    assert fit_variogram(variogram, nugget="zero").model.nugget == 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nugget": "foo"}, "nugget is 'foo', but it must be 'free', 'zero' or a variance"),
        ({"nugget": -0.1}, "nugget is -0.1"),
        ({"smoothness": "foo"}, "smoothness is 'foo', but there are 'best' and numbers"),
        ({"weights": "foo"}, "weights are 'foo'"),
    ],
)
def test_least_squares_refuse_what_is_no_choice(options, words):
    with pytest.raises(ValueError, match=words):
        fit_variogram(empirical_variogram(field(60)), **options)


@pytest.mark.parametrize("count", [0, -5])
@pytest.mark.parametrize("estimate", [variogram_map, empirical_variogram])
def test_a_semivariogram_needs_a_pair(estimate, count):
    with pytest.raises(ValueError, match=f"max_pairs is {count}"):
        estimate(field(60), max_pairs=count)


def test_least_squares_of_log_zinc_as_gstat_prints_them(data_dir):
    """``fit.variogram(variogram(log(zinc) ~ 1, meuse), vgm("Exp"))``: nugget 0, partial sill 0.7186, range 449.8."""
    model = fit_variogram(empirical_variogram(meuse(data_dir))).model
    assert model.nugget == pytest.approx(0.0, abs=1e-12)
    assert model.variance == pytest.approx(0.7186, abs=1e-4) and model.range == pytest.approx(449.8, abs=0.1)


@pytest.fixture
def data(tmp_path):
    observations = field(150)
    rows = [f"{x},{y},{z + 3}" for (x, y), z in zip(observations.coordinates, observations.values, strict=True)]
    path = tmp_path / "field.csv"
    path.write_text("\n".join(["x,y,z", *rows]) + "\n")
    return path


def test_the_command_writes_prints_and_draws_without_a_model(data, tmp_path, capsys):
    words = ["geostat", "variogram", str(data), "--x", "x", "--y", "y", "--formula", "log(z) ~ 1 + y", "--json"]
    table, picture = tmp_path / "v.csv", tmp_path / "v.png"
    assert main([*words, "--cutoff", "0.9", "--width", "0.3", "--output", str(table), "--output", str(picture)]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    loaded = geostat.read_table(data, ("x", "y", "z"))
    expected = empirical_variogram(
        make_observations(loaded.stack(("x", "y")), np.log(loaded.columns["z"]), covariates=loaded.columns["y"]),
        longest=0.9,
        width=0.3,
    )
    assert [float(row["semivariance"]) for row in rows] == pytest.approx(expected.semivariance, rel=printed(12))
    assert answer["pairs"] == expected.pairs.tolist() and picture.stat().st_size > 5000


@pytest.mark.parametrize("words", [["--azimuth", "0,45,90,135"], ["--map"], ["--fit", "best"]])
def test_each_kind_is_drawn_and_tabled(words, data, tmp_path, capsys):
    outputs = [tmp_path / "out.csv", tmp_path / "out.svg"]
    both = [word for path in outputs for word in ("--output", str(path))]
    assert main(["geostat", "variogram", str(data), "--x", "x", "--y", "y", "--value", "z", *words, *both]) == 0
    out = capsys.readouterr().out
    header = outputs[0].read_text().splitlines()[0].split(",")
    columns = {"--azimuth": "azimuth", "--map": "lag_x", "--fit": "distance"}
    assert header[0] == columns[words[0]] and outputs[1].exists()
    assert ("least squares: Matérn" in out) == (words[0] == "--fit")


@pytest.mark.parametrize("words", [["--lonlat", "--distance", "great-circle"], ["--time", "t"], ["--variable", "k"]])
def test_distances_that_are_not_straight_or_not_of_space_are_refused_before_the_data_are_read(words, tmp_path, capsys):
    columns = ["--x", "x", "--y", "y", "--value", "z"]
    assert main(["geostat", "variogram", str(tmp_path / "none.csv"), *columns, *words]) == 2
    assert "semivariograms are of space with straight distances" in capsys.readouterr().err


def test_an_ending_that_promises_another_format_is_refused_before_the_data_are_read(tmp_path, capsys):
    words = ["geostat", "variogram", str(tmp_path / "none.csv"), "--x", "x", "--y", "y", "--value", "z"]
    assert main([*words, "--output", str(tmp_path / "v.gpkg")]) == 2
    assert "semivariograms are written as" in capsys.readouterr().err


@pytest.mark.parametrize("smoothness", [1.5, "free"])
def test_a_fit_that_starts_from_the_variogram_finds_the_same_estimate(smoothness):
    observations = field(150)
    known = geostat.fit(observations, smoothness=smoothness)
    found = geostat.fit(observations, smoothness=smoothness, starts="variogram")
    assert found.start == "variogram" and found.subset_evaluations == 0
    assert found.loglik == pytest.approx(known.loglik, abs=0.05)


def test_starts_from_the_variogram_are_for_matern_models():
    template = geostat.PowerExponential(1.0, 0.3, 1.0, 0.1)
    with pytest.raises(ValueError, match="isotropic Matérn covariance, not for PowerExponential"):
        geostat.fit(field(60), covariance=template, starts="variogram")


def test_a_semivariogram_without_a_sill_says_that_it_determines_no_range():
    sites = np.random.default_rng(0).uniform(size=(200, 2))
    slope = make_observations(sites, 3 * sites[:, 0])
    assert fit_variogram(empirical_variogram(slope)).at_bound
    assert not fit_variogram(empirical_variogram(with_sill())).at_bound
