"""The sparse matrix of the adapter for JAX, and the operations that its operators stand for."""

from __future__ import annotations

from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.sparse import BCOO, BCSR

from ooc_chol.calls.options import documented
from ooc_chol.diff import jax_primitives as primitives
from ooc_chol.diff.jax_checks import array_of, check_one_type, is_wide, panel_of
from ooc_chol.diff.jax_primitives import Structure, place
from ooc_chol.diff.pattern import Pattern


@final
class CSR:
    """A sparse matrix whose values are an array of JAX, and whose pattern is static: a pytree with one leaf.

    Parameters
    ----------
    values : (nnz,) array
        float32 or float64, in the order of the pattern. NumPy's are copied to JAX's device.
    pattern : Pattern
        Where the entries are.

    Attributes
    ----------
    values : (nnz,) jax.Array
    pattern : Pattern

    Raises
    ------
    ValueError
        The values are not as many as the entries.
    TypeError
        They are of another type; or of float64 while JAX's 64-bit types are off.

    Notes
    -----
    ``jax.grad`` of a function of a CSR is a CSR with the same pattern; optimizers that map over pytrees update it. Functions
    that ``jit`` compiles are compiled again for another pattern, not for other values.

    Examples
    --------
    >>> import jax, numpy as np, scipy.sparse
    >>> import ooc_chol.diff.jax as sparse
    >>> A = sparse.CSR.of(scipy.sparse.eye_array(3, dtype=np.float32))
    >>> jax.grad(lambda A: (A @ np.arange(3, dtype=np.float32)).sum())(
    ...     A
    ... ).values
    Array([0., 1., 2.], dtype=float32)
    """

    __slots__ = ("pattern", "values")
    #: NumPy leaves ``array @ A`` and ``array * A`` to this class.
    __array_ufunc__ = None

    def __init__(self, values: Any, pattern: Pattern) -> None:
        if not isinstance(pattern, Pattern):
            raise TypeError(f"pattern is a {type(pattern).__name__}: give an ooc_chol.diff.Pattern, or make the matrix by CSR.of")
        found = array_of(values, "values")
        if found.shape != (pattern.nnz,):
            raise ValueError(
                f"values has shape {found.shape}, but {pattern!r} has {pattern.nnz} entries: give one value for each, in order"
            )
        self.values, self.pattern = found, pattern

    @classmethod
    def of(cls, matrix: Any) -> CSR:
        """Make one of a matrix.

        Parameters
        ----------
        matrix : BCOO, BCSR, sparse or dense matrix, graph, or str
            Matrix of float32 or float64, or whole numbers in anything but JAX's own; entries that are stored stay, duplicates are
            summed. What :func:`ooc_chol.block_csr` packs will do. Gradients reach the data of a BCOO or BCSR, whose indices are
            static.

        Returns
        -------
        CSR
            The matrix.
        """
        if isinstance(matrix, BCOO | BCSR):
            return cls(*_of_jax(matrix))
        pattern, values = Pattern.of(matrix)
        return cls(values, pattern)

    @classmethod
    def of_any(cls, values: Any, pattern: Pattern) -> CSR:
        """Without a look at the values: JAX puts other things than arrays in their place."""
        made = object.__new__(cls)
        made.values, made.pattern = values, pattern
        return made

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """Entries."""
        return self.pattern.nnz

    @property
    def T(self) -> CSR:
        """The transpose."""
        return transpose(self)

    def __matmul__(self, other: Any) -> Any:
        return spgemm(self, other) if isinstance(other, CSR) else matmul(self, other)

    def __rmatmul__(self, other: Any) -> Array:
        x = array_of(other, "x")
        return matmul(self.T, x.T).T

    def __add__(self, other: Any) -> CSR:
        return add(self, other) if isinstance(other, CSR) else NotImplemented

    def __sub__(self, other: Any) -> CSR:
        return add(self, other, beta=-1.0) if isinstance(other, CSR) else NotImplemented

    def __neg__(self) -> CSR:
        return self.of_any(-self.values, self.pattern)

    def __mul__(self, factor: Any) -> CSR:
        if isinstance(factor, CSR) or jnp.ndim(factor) != 0:
            raise TypeError(
                "A matrix is multiplied by a number with *: by vectors with scale(A, rows=, columns=), by matrices with @"
            )
        return self.of_any(self.values * jnp.asarray(factor, self.dtype), self.pattern)

    __rmul__ = __mul__

    def tril(self, k: int = 0) -> CSR:
        """The entries with ``column <= row + k``."""
        return tril(self, k)

    def triu(self, k: int = 0) -> CSR:
        """The entries with ``column >= row + k``."""
        return triu(self, k)

    def diagonal(self) -> Array:
        """The diagonal, (min(shape),), 0 where there is no entry."""
        return diagonal(self)

    def row_sums(self) -> Array:
        """Sums of the rows, (n_rows,)."""
        return row_sums(self)

    def to_dense(self) -> Array:
        """The dense array, ``n_rows n_columns`` numbers, differentiable as well."""
        return place(self.values, Structure.of(self.pattern).dense).reshape(self.shape)

    def __repr__(self) -> str:
        kind = getattr(self.values, "dtype", type(self.values).__name__)
        return f"CSR({self.pattern.shape[0]} x {self.pattern.shape[1]}, {self.nnz} entries, {kind})"


