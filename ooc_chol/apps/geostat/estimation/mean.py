"""The mean of observations by generalised least squares, once they are multiplied by the inverse of a factor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.value_unit import value_unit


@dataclass(frozen=True, eq=False)
class Whitened:
    """Observations multiplied by ``inv(L)``, where ``L @ L.T`` is their correlation matrix ``R``, and the estimated mean."""

    design: NDArray[np.float64]  #: ``inv(L) @ X``, (n, p)
    residual: NDArray[np.float64]  #: (n,) ``inv(L) @ (z - X @ coefficients)``
    coefficients: NDArray[np.float64]  #: (p,) generalised-least-squares estimate ``inv(X' inv(R) X) X' inv(R) z``
    root: NDArray[np.float64]  #: (p, p), upper triangular, with ``root' @ root = X' inv(R) X``

    @property
    def quadratic(self) -> float:
        """``(z - X b)' inv(R) (z - X b)``."""
        return float(self.residual @ self.residual)

    @property
    def inverse_information(self) -> NDArray[np.float64]:
        """``inv(X' inv(R) X)``, the covariance of the coefficients at unit variance, shape ``(p, p)``."""
        half = solve_triangular(self.root, np.eye(len(self.root)))
        return np.asarray(half @ half.T)


def whiten(factor: oc.CholeskyFactor, observations: Observations) -> Whitened:
    """Multiply the observations by ``inv(L)`` and estimate the mean."""
    unit = value_unit(observations)
    near = replace(unit, exponent=0).observations(observations)  # which changes nothing but values far from zero
    found = estimate_mean(factor.half_solve(np.column_stack([near.values, near.design])), near)
    if not unit.shift:
        return found
    return replace(found, coefficients=replace(unit, exponent=0).coefficients_back(found.coefficients, near.mean_columns))


def estimate_mean(both: NDArray[np.float64], observations: Observations) -> Whitened:
    """Estimate the mean from values and design multiplied by ``inv(L)``."""
    values, design = both[:, 0], both[:, 1:]
    # inv(L) X = Q root: least squares there is generalised least squares for X
    q, root = np.linalg.qr(design)
    _check_rank(design, root, observations.mean_columns)
    coefficients = solve_triangular(root, q.T @ values)
    return Whitened(design, values - design @ coefficients, coefficients, root)


def degrees_of_freedom(observations: Observations, reml: bool) -> int:
    """``n``, or the ``n - p`` of the restricted likelihood."""
    return observations.n - (observations.design.shape[1] if reml else 0)


def restriction(whitened: Whitened, observations: Observations) -> float:
    """``(logdet(X' X) - logdet(X' inv(R) X)) / 2``, from the diagonals of two QR factors."""
    plain = np.linalg.qr(observations.design, mode="r")
    return float(np.sum(np.log(np.abs(np.diag(plain)))) - np.sum(np.log(np.abs(np.diag(whitened.root)))))


def _check_rank(design: NDArray[np.float64], root: NDArray[np.float64], names: tuple[str, ...]) -> None:
    """Raise ``ValueError`` naming the first column of the mean that depends on those before it."""
    lengths = np.linalg.norm(design, axis=0)
    dependent = np.abs(np.diag(root)) <= 1e-12 * lengths
    if dependent.any():
        raise ValueError(
            f"column {names[int(np.argmax(dependent))]!r} of the mean depends linearly on the columns before it; leave it out"
        )
