"""Where a fit of nested structures starts: combinations of short and long lengths, of a single structure too, on a subset."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import TypeVar

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import Nested
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.search_end import SearchLimits
from ooc_chol.apps.geostat.estimation.spaces import family_space
from ooc_chol.apps.geostat.estimation.subset import neighbourhoods

#: Longest length of a combination over that of the single structure, and longest over shortest.
_TOPS = (1.0, 3.0)
_SPREADS = (3.0, 10.0, 30.0)

#: Variance of each structure over that of the one before.
_RATIOS = (0.1, 0.5, 2.0, 10.0)

#: So many of the combinations are searched from, on the subset, by so many evaluations each.
_SEARCHES = 3
_LIMITS = SearchLimits(tolerance=5e-3, max_evaluations=12)

#: Sites in each neighbourhood of the subset.
_SIZE = 60

#: Nugget of a start over the variance.
NUGGET_RATIO = 0.1

Given = Mapping[str, float]
Model = TypeVar("Model", bound=AbstractCovariance)


def combinations(singles: Sequence[Sequence[AbstractCovariance]], given: Given) -> list[Nested]:
    """Sums of structures of given families with lengths and variances that differ."""
    kinds = [type(functions[0]) for functions in singles]
    count = len(singles)
    orders = [tuple(range(count))] if len(set(kinds)) == 1 else list(permutations(range(count)))
    variants = max(len(functions) for functions in singles)
    found: dict[Nested, None] = {}
    for variant, top, spread, ratio, order in product(range(variants), _TOPS, _SPREADS, _RATIOS, orders):
        parts: list[AbstractCovariance] = []
        for functions, place in zip(singles, order, strict=True):
            factor = top * spread ** (place / (count - 1) - 1.0)
            parts.append(_scaled(functions[min(variant, len(functions) - 1)], factor, ratio**place))
        variance = math.fsum(part.variance for part in parts)
        found[with_given(Nested(tuple(parts), NUGGET_RATIO * variance), given)] = None
    return list(found)


def best_start(
    observations: Observations,
    singles: Sequence[Sequence[AbstractCovariance]],
    given: Given,
    *,
    nugget: Nugget,
    fixed: Sequence[str],
) -> Nested:
    """The best sum that short searches on a subset find.

    They begin at the likeliest of the combinations of the functions given, and of single structures fitted to the subset.
    """
    subset = neighbourhoods(observations, size=_SIZE)
    candidates = combinations(singles, given)
    if len(candidates) == 1 or subset.values.min() == subset.values.max():
        return candidates[0]
    fitted = {functions: _fitted(observations, subset, functions, nugget) for functions in map(tuple, singles)}
    split = combinations([[fitted[tuple(functions)]] for functions in singles], given)
    kept = tuple(name for name in candidates[0].parameters if name in fixed or name in given)
    objective = _objectives(observations, subset, nugget, kept)
    likeliest = sorted([*split, *candidates], key=lambda model: -_loglik(objective(model), model))
    found: dict[Nested, float] = {}
    for model in _different(likeliest):
        search = objective(model)
        search_from(search, search.space.point(model), "fisher", _LIMITS)
        assert search.best is not None and search.best_point is not None, "search_from raises without a likelihood"
        found[search.space.model(search.best_point, search.best.model.variance)] = search.best.loglik
    return with_given(max(found, key=lambda model: found[model]), given)


def _objectives(
    observations: Observations, subset: Observations, nugget: Nugget, fixed: Sequence[str]
) -> Callable[[AbstractCovariance], Objective]:
    """A function that makes the likelihood of the subset over the space of a model, with the bounds of all observations."""

    def objective(model: AbstractCovariance) -> Objective:
        space = family_space(observations, model, nugget, fixed=fixed)
        return Objective(subset, space, LikelihoodOptions(), SilentProgress())

    return objective


def _loglik(objective: Objective, model: AbstractCovariance) -> float:
    """The value at a model."""
    return -objective(objective.space.point(model))


def _fitted(
    observations: Observations, subset: Observations, functions: Sequence[AbstractCovariance], nugget: Nugget
) -> AbstractCovariance:
    """A single structure fitted to the subset, from the likeliest function of its family."""
    objective = _objectives(observations, subset, nugget, ())
    best = max(functions, key=lambda model: _loglik(objective(model), model))
    search = objective(best)
    search_from(search, search.space.point(best), "fisher", _LIMITS)
    assert search.best is not None and search.best_point is not None, "search_from raises without a likelihood"
    fitted: AbstractCovariance = search.space.model(search.best_point, 1.0)
    return fitted


def _different(models: Sequence[Nested]) -> Iterator[Nested]:
    """The first few models that differ by more than the variances of their structures."""
    seen: set[tuple[float, ...]] = set()
    for model in models:
        lengths = tuple(value for name, value in model.values.items() if "range" in name)
        if lengths not in seen and len(seen) < _SEARCHES:
            seen.add(lengths)
            yield model


def _scaled(model: AbstractCovariance, factor: float, variance: float) -> AbstractCovariance:
    """A function with all its lengths in space times a factor, of this variance and without nugget."""
    lengths = {
        name: factor * value for name, value in model.values.items() if name.startswith("range") and not name.startswith("time_")
    }
    return model.with_values(variance=variance, nugget=0.0, **lengths)


def with_given(model: Model, given: Given) -> Model:
    """The candidate with the values that are given; where the nugget is not, its ratio stays."""
    if "variance" in given and "nugget" not in given:
        given = {**given, "nugget": NUGGET_RATIO * given["variance"]}
    return model.with_values(**given)
