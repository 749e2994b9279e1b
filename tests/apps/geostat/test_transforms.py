"""Transformed values and the way back: moments, quantiles and scores against quadrature and closed forms; the power."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import lognorm, norm

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Matern, Prediction, Transform, TransformError, back_transform, box_cox, make_observations
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.inside.geostat import transform_named, transform_of, transform_text

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Relative error of a quadrature of smooth functions, ours and SciPy's.
QUADRATURE = 1e-9


def positive(n=60, seed=0, trend=False):
    """Log-Gaussian values, on whose logarithms the mean has a slope where there is a trend."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    logs = geostat.simulate(Matern(0.5, 0.15, 1.5, 0.05), sites, seed=seed, target="observation", mean=1.0 + trend * sites[:, 0])
    return make_observations(sites, np.exp(logs[0]), covariates=sites[:, 0] if trend else None)


def gaussian(m=7, seed=0):
    rng = np.random.default_rng(seed)
    return Prediction(2.0 + 0.5 * rng.normal(size=m), 0.1 + 0.3 * rng.uniform(size=m), "observation")


@pytest.mark.parametrize(
    "transform", [box_cox(p) for p in (-0.5, 0.0, 1e-9, 0.3, 0.5, 1.0, 2.0)] + [Transform(0.0, 0.4, 1.0, 1.0)]
)
def test_there_and_back_and_the_jacobian_is_the_slope(transform):
    values = np.array([0.1, 1.0, 3.0, 250.0])
    assert transform.inverse(transform.forward(values)) == pytest.approx(values, rel=1e-8)
    step = 1e-6 * values
    slope = (transform.forward(values + step) - transform.forward(values - step)) / (2 * step)
    assert transform.log_jacobian(values) == pytest.approx(np.sum(np.log(slope)), abs=1e-6)
    assert transform.log_slope(values) == pytest.approx(np.log(slope), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "function"), [("log(z)", np.log), ("log10(z)", np.log10), ("log1p(z)", np.log1p), ("sqrt(z)", np.sqrt)]
)
def test_left_sides_of_formulas_have_their_way_back(text, function):
    column, transform = transform_of(text)
    values = np.array([0.2, 1.0, 40.0])
    assert column == "z" and transform.forward(values) == pytest.approx(function(values), rel=1e-14)
    assert transform_of("log(z + 1)") is None and transform_of("z") is None and transform_of("exp(z)") is None


def test_names_of_transformations_are_read_as_they_are_written():
    for transform in (box_cox(0.0), box_cox(-0.321552), box_cox(1 / 3)):
        assert transform_named(transform_text(transform)) == transform
    with pytest.raises(ValueError, match="log and boxcox=LAMBDA"):
        transform_named("boxcox=")


def test_values_that_cannot_be_transformed_are_named():
    with pytest.raises(TransformError, match=r"value -1 in row 1 .* must be positive"):
        box_cox(0.0).forward(np.array([1.0, -1.0]))
    assert box_cox(0.5).forward(np.array([0.0])) == pytest.approx([-2.0])


@pytest.mark.parametrize("power", [0.0, 0.25, 1 / 3, 0.5, 0.8, 1.5])
def test_mean_and_variance_are_those_of_the_distribution(power):
    prediction, transform = gaussian(), box_cox(power)
    found = back_transform(prediction, transform)
    for k, (mean, deviation) in enumerate(zip(prediction.mean[:3], prediction.standard_error[:3], strict=True)):

        def moment(order, mean=mean, deviation=deviation):
            value = lambda u: transform.inverse(mean + deviation * u) ** order * math.exp(-0.5 * u * u)  # noqa: E731
            return quad(value, -12, 14, epsabs=0, epsrel=1e-11, limit=200)[0] / math.sqrt(2 * math.pi)

        assert found.mean[k] == pytest.approx(moment(1), rel=QUADRATURE)
        assert found.variance[k] == pytest.approx(moment(2) - moment(1) ** 2, rel=1e-7)


