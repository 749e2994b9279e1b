"""L as NumPy and SciPy know matrices: ``L @ b``, ``L.T``, ``len(L)``, ``L[i, :j]``, and what a LinearOperator is made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from operator import index
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ooc_chol.config import format_bytes
from ooc_chol.files.inputs import plain_array
from ooc_chol.hardware.arrays import device_of


class AbstractTriangular(ABC):
    """A triangular matrix that is stored in tiles: products with it read tiles, and only ``np.asarray`` makes a dense array."""

    #: NumPy leaves operators to this class: ``b @ L`` is :meth:`__rmatmul__`, and ``b + L`` a ``TypeError``.
    __array_ufunc__ = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Shape, ``(n, n)``."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries, and of all results."""

    @abstractmethod
    def _multiplied(self, z: Any, *, transposed: bool = False, conjugated: bool = False) -> NDArray[Any]:
        """The product with a vector or with columns, or that of the transpose, the conjugate, or both."""

    @abstractmethod
    def diagonal(self) -> NDArray[Any]:
        """The diagonal, real and positive."""

    @abstractmethod
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it as a dense array, zeros included."""

    @property
    @abstractmethod
    def T(self) -> AbstractTriangular:
        """The transpose, a view: nothing is copied or read."""

    @property
    @abstractmethod
    def H(self) -> AbstractTriangular:
        """The adjoint, a view: the transpose, of a complex factor with conjugated entries."""

    def conj(self) -> AbstractTriangular:
        """The factor with conjugated entries, a view; a real factor is its own."""
        return self.H.T

    @property
    def mT(self) -> AbstractTriangular:
        """The transpose, as :attr:`T`."""
        return self.T

    @property
    def ndim(self) -> int:
        """Number of axes, 2."""
        return 2

    @property
    def size(self) -> int:
        """Entries of the dense matrix, ``n**2``, zeros included."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return True  # whether there is a factor, whatever its order

    def __matmul__(self, other: Any) -> NDArray[Any]:
        refuse_triangular(other)
        return self._multiplied(other)

    def __rmatmul__(self, other: Any) -> NDArray[Any]:
        left = other if device_of(other) is not None else plain_array("the left-hand side", other)
        product = self._multiplied(left if left.ndim < 2 else left.T, transposed=True)  # b @ L = (L.T @ b.T).T
        return product if left.ndim < 2 else product.T

    def matvec(self, x: ArrayLike) -> NDArray[Any]:
        """Multiply a vector, as ``self @ x``: SciPy's name, for ``scipy.sparse.linalg.aslinearoperator``.

        Parameters
        ----------
        x : (n,) array
            The vector.

        Returns
        -------
        array
            ``self @ x``, of the type of both.
        """
        return self @ x

    def rmatvec(self, x: ArrayLike) -> NDArray[Any]:
        """Multiply a vector by the adjoint, as ``self.H @ x``.

        Parameters
        ----------
        x : (n,) array
            The vector.

        Returns
        -------
        array
            ``self.H @ x``.
        """
        return self.H @ x

    def matmat(self, x: ArrayLike) -> NDArray[Any]:
        """Multiply columns, as ``self @ x``: one reading for all of them.

        Parameters
        ----------
        x : (n, m) array
            The columns.

        Returns
        -------
        array
            ``self @ x``.
        """
        return self @ x

    def rmatmat(self, x: ArrayLike) -> NDArray[Any]:
        """Multiply columns by the adjoint, as ``self.H @ x``.

        Parameters
        ----------
        x : (n, m) array
            The columns.

        Returns
        -------
        array
            ``self.H @ x``.
        """
        return self.H @ x

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer what needs no dense array; refuse what NumPy would make one for without a word."""
        if function in _ANSWERS:
            return _ANSWERS[function](*args, **kwargs)
        name, nbytes = f"{function.__module__}.{function.__name__}", format_bytes(self.size * self.dtype.itemsize)
        raise TypeError(
            f"{name} would make a dense array of {nbytes} of this factor: ask for that by np.asarray(L), or for what L has "
            "(solve, logdet, diagonal, cond, inverse_diagonal, L @ x)"
        )


def refuse_triangular(b: Any) -> None:
    """Raise ``TypeError`` for a factor as a right-hand side, which would become dense."""
    if isinstance(b, AbstractTriangular):
        raise TypeError(
            "a factor times a factor would be a dense array: L @ (L.T @ x), of a complex L L @ (L.H @ x), multiplies by A, "
            "and np.asarray(L) is L as an array"
        )


def _dot(a: Any, b: Any) -> Any:
    """``np.dot``, which is ``@`` for up to two axes."""
    return a @ b


def _diagonal(a: Any, k: int = 0, axes: tuple[int, int] = (0, 1)) -> Any:
    """``np.diag`` and ``np.diagonal`` of the main diagonal, in the type of the entries."""
    if k or axes not in ((0, 1), (1, 0)):
        raise TypeError("of a factor there is the main diagonal alone, on the axes 0 and 1: read other entries as L[i, j]")
    return a.diagonal().astype(a.dtype, copy=False)


def _size(a: Any, axis: int | None = None) -> int:
    """``np.size``."""
    return int(a.size if axis is None else a.shape[axis])


#: What functions of NumPy give without a dense array.
_ANSWERS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: _size,
    np.dot: _dot,
    np.diag: lambda v, k=0: _diagonal(v, k),
    np.diagonal: lambda a, offset=0, axis1=0, axis2=1: _diagonal(a, offset, (axis1, axis2)),
    np.transpose: lambda a, axes=None: a.T if axes is None or axes[0] in (1, -1) else a,
    np.matrix_transpose: lambda a: a.T,
    np.iscomplexobj: lambda a: a.dtype.kind == "c",
    np.isrealobj: lambda a: a.dtype.kind != "c",
}


@final
class TransposedFactor(AbstractTriangular):
    """``L.T`` or ``L.H``, an upper triangular factor: a view of L, which must stay open while it is used.

    ``A = L @ L.T``, for a complex A ``A = L @ L.H``, whose entries are conjugated. ``L.T @ x`` and ``x @ L.T`` read L once,
    ``np.asarray(L.T)`` is dense. ``L.solve_triangular(b, trans="T")`` solves with ``L.T``, ``trans="C"`` with ``L.H``.

    Parameters
    ----------
    factor : CholeskyFactor
        Factor that it is a view of.
    conjugated : bool
        True if it is the adjoint.
    """

    def __init__(self, factor: AbstractTriangular, *, conjugated: bool = False) -> None:
        self._factor = factor
        self._is_adjoint = conjugated
        self._conjugated = conjugated and factor.dtype.kind == "c"

    @property
    def shape(self) -> tuple[int, int]:
        """Shape, ``(n, n)``."""
        return self._factor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries, and of all results."""
        return self._factor.dtype

    @property
    def T(self) -> AbstractTriangular:
        """The transpose: of ``L.T``, and of ``L.H`` where L is real, L itself."""
        return TransposedFactor(self) if self._conjugated else self._factor

    @property
    def H(self) -> AbstractTriangular:
        """The adjoint: of ``L.H``, and of ``L.T`` where L is real, L itself."""
        return self._factor if self._conjugated or self.dtype.kind != "c" else TransposedFactor(self, conjugated=True)

    def diagonal(self) -> NDArray[Any]:
        """The diagonal, real and positive: that of L."""
        return self._factor.diagonal()

    def _multiplied(self, z: Any, *, transposed: bool = False, conjugated: bool = False) -> NDArray[Any]:
        return self._factor._multiplied(z, transposed=not transposed, conjugated=conjugated != self._conjugated)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it as a dense ``(n, n)`` array, zeros included; needs ``8 n**2`` bytes in float64."""
        dense = self._factor.__array__(dtype, copy).T
        return np.conjugate(dense, out=dense) if self._conjugated else dense

    def __repr__(self) -> str:
        return f"{self._factor!r}.{'H' if self._is_adjoint else 'T'}"


def span_of(key: Any, n: int) -> tuple[range, bool]:
    """The indices that an integer or a slice names on an axis of ``n``, and whether the axis stays."""
    if isinstance(key, slice):
        return range(*key.indices(n)), True
    try:
        at = index(key)
    except TypeError:
        raise TypeError(f"L[...] takes integers and slices, not {type(key).__name__}: ask np.asarray(L) for the rest") from None
    if not -n <= at < n:
        raise IndexError(f"index {at} is out of bounds for an axis of a factor with size {n}")
    return range(at % n, at % n + 1), False


def block_of(key: Any, n: int, read: Callable[[range, int], NDArray[Any]]) -> Any:
    """``L[key]`` by a function that reads ``L[rows, :stop]``: a new array, or a number."""
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) > 2:
        raise IndexError(f"too many indices for a factor: it has 2 axes, but {len(keys)} were indexed")
    (rows, keeps_rows), (columns, keeps_columns) = (span_of(part, n) for part in (*keys, slice(None), slice(None))[:2])
    stop = max(columns, default=-1) + 1
    if rows.step == 1 or len(rows) < 2:
        block = read(range(rows.start, rows.start + len(rows)), stop)
    else:  # rows apart from each other: each is read by itself
        block = np.vstack([read(range(row, row + 1), stop) for row in rows])
    found = block[:, np.asarray(columns, dtype=np.intp)] if columns.step != 1 else block[:, columns.start :]
    found = found if keeps_rows else found[0]
    return found if keeps_columns else found[..., 0]
