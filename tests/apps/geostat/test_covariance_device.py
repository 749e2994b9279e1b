"""Factors of covariance matrices whose tiles a GPU computes, against those of the host."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.covariances.covariance import Matern, covariance_source
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.apps.geostat.models import MODELS, plane

pytestmark = pytest.mark.cuda

CASES = MODELS | {f"Matern {nu}": (Matern(1.3, 0.2, nu, 0.1), plane) for nu in (0.1, 0.5, 0.889, 1.5, 2.0, 2.5, 20.0)}


@pytest.mark.parametrize(("model", "sites"), CASES.values(), ids=CASES)
def test_log_determinants_of_both_devices_agree(model, sites):
    noise = np.random.default_rng(1).uniform(0.05, 1.0, 500)
    source = covariance_source(model, sites(500, 0), noise)
    found = []
    for device in ("host:0", "cuda:0"):
        with oc.cholesky(source, tile_size=128, devices=device) as factor:
            found.append(factor.logdet())
    assert found[1] == pytest.approx(found[0], rel=TWO_ROUTES)


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("nested")])
def test_gradients_of_sums_agree_on_both_devices(name):
    model, sites = MODELS[name]
    observations = geostat.make_observations(sites(400, 0), np.random.default_rng(2).normal(size=400))
    model = model.with_values(nugget=0.2)
    found = [
        geostat.log_likelihood_gradient(observations, model, settings=geostat.FactorSettings(tile_size=128, devices=device))
        for device in ("host:0", "cuda:0")
    ]
    scale = np.abs(found[0].gradient).max()
    np.testing.assert_allclose(found[1].gradient, found[0].gradient, rtol=0, atol=TWO_ROUTES * scale)
