"""Methods beside Lanczos: LOBPCG with a preconditioner or null vectors, and eigenvalues near a shift."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from ooc_chol.eigen.asked import MOST_DENSE, Sizes, sizes_of
from ooc_chol.eigen.factor_size import factor_size
from ooc_chol.eigen.lanczos import AtRestart, Found
from ooc_chol.eigen.lobpcg import Lobpcg, check_null
from ooc_chol.eigen.operator_space import Product
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.planning import HOST_BLOCK, INVERSE_COLUMNS
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
    largest_of,
    nearest_order,
)
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.state import LanczosCounts
from ooc_chol.eigen.wanted import Wanted, Which
from ooc_chol.eigen.whole import whole_pairs
from ooc_chol.errors import BudgetError, SingularMatrixError
from ooc_chol.files.inputs import plain_array
from ooc_chol.precision.triples import Precision

#: Rows, and bytes of the factor, up to which A is factored although nobody asked for it.
MOST_ROWS, _MOST_FACTOR = 50_000, 1 << 30
#: Rows from which on a factor pays in place of LOBPCG without a good preconditioner, if it has so few bytes, in all and for each
#: entry of A: a second or two. Those of meshes have 300 to 1000 for each entry, of irregular graphs more.
_LEAST_ROWS, _LIGHT_FACTOR, _LIGHT_ENTRY = 2000, 256 << 20, 1000
#: Shift beside 0, relative to the largest eigenvalue, where the factor at 0 does not tell on which side eigenvalues are.
_BESIDE = 1e-12
#: Length of the product of A and a null vector, beside the largest eigenvalue, when it was multiplied by the inverse; and by how
#: much less than 1 may be left in the span of those that the caller gave.
_NULL, _TURNED = 1e-12, 1e-8
#: Few digits are known of a value whose residual is more than the first times its size; one that is less than the second times
#: the largest may be a zero.
FEW, _LITTLE = 5e-3, 1e-6
#: How near to sigma an eigenvalue is at it, beside the largest.
_AT_SIGMA = 8 * float(np.finfo(np.float64).eps)
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
    notes: tuple[str, ...] = ()  #: What is to be said of the shift and of eigenvalues at it


class Asked(NamedTuple):
    """Arguments of a caller that these methods read."""

    max_passes: int
    check: bool
    start: NDArray[np.float64] | None = None
    trace: bool = False


# LOBPCG


def solved_by_lobpcg(
    problem: AbstractProblem,
    plan: EigshPlan,
    wanted: Wanted,
    asked: Asked,
    stack: ExitStack,
    *,
    preconditioner: Preconditioner | None = None,
    null: NDArray[np.float64] | None = None,
    at_step: Callable[[Lobpcg, float], None] | None = None,
) -> Solved:
    """Eigenpairs from one end of the spectrum, by LOBPCG.

    Shapes: ``null`` (n, m), orthonormal. Raises ``ValueError`` and ``PreconditionerError``.
    """
    count = 0 if null is None else null.shape[1]
    if wanted.k > problem.n - count:
        raise ValueError(f"k is {wanted.k}, but beside {count} null vectors A has {problem.n - count} eigenpairs")
    if plan.method == "dense":
        return _whole(problem, plan, wanted, null, stack)
    space = problem.space(plan, stack, trace=asked.trace)
    run = Lobpcg(
        space, wanted, max_passes=asked.max_passes, preconditioner=preconditioner, null=null, check=asked.check, at_step=at_step
    )
    found = run.run(asked.start)
    return Solved(*returned(space, found), "lobpcg", plan.block, plan.ncv, space)


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


def _whole(
    problem: AbstractProblem, plan: EigshPlan, wanted: Wanted, null: NDArray[np.float64] | None, stack: ExitStack
) -> Solved:
    """All eigenpairs outside the null vectors, by LAPACK."""
    product, n, precision = problem.exact(stack, plan.products), problem.n, plan.problem.precision
    if null is None:
        whole = whole_pairs(product, n, wanted, precision)
        found = _of_lapack(whole.values, whole.residuals, whole.scale, wanted, whole.products)
        return Solved(found, whole.vectors, "dense", 1, n)
    z = np.linalg.svd(null, full_matrices=True)[0][:, null.shape[1] :]
    whole = whole_pairs(lambda y: z.T @ product(np.ascontiguousarray(z @ y)), z.shape[1], wanted, precision)
    v = (z @ whole.vectors).astype(precision.storage)
    residuals = _residuals(product, v.astype(np.float64), whole.values)
    off = float(_residuals(product, null, np.zeros(null.shape[1])).max())
    check_null(off, whole.values, wanted.tol * whole.scale)
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
    plan: EigshPlan,
    wanted: Wanted,
    asked: Asked,
    stack: ExitStack,
    *,
    sigma: float,
    OPinv: Any = None,
    memory_budget: int | None = None,
    at_restart: AtRestart | None = None,
) -> Solved:
    """Eigenpairs nearest sigma, by Lanczos on the inverse of ``A - sigma I``.

    Raises ``BudgetError``, ``SingularMatrixError``, ``ValueError`` and ``TypeError``.
    """
    with np.errstate(over="ignore"):
        sigma = float(np.ldexp(sigma, problem.power))
    n, product = problem.n, problem.exact(stack, plan.products)
    if plan.method == "dense":
        return _all_near(problem, product, wanted, sigma)
    matrix = None if OPinv is not None else problem.csc()
    inverse = inverse_of(
        product, n, sigma, matrix=matrix, OPinv=OPinv, memory_budget=memory_budget, which=wanted.which, power=problem.power
    )
    if matrix is not None:
        inverse, count = beside_enough(inverse, matrix, sigma, wanted)
        check_count(count, n, float(np.ldexp(sigma, -problem.power)), wanted)
    try:
        solved = _by_inverse(product, n, sigma, inverse, wanted, asked, plan.sizes, at_restart)
    except SingularMatrixError:
        if 8 * n * n > MOST_DENSE:
            raise
        return _all_near(problem, product, wanted, sigma)
    if wanted.which != "LM" and not solved.found.why_not:  # where no factor tells how many there are
        off = SIGNS[wanted.which] * (solved.found.values - sigma)
        count = int(np.count_nonzero(off >= -8 * _AT_SIGMA * (solved.found.scale + abs(sigma))))
        check_count(count, n, float(np.ldexp(sigma, -problem.power)), wanted)
    if solved.found.is_hopeless and 8 * n * n <= MOST_DENSE:
        return _all_near(problem, product, wanted, sigma)
    return solved._replace(notes=_notes(solved.found, sigma, inverse, problem.power))


def _notes(found: Found, sigma: float, inverse: Inverse, power: int) -> tuple[str, ...]:
    """That another shift was factored, and how many eigenvalues are at the caller's."""
    notes, given = [], float(np.ldexp(sigma, -power))
    if inverse.sigma != sigma:
        beside = float(np.ldexp(inverse.sigma, -power))
        notes.append(f"A - {given!r} {inverse.unit} is singular, or nearly so: the shift that was factored is {beside!r}")
    at_it = int(np.count_nonzero(np.abs(found.values - sigma) <= _AT_SIGMA * (found.scale + abs(sigma))))
    if at_it:
        what = "null vectors of A" if not sigma else f"at sigma = {given!r}"
        notes.append(f"{at_it} of these pairs {'is' if at_it == 1 else 'are'}, to roundoff, {what}")
    return tuple(notes)


