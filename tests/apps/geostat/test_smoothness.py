"""A smoothness is taken, kept and warned of by its likelihood ratio, and the result says what was compared."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, fit, likelihood_ratios
from tests.apps.geostat.fields import simulate
from tests.inside.cli import main
from tests.inside.geostat import fit_options, io, smoothness_choice

pytestmark = pytest.mark.usefixtures("one_blas_thread")

BETWEEN = Matern(1.0, 0.15, 1.0, 0.0001)

#: Values of the field: with so many an estimate rejects the three.
N = 160


@pytest.fixture(scope="module")
def field():
    """Values of a smoothness between those that are tried."""
    return simulate(BETWEEN, N, seed=2)


@pytest.fixture(scope="module")
def free(field):
    """What estimating the smoothness gives."""
    return fit(field, smoothness="free")


def test_an_estimated_smoothness_is_taken_where_it_rejects_the_best_of_the_three(field, free):
    result, best = fit(field), fit(field, smoothness="best")
    found = result.comparison
    assert result.model.smoothness == pytest.approx(free.model.smoothness, rel=0.01) == pytest.approx(1.0, abs=0.2)
    assert result.loglik == pytest.approx(free.loglik, abs=0.01) and "smoothness" in result.estimated and result.converged
    assert (found.taken, found.kept, found.densities) == ("estimated", best.model.smoothness, None)
    assert found.gain == pytest.approx(free.loglik - best.loglik, abs=0.01) and found.gain > 3.3
    assert found.aic_difference == pytest.approx(result.aic - best.aic, abs=0.02)
    (ratio,) = likelihood_ratios(field, result.model, against=(found.kept,))
    assert found.p_value == pytest.approx(ratio.p_value, rel=0.1)
    assert [trial.smoothness for trial in result.trials] == [0.5, 1.5, 2.5, result.model.smoothness]
    assert sum(trial.evaluations for trial in result.trials) == len(result.evaluations)
    assert result.method == "fisher" and "which that rejects" in str(found) and "--how gaps" in str(found)
    assert json.loads(json.dumps(result.to_dict()))["comparison"]["gain"] == found.gain


@pytest.mark.parametrize("right", [0.5, 1.5])
def test_the_best_of_the_three_is_kept_where_nothing_rejects_it(right):
    result = fit(simulate(Matern(1.0, 0.08, right, 0.001), 250, seed=3))
    assert result.model.smoothness == right == result.comparison.kept and "smoothness" not in result.estimated
    assert result.comparison.taken == "kept" and result.comparison.p_value >= 0.01 and len(result.trials) == 4
    assert result.method == "fisher" and not any("smoothness" in text for text in result.warnings)
    assert result.loglik == max(trial.loglik for trial in result.trials[:3])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fisher", {"smoothness": 2.5}),
        ("vecchia", {"smoothness": "best"}),
        ("fisher", {"covariance": Matern(1.0, 0.1, 2.5, 0.01)}),
    ],
)
def test_a_smoothness_that_is_kept_and_rejected_is_warned_of(field, free, options, method):
    more = {"fixed": ("smoothness",)} if "covariance" in options else {}
    result = fit(field, method=method, **options, **more)
    (text,) = (text for text in result.warnings if "rejected by its likelihood ratio" in text)
    kept, found = result.model.smoothness, result.comparison
    assert text.startswith(f"smoothness {kept:g} is rejected") and "--smoothness free" in text and "--how gaps" in text
    assert found.taken == "kept" and found.densities == N and f"{found.gain:.3g} more" in text
    # of the approximation, within a unit of the exact ratio
    exact = geostat.log_likelihood(field, result.model).loglik
    assert found.gain == pytest.approx(free.loglik - exact, abs=1.0) and found.estimated == pytest.approx(1.0, abs=0.2)


def test_of_many_observations_a_sample_tells():
    many = simulate(BETWEEN, 1001, seed=3)
    result = fit(many, smoothness=2.5, method="vecchia", neighbours=10, exact_check="skip")
    assert result.comparison.densities == 1000 and result.comparison.is_rejected
    assert any("1000 of 1001 conditional densities" in text for text in result.warnings)


def test_a_smoothness_that_is_right_is_rarely_rejected():
    """A level of 1 % rejects one of 15 and more with a probability of 14 %, two with 1 %."""
    truth = Matern(1.0, 0.08, 1.5, 0.02)
    rejected = 0
    for seed in range(15):
        observations = simulate(truth, 90, seed=seed)
        rejected += fit(observations, smoothness=1.5, method="vecchia", exact_check="skip").comparison.is_rejected
    assert rejected <= 1


def test_more_observations_than_are_compared_exactly_keep_the_best(monkeypatch, field):
    monkeypatch.setattr(fit_options, "COMPARED_LIMIT", N - 1)
    result = fit(field)
    assert len(result.trials) == 3 and result.comparison.densities == N and result.comparison.taken == "kept"
    assert any("is rejected by its likelihood ratio" in text for text in result.warnings)


def test_a_comparison_that_fails_takes_no_estimate_with_it(monkeypatch, field):
    def refuse(*arguments, **options):
        raise MemoryError("no room")

    monkeypatch.setattr(smoothness_choice, "search_space", refuse)
    result = fit(field)
    assert result.model.smoothness in geostat.SMOOTHNESS and result.comparison is None and len(result.trials) == 3
    assert any("could not be looked at: no room" in text for text in result.warnings)


def test_the_shell_says_what_was_taken_and_why(field, tmp_path, capsys):
    data = tmp_path / "field.csv"
    io.write_table(data, {"x": field.coordinates[:, 0], "y": field.coordinates[:, 1], "z": field.values})
    words = ["geostat", "fit", str(data), "--x", "x", "--y", "y", "--value", "z"]
    assert main([*words, "--output", str(tmp_path / "a.json")]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  smoothness   "))
    found = json.loads((tmp_path / "a.json").read_text())["fit"]["comparison"]
    assert line.startswith("  smoothness   estimated, with") and f"{found['gain']:.3g} more log-likelihood" in line
    assert "likelihoods judge predictions beside observations" in line
    assert main([*words, "--smoothness", "2.5"]) == 0
    assert "  warning      smoothness 2.5 is rejected by its likelihood ratio" in capsys.readouterr().out
    assert main([*words, "--dry-run"]) == 0
    assert "3 searches, and one that estimates the smoothness, by fisher" in capsys.readouterr().out
    assert np.isfinite(found["p_value"])
