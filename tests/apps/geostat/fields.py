"""Simulated observations that tests of fits share."""

import numpy as np

import ooc_chol as oc
from ooc_chol.apps import geostat


def simulate(model, n, seed, mean=0.0):
    """Values at random sites of the unit square with covariance ``model``, by the package's own factor."""
    rng = np.random.default_rng(seed)
    sites = rng.uniform(size=(n, 2))
    with oc.cholesky(oc.from_function(n, geostat.covariance_tiles(model, sites)), devices="host:0") as factor:
        return geostat.make_observations(sites, mean + factor.matmul(rng.normal(size=n)))
