"""Which products of a row run in FP16: those that are small enough by the norms that L's tiles are expected to have.

``A_ij - sum_k L_ik L_jk.T``: rounding both factors of product k to FP16 errs by ``u sqrt(2 / 3)`` times what the product of two
random matrices of their norms would be, and the errors of different k are independent. A row's products of one panel are sorted
by that, and the smallest ones run in FP16, as long as the error of each tile stays within its share of the threshold.

The norms of L's tiles are known only at the end. But a factor of a sample of the matrix, every so many rows of each tile, has
nearly the same norms, scaled: within the sample fewer points stand between two others, so that little of what they share is
explained before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from ooc_chol.precision.norms import FactorNorms
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.panels import Panel

#: Most tiles of K of one product in FP16: tensor cores truncate as they add, so that sums are continued in FP32.
NARROW_TILES = 4
#: Terms of such a sum in tiles of order 2048, and its relative error, in proportion to the terms: 16 products at a time are
#: added, and what is below FP32's last place is cut off.
SUM_TERMS = 8192
FP16_SUM_ERROR = SUM_TERMS / 16 * 2.0**-24
#: How much of it was seen on an H200: at strong correlation and order 131,072, 3.6e-6 of ``||A||_F`` where all is 2.0e-5.
SEEN_OF_SUM_ERROR = 0.18
#: Share of the threshold that products in FP16 may take by expected norms. These are too large, so that the error is half of that
#: or less, and three times it, as certified, leaves room for storing.
SHARE = 0.4
#: Errors whose squares are numbers of FP64.
_LARGEST_ROOT = 1e150


class ProductForm(IntEnum):
    """In which form the factors of a product are."""

    RESIDUE = 0
    FP16 = 1  #: FP16, with an exponent a row


@dataclass(frozen=True, eq=False)
class NarrowProducts:
    """Chooses the products in FP16."""

    precision: PrecisionMap  #: The formats and the threshold
    norms: FactorNorms  #: Expected norms of L's tiles

    @cached_property
    def allowed(self) -> float:
        """Largest squared error of a tile."""
        limit = SHARE * self.precision.threshold * self.precision.norms.total / self.precision.grid.nt
        return limit * limit if limit < _LARGEST_ROOT else 0.0  # beyond it nothing is narrow

    def share(self, width: int) -> float:
        """Share of the products in FP16, in panels of ``width`` columns."""
        nt, counts = self.precision.grid.nt, Counter[ProductForm]()
        for k0 in range(0, nt, width):
            for row in range(k0, nt):
                counts.update(self.of(Panel(k0, min(width, nt - k0), 1), row))
        return counts[ProductForm.FP16] / counts.total()

    def of(self, panel: Panel, row: int) -> list[ProductForm]:
        """For each tile column k before the end of ``panel``, the form of row ``row``'s products with it.

        One choice for all columns of the panel, which are multiplied at once. A panel's own rows have diagonal tiles, all of
        whose products are exact.
        """
        stop = panel.k0 + panel.width
        if row < stop:
            return [ProductForm.RESIDUE] * stop
        columns = slice(panel.k0, stop)
        errors = self.norms.squared_errors(row, columns, stop)
        sizes = self.norms.tiles[row, :stop] * self.norms.tiles[columns, :stop]
        # Column j of the panel has products with k < j only.
        for offset in range(panel.width):
            errors[offset, panel.k0 + offset :] = sizes[offset, panel.k0 + offset :] = 0.0
        order = np.argsort(errors.max(axis=0), kind="stable")
        # Rounding errors of different k are independent, what sums cut off is not: it has one sign.
        cut = SEEN_OF_SUM_ERROR * self._longer * FP16_SUM_ERROR
        sums = np.cumsum(errors[:, order], axis=1) + np.square(cut * np.cumsum(sizes[:, order], axis=1))
        count = int(np.searchsorted(sums.max(axis=0), self.allowed, side="right"))
        forms = [ProductForm.RESIDUE] * stop
        for k in order[:count]:
            forms[k] = ProductForm.FP16
        return forms

    @property
    def _longer(self) -> float:
        """By how much sums are longer than those whose errors are known."""
        return max(1.0, NARROW_TILES * self.precision.grid.nb / SUM_TERMS)
