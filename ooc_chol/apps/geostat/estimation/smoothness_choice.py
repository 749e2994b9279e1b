"""Which smoothness a fit takes: the best of a few or an estimated one, and whether one that is kept is rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.estimation.certified_loglik import gain_interval
from ooc_chol.apps.geostat.estimation.fit_options import FitOptions
from ooc_chol.apps.geostat.estimation.fit_search import Outcome, Search
from ooc_chol.apps.geostat.estimation.smoothness_check import sampled_comparison
from ooc_chol.apps.geostat.estimation.smoothness_comparison import SmoothnessComparison, compared, rejection_text
from ooc_chol.apps.geostat.estimation.spaces import search_space


@dataclass(frozen=True, eq=False)
class Chosen:
    """The searches of a fit, and the one whose end is the estimate."""

    outcomes: tuple[Outcome[Any], ...]
    best: Outcome[Any]
    comparison: SmoothnessComparison | None = None
    warning: str | None = None


def choose_smoothness(search: Search, options: FitOptions, chosen: Chosen) -> Chosen:
    """Keep the search of largest likelihood, or take one over the smoothness, too; look whether one that is kept is rejected."""
    best = chosen.best
    model = best.space.model(best.point, best.likelihood.model.variance)
    if type(model) is not Matern or "smoothness" in best.space.names:
        return chosen
    try:
        if options.estimates_smoothness_too(search.observations.n):
            return _with_estimated(search, options, chosen, model)
        found = sampled_comparison(
            search.observations, model, search.options, nugget=options.nugget, neighbours=options.neighbours
        )
    except STEP_ERRORS as error:
        text = f"whether another smoothness than {model.smoothness:g} fits better could not be looked at: {error}"
        return Chosen(chosen.outcomes, best, warning=text)
    return Chosen(chosen.outcomes, best, found, rejection_text(found, search.observations.n))


def overlap_text(outcomes: Sequence[Outcome[Any]]) -> str | None:
    """Say that mixed precision does not tell which of several smoothnesses is best; None where it does."""
    kept = [outcome.trial for outcome in outcomes if "smoothness" not in outcome.space.names]
    best = max(kept, key=lambda trial: trial.loglik, default=None)
    if best is None or best.interval is None:
        return None
    near = [trial for trial in kept if trial is best or (trial.interval is not None and trial.interval[1] > best.interval[0])]
    if len(near) < 2:
        return None
    names = " and ".join(f"{trial.smoothness:g}" for trial in near)
    return (
        f"which of smoothness {names} has the larger likelihood is not told in mixed precision, as their intervals overlap; a "
        "smaller precision_threshold may tell"
    )


def _with_estimated(search: Search, options: FitOptions, chosen: Chosen, model: Matern) -> Chosen:
    """Search over the smoothness, too, from the best of a few, and take that where it rejects the best."""
    best = chosen.best
    space = search_space(search.observations, options.nugget, None)
    found = search.maximise_from(space, space.point(model))
    correlation = space.correlation(found.point)
    gain = found.likelihood.loglik - best.likelihood.loglik
    interval = gain_interval(found.trial.interval, best.trial.interval)
    comparison = compared(model.smoothness, correlation.smoothness, gain, choose=True, interval=interval)
    return Chosen((*chosen.outcomes, found), found if comparison.taken == "estimated" else best, comparison)
