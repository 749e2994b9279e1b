"""FP64 solutions with a factor of less: conjugate gradients on A, the factor as preconditioner, GMRES where they fail.

A factor in mixed precision is that of ``A + E``. Its solve is right to ``||E|| / ||A||`` only, but turns A into a matrix near the
identity, with which a few iterations reach FP64's accuracy. Each costs one reading of A and two of L, for all right-hand sides
together.

Everything here works on ``inv(S) A inv(S)``, with powers of two ``S`` that bring the diagonal near 1; such scaling is exact. In
the units of its rows a matrix may span 300 decades: sums of squares would overflow, and a residual that is small beside
``||A||_inf`` could be large in every row but one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.reading import read_ahead
from ooc_chol.dense.factor.solves import column_powers, right_hand_side
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.errors import NonFiniteError, RefinementError
from ooc_chol.formats import FP64
from ooc_chol.memory.sources import AbstractSource
from ooc_chol.process.address_space import guarded_imports
from ooc_chol.tasks.tiling import TileGrid, TileIndex

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Vectors: TypeAlias = NDArray[np.float64]
Solve: TypeAlias = Callable[[Vectors], Vectors]
Method: TypeAlias = Literal["cg", "gmres"]

#: A solution passes at a backward error of so many ``sqrt(n) u``.
BOUND_C = 4.0
#: Conjugate gradients aim at a residual so many ``u`` small, before they compute what they have reached.
_GOAL_C = 0.5
#: Iterations in which conjugate gradients have to halve their residual: it is not monotonic, far less than that of refinement.
_PATIENCE = 12
#: Vectors that GMRES keeps before it starts again.
_GMRES_VECTORS = 30


@dataclass(frozen=True)
class RefinedSolution:
    """Solutions of ``A x = b`` to FP64's accuracy, and what they took."""

    x: Vectors
    iterations: NDArray[np.intp]  #: Iterations of each right-hand side
    #: Of each the larger of the normwise backward error ``||b - A x|| / (||A|| ||x|| + ||b||)``, in maximum norms, and the same
    #: of the system whose diagonal is scaled to 1
    backward_errors: Vectors
    methods: tuple[Method, ...]  #: ``"cg"`` or ``"gmres"``, by which each was found
    #: Whether each backward error is at most ``bound``; all are, else :class:`~ooc_chol.errors.RefinementError` is raised
    converged: NDArray[np.bool_]
    bound: float  #: The backward error that is small enough, ``4 sqrt(n) u``


def refined_solve(
    source: AbstractSource, solve: Solve, b: Vectors, *, grid: TileGrid, most_iterations: int = 100
) -> RefinedSolution:
    """Solve ``A x = b`` to FP64's accuracy with a factor that is less accurate.

    Per iteration ``4 n**2 m`` flops, one reading of A and two of L; two or a few more readings of A give residuals. Holds about
    ten vectors for each right-hand side and three tiles; GMRES takes right-hand sides one by one, with 30 vectors. Carson and
    Higham (SIAM J. Sci. Comput. 40, 2018) analyse refinement by preconditioned GMRES; conjugate gradients need fewer vectors, and
    serve as long as A and ``L L.T`` are positive definite.
    """
    if source.n != grid.n:
        raise ValueError(f"the grid has order {grid.n}, but the source has order {source.n}")
    if most_iterations < 1:
        raise ValueError(f"most_iterations is {most_iterations}, but at least 1 is needed")
    b, shape = right_hand_side(b, grid.n, copy=False)
    if len(shape) != 2:
        raise ValueError(f"the right-hand sides have shape {shape}, but they must be ({grid.n}, m)")
    columns = [_Column(index) for index in range(b.shape[1])]
    x = np.zeros_like(b)
    # What diverges ends as infinity or NaN, which the checks below catch.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if occupied := [column for column in columns if b[:, column.index].any()]:
            _refine(_ScaledSystem(source, grid, solve), b, x, columns=occupied, most_iterations=most_iterations)
    return _solution(x, columns, grid.n)


@dataclass
class _Column:
    """How far one right-hand side is; a right-hand side of zeros is at its end."""

    index: int
    best: Vectors = field(default_factory=lambda: np.zeros(0))
    error: float = 0.0
    iterations: int = 0
    method: Method = "cg"
    reason: str = ""

    def offer(self, x: Vectors, error: float) -> bool:
        """Keep the best of the solutions; whether this one halves the error of all before."""
        halves = error <= self.error / 2
        if error < self.error:
            self.best, self.error = x.copy(), error
        return halves


