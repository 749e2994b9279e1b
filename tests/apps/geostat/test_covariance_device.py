"""Factors of covariance matrices whose tiles a GPU computes, against those of the host."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.geostat import Matern, covariance_source
from tests.apps.geostat.geostat_tolerances import TWO_ROUTES
from tests.apps.geostat.models import MODELS, plane
from tests.inside.geostat import derivative_source

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


@pytest.mark.parametrize(("model", "sites"), CASES.values(), ids=CASES)
def test_products_with_derivatives_of_both_devices_agree(model, sites):
    places, b = sites(500, 0), np.random.default_rng(1).standard_normal((500, 3))
    for name in model.parameters:
        source = derivative_source(model, places, name)
        assert source.is_made_on_cuda
        host, gpu = (oc.symm(source, b, devices=device) for device in ("host:0", "cuda:0"))
        np.testing.assert_allclose(gpu, host, rtol=0, atol=TWO_ROUTES * max(np.abs(host).max(), 1.0), err_msg=name)
