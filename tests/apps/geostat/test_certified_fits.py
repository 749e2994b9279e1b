"""Fits in mixed precision: intervals at their end, no factorization in FP64 unless asked, smaller thresholds where needed."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.geostat import FactorSettings, Matern, fit, log_likelihood, make_observations
from tests.apps.geostat.exact_loglik import ROOM, exact
from tests.apps.geostat.fields import simulate
from tests.inside.cli import main
from tests.inside.geostat import LineProgress, certified_search, scoring

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MIXED = FactorSettings(precision_threshold=1e-3, tile_size=30)


@pytest.fixture(scope="module")
def field():
    return simulate(Matern(2.0, 0.02, 0.5, 0.2), 120, seed=21)


@pytest.fixture(scope="module")
def smooth():
    """At any threshold its log-likelihood is known to 0.001 or so."""
    return simulate(Matern(1.0, 0.2, 1.5, 1e-4), 100, seed=5)


def thresholds_of(monkeypatch, n):
    """The threshold of each factorization of order n from now on."""
    factor, seen = oc.cholesky, []

    def noticed(source, **options):
        found = factor(source, **options)
        if found.n == n:
            seen.append(options.get("precision_threshold"))
        return found

    monkeypatch.setattr(oc, "cholesky", noticed)
    return seen


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("method", ["fisher", "lbfgs", "cobyqa"])
def test_the_interval_holds_the_likelihood_of_long_double_and_nothing_is_factored_in_fp64(field, method, reml, monkeypatch):
    seen = thresholds_of(monkeypatch, field.n)
    found = fit(field, smoothness=0.5, method=method, reml=reml, starts="variogram", settings=MIXED)
    low, high = found.interval
    assert low - ROOM <= exact(found.model, field, reml=reml) <= high + ROOM
    assert set(seen) == {1e-3} and len(seen) == len(found.evaluations)
    assert found.precision.thresholds == (1e-3,) and found.precision.loglik is None and found.precision.problem is None
    assert 0.0 < found.precision.most_off < 0.05 and found.trials[0].interval == (low, high)
    assert found.aic_interval == pytest.approx((found.aic + 2 * (found.loglik - high), found.aic + 2 * (found.loglik - low)))
    assert found.bic_interval[1] - found.bic_interval[0] == pytest.approx(2 * (high - low))
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["interval"] == [low, high] and content["precision"]["most_off"] == found.precision.most_off


def test_the_open_factor_certifies_the_end_of_a_search_by_scoring(field):
    plain = fit(field, smoothness=0.5, starts="variogram")
    found = fit(field, smoothness=0.5, starts="variogram", settings=MIXED)
    assert len(found.evaluations) == len(plain.evaluations)  # none for the interval alone
    assert plain.interval is None and plain.aic_interval is None and plain.precision is None
    assert plain.loglik - log_likelihood(field, found.model).loglik < 1e-4


@pytest.mark.parametrize(
    ("exact_check", "in_fp64", "has_shift"), [(None, 0, False), ("skip", 0, False), ("value", 1, False), ("score", 1, True)]
)
def test_exact_checks_take_place_where_they_are_asked_for(field, exact_check, in_fp64, has_shift, monkeypatch):
    seen = thresholds_of(monkeypatch, field.n)
    found = fit(field, smoothness=0.5, starts="variogram", exact_check=exact_check, settings=MIXED)
    assert seen.count(None) == in_fp64
    check = found.precision
    assert (check.loglik is not None) == bool(in_fp64) and (check.shift is not None) == has_shift
    if in_fp64:
        assert found.loglik == check.loglik and check.lower - ROOM <= check.loglik <= check.upper + ROOM
        assert found.aic_interval[0] <= found.aic <= found.aic_interval[1]


@pytest.mark.parametrize("method", ["fisher", "lbfgs"])
def test_a_log_has_the_interval_and_older_logs_go_on_without(field, method, tmp_path, monkeypatch):
    how = {"smoothness": 0.5, "method": method, "starts": "variogram", "settings": MIXED}
    log = tmp_path / "log.jsonl"
    first = fit(field, checkpoint=log, **how)
    seen = thresholds_of(monkeypatch, field.n)
    again = fit(field, checkpoint=log, **how)
    assert again.interval == first.interval and again.loglik == first.loglik and not seen
    old = [
        {name: value for name, value in json.loads(line).items() if name != "interval"} for line in log.read_text().splitlines()
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in old))
    resumed = fit(field, checkpoint=log, **how)
    assert seen == [1e-3] and resumed.interval is not None
    assert resumed.loglik == pytest.approx(first.loglik, abs=first.precision.most_off)
    assert fit(field, checkpoint=log, **how).interval == resumed.interval and len(seen) == 1


def test_a_search_goes_on_at_smaller_thresholds_where_the_interval_is_too_wide(smooth, tmp_path, monkeypatch):
    widest(monkeypatch, 1e-7)
    progress, log = io.StringIO(), tmp_path / "log.jsonl"
    how = {"smoothness": 1.5, "starts": "variogram"}
    seen = thresholds_of(monkeypatch, smooth.n)
    mixed = {**how, "settings": FactorSettings(precision_threshold=1e-2, tile_size=25)}
    found = fit(smooth, checkpoint=log, progress=LineProgress(progress), **mixed)
    assert found.precision.thresholds == (1e-2, 1e-4, None) and list(dict.fromkeys(seen)) == [1e-2, 1e-4, None]
    assert found.trials[0].evaluations == len(found.evaluations) == len(seen)
    plain, (low, high) = fit(smooth, **how), found.interval
    assert abs(found.loglik - plain.loglik) < 1e-3
    assert low - ROOM <= exact(found.model, smooth, reml=False) <= high + ROOM
    said = progress.getvalue()
    assert "at threshold 0.01 the log-likelihood is known only to " in said and "the search goes on in FP64" in said
    seen.clear()
    again = fit(smooth, checkpoint=log, **mixed)
    assert again.loglik == found.loglik and again.interval == found.interval and not seen


def widest(monkeypatch, width):
    for module in (certified_search, scoring):
        monkeypatch.setattr(module, "WIDEST", width)


def test_where_fp64_has_no_room_the_estimate_stays_and_what_is_known_is_said(smooth, monkeypatch):
    widest(monkeypatch, 1e-9)
    short = oc.BudgetError("host memory for L", 2000, 1000, "buy some")
    monkeypatch.setattr(FactorSettings, "refusal", lambda self, _: short if self.precision_threshold is None else None)
    found = fit(smooth, smoothness=1.5, starts="variogram", settings=replace(MIXED, precision_threshold=1e-12))
    assert found.precision.thresholds == (1e-12,) and found.interval is not None
    text = next(text for text in found.warnings if "off by at most" in text)
    assert "a search in FP64 failed: host memory for L" in text and "known only to" in text


def test_what_not_even_fp64_certifies_is_said_with_what_to_do():
    rng = np.random.default_rng(6)
    observations = make_observations(rng.uniform(size=(60, 2)), rng.normal(size=60), mean="zero")
    model = Matern(1.0, 2.0, 2.5, 1e-13)
    found = fit(observations, covariance=model, fixed=("range", "smoothness"), nugget=1e-13, settings=MIXED)
    assert found.interval is None and found.aic_interval is None and found.precision.most_off is None
    assert found.precision.thresholds[-1] is None and math.isfinite(found.loglik)
    assert any("in FP64 nothing is certified" in text and "nugget" in text for text in found.warnings)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["interval"] is None


def test_a_choice_within_the_intervals_is_said(monkeypatch):
    """Pure noise has nearly the same likelihood at any smoothness."""
    rng = np.random.default_rng(8)
    noise = make_observations(rng.uniform(size=(80, 2)), rng.normal(size=80))
    found = fit(noise, starts="subset", settings=replace(MIXED, tile_size=16))
    low, high = found.comparison.gain_interval
    assert low <= found.comparison.gain + 1e-9 and high >= found.comparison.gain - 1e-9 and not found.comparison.is_close
    close = replace(found.comparison, gain=3.3, p_value=0.0102, gain_interval=(3.2, 3.4))
    assert close.is_close and "which may decide otherwise" in str(close) and "may decide" not in str(found.comparison)


def test_the_command_tells_the_interval_and_the_thresholds(field, tmp_path, capsys, monkeypatch):
    widest(monkeypatch, 1e-7)
    rows = np.column_stack([field.coordinates, field.values])
    (tmp_path / "field.csv").write_text("x,y,value\n" + "\n".join(",".join(map(repr, map(float, row))) for row in rows) + "\n")
    words = [
        "--x",
        "x",
        "--y",
        "y",
        "--value",
        "value",
        "--smoothness",
        "0.5",
        "--precision-threshold",
        "1e-3",
        "--tile-size",
        "50",
    ]
    assert main(["geostat", "fit", str(tmp_path / "field.csv"), *words]) == 0
    told = capsys.readouterr()
    assert "precision    FP64 would give the same log-likelihood to " in told.out
    assert "searched at 0.001, then at 1e-05, then in FP64" in told.out and "the search goes on at threshold 1e-05" in told.err
    assert main(["geostat", "fit", str(tmp_path / "field.csv"), *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["fit"]
    assert answer["precision"]["thresholds"] == [1e-3, 1e-5, None]
    assert answer["interval"][0] <= answer["loglik"] + ROOM and answer["loglik"] <= answer["interval"][1] + ROOM
