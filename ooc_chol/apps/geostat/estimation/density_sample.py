"""A sample of Vecchia's conditional densities, on which models are compared whatever the number of observations."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.search_end import SearchLimits
from ooc_chol.apps.geostat.estimation.subset import without_mean
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import Conditioning, LastGraph

#: Conditional densities that are looked at: a search on them takes a fraction of a second.
_DENSITIES = 1_000

#: When a search on them ends.
SAMPLE_LIMITS = SearchLimits(tolerance=5e-3, max_evaluations=20)


@dataclass(frozen=True, eq=False)
class DensitySample:
    """Some of the conditional densities of the observations."""

    data: Observations  #: Less their mean where not all densities are taken: a covariate may be constant in a sample
    graph: Conditioning
    densities: int  #: How many


def density_sample(observations: Observations, model: AbstractCovariance, neighbours: int, last: LastGraph) -> DensitySample:
    """The densities that models are compared on, with neighbours as the model compares distances."""
    graph = last.of(model.comparable_sites(observations.coordinates), neighbours).sampled(_DENSITIES)
    data = observations if observations.n <= _DENSITIES else without_mean(observations)
    return DensitySample(data, graph, min(_DENSITIES, observations.n))
