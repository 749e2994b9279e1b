"""Operations of positive definite matrices as a primitive of JAX, differentiated as they say themselves.

They are computed on the GPU where the arrays lie, or on the host.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from numpy.typing import NDArray

from ooc_chol.calls.options import documented
from ooc_chol.diff import definite
from ooc_chol.diff import jax_device_calls as calls
from ooc_chol.diff.definite import AbstractDefiniteOp
from ooc_chol.diff.jax_checks import check_square, panel_of
from ooc_chol.diff.jax_csr import CSR, check_matrix
from ooc_chol.diff.jax_primitives import Places, Structure, bound, flattened, place
from ooc_chol.diff.jax_solves import called_back, triangular_solver_of
from ooc_chol.diff.jax_solves import solve as solved
from ooc_chol.diff.memory import module_of


def logdet(A: CSR) -> Array:
    """``log det A`` of a sparse symmetric positive definite matrix, whose gradient is its inverse on the pattern.

    Parameters
    ----------
    A : CSR
        (n, n), symmetric positive definite, with the entries of both triangles.

    Returns
    -------
    () array
        The logarithm of the determinant.

    Raises
    ------
    NotPositiveDefiniteError
        A is not positive definite, exactly or to working precision; the error's ``row`` has no positive ``pivot``. Within
        ``jit``, JAX puts its text into an error of its own.
    ValueError, TypeError
        A is not square or not symmetric, or no ``CSR``.

    Notes
    -----
    A counts as ``(A + A.T) / 2``: derivatives are symmetric, and each entry counts by itself. The factor is made in float64, on a
    CUDA device where A lies there and CuPy is installed, else on the host. It is kept for derivatives and for equal values.
    ``vmap`` over values factors one matrix after the other.

    Examples
    --------
    >>> import jax, numpy as np, scipy.sparse
    >>> import ooc_chol.diff.jax as sparse
    >>> A = sparse.CSR.of(
    ...     scipy.sparse.csr_array(np.array([[2, 1], [1, 2]], np.float32))
    ... )
    >>> jax.grad(sparse.logdet)(A).values.round(4)
    Array([ 0.6667, -0.3333, -0.3333,  0.6667], dtype=float32)
    """
    _check(A, "logdet")
    found: Array = definite.logdet(A.pattern, A.values, apply=_apply)
    return found


@documented(like=logdet)
def selected_inverse(A: CSR) -> CSR:
    """The entries of ``A^-1`` on the pattern of a sparse symmetric positive definite A, without the others.

    Returns
    -------
    CSR
        Those entries. Its diagonal are the variances of the Gaussian with precision A.

    Raises
    ------
    NotPositiveDefiniteError, ValueError, TypeError
        As for :func:`logdet`.
    """
    _check(A, "selected_inverse")
    return CSR.of_any(definite.selected_inverse(A.pattern, A.values, apply=_apply), A.pattern)


@documented(like=logdet)
def cholesky(A: CSR) -> tuple[CSR, NDArray[np.int64]]:
    """The sparse lower triangle L with ``L @ L.T = A[order][:, order]``.

    Returns
    -------
    L : CSR
        With every entry that the pattern of A makes possible.
    order : (n,) array of int
        Rows of A in the order of elimination, which the pattern decides: an array of NumPy.

    Raises
    ------
    NotPositiveDefiniteError, ValueError, TypeError
        As for :func:`logdet`.
    """
    _check(A, "cholesky")
    pattern, values, order = definite.cholesky(A.pattern, A.values, apply=_apply)
    return CSR.of_any(values, pattern), order


@documented(like=logdet)
def sample(A: CSR, z: Any) -> Array:
    """Samples of the Gaussian with mean 0 and precision A, made of standard normal numbers: ``x[order] = L^-T z``.

    Parameters
    ----------
    z : (n,) or (n, k) array
        Standard normal numbers of A's type; each column makes one sample.

    Returns
    -------
    (n,) or (n, k) array
        The samples, which are differentiable in A, z being kept.

    Raises
    ------
    NotPositiveDefiniteError, ValueError, TypeError
        As for :func:`logdet`; z has another height or type.
    """
    _check(A, "sample")
    columns, is_vector = panel_of(z, "z", A.shape[0], A)
    lower, order = cholesky(A)
    solver = triangular_solver_of(Structure.of(lower.pattern), lower=True, unit_diagonal=False)
    x = solved(lower.values, columns, solver, trans=True)
    back = Structure.of(A.pattern).kept("elimination", lambda _: Places(np.argsort(order), order.size))
    found = place(x.T, back).T
    return found[:, 0] if is_vector else found


def _check(A: Any, operation: str) -> None:
    check_matrix(A)
    check_square(A.pattern, operation)


def _apply(op: AbstractDefiniteOp, *operands: Any) -> Array:
    """Compute an operation, and record it."""
    return bound(definite_p, *operands, op=op)


def _computed(op: AbstractDefiniteOp, *given: Any) -> Any:
    """The result for one matrix, or for a batch of them, one after the other, of arrays of NumPy or CuPy."""
    if given[0].ndim == 1:
        return op.forward(*given)
    found = [op.forward(*each) for each in zip(*given, strict=True)]
    return np.stack(found) if found else module_of(given[0]).zeros((0, *op.shape), given[0].dtype)


def _call(op: AbstractDefiniteOp) -> calls.Call:
    """The same for programs that call it where they compute."""
    made = calls.call_of(op.pattern, type(op).__name__, partial(_computed, op))
    found: calls.Call = Structure.of(op.pattern).kept(("call", type(op)), lambda _: made)
    return found


def _by_itself(*operands: Any, op: AbstractDefiniteOp) -> Array:
    """The operation outside of jit, where what is raised is raised as it is."""
    if calls.is_on_gpu(*operands) and calls.has_cupy():
        static = Structure.of(op.pattern)
        return cast(Array, calls.finished(lambda *given: static.run(_bound, given, {"op": op}), *operands))
    found = np.asarray(_computed(op, *map(np.asarray, operands)))
    return cast(Array, jax.device_put(found, getattr(operands[0], "sharding", None)))


def _called_back(*operands: Array, op: AbstractDefiniteOp) -> Array:
    """The operation within jit, on the host."""
    (found,) = called_back(lambda *given: (_computed(op, *given),), [_shape(op, operands[0])], *operands)
    return found


def _on_a_gpu(ctx: Any, *operands: Any, op: AbstractDefiniteOp) -> Any:
    """The operation within jit for a GPU."""
    return (_called if calls.has_cupy() else _on_the_host)(ctx, *operands, op=op)


def _shape(op: AbstractDefiniteOp, values: Any) -> tuple[int, ...]:
    return (*values.shape[:-1], *op.shape)


def _jvp(primals: Any, tangents: Any, *, op: AbstractDefiniteOp) -> tuple[Array, Any]:
    """The sum of what each tangent adds."""
    found = _apply(op, *primals)
    parts = [op.pushed(_apply, primals, at, each) for at, each in enumerate(tangents) if not isinstance(each, ad.Zero)]
    return found, sum(parts[1:], start=parts[0]) if parts else ad.Zero(found.aval)


def _transpose(ct: Any, *operands: Any, op: AbstractDefiniteOp) -> list[Any]:
    """Linear in one direction."""

    def of(at: int, operand: Any) -> Any:
        if not ad.is_undefined_primal(operand):
            return None
        return ad.Zero(operand.aval) if isinstance(ct, ad.Zero) else op.pulled(_apply, operands, at, ct)

    return [of(at, operand) for at, operand in enumerate(operands)]


def _batched(operands: Any, axes: Any, *, op: AbstractDefiniteOp) -> tuple[Array, int]:
    """Operands with a first axis for the batch; a batch of batches is one."""
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    full = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    inner = next((x.shape[1] for x in full if x.ndim == 3), None)
    if inner is None:
        return _apply(op, *full), 0
    full = [x if x.ndim == 3 else jnp.broadcast_to(x[:, None], (size, inner, x.shape[1])) for x in full]
    found = _apply(op, *(flattened(x, 1) for x in full))
    return found.reshape(size, inner, *found.shape[1:]), 0


definite_p = Primitive("ooc_chol_definite")
definite_p.def_impl(_by_itself)
definite_p.def_abstract_eval(lambda *avals, op: avals[0].update(shape=_shape(op, avals[0])))
_bound = partial(bound, definite_p)
_on_the_host = mlir.lower_fun(_called_back, multiple_results=False)
_called = calls.lowering(_call, "cuda")
mlir.register_lowering(definite_p, _on_the_host)
mlir.register_lowering(definite_p, _on_a_gpu, platform="cuda")
ad.primitive_jvps[definite_p] = _jvp
ad.primitive_transposes[definite_p] = _transpose
batching.primitive_batchers[definite_p] = _batched
