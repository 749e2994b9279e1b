"""``oc.cholesky``: the factor of a symmetric positive definite matrix, or of each of a batch."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Never, cast

import numpy as np
from numpy.typing import DTypeLike

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.options import checked, documented
from ooc_chol.calls.progress import Progress
from ooc_chol.cluster.connection import current_client
from ooc_chol.dense.batch import factor_batch, is_batch
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.factoring import factor_in_fp64, factor_in_mixed, factor_of_nothing
from ooc_chol.dense.habits import refuse_arguments
from ooc_chol.dense.options import ROWS_OF_A_CALL, FactorOptions, Fp64, HalfProducts, Objective, Policy, PrecisionRule
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import excess_of_budget
from ooc_chol.dense.request import Request, check_lower, check_overwrite, place_of_checkpoint
from ooc_chol.dense.store_opening import check_store
from ooc_chol.errors import AsymmetryWarning, BudgetWarning
from ooc_chol.formats import type_named
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.promises import HOST_PROMISES
from ooc_chol.memory.sources import triangle_source
from ooc_chol.memory.sources.base import entries_named
from ooc_chol.memory.sources.symmetry import ASYMMETRIC, find_asymmetry
from ooc_chol.process import blas_buffers
from ooc_chol.process.address_space import memory_errors_typed


@documented(
    rows=ROWS_OF_A_CALL,
    replace="That is also a Zarr group of ours, and a checkpoint begins afresh.",
    progress="Work is counted in flops.",
)
def cholesky(
    A: Any,
    precision_threshold: float | None = None,
    *others: Never,
    lower: bool | None = None,
    dtype: DTypeLike | None = None,
    tile_size: int | None = None,
    policy: Policy = "planned",
    objective: Objective = "seconds",
    fp64: Fp64 = "auto",
    moduli: int | None = None,
    precision_rule: PrecisionRule = "unit-roundoff",
    half_products: HalfProducts = None,
    strict: bool = True,
    overwrite: bool = False,
    store: str | os.PathLike[str] | HostMemory | None = None,
    replace: bool = False,
    checkpoint: str | os.PathLike[str] | bool | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    plan: Plan | None = None,
    client: Any = None,
    **unknown: Never,
) -> CholeskyFactor:
    """Factor a symmetric positive definite matrix, ``A = L @ L.T``, in as little device memory as it is given.

    A complex A is Hermitian, and ``A = L @ L.conj().T``.

    Parameters
    ----------
    A : (n, n) or (b, n, n) array, path, or source
        The matrix; only its lower triangle is read, or with ``lower=False`` its upper. A NumPy array of any stride order, a
        memmap, the path of a ``.npy`` file, an array of Zarr, its path (``"A.zarr"``) or its URL (``"s3://bucket/A"``), anything
        with ``shape``, ``dtype`` and slicing, a CuPy or DLPack array, or :func:`from_function`. float64 is taken as it is, and
        complex128 or complex64 as a Hermitian matrix; other real numbers (float32 and float16, integers, bool, long doubles,
        another byte order, objects such as ``Fraction``) become float64, or ``dtype``, tile by tile. What NumPy makes an array of
        is copied as a whole: nested lists, and tables of pandas or Polars.
        A batch ``(b, n, n)`` of small real matrices, in memory, is factored by LAPACK on all cores, or by cuSOLVER's batched
        routine on the GPU that it lies on or that ``devices`` names.
    lower : bool or None
        Which triangle is read: the lower one for True, the upper one for False, as in SciPy, whose default is the upper one. L is
        lower triangular all the same. By default the lower one, and an :class:`~ooc_chol.errors.AsymmetryWarning` where a sample
        of some forty entries finds that A is not symmetric; either of True and False says that the other triangle does not count.
    overwrite : bool
        Keep L in the lower triangle of A, a writable array of type ``dtype``, or with ``lower=False`` its transpose in the
        upper one; that triangle of A is lost then, also when the factorization fails.
    client : distributed.Client, str or None
        A cluster of Dask on which A is factored: a client, or the address of its scheduler. A Dask array goes to the client that
        is current without being told, and is read on this machine where there is none. Tasks are blocks of tiles, each a run of
        this package on its worker, with ``devices`` and ``memory_budget`` of each worker; L stays in the workers' memory until it
        is closed, or goes to the Zarr group that ``store`` names, where blocks that are finished and right are not made again
        with ``checkpoint=True``. Of a Dask array, rechunked lazily, only blocks of the triangle that is read are computed; files
        and Zarr arrays are read, and functions called, by each worker; what only this process has is sent from here. What Dask
        loses with a worker it makes again, to the same bits, which are those of one machine with the same arithmetic key.
        ``policy``, ``host_budget``, ``overwrite`` and ``trace`` are not there.
    *others, **unknown : nothing
        All but A is given by name; arguments of SciPy's and NumPy's ``cholesky`` are answered with what takes their place.

    Returns
    -------
    CholeskyFactor
        The factor, with ``report`` (its ``certified_bound`` where a threshold was given) and, if asked for, ``trace``; both are
        None for a matrix of order 0. For a batch a :class:`BatchFactor`.

    Raises
    ------
    NotPositiveDefiniteError
        A leading minor is not positive definite; ``minor`` is its order. In mixed precision only where FP64 says so, too: a pivot
        that fails there is computed again in FP64 (``report.escalations``).
    NonFiniteError
        The triangle that is read holds a NaN, an infinity, a masked entry or an object that is no number; ``row`` and ``col``
        say where.
    PrecisionError
        With a threshold: the factor in FP64 is not known to be within it, either. Random vectors themselves err by 1e-12 to 9e-9,
        more at large orders and with large tiles; below that a model of FP64's rounding errors counts.
    BudgetError
        ``memory_budget`` or ``host_budget`` is too small; ``needed_bytes`` says what would do.
    PlanSizeError
        The tiles are so many that the plan would have millions of steps; ``tile_size`` and ``memory_budget`` say what can be
        planned. A :class:`BudgetError`, told before A is read.
    NotHermitianError
        The diagonal of a complex A has imaginary parts beyond rounding; ``row`` says where.
    UnsupportedTypeError
        An option is not there for the type of A or of L. A :class:`TypeError`.
    TierError
        A file cannot be read or written, or that of A changes during the call. As :class:`~ooc_chol.errors.OutputError`:
        ``store`` is the file of A by whatever name, as far as that is known, or exists and is no factor. As
        :class:`~ooc_chol.errors.MissingFolderError`: there is no folder for it.
    ValueError, TypeError
        The matrix is not square, of another dtype, or an option is wrong; or the name of ``store`` promises another format, such
        as ``.npy``; or ``plan`` is for another matrix or other workers, or comes beside options of planning.
    CheckpointError
        The checkpoint belongs to another matrix, to other options or to arithmetic with other bits; ``differences`` says which. A
        :class:`~ooc_chol.errors.TierError`.
    ClusterError
        With a client: workers differ in what bits depend on, a task ended its workers, or the connection was lost.

    Notes
    -----
    ``n³/3`` flops. One arithmetic key (``L.arithmetic_key``) gives one factor to the bit, whatever the budget, policy or number
    of workers at equal threads per BLAS call. Method: Ren, Ltaief, Abdulah, Keyes (2024), arXiv 2410.09819, with panels and
    next-use eviction planned ahead.

    Examples
    --------
    >>> import numpy as np, ooc_chol as oc
    >>> A = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> oc.cholesky(A).solve(np.array([8.0, 12.0]))
    array([1., 2.])
    """
    began = time.perf_counter()
    if isinstance(precision_threshold, bool):
        others = (precision_threshold, *others)
    if others or unknown:
        refuse_arguments(others, unknown, cholesky)
    check_lower(lower)
    checked(replace=replace, progress=progress, trace=trace)
    options = FactorOptions(
        tile_size=tile_size,
        devices=devices,
        memory_budget=memory_budget,
        host_budget=host_budget,
        policy=policy,
        objective=objective,
        fp64=fp64,
        moduli=moduli,
        precision_threshold=precision_threshold,
        precision_rule=precision_rule,
        half_products=half_products,
        strict=strict,
        dtype=None if dtype is None else type_named(dtype, "dtype").dtype.name,
    )
    place, is_kept = place_of_checkpoint(store, checkpoint, overwrite=overwrite, policy=policy)
    if client is not None or (client := current_client(A)) is not None:
        from ooc_chol.cluster.calls import factor_on_cluster
        from ooc_chol.cluster.request import ClusterCall

        refused = {"overwrite": overwrite, "trace": trace}
        call = ClusterCall(A, client, options, lower, place, is_kept, replace, progress, refused, cast(Any, plan))
        return factor_on_cluster(call)
    check_overwrite(overwrite, store, precision_threshold)
    if not (plan is None or isinstance(plan, Plan)):
        text = (
            f"plan is a {type(plan).__name__}; give a Plan of one machine, as oc.plan(A) and L.report.plan are, or leave it out"
        )
        raise TypeError(text)
    is_pattern = plan is not None and precision_threshold is not None and plan.asked is not None
    machine = Machine(devices if plan is None or is_pattern else plan.devices, memory_budget)
    if (excess := excess_of_budget(options, machine)) is not None:
        warnings.warn(excess, BudgetWarning, stacklevel=2)
    if is_batch(A):
        of_one = {
            "store": store,
            "checkpoint": checkpoint,
            "overwrite": overwrite,
            "plan": plan,
            "progress": progress,
            "trace": trace,
        }
        given = {name: value is not None and value is not False for name, value in of_one.items()}
        with memory_errors_typed("factorization"):
            # typed as the factor of one matrix: types do not tell how many dimensions an array has
            return cast(CholeskyFactor, factor_batch(A, options, lower=lower, others=given, level=2))
    with (
        memory_errors_typed("factorization"),
        HOST_PROMISES.call(),
        closing(triangle_source(A, lower)) as source,
        entries_named(source),
    ):
        blas_buffers.ensure(numpys=True)  # planning in mixed precision factors a sample
        request = Request(
            A.T if overwrite and lower is False and isinstance(A, np.ndarray) else A,
            source,
            options=options,
            machine=machine,
            store=place,
            checkpoint=is_kept,
            replaces=replace,
            overwrite=overwrite,
            plan=None if is_pattern else plan,
            like=plan if is_pattern else None,
            progress=progress,
            trace=trace,
        )
        check_store(request)
        if lower is None and (found := find_asymmetry(source)) is not None:
            warnings.warn(ASYMMETRIC.format(found), AsymmetryWarning, stacklevel=2)
        if not source.n:
            return factor_of_nothing(request)
        return factor_in_fp64(request, began) if precision_threshold is None else factor_in_mixed(request, began)