def sigma_of(sigma: object, precision: Precision) -> float:
    """The shift of a caller.

    Raises ``TypeError`` and ``ValueError``.
    """
    if isinstance(sigma, bool) or not isinstance(sigma, int | float | np.integer | np.floating):
        raise TypeError(f"sigma is a {type(sigma).__name__}; give a real number")
    if not np.isfinite(sigma):
        raise ValueError(f"sigma is {sigma}; give a finite number")
    if precision != Precision.DDD:
        raise ValueError(f"with sigma all is computed in float64, but precision is {precision.value}: give precision='DDD'")
    return float(sigma)


def _by_inverse(
    product: Product,
    n: int,
    sigma: float,
    inverse: Inverse,
    wanted: Wanted,
    asked: Asked,
    sizes: Sizes,
    at_restart: AtRestart | None = None,
    null: NDArray[np.float64] | None = None,
) -> Solved:
    """Eigenpairs of A from those of an inverse, beside null vectors that are not looked for."""
    found, vectors = ShiftInvert(product, n, sigma, inverse, wanted, null).run(
        block=sizes.block,
        panels=sizes.panels,
        max_passes=asked.max_passes,
        check=asked.check,
        start=asked.start,
        at_restart=at_restart,
    )
    return Solved(found, vectors, "shift-invert", sizes.block, sizes.columns, sigma=inverse.sigma)


def solved_beside_null(
    problem: AbstractProblem, wanted: Wanted, asked: Asked, null: NDArray[np.float64], budget: int | None, stack: ExitStack
) -> Solved | None:
    """Lowest pairs outside known null vectors of a semidefinite A, by the inverse; None where a factor is large or fails."""
    if problem.n < _LEAST_ROWS or wanted.which != "SA":
        return None
    most = _most_light(budget)
    solved = solved_from_zero(problem, wanted, asked, stack, most_bytes=most, most_an_entry=_LIGHT_ENTRY, null=null)
    note = "the inverse of A took the place of LOBPCG: null vectors are known, a good preconditioner is not, the factor is small"
    return None if solved is None else solved._replace(notes=(*solved.notes, note))


