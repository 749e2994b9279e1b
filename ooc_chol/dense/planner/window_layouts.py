"""How to divide a device's memory for the products of one window through residues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ooc_chol.dense.planner.residue_layouts import FINISHING_TILES, MOST_K, WIDTHS
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.residues.strips import STREAMING, residue_panels
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.tasks.operations import INVERSES
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: Accumulators and tiles in transit, the best first: with fewer, copies and kernels wait for each other.
_BESIDE = ((3, 16), (3, 8), (2, 8), (2, 4))


@lru_cache(maxsize=1024)
def window_layout(
    grid: TileGrid,
    window: Window,
    nbytes: int,
    *,
    moduli: int,
    n_devices: int = 1,
    fmt: PrecisionFormat = FP64,
    folds: bool = False,
) -> ResidueLayout | None:
    """The layout within ``nbytes`` in which a window fetches fewest tiles; None where none fits.

    Of equal ones that with the longest products, the widest panels and most tiles in transit, in this order.
    """
    best: tuple[float, ResidueLayout] | None = None
    for layout in _layouts(grid, window, nbytes, moduli=moduli, fmt=fmt, folds=folds):
        loads = _loads(grid, window, layout, n_devices)
        if best is None or loads < best[0]:
            best = loads, layout
    return None if best is None else best[1]


def _layouts(
    grid: TileGrid, window: Window, nbytes: int, *, moduli: int, fmt: PrecisionFormat, folds: bool
) -> Iterator[ResidueLayout]:
    """Every sensible layout that fits into ``nbytes``, the best of those with equal loads first."""
    nb, reach = grid.size(0), window.columns.stop
    chunks = sorted({min(reach, max(1, MOST_K // nb >> halvings)) for halvings in range(MOST_K.bit_length())}, reverse=True)
    for chunk in chunks:
        for width in sorted({min(width, chunk, len(window.columns), INVERSES) for width in WIDTHS}, reverse=True):
            passes = -(-reach // chunk)
            for accumulators, transit in _BESIDE:
                tiles = width + max(FINISHING_TILES, 2 * width)
                layout = ResidueLayout(moduli, nb, chunk, width, tiles, transit, 0, accumulators, fmt=fmt, folds=folds)
                strips = min((nbytes - layout.arena_bytes) // layout.strip_bytes, len(window.met_rows) * passes + STREAMING)
                if strips >= max(width, passes) + STREAMING:
                    yield replace(layout, strips=strips)
                    break


def _loads(grid: TileGrid, window: Window, layout: ResidueLayout, n_devices: int) -> float:
    """Tiles of L that are fetched in all panels: each row's and the panel's own ones, less those that stay from before."""
    loads, before = 0.0, 0
    passes = -(-window.columns.stop // layout.chunk)
    stays = layout.strips >= len(window.met_rows) * passes + STREAMING
    for panel in residue_panels(grid.nt, layout.width, layout, window):
        rows = len(window.rows_from(panel.k0)) / n_devices
        own = 0.0 if window.has_diagonal else panel.width * (panel.k0 + (panel.width + 1) / 2)
        loads += rows * (panel.k0 - before) + own
        before = panel.k0 if stays else 0
    return loads
