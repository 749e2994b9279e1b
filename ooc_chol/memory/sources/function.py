"""A source of A that is computed: a function that fills one tile at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ooc_chol.config import whole_number
from ooc_chol.display.prints import one_line
from ooc_chol.errors import NonFiniteError, UnsupportedTypeError
from ooc_chol.formats import FP64, PrecisionFormat, type_named
from ooc_chol.interfaces import Tile, TileFunction
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.numbers import put_numbers
from ooc_chol.process.threads import UsersCode


@final
class FunctionSource(AbstractSource):
    """A matrix that is generated tile by tile, where it is needed; made by :func:`from_function`."""

    name = "function"
    bytes_per_entry = 0
    is_shared = True

    def __init__(self, n: int, tile_fn: TileFunction, cuda: TileFunction | None = None, fmt: PrecisionFormat = FP64) -> None:
        self.n, self.dtype, self._fmt = n, fmt.dtype, fmt
        self._tile_fn = tile_fn
        self._cuda = cuda
        self._other: FunctionSource | None = None

    def __repr__(self) -> str:
        cuda = {} if self._cuda is None else {"cuda": _name_of(self._cuda)}
        return one_line(self, {"n": self.n, "tile_fn": _name_of(self._tile_fn), **cuda})

    def prepare(self) -> None:
        prepare = getattr(self._cuda or self._tile_fn, "prepare", None)
        if prepare is not None:
            prepare()

    @property
    def is_made_on_cuda(self) -> bool:
        return self._cuda is not None

    def tile_function(self, *, on_host: bool) -> TileFunction:
        """The function that fills tiles in the host's memory, or in that of CUDA devices."""
        return self._tile_fn if self._cuda is None or on_host else self._cuda

    def function(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Call the tile function on the device that owns ``out``: what :meth:`AbstractDevice.generate` takes.

        Raises ``TypeError``: the function returned a tile of its own instead of filling ``out``, or fills arrays of another type.
        """
        if out.dtype != self.dtype:
            raise TypeError(
                f"the tile function fills tiles of {self.dtype}, but {out.dtype} is computed on this device: make the source "
                f"with from_function(..., dtype={out.dtype.name!r}) and a function for that"
            )
        _fill(self.tile_function(on_host=isinstance(out, np.ndarray)), rows, cols, out, stream)

    def transposed(self) -> FunctionSource:
        """The transpose, one and the same at each call: tile functions are known again by what they are."""
        if self._other is None:
            cuda = None if self._cuda is None else _Turned(self._cuda)
            self._other = FunctionSource(self.n, _Turned(self._tile_fn), cuda, self._fmt)
            self._other.is_transposed = not self.is_transposed
        return self._other

    def read_filled(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """As :meth:`read_block`, for who looks at no entry; ``NonFiniteError`` where the function has filled nothing."""
        self.read_block(rows, cols, out)
        for row in (0, -1):
            if np.isnan(out[row, 0]):
                text = (
                    f"NaN after the call of tile function {_name_of(self._tile_fn)}, which is to fill its third argument in place"
                )
                raise NonFiniteError(rows[row], cols[0], None, text)

    def _read(self, rows: range, cols: range, out: NDArray[Any]) -> None:
        """Generate on the host, outside of any stream."""
        made = out if out.dtype == self.dtype else np.empty(out.shape, self.dtype)
        self.function(rows, cols, made, None)
        if made is not out:
            put_numbers(made, out)


def _name_of(tile_fn: TileFunction) -> str:
    """The name of a function, or of an object's class."""
    name: str = getattr(tile_fn, "__qualname__", type(tile_fn).__qualname__)
    return name


def _fill(tile_fn: TileFunction, rows: range, cols: range, out: Tile, stream: Any) -> None:
    """Let a tile function fill ``out``; refuse a tile of its own."""
    if isinstance(out, np.ndarray):
        # A function that fills nothing must not pass with an earlier tile's entries: these are found by the check for NaN.
        out[:1, :1] = out[-1:, :1] = np.nan
    with UsersCode():
        returned = cast("Callable[..., object]", tile_fn)(rows, cols, out, stream)
    if returned is not None and returned is not out:
        raise TypeError(
            f"tile function {_name_of(tile_fn)} returned a {type(returned).__name__} for {rows} x {cols}, which is not looked "
            "at: let it fill its third argument in place, as in out[...] = tile"
        )


@final
class _Turned:
    """A tile function of the transpose: it fills an array beside the tile, on the device of that, which is copied turned."""

    def __init__(self, tile_fn: TileFunction) -> None:
        self._tile_fn = tile_fn

    def prepare(self) -> None:
        """Prepare the function where it wants that."""
        prepare = getattr(self._tile_fn, "prepare", None)
        if prepare is not None:
            prepare()

    def __call__(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        turned = np.empty_like(out, shape=(len(cols), len(rows)), order="C")  # of CuPy for a tile of CuPy's
        _fill(self._tile_fn, cols, rows, turned, stream)
        out[...] = turned.T


def check_function(matrix: object, name: str) -> None:
    """Raise ``TypeError`` unless ``matrix``, called ``name`` by the caller, is what :func:`from_function` makes in float64."""
    if not isinstance(matrix, FunctionSource):
        raise TypeError(f"{name} is a {type(matrix).__name__}; give what from_function makes of a tile function")
    if matrix.dtype != FP64.dtype:
        advice = "sums and products with tile functions are of float64 alone"
        raise UnsupportedTypeError(f"{name} of another type than float64", matrix.dtype.name, advice)


def from_function(
    n: int, tile_fn: TileFunction, *, cuda: TileFunction | None = None, dtype: DTypeLike = "float64"
) -> FunctionSource:
    """Make a source of the ``(n, n)`` symmetric or Hermitian matrix whose tiles ``tile_fn`` computes, so that A is never stored.

    Parameters
    ----------
    n : int
        Order of the matrix, which is at least 1.
    tile_fn : callable
        ``tile_fn(rows, cols, out, stream)`` fills ``out``, a row-major array of type ``dtype`` and shape ``(len(rows),
        len(cols))`` on the device that owns it, with ``A[rows, cols]``, and returns None. ``rows`` and ``cols`` are ranges of
        step 1; ``stream`` is the device's stream (None outside of a run).
    cuda : callable, optional
        A function of the same kind for CUDA devices, where ``out`` is a CuPy array and ``stream`` CuPy's current stream, such as
        :func:`~ooc_chol.toolbox.cuda_source` makes. Without it ``tile_fn`` is called there too.
    dtype : str or dtype
        Type of ``out``: float64, float32, complex128 or complex64. Where another one is computed, the host converts; a GPU
        computes in this one alone.

    Returns
    -------
    FunctionSource
        A source that takes the place of A in ``cholesky`` and ``plan``; its attribute ``n`` is the order.

    Raises
    ------
    ValueError
        ``n`` is smaller than 1.
    TypeError
        ``n`` is not an integer, ``tile_fn`` cannot be called, or there is no such ``dtype``.

    Notes
    -----
    Only tiles of the lower triangle are requested, and the strict upper part of a diagonal tile is ignored. ``tile_fn`` is
    called from a thread of the device, and may be called twice for one tile: it must give the same entries each time. An
    interrupt (Ctrl-C) waits about a second for a call to return; one that does not keeps its thread, which ends when it
    returns, and does not keep the process from ending.

    On the host, two entries of ``out`` are NaN before the call: a function that fills nothing, as after ``out = tile``, meets
    ``NonFiniteError`` and not the entries of an earlier tile.

    Examples
    --------
    >>> import numpy as np
    >>> def exponential(rows, cols, out, stream):
    ...     np.subtract.outer(np.asarray(rows), np.asarray(cols), out=out)
    ...     np.exp(-np.abs(out), out=out)
    >>> source = from_function(1000, exponential)
    >>> tile = np.empty((2, 2))
    >>> source.read_block(range(4, 6), range(4, 6), tile)
    >>> tile.round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """
    order = whole_number(n, "n")
    if order < 1:
        raise ValueError(f"n is {order}, but a matrix has at least 1 row")
    if not callable(tile_fn):
        raise TypeError(f"tile_fn is a {type(tile_fn).__name__}, but it must be callable as tile_fn(rows, cols, out, stream)")
    if cuda is not None and not callable(cuda):
        raise TypeError(f"cuda is a {type(cuda).__name__}, but it must be callable as tile_fn(rows, cols, out, stream)")
    return FunctionSource(order, tile_fn, cuda, type_named(dtype))