jax.tree_util.register_pytree_with_keys(
    CSR,
    lambda matrix: (((jax.tree_util.GetAttrKey("values"), matrix.values),), matrix.pattern),
    lambda pattern, leaves: CSR.of_any(next(iter(leaves)), pattern),
)


def matmul(A: CSR, x: Any, *, precision: str | None = None) -> Array:
    """``A @ x`` of a sparse matrix and a dense one.

    Parameters
    ----------
    A : CSR
        (m, n).
    x : (n,) or (n, k) array
        Numbers of A's type.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64, in derivatives too; JAX's 64-bit types must be on.

    Returns
    -------
    (m,) or (m, k) array
        The product.

    Raises
    ------
    ValueError
        x has another height, or the precision is unknown.
    TypeError
        x has another type than A; or the precision needs 64-bit types that are off.

    Notes
    -----
    Derivatives: by A ``sampled(pattern, g, x)``, by x ``A.T @ g``. For them x and the values are kept, no more.
    """
    check_matrix(A)
    columns, is_vector = panel_of(x, "x", A.shape[1], A)
    found = primitives.matmul(A.values, columns, Structure.of(A.pattern), wide=is_wide(precision, A.dtype))
    return found[:, 0] if is_vector else found


def spgemm(A: CSR, B: CSR, *, precision: str | None = None) -> CSR:
    """``A @ B`` of two sparse matrices; where its entries are is found once for each pair of patterns.

    Parameters
    ----------
    A, B : CSR
        (m, n) and (n, p), of one type.
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    CSR
        Every entry that the patterns make possible; those that cancel stay.

    Raises
    ------
    ValueError, TypeError
        Shapes or types do not fit.

    Notes
    -----
    Derivatives are sums over the same triples of entries, so that they stay on the patterns of A and B.
    """
    check_matrix(A, B)
    pattern, products = Structure.of(A.pattern).times(B.pattern)
    wide = is_wide(precision, A.dtype)
    return CSR.of_any(primitives.bilinear(A.values, B.values, products, wide=wide), pattern)


def add(A: CSR, B: CSR, *, alpha: Any = 1.0, beta: Any = 1.0) -> CSR:
    """``alpha A + beta B`` on the union of both patterns; the derivatives are gathers.

    Parameters
    ----------
    A, B : CSR
        Matrices of one shape and type.
    alpha, beta : float
        Factors, which may be differentiated by.

    Returns
    -------
    CSR
        The sum; entries that cancel stay.

    Raises
    ------
    ValueError, TypeError
        Shapes or types differ.
    """
    check_matrix(A, B)
    pattern, of_a, of_b = Structure.of(A.pattern).plus(B.pattern)
    parts = place(_times(alpha, A.values), of_a), place(_times(beta, B.values), of_b)
    return CSR.of_any(parts[0] + parts[1], pattern)


