"""Kriging as an estimator of scikit-learn: ``MaternGP().fit(X, y).predict(X, return_std=True)``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, cross_covariance
from ooc_chol.apps.geostat.covariances.nonstationary import NonstationaryMatern
from ooc_chol.apps.geostat.data.observations import Mean, Observations, design_matrix, make_observations
from ooc_chol.apps.geostat.data.sphere import chordal_coordinates
from ooc_chol.apps.geostat.errors import MissingExtraError
from ooc_chol.apps.geostat.estimation.family_start import AskedCovariance, Kept
from ooc_chol.apps.geostat.estimation.fitting import FitResult
from ooc_chol.apps.geostat.estimation.search import Nugget
from ooc_chol.apps.geostat.estimation.search_end import TOLERANCE
from ooc_chol.apps.geostat.factorization import FactorSettings, chosen_settings
from ooc_chol.apps.geostat.kriging.posterior import kriging_weights, prediction_covariance
from ooc_chol.apps.geostat.kriging.prediction import BATCH_BYTES, Kriging, Target, kriging
from ooc_chol.apps.shared.estimators import refuse_gaps

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        "MaternGP is an estimator of scikit-learn, of which 1.6 or later is not installed (geostat.fit and geostat.kriging do "
        f"without): {tb.install_hint('sklearn')}"
    ) from error

#: What to do without arguments of scikit-learn's ``GaussianProcessRegressor`` and ``Matern``.
_ELSEWHERE = {
    "kernel": "it is called covariance; a Matérn one is smoothness, range, variance and nugget",
    "nu": "it is called smoothness",
    "length_scale": "range is length_scale / sqrt(2 * smoothness)",
    "noise_level": "it is called nugget",
    "sigma2": "it is called variance",
    "sill": "it is called variance",
    "optimizer": "with range and variance given, or fixed='all', nothing is estimated",
    "n_restarts_optimizer": "starts are chosen from the data: leave it out",
    "normalize_y": "mean='constant' takes a mean off, and the variance is estimated: leave it out",
    "copy_X_train": "X is copied: leave it out",
    "n_targets": "y is one column: leave it out",
    "random_state": "nothing is random but sample_y, which takes it",
    "metric": "it is called distance, of longitude and latitude",
    "tol": "it is called tolerance",
    "max_iter": "it is called max_evaluations",
    "device": "it is called devices",
    "n_jobs": "threads are those of BLAS: leave it out",
}

_Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


class MaternGP(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian-process regression with a Matérn or another covariance: exact maximum likelihood and universal kriging.

    Parameters
    ----------
    smoothness : float or {"auto", "best", "free"}
        ``nu``, the best of those that :func:`fit` tries, or estimated. Of another ``covariance`` given by name it is kept where
        it is a number, and estimated else.
    nugget : {"free", "zero"} or float
        Variance of the error of an observation: estimated, none, or kept.
    mean : {"constant", "zero"}
        With or without an unknown intercept. scikit-learn's ``GaussianProcessRegressor`` has ``"zero"``.
    range, variance : float, optional
        Keep the covariance at these, which needs both and a nugget that is not ``"free"``; estimated when not given.
        scikit-learn's ``Matern(length_scale)`` is ``range * sqrt(2 * smoothness)``.
    covariance : str or AbstractCovariance, optional
        Another covariance function: the name of a family (``"power-exponential"``, ``"anisotropic"``, ``"axis-ranges"`` with a
        range for each coordinate, ``"great-circle"``, ...; see :func:`starting_model`), or one such as
        ``GeometricAnisotropy(...)``, ``Matern(...) + Matern(...)`` or ``NonstationaryMatern(...)``, from whose values the search
        starts. The last columns of ``X`` that are no covariates of the mean are then its time, variable or covariates.
    fixed : sequence of str, or "all"
        Parameters of ``covariance`` that keep their values. With ``"all"``, which needs a covariance function and not a name,
        nothing is estimated: its nugget is taken, too.
    alpha : float or (n,) array
        Known variance of the error of each observation, besides the nugget, as in scikit-learn. Where rows are drawn, as in
        cross-validation, hand them to :meth:`fit` instead.
    covariates : sequence of int or str
        Columns of ``X``, by position or by name in a data frame, that are covariates of a linear mean; the others are
        coordinates.
    lonlat : bool
        True if the two coordinates are longitude and latitude in degrees; distances, and the range, are then kilometres.
    distance : {"chord", "great-circle"}
        For longitude and latitude: through the sphere, valid for every smoothness, or along it, up to smoothness 1/2.
    target : {"field", "observation"}
        Target of standard errors: the smooth field (as in scikit-learn), or a new observation with its nugget.
    tolerance, max_evaluations
        When a search for the estimate ends; see :func:`fit`.
    settings : FactorSettings, optional
        How every factorization runs, in the options of ``ooc_chol.FactorOptions``: ``FactorSettings(fp64="residue", moduli=15)``,
        and on which Dask cluster: ``FactorSettings(client="tcp://head:8786")``. The parameters below go before it where they are
        given. Its ``memory`` must be left out, as it cannot be cloned.
    memory_budget, host_budget : int or str, optional
        Bytes per device and of host memory, such as ``"2 GiB"``; see ``ooc_chol.cholesky``.
    devices : str, int or sequence of str, optional
        Devices that compute.
    tile_size : int, optional
        Order of a tile.
    store : path, optional
        A file that holds each factor while it is needed; it must not exist.

    Attributes
    ----------
    model_ : AbstractCovariance
        The covariance function; a :class:`Matern` unless ``covariance`` is another one.
    result_ : FitResult or None
        The estimate with all evaluations; None when nothing was estimated.
    log_marginal_likelihood_value_ : float
        Log-likelihood at ``model_``, the coefficients of the mean profiled out.
    coef_ : (p,) array
        Coefficients of the mean; ``mean_columns_`` names them.
    alpha_ : (n,) array
        ``inv(R) (y - X b)`` with ``R`` the correlation matrix, in the order of ``observations_``.
    observations_ : Observations
        The data in matrix order.
    n_features_in_, feature_names_in_
        As in scikit-learn; the names only when ``X`` was a data frame.

    Notes
    -----
    The class needs scikit-learn, of which it has ``score``, ``get_params``, ``set_params`` and the checks of ``X`` and ``y``;
    it is imported when the class is first asked for.

    No factor stays in memory, on a device or in a file, so an estimator can be copied and pickled at any time. ``fit`` keeps
    ``n`` weights, with which a mean costs ``n`` evaluations of the covariance; ``return_std``, ``return_cov`` and ``sample_y``
    factor again (``n**3 / 3`` flops a call). For many of these use :meth:`kriging`, which factors once.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(size=(60, 2))
    >>> gp = MaternGP(
    ...     smoothness=2.5, nugget=1e-6, range=0.3, variance=1.0
    ... ).fit(X, np.sin(5 * X[:, 0]) + X[:, 1])
    >>> bool(abs(gp.predict([[0.5, 0.5]])[0] - np.sin(2.5) - 0.5) < 0.01)
    True
    """

    model_: AbstractCovariance
    result_: FitResult[Any] | None
    log_marginal_likelihood_value_: float
    coef_: NDArray[np.float64]
    mean_columns_: tuple[str, ...]
    alpha_: NDArray[np.float64]
    observations_: Observations
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    @tb.answering(_ELSEWHERE)
    def __init__(
        self,
        smoothness: float | Literal["auto", "best", "free"] = 1.5,
        nugget: Nugget = "free",
        mean: Mean = "constant",
        *,
        range: float | None = None,
        variance: float | None = None,
        covariance: str | AbstractCovariance | None = None,
        fixed: Kept = (),
        alpha: ArrayLike = 0.0,
        covariates: Sequence[int | str] = (),
        lonlat: bool = False,
        distance: Literal["chord", "great-circle"] = "chord",
        target: Target = "field",
        tolerance: float = TOLERANCE,
        max_evaluations: int = 200,
        settings: FactorSettings | None = None,
        memory_budget: int | str | None = None,
        host_budget: int | str | None = None,
        devices: str | int | Sequence[str] | None = None,
        tile_size: int | None = None,
        store: str | Path | None = None,
    ) -> None:
        self.smoothness = smoothness
        self.nugget = nugget
        self.mean = mean
        self.range = range
        self.variance = variance
        self.covariance = covariance
        self.fixed = fixed
        self.alpha = alpha
        self.covariates = covariates
        self.lonlat = lonlat
        self.distance = distance
        self.target = target
        self.tolerance = tolerance
        self.max_evaluations = max_evaluations
        self.settings = settings
        self.memory_budget = memory_budget
        self.host_budget = host_budget
        self.devices = devices
        self.tile_size = tile_size
        self.store = store

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, error_variances: ArrayLike | None = None) -> Self:
        """Estimate the covariance and the mean, or take the covariance as it is given.

        Parameters
        ----------
        X : (n, d) array or data frame
            Coordinates, and the columns named in ``covariates``.
        y : (n,) array
            The observed values.
        error_variances : (n,) array, optional
            Known variance of the error of each observation, besides the nugget, in place of ``alpha``: scikit-learn cuts it with
            the rows of ``X`` (``cross_val_score(..., params={"error_variances": v})``).

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            A shape or a parameter is wrong, an entry is not finite, there are too few rows, or the data cannot carry a fit.
        TypeError
            ``settings`` are no :class:`FactorSettings`.
        NotPositiveDefiniteError
            The correlation matrix is not positive definite in floating point.
        """
        # below two rows no range can be estimated
        refuse_gaps(X=X, y=y)
        features, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        sites, covariates = self._split(features)
        observations = make_observations(
            sites,
            values,
            covariates=covariates,
            covariate_names=self._covariate_names(),
            mean=self.mean,
            error_variances=self._errors(error_variances, len(values)),
            space=self._space(sites.shape[1]),
        )
        settings = self._settings()
        if self.target not in ("field", "observation"):
            raise ValueError(f"target is {self.target!r}, but there are 'field' and 'observation'")
        asked, self.result_ = self._asked(), None
        model = asked.given()
        if model is None:
            words = {"tolerance": self.tolerance, "max_evaluations": self.max_evaluations, "settings": settings}
            self.result_ = asked.estimated(observations, **words)
            model = self.result_.model
        self.model_ = model
        self.mean_columns_ = observations.mean_columns
        weights = kriging_weights(observations, model, settings=settings)
        self.observations_, self.alpha_, self.coef_ = weights.observations, weights.alpha, weights.coefficients
        self.log_marginal_likelihood_value_ = weights.loglik
        return self

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = False, return_cov: Literal[False] = False
    ) -> NDArray[np.float64]: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True], return_cov: Literal[False] = False) -> _Pair: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False, *, return_cov: Literal[True]) -> _Pair: ...

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> NDArray[np.float64] | _Pair:
        """Kriging mean at new sites and, where asked, its standard errors or covariance.

        Parameters
        ----------
        X : (m, d) array or data frame
            The same columns as in :meth:`fit`.
        return_std : bool
            Standard errors too, of ``target``; they include the uncertainty of the estimated mean.
        return_cov : bool
            The covariance matrix of all ``m`` errors instead; it takes ``16 * m**2`` bytes.

        Returns
        -------
        mean : (m,) array
            The same with and without the others.
        std : (m,) array, if asked for
            Standard errors.
        cov : (m, m) array, if asked for
            Covariance of the errors.

        Raises
        ------
        NotFittedError
            ``fit`` was not called.
        ValueError
            Shapes do not match the fit, or both are asked for.

        Notes
        -----
        Cost ``n`` evaluations of the covariance per site for the mean; the others factor, ``n**3 / 3 + n**2 m`` flops.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both asked for: the first is the root of the diagonal of the second")
        sites, covariates = self._new_sites(X)
        mean = self._mean(sites, covariates)
        if return_cov:
            arguments = self.observations_, self.model_, sites, covariates
            return mean, prediction_covariance(*arguments, target=self.target, settings=self._settings())
        if return_std:
            with self.kriging() as kriged:
                return mean, kriged.predict(sites, covariates=covariates, target=self.target).standard_error
        return mean

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.Generator | None = 0
    ) -> NDArray[np.float64]:
        """Draw from the joint predictive distribution of ``target`` at new sites.

        Parameters
        ----------
        X : (m, d) array or data frame
            Where.
        n_samples : int
            Number of draws.
        random_state : int, numpy.random.Generator or None
            Seed; None draws anew in every call.

        Returns
        -------
        (m, n_samples) array
            One draw a column.

        Raises
        ------
        NotFittedError
            ``fit`` was not called.

        Notes
        -----
        Cost ``O(m**3)`` besides the covariance, whose eigenvalues below zero by rounding count as zero.
        """
        mean, covariance = self.predict(X, return_cov=True)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(random_state).normal(size=(len(mean), n_samples))
        return np.asarray(mean[:, np.newaxis] + root @ normal)

    def kriging(self) -> AbstractContextManager[Kriging]:
        """Factor once, predict often: ``with gp.kriging() as kriged: kriged.predict(sites, covariates=...)``.

        Returns
        -------
        context manager
            Context of a :class:`Kriging`, whose sites are Cartesian (kilometres with ``lonlat``).

        Raises
        ------
        NotFittedError
            ``fit`` was not called.
        """
        check_is_fitted(self, "alpha_")
        return kriging(self.observations_, self.model_, settings=self._settings())

    def _settings(self) -> FactorSettings:
        """``settings``, changed to what is given beside them."""
        settings = chosen_settings(self.settings)
        if settings.memory is not None or settings.kept is not None:
            raise ValueError(
                "settings have a HostMemory or a KeptFactor, which cannot be cloned with the estimator; leave memory and kept out"
            )
        beside: dict[str, Any] = {
            "tile_size": self.tile_size,
            "devices": self.devices,
            "memory_budget": self.memory_budget,
            "host_budget": self.host_budget,
            "store": self.store,
        }
        given = {name: value for name, value in beside.items() if value is not None}
        return replace(settings, **given, planned=None) if given else settings

    def _asked(self) -> AskedCovariance:
        """The covariance that is asked for."""
        what = (self.covariance, self.fixed, self.smoothness, self.nugget, self.range, self.variance)
        return AskedCovariance(*what, great_circle=self.distance == "great-circle")

    def _errors(self, given: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
        """Known variances of the errors, from ``fit`` or from ``alpha``; None where they are zero."""
        own = tb.plain_array("alpha", self.alpha, np.float64)
        if given is not None:
            if np.any(own != 0.0):
                raise ValueError("error_variances are given to fit, and alpha as well: leave one of them out")
            return tb.plain_array("error_variances", given, np.float64)
        if own.ndim == 0:
            return None if own == 0.0 else np.full(n, float(own))
        return own

    def _space(self, d: int) -> int | None:
        """How many coordinates are places, where the covariance function has covariates of its own."""
        return d - len(self.covariance.covariates) if isinstance(self.covariance, NonstationaryMatern) else None

    def _covariate_places(self) -> list[int]:
        """Positions of the covariates among the columns."""
        names = list(getattr(self, "feature_names_in_", ()))
        places = [names.index(column) if column in names else column for column in self.covariates]
        for column, place in zip(self.covariates, places, strict=True):
            if not isinstance(place, (int, np.integer)) or not 0 <= place < self.n_features_in_:
                raise ValueError(
                    f"covariate {column!r} is no column of X; it has {self.n_features_in_}: {', '.join(names) or 'unnamed'}"
                )
        return [int(place) for place in places]

    def _covariate_names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names[self._covariate_places()])

    def _split(self, features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cartesian sites and covariates."""
        places = self._covariate_places()
        sites = np.delete(features, places, axis=1)
        if sites.shape[1] == 0:
            raise ValueError("all columns of X are covariates, so there are no coordinates")
        if self.distance not in ("chord", "great-circle") or (self.distance != "chord" and not self.lonlat):
            raise ValueError(f"distance is {self.distance!r}, but there are 'chord' and, with lonlat=True, 'great-circle'")
        if self.lonlat:
            # with another covariance, columns after these two are its time, variable or covariates
            if sites.shape[1] < 2 or (sites.shape[1] > 2 and self.covariance is None):
                raise ValueError(f"lonlat needs two coordinates, longitude and latitude, but X has {sites.shape[1]}")
            if self.distance == "chord":
                sites = np.column_stack([chordal_coordinates(sites[:, 0], sites[:, 1]), sites[:, 2:]])
        return sites, features[:, places]

    def _new_sites(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sites and covariates of a prediction."""
        check_is_fitted(self, "alpha_")
        refuse_gaps(X=X)
        return self._split(validate_data(self, X, dtype=np.float64, reset=False))

    def _mean(self, sites: NDArray[np.float64], covariates: NDArray[np.float64]) -> NDArray[np.float64]:
        """``x0' b + r' inv(R) (y - X b)``, a batch of sites at a time."""
        mean = design_matrix(len(sites), covariates, self.observations_.mean) @ self.coef_
        correlation = self.model_.with_values(variance=1.0, nugget=0.0)
        step = max(1, BATCH_BYTES // (8 * self.observations_.n))
        for start in range(0, len(sites), step):
            batch = slice(start, start + step)
            mean[batch] += cross_covariance(correlation, sites[batch], self.observations_.coordinates) @ self.alpha_
        return np.asarray(mean)
