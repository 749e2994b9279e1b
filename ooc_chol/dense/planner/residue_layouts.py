"""How to divide a device's memory for products through residues: strips, accumulators, and tiles in transit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ooc_chol.dense.programs.cost import Rates, ResidueRates
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.residues.strips import STREAMING, residue_panels
from ooc_chol.formats import FP64
from ooc_chol.precision.products import ProductForm
from ooc_chol.tasks.operations import INVERSES
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid

#: Most columns of K of one product: longer ones are hardly faster, and strips come in whole.
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
#: What an H200 does, to compare layouts where nothing is measured; never shown.
_NOMINAL_FP16 = 5e14
_NOMINAL = Rates(2048, 4e12, 3e13, 5e13, 5e13, 5e10, 5e10, 5e10, 5e10, 1e-5, ResidueRates(13, 1.1e14, 4.2e10, 2e11, 6e10, 3e11))


def residue_layouts(
    grid: TileGrid, nbytes: int, moduli: int, *, narrow: ProductForm = ProductForm.RESIDUE
) -> Iterator[ResidueLayout]:
    """Every sensible layout that fits into ``nbytes``."""
    nb = grid.size(0)
    chunks = sorted({min(grid.nt, max(1, MOST_K // nb >> halvings)) for halvings in range(MOST_K.bit_length())}, reverse=True)
    for chunk in chunks:
        for width in dict.fromkeys(min(width, chunk, grid.nt, INVERSES) for width in WIDTHS):
            for accumulators in ACCUMULATORS:
                for transit in TRANSIT:
                    forms = narrow >= ProductForm.FP16, narrow >= ProductForm.FP8
                    layout = ResidueLayout(moduli, nb, chunk, width, _tiles(width), transit, 0, accumulators, *forms)
                    strips = (nbytes - layout.arena_bytes) // layout.strip_bytes
                    useful = grid.nt * -(-grid.nt // chunk)
                    strips = min(strips, useful + STREAMING)
                    if strips >= max(width, -(-grid.nt // chunk)) + STREAMING and (
                        transit == TRANSIT[0] or transit * layout.tile_bytes <= TRANSIT_SHARE * nbytes
                    ):
                        yield replace(layout, strips=strips)


def _tiles(width: int) -> int:
    """Tiles of a panel's diagonal, and of the rows that are finished at once."""
    return width + max(FINISHING_TILES, 2 * width)


def least_layout(grid: TileGrid, moduli: int) -> ResidueLayout:
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
    )


def best_layouts(
    grid: TileGrid,
    nbytes: int,
    moduli: int,
    n_devices: int,
    *,
    rates: Rates | None,
    itemsize: float = FP64.itemsize,
    shares: tuple[float, float] | None = None,
) -> list[ResidueLayout]:
    """Layouts by estimated seconds, the best first."""
    measured = rates if rates is not None and rates.residue is not None else _NOMINAL
    narrow = ProductForm.RESIDUE if shares is None else ProductForm.FP8 if shares[1] else ProductForm.FP16
    layouts = list(residue_layouts(grid, nbytes, moduli, narrow=narrow))
    if shares is not None:
        measured = with_narrow(measured, *shares)
    return sorted(layouts, key=lambda layout: estimated_seconds(grid, layout, n_devices, measured, itemsize=itemsize))


def with_narrow(rates: Rates, in_fp16: float, in_fp8: float) -> Rates:
    """``rates`` with the rate of products of which these shares run in FP16 and in FP8."""
    assert rates.residue is not None
    fp16_rate = rates.residue.half or _NOMINAL_FP16
    fp8_rate = rates.residue.quarter or 2 * fp16_rate
    product = 1.0 / ((1.0 - in_fp16 - in_fp8) / rates.residue.product + in_fp16 / fp16_rate + in_fp8 / fp8_rate)
    return replace(rates, residue=replace(rates.residue, product=product))


def estimated_seconds(
    grid: TileGrid, layout: ResidueLayout, n_devices: int, rates: Rates, *, itemsize: float = FP64.itemsize
) -> float:
    """Seconds of a factorization in ``layout``: of each panel the longer of its copies and its products."""
    panels = residue_panels(grid.nt, layout.width, layout)
    seconds = (_panel_seconds(grid, layout, panel, n_devices=n_devices, rates=rates, itemsize=itemsize) for panel in panels)
    return sum(map(max, seconds))


def _panel_seconds(
    grid: TileGrid, layout: ResidueLayout, panel: Panel, *, n_devices: int, rates: Rates, itemsize: float
) -> tuple[float, float, float]:
    """Estimated seconds of one panel on each device: of copies, of kernels, and of what its own rows wait for each other."""
    assert rates.residue is not None
    nb, k0, w = grid.nb, panel.k0, panel.width
    entries = nb * nb
    rows = (grid.nt - k0 - w) / n_devices
    passes = -(-k0 // layout.chunk)
    kept = min(1.0, (layout.strips - w * (passes + 1)) / max(1.0, rows * max(1, passes)))
    streamed = rows * k0 * (1 - max(0.0, kept)) + (w * k0 if n_devices == 1 else 0)
    long = (rows + w / 2 / n_devices) * w * entries * (2 * k0 * nb / rates.residue.product + passes / rates.residue.accumulate)
    inside = rows * w * entries * (w * nb / rates.residue.product + 1 / rates.residue.accumulate)
    finished = rows * w * entries * (nb / rates.gemm * 1.6 + 1 / rates.residue.reconstruct + 1 / rates.residue.convert)
    chain = w * (entries * nb / 3 / rates.potrf + entries * nb / rates.trsm)
    convert = streamed * entries / rates.residue.convert
    overlap = 1.0 if layout.accumulators > 2 else 1.03
    copies = itemsize * streamed * entries / rates.fetch * (1.0 if layout.transit >= 8 else 1.1)
    return copies, overlap * (long + inside + finished + convert), chain
