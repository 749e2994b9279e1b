"""A device opened to be measured: its stream, its timer, and tiles of a covariance matrix and of its factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.dense.rates.timing import BRIDGE_SECONDS, AbstractTimer, IdleTimer, LoadedTimer
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import AbstractStream, ArraySpec, Tile, TileFunction
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.memory.sources import from_function
from ooc_chol.tasks.tiling import TileGrid

#: Tile columns in front of those at which kernels are measured: whole segments of K for any tile size.
FAR = 1 << 20
#: The covariance ``exp(-h / range)`` plus a nugget, of sites of the unit square in bands from left to right.
_RANGE, _NUGGET, _BANDS = 0.1, 0.01, 16
_ROWS_AT_ONCE = 64
#: Seconds of load in front of a measurement that is to be quick.
_QUICK_BRIDGE_SECONDS = 0.02


@dataclass(frozen=True)
class FactorTiles:
    """Tiles on the device: of A, of the first column of L, and three to work on. Power, so the clock too, depends on data."""

    a_kk: Tile  #: A diagonal tile of A, positive definite, and one below
    a_ik: Tile
    l_kk: Tile  #: Tiles of L: the diagonal one, and two below
    l_ik: Tile
    l_jk: Tile
    work: Tile  #: What measured kernels change, and what the load in between changes
    load: Tile


@dataclass(frozen=True)
class OpenedDevice:
    """A device with everything that measurements use."""

    device: TileDevice  #: The device; who opened it closes it
    nb: int  #: Order of a tile
    timer: AbstractTimer  #: Measures on one stream
    tiles: FactorTiles
    arrays: tuple[Any, ...]  #: The arrays that were asked for beside them
    fmt: PrecisionFormat = FP64  #: Format of the tiles

    @property
    def stream(self) -> AbstractStream:
        """The stream that is measured."""
        return self.timer.stream


def set_up(
    device: TileDevice,
    nb: int,
    seconds: float,
    arrays: tuple[ArraySpec, ...] = (),
    *,
    quick: bool = False,
    fmt: PrecisionFormat = FP64,
) -> OpenedDevice:
    """Allocate and fill the tiles of a freshly opened device; ``quick`` with a covariance of sites on a line."""
    arena = device.allocate(7, whole_pages(fmt.itemsize * nb * nb), nb, arrays)
    stream = device.create_stream("rates")
    tiles = FactorTiles(*(arena.tile(slot, (nb, nb), fmt.dtype.name) for slot in range(7)))
    covariance = from_function(3 * nb, (line_function if quick else covariance_function)(3 * nb))
    _fill(device, stream, tiles, SourceTier(covariance, TileGrid(3 * nb, nb), fmt))
    timer = LoadedTimer if device_kind(device.name).slows_under_load else IdleTimer
    return OpenedDevice(
        device,
        nb=nb,
        timer=timer(stream, seconds, _QUICK_BRIDGE_SECONDS if quick else BRIDGE_SECONDS),
        tiles=tiles,
        arrays=arena.arrays,
        fmt=fmt,
    )


def _fill(device: TileDevice, stream: AbstractStream, tiles: FactorTiles, source: SourceTier) -> None:
    """Bring tiles of A, and make those of the first column of L from them."""
    kernels, flags = device.kernels, device.kernels.create_flags(1)
    for index, tile in (((0, 0), tiles.a_kk), ((1, 0), tiles.a_ik), ((2, 0), tiles.l_jk)):
        device.copy_in(stream, source, index, tile)
    for copied, to in ((tiles.a_kk, tiles.l_kk), (tiles.a_ik, tiles.l_ik), (tiles.a_kk, tiles.work), (tiles.a_ik, tiles.load)):
        device.copy_between(stream, copied, to)
    kernels.potrf(stream, tiles.l_kk, flags, 0)
    for tile in (tiles.l_ik, tiles.l_jk):
        # L[i, 0] = A[i, 0] @ inv(L[0, 0]).T
        kernels.trsm(stream, tiles.l_kk, tile, 0)
    stream.synchronize()


def covariance_function(n: int) -> TileFunction:
    """Make the host tile function of an exponential covariance over ``n`` sites of the unit square."""
    sites = np.random.default_rng(0).uniform(size=(n, 2))
    sites = sites[np.lexsort((sites[:, 0], np.floor(_BANDS * sites[:, 1])))]

    def tile_fn(rows: range, cols: range, out: NDArray[np.float64], stream: Any) -> None:
        x, y = sites[rows.start : rows.stop], sites[cols.start : cols.stop]
        for r0 in range(0, len(rows), _ROWS_AT_ONCE):
            strip, part = out[r0 : r0 + _ROWS_AT_ONCE], x[r0 : r0 + _ROWS_AT_ONCE]
            np.subtract.outer(part[:, 0], y[:, 0], out=strip)
            np.hypot(strip, np.subtract.outer(part[:, 1], y[:, 1]), out=strip)
            np.exp(np.multiply(strip, -1.0 / _RANGE, out=strip), out=strip)
        both = np.arange(max(rows.start, cols.start), min(rows.stop, cols.stop))
        out[both - rows.start, both - cols.start] += _NUGGET

    return tile_fn


def line_function(n: int) -> TileFunction:
    """Make the host tile function of an exponential covariance over ``n`` sites on a line: copies of one row."""
    values = np.exp(-np.abs(np.arange(1 - n, n)) / (_RANGE * n))
    values[n - 1] += _NUGGET

    def tile_fn(rows: range, cols: range, out: NDArray[np.float64], stream: Any) -> None:
        for row, target in zip(rows, out, strict=True):
            # A[i, j] = values[n - 1 + j - i]
            target[:] = values[n - 1 + cols.start - row : n - 1 + cols.stop - row]

    return tile_fn
