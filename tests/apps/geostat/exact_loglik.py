"""Log-likelihoods in long double."""

from __future__ import annotations

import numpy as np

from tests.long_double import half_solved, lower_of

#: What entries of a covariance matrix that NumPy makes and those of the package may change of a log-likelihood.
ROOM = 1e-9


def exact(model, observations, *, reml):
    """The log-likelihood in long double."""
    sites, design = observations.coordinates, observations.design.astype(np.longdouble)
    distance = np.linalg.norm(sites[:, None] - sites[None], axis=2)
    correlation = (model.covariance(distance) + model.nugget * np.eye(len(sites))) / model.variance
    lower = lower_of(correlation)
    both = half_solved(lower, np.column_stack([observations.values, design]))
    y, x = both[:, 0], both[:, 1:]
    n, p = design.shape
    quadratic, rest, freedom = y @ y, 0.0, n - (p if reml else 0)
    if p:
        root = lower_of(x.T @ x)
        part = half_solved(root, x.T @ y)
        quadratic = quadratic - part @ part
        if reml:
            rest = np.log(np.diag(lower_of(design.T @ design))).sum() - np.log(np.diag(root)).sum()
    logdet = 2 * np.log(np.diag(lower)).sum()
    return -0.5 * (freedom * np.log(2 * np.pi * np.longdouble(model.variance)) + logdet + quadratic / model.variance) + rest
