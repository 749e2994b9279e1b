"""Log-determinants, selected inverses, Cholesky factors and samples of sparse positive definite matrices of torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ooc_chol.calls.options import documented
from ooc_chol.diff import definite
from ooc_chol.diff.torch_arrays import uncompiled
from ooc_chol.diff.torch_csr import CSR, checked_matrix
from ooc_chol.diff.torch_function import apply
from ooc_chol.diff.torch_solves import checked_right_hand_sides


@uncompiled
def logdet(A: CSR) -> Tensor:
    """``log det A`` of a sparse symmetric positive definite matrix, whose gradient is its inverse on the pattern.

    Parameters
    ----------
    A : CSR
        (n, n), symmetric positive definite, with the entries of both triangles.

    Returns
    -------
    () tensor
        The logarithm of the determinant, of the type and on the device of A.

    Raises
    ------
    NotPositiveDefiniteError
        A is not positive definite, exactly or to working precision; the error's ``row`` has no positive ``pivot``.
    NonFiniteError
        A value is NaN or infinite.
    ValueError
        A is not square or not symmetric.
    TypeError
        A is no ``CSR``.

    Notes
    -----
    A counts as ``(A + A.T) / 2``: gradients are symmetric, and each entry counts by itself. The factor is made where A is, in
    float64, and kept for derivatives and for equal values, as that of :func:`solve`. ``vmap`` over values factors one matrix
    after the other.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(
    ...     torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    ... ).requires_grad_()
    >>> found = sparse.logdet(A)
    >>> found.backward()
    >>> found.detach(), A.grad.to_dense()
    (tensor(1.0986), tensor([[ 0.6667, -0.3333],
            [-0.3333,  0.6667]]))
    """
    matrix = checked_matrix(A)
    found: Tensor = definite.logdet(matrix.pattern, matrix.values, apply=apply)
    return found


@documented(like=logdet)
@uncompiled
def selected_inverse(A: CSR) -> CSR:
    """The entries of ``A^-1`` on the pattern of a sparse symmetric positive definite A, without the others.

    Returns
    -------
    CSR
        Those entries. Its diagonal are the variances of the Gaussian with precision A.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError, ValueError, TypeError
        As for :func:`logdet`.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> sparse.selected_inverse(A).diagonal()
    tensor([0.6667, 0.6667])
    """
    matrix = checked_matrix(A)
    return CSR(definite.selected_inverse(matrix.pattern, matrix.values, apply=apply), matrix.pattern)


@documented(like=logdet)
@uncompiled
def cholesky(A: CSR) -> tuple[CSR, Tensor]:
    """The sparse lower triangle L with ``L @ L.T = A[order][:, order]``.

    Returns
    -------
    L : CSR
        With every entry that the pattern of A makes possible.
    order : (n,) tensor of int64
        Rows of A in the order of elimination, which the pattern decides.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError, ValueError, TypeError
        As for :func:`logdet`.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> L, order = sparse.cholesky(
    ...     sparse.CSR.of(torch.tensor([[4.0, 0.0], [0.0, 4.0]]))
    ... )
    >>> L.to_dense()
    tensor([[2., 0.],
            [0., 2.]])
    """
    matrix = checked_matrix(A)
    pattern, values, order = definite.cholesky(matrix.pattern, matrix.values, apply=apply)
    return CSR(values, pattern), torch.from_numpy(order).to(matrix.device)


@documented(like=logdet)
@uncompiled
def sample(A: CSR, z: Tensor) -> Tensor:
    """Samples of the Gaussian with mean 0 and precision A, made of standard normal numbers: ``x[order] = L^-T z``.

    Parameters
    ----------
    z : (n,) or (n, k) tensor
        Standard normal numbers, of the type and on the device of A; each column makes one sample.

    Returns
    -------
    (n,) or (n, k) tensor
        The samples, which are differentiable in A, z being kept.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError, ValueError, TypeError
        As for :func:`logdet`; z has another height or type.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[4.0, 0.0], [0.0, 4.0]]))
    >>> sparse.sample(A, torch.ones(2))
    tensor([0.5000, 0.5000])
    """
    matrix = checked_matrix(A)
    x: Tensor = definite.sample(matrix.pattern, matrix.values, checked_right_hand_sides(matrix, z, "z"), apply=apply)
    return x
