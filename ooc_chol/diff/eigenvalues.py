"""Eigenvalues of sparse symmetric matrices, differentiable as often as one likes where they are simple."""

from __future__ import annotations

import operator
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.diff.factors import Solve
from ooc_chol.diff.memory import Array, IndexArray, is_cupy
from ooc_chol.diff.ops import AbstractOp, Apply, Gather, Sampled, Scatter, Transpose, run
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.solve_checks import check_symmetric
from ooc_chol.eigen.solve import EigshCall, eigenpairs
from ooc_chol.eigen.wanted import Which
from ooc_chol.process.fork_safety import new_lock
from ooc_chol.sparse.planning import Devices

#: How far apart eigenvalues are that count as simple, relative to the largest magnitude seen.
GAP = 1e-6


@final
@dataclass(frozen=True)
class Spectrum:
    """Which eigenpairs are wanted, and those that were found last."""

    pattern: Pattern
    k: int
    which: Which
    tol: float | None
    gap: float
    devices: Devices = None
    _kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    _lock: threading.Lock = field(default_factory=new_lock, compare=False, repr=False)

    def pairs(self, values: Array) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Eigenvalues (k,), vectors (n, k), and the eigenvalues with the next one, all ascending."""
        self.pattern.check_values(values)
        wide = np.asarray(values.get() if is_cupy(values) else values, np.float64)
        with self._lock:
            if "values" in self._kept and np.array_equal(self._kept["values"], wide):
                found: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] = self._kept["pairs"]
                return found
        check_symmetric(self.pattern, values, "eigsh takes symmetric matrices", "give both triangles")
        matrix = csr_array((wide, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)
        more = min(self.k + 1, self.pattern.n_rows)
        w, x = eigenpairs(EigshCall(matrix, more, which=self.which, tol=self.tol, devices=self.devices))
        if more > self.k:
            last = {"LA": 0, "SA": more - 1}.get(self.which, int(np.argmin(np.abs(w))))
            found = np.delete(w, last), np.ascontiguousarray(np.delete(x, last, axis=1)), w
        else:
            found = w, np.ascontiguousarray(x), w
        with self._lock:
            self._kept.update(values=wide.copy(), pairs=found)
        return found

    def check_gaps(self, w: NDArray[np.float64]) -> None:
        """Refuse eigenvalues that are not simple."""
        gaps = np.diff(w)
        scale = float(np.abs(w).max())
        if gaps.size and gaps.min() <= self.gap * scale:
            at = int(gaps.argmin())
            raise ValueError(
                f"eigenvalues {w[at]:.9g} and {w[at + 1]:.9g} are {gaps[at]:.2g} apart, not more than gap={self.gap:g} of the "
                f"largest, {scale:.3g}: multiple eigenvalues have no derivatives; ask for fewer or more of them, so that none "
                "is among these or next to them, or give a smaller gap"
            )
        sizes = np.sort(np.abs(w))
        if self.which == "LM" and w.size > self.k and w.min() < 0 < w.max() and sizes[1] - sizes[0] <= self.gap * scale:
            # The next one counts from the other end of the spectrum, so that a third may be as near: nobody looked there.
            raise ValueError(
                f"the magnitudes {sizes[0]:.9g} and {sizes[1]:.9g} of the next eigenvalue and the last one are not more than "
                f"gap={self.gap:g} of the largest, {scale:.3g}, apart: which of them is taken is chance, and has no derivative; "
                "ask for one more or less, or for which='LA' or 'SA'"
            )


@final
@dataclass(frozen=True)
class Eigenvalues(AbstractOp):
    """Eigenvalues w (k,), ascending; the derivative of each is ``x x.T`` on the pattern, x being its vector."""

    spectrum: Spectrum

    def forward(self, values: Array) -> Array:
        return _like(self.spectrum.pairs(values)[0], values)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        if not wanted[0]:
            return (None,)
        x = apply(Eigenvectors(self.spectrum), given[0])
        return (apply(Sampled(self.spectrum.pattern), x * g, x),)


@final
@dataclass(frozen=True)
class Eigenvectors(AbstractOp):
    """Eigenvectors x (n, k), of length 1 and of either sign, of simple eigenvalues.

    The derivative of each is ``-P (dA + dA.T) x / 2``, P being the inverse of ``A - w I`` on what is orthogonal to x, a block of
    that of ``[[A - w I, x], [x.T, 0]]``.
    """

    spectrum: Spectrum

    def forward(self, values: Array) -> Array:
        _, x, w = self.spectrum.pairs(values)
        self.spectrum.check_gaps(w)
        return _like(x, values)

    def pull(self, apply: Apply, given: Sequence[Any], g: Any, wanted: Sequence[bool]) -> tuple[Any, ...]:
        if not wanted[0]:
            return (None,)
        (values,) = given
        pattern = self.spectrum.pattern
        w, x, bordered = apply(Eigenvalues(self.spectrum), values), apply(self, values), _bordered(pattern)
        n, nnz = pattern.n_rows, bordered.pattern.nnz
        inner = apply(Scatter(bordered.inner, nnz), _even(apply, pattern, values))
        found: Any = None
        for j in range(self.spectrum.k):
            vector = x[:, j]
            border = apply(Scatter(bordered.column, nnz), vector) + apply(Scatter(bordered.row, nnz), vector)
            shift = apply(Scatter(bordered.diagonal, nnz), w[j] + 0 * vector)
            right = apply(Scatter(bordered.first, n + 1), g[:, j])
            y = apply(Gather(bordered.first, n + 1), apply(Solve(bordered.pattern), inner + border - shift, right))
            part = apply(Sampled(pattern), -y, vector)
            found = part if found is None else found + part
        return (_even(apply, pattern, found),)


def _even(apply: Apply, pattern: Pattern, values: Any) -> Any:
    """Values of ``(A + A.T) / 2``: those of A, but for derivatives in them."""
    return (values + apply(Transpose(pattern), values)) * 0.5


class _Bordered(NamedTuple):
    """The pattern of a matrix with one more row and column, and where entries go in it."""

    pattern: Pattern
    inner: IndexArray  #: Of the entries of A
    diagonal: IndexArray  #: Of its whole diagonal
    column: IndexArray  #: Of the last column without the corner
    row: IndexArray  #: Of the last row without the corner
    first: IndexArray  #: Of the first n numbers of a vector


def _bordered(pattern: Pattern) -> _Bordered:
    """The bordered pattern, made once."""
    found: _Bordered = pattern.with_other(pattern, "bordered", _made_bordered)
    return found


def _made_bordered(pattern: Pattern, _same: Pattern) -> _Bordered:
    n = pattern.n_rows
    at, end = np.arange(n), np.full(n, n)
    rows = np.concatenate([pattern.rows, at, at, end])
    columns = np.concatenate([pattern.indices, at, end, at])
    keys, places = np.unique(rows.astype(np.int64) * (n + 1) + columns, return_inverse=True)
    starts = np.searchsorted(keys, np.arange(n + 2, dtype=np.int64) * (n + 1))
    whole = Pattern(starts, keys % (n + 1), (n + 1, n + 1), name=f"{pattern.name} with a border")
    parts = np.split(places, np.cumsum([pattern.nnz, n, n]))
    return _Bordered(whole, *(IndexArray(np.ascontiguousarray(part)) for part in (*parts, at)))


def _like(x: NDArray[np.float64], values: Array) -> Array:
    """Convert a result of the host to the type and memory of the values."""
    narrow = x.astype(values.dtype)
    return import_module("ooc_chol.kernels.cuda.direct").to_device(narrow, values) if is_cupy(values) else narrow


def eigsh(
    pattern: Pattern,
    values: Any,
    k: int = 6,
    *,
    which: Which = "LM",
    tol: float | None = None,
    gap: float = GAP,
    devices: Devices = None,
    apply: Apply = run,
) -> Any:
    """Some eigenvalues of a sparse symmetric matrix, differentiable in its values.

    Parameters
    ----------
    pattern : Pattern
        Pattern of A, (n, n), symmetric.
    values : (nnz,) array
        Values of A, float32 or float64, those of both triangles.
    k : int
        Eigenvalues, 1 to n.
    which : {"LM", "LA", "SA"}
        Those of largest magnitude, the largest, or the smallest.
    tol : float, optional
        As for :func:`ooc_chol.eigsh`, in float64.
    gap : float
        How far apart eigenvalues must be to be differentiated, relative to the largest magnitude among them.
    devices : optional
        As for :func:`ooc_chol.eigsh`, which computes the pairs.
    apply : callable
        Computing part: an adapter's own, for arrays of its framework.

    Returns
    -------
    (k,) array
        Eigenvalues, ascending, in the type of ``values``.

    Raises
    ------
    ValueError
        A is not square or not symmetric, or k makes no sense; in a derivative, two eigenvalues, or one and the next that was not
        asked for, are closer than ``gap``, or for ``"LM"`` the magnitudes of
        these.
    NoConvergenceError, NonFiniteError
        As for :func:`ooc_chol.eigsh`.

    Notes
    -----
    For a cotangent g that of the values is ``sampled(x g, x)``, the vectors x in the columns. A counts as ``(A + A.T) / 2``:
    derivatives are symmetric, and each entry counts by itself. Second ones solve with ``A - w I``, bordered by x, which is
    factored once for each eigenvalue. One pair more than k is computed, to see how far away it is.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 1, 2, 3], [0, 1, 2], (3, 3))
    >>> oc.diff.eigsh(
    ...     pattern,
    ...     np.array([3.0, 1.0, 2.0]),
    ...     2,
    ...     which="LA",
    ...     devices="host:0",
    ... ).round(9).tolist()
    [2.0, 3.0]
    """
    if pattern.n_rows != pattern.n_columns:
        raise ValueError(f"{pattern.name} is {pattern.n_rows} x {pattern.n_columns}: only a square matrix has eigenvalues")
    k = operator.index(k)
    if not 1 <= k <= pattern.n_rows:
        raise ValueError(f"k is {k}, but {pattern.name} has {pattern.n_rows} rows: give 1 to {pattern.n_rows}")
    return apply(Eigenvalues(Spectrum(pattern, k, which, tol, gap, devices)), values)
