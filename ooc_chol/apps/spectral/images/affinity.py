"""Affinities of pixels that lie within a radius, as a matrix: bands of rows of the image, written where they belong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.images.features import Features

#: Entries in a band of rows, which one thread computes in one go: two megabytes.
_BAND_ENTRIES = 1 << 18
#: Weights below are left out: the smallest normal number of float64.
_LEAST = float(np.finfo(np.float64).tiny)


class Scales(NamedTuple):
    """Scales with which affinities fall off."""

    radius: float
    sigma_i: float
    sigma_x: float | None


class _Run(NamedTuple):
    """Shifts from a pixel to some in one row of the image, side by side."""

    dy: int
    first: int  #: The least dx
    last: int


class _All(NamedTuple):
    """All shifts within the radius, ascending."""

    runs: tuple[_Run, ...]
    each: tuple[tuple[int, int], ...]  #: dy and dx
    down: int  #: The largest dy
    right: int  #: The largest dx

    @property
    def number(self) -> int:
        """How many they are."""
        return len(self.each)


#: Weights and columns of all entries.
_Arrays: TypeAlias = tuple[NDArray[np.float64], NDArray[Any]]


def check_scales(radius: float, sigma_i: float, sigma_x: float | None) -> Scales:
    """Scales that make sense; ``TypeError`` or ``ValueError`` where they do not."""
    reach = tb.real_number(radius, "radius")
    if not (math.isfinite(reach) and reach >= 1):
        raise ValueError(f"radius is {reach:g}: it must be at least 1 pixel, or no pixel has a neighbour")
    fall = _positive(sigma_i, "sigma_i")
    return Scales(reach, fall, None if sigma_x is None else _positive(sigma_x, "sigma_x"))


def _positive(value: object, what: str) -> float:
    """A positive number that is finite; ``TypeError`` or ``ValueError`` for anything else."""
    number = tb.real_number(value, what)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{what} is {number:g}: it must be a positive number")
    return number


def count_entries(keep: NDArray[np.bool_], radius: float) -> int:
    """Entries of the affinity of pixels at most ``radius`` apart, before those too small are left out."""
    shifts = _all_shifts(radius, keep.shape)
    return _count(shifts, keep.shape) if keep.all() else int(_neighbours(keep, shifts)[keep].sum(dtype=np.int64))


def pixel_affinity(features: Features, scales: Scales) -> Graph:
    """``w_ij = exp(-|F_i - F_j|^2 / sigma_i^2) exp(-|X_i - X_j|^2 / sigma_x^2)`` of pixels at most ``radius`` apart.

    Memory: 12 bytes an entry (float64 weights, int32 columns; 16 from 2^31 entries on), and some ten megabytes a core. An image
    of 1920 x 1080 with radius 5 has 165 million entries: 2.0 GB. Raises ``BudgetError``: the process may not have as much memory.
    """
    keep = features.keep
    shifts = _all_shifts(scales.radius, keep.shape)
    most = _count(shifts, keep.shape)
    index = np.dtype(np.int32 if most < 2**31 else np.int64)
    nbytes = most * (8 + index.itemsize)
    tb.check_room(nbytes, f"memory for {most} affinities of pixels", "take a smaller radius, or a smaller image")
    n = int(np.count_nonzero(keep))
    starts = np.zeros(n + 1, index)
    np.cumsum(_neighbours(keep, shifts)[keep], out=starts[1:])
    out = np.empty(starts[-1]), np.empty(starts[-1], index)
    number = None if keep.all() else (np.cumsum(keep) - 1).astype(index)
    bands = _bands(keep.shape, shifts)
    fill = partial(_fill, _Image(_framed(features, shifts), keep, number, starts), scales, shifts, out)
    counts = tb.map_in_threads(fill, bands)
    if any(fewer is not None for fewer in counts):
        sizes = [int(np.count_nonzero(keep[band.start : band.stop])) for band in bands]
        starts = _closed_up(starts, out, counts, sizes)
    matrix = csr_array((out[0][: starts[-1]], out[1][: starts[-1]], starts), shape=(n, n))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return Graph(matrix, np.ones(n), "the affinity of the image")


class _Image(NamedTuple):
    """Features to compare, and places of the pixels' entries."""

    framed: NDArray[np.float64]  #: (features, rows, columns), with NaN around it and where a pixel is left out
    keep: NDArray[np.bool_]  #: (h, w)
    number: NDArray[Any] | None  #: The vertex of each pixel, (h w,); None where all are kept
    starts: NDArray[Any]  #: Of the rows of the matrix, as if no weight were too small


