"""Masked arrays at the doors of geostatistics: no value, site or covariate is what lies beneath a mask."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat as g
from ooc_chol.apps.geostat import Matern
from tests.masked import Door, array_parameters, check_real, check_refused, masked

pytestmark = pytest.mark.usefixtures("one_blas_thread")

RNG = np.random.default_rng(0)
N = 30
SITES, NEW = RNG.uniform(size=(N, 2)), RNG.uniform(size=(4, 2))
VALUES, COLUMN, NEW_COLUMN = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=4)
ERRORS, NEW_ERRORS = RNG.uniform(size=N), RNG.uniform(size=4)
MODEL = Matern(1.0, 0.2, 1.5, 0.1)
PLAIN = g.make_observations(SITES, VALUES)
WITH = g.make_observations(SITES, VALUES, covariates=COLUMN)
KNOWN = np.array([0.5])
OPEN = ExitStack()
KRIGED, KRIGED_WITH = (OPEN.enter_context(g.kriging(made, MODEL)) for made in (PLAIN, WITH))
LOCAL, LOCAL_WITH = g.local_kriging(PLAIN, MODEL, neighbours=8), g.local_kriging(WITH, MODEL, neighbours=8)
PREDICTED = KRIGED.predict(NEW, target="observation")
GRID = g.grid_over([0.0, 0.0], [1.0, 1.0], (4, 3))
BLOCKS = g.rectangular_blocks(NEW, (0.1, 0.1), points=2)
NESTED = g.Nested((Matern(1.0, 0.2, 1.5), Matern(0.5, 0.05, 0.5)))
MEANS = RNG.normal(size=4)


def observed(**given):
    made = g.make_observations(**{"coordinates": SITES, "values": VALUES, **given})
    return g.predict(made, MODEL, NEW, covariates=NEW_COLUMN if "covariates" in given else None).mean


def scored(function, name, given):
    others = {each: ERRORS for each in inspect.signature(function).parameters if each not in (name, "level")}
    return function(**{name: given, **others}, **({"level": 0.9} if function is g.interval_score else {}))


def source(**given):
    with oc.cholesky(g.covariance_source(**{"model": MODEL, "coordinates": SITES, **given})) as factor:
        return factor.logdet()


def kriged_with_known(coefficients):
    with g.kriging(PLAIN, MODEL, coefficients=coefficients) as kriged:
        return kriged.predict(NEW).mean


def tile(function):
    out = np.empty((N, N))
    function(range(N), range(N), out, None)
    return out


#: Every argument that takes an array.
DOORS = {
    "make_observations.coordinates": Door(lambda a: observed(coordinates=a), SITES),
    "make_observations.values": Door(lambda a: observed(values=a), VALUES),
    "make_observations.covariates": Door(lambda a: observed(covariates=a), COLUMN),
    "make_observations.error_variances": Door(lambda a: observed(error_variances=a), ERRORS),
    "covariance_source.coordinates": Door(lambda a: source(coordinates=a), SITES),
    "covariance_source.noise": Door(lambda a: source(noise=a), ERRORS),
    "covariance_tiles.coordinates": Door(lambda a: tile(g.covariance_tiles(MODEL, a)), SITES),
    "covariance_tiles.noise": Door(lambda a: tile(g.covariance_tiles(MODEL, SITES, a)), ERRORS),
    "derivative_tiles.coordinates": Door(lambda a: tile(g.derivative_tiles(MODEL, a, "range")), SITES),
    "cross_covariance.a": Door(lambda a: g.cross_covariance(MODEL, a, NEW), SITES),
    "cross_covariance.b": Door(lambda b: g.cross_covariance(MODEL, SITES, b), NEW),
    "chordal_coordinates.longitude": Door(lambda a: g.chordal_coordinates(a, COLUMN), VALUES),
    "chordal_coordinates.latitude": Door(lambda a: g.chordal_coordinates(COLUMN, a), VALUES),
    "Matern.covariance.distance": Door(MODEL.covariance, ERRORS),
    "directional_covariance.distance": Door(lambda a: g.directional_covariance(MODEL, a, 30.0), ERRORS),
    "model_variogram.distance": Door(lambda a: g.model_variogram(MODEL, a), ERRORS),
    "grid_over.lowest": Door(lambda a: g.grid_over(a, [3.0, 3.0], (2, 2)).points(0, 4), np.array([0.0, 1.0])),
    "grid_over.highest": Door(lambda a: g.grid_over([0.0, 0.0], a, (2, 2)).points(0, 4), np.array([2.0, 1.0])),
    "kriging.coefficients": Door(lambda a: kriged_with_known(a), KNOWN),
    "Kriging.predict.sites": Door(lambda a: KRIGED.predict(a).mean, NEW),
    "Kriging.predict.covariates": Door(lambda a: KRIGED_WITH.predict(NEW, covariates=a).mean, NEW_COLUMN),
    "Kriging.predict.error_variances": Door(
        lambda a: KRIGED.predict(NEW, target="observation", error_variances=a).variance, NEW_ERRORS
    ),
    "Kriging.predict_batches.batches": Door(lambda a: next(iter(KRIGED.predict_batches([a]))).mean, NEW),
    "Kriging.predict_batches.covariates": Door(
        lambda a: next(iter(KRIGED_WITH.predict_batches([NEW], covariates=[a]))).mean, NEW_COLUMN
    ),
    "Kriging.predict_mean.sites": Door(KRIGED.predict_mean, NEW),
    "Kriging.predict_mean.covariates": Door(lambda a: KRIGED_WITH.predict_mean(NEW, covariates=a), NEW_COLUMN),
    "Kriging.weights.sites": Door(lambda a: np.hstack([*map(np.ravel, KRIGED.weights(a))]), NEW),
    "Kriging.weights.covariates": Door(lambda a: np.hstack([*map(np.ravel, KRIGED_WITH.weights(NEW, covariates=a))]), NEW_COLUMN),
    "Kriging.check.sites": Door(lambda a: KRIGED.check(a, None)[0], NEW),
    "Kriging.check.covariates": Door(lambda a: KRIGED_WITH.check(NEW, a)[1], NEW_COLUMN),
    "predict.sites": Door(lambda a: g.predict(PLAIN, MODEL, a).mean, NEW),
    "predict.covariates": Door(lambda a: g.predict(WITH, MODEL, NEW, covariates=a).mean, NEW_COLUMN),
    "predict.error_variances": Door(
        lambda a: g.predict(PLAIN, MODEL, NEW, target="observation", error_variances=a).variance, NEW_ERRORS
    ),
    "predict.coefficients": Door(lambda a: g.predict(PLAIN, MODEL, NEW, coefficients=a).mean, KNOWN),
    "plan_predict.sites": Door(lambda a: planned(PLAIN, a), NEW),
    "plan_predict.covariates": Door(lambda a: planned(WITH, NEW, covariates=a), NEW_COLUMN),
    "plan_predict.error_variances": Door(lambda a: planned(PLAIN, NEW, error_variances=a), NEW_ERRORS),
    "plan_predict.coefficients": Door(lambda a: planned(PLAIN, NEW, coefficients=a), KNOWN),
    "predict_component.sites": Door(lambda a: g.predict_component(PLAIN, NESTED, 1, a).mean, NEW),
    "predict_component.coefficients": Door(lambda a: g.predict_component(PLAIN, NESTED, 1, NEW, coefficients=a).mean, KNOWN),
    "predict_block_means.covariates": Door(
        lambda a: g.predict_block_means(KRIGED_WITH, BLOCKS, covariates=a).mean, RNG.normal(size=(4, 4, 1))
    ),
    "rectangular_blocks.centres": Door(lambda a: g.rectangular_blocks(a, (0.1, 0.1), points=2).points, NEW),
    "rectangular_blocks.sides": Door(lambda a: g.rectangular_blocks(NEW, a, points=2).points, np.array([0.1, 0.2])),
    "polygon_blocks.polygons": Door(
        lambda a: g.polygon_blocks([a], points=4).points, np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    ),
    "LocalKriging.predict.sites": Door(lambda a: LOCAL.predict(a).mean, NEW),
    "LocalKriging.predict.covariates": Door(lambda a: LOCAL_WITH.predict(NEW, covariates=a).mean, NEW_COLUMN),
    "LocalKriging.predict.error_variances": Door(
        lambda a: LOCAL.predict(NEW, target="observation", error_variances=a).variance, NEW_ERRORS
    ),
    "LocalKriging.predict_mean.sites": Door(LOCAL.predict_mean, NEW),
    "LocalKriging.predict_mean.covariates": Door(lambda a: LOCAL_WITH.predict_mean(NEW, covariates=a), NEW_COLUMN),
    "local_kriging.coefficients": Door(
        lambda a: g.local_kriging(PLAIN, MODEL, neighbours=8, coefficients=a).predict(NEW).mean, KNOWN
    ),
    "check_local_kriging.sites": Door(lambda a: g.check_local_kriging(LOCAL, a) and 0, NEW),
    "check_local_kriging.covariates": Door(lambda a: g.check_local_kriging(LOCAL_WITH, NEW, covariates=a) and 0, NEW_COLUMN),
    "prediction_efficiency.sites": Door(
        lambda a: g.prediction_efficiency(PLAIN, a, truth=MODEL, other=Matern(1.0, 0.3, 0.5, 0.1)).true_error, NEW
    ),
    "prediction_efficiency.covariates": Door(
        lambda a: g.prediction_efficiency(
            WITH, NEW, truth=MODEL, other=Matern(1.0, 0.3, 0.5, 0.1), covariates=a
        ).true_error,
        NEW_COLUMN,
    ),
    "cross_validate.folds": Door(lambda a: g.cross_validate(PLAIN, MODEL, folds=a).prediction.mean, np.arange(N) % 3),
    "cross_validate.coefficients": Door(lambda a: g.cross_validate(PLAIN, MODEL, folds=3, coefficients=a).prediction.mean, KNOWN),
    "cross_validate_locally.folds": Door(
        lambda a: g.cross_validate_locally(PLAIN, MODEL, folds=a, neighbours=8).prediction.mean, np.arange(N) % 3
    ),
    "cross_validate_locally.coefficients": Door(
        lambda a: g.cross_validate_locally(PLAIN, MODEL, folds=3, neighbours=8, coefficients=a).prediction.mean, KNOWN
    ),
    "leave_one_out.coefficients": Door(lambda a: g.leave_one_out(PLAIN, MODEL, coefficients=a).prediction.mean, KNOWN),
    "folds.sites": Door(lambda a: g.folds(PLAIN, 3, how="gaps", sites=a).labels, NEW),
    "score.held_out": Door(lambda a: g.score(PREDICTED, a, VALUES).rmse, MEANS),
    "score.fitted": Door(lambda a: g.score(PREDICTED, MEANS, a).rmse_of_mean, VALUES),
    "coverage.held_out": Door(lambda a: g.coverage(PREDICTED, a, [0.5]), MEANS),
    "coverage.levels": Door(lambda a: g.coverage(PREDICTED, MEANS, a), np.array([0.5, 0.9])),
    "Prediction.exceedance.threshold": Door(PREDICTED.exceedance, np.array([0.5, 0.9])),
    "Prediction.quantile.probability": Door(PREDICTED.quantile, np.array([0.5, 0.9])),
    "BackTransformed.exceedance.threshold": Door(
        lambda a: g.BackTransformed(PREDICTED, g.box_cox(0.0)).exceedance(a), np.array([0.5, 0.9])
    ),
    "BackTransformed.quantile.probability": Door(
        lambda a: g.BackTransformed(PREDICTED, g.box_cox(0.0)).quantile(a), np.array([0.5, 0.9])
    ),
    "Transform.forward.values": Door(g.box_cox(0.5).forward, ERRORS),
    "Transform.inverse.transformed": Door(g.box_cox(0.5).inverse, ERRORS),
    "Transform.log_jacobian.values": Door(g.box_cox(0.5).log_jacobian, ERRORS),
    "simulate.sites": Door(lambda a: g.simulate(MODEL, a, seed=1), NEW),
    "simulate.mean": Door(lambda a: g.simulate(MODEL, NEW, seed=1, mean=a), MEANS),
    "simulate.error_variances": Door(
        lambda a: g.simulate(MODEL, NEW, seed=1, target="observation", error_variances=a), NEW_ERRORS
    ),
    "simulate_conditional.sites": Door(lambda a: g.simulate_conditional(PLAIN, MODEL, a, seed=1), NEW),
    "simulate_conditional.covariates": Door(lambda a: g.simulate_conditional(WITH, MODEL, NEW, covariates=a, seed=1), NEW_COLUMN),
    "simulate_conditional.error_variances": Door(
        lambda a: g.simulate_conditional(PLAIN, MODEL, NEW, seed=1, target="observation", error_variances=a), NEW_ERRORS
    ),
    "simulate_conditional.coefficients": Door(lambda a: g.simulate_conditional(PLAIN, MODEL, NEW, seed=1, coefficients=a), KNOWN),
    "simulate_grid.mean": Door(lambda a: g.simulate_grid(MODEL, GRID, seed=1, mean=a), RNG.normal(size=12)),
    "simulate_grid_conditional.covariates": Door(
        lambda a: g.simulate_grid_conditional(WITH, MODEL, GRID, covariates=a, seed=1), RNG.normal(size=12)
    ),
    "simulate_grid_conditional.coefficients": Door(
        lambda a: g.simulate_grid_conditional(PLAIN, MODEL, GRID, seed=1, coefficients=a), KNOWN
    ),
    "profile_likelihood.values": Door(
        lambda a: g.profile_likelihood(PLAIN, MODEL, "range", a, estimated=("variance",)).loglik, np.array([0.1, 0.2])
    ),
    **{
        f"{name}.{argument}": Door(partial(scored, getattr(g, name), argument), RNG.uniform(1.0, 2.0, N))
        for name, *arguments in (
            ("gaussian_crps", "values", "mean", "deviation"),
            ("gaussian_log_score", "values", "mean", "deviation"),
            ("interval_score", "values", "lower", "upper"),
        )
        for argument in arguments
    },
    "morton_order.coordinates": Door(g.morton_order, SITES),
    "inverse_permutation.order": Door(g.inverse_permutation, np.arange(N)[::-1].copy()),
    "Observations.take.indices": Door(lambda a: PLAIN.take(a).values, np.arange(9)),
    "MaternGP.fit.X": Door(lambda a: gp(a, VALUES).predict(NEW), SITES),
    "MaternGP.fit.y": Door(lambda a: gp(SITES, a).predict(NEW), VALUES),
    "MaternGP.fit.error_variances": Door(lambda a: gp(SITES, VALUES, a).predict(NEW), ERRORS),
    "MaternGP.predict.X": Door(lambda a: gp(SITES, VALUES).predict(a), NEW),
    "MaternGP.sample_y.X": Door(lambda a: gp(SITES, VALUES).sample_y(a), NEW),
    "MaternGP.score.X": Door(lambda a: gp(SITES, VALUES).score(a, MEANS), NEW),
    "MaternGP.alpha": Door(lambda a: gp(SITES, VALUES, alpha=a).predict(NEW), ERRORS),
}  # fmt: skip
#: Doors of estimators, whose base is scikit-learn's.
ESTIMATORS = [name for name in DOORS if name.startswith("MaternGP.")]
#: Pictures, which are not numbers: what is masked is not drawn.
DRAWN = {"profile_figure.parameter", "profile_figure.loglik"}
#: What :func:`kriging` gives is made of what it was given.
MADE = {"Kriging.coefficients"}


def planned(observations, sites, **options):
    """Numbers of a prediction as planned."""
    plan = g.plan_predict(observations, MODEL, sites, **options)
    return g.predict(observations, MODEL, sites, **options, plan=plan).mean


def gp(X, y, errors=None, **options):
    from ooc_chol.apps.geostat import MaternGP

    return MaternGP(smoothness=1.5, range=0.2, variance=1.0, nugget=0.1, **options).fit(X, y, errors)


@pytest.fixture(scope="module", autouse=True)
def closed():
    with OPEN:
        yield


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ESTIMATORS])
def test_no_door_takes_what_lies_beneath_a_mask(name, tmp_path):
    check_refused(DOORS[name], tmp_path)


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ESTIMATORS])
def test_no_door_drops_imaginary_parts(name):
    check_real(DOORS[name])


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_estimator_takes_what_is_masked_or_complex(name, tmp_path):
    check_refused(DOORS[name], tmp_path)
    check_real(DOORS[name])


def test_every_array_that_is_taken_is_in_the_table():
    there = {*array_parameters({name: getattr(g, name) for name in dir(g) if not name.startswith("_")})}
    assert there <= {*DOORS, *DRAWN, *MADE}, sorted(there - {*DOORS, *DRAWN, *MADE})


def test_the_observation_that_is_masked_is_named():
    values = masked(VALUES)
    with pytest.raises(oc.errors.MissingValueError, match=r"values\[15\] is masked"):
        g.make_observations(SITES, values)
    left = ~values.mask
    there = g.make_observations(SITES[left], values[left])  # no entry of this masked array is masked
    assert type(there.values) is np.ndarray and there.n == N - 1
