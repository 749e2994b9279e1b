"""How far the approximate log-likelihood depends on the order of the observations, which is a choice: mirror images tell."""

from __future__ import annotations

from itertools import product

import numpy as np

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.estimation.vecchia import approximated, graph_of
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Axes that are mirrored.
_AXES = 2


def order_spread(
    observations: Observations,
    model: AbstractCovariance,
    *,
    neighbours: int,
    reml: bool = False,
    settings: FactorSettings | None = None,
) -> float:
    """Largest less smallest approximate log-likelihood of the mirror images of the map.

    Parameters
    ----------
    observations : Observations
        The data.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    neighbours : int
        How many each value is conditioned on.
    reml : bool
        Whether to take the restricted likelihood.
    settings : FactorSettings, optional
        Devices and memory budget.

    Returns
    -------
    float
        In units of the log-likelihood. A likelihood does not change when the map is mirrored, at its first two axes or one of
        them; what the approximation does is noise of its order and of ties, as large for every other order as good.
    """
    axes = min(_AXES, model.comparable_sites(observations.coordinates[:1]).shape[1])
    found = [
        approximated(
            observations,
            correlation_of(model),
            graph_of(observations, model, neighbours, np.array(signs)),
            variance=model.variance,
            reml=reml,
            settings=settings,
        ).likelihood.loglik
        for signs in product((1.0, -1.0), repeat=axes)
    ]
    return max(found) - min(found)
