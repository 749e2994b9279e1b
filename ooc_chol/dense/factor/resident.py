"""Factors that are one tile on a GPU, and right-hand sides that lie on one: what lies there is answered there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.passes import track_of_l
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.arrays import device_of, like
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces.whole import AbstractResidentKernels
from ooc_chol.kernels.registry import kind_of
from ooc_chol.runtime.passes import Pass, Passes
from ooc_chol.tasks.tiling import Index

#: Rows whose squares are made at once.
_ROWS = 1024


def in_kind_of(b: Any, answer: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
    """``answer`` of ``b`` in host memory, given back where ``b`` lies, as an array of its library; typed as one of NumPy."""
    home = device_of(b)
    if home is None:
        return answer(b)
    there: NDArray[Any] = like(device_kind(home).to_device(home, answer(host_array(b))), b)
    return there


def host_array(b: Any) -> Any:
    """``b``, in host memory where it is an array of a GPU."""
    home = device_of(b)
    if home is None:
        return b
    kind = device_kind(home)
    return kind.to_host(kind.from_dlpack(b))


class ResidentTile(NamedTuple):
    """L as one tile in a device's memory, and what computes with it there."""

    device: str
    kernels: AbstractResidentKernels
    tile: Tile

    def solved(
        self, b: Any, transposed: Sequence[bool], passes: Passes, title: str, *, flips: bool = False, overwrite: bool = False
    ) -> NDArray[Any]:
        """``b`` solved for with L, or with its adjoint, one after the other; in its place where it may and lies here.

        ``flips`` solves with the conjugates of these.
        """

        def compute(x: Tile) -> Tile:
            if flips:
                np.conjugate(x, out=x)
            for system in transposed:
                self.kernels.solve(self.tile, x, transposed=system)
            return np.conjugate(x, out=x) if flips else x

        return self._answer(b, compute, passes, title=title, readings=len(transposed), copy=not overwrite)

    def multiplied(self, z: Any, passes: Passes, *, transposed: bool = False, flips: bool = False) -> NDArray[Any]:
        """``L @ z``, or ``L.H @ z``; ``flips`` multiplies by the conjugates of these."""

        def compute(x: Tile) -> Tile:
            y = self.kernels.multiply(self.tile, x.conj() if flips else x, transposed=transposed)
            return np.conjugate(y, out=y) if flips else y

        return self._answer(z, compute, passes, "product with L", readings=1)

    def row_norms(self, run: Pass) -> NDArray[np.float64]:
        """Norms of the rows of L, in host memory."""
        norms, kind = np.empty(len(self.tile)), device_kind(self.device)
        with self.kernels.current():
            for start in range(0, len(norms), _ROWS):
                rows = self.tile[start : start + _ROWS]
                norms[start : start + _ROWS] = np.sqrt(kind.to_host((rows * rows.conj()).real.sum(axis=1, dtype=np.float64)))
        self._count(run, 1)
        return norms

    def _answer(
        self, b: Any, compute: Callable[[Tile], Tile], passes: Passes, title: str, *, readings: int, copy: bool = True
    ) -> NDArray[Any]:
        """Compute on a copy of ``b`` beside the tile; the result as an array of its kind, in its place."""
        with self.kernels.current():
            x = self.kernels.right_hand_side(b, len(self.tile), copy=copy)
            with passes.running(title, x.shape[1]) as run:
                result = compute(x).reshape(np.shape(b))
                self._count(run, readings if x.size else 0)
                return self._where(b, result)

    def _count(self, run: Pass, readings: int) -> None:
        track_of_l(run, self.device).nbytes += readings * self.tile.nbytes

    def _where(self, b: Any, result: Tile) -> NDArray[Any]:
        """The result in the memory that ``b`` lies in; the host waits for what it gets."""
        home, kind = device_of(b), device_kind(self.device)
        there: NDArray[Any]
        if home == self.device:
            there = like(result, b)
            return there
        host = kind.to_host(result)
        there = host if home is None else like(kind.to_device(home, host), b)
        return there


def resident_tile(store: AbstractStore) -> ResidentTile | None:
    """The one tile of ``store`` on a device; None for stores of several tiles, and for those of the host."""
    for name in store.devices if store.grid.nt == 1 else ():
        if (tile := store.tile_on(name, (0, 0))) is not None:
            return ResidentTile(name, _kernels_of(name, store.fmt), tile)
    return None


def _kernels_of(name: str, fmt: PrecisionFormat) -> AbstractResidentKernels:
    kernels = kind_of(name).create_resident(name, fmt)
    assert kernels is not None  # stores are on devices that have them
    return kernels


def dense_on_device(store: AbstractStore) -> Any:
    """L as a dense array, zero above the diagonal, on the first GPU that it lies on: its one tile itself, else a copy."""
    if (resident := resident_tile(store)) is not None:
        return resident.tile
    name, grid = store.devices[0], store.grid
    kernels = _kernels_of(name, store.fmt)
    with kernels.current():
        dense = kernels.empty(grid.n)
        dense[...] = 0.0
        for index in grid.tiles():
            rows, columns = grid.span(index[0]), grid.span(index[1])
            tile = store.tile_on(name, index)
            if tile is None:
                tile = _by_way_of_the_host(store, index, name)
            dense[rows.start : rows.stop, columns.start : columns.stop] = tile
    return dense


def _by_way_of_the_host(store: AbstractStore, index: Index, name: str) -> Tile:
    """A copy of a tile of another GPU, or of a narrow format, on this one."""
    store.read(index, tile := np.empty(store.grid.shape(*index), store.fmt.dtype))
    return device_kind(name).to_device(name, tile)
