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
from ooc_chol.dense.options import ROWS_OF_A_CALL, Fp64, HalfProducts, Objective, Policy, PrecisionRule, options_of_call
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import excess_of_budget
from ooc_chol.dense.request import Request, check_lower, check_overwrite, options_beside, place_of_checkpoint
from ooc_chol.dense.store_opening import check_store
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import AsymmetryWarning, BudgetWarning
from ooc_chol.formats import type_named
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.promises import HOST_PROMISES
from ooc_chol.memory.sources import triangle_source
from ooc_chol.memory.sources.base import entries_named
from ooc_chol.memory.sources.symmetry import find_asymmetry
from ooc_chol.process import blas_buffers
from ooc_chol.process.address_space import memory_errors_typed


@documented(
    rows=ROWS_OF_A_CALL,
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

    Parameters
    ----------
    A : (n, n) or (b, n, n) array, path, or source
        The matrix, of which one triangle is read: an array of any package, the path of a ``.npy`` file, an array of Zarr or its
        URL, anything with ``shape``, ``dtype`` and slicing, or :func:`from_function`. ``(b, n, n)`` is a batch of small ones.
    lower : bool or None
        Read the lower triangle, or the upper one. By default the lower one, with a warning where a sample of the other differs.
    overwrite : bool
        Keep L in the triangle of A that is read, which is lost also when the factorization fails.
    client : distributed.Client, str or None
        Cluster of Dask on which A is factored, or the address of its scheduler. A Dask array takes the current client.
    *others, **unknown : nothing
        All but A is given by name.

    Returns
    -------
    CholeskyFactor
        The factor, with its ``report``; for a batch a :class:`BatchFactor`.

    Raises
    ------
    NotPositiveDefiniteError, NonFiniteError
        A leading minor is not positive definite, of order ``minor``; or an entry, in ``row`` and ``col``, is no number.
    PrecisionError, BudgetError, TierError, ClusterError, ValueError, TypeError
        FP64 misses the threshold, a budget is too small, a file or a cluster is not as it should be, or an argument is wrong.

    Notes
    -----
    ``n³/3`` flops. A complex A is Hermitian, ``A = L @ L.H``; other numbers become float64 or ``dtype``. One ``L.arithmetic_key``
    gives one factor to the bit, whatever the budget, policy or number of workers. Method: Ren and others, arXiv 2410.09819.

    Examples
    --------
    >>> import numpy as np, ooc_chol as oc
    >>> oc.cholesky([[4.0, 2.0], [2.0, 5.0]]).solve(np.array([8.0, 12.0]))
    array([1., 2.])
    """
    began = time.perf_counter()
    if isinstance(precision_threshold, bool):
        others = (precision_threshold, *others)
    if others or unknown:
        refuse_arguments(others, unknown, cholesky)
    check_lower(lower)
    checked(replace=replace, progress=progress, trace=trace)
    options = options_of_call(
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
        dtype=None if dtype is None else type_named(dtype).dtype.name,
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
    if plan is not None and is_pattern:
        options = options_beside(plan, options)
    machine = Machine(options.devices if plan is None or is_pattern else plan.devices, options.memory_budget)
    if (excess := excess_of_budget(options, machine)) is not None:
        warnings.warn(excess, BudgetWarning, stacklevel=frames_of_the_package() + 1)
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
            return cast(CholeskyFactor, factor_batch(A, options, lower=lower, others=given))
    with (
        memory_errors_typed("factorization"),
        HOST_PROMISES.call(),
        closing(triangle_source(A, lower)) as source,
        entries_named(source, options.dtype),
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
            warnings.warn(found.warning(), AsymmetryWarning, stacklevel=frames_of_the_package() + 1)
        if not source.n:
            return factor_of_nothing(request)
        return factor_in_fp64(request, began) if precision_threshold is None else factor_in_mixed(request, began)
