"""A packed matrix with diagonals around it: Laplacians and normalized adjacencies without a second matrix."""

from __future__ import annotations

from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.calls.options import checked_flag
from ooc_chol.files.inputs import plain_array
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.pack import block_csr

#: What stands for the identity on either side.
_ONE, _NONE = 1.0, 0.0


@final
class Operator:
    """``Y = shift X + left (A (right X))``: a packed matrix, scaled by diagonals, and a diagonal added to it.

    The diagonals are applied within the product and never multiplied into A: the Laplacian of an unweighted graph keeps its four
    bytes an entry.

    Parameters
    ----------
    matrix : BlockCSR
        The matrix A. The operator does not own it: who packed it closes it.
    left : float or (n_rows,) array_like, optional
        One number, or one for each row, by which products are multiplied.
    right : (n_columns,) array_like, optional
        One number for each row of X, by which it is multiplied first; none (default) leaves X as it is.
    shift : float or (n,) array_like, optional
        Diagonal that is added: a multiple of X, or one number for each row.

    Raises
    ------
    ValueError
        A diagonal has another length than the matrix has rows or columns, holds a NaN or an infinity, or there is a shift
        although the matrix is not square.
    TypeError
        The matrix is not packed, or a diagonal is complex, or holds no numbers.

    Notes
    -----
    Diagonals are float64 numbers whatever the precision of a product: ``shift x + left s`` is computed in float64 from the sum s
    of a row, and rounded once.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import ooc_chol as oc
    >>> path = scipy.sparse.csr_array(
    ...     np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    ... )
    >>> with oc.block_csr(path) as a:
    ...     # the transition matrix of a random walk
    ...     walk = oc.Operator(a, left=1 / a.row_sums())
    ...     walk
    Operator(left * A, A of 3 x 3 with 4 entries)
    """

    def __init__(
        self,
        matrix: BlockCSR,
        *,
        left: float | ArrayLike = _ONE,
        right: ArrayLike | None = None,
        shift: float | ArrayLike = _NONE,
    ) -> None:
        if not isinstance(matrix, BlockCSR):
            raise TypeError(f"matrix is a {type(matrix).__name__}; give what oc.block_csr(A) makes of it")
        rows, columns = matrix.shape
        self._matrix = matrix
        self._left = _diagonal("left", left, rows, "rows")
        self._right = None if right is None else _vector("right", right, columns, "columns")
        self._shift = _diagonal("shift", shift, rows, "rows")
        if rows != columns and self.has_shift:
            raise ValueError(
                f"shift adds a multiple of X to A X, but A is {rows} x {columns}: only a square matrix has room for it"
            )

    @property
    def matrix(self) -> BlockCSR:
        """The packed matrix A."""
        return self._matrix

    @property
    def left(self) -> float | NDArray[np.float64]:
        """Number or (n_rows,) vector by which products are multiplied; 1.0 where there is none."""
        return self._left

    @property
    def right(self) -> NDArray[np.float64] | None:
        """(n_columns,) vector by which X is multiplied first; None where there is none."""
        return self._right

    @property
    def shift(self) -> float | NDArray[np.float64]:
        """Number or (n,) vector of the diagonal that is added; 0.0 where there is none."""
        return self._shift

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._matrix.shape

    @property
    def has_shift(self) -> bool:
        """True if a product needs the rows of X that it makes of Y."""
        return not isinstance(self._shift, float) or self._shift != _NONE

    @property
    def vector_bytes(self) -> int:
        """Bytes of all diagonals that are vectors."""
        return sum(part.nbytes for part in (self._left, self._right, self._shift) if isinstance(part, np.ndarray))

    #: NumPy does not make an array of one object of it in ``x @ A`` and the like.
    __array_ufunc__ = None

    def __matmul__(self, X: object) -> NoReturn:
        raise TypeError(
            "operator @ X would open devices anew each time: write oc.multiply(operator, X), or keep an oc.multiplier"
        )

    def __repr__(self) -> str:
        product = " * ".join([*_factor("left", self._left), "A", *(["right"] if self._right is not None else [])])
        shift = [] if not self.has_shift else [f"{self._shift:g}" if isinstance(self._shift, float) else "shift"]
        rows, columns = self.shape
        return f"Operator({' + '.join([*shift, product])}, A of {rows} x {columns} with {self._matrix.nnz} entries)"


