"""Solves as a primitive of JAX: SuperLU on the host, called back, with factors that are kept and compared by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from numpy.typing import NDArray

from ooc_chol.diff.factor_cache import CACHE, Assume
from ooc_chol.diff.jax_primitives import Static, Structure, as_columns, batching_rule, bound, matmul
from ooc_chol.diff.triangular import solved

#: Solves with a matrix of values (nnz,) and right-hand sides (n, k) on the host, or with its transpose.
HostSolve = Callable[[NDArray[Any], NDArray[Any], bool], NDArray[Any]]


class Solver(Static):
    """How the matrices of a pattern are solved with, on the host."""

    def __init__(self, structure: Structure, host: HostSolve) -> None:
        super().__init__()
        self.structure, self.host = structure, host

    def __call__(self, v: Any, b: Any, *, trans: bool) -> NDArray[Any]:
        """Solutions for one matrix, or for a batch of them, one after the other."""
        values, rhs = np.asarray(v), np.asarray(b)
        if values.ndim == 1:
            return np.asarray(self.host(values, rhs, trans), rhs.dtype)
        found = [self.host(each, of_each, trans) for each, of_each in zip(values, rhs, strict=True)]
        return np.stack(found).astype(rhs.dtype, copy=False) if found else np.empty_like(rhs)


def solver_of(structure: Structure, assume: Assume) -> Solver:
    """Solves by factors, which are kept and compared by value."""

    def host(values: NDArray[Any], b: NDArray[Any], trans: bool) -> NDArray[Any]:
        return np.asarray(CACHE.factor(structure.pattern, values, assume=assume, method="superlu").solve(b, trans=trans))

    found: Solver = structure.kept(("solver", assume), lambda kept: Solver(kept, host))
    return found


def triangular_solver_of(structure: Structure, *, lower: bool, unit_diagonal: bool) -> Solver:
    """Solves with a triangle, by substitution."""

    def host(values: NDArray[Any], b: NDArray[Any], trans: bool) -> NDArray[Any]:
        return np.asarray(solved(structure.pattern, values, b, lower=lower, trans=trans, unit_diagonal=unit_diagonal))

    found: Solver = structure.kept(("triangle", lower, unit_diagonal), lambda kept: Solver(kept, host))
    return found


def solve(v: Array, b: Array, solver: Solver, *, trans: bool = False, wide: bool = False) -> Array:
    """``A^-1 b``, or ``A^-T b``, for v (nnz,) and b (n, k)."""
    return bound(solve_p, v, b, solver=solver, trans=trans, wide=wide)


def _by_itself(v: Array, b: Array, *, solver: Solver, trans: bool, wide: bool) -> Array:
    """The solve outside of jit, where what the host raises is raised as it is."""
    return cast(Array, jax.device_put(solver(v, b, trans=trans), getattr(b, "sharding", None)))


def _called_back(v: Array, b: Array, *, solver: Solver, trans: bool, wide: bool) -> Array:
    """The solve within jit."""
    (found,) = called_back(lambda *given: (solver(*given, trans=trans),), [b.shape], v, b)
    return found


def called_back(
    function: Callable[..., tuple[NDArray[Any], ...]], shapes: Sequence[tuple[int, ...]], *operands: Array
) -> tuple[Array, ...]:
    """Call a function of NumPy's arrays within jit: its results have these shapes and the first operand's type.

    Numbers travel as their bits: the thread that calls back has JAX's 64-bit types off where they are on by a context only, and
    then JAX would round what it hands over.
    """
    dtype = np.dtype(operands[0].dtype)
    words = dtype.itemsize // 4

    def of_bits(*bits: Any) -> tuple[NDArray[np.uint32], ...]:
        given = (np.ascontiguousarray(each).view(dtype)[..., 0] for each in bits)
        return tuple(
            np.ascontiguousarray(found, dtype).reshape(*np.shape(found), 1).view(np.uint32) for found in function(*given)
        )

    results = [jax.ShapeDtypeStruct((*shape, words), jnp.uint32) for shape in shapes]
    bits = (jax.lax.bitcast_convert_type(each, jnp.uint32).reshape(*each.shape, words) for each in operands)
    found = jax.pure_callback(of_bits, tuple(results), *bits, vmap_method="sequential")
    return tuple(jax.lax.bitcast_convert_type(each if words > 1 else each[..., 0], dtype) for each in found)


def _jvp(primals: Any, tangents: Any, *, solver: Solver, trans: bool, wide: bool) -> tuple[Array, Any]:
    """``dx = A^-1 (db - dA x)``."""
    (v, b), (dv, db) = primals, tangents
    x = solve(v, b, solver, trans=trans, wide=wide)
    if isinstance(dv, ad.Zero) and isinstance(db, ad.Zero):
        return x, ad.Zero(x.aval)
    rhs = db
    if not isinstance(dv, ad.Zero):
        product = matmul(dv, x, solver.structure, transposed=trans, wide=wide)
        rhs = -product if isinstance(db, ad.Zero) else db - product
    return x, solve(v, rhs, solver, trans=trans, wide=wide)


def _transpose(ct: Any, v: Array, b: Any, *, solver: Solver, trans: bool, wide: bool) -> tuple[None, Any]:
    """Linear in b alone."""
    zero = isinstance(ct, ad.Zero)
    return None, ad.Zero(b.aval) if zero else solve(v, ct, solver, trans=not trans, wide=wide)


solve_p = Primitive("ooc_chol_solve")
_bound = partial(bound, solve_p)
solve_p.def_impl(_by_itself)
solve_p.def_abstract_eval(lambda v, b, **params: b.update(shape=b.shape))
mlir.register_lowering(solve_p, mlir.lower_fun(_called_back, multiple_results=False))
ad.primitive_jvps[solve_p] = _jvp
ad.primitive_transposes[solve_p] = _transpose
batching.primitive_batchers[solve_p] = batching_rule(_bound, (1, 2), as_columns(_bound))