@pytest.mark.parametrize("mean", [-1.5, 2.5])
@pytest.mark.parametrize("transform", [box_cox(p) for p in (0.5, 1.0, 2.0)] + [Transform(1.5, 2.0, 3.0, 1.0)], ids=repr)
def test_moments_and_scores_of_distributions_that_are_cut_at_zero(transform, mean):
    found = back_transform(Prediction(np.array([mean]), np.array([0.64]), "observation"), transform)
    zero, end = -transform.shift, (transform.offset - transform.scale / transform.power - mean) / 0.8
    original = lambda u: (transform.power / transform.scale * 0.8 * (u - end)) ** (1 / transform.power) + zero  # noqa: E731
    density = lambda u: math.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)  # noqa: E731
    probability = lambda u: 0.5 * math.erfc(-u / math.sqrt(2))  # noqa: E731

    def integral(f):
        """Integral of the standard normal times a function of the original value, in the root of the distance from the end."""
        part = lambda w: f(original(end + w * w), end + w * w) * density(end + w * w) * 2 * w  # noqa: E731
        return quad(part, 0.0, math.sqrt(12.0 - end), epsabs=0, epsrel=1e-11, limit=200)[0]

    first = zero + integral(lambda z, u: z - zero)
    second = probability(end) * (zero - first) ** 2 + integral(lambda z, u: (z - first) ** 2)
    assert found.mean == pytest.approx(first, rel=QUADRATURE) and found.variance == pytest.approx(second, rel=QUADRATURE)
    for value in (zero, first + 1.0):
        # E|Z - value| - E|Z - Z'| / 2, which is the integral of 2 (z - zero) Phi(u) less E (Z - zero)
        away = probability(end) * (value - zero) + integral(lambda z, u, value=value: abs(z - value))
        spread = integral(lambda z, u: (z - zero) * (2 * probability(u) - 1))
        assert found.crps(np.array([value])) == pytest.approx(away - spread, rel=1e-6)


def test_the_mean_of_a_cut_normal_is_its_closed_form():
    found = back_transform(Prediction(np.zeros(1), np.ones(1), "observation"), box_cox(1.0))
    assert found.mean == pytest.approx(norm.cdf(1.0) + norm.pdf(1.0), rel=1e-13)


def test_closed_forms_of_geor():
    """``backtransform.moments`` of geoR for lambda 0 and 1/2."""
    prediction = gaussian()
    m, v = prediction.mean, prediction.variance
    logs = back_transform(prediction, box_cox(0.0))
    assert logs.mean == pytest.approx(np.exp(m + v / 2), rel=1e-14)
    assert logs.variance == pytest.approx(np.exp(2 * m + v) * np.expm1(v), rel=1e-13)
    roots = back_transform(prediction, box_cox(0.5))
    assert roots.mean == pytest.approx((0.5 * m + 1) ** 2 + 0.25 * v, rel=QUADRATURE)
    assert roots.variance == pytest.approx(2 * (0.25 * v) ** 2 + 4 * 0.25 * v * (0.5 * m + 1) ** 2, rel=QUADRATURE)


@pytest.mark.parametrize("power", [-0.2, 0.0, 0.5])
def test_quantiles_and_exceedance_are_inverse_and_medians_between(power):
    found = back_transform(gaussian(), box_cox(power), point="median")
    p = [0.05, 0.5, 0.9]
    quantiles = found.quantile(p)
    assert quantiles.shape == (3, 7) and found.mean == pytest.approx(quantiles[1])
    for k, row in enumerate(quantiles):
        assert np.diagonal(found.exceedance(row)) == pytest.approx(1 - p[k], rel=1e-10)
    assert found.exceedance(-3.0) == pytest.approx(1.0)
    lower, upper = found.interval(0.8)
    assert (lower, upper) == (pytest.approx(found.quantile(0.1)), pytest.approx(found.quantile(0.9)))


@pytest.mark.parametrize("transform", [box_cox(p) for p in (-0.5, 0.0, 0.3, 1.0, 2.0)] + [Transform(0.5, 0.5, 1.0, 2.0)])
def test_values_below_all_others_are_exceeded_and_have_no_density(transform):
    prediction = back_transform(gaussian(), transform, point="mean" if transform.has_mean else "median")
    below = np.full(7, -3.0)
    assert np.all(prediction.exceedance(-3.0) == 1.0) and np.all(prediction.log_score(below) == np.inf)
    if transform.has_mean:  # in a sum of distances
        assert prediction.crps(below - 1.0) - prediction.crps(below) == pytest.approx(1.0, rel=1e-6)


