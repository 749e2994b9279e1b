"""Direct solves on the host: SuperLU, pivots, scaled rows and columns, and solutions that are refined where they must be."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.sparse.linalg import SuperLU, splu

from ooc_chol.diff import primitives
from ooc_chol.diff.dependent_columns import depends, singular, smallest_pivot
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.scaling import has_zero_line, norms_of, scaled, scales_of
from ooc_chol.eigen.factor_size import elimination_order
from ooc_chol.process.fork_safety import new_lock

Vectors = NDArray[np.float64]

#: Backward error that is aimed at, and steps of refinement towards it.
_GOAL, _STEPS = 1e-15, 3
#: Backward error of a solution beyond which pivots have to be chosen more carefully.
_MOST_BACKWARD = 1e-10
#: Condition number, after scaling, beyond which nothing of a solution is right.
_MOST_CONDITION = 1e15
_SEED = 5
_MOST_ENTRIES = np.iinfo(np.int32).max


class Ordering(NamedTuple):
    """In which order SuperLU eliminates, and how small pivots may be."""

    spec: str
    threshold: float  #: How small a pivot on the diagonal may be beside others of its column
    on_diagonal: bool  #: Whether rows are ordered as columns are, and pivots looked for on the diagonal first


_GENERAL = Ordering("COLAMD", 1.0, False)
_ORDERINGS = {
    None: (_GENERAL,),
    "symmetric": (Ordering("MMD_AT_PLUS_A", 0.1, True), _GENERAL),
    "spd": (Ordering("MMD_AT_PLUS_A", 0.0, True), _GENERAL),
}


class _Arranged(NamedTuple):
    """A pattern by columns, perhaps in another order: ``values[places]`` are the values of its matrix."""

    places: NDArray[Any]
    rows: NDArray[np.int32]
    starts: NDArray[np.int32]
    order: NDArray[np.intp] | None = None  #: Which column of A each is, and which row where rows are ordered, too


class _Factored(NamedTuple):
    """Factors of a matrix whose columns, or rows and columns, are in some order."""

    factor: SuperLU
    matrix: csc_array
    ordering: Ordering
    order: NDArray[np.intp] | None

    def solve(self, b: Vectors, trans: bool) -> Vectors:
        """Solve with the matrix in its own order, or with the transpose."""
        order, on_diagonal = self.order, self.ordering.on_diagonal
        if order is None:
            return np.asarray(self.factor.solve(b, "T" if trans else "N"))
        y = np.asarray(self.factor.solve(b[order] if trans or on_diagonal else b, "T" if trans else "N"))
        if trans and not on_diagonal:
            return y
        x = np.empty_like(y)
        x[order] = y
        return x


@final
class HostSymbolic:
    """Part of SuperLU's work that depends on the pattern alone: the order of elimination, and where values go."""

    def __init__(self, pattern: Pattern) -> None:
        if pattern.nnz > _MOST_ENTRIES:
            raise ValueError(f"{pattern.name} has {pattern.nnz} entries, but SuperLU counts them in int32, up to {_MOST_ENTRIES}")
        self.pattern = pattern
        other = pattern.transposed
        self._natural = _Arranged(pattern.transposing, other.indices, other.indptr.astype(np.int32, copy=False))
        self._orders: dict[Ordering, NDArray[np.intp]] = {}
        self._arranged: dict[Ordering, _Arranged] = {}
        self._lock = new_lock()

    def factored(self, values: Vectors, ordering: Ordering) -> _Factored:
        """SuperLU's factors of the matrix, in an order that is found at the first time and taken again afterwards.

        Factors in an order that SuperLU finds, and in the same that it is given, have the same bits where rows stay as they are.
        Where rows are ordered, too, the order is found before the first.
        """
        with self._lock:
            arranged = self._of(ordering)
        known = arranged.order is not None
        matrix = self._matrix(values, arranged)
        options = {"diag_pivot_thresh": ordering.threshold, "options": {"SymmetricMode": ordering.on_diagonal}}
        factor = splu(matrix, permc_spec="NATURAL" if known else ordering.spec, **options)
        if not known:
            with self._lock:
                self._orders.setdefault(ordering, np.argsort(factor.perm_c))
        return _Factored(factor, matrix, ordering, arranged.order)

    def by_columns(self, values: Vectors) -> csc_array:
        """The matrix, columns as they are."""
        return self._matrix(values, self._natural)

    def _matrix(self, values: Vectors, arranged: _Arranged) -> csc_array:
        return csc_array((values[arranged.places], arranged.rows, arranged.starts), shape=self.pattern.shape)

    def _of(self, ordering: Ordering) -> _Arranged:
        """The pattern in the order of an ordering, or as it is where SuperLU is to find that."""
        if ordering not in self._orders:
            if not ordering.on_diagonal:
                return self._natural
            places, rows, starts, _ = self._natural
            self._orders[ordering] = elimination_order(csc_array((np.ones(places.size), rows, starts), shape=self.pattern.shape))
        if ordering not in self._arranged:
            order = self._orders[ordering]
            places, rows, starts, _ = self._natural
            numbers = csc_array((np.arange(places.size), rows, starts), shape=self.pattern.shape)
            moved = numbers[order][:, order] if ordering.on_diagonal else numbers[:, order]
            moved.sort_indices()
            self._arranged[ordering] = _Arranged(
                places[moved.data], moved.indices.astype(np.int32, copy=False), moved.indptr.astype(np.int32, copy=False), order
            )
        return self._arranged[ordering]


