"""``oc.svds``: the largest singular triplets of matrices larger than a device, with the residuals of both sides."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

from numpy.typing import ArrayLike

from ooc_chol.calls.progress import progress_reporter
from ooc_chol.eigen.asked import start_of
from ooc_chol.eigen.singular import SingularTriplets
from ooc_chol.eigen.svds import asked_of, given_back, in_range, matrix_of, run_of, sizes_for, two_sided_of, widest_panel
from ooc_chol.eigen.two_sided import Where
from ooc_chol.precision.triples import Precision
from ooc_chol.process import blas_buffers
from ooc_chol.sparse.multiplier import Store
from ooc_chol.sparse.planning import Devices


def svds(
    A: Any,
    k: int = 6,
    *,
    which: Literal["LM"] = "LM",
    precision: Precision | str | None = None,
    tol: float | None = None,
    ncv: int | None = None,
    block: int | None = None,
    v0: ArrayLike | None = None,
    max_passes: int | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    store: Store = None,
    check: bool = True,
    progress: bool | Callable[[int, int, float], None] | None = None,
    trace: bool = False,
    return_singular_vectors: bool = True,
) -> SingularTriplets:
    """Find the largest singular triplets of a sparse matrix, ``A v = s u`` and ``A.T u = s v``, with the residuals of both.

    Parameters
    ----------
    A : BlockCSR, source, LinearOperator or (m, n) array_like
        A packed matrix, anything that :func:`block_csr` packs, a dense array, which is packed too, or a ``LinearOperator`` with
        products of both sides, on the host then.
    k : int
        How many, 1 to the smaller side of A.
    which : "LM"
        The largest; no others.
    precision : Precision or str, optional
        Types of vectors, products and sums: ``"DDD"`` unless A is of float32, whose default is ``"FDF"``.
    tol : float, optional
        Largest residual, relative to the largest singular value; 1e-5 in FFF, 1e-6 in FDF, 1e-10 in DDD by default.
    ncv : int, optional
        Columns of the basis, ``k + 96`` by default.
    block : int, optional
        Columns of a panel: 1, 2, 4 or 8. By default 8 on GPUs and from files, 2 on the host, fewer where ``ncv`` is small.
    v0 : (min(m, n),) array_like, optional
        Where to begin: about a right singular vector, or a left one where A has more columns than rows.
    max_passes : int, optional
        Most products with ``A.T A``, each with one panel; 10,000 by default.
    devices, memory_budget
        As for :func:`multiply`. A and its transpose have half of the budget each. Vectors of the basis are in host memory.
    store : str or PathLike, optional
        File for the packed A; its transpose is packed beside, with ``.transposed`` before the ending. Host memory by default.
    check : bool
        Whether random vectors look for values that were missed, as :func:`eigsh` has it.
    progress : bool or callable, optional
        A bar, or ``progress(passes, max_passes, seconds)`` at each restart.
    trace : bool
        Whether every copy and product is recorded for ``trace`` of what is returned.
    return_singular_vectors : bool
        Whether u and vt are wanted; residuals are computed of them all the same.

    Returns
    -------
    SingularTriplets
        Unpacks as ``u, s, vt``, with ``residuals`` and ``report``.

    Raises
    ------
    NoConvergenceError
        ``max_passes`` is used up, or a small value cannot be had from squares in this precision; it has what was found.
    ValueError, TypeError
        An argument makes no sense; a tol is below what the precision can hold.
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel.

    Notes
    -----
    Block Lanczos with thick restarts on the smaller of ``A.T A`` and ``A A.T``, never formed: a product is a scan of A and
    one of its transpose, both packed. A singular value s is the root of an eigenvalue known to roundoff of the largest one,
    ``u s_1^2``; the vectors of small values are spoiled by ``u s_1 / s`` then. The SVD of ``A V`` in float64 mends that within
    the wanted vectors, the residuals of both sides say whether it was enough, and ``report.floor`` what to expect.

    Where A has rank r below k, the last ``k - r`` values are zero to roundoff, with orthonormal vectors of the null spaces.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from scipy.sparse import random_array
    >>> A = random_array((300, 200), density=0.05, rng=1)
    >>> u, s, vt = triplets = oc.svds(A, k=3, devices="host:0")
    >>> s.shape, bool(triplets.residuals.max() <= 1e-10 * s[-1])
    ((3,), True)
    """
    began = time.perf_counter()
    asked = asked_of(A, k, which, precision, tol, max_passes)
    blas_buffers.ensure(numpys=True)
    with ExitStack() as stack:
        matrix = matrix_of(A, store, stack)
        shape = int(matrix.shape[0]), int(matrix.shape[1])
        sizes = sizes_for(min(shape), asked.k, block, ncv, widest_panel(matrix, devices))
        start = start_of(v0, min(shape), sizes.block)
        sides = two_sided_of(matrix, asked.precision, Where(sizes.block, devices, memory_budget, trace), store, stack)
        began = time.perf_counter()
        with progress_reporter(progress, "svds", "pass") as report:
            tell = None if report is None else lambda run, _: report(run.counts.passes, asked.most, time.perf_counter() - began)
            run = in_range(sides, lambda: run_of(sides, asked, sizes, start, check, tell))
        sides.close()
        return given_back(run, sides, asked, shape, sizes, began, return_singular_vectors)
