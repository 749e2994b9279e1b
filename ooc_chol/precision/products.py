"""Errors of products of tiles in FP16, and the share of products that norms expected of L let run so.

``A_ij - sum_k L_ik L_jk.T``: rounding both factors of product k to FP16 errs by ``u sqrt(2 / 3)`` times what the product of two
random matrices of their norms would be, and the errors of different k are independent.

Expected norms are those of a factor of a sample, every so many rows of each tile. They are wrong by orders where neighbours in
the sample share little of what neighbours share in the matrix. So they only tell what a plan may gain; which products do run in
FP16 is decided by measured norms (:mod:`ooc_chol.precision.measured_products`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ooc_chol.precision.certified import safety_factor
from ooc_chol.precision.norms import PROBES, FactorNorms
from ooc_chol.precision.tile_formats import PRODUCTS_PART, PrecisionMap
from ooc_chol.tasks.panels import Panel

#: Most tiles of K of one product in FP16: tensor cores truncate as they add, so that sums are continued in FP32.
NARROW_TILES = 4
#: Terms of such a sum in tiles of order 2048, and its relative error, in proportion to the terms: 16 products at a time are
#: added, and what is below FP32's last place is cut off.
SUM_TERMS = 8192
FP16_SUM_ERROR = SUM_TERMS / 16 * 2.0**-24
#: How much of it was seen on an H200: at strong correlation and order 131,072, 3.6e-6 of ``||A||_F`` where all is 2.0e-5.
SEEN_OF_SUM_ERROR = 0.18


def narrow_of(
    norms: FactorNorms, rows: Sequence[int], panel: Panel, allowed: Sequence[float], nb: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Choose which products of each row with the columns of ``panel`` and tile columns before it run in FP16: the smallest ones.

    One choice for all columns, which are multiplied at once: the squared error of each tile is at most what is ``allowed`` for
    its row. Returns the squared errors of all tiles of a row together, too. What is chosen for a row depends on no other one.
    """
    k0, columns = panel.k0, slice(panel.k0, panel.k0 + panel.width)
    which, limits = np.array(rows, np.intp), np.array(allowed, np.float64)[:, np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):  # of norms whose squares are no numbers
        errors = norms.squared_errors(which, columns, k0)
        sizes = norms.tiles[which, np.newaxis, :k0] * norms.tiles[columns, :k0]
        at = np.arange(len(which))[:, np.newaxis]
        order = errors.max(axis=1).argsort(axis=1, kind="stable")
        # Rounding errors of different k are independent, what sums cut off is not: it has one sign.
        cut = SEEN_OF_SUM_ERROR * max(1.0, NARROW_TILES * nb / SUM_TERMS) * FP16_SUM_ERROR
        cut_off = cut * sizes[at, :, order].cumsum(axis=1)
        sums = errors[at, :, order].cumsum(axis=1)  # (rows, k, columns), as k is chosen
        sums += cut_off * cut_off
        # They grow with k; what is no number is above all limits.
        counts = ((sums.max(axis=2) <= limits) & (limits < np.inf)).sum(axis=1)
    chosen = np.zeros((len(which), k0), dtype=np.bool_)
    chosen[at, order] = np.arange(k0) < counts[:, np.newaxis]
    taken = np.where(counts[:, np.newaxis], sums[at[:, 0], counts - 1], 0.0)
    return chosen, taken.cumsum(axis=1)[:, -1]


@lru_cache(maxsize=8)
def expected_share(precision: PrecisionMap, norms: FactorNorms, width: int) -> float:
    """Share of the products that run in FP16 in panels of ``width`` columns, were the norms of L as expected."""
    grid, narrow = precision.grid, 0
    limit = PRODUCTS_PART * precision.within / safety_factor(PROBES) * precision.norms.total / grid.nt
    for k0 in range(0, grid.nt, width):
        panel = Panel(k0, min(width, grid.nt - k0), 1)
        rows = range(k0 + panel.width, grid.nt)
        if k0 and rows:
            narrow += int(narrow_of(norms, rows, panel, [limit * limit] * len(rows), grid.nb)[0].sum()) * panel.width
    return narrow / max(1, grid.nt * (grid.nt - 1) * (grid.nt - 2) // 6)
