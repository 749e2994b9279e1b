"""Products with a symmetric matrix whose tiles are made and forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.calls.options import documented
from ooc_chol.config import PAGE_BYTES, parse_bytes
from ooc_chol.dense.factor.solves import right_hand_side
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import default_budget, device_kind, page_locked, resolve_devices
from ooc_chol.interfaces import Tile
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


@overload
def symm(
    A: FunctionSource,
    b: ArrayLike,
    *,
    rows: range | None = None,
    columns: range | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> NDArray[np.float64]: ...


@overload
def symm(
    A: Sequence[FunctionSource],
    b: ArrayLike,
    *,
    rows: range | None = None,
    columns: range | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> list[NDArray[np.float64]]: ...


@documented(
    devices="Every GPU computes some rows, or the host all where a matrix has no function for a GPU (``cuda=``).",
    memory_budget="The host heeds none: beside the product it takes 2 MiB for each thread.",
)
def symm(
    A: FunctionSource | Sequence[FunctionSource],
    b: ArrayLike,
    *,
    rows: range | None = None,
    columns: range | None = None,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> NDArray[np.float64] | list[NDArray[np.float64]]:
    """Multiply ``A @ b``, or a rectangle of A, with a symmetric matrix that a tile function makes, and that is never stored.

    Parameters
    ----------
    A : FunctionSource, or a list of them
        From :func:`from_function`. Unlike for ``cholesky`` any rectangle is asked for, above the diagonal too, and every entry
        counts. Several of one order are multiplied with ``b`` in one visit of the devices.
    b : (n,) or (n, m) array_like
        Right factor; not changed. Of as many rows as there are ``columns``.
    rows, columns : range, optional
        The rows and columns of A that take part, of step 1; all when not given.

    Returns
    -------
    (n,) or (n, m) array, or a list of them
        The product, a new array with a row for each of ``rows``; of a list of matrices a list.

    Raises
    ------
    TypeError, ValueError
        A is no tile function, or a list of none or of several orders. ``b`` is no array of finite real numbers with a row for
        each column, the ranges are not inside A, or there is no such device.
    NonFiniteError
        On the host: a tile function has filled nothing.
    BudgetError
        The budget of a GPU does not hold a column and a tile.

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
    is_list = isinstance(A, Sequence)
    matrices = list(A) if isinstance(A, Sequence) else [A]
    n = _order(matrices)
    wanted, beside = (range(n) if part is None else part for part in (rows, columns))
    for name, part in (("rows", wanted), ("columns", beside)):
        if not isinstance(part, range):
            raise TypeError(f"{name} is a {type(part).__name__}; give a range")
        if part.step != 1 or part.start < 0 or part.stop > n:
            raise ValueError(f"{part} is not inside a matrix of order {n}")
    x, given = right_hand_side(b, len(beside), copy=False)
    names = resolve_devices(devices)
    given_budget = None if memory_budget is None else parse_bytes(memory_budget, "memory_budget")
    if not x.size or not len(wanted):
        products = np.zeros((len(matrices), len(wanted), x.shape[1]))
    elif device_kind(names[0]).is_in_host_memory or not all(matrix.is_made_on_cuda for matrix in matrices):
        products = _on_host(matrices, x, wanted, beside)
    else:
        budget = default_budget(names) if given_budget is None else given_budget
        products = multiply_on_each(names, matrices, np.ascontiguousarray(x), budget, rows=wanted, columns=beside)
    found = list(products.reshape(len(matrices), len(wanted), *given[1:]))
    return found if is_list else found[0]


def _order(matrices: Sequence[FunctionSource]) -> int:
    """The order of all matrices."""
    for number, matrix in enumerate(matrices):
        check_function(matrix, "A" if len(matrices) == 1 else f"A[{number}]")
        if matrix.n != matrices[0].n:
            raise ValueError(
                f"A[{number}] has order {matrix.n}, but A[0] has order {matrices[0].n}: multiply with one order at once"
            )
    if not matrices:
        raise ValueError("A is an empty list: give at least one tile function")
    return matrices[0].n


