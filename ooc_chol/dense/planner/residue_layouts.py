"""How to divide a device's memory for products through residues: strips, accumulators, and tiles in transit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.programs.cost import Rates, ResidueRates
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.residues.strips import STREAMING, residue_panels
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.precision.moduli import ResidueBasis
from ooc_chol.tasks.operations import INVERSES
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid

#: Most columns of K of one product: strips come in whole, and twice as long ones are predicted to save nothing at order 131,072
#: and 1.8 % at 250,000 (docs/lab-notes.md).
MOST_K = 32768
#: Tile columns of a panel to choose from.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24)
#: Accumulators to choose from: one row sweeps while others are finished.
ACCUMULATORS = (2, 3, 4)
#: Tiles that stream in ahead of their conversion, to choose from.
TRANSIT = (4, 8, 16, 32)
#: Least tiles of rows that are being finished, beside the panel's diagonal ones.
FINISHING_TILES = 12
#: Share of the entries' bytes that TRANSIT may take.
TRANSIT_SHARE = 0.08
#: Layouts whose estimates differ by less are equal by all that is known of them without a simulation.
EQUAL_SHARE = 5e-3
#: Tiles in transit with which copies keep up wherever a link can: of equal layouts those with fewer were up to 5 % slower.
_ENOUGH_TRANSIT = 16
#: Columns of the panels for which the share of products in FP16 is estimated; and least columns where wider panels have room,
#: since who enqueues a row waits for the norms of the panel before.
NARROW_WIDTH, LEAST_NARROW_WIDTH = 8, 4
#: What an H200 does, to compare layouts where nothing is measured; never shown.
_NOMINAL_FP16 = 5e14
_NOMINAL = Rates(2048, 4e12, 3e13, 5e13, 5e13, 5e10, 5e10, 5e10, 5e10, 1e-5, ResidueRates(13, 1.1e14, 4.2e10, 2e11, 6e10, 3e11))


def residue_layouts(
    grid: TileGrid, nbytes: int, moduli: int, *, has_fp16: bool = False, fmt: PrecisionFormat = FP64, folds: bool = False
) -> Iterator[ResidueLayout]:
    """Every sensible layout that fits into ``nbytes``."""
    nb = grid.size(0)
    chunks = sorted({min(grid.nt, max(1, MOST_K // nb >> halvings)) for halvings in range(MOST_K.bit_length())}, reverse=True)
    for chunk in chunks:
        for width in dict.fromkeys(min(width, chunk, grid.nt, INVERSES) for width in WIDTHS):
            for accumulators in ACCUMULATORS:
                for transit in TRANSIT:
                    layout = ResidueLayout(
                        moduli, nb, chunk, width, _tiles(width), transit, 0, accumulators, has_fp16, fmt=fmt, folds=folds
                    )
                    strips = (nbytes - layout.arena_bytes) // layout.strip_bytes
                    strips = min(strips, useful_strips(grid.nt, chunk, width) + STREAMING)
                    if strips >= max(width, -(-grid.nt // chunk)) + STREAMING and (
                        transit == TRANSIT[0] or transit * layout.tile_bytes <= TRANSIT_SHARE * nbytes
                    ):
                        yield replace(layout, strips=strips)


@cache
def useful_strips(nt: int, chunk: int, width: int) -> int:
    """Strips that hold all of L left of the diagonal tiles, but never fewer than a panel's own rows take."""
    return max(sum(-(-i // chunk) for i in range(nt)), width, -(-nt // chunk))


def _tiles(width: int) -> int:
    """Tiles of a panel's diagonal, and of the rows that are finished at once."""
    return width + max(FINISHING_TILES, 2 * width)


def least_layout(grid: TileGrid, moduli: int, fmt: PrecisionFormat = FP64, *, folds: bool = False) -> ResidueLayout:
    """The layout that needs the least memory."""
    return ResidueLayout(
        moduli,
        grid.size(0),
        chunk=1,
        width=1,
        tiles=_tiles(1),
        transit=TRANSIT[0],
        strips=grid.nt + STREAMING,
        accumulators=ACCUMULATORS[0],
        fmt=fmt,
        folds=folds,
    )


def best_layouts(
    grid: TileGrid,
    nbytes: int,
    moduli: int,
    n_devices: int,
    *,
    rates: Rates | None,
    itemsize: float | None = None,
    half_share: float | None = None,
    fmt: PrecisionFormat = FP64,
    folds: bool = False,
) -> list[ResidueLayout]:
    """Layouts by estimated seconds, the best first; ``itemsize`` are mean bytes of an entry of L, where not its type's."""
    measured = rates if rates is not None and rates.residue is not None else _nominal(moduli, fmt)
    layouts = list(residue_layouts(grid, nbytes, moduli, has_fp16=half_share is not None, fmt=fmt, folds=folds))
    if half_share is not None:
        layouts = [layout for layout in layouts if layout.width >= LEAST_NARROW_WIDTH] or layouts
    seconds = estimated_seconds(grid, layouts, n_devices, measured, itemsize=itemsize or fmt.itemsize, half_share=half_share)
    return [layouts[at] for at in sorted(range(len(layouts)), key=seconds.__getitem__)]


def _nominal(moduli: int, fmt: PrecisionFormat) -> Rates:
    """Rates that compare layouts where nothing is measured; in FP64 at any number of moduli as at that of the nominal rates."""
    if fmt == FP64:
        return _NOMINAL
    assert _NOMINAL.residue is not None
    return replace(_NOMINAL, residue=_NOMINAL.residue.at(ResidueBasis(moduli, fmt.is_complex).planes))


def steadiest(layouts: Sequence[ResidueLayout], seconds: Sequence[float]) -> ResidueLayout:
    """The layout to take without comparing plans: of those that look best the first with most tiles in transit that help.

    ``seconds`` are the estimates of each (:func:`estimated_seconds`).
    """
    least = min(seconds)
    equal = [layout for layout, each in zip(layouts, seconds, strict=True) if each <= (1 + EQUAL_SHARE) * least]
    return max(equal, key=lambda layout: min(layout.transit, _ENOUGH_TRANSIT))


def narrow_share(nt: int, width: int, half_share: float) -> float:
    """Share of the products that run in FP16 in panels of ``width``, where it is ``half_share`` in those of :data:`NARROW_WIDTH`.

    Products inside a panel, and those of its own rows, run in residues.
    """
    return min(1.0, half_share * _outside(nt, width) / max(_outside(nt, NARROW_WIDTH), 1e-3))


@cache
def _outside(nt: int, width: int) -> float:
    """Share of the products whose row is below the panel, and whose column of K before it."""
    outside = sum(min(width, nt - k0) * max(0, nt - k0 - width) * k0 for k0 in range(0, nt, width))
    return outside / max(1, nt * (nt - 1) * (nt - 2) // 6)


def with_narrow(rates: Rates, half_share: float) -> Rates:
    """``rates`` with the rate of products of which this share runs in FP16."""
    assert rates.residue is not None
    fp16_rate = rates.residue.half or _NOMINAL_FP16
    product = 1.0 / ((1.0 - half_share) / rates.residue.product + half_share / fp16_rate)
    return replace(rates, residue=replace(rates.residue, product=product))


def estimated_seconds(
    grid: TileGrid,
    layouts: Sequence[ResidueLayout],
    n_devices: int,
    rates: Rates,
    *,
    itemsize: float = FP64.itemsize,
    half_share: float | None = None,
) -> list[float]:
    """Seconds of a factorization in each of ``layouts``: of each panel the longest of copies, kernels, and own rows' chain.

    All of them have products in FP16, ``half_share`` in panels of :data:`NARROW_WIDTH`, or none of them has.
    """
    alike: dict[tuple[int, int, tuple[Panel, ...]], list[int]] = {}
    panels_of: dict[tuple[int, int, int], tuple[Panel, ...]] = {}
    for at, layout in enumerate(layouts):
        chunk, width = layout.chunk, layout.width
        shape = chunk, width, min(layout.strips, width * -(-grid.nt // chunk) + STREAMING)  # more do not change the panels
        if shape not in panels_of:
            panels_of[shape] = residue_panels(grid.nt, width, layout)
        alike.setdefault((chunk, width, panels_of[shape]), []).append(at)
    seconds = [0.0] * len(layouts)
    for (_, width, panels), places in alike.items():
        those = [layouts[at] for at in places]
        of_these = rates if half_share is None else with_narrow(rates, narrow_share(grid.nt, width, half_share))
        found = _seconds_by_panel(grid, panels, those, n_devices=n_devices, rates=of_these, itemsize=itemsize)
        for at, total in zip(places, found.cumsum(axis=1)[:, -1].tolist(), strict=True):
            seconds[at] = total
    return seconds


def _seconds_by_panel(
    grid: TileGrid, panels: Sequence[Panel], layouts: Sequence[ResidueLayout], *, n_devices: int, rates: Rates, itemsize: float
) -> NDArray[np.float64]:
    """Estimated seconds of each panel on each device, by layout; ``panels`` and chunks are those of all ``layouts``."""
    assert rates.residue is not None
    k0, w = (np.array(column) for column in zip(*[panel[:2] for panel in panels], strict=True))
    strips, accumulators, transit = (
        np.array([[number] for number in column])
        for column in zip(*[(each.strips, each.accumulators, each.transit) for each in layouts], strict=True)
    )
    nb, entries, flops_factor = grid.nb, grid.nb * grid.nb, layouts[0].fmt.flops_factor
    rows = (grid.nt - k0 - w) / n_devices
    passes = -(-k0 // layouts[0].chunk)
    kept = np.minimum(1.0, (strips - w * (passes + 1)) / np.maximum(1.0, rows * np.maximum(1, passes)))
    streamed = rows * k0 * (1 - np.maximum(0.0, kept)) + (w * k0 if n_devices == 1 else 0)
    long = (rows + w / 2 / n_devices) * w * entries * (2 * k0 * nb / rates.residue.product + passes / rates.residue.accumulate)
    inside = rows * w * entries * (w * nb / rates.residue.product + 1 / rates.residue.accumulate)
    solved = flops_factor * nb / rates.gemm * 1.6
    finished = rows * w * entries * (solved + 1 / rates.residue.reconstruct + 1 / rates.residue.convert)
    chain = flops_factor * w * (entries * nb / 3 / rates.potrf + entries * nb / rates.trsm)
    convert = streamed * entries / rates.residue.convert
    kernels = np.where(accumulators > 2, 1.0, 1.03) * (long + inside + finished + convert)
    copies = itemsize * streamed * entries / rates.fetch * np.where(transit >= 8, 1.0, 1.1)
    return np.asarray(np.maximum(np.maximum(copies, kernels), chain), dtype=np.float64)
