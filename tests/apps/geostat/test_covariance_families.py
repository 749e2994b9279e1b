"""What every covariance function promises: exact derivatives, symmetry, positive definiteness, one matrix by every route."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import kernels

from ooc_chol.apps.geostat import (
    AxisRanges,
    BivariateMatern,
    GeometricAnisotropy,
    GreatCircle,
    Matern,
    Nested,
    NonstationaryMatern,
    PowerExponential,
    SeparableSpaceTime,
    chordal_coordinates,
    covariance_tiles,
    cross_covariance,
    derivative_tiles,
)
from tests.apps.geostat.geostat_tolerances import FIVE_POINTS, SCIKIT_LEARN, TABLE
from tests.apps.geostat.models import MODELS, globe, plane
from tests.inside.geostat import EARTH_RADIUS_KM

pytestmark = [pytest.mark.commit, pytest.mark.plan]


#: Covariance functions whose variance is not the same at all sites.
VARYING = (BivariateMatern, NonstationaryMatern)

CASES = pytest.mark.parametrize(("model", "sites"), MODELS.values(), ids=MODELS)


def value_of(model, name):
    """A parameter by its name: the one for which ``with_values`` changes nothing."""
    if isinstance(model, Nested):
        own, _, number = name.rpartition("_")
        if name.startswith("variance_ratio"):
            return model.components[int(number) - 1].variance / model.components[0].variance
        return value_of(model.components[int(number) - 1], own) if own else getattr(model, name)
    if isinstance(model, NonstationaryMatern):
        return {"variance": model.variance, "nugget": model.nugget, **model.values}[name]
    if isinstance(model, SeparableSpaceTime):
        return value_of(model.time, name.removeprefix("time_")) if name.startswith("time_") else value_of(model.space, name)
    for holder in (model, getattr(model, "base", None)):
        if hasattr(holder, name):
            return getattr(holder, name)
    return model.ranges[int(name.removeprefix("range_")) - 1]


@CASES
def test_derivatives_are_five_point_differences(model, sites):
    a, b = sites(40, 1), sites(30, 2)
    b[0] = a[0]
    for name in ("variance", *model.parameters):
        exact = np.empty((40, 30))
        model.fill_derivative(name, a.T, b.T, exact)
        value = value_of(model, name)
        step = 1e-3 * min(abs(value), 1.0) if name != "range" else 1e-3 * value

        def at(k, name=name, value=value, step=step):
            return cross_covariance(model.with_values(**{name: value + k * step}), a, b)

        difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        assert np.abs(exact).max() > 0
        assert np.abs(exact - difference).max() <= FIVE_POINTS * np.abs(exact).max(), name
        if not isinstance(model, VARYING):
            assert exact[0, 0] == pytest.approx(1.0 if name == "variance" else 0.0, abs=1e-15)


@CASES
def test_values_are_kept_and_changed_by_name(model, sites):
    assert model.with_values() == model
    values = {name: value_of(model, name) for name in ("variance", "nugget", *model.parameters)}
    assert model.with_values(**values) == model
    changed = model.with_values(variance=3.0, nugget=0.5)
    assert (changed.variance, changed.nugget, changed.sill) == (3.0, 0.5, 3.5)
    assert changed.parameters == model.parameters
    with pytest.raises(ValueError, match="has no parameter height"):
        model.with_values(height=1.0)


@CASES
def test_a_nugget_that_is_no_variance_is_refused(model, sites):
    for nugget in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"nugget is {nugget}, but it must be finite, and zero or positive"):
            model.with_values(nugget=nugget)


@CASES
def test_matrices_are_symmetric_positive_definite_with_the_sill_on_the_diagonal(model, sites):
    places = sites(150, 3)
    whole = np.empty((150, 150))
    covariance_tiles(model, places)(range(150), range(150), whole, None)
    np.testing.assert_allclose(whole, whole.T, rtol=0, atol=1e-14)
    if not isinstance(model, VARYING):
        np.testing.assert_allclose(np.diag(whole), model.sill, rtol=1e-15)
    np.testing.assert_allclose(np.diag(whole), model.site_variances(places) + model.nugget, rtol=1e-14)
    assert np.linalg.eigvalsh(whole).min() > model.nugget - 150 * TABLE


@CASES
def test_tiles_are_parts_of_the_matrix(model, sites):
    places = sites(40, 4)
    functions = [covariance_tiles(model, places)] + [derivative_tiles(model, places, n) for n in ("nugget", *model.parameters)]
    for tile_fn in functions:
        whole, part = np.empty((40, 40)), np.full((20, 25), np.nan)
        tile_fn(range(40), range(40), whole, None)
        tile_fn(range(15, 33), range(9, 31), part[1:19, 2:24], None)
        np.testing.assert_allclose(part[1:19, 2:24], whole[15:33, 9:31], rtol=1e-13, atol=1e-15)
        assert np.isnan(part[0]).all() and np.isnan(part[:, :2]).all()


def test_power_exponential_has_the_exponential_and_the_gaussian():
    h = np.linspace(0, 3, 100)
    np.testing.assert_allclose(PowerExponential(2.0, 0.7, 1.0).covariance(h), Matern(2.0, 0.7, 0.5).covariance(h), rtol=1e-14)
    np.testing.assert_allclose(PowerExponential(1.0, 0.7, 2.0).covariance(h), np.exp(-((h / 0.7) ** 2)), rtol=1e-14)


@pytest.mark.parametrize("power", [0.01, 0.1, 0.7, 1.0, 1.9, 2.0])
def test_table_of_the_power_exponential(power):
    z = np.concatenate([[0.0], 2.0 ** np.random.default_rng(0).uniform(-200, 300, 5000), np.linspace(0.1, 30, 5000)])
    with np.errstate(over="ignore"):
        exact = np.exp(-(z**power))
    table = PowerExponential(1.0, 1.0, power).profile.table
    assert np.abs(table(z) - exact).max() <= TABLE


@pytest.mark.parametrize("nu", [0.5, 0.889, 1.5])
def test_ranges_map_to_scikit_learn(nu):
    sites, ranges = plane(40, 6, 3), (0.3, 0.8, 2.0)
    theirs = kernels.Matern(length_scale=np.sqrt(2 * nu) * np.array(ranges), nu=nu)(sites)
    ours = cross_covariance(AxisRanges(Matern(1.0, 1.0, nu), ranges), sites, sites)
    np.testing.assert_allclose(ours, theirs, rtol=SCIKIT_LEARN)


def test_ranges_have_the_gradient_of_scikit_learn():
    # theirs is the derivative in the logarithm of each length scale
    sites, ranges = plane(30, 7, 2), (0.3, 0.8)
    kernel = kernels.Matern(length_scale=np.sqrt(3.0) * np.array(ranges), nu=1.5)
    gradient = kernel(sites, eval_gradient=True)[1]
    model, ours = AxisRanges(Matern(1.0, 1.0, 1.5), ranges), np.empty((30, 30))
    for axis in (0, 1):
        model.fill_derivative(f"range_{axis + 1}", sites.T, sites.T, ours)
        np.testing.assert_allclose(ranges[axis] * ours, gradient[:, :, axis], rtol=0, atol=SCIKIT_LEARN)


def test_anisotropy_along_the_axes_is_a_range_for_each():
    sites = plane(40, 8)
    turned = cross_covariance(GeometricAnisotropy(Matern(1.0, 0.6, 1.2), np.pi / 2, 0.5), sites, sites)
    ranges = cross_covariance(AxisRanges(Matern(1.0, 1.0, 1.2), (0.3, 0.6)), sites, sites)
    np.testing.assert_allclose(turned, ranges, rtol=0, atol=TABLE)


def test_main_axis_is_counter_clockwise_from_the_first():
    model, out = GeometricAnisotropy(Matern(1.0, 2.0, 0.5), np.pi / 6, 0.25), np.empty((1, 2))
    along, across = 2.0 * np.array([np.cos(np.pi / 6), np.sin(np.pi / 6)]), 0.5 * np.array([-0.5, np.sqrt(0.75)])
    model.fill(np.zeros((2, 1)), np.column_stack([along, across]), out)
    np.testing.assert_allclose(out, np.exp(-1.0), rtol=1e-14)


def test_round_ellipses_have_no_direction():
    sites, out = plane(40, 9), np.empty((40, 40))
    model = GeometricAnisotropy(Matern(1.0, 0.6, 1.2), 1.1, 1.0)
    np.testing.assert_allclose(cross_covariance(model, sites, sites), cross_covariance(model.base, sites, sites), atol=TABLE)
    model.fill_derivative("angle", sites.T, sites.T, out)
    assert not out.any()


def test_great_circle_distances():
    model = GreatCircle(Matern(1.0, 1000.0, 0.5))
    sites = np.array([[0.0, 0.0], [180.0, 0.0], [90.0, 90.0], [359.0, 0.0], [-1.0, 0.0]])
    arcs = EARTH_RADIUS_KM * np.radians([0.0, 180.0, 90.0, 1.0, 1.0])
    np.testing.assert_allclose(cross_covariance(model, sites[:1], sites)[0], np.exp(-arcs / 1000.0), rtol=1e-12)
    near = np.array([[10.0, 50.0], [10.1, 50.05]])
    chord = np.linalg.norm(np.diff(chordal_coordinates(*near.T), axis=0))
    assert cross_covariance(model, near[:1], near[1:])[0, 0] == pytest.approx(np.exp(-chord / 1000.0), rel=1e-7)


def test_smooth_functions_of_the_great_circle_are_refused_because_they_are_not_positive_definite():
    for base in (Matern(1.0, 1000.0, 0.6), Matern(1.0, 1000.0, 1.5), PowerExponential(1.0, 1000.0, 1.1)):
        with pytest.raises(ValueError, match=r"Gneiting 2013.*chordal_coordinates"):
            GreatCircle(base)
    # the reason: 300 sites on the globe, a long range, and what a smoothness of 3/2 would give
    places = globe(300, 10)
    angle = np.arccos(np.clip(chordal_coordinates(*places.T) @ chordal_coordinates(*places.T).T / EARTH_RADIUS_KM**2, -1, 1))
    assert np.linalg.eigvalsh(Matern(1.0, 2.0, 1.5).covariance(angle)).min() < -0.1
    assert np.linalg.eigvalsh(Matern(1.0, 2.0, 0.5).covariance(angle)).min() > 0


def test_noise_of_each_observation_is_added_by_index():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    noise, out = np.array([0.1, 0.0, 2.0]), np.empty((3, 3))
    covariance_tiles(Matern(2.0, 1.0, 0.9, 0.5), sites, noise)(range(3), range(3), out, None)
    np.testing.assert_allclose(np.diag(out), [2.6, 2.5, 4.5], rtol=1e-15)
    assert out[0, 2] == out[2, 0] == 2.0
    part = np.empty((2, 2))
    covariance_tiles(Matern(2.0, 1.0, 0.9, 0.5), sites, noise)(range(1, 3), range(0, 2), part, None)
    assert np.array_equal(part, out[1:3, 0:2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PowerExponential(1.0, 1.0, 2.1), "power is 2.1"),
        (lambda: PowerExponential(1.0, 0.0, 1.0), "range is 0"),
        (lambda: GeometricAnisotropy(Matern(1.0, 1.0, 0.5), 0.1, 0.0), "ratio is 0"),
        (lambda: GeometricAnisotropy(Matern(1.0, 1.0, 0.5), np.inf, 0.5), "angle is inf"),
        (lambda: AxisRanges(Matern(1.0, 2.0, 0.5), (1.0,)), "must be 1"),
        (lambda: AxisRanges(Matern(1.0, 1.0, 0.5), (1.0, -1.0)), "range_2 is -1"),
        (lambda: AxisRanges(Matern(1.0, 1.0, 0.5), ()), "a length for each axis"),
        (lambda: cross_covariance(AxisRanges(Matern(1.0, 1.0, 0.5), (1.0,)), plane(3, 0), plane(3, 0)), "needs sites of 1 coord"),
        (lambda: cross_covariance(GreatCircle(Matern(1.0, 1.0, 0.5)), [[0.0, 91.0]], [[0.0, 0.0]]), "latitude is outside"),
        (lambda: covariance_tiles(Matern(1.0, 1.0, 0.5), [[0.0], [np.nan]]), "site 1 .* not finite"),
        (lambda: covariance_tiles(Matern(1.0, 1.0, 0.5), [0.0, 1.0]), "must be an"),
        (lambda: cross_covariance(Matern(1.0, 1.0, 0.5), plane(3, 0), plane(3, 0, 3)), "of 2 and of 3 coordinates"),
        (lambda: covariance_tiles(Matern(1.0, 1.0, 0.5), [[0.0], [1.0]], [0.1]), "2 observations"),
        (lambda: covariance_tiles(Matern(1.0, 1.0, 0.5), [[0.0], [1.0]], [0.1, -0.1]), r"noise\[1\] is -0.1"),
    ],
)
def test_what_is_wrong_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("name", MODELS)
def test_a_stack_is_its_matrices(name):
    """To the bit, values and derivatives, over several chunks."""
    model, sites = MODELS[name]
    places = sites(60, 5).T
    rng = np.random.default_rng(6)
    a, b = places[:, rng.integers(0, 60, (30, 23))], places[:, rng.integers(0, 60, (30, 17))]
    for parameter in ("variance", *model.parameters):
        stack, single = np.empty((30, 23, 17)), np.empty((23, 17))
        model.fill_derivative(parameter, a, b, stack)
        for k in range(30):
            model.fill_derivative(parameter, a[:, k], b[:, k], single)
            np.testing.assert_array_equal(stack[k], single)
