"""The primitives on NumPy's arrays: SciPy's compiled loops where there are any, else NumPy by pieces that fit a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff.orders import taken
from ooc_chol.process.scipy_modules import sparse_tools

if TYPE_CHECKING:
    from ooc_chol.diff.pattern import Pattern

#: Numbers of a piece: two of them stay in a core's cache.
_PIECE = 1 << 16


def matmul(pattern: Pattern, v: NDArray[Any], x: NDArray[Any], compute: np.dtype[Any]) -> NDArray[Any]:
    """``A @ x``, summed along each row in ``compute``."""
    return _product(pattern.indptr, pattern.indices, v, x, compute)


def matmul_transposed(pattern: Pattern, v: NDArray[Any], y: NDArray[Any], compute: np.dtype[Any]) -> NDArray[Any]:
    """``A.T @ y``, rows of A being its columns: nothing is transposed, and sums have the order of those of the transpose."""
    y = np.ascontiguousarray(y, dtype=compute)
    out = np.zeros((pattern.n_columns, *y.shape[1:]), compute)
    for rows, starts, columns, values in _pieces(pattern.indptr, pattern.indices, v, compute):
        _add_product("csc", starts, columns, values, y[rows], out)
    return out.astype(v.dtype, copy=False)


def sampled(pattern: Pattern, g: NDArray[Any], x: NDArray[Any], compute: np.dtype[Any]) -> NDArray[Any]:
    """``(g @ x.T)`` on the pattern, summed over columns in their order."""
    if g.ndim == 1 or g.shape[1] == 1:
        return _outer(pattern, g.reshape(-1), x.reshape(-1))
    if not g.shape[1]:
        return np.zeros(pattern.nnz, g.dtype)
    # Each entry is a block, 1 x k, of a matrix of blocks: a row of x, which is multiplied with a row of g.
    flat = np.ascontiguousarray(g, dtype=compute).ravel()
    out = np.empty(pattern.nnz, g.dtype)
    piece = max(_PIECE // g.shape[1], 256)
    for at in range(0, out.size, piece):
        here = slice(at, at + piece)
        blocks = np.take(x, pattern.indices[here], axis=0).astype(compute, copy=False).ravel()
        starts, part = np.arange(out[here].size + 1, dtype=np.int32), np.zeros(out[here].size, compute)
        sparse_tools().bsr_matvec(part.size, len(g), 1, g.shape[1], starts, pattern.rows[here], blocks, flat, part)
        out[here] = part
    return out


def _outer(pattern: Pattern, g: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """``g[row] * x[column]``, one rounding each: the same in every type of compute."""
    out = taken(x, pattern.indices)
    sizes = pattern.shape
    starts = pattern.indptr
    if starts.dtype == pattern.indices.dtype:
        sparse_tools().csr_scale_rows(*sizes, starts, pattern.indices, out, np.ascontiguousarray(g))
    else:
        out *= taken(g, pattern.rows)
    return out


def bilinear(
    ends: NDArray[Any], of_a: NDArray[Any], of_b: NDArray[Any], a: NDArray[Any], b: NDArray[Any], compute: np.dtype[Any]
) -> NDArray[Any]:
    """Sums of ``a[of_a] * b[of_b]`` over segments: rows of a matrix with values ``a[of_a]``, times b."""
    return _product(ends, of_b, a, b, compute, of_a)


def segment_sums(ends: NDArray[Any], v: NDArray[Any], compute: np.dtype[Any]) -> NDArray[Any]:
    """Sums over segments, in order."""
    out = np.zeros(ends.size - 1, v.dtype)
    taken = ends[1:] > ends[:-1]
    if taken.any():
        out[taken] = np.add.reduceat(v, ends[:-1][taken], dtype=compute)
    return out


def gather(v: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """``v[places]``, 0 where a place is -1."""
    missing = places < 0
    if not missing.any():
        return taken(v, places)
    out: NDArray[Any] = np.zeros(places.shape, v.dtype)
    out[~missing] = v[places[~missing]]
    return out


def scatter(v: NDArray[Any], places: NDArray[Any], n: int) -> NDArray[Any]:
    """Zeros of length n with v at places; -1 goes nowhere."""
    out = np.zeros(n, v.dtype)
    missing = places < 0
    if missing.any():
        v, places = v[~missing], places[~missing]
    out[places] = v
    return out


def _product(
    starts: NDArray[Any],
    columns: NDArray[Any],
    v: NDArray[Any],
    x: NDArray[Any],
    compute: np.dtype[Any],
    taking: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Rows of values times x, by pieces of rows, so that gathered or widened values take no memory of their own size."""
    x = np.ascontiguousarray(x, dtype=compute)
    out = np.zeros((starts.size - 1, *x.shape[1:]), v.dtype)
    for rows, local, here, values in _pieces(starts, columns, v, compute, taking):
        part = out[rows] if v.dtype == compute else np.zeros(out[rows].shape, compute)
        _add_product("csr", local, here, values, x, part)
        if part.dtype != out.dtype:
            out[rows] = part
    return out


def _pieces(
    starts: NDArray[Any], columns: NDArray[Any], v: NDArray[Any], compute: np.dtype[Any], taking: NDArray[Any] | None = None
) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Rows, their starts and columns, in one type, and their values in ``compute``: at once where all of them are so already."""
    n_rows = starts.size - 1
    if taking is None and v.dtype == compute and starts.dtype == columns.dtype:
        yield slice(0, n_rows), starts, columns, np.ascontiguousarray(v)
        return
    row = 0
    while row < n_rows:
        stop = min(max(int(np.searchsorted(starts, starts[row] + _PIECE, side="right")) - 1, row + 1), n_rows)
        here = slice(int(starts[row]), int(starts[stop]))
        values = np.ascontiguousarray(v[here] if taking is None else taken(v, taking[here]), dtype=compute)
        local = (starts[row : stop + 1] - starts[row]).astype(columns.dtype, copy=False)
        yield slice(row, stop), local, np.ascontiguousarray(columns[here]), values
        row = stop


def _add_product(
    kind: str, starts: NDArray[Any], lines: NDArray[Any], values: NDArray[Any], x: NDArray[Any], out: NDArray[Any]
) -> None:
    """``out += A @ x`` by SciPy's compiled loop, A being stored by rows (csr) or by columns (csc)."""
    tools, sizes = sparse_tools(), (len(out), len(x))
    if x.ndim == 1:
        getattr(tools, f"{kind}_matvec")(*sizes, starts, lines, values, x, out)
    else:
        getattr(tools, f"{kind}_matvecs")(*sizes, x.shape[1], starts, lines, values, x.ravel(), out.ravel())
