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

from ooc_chol.cluster.connection import current_client
from ooc_chol.dense.batch import factor_batch, is_batch
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.factoring import factor_in_fp64, factor_in_mixed, factor_of_nothing
from ooc_chol.dense.habits import refuse_arguments
from ooc_chol.dense.options import FactorOptions, Fp64, HalfProducts, Objective, Policy, PrecisionRule
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import excess_of_budget
from ooc_chol.dense.request import Place, Progress, Request, check_lower, place_of_checkpoint
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


def cholesky(
    a: Any,
    precision_threshold: float | None = None,
    *others: Never,
    lower: bool | None = None,
    dtype: DTypeLike | None = None,
    tile_size: int | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    policy: Policy = "planned",
    objective: Objective = "seconds",
    fp64: Fp64 = "auto",
    moduli: int | None = None,
    precision_rule: PrecisionRule = "unit-roundoff",
    half_products: HalfProducts = None,
    strict: bool = True,
    store: str | os.PathLike[str] | HostMemory | None = None,
    checkpoint: str | os.PathLike[str] | bool | None = None,
    replace_store: bool = False,
    overwrite: bool = False,
    plan: Plan | None = None,
    progress: Progress = None,
    trace: bool = False,
    client: Any = None,
    **unknown: Never,
) -> CholeskyFactor:
    """Factor a symmetric positive definite matrix, ``A = L @ L.T``, in as little device memory as it is given.

    A complex A is Hermitian, and ``A = L @ L.conj().T``.

    Parameters
    ----------
    a : (n, n) or (b, n, n) array, path, or source
        The matrix; only its lower triangle is read, or with ``lower=False`` its upper. A NumPy array of any stride order, a
        memmap, the path of a ``.npy`` file, an array of Zarr, its path (``"A.zarr"``) or its URL (``"s3://bucket/A"``), anything
        with ``shape``, ``dtype`` and slicing, a CuPy or DLPack array, or :func:`from_function`. float64 is taken as it is, and
        complex128 or complex64 as a Hermitian matrix; other real numbers (float32 and float16, integers, bool, long doubles,
        another byte order, objects such as ``Fraction``) become float64, or ``dtype``, tile by tile. What NumPy makes an array of
        is copied as a whole: nested lists, and tables of pandas or Polars.
        A batch ``(b, n, n)`` of small real matrices, in memory, is factored by LAPACK on all cores, or by cuSOLVER's batched
        routine on the GPU that it lies on or that ``devices`` names.
    dtype : str, dtype or None
        Type of L and of all that is computed: float64, float32, complex128 or complex64. By default float64, and complex128 for a
        complex A. Mixed precision is there for float64 alone.
    precision_threshold : float or None
        Mixed precision: most of ``||A - L L.T||_F / ||A||_F``, such as 1e-6. What is predicted fastest within it runs: tiles
        below the diagonal in the narrowest of FP64, FP32, FP16 and FP8 that this allows, products of fewer bits, or FP64. The
        error of the factor is measured with random vectors and certified, or where FP64 runs, bounded by a model of its rounding
        errors. By default all is FP64.
    lower : bool or None
        Which triangle is read: the lower one for True, the upper one for False, as in SciPy, whose default is the upper one. L is
        lower triangular all the same. By default the lower one, and an :class:`~ooc_chol.errors.AsymmetryWarning` where a sample
        of some forty entries finds that A is not symmetric; either of True and False says that the other triangle does not count.
    strict : bool
        Whether the certified bound must be at most precision_threshold: what exceeds it is computed again in FP64. If not, the
        first factor is given with whatever bound it has, and a :class:`~ooc_chol.errors.PrecisionWarning` where that is more.
    precision_rule : {"unit-roundoff", "paper"}
        What a format's error is taken to be: its unit roundoff, or as in the paper its machine epsilon, twice that.
    half_products : bool or None
        In mixed precision through residues: whether products that are small run in FP16, by norms of L that are measured as the
        run goes. By default where rates say that this is faster.
    tile_size : int or None
        Order of a tile. By default chosen by size and budget; larger ones than run best where these would be too many to plan. Up
        to order 8192 in host memory, 4096 for a GPU and 16384 for an A and L on one, the matrix is one tile.
    devices : str, sequence of str, int or None
        Device names such as ``"cuda:0"`` or ``"host:0"``, with commas between or as a sequence; ``"cpu"`` or ``"host"``,
        ``"cuda"`` for every visible GPU; or a count. By default every visible GPU, else the host. What is best factored as one
        tile takes one device: the GPU that A lies on, or the host for arrays there up to order 256.
    memory_budget : int, str or None
        Bytes of memory per device, or text such as ``"256 MiB"``. By default up to half of what is free on the host, and all but
        2 GiB of what is free on a GPU.
    host_budget : int, str or None
        Most bytes of host memory for L and for its tiles on their way. Where L stays in host memory, all of it must fit; by
        default into what is free. Where it goes to a file, the tiles that are fetched most often are kept in so many bytes as
        well, and the others are read from the file, past the system's cache; by default none is kept when the host factors, and
        half of what is free is taken when a GPU does.
    policy : {"planned", "sync", "async", "v1", "v2", "v3"}
        How tiles move; it never changes the result. All but the first are those of the paper, for comparison.
    objective : {"seconds", "bytes"}
        What the plan makes least. Where no rates are known, seconds are unknown, and bytes are made least.
    fp64 : {"auto", "native", "residue"}
        How products are computed: in the device's own arithmetic, or as exact integers through residues on int8 units, as
        accurate and in FP64 about twice as fast on an H200. "auto" takes residues where rates predict fewer seconds.
    moduli : int or None
        Moduli of products through residues, from 4 to 16; fewer are faster and less accurate. By default 14 (54 bits of
        each row's norm) up to order 32768 and 13 (50 bits) above, of complex128 15 and 14, of complex64 8 and 7 and of
        float32 always 7, which is as accurate as the device's own arithmetic, or as many as precision_threshold needs.
    store : path, HostMemory, "device" or None
        File for L, named ``path + ".partial"`` until the factor is complete; a factor that is there is replaced then, any other
        file only with ``replace_store=True``, and the file of ``a`` never. A run that fails or is interrupted removes the partial
        file; what a killed one leaves there, the next replaces. A name that ends in ``.zarr``, or a URL, is that of a Zarr group,
        of which nothing is replaced unasked, and what is no factor never. ``"device"`` keeps L on the GPUs that make it, which
        then answer solves, products and determinants; it counts against ``memory_budget``. None does so for an A that lies or is
        made in GPUs' memory, where L is at most half of the budget, and else keeps L in host memory: the report says where it is.
        A :class:`HostMemory` is memory that one factorization after the other uses. For a GPU host memory is page-locked while
        the run goes on, and kept for 2 seconds when the factor is closed: a next call that needs as much or half as much takes it
        over, else a thread frees it.
    checkpoint : path, bool or None
        File for L as ``store``, whose unfinished form is kept when the run fails, is interrupted or killed: the same call goes on
        from it, to the same bits, also with another budget, policy or number of devices. True keeps that of ``store``. What the
        call leaves open (tile size, engine, moduli) is as it was; another matrix, other options or other arithmetic are refused.
        A finished file of the same call is given at once. Ctrl-C lets run what is enqueued, a second one ends at once. After a
        verdict on A itself, such as a minor that is not positive definite, nothing is kept.
    replace_store : bool
        Let L replace whatever file ``store`` names, or a Zarr group of ours, and a checkpoint begin afresh.
    overwrite : bool
        Keep L in the lower triangle of ``a``, a writable array of type ``dtype``, or with ``lower=False`` its transpose in the
        upper one; that triangle of A is lost then, also when the factorization fails.
    plan : Plan, ClusterPlan or None
        A plan in FP64 for such a matrix of this order and kind of source, from :func:`plan` or ``L.report.plan``, in place of
        the options of planning: of many factorizations of one shape only the first is then planned. With a
        ``precision_threshold`` that of a matrix like this one, beside the same options: its formats are kept where they are wide
        enough for this matrix, and widened where they are not, so that a new plan is made only then, or where the options cut
        this matrix into other tiles. What an escalation came to counts as well: this call begins with its formats, or in FP64.
        With a ``client`` it is the :class:`~ooc_chol.toolbox.ClusterPlan` of such a call, for as many workers of the same kind:
        tiles, engine and budget are the plan's, and options beside it are left out or the same; a threshold is given in either
        case.
    progress : bool or callable
        True shows a bar on the standard error stream; a callable receives ``(flops_done, flops_total, seconds)``.
    trace : bool
        Keep every operation for ``L.trace``.
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
        ``store`` is the file of ``a`` by whatever name, as far as that is known, or exists and is no factor. As
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
    >>> a = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> oc.cholesky(a).solve(np.array([8.0, 12.0]))
    array([1., 2.])
    """
    if isinstance(precision_threshold, bool):
        others = (precision_threshold, *others)
    if others or unknown:
        refuse_arguments(others, unknown, cholesky)
    check_lower(lower)
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
    if client is not None or (client := current_client(a)) is not None:
        from ooc_chol.cluster.calls import factor_on_cluster
        from ooc_chol.cluster.request import ClusterCall

        refused = {"overwrite": overwrite, "trace": trace}
        call = ClusterCall(a, client, options, lower, place, is_kept, replace_store, progress, refused, cast(Any, plan))
        return factor_on_cluster(call)
    _check_overwrite(overwrite, store, precision_threshold)
    if not (plan is None or isinstance(plan, Plan)):
        text = (
            f"plan is a {type(plan).__name__}; give a Plan of one machine, as oc.plan(A) and L.report.plan are, or leave it out"
        )
        raise TypeError(text)
    if (excess := excess_of_budget(options)) is not None:
        warnings.warn(excess, BudgetWarning, stacklevel=2)
    if is_batch(a):
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
            return cast(CholeskyFactor, factor_batch(a, options, lower=lower, others=given, level=2))
    began = time.perf_counter()
    with (
        memory_errors_typed("factorization"),
        HOST_PROMISES.call(),
        closing(triangle_source(a, lower)) as source,
        entries_named(source),
    ):
        blas_buffers.ensure(numpys=True)  # planning in mixed precision factors a sample
        is_pattern = precision_threshold is not None and plan is not None and plan.asked is not None
        request = Request(
            a.T if overwrite and lower is False and isinstance(a, np.ndarray) else a,
            source,
            options=options,
            store=place,
            checkpoint=is_kept,
            replace_store=replace_store,
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


def _check_overwrite(overwrite: bool, store: Place, threshold: float | None) -> None:
    """Refuse what cannot go together with an L over A."""
    if overwrite and store is not None:
        raise ValueError("store and overwrite=True are two places for L; give one of them")
    if overwrite and threshold is not None:
        raise ValueError("overwrite=True keeps L in FP64 over A, which a failed pivot needs again; leave it or the threshold out")