def transpose(A: CSR) -> CSR:
    """``A.T``: a permutation of the values, by an order that is made once for each pattern.

    Parameters
    ----------
    A : CSR
        (m, n).

    Returns
    -------
    CSR
        (n, m).
    """
    check_matrix(A)
    return CSR.of_any(place(A.values, Structure.of(A.pattern).transposing), A.pattern.transposed)


def tril(A: CSR, k: int = 0) -> CSR:
    """The entries of A with ``column <= row + k``.

    Parameters
    ----------
    A : CSR
        (m, n).
    k : int
        How many diagonals above the main one are taken; below it where k is negative.

    Returns
    -------
    CSR
        On the part of the pattern. The derivative has all of A's pattern, with 0 elsewhere.
    """
    return part_of(A, "tril", k)


def triu(A: CSR, k: int = 0) -> CSR:
    """The entries of A with ``column >= row + k``.

    Parameters
    ----------
    A : CSR
        (m, n).
    k : int
        From which diagonal on: above the main one where k is positive.

    Returns
    -------
    CSR
        On the part of the pattern. The derivative has all of A's pattern, with 0 elsewhere.
    """
    return part_of(A, "triu", k)


@documented(like=transpose)
def diagonal(A: CSR) -> Array:
    """The diagonal of A.

    Returns
    -------
    (min(m, n),) array
        0 where it has no entry.
    """
    check_matrix(A)
    return place(A.values, Structure.of(A.pattern).diagonal)


def row_sums(A: CSR, *, precision: str | None = None) -> Array:
    """The sums of rows, ``A @ ones``.

    Parameters
    ----------
    A : CSR
        (m, n).
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    (m,) array
        The sums.
    """
    check_matrix(A)
    return matmul(A, jnp.ones(A.shape[1], A.dtype), precision=precision)


def part_of(A: CSR, kind: str, k: int) -> CSR:
    """A triangle of A."""
    check_matrix(A)
    pattern, places = Structure.of(A.pattern).part(kind, k)
    return CSR.of_any(place(A.values, places), pattern)


def _of_jax(matrix: BCOO | BCSR) -> tuple[Array, Pattern]:
    """Values, which stay connected with the data of JAX's own matrix, and their pattern."""
    if matrix.n_batch or matrix.n_dense or len(matrix.shape) != 2:
        problem = f"shape {matrix.shape}, {matrix.n_batch} axes of batches and {matrix.n_dense} dense ones"
        raise ValueError(f"the matrix has {problem}: give one of two sparse axes")
    if isinstance(matrix, BCSR):
        columns = np.asarray(matrix.indices)
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(np.asarray(matrix.indptr)))
    else:
        rows, columns = np.asarray(matrix.indices).T
    there = np.flatnonzero((rows < matrix.shape[0]) & (columns[: len(rows)] < matrix.shape[1]))  # the rest fills arrays up
    places, of_each = np.unique(rows[there].astype(np.int64) * matrix.shape[1] + columns[there], return_inverse=True)
    values = jnp.zeros(len(places), matrix.data.dtype).at[of_each].add(matrix.data[there])
    starts = np.searchsorted(places, matrix.shape[1] * np.arange(matrix.shape[0] + 1, dtype=np.int64))
    return values, Pattern(starts, places % max(1, matrix.shape[1]), matrix.shape, name="the matrix")


def _times(factor: Any, values: Array) -> Array:
    """Values times a number, in their own type."""
    if jnp.ndim(factor) != 0:
        raise ValueError(
            f"A factor of shape {jnp.shape(factor)} was given where a number is wanted: scale rows and columns by scale()"
        )
    return values if isinstance(factor, int | float) and factor == 1 else values * jnp.asarray(factor, values.dtype)


def check_matrix(A: Any, B: Any = None) -> None:
    """Refuse what is no matrix of this module, and two of different types."""
    for matrix in (A, B):
        if not isinstance(matrix, CSR) and (matrix is not None or matrix is A):
            raise TypeError(
                f"a {type(matrix).__name__} was given as a sparse matrix: give an ooc_chol.diff.jax.CSR (CSR.of makes one)"
            )
    if B is not None:
        check_one_type(A.values, "A", B.values, "B")
