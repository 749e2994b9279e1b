"""Kriging from neighbourhoods: for data whose covariance matrix has no factor that fits, and sites by the million."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.coincidence import check_observations
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.estimation.vecchia import vecchia_log_likelihood
from ooc_chol.apps.geostat.factorization import FactorProgress
from ooc_chol.apps.geostat.kriging.kriged import KrigingKind, known_coefficients, kriging_kind, match_sites
from ooc_chol.apps.geostat.kriging.local_plan import LocalPlan
from ooc_chol.apps.geostat.kriging.local_systems import LocalSystems
from ooc_chol.apps.geostat.kriging.neighbourhoods import NeighbourSearch, site_groups
from ooc_chol.apps.geostat.kriging.predicted import Prediction, Target, check_target, new_errors

#: Groups of sites that share their neighbours, or each site with its own nearest.
LocalMethod = Literal["vecchia", "nearest"]

#: Neighbours of each method unless told otherwise, and the most sites that share them.
DEFAULT_NEIGHBOURS = {"vecchia": 400, "nearest": 100}
GROUP_SITES = {"vecchia": 32, "nearest": 1}

#: Bytes of a stack of neighbourhoods: matrices, factors and right-hand sides.
STACK_BYTES = 64 * 2**20

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LocalKriging:
    """Data ready to predict from neighbourhoods; made by :func:`local_kriging`.

    Parameters
    ----------
    observations : Observations
        The data, in the caller's order.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    method : {"vecchia", "nearest"}
        Way of choosing: groups of sites share neighbours, or each site has its own.
    neighbours : int
        Data from which each site is predicted, at most all.
    spread : bool
        True if half of the neighbours are taken among evenly thinned data.
    coefficients : (p,) array
        Coefficients of the mean, known or by generalised least squares.
    coefficient_covariance : (p, p) array
        Covariance of their errors, zero where they are known.
    is_mean_known : bool
        True if the coefficients were given.
    device : str or None
        Where the matrices are factored; the host when None.
    """

    observations: Observations
    model: AbstractCovariance
    method: LocalMethod
    neighbours: int
    spread: bool
    coefficients: _Array
    coefficient_covariance: _Array
    is_mean_known: bool
    device: str | None = None

    def __repr__(self) -> str:
        facts = {"kind": self.kind, "n": self.observations.n, "method": self.method, "neighbours": self.neighbours}
        return tb.one_line(self, {**facts, "model": type(self.model).__name__})

    @property
    def kind(self) -> KrigingKind:
        """Simple with a known mean, ordinary with an unknown constant, universal with other unknown columns."""
        return kriging_kind(self.observations, is_mean_known=self.is_mean_known)

    def plan(self, sites: int) -> LocalPlan:
        """Plan the prediction at so many sites.

        Parameters
        ----------
        sites : int
            Their number.

        Returns
        -------
        LocalPlan
            Groups, flops and bytes, to be printed.
        """
        return LocalPlan(self.observations.n, sites, self.method, self.neighbours, GROUP_SITES[self.method], self.device)

    def predict(
        self,
        sites: ArrayLike,
        *,
        covariates: ArrayLike | None = None,
        target: Target = "observation",
        error_variances: ArrayLike | None = None,
        variance: bool = True,
        progress: FactorProgress | None = None,
    ) -> Prediction:
        """Predict at new sites, each from its neighbours.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates, in the unit and dimension of the observations.
        covariates : (m, q) array, optional
            Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.
        target : {"observation", "field"}
            A new observation, which has a nugget of its own, or the smooth field.
        error_variances : (m,) array, optional
            Known variances of their errors, which come on top of the nugget.
        variance : bool
            False for means alone: the variances of the result are NaN.
        progress : callable, optional
            Called with sites done, sites in all and seconds.

        Returns
        -------
        Prediction
            Mean and variance at each site, in the order of ``sites``.

        Raises
        ------
        ValueError
            Dimension or covariates do not match the observations, there is no such target, or there are error variances that are
            none or of a field, which has no errors.
        NeighbourhoodError
            The covariance matrix of a neighbourhood is not positive definite in floating point; it is a
            ``NotPositiveDefiniteError``, and names the observation.

        Notes
        -----
        With ``neighbours`` data ``c`` and groups of g sites: ``(k**3 / 3 + k**2 g) / g`` flops per site. The mean's coefficients
        are those of all data, and the variance has their uncertainty; that the error of the coefficients and the one of simple
        kriging from neighbours are a little correlated is left out.
        """
        check_target(target)
        places, design = match_sites(self.observations, sites, covariates)
        errors = new_errors(error_variances, len(places), target)
        groups = site_groups(self.model.comparable_sites(places), GROUP_SITES[self.method])
        found = self.predict_groups(groups, places, design, target=target, variance=variance, progress=progress)
        return Prediction(found.mean, found.variance + errors, target, found.lagrange)

    def predict_mean(self, sites: ArrayLike, *, covariates: ArrayLike | None = None) -> NDArray[np.float64]:
        """The mean of :meth:`predict` alone.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates.
        covariates : (m, q) array, optional
            Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.

        Returns
        -------
        (m,) array
            The means.

        Raises
        ------
        ValueError, NeighbourhoodError
            As :meth:`predict`.
        """
        return self.predict(sites, covariates=covariates, variance=False).mean

    @property
    def shares_neighbours(self) -> bool:
        """True if several sites have the same neighbours."""
        return GROUP_SITES[self.method] > 1

    def search(self) -> NeighbourSearch:
        """The data, ready to be looked for in comparable coordinates.

        Returns
        -------
        NeighbourSearch
            Finds the neighbours of groups of sites.
        """
        sites = self.model.comparable_sites(self.observations.coordinates)
        return NeighbourSearch(sites, self.neighbours, spread=self.spread)

    def predict_groups(
        self,
        groups: Sequence[NDArray[np.intp]],
        places: _Array,
        design: _Array,
        *,
        target: Target,
        variance: bool = True,
        progress: FactorProgress | None = None,
    ) -> Prediction:
        """Predict the sites of some groups.

        Parameters
        ----------
        groups : sequence of arrays
            Indices of sites that share neighbours, unless many data lie between them: then parts of the group do.
        places : (m, d) array
            Coordinates of all sites, checked.
        design : (m, p) array
            Columns of the mean there.
        target : {"observation", "field"}
            Target of prediction.
        variance : bool
            False for means alone.
        progress : callable, optional
            Called with sites done, sites in all and seconds.

        Returns
        -------
        Prediction
            At all ``m`` sites, NaN at those of other groups.
        """
        search = self.search()
        if self.shares_neighbours:
            groups = search.divided(self.model.comparable_sites(places), groups)
        mean, own, lagrange = self._over(search, groups, places, design, variance=variance, progress=progress)
        nugget = self.model.nugget if target == "observation" else 0.0
        return Prediction(mean, own + nugget, target, lagrange if variance else None)

    def _over(
        self,
        search: NeighbourSearch,
        groups: Sequence[NDArray[np.intp]],
        places: _Array,
        design: _Array,
        *,
        variance: bool,
        progress: FactorProgress | None,
    ) -> _Array:
        """Mean and variance of the field and Lagrange terms, (3, m), in stacks of bounded memory."""
        began, total, done = time.perf_counter(), sum(map(len, groups)), 0
        systems = self._systems()
        results = np.full((3, len(places)), np.nan)
        step = max(1, STACK_BYTES // systems.matrix_bytes(search.count, max(map(len, groups))))
        comparable = self.model.comparable_sites(places)
        for start in range(0, len(groups), step):
            some = groups[start : start + step]
            # smaller groups have their last site several times
            size = max(map(len, some))
            index = np.stack([np.pad(group, (0, size - len(group)), mode="edge") for group in some])
            neighbours = _neighbours(search, comparable, some)
            results[:, index] = self._stack(systems, neighbours, places[index], design[index], variance=variance)
            done += sum(map(len, some))
            if progress is not None:
                progress(done, total, time.perf_counter() - began)
        return results

    def _systems(self) -> LocalSystems:
        """The small systems of these data."""
        data = self.observations
        errors = 0.0 if data.error_variances is None else data.error_variances
        residuals = data.values - data.design @ self.coefficients
        table = np.column_stack([residuals, data.design])
        diagonal = np.full(data.n, self.model.nugget) + errors
        return LocalSystems(self.model, data.coordinates, diagonal, table, rows=data.named_rows, device=self.device)

    def _stack(
        self, systems: LocalSystems, neighbours: NDArray[np.intp], sites: _Array, design: _Array, *, variance: bool
    ) -> _Array:
        """Mean and variance of the field and Lagrange terms (3, s, g) at the sites (s, g, d) of a stack of groups."""
        trend = design @ self.coefficients
        cross = systems.cross(neighbours, sites)
        found = systems.solved(neighbours, cross, variance=variance)
        if found.cross is None:
            mean, unknown = trend + np.einsum("skg,sk->sg", cross, found.residual), np.full(trend.shape, np.nan)
            return np.stack([mean, unknown, unknown])
        # x0' b + c' inv(S) (z - X b)
        mean = trend + np.einsum("skg,sk->sg", found.cross, found.residual)
        # x0 - X' inv(S) c, what the neighbours leave of the mean's columns
        gap = design - np.einsum("skg,skp->sgp", found.cross, found.design)
        variances = self.model.site_variances(sites.reshape(-1, sites.shape[2])).reshape(trend.shape)
        unexplained = np.maximum(variances - np.einsum("skg,skg->sg", found.cross, found.cross), 0.0)
        uncertain = gap @ self.coefficient_covariance
        lagrange = np.einsum("sgp,sgp->sg", design, uncertain)
        return np.stack([mean, unexplained + np.einsum("sgp,sgp->sg", gap, uncertain), lagrange])


def _neighbours(search: NeighbourSearch, sites: _Array, groups: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """The neighbours (s, k) of each group."""
    if max(map(len, groups)) == 1:
        return search.of_single_sites(sites[np.concatenate(groups)])
    return np.stack(tb.map_in_threads(lambda group: search(sites[group]), groups))


def local_kriging(
    observations: Observations,
    model: AbstractCovariance,
    *,
    method: LocalMethod = "vecchia",
    neighbours: int | None = None,
    spread: bool | None = None,
    coefficients: ArrayLike | None = None,
    device: str | None = None,
) -> LocalKriging:
    """Kriging from the neighbours of each site, in place of all data: no factor of the whole matrix is needed.

    Parameters
    ----------
    observations : Observations
        Values at sites with the columns of their mean, in any order.
    model : AbstractCovariance
        The covariance function, usually of a fit by ``method="vecchia"``.
    method : {"vecchia", "nearest"}
        ``"vecchia"``: groups of up to 32 sites that lie together share their neighbours, as in Vecchia's approximation of the
        joint density with the data first; so each can have hundreds. ``"nearest"``: each site has its own nearest data.
    neighbours : int, optional
        Data from which each site is predicted; 400 of a group and 100 of a site when not given. With as many as there are data,
        the prediction is that of :func:`~ooc_chol.apps.geostat.kriging`, but for the mean's coefficients.
    spread : bool, optional
        Take a quarter of them among every hundredth of the data, evenly spread, a quarter among every tenth, and the nearest for
        the rest; by default of groups only.
    coefficients : (p,) array, optional
        Known coefficients of the columns of the mean: simple kriging. When not given they are estimated from all data by
        generalised least squares in Vecchia's approximation, and the variance has their uncertainty.
    device : str, optional
        Where the matrices of the neighbourhoods are factored, such as ``"cuda:0"``; the host when not given.

    Returns
    -------
    LocalKriging
        Ready to predict.

    Raises
    ------
    ValueError
        There is no such method, ``neighbours`` is not positive, or there is not one finite coefficient per column of the mean.
    NotPositiveDefiniteError
        The covariance matrix of a value and its neighbours is not positive definite in floating point.

    Notes
    -----
    Katzfuss, Guinness, Gong and Zilber (2020), *Vecchia approximations of Gaussian-process predictions*, JABES 25; neighbours
    that a group shares: Guinness (2018), Technometrics 60.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import Matern, make_observations, predict
    >>> sites = np.random.default_rng(0).uniform(size=(2000, 2))
    >>> observations = make_observations(
    ...     sites, np.sin(5 * sites[:, 0]) + sites[:, 1]
    ... )
    >>> model = Matern(1.0, 0.2, 1.5, 0.01)
    >>> near = local_kriging(observations, model).predict(
    ...     [[0.5, 0.5], [0.1, 0.9]]
    ... )
    >>> exact = predict(observations, model, [[0.5, 0.5], [0.1, 0.9]])
    >>> bool(
    ...     np.max(np.abs(near.mean - exact.mean) / exact.standard_error)
    ...     < 0.02
    ... )
    True
    """
    check_is_observations(observations)
    if method not in get_args(LocalMethod):
        raise ValueError(f"method is {method!r}, but there are {' and '.join(map(repr, get_args(LocalMethod)))}")
    count = DEFAULT_NEIGHBOURS[method] if neighbours is None else neighbours
    if count < 1:
        raise ValueError(f"{count} neighbours are asked for, but each prediction needs at least 1 of the data")
    check_observations(observations, model)
    p = observations.design.shape[1]
    if coefficients is not None:
        found, covariance = known_coefficients(observations, coefficients), np.zeros((p, p))
    elif p:
        estimate = vecchia_log_likelihood(observations, model)
        found, covariance = estimate.coefficients, estimate.coefficient_covariance
    else:
        found, covariance = np.empty(0), np.empty((0, 0))
    is_spread = method == "vecchia" if spread is None else spread
    count = min(count, observations.n)
    return LocalKriging(observations, model, method, count, is_spread, found, covariance, coefficients is not None, device)
