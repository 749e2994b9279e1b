"""Products, sampled products, sums and gathers on sparse patterns for CuPy's arrays: the kernels of ``values.cu``.

The same functions as ``ooc_chol.diff.host`` has for NumPy's arrays. They run on the current stream of the arrays' device, and add
in an order that the pattern alone decides, without atomic operations. Arrays that are not row-major are copied first.

The kernel of ``csr.cu`` multiplies packed blocks with up to 8 columns; here panels have any width, and values of a transpose are
read in its order.
"""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any, NamedTuple, Protocol

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.kernels.cuda import modules
from ooc_chol.kernels.cuda.term_groups import LONG, WINDOW, TermGroups, term_groups, width_and_lanes

#: An array of CuPy.
Array = Any

_THREADS, _SAMPLES, _STRANDS = 256, 4, 32
_C_TYPES = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}
_NULL = np.uintp(0)
#: Groups of the index arrays that are alive, by their ids.
_GROUPS: dict[int, tuple[weakref.ref[Any], TermGroups]] = {}


class _Kind(NamedTuple):
    """Kind of kernels to compile: types, and how rows of several columns are read."""

    number: str
    compute: str
    width: int
    lanes: int
    ends: str | None
    of_a: str | None
    of_b: str | None


class PatternLike(Protocol):
    """Interface of a pattern of ``ooc_chol.diff`` to these kernels."""

    @property
    def nnz(self) -> int:
        """Number of stored entries."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def place(self, name: str, like: Array) -> Array:
        """One index array, on the device of ``like``."""


def copied(host: NDArray[Any], like: Array) -> Array:
    """A copy on the device of ``like``, which every stream may read."""
    with like.device:
        copy = cp.asarray(host)
        cp.cuda.get_current_stream().synchronize()
    return copy


def matmul(pattern: PatternLike, v: Array, x: Array, compute: np.dtype[Any], order: Array | None = None) -> Array:
    """``A @ x`` for values ``v``, or ``v[order]``, which are read in that order and not copied."""
    ends, indices = pattern.place("indptr", v), pattern.place("indices", v)
    return _sums(ends, v, order, x, indices, compute)


def bilinear(ends: Array, of_a: Array, of_b: Array, a: Array, b: Array, compute: np.dtype[Any]) -> Array:
    """Sums of ``a[of_a] * b[of_b]`` over segments."""
    return _sums(ends, a, of_a, b, of_b, compute)


def segment_sums(ends: Array, v: Array, compute: np.dtype[Any]) -> Array:
    """Sums over segments."""
    return _sums(ends, v, None, None, None, compute)


def sampled(pattern: PatternLike, g: Array, x: Array, compute: np.dtype[Any]) -> Array:
    """``(g @ x.T)`` on the pattern."""
    columns = g.shape[1] if g.ndim == 2 else 1
    rows, indices = pattern.place("rows", g), pattern.place("indices", g)
    with g.device:
        if not pattern.nnz or not columns:
            return cp.zeros(pattern.nnz, g.dtype)
        out = cp.empty(pattern.nnz, g.dtype)
        kind = _kind(g.dtype, compute, *width_and_lanes(columns, g.itemsize))
        count, operands = np.uint64(pattern.nnz), (rows, indices, _aligned(g, kind), _aligned(x, kind), out)
        if columns == 1:
            _launch(kind, "sampled_once", -(-pattern.nnz // (_THREADS * _SAMPLES)), (count, *operands))
        else:
            blocks = -(-pattern.nnz // (_THREADS // kind.lanes * _SAMPLES))
            _launch(kind, "sampled", blocks, (count, np.int32(columns), *operands))
    return out


def gather(v: Array, places: Array) -> Array:
    """``v[places]``, 0 where a place is -1."""
    with v.device:
        out = cp.empty(places.shape, v.dtype)
        _move("gather", v, places, out)
    return out


def scatter(v: Array, places: Array, n: int) -> Array:
    """Zeros of length n with v at places; -1 goes nowhere."""
    with v.device:
        out = cp.zeros(n, v.dtype)
        _move("scatter", v, places, out)
    return out


def _move(name: str, v: Array, places: Array, out: Array) -> None:
    if places.size:
        operands = np.uint64(places.size), _row_major(places), _row_major(v), out
        _launch(_kind(v.dtype, v.dtype, of_a=places), name, -(-places.size // _THREADS), operands)


def _sums(ends: Array, a: Array, of_a: Array | None, b: Array | None, of_b: Array | None, compute: np.dtype[Any]) -> Array:
    """Sums of ``a[of_a] * b[of_b]``, for each column of b, over segments."""
    shape = (len(ends) - 1, *(() if b is None else b.shape[1:]))
    columns = shape[1] if len(shape) == 2 else 1
    with a.device:
        out = cp.empty(shape, a.dtype)
        if not out.size:
            return out
        ends, of_a, of_b = (None if each is None else _row_major(each) for each in (ends, of_a, of_b))
        groups = _groups(ends)
        kind = _kind(a.dtype, compute, *width_and_lanes(columns, a.itemsize), ends=ends, of_a=of_a, of_b=of_b)
        held = _row_major(a), of_a, None if b is None else _aligned(b, kind), of_b
        operands = tuple(_NULL if each is None else each for each in held)
        if columns == 1:
            _launch(kind, "sums", len(groups.rows) - 1, (groups.rows, groups.terms, ends, *operands, out))
        else:
            blocks = -(-shape[0] * kind.lanes // _THREADS)
            sizes = np.uint32(blocks), np.uint32(shape[0]), np.int32(columns)
            _launch(kind, "wide_sums", blocks * _panels(columns, kind), (*sizes, ends, *operands, out))
        if len(groups.long_rows):
            _add_long(kind, groups, operands, columns, out)
    return out


def _add_long(kind: _Kind, groups: TermGroups, operands: tuple[Any, ...], columns: int, out: Array) -> None:
    """The sums of rows of more than LONG terms."""
    segments, count = len(groups.segment_terms), len(groups.long_rows)
    partial = cp.empty((segments, columns), kind.compute)
    arguments = (np.uint32(segments), np.int32(columns), groups.segment_terms, *operands, partial)
    _launch(kind, "segment_sums", segments * _panels(columns, kind), arguments, _STRANDS * kind.lanes)
    rows = (np.uint32(count), np.int32(columns), groups.long_rows, groups.row_segments, partial, out)
    _launch(kind, "add_segments", -(-count * columns // _THREADS), rows)


def _groups(ends: Array) -> TermGroups:
    """How the segments are dealt out; found once for an array, which is not written to after that."""
    key = id(ends)
    kept = _GROUPS.get(key)
    if kept is not None and kept[0]() is ends:
        return kept[1]
    made = term_groups(cp, ends)
    cp.cuda.get_current_stream().synchronize()  # any stream may read them

    def forget(gone: weakref.ref[Any]) -> None:
        if key in _GROUPS and _GROUPS[key][0] is gone:
            del _GROUPS[key]

    _GROUPS[key] = weakref.ref(ends, forget), made
    return made


def _kind(
    number: np.dtype[Any],
    compute: np.dtype[Any],
    width: int = 1,
    lanes: int = 1,
    *,
    ends: Array | None = None,
    of_a: Array | None = None,
    of_b: Array | None = None,
) -> _Kind:
    """The kind of kernels for these arrays."""
    for each in (ends, of_a, of_b):
        if each is not None and each.dtype not in (np.int32, np.int64):
            raise TypeError(f"places are of {each.dtype}: give int32 or int64")
    types = (None if each is None else each.dtype.name for each in (ends, of_a, of_b))
    return _Kind(number.name, compute.name, width, lanes, *types)


@cache
def _function(device: int, kind: _Kind, name: str) -> Any:
    """A kernel for the current device, whose number is ``device``."""
    return modules.load(
        "values.cu",
        NUMBER=_C_TYPES[kind.number],
        SUM=_C_TYPES[kind.compute],
        END=_C_TYPES[kind.ends or "int32"],
        A_PLACE=_C_TYPES[kind.of_a or "int32"],
        B_PLACE=_C_TYPES[kind.of_b or "int32"],
        HAS_ORDER=int(kind.of_a is not None),
        HAS_B=int(kind.of_b is not None),
        WIDTH=kind.width,
        LANES=kind.lanes,
        WINDOW=WINDOW,
        LONG=LONG,
    ).get_function(name)


def _launch(kind: _Kind, name: str, blocks: int, arguments: tuple[Any, ...], threads: int = _THREADS) -> None:
    """Launch on the current stream of the current device."""
    _function(cp.cuda.Device().id, kind, name)((blocks,), (threads,), arguments)


def _panels(columns: int, kind: _Kind) -> int:
    """Thread blocks beside each other that make all columns."""
    return -(-columns // (kind.width * kind.lanes))


def _row_major(array: Array) -> Array:
    """The array itself, or a copy where it is not laid out row by row."""
    return array if array.flags.c_contiguous else cp.ascontiguousarray(array)


def _aligned(x: Array, kind: _Kind) -> Array:
    """The array, row-major and where a lane can read its numbers at once; copied if it is not."""
    x = _row_major(x)
    return x.copy() if x.data.ptr % (kind.width * x.itemsize) else x
