"""Agreement with GSTools through the map of parameters: covariances, distances on the sphere, kriging of every kind."""

from __future__ import annotations

import gstools
import numpy as np
import pytest

from ooc_chol.apps.geostat import (
    AxisRanges,
    GeometricAnisotropy,
    Matern,
    chordal_coordinates,
    convert_parameters,
    cross_covariance,
    kriging,
    make_observations,
)
from tests.apps.geostat.geostat_tolerances import OTHER_PACKAGE
from tests.inside.geostat import EARTH_RADIUS_KM

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: The ends of what GSTools has, the closed forms, and between them.
SMOOTHNESS = (0.2, 0.5, 8 / 9, 1.0, 1.5, 2.3, 2.5, 5.0, 20.0)


def theirs(model, *, dimensions=2, **options):
    """The model in GSTools: the line that ``convert`` prints, with what it leaves to its user."""
    made = eval(convert_parameters(model, "gstools", dimensions=dimensions).code, {"gstools": gstools})
    numbers = {"var": made.var, "len_scale": made.len_scale, "nugget": made.nugget, "nu": made.nu}
    return gstools.Matern(dim=dimensions, **numbers, **options) if options else made


def sites(n, seed, *, side=1.0, dimensions=2):
    return np.random.default_rng(seed).uniform(size=(n, dimensions)) * side


def agree(ours, other, spread):
    """The same to 1e-8 of the spread of the values."""
    np.testing.assert_allclose(ours, other, rtol=OTHER_PACKAGE, atol=OTHER_PACKAGE * spread)


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_covariances_at_all_distances(nu):
    model = Matern(1.7, 0.4, nu, 0.03)
    distances = np.concatenate([[0.0], np.geomspace(1e-4, 20.0, 200)])
    made = theirs(model)
    agree(model.covariance(distances), made.covariance(distances), model.variance)
    assert made.nugget == model.nugget and made.sill == pytest.approx(model.variance + model.nugget)


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_covariances_with_geometric_anisotropy(nu):
    base = Matern(1.7, 0.4, nu, 0.03)
    model = GeometricAnisotropy(base, angle=0.6, ratio=0.3)
    made = theirs(base, anis=model.ratio, angles=model.angle)
    a = sites(40, 0)
    moved = made.isometrize(a.T).T
    distances = np.linalg.norm(moved[:, None] - moved[None], axis=2)
    agree(cross_covariance(model, a, a), made.covariance(distances), base.variance)
    # and by the line that is printed for it, whichever axis is the main one
    for same in (model, GeometricAnisotropy(Matern(1.7, 0.12, nu, 0.03), angle=0.6 - np.pi / 2, ratio=1 / 0.3)):
        made = theirs(same)
        moved = made.isometrize(a.T).T
        distances = np.linalg.norm(moved[:, None] - moved[None], axis=2)
        agree(cross_covariance(model, a, a), made.covariance(distances), base.variance)


def test_covariances_with_a_range_for_each_axis():
    base = Matern(1.7, 1.0, 1.5, 0.03)
    ranges = (0.4, 0.1, 0.7)
    made = theirs(Matern(1.7, ranges[0], 1.5, 0.03), dimensions=3, anis=[r / ranges[0] for r in ranges[1:]])
    a = sites(40, 0, dimensions=3)
    moved = made.isometrize(a.T).T
    distances = np.linalg.norm(moved[:, None] - moved[None], axis=2)
    agree(cross_covariance(AxisRanges(base, ranges), a, a), made.covariance(distances), base.variance)


@pytest.mark.parametrize("nu", (0.5, 1.0, 2.5))
def test_covariances_of_chords_on_the_sphere(nu):
    """GSTools' models on the sphere (Yadrenko) take the chord of an angle."""
    model = Matern(1.7, 900.0, nu, 0.03)
    made = theirs(model, dimensions=3, latlon=True, geo_scale=EARTH_RADIUS_KM)
    angles = np.linspace(0.0, np.pi, 50)
    chords = 2 * EARTH_RADIUS_KM * np.sin(angles / 2)
    agree(model.covariance(chords), made.cov_yadrenko(angles * EARTH_RADIUS_KM), model.variance)


def by_us(observations, model, new, *, covariates=None, coefficients=None):
    """Kind, mean and variance by this package."""
    with kriging(observations, model, coefficients=coefficients) as kriged:
        found = kriged.predict(new, covariates=covariates)
        return kriged.kind, found.mean, found.variance


@pytest.mark.parametrize("nu", (0.5, 1.0, 1.5, 2.3))
@pytest.mark.parametrize("kind", ["simple", "ordinary", "linear drift", "external drift"])
def test_kriging_mean_and_variance(kind, nu):
    model = Matern(1.7, 0.25, nu, 0.05)
    known, new = sites(120, 1), np.vstack([sites(30, 2), [[1.5, -0.5], [0.5, 0.5]]])
    values = 3.0 + np.sin(5 * known[:, 0]) + known[:, 1] + 0.1 * np.random.default_rng(3).normal(size=120)
    made = theirs(model)
    if kind == "simple":
        found = by_us(make_observations(known, values), model, new, coefficients=[3.0])
        other = gstools.krige.Simple(made, known.T, values, mean=3.0, pseudo_inv=False)(new.T)
    elif kind == "ordinary":
        found = by_us(make_observations(known, values), model, new)
        other = gstools.krige.Ordinary(made, known.T, values, pseudo_inv=False)(new.T)
    elif kind == "linear drift":
        found = by_us(make_observations(known, values, covariates=known), model, new, covariates=new)
        other = gstools.krige.Universal(made, known.T, values, "linear", pseudo_inv=False)(new.T)
    else:
        drift, there = np.sqrt(known[:, 0]), np.sqrt(np.abs(new[:, 0]))
        found = by_us(make_observations(known, values, covariates=drift), model, new, covariates=there)
        other = gstools.krige.ExtDrift(made, known.T, values, drift, pseudo_inv=False)(new.T, ext_drift=there)
    assert found[0] == ("universal" if "drift" in kind else kind)
    agree(found[1], other[0], np.std(values))
    agree(found[2], other[1], model.variance)


def test_kriging_with_anisotropy():
    base = Matern(1.7, 0.4, 1.5, 0.05)
    model = GeometricAnisotropy(base, angle=0.6, ratio=0.3)
    known, new = sites(120, 1), sites(30, 2)
    values = np.sin(5 * known[:, 0]) + known[:, 1]
    made = theirs(base, anis=model.ratio, angles=model.angle)
    _, mean, variance = by_us(make_observations(known, values), model, new)
    other = gstools.krige.Ordinary(made, known.T, values, pseudo_inv=False)(new.T)
    agree(mean, other[0], np.std(values))
    agree(variance, other[1], base.variance)


def test_kriging_on_the_sphere():
    model = Matern(1.7, 900.0, 1.5, 0.05)
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(-30, 60, size=150), rng.uniform(-20, 70, size=150)
    values = np.sin(np.radians(3 * lon)) + np.cos(np.radians(2 * lat))
    made = theirs(model, dimensions=3, latlon=True, geo_scale=EARTH_RADIUS_KM)
    observations = make_observations(chordal_coordinates(lon[:120], lat[:120]), values[:120])
    _, mean, variance = by_us(observations, model, chordal_coordinates(lon[120:], lat[120:]))
    other = gstools.krige.Ordinary(made, (lat[:120], lon[:120]), values[:120], pseudo_inv=False)((lat[120:], lon[120:]))
    agree(mean, other[0], np.std(values))
    agree(variance, other[1], model.variance)
