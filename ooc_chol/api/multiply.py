"""``oc.multiply`` and ``oc.plan_multiply``: products with sparse matrices larger than a device."""

from __future__ import annotations

import time
from dataclasses import replace as replaced
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ooc_chol.calls import options
from ooc_chol.calls.machine import Machine
from ooc_chol.calls.options import documented
from ooc_chol.calls.progress import Progress
from ooc_chol.files.outputs import AnyPath
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.elsewhere import refuse_on_cluster
from ooc_chol.sparse.multiplier import checked, multiplier
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Devices, known_of, planned, precision_of
from ooc_chol.sparse.product import Product


@documented(progress="It counts entries of A times columns.")
def multiply(
    A: Any,
    X: ArrayLike,
    *,
    precision: Precision | str | None = None,
    packed: AnyPath | None = None,
    replace: bool = False,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    plan: MultiplyPlan | None = None,
    client: Any = None,
) -> Product:
    """Multiply a sparse matrix with vectors, ``Y = A X``; the matrix may be larger than the devices.

    Parameters
    ----------
    A : BlockCSR, Operator, or source
        A packed matrix, an operator of one, or anything that :func:`block_csr` packs, which is done first then.
    X : (n_columns,) or (n_columns, m) array_like
        Real numbers in any order of memory.
    precision : Precision or str, optional
        Types in which vectors are stored, products computed and sums carried on: ``"DDD"``, ``"FDF"`` or ``"FFF"``. By default
        FDF for an X of float32 or narrower, DDD for any other. In FDF and FFF X is rounded to float32.
    client : distributed.Client, str or None
        Cluster of Dask each of whose workers multiplies rows of A, on devices and within a budget of its own; or the address of
        its scheduler.

    Returns
    -------
    (n_rows,) or (n_rows, m) Product
        An array of the type in which vectors are stored, with ``report`` and ``trace``. NaN and infinities of X go through as
        in NumPy's products.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel; it says how many bytes would do.
    TypeError, ValueError
        X has another height, holds complex numbers or none, A is no matrix, there is no such device, or the plan is of others.
    ClusterError
        Workers differ, or none are left, or the connection was lost.

    Notes
    -----
    Every entry of Y is within ``8 sqrt(d) u (|A| |x|)`` of the exact sum of its d products, u being the unit roundoff of the type
    of computing, and is rounded once to that of storage. It has the same bits whatever the budget, the number of devices and
    workers, and the size of blocks.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import ooc_chol as oc
    >>> path = scipy.sparse.csr_array(
    ...     np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    ... )
    >>> y = oc.multiply(path, np.array([1.0, 2.0, 3.0]), devices="host:0")
    >>> y
    array([2., 4., 2.])
    >>> y.report.scans
    1
    """
    began = time.perf_counter()
    x = checked(X)
    if client is not None:
        from ooc_chol.cluster.multiplying import multiplied_on_cluster

        given = options.checked(packed=packed, replace=replace, memory_budget=memory_budget, host_budget=host_budget)
        given |= {**options.checked(progress=progress), "devices": devices, "client": client}
        refuse_on_cluster(trace=options.checked(trace=trace)["trace"], plan=plan is not None)
        y, report = multiplied_on_cluster(A, x, _precision(precision, x.dtype), **given)
        return Product.of(y, replaced(report, total_seconds=time.perf_counter() - began), None)
    how: dict[str, Any] = {"packed": packed, "replace": replace, "devices": devices, "memory_budget": memory_budget}
    how |= {"host_budget": host_budget, "progress": progress, "trace": trace, "plan": plan}
    with multiplier(A, _columns(x.shape), precision=_precision(precision, x.dtype), **how) as product:
        y = product(x)
        report, records = product.report, product.trace
    return Product.of(y, replaced(report, total_seconds=time.perf_counter() - began), records)


@documented(like=multiply)
def plan_multiply(
    A: Any,
    X: ArrayLike,
    *,
    precision: Precision | str | None = None,
    packed: AnyPath | None = None,
    replace: bool = False,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    client: Any = None,
) -> MultiplyPlan:
    """Plan products ``Y = A X`` without computing anything: what each device holds, and what crosses each link.

    Devices need not be on this machine if ``memory_budget`` is given. A matrix that is not packed is read as for packing, and
    nothing of it is kept.

    Parameters
    ----------
    A : BlockCSR, Operator, source, or ((int, int), int, str)
        As for :func:`multiply`; or rows and columns, entries and kind of values (``"pattern"``, ``"int8"``, ``"fp32"`` or
        ``"fp64"``) of a matrix that need not be there: its entries are then taken as spread evenly over its rows.
    X : array_like or int
        As for :func:`multiply`, of which only shape and type are looked at; or how many columns of float64.

    Returns
    -------
    MultiplyPlan
        The plan; ``print`` shows it as a page, and ``multiply(A, X, plan=plan)`` and :func:`multiplier` follow it.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel; it says how many bytes would do.
    TypeError, ValueError
        An argument makes no sense, or there is no such device.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan_multiply(
    ...     ((1 << 27, 1 << 27), 4_294_967_296, "pattern"),
    ...     1,
    ...     devices="cuda:0",
    ...     memory_budget="8 GiB",
    ...     precision="FDF",
    ... )
    >>> plan.first_bytes > plan.later_bytes, plan.peak_bytes <= 8 << 30
    (True, True)
    """
    options.checked(packed=packed, replace=replace, host_budget=host_budget, progress=progress, trace=trace)
    if isinstance(X, int | np.integer) and not isinstance(X, bool):
        columns, dtype = int(X), np.dtype(np.float64)
    else:
        x = checked(X)
        columns, dtype = _columns(x.shape), x.dtype
    if client is not None:
        from ooc_chol.cluster.multiplying import planned_on_cluster

        refuse_on_cluster(trace=trace)
        given: dict[str, Any] = {"packed": packed, "devices": devices, "client": client, "host_budget": host_budget}
        given |= options.checked(memory_budget=memory_budget)
        return planned_on_cluster(A, columns, _precision(precision, dtype), **given)
    machine = Machine(devices, memory_budget, must_exist=False)
    return planned(known_of(A, packed), columns, _precision(precision, dtype), machine, host_budget=host_budget)


def _columns(shape: tuple[int, ...]) -> int:
    """Columns for which there is to be room."""
    return max(1, shape[1]) if len(shape) == 2 else 1


def _precision(precision: Precision | str | None, dtype: np.dtype[Any]) -> Precision:
    """The precision that is meant, by default that of the vectors."""
    return precision_of(precision, Precision.FDF if dtype.kind == "f" and dtype.itemsize <= 4 else Precision.DDD)
