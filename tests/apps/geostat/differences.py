"""Derivatives by differences, and dense covariance matrices to take them of."""

from __future__ import annotations

import numpy as np

from tests.apps.geostat.geostat_tolerances import FIVE_POINTS

#: Five points: the derivative is the sum of weight * f(x + offset * step) / step.
FIVE = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))


def dense(model, sites):
    distance = np.linalg.norm(sites[:, None] - sites[None], axis=2)
    return model.covariance(distance) + model.nugget * np.eye(len(sites))


def difference(value, x, step=2e-3):
    """Derivative of ``value`` by ``log x``, over x: a five-point difference."""
    return sum(weight * value(x * np.exp(offset * step)) for offset, weight in FIVE) / (step * x)


def close(ours, expected, scale):
    """Within a five-point difference's error, relative to the largest term that cancels in the gradient."""
    np.testing.assert_allclose(ours, expected, rtol=FIVE_POINTS, atol=FIVE_POINTS * scale)
