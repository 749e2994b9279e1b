"""The order of Vecchia's approximation: rows in any order, other units and other files of one raster give one value."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps.geostat import GeometricAnisotropy, Matern, fit, make_observations, vecchia_log_likelihood
from tests.inside.geostat import conditioning, mirrored_log_likelihoods, whole_places

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Relative difference of one sum of some thousand terms, in other units.
ROUNDING = 1e-11

#: Units of coordinates that are read as others.
UNITS = (1000.0, 111.19, 1e-3, 1.0 / 3.0)


def raster(columns=45, rows=36, steps=(0.0093, 0.0081), share=0.7, seed=0):
    """Sites and values of some cells, in the order of rows."""
    rng = np.random.default_rng(seed)
    at = np.flatnonzero(rng.uniform(size=columns * rows) < share)
    sites = np.column_stack([-95.0 + steps[0] * (at % columns), 34.0 + steps[1] * (at // columns)])
    return sites, np.sin(30 * sites[:, 0]) + np.cos(40 * sites[:, 1]) + 0.1 * rng.normal(size=len(at))


def swath(n=900, seed=1):
    """Sites that are on no raster, some of them twice."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2)) * (3.0, 1.0)
    sites[-60:] = sites[:60]
    return sites, np.sin(5 * sites[:, 0]) + rng.normal(size=n)


def value(sites, values, scale=1.0, neighbours=12, model=None):
    """The approximation in a unit of the coordinates."""
    base = Matern(1.0, 0.2 * scale, 0.7, 0.1) if model is None else model
    return vecchia_log_likelihood(make_observations(scale * sites, values), base, neighbours=neighbours).loglik


@pytest.mark.parametrize("data", [raster, swath])
def test_neither_the_order_of_rows_nor_the_unit_matters(data):
    sites, values = data()
    expected = value(sites, values)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(values))
        assert value(sites[order], values[order]) == pytest.approx(expected, rel=ROUNDING)
    for unit in UNITS:
        assert value(sites, values, unit) == pytest.approx(expected, rel=ROUNDING)


def test_nor_does_the_order_of_rows_of_an_anisotropic_field():
    sites, values = raster()
    model = GeometricAnisotropy(Matern(1.0, 0.2, 0.7, 0.1), angle=0.4, ratio=0.3)
    order = np.random.default_rng(0).permutation(len(values))
    assert value(sites[order], values[order], model=model) == pytest.approx(value(sites, values, model=model), rel=ROUNDING)


def test_a_raster_that_was_read_from_few_digits_has_the_same_neighbours():
    sites, _ = raster()
    expected = conditioning(sites, 12)
    for read in (
        sites.astype(np.float32).astype(float),
        np.round(sites, 6),
        sites + 1e-8 * np.sin(np.arange(len(sites)))[:, None],
    ):
        found = conditioning(read, 12)
        assert np.array_equal(found.order, expected.order) and np.array_equal(found.neighbours, expected.neighbours)


def test_the_range_that_divides_coordinates_changes_no_neighbour():
    sites, _ = raster()
    graphs = [conditioning(sites / length, 12) for length in (0.317, 0.2, 1.7e-3, 41.0)]
    for graph in graphs[1:]:
        assert np.array_equal(graph.order, graphs[0].order) and np.array_equal(graph.neighbours, graphs[0].neighbours)


def test_of_neighbours_as_near_the_earliest_are_taken():
    sites, _ = raster(30, 30, (1.0, 1.0), 1.0)
    graph = conditioning(sites, 10)
    ordered = sites[graph.order]
    for place in range(20, len(sites), 37):
        squares = np.rint(np.sum((ordered[:place] - ordered[place]) ** 2, axis=1))
        wanted = np.lexsort((np.arange(place), squares))[:10]
        assert set(graph.neighbours[place]) == set(wanted)


def test_many_observations_at_few_places():
    """Found in time and memory that grow with their number, not with its square; rows in any order have one value."""
    rng = np.random.default_rng(5)
    sites, values = np.repeat(rng.uniform(size=(5, 2)), 1200, axis=0), rng.normal(size=6000)
    order = rng.permutation(6000)
    expected = value(sites, values, neighbours=8)
    assert value(sites[order], values[order], neighbours=8) == pytest.approx(expected, rel=ROUNDING)


def test_whole_places():
    """Rasters by their steps, in which both neighbours are equally far; everything else by the widest extent."""
    sites, _ = raster()
    places = whole_places(sites)
    assert np.array_equal(places, np.rint(places)) and places.min() == 0.0 and places.max() <= 2.0**25
    for axis in (0, 1):
        steps = np.diff(np.unique(places[:, axis]))
        assert np.array_equal(steps, np.full(len(steps), steps[0]))
    # a length along one axis is one along the other
    assert np.ptp(places[:, 0]) / np.ptp(places[:, 1]) == pytest.approx(np.ptp(sites[:, 0]) / np.ptp(sites[:, 1]), rel=0.01)
    others, _ = swath()
    np.testing.assert_allclose(
        whole_places(others) / 2.0**25 * np.ptp(others[:, 0]), others - others.min(axis=0), rtol=0, atol=2.0**-25 * 3.0
    )
    assert np.array_equal(whole_places(np.ones((4, 2))), np.zeros((4, 2)))


def test_search_and_result_have_one_value_and_its_noise():
    """On a raster, too, where coordinates are divided by another range in the search."""
    sites, values = raster(30, 24)
    observations = make_observations(sites, values)
    result = fit(observations, smoothness=0.5, method="vecchia", exact_check="skip", neighbours=10)
    assert result.vecchia.loglik == pytest.approx(result.trials[0].loglik, rel=1e-9)
    images = mirrored_log_likelihoods(observations, result.model, neighbours=10)
    spread = max(images) - min(images)
    assert images[0] == result.vecchia.loglik
    assert result.vecchia.spread == result.to_dict()["vecchia"]["spread"] == spread > 0
    mirrored = [value(sites * signs, values, neighbours=10, model=result.model) for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    np.testing.assert_allclose(images, mirrored, rtol=ROUNDING)
    # with all neighbours there is no noise
    few = observations.take(np.arange(60))
    assert np.ptp(mirrored_log_likelihoods(few, result.model, neighbours=59)) < 1e-9 * abs(result.loglik)


def test_a_window_of_land_surface_temperatures_has_one_value(data_dir):
    """Pixels of MODIS (Heaton et al. 2019), by the axes of the file, in other units and orders, and in single precision."""
    with np.load(data_dir / "modis.npz") as file:
        inside = (file["train_ix"] < 90) & (file["train_iy"] < 80)
        columns = file["lon_axis"][file["train_ix"][inside]], file["lat_axis"][file["train_iy"][inside]]
        values = 0.02 * file["train_dn"][inside] - 273.15
    sites = np.column_stack(columns).astype(float)
    expected = value(sites, values, neighbours=30)
    order = np.random.default_rng(0).permutation(len(values))
    assert value(sites[order], values[order], neighbours=30) == pytest.approx(expected, rel=ROUNDING)
    for unit in UNITS:
        assert value(sites, values, unit, neighbours=30) == pytest.approx(expected, rel=ROUNDING)
    graphs = [conditioning(places, 30) for places in (sites, sites.astype(np.float32).astype(float))]
    assert np.array_equal(graphs[0].neighbours, graphs[1].neighbours)
