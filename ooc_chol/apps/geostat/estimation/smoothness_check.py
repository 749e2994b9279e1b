"""Whether a smoothness other than those that were tried fits much better: a search on a sample, by Vecchia's approximation."""

from __future__ import annotations

from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.search_end import SearchLimits
from ooc_chol.apps.geostat.estimation.spaces import search_space
from ooc_chol.apps.geostat.estimation.subset import without_mean
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import conditioning

#: Conditional densities that the search looks at: a fraction of a second whatever the number of observations.
_TARGETS = 1_000

#: A gain in log-likelihood that a smoothness which is right has with a probability of 1 %: half of a chi-square quantile.
_LARGE_GAIN = 3.3

_LIMITS = SearchLimits(tolerance=5e-3, max_evaluations=20)


def smoothness_warning(
    observations: Observations, model: Matern, options: LikelihoodOptions, *, nugget: Nugget, neighbours: int
) -> str | None:
    """Say that an estimated smoothness fits clearly better than the best of a few; None where it does not.

    Neither can be told from the likelihoods of those few: truths of 0.8 and of 1.5 leave the same ones behind.
    """
    if observations.error_variances is not None:  # the approximation knows no errors
        return None
    try:
        smoothness, gain = _improved(observations, model, options, nugget=nugget, neighbours=neighbours)
    except STEP_ERRORS as error:
        return f"whether another smoothness than {model.smoothness:g} fits better could not be looked at: {error}"
    if gain < _LARGE_GAIN:
        return None
    where = f"{min(_TARGETS, observations.n)} of {observations.n} conditional densities"
    return (
        f"an estimated smoothness fits better: about nu = {smoothness:.3g} in place of {model.smoothness:g}, by {gain:.3g} in "
        f"the log-likelihood of {where}; smoothness='free' (--smoothness free) estimates it"
    )


def _improved(
    observations: Observations, model: Matern, options: LikelihoodOptions, *, nugget: Nugget, neighbours: int
) -> tuple[float, float]:
    """Where a search over the smoothness, too, ends from a model, and how much it gains."""
    space = search_space(observations, nugget, None)
    graph = conditioning(model.comparable_sites(observations.coordinates), neighbours).sampled(_TARGETS)
    # a covariate may be constant in a sample
    data = observations if observations.n <= _TARGETS else without_mean(observations)
    objective = Objective(data, space, options, SilentProgress(), graph=graph)
    start = space.point(model)
    before = -objective(start)
    search_from(objective, start, "fisher", _LIMITS)
    assert objective.best is not None and objective.best_point is not None, "search_from raises without a likelihood"
    return space.correlation(objective.best_point).smoothness, objective.best.loglik - before
