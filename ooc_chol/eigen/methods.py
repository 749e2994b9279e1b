"""Methods beside Lanczos: LOBPCG with a preconditioner or null vectors, and eigenvalues near a shift."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import parse_bytes, whole_number
from ooc_chol.eigen.asked import BLOCKS, Sizes, sizes_of, start_of
from ooc_chol.eigen.lanczos import AtRestart, Found
from ooc_chol.eigen.lobpcg import Lobpcg, lobpcg_capacity, lobpcg_panels
from ooc_chol.eigen.operator_space import Product
from ooc_chol.eigen.preconditioners import Preconditioner
from ooc_chol.eigen.problem import AbstractProblem
from ooc_chol.eigen.returned import returned
from ooc_chol.eigen.shift_invert import (
    SIGNS,
    Inverse,
    ShiftInvert,
    beside_enough,
    check_count,
    check_near,
    inverse_of,
    nearest_order,
)
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import LanczosCounts
from ooc_chol.eigen.wanted import Wanted, Which
from ooc_chol.eigen.whole import whole_pairs
from ooc_chol.errors import BudgetError, SingularMatrixError
from ooc_chol.files.inputs import plain_array
from ooc_chol.precision.triples import Precision

#: Most columns that are solved for at once where the caller does not say: SuperLU takes them one by one.
_USUAL_BLOCK = 2
#: Columns of the basis beside the wanted ones there: the inverse has its eigenvalues far apart.
_EXTRA_COLUMNS = 32
#: Rows, and bytes of the factor, up to which A is factored although nobody asked for it.
_MOST_ROWS, _MOST_FACTOR = 50_000, 1 << 30
#: Singular values of null vectors, beside the largest, below which they depend on each other.
_LEAST_SINGULAR = 1e-10


class Solved(NamedTuple):
    """Result of a method."""

    found: Found
    vectors: NDArray[Any]  #: (n, k), the most wanted first
    method: str  #: ``"lobpcg"``, ``"shift-invert"``, or ``"dense"`` where LAPACK solved all
    block: int  #: Columns of a panel
    columns: int  #: Columns of the basis
    space: AbstractSpace | None = None  #: Where LOBPCG worked, closed by the caller
    sigma: float | None = None  #: The shift whose inverse was taken


class Asked(NamedTuple):
    """Arguments of a caller that these methods read."""

    block: int | None
    ncv: int | None
    v0: Any
    max_passes: int
    check: bool
    trace: bool = False


def method_of(method: str, *, preconditioner: Any, null: Any, sigma: float | None, OPinv: Any, checkpoint: Any = None) -> str:
    """The method that is meant.

    Raises ``ValueError``: they contradict each other.
    """
    is_lobpcg = method == "lobpcg" or preconditioner is not None or null is not None
    if checkpoint is not None and (sigma is not None or is_lobpcg):
        raise ValueError("checkpoint keeps runs of Lanczos on A itself: leave it out where LOBPCG or sigma is asked for")
    if sigma is not None:
        if is_lobpcg:
            raise ValueError(
                "sigma is for Lanczos on the inverse, which takes neither preconditioner nor null: leave them out, or sigma"
            )
        return "sigma"
    if OPinv is not None:
        raise ValueError("OPinv solves with A - sigma I: say which sigma")
    if method == "lanczos" and is_lobpcg:
        raise ValueError("Lanczos takes neither a preconditioner nor null vectors: leave method out, or give 'lobpcg'")
    return "lobpcg" if is_lobpcg else "lanczos"


# LOBPCG


def solved_by_lobpcg(
    problem: AbstractProblem,
    wanted: Wanted,
    precision: Precision,
    asked: Asked,
    stack: ExitStack,
    *,
    preconditioner: Any = None,
    null: Any = None,
    at_step: Callable[[Lobpcg, float], None] | None = None,
) -> Solved:
    """Eigenpairs from one end of the spectrum, by LOBPCG.

    Raises ``ValueError`` and ``PreconditionerError``.
    """
    if asked.ncv is not None:
        raise ValueError("ncv is the size of a basis of Lanczos, but that of LOBPCG follows from k and block: leave it out")
    if wanted.which == "LM":
        raise ValueError('LOBPCG looks at one end of the spectrum: give which="SA" or "LA", or method="lanczos" for "LM"')
    inverse = None if preconditioner is None else Preconditioner(preconditioner, problem.n)
    vectors = null_of(null, problem.n)
    count = 0 if vectors is None else vectors.shape[1]
    if wanted.k > problem.n - count:
        raise ValueError(f"k is {wanted.k}, but beside {count} null vectors A has {problem.n - count} eigenpairs")
    block = _block_of(asked.block, wanted.k)
    panels = lobpcg_panels(wanted.k, block)
    start = start_of(asked.v0, problem.n, panels * block)
    if (-(-count // block) + 3 * panels) * block > problem.n:
        return _whole(problem, wanted, precision, vectors, stack)
    is_diagonal = inverse is not None and inverse.diagonal is not None
    capacity = lobpcg_capacity(wanted.k, block, count, diagonal=is_diagonal, check=asked.check)
    space = problem.space(block, capacity, precision, stack, trace=asked.trace)
    run = Lobpcg(
        space,
        wanted,
        max_passes=asked.max_passes,
        preconditioner=inverse,
        null=vectors,
        check=asked.check,
        at_step=at_step,
    )
    found = run.run(start)
    return Solved(*returned(space, found), "lobpcg", block, 3 * panels * block, space)


def null_of(null: Any, n: int) -> NDArray[np.float64] | None:
    """Orthonormal columns of the span of null vectors; None where there are none.

    Shapes: ``null`` (n,) or (n, m). Returns (n, m): as many columns as are independent. Raises ``ValueError`` and ``TypeError``.

    >>> from ooc_chol.eigen.methods import null_of
    >>> abs(null_of([1, 1, 1, 1], 4)).round(3).tolist()
    [[0.5], [0.5], [0.5], [0.5]]
    """
    if null is None:
        return None
    given = plain_array("null", null)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"null holds {given.dtype}, but null vectors are real numbers")
    columns = (given.reshape(-1, 1) if given.ndim == 1 else given).astype(np.float64)
    if columns.ndim != 2 or columns.shape[0] != n or not 1 <= columns.shape[1] <= n:
        raise ValueError(f"null has shape {given.shape}; give a vector ({n},), or some as columns ({n}, m)")
    if not np.isfinite(columns).all():
        row, column = np.argwhere(~np.isfinite(columns))[0]
        raise ValueError(f"null holds {columns[row, column]} in row {row}: null vectors must be finite")
    sizes = np.abs(columns).max(axis=0)
    if not sizes.all():
        raise ValueError(f"column {int(np.argmin(sizes))} of null is zero: leave it out")
    columns = columns / sizes
    u, s, _ = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), full_matrices=False)
    return np.ascontiguousarray(u[:, s > _LEAST_SINGULAR * s[0]])


def _block_of(block: object, k: int) -> int:
    """Columns of a panel: 4 where that leaves one to spare, which helps the others to converge, else 8."""
    if block is None:
        return 4 if k < 4 else 8
    if whole_number(block, "block") not in BLOCKS:
        raise ValueError(f"block is {block}; panels have 1, 2, 4 or 8 columns")
    return whole_number(block, "block")


def _whole(
    problem: AbstractProblem, wanted: Wanted, precision: Precision, null: NDArray[np.float64] | None, stack: ExitStack
) -> Solved:
    """All eigenpairs outside the null vectors, by LAPACK."""
    product, n = problem.exact(stack), problem.n
    if null is None:
        whole = whole_pairs(product, n, wanted, precision)
        found = _of_lapack(whole.values, whole.residuals, whole.scale, wanted, whole.products)
        return Solved(found, whole.vectors, "dense", 1, n)
    z = np.linalg.svd(null, full_matrices=True)[0][:, null.shape[1] :]
    whole = whole_pairs(lambda y: z.T @ product(np.ascontiguousarray(z @ y)), z.shape[1], wanted, precision)
    v = (z @ whole.vectors).astype(precision.storage)
    residuals = _residuals(product, v.astype(np.float64), whole.values)
    found = _of_lapack(whole.values, residuals, whole.scale, wanted, whole.products)
    return Solved(found, v, "dense", 1, z.shape[1])


def _of_lapack(values: NDArray[np.float64], residuals: NDArray[np.float64], scale: float, wanted: Wanted, passes: int) -> Found:
    stuck = bool((residuals > wanted.tol * scale).any())
    return Found(values, residuals, scale, "LAPACK's eigenvectors are no better" if stuck else "", LanczosCounts(passes=passes))


def _residuals(product: Any, v: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``||A v - value v|| / ||v||``, 8 columns at a time."""
    times = [np.asarray(product(np.ascontiguousarray(v[:, at : at + 8]))) for at in range(0, v.shape[1], 8)]
    off = np.linalg.norm(np.concatenate(times, axis=1) - v * values, axis=0)
    residuals: NDArray[np.float64] = off / np.linalg.norm(v, axis=0)
    return residuals


