"""The likelihood as a function of one parameter, all others estimated anew, and likelihood-ratio tests of the smoothness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, gammaincinv

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.estimation.inference import checked_names
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom
from ooc_chol.apps.geostat.estimation.objective import LikelihoodOptions, Objective
from ooc_chol.apps.geostat.estimation.optimizers import search_from
from ooc_chol.apps.geostat.estimation.progress import SilentProgress
from ooc_chol.apps.geostat.estimation.search import NUGGET_RATIO, VARIANCE, Nugget, SearchSpace
from ooc_chol.apps.geostat.estimation.search_end import SearchLimits
from ooc_chol.apps.geostat.estimation.spaces import family_space
from ooc_chol.apps.geostat.estimation.value_unit import value_unit
from ooc_chol.apps.geostat.factorization import FactorSettings, chosen_settings

_LIMITS = SearchLimits(tolerance=1e-6, max_evaluations=60)


@dataclass(frozen=True, eq=False)
class ProfileLikelihood:
    """The largest log-likelihood at given values of one parameter.

    Parameters
    ----------
    name : str
        The parameter: ``"range"``, ``"smoothness"``, ``"nugget_ratio"``, or another one of the covariance function.
    values : (m,) array
        Values of the parameter, ascending.
    loglik : (m,) array
        Largest log-likelihood over all other parameters; minus infinity where no matrix was positive definite.
    models : tuple of AbstractCovariance
        Model of largest likelihood at each value; None where no matrix was positive definite.
    """

    name: str
    values: NDArray[np.float64]
    loglik: NDArray[np.float64]
    models: tuple[AbstractCovariance | None, ...]

    __repr__ = tb.brief_repr

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Values whose likelihood is not too far below the largest one on the grid, by linear interpolation in the logarithm.

        Parameters
        ----------
        level : float
            Probability that the interval holds the parameter.

        Returns
        -------
        lower, upper : float
            0 or infinity where the grid ends before the likelihood has fallen enough.

        Raises
        ------
        ValueError
            ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but a probability between 0 and 1 is needed")
        excess = self.loglik - (np.max(self.loglik) - float(gammaincinv(0.5, level)))
        inside = np.flatnonzero(excess >= 0)
        first, last = int(inside[0]), int(inside[-1])
        lower = 0.0 if first == 0 else self._crossing(first - 1, first, excess)
        upper = math.inf if last == len(excess) - 1 else self._crossing(last + 1, last, excess)
        return lower, upper

    def _crossing(self, outside: int, inside: int, excess: NDArray[np.float64]) -> float:
        """Where the excess is zero between two neighbours of the grid."""
        if not math.isfinite(excess[outside]):
            return float(self.values[inside])
        share = excess[inside] / (excess[inside] - excess[outside])
        return float(self.values[inside] * (self.values[outside] / self.values[inside]) ** share)


def profile_likelihood(
    observations: Observations,
    model: AbstractCovariance,
    name: str,
    values: ArrayLike,
    *,
    estimated: Sequence[str] = ("range", "variance", "nugget"),
    reml: bool = False,
    settings: FactorSettings | None = None,
    progress: Callable[[int], None] | None = None,
) -> ProfileLikelihood:
    """Maximise the likelihood over all other parameters at each of some values of one, by Fisher scoring.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        The estimate, from which the searches start, outwards from the value nearest to it.
    name : str
        Parameter that the profile is of: ``"nugget_ratio"``, or one of ``model.parameters`` that is searched for by its
        logarithm, such as ``"range"`` and ``"smoothness"``.
    values : (m,) array_like
        Values of the parameter, positive, in any order.
    estimated : sequence of str
        The parameters that were estimated, as :func:`infer`; ``name`` need not be one of them.
    reml : bool
        Take the restricted likelihood, that of contrasts free of the mean.
    settings : FactorSettings, optional
        Tile size, devices, memory budgets and store of the factorization; chosen by the library when not given.
    progress : callable, optional
        Called with the number of values that are done, after each.

    Returns
    -------
    ProfileLikelihood
        Largest log-likelihood at each value, in ascending order of the values.

    Raises
    ------
    ValueError
        There is no such parameter, or a value is not finite and positive.
    """
    check_is_observations(observations)
    grid = np.unique(tb.plain_array("values", values, np.float64))
    if grid.size == 0 or not (np.isfinite(grid).all() and grid[0] > 0):
        raise ValueError(f"values of {name} must be finite and positive, and at least one")
    names = checked_names(model, estimated)
    unit = value_unit(observations)
    observations, model = unit.observations(observations), unit.model(model)
    kept = tuple(other for other in model.parameters if other not in names and other != name)
    # a nugget that was kept stays at its variance; of a profile of the ratio it is free
    nugget: Nugget = "free" if "nugget" in names or name == NUGGET_RATIO else model.nugget
    space = family_space(observations, model, nugget, fixed=kept)
    logarithmic = [other for other, scale in zip(space.names, space.scales, strict=True) if scale.is_logarithmic]
    if name not in logarithmic or name == VARIANCE:
        known = (repr(other) for other in dict.fromkeys((*logarithmic, NUGGET_RATIO)) if other != VARIANCE)
        raise ValueError(f"name is {name!r}, but there are {', '.join(known)}")
    options = LikelihoodOptions(chosen_settings(settings), reml=reml)
    found = _along(space, name, grid, model, _maximiser(observations, options), progress)
    logliks = [unit.loglik_back(loglik, degrees_of_freedom(observations, reml)) for loglik, _ in found]
    models = tuple(None if best is None else unit.model_back(best) for _, best in found)
    return ProfileLikelihood(name, grid, np.array(logliks), models)


def _check_matern(model: AbstractCovariance) -> None:
    """Raise ``ValueError`` unless the model is an isotropic Matérn model."""
    if not isinstance(model, Matern):
        raise ValueError(
            f"smoothnesses are tested of isotropic Matérn models, but this is a {type(model).__name__}; compare fits of it whose "
            "fixed=... keep one"
        )


_Found = tuple[float, AbstractCovariance | None]


def _along(
    space: SearchSpace[Any],
    name: str,
    grid: NDArray[np.float64],
    start: AbstractCovariance,
    maximise: Callable[[SearchSpace[Any], AbstractCovariance], _Found],
    progress: Callable[[int], None] | None,
) -> list[_Found]:
    """Maximise at each value of the grid, each search from the end of the one before, outwards from the start."""
    value = start.nugget / start.variance if name == NUGGET_RATIO else start.values[name]
    middle = int(np.argmin(np.abs(np.log(grid) - math.log(max(value, 1e-300)))))
    found: dict[int, _Found] = {}
    for order in (range(middle, len(grid)), range(middle - 1, -1, -1)):
        near = start if order.start == middle else (found[middle][1] or start)
        for k in order:
            found[k] = maximise(space.fixed(name, float(grid[k])), near)
            near = found[k][1] or near
            if progress is not None:
                progress(len(found))
    return [found[k] for k in range(len(grid))]


def _maximiser(
    observations: Observations, options: LikelihoodOptions
) -> Callable[[SearchSpace[Any], AbstractCovariance], _Found]:
    """A function that maximises over a space from a model."""

    def maximise(space: SearchSpace[Any], near: AbstractCovariance) -> _Found:
        objective = Objective(observations, space, options, SilentProgress())
        try:
            search_from(objective, space.point(near), "fisher", _LIMITS)
        except oc.NotPositiveDefiniteError:
            return -math.inf, None
        assert objective.best is not None and objective.best_point is not None
        return objective.best.loglik, space.model(objective.best_point, objective.best.model.variance)

    return maximise


@dataclass(frozen=True)
class LikelihoodRatio:
    """A test of one smoothness against the one that was estimated.

    Parameters
    ----------
    smoothness : float
        Smoothness ``nu`` that is tested.
    loglik : float
        Largest log-likelihood with it.
    statistic : float
        Twice the difference of the log-likelihoods, not negative.
    p_value : float
        Probability of a larger one if that smoothness is true, chi-square with one degree of freedom.
    """

    smoothness: float
    loglik: float
    statistic: float
    p_value: float

    __repr__ = tb.brief_repr


def likelihood_ratios(
    observations: Observations,
    model: Matern,
    *,
    against: Sequence[float] = (0.5, 1.5),
    estimated: Sequence[str] = ("range", "smoothness", "variance", "nugget"),
    reml: bool = False,
    settings: FactorSettings | None = None,
) -> tuple[LikelihoodRatio, ...]:
    """Test values of the smoothness against the estimate.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : Matern
        Fitted model whose smoothness was estimated.
    against : sequence of float
        Values of nu.
    estimated, reml, settings
        As :func:`profile_likelihood`.

    Returns
    -------
    tuple of LikelihoodRatio
        Test of each smoothness, in the order of ``against``.

    Raises
    ------
    ValueError
        A value is no smoothness, or the model is no isotropic Matérn model.
    """
    check_is_observations(observations)
    _check_matern(model)
    values = [*against, model.smoothness]
    profile = profile_likelihood(observations, model, "smoothness", values, estimated=estimated, reml=reml, settings=settings)
    loglik = dict(zip(profile.values.tolist(), profile.loglik.tolist(), strict=True))
    top = loglik[model.smoothness]
    statistics = {nu: max(0.0, 2.0 * (top - loglik[nu])) for nu in against}
    return tuple(LikelihoodRatio(nu, loglik[nu], statistics[nu], float(chdtrc(1, statistics[nu]))) for nu in against)
