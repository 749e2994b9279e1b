"""The Matérn covariance of any smoothness: printed special functions, Bessel functions, closed forms, differences, extremes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import digamma, gamma, kv
from sklearn.gaussian_process import kernels

from ooc_chol.apps.geostat import SMOOTHNESS, Matern, cross_covariance, derivative_tiles
from tests.apps.geostat.geostat_tolerances import CLOSED_FORM, FIVE_POINTS, SCIKIT_LEARN, SEVENTEEN_DIGITS, TABLE
from tests.inside.geostat import MaternProfile, bessel_k, matern_tables, matern_values

pytestmark = [pytest.mark.commit, pytest.mark.plan]

#: nu, z, K, dK/dnu, M, dM/dnu (T12; 40 digits, printed with 17).
PRINTED = [
    (0.1, 0.01, 4.9346660097555971, 4.3331188250609183, 0.61072273291110269, 3.6664954635950354),
    (0.5, 2.0, 0.11993777196806145, 0.024748637504434276, 0.13533528323661269, 0.29365803248354042),
    (0.889, 1e-6, 215312.77449331942, 2956758.3357406614, 0.99999999994648059, 1.1328679791599915e-9),
    (0.889, 0.5, 1.4720305405480558, 1.4861782898952828, 0.796583592909826, 0.31830481989803614),
    (1.0, 10.0, 1.8648773453825585e-5, 1.7780062316167652e-6, 0.00018648773453825585, 0.00042556413417346272),
    (2.3, 0.01, 114365.29966112111, 674569.08555594633, 0.99998076999979056, 1.4790080442329767e-5),
    (2.3, 50.0, 3.5935292457859582e-23, 1.6362908745543429e-24, 1.0112291258388928e-19, 2.6942888632514011e-19),
    (4.75, 2.0, 6.4224868956613491, 9.707567123414365, 0.77443710597385093, 0.048241660117156927),
]

#: Everyday, extreme, whole and nearly whole, half-integer and nearly so.
SMOOTHNESSES = (
    0.02,
    0.1,
    0.3,
    0.5,
    0.5 + 1e-9,
    0.889,
    0.95,
    1.0,
    1.0 + 1e-12,
    1.099,
    1.5,
    2.0,
    2.3,
    2.5 - 1e-7,
    4.75,
    10.0,
    20.0,
    29.5,
)


def scaled_distances(seed=0):
    """Many binades, whole ranges densely, and zero."""
    rng = np.random.default_rng(seed)
    return np.concatenate([[0.0], 2.0 ** rng.uniform(-80, 9.5, 4000), rng.uniform(0, 20, 4000), [1.0, 2.0, 4.0, 512.0, 1e5]])


@pytest.mark.parametrize(("nu", "z", "k", "k_by_nu", "m", "m_by_nu"), PRINTED)
def test_special_functions_as_printed(nu, z, k, k_by_nu, m, m_by_nu):
    scaled, by_order = bessel_k(z, nu)
    assert np.exp(-z) * scaled == pytest.approx(k, rel=SEVENTEEN_DIGITS)
    assert np.exp(-z) * by_order == pytest.approx(k_by_nu, rel=SEVENTEEN_DIGITS)
    values = matern_values(z, nu)
    assert values.correlation == pytest.approx(m, rel=SEVENTEEN_DIGITS)
    assert values.by_smoothness == pytest.approx(m_by_nu, rel=SEVENTEEN_DIGITS)


@pytest.mark.parametrize(("nu", "z", "k", "k_by_nu", "m", "m_by_nu"), PRINTED)
def test_tables_hold_the_printed_values(nu, z, k, k_by_nu, m, m_by_nu):
    model = Matern(3.0, 2.0, nu)
    a, b, out = np.zeros((1, 1)), np.array([[2.0 * z]]), np.empty((1, 1))
    model.fill(a, b, out)
    assert out[0, 0] == pytest.approx(3.0 * m, abs=3.0 * TABLE)
    model.fill_derivative("smoothness", a, b, out)
    assert out[0, 0] == pytest.approx(3.0 * m_by_nu, abs=3.0 * TABLE)


@pytest.mark.parametrize("nu", SMOOTHNESSES)
def test_tables_are_as_good_as_exact_values(nu):
    z = scaled_distances()
    exact = matern_values(z, nu)
    for table, values in zip(matern_tables(nu), (exact.correlation, exact.slope, exact.by_smoothness), strict=True):
        assert np.abs(table(z) - values).max() <= TABLE * max(1.0, np.abs(values).max())


@pytest.mark.parametrize("nu", [nu for nu in SMOOTHNESSES if nu <= 20])
def test_exact_values_are_those_of_the_bessel_function(nu):
    z = np.logspace(-6, 2.5, 500)
    with np.errstate(over="ignore", invalid="ignore"):
        values = 2 ** (1 - nu) / gamma(nu) * z**nu * kv(nu, z)
        slope = -(2 ** (1 - nu)) / gamma(nu) * z ** (nu + 1) * kv(nu - 1, z)
    exact, usable = matern_values(z, nu), np.isfinite(values)
    assert usable.sum() > 300
    np.testing.assert_allclose(exact.correlation[usable], values[usable], rtol=0, atol=TABLE)
    np.testing.assert_allclose(exact.slope[usable], slope[usable], rtol=0, atol=TABLE * max(1.0, nu))


@given(nu=st.floats(0.01, 30.0), z=st.floats(0.5, 1.0))
@example(nu=1.0, z=1.0)
@example(nu=1.1, z=0.7)
@example(nu=np.nextafter(3.0, 0.0), z=0.5)
def test_series_and_integral_agree_where_both_converge(nu, z):
    exact, factor = matern_values(z, nu), 2 ** (1 - nu) / gamma(nu) * z**nu * np.exp(-z)
    scaled, by_order = bessel_k(z, nu)
    below = bessel_k(z, nu - 1)[0]
    assert exact.correlation == pytest.approx(factor * scaled, rel=0, abs=TABLE)
    assert exact.slope == pytest.approx(-factor * z * below, rel=0, abs=TABLE)
    by_smoothness = factor * scaled * (np.log(z / 2) - digamma(nu)) + factor * by_order
    assert exact.by_smoothness == pytest.approx(by_smoothness, rel=0, abs=TABLE * max(1.0, 1 / nu))


@pytest.mark.parametrize("nu", SMOOTHNESS)
def test_general_route_is_the_closed_form_at_half_integers(nu):
    z = scaled_distances()
    closed = Matern(1.0, 1.0, nu).covariance(z)
    np.testing.assert_allclose(matern_tables(nu)[0](z), closed, rtol=0, atol=TABLE)
    usable = (closed > 1e-20) & (z > 0)
    np.testing.assert_allclose(matern_values(z[usable], nu).correlation, closed[usable], rtol=CLOSED_FORM)


def test_smoothness_seven_halves_has_its_closed_form():
    r = scaled_distances()
    closed = (1 + r + 2 * r**2 / 5 + r**3 / 15) * np.exp(-r)
    np.testing.assert_allclose(Matern(1.0, 1.0, 3.5).covariance(r), closed, rtol=0, atol=TABLE)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_nothing_happens_next_to_a_half_integer(nu):
    z = np.linspace(0, 15, 1000)
    here = Matern(1.0, 1.0, nu).covariance(z)
    for near in (np.nextafter(nu, 0), np.nextafter(nu, 9)):
        np.testing.assert_allclose(Matern(1.0, 1.0, near).covariance(z), here, rtol=0, atol=TABLE)


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.93, 1.0, 1.5, 2.3, 2.5, 4.75, 20.0])
@pytest.mark.parametrize("name", ["variance", "range", "smoothness"])
def test_derivatives_are_five_point_differences(nu, name):
    model = Matern(1.7, 0.4, nu, 0.1)
    a, b = np.random.default_rng(1).uniform(size=(2, 2, 60))
    b[:, 0] = a[:, 0]
    exact = np.empty((60, 60))
    model.fill_derivative(name, a, b, exact)
    value = getattr(model, name)
    step = 1e-3 * value

    def at(k):
        out = np.empty((60, 60))
        model.with_values(**{name: value + k * step}).fill(a, b, out)
        return out

    difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    assert np.abs(exact - difference).max() <= FIVE_POINTS * np.abs(exact).max()
    assert exact[0, 0] == (1.0 if name == "variance" else 0.0)


@pytest.mark.parametrize("nu", SMOOTHNESSES)
def test_extreme_distances(nu):
    z = np.array([0.0, 5e-324, 1e-300, 1e-160, 1e4, 1e300, np.inf])
    assert np.array_equal(matern_tables(nu)[0](z)[[0, 4, 5, 6]], [1, 0, 0, 0])
    for table, most in zip(matern_tables(nu), (1.0, 1e-3, 1e-1), strict=True):
        values = table(z)
        assert np.isfinite(values).all() and np.abs(values[1:4]).max() <= most
    exact = matern_values(z[:-1], nu)
    assert exact.correlation[0] == 1.0 and exact.slope[0] == 0.0 and exact.by_smoothness[0] == 0.0


@given(nu=st.floats(0.05, 30.0), seed=st.integers(0, 2**32 - 1))
def test_correlations_fall_and_grow_with_smoothness_terms(nu, seed):
    # M falls in z; M grows in nu (K_nu grows faster than gamma): signs that no rounding may turn
    z = np.sort(np.random.default_rng(seed).uniform(0, 30, 200))
    values = Matern(1.0, 1.0, nu).covariance(z)
    assert np.all(np.diff(values) <= TABLE) and values.max() <= 1 + TABLE and values.min() >= -TABLE
    by_smoothness = z.copy()
    MaternProfile(nu).differentiate("smoothness", by_smoothness, np.empty((3, *z.shape)))
    assert by_smoothness.min() >= -TABLE * max(1.0, 1.0 / nu)


@pytest.mark.parametrize("nu", [0.2, 0.889, 1.0, 2.3, 4.75])
def test_any_smoothness_maps_to_scikit_learn(nu):
    sites = np.random.default_rng(1).uniform(size=(40, 2))
    theirs = kernels.Matern(length_scale=0.3 * np.sqrt(2 * nu), nu=nu)(sites)
    np.testing.assert_allclose(cross_covariance(Matern(1.0, 0.3, nu), sites, sites), theirs, rtol=SCIKIT_LEARN)


def test_large_smoothness_tends_to_the_gaussian():
    # with l = a sqrt(2 nu) kept, M -> exp(-h**2 / (2 l**2)), the nearer the larger nu
    h = np.linspace(0, 3, 200)
    gaussian = np.exp(-(h**2) / 2)
    gaps = [np.abs(Matern(1.0, 1 / np.sqrt(2 * nu), nu).covariance(h) - gaussian).max() for nu in (7.5, 15.0, 30.0)]
    assert gaps[0] > 1.8 * gaps[1] > 3.2 * gaps[2] and gaps[2] < 0.01


@pytest.mark.parametrize("nu", [0.05, 0.889, 3.0, 30.0])
def test_effective_range_of_any_smoothness(nu):
    model = Matern(1.0, 7.0, nu)
    assert model.covariance(np.array([model.effective_range]))[0] == pytest.approx(0.05, rel=1e-10)


@pytest.mark.parametrize("nu", [0.2, 1.3, 4.0])
def test_matrices_are_positive_definite(nu):
    sites = np.random.default_rng(3).uniform(size=(150, 2))
    smallest = np.linalg.eigvalsh(cross_covariance(Matern(1.0, 0.1, nu), sites, sites)).min()
    assert smallest > -150 * TABLE


def test_derivative_tiles_by_index_and_by_name():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    model, out = Matern(2.0, 1.0, 1.3, 0.5), np.empty((2, 3))
    derivative_tiles(model, sites, "nugget")(range(1, 3), range(3), out, None)
    assert np.array_equal(out, [[0, 1, 0], [0, 0, 1]])
    derivative_tiles(model, sites, "variance")(range(1, 3), range(3), out, None)
    assert out[0, 1] == out[1, 2] == out[1, 0] == 1.0 and 0 < out[0, 0] < 1
    derivative_tiles(model, sites, "smoothness")(range(1, 3), range(3), out, None)
    assert out[0, 1] == out[1, 2] == out[1, 0] == 0.0 and out[0, 0] > 0
    with pytest.raises(ValueError, match="there are variance, nugget, range, smoothness"):
        derivative_tiles(model, sites, "sill")
    with pytest.raises(ValueError, match="there are variance, range, smoothness"):
        model.fill_derivative("nugget", sites.T, sites.T, np.empty((3, 3)))


def test_values_are_changed_by_name():
    model = Matern(2.0, 1.0, 0.5, 0.5)
    assert model.parameters == ("range", "smoothness")
    assert model.with_values(range=3.0, nugget=0.0) == Matern(2.0, 3.0, 0.5, 0.0)
    with pytest.raises(ValueError, match="no parameter power; it has variance, nugget, range, smoothness"):
        model.with_values(power=1.0)
    with pytest.raises(ValueError, match="range is -1"):
        model.with_values(range=-1.0)
