"""Products with a symmetric matrix whose tiles are made and forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from ooc_chol.runtime.passes import enqueued_in_turns, finish
from ooc_chol.runtime.vectors import copy_columns_in, copy_columns_out, vector_arrays, zeros

#: Rows and columns of the tiles that the host and a GPU make at once, and the share of a GPU's budget that one may take: else it
#: is halved. One thread starts all kernels, of which tiles twice as large have a quarter.
_HOST_TILE, _DEVICE_TILE, _TILE_SHARE = 512, 4096, 8
#: Streams of a device with tile rows of their own: one makes entries while the other multiplies.
_STREAMS = 2
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
    >>> oc.symm(
    ...     oc.from_function(3, ones),
    ...     np.array([1.0, 2.0, 3.0]),
    ...     devices="host:0",
    ... )
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
    return multiply_on_each(names, A, np.ascontiguousarray(x), budget, rows=wanted, columns=beside).reshape(shape)


def multiply_on_each(
    names: Sequence[str], a: FunctionSource, x: NDArray[np.float64], budget_bytes: int, *, rows: range, columns: range
) -> NDArray[np.float64]:
    """``A[rows, columns] @ x`` on devices that share the rows in whole tiles: no bit depends on how many they are."""
    y, nb = np.empty((len(rows), x.shape[1])), tile_order(budget_bytes, max(len(rows), len(columns)))
    spans = _spans(rows, nb)
    names = names[: max(1, min(len(rows) // LEAST_ROWS, len(spans)))]
    ends = np.linspace(0, len(spans), len(names) + 1).astype(int)

    def multiplied(number: int) -> Iterator[None]:
        own = range(spans[ends[number]].start, spans[ends[number + 1] - 1].stop)
        part = y[own.start - rows.start : own.stop - rows.start]
        return multiply_on(opened[number], a, (x, part), budget_bytes, nb=nb, rows=own, columns=columns)

    with page_locked(names, fresh=y, filled=[x]):
        opened = [open_tile_device(name) for name in names]
        with enqueued_in_turns(opened, multiplied, "symm"):
            return y


def tile_order(budget_bytes: int, largest: int) -> int:
    """Rows and columns of a tile on a device of this budget, of a matrix of at most so many."""
    nb = _DEVICE_TILE if budget_bytes >= _TILE_SHARE * 8 * _DEVICE_TILE**2 else _DEVICE_TILE // 2
    return min(nb, largest)


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
    nb: int,
    rows: range,
    columns: range,
) -> Iterator[None]:
    """``y = A[rows, columns] @ x`` on one device, a tile row at each ``next``, and as many columns of ``x`` at a time as fit."""
    x, y = arrays
    n, m = x.shape
    fixed = device.kernels.workspace_bytes(nb) + _STREAMS * 8 * nb * nb + 4 * PAGE_BYTES
    width = min(m, (budget_bytes - fixed) // (8 * (n + _STREAMS * nb)))
    if width < 1:
        advice = "it holds no column beside a tile; give a larger memory_budget"
        raise BudgetError(f"product on {device.name}", fixed + 8 * (n + _STREAMS * nb), budget_bytes, advice)
    # slots hold rows of the product: staging buffers, where copies need them, are as large as a slot
    slot = 8 * nb * width
    arena = device.allocate(_STREAMS, slot, nb, [*vector_arrays((nb * nb,), _STREAMS), *vector_arrays((n * width,), 1)])
    device.prepare(a.prepare)
    kernels, streams = device.kernels.create_solves(), [device.create_stream(f"symm-{number}") for number in range(_STREAMS)]
    for start in range(0, m, width):
        part = slice(start, min(start + width, m))
        wide = part.stop - part.start
        right = arena.arrays[_STREAMS][: n * wide].reshape(n, wide)
        for stream in streams[1:]:  # they are done with the columns before
            streams[0].wait(stream.record())
        copy_columns_in(device, streams[0], x, right, slot_bytes=slot, columns=part)
        for stream in streams[1:]:
            stream.wait(streams[0].record())
        for number, span in enumerate(_spans(rows, nb)):
            turn = number % _STREAMS
            stream, target = streams[turn], arena.tile(turn, (len(span), wide))
            device.generate(stream, zeros, span, range(wide), target)
            for cols in _spans(columns, nb):  # y[i] += A[i, j] @ x[j]
                made = arena.arrays[turn][: len(span) * len(cols)].reshape(len(span), len(cols))
                device.generate(stream, a.function, span, cols, made)
                kernels.add_product(stream, target, made, right[cols.start - columns.start : cols.stop - columns.start])
            own = y[span.start - rows.start : span.stop - rows.start]
            copy_columns_out(device, stream, target, own, slot_bytes=slot, columns=part)
            finish(device, ())  # it may have been aborted
            yield
    yield  # another device may have a row more
    finish(device, streams)
