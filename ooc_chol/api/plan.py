"""``oc.plan``: what a factorization would move, need and take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from ooc_chol.cluster.connection import current_client
from ooc_chol.dense.mixed import plan_mixed
from ooc_chol.dense.options import FactorOptions, Fp64, HalfProducts, Objective, Policy, PrecisionRule
from ooc_chol.dense.planner import make_plan
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.request import Place, Request, check_kind_of_store, check_lower, problem_of_order, rates_of_request
from ooc_chol.dense.store_opening import check_host_budget
from ooc_chol.formats import type_named
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources import triangle_source
from ooc_chol.memory.sources.base import entries_named


def plan(
    n_or_a: Any,
    *,
    dtype: DTypeLike | None = None,
    tile_size: int | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
    policy: Policy = "planned",
    objective: Objective = "seconds",
    fp64: Fp64 = "auto",
    moduli: int | None = None,
    precision_threshold: float | None = None,
    precision_rule: PrecisionRule = "unit-roundoff",
    half_products: HalfProducts = None,
    strict: bool = True,
    host_budget: int | str | None = None,
    store: str | os.PathLike[str] | HostMemory | None = None,
    lower: bool | None = None,
    client: Any = None,
) -> Plan:
    """Plan a factorization without running it; ``print(plan)`` is a page that a person understands.

    Parameters
    ----------
    n_or_a : int, or as for :func:`cholesky`
        The order of a matrix of type ``dtype``, or the matrix itself, which a precision_threshold needs: its norms decide on the
        formats.
    dtype : str, dtype or None
        Type of L and of all that is computed: float64, float32, complex128 or complex64. By default float64, and complex128 for a
        complex A. Mixed precision is there for float64 alone.
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
    precision_threshold : float or None
        Mixed precision: most of ``||A - L L.T||_F / ||A||_F``, such as 1e-6. What is predicted fastest within it runs: tiles
        below the diagonal in the narrowest of FP64, FP32, FP16 and FP8 that this allows, products of fewer bits, or FP64. The
        error of the factor is measured with random vectors and certified, or where FP64 runs, bounded by a model of its rounding
        errors. By default all is FP64.
    strict : bool
        Whether the certified bound must be at most precision_threshold: what exceeds it is computed again in FP64. If not, the
        first factor is given with whatever bound it has, and a :class:`~ooc_chol.errors.PrecisionWarning` where that is more.
    precision_rule : {"unit-roundoff", "paper"}
        What a format's error is taken to be: its unit roundoff, or as in the paper its machine epsilon, twice that.
    half_products : bool or None
        In mixed precision through residues: whether products that are small run in FP16, by norms of L that are measured as the
        run goes. By default where rates say that this is faster.
    store : path, HostMemory, "device" or None
        Where L would go, as for :func:`cholesky`: where it would stay in memory, ``host_budget`` must hold it.
    lower : bool or None
        Which triangle of A is read for its norms, as for :func:`cholesky`; without the sample of both.
    client : distributed.Client, str or None
        A cluster, as for :func:`cholesky`; the plan is a :class:`~ooc_chol.toolbox.ClusterPlan` then. With a threshold it
        counts bytes of FP64 and predicts no seconds, since a run chooses the formats.

    Returns
    -------
    Plan
        Bytes per link, peak memory, flops and, where rates are known, seconds; checked in a simulator.

    Raises
    ------
    BudgetError
        The budget of a device does not hold three tiles, or ``host_budget`` not L in memory.
    PlanSizeError
        The tiles are so many that the plan would have millions of steps, as for :func:`cholesky`.
    ValueError, TypeError
        An option is wrong.

    Notes
    -----
    ``strict`` changes no plan: it is taken so that all options of :func:`cholesky` may be given.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan(160_000, tile_size=4096, memory_budget="80 GB")
    >>> plan.loaded_bytes == plan.compulsory_bytes  # every tile of A read once, none of L fetched again
    True
    """
    options = FactorOptions(
        tile_size=tile_size,
        devices=devices,
        memory_budget=memory_budget,
        policy=policy,
        objective=objective,
        fp64=fp64,
        moduli=moduli,
        precision_threshold=precision_threshold,
        precision_rule=precision_rule,
        half_products=half_products,
        strict=strict,
        host_budget=host_budget,
        dtype=None if dtype is None else type_named(dtype, "dtype").dtype.name,
    )
    check_lower(lower)
    check_kind_of_store(store)
    if client is not None or (client := current_client(n_or_a)) is not None:
        from ooc_chol.cluster.calls import plan_on_cluster
        from ooc_chol.cluster.request import ClusterCall

        # typed as the plan of one machine: types do not tell whether there is a client
        return cast(Plan, plan_on_cluster(ClusterCall(n_or_a, client, options, lower, store)))
    the_plan = _plan(n_or_a, options, store, lower)
    check_host_budget(the_plan, store, options)
    return the_plan


def _plan(n_or_a: Any, options: FactorOptions, store: Place, lower: bool | None) -> Plan:
    """Plan for an order alone, or for a matrix that is opened as long as it is looked at."""
    if isinstance(n_or_a, int | np.integer) and not isinstance(n_or_a, bool):
        if options.precision_threshold is not None:
            raise ValueError(f"formats follow from the norms of A's tiles: give the matrix instead of its order {n_or_a}")
        _check_order(int(n_or_a))
        problem = problem_of_order(int(n_or_a), options, store)
        return make_plan(problem, options, partial(rates_of_request, options, store, None))
    with closing(triangle_source(n_or_a, lower)) as source, entries_named(source):
        _check_order(source.n)
        request = Request(n_or_a, source, options, store=store)
        if options.precision_threshold is not None:
            return plan_mixed(request)
        return make_plan(request.problem, options, request.rates_at)


def _check_order(n: int) -> None:
    """Refuse an order that leaves nothing to plan."""
    if n < 1:
        raise ValueError(f"n is {n}, but a plan is for a matrix that has at least 1 row")
