"""Fits of every covariance function: a truth, a wrong start, and observations drawn from the truth."""

from __future__ import annotations

import numpy as np

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    BivariateMatern,
    GeometricAnisotropy,
    GneitingMatern,
    GreatCircle,
    Matern,
    NonstationaryMatern,
    PowerExponential,
    SeparableSpaceTime,
    make_observations,
)


def plane(rng, n):
    return rng.uniform(size=(n, 2))


def moments(rng, n):
    """Stations that observe at several times each."""
    stations, times = rng.uniform(size=(n // 8, 2)), np.sort(rng.uniform(0, 6, size=8))
    return np.column_stack([np.repeat(stations, 8, axis=0), np.tile(times, n // 8)])


def both(rng, n):
    """Places at which two variables are observed."""
    places = rng.uniform(size=(n // 2, 2))
    return np.column_stack([np.vstack([places, places]), np.repeat([0.0, 1.0], n // 2)])


def hills(rng, n):
    """Places and their height."""
    places = rng.uniform(size=(n, 2))
    return np.column_stack([places, 3.0 * places[:, 0] + np.sin(6.0 * places[:, 1])])


def region(rng, n):
    return np.column_stack([rng.uniform(5, 15, n), rng.uniform(45, 55, n)])


#: Truth, start, sites, their number, the seed, and the parameters that are kept.
CASES = {
    "matern": (Matern(2.0, 0.12, 0.9, 0.1), Matern(1.0, 0.4, 2.0, 0.5), plane, 200, 4, ()),
    "power": (PowerExponential(2.0, 0.15, 1.4, 0.1), PowerExponential(1.0, 0.6, 0.7, 0.5), plane, 200, 4, ()),
    "anisotropic": (
        GeometricAnisotropy(Matern(2.0, 0.3, 1.0, 0.1), angle=0.6, ratio=0.3),
        GeometricAnisotropy(Matern(1.0, 0.1, 0.5, 0.5), angle=0.6 + 1.4, ratio=0.7),
        plane,
        240,
        4,
        (),
    ),
    "axis ranges": (
        AxisRanges(Matern(2.0, 1.0, 1.5, 0.1), (0.1, 0.3)),
        AxisRanges(Matern(1.0, 1.0, 1.5, 0.5), (0.5, 0.05)),
        plane,
        200,
        4,
        ("smoothness",),
    ),
    "great circle": (
        GreatCircle(Matern(2.0, 150.0, 0.4, 0.3)),
        GreatCircle(Matern(1.0, 600.0, 0.4, 0.5)),
        region,
        200,
        4,
        ("smoothness",),
    ),
    "separable": (
        SeparableSpaceTime(Matern(2.0, 0.2, 0.8, 0.1), PowerExponential(1.0, 1.5, 1.2)),
        SeparableSpaceTime(Matern(1.0, 0.5, 0.5, 0.5), PowerExponential(1.0, 0.3, 0.8)),
        moments,
        240,
        3,
        (),
    ),
    "Gneiting": (
        GneitingMatern(2.0, 0.2, 0.8, 1.5, 0.7, 0.5, 0.6, 0.1),
        GneitingMatern(1.0, 0.5, 0.8, 0.5, 0.4, 0.5, 0.1, 0.5),
        moments,
        320,
        4,
        ("smoothness", "time_decay"),
    ),
    "bivariate": (
        BivariateMatern(2.0, 0.1, 0.6, 1.4, 0.5, 0.6, 0.05),
        BivariateMatern(1.0, 0.3, 1.0, 1.0, 2.0, -0.2, 0.5),
        both,
        240,
        5,
        (),
    ),
    "nonstationary": (
        NonstationaryMatern(2.0, 0.12, 1.0, (0.5,), (0.4,), ("height",), ("height",), (1.5,), 0.1),
        NonstationaryMatern(1.0, 0.3, 1.0, (0.0,), (0.0,), ("height",), ("height",), (1.5,), 0.5),
        hills,
        240,
        4,
        ("smoothness",),
    ),
}


def simulate(model, sites, n, seed):
    rng = np.random.default_rng(seed)
    places = sites(rng, n)
    with oc.cholesky(oc.from_function(n, geostat.covariance_tiles(model, places))) as factor:
        return make_observations(places, 5.0 + factor.matmul(rng.normal(size=n)))