@final
class HostSolver:
    """SuperLU's factors of one matrix, and what refines their solutions.

    Shapes: ``values`` (nnz,). Rows and columns are scaled by powers of two where their largest entries differ by more than 2**10
    (Curtis and Reid 1972), so that a row in other units is not taken for a dependent one. A solution whose normwise backward
    error is above 1e-15, with or without scales, is refined, up to three times (Higham 2002, chapter 12). Pivots are taken from
    the diagonal for what is told to be symmetric; where they turn out too small for that, the matrix is factored as a general
    one, and ``words`` says so. Raises ``SingularMatrixError`` and ``MemoryError``.
    """

    method = "superlu"

    def __init__(self, symbolic: HostSymbolic, values: Vectors, assume: str | None) -> None:
        self._symbolic, self._values, self._pattern = symbolic, values, symbolic.pattern
        if has_zero_line(self._pattern, values):
            raise singular(self._pattern.matrix_name, symbolic.by_columns(values))
        self._scales = scales_of(self._pattern, values)
        self._transposed: Vectors | None = None
        moved = scaled(self._pattern, values, self._scales)
        self._norms = [norms_of(self._pattern, values)]
        if self._scales is not None:
            self._norms.append(norms_of(self._pattern, moved))
        self._factored = self._pivoted(moved, assume)
        self.words = _words(self._factored.ordering, assume)

    def solve(self, b: Vectors, trans: bool) -> Vectors:
        """Solve ``A x = b`` for (n,) or (n, k) right-hand sides, or with the transpose of A."""
        x = self._once(b, trans)
        residual = b - self._times(x, trans)
        error = self._backward_error(residual, x, b, trans)
        for _ in range(_STEPS):
            if not error > _GOAL:
                break
            refined = x + self._once(residual, trans)
            left = b - self._times(refined, trans)
            smaller = self._backward_error(left, refined, b, trans)
            if not smaller < error:
                break
            x, residual, error = refined, left, smaller
        return x

    # factoring

    def _pivoted(self, values: Vectors, assume: str | None) -> _Factored:
        """Factors whose solutions are good, pivots on the diagonal where they can be."""
        for ordering in _ORDERINGS[assume]:
            last = ordering is _GENERAL
            try:
                found = self._symbolic.factored(values, ordering)
            except RuntimeError as error:  # a pivot that is exactly 0; elsewhere than on the diagonal there may be others
                if last:
                    raise singular(self._pattern.matrix_name, self._symbolic.by_columns(values)) from error
                continue
            except MemoryError as error:
                self._no_memory(error)
            if self._is_good(found, values, last):
                return found
        raise AssertionError("the last ordering is taken whatever its backward error")

    def _is_good(self, found: _Factored, values: Vectors, last: bool) -> bool:
        """Tell whether a solution has a small backward error; then, and with the last ordering, singular matrices are refused."""
        norms, size = self._norms[-1], np.sqrt(self._pattern.n_rows)
        b = np.random.default_rng(_SEED).uniform(-1.0, 1.0, self._pattern.n_rows)
        with np.errstate(over="ignore", invalid="ignore"):
            x = found.solve(b, False)
            residual = b - primitives.matmul(self._pattern, values, x)
            error = np.abs(residual).max() / (norms.infinity * np.abs(x).max() + 1.0)
            if not (error <= _MOST_BACKWARD or last):
                return False
            # Inverse iteration with A.T A: the length of the second solution is about one over the least singular value.
            length = float(np.linalg.norm(x))
            inverse = float(np.linalg.norm(found.solve(x / length, True))) if np.isfinite(length) else np.inf
            condition = max(inverse, length / size) * np.sqrt(norms.infinity) * np.sqrt(norms.one)
        if not condition <= _MOST_CONDITION:
            column, pivot = smallest_pivot(found.factor, found.matrix)
            column = column if found.order is None else int(found.order[column])
            raise depends(self._pattern.matrix_name, column, pivot, float(condition))
        return True

    # solving

    def _once(self, b: Vectors, trans: bool) -> Vectors:
        """A solution as the factors give it."""
        if self._scales is None:
            return self._factored.solve(b, trans)
        before, after = self._scales if not trans else self._scales[::-1]
        return (self._factored.solve((b.T * before).T, trans).T * after).T

    def _times(self, x: Vectors, trans: bool) -> Vectors:
        """The product with A, or with its transpose."""
        if not trans:
            return np.asarray(primitives.matmul(self._pattern, self._values, x))
        if self._transposed is None:
            self._transposed = self._values[self._pattern.transposing]
        return np.asarray(primitives.matmul(self._pattern.transposed, self._transposed, x))

    def _backward_error(self, residual: Vectors, x: Vectors, b: Vectors, trans: bool) -> float:
        """Normwise, the largest of all right-hand sides, without scales and with them."""
        arrays = [(residual, x, b)]
        if self._scales is not None:
            before, after = self._scales if not trans else self._scales[::-1]
            arrays.append(((residual.T * before).T, (x.T / after).T, (b.T * before).T))
        errors = []
        for norms, parts in zip(self._norms, arrays, strict=True):
            left, solution, right = (np.abs(part).max(axis=0, initial=0.0) for part in parts)
            most = (norms.one if trans else norms.infinity) * solution + right
            errors.append(np.max(np.divide(left, most, out=np.zeros_like(left * 1.0), where=most > 0), initial=0.0))
        return float(max(errors))

    def _no_memory(self, error: MemoryError) -> NoReturn:
        raise MemoryError(
            f"there is no memory for SuperLU's factors of {self._pattern.name} ({self._pattern!r}); tell assume='spd' where it "
            "holds, which has less fill, or solve by iterations"
        ) from error


def _words(ordering: Ordering, assume: str | None) -> str:
    """How was factored."""
    told = f"SuperLU, {ordering.spec}"
    if ordering.on_diagonal:
        return f"{told}, pivots on the diagonal"
    return f"{told}, partial pivoting" + (f" (pivots on the diagonal were too small for assume={assume!r})" if assume else "")
