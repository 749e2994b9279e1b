"""Solves as a primitive of JAX, with factors kept and compared by value: on the GPU where the arrays lie, or on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from numpy.typing import NDArray

from ooc_chol.diff import jax_device_calls as calls
from ooc_chol.diff.factor_cache import CACHE, Assume, Method
from ooc_chol.diff.jax_primitives import Static, Structure, as_columns, batching_rule, bound, matmul
from ooc_chol.diff.triangular import solved
from ooc_chol.extras import install_hint

#: Solves with a matrix of values (nnz,) and right-hand sides (n, k), arrays of NumPy or CuPy, or with its transpose.
Solve = Callable[[Any, Any, bool], Any]


class Solver(Static):
    """Solves with the matrices of a pattern; on a GPU by a method of factors, or substitution."""

    def __init__(self, structure: Structure, name: str, solve: Solve, by: Literal[Method, "substitution"]) -> None:
        super().__init__()
        self.structure, self._solve, self._by = structure, solve, by
        self._calls = {t: calls.call_of(structure.pattern, f"{name}, {t}", partial(self, trans=t)) for t in (False, True)}

    def __call__(self, v: Any, b: Any, *, trans: bool) -> Any:
        """Solutions for one matrix, or for a batch of them, one after the other."""
        if v.ndim == 1:
            return self._solve(v, b, trans)
        found = [self._solve(values, rhs, trans) for values, rhs in zip(v, b, strict=True)]
        return np.stack(found) if found else np.empty_like(b)

    def call(self, trans: bool) -> calls.Call:
        """The same for programs that call it where they compute."""
        return self._calls[trans]

    def is_on_gpu(self, gpu: bool) -> bool:
        """Tell whether solves of arrays that lie on a GPU, or not, are done there."""
        if self._by == "cudss":
            self._check_cudss(gpu)
        if not gpu or self._by == "superlu":
            return False
        return calls.has_cupy() if self._by == "substitution" else calls.has_cudss()

    def _check_cudss(self, gpu: bool) -> None:
        """Refuse to do without cuDSS where it was asked for."""
        if not gpu:
            raise ValueError(
                "method='cudss' solves on a CUDA device, but A and b lie in host memory: move them by jax.device_put, or give "
                "method='superlu'"
            )
        if not calls.has_cudss():
            raise ImportError(
                f"method='cudss' needs cuDSS, which cannot be loaded; {install_hint('cuda13-direct')}; or give method='superlu', "
                "which solves on the host"
            )


def solver_of(structure: Structure, assume: Assume, method: Method = "auto") -> Solver:
    """Solves by factors, which are kept and compared by value."""

    def made(kept: Structure) -> Solver:
        def solve(values: Any, b: Any, trans: bool) -> Any:
            return CACHE.factor(kept.pattern, values, assume=assume, method=method).solve(b, trans=trans)

        return Solver(kept, f"solve, {assume}, {method}", solve, method)

    found: Solver = structure.kept(("solver", assume, method), made)
    return found


def triangular_solver_of(structure: Structure, *, lower: bool, unit_diagonal: bool) -> Solver:
    """Solves with a triangle, by substitution."""

    def made(kept: Structure) -> Solver:
        def solve(values: Any, b: Any, trans: bool) -> Any:
            return solved(kept.pattern, values, b, lower=lower, trans=trans, unit_diagonal=unit_diagonal)

        return Solver(kept, f"triangular solve, {lower}, {unit_diagonal}", solve, "substitution")

    found: Solver = structure.kept(("triangle", lower, unit_diagonal), made)
    return found


def solve(v: Array, b: Array, solver: Solver, *, trans: bool = False, wide: bool = False) -> Array:
    """``A^-1 b``, or ``A^-T b``, for v (nnz,) and b (n, k)."""
    return bound(solve_p, v, b, solver=solver, trans=trans, wide=wide)


def _by_itself(v: Array, b: Array, *, solver: Solver, trans: bool, wide: bool) -> Array:
    """The solve outside of jit, where what is raised is raised as it is."""
    if solver.is_on_gpu(calls.is_on_gpu(v, b)):
        given = {"solver": solver, "trans": trans, "wide": wide}
        return cast(Array, calls.finished(lambda *operands: solver.run(_bound, operands, given), v, b))
    return cast(Array, jax.device_put(solver(np.asarray(v), np.asarray(b), trans=trans), getattr(b, "sharding", None)))


def _called_back(v: Array, b: Array, *, solver: Solver, trans: bool, wide: bool) -> Array:
    """The solve within jit, on the host."""
    (found,) = called_back(lambda *given: (solver(*given, trans=trans),), [b.shape], v, b)
    return found


def _lowered(ctx: Any, v: Any, b: Any, *, gpu: bool = False, **params: Any) -> Any:
    """The solve as a program has it."""
    rule = _on_a_gpu if params["solver"].is_on_gpu(gpu) else _on_the_host
    return rule(ctx, v, b, **params)


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
_on_the_host = mlir.lower_fun(_called_back, multiple_results=False)
_on_a_gpu = calls.lowering(lambda solver, trans, wide: solver.call(trans), "cuda")
mlir.register_lowering(solve_p, _lowered)
mlir.register_lowering(solve_p, partial(_lowered, gpu=True), platform="cuda")
ad.primitive_jvps[solve_p] = _jvp
ad.primitive_transposes[solve_p] = _transpose
batching.primitive_batchers[solve_p] = batching_rule(_bound, (1, 2), as_columns(_bound))
