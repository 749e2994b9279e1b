"""Variograms against loops over all pairs, models, envelopes, and what is said of a subsample."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import Direction, Matern, empirical_variogram, make_observations, model_variogram, variogram_envelope
from tests.apps.geostat.geostat_tolerances import CLOSED_FORM, printed
from tests.inside.geostat import pairs as pairs_module

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.5, 0.15, 1.5, 0.2)


def example(n=70, seed=0, mean="constant"):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    sites[-1] = sites[0]
    return make_observations(sites, np.sin(6 * sites[:, 0]) + 0.3 * rng.normal(size=n), mean=mean)


def simulated(model, n, seed, mean="zero"):
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    covariance = geostat.cross_covariance(model, sites, sites) + model.nugget * np.eye(n)
    return make_observations(sites, np.linalg.cholesky(covariance) @ rng.normal(size=n), mean=mean)


def by_loops(observations, edges, estimator, direction=None):
    """Pairs, mean distances and semivariances as a textbook writes them."""
    sites, values = observations.coordinates, observations.values - observations.values.mean()
    bins = [[] for _ in edges[1:]]
    for a, b in itertools.combinations(range(observations.n), 2):
        dx, dy = sites[a] - sites[b]
        distance = math.hypot(dx, dy)
        angle = math.degrees(math.atan2(dx, dy)) % 180
        off = 0 if direction is None else abs((angle - direction.azimuth + 90) % 180 - 90)
        if distance <= edges[-1] and (direction is None or distance == 0 or off <= direction.tolerance):
            place = next(k for k in range(len(bins)) if distance <= edges[k + 1])
            bins[place].append((distance, values[a] - values[b]))
    rows = []
    for pairs in filter(None, bins):
        lengths, differences = np.array(pairs).T
        n = len(pairs)
        if estimator == "matheron":
            value = np.mean(differences**2) / 2
        else:
            value = np.mean(np.abs(differences) ** 0.5) ** 4 / (0.457 + 0.494 / n + 0.045 / n**2) / 2
        rows.append((n, lengths.mean(), value))
    return np.array(rows).T


def test_meuse_log_zinc_as_gstat_prints_it(data_dir):
    """The table of ``variogram(log(zinc) ~ 1, meuse)`` in the vignette of gstat: 15 bins up to a third of the diagonal."""
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc"))
    variogram = empirical_variogram(make_observations(table.stack(("x", "y")), np.log(table.columns["zinc"])))
    assert variogram.pairs.tolist() == [57, 299, 419, 457, 547, 533, 574, 564, 589, 543, 500, 477, 452, 457, 415]
    distance = [79.29244, 163.97367, 267.36483, 372.73542, 478.47670, 585.34058, 693.14526, 796.18365]
    distance += [903.14650, 1011.29177, 1117.86235, 1221.32810, 1329.16407, 1437.25620, 1543.20248]
    np.testing.assert_allclose(variogram.distance, distance, atol=printed(5), rtol=0)
    gamma = [0.1234479, 0.2162185, 0.3027859, 0.4121448, 0.4634128, 0.5646933, 0.5689683, 0.6186769]
    gamma += [0.6471479, 0.6915705, 0.7033984, 0.6038770, 0.6517158, 0.5665318, 0.5748227]
    np.testing.assert_allclose(variogram.semivariance, gamma, atol=printed(7), rtol=0)


@pytest.mark.parametrize("direction", [None, Direction(0.0), Direction(100.0, 30.0), Direction(-45.0, 10.0)])
@pytest.mark.parametrize("estimator", ["matheron", "cressie"])
def test_equals_loops_over_all_pairs(estimator, direction):
    observations = example()
    variogram = empirical_variogram(observations, estimator=estimator, bins=7, longest=0.6, direction=direction)
    pairs, distance, semivariance = by_loops(observations, variogram.edges, estimator, direction)
    assert np.array_equal(variogram.pairs, pairs)
    np.testing.assert_allclose(variogram.distance, distance, rtol=CLOSED_FORM)
    np.testing.assert_allclose(variogram.semivariance, semivariance, rtol=100 * CLOSED_FORM)


def test_two_opposite_halves_are_all_directions():
    observations = example()
    everything = empirical_variogram(observations, bins=5)
    assert np.array_equal(empirical_variogram(observations, bins=5, direction=Direction(10.0, 90.0)).pairs, everything.pairs)
    halves = [empirical_variogram(observations, bins=5, direction=Direction(azimuth, 45.0)) for azimuth in (30.0, 120.0)]
    # the pair at one place points every way
    assert np.array_equal(halves[0].pairs + halves[1].pairs, everything.pairs + np.eye(5)[0])


def test_bins_are_automatic_up_to_a_third_of_the_diameter():
    observations = example(n=300)
    variogram = empirical_variogram(observations)
    assert len(variogram.edges) == 16 and variogram.edges[-1] == pytest.approx(observations.diameter / 3)
    few = empirical_variogram(example(n=20))
    assert 1 <= len(few.edges) - 1 < 15
    assert few.pairs.sum() < 30 or few.pairs.sum() / (len(few.edges) - 1) >= 30


def test_pairs_are_of_all_chunks(monkeypatch):
    observations = example()
    whole = empirical_variogram(observations)
    monkeypatch.setattr(pairs_module, "_CHUNK_PAIRS", 150)
    pieces = empirical_variogram(observations)
    assert np.array_equal(whole.pairs, pieces.pairs)
    np.testing.assert_allclose(whole.semivariance, pieces.semivariance, rtol=CLOSED_FORM)


def test_a_constant_and_a_covariate_leave_no_trace():
    observations = example()
    rng = np.random.default_rng(3)
    covariate = rng.normal(size=observations.n)
    plain = make_observations(observations.coordinates, observations.values, covariates=covariate)
    moved = make_observations(observations.coordinates + 100, observations.values + 7 - 3 * covariate, covariates=covariate)
    np.testing.assert_allclose(
        empirical_variogram(moved).semivariance, empirical_variogram(plain).semivariance, rtol=1e6 * CLOSED_FORM
    )


def test_its_mean_over_simulations_is_the_model():
    sites = simulated(MODEL, 60, 0).coordinates
    root = np.linalg.cholesky(geostat.cross_covariance(MODEL, sites, sites) + MODEL.nugget * np.eye(60))
    rng = np.random.default_rng(5)
    trials = [
        empirical_variogram(make_observations(sites, root @ rng.normal(size=60), mean="zero"), bins=4).semivariance
        for _ in range(300)
    ]
    variogram = empirical_variogram(make_observations(sites, root[0], mean="zero"), bins=4)
    distances = np.linalg.norm(sites[:, np.newaxis] - sites, axis=2)[np.triu_indices(60, 1)]
    expected = [
        model_variogram(MODEL, distances[(distances > low) & (distances <= high)]).mean()
        for low, high in itertools.pairwise(variogram.edges)
    ]
    assert np.all(np.abs(np.mean(trials, axis=0) - expected) < 5 * np.std(trials, axis=0) / np.sqrt(300))


def test_variogram_of_a_model():
    h = np.array([[0.0, 1e-12], [0.3, 1e3]])
    gamma = model_variogram(MODEL, h)
    assert gamma.shape == h.shape and gamma[0, 0] == 0.0
    assert gamma[0, 1] == pytest.approx(MODEL.nugget) and gamma[1, 1] == pytest.approx(MODEL.sill)
    assert gamma[1, 0] == pytest.approx(0.2 + 1.5 * (1 - 3 * np.exp(-2.0)))


def test_few_wild_values_hardly_move_the_robust_estimator():
    observations = example(n=200)
    wild = observations.values.copy()
    wild[[5, 50, 150]] += 25
    wild = make_observations(observations.coordinates, wild)
    for estimator, factor in (("matheron", (5, np.inf)), ("cressie", (1, 3))):
        ratio = empirical_variogram(wild, estimator=estimator).semivariance.mean()
        ratio /= empirical_variogram(observations, estimator=estimator).semivariance.mean()
        assert factor[0] < ratio < factor[1]


def test_envelopes_hold_true_models_and_not_wrong_ones():
    inside = []
    for seed in range(8):
        observations = simulated(MODEL, 100, seed, mean="constant")
        variogram = empirical_variogram(observations)
        envelope = variogram_envelope(observations, MODEL, variogram, seed=100 + seed)
        assert envelope.distance.shape == envelope.lower.shape == variogram.semivariance.shape
        inside.append(np.mean((envelope.lower <= variogram.semivariance) & (variogram.semivariance <= envelope.upper)))
    assert np.mean(inside) > 0.85
    rough = variogram_envelope(observations, Matern(1.7, 0.005, 0.5), variogram)
    assert np.sum(variogram.semivariance < rough.lower) > 3


def test_envelopes_are_seeded_and_nested():
    observations = example()
    variogram = empirical_variogram(observations, estimator="cressie", direction=Direction(30.0))
    narrow, wide, again, other = (
        variogram_envelope(observations, MODEL, variogram, simulations=40, level=level, seed=seed)
        for level, seed in ((0.5, 1), (0.95, 1), (0.95, 1), (0.95, 2))
    )
    assert np.array_equal(wide.lower, again.lower) and not np.array_equal(wide.lower, other.lower)
    assert np.all(wide.lower <= narrow.lower) and np.all(narrow.upper <= wide.upper) and np.all(narrow.lower <= narrow.median)


def test_a_subsample_is_said_and_seeded():
    observations = example(n=300)
    assert empirical_variogram(observations).notes == ()
    few, again, other = (empirical_variogram(observations, max_sites=80, seed=seed) for seed in (1, 1, 2))
    assert few.notes == ("the variogram is of a random subsample of 80 of 300 sites (seed 1)",)
    assert np.array_equal(few.sites, again.sites) and not np.array_equal(few.sites, other.sites)
    assert len(np.unique(few.sites)) == 80
    part = make_observations(observations.coordinates[few.sites], observations.values[few.sites])
    assert np.array_equal(few.pairs, empirical_variogram(part, bins=len(few.edges) - 1, longest=few.edges[-1]).pairs)
    assert len(variogram_envelope(observations, MODEL, few, simulations=19).distance) == len(few.distance)


def test_degrees_are_chords():
    rng = np.random.default_rng(0)
    chords = geostat.chordal_coordinates(rng.uniform(5, 8, 50), rng.uniform(50, 52, 50))
    variogram = empirical_variogram(make_observations(chords, rng.normal(size=50)))
    assert 50 < variogram.edges[-1] < 120
    with pytest.raises(ValueError, match="direction needs two coordinates, but the sites have 3"):
        empirical_variogram(make_observations(chords, rng.normal(size=50)), direction=Direction(0.0))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"estimator": "genton"}, "'matheron' and 'cressie'"),
        ({"bins": 0}, "0 bins"),
        ({"longest": -1.0}, "distance of -1.0"),
        ({"max_sites": 1}, "at least two sites"),
    ],
)
def test_wrong_arguments_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        empirical_variogram(example(), **words)


def test_what_cannot_be_is_said():
    line = make_observations([0.0, 1.0, 2.0, 3.0, 4.0], np.arange(5.0))
    with pytest.raises(ValueError, match=r"no two of 5 sites are within 0\.5"):
        empirical_variogram(line, longest=0.5)
    for azimuth, tolerance in ((np.nan, 10.0), (0.0, 0.0), (0.0, 91.0)):
        with pytest.raises(ValueError, match="azimuth"):
            Direction(azimuth, tolerance)
    variogram = empirical_variogram(line, longest=2.0)
    with pytest.raises(ValueError, match="18 simulations"):
        variogram_envelope(line, MODEL, variogram, simulations=18)
    with pytest.raises(ValueError, match="level is 95"):
        variogram_envelope(line, MODEL, variogram, level=95)