def multiply_on_each(
    names: Sequence[str],
    matrices: Sequence[FunctionSource],
    x: NDArray[np.float64],
    budget_bytes: int,
    *,
    rows: range,
    columns: range,
) -> NDArray[np.float64]:
    """``A[rows, columns] @ x`` of each A on devices that share the rows in whole tiles: no bit depends on how many they are."""
    y, nb = np.empty((len(matrices), len(rows), x.shape[1])), tile_order(budget_bytes, max(len(rows), len(columns)))
    spans = _spans(rows, nb)
    names = names[: max(1, min(len(rows) // LEAST_ROWS, len(spans)))]
    ends = np.linspace(0, len(spans), len(names) + 1).astype(int)

    def multiplied(number: int) -> Iterator[None]:
        own = range(spans[ends[number]].start, spans[ends[number + 1] - 1].stop)
        part = y[:, own.start - rows.start : own.stop - rows.start]
        return multiply_on(opened[number], matrices, (x, part), budget_bytes, nb=nb, rows=own, columns=columns)

    with page_locked(names, filled=[x]):  # not y: its pages take longer to touch before than beside the products
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


def _on_host(matrices: Sequence[FunctionSource], x: NDArray[np.float64], wanted: range, beside: range) -> NDArray[np.float64]:
    """Rows of the products by several threads: tile functions of NumPy release the interpreter lock."""
    y = np.zeros((len(matrices), len(wanted), x.shape[1]))

    def multiply(part: tuple[int, range]) -> None:
        number, rows = part
        total = y[number, rows.start - wanted.start : rows.stop - wanted.start]
        for cols in _spans(beside, _HOST_TILE):
            tile = np.empty((len(rows), len(cols)))
            matrices[number].read_filled(rows, cols, tile)
            total += tile @ x[cols.start - beside.start : cols.stop - beside.start]

    map_in_threads(multiply, list(product(range(len(matrices)), _spans(wanted, _HOST_TILE))))
    return y


def multiply_on(
    device: TileDevice,
    matrices: Sequence[FunctionSource],
    arrays: tuple[NDArray[np.float64], NDArray[np.float64]],
    budget_bytes: int,
    *,
    nb: int,
    rows: range,
    columns: range,
) -> Iterator[None]:
    """``y = A[rows, columns] @ x`` of each A on one device, a tile row at each ``next``, as many columns of ``x`` at once as fit.

    Shapes: ``x`` (n, m), ``y`` (matrices, rows, m).
    """
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
    for matrix in matrices:
        device.prepare(matrix.prepare)
    kernels, streams = device.kernels.create_solves(), [device.create_stream(f"symm-{number}") for number in range(_STREAMS)]

    @cache
    def room(turn: int, height: int, wide: int) -> Tile:
        return arena.arrays[turn][: height * wide].reshape(height, wide)

    for start in range(0, m, width):
        part = slice(start, min(start + width, m))
        wide = part.stop - part.start
        right = arena.arrays[_STREAMS][: n * wide].reshape(n, wide)
        for stream in streams[1:]:  # they are done with the columns before
            streams[0].wait(stream.record())
        copy_columns_in(device, streams[0], x, right, slot_bytes=slot, columns=part)
        for stream in streams[1:]:
            stream.wait(streams[0].record())
        x_by_cols = [(cols, right[cols.start - columns.start : cols.stop - columns.start]) for cols in _spans(columns, nb)]
        for number, (one, span) in enumerate(product(range(len(matrices)), _spans(rows, nb))):
            turn = number % _STREAMS
            stream, target = streams[turn], arena.tile(turn, (len(span), wide))
            device.generate(stream, zeros, span, range(wide), target)
            for cols, x_j in x_by_cols:  # y[i] += A[i, j] @ x[j]
                made = room(turn, len(span), len(cols))
                device.generate(stream, matrices[one].function, span, cols, made)
                kernels.add_product(stream, target, made, x_j)
            own = y[one, span.start - rows.start : span.stop - rows.start]
            copy_columns_out(device, stream, target, own, slot_bytes=slot, columns=part)
            finish(device, ())  # it may have been aborted
            yield
    yield  # another device may have a row more
    finish(device, streams)
