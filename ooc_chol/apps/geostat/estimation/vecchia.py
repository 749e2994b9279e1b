"""Vecchia's approximation of the log-likelihood: a product of conditional densities given a few earlier neighbours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.coincidence import check_places
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.model import check_model
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations, least_squares_residuals
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood, check_variance, correlation_of, likelihood_back, put_together
from ooc_chol.apps.geostat.estimation.mean import degrees_of_freedom, estimate_mean
from ooc_chol.apps.geostat.estimation.scores import Sums
from ooc_chol.apps.geostat.estimation.value_unit import value_unit
from ooc_chol.apps.geostat.estimation.vecchia_cuda import parts_on_cuda
from ooc_chol.apps.geostat.estimation.vecchia_host import parts_on_host
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import NEIGHBOURS, Conditioning, LastGraph
from ooc_chol.apps.geostat.estimation.vecchia_sums import Array, VecchiaParts, VecchiaProblem, sums_of
from ooc_chol.apps.geostat.factorization import FactorSettings, chosen_settings

#: Observations from which GPUs compute: with fewer the host takes less time than the compilation of a kernel, which is a second.
_FEWEST_ON_CUDA = 5_000


def vecchia_log_likelihood(
    observations: Observations,
    model: AbstractCovariance,
    *,
    neighbours: int = NEIGHBOURS,
    reml: bool = False,
    settings: FactorSettings | None = None,
) -> Likelihood:
    """Vecchia's approximation of the log-likelihood of ``model``, ``sum_i log p(z_i | its nearest earlier neighbours)``.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    neighbours : int
        How many each value is conditioned on. With ``n - 1`` the value is exact.
    reml : bool
        Take the restricted likelihood, that of contrasts free of the mean.
    settings : FactorSettings, optional
        Its devices and memory budget: GPUs compute from 5,000 observations on, where there are any.

    Returns
    -------
    Likelihood
        As :func:`~ooc_chol.apps.geostat.log_likelihood` gives it: ``quadratic`` and ``logdet`` are those of the precision matrix
        that the approximation stands for, and the mean is its generalised-least-squares estimate.

    Raises
    ------
    ValueError
        ``neighbours`` is not positive.
    NotPositiveDefiniteError
        The covariance matrix of a value and its neighbours is not positive definite in floating point.

    Notes
    -----
    Known error variances of the observations are on the diagonals, those of the neighbours too.

    Cost ``n m**3 / 3`` flops and ``O(n m**2)`` covariances in batches, and ``8 n m`` bytes for the neighbours. Values are
    ordered from coarse to fine, and neighbours are nearest in the coordinates of ``model.comparable_sites``. Vecchia (1988),
    JRSS B 50; Guinness (2018), Technometrics 60; Katzfuss and Guinness (2021), Statistical Science 36.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import (
    ...     Matern,
    ...     log_likelihood,
    ...     make_observations,
    ... )
    >>> sites = np.random.default_rng(0).uniform(size=(200, 2))
    >>> observations = make_observations(
    ...     sites, np.sin(5 * sites[:, 0]) + sites[:, 1]
    ... )
    >>> model = Matern(1.0, 0.2, 1.5, 0.01)
    >>> abs(
    ...     vecchia_log_likelihood(observations, model).loglik
    ...     - log_likelihood(observations, model).loglik
    ... ) < 0.5
    True
    """
    check_is_observations(observations)
    check_model(model)
    unit = value_unit(observations)
    data, variance = unit.observations(observations), unit.variance(model.variance)
    graph = graph_of(data, model, neighbours)
    found = approximated(data, correlation_of(model), graph, variance=variance, reml=reml, settings=settings).likelihood
    return likelihood_back(found, unit, data, model)


def graph_of(
    observations: Observations,
    model: AbstractCovariance,
    neighbours: int,
    *,
    signs: Array | None = None,
    last: LastGraph | None = None,
) -> Conditioning:
    """The order of some observations and their neighbours, nearest by a model; with ``signs`` of a mirror image of the map.

    ``last`` is where the graph is looked for, and kept.
    """
    marks = np.column_stack([observations.values, observations.design])
    sites = model.comparable_sites(observations.coordinates)
    if signs is not None:
        sites = np.column_stack([sites[:, : len(signs)] * signs, sites[:, len(signs) :]])
    return (last or LastGraph()).of(sites, neighbours, marks)


@dataclass(frozen=True, eq=False)
class VecchiaEvaluated:
    """An approximate log-likelihood with what its derivatives are made of."""

    likelihood: Likelihood
    #: As those of the exact likelihood, where they were asked for; the crossed ones are those without restriction
    sums: Sums | None


def approximated(
    observations: Observations,
    correlation: AbstractCovariance,
    graph: Conditioning,
    *,
    variance: float | None,
    reml: bool = False,
    shape: Sequence[str] | None = None,
    settings: FactorSettings | None = None,
) -> VecchiaEvaluated:
    """The approximate log-likelihood and, where asked for, the sums of its gradient and expected information.

    With the Cholesky factor ``L`` of the correlation matrix of a value (last) and its neighbours, and ``u`` the last column of
    ``inv(L).T``, the whitened value is ``u' z`` and a derivative ``D`` enters by ``f = inv(L) D u`` only: Guinness (2021),
    *Gaussian process learning via Fisher scoring of Vecchia's approximation*, Statistics and Computing 31.
    """
    start = time.perf_counter()
    check_variance(observations, variance)
    targets = observations.take(graph.order[graph.targets])
    # residuals, so that a large mean does not cancel in the sums; the mean is put back into its coefficients
    residuals = least_squares_residuals(observations.design, observations.values)
    offset = np.linalg.lstsq(observations.design, observations.values - residuals, rcond=None)[0]
    table = np.column_stack([residuals, observations.design])
    noise = None if variance is None else observations.scaled_errors(variance)
    rows, errors = observations.named_rows, np.zeros(observations.n) if noise is None else noise
    check_places(correlation, observations.coordinates, correlation.nugget + errors, rows)
    problem = VecchiaProblem(correlation, observations.coordinates, table, noise, shape, rows)
    parts = _parts(problem, graph, chosen_settings(settings))
    whitened = estimate_mean(parts.whitened, targets)
    shifted = replace(whitened, coefficients=whitened.coefficients + offset)
    likelihood = put_together(shifted, parts.logdet, targets, correlation, variance=variance, reml=reml, start=start)
    sums = None if shape is None else sums_of(parts, whitened, degrees_of_freedom(targets, reml), reml)
    return VecchiaEvaluated(likelihood, sums)


def _parts(problem: VecchiaProblem, graph: Conditioning, settings: FactorSettings) -> VecchiaParts:
    """By GPUs where the settings name some, or name nothing and there are some, and it is worth compiling; else by the host."""
    if len(problem.table) >= _FEWEST_ON_CUDA and tb.cuda_names(settings.here["devices"]):
        parts = parts_on_cuda(problem, graph, settings)
        if parts is not None:
            return parts
    return parts_on_host(problem, graph)
