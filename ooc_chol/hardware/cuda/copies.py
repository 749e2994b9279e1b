"""Asynchronous copies between addresses, and what can be copied so."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.cuda.pools import pool_of

_runtime = cp.cuda.runtime
#: CUDA's error number for access to another device's memory that someone has enabled before.
PEER_ALREADY_ENABLED = 704


def has_adjacent_entries(view: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether ``view`` is made of rows of ``dtype``, one above the other, of adjacent entries."""
    size = dtype.itemsize
    if view.dtype != dtype or view.strides[1] != size:
        return False
    return bool(view.shape[0] == 1 or view.strides[0] >= size * view.shape[1])


def copy_rows(
    target: int, source: int, pitches: tuple[int, int], shape: tuple[int, int], kind: int, stream: Any, cuts: Sequence[int] = ()
) -> None:
    """Enqueue the copy of ``shape[0]`` rows of ``shape[1]`` bytes between addresses, ``pitches`` bytes apart in each.

    Rows that are adjacent are cut at bytes ``cuts``.
    """
    rows, width = shape
    if rows == 1 or pitches == (width, width):
        copy_bytes(target, source, rows * width, kind, stream, cuts)
    else:
        _runtime.memcpy2DAsync(target, pitches[0], source, pitches[1], width, rows, kind, stream.ptr)


def copy_bytes(target: int, source: int, nbytes: int, kind: int, stream: Any, cuts: Sequence[int] = ()) -> None:
    """Enqueue the copy of adjacent bytes between addresses, cut at bytes ``cuts``."""
    for low, high in pairwise((0, *cuts, nbytes)):
        _runtime.memcpyAsync(target + low, source + low, high - low, kind, stream.ptr)


def planes(array: Any) -> range:
    """Addresses of the matrices of an array of two or three dimensions."""
    first, stride = array.data.ptr, array.strides[0]
    return range(first, first + 1) if array.ndim == 2 else range(first, first + array.shape[0] * stride, stride)


@cache
def allow_peer(source: int, target: int) -> bool:
    """Let device ``target``, the current one, reach the memory of ``source`` where the hardware can; whether it does."""
    if source == target:
        return True
    if not _runtime.deviceCanAccessPeer(target, source):
        return False
    try:
        _runtime.deviceEnablePeerAccess(source)
    except _runtime.CUDARuntimeError as error:
        if error.status != PEER_ALREADY_ENABLED:
            raise
    pool_of(source).let_reach(target)
    return True
