"""A small subset of observations that is cheap to fit first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ooc_chol.apps.geostat.data.extents import closed_up
from ooc_chol.apps.geostat.data.observations import Observations, least_squares_residuals
from ooc_chol.apps.geostat.data.ordering import morton_order


def neighbourhoods(observations: Observations, *, runs: int = 5, size: int = 100) -> Observations:
    """A small subset that shows short and long distances alike: ``runs`` compact neighbourhoods of ``size`` sites each.

    A fit of a thinned sample tells nothing about distances below its spacing, where smoothness and nugget show.
    """
    order = morton_order(closed_up(observations.places))
    if len(order) > runs * size:
        order = np.concatenate([order[start : start + size] for start in np.linspace(0, len(order) - size, runs).astype(int)])
    return without_mean(observations).take(order)


def without_mean(observations: Observations) -> Observations:
    """Residuals of the values after ordinary least squares with a constant mean."""
    residuals = least_squares_residuals(observations.design, observations.values)
    return replace(
        observations, values=residuals, design=np.ones((observations.n, 1)), mean_columns=("intercept",), mean="constant"
    )
