"""Sparse operations for torch that differentiate any number of times, with gradients on the pattern of what they belong to."""

from __future__ import annotations

from ooc_chol.extras import install_hint

try:
    import torch as _torch
except ImportError as failure:
    raise ImportError(f"ooc_chol.diff.torch needs PyTorch, which is not installed: {install_hint('torch')}") from failure

from ooc_chol.calls.options import documented
from ooc_chol.diff.ops import Sampled
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.torch_arrays import uncompiled
from ooc_chol.diff.torch_csr import CSR, checked_matrix
from ooc_chol.diff.torch_definite import cholesky, logdet, sample, selected_inverse
from ooc_chol.diff.torch_function import apply
from ooc_chol.diff.torch_solves import Factorization, eigsh, factorize, solve, triangular_solve
from ooc_chol.diff.torch_sources import check_together, checked_tensor

__all__ = [
    "CSR",
    "Factorization",
    "add",
    "cholesky",
    "diagonal",
    "eigsh",
    "factorize",
    "logdet",
    "matmul",
    "row_sums",
    "sample",
    "sampled",
    "scale",
    "selected_inverse",
    "solve",
    "spgemm",
    "transpose",
    "triangular_solve",
    "tril",
    "triu",
]

Tensor = _torch.Tensor


def matmul(A: CSR, x: Tensor, *, precision: str | None = None) -> Tensor:
    """``A @ x`` of a sparse matrix and a dense tensor.

    Parameters
    ----------
    A : CSR
        (m, n).
    x : (n,) or (n, k) tensor
        Numbers of the type and on the device of A.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64, in gradients too; the results are float32.

    Returns
    -------
    (m,) or (m, k) tensor
        The product.

    Raises
    ------
    ValueError
        x has another height, or lies elsewhere.
    TypeError
        x has another type, or ``"FDF"`` was asked of float64.

    Notes
    -----
    Gradients: of A ``sampled(pattern, g, x)``, which has one number for each entry, and of x ``A.T @ g``. Of both arguments the
    memory is held until ``backward``, and nothing else.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.matmul(A, torch.tensor([1.0, 2.0]))
    tensor([2., 9.])
    """
    return checked_matrix(A).matmul(x, precision=precision)


@uncompiled
def sampled(pattern: Pattern, g: Tensor, x: Tensor, *, precision: str | None = None) -> CSR:
    """The entries of ``g @ x.T`` that stand on a pattern.

    Parameters
    ----------
    pattern : Pattern
        (m, n).
    g : (m,) or (m, k) tensor
        Left factor.
    x : (n,) or (n, k) tensor
        Right factor.
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    CSR
        On the pattern; the dense product is never made.

    Raises
    ------
    ValueError, TypeError
        Shapes, types or devices do not fit.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol as oc
    >>> import ooc_chol.diff.torch as sparse
    >>> pattern = oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3))
    >>> sparse.sampled(
    ...     pattern, torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])
    ... ).values
    tensor([3., 5., 8.])
    """
    left, right = checked_tensor(g, "g"), checked_tensor(x, "x")
    check_together(g=left, x=right)
    for name, tensor, length in zip(("g", "x"), (left, right), pattern.shape, strict=True):
        if tensor.ndim not in (1, 2) or len(tensor) != length:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)} for {pattern!r}: give ({length},) or ({length}, k)")
    return CSR(apply(Sampled(pattern, precision), left, right), pattern)


def spgemm(A: CSR, B: CSR, *, precision: str | None = None) -> CSR:
    """``A @ B`` of two sparse matrices; the structure is made once for each pair of patterns.

    Parameters
    ----------
    A, B : CSR
        (m, n) and (n, p), of one type on one device.
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    CSR
        Every entry that the patterns make possible; those that cancel stay.

    Raises
    ------
    ValueError, TypeError
        Shapes, types or devices do not fit.

    Notes
    -----
    Gradients are sums over the same products of entries, on the patterns of A and of B.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.spgemm(A, A).to_dense()
    tensor([[ 4.,  0.],
            [ 6., 16.]])
    """
    return checked_matrix(A).spgemm(checked_matrix(B, "B"), precision=precision)


def add(A: CSR, B: CSR, *, alpha: float | Tensor = 1.0, beta: float | Tensor = 1.0) -> CSR:
    """``alpha A + beta B``.

    Parameters
    ----------
    A, B : CSR
        Matrices of one shape and type, on one device.
    alpha, beta : float or tensor of no dimensions
        Factors; gradients reach them, too.

    Returns
    -------
    CSR
        On the union of both patterns; entries that cancel stay.

    Raises
    ------
    ValueError, TypeError
        Shapes, types or devices differ.
    """
    return checked_matrix(A).add(checked_matrix(B, "B"), alpha=alpha, beta=beta)


def transpose(A: CSR) -> CSR:
    """``A.T``: a permutation of the values, whose order is made once for a pattern.

    Parameters
    ----------
    A : CSR
        (m, n).

    Returns
    -------
    CSR
        (n, m).
    """
    return checked_matrix(A).T


def tril(A: CSR, k: int = 0) -> CSR:
    """The entries with ``column <= row + k``.

    Parameters
    ----------
    A : CSR
        (m, n).
    k : int
        How many diagonals above the main one are taken; below it where k is negative.

    Returns
    -------
    CSR
        On the part of the pattern. The gradient of A has all of its pattern, 0 elsewhere.
    """
    return checked_matrix(A).tril(k)


def triu(A: CSR, k: int = 0) -> CSR:
    """The entries with ``column >= row + k``.

    Parameters
    ----------
    A : CSR
        (m, n).
    k : int
        From which diagonal on: above the main one where k is positive.

    Returns
    -------
    CSR
        On the part of the pattern. The gradient of A has all of its pattern, 0 elsewhere.
    """
    return checked_matrix(A).triu(k)


@documented(like=transpose)
def diagonal(A: CSR) -> Tensor:
    """The diagonal, 0 where it has no entry.

    Returns
    -------
    (min(m, n),) tensor
        Its entries.
    """
    return checked_matrix(A).diagonal()


def row_sums(A: CSR, *, precision: str | None = None) -> Tensor:
    """The sums of rows, ``A @ ones``.

    Parameters
    ----------
    A : CSR
        (m, n).
    precision : {"FDF"}, optional
        Add float32 numbers in float64.

    Returns
    -------
    (m,) tensor
        The sums.
    """
    return checked_matrix(A).row_sums(precision=precision)


def scale(A: CSR, *, rows: Tensor | None = None, columns: Tensor | None = None, precision: str | None = None) -> CSR:
    """``diag(rows) A diag(columns)``, on the pattern of A.

    Parameters
    ----------
    A : CSR
        (m, n).
    rows : (m,) tensor, optional
        Multiplier of each row.
    columns : (n,) tensor, optional
        Multiplier of each column.
    precision : {"FDF"}, optional
        Add float32 numbers in float64, in gradients of the two vectors.

    Returns
    -------
    CSR
        The scaled matrix.

    Raises
    ------
    ValueError, TypeError
        Shapes, types or devices do not fit.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.scale(A, rows=1 / A.row_sums()).to_dense()
    tensor([[1.0000, 0.0000],
            [0.2000, 0.8000]])
    """
    return checked_matrix(A).scale(rows, columns, precision=precision)
