"""Rates of products through residues, and of what goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ooc_chol.dense.rates.opened import OpenedDevice
from ooc_chol.dense.rates.timing import AbstractTimer
from ooc_chol.hardware.registry import device_kind, memory_info
from ooc_chol.interfaces import ArraySpec, Tile
from ooc_chol.kernels.registry import folds_products
from ooc_chol.precision.products import NARROW_TILES

#: Columns and longest K of the products that are measured on GPUs, as those of a panel's sweeps; a host takes some tiles.
_COLUMNS, _MOST_K = 8192, 32768
_HOST_COLUMN_TILES, _HOST_K_TILES = 2, 4
#: Share of a GPU's free memory that the residues may take.
_MEMORY_SHARE = 0.5
#: Least share of a long product's time that is its accumulator's, and most: a difference of noisy times may say anything.
_LEAST_BESIDE, _MOST_BESIDE = 1e-3, 0.9


@dataclass(frozen=True)
class ResidueShapes:
    """Shapes of the products that are measured: one tile row by some tile columns, K long and short."""

    nb: int  #: Order of a tile
    moduli: int
    columns: int  #: Columns of the accumulator and longest K, both in tiles
    depth: int
    folds: bool = False  #: Whether products leave residues in the accumulator

    @classmethod
    def on(cls, name: str, nb: int, moduli: int) -> ResidueShapes:
        """The shapes for a device: as long as half of its free memory allows, at least two tiles."""
        if device_kind(name).shares_processor:
            return cls(nb, moduli, _HOST_COLUMN_TILES, _HOST_K_TILES)
        allowed = _MEMORY_SHARE * memory_info(name)[0]
        shapes = cls(nb, moduli, max(1, _COLUMNS // nb), max(2, _MOST_K // nb), folds_products([name]))
        while shapes.depth > 2 and sum(spec.nbytes for spec in shapes.arrays) > allowed:
            shapes = replace(shapes, depth=shapes.depth // 2)
        return shapes

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """Strips of residues, the left one above the right ones, and an accumulator; the same for products in FP16."""
        strips, sums = (self.rows, self.depth * self.nb), (self.nb, self.columns * self.nb)
        return (
            ArraySpec(np.dtype(np.int8), (self.moduli, *strips)),
            ArraySpec(np.dtype(np.int8 if self.folds else np.int32), (self.moduli, *sums)),
            ArraySpec(np.dtype(np.float16), (1, *strips)),
            ArraySpec(np.dtype(np.float32), (1, *sums)),
        )

    @property
    def rows(self) -> int:
        """Matrix rows of all strips."""
        return (1 + self.columns) * self.nb


def measure_residues(opened: OpenedDevice, shapes: ResidueShapes) -> dict[str, float]:
    """Rates of :class:`~ooc_chol.dense.programs.cost.ResidueRates` but for ``pull``.

    The load between the calls are long products, as in a factorization.
    """
    kernels, stream, timer, tiles = opened.device.kernels.open_residues(shapes.rows), opened.stream, opened.timer, opened.tiles
    (strips, sums, fp16_strips, narrow_sums), nb = opened.arrays, shapes.nb
    for row in range(shapes.columns + 1):
        kernels.set_diagonal(stream, row * nb, tiles.a_kk)
        for column in range(shapes.depth):
            rows, tile = range(row * nb, (row + 1) * nb), (tiles.l_ik, tiles.l_jk)[(row + column) % 2]
            columns = range(column * nb, (column + 1) * nb)
            out, fp16 = _part(strips, rows, columns), _part(fp16_strips, rows, columns)
            kernels.convert(stream, tile, rows, out, is_first=False, fp16=fp16)

    def multiply(inner: int) -> None:
        left, right = strips[:, :nb, :inner], strips[:, nb:, :inner]
        kernels.product(stream, sums, left, right, accumulates=True, lower=False)

    def multiply_fp16(inner: int) -> None:
        left, right = fp16_strips[:, :nb, :inner], fp16_strips[:, nb:, :inner]
        kernels.fp16_product(stream, narrow_sums, left, right, accumulates=True)

    first, target = range(nb), _part(strips, range(nb), range(nb))
    short = replace(shapes, depth=min(shapes.depth, NARROW_TILES))
    half = _product_rates(timer, multiply_fp16, short)
    rates = _product_rates(timer, multiply, shapes)
    convert = timer.seconds_each(lambda: kernels.convert(stream, tiles.l_ik, first, target, is_first=False))
    reconstruct = timer.seconds_each(lambda: kernels.reconstruct(stream, sums[:, :, :nb], tiles.work, first, range(nb, 2 * nb)))
    return {
        "moduli": shapes.moduli,
        **rates,
        "convert": nb * nb / convert,
        "reconstruct": nb * nb / reconstruct,
        "half": half["product"],
        "half_accumulate": half["accumulate"],
    }


def measure_pull(opened: OpenedDevice, shapes: ResidueShapes, source: Tile) -> float:
    """Bytes per second of a strip copied from ``source``, of the shape of the left strip."""
    target = opened.arrays[0][:, : shapes.nb]
    each = opened.timer.seconds_each(partial(opened.device.copy_between, opened.stream, source, target))
    return shapes.moduli * shapes.nb * shapes.nb * shapes.depth / each


def _part(strips: Tile, rows: range, columns: range) -> Tile:
    """Rows and columns of every plane."""
    return strips[:, rows.start : rows.stop, columns.start : columns.stop]


def _product_rates(timer: AbstractTimer, multiply: Callable[[int], None], shapes: ResidueShapes) -> dict[str, float]:
    """``seconds = entries (2 K / product + 1 / accumulate)``, solved for two lengths of K."""
    long, short = shapes.depth * shapes.nb, shapes.nb
    timer.put_under_load(partial(multiply, long))
    seconds = [timer.seconds_each(partial(multiply, inner)) for inner in (long, short)]
    entries = shapes.nb * shapes.columns * shapes.nb
    of_flops = (seconds[0] - seconds[1]) / (1 - short / long)  # of the long one, without its accumulator
    of_flops = min(max(of_flops, (1 - _MOST_BESIDE) * seconds[0]), (1 - _LEAST_BESIDE) * seconds[0])
    return {"product": 2 * entries * long / of_flops, "accumulate": entries / (seconds[0] - of_flops)}