def _bound(n: int) -> float:
    """The largest backward error that passes."""
    return BOUND_C * math.sqrt(n) * FP64.unit_roundoff


def _solution(x: Vectors, columns: list[_Column], n: int) -> RefinedSolution:
    """The result, unless a column failed."""
    bound = _bound(n)
    errors = np.array([column.error for column in columns])
    worst = max(columns, key=lambda column: column.error, default=None)
    if worst is not None and worst.error > bound:
        raise RefinementError(worst.index, worst.error, bound, worst.iterations, worst.reason, x)
    iterations = np.array([column.iterations for column in columns], dtype=np.intp)
    return RefinedSolution(
        x,
        iterations=iterations,
        backward_errors=errors,
        methods=tuple(column.method for column in columns),
        converged=errors <= bound,
        bound=bound,
    )


def _refine(system: _ScaledSystem, b: Vectors, x: Vectors, *, columns: list[_Column], most_iterations: int) -> None:
    """Conjugate gradients for all columns together, then GMRES for those that need it; fills columns of ``x``."""
    chosen = [column.index for column in columns]
    # squares of right-hand sides far from 1 would over- or underflow
    sizes = column_powers(b[:, chosen], system.powers)
    scaled = np.ldexp(b[:, chosen], -sizes - system.powers[:, None])
    start = system.solve(scaled)
    tasks = []
    for k, column in enumerate(columns):
        column.best = start[:, k].copy() if np.isfinite(start[:, k]).all() else np.zeros(len(b))
        column.error = math.inf
        tasks.append(_conjugate_gradients(system, column, np.ascontiguousarray(scaled[:, k]), most_iterations))
    _advance_together(system, tasks)
    for k, column in enumerate(columns):
        if column.error > _bound(len(b)):
            _restarted_gmres(system, column, scaled[:, k], most_iterations)
        x[:, column.index] = np.ldexp(column.best, sizes[k] - system.powers)


class _Request(NamedTuple):
    """Next need of a column: the product of A and a vector, or the solution of ``L L.T z = vector``."""

    kind: Literal["product", "solution"]
    vector: Vectors


def _advance_together(system: _ScaledSystem, tasks: list[Generator[_Request, Vectors, None]]) -> None:
    """Run columns to their ends; what several of them need at a time is computed at once, each tile being read once for all."""
    requests = {k: next(task) for k, task in enumerate(tasks)}
    while requests:
        # 1. Products for all that wait for one. 2. Solutions, also for those that step 1 brought so far.
        for kind, compute in (("product", system.multiply), ("solution", system.solve)):
            waiting = [k for k, request in requests.items() if request.kind == kind]
            if not waiting:
                continue
            results = compute(np.stack([requests.pop(k).vector for k in waiting], axis=1))
            for position, k in enumerate(waiting):
                request = _resume(tasks[k], np.ascontiguousarray(results[:, position]))
                if request is not None:
                    requests[k] = request


def _resume(task: Generator[_Request, Vectors, None], result: Vectors) -> _Request | None:
    """Hand over what the column waited for; what it needs next, or None at its end."""
    try:
        return task.send(result)
    except StopIteration:
        return None


def _conjugate_gradients(
    system: _ScaledSystem, column: _Column, b: Vectors, most_iterations: int
) -> Generator[_Request, Vectors, None]:
    """Improve ``column.best`` until its error is below the bound, or conjugate gradients fail for it.

    The residual of the recurrence drifts away from ``b - A x``: that is computed at the end of each cycle, and is the next one's
    first.
    """
    bound, x = _bound(len(b)), column.best.copy()
    while True:
        r = b - (yield _Request("product", x))
        halved = column.offer(x, system.backward_error(x, r, b))
        if column.error <= bound or column.reason:
            return
        if column.iterations >= most_iterations:
            column.reason = _used_up(most_iterations)
            return
        if not halved:
            column.reason = "conjugate gradients no longer halve the residual"
            return
        yield from _cycle(system, column, b=b, x=x, r=r, most_iterations=most_iterations)


