"""A sparse matrix of torch: a pattern that never changes, and a tensor of values that autograd follows."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeGuard, final

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ooc_chol.diff import functions
from ooc_chol.diff.memory import IndexArray
from ooc_chol.diff.ops import MatMul, RowSums, Scatter, TransposedMatMul
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.torch_arrays import uncompiled, uncompiled_methods
from ooc_chol.diff.torch_function import apply, differentiated_once
from ooc_chol.diff.torch_sources import canonical_entries, check_together, checked_tensor, checked_values, entries_of


@final
@uncompiled_methods
class CSR:
    """A sparse matrix whose values are a tensor: operations on it are differentiable, and its gradient has its pattern.

    Parameters
    ----------
    values : (nnz,) tensor
        One value for each entry, in the order of the pattern: float32 or float64, on the CPU or a CUDA device. It is not copied:
        what autograd knows of the tensor it knows of the matrix, and who changes it changes the matrix.
    pattern : Pattern
        Where the entries stand, (n_rows, n_columns).

    Raises
    ------
    TypeError
        The values are no dense tensor, or integers, or complex.
    ValueError
        The values are not as many as the entries of the pattern.

    Notes
    -----
    ``A @ x`` of a tensor, ``A @ B`` and ``A + B`` of two matrices, ``-A``, ``2 * A``, ``A.T``, ``x @ A`` and the methods can be
    differentiated any number of times, by ``backward`` as by ``torch.func``. ``vmap`` over right-hand sides of one matrix makes
    one product or solve of all; over values of a matrix it goes one after the other.

    Tensors lend their memory and are not copied, on CUDA devices by DLPack on torch's current stream, as long as their entries
    lie one row after the other. Sums are in a fixed order: the same call gives the same bits, forward and backward.

    A matrix of torch, SciPy or NumPy comes in by :meth:`of`, entries in any order by :meth:`from_entries`.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol as oc
    >>> from ooc_chol.diff.torch import CSR
    >>> A = CSR(
    ...     torch.tensor([1.0, 2.0, 3.0]),
    ...     oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3)),
    ... ).requires_grad_()
    >>> (A @ torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    >>> A.grad
    CSR(2 x 3, 3 entries, float32, cpu)
    >>> A.grad.values
    tensor([  1., 100.,  10.])
    """

    __slots__ = ("_pattern", "_said", "_values")

    #: NumPy does not take it apart in ``array @ A``.
    __array_ufunc__ = None

    def __init__(self, values: Tensor, pattern: Pattern) -> None:
        if not isinstance(pattern, Pattern):
            raise TypeError(f"pattern is a {type(pattern).__name__}: give an oc.diff.Pattern, or take CSR.of(A)")
        self._pattern = pattern
        self._values = checked_values(pattern, values)
        self._said = ""

    @classmethod
    def of(cls, A: Any) -> CSR:
        """Make one of a matrix.

        Parameters
        ----------
        A : tensor, sparse or dense matrix, graph, or str
            Matrix of two dimensions and real floating-point numbers: a tensor in CSR, CSC or COO layout or a dense one, or
            anything that :func:`ooc_chol.block_csr` packs, where whole numbers become float64. Of dense ones the entries that are
            not zero are taken. Rows are sorted and entries of one place added where they are not so already; ``repr`` says it.

        Returns
        -------
        CSR
            Its values stay connected with a tensor: gradients reach it. All others are copied.

        Raises
        ------
        TypeError
            It is none of these, or of complex numbers, or a tensor of integers.
        ValueError
            It has not two dimensions.

        Examples
        --------
        >>> import numpy as np
        >>> from ooc_chol.diff.torch import CSR
        >>> CSR.of(np.array([[0.0, 2.0], [3.0, 0.0]]))
        CSR(2 x 2, 2 entries, float64, cpu)
        """
        return cls._made(*entries_of(A))

    @classmethod
    def from_entries(cls, indptr: ArrayLike, indices: ArrayLike, values: Tensor, shape: tuple[int, int]) -> CSR:
        """Make one of compressed rows whose entries come in any order, and some perhaps more than once.

        Parameters
        ----------
        indptr : (n_rows + 1,) array_like of int
            Where each row begins.
        indices : (count,) array_like of int
            Columns of the entries.
        values : (count,) tensor
            Their values: gradients reach this tensor.
        shape : (int, int)
            Rows and columns.

        Returns
        -------
        CSR
            Rows sorted, entries of one place added in the order they came in; ``repr`` says how many.

        Raises
        ------
        SparseInputError
            ``indptr`` or a column makes no matrix; the error names the row.
        TypeError, ValueError
            As for the class.

        Examples
        --------
        >>> import torch
        >>> from ooc_chol.diff.torch import CSR
        >>> CSR.from_entries(
        ...     [0, 3], [2, 0, 2], torch.tensor([1.0, 2.0, 3.0]), (1, 3)
        ... )
        CSR(1 x 3, 2 entries, float32, cpu; 1 row was sorted, 1 entry was added to another)
        """
        return cls._made(*canonical_entries(indptr, indices, values, shape))

    @classmethod
    def _made(cls, pattern: Pattern, values: Tensor, said: str = "") -> CSR:
        """A matrix, and what was done for it."""
        made = cls(values, pattern)
        made._said = said
        return made

    # what it is

    @property
    def pattern(self) -> Pattern:
        """Where its entries stand."""
        return self._pattern

    @property
    def values(self) -> Tensor:
        """(nnz,) tensor of the values, row by row."""
        return self._values

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._pattern.shape

    @property
    def nnz(self) -> int:
        """Entries."""
        return self._pattern.nnz

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self._values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self._values.device

    def __repr__(self) -> str:
        said = f"; {self._said}" if self._said else ""
        size = repr(self._pattern).removeprefix("Pattern(").removesuffix(")")
        grad = ", requires_grad" if self.requires_grad else ""
        return f"CSR({size}, {str(self.dtype).removeprefix('torch.')}, {self.device}{grad}{said})"

    # autograd

    @property
    def requires_grad(self) -> bool:
        """True if autograd follows the values."""
        return self._values.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> CSR:
        """Let autograd follow the values, or not.

        Parameters
        ----------
        requires_grad : bool
            True if it does.

        Returns
        -------
        CSR
            The matrix itself.
        """
        self._values.requires_grad_(requires_grad)
        return self

    @property
    @uncompiled
    def grad(self) -> CSR | None:
        """The gradient that ``backward`` has left, on the same pattern; None before."""
        grad = self._values.grad
        return None if grad is None else CSR(grad, self._pattern)

    def detach(self) -> CSR:
        """The same matrix in the same memory, which autograd does not follow."""
        return CSR(self._values.detach(), self._pattern)

    def clone(self) -> CSR:
        """A matrix with values of its own; gradients reach this one."""
        return CSR(self._values.clone(), self._pattern)

    def to(self, *args: Any, **options: Any) -> CSR:
        """The matrix in another type or on another device; gradients reach this one.

        Parameters
        ----------
        *args, **options
            As those of ``Tensor.to``.

        Returns
        -------
        CSR
            The matrix there, on the same pattern.
        """
        return CSR(self._values.to(*args, **options), self._pattern)

    # operations

    def __matmul__(self, other: object) -> Any:
        if isinstance(other, CSR):
            return self.spgemm(other)
        return self.matmul(other) if isinstance(other, Tensor | np.ndarray) else NotImplemented

    def __rmatmul__(self, other: object) -> Any:
        if not isinstance(other, Tensor | np.ndarray):
            return NotImplemented
        x = checked_tensor(other, "x")
        return self._transposed_matmul(x.mT).mT if x.ndim == 2 else self._transposed_matmul(x)

    def __add__(self, other: object) -> CSR:
        return self.add(other) if isinstance(other, CSR) else NotImplemented

    def __sub__(self, other: object) -> CSR:
        return self.add(other, beta=-1.0) if isinstance(other, CSR) else NotImplemented

    def __neg__(self) -> CSR:
        return CSR(-self._values, self._pattern)

    def __mul__(self, factor: object) -> CSR:
        return CSR(self._values * factor, self._pattern) if _is_number(factor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> CSR:
        return CSR(self._values / divisor, self._pattern) if _is_number(divisor) else NotImplemented

    def matmul(self, x: Any, *, precision: str | None = None) -> Tensor:
        """``A @ x`` of a tensor: :func:`ooc_chol.diff.torch.matmul`."""
        tensor = checked_tensor(x, "x")
        check_together(A=self._values, x=tensor)
        if tensor.ndim not in (1, 2) or len(tensor) != self.shape[1]:
            rows, columns = self.shape
            raise ValueError(
                f"x has shape {tuple(tensor.shape)}, but A is {rows} x {columns}: give ({columns},) or ({columns}, k)"
            )
        return apply(MatMul(self._pattern, precision), self._values, tensor)

    def _transposed_matmul(self, y: Tensor) -> Tensor:
        """``A.T @ y``, without a copy of the values."""
        tensor = checked_tensor(y, "x")
        check_together(A=self._values, x=tensor)
        rows, columns = self.shape
        if tensor.ndim not in (1, 2) or len(tensor) != rows:
            given = tuple(tensor.mT.shape if tensor.ndim == 2 else tensor.shape)
            raise ValueError(f"x has shape {given}, but A in x @ A is {rows} x {columns}: give ({rows},) or (k, {rows})")
        return apply(TransposedMatMul(self._pattern), self._values, tensor)

    def spgemm(self, other: CSR, *, precision: str | None = None) -> CSR:
        """``A @ B`` of two sparse matrices: :func:`ooc_chol.diff.torch.spgemm`."""
        check_together(A=self._values, B=other._values)
        return CSR._made(
            *functions.spgemm(self._pattern, self._values, other._pattern, other._values, precision=precision, apply=apply)
        )

    def add(self, other: CSR, *, alpha: float | Tensor = 1.0, beta: float | Tensor = 1.0) -> CSR:
        """``alpha A + beta B``: :func:`ooc_chol.diff.torch.add`."""
        check_together(A=self._values, B=other._values)
        for name, factor in (("alpha", alpha), ("beta", beta)):
            if not _is_number(factor):
                raise TypeError(f"{name} is a {type(factor).__name__}: give one real number, or a tensor of no dimensions")
        a = self._values if _is_one(alpha) else alpha * self._values
        b = other._values if _is_one(beta) else beta * other._values
        return CSR._made(*functions.add(self._pattern, a, other._pattern, b, apply=apply))

    @property
    @uncompiled
    def T(self) -> CSR:
        """The transpose: a permutation of the values, whose order is made once for a pattern."""
        return CSR._made(*functions.transpose(self._pattern, self._values, apply=apply))

    def tril(self, k: int = 0) -> CSR:
        """The entries with ``column <= row + k``."""
        return CSR._made(*functions.tril(self._pattern, self._values, k, apply=apply))

    def triu(self, k: int = 0) -> CSR:
        """The entries with ``column >= row + k``."""
        return CSR._made(*functions.triu(self._pattern, self._values, k, apply=apply))

    def diagonal(self) -> Tensor:
        """(min(shape),) tensor of the diagonal, 0 where it has no entry."""
        diagonal: Tensor = functions.diagonal(self._pattern, self._values, apply=apply)
        return diagonal

    def row_sums(self, *, precision: str | None = None) -> Tensor:
        """(n_rows,) tensor of the sums of rows."""
        return apply(RowSums(self._pattern, precision), self._values)

    def scale(self, rows: Tensor | None = None, columns: Tensor | None = None, *, precision: str | None = None) -> CSR:
        """``diag(rows) A diag(columns)``: :func:`ooc_chol.diff.torch.scale`."""
        given = {name: checked_tensor(d, name) for name, d in (("rows", rows), ("columns", columns)) if d is not None}
        check_together(A=self._values, **given)
        for (name, d), length in zip((("rows", rows), ("columns", columns)), self.shape, strict=True):
            if d is not None and d.shape != (length,):
                raise ValueError(f"{name} has shape {tuple(d.shape)}, but A has {length} {name}: give one number for each")
        scaled = functions.scale(self._pattern, self._values, rows=rows, columns=columns, precision=precision, apply=apply)
        return CSR(scaled, self._pattern)

    # as others have it

    def to_dense(self) -> Tensor:
        """(n_rows, n_columns) tensor with zeros where there is no entry; gradients reach the values."""
        rows, columns = self.shape
        places = self._pattern.rows.astype(np.int64) * columns + self._pattern.indices
        return apply(Scatter(IndexArray(places), rows * columns), self._values).reshape(rows, columns)

    def to_sparse(self) -> Tensor:
        """The same matrix as torch's own tensor in CSR layout, with indices of its own; gradients reach the values."""
        indptr, indices = (torch.from_numpy(np.array(each, np.int64)) for each in (self._pattern.indptr, self._pattern.indices))
        places = indptr.to(self.device), indices.to(self.device)
        values = differentiated_once(self._values, "to_dense(), or this class's own operations")
        return torch.sparse_csr_tensor(*places, values, self.shape, check_invariants=False)

    def to_scipy(self) -> scipy.sparse.csr_array:
        """A copy as SciPy's ``csr_array``, on the host, which autograd does not follow."""
        values = self._values.detach().cpu().numpy().copy()
        return scipy.sparse.csr_array((values, self._pattern.indices.copy(), self._pattern.indptr.copy()), shape=self.shape)


def _is_number(factor: object) -> TypeGuard[float | Tensor]:
    """Tell whether it is one real number, as Python's or as a tensor of no dimensions."""
    return isinstance(factor, Real) or (isinstance(factor, Tensor) and factor.ndim == 0 and not factor.is_complex())


def _is_one(factor: float | Tensor) -> bool:
    """Tell whether nothing changes; a tensor may be 1 and still have a gradient."""
    return not isinstance(factor, Tensor) and factor == 1


def checked_matrix(A: Any, name: str = "A") -> CSR:
    """A matrix of this module."""
    if not isinstance(A, CSR):
        raise TypeError(f"{name} is a {type(A).__name__}: give an ooc_chol.diff.torch.CSR, such as CSR.of({name})")
    return A
