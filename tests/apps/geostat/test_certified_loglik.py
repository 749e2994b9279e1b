"""Intervals of log-likelihoods hold that of long double, whatever the precision of the factor."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol.apps.geostat import FactorSettings, KeptFactor, Matern, log_likelihood, make_observations
from tests.apps.geostat.exact_loglik import ROOM, exact
from tests.inside.cli import main
from tests.inside.geostat import kept_factor

pytestmark = [
    pytest.mark.usefixtures("one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]


def example(seed, **options):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(150, 2))
    values = np.sin(4 * sites[:, 0]) + 0.3 * rng.normal(size=150)
    return make_observations(sites, values, **options)


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("mean", ["zero", "constant", "covariates"])
@pytest.mark.parametrize("threshold", [None, 1e-8, 1e-5, 1e-3])
def test_the_log_likelihood_of_long_double_is_in_the_interval(threshold, mean, reml):
    columns = np.random.default_rng(1).normal(size=(150, 2))
    options = {"covariates": columns, "covariate_names": ("a", "b")} if mean == "covariates" else {"mean": mean}
    model, observations = Matern(1.3, 0.1, 0.5, 0.02), example(4, **options)
    settings = FactorSettings(precision_threshold=threshold, tile_size=32, devices="host:0")
    found = log_likelihood(observations, model, reml=reml, settings=settings, certified=True)
    low, high = found.interval
    assert low - ROOM <= exact(model, observations, reml=reml) <= high + ROOM
    assert high - low < {None: 1e-6, 1e-8: 1e-6, 1e-5: 1e-4, 1e-3: 0.1}[threshold]
    plain = log_likelihood(observations, model, reml=reml, settings=settings)
    assert plain.interval is None and plain.loglik == found.loglik


def test_the_interval_is_of_the_model_and_not_of_a_factor_that_was_kept(monkeypatch):
    monkeypatch.setattr(kept_factor, "_ROUNDING", 1e-3)  # models that are as near count as one
    observations = example(7)
    near, asked = Matern(1.3, 0.1, 0.5, 0.02), Matern(1.3, 0.10001, 0.5, 0.02)
    with KeptFactor() as kept:
        settings = FactorSettings(kept=kept)
        log_likelihood(observations, near, settings=settings)
        found = log_likelihood(observations, asked, settings=settings, certified=True)
        assert kept.reused == 1
    low, high = found.interval
    truth = exact(asked, observations, reml=False)
    assert low - ROOM <= truth <= high + ROOM and high - low < abs(found.loglik - truth) * 10
    assert not low <= exact(Matern(1.3, 0.12, 0.5, 0.02), observations, reml=False) <= high


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_the_unit_of_values_is_the_intervals(scale):
    model, observations = Matern(1.3 * scale**2, 0.1, 0.5, 0.02 * scale**2), example(5)
    plain = log_likelihood(observations, Matern(1.3, 0.1, 0.5, 0.02), certified=True)
    values = observations.values * scale
    found = log_likelihood(make_observations(observations.coordinates, values), model, certified=True)
    shift = -len(values) * np.log(scale)
    np.testing.assert_allclose(found.interval, np.array(plain.interval) + shift, rtol=1e-9)


def test_nothing_is_certified_of_a_matrix_that_is_nearly_singular():
    rng = np.random.default_rng(6)
    observations = make_observations(rng.uniform(size=(120, 2)), rng.normal(size=120), mean="zero")
    found = log_likelihood(observations, Matern(1.0, 2.0, 2.5, 1e-13), certified=True)
    assert found.interval == (-np.inf, np.inf) and np.isfinite(found.loglik)


def test_the_command_prints_the_interval(tmp_path, capsys):
    observations = example(7, mean="zero")
    rows = np.column_stack([observations.coordinates, observations.values])
    (tmp_path / "field.csv").write_text("x,y,value\n" + "\n".join(",".join(map(repr, map(float, row))) for row in rows) + "\n")
    command = ["geostat", "loglik", str(tmp_path / "field.csv"), "--theta", "1,0.1,0.5,0.05", "--mean", "zero"]
    assert main([*command, "--certified", "--precision-threshold", "1e-4", "--tile-size", "32"]) == 0
    printed = capsys.readouterr().out
    low, high = (float(word.rstrip(",")) for word in np.array(printed.split("interval")[1].split())[[0, 2]])
    assert low <= exact(Matern(1.0, 0.1, 0.5, 0.05), observations, reml=False) <= high
    assert main([*command, "--certified", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["interval"][0] <= answer["loglik"] <= answer["interval"][1]
    assert main([*command, "--json"]) == 0 and json.loads(capsys.readouterr().out)["interval"] is None