def _all_shifts(radius: float, shape: tuple[int, ...]) -> _All:
    """The shifts within the radius that some pixel of an image has."""
    down, right = (min(int(radius), size - 1) for size in shape)
    dys, dxs = np.arange(-down, down + 1), np.arange(-right, right + 1)
    is_near = dys[:, None] ** 2 + dxs**2 <= radius**2
    is_near[down, right] = False
    each = tuple((int(dys[y]), int(dxs[x])) for y, x in np.argwhere(is_near))
    runs: list[_Run] = []
    for dy, dx in each:
        if runs and (runs[-1].dy, runs[-1].last + 1) == (dy, dx):
            runs[-1] = runs[-1]._replace(last=dx)
        else:
            runs.append(_Run(dy, dx, dx))
    return _All(tuple(runs), each, down, right)


def _count(shifts: _All, shape: tuple[int, ...]) -> int:
    """Entries where no pixel is left out."""
    height, width = shape
    return sum((height - abs(dy)) * (width - abs(dx)) for dy, dx in shifts.each)


def _neighbours(keep: NDArray[np.bool_], shifts: _All) -> NDArray[np.int32]:
    """How many pixels that are kept lie within the radius of each, (h, w)."""
    height, width = keep.shape
    right = shifts.right
    #: How many are kept before each column, also of columns in a frame as wide as the shifts.
    before = np.zeros((height, width + 1 + 2 * right), np.int32)
    np.cumsum(keep, axis=1, out=before[:, right + 1 : right + 1 + width])
    before[:, right + 1 + width :] = before[:, right + width, None]
    counts = np.zeros(keep.shape, np.int32)
    for dy, first, last in shifts.runs:
        here, there = slice(max(0, -dy), height - max(0, dy)), before[max(0, dy) : height - max(0, -dy)]
        counts[here] += there[:, right + last + 1 : right + last + 1 + width]
        counts[here] -= there[:, right + first : right + first + width]
    return counts


def _framed(features: Features, shifts: _All) -> NDArray[np.float64]:
    """Features by themselves, one after the other, in a frame of NaN as wide as the shifts."""
    height, width, count = features.values.shape
    framed = np.full((count, height + 2 * shifts.down, width + 2 * shifts.right), np.nan)
    inside = framed[:, shifts.down : shifts.down + height, shifts.right : shifts.right + width]
    inside[...] = np.moveaxis(features.values, 2, 0)
    inside[:, ~features.keep] = np.nan
    return framed


def _bands(shape: tuple[int, ...], shifts: _All) -> list[range]:
    """Rows of the image that are computed in one go: those with all neighbours by themselves."""
    height, width = shape
    step = max(1, _BAND_ENTRIES // (width * max(1, shifts.number)))
    edges = sorted({0, min(shifts.down, height), max(shifts.down, height - shifts.down), height})
    return [range(top, min(end, top + step)) for begin, end in pairwise(edges) for top in range(begin, end, step)]


def _fill(image: _Image, scales: Scales, shifts: _All, out: _Arrays, rows: range) -> NDArray[np.int64] | None:
    """Write the weights and columns of some rows; the entries of their pixels where some are too small, from the first on."""
    height, width = image.keep.shape
    is_inside = rows.start >= shifts.down and rows.stop <= height - shifts.down and width > 2 * shifts.right
    if is_inside and image.number is None and _filled_inside(image, scales, shifts, out, rows):
        return None
    keep = image.keep[rows.start : rows.stop]
    weights = _weights(image.framed, scales, shifts, rows, range(width))
    with np.errstate(invalid="ignore"):
        is_there = weights >= _LEAST  # not where it is NaN
    found, ends = weights[is_there], _ends(shifts, rows, range(width), width, out[1].dtype)[is_there]
    first = int(np.count_nonzero(image.keep[: rows.start]))
    begin, end = image.starts[first], image.starts[first + np.count_nonzero(keep)]
    there = slice(begin, begin + len(found))
    out[0][there], out[1][there] = found, ends if image.number is None else image.number[ends]
    return None if there.stop == end else np.count_nonzero(is_there, axis=2)[keep]


def _filled_inside(image: _Image, scales: Scales, shifts: _All, out: _Arrays, rows: range) -> bool:
    """Compute rows that have all their neighbours where they belong, all but some columns; False where weights are too small."""
    width, starts = image.keep.shape[1], image.starts
    first = rows.start * width
    step = int(starts[first + width] - starts[first])
    for columns in (range(shifts.right), range(shifts.right, width - shifts.right), range(width - shifts.right, width)):
        if not columns:
            continue
        begin = int(starts[first + columns.start])
        length = int(starts[first + columns.stop]) - begin
        data, ends = (_rows_of(array, begin, step, (len(rows), length)) for array in out)
        if length == len(columns) * shifts.number:
            shape = len(rows), len(columns), shifts.number
            weights = _weights(image.framed, scales, shifts, rows, columns, data.reshape(shape, copy=False))
            if not weights.min(initial=1.0) >= _LEAST:
                return False
            _ends(shifts, rows, columns, width, ends.dtype, ends.reshape(shape, copy=False))
            continue
        weights = _weights(image.framed, scales, shifts, rows, columns)
        with np.errstate(invalid="ignore"):
            is_there = weights >= _LEAST
        found = weights[is_there]
        if len(found) != data.size:
            return False
        data[...] = found.reshape(data.shape)
        ends[...] = _ends(shifts, rows, columns, width, ends.dtype)[is_there].reshape(ends.shape)
    return True


def _rows_of(array: NDArray[Any], begin: int, step: int, shape: tuple[int, int]) -> NDArray[Any]:
    """Stretches of an array, each a step after the last one: a view, for which NumPy checks that it lies within the array."""
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, begin * size, (step * size, size))


