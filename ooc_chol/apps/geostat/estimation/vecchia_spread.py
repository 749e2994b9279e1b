"""How far the approximate log-likelihood depends on the order of the observations, which is a choice: mirror images tell."""

from __future__ import annotations

from itertools import product

import numpy as np

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.estimation.vecchia import approximated, graph_of
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import LastGraph
from ooc_chol.apps.geostat.factorization import FactorSettings

#: Axes that are mirrored.
_AXES = 2


def mirrored_log_likelihoods(
    observations: Observations,
    model: AbstractCovariance,
    *,
    neighbours: int,
    reml: bool = False,
    settings: FactorSettings | None = None,
    last: LastGraph | None = None,
) -> list[float]:
    """Approximate log-likelihoods of the map, and of its mirror images at the first two axes and at one of them."""
    axes = min(_AXES, model.comparable_sites(observations.coordinates[:1]).shape[1])
    return [
        approximated(
            observations,
            correlation_of(model),
            graph_of(observations, model, neighbours, signs=np.array(signs), last=last),
            variance=model.variance,
            reml=reml,
            settings=settings,
        ).likelihood.loglik
        for signs in product((1.0, -1.0), repeat=axes)
    ]
