"""A factor that is kept: whoever asks for the same matrix next takes it, and nobody else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import FactorSettings, KeptFactor, Matern, make_observations
from tests.apps.geostat.fields import simulate

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(2.0, 0.2, 1.5, 0.1)
SITES = np.random.default_rng(1).uniform(size=(7, 2))


@pytest.fixture(scope="module")
def field():
    return simulate(MODEL, 150, seed=3, mean=1.0)


def test_errors_and_kriging_take_the_factor_of_the_fit(field):
    with KeptFactor() as kept:
        settings = FactorSettings(kept=kept, tile_size=64)
        result = geostat.fit(field, smoothness=1.5, settings=settings)
        found = geostat.infer(field, result.model, estimated=result.estimated, settings=settings)
        prediction = geostat.predict(field, result.model, SITES, settings=settings)
        assert kept.reused == 2
    plain = FactorSettings(tile_size=64)
    expected = geostat.predict(field, result.model, SITES, settings=plain)
    np.testing.assert_allclose(prediction.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.variance, expected.variance, rtol=1e-9)
    others = geostat.infer(field, result.model, estimated=result.estimated, settings=plain)
    for name, each in found.parameters.items():
        assert each.standard_error == pytest.approx(others.parameters[name].standard_error, rel=1e-9)


@pytest.mark.parametrize("what", ["model", "sites", "errors", "options"])
def test_another_matrix_is_factored_anew(field, what):
    other, model, settings = field, MODEL, FactorSettings(tile_size=64)
    if what == "model":
        model = MODEL.with_values(range=0.2 * (1 + 1e-9))
    elif what == "sites":
        other = make_observations(field.coordinates + 1e-9 * SITES[:1], field.values)
    elif what == "errors":
        other = replace(field, error_variances=np.full(field.n, 1e-12))
    with KeptFactor() as kept:
        geostat.predict(field, MODEL, SITES, settings=replace(settings, kept=kept))
        again = replace(settings, kept=kept, **({"tile_size": 32} if what == "options" else {}))
        found = geostat.predict(other, model, SITES, settings=again)
        assert kept.reused == 0
    expected = geostat.predict(other, model, SITES, settings=replace(again, kept=None))
    assert np.array_equal(found.mean, expected.mean) and np.array_equal(found.variance, expected.variance)


def test_a_second_factor_at_the_same_time_has_a_place_of_its_own(field):
    with KeptFactor() as kept:
        settings = FactorSettings(kept=kept)
        with geostat.kriging(field, MODEL, settings=settings) as one:
            with geostat.kriging(field, MODEL.with_values(range=0.3), settings=settings) as other:
                means = one.predict_mean(SITES), other.predict_mean(SITES)
            assert not np.array_equal(*means)
            assert np.array_equal(one.predict(SITES).mean.shape, (7,))
        assert kept.reused == 0


def test_closed_or_failed_it_holds_nothing(field):
    kept = KeptFactor()
    settings = FactorSettings(kept=kept)
    geostat.predict(field, MODEL, SITES, settings=settings)
    assert kept.memory.nbytes > 0 and "Matern" in repr(kept)
    smooth = make_observations(np.linspace(0.0, 1e-4, 60), np.arange(60.0))
    with pytest.raises(geostat.SingularCovarianceError, match="has no variance left"):
        geostat.predict(smooth, Matern(1.0, 0.2, 2.5, 0.0), [0.5], settings=settings)
    geostat.predict(field, MODEL, SITES, settings=settings)
    assert kept.reused == 0
    kept.close()
    assert kept.memory.nbytes == 0
    with pytest.raises(ValueError, match="leave out store"):
        FactorSettings(kept=kept, store="L.ooc")