# sigma


def solved_near(
    problem: AbstractProblem,
    wanted: Wanted,
    precision: Precision,
    asked: Asked,
    stack: ExitStack,
    *,
    sigma: Any,
    OPinv: Any = None,
    memory_budget: int | str | None = None,
    at_restart: AtRestart | None = None,
) -> Solved:
    """Eigenpairs nearest sigma, by Lanczos on the inverse of ``A - sigma I``.

    Raises ``BudgetError``, ``SingularMatrixError``, ``ValueError`` and ``TypeError``.
    """
    if isinstance(sigma, bool) or not isinstance(sigma, int | float | np.integer | np.floating):
        raise TypeError(f"sigma is a {type(sigma).__name__}; give a real number")
    if not np.isfinite(sigma):
        raise ValueError(f"sigma is {sigma}; give a finite number")
    with np.errstate(over="ignore"):
        sigma = float(np.ldexp(float(sigma), problem.power))
    if precision != Precision.DDD:
        raise ValueError(f"with sigma all is computed in float64, but precision is {precision.value}: give precision='DDD'")
    n, product = problem.n, problem.exact(stack)
    ncv = wanted.k + _EXTRA_COLUMNS if asked.ncv is None and asked.block in (None, 1, 2) else asked.ncv
    sizes = sizes_of(ncv, asked.block, wanted.k, n, usual_block=_USUAL_BLOCK)
    start = start_of(asked.v0, n, sizes.block)
    if sizes.columns + sizes.block > n:
        return _all_near(problem, wanted, sigma, stack)
    matrix = None if OPinv is not None else problem.csc()
    budget = None if memory_budget is None else parse_bytes(memory_budget, "memory_budget")
    inverse = inverse_of(
        product, n, sigma, matrix=matrix, OPinv=OPinv, memory_budget=budget, which=wanted.which, power=problem.power
    )
    if matrix is not None:
        inverse, count = beside_enough(inverse, matrix, sigma, wanted)
        check_count(count, n, float(np.ldexp(sigma, -problem.power)), wanted)
    return _by_inverse(product, n, sigma, inverse, wanted, asked, sizes, start, at_restart)


