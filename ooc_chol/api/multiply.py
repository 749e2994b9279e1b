"""``oc.multiply`` and ``oc.plan_multiply``: products with sparse matrices larger than a device."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.multiplier import Progress, Store, checked, multiplier
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Devices, Facts, known_of, planned, precision_of


def multiply(
    A: Any,
    X: ArrayLike,
    *,
    precision: Precision | str | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    store: Store = None,
    trace: bool = False,
    progress: Progress = None,
) -> NDArray[Any]:
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
    devices : str, sequence of str, or int, optional
        Devices by names such as ``"cuda:0"`` or ``["cuda:0", "cuda:1"]``, by a word such as ``"cuda"``, or so many; by default
        all GPUs, without one the host.
    memory_budget : int or str, optional
        Most bytes on each device, such as ``"16 GiB"``; by default what is free.
    store : str or PathLike, optional
        File for the packed blocks of an A that is not packed; by default they are in host memory.
    trace : bool
        Whether every copy and product is recorded; :func:`multiplier` gives the trace out.
    progress : bool or callable, optional
        A bar, or ``progress(done, total, seconds)`` of entries times columns.

    Returns
    -------
    (n_rows,) or (n_rows, m) array
        The product, of the type in which vectors are stored. NaN and infinities of X go through as in NumPy's products.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel; it says how many bytes would do.
    TypeError, ValueError
        X has another height, holds complex numbers or none, A is no matrix, or there is no such device.

    Notes
    -----
    Every entry of Y is within ``8 sqrt(d) u (|A| |x|)`` of the exact sum of its d products, u being the unit roundoff of the type
    of computing, and is rounded once to that of storage. It has the same bits whatever the budget, the number of devices, and the
    size of blocks.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import ooc_chol as oc
    >>> path = scipy.sparse.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> oc.multiply(path, np.array([1.0, 2.0, 3.0]), devices="host:0")
    array([2., 4., 2.])
    """
    x = checked(X)
    wanted = precision_of(precision, Precision.FDF if x.dtype.kind == "f" and x.dtype.itemsize <= 4 else Precision.DDD)
    columns = max(1, x.shape[1]) if x.ndim == 2 else 1
    with multiplier(
        A,
        columns,
        precision=wanted,
        devices=devices,
        memory_budget=memory_budget,
        store=store,
        trace=trace,
        progress=progress,
    ) as product:
        return product(x)


def plan_multiply(
    A: BlockCSR | Operator | Facts,
    columns: int = 1,
    *,
    precision: Precision | str | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
) -> MultiplyPlan:
    """Plan products ``Y = A X`` without computing anything: what each device holds, and what crosses each link.

    Parameters
    ----------
    A : BlockCSR, Operator, or ((int, int), int, str)
        A packed matrix, an operator of one; or rows and columns, entries and kind of values (``"pattern"``, ``"int8"``,
        ``"fp32"`` or ``"fp64"``) of a matrix that need not be there: its entries are then taken as spread evenly over its rows.
    columns : int
        Columns of X.
    precision : Precision or str, optional
        ``"DDD"`` (default), ``"FDF"`` or ``"FFF"``, as for :func:`multiply`.
    devices : str, sequence of str, or int, optional
        Devices as for :func:`multiply`. They need not be on this machine if ``memory_budget`` is given.
    memory_budget : int or str, optional
        Most bytes on each device, such as ``"16 GiB"``; by default what is free.

    Returns
    -------
    MultiplyPlan
        The plan; ``print`` shows it as a page.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel; it says how many bytes would do.
    TypeError, ValueError
        An argument makes no sense, or there is no such device.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> plan = oc.plan_multiply(((1 << 27, 1 << 27), 4_294_967_296, "pattern"), devices="cuda:0", memory_budget="8 GiB",
    ...     precision="FDF")
    >>> plan.first_bytes > plan.later_bytes, plan.peak_bytes <= 8 << 30
    (True, True)
    """
    known, names = known_of(A), resolve_devices(devices, must_exist=False)
    return planned(
        known.blocks,
        columns,
        precision_of(precision),
        names,
        memory_budget=memory_budget,
        tier=known.tier,
        diagonals=known.diagonals,
    )
