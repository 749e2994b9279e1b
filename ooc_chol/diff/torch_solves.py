"""Solves with sparse matrices of torch: one factor for the solve, its derivatives and theirs."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from ooc_chol.calls.options import documented
from ooc_chol.diff import eigenvalues, factor_cache, factors
from ooc_chol.diff.factor_cache import Assume, Factor, Method
from ooc_chol.diff.torch_arrays import applied, uncompiled, uncompiled_methods
from ooc_chol.diff.torch_csr import CSR, checked_matrix
from ooc_chol.diff.torch_function import apply
from ooc_chol.diff.torch_sources import check_together, checked_tensor
from ooc_chol.eigen.wanted import Which
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.sparse.planning import Devices


@final
@uncompiled_methods
class Factorization(AbstractClosing):
    """A factored sparse matrix that solves for tensors, differentiably; made by :func:`ooc_chol.diff.torch.factorize`.

    Parameters
    ----------
    matrix : CSR
        The matrix, (n, n). Gradients reach its values.
    factor : Factor
        Its factor, of the values that it had then.

    Attributes
    ----------
    matrix : CSR
        The matrix.
    factor : Factor
        Factor that solves: its ``method``, ``copies`` and words.
    """

    def __init__(self, matrix: CSR, factor: Factor) -> None:
        self.matrix = matrix
        self.factor = factor

    def solve(self, b: Tensor, *, trans: bool = False, precision: str | None = None) -> Tensor:
        """Solve ``A x = b``, or with the transpose: :func:`ooc_chol.diff.torch.solve` with this factor.

        Parameters
        ----------
        b : (n,) or (n, k) tensor
            Right-hand sides.
        trans : bool
            Solve with the transpose of A.
        precision : {"FDF"}, optional
            As for :func:`ooc_chol.diff.torch.solve`.

        Returns
        -------
        (n,) or (n, k) tensor
            The solutions.

        Raises
        ------
        ValueError
            b has another height, the values of the matrix have changed, or the factor is closed.
        TypeError
            b has another type.
        """
        return solve(self.matrix, b, trans=trans, factor=self.factor, precision=precision)

    def close(self) -> None:
        """Free the factor."""
        self.factor.close()

    def __repr__(self) -> str:
        return f"Factorization({self.matrix!r}, {self.factor!r})"


@uncompiled
def factorize(A: CSR, *, assume: Assume = None, method: Method = "auto") -> Factorization:
    """Factor a sparse matrix, to solve with it many times.

    Parameters
    ----------
    A : CSR
        (n, n), with the values that it has now.
    assume, method
        As for :func:`solve`.

    Returns
    -------
    Factorization
        Its ``solve`` is differentiable in A and b. A context manager, which frees the factor.

    Raises
    ------
    SingularMatrixError, ValueError, NonFiniteError, TypeError, ImportError
        As for :func:`solve`.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[2.0, 1.0], [1.0, 4.0]]))
    >>> with sparse.factorize(A) as factor:
    ...     factor.solve(torch.tensor([3.0, 5.0]))
    tensor([1., 1.])
    """
    matrix = checked_matrix(A)
    factor = applied(lambda values: factor_cache.factorize(matrix.pattern, values, assume=assume, method=method), matrix.values)
    return Factorization(matrix, factor)


@uncompiled
def solve(
    A: CSR,
    b: Tensor,
    *,
    trans: bool = False,
    assume: Assume = None,
    method: Method = "auto",
    factor: Factor | Factorization | None = None,
    precision: str | None = None,
) -> Tensor:
    """Solve ``A x = b`` with a sparse matrix, which is factored once for the solve, its derivatives and theirs.

    Parameters
    ----------
    A : CSR
        (n, n).
    b : (n,) or (n, k) tensor
        Right-hand sides, of the type and on the device of A.
    trans : bool
        Solve with the transpose of A.
    assume : {None, "symmetric", "spd"}
        Known property of A: that it is symmetric, or symmetric and positive definite. It is checked as far as the values show it.
    method : {"auto", "superlu", "cudss"}
        SuperLU on the host; or cuDSS for tensors on a CUDA device, which ``"auto"`` takes where it is installed.
    factor : Factorization or Factor, optional
        Factorization of A with its present values, by :func:`factorize`. Without it, the last factor of the pattern is taken
        where its values are equal, one by one, and made otherwise.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64, in the gradient of A.

    Returns
    -------
    (n,) or (n, k) tensor
        The solutions.

    Raises
    ------
    SingularMatrixError
        A is singular, exactly or to working precision; the error's ``column`` has no pivot.
    ValueError
        A is not square; b has another height; the factor is of other values.
    NonFiniteError
        A value is NaN or infinite.
    TypeError
        The types differ.
    ImportError
        ``method="cudss"`` was asked for, but cuDSS is not installed.

    Notes
    -----
    Gradients: of b ``w = A^-T g``, and of A ``-sampled(w, x)``, which has one number for each entry. A factor is compared by
    value, so that values that were changed in place are never met by an old one. Perturbations of a matrix that was told to be
    symmetric need not be: its gradient is that of a general matrix.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(
    ...     torch.tensor([[0.0, 2.0], [4.0, 1.0]])
    ... ).requires_grad_()
    >>> sparse.solve(A, torch.tensor([2.0, 5.0])).sum().backward()
    >>> A.grad.to_dense()
    tensor([[ 0.0000, -0.3750],
            [-0.2500, -0.2500]])
    """
    matrix = checked_matrix(A)
    x: Tensor = factors.solve(
        matrix.pattern,
        matrix.values,
        checked_right_hand_sides(matrix, b),
        trans=trans,
        assume=assume,
        method=method,
        factor=factor.factor if isinstance(factor, Factorization) else factor,
        precision=precision,
        apply=apply,
    )
    return x


@documented(like=factors.triangular_solve)
@uncompiled
def triangular_solve(
    A: CSR, b: Tensor, *, lower: bool = True, trans: bool = False, unit_diagonal: bool = False, precision: str | None = None
) -> Tensor:
    """Solve ``T x = b`` with a sparse triangle, by substitution.

    Parameters
    ----------
    A : CSR
        T, (n, n), without entries in the other triangle, such as ``A.tril()``.
    b : (n,) or (n, k) tensor
        Right-hand sides, of the type and on the device of A.
    precision : {"FDF"}, optional
        As for :func:`solve`.

    Returns
    -------
    (n,) or (n, k) tensor
        The solutions.

    Raises
    ------
    ValueError
        T has an entry in the other triangle, or lacks one on the diagonal, whose row is named; b has another height.
    SingularMatrixError
        There is a 0 on the diagonal; the error's ``column`` says where.
    NonFiniteError, TypeError
        As for :func:`solve`.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(torch.tensor([[2.0, 1.0], [1.0, 4.0]]))
    >>> sparse.triangular_solve(A.tril(), torch.tensor([2.0, 5.0]))
    tensor([1., 1.])
    """
    matrix = checked_matrix(A)
    options: dict[str, Any] = {"lower": lower, "trans": trans, "unit_diagonal": unit_diagonal, "precision": precision}
    x: Tensor = factors.triangular_solve(
        matrix.pattern, matrix.values, checked_right_hand_sides(matrix, b), **options, apply=apply
    )
    return x


@documented(like=eigenvalues.eigsh)
@uncompiled
def eigsh(
    A: CSR, k: int = 6, *, which: Which = "LM", tol: float | None = None, gap: float = eigenvalues.GAP, devices: Devices = None
) -> Tensor:
    """Some eigenvalues of a symmetric matrix by :func:`ooc_chol.eigsh`, differentiable in its values where they are simple.

    Parameters
    ----------
    A : CSR
        (n, n), symmetric, with the entries of both triangles.

    Returns
    -------
    (k,) tensor
        Eigenvalues, ascending, of the type and on the device of A.

    Raises
    ------
    ValueError
        A is not square or not symmetric, or k makes no sense; in a derivative, two eigenvalues, or one and the next that was not
        asked for, are closer than ``gap``.
    NoConvergenceError, NonFiniteError
        As for :func:`ooc_chol.eigsh`.
    NotImplementedError
        Second derivatives were asked for in forward mode, as ``torch.func.hessian`` does; backward mode has them.

    Notes
    -----
    The gradient of A is ``sampled(x g, x)``, x being the vectors in columns. A counts as ``(A + A.T) / 2``: derivatives are
    symmetric, and each entry counts by itself.

    Examples
    --------
    >>> import torch
    >>> import ooc_chol.diff.torch as sparse
    >>> A = sparse.CSR.of(
    ...     torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    ... ).requires_grad_()
    >>> largest = sparse.eigsh(A, 1, which="LA", devices="host:0")
    >>> largest.backward()
    >>> largest.detach(), A.grad.to_dense()
    (tensor([3.]), tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]]))
    """
    matrix = checked_matrix(A)
    w: Tensor = eigenvalues.eigsh(matrix.pattern, matrix.values, k, which=which, tol=tol, gap=gap, devices=devices, apply=apply)
    return w


def checked_right_hand_sides(A: CSR, b: Any, name: str = "b") -> Tensor:
    """A tensor that fits the matrix."""
    n_rows, n_columns = A.shape
    if n_rows != n_columns:
        raise ValueError(f"A is {n_rows} x {n_columns}: only a square matrix is solved with")
    tensor = checked_tensor(b, name)
    check_together(A=A.values, **{name: tensor})
    if tensor.ndim not in (1, 2) or len(tensor) != n_rows:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but A has {n_rows} rows: give ({n_rows},) or ({n_rows}, k)")
    return tensor
