"""Standard errors against the dense information, intervals against profiles, and likelihood-ratio tests of the smoothness."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chi2

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import BivariateMatern, GeometricAnisotropy, Matern, make_observations, microergodic
from tests.apps.geostat.few_tiles import fit, infer, likelihood_ratios, log_likelihood_gradient, profile_likelihood
from tests.apps.geostat.fields import simulate
from tests.apps.geostat.geostat_tolerances import MONTE_CARLO_ERRORS, TWO_ROUTES
from tests.inside.geostat import inference

pytestmark = pytest.mark.usefixtures("one_blas_thread")

ALL = ("range", "smoothness", "variance", "nugget")


@pytest.fixture(scope="module")
def field():
    return simulate(Matern(2.0, 0.15, 0.9, 0.1), 120, seed=5)


@pytest.mark.parametrize("reml", [False, True])
def test_standard_errors_are_those_of_the_inverse_information(field, reml):
    model = Matern(2.0, 0.15, 0.9, 0.1)
    found = infer(field, model, estimated=ALL, reml=reml)
    information = log_likelihood_gradient(field, model, reml=reml, information=True).information
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    ours = [found.parameters[name].standard_error for name in ALL]
    np.testing.assert_allclose(ours, errors, rtol=TWO_ROUTES)
    quantile = float(ndtri(0.975))
    for name, value in found.parameters.items():
        assert value.value == getattr(model, name)
        assert value.lower * value.upper == pytest.approx(value.value**2)
        assert math.log(value.upper / value.value) == pytest.approx(quantile * value.standard_error / value.value)
    assert found.probes == 0 and found.relative_error == 0.0


@pytest.mark.parametrize("reml", [False, True])
@pytest.mark.parametrize("threshold", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("model", [Matern(2.0, 0.05, 0.5, 0.2), Matern(1.0, 0.2, 1.5, 1e-4)], ids=["rough", "smooth"])
def test_standard_errors_in_mixed_precision_are_off_by_what_is_certified(field, model, threshold, reml):
    exact = geostat.infer(field, model, reml=reml)
    settings = geostat.FactorSettings(precision_threshold=threshold, tile_size=30)
    mixed = geostat.infer(field, model, reml=reml, settings=settings)
    assert exact.most_off is None and 0.0 < mixed.most_off <= 0.05
    for name, value in exact.parameters.items():
        assert mixed.parameters[name].standard_error == pytest.approx(value.standard_error, rel=mixed.most_off + TWO_ROUTES)
    assert "in mixed precision, off by at most" in str(mixed) and mixed.to_dict()["most_off"] == mixed.most_off


def test_standard_errors_that_a_factor_does_not_certify_are_those_of_fp64_and_that_is_said(field, monkeypatch):
    monkeypatch.setattr(inference, "_MOST_OFF", 1e-9)
    model, settings = Matern(2.0, 0.05, 0.5, 0.2), geostat.FactorSettings(precision_threshold=1e-3, tile_size=30)
    found, exact = geostat.infer(field, model, settings=settings), geostat.infer(field, model, settings=settings.in_fp64())
    assert found.most_off is None and found.parameters == exact.parameters
    assert any("these are FP64's" in text for text in found.warnings)


def test_standard_errors_take_the_factor_that_a_fit_in_mixed_precision_ended_with(field):
    with geostat.KeptFactor() as kept:
        settings = geostat.FactorSettings(precision_threshold=1e-4, tile_size=30, kept=kept)
        model = geostat.fit(field, smoothness=0.5, starts="variogram", settings=settings).model
        assert geostat.infer(field, model, settings=settings).most_off < 0.05 and kept.reused == 1


def test_parameters_that_are_known_make_the_others_better_known(field):
    model = Matern(2.0, 0.15, 0.9, 0.1)
    everything, some = infer(field, model, estimated=ALL), infer(field, model, estimated=("range", "variance"))
    assert some.names == ("range", "variance")
    for name in some.names:
        assert some.parameters[name].standard_error < everything.parameters[name].standard_error


def test_delta_method_equals_a_change_of_parameters(field):
    """With nu known, log effective range is log range plus a constant; the other is log variance - 2 nu log range."""
    model = Matern(2.0, 0.15, 1.5, 0.1)
    found = infer(field, model)
    length, variance = (found.parameters[name] for name in ("range", "variance"))
    assert found.effective_range.standard_error / model.effective_range == pytest.approx(length.standard_error / 0.15, rel=1e-6)
    relative = np.array([length.standard_error / length.value, variance.standard_error / variance.value])
    correlation = found.correlation[0, 1]
    expected = relative[1] ** 2 + 9 * relative[0] ** 2 - 6 * correlation * relative[0] * relative[1]
    assert found.microergodic.value == microergodic(model) == 2.0 * 0.15**-3.0
    assert (found.microergodic.standard_error / microergodic(model)) ** 2 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "value"),
    [(Matern(1.0, 1e-12, 30.0, 0.1), math.inf), (Matern(1.0, 1e17, 10.0, 0.1), 0.0), (Matern(1.0, 1e8, 20.0, 0.1), 1e-320)],
)
def test_a_microergodic_parameter_beyond_float64_is_none(field, model, value):
    assert microergodic(model) == value
    unit = model.range / 0.15
    found = infer(make_observations(field.coordinates[:40] * unit, field.values[:40]), model)
    assert found.microergodic is None and "2 nu)  " not in str(found) and "microergodic" not in found.to_dict()["estimates"]


@pytest.mark.parametrize(
    "model",
    [Matern(1.0, 0.3, 0.01, 0.1), GeometricAnisotropy(Matern(1.0, 0.3, 0.01, 0.1), angle=0.4, ratio=0.5)],
    ids=lambda model: type(model).__name__,
)
def test_parameters_at_their_least_have_slopes(field, model):
    found = infer(field.take(np.arange(40)), model, estimated=(*model.values, "variance", "nugget"))
    assert found.parameters["smoothness"].value == 0.01


def test_the_microergodic_parameter_is_better_known_than_variance_and_range():
    model = Matern(2.0, 0.6, 0.5)
    found = infer(simulate(model, 150, seed=6), model, estimated=("range", "variance"))
    relative = [value.standard_error / value.value for value in found.parameters.values()]
    assert found.microergodic.standard_error / found.microergodic.value < 0.5 * min(relative)
    assert found.correlation[0, 1] > 0.9


@pytest.mark.parametrize("probes", [-5, 1])
def test_too_few_probes_are_refused(field, probes):
    with pytest.raises(ValueError, match=f"{probes} probes are asked for, but a standard error needs at least 2"):
        infer(field, Matern(2.0, 0.15, 0.9, 0.1), probes=probes)


def test_probes_agree_within_their_error(field):
    model = Matern(2.0, 0.15, 0.9, 0.1)
    exact, estimate = infer(field, model), infer(field, model, probes=400)
    assert estimate.probes == 400 and 0 < estimate.relative_error < 0.1
    for name in exact.names:
        ours, expected = estimate.parameters[name].standard_error, exact.parameters[name].standard_error
        # an error e of the scaled information, inverted, is at most condition * e of the variances
        assert abs(ours / expected - 1) < MONTE_CARLO_ERRORS * exact.condition * estimate.relative_error
    assert infer(field, model, probes=1600).relative_error < 0.6 * estimate.relative_error


def test_flat_directions_are_said():
    sites = simulate(Matern(2.0, 0.1, 0.5, 0.01), 80, seed=7).coordinates
    observations = make_observations(sites, sites[:, 0])
    clear, flat, small = (
        infer(observations, Matern(2.0, *rest)) for rest in ((0.6, 1.5, 0.01), (50.0, 0.5, 0.01), (0.1, 0.5, 1e-3))
    )
    assert clear.warnings == () and clear.condition < flat.condition
    # only variance / range is determined: both go up together
    (text,) = flat.warnings
    assert "nearly flat along range**1 * variance**0.9" in text and "variance / range**(2 nu)" in text
    assert "nearly flat along nugget**1 " in small.warnings[0]
    assert json.dumps(flat.to_dict(), allow_nan=False)


@pytest.mark.parametrize("probes", [None, 32])
def test_the_azimuth_of_a_circle_alone_is_unknown(field, probes):
    """Nothing depends on it at a ratio of 1; what is said of the others is the limit of ratios near 1."""
    names = ("range", "angle", "ratio", "variance", "nugget")
    circle, nearly = (
        infer(field, GeometricAnisotropy(Matern(2.0, 0.15, 0.9, 0.1), 30.0, ratio), estimated=names, probes=probes)
        for ratio in (1.0, 0.999)
    )
    for name in (*names, "range_across", "effective_range_along"):
        mine, other = (({**found.parameters, **found.ellipse})[name].standard_error for found in (circle, nearly))
        assert mine == (math.inf if name == "angle" else pytest.approx(other, rel=0.01))
    assert 0 <= circle.relative_error <= nearly.relative_error
    assert "flat along exp(1 angle) (standard deviation of its logarithm inf)" in circle.warnings[0]
    assert json.dumps(circle.to_dict(), allow_nan=False)


def test_profiles_agree_with_intervals_and_with_the_maximum(field):
    result = fit(field, smoothness=1.5, method="fisher", tolerance=1e-3)
    found = infer(field, result.model, estimated=result.estimated)
    value = found.parameters["range"]
    grid = np.geomspace(value.lower / 1.5, value.upper * 1.5, 6)
    profile = profile_likelihood(field, result.model, "range", [*grid, value.value], estimated=result.estimated)
    top = int(np.argmax(profile.loglik))
    assert profile.values[top] == value.value
    assert profile.loglik[top] == pytest.approx(result.loglik, abs=1e-4)
    assert np.all(np.diff(profile.loglik[: top + 1]) > 0) and np.all(np.diff(profile.loglik[top:]) < 0)
    assert profile.models[0].range == profile.values[0] and profile.models[0].smoothness == 1.5
    lower, upper = profile.interval()
    # the two intervals are the same for a quadratic likelihood, and this one nearly is
    assert math.log(lower / value.lower) == pytest.approx(0.0, abs=0.35)
    assert math.log(upper / value.upper) == pytest.approx(0.0, abs=0.35)
    assert profile_likelihood(field, result.model, "range", [value.value], estimated=result.estimated).interval() == (
        0.0,
        math.inf,
    )


def test_profile_of_the_nugget_ratio_without_anything_else_to_search(field):
    model = Matern(2.0, 0.15, 1.5)
    profile = profile_likelihood(field, model, "nugget_ratio", [0.01, 0.1], estimated=("variance",))
    for ratio, loglik, best in zip(profile.values, profile.loglik, profile.models, strict=True):
        expected = geostat.profile_log_likelihood(field, Matern(1.0, 0.15, 1.5, ratio))
        assert loglik == pytest.approx(expected.loglik, rel=TWO_ROUTES)
        assert best.nugget / best.variance == pytest.approx(ratio)


def test_a_profile_of_a_smoothness_moves_the_bound_of_a_correlation_that_is_estimated():
    sites = np.column_stack([np.repeat(np.random.default_rng(7).uniform(size=(20, 2)), 2, axis=0), np.tile([0.0, 1.0], 20)])
    model = BivariateMatern(1.0, 0.2, 0.6, 1.5, 1.5, 0.83, 0.05)
    observations = make_observations(sites, geostat.simulate(model, sites, seed=1, target="observation")[0])
    every = (*model.parameters, "variance", "nugget")
    profile = profile_likelihood(observations, model, "smoothness_1", [0.3, 1.5], estimated=every)
    assert np.isfinite(profile.loglik).all() and [best.smoothness_1 for best in profile.models] == [0.3, 1.5]


def test_likelihood_ratios_of_the_smoothness(field):
    free = fit(field, smoothness="free", method="fisher", tolerance=1e-3)
    half, other = likelihood_ratios(field, free.model)
    assert (half.smoothness, other.smoothness) == (0.5, 1.5)
    fixed = fit(field, smoothness=0.5, method="fisher", tolerance=1e-3)
    assert half.loglik == pytest.approx(fixed.loglik, abs=1e-3)
    assert half.statistic == pytest.approx(max(0.0, 2 * (free.loglik - fixed.loglik)), abs=4e-3)
    for test in (half, other):
        assert test.statistic >= 0 and test.p_value == chi2(1).sf(test.statistic)
    # the truth is 0.9
    assert other.p_value > 1e-3


def test_criteria_count_what_was_estimated(field):
    plain = fit(field, smoothness=0.5, method="fisher", nugget="zero")
    assert plain.estimated == ("range", "variance") and plain.parameters == 3
    assert plain.aic == 6 - 2 * plain.loglik
    assert plain.bic == pytest.approx(3 * math.log(120) - 2 * plain.loglik)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o: infer(o, Matern(1.0, 0.1, 0.5), level=1.0), "between 0 and 1"),
        (lambda o: infer(o, Matern(1.0, 0.1, 0.5)), "the nugget is zero"),
        (lambda o: infer(o, Matern(1.0, 0.1, 0.5), estimated=("range",)), "the variance is always"),
        (lambda o: infer(o, Matern(1.0, 0.1, 0.5), estimated=("length", "variance")), "no parameter 'length'"),
        (lambda o: profile_likelihood(o, Matern(1.0, 0.1, 0.5, 0.1), "range", [0.0, 1.0]), "finite and positive"),
        (lambda o: profile_likelihood(o, Matern(1.0, 0.1, 0.5, 0.1), "variance", [1.0]), "'nugget_ratio'"),
    ],
)
def test_wrong_questions_are_named(field, call, words):
    with pytest.raises(ValueError, match=words):
        call(field)