def has_light_factor(matrix: csc_array | None, budget: int | None) -> bool:
    """Tell whether :func:`solved_beside_null` would factor A; False of None, whose entries are not at hand."""
    if matrix is None or not _LEAST_ROWS <= (n := matrix.shape[0]) <= MOST_ROWS:
        return False
    most = min(_most_light(budget), _LIGHT_ENTRY * matrix.nnz)
    return bool(24 * n * n <= most or factor_size(matrix).nbytes <= most)


def _most_light(budget: int | None) -> int:
    """Bytes of a factor that is made in place of LOBPCG."""
    return min(_LIGHT_FACTOR, budget or _LIGHT_FACTOR)


def solved_from_zero(
    problem: AbstractProblem,
    wanted: Wanted,
    asked: Asked,
    stack: ExitStack,
    *,
    most_bytes: int = _MOST_FACTOR,
    most_an_entry: int = _MOST_FACTOR,
    null: NDArray[np.float64] | None = None,
) -> Solved | None:
    """Pairs nearest 0 where that is an end of the spectrum, as the factor tells, by Lanczos on the inverse.

    Those of ``null`` are left out.

    None where A cannot be factored in little memory, has eigenvalues on both sides of 0 or of what is factored in its place, or
    few digits of these pairs are known.
    """
    n, which = problem.n, {"SA": "LA", "LA": "SA"}.get(wanted.which)
    sizes = sizes_of(wanted.k + INVERSE_COLUMNS, None, wanted.k, n, usual_block=HOST_BLOCK)
    if which is None or n > MOST_ROWS or sizes.columns + sizes.block > n or (matrix := problem.csc()) is None:
        return None
    near, product = replace(wanted, which=cast(Which, which)), problem.exact(stack)
    most_bytes = min(most_bytes, most_an_entry * matrix.nnz)
    scale = 0.0 if null is None else largest_of(product, n)  # where it is not known yet: at first 0 itself
    for _ in range(2):
        at = _BESIDE * scale * (1 if near.which == "SA" else -1) or 0.0
        try:
            inverse = inverse_of(product, n, at, matrix=matrix, memory_budget=most_bytes, which=near.which)
        except (BudgetError, SingularMatrixError):
            return None
        inverse, count = beside_enough(inverse, matrix, at, replace(near, k=n))
        if inverse.below is not None and not n - wanted.k <= count < n:
            break
        scale = inverse.scale
    if inverse.below is None or count < n:
        return None
    if null is not None and (null := _mended(null, inverse, product)) is None:
        return None
    # All eigenvalues are on one side of the shift that was taken, of 0 perhaps not.
    try:
        solved = _by_inverse(product, n, inverse.sigma, inverse, near, asked._replace(start=None), sizes, null=null)
    except SingularMatrixError:
        return None
    return None if solved.found.why_not or not has_digits(solved.found) else solved


def _mended(null: NDArray[np.float64], inverse: Inverse, product: Product) -> NDArray[np.float64] | None:
    """Null vectors to roundoff, from those of a caller; None where they are none."""
    found = np.linalg.qr(inverse.solve(null))[0]
    if np.linalg.svd(null.T @ found, compute_uv=False).min() < 1 - _TURNED:
        return None
    is_null = _residuals(product, found, np.zeros(found.shape[1])).max() <= _NULL * inverse.scale
    return found if is_null else None


def has_digits(found: Found) -> bool:
    """Tell whether residuals are small beside each value, or beside the largest where that is a zero."""
    sizes = np.abs(found.values)
    return bool((found.residuals <= FEW * np.maximum(sizes, _LITTLE * sizes.max())).all())


def _all_near(problem: AbstractProblem, product: Product, wanted: Wanted, sigma: float) -> Solved:
    """Wanted pairs among all eigenpairs by LAPACK."""
    whole = whole_pairs(product, problem.n, Wanted(problem.n, "LA", wanted.tol), Precision.DDD)
    check_near(sigma, whole.scale, problem.power)
    roundoff = len(whole.values) * np.finfo(np.float64).eps * whole.scale
    count = int(np.count_nonzero(SIGNS[wanted.which] * (whole.values - sigma) >= -roundoff))
    check_count(count, problem.n, float(np.ldexp(sigma, -problem.power)), wanted)
    order = nearest_order(whole.values, sigma, wanted.which, roundoff)[: wanted.k]
    found = _of_lapack(whole.values[order], whole.residuals[order], whole.scale, wanted, whole.products)
    return Solved(found, np.ascontiguousarray(whole.vectors[:, order]), "dense", 1, problem.n)