def _factor(name: str, value: float | NDArray[np.float64]) -> list[str]:
    """How a scaling is written; nothing where it is 1."""
    if isinstance(value, float):
        return [] if value == _ONE else [f"{value:g}"]
    return [name]


def _diagonal(name: str, value: float | ArrayLike, length: int, what: str) -> float | NDArray[np.float64]:
    """A number, or a vector of that length."""
    given = plain_array(name, value)
    return _vector(name, given, length, what) if given.ndim else float(_vector(name, given.reshape(1), 1, what)[0])


def _vector(name: str, value: ArrayLike, length: int, what: str) -> NDArray[np.float64]:
    """A copy of its own, float64, contiguous and read-only."""
    given = plain_array(name, value)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"{name} holds {given.dtype}, but diagonals are real numbers")
    if given.shape != (length,):
        raise ValueError(
            f"{name} has shape {given.shape}, but the matrix has {length} {what}: give a vector of shape ({length},)"
        )
    vector = np.array(given, dtype=np.float64)
    if not np.isfinite(vector).all():
        at = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name}[{at}] is {vector[at]}: a diagonal must be finite, since it would spoil every product")
    vector.flags.writeable = False
    return vector


def operator_of(a: Any) -> Operator:
    """An operator as it is, or one of a packed matrix, or of whatever :func:`ooc_chol.block_csr` packs, in host memory."""
    if isinstance(a, Operator):
        return a
    return Operator(_packed(a))


def _packed(a: Any) -> BlockCSR:
    """A packed matrix, as it is or made here."""
    return a if isinstance(a, BlockCSR) else block_csr(a)


def laplacian(A: Any, normalized: bool = False) -> Operator:
    """The Laplacian of a graph, ``D - A`` or ``I - D^-1/2 A D^-1/2``, without another matrix than A.

    Parameters
    ----------
    A : BlockCSR or source
        Adjacency matrix, symmetric, of weights or ones: a packed one, or anything that :func:`block_csr` packs, which then stays
        packed in host memory until the operator's ``matrix`` is closed. Symmetry is not checked.
    normalized : bool
        Take the symmetrically normalized Laplacian, whose eigenvalues lie from 0 to 2 where no weight is negative.

    Returns
    -------
    Operator
        Operator of A itself, with its row sums d as diagonals.

    Raises
    ------
    ValueError
        A is not square; or a row sum is negative and the normalized Laplacian is asked for, which has its square root.
    TypeError
        ``normalized`` is neither True nor False.

    Notes
    -----
    D has the row sums of A, ``(D - A) 1 = 0``. They are exact for whole numbers, and sums in float64 else. Loops count as any
    entry does: they cancel in ``D - A`` and stay in the normalized Laplacian.

    A vertex whose row sum is 0 has a row and a column of zeros in the normalized Laplacian, diagonal entry included, as Chung
    has it (Spectral Graph Theory, 1997, section 1.2) and SciPy. So eigenvalue 0 is met once for each connected component. A
    vertex whose weights of both signs cancel counts as one of these.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import ooc_chol as oc
    >>> path = scipy.sparse.csr_array(
    ...     np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    ... )
    >>> operator = oc.laplacian(path)
    >>> operator
    Operator(shift + -1 * A, A of 3 x 3 with 4 entries)
    >>> operator.shift
    array([1., 2., 1.])
    >>> oc.laplacian(operator.matrix, normalized=True).left.round(6)
    array([-1.      , -0.707107, -1.      ])
    >>> operator.matrix.close()
    """
    is_normalized = checked_flag(normalized, "normalized")
    matrix = _packed(A)
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(f"the Laplacian of a graph needs a square adjacency matrix, but this one is {rows} x {columns}")
    degrees = np.asarray(matrix.row_sums(), dtype=np.float64)
    if not is_normalized:
        return Operator(matrix, left=-1.0, shift=degrees)
    if len(degrees) and degrees.min() < 0:
        at = int(degrees.argmin())
        raise ValueError(
            f"row {at} of A has the sum {degrees[at]:g}, which has no square root: normalize a graph without negative weights, "
            "or take laplacian(A)"
        )
    has_edges = degrees > 0
    scaling = np.zeros_like(degrees)
    scaling[has_edges] = 1 / np.sqrt(degrees[has_edges])
    return Operator(matrix, left=-scaling, right=scaling, shift=1.0 if has_edges.all() else has_edges.astype(np.float64))
