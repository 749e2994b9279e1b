"""Products with a symmetric matrix whose tiles are made and forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.calls.options import documented
from ooc_chol.config import PAGE_BYTES, parse_bytes
from ooc_chol.dense.factor.solves import right_hand_side
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import default_budget, device_kind, page_locked, resolve_devices
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.kernels.registry import open_tile_device
from ooc_chol.memory.sources.function import FunctionSource, check_function
from ooc_chol.process.team import map_in_threads
from ooc_chol.runtime.passes import device_for_a_pass, finish, on_each_device
from ooc_chol.runtime.vectors import copy_columns_in, copy_columns_out, vector_arrays, zeros

#: Rows and columns of the tiles that the host and a GPU make at once.
_HOST_TILE, _DEVICE_TILE = 512, 2048
#: Rows from which on another GPU is worth its opening.
LEAST_ROWS = 16384


@documented(devices="Every GPU computes some rows, or the host all where the matrix has no function for a GPU (``cuda=``).")
def symm(
    A: FunctionSource,
    b: ArrayLike,
    *,
    rows: range | None = None,
    columns: range | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> NDArray[np.float64]:
    """Multiply ``A @ b``, or a rectangle of A, with a symmetric matrix that a tile function makes, and that is never stored.

    Parameters
    ----------
    A : FunctionSource
        From :func:`from_function`. Unlike for ``cholesky`` any rectangle is asked for, above the diagonal too, and every entry
        counts.
    b : (n,) or (n, m) array_like
        Right factor; not changed. Of as many rows as there are ``columns``.
    rows, columns : range, optional
        The rows and columns of A that take part, of step 1; all when not given.

    Returns
    -------
    (n,) or (n, m) array
        The product, a new array with a row for each of ``rows``.

    Raises
    ------
    TypeError, ValueError
        A is no tile function, ``b`` no array of finite real numbers with a row for each column, the ranges are not inside A,
        or there is no such device.
    BudgetError
        The budget does not hold a column and a tile.

    Notes
    -----
    Cost ``2 n**2 m`` flops and ``n**2`` entries made, for every group of columns that fits a GPU.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> def ones(rows, cols, out, stream):
    ...     out[...] = 1.0
    >>> oc.symm(oc.from_function(3, ones), np.array([1.0, 2.0, 3.0]), devices="host:0")
    array([6., 6., 6.])
    """
    check_function(A, "A")
    wanted, beside = (range(A.n) if part is None else part for part in (rows, columns))
    for name, part in (("rows", wanted), ("columns", beside)):
        if not isinstance(part, range):
            raise TypeError(f"{name} is a {type(part).__name__}; give a range")
        if part.step != 1 or part.start < 0 or part.stop > A.n:
            raise ValueError(f"{part} is not inside a matrix of order {A.n}")
    x, given = right_hand_side(b, len(beside), copy=False)
    shape = (len(wanted), *given[1:])
    names = resolve_devices(devices)
    given_budget = None if memory_budget is None else parse_bytes(memory_budget, "memory_budget")
    if not x.size or not len(wanted):
        return np.zeros(shape)
    if device_kind(names[0]).is_in_host_memory or not A.is_made_on_cuda:
        return _on_host(A, x, wanted, beside).reshape(shape)
    budget = default_budget(names) if given_budget is None else given_budget
    x = np.ascontiguousarray(x)
    y = np.empty((len(wanted), x.shape[1]))
    names = names[: max(1, len(wanted) // LEAST_ROWS)]
    ends = np.linspace(wanted.start, wanted.stop, len(names) + 1).astype(int).tolist()

    def multiplied(number: int) -> None:
        own = range(ends[number], ends[number + 1])
        part = y[own.start - wanted.start : own.stop - wanted.start]
        with device_for_a_pass(lambda: open_tile_device(names[number]), nullcontext()) as device:
            multiply_on(device, A, (x, part), budget, rows=own, columns=beside)

    with page_locked(names, filled=[x, y]):
        on_each_device(len(names), multiplied)
    return y.reshape(shape)


def _spans(whole: range, size: int) -> list[range]:
    """A range in pieces of at most ``size``."""
    return [range(start, min(start + size, whole.stop)) for start in range(whole.start, whole.stop, size)]


def _on_host(a: FunctionSource, x: NDArray[np.float64], wanted: range, beside: range) -> NDArray[np.float64]:
    """Rows of the product by several threads: tile functions of NumPy release the interpreter lock."""

    def product(rows: range) -> NDArray[np.float64]:
        total = np.zeros((len(rows), x.shape[1]))
        for cols in _spans(beside, _HOST_TILE):
            tile = np.empty((len(rows), len(cols)))
            a.read_block(rows, cols, tile)
            total += tile @ x[cols.start - beside.start : cols.stop - beside.start]
        return total

    return np.concatenate(map_in_threads(product, _spans(wanted, _HOST_TILE)))


def multiply_on(
    device: TileDevice,
    a: FunctionSource,
    arrays: tuple[NDArray[np.float64], NDArray[np.float64]],
    budget_bytes: int,
    *,
    rows: range | None = None,
    columns: range | None = None,
) -> None:
    """``y = A[rows, columns] @ x`` on one device, as many columns of ``x`` at a time as fit."""
    x, y = arrays
    wanted, beside = range(a.n) if rows is None else rows, range(a.n) if columns is None else columns
    n, m = x.shape
    nb = min(_DEVICE_TILE, max(n, len(wanted)))
    fixed = device.kernels.workspace_bytes(nb) + 8 * nb * nb + 3 * PAGE_BYTES
    width = min(m, (budget_bytes - fixed) // (8 * (n + nb)))
    if width < 1:
        advice = "it holds no column beside a tile; give a larger memory_budget"
        raise BudgetError(f"product on {device.name}", fixed + 8 * (n + nb), budget_bytes, advice)
    # the slot holds rows of the product: staging buffers, where copies need them, are as large as a slot
    slot = 8 * nb * width
    arena = device.allocate(1, slot, nb, [spec for size in (nb * nb, n * width) for spec in vector_arrays((size,), 1)])
    device.prepare(a.prepare)
    kernels, stream = device.kernels.create_solves(), device.create_stream("symm")
    for start in range(0, m, width):
        part = slice(start, min(start + width, m))
        wide = part.stop - part.start
        right, target = arena.arrays[1][: n * wide].reshape(n, wide), arena.tile(0, (nb, wide))
        copy_columns_in(device, stream, x, right, slot_bytes=slot, columns=part)
        for span in _spans(wanted, nb):
            device.generate(stream, zeros, span, range(wide), target)
            for cols in _spans(beside, nb):  # y[i] += A[i, j] @ x[j]
                made = arena.arrays[0][: len(span) * len(cols)].reshape(len(span), len(cols))
                device.generate(stream, a.function, span, cols, made)
                those = right[cols.start - beside.start : cols.stop - beside.start]
                kernels.add_product(stream, target[: len(span)], made, those)
            own = y[span.start - wanted.start : span.stop - wanted.start]
            copy_columns_out(device, stream, target[: len(span)], own, slot_bytes=slot, columns=part)
    finish(device, [stream])
