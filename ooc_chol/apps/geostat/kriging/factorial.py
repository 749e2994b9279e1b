"""Factorial kriging: the part of one of several nested structures, such as the long waves without the short ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source
from ooc_chol.apps.geostat.covariances.nested import Nested
from ooc_chol.apps.geostat.data.observations import Observations, as_sites, check_is_observations
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.kriged import Kriging
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.prediction import kriging, predict


@tb.documented(like=predict)
def predict_component(
    observations: Observations,
    model: AbstractCovariance,
    component: int,
    sites: ArrayLike,
    *,
    coefficients: ArrayLike | None = None,
    settings: FactorSettings | None = None,
) -> Prediction:
    """Predict the field of one nested structure at new sites, without mean, other structures and errors.

    Parameters
    ----------
    model : Nested
        The sum of covariance functions, usually of a fit.
    component : int
        Number of the structure, counted from 1 as in the names of its parameters.
    coefficients : (p,) array, optional
        Known coefficients of the mean; they are estimated when not given.

    Returns
    -------
    Prediction
        Mean and variance of that field, which has mean zero, at each site. The means of all structures and that of the mean add
        up to the kriging mean.

    Raises
    ------
    ValueError
        The model is no sum or has no such structure, or the sites do not match the observations.
    NotPositiveDefiniteError
        The correlation matrix is not positive definite in floating point.

    Notes
    -----
    ``c_k' inv(S) (z - X b)`` with the covariances ``c_k`` of the structure alone (Matheron 1982; Goovaerts 1997, section 5.6).
    Cost as :func:`~ooc_chol.apps.geostat.predict`.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import Matern, make_observations
    >>> places = np.random.default_rng(0).uniform(size=(50, 2))
    >>> observations = make_observations(
    ...     places, np.sin(5 * places[:, 0]) + 0.1 * np.sin(60 * places[:, 1])
    ... )
    >>> model = Matern(0.01, 0.02, 1.5) + Matern(1.0, 0.4, 1.5)
    >>> smooth = predict_component(observations, model, 2, [[0.5, 0.5]])
    >>> bool(smooth.standard_error[0] < 1.0)
    True
    """
    check_is_observations(observations)
    part = component_of(model, component)
    with kriging(observations, model, coefficients=coefficients, settings=settings) as kriged:
        return component_prediction(kriged, part, sites)


def component_of(model: AbstractCovariance, component: int) -> AbstractCovariance:
    """One structure of a sum, by its number counted from 1; ``ValueError`` where there is none."""
    if not isinstance(model, Nested):
        raise ValueError(f"a {type(model).__name__} has no nested structures, of which component {component} could be predicted")
    if not 1 <= component <= len(model.components):
        raise ValueError(f"component is {component}, but the structures are numbered from 1 to {len(model.components)}")
    return model.components[component - 1]


def component_prediction(kriged: Kriging, part: AbstractCovariance, sites: ArrayLike) -> Prediction:
    """Predict one structure from a factored data set.

    Shapes: ``sites`` (m, d).
    """
    places, white, n = as_sites(sites), kriged.whitened, kriged.observations.n
    variance = kriged.model.variance
    joint = np.concatenate([kriged.observations.coordinates, places])
    source = covariance_source(part.with_values(variance=part.variance / variance), joint)
    sums = kriged.factor.half_solve_sums(
        source, range(n, n + len(places)), np.column_stack([white.residual, white.design]), width=None
    )
    # the structure has no mean: what the estimated columns take of it comes back as variance
    trend = solve_triangular(white.root, -sums.products[:, 1:].T, trans="T")
    unexplained = np.maximum(part.site_variances(places) / variance - sums.squares, 0.0)
    return Prediction(sums.products[:, 0], variance * (unexplained + np.einsum("ij,ij->j", trend, trend)), "field")
