"""``oc.eigsh`` and ``oc.plan_eigsh``: certified eigenpairs of symmetric matrices."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.api.on_cluster import with_workers
from ooc_chol.calls.habits import answering
from ooc_chol.calls.options import documented
from ooc_chol.calls.progress import Progress
from ooc_chol.eigen.habits import OF_EIGSH
from ooc_chol.eigen.pairs import Eigenpairs
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.solve import EigshCall, eigenpairs, planned_call
from ooc_chol.eigen.wanted import AskedWhich
from ooc_chol.files.outputs import AnyPath
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.planning import Devices


class _Options(TypedDict, total=False):
    """Arguments of :func:`eigsh` on which the type of its result does not depend."""

    which: AskedWhich
    precision: Precision | str | None
    method: str
    tol: float | None
    ncv: int | None
    block: int | None
    degree: int | None
    v0: ArrayLike | None
    max_passes: int | None
    check: bool
    preconditioner: Any
    null: ArrayLike | None
    sigma: float | None
    OPinv: Any
    M: Any
    packed: AnyPath | None
    replace: bool
    checkpoint: AnyPath | None
    devices: Devices
    memory_budget: int | str | None
    host_budget: int | str | None
    progress: Progress
    trace: bool
    plan: EigshPlan | None
    client: Any


@overload
def eigsh(A: Any, k: int = 6, *, return_eigenvectors: Literal[True] = True, **options: Unpack[_Options]) -> Eigenpairs: ...


@overload
def eigsh(A: Any, k: int = 6, *, return_eigenvectors: Literal[False], **options: Unpack[_Options]) -> NDArray[np.float64]: ...


@answering(OF_EIGSH)
@documented(
    checkpoint="By custom ``.ooceig``, written at each restart; it stays in the end, and devices and budgets may change. Of an A "
    "that is packed, or is to be, all contents are compared.",
    devices="A small matrix goes to the host by default, and so does one that is factored: see the notes.",
    progress="It counts passes after each restart, of the most there may be; the bar shows the largest residual.",
)
def eigsh(
    A: Any,
    k: int = 6,
    *,
    which: AskedWhich = "LM",
    precision: Precision | str | None = None,
    method: str = "auto",
    tol: float | None = None,
    ncv: int | None = None,
    block: int | None = None,
    degree: int | None = 1,
    v0: ArrayLike | None = None,
    max_passes: int | None = None,
    check: bool = True,
    preconditioner: Any = None,
    null: ArrayLike | None = None,
    sigma: float | None = None,
    OPinv: Any = None,
    M: Any = None,
    return_eigenvectors: bool = True,
    packed: AnyPath | None = None,
    replace: bool = False,
    checkpoint: AnyPath | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    plan: EigshPlan | None = None,
    client: Any = None,
) -> Eigenpairs | NDArray[np.float64]:
    """Some eigenpairs of a symmetric or Hermitian matrix, ``A v = w v``, each with its residual; A may be larger than devices.

    Parameters
    ----------
    A : BlockCSR, Operator, source, LinearOperator, or array
        Symmetric or complex Hermitian, (n, n): what :func:`block_csr` packs, or an operator such as :func:`laplacian` gives, on
        devices; or a SciPy ``LinearOperator`` or a dense array, on the host.
    k : int
        Eigenpairs, 1 to n.
    which : {"LM", "LA", "SA", "SM"}
        Those of largest magnitude, the largest, the smallest, or those of smallest magnitude, found by the inverse. With
        ``sigma``, of the inverse, as SciPy has it.
    precision : Precision or str, optional
        Types of vectors, products and sums: ``"DDD"``, ``"FDF"`` or ``"FFF"``. By default FDF for an A of float32, else DDD.
    method : {"auto", "lanczos", "lobpcg"}
        Block Lanczos with thick restarts, or LOBPCG for one end of the spectrum. By default what suits, LAPACK included.
    tol : float, optional
        Largest residual relative to the largest eigenvalue; by default 1e-10 in DDD, 1e-6 in FDF and 1e-5 in FFF. 0 is the least
        that each reaches: 1e-12, 1e-7 and 1e-6.
    ncv : int, optional
        Columns of the basis, rounded up to whole panels; by default ``k + 96``, or ``k + 48`` of a small matrix. Where they would
        be n, LAPACK computes all pairs.
    block : {1, 2, 4, 8}, optional
        Columns that are multiplied together; more need fewer passes over A and find copies of multiple eigenvalues. By default
        the fastest by prediction.
    degree : int or None
        Degree of a Chebyshev filter, of ``which="LA"`` and ``"SA"``; 1 is none, and None lets the first restart choose.
    v0 : (n,) or (n, m) array_like, optional
        Starting vectors, m up to ``block``; by default random ones, the same in every run.
    max_passes : int, optional
        Most products with A that build the basis, 10,000 by default. Where it is left out and the planned basis of a small
        matrix has not converged by then, a larger one begins anew, of which the report has a note.
    check : bool
        Let random vectors orthogonal to the pairs look for others that were missed, in 10 products each.
    preconditioner : (n,) array_like, LinearOperator, (n, n) array or sparse matrix, or callable, optional
        Preconditioner of LOBPCG: an approximation of the inverse of A, positive definite. An (n,) array is a diagonal, a callable
        takes an (n, b) float64 array on the host.
    null : (n,) or (n, m) array_like, optional
        Known null vectors of A, such as one of ones for each component of a graph. LOBPCG leaves them out.
    sigma : float, optional
        Look for eigenvalues near sigma, by Lanczos on the inverse of ``A - sigma I``: ``which="LM"`` on both sides, ``"LA"``
        above, ``"SA"`` below.
    OPinv : LinearOperator, callable or object with a method solve, optional
        Solves with ``A - sigma I`` in place of a factor, as SciPy's ``splu`` of it does.
    M : (n, n) array or SciPy matrix, optional
        Mass matrix of ``A v = w M v``, symmetric and positive definite, on the host; vectors have ``v.T M v = 1``.
    return_eigenvectors : bool
        Return pairs, or the eigenvalues alone.
    client : distributed.Client, str or None
        Cluster of Dask whose workers hold rows of A and of the basis each, with devices and a budget of their own. Or the address
        of its scheduler.

    Returns
    -------
    Eigenpairs
        Unpacks as SciPy's ``w, v``, w ascending; with ``residuals``, ``report`` and ``trace``. Without eigenvectors the (k,)
        array of eigenvalues.

    Raises
    ------
    NoConvergenceError
        Some pairs have not converged; those that have are in the error. It is SciPy's ``ArpackNoConvergence`` too.
    ValueError, TypeError, NonFiniteError
        A is not symmetric or Hermitian, no matrix, or holds NaN or infinities; or an argument makes no sense.
    BudgetError
        The budget does not hold the basis, or the factor of ``sigma``; the message says what would do.
    ClusterError
        Workers differ, or none are left, or the connection was lost.
    CheckpointError, DamagedFileError
        The checkpoint is of another problem, or is not as it was written.
    PreconditionerError, SingularMatrixError
        The preconditioner is not positive definite, or no number near sigma has an inverse that can be worked with.

    Warns
    -----
    PrecisionWarning
        Eigenvalues are so small beside the largest that few of their digits are known.

    Notes
    -----
    Residuals are computed in float64, with one more product. The check is a test and no proof: an eigenvalue may still be missed
    whose vectors random ones do not lead to.

    On the host LAPACK computes all pairs of up to 400 rows, and for k of n / 10 or more, where no option of another method is
    given. SciPy multiplies a packed matrix of up to 10,000 rows and 524,288 entries in memory. LOBPCG is chosen by
    ``preconditioner`` or ``null``. With ``null``, a semidefinite A of 2,000 to 50,000 rows on the host and no option of LOBPCG,
    the inverse takes its place where its factor is small. Where products lead nowhere, as wanted eigenvalues are tiny, ``"auto"``
    goes over to the inverse too.

    Where no devices are named, a matrix goes to the host if LAPACK or SciPy serves it there and its entries and the basis are at
    most 600,000 numbers. So does one of up to 50,000 rows that ``sigma`` or ``null`` has factored. One that lies on a GPU does
    not. The plan and the report say so.

    Blocks of a packed file that devices do not keep stay in host memory from their first use on, as far as ``host_budget``
    reaches. By default that is half of what is free for GPUs, and nothing for the host itself.

    With ``sigma`` SuperLU factors on the host, in float64, within ``memory_budget``. A ``LinearOperator`` needs ``OPinv``. Where
    ``A - sigma I`` is singular, a shift beside sigma is factored (``report.sigma``). With ``M``, ``OPinv`` solves with
    ``A - sigma M``, and residuals are in the norm of its inverse. A complex A is solved by its real form of order 2 n: plans and
    counts are of that form.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import ooc_chol as oc
    >>> path = scipy.sparse.diags_array(
    ...     [1.0, 1.0], offsets=[-1, 1], shape=(1000, 1000)
    ... ).tocsr()
    >>> pairs = oc.eigsh(path, 3, which="LA", devices="host:0")
    >>> w, v = pairs
    >>> bool(np.allclose(w, 2 * np.cos(np.pi * np.array([3, 2, 1]) / 1001)))
    True
    >>> bool(pairs.residuals.max() < 1e-10)
    True
    """
    with with_workers(locals()) as given:
        pairs = eigenpairs(EigshCall(**{name: given[name] for name in EigshCall.__dataclass_fields__}))
    return pairs if return_eigenvectors else pairs.eigenvalues


@answering(OF_EIGSH)
@documented(like=eigsh)
def plan_eigsh(
    A: Any,
    k: int = 6,
    *,
    which: AskedWhich = "LM",
    precision: Precision | str | None = None,
    method: str = "auto",
    tol: float | None = None,
    ncv: int | None = None,
    block: int | None = None,
    degree: int | None = 1,
    v0: ArrayLike | None = None,
    max_passes: int | None = None,
    check: bool = True,
    preconditioner: Any = None,
    null: ArrayLike | None = None,
    sigma: float | None = None,
    OPinv: Any = None,
    M: Any = None,
    return_eigenvectors: bool = True,
    packed: AnyPath | None = None,
    replace: bool = False,
    checkpoint: AnyPath | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    client: Any = None,
) -> EigshPlan:
    """Plan :func:`eigsh` without computing anything: the method, the block, the basis, memory, bytes and seconds of a pass.

    Devices need not be on this machine if ``memory_budget`` is given. A matrix that is not packed is read as for packing, and
    nothing of it is kept.

    Parameters
    ----------
    A : BlockCSR, Operator, source, LinearOperator, array, or ((int, int), int, str)
        As for :func:`eigsh`; or rows and columns, entries and kind of values (``"pattern"``, ``"int8"``, ``"fp32"`` or
        ``"fp64"``) of a matrix that need not be there.

    Returns
    -------
    EigshPlan
        The plan; ``print`` shows it as a page. How many passes it takes is not known beforehand.

    Raises
    ------
    BudgetError
        The budget does not hold the vectors beside three blocks; it says how many bytes would do, and which ``ncv`` would fit.
    TypeError, ValueError
        An argument makes no sense, the matrix is not square, or there is no such device.

    Notes
    -----
    A device's memory goes to a replica of a panel, the panel that is made, the ring of blocks in transit, the basis, and then to
    blocks that stay. A byte of basis saves two to four bytes over the link in a pass, a byte of A one. The ring is deep enough
    that the link works while vectors are orthogonalized, where rates are known and memory holds it.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan_eigsh(
    ...     ((1 << 27, 1 << 27), 4_294_967_296, "pattern"),
    ...     8,
    ...     precision="FDF",
    ...     block=1,
    ...     devices="cuda:0",
    ...     memory_budget="16 GiB",
    ... )
    >>> plan.block, plan.ncv >= 24, plan.peak_bytes <= 16 << 30
    (1, True, True)
    """
    with with_workers(locals()) as given:
        return planned_call(EigshCall(**{name: given[name] for name in EigshCall.__dataclass_fields__ if name != "plan"}))
