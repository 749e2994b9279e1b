"""ExaGeoStat's generator: its own unit tests' numbers, the generators below it, and what follows from z = L e."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import gamma, kv
from scipy.stats import multivariate_normal

from benchmarks.synth import glibc_rand, lapack_normals, synthesize, synthetic_sites
from ooc_chol.apps.geostat import FactorSettings, Matern, log_likelihood
from tests.apps.geostat.geostat_tolerances import ELEMENTARY, TWO_ROUTES, printed

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.0, 0.1, 0.5)

#: ``e' e`` for seed 0 by the number of observations: the quadratic form at the generating model, whatever the model.
QUADRATIC_FORMS = {16: 18.993397082619786, 144: 161.7048344263, 400: 438.186481728, 900: 911.9986850371, 1600: 1635.497744266}

#: Log-likelihoods of the 16 observations of seed 0 by (variance, range, smoothness); the last is a unit test of ExaGeoStatCPP.
LOG_LIKELIHOODS = {
    (1.0, 0.1, 0.5): -23.9130238932947,
    (0.9, 0.09, 0.4): -24.1282316052153,
    (0.1, 0.1, 0.1): -90.1269255314473,
    (1.325, 0.1, 0.1): -24.0259995648934,
}


def test_sixteen_observations_of_exageostats_own_test():
    sample = synthesize(MODEL, 16)
    expected_sites = [[0.193041886015, 0.103883421073], [0.330556191348, 0.135790035859], [0.181612878614, 0.434683756771]]
    np.testing.assert_allclose(sample.coordinates[:3], expected_sites, rtol=0, atol=printed(12))
    expected = [-1.272336140360, -2.590699695868, 0.512142584179, -0.163880452050]
    np.testing.assert_allclose(sample.values[:4], expected, rtol=0, atol=printed(12))
    assert sample.values[15] == pytest.approx(0.290822066007, abs=printed(12))


def test_nine_observations_of_exageostats_own_test():
    expected = [-1.272336, -2.475473, 0.545850, -0.120985, 0.242569, -1.544215, 0.098647, 0.779835, -1.481391]
    np.testing.assert_allclose(synthesize(MODEL, 9).values, expected, rtol=0, atol=printed(6))


@pytest.mark.parametrize(("n", "expected"), QUADRATIC_FORMS.items())
def test_quadratic_forms(n, expected):
    assert np.sum(lapack_normals(n, seed=0) ** 2) == pytest.approx(expected, abs=printed(9))


@pytest.mark.parametrize("model", [MODEL, Matern(3.0, 0.2, 1.5, 0.1), Matern(0.5, 0.03, 2.5)])
def test_the_quadratic_form_is_that_of_the_normals_for_every_model(model):
    sample = synthesize(model, 144)
    found = log_likelihood(sample.observations(), model)
    assert found.quadratic / model.variance == pytest.approx(QUADRATIC_FORMS[144], rel=TWO_ROUTES)


def test_the_likelihood_at_the_generating_model():
    found = log_likelihood(synthesize(MODEL, 16).observations(), MODEL)
    assert found.loglik == pytest.approx(LOG_LIKELIHOODS[1.0, 0.1, 0.5], rel=TWO_ROUTES)


@pytest.mark.parametrize(("theta", "expected"), LOG_LIKELIHOODS.items())
def test_the_sample_has_exageostats_likelihood_at_any_smoothness(theta, expected):
    variance, length, nu = theta
    sample = synthesize(MODEL, 16)
    h = np.linalg.norm(sample.coordinates[:, None] - sample.coordinates[None], axis=2) / length
    off = h > 0
    covariance = variance * np.eye(16)
    covariance[off] = variance * 2 ** (1 - nu) / gamma(nu) * h[off] ** nu * kv(nu, h[off])
    assert multivariate_normal(cov=covariance).logpdf(sample.values) == pytest.approx(expected, rel=TWO_ROUTES)


def test_rand_is_the_c_librarys():
    # what glibc prints for srand(1) and for srand(42)
    assert glibc_rand(5, seed=1) == [1804289383, 846930886, 1681692777, 1714636915, 1957747793]
    assert glibc_rand(3, seed=42) == [71876166, 708592740, 1483128881]
    assert glibc_rand(5, seed=0) == glibc_rand(5, seed=1)


def test_normals_are_those_of_the_48_bit_generator_step_by_step():
    multiplier, modulus, state = 33952834046453, 2**48, 5 * 2**36 + 5 * 2**24 + 5 * 2**12 + 1
    expected = []
    for _ in range(50):
        u, v = ((state := state * multiplier % modulus) / modulus for _ in range(2))
        expected.append(math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v))
    np.testing.assert_allclose(lapack_normals(50, seed=5), expected, rtol=0, atol=ELEMENTARY)


def test_seeds_0_and_1_share_their_sites_but_not_their_values():
    zero, one, two = (synthesize(MODEL, 100, seed=seed) for seed in (0, 1, 2))
    assert np.array_equal(zero.coordinates, one.coordinates)
    assert np.max(np.abs(zero.values - one.values)) > 0.1
    assert not np.array_equal(zero.coordinates, two.coordinates)


@pytest.mark.parametrize(("n", "dimension"), [(1, 2), (10, 2), (100, 2), (1, 3), (27, 3), (28, 3), (300, 3)])
def test_every_site_is_in_a_cell_of_its_own(n, dimension):
    sites = synthetic_sites(n, seed=3, dimension=dimension)
    side = next(m for m in range(1, n + 1) if m**dimension >= n)
    cells = np.floor(sites * side)
    assert len(np.unique(cells, axis=0)) == n
    # a tenth of a cell from its walls, but for half a step of the lattice
    inside = sites * side - cells
    slack = 0.5 * side / 65535
    assert np.all((inside >= 0.1 - slack) & (inside <= 0.9 + slack))
    np.testing.assert_allclose(sites * 65535, np.rint(sites * 65535), rtol=0, atol=65535 * ELEMENTARY)


def test_three_dimensions_step_by_step():
    draws = iter(glibc_rand(3 * 11, seed=2))
    cells = [(i, j, k) for i in range(3) for j in range(3) for k in range(3)][:11]
    points = []
    for cell in cells:
        points.append([int((c + 0.5 + next(draws) / 2**31 * 0.8 - 0.4) / 3 * 65535 + 0.5) for c in cell])

    def key(point):
        x, y, z = (int("".join(f"000{bit}" for bit in f"{value:016b}"), 2) for value in point)
        return z << 2 | y << 1 | x

    assert np.array_equal(np.rint(synthetic_sites(11, seed=2, dimension=3) * 65535), sorted(points, key=key))


def test_a_small_budget_gives_the_same_sample():
    whole = synthesize(MODEL, 200)
    small = synthesize(MODEL, 200, settings=FactorSettings(tile_size=32, memory_budget=60_000))
    np.testing.assert_allclose(small.values, whole.values, rtol=0, atol=TWO_ROUTES)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"seed": -1}, "seed is -1"), ({"seed": 4096}, "0 to 4095"), ({"dimension": 1}, "2 and 3 dimensions")],
)
def test_what_the_generator_does_not_have_is_said(options, words):
    with pytest.raises(ValueError, match=words):
        synthesize(MODEL, 10, **options)
    with pytest.raises(ValueError, match="0 observations"):
        synthesize(MODEL, 0)
    with pytest.raises(TypeError):
        synthetic_sites(2.5)