def _cycle(
    system: _ScaledSystem, column: _Column, *, b: Vectors, x: Vectors, r: Vectors, most_iterations: int
) -> Generator[_Request, Vectors, None]:
    """Conjugate gradients from ``x``, which changes in place as its residual ``r`` does."""
    goal = _GOAL_C * FP64.unit_roundoff
    least, patience = math.inf, _PATIENCE
    z = yield _Request("solution", r)
    p, product = z, float(r @ z)
    while True:
        q = yield _Request("product", p)
        curvature = float(p @ q)
        column.iterations += 1
        if not (0.0 < curvature < math.inf and 0.0 < product < math.inf):
            column.reason = "conjugate gradients met a direction without positive curvature"
            return
        step = product / curvature
        x += step * p
        r -= step * q
        error = system.backward_error(x, r, b)
        least, patience = (error, _PATIENCE) if error <= least / 2 else (least, patience - 1)
        if error <= goal or patience == 0 or column.iterations >= most_iterations:
            return
        z = yield _Request("solution", r)
        product, before = float(r @ z), product
        p = z + (product / before) * p


def _restarted_gmres(system: _ScaledSystem, column: _Column, b: Vectors, most_iterations: int) -> None:
    """Improve ``column.best`` by GMRES until its error is below the bound, or a cycle no longer halves it."""
    with guarded_imports():
        from scipy.sparse.linalg import LinearOperator  # 35 ms that importing this package need not take

    n, bound = len(b), _bound(len(b))

    def operator(function: Solve) -> LinearOperator:
        return LinearOperator((n, n), matvec=lambda v: function(v.reshape(n, 1)).reshape(n), dtype=np.float64)

    a, inverse = operator(system.multiply), operator(system.solve)
    r = b - a.matvec(column.best)
    while column.error > bound and column.iterations < most_iterations:
        column.method = "gmres"
        vectors = min(_GMRES_VECTORS, most_iterations - column.iterations, n)
        step, taken = _gmres_cycle(
            a, inverse, r, residual=system.residual_at(_GOAL_C * FP64.unit_roundoff, column.best, b), vectors=vectors
        )
        column.iterations += taken
        x = column.best + step
        if not np.isfinite(x).all():
            column.reason = "neither conjugate gradients nor GMRES stay finite"
            return
        r = b - a.matvec(x)
        if not column.offer(x, system.backward_error(x, r, b)) and column.error > bound:
            column.reason = "neither conjugate gradients nor GMRES halve the residual"
            return
    if column.error > bound:
        column.reason = _used_up(most_iterations)


def _gmres_cycle(a: LinearOperator, inverse: LinearOperator, r: Vectors, *, residual: float, vectors: int) -> tuple[Vectors, int]:
    """``A step = r`` by one cycle of SciPy's GMRES, and its iterations."""
    with guarded_imports():
        from scipy.sparse.linalg import gmres

    norms: list[float] = []
    step, _ = gmres(
        a, r, rtol=0.0, atol=residual, restart=vectors, maxiter=1, M=inverse, callback=norms.append, callback_type="pr_norm"
    )
    return step, len(norms)


def _used_up(most_iterations: int) -> str:
    return f"most_iterations={most_iterations} is used up"


