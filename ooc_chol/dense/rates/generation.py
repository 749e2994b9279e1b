"""Rate of a tile function: measured once on each kind of device, not before every factorization."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from contextlib import closing
from typing import Any

import numpy as np

from ooc_chol.config import whole_pages
from ooc_chol.dense.rates.timing import elapsed
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.cuda.source import CudaTileFunction
from ooc_chol.kernels.registry import open_tile_device
from ooc_chol.memory.sources import FunctionSource
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.tasks.tiling import TileGrid

#: Entries per second by device, tile order and function; beside each what must still be there for the name to hold.
_KNOWN: dict[Hashable, tuple[Callable[[], object], float]] = {}


def generation_rate(source: AbstractSource, grid: TileGrid, device: str, fmt: PrecisionFormat = FP64) -> float:
    """Entries per second that a tile function fills on a device, in tiles of one type.

    A Python function is known again while it lives, a bound method while its object does; CUDA source by its text, its kernel
    and its integer arguments, so that the functions that a fit makes of one covariance function are measured once.
    """
    name, owner = _identity(source, device)
    key = device, grid.nb, fmt.name, name
    if key in _KNOWN and _KNOWN[key][0]() is owner:
        return _KNOWN[key][1]
    rate = _measure(SourceTier(source, grid, fmt), device)
    for gone in [known for known, (find, _) in list(_KNOWN.items()) if find() is None]:
        _KNOWN.pop(gone, None)
    _KNOWN[key] = _reference(owner), rate
    return rate


def _identity(source: AbstractSource, device: str) -> tuple[Hashable, object]:
    """A name of the function that fills tiles, and the object whose life it depends on."""
    if not isinstance(source, FunctionSource):
        return id(source), source
    function = source.tile_function(on_host=device_kind(device).is_in_host_memory)
    if isinstance(function, CudaTileFunction):
        return (function.code, function.name, *map(_shape_of, function.arguments)), CudaTileFunction
    owner = getattr(function, "__self__", function)  # a bound method is another object at each look
    return (id(owner), id(getattr(function, "__func__", function))), owner


def _shape_of(argument: Any) -> Hashable:
    """Part of a kernel's argument that may change its speed by much: an integer, the shape of an array, not a float."""
    if isinstance(argument, np.integer):
        return int(argument)
    return np.shape(argument), type(argument)


def _reference(owner: object) -> Callable[[], object]:
    """Weak reference to ``owner``; for an object that allows none, a function that finds nothing."""
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: None


def _measure(tier: SourceTier, device: str) -> float:
    """The rate of the second of two calls."""
    grid, fmt = tier.grid, tier.fmt
    rows, cols = grid.span(grid.nt - 1), grid.span(0)
    with closing(open_tile_device(device, fmt=fmt)) as opened:
        opened.prepare(tier.source.prepare)
        stream = opened.create_stream("rates")
        arena = opened.allocate(1, whole_pages(fmt.itemsize * len(rows) * len(cols)), grid.size(0))
        tile = arena.tile(0, (len(rows), len(cols)), fmt.dtype.name)
        with opened.current():
            seconds = [elapsed(stream, lambda: opened.generate(stream, tier.generate, rows, cols, tile)) for _ in range(2)]
    return len(rows) * len(cols) / seconds[-1]
