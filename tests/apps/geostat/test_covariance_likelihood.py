"""Covariance functions in the likelihood: a published value at smoothness 0.8, and its gradient from the exact derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import GeometricAnisotropy, GneitingMatern, Matern, covariance_tiles, derivative_tiles
from tests.apps.geostat.geostat_tolerances import FIVE_POINTS, printed

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def whole(tile_fn, n):
    out = np.empty((n, n))
    tile_fn(range(n), range(n), out, None)
    return out


def dense_log_likelihood(model, sites, values):
    lower = np.linalg.cholesky(whole(covariance_tiles(model, sites), len(sites)))
    half = np.linalg.solve(lower, values)
    return -0.5 * half @ half - np.log(np.diag(lower)).sum() - 0.5 * len(values) * np.log(2 * np.pi)


def test_meuse_at_smoothness_eight_tenths(data_dir):
    # T8: log(zinc), coordinates in kilometres; equal to scikit-learn to 1e-11
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc"))
    sites, values = table.stack(("x", "y")) / 1000, np.log(table.columns["zinc"])
    observations = geostat.make_observations(sites, values - values.mean(), mean="zero")
    found = geostat.log_likelihood(observations, Matern(0.5, 0.3, 0.8, 0.05))
    assert found.loglik == pytest.approx(-101.687560510, abs=printed(9))


@pytest.mark.parametrize(
    ("model", "d"),
    [
        (Matern(1.3, 0.3, 0.9, 0.2), 2),
        (GeometricAnisotropy(Matern(1.3, 0.3, 1.4, 0.2), 0.4, 0.5), 2),
        (GneitingMatern(1.3, 0.3, 0.9, 0.5, 0.6, 0.7, 0.5, 0.2), 3),
    ],
)
def test_gradient_of_the_likelihood(model, d):
    # dLL/dtheta = 1/2 tr((alpha alpha' - Sigma**-1) dSigma/dtheta)
    rng = np.random.default_rng(0)
    sites, n = rng.uniform(size=(80, d)), 80
    sigma = whole(covariance_tiles(model, sites), n)
    values = np.linalg.cholesky(sigma) @ rng.standard_normal(n)
    inverse = np.linalg.inv(sigma)
    alpha = inverse @ values
    for name in ("variance", "nugget", *model.parameters):
        gradient = 0.5 * np.sum((np.outer(alpha, alpha) - inverse) * whole(derivative_tiles(model, sites, name), n))
        value = getattr(model, name) if hasattr(model, name) else getattr(model.base, name)
        step = 1e-3 * value

        def at(k, name=name, value=value, step=step):
            return dense_log_likelihood(model.with_values(**{name: value + k * step}), sites, values)

        difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        assert gradient == pytest.approx(difference, rel=FIVE_POINTS, abs=FIVE_POINTS), name
