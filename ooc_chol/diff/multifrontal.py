"""Sparse Cholesky factorizations, selected inverses and their derivatives, front by front in batches.

Numbers are polynomials in e_1, ..., e_k with e_i**2 = 0: ``A + e_1 G_1 + ... + e_k G_k``. So the last coefficient of a result is
its derivative in the directions G. The first axis of an array are the 2**k coefficients: that of place S has e_i where bit i of S
is set. With k = 0 these are plain numbers, and no work is added.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from ooc_chol.diff.fronts import Batch, Fronts
from ooc_chol.diff.memory import current, is_cupy, module_of
from ooc_chol.errors import NotPositiveDefiniteError

#: Numbers of float64, of NumPy or of CuPy.
Numbers: TypeAlias = Any

_UNIT = float(np.finfo(np.float64).eps) / 2


class NotPositiveDefiniteRowError(NotPositiveDefiniteError):
    """The pivot of a row of a sparse matrix is not positive, or a rounding error; ``minor`` counts rows as they went."""

    def __init__(self, minor: int, row: int, pivot: float) -> None:
        super().__init__(minor, (0, 0))
        self.row = row
        self.pivot = pivot
        self.args = (
            f"the matrix is not positive definite: of A[{row}, {row}], counted from zero, {pivot:.3g} is left as the pivot after "
            f"{minor - 1} other rows are eliminated; check the signs of row {row}, or add to the diagonal",
        )

    def __reduce__(self) -> tuple[type, tuple[int, int, float]]:
        return type(self), (self.minor, self.row, self.pivot)


class Eliminated(NamedTuple):
    """Eliminated columns of the fronts of a batch."""

    lower: Numbers  #: (2**k, count, width + rest, width) of L
    inverse: Numbers  #: (2**k, count, width, width) of its triangle

    @property
    def below(self) -> Numbers:
        """Rows of L below the triangle."""
        return self.lower[:, :, self.inverse.shape[-1] :]


def jets(values: Numbers, *directions: Numbers) -> Numbers:
    """``A + e_1 G_1 + ...``, (2**k, nnz)."""
    with current(values):
        found = module_of(values).zeros((1 << len(directions), values.size))
        found[0] = values
        for i, direction in enumerate(directions):
            found[1 << i] = direction
    return found


def factored(fronts: Fronts, values: Numbers) -> list[Eliminated]:
    """L of a symmetric matrix, where its values are. Shapes: ``values`` (2**k, nnz). Raises ``NotPositiveDefiniteRowError``."""
    with current(values):
        return _factored(fronts, values)


def _factored(fronts: Fronts, values: Numbers) -> list[Eliminated]:
    done: list[Eliminated] = []
    left: dict[int, Numbers] = {}
    xp, batches = module_of(values), fronts.on(values)
    add, triangles = np.add.at, _triangles_of
    if is_cupy(values):
        add, triangles = _add_turn, import_module("ooc_chol.kernels.cuda.batch").triangles_of
    diagonal = _diagonal(fronts, values[0])
    for number, batch in enumerate(batches):
        w, edge = batch.width, batch.edge
        front = xp.zeros((len(values), batch.count, edge, edge))
        for coefficient, numbers in zip(front, values, strict=True):
            coefficient.reshape(-1)[batch.at] = numbers[batch.entries]
        own = xp.arange(w)
        front[0][:, own, own] += batch.columns < 0
        for link in batch.links:
            at = (link.parents[:, None, None] * edge + link.places[:, :, None]) * edge + link.places[:, None, :]
            for coefficient, child in zip(front, left[link.child], strict=True):
                add(coefficient.reshape(-1), at.reshape(-1), child[link.children].reshape(-1))
        for child in {link.child for link in batch.links}:
            if batches[child].parent == number:
                del left[child]
        triangle, inverse = _cholesky(front[:, :, :w, :w], fronts.batches[number], batch, diagonal, triangles)
        below = product(front[:, :, w:-1, :w], transposed(inverse))
        if batch.parent >= 0:
            left[number] = front[:, :, w:-1, w:-1] - product(below, transposed(below))
        done.append(Eliminated(np.concatenate([triangle, below], axis=2), inverse))
    return done


def _add_turn(numbers: Numbers, at: Any, more: Numbers) -> None:
    """Add to places, of which only those that nobody reads are there twice: in a fixed order, without atomic operations."""
    numbers[at] += more


def log_determinant(done: list[Eliminated], values: Numbers) -> Numbers:
    """The logarithm of the determinant of A, () in the memory of its values."""
    with current(values):
        halves = (np.log(np.diagonal(each.lower[0], axis1=1, axis2=2)).sum() for each in done)
        return module_of(values).asarray(2.0 * sum(halves, start=0.0))


def selected_inverse_of(fronts: Fronts, done: list[Eliminated]) -> Numbers:
    """The last coefficient of the inverse at the entries of A, by the recurrence of Takahashi et al. (1973)."""

    def inverses(batch: Batch, each: Eliminated, rest: Numbers) -> tuple[Numbers, Numbers]:
        across = product(each.below, each.inverse)
        below = -product(rest, across)
        return product(transposed(each.inverse), each.inverse) - product(transposed(across), below), below

    return _from_the_root(fronts, done, inverses)


def pulled_factor(fronts: Fronts, done: list[Eliminated], cotangent: Numbers) -> Numbers:
    """The last coefficient of the cotangent of A for one of L, by Smith (1995). Shapes: ``cotangent`` (factor_size,)."""
    ends = np.cumsum([each.lower[0].size for each in done])
    parts = {id(each): cotangent[end - each.lower[0].size : end] for each, end in zip(done, ends.tolist(), strict=True)}

    def pulled(batch: Batch, each: Eliminated, rest: Numbers) -> tuple[Numbers, Numbers]:
        w = batch.width
        given = np.zeros_like(each.lower)
        given[0] = parts[id(each)].reshape(given.shape[1:])
        below = product(given[:, :, w:] - 2 * product(rest, each.below), each.inverse)
        triangle = _lower(
            product(transposed(each.lower[:, :, :w]), _lower(given[:, :, :w] - product(transposed(below), each.below)))
        )
        triangle = _halved(triangle)
        symmetric = triangle + transposed(triangle)
        return product(product(transposed(each.inverse), symmetric), each.inverse) / 2, below / 2

    return _from_the_root(fronts, done, pulled)


def _from_the_root(fronts: Fronts, done: list[Eliminated], columns_of: Any) -> Numbers:
    """Make symmetric fronts, parents first, each of what its parent has of its rest; return what stands at the entries of A."""
    if not done:
        return np.zeros(fronts.nnz)
    with current(done[0].lower):
        return _made_from_the_root(fronts, done, columns_of)


def _made_from_the_root(fronts: Fronts, done: list[Eliminated], columns_of: Any) -> Numbers:
    xp, batches = module_of(done[0].lower), fronts.on(done[0].lower)
    found = xp.zeros(fronts.nnz)
    rests: dict[int, Numbers] = {}
    for number in range(len(batches) - 1, -1, -1):
        batch, each = batches[number], done[number]
        w, edge = batch.width, batch.edge
        front = xp.zeros((len(each.lower), batch.count, edge, edge))
        if batch.rest:
            front[:, :, w:-1, w:-1] = rests.pop(number)
        triangle, below = columns_of(batch, each, front[:, :, w:-1, w:-1])
        front[:, :, :w, :w], front[:, :, w:-1, :w], front[:, :, :w, w:-1] = triangle, below, transposed(below)
        found[batch.entries] = front[-1].reshape(-1)[batch.at]
        for link in batch.links:
            child = batches[link.child]
            if child.rest:
                at = (link.parents[:, None, None] * edge + link.places[:, :, None]) * edge + link.places[:, None, :]
                if link.child not in rests:
                    rests[link.child] = xp.zeros((len(front), child.count, child.rest, child.rest))
                for coefficient, into in zip(front, rests[link.child], strict=True):
                    into[link.children] = coefficient.reshape(-1)[at]
    return found


# ----------------------------------------------------------------------------------------------------- arithmetic of coefficients


def product(a: Numbers, b: Numbers) -> Numbers:
    """``a @ b``."""
    if len(a) == 1:
        return np.matmul(a, b)
    half = len(a) // 2
    return np.concatenate([product(a[:half], b[:half]), product(a[:half], b[half:]) + product(a[half:], b[:half])])


def transposed(a: Numbers) -> Numbers:
    """``a.T`` of every matrix."""
    return a.swapaxes(-1, -2)


def _cholesky(a: Numbers, batch: Batch, there: Batch, diagonal: Numbers, triangles: Any) -> tuple[Numbers, Numbers]:
    """L of symmetric matrices, whose upper triangles are not read, and its inverse; ``there`` is the batch in their memory."""
    if len(a) > 1:
        half = len(a) // 2
        lower, inverse = _cholesky(a[:half], batch, there, diagonal, triangles)
        change = np.tril(a[half:])
        change = change + transposed(np.tril(change, -1))
        more = product(lower, _halved(_lower(product(product(inverse, change), transposed(inverse)))))
        return np.concatenate([lower, more]), np.concatenate([inverse, -product(product(inverse, more), inverse)])
    lower, inverse, failed = triangles(np.tril(a[0]))
    if failed is not None:
        front, column = failed
        matrix = a[0, front]
        _refuse(matrix.get() if is_cupy(matrix) else matrix, batch, front, column)
    _check_pivots(lower, batch, there, diagonal)
    return lower[None], inverse[None]


def _triangles_of(lower: Numbers) -> tuple[Numbers, Numbers, tuple[int, int] | None]:
    """L in place of lower triangles, its inverse, and which matrix has no positive pivot in which column."""
    inverse = np.empty_like(lower)
    for i, matrix in enumerate(lower):
        *_, info = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)  # a row of NumPy's is a column of LAPACK's
        if info:
            return lower, inverse, (i, int(info) - 1)
        inverse[i] = matrix
        dtrtri(inverse[i].T, lower=0, overwrite_c=1)
    return lower, inverse, None


def _lower(a: Numbers) -> Numbers:
    return np.tril(a)


def _halved(a: Numbers) -> Numbers:
    """Matrices with half their diagonals."""
    at = module_of(a).arange(a.shape[-1])
    a[..., at, at] /= 2
    return a


# -------------------------------------------------------------------------------------------------------------------- refusals


def _diagonal(fronts: Fronts, values: Numbers) -> Numbers:
    """The diagonal of A, and a 0 for padding."""
    diagonal = module_of(values).zeros(fronts.n + 1)
    for batch in fronts.on(values):
        row = batch.at // batch.edge % batch.edge
        own = np.flatnonzero(row == batch.at % batch.edge)
        diagonal[batch.columns[batch.at[own] // batch.edge**2, row[own]]] = values[batch.entries[own]]
    diagonal[-1] = 0.0
    return diagonal


def _check_pivots(lower: Numbers, batch: Batch, there: Batch, diagonal: Numbers) -> None:
    """Refuse pivots that are rounding errors of what was subtracted."""
    pivots = np.diagonal(lower, axis1=1, axis2=2) ** 2
    least = max(64.0, np.sqrt(diagonal.size)) * _UNIT
    wrong = ~(pivots > least * diagonal[there.columns])  # NaN, too: sums of finite numbers may be none
    if bool(wrong.any()):
        front, column = np.argwhere(wrong)[0].tolist()
        raise _error(batch, int(front), int(column), float(pivots[front, column]))


def _refuse(a: Numbers, batch: Batch, front: int, column: int) -> None:
    """Name the pivot that is not positive."""
    lower = np.linalg.cholesky(a[:column, :column])
    reach = np.linalg.solve(lower, a[column, :column])
    raise _error(batch, front, column, float(a[column, column] - reach @ reach))


def _error(batch: Batch, front: int, column: int, pivot: float) -> NotPositiveDefiniteRowError:
    return NotPositiveDefiniteRowError(int(batch.first[front]) + column + 1, int(batch.columns[front, column]), pivot)
