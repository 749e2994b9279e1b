"""The covariance function against Bessel functions and scikit-learn, and its tile function against the whole matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gamma, kv
from sklearn.gaussian_process import kernels

from ooc_chol.apps.geostat import SMOOTHNESS, Matern, chordal_coordinates, covariance_tiles, cross_covariance
from tests.apps.geostat.geostat_tolerances import CLOSED_FORM
from tests.inside.geostat import EARTH_RADIUS_KM

pytestmark = [pytest.mark.commit, pytest.mark.plan]


def matern_by_bessel(r, nu):
    return 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r)


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_closed_forms_equal_the_bessel_function(nu):
    r = np.logspace(-6, 2, 400)
    closed = Matern(2.0, 3.0, nu).covariance(3.0 * r)
    np.testing.assert_allclose(closed, 2.0 * matern_by_bessel(r, nu), rtol=CLOSED_FORM * 10)


def test_values_given_to_seventeen_digits():
    # exp(-2), and K_nu in closed form at r = 1: (1 + 1) e**-1 and (1 + 1 + 1/3) e**-1
    assert Matern(1, 1, 0.5).covariance(np.array([2.0]))[0] == pytest.approx(0.13533528323661269, rel=CLOSED_FORM)
    assert Matern(1, 1, 1.5).covariance(np.array([1.0]))[0] == pytest.approx(0.73575888234288464, rel=CLOSED_FORM)
    assert Matern(1, 1, 2.5).covariance(np.array([1.0]))[0] == pytest.approx(0.85838536273336542, rel=CLOSED_FORM)


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_correlation_is_a_twentieth_at_the_effective_range(nu):
    model = Matern(1.0, 7.0, nu)
    assert model.covariance(np.array([model.effective_range]))[0] == pytest.approx(0.05, rel=1e-10)


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_parameters_map_to_scikit_learn(nu):
    sites = np.random.default_rng(1).uniform(size=(30, 2))
    ours = cross_covariance(Matern(1.0, 0.3, nu), sites, sites)
    theirs = kernels.Matern(length_scale=0.3 * np.sqrt(2 * nu), nu=nu)(sites)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@given(
    n=st.integers(1, 40),
    d=st.integers(1, 3),
    nu=st.sampled_from(SMOOTHNESS),
    bounds=st.tuples(*[st.floats(0, 1)] * 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_tile_is_that_part_of_the_matrix(n, d, nu, bounds, seed):
    sites = np.random.default_rng(seed).uniform(size=(n, d))
    model = Matern(1.7, 0.4, nu, 0.2)
    whole = model.covariance(np.linalg.norm(sites[:, None] - sites[None], axis=2)) + 0.2 * np.eye(n)
    r0, r1 = sorted(int(b * n) for b in bounds[:2])
    c0, c1 = sorted(int(b * n) for b in bounds[2:])
    out = np.full((r1 - r0, c1 - c0), np.nan)
    covariance_tiles(model, sites)(range(r0, r1), range(c0, c1), out, None)
    np.testing.assert_allclose(out, whole[r0:r1, c0:c1], rtol=1e-12)


def test_nugget_is_per_observation_so_duplicates_are_not_singular():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    out = np.empty((3, 3))
    covariance_tiles(Matern(2.0, 1.0, 0.5, 0.5), sites)(range(3), range(3), out, None)
    assert out[0, 2] == 2.0 and out[0, 0] == 2.5
    assert np.linalg.eigvalsh(out).min() == pytest.approx(0.5)


def test_tile_function_is_pure_and_leaves_the_rest_alone():
    sites = np.random.default_rng(2).uniform(size=(50, 2))
    tile_fn = covariance_tiles(Matern(1.0, 0.1, 1.5, 0.1), sites)
    frame = np.full((30, 20), -1.0)
    for _ in range(2):
        tile_fn(range(5, 25), range(20), frame[4:24], None)
    again = np.empty((20, 20))
    tile_fn(range(5, 25), range(20), again, None)
    assert np.array_equal(frame[4:24], again)
    assert np.all(frame[:4] == -1.0) and np.all(frame[24:] == -1.0)


def test_tile_function_allocates_little():
    sites = np.random.default_rng(3).uniform(size=(1024, 2))
    tile_fn = covariance_tiles(Matern(1.0, 0.1, 2.5, 0.1), sites)
    out = np.empty((1024, 1024))
    tracemalloc.start()
    tile_fn(range(1024), range(1024), out, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < out.nbytes / 20


def test_translation_changes_no_bit_on_a_lattice():
    sites = np.random.default_rng(4).integers(0, 2**16, size=(40, 2)) / 2**16
    one, other = np.empty((40, 40)), np.empty((40, 40))
    covariance_tiles(Matern(1.0, 0.3, 1.5), sites)(range(40), range(40), one, None)
    covariance_tiles(Matern(1.0, 0.3, 1.5), sites + 1024.0)(range(40), range(40), other, None)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ((1.0, 1.0, 0.0), "smoothness is 0.0"),
        ((1.0, 1.0, 31.0), "within 0.01 and 30"),
        ((1.0, 1.0, np.nan), "smoothness is nan"),
        ((0.0, 1.0, 0.5), "variance"),
        ((1.0, -1.0, 0.5), "range"),
        ((1.0, np.inf, 0.5), "range"),
        ((1.0, 1.0, 0.5, -0.1), "nugget"),
        ((1.0, 1.0, 0.5, np.nan), "nugget"),
    ],
)
def test_wrong_parameters_are_named(parameters, words):
    with pytest.raises(ValueError, match=words):
        Matern(*parameters)


def test_chords_on_the_sphere():
    points = chordal_coordinates([0.0, 180.0, 1.0, 361.0 - 360.0], [0.0, 0.0, 0.0, 0.0])
    chords = np.linalg.norm(points - points[0], axis=1)
    arc = np.radians(1.0)
    np.testing.assert_allclose(
        chords, EARTH_RADIUS_KM * np.array([0.0, 2.0, 2 * np.sin(arc / 2), 2 * np.sin(arc / 2)]), rtol=1e-12
    )


def test_exchanged_degrees_are_noticed():
    with pytest.raises(ValueError, match="exchanged"):
        chordal_coordinates([50.0], [150.0])
