"""Answers of one call: the solution of ``A x = b`` and the log-determinant of A, without a factor to keep."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from numpy.typing import ArrayLike, NDArray

from ooc_chol.api.cholesky import cholesky
from ooc_chol.dense.factor.solves import right_hand_side
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.problem import format_asked
from ooc_chol.hardware.arrays import device_of
from ooc_chol.memory.sources import as_source


def solve(
    A: Any,
    b: ArrayLike,
    precision_threshold: float | None = None,
    *,
    refine: bool = False,
    overwrite_b: bool = False,
    **options: Any,
) -> NDArray[Any]:
    """Solve ``A x = b`` with a symmetric or Hermitian positive definite A, and forget its factor.

    Parameters
    ----------
    A : (n, n) array, path, or source
        The matrix, as for :func:`cholesky`; only its lower triangle is read.
    b : (n,) or (n, m) array_like
        Right-hand sides, as for :meth:`CholeskyFactor.solve`; they are looked at before A is factored.
    precision_threshold : float or None
        Mixed precision, as for :func:`cholesky`.
    refine : bool
        Reach the accuracy of FP64 with a factor in mixed precision.
    overwrite_b : bool
        True if the solutions may take the memory of ``b``.
    **options
        Those of :func:`cholesky`: ``dtype``, ``tile_size``, ``devices``, ``memory_budget``, ``store``, ...

    Returns
    -------
    (n,) or (n, m) array
        The solutions, of the shape and kind of ``b``.

    Raises
    ------
    Exception
        Whatever :func:`cholesky` and :meth:`CholeskyFactor.solve` raise.

    Warns
    -----
    scipy.linalg.LinAlgWarning
        A is so ill-conditioned that fewer than three digits can be expected to be right.
    AsymmetryWarning
        A sample of both triangles differs, and ``lower`` is not given.

    Notes
    -----
    ``n³/3`` flops, and ``2 n**2 m``. The memory of the factor is given back before the call returns; a file that ``store`` names
    stays. With several right-hand sides that come one after the other keep the factor instead.

    Examples
    --------
    >>> import numpy as np, ooc_chol as oc
    >>> oc.solve(np.array([[4.0, 2.0], [2.0, 5.0]]), [8.0, 12.0])
    array([1., 2.])
    """
    if device_of(b) is None:
        with closing(as_source(A)) as source:
            fmt = format_asked(FactorOptions(dtype=options.get("dtype")), source.dtype)
            right_hand_side(b, source.n, copy=False, fmt=fmt)
    with cholesky(A, precision_threshold=precision_threshold, **options) as factor:
        return factor.solve(b, refine=refine, overwrite_b=overwrite_b)


def logdet(A: Any, precision_threshold: float | None = None, **options: Any) -> float:
    """Logarithm of the determinant of a symmetric or Hermitian positive definite A; its factor is forgotten.

    Parameters
    ----------
    A : (n, n) array, path, or source
        The matrix, as for :func:`cholesky`; only its lower triangle is read.
    precision_threshold : float or None
        Mixed precision, as for :func:`cholesky`.
    **options
        Those of :func:`cholesky`: ``dtype``, ``tile_size``, ``devices``, ``memory_budget``, ``store``, ...

    Returns
    -------
    float
        The natural logarithm.

    Raises
    ------
    Exception
        Whatever :func:`cholesky` raises.

    Warns
    -----
    AsymmetryWarning
        A sample of both triangles differs, and ``lower`` is not given.

    Examples
    --------
    >>> import numpy as np, ooc_chol as oc
    >>> round(oc.logdet(np.array([[4.0, 2.0], [2.0, 5.0]])), 6)
    2.772589
    """
    with cholesky(A, precision_threshold=precision_threshold, **options) as factor:
        return factor.logdet()
