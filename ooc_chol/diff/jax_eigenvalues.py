"""Eigenvalues as functions of JAX: pairs by ``oc.eigsh`` on the host, derivatives of both by products and bordered solves."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ooc_chol.diff.eigenvalues import Spectrum, _bordered
from ooc_chol.diff.jax_primitives import Places, Structure, matmul, place
from ooc_chol.diff.jax_solves import called_back, solve, solver_of


class Bordered:
    """``[[A - w I, x], [x^T, 0]]``, which is regular where w is a simple eigenvalue and x its vector."""

    def __init__(self, structure: Structure) -> None:
        found = _bordered(structure.pattern)
        self.structure, n = Structure.of(found.pattern), found.pattern.nnz
        self._inner, self._column, self._row = (Places(each.host, n).back for each in (found.inner, found.column, found.row))
        self._diagonal = np.zeros(n, bool)
        self._diagonal[found.diagonal.host] = True

    def values(self, v: Array, w: Array, x: Array) -> Array:
        """Those of the matrix at one eigenpair."""
        border = place(x, self._column) + place(x, self._row)
        return place(v, self._inner) + border - jnp.where(self._diagonal, w, 0)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def eigenvalues(v: Array, spectrum: Spectrum) -> Array:
    """(k,) eigenvalues of values (nnz,)."""
    return _on_the_host(lambda values: (spectrum.pairs(values)[0],), [(spectrum.k,)], v)[0]


@eigenvalues.defjvp
def _eigenvalues_jvp(spectrum: Spectrum, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """``dw = x^T dA x``."""
    (v,), (dv,) = primals, tangents
    w, x = eigenpairs(v, spectrum)
    return w, jnp.sum(x * matmul(dv, x, Structure.of(spectrum.pattern)), axis=0)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def eigenpairs(v: Array, spectrum: Spectrum) -> tuple[Array, Array]:
    """Eigenvalues (k,) and vectors (n, k), of simple eigenvalues."""

    def host(values: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        w, x, seen = spectrum.pairs(values)
        spectrum.check_gaps(seen)
        return w, x

    w, x = _on_the_host(host, [(spectrum.k,), (spectrum.pattern.n_rows, spectrum.k)], v)
    return w, x


@eigenpairs.defjvp
def _eigenpairs_jvp(spectrum: Spectrum, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """``(A - w I) dx = -(dA - dw I) x`` with ``x^T dx = 0``, for one pair after the other; dA counts as ``(dA + dA^T) / 2``."""
    (v,), (dv,) = primals, tangents
    structure = Structure.of(spectrum.pattern)
    w, x = eigenpairs(v, spectrum)
    v, dv = _even(v, structure), _even(dv, structure)
    change = matmul(dv, x, structure)
    dw = jnp.sum(x * change, axis=0)
    rhs = jnp.concatenate([dw * x - change, jnp.zeros((1, spectrum.k), v.dtype)])
    bordered: Bordered = structure.kept("bordered", Bordered)
    solver = solver_of(bordered.structure, None)
    columns = [solve(bordered.values(v, w[j], x[:, j]), rhs[:, j : j + 1], solver)[:-1] for j in range(spectrum.k)]
    return (w, x), (dw, jnp.concatenate(columns, axis=1))


def _even(v: Array, structure: Structure) -> Array:
    """Values of ``(A + A^T) / 2``: those of A, but for derivatives in them."""
    return (v + place(v, structure.transposing)) / 2


def _on_the_host(function: Any, shapes: list[tuple[int, ...]], v: Array) -> tuple[Array, ...]:
    """Call a function of the host on concrete values, its errors as they are; within jit and vmap by a callback, one by one."""
    if isinstance(v, jax.core.Tracer):
        return called_back(function, shapes, v)
    return tuple(jnp.asarray(found.astype(v.dtype)) for found in function(np.asarray(v)))
