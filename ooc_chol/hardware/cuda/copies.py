"""Asynchronous copies between addresses, and what can be copied so."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import cupy as cp
import numpy as np
from cuda.bindings import runtime as cudart
from numpy.typing import NDArray

from ooc_chol.hardware.cuda.failures import checked
from ooc_chol.hardware.cuda.pools import pools_of

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


def copy_matrices(target: Any, source: Any, stream: Any) -> None:
    """Enqueue the copy of a matrix, or of several in an array of three dimensions: between GPUs all by one call."""
    *_, rows, columns = target.shape
    pitches, width = (target.strides[-2], source.strides[-2]), columns * target.itemsize
    arrays = (target, source)
    if target.data.device_id != source.data.device_id and all(map(_has_whole_steps, arrays)):
        what = cudart.cudaMemcpy3DPeerParms()
        what.dstDevice, what.srcDevice = target.data.device_id, source.data.device_id
        what.dstPtr, what.srcPtr = (_pitched(array, width) for array in arrays)
        what.extent.width, what.extent.height, what.extent.depth = width, rows, len(target)
        checked(cudart.cudaMemcpy3DPeerAsync(what, stream.ptr))
        return
    for to_matrix, from_matrix in zip(*map(_matrices, arrays), strict=True):
        copy_rows(to_matrix, from_matrix, pitches, (rows, width), _runtime.memcpyDefault, stream)


def _has_whole_steps(array: Any) -> bool:
    """Tell whether an array is of several matrices, whose first entries are whole rows apart, as CUDA's copies take them."""
    return array.ndim == 3 and len(array) > 1 and array.strides[0] % array.strides[1] == 0


def _pitched(array: Any, width: int) -> Any:
    """Where the matrices of an array are, for one of CUDA's copies."""
    found = cudart.cudaPitchedPtr()
    found.ptr, found.pitch, found.xsize = array.data.ptr, array.strides[1], width
    found.ysize = array.strides[0] // array.strides[1]
    return found


def _matrices(array: Any) -> range:
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
    for pool in pools_of(source):
        pool.let_reach(target)
    return True
