"""Fits and likelihoods of ``a z + b``: the same covariance in other units, for all a and b that float64 lets be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import AbstractFitProgress, Matern, PowerExponential, fit, log_likelihood, make_observations
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.apps.geostat.shell import refused, shell

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 70
TRUTH = Matern(2.0, 0.2, 0.5, 0.1)
SITES = np.random.default_rng(0).uniform(size=(N, 2))
VALUES = geostat.simulate(TRUTH, SITES, seed=3, target="observation")[0]
ERRORS = np.random.default_rng(1).uniform(0.01, 0.2, N)

#: Factors of which squares, and what a fit makes of them, are numbers of float64.
FACTORS = (1e-144, 1e-100, 1e-77, 1e-40, 1e-8, 1e8, 1e40, 1e77, 1e100, 1e150)

#: Others.
BEYOND = (5e-324, 1e-300, 1e-200, 1e-160, 1e-155)

FITS = {
    "fisher": {"smoothness": 0.5},
    "free smoothness": {"smoothness": "free"},
    "lbfgs": {"smoothness": 0.5, "method": "lbfgs"},
    "cobyqa": {"smoothness": 0.5, "method": "cobyqa"},
    "vecchia": {"smoothness": 0.5, "method": "vecchia"},
    "vecchia, score": {"smoothness": 0.5, "method": "vecchia", "exact_check": "score"},
    "restricted": {"smoothness": 0.5, "reml": True},
    "zero nugget": {"smoothness": 0.5, "nugget": "zero"},
    "kept nugget": {"smoothness": 0.5, "nugget": 0.1},
    "family": {"covariance": PowerExponential(1.0, 0.2, 1.0, 0.1)},
    "variogram": {"smoothness": 0.5, "starts": "variogram"},
    "mixed precision": {"smoothness": 0.5, "settings": geostat.FactorSettings(precision_threshold=1e-9, tile_size=32)},
}


def fitted(how, a=1.0, b=0.0, values=VALUES, errors=None):
    words = dict(FITS[how])
    if isinstance(words.get("nugget"), float):
        words["nugget"] *= a * a
    known = None if errors is None else errors * a * a
    return fit(make_observations(SITES, a * values + b, error_variances=known), **words)


def assert_same(result, expected, a, freedom=N):
    """A result of values times ``a`` beside that of the values."""
    assert result.converged == expected.converged
    assert result.loglik + freedom * math.log(a) == pytest.approx(expected.loglik, rel=TWO_ROUTES * 10)
    for name, value in expected.model.values.items():
        assert result.model.values[name] == pytest.approx(value, rel=1e-6)
    assert result.model.variance / a / a == pytest.approx(expected.model.variance, rel=1e-6)
    assert result.model.nugget / a / a == pytest.approx(expected.model.nugget, rel=1e-5, abs=1e-300)
    np.testing.assert_allclose(result.coefficients / a, expected.coefficients, rtol=1e-6)
    np.testing.assert_allclose(result.coefficient_covariance / a / a, expected.coefficient_covariance, rtol=1e-6)
    for ours, theirs in zip(result.trials, expected.trials, strict=True):
        assert ours.loglik + freedom * math.log(a) == pytest.approx(theirs.loglik, rel=TWO_ROUTES * 10)


@pytest.mark.parametrize("how", FITS)
@pytest.mark.parametrize("a", [2.0**-478, 2.0**-200, 2.0**200, 2.0**498])  # so that a search rounds alike
def test_every_fit_is_equivariant(how, a):
    assert_same(fitted(how, a), fitted(how), a, N - (how == "restricted"))


@pytest.mark.parametrize("a", FACTORS)
def test_every_factor_gives_one_fit(a):
    assert_same(fitted("fisher", a), fitted("fisher"), a)


@pytest.mark.parametrize("a", [1e-140, 1e-50, 1e50, 1e148])
def test_known_errors_are_in_the_unit_too(a):
    assert_same(fitted("fisher", a, errors=ERRORS), fitted("fisher", errors=ERRORS), a)


@pytest.mark.parametrize("b", [1e3, 1e6, 1e10, 1e12, -1e12])
@pytest.mark.parametrize("how", ["fisher", "lbfgs", "vecchia", "restricted"])
def test_what_is_added_to_all_values_is_the_intercepts(how, b):
    """Beside the values that are left of the sums, which have fewer digits."""
    left = (VALUES + b) - b
    result, expected = fitted(how, b=b), fitted(how, values=left)
    assert result.converged
    assert result.loglik == pytest.approx(expected.loglik, rel=TWO_ROUTES * 10)
    assert result.model.range == pytest.approx(expected.model.range, rel=1e-6)
    assert result.coefficients[0] == pytest.approx(expected.coefficients[0] + b, rel=1e-15)
    o, plain = make_observations(SITES, VALUES + b), make_observations(SITES, left)
    new = [[0.5, 0.5], [0.1, 0.8]]
    np.testing.assert_allclose(
        geostat.predict(o, TRUTH, new).mean, geostat.predict(plain, TRUTH, new).mean + b, rtol=4e-16, atol=1e-12
    )


def test_both_at_once_with_covariates():
    design = SITES[:, :1] ** 2
    plain = fit(make_observations(SITES, VALUES, covariates=design), smoothness=0.5)
    for a, b in ((2.0**-300, 2.0**-280), (2.0**300, -(2.0**320))):
        values = a * VALUES + b
        left = (values - b) / a
        o = make_observations(SITES, values, covariates=design)
        result, expected = fit(o, smoothness=0.5), fit(make_observations(SITES, left, covariates=design), smoothness=0.5)
        assert result.loglik + N * math.log(a) == pytest.approx(expected.loglik, rel=TWO_ROUTES * 10)
        assert result.model.range == pytest.approx(plain.model.range, rel=1e-3)
        assert (result.coefficients[0] - b) / a == pytest.approx(expected.coefficients[0], rel=1e-6)
        assert result.coefficients[1] / a == pytest.approx(expected.coefficients[1], rel=1e-6)


LIKELIHOODS = {
    "exact": lambda o, m: log_likelihood(o, m),
    "restricted": lambda o, m: log_likelihood(o, m, reml=True),
    "vecchia": lambda o, m: geostat.vecchia_log_likelihood(o, m, neighbours=10),
    "gradient": lambda o, m: geostat.log_likelihood_gradient(o, m).likelihood,
    "profile": lambda o, m: geostat.profile_log_likelihood(o, m.with_values(variance=1.0, nugget=m.nugget / m.variance)),
    "profile, kept nugget": lambda o, m: geostat.profile_log_likelihood(
        o, m.with_values(variance=1.0, nugget=m.nugget / m.variance), nugget=m.nugget
    ),
    "profile gradient": lambda o, m: (
        geostat.profile_log_likelihood_gradient(o, m.with_values(variance=1.0, nugget=m.nugget / m.variance)).likelihood
    ),
}


@pytest.mark.parametrize("way", LIKELIHOODS)
@pytest.mark.parametrize("a", FACTORS)
def test_likelihoods_of_given_parameters(way, a):
    expected = LIKELIHOODS[way](make_observations(SITES, VALUES), TRUTH)
    model = TRUTH.with_values(variance=TRUTH.variance * a * a, nugget=TRUTH.nugget * a * a)
    found = LIKELIHOODS[way](make_observations(SITES, a * VALUES), model)
    freedom = N - (way == "restricted")
    assert found.loglik + freedom * math.log(a) == pytest.approx(expected.loglik, rel=TWO_ROUTES * 10)
    assert found.quadratic / a / a == pytest.approx(expected.quadratic, rel=TWO_ROUTES)
    assert found.model.variance / a / a == pytest.approx(expected.model.variance, rel=TWO_ROUTES)
    np.testing.assert_allclose(found.coefficients / a, expected.coefficients, rtol=TWO_ROUTES)
    np.testing.assert_allclose(found.coefficient_covariance / a / a, expected.coefficient_covariance, rtol=TWO_ROUTES)


@pytest.mark.parametrize("a", FACTORS)
@pytest.mark.commit
@pytest.mark.usefixtures("foreign")
def test_what_is_made_of_an_estimate(a):
    plain, o = make_observations(SITES, VALUES), make_observations(SITES, a * VALUES)
    model = TRUTH.with_values(variance=TRUTH.variance * a * a, nugget=TRUTH.nugget * a * a)
    ours, theirs = geostat.infer(o, model).parameters, geostat.infer(plain, TRUTH).parameters
    for name, power in (("range", 0), ("variance", 2), ("nugget", 2)):
        assert ours[name].standard_error / a ** (power / 2) / a ** (power / 2) == pytest.approx(
            theirs[name].standard_error, rel=TWO_ROUTES * 100
        )
    grid = [0.1, 0.3]
    profiles = geostat.profile_likelihood(o, model, "range", grid), geostat.profile_likelihood(plain, TRUTH, "range", grid)
    np.testing.assert_allclose(profiles[0].loglik + N * math.log(a), profiles[1].loglik, rtol=TWO_ROUTES * 10)
    assert profiles[0].models[0].variance / a / a == pytest.approx(profiles[1].models[0].variance, rel=1e-3)
    new = [[0.5, 0.5]]
    for predict in (geostat.predict, lambda o, m, new: geostat.local_kriging(o, m).predict(new)):
        first, second = predict(o, model, new), predict(plain, TRUTH, new)
        np.testing.assert_allclose(first.mean / a, second.mean, rtol=TWO_ROUTES)
        np.testing.assert_allclose(first.variance / a / a, second.variance, rtol=TWO_ROUTES)
    gp = geostat.MaternGP(smoothness=0.5).fit(SITES, a * VALUES)
    expected = geostat.MaternGP(smoothness=0.5).fit(SITES, VALUES)
    np.testing.assert_allclose(gp.predict(new) / a, expected.predict(new), rtol=1e-6)
    assert gp.log_marginal_likelihood_value_ + N * math.log(a) == pytest.approx(expected.log_marginal_likelihood_value_, rel=1e-9)


@pytest.mark.parametrize("a", FACTORS)
@pytest.mark.parametrize("nugget", ["free", 0.05])
def test_semivariograms_are_fitted_in_any_unit(a, nugget):
    fits = [
        geostat.fit_variogram(
            geostat.empirical_variogram(make_observations(SITES, factor * VALUES)),
            nugget=nugget if nugget == "free" else nugget * factor**2,
        ).model
        for factor in (a, 1.0)
    ]
    assert fits[0].range == pytest.approx(fits[1].range, rel=1e-5)
    assert fits[0].sill / a / a == pytest.approx(fits[1].sill, rel=1e-5)


@pytest.mark.parametrize("a", [1e-40, 1e40])
def test_gradients_by_variances_are_in_one_over_their_unit(a):
    model = TRUTH.with_values(variance=TRUTH.variance * a * a, nugget=TRUTH.nugget * a * a)
    ours = geostat.log_likelihood_gradient(make_observations(SITES, a * VALUES), model, information=True)
    theirs = geostat.log_likelihood_gradient(make_observations(SITES, VALUES), TRUTH, information=True)
    unit = np.array([a * a if name in ("variance", "nugget") else 1.0 for name in ours.names])
    np.testing.assert_allclose(ours.gradient * unit, theirs.gradient, rtol=TWO_ROUTES)
    np.testing.assert_allclose(ours.information * np.outer(unit, unit), theirs.information, rtol=TWO_ROUTES)


@pytest.mark.parametrize("a", [1e-144, 1e150])
def test_information_that_float64_does_not_hold_is_refused(a):
    model = TRUTH.with_values(variance=TRUTH.variance * a * a, nugget=TRUTH.nugget * a * a)
    with pytest.raises(ValueError, match="information by variance and nugget is no number of float64"):
        geostat.log_likelihood_gradient(make_observations(SITES, a * VALUES), model, information=True)


class Heard(AbstractFitProgress):
    """Keeps what it is told."""

    def __init__(self):
        self.evaluations, self.closed = [], False

    def evaluation_started(self, correlation):
        assert correlation.variance == 1.0

    def advanced(self, done, total, seconds):
        assert done <= total

    def evaluation_finished(self, evaluation):
        self.evaluations.append(evaluation)

    def close(self):
        self.closed = True


def test_progress_early_results_and_logs_are_in_the_unit_of_the_values(tmp_path):
    a, heard, early, log = 1e60, Heard(), [], tmp_path / "log.jsonl"
    o = make_observations(SITES, a * VALUES, error_variances=a * a * ERRORS)
    result = fit(o, smoothness=0.5, progress=heard, on_estimate=early.append, checkpoint=log)
    assert [e.loglik for e in heard.evaluations] == [e.loglik for e in result.evaluations]
    assert early[0].loglik == result.loglik and early[0].model == result.model
    assert max(e.loglik for e in result.evaluations) == result.loglik
    assert all(1e116 < e.values["variance"] < 1e125 for e in result.evaluations)
    again = fit(o, smoothness=0.5, checkpoint=log)
    assert again.report.resumed == len(again.evaluations) and again.loglik == result.loglik and again.model == result.model


@pytest.mark.parametrize("a", BEYOND)
def test_values_whose_squares_vanish_are_refused(a):
    values = VALUES.copy()
    values[[3, 5]] = 9.0, -9.0
    with pytest.raises(
        ValueError, match=r"of observations 5 and 3 \(counted from zero\), and squares of that .* multiply all values"
    ):
        make_observations(SITES, a * values)


@pytest.mark.parametrize("fill", [1e152, -1e155, 1e200, 1.7e308])
def test_values_whose_squares_overflow_are_refused(fill, tmp_path, capsys):
    values = VALUES.copy()
    values[7] = fill
    with pytest.raises(ValueError, match=r"the value of observation 7 \(counted from zero\) is .* if it stands for a gap"):
        make_observations(SITES, values)
    lines = [f"{x!r},{y!r},{z!r}" for (x, y), z in zip(SITES.tolist(), values.tolist(), strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["x,y,z", "1,,2", *lines]) + "\n")
    assert shell("fit", tmp_path / "data.csv", "--x", "x", "--y", "y", "--value", "z") == 2
    assert "the value of line 10 of data.csv is" in refused(capsys)


@pytest.mark.parametrize("fill", [1e3, -1e3, 9999.0, 1e20, 1e100, 1e150])
def test_one_value_that_carries_the_variance_is_named(fill):
    values = VALUES.copy()
    values[7] = fill
    result = fit(make_observations(SITES, values), smoothness=0.5)
    assert any(text.startswith("observation 7 (counted from zero) alone has 9") for text in result.warnings)
    assert math.isfinite(result.loglik)
    assert not any("alone has" in text for text in fitted("fisher").warnings)


@pytest.mark.parametrize("fill", [-9999.0, 9999.0, 1e20, 1e100])
@pytest.mark.parametrize("rows", [(7, 50), (3, 7, 50), tuple(range(2, N, 10))])
def test_a_few_values_that_carry_the_variance_are_named(rows, fill):
    values = VALUES.copy()
    values[list(rows)] = fill
    values[rows[1]] *= -1 if len(rows) == 2 else 1
    result = fit(make_observations(SITES, values), smoothness=0.5)
    start = f"observation {rows[0]} (counted from zero) and {len(rows) - 1} more together have"
    assert any(text.startswith(start) for text in result.warnings)
    assert not any("together have" in text for text in fitted("fisher").warnings)


@pytest.mark.parametrize("s", [1e-100, 1e-40, 1e40, 1e100])
def test_covariates_in_any_unit(s):
    covariate = SITES[:, 0] ** 2
    plain = fit(make_observations(SITES, VALUES, covariates=covariate), smoothness=0.5)
    result = fit(make_observations(SITES, VALUES, covariates=s * covariate), smoothness=0.5)
    assert result.loglik == pytest.approx(plain.loglik, rel=TWO_ROUTES)
    assert result.coefficients[1] * s == pytest.approx(plain.coefficients[1], rel=1e-6)
    assert result.coefficient_covariance[1, 1] * s * s == pytest.approx(plain.coefficient_covariance[1, 1], rel=1e-6)


@pytest.mark.parametrize(
    ("s", "how"), [(5e-324, "multiply"), (1e-200, "multiply"), (1e-110, "multiply"), (1e110, "divide"), (1e300, "divide")]
)
def test_covariates_whose_products_are_no_numbers_are_refused(s, how):
    with pytest.raises(ValueError, match=rf"values of column 'slope' of the mean reach \S+, and .*; {how} the column by 1e\d+"):
        make_observations(SITES, VALUES, covariates=s * np.arange(1.0, N + 1), covariate_names=["slope"])


@pytest.mark.parametrize(("a", "s"), [(1e-140, 1e100), (1e140, 1e-100)])
def test_coefficients_whose_variances_are_no_numbers_are_refused(a, s):
    o = make_observations(SITES, a * VALUES, covariates=s * SITES[:, 0])
    model = TRUTH.with_values(variance=TRUTH.variance * a * a, nugget=TRUTH.nugget * a * a)
    for way in (lambda: fit(o, smoothness=0.5), lambda: log_likelihood(o, model)):
        with pytest.raises(ValueError, match="variances of the coefficients of the mean are no numbers of float64"):
            way()


def boxed(power, a, powers=(-1.0, 1.0), **how):
    """The fit of values that are Gaussian at a power, times ``a``."""
    values = np.exp(VALUES / 4) if power == 0 else (1 + power * VALUES / 8) ** (1 / power)
    return geostat.fit_box_cox(make_observations(SITES, a * values), powers=powers, smoothness=0.5, **how)


@pytest.mark.parametrize(
    ("power", "a", "method"),
    [
        (0, 1e-12, "fisher"),
        (0, 1e30, "fisher"),
        (0.6, 1e9, "fisher"),
        (-0.8, 1e-9, "fisher"),
        (0.6, 1e-6, "fisher"),
        (0, 1e12, "vecchia"),
    ],
)
def test_powers_of_box_and_cox_do_not_depend_on_the_unit(power, a, method):
    plain, found = (boxed(power, each, method=method) for each in (1.0, a))
    assert found.transform.power == pytest.approx(plain.transform.power, abs=2e-4)
    assert found.interval == pytest.approx(plain.interval, abs=5e-4)
    assert found.loglik + N * math.log(a) == pytest.approx(plain.loglik, abs=1e-3)


def test_the_restricted_likelihood_has_a_power_of_the_unit():
    """For each column of the mean: the power is the one by fits at given powers, in whose units values have all digits."""
    found = boxed(0, 1e5, reml=True)
    best = found.transform.power
    for other in (best - 0.05, best + 0.05):
        assert boxed(0, 1e5, (other - 1e-6, other + 1e-6), reml=True).loglik < found.loglik


def test_powers_that_vanish_beside_one_are_refused():
    with pytest.raises(geostat.TransformError, match=r"few digits .* are left beside the 1 .*: divide all values by "):
        boxed(-0.8, 1e12)


@pytest.mark.parametrize("s", [1e-119, 1e-60, 1e60, 1e119])
def test_coordinates_in_any_unit(s):
    plain, result = fitted("fisher"), fit(make_observations(s * SITES, VALUES), smoothness=0.5)
    assert result.loglik == pytest.approx(plain.loglik, rel=TWO_ROUTES)
    assert result.model.range / s == pytest.approx(plain.model.range, rel=1e-6)


@pytest.mark.parametrize(("s", "words"), [(1e-160, "smaller unit"), (1e-300, "smaller unit"), (1e160, "larger unit")])
def test_coordinates_whose_squares_are_no_numbers_are_refused(s, words):
    with pytest.raises(ValueError, match=words):
        make_observations(s * SITES, VALUES)
