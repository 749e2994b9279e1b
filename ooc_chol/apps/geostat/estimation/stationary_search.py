"""A search without slopes before that of a covariance that changes from place to place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ooc_chol.apps.geostat.covariances.nonstationary import NonstationaryMatern
from ooc_chol.apps.geostat.estimation.certified_loglik import gain_interval
from ooc_chol.apps.geostat.estimation.fit_search import Outcome, Search
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.estimation.stationarity import StationarityTest


@dataclass(frozen=True, eq=False)
class StationarySearch:
    """The largest likelihood without slopes, and where the search with them starts from."""

    outcome: Outcome[NonstationaryMatern]
    start: NDArray[np.float64]  #: (k,) point of the whole space
    degrees: int  #: Slopes that are estimated

    def test(self, best: Outcome[NonstationaryMatern]) -> StationarityTest:
        """Compare with what was found with slopes."""
        loglik, model = self.outcome.trial.loglik, self.outcome.space.correlation(self.outcome.point)
        statistic = max(0.0, 2.0 * (best.trial.loglik - loglik))
        p_value = float(chdtrc(self.degrees, statistic))
        ends = gain_interval(best.trial.interval, self.outcome.trial.interval)
        known = None if ends is None else (2.0 * ends[0], 2.0 * ends[1])
        return StationarityTest(loglik, model.range, model.smoothness, statistic, self.degrees, p_value, known)


def stationary_search(search: Search, space: SearchSpace[Any], given: NDArray[np.float64] | None) -> StationarySearch | None:
    """Maximise over the space without its slopes; None where there are none, or other ones are kept."""
    template = space.template
    if not isinstance(template, NonstationaryMatern):
        return None
    slopes = [name for name in template.slopes if name in space.names]
    kept = [name for name in template.slopes if name not in slopes]
    if not slopes or any(template.values[name] != 0.0 for name in kept):
        return None
    simpler = space
    for name in slopes:
        simpler = simpler.fixed(name, 0.0)
    start = None if given is None else given[[space.names.index(name) for name in simpler.names]]
    outcome = search.maximise(simpler, start)
    model = simpler.model(outcome.point, outcome.likelihood.model.variance)
    return StationarySearch(outcome, space.raised(space.point(model)), len(slopes))