def _windows(plane: NDArray[np.float64], at: tuple[int, int], shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """For pixels from one on, (rows, columns), some pixels to the right of each: a view as NumPy's sliding windows, sooner."""
    down, right = plane.strides
    return np.ndarray(shape, plane.dtype, plane, at[0] * down + at[1] * right, (down, right, right))


def _ends(
    shifts: _All, rows: range, columns: range, width: int, index: np.dtype[Any], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """The other pixels of all shifts, (rows, columns, shifts)."""
    pixels = np.add.outer(np.arange(rows.start, rows.stop) * width, np.arange(columns.start, columns.stop)).astype(index)
    offsets = np.array([dy * width + dx for dy, dx in shifts.each], index)
    return np.asarray(np.add(pixels[:, :, None], offsets, out=out))


def _weights(
    framed: NDArray[np.float64], scales: Scales, shifts: _All, rows: range, columns: range, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Weights of some pixels and all shifts, (rows, columns, shifts); NaN or 0 where there is none."""
    down, right = shifts.down, shifts.right
    shape = len(rows), len(columns), shifts.number
    exponent = np.empty(shape) if out is None else out
    scratch = exponent if len(framed) == 1 else np.empty(shape)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # beyond all numbers the weight is 0
        for number, plane in enumerate(framed):
            target, at = scratch if number else exponent, 0
            here = plane[rows.start + down : rows.stop + down, columns.start + right : columns.stop + right, None]
            for dy, first, last in shifts.runs:
                row, column, count = rows.start + down + dy, columns.start + right + first, last - first + 1
                there = _windows(plane, (row, column), (len(rows), len(columns), count))
                np.subtract(here, there, out=target[:, :, at : at + count])
                at += count
            target /= scales.sigma_i
            target *= target
            if number:
                exponent += target
        if scales.sigma_x is not None:
            exponent += np.array([dy**2 + dx**2 for dy, dx in shifts.each]) / np.float64(scales.sigma_x) ** 2
        np.negative(exponent, out=exponent)
        np.exp(exponent, out=exponent)
    return exponent


def _closed_up(
    starts: NDArray[Any], arrays: Sequence[NDArray[Any]], counts: Sequence[NDArray[np.int64] | None], sizes: Sequence[int]
) -> NDArray[Any]:
    """Move entries of bands to the ends of those before them, where some had fewer than expected; starts of the rows then."""
    lengths, row, at = np.diff(starts), 0, 0
    for fewer, size in zip(counts, sizes, strict=True):
        if fewer is not None:
            lengths[row : row + size] = fewer
        begin, count = int(starts[row]), int(lengths[row : row + size].sum())
        for array in arrays:
            array[at : at + count] = array[begin : begin + count]
        row, at = row + size, at + count
    closed = np.zeros_like(starts)
    np.cumsum(lengths, out=closed[1:])
    return closed
