"""K Lanczos steps for K pairs, as eigensolvers of the literature have them: what comes out is not certified."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.jacobi import jacobi
from ooc_chol.eigen.device_space import open_space
from ooc_chol.eigen.powers import check_magnitude
from ooc_chol.eigen.returned import normalize
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.precision.triples import Precision

#: Against what a new vector is made orthogonal, beside the two before it.
Reorthogonalization = Literal["full", "alternate", "none"]
REORTHOGONALIZATIONS: tuple[str, ...] = get_args(Reorthogonalization)


@dataclass(frozen=True)
class PaperPairs:
    """Pairs after K steps. The vectors stand in the first K panels of the space, of about unit norm."""

    values: NDArray[np.float64]  #: (k,) Ritz values, ascending
    residuals: NDArray[np.float64]  #: (k,) ``||A v - value v|| / ||v||`` of each, computed in float64
    basis_deviation: float  #: Largest entry of ``|V.T V - I|`` of the Lanczos vectors
    deviation: float  #: Largest ``|cos|`` of the angle between two of the pairs' vectors
    #: Mean of the angles between any two of the pairs' vectors, at most 90, which it is where they are orthogonal; 90 of one
    mean_angle_degrees: float
    #: A Ritz pair of K steps need not be near an eigenpair, and copies of one stand beside it where orthogonality was lost.
    certified: bool = False


def paper_pairs(space: AbstractSpace, k: int, *, reorthogonalize: Reorthogonalization = "full") -> PaperPairs:
    """K Lanczos steps from the vector in W, and Jacobi's method for the tridiagonal matrix.

    k products, one more for residuals. The tridiagonal matrix is solved in the third type of the precision: float32 in FFF and
    FDF. The source is Sgherzi, Parravicini and Santambrogio (2022). Its Algorithm 1 subtracts the components along v_1, v_3, ...
    from a vector that is overwritten before it is used, and those along v_2, v_4, ... from the next one: "alternate" is that.
    Raises ``ValueError``: the space is of another block or has fewer panels, or ``reorthogonalize`` is none of the three.
    """
    check_reorthogonalization(reorthogonalize)
    if space.block != 1 or space.capacity < k:
        raise ValueError(
            f"{k} single Lanczos steps need {k} panels of one column, but the space has {space.capacity} of {space.block}"
        )
    _steps(space, k, reorthogonalize)
    t = _tridiagonal(space.read(), k)
    check_magnitude(float(np.abs(t).max()), space.precision)
    values, s = jacobi(t.astype(space.precision.accumulate))
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


def check_reorthogonalization(reorthogonalize: object) -> None:
    """Raise ``ValueError`` unless it is one of the three."""
    if reorthogonalize not in REORTHOGONALIZATIONS:
        raise ValueError(f"reorthogonalize is {reorthogonalize!r:.40}; give one of {', '.join(REORTHOGONALIZATIONS)}")


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


def _tridiagonal(kept: dict[str, NDArray[np.float64]], k: int) -> NDArray[np.float64]:
    """T of the coefficients that were kept."""
    alpha = [kept[f"alpha {i}"].reshape(-1)[-1] for i in range(k)]
    beta = [kept[f"beta {i}"].reshape(-1)[0] for i in range(k - 1)]
    return np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1)


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


@dataclass(frozen=True)
class KStepReport:
    """Report of k steps for k pairs, and what is wrong with them."""

    k: int
    precision: str  #: Types of vectors, products and sums; the small problem is solved in the third
    reorthogonalize: str  #: Against what new vectors were made orthogonal
    passes: int  #: Products with A, those for residuals among them
    basis_deviation: float  #: As :class:`PaperPairs` has them
    deviation: float
    mean_angle_degrees: float
    seconds: float  #: Of steps and residuals, packing aside
    certified: bool = False

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data."""
        return dict(vars(self))


class KStepPairs(NamedTuple):
    """Pairs of k steps, which are not certified."""

    eigenvalues: NDArray[np.float64]
    eigenvectors: NDArray[Any]
    residuals: NDArray[np.float64]  #: Relative to the largest magnitude of an eigenvalue
    report: KStepReport


def k_step_pairs(
    A: oc.BlockCSR | oc.Operator,
    k: int,
    *,
    precision: Precision | str = "DDD",
    reorthogonalize: Reorthogonalization = "full",
    devices: Any = None,
    memory_budget: int | str | None = None,
) -> KStepPairs:
    """K Lanczos steps for K pairs of a packed matrix, on devices."""
    precision = Precision(precision)
    check_reorthogonalization(reorthogonalize)
    where = {"devices": devices, "memory_budget": memory_budget}
    with ExitStack() as stack:
        space = stack.enter_context(open_space(A, block=1, capacity=k, precision=precision, **where))
        began = time.perf_counter()
        space.fill(0)
        found = paper_pairs(space, k, reorthogonalize=reorthogonalize)
        seconds = time.perf_counter() - began
        vectors = space.take(range(k), dtype=precision.storage)
        passes = space.passes
    normalize(vectors)
    scale = float(np.abs(found.values).max())
    deviations = found.basis_deviation, found.deviation, found.mean_angle_degrees
    report = KStepReport(k, precision.value, reorthogonalize, passes, *deviations, seconds)
    return KStepPairs(found.values, vectors, found.residuals / scale if scale else found.residuals, report)
