"""Rows and columns of a square matrix numbered anew, by the number of entries."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.tasks.degree_order import STRIPES, dealt

#: How rows and columns may be numbered, beside as they are.
Order: TypeAlias = Literal["degree"] | None
#: Numbers of vertices.
Vertices: TypeAlias = NDArray[np.int32]
#: Rows of vectors that a thread gathers in one go, and of how many it is worth to have several threads.
_GATHERED_ROWS, _LEAST_FOR_THREADS = 1 << 14, 1 << 18


def check_order(order: object) -> Order:
    """The order that is meant; ValueError where there is none such."""
    if order is None or (isinstance(order, str) and order == "degree"):
        return order  # type: ignore[return-value] # it is one of both
    raise ValueError(f"order is {order!r:.80}; give 'degree', or leave it out")


def count_into(counts: NDArray[np.int64], numbers: NDArray[Any]) -> None:
    """Add to ``counts`` how often each number is there."""
    if 4 * numbers.size >= counts.size:
        counts += np.bincount(numbers, minlength=counts.size)
    else:
        found, times = np.unique(numbers, return_counts=True)
        counts[found] += times


def by_degree(degrees: NDArray[np.int64], stripes: int = STRIPES) -> Vertices:
    """Vertices as numbered by descending degree, and dealt to stripes: number i is that of vertex ``by_degree(degrees)[i]``.

    Vertices of the same degree stay in their order. ``degrees`` is overwritten.
    """
    n, keys = degrees.size, degrees.view(np.uint64)
    np.subtract(degrees.max(initial=0), degrees, out=degrees)
    keys <<= np.uint64(32)
    keys |= np.arange(n, dtype=np.uint64)
    keys.sort()
    found = np.empty(n, np.int32)
    dealt(keys.astype(np.uint32).view(np.int32), found, stripes=stripes)
    return found


def inverse(order: Vertices) -> Vertices:
    """The number that each vertex has."""
    numbers = np.empty_like(order)
    numbers[order] = np.arange(order.size, dtype=np.int32)
    return numbers


def is_permutation(order: Vertices) -> bool:
    """Tell whether each number below its size is there once."""
    if order.size == 0:
        return True
    if order.view(np.uint32).max() >= order.size:
        return False
    seen = np.zeros(order.size, np.bool_)
    seen[order] = True
    return bool(seen.all())


def rows_taken(x: NDArray[Any], places: Vertices, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows ``x[places]`` of vectors, converted to ``dtype``, by threads where there are many."""
    found = np.empty((places.size, x.shape[1]), dtype)
    jobs = [
        partial(_take_rows, x, places[at : at + _GATHERED_ROWS], found[at : at + _GATHERED_ROWS])
        for at in range(0, places.size, _GATHERED_ROWS)
    ]
    with closing(ThreadTeam(cores() if places.size >= _LEAST_FOR_THREADS else 1)) as team:
        team.run(jobs)
    return found


def _take_rows(x: NDArray[Any], places: Vertices, out: NDArray[Any]) -> None:
    """Some of these rows. NumPy's ``take`` is three times as fast as an index, and copies what is not contiguous first."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if x.flags.c_contiguous:
            out[...] = np.take(x, places, axis=0, mode="clip")
        elif x.flags.f_contiguous:
            for column in range(x.shape[1]):
                out[:, column] = np.take(x[:, column], places, mode="clip")
        else:
            out[...] = x[places]
