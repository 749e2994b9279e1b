"""Affinities of pixels that lie within a radius, as a matrix: by shifts of the whole image, a band of its rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol.apps.spectral.arguments import positive_number, real_number
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.images.features import Features

#: Pixels in a band: its weights, for a radius of 5, take two to three megabytes.
_BAND_PIXELS = 1 << 12
#: Pixels in a strip, which one thread builds, and most strips at a time.
_STRIP_PIXELS, _MOST_STRIPS = 1 << 14, 8
#: Weights below are left out: the smallest normal number of float64.
_LEAST = float(np.finfo(np.float64).tiny)


class Scales(NamedTuple):
    """What affinities fall off with."""

    radius: float
    sigma_i: float
    sigma_x: float | None


class _Shift(NamedTuple):
    """From a pixel to one that comes later in the order of rows."""

    dy: int
    dx: int

    def columns(self, width: int) -> tuple[slice, slice]:
        """Columns of the first pixels and of the second ones."""
        return slice(max(0, -self.dx), width - max(0, self.dx)), slice(max(0, self.dx), width - max(0, -self.dx))


def check_scales(radius: float, sigma_i: float | None, sigma_x: float | None) -> Scales:
    """Scales that make sense; ``TypeError`` or ``ValueError`` where they do not."""
    if sigma_i is None:
        raise TypeError(
            "an image needs sigma_i: the difference of features at which an affinity falls to 1/e, such as 20 grey levels"
        )
    reach = real_number("radius", radius)
    if not (math.isfinite(reach) and reach >= 1):
        raise ValueError(f"radius is {reach:g}: it must be at least 1 pixel, or no pixel has a neighbour")
    fall = positive_number("sigma_i", sigma_i)
    return Scales(reach, fall, None if sigma_x is None else positive_number("sigma_x", sigma_x))


def pixel_affinity(features: Features, scales: Scales) -> Graph:
    """``w_ij = exp(-|F_i - F_j|^2 / sigma_i^2) exp(-|X_i - X_j|^2 / sigma_x^2)`` of pixels at most ``radius`` apart.

    Parameters
    ----------
    features : Features
        Of all pixels; those that are kept are the vertices, in the order of rows.
    scales : Scales
        Radius in pixels, sigma_i in units of the features, sigma_x in pixels; None for no factor of distance.

    Returns
    -------
    Graph
        Symmetric to the bit: every weight is computed once and written twice. Weights below 2e-308 are left out.

    Raises
    ------
    BudgetError
        The process may not have as much memory.

    Notes
    -----
    Memory: 12 bytes an entry (float64 weights, int32 columns; 16 from 2^31 entries on), and some 150 megabytes. An image of
    1920 x 1080 with radius 5 has 165 million entries: 2.0 GB.
    """
    values, keep = features
    shifts = _later_shifts(scales.radius, keep.shape)
    most = _count(shifts, keep.shape)
    index = np.dtype(np.int32 if most < 2**31 else np.int64)
    nbytes = most * (8 + index.itemsize)
    oc.check_room(nbytes, f"memory for {most} affinities of pixels", "take a smaller radius, or a smaller image")
    data, columns = np.empty(most), np.empty(most, index)
    starts = np.zeros(int(keep.sum()) + 1, index)
    number = None if keep.all() else (np.cumsum(keep) - 1).astype(index)
    at = row = 0
    for strips in _waves(keep.shape):
        made = oc.map_in_threads(lambda rows: list(_bands(values, keep, scales, shifts, index, rows)), strips)
        for counts, ends, weights in chain.from_iterable(made):
            data[at : at + len(weights)] = weights
            columns[at : at + len(weights)] = ends if number is None else number[ends]
            np.cumsum(counts, out=starts[row + 1 : row + 1 + len(counts)])
            starts[row + 1 : row + 1 + len(counts)] += at
            at, row = at + len(weights), row + len(counts)
        del made, counts, ends, weights  # before the next strips are built
    n = len(starts) - 1
    matrix = csr_array((data[:at], columns[:at], starts), shape=(n, n))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return Graph(matrix, np.ones(n), "the affinity of the image")


def _later_shifts(radius: float, shape: tuple[int, ...]) -> list[_Shift]:
    """Half of the shifts within the radius, ascending: those to later pixels."""
    down, right = (min(int(radius), size - 1) for size in shape)
    all_of_them = (_Shift(dy, dx) for dy in range(down + 1) for dx in range(-right, right + 1))
    return [shift for shift in all_of_them if shift > (0, 0) and shift.dy**2 + shift.dx**2 <= radius**2]


def _count(shifts: list[_Shift], shape: tuple[int, ...]) -> int:
    """Entries where no pixel is left out."""
    height, width = shape
    return 2 * sum((height - dy) * (width - abs(dx)) for dy, dx in shifts)


def _waves(shape: tuple[int, ...]) -> Iterator[list[range]]:
    """Rows in strips, some at a time: their entries are in memory twice."""
    height, width = shape
    step = max(1, _STRIP_PIXELS // width)
    strips = [range(top, min(height, top + step)) for top in range(0, height, step)]
    for at in range(0, len(strips), _MOST_STRIPS):
        yield strips[at : at + _MOST_STRIPS]


def _bands(
    values: NDArray[np.float64],
    keep: NDArray[np.bool_],
    scales: Scales,
    shifts: list[_Shift],
    index: np.dtype[Any],
    rows: range,
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]]:
    """Of a strip of rows, band by band: entries of every pixel that is kept, and their pixels and weights."""
    height, width = keep.shape
    n_half = len(shifts)
    offsets = np.array([-(dy * width + dx) for dy, dx in reversed(shifts)] + [dy * width + dx for dy, dx in shifts], index)

    def plane_of(shift: _Shift, top: int, end: int) -> NDArray[np.float64]:
        top = max(0, top)
        return _plane(values, keep, scales, shift, (top, max(top, min(end, height - shift.dy))))

    #: Weights from the last rows above the band to the rows below them, a plane for every shift.
    carried = [plane_of(shift, rows.start - shift.dy, rows.start) for shift in shifts]
    step = max(1, _BAND_PIXELS // width)
    for top in range(rows.start, rows.stop, step):
        end = min(rows.stop, top + step)
        weights = np.zeros((end - top, width, 2 * n_half))
        for k, shift in enumerate(shifts):
            first, second = shift.columns(width)
            plane = plane_of(shift, top, end)
            weights[: len(plane), first, n_half + k] = plane
            # The same weights stand in the rows of the second pixels, dy further down: some of them in bands to come.
            history = np.concatenate([carried[k], plane]) if shift.dy else plane
            begin = max(top, shift.dy)
            count = max(0, end - begin)
            weights[begin - top : begin - top + count, second, n_half - 1 - k] = history[:count]
            carried[k] = history[max(0, end - shift.dy) - max(0, top - shift.dy) :]
        flat = weights.reshape((end - top) * width, 2 * n_half)
        is_there = flat != 0
        pixels = np.arange(top * width, end * width, dtype=index)
        counts = np.count_nonzero(is_there, axis=1)[keep[top:end].ravel()]
        yield counts, (pixels[:, None] + offsets)[is_there], flat[is_there]


def _plane(
    values: NDArray[np.float64], keep: NDArray[np.bool_], scales: Scales, shift: _Shift, rows: tuple[int, int]
) -> NDArray[np.float64]:
    """Weights from the pixels of some rows to those at a shift from them."""
    first, second = shift.columns(keep.shape[1])
    here, there = slice(*rows), slice(rows[0] + shift.dy, rows[1] + shift.dy)
    with np.errstate(over="ignore"):  # beyond all numbers the weight is 0
        differences = (values[here, first] - values[there, second]) / scales.sigma_i
        exponent = np.einsum("yxf,yxf->yx", differences, differences)
    if scales.sigma_x is not None:
        exponent += (shift.dy**2 + shift.dx**2) / scales.sigma_x**2
    weights = np.exp(-exponent)
    weights[weights < _LEAST] = 0
    both = keep[here, first] & keep[there, second]
    return np.asarray(weights * both)