def _by_inverse(
    product: Product,
    n: int,
    sigma: float,
    inverse: Inverse,
    wanted: Wanted,
    asked: Asked,
    sizes: Sizes,
    start: NDArray[np.float64] | None = None,
    at_restart: AtRestart | None = None,
) -> Solved:
    found, vectors = ShiftInvert(product, n, sigma, inverse, wanted).run(
        block=sizes.block,
        panels=sizes.panels,
        max_passes=asked.max_passes,
        check=asked.check,
        start=start,
        at_restart=at_restart,
    )
    return Solved(found, vectors, "shift-invert", sizes.block, sizes.columns, sigma=inverse.sigma)


def solved_from_zero(problem: AbstractProblem, wanted: Wanted, asked: Asked, stack: ExitStack) -> Solved | None:
    """Pairs nearest 0 where that is an end of the spectrum, as the factor tells, by Lanczos on the inverse.

    None where A cannot be factored in little memory, or has eigenvalues on both sides of 0.
    """
    n, which = problem.n, {"SA": "LA", "LA": "SA"}.get(wanted.which)
    sizes = sizes_of(wanted.k + _EXTRA_COLUMNS, None, wanted.k, n, usual_block=_USUAL_BLOCK)
    if which is None or n > _MOST_ROWS or sizes.columns + sizes.block > n or (matrix := problem.csc()) is None:
        return None
    near, product = replace(wanted, which=cast(Which, which)), problem.exact(stack)
    try:
        inverse = inverse_of(product, n, 0.0, matrix=matrix, memory_budget=_MOST_FACTOR, which=near.which)
    except (BudgetError, SingularMatrixError):
        return None
    inverse, count = beside_enough(inverse, matrix, 0.0, replace(near, k=n))
    if inverse.below is None or count < n:
        return None
    solved = _by_inverse(product, n, 0.0, inverse, near, asked, sizes)
    return None if solved.found.why_not else solved


def _all_near(problem: AbstractProblem, wanted: Wanted, sigma: float, stack: ExitStack) -> Solved:
    """Wanted pairs among all eigenpairs by LAPACK."""
    whole = whole_pairs(problem.exact(stack), problem.n, Wanted(problem.n, "LA", wanted.tol), Precision.DDD)
    check_near(sigma, whole.scale, problem.power)
    roundoff = len(whole.values) * np.finfo(np.float64).eps * whole.scale
    count = int(np.count_nonzero(SIGNS[wanted.which] * (whole.values - sigma) >= -roundoff))
    check_count(count, problem.n, float(np.ldexp(sigma, -problem.power)), wanted)
    order = nearest_order(whole.values, sigma, wanted.which, roundoff)[: wanted.k]
    found = _of_lapack(whole.values[order], whole.residuals[order], whole.scale, wanted, whole.products)
    return Solved(found, np.ascontiguousarray(whole.vectors[:, order]), "dense", 1, problem.n)
