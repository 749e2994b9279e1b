"""How far solutions can be trusted: norms of a matrix and of its inverse, estimated from products and solves."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.reading import HOST_NAME, stream_tiles
from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.arrays import device_of
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.process.address_space import guarded_imports
from ooc_chol.runtime.passes import Pass

Vectors: TypeAlias = NDArray[np.float64]
#: A product or a solve: of a complex matrix its columns are complex
Apply: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

#: Vectors of the block estimate, and its iterations at most, each of two products: as SciPy and MATLAB have them.
_COLUMNS, _MOST_ITERATIONS = 2, 5
#: Orders up to which all columns are looked at: fewer than are worth a visit of GPUs.
_MOST_EXACT = 31
#: Orders up to which a product with a few columns is for one thread.
_SMALL_ORDER = 4096
#: Random vectors by which the norm of an inverse is estimated; with three it is ten times too low once in a thousand matrices.
_RANDOM_VECTORS = 3
#: Orders up to which a solve with these takes less than a factorization's overhead.
_ALWAYS_LOOKED_AT = 512
#: Relative error of a solution from which on a user is warned: fewer than three digits.
LEAST_ERROR = 1e-3


def few_columns(n: int) -> AbstractContextManager[None]:
    """One thread of BLAS inside a ``with`` block where several would wait for each other more than they compute."""
    return blas_threads(1) if n <= _SMALL_ORDER else nullcontext()


def one_norm_estimate(apply: Apply, n: int) -> float:
    """Estimate ``||B||_1``, the largest column sum of a Hermitian ``B`` of which products alone are known; never too large.

    Higham and Tisseur (2000), algorithm 2.4, with two columns: first the mean of all columns, a random combination and that of
    LAPACK's xLACN2 against cancellation, then the columns at which the gradient is largest, until none is new. All columns of a
    small one.
    """
    if n <= _MOST_EXACT:
        return float(np.abs(apply(np.eye(n))).sum(axis=0).max(initial=0.0))
    x = _first_vectors(n)
    units, used, largest = np.zeros(0, dtype=np.intp), set[int](), 0.0
    signs: NDArray[Any] | None = None
    for iteration in range(_MOST_ITERATIONS):
        y = apply(x)
        sums = np.abs(y).sum(axis=0)
        best = int(np.argmax(sums))  # the first NaN, if there is one
        if iteration and not sums[best] > largest:
            break
        largest = float(sums[best])
        before, signs = signs, signs_of(y)
        if not math.isfinite(largest) or (before is not None and _are_parallel(signs, before)):
            break
        gradient = np.abs(apply(signs)).max(axis=1)
        if iteration and gradient.max() == gradient[units[best]]:
            break
        leading = np.argsort(-gradient)[: len(used) + _COLUMNS]
        units = np.array([at for at in leading if int(at) not in used][:_COLUMNS], dtype=np.intp)
        if set(leading[:_COLUMNS].tolist()) <= used:
            break
        used.update(units.tolist())
        x = np.zeros((n, len(units)))
        x[units, np.arange(len(units))] = 1.0
    return largest


def _first_vectors(n: int) -> Vectors:
    """The mean of all columns, one with random signs, always the same, and one with alternating signs that grows twofold."""
    x = np.full((n, _COLUMNS), 1.0 / n)
    x[:, 1:] *= np.random.default_rng(0).choice([-1.0, 1.0], (n, _COLUMNS - 1))
    alternating = np.linspace(1.0, 2.0, n) * (1.0 - 2.0 * (np.arange(n) % 2))
    return np.column_stack([x, alternating / np.abs(alternating).sum()])


def signs_of(y: NDArray[Any]) -> NDArray[Any]:
    """The signs of numbers, of complex ones numbers of magnitude 1 in their directions; 1 for zeros."""
    if y.dtype.kind != "c":
        signs: NDArray[Any] = np.where(y < 0.0, y.dtype.type(-1.0), y.dtype.type(1.0))
        return signs
    size = np.abs(y)
    with np.errstate(invalid="ignore"):  # an infinite norm ends the estimate
        signs = np.where(size > 0.0, y / np.where(size > 0.0, size, 1.0), 1.0)
    return signs


def _are_parallel(signs: NDArray[Any], before: NDArray[Any]) -> bool:
    """Tell whether every column of signs, or its opposite, was there before; complex ones never count as such."""
    return signs.dtype.kind != "c" and bool((np.abs(signs.T @ before).max(axis=1) == len(signs)).all())


def row_norms(store: AbstractStore, run: Pass) -> Vectors:
    """Norms of the rows of L, ``sqrt(A_ii)``: one reading of L on the host."""
    grid, track = store.grid, track_of_l(run, HOST_NAME)
    squares = np.zeros(grid.n)
    with closing(stream_tiles(store, list(grid.tiles()), track, 1)) as tiles:
        for (i, _), l_ij in tiles:
            for part in (l_ij.real, l_ij.imag) if store.fmt.is_complex else (l_ij,):
                squares[grid.start(i) :][: grid.size(i)] += np.einsum("ij,ij->i", part, part)
    track.settle()
    return np.sqrt(squares)


def diagonal_of(a: object) -> Vectors | None:
    """The diagonal of a matrix that is an array in the memory of the host or of a GPU; None for others, which are not read."""
    if isinstance(a, np.ndarray):
        return None if isinstance(a, np.memmap) else np.array(np.asarray(a).diagonal().real, dtype=np.float64)
    home = device_of(a)
    if home is None:
        return None
    kind = device_kind(home)
    return np.asarray(kind.to_host(kind.from_dlpack(a).diagonal().real.copy()), dtype=np.float64)


def may_be_ill_conditioned(squares: Vectors, diagonal: Vectors, fmt: PrecisionFormat) -> bool:
    """Tell whether :func:`expected_error` may be worth its solve: always for small orders, else by ``r = A_ii / L_ii**2``.

    With ``H = inv(D) A inv(D)``, the largest r is at most ``||inv(H)||_2``: each is the last diagonal entry of the inverse of a
    leading block. The norm is at most about the square of r for smooth kernels, normal equations of polynomials, matrices of
    Hilbert and Pascal, and random ones with given eigenvalues.
    """
    if len(diagonal) <= _ALWAYS_LOOKED_AT:
        return True
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = np.max(squares / diagonal / diagonal)
        return not fmt.unit_roundoff * ratio * ratio < LEAST_ERROR


def expected_error(norms: Vectors, solve: Apply, fmt: PrecisionFormat) -> float:
    """Relative error that rounding A leads one to expect of a solution, ``u ||inv(H)||_F`` with ``H = inv(D) A inv(D)``.

    ``norms`` are ``D_ii = sqrt(A_ii)``, and u is of the type of L. A factor that is right is that of ``A + E`` with ``|E_ij|``
    about ``u D_ii D_jj``, and ``inv(H) E' y`` has the norm ``u ||inv(H)||_F ||y||`` for independent errors ``E'`` of size ``u``.
    Units of rows do not count. For vectors x of random signs ``||inv(H) x||**2`` is ``||inv(H)||_F**2`` on average. Cost: one
    solve with three columns.
    """
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (len(norms), _RANDOM_VECTORS))
    with np.errstate(over="ignore", invalid="ignore"):
        y = norms[:, None] * solve(norms[:, None] * signs)
        return fmt.unit_roundoff * float(np.linalg.norm(y)) / math.sqrt(_RANDOM_VECTORS)


def warn_of_condition(error: float, fmt: PrecisionFormat) -> None:
    """Say what SciPy says of ill-conditioned matrices, by its own warning, of the line that called this package."""
    with guarded_imports():
        from scipy.linalg import LinAlgWarning  # 130 ms that nearly no solve need take

    digits = max(0, math.floor(-math.log10(error))) if math.isfinite(error) else 0
    norm = error / fmt.unit_roundoff
    of_type = "" if fmt == FP64 else f" in {fmt.dtype.name}"
    text = (
        f"A is ill-conditioned: once its diagonal is scaled to ones, its inverse has a norm of about {norm:.1e}, so that "
        f"{digits or 'no'} digit{'s' * (digits != 1)} of a solution{of_type} can be expected to be right; add a nugget to the "
        "diagonal, or ask L.cond()"
    )
    warnings.warn(text, LinAlgWarning, stacklevel=frames_of_the_package() + 1)