def test_gaussian_predictions_have_quantiles_and_exceedance_too():
    prediction = gaussian()
    assert prediction.exceedance(prediction.quantile(0.3)).diagonal() == pytest.approx(0.7)
    sure = Prediction(np.array([1.0, 2.0]), np.zeros(2), "field")
    assert sure.exceedance(1.5).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        prediction.quantile([0.5, 1.0])
    with pytest.raises(ValueError, match="but numbers are needed"):
        prediction.exceedance([1.0, np.nan])


def test_scores_on_the_original_scale():
    prediction, values = gaussian(), np.array([0.01, 2.0, 5.0, 9.0, 20.0, 80.0, 4000.0])
    found = back_transform(prediction, box_cox(0.0))
    m, s = prediction.mean, prediction.standard_error
    law = lognorm(s=s, scale=np.exp(m))
    # Baran and Lerch (2015)
    w = (np.log(values) - m) / s
    closed = values * (2 * norm.cdf(w) - 1) - 2 * np.exp(m + s**2 / 2) * (norm.cdf(w - s) + norm.cdf(s / math.sqrt(2)) - 1)
    assert found.crps(values) == pytest.approx(closed, rel=1e-7)
    assert found.log_score(values) == pytest.approx(-law.logpdf(values), rel=1e-12)
    scores = geostat.score(found, values, values)
    assert scores.crps == pytest.approx(closed.mean(), rel=1e-7) and scores.bias == pytest.approx(np.mean(found.mean - values))


@pytest.mark.parametrize("target", ["field", "observation"])
@pytest.mark.parametrize("trend", [False, True])
def test_lognormal_kriging_is_unbiased_with_the_lagrange_term_of_the_kriging_system(trend, target):
    observations = positive(trend=trend)
    model, sites = Matern(0.5, 0.15, 1.5, 0.05), np.array([[0.5, 0.5], [0.05, 0.9], [1.4, 1.4]])
    covariates = sites[:, 0] if trend else None
    logs = dataclasses.replace(observations, values=np.log(observations.values))
    with geostat.kriging(logs, model) as kriged:
        prediction = kriged.predict(sites, covariates=covariates, target=target)
        weights = kriged.weights(sites, covariates=covariates)
    n, p = logs.design.shape
    s = geostat.cross_covariance(model, logs.coordinates, logs.coordinates) + model.nugget * np.eye(n)
    system = np.block([[s, logs.design], [logs.design.T, np.zeros((p, p))]])
    right = np.vstack([geostat.cross_covariance(model, logs.coordinates, sites), np.vander(sites[:, 0], 2, True).T[: 1 + trend]])
    solution = np.linalg.solve(system, right)
    # S w + X m = c, so that the variance of the prediction less its covariance with the value is -m' x0
    lagrange = -np.sum(solution[n:] * right[n:], axis=0)
    assert prediction.lagrange == pytest.approx(lagrange, rel=1e-8)
    found = back_transform(prediction, box_cox(0.0), point="unbiased")
    assert found.mean == pytest.approx(np.exp(weights.T @ logs.values + 0.5 * prediction.variance - lagrange), rel=1e-9)
    # over repeated sampling both have one mean: the exponents have one level, and equal half variances once that is corrected
    own = model.variance + (model.nugget if target == "observation" else 0.0)
    spread = np.einsum("im,ij,jm->m", weights, s, weights)
    assert 0.5 * spread + 0.5 * prediction.variance - lagrange == pytest.approx(np.full(3, 0.5 * own), rel=1e-8)


def test_with_a_known_mean_lognormal_kriging_is_the_conditional_mean():
    observations = positive()
    logs = dataclasses.replace(observations, values=np.log(observations.values))
    prediction = geostat.predict(logs, Matern(0.5, 0.15, 1.5, 0.05), [[0.3, 0.3]], coefficients=[1.0])
    means = [back_transform(prediction, box_cox(0.0), point=point).mean[0] for point in ("mean", "unbiased")]
    assert prediction.lagrange.tolist() == [0.0] and means[0] == pytest.approx(means[1], rel=1e-14)


