"""``oc.svds`` and ``oc.plan_svds``: the largest singular triplets of matrices larger than a device."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.api.on_cluster import with_workers
from ooc_chol.calls.habits import answering
from ooc_chol.calls.options import documented
from ooc_chol.calls.progress import Progress
from ooc_chol.eigen.habits import OF_SVDS
from ooc_chol.eigen.singular import SingularTriplets
from ooc_chol.eigen.svds import SvdsCall, planned_triplets, triplets
from ooc_chol.eigen.svds_plan import SvdsPlan
from ooc_chol.files.outputs import AnyPath
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.planning import Devices


class _Options(TypedDict, total=False):
    """Arguments of :func:`svds` on which the type of its result does not depend."""

    which: Literal["LM"]
    precision: Precision | str | None
    tol: float | None
    ncv: int | None
    block: int | None
    v0: ArrayLike | None
    max_passes: int | None
    check: bool
    packed: AnyPath | None
    replace: bool
    checkpoint: AnyPath | None
    devices: Devices
    memory_budget: int | str | None
    host_budget: int | str | None
    progress: Progress
    trace: bool
    plan: SvdsPlan | None
    client: Any


@overload
def svds(
    A: Any, k: int = 6, *, return_singular_vectors: Literal[True, "u", "vh"] = True, **options: Unpack[_Options]
) -> SingularTriplets: ...


@overload
def svds(A: Any, k: int = 6, *, return_singular_vectors: Literal[False], **options: Unpack[_Options]) -> NDArray[np.float64]: ...


@answering(OF_SVDS)
@documented(
    packed="The transpose of A is packed beside, with ``.transposed`` before the ending.",
    checkpoint="By custom ``.oocsvd``, written at each restart; it stays in the end, and devices and budgets may change.",
    devices="A matrix goes to the host by default if SciPy serves it there, and its entries and the basis are at most 600,000 "
    "numbers; the plan and the report say so.",
    memory_budget="A and its transpose have half each; vectors of the basis are in host memory.",
    progress="It counts passes after each restart, of the most there may be.",
)
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
    check: bool = True,
    return_singular_vectors: bool | Literal["u", "vh"] = True,
    packed: AnyPath | None = None,
    replace: bool = False,
    checkpoint: AnyPath | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    plan: SvdsPlan | None = None,
    client: Any = None,
) -> SingularTriplets | NDArray[np.float64]:
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
        Largest residual, relative to the largest singular value, as :func:`eigsh` has it.
    ncv : int, optional
        Columns of the basis, ``k + 96`` by default, or ``k + 48`` of a small matrix, as :func:`eigsh` calls it.
    block : int, optional
        Columns of a panel: 1, 2, 4 or 8. By default 8 on GPUs and from files, 2 on the host, fewer where ``ncv`` is small.
    v0 : (min(m, n),) array_like, optional
        Where to begin: about a right singular vector, or a left one where A has more columns than rows.
    max_passes : int, optional
        Most products with ``A.T A``, each with one panel; 10,000 by default. Where it is left out and the planned basis of a
        small matrix has not converged by 2,000, a larger one begins anew, of which the report has a note.
    check : bool
        Let random vectors look for values that were missed, as :func:`eigsh` has it.
    return_singular_vectors : bool, "u" or "vh"
        Return u and vt, one of them, or the values alone; residuals are computed of both all the same.
    client : distributed.Client, str or None
        Cluster of Dask whose workers make the products, each of its rows of A, with devices and a budget of its own; vectors stay
        in this process, on the host. Or the address of its scheduler.

    Returns
    -------
    SingularTriplets
        Unpacks as ``u, s, vt``, with ``residuals`` and ``report``; u or vt is None that was not asked for. Without both the (k,)
        array of values.

    Raises
    ------
    NoConvergenceError
        ``max_passes`` is used up, or a small value cannot be had from squares in this precision; it has what was found.
    ValueError, TypeError
        An argument makes no sense; a tol is below what the precision can hold; the plan is of another problem.
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel, for A and for its transpose.
    ClusterError
        Workers differ, or none are left, or the connection was lost.
    CheckpointError, DamagedFileError
        The checkpoint is of another problem, or not as it was written.

    Notes
    -----
    On the host, where no option of Lanczos is given, LAPACK computes all triplets of small matrices, and where k is a fifth
    of the smaller side or more. So it does where the following loses the small ones, if A is at most 256 MiB as an array.
    Elsewhere it is block Lanczos with thick restarts on the smaller of ``A.T A`` and ``A A.T``, never formed: a product is a
    scan of A and one of its transpose, both packed. A singular value s is the root of an eigenvalue known to roundoff of the
    largest one, ``u s_1^2``; the vectors of small values are spoiled by ``u s_1 / s`` then. The SVD of ``A V`` in float64
    mends that within the wanted vectors, the residuals of both sides say whether it was enough, and ``report.floor`` what to
    expect.

    Where A has rank r below k, the last ``k - r`` values are zero to roundoff, with orthonormal vectors of the null spaces.
    Blocks of packed files stay in host memory as far as ``host_budget`` reaches, as for :func:`eigsh`.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from scipy.sparse import random_array
    >>> A = random_array((300, 200), density=0.05, rng=1)
    >>> u, s, vt = triplets = oc.svds(A, k=3, devices="host:0")
    >>> s.shape, bool(triplets.residuals.max() <= 1e-10 * s[-1])
    ((3,), True)
    """
    with with_workers(locals()) as given:
        found = triplets(SvdsCall(**{name: given[name] for name in SvdsCall.__dataclass_fields__}))
    return found if return_singular_vectors else found.s


@answering(OF_SVDS)
@documented(like=svds)
def plan_svds(
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
    check: bool = True,
    return_singular_vectors: bool | Literal["u", "vh"] = True,
    packed: AnyPath | None = None,
    replace: bool = False,
    checkpoint: AnyPath | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    client: Any = None,
) -> SvdsPlan:
    """Plan :func:`svds` without computing anything: the method, the basis, memory of devices and of the host, bytes of a pass.

    Devices need not be on this machine if ``memory_budget`` is given. A is read as for packing it and its transpose, and nothing
    of it is kept.

    Parameters
    ----------
    A : BlockCSR, source, LinearOperator, (m, n) array_like, or ((int, int), int, str)
        As for :func:`svds`; or rows and columns, entries and kind of values (``"pattern"``, ``"int8"``, ``"fp32"`` or
        ``"fp64"``) of a matrix that need not be there.

    Returns
    -------
    SvdsPlan
        The plan; ``print`` shows it as a page. How many passes it takes is not known beforehand.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel, for A and for its transpose.
    TypeError, ValueError
        An argument makes no sense, or there is no such device.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan_svds(
    ...     ((1_000_000, 20_000), 100_000_000, "fp32"),
    ...     10,
    ...     devices="cuda:0",
    ...     memory_budget="8 GiB",
    ... )
    >>> plan.squared, plan.ncv, plan.peak_bytes <= 8 << 30
    ('A.T A', 112, True)
    """
    with with_workers(locals()) as given:
        return planned_triplets(SvdsCall(**{name: given[name] for name in SvdsCall.__dataclass_fields__ if name != "plan"}))
