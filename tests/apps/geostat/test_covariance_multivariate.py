"""Space-time and bivariate covariances: special cases, formulas written out, and where positive definiteness ends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gamma

import ooc_chol as oc
from ooc_chol.apps.geostat import (
    BivariateMatern,
    GneitingMatern,
    Matern,
    PowerExponential,
    SeparableSpaceTime,
    covariance_source,
    covariance_tiles,
    cross_covariance,
)
from tests.apps.geostat.geostat_tolerances import TABLE

pytestmark = pytest.mark.plan


def moments(n, seed):
    return np.random.default_rng(seed).uniform(size=(n, 3)) * [1.0, 1.0, 5.0]


def lags(sites):
    return np.linalg.norm(sites[:, None, :2] - sites[None, :, :2], axis=2), np.abs(sites[:, None, 2] - sites[None, :, 2])


def both_variables(places):
    """Every place with both variables, the first variable first."""
    return np.vstack([np.column_stack([places, np.full(len(places), number)]) for number in (0.0, 1.0)])


def test_separable_is_the_product():
    sites = moments(30, 0)
    h, u = lags(sites)
    model = SeparableSpaceTime(Matern(2.0, 0.3, 0.9, 0.1), Matern(1.0, 2.0, 0.5))
    expected = Matern(2.0, 0.3, 0.9).covariance(h) * np.exp(-u / 2.0)
    np.testing.assert_allclose(cross_covariance(model, sites, sites), expected, rtol=0, atol=TABLE)


def test_separable_matrix_on_a_grid_is_a_kronecker_product():
    places, times = np.random.default_rng(1).uniform(size=(7, 2)), np.array([0.0, 1.0, 2.5])
    grid = np.column_stack([np.tile(places, (3, 1)), np.repeat(times, 7)])
    model = SeparableSpaceTime(Matern(2.0, 0.3, 0.9), PowerExponential(1.0, 2.0, 1.2))
    in_time = cross_covariance(model.time, times[:, None], times[:, None])
    expected = np.kron(in_time, cross_covariance(model.space, places, places))
    np.testing.assert_allclose(cross_covariance(model, grid, grid), expected, rtol=1e-13)


def test_gneiting_class_written_out():
    sites = moments(30, 2)
    h, u = lags(sites)
    w = 1 + (u / 1.5) ** (2 * 0.7)
    expected = 2.0 * w ** -(0.9 + 0.6 * 2 / 2) * Matern(1.0, 0.4, 0.8).covariance(h / w ** (0.6 / 2))
    model = GneitingMatern(2.0, 0.4, 0.8, 1.5, 0.7, 0.9, 0.6)
    np.testing.assert_allclose(cross_covariance(model, sites, sites), expected, rtol=0, atol=2 * TABLE)


def test_gneiting_class_without_interaction_is_separable():
    sites = moments(30, 3)
    h, u = lags(sites)
    model = GneitingMatern(2.0, 0.4, 0.8, 1.5, 0.7, 0.9, 0.0)
    expected = Matern(2.0, 0.4, 0.8).covariance(h) * (1 + (u / 1.5) ** 1.4) ** -0.9
    np.testing.assert_allclose(cross_covariance(model, sites, sites), expected, rtol=0, atol=2 * TABLE)


@pytest.mark.parametrize("interaction", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("power", [0.2, 1.0])
def test_gneiting_class_is_positive_definite_to_its_bounds(interaction, power):
    places, times = np.random.default_rng(4).uniform(size=(25, 2)), np.linspace(0, 4, 8)
    grid = np.column_stack([np.tile(places, (8, 1)), np.repeat(times, 25)])
    model = GneitingMatern(1.0, 0.5, 0.5, 1.0, power, 0.3, interaction)
    assert np.linalg.eigvalsh(cross_covariance(model, grid, grid)).min() > -len(grid) * TABLE


def test_bivariate_blocks_written_out():
    rng = np.random.default_rng(5)
    sites = np.column_stack([rng.uniform(size=(40, 2)), rng.integers(0, 2, 40)])
    model = BivariateMatern(1.7, 0.2, 0.5, 1.3, 2.5, 0.7)
    h = np.linalg.norm(sites[:, None, :2] - sites[None, :, :2], axis=2)
    first, second = sites[:, 2][:, None] == 0, sites[:, 2][None] == 0
    expected = np.where(first & second, Matern(1.7, 0.2, 0.5).covariance(h), Matern(1.7 * 2.5, 0.2, 1.3).covariance(h))
    mixed = 0.7 * 1.7 * np.sqrt(2.5) * Matern(1.0, 0.2, 0.9).covariance(h)
    expected = np.where(first == second, expected, mixed)
    np.testing.assert_allclose(cross_covariance(model, sites, sites), expected, rtol=0, atol=1e-12)


def test_bivariate_of_equal_variables_is_a_kronecker_product():
    places = np.random.default_rng(6).uniform(size=(20, 2))
    sites, model = both_variables(places), BivariateMatern(1.3, 0.2, 0.8, 0.8, 4.0, 0.99)
    expected = np.kron([[1.0, 1.98], [1.98, 4.0]], cross_covariance(Matern(1.3, 0.2, 0.8), places, places))
    np.testing.assert_allclose(cross_covariance(model, sites, sites), expected, rtol=1e-12)
    assert model.correlation_bound == pytest.approx(1.0)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize(("nu_1", "nu_2"), [(0.5, 1.5), (0.3, 2.5), (1.0, 1.2)])
def test_correlation_bound_is_that_of_the_spectral_densities(dimension, nu_1, nu_2):
    def density(nu, omega):
        # of a Matérn correlation of range 1 in this many dimensions
        half = dimension / 2
        return gamma(nu + half) / (gamma(nu) * np.pi**half) * (1 + omega**2) ** -(nu + half)

    omega = np.logspace(-3, 3, 50)
    highest = np.sqrt(density(nu_1, omega) * density(nu_2, omega)) / density((nu_1 + nu_2) / 2, omega)
    model = BivariateMatern(1.0, 1.0, nu_1, nu_2, 1.0, 0.0, dimension=dimension)
    np.testing.assert_allclose(model.correlation_bound, highest, rtol=1e-12)


def test_positive_definiteness_ends_at_the_bound():
    # two variables on a dense line: at the bound the matrix is positive definite, a little beyond it is not
    sites = both_variables(np.linspace(0, 1, 120)[:, None])
    edge = BivariateMatern(1.0, 0.3, 0.5, 2.5, 1.0, 0.0, dimension=1).correlation_bound
    assert edge == pytest.approx(np.sqrt(2 / 3))

    def smallest(correlation):
        matrix = cross_covariance(BivariateMatern(1.0, 0.3, 0.5, 2.5, 1.0, 0.0, dimension=1), sites, sites)
        mixed = cross_covariance(Matern(1.0, 0.3, 1.5), sites[:120, :1], sites[:120, :1])
        matrix[:120, 120:] = matrix[120:, :120] = correlation * mixed
        return np.linalg.eigvalsh(matrix).min()

    assert smallest(edge) > -240 * TABLE
    assert smallest(1.05 * edge) < -1e-8
    with pytest.raises(ValueError, match="not positive definite"):
        BivariateMatern(1.0, 0.3, 0.5, 2.5, 1.0, 1.001 * edge, dimension=1)


def test_matrices_without_a_kernel_of_their_own_are_factored():
    sites = moments(90, 7)
    model = GneitingMatern(2.0, 0.4, 0.8, 1.5, 0.7, 0.9, 0.6, 0.1)
    whole = np.empty((90, 90))
    covariance_tiles(model, sites)(range(90), range(90), whole, None)
    with oc.cholesky(covariance_source(model, sites), tile_size=32, devices="host:0") as factor:
        assert factor.logdet() == pytest.approx(np.linalg.slogdet(whole)[1], rel=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SeparableSpaceTime(Matern(1, 1, 0.5), Matern(2.0, 1, 0.5)), "must have 1 and 0"),
        (lambda: cross_covariance(SeparableSpaceTime(Matern(1, 1, 0.5), Matern(1.0, 1, 0.5)), [[0.0]], [[1.0]]), "the time"),
        (lambda: GneitingMatern(1, 1, 0.5, 1, 1.1, 1, 0.5), "time_power is 1.1"),
        (lambda: GneitingMatern(1, 1, 0.5, 1, 1.0, 1, 1.5), "interaction is 1.5"),
        (lambda: GneitingMatern(1, 1, 0.5, 1, 1.0, 0, 0.5), "time_decay is 0"),
        (lambda: GneitingMatern(1, 1, 0.5, -1, 1.0, 1, 0.5), "time_range is -1"),
        (lambda: BivariateMatern(1, 1, 0.5, 0.5, 0.0, 0.5), "variance_ratio is 0"),
        (lambda: BivariateMatern(1, 1, 0.5, 0.5, 1.0, np.nan), "correlation is nan"),
        (lambda: BivariateMatern(1, 1, 0.5, 0.5, 1.0, 0.5, dimension=4), "dimension is 4"),
        (lambda: cross_covariance(BivariateMatern(1, 1, 0.5, 0.5, 1.0, 0.5), [[0.0, 2.0]], [[0.0, 1.0]]), "0 or 1"),
        (lambda: cross_covariance(BivariateMatern(1, 1, 0.5, 0.5, 1.0, 0.5), np.ones((2, 4)), np.ones((2, 4))), "4 coordinates"),
    ],
)
def test_what_is_wrong_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