def test_what_does_not_exist_is_refused():
    with pytest.raises(TransformError, match="no mean"):
        back_transform(gaussian(), box_cox(-0.3))
    with pytest.raises(TransformError, match="no variance"):
        _ = back_transform(gaussian(), box_cox(-0.3), point="median").variance
    with pytest.raises(TransformError, match="for logarithms"):
        back_transform(gaussian(), box_cox(0.5), point="unbiased")
    with pytest.raises(TransformError, match="Lagrange"):
        back_transform(gaussian(), box_cox(0.0), point="unbiased")
    assert back_transform(gaussian(), box_cox(-0.3), point="median").crps(np.ones(7)).tolist() == [np.inf] * 7


def dense_loglik(observations, power, nu, length, ratio, reml=False):
    """Log-likelihood of the original values, mean and variance profiled out, by dense matrices."""
    transform = box_cox(power)
    z, x = transform.forward(observations.values), observations.design
    n, p = x.shape
    r = geostat.cross_covariance(Matern(1.0, length, nu), observations.coordinates, observations.coordinates) + ratio * np.eye(n)
    solved = np.linalg.solve(r, np.column_stack([z, x]))
    information = x.T @ solved[:, 1:]
    b = np.linalg.solve(information, x.T @ solved[:, 0])
    q = (z - x @ b) @ (solved[:, 0] - solved[:, 1:] @ b)
    f = n - p if reml else n
    value = -0.5 * (f * math.log(2 * math.pi * q / f) + f + np.linalg.slogdet(r)[1])
    if reml:
        value += 0.5 * (np.linalg.slogdet(x.T @ x)[1] - np.linalg.slogdet(information)[1])
    return value + transform.log_jacobian(observations.values)


@pytest.mark.parametrize("how", [{}, {"reml": True}, {"method": "vecchia", "neighbours": 59}], ids=["ML", "REML", "vecchia"])
def test_the_power_is_the_joint_maximum_of_the_likelihood(how):
    observations = positive(trend=True)
    found = geostat.fit_box_cox(observations, smoothness=1.5, **how)

    def loss(point):
        return -dense_loglik(observations, point[0], 1.5, np.exp(point[1]), np.exp(point[2]), how.get("reml", False))

    start = [found.transform.power + 0.3, math.log(0.2), math.log(0.1)]
    other = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8, "maxiter": 2000})
    model = found.result.model
    assert found.converged and found.fits <= 6
    here = -loss([found.transform.power, math.log(model.range), math.log(model.nugget / model.variance)])
    assert found.loglik == pytest.approx(here, rel=TWO_ROUTES * 1e3)
    # the searches stop within some hundredths of the largest value
    assert found.loglik == pytest.approx(-other.fun, abs=0.06)
    assert found.transform.power == pytest.approx(other.x[0], abs=0.05)
    assert found.interval[0] < found.transform.power < found.interval[1]


def test_a_power_that_is_not_known_yet_goes_with_no_known_variance():
    observations = positive()
    with pytest.raises(ValueError, match="kept at a variance"):
        geostat.fit_box_cox(observations, nugget=0.1)
    with pytest.raises(ValueError, match="known error variances"):
        geostat.fit_box_cox(dataclasses.replace(observations, error_variances=np.ones(observations.n)))
    with pytest.raises(TransformError, match="must be positive"):
        geostat.fit_box_cox(dataclasses.replace(observations, values=observations.values - 5))


def test_meuse_zinc_wants_a_power_below_the_logarithm(data_dir):
    """Box-Cox of zinc with an exponential covariance, against a grid of powers that are fitted one by one."""
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc"))
    observations = make_observations(table.stack(("x", "y")), table.columns["zinc"])
    found = geostat.fit_box_cox(observations, smoothness=0.5)
    values = []
    for power in (-0.5, -0.3, -0.1, 0.0):
        transform = box_cox(power)
        fit = geostat.fit(dataclasses.replace(observations, values=transform.forward(observations.values)), smoothness=0.5)
        values.append(fit.loglik + transform.log_jacobian(observations.values))
    assert found.loglik > max(values) - 0.01
    assert found.transform.power == pytest.approx(-0.32, abs=0.02) and found.interval[1] < 0