class _ScaledSystem:
    """``inv(S) A inv(S)`` and ``S inv(L L.T) S``, with powers of two ``S_ii`` near ``sqrt(A_ii)``.

    The first product measures the norms of A, which :meth:`backward_error` needs, in the same reading.
    """

    def __init__(self, source: AbstractSource, grid: TileGrid, solve: Solve) -> None:
        self._source = source
        self._grid = grid
        self._solve = solve
        self.powers = _powers(source, grid)
        self._norms: tuple[float, float] | None = None

    def solve(self, r: Vectors) -> Vectors:
        """Apply the preconditioner to an (n, k) array."""
        powers = self.powers[:, None]
        return np.ldexp(self._solve(np.ldexp(r, powers)), powers)

    def multiply(self, v: Vectors) -> Vectors:
        """Multiply by the scaled matrix, each tile of A being read once: ``y[i] += A[i, j] x[j]`` and its mirror image."""
        powers = self.powers[:, None]
        x = np.ldexp(v, -powers)
        y = np.zeros_like(x)
        # Row sums of |A| and of |A| inv(S): these give the norms of both matrices.
        ones = None if self._norms else np.ldexp(1.0, -np.outer(self.powers, [0, 1]))
        sums = np.zeros((len(x), 2))
        with closing(read_ahead(SourceTier(self._source, self._grid), list(self._grid.tiles()))) as tiles:
            for index, a_ij in tiles:
                _add_product(self._grid, index, a_ij, x=x, y=y)
                if ones is not None:
                    check_finite(self._grid, index, a_ij)
                    _add_product(self._grid, index, np.abs(a_ij), x=ones, y=sums)
        if ones is not None:
            self._norms = float(sums[:, 0].max()), float(np.ldexp(sums[:, 1], -self.powers).max())
        return np.ldexp(y, -powers, out=y)

    def backward_error(self, x: Vectors, r: Vectors, b: Vectors) -> float:
        """The larger of the normwise backward errors of the scaled ``x`` and of that of ``A x = b``; infinite for what is not."""
        assert self._norms is not None  # there is no residual before a product
        norm, scaled_norm = self._norms
        b_unscaled, r_unscaled = (np.ldexp(v, self.powers) for v in (b, r))
        errors = (
            _normwise(_largest(r), scaled_norm, _largest(x), _largest(b)),
            _normwise(_largest(r_unscaled), norm, _largest(np.ldexp(x, -self.powers)), _largest(b_unscaled)),
        )
        worst = max(errors)
        return math.inf if math.isnan(sum(errors)) else worst

    def residual_at(self, error: float, x: Vectors, b: Vectors) -> float:
        """The residual of the scaled system at which ``x`` has the backward error ``error``."""
        assert self._norms is not None  # there is no residual before a product
        return error * (self._norms[1] * _largest(x) + _largest(b))


def _largest(v: Vectors) -> float:
    return float(np.abs(v).max())


def _normwise(r: float, a: float, x: float, b: float) -> float:
    """``r / (a x + b)``, divided by ``a`` first: ``a x`` may overflow."""
    return (r / a) / (x + b / a) if a > 0.0 else r / b


def _powers(source: AbstractSource, grid: TileGrid) -> NDArray[np.intc]:
    """Exponents of S: ``2**-p_i sqrt(|A_ii|)`` lies in [1/2, 1); 0 where the diagonal is."""
    diagonal = np.empty(grid.n)
    for k in range(grid.nt):
        tile, span = np.empty(grid.shape(k, k)), grid.span(k)
        _read(source, span, span, tile)
        check_finite(grid, TileIndex(k, k), tile)
        diagonal[span.start : span.stop] = tile.diagonal()
    powers: NDArray[np.intc] = np.frexp(np.sqrt(np.abs(diagonal)))[1]
    return powers


def _read(source: AbstractSource, rows: range, cols: range, out: Vectors) -> None:
    """The first reading, which tells sources of CUDA devices from those of the host."""
    try:
        source.read_block(rows, cols, out)
    except TypeError as error:
        if source.bytes_per_entry != 0:
            raise
        raise TypeError(
            f"refining a solution multiplies by A on the host, but its tiles cannot be generated there ({error}); give "
            "from_function a host function beside cuda=, or factor in FP64 and solve without refining"
        ) from error


def _add_product(grid: TileGrid, index: TileIndex, a_ij: Vectors, *, x: Vectors, y: Vectors) -> None:
    """``y[i] += A[i, j] @ x[j]`` and ``y[j] += A[i, j].T @ x[i]``; of a diagonal tile only the lower triangle is read."""
    rows, cols = (slice(span.start, span.stop) for span in (grid.span(index.i), grid.span(index.j)))
    if index.i == index.j:
        a_ij = np.tril(a_ij)
    y[rows] += a_ij @ x[cols]
    if index.i == index.j:
        np.fill_diagonal(a_ij, 0.0)
    y[cols] += a_ij.T @ x[rows]


def check_finite(grid: TileGrid, index: TileIndex, a_ij: Vectors) -> None:
    """Refuse a NaN or an infinity in the lower triangle."""
    finite = np.isfinite(a_ij)
    if index.i == index.j:
        finite |= ~np.tri(len(a_ij), dtype=bool)
    if not finite.all():
        row, col = (int(place) for place in np.argwhere(~finite)[0])
        raise NonFiniteError(grid.start(index.i) + row, grid.start(index.j) + col, (index.i, index.j))
