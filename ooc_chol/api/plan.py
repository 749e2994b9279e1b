"""``oc.plan``: what a factorization would move, need and take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from ooc_chol.api.cholesky import cholesky
from ooc_chol.calls.options import checked, documented
from ooc_chol.calls.progress import Progress
from ooc_chol.cluster.connection import current_client
from ooc_chol.dense.mixed import plan_mixed
from ooc_chol.dense.options import FactorOptions, Fp64, HalfProducts, Objective, Policy, PrecisionRule
from ooc_chol.dense.planner import make_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import machine_of
from ooc_chol.dense.request import (
    Request,
    check_lower,
    check_overwrite,
    place_of_checkpoint,
    problem_of_order,
    rates_of_request,
)
from ooc_chol.dense.store_opening import check_host_budget
from ooc_chol.dense.stores.places import Place
from ooc_chol.formats import type_named
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources import triangle_source
from ooc_chol.memory.sources.base import entries_named


@documented(like=cholesky)
def plan(
    A: Any,
    precision_threshold: float | None = None,
    *,
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
    client: Any = None,
) -> Plan:
    """Plan a factorization without running it; ``print(plan)`` is a page that a person understands.

    All that :func:`cholesky` takes of one matrix may be given, and nothing is computed or written. A plan does not depend on
    ``strict``, ``replace``, ``progress`` and ``trace``.

    Parameters
    ----------
    A : int, or as for :func:`cholesky`
        The order of a matrix of type ``dtype``, or the matrix itself, which a precision_threshold needs: its norms decide on the
        formats. Nothing looks whether it is symmetric.

    Returns
    -------
    Plan
        Bytes per link, peak memory, flops and, where rates are known, seconds; checked in a simulator. With a ``client`` a
        :class:`~ooc_chol.toolbox.ClusterPlan`, which with a threshold counts bytes of FP64 and predicts no seconds, since a run
        chooses the formats.

    Raises
    ------
    BudgetError
        The budget of a device does not hold three tiles, or ``host_budget`` not L in memory.
    PlanSizeError
        The tiles are so many that the plan would have millions of steps, as for :func:`cholesky`.
    ValueError, TypeError
        An option is wrong.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan(160_000, tile_size=4096, memory_budget="80 GB")
    >>> # every tile of A read once, none of L fetched again
    >>> plan.loaded_bytes == plan.compulsory_bytes
    True
    """
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
        dtype=None if dtype is None else type_named(dtype).dtype.name,
    )
    check_lower(lower)
    checked(replace=replace, progress=progress, trace=trace)
    place, is_kept = place_of_checkpoint(store, checkpoint, overwrite=overwrite, policy=policy)
    if client is not None or (client := current_client(A)) is not None:
        from ooc_chol.cluster.calls import plan_on_cluster
        from ooc_chol.cluster.request import ClusterCall

        refused = {"overwrite": overwrite, "trace": trace}
        # typed as the plan of one machine: types do not tell whether there is a client
        return cast(Plan, plan_on_cluster(ClusterCall(A, client, options, lower, place, refused=refused)))
    check_overwrite(overwrite, store, precision_threshold)
    the_plan = _plan(A, options, place, lower, overwrite=overwrite, checkpoint=is_kept)
    check_host_budget(the_plan, place, options, overwrite=overwrite)
    return the_plan


def _plan(A: Any, options: FactorOptions, store: Place, lower: bool | None, *, overwrite: bool, checkpoint: bool) -> Plan:
    """Plan for an order alone, or for a matrix that is opened as long as it is looked at."""
    machine = machine_of(options)
    if isinstance(A, int | np.integer) and not isinstance(A, bool):
        if options.precision_threshold is not None:
            raise ValueError(f"formats follow from the norms of A's tiles: give the matrix instead of its order {A}")
        _check_order(int(A))
        problem = problem_of_order(int(A), options, machine, store, overwrite=overwrite)
        return make_plan(problem, options, partial(rates_of_request, problem, options, machine, store, None), machine)
    with closing(triangle_source(A, lower)) as source, entries_named(source):
        _check_order(source.n)
        request = Request(A, source, options, machine, store=store, checkpoint=checkpoint, overwrite=overwrite)
        if options.precision_threshold is not None:
            return plan_mixed(request)
        return make_plan(request.problem, options, request.rates_at, machine)


def _check_order(n: int) -> None:
    """Refuse an order that leaves nothing to plan."""
    if n < 1:
        raise ValueError(f"n is {n}, but a plan is for a matrix that has at least 1 row")
