"""Covariance functions of every family, and sites for them."""

from __future__ import annotations

import numpy as np

from ooc_chol.apps.geostat import (
    AxisRanges,
    BivariateMatern,
    GeometricAnisotropy,
    GneitingMatern,
    GreatCircle,
    Matern,
    Nested,
    NonstationaryMatern,
    PowerExponential,
    SeparableSpaceTime,
)


def plane(n, seed, d=2):
    return np.random.default_rng(seed).uniform(size=(n, d))


def moments(n, seed, d=2):
    """Sites in space and time, some of them at the same time and some at the same place."""
    sites = np.random.default_rng(seed).uniform(size=(n, d + 1)) * ([1.0] * d + [5.0])
    sites[n // 2 :, -1] = sites[n // 2, -1]
    sites[n // 4 : n // 3, :-1] = sites[0, :-1]
    return sites


def pairs(n, seed, d=2):
    """Sites of two variables in any order, some places with both."""
    sites = np.column_stack(
        [np.random.default_rng(seed).uniform(size=(n, d)), np.random.default_rng(seed + 99).integers(0, 2, n)]
    )
    sites[n // 2 : n - 5, :-1] = sites[: n - 5 - n // 2, :-1]
    sites[n // 2 : n - 5, -1] = 1 - sites[: n - 5 - n // 2, -1]
    return sites


def slopes(n, seed, d=2, q=2):
    """Sites with covariates, some sites at one place and with one value."""
    rng = np.random.default_rng(seed)
    sites = np.column_stack([rng.uniform(size=(n, d)), rng.normal(3.0, 0.7, size=(n, q))])
    sites[n // 4 : n // 3] = sites[0]
    return sites


def globe(n, seed):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))])


#: Covariance functions, and sites for them.
MODELS = {
    "power 0.3": (PowerExponential(1.7, 0.4, 0.3, 0.1), plane),
    "power 1": (PowerExponential(1.7, 0.4, 1.0, 0.1), plane),
    "power 1.6": (PowerExponential(1.7, 0.4, 1.6, 0.1), plane),
    "anisotropic": (GeometricAnisotropy(Matern(1.7, 0.4, 1.3, 0.1), angle=0.7, ratio=0.35), plane),
    "anisotropic power": (GeometricAnisotropy(PowerExponential(0.6, 0.4, 1.5), angle=-2.0, ratio=1.8), plane),
    "ranges of 1 axis": (AxisRanges(Matern(1.7, 1.0, 0.8), (0.3,)), lambda n, seed: plane(n, seed, 1)),
    "ranges of 2 axes": (AxisRanges(Matern(1.7, 1.0, 2.5, 0.1), (0.3, 0.8)), plane),
    "ranges of 3 axes": (AxisRanges(PowerExponential(1.7, 1.0, 1.2), (0.3, 0.8, 2.0)), lambda n, seed: plane(n, seed, 3)),
    "great circle": (GreatCircle(Matern(1.7, 3000.0, 0.4, 0.1)), globe),
    "great circle, power": (GreatCircle(PowerExponential(1.7, 3000.0, 0.7)), globe),
    "separable": (SeparableSpaceTime(Matern(1.7, 0.4, 0.8, 0.1), Matern(1.0, 1.5, 0.6)), moments),
    "separable, great circle": (
        SeparableSpaceTime(GreatCircle(Matern(1.7, 3000.0, 0.45)), Matern(1.0, 1.5, 1.6)),
        lambda n, seed: np.column_stack([globe(n, seed), moments(n, seed)[:, 2]]),
    ),
    "separable, anisotropic": (
        SeparableSpaceTime(GeometricAnisotropy(Matern(1.7, 0.4, 1.5), 0.3, 0.5), PowerExponential(1.0, 2.0, 1.4)),
        moments,
    ),
    "Gneiting": (GneitingMatern(1.7, 0.4, 0.8, 1.5, 0.7, 0.9, 0.6, 0.1), moments),
    "Gneiting, line": (GneitingMatern(1.7, 0.4, 1.5, 2.5, 0.45, 0.2, 0.9), lambda n, seed: moments(n, seed, 1)),
    "nested": (Nested((Matern(0.5, 0.05, 0.9), Matern(1.2, 0.4, 0.5)), 0.1), plane),
    "nested, three": (
        Nested((PowerExponential(0.5, 0.05, 1.5), Matern(1.2, 0.4, 1.3), Matern(0.3, 1.1, 0.4)), 0.1),
        lambda n, seed: plane(n, seed, 3),
    ),
    "nested, anisotropic": (
        Nested((GeometricAnisotropy(Matern(0.5, 0.1, 1.3), 0.7, 0.35), AxisRanges(Matern(1.2, 1.0, 0.5), (0.3, 0.8))), 0.1),
        plane,
    ),
    "nested, great circle": (Nested((GreatCircle(Matern(0.5, 300.0, 0.4)), GreatCircle(PowerExponential(1.2, 4e3, 0.7)))), globe),
    "nested, space and time": (
        Nested(
            (SeparableSpaceTime(Matern(0.5, 0.1, 0.8), Matern(1.0, 1.5, 0.6)), GneitingMatern(1.2, 0.4, 0.8, 1.5, 0.7, 0.9, 0.6))
        ),
        moments,
    ),
    "bivariate": (BivariateMatern(1.7, 0.2, 0.5, 1.3, 2.5, 0.7, 0.1), pairs),
    "bivariate, negative": (BivariateMatern(0.4, 0.3, 2.2, 0.3, 0.5, -0.4, dimension=3), lambda n, seed: pairs(n, seed, 3)),
    "nonstationary": (
        NonstationaryMatern(1.7, 0.4, 1.3, (0.3, -0.4), (0.5,), ("u", "v"), ("v",), (3.0, 2.8), 0.1),
        slopes,
    ),
    "nonstationary, line": (
        NonstationaryMatern(0.6, 0.4, 1.5, (0.3,), (), ("u",), (), (3.0,)),
        lambda n, seed: slopes(n, seed, 1, 1),
    ),
    "nonstationary, space": (
        NonstationaryMatern(1.7, 0.4, 0.5, (), (-0.5, 0.2), (), ("u", "v"), (3.0, 3.0), 0.2),
        lambda n, seed: slopes(n, seed, 3),
    ),
    "nonstationary, four": (
        NonstationaryMatern(1.7, 0.4, 0.8, (0.1,), (0.5,), ("u",), ("u",), (3.0,)),
        lambda n, seed: slopes(n, seed, 4, 1),
    ),
}
