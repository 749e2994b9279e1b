"""K Lanczos steps for K pairs, as eigensolvers of the literature have them: what comes out is not certified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.jacobi import jacobi
from ooc_chol.eigen.space import AbstractSpace

#: Against what a new vector is made orthogonal, beside the two before it.
Reorthogonalization = Literal["full", "alternate", "none"]
REORTHOGONALIZATIONS: tuple[str, ...] = get_args(Reorthogonalization)


@dataclass(frozen=True)
class PaperPairs:
    """What K steps have found. The vectors stand in the first K panels of the space, of about unit norm.

    Attributes
    ----------
    values : (k,) float64 array
        Ritz values, ascending.
    residuals : (k,) float64 array
        ``||A v - value v|| / ||v||`` of each, computed in float64.
    basis_deviation : float
        Largest entry of ``|V.T V - I|`` of the Lanczos vectors.
    deviation : float
        Largest ``|cos|`` of the angle between two of the pairs' vectors.
    mean_angle_degrees : float
        Mean of the angles between any two of the pairs' vectors, at most 90, which it is where they are orthogonal; 90 of one.
    """

    values: NDArray[np.float64]
    residuals: NDArray[np.float64]
    basis_deviation: float
    deviation: float
    mean_angle_degrees: float
    #: A Ritz pair of K steps need not be near an eigenpair, and copies of one stand beside it where orthogonality was lost.
    certified: bool = False


def paper_pairs(space: AbstractSpace, k: int, *, reorthogonalize: Reorthogonalization = "full") -> PaperPairs:
    """K Lanczos steps from the vector in W, and Jacobi's method for the tridiagonal matrix.

    Parameters
    ----------
    space : AbstractSpace
        Of block 1, with k panels or more. W holds the first vector, of any norm.
    k : int
        Steps, and pairs.
    reorthogonalize : {"full", "alternate", "none"}
        Whether each new vector is made orthogonal to all before it; to every second one, as in Algorithm 1 of the source; or to
        the last two alone, as exact arithmetic would have it.

    Returns
    -------
    PaperPairs
        Values, true residuals, and how far from orthogonal the vectors are. The vectors are in the space.

    Raises
    ------
    ValueError
        The space is of another block or has fewer panels, or ``reorthogonalize`` is none of the three.

    Notes
    -----
    k products, one more for residuals. The tridiagonal matrix is solved in the third type of the precision: float32 in FFF and
    FDF. The source is Sgherzi, Parravicini and Santambrogio (2022). Its Algorithm 1 subtracts the components along v_1, v_3, ...
    from a vector that is overwritten before it is used, and those along v_2, v_4, ... from the next one: "alternate" is that.
    """
    if reorthogonalize not in REORTHOGONALIZATIONS:
        raise ValueError(f"reorthogonalize is {reorthogonalize!r:.40}; give one of {', '.join(REORTHOGONALIZATIONS)}")
    if space.block != 1 or space.capacity < k:
        raise ValueError(
            f"{k} single Lanczos steps need {k} panels of one column, but the space has {space.capacity} of {space.block}"
        )
    _steps(space, k, reorthogonalize)
    values, s = jacobi(_tridiagonal(space.read(), k, space.precision.accumulate))
    basis = _gram(space, k)
    space.rotate(range(k), s.astype(np.float64), range(k))
    ascending = values.astype(np.float64)
    residuals = space.residuals(range(k), ascending.tolist())
    cosines = _cosines(_gram(space, k))
    angles = np.degrees(np.arccos(cosines))
    return PaperPairs(
        values=ascending,
        residuals=residuals,
        basis_deviation=float(np.abs(basis - np.eye(k)).max(initial=0.0)),
        deviation=float(cosines.max(initial=0.0)),
        mean_angle_degrees=float(angles.mean()) if angles.size else 90.0,
    )


def _steps(space: AbstractSpace, k: int, reorthogonalize: Reorthogonalization) -> None:
    """Enqueue: the Lanczos vectors as panels 0 to k - 1, alpha and beta under names."""
    space.orthonormalize(0, "start", range(0))
    for i in range(k):
        space.product(i)
        before = range(0 if reorthogonalize == "full" else max(0, i - 1), i + 1)
        # W = A v_i - alpha_i v_i - beta_i v_(i-1)
        space.project(before, f"alpha {i}", again=reorthogonalize == "full")
        if reorthogonalize == "alternate":
            for j in range(1, i + 1, 2):
                space.project(range(j, j + 1), f"component {i} {j}", again=False)
        if i + 1 < k:
            # W = beta_(i+1) v_(i+1)
            space.orthonormalize(i + 1, f"beta {i}", range(i + 1 if reorthogonalize == "full" else 0))


def _tridiagonal(kept: dict[str, NDArray[np.float64]], k: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """T of the coefficients that were kept."""
    alpha = [kept[f"alpha {i}"].reshape(-1)[-1] for i in range(k)]
    beta = [kept[f"beta {i}"].reshape(-1)[0] for i in range(k - 1)]
    return (np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1)).astype(dtype)


def _gram(space: AbstractSpace, k: int) -> NDArray[np.float64]:
    """``V.T V`` of the first k panels; W is lost."""
    for j in range(k):
        space.load(j)
        space.inner(range(k), f"gram {j}")
    kept = space.read()
    return np.stack([kept[f"gram {j}"].reshape(-1) for j in range(k)], axis=1)


def _cosines(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """``|cos|`` of the angle between any two different vectors."""
    norms = np.sqrt(np.diagonal(gram))
    cosines = np.abs(gram) / np.maximum(np.outer(norms, norms), np.finfo(np.float64).tiny)
    pairs: NDArray[np.float64] = cosines[np.triu_indices(len(gram), 1)].clip(max=1.0)
    return pairs
