"""Which products of a row run in half precision: those that, by the norms that L's tiles are expected to have, are small enough.

``A_ij - sum_k L_ik L_jk.T``: rounding both factors of product k to FP16 errs by ``u sqrt(2 / 3)`` times what the product of two
random matrices of their norms would be, and the errors of different k are independent. A row's products of one panel are sorted
by that, and the smallest ones run in FP16 as long as the error of each tile stays within its share of the threshold.

The norms of L's tiles are known only at the end. But a factor of a sample of the matrix, every so many rows of each tile, has
nearly the same norms, scaled: within the sample fewer points stand between two others, so that little of what they share is
explained before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ooc_chol.planning.norms import FactorNorms
from ooc_chol.planning.panels import Panel
from ooc_chol.planning.precision import PrecisionMap

#: Most tiles of K of one product in FP16: tensor cores truncate as they add, so that sums are continued in FP32.
HALF_TILES = 4
#: Relative error of such a sum of up to 8192 terms: 16 at a time are added, and what is below FP32's last place is cut off.
HALF_SUM_ERROR = 8192 / 16 * 2.0**-24
#: Share of the threshold that products in FP16 may take.
SHARE = 0.5


@dataclass(frozen=True, eq=False)
class HalfProducts:
    """Chooses the products in FP16.

    Parameters
    ----------
    precision : PrecisionMap
        The formats and the threshold.
    norms : FactorNorms
        Expected norms of L's tiles.
    """

    precision: PrecisionMap
    norms: FactorNorms

    @property
    def allowed(self) -> float:
        """Largest squared error of a tile."""
        limit = SHARE * self.precision.threshold * self.precision.norms.total / self.precision.grid.nt
        return limit**2

    def share(self, width: int) -> float:
        """Share of the products, in panels of ``width`` columns."""
        nt, chosen, all_of_them = self.precision.grid.nt, 0, 0
        for k0 in range(0, nt, width):
            panel = Panel(k0, min(width, nt - k0), 1)
            for row in range(k0, nt):
                is_half = self.of(panel, row)
                chosen, all_of_them = chosen + sum(is_half), all_of_them + len(is_half)
        return chosen / all_of_them

    def of(self, panel: Panel, row: int) -> list[bool]:
        """For each tile column k before the end of ``panel``, whether row ``row``'s products with it run in FP16.

        One choice for all columns of the panel, which are multiplied at once. A panel's own rows have diagonal tiles, all of
        whose products are exact.
        """
        stop = panel.k0 + panel.width
        if row < stop:
            return [False] * stop
        errors = self.norms.squared_errors(row, slice(panel.k0, stop), stop)
        # Column j of the panel has products with k < j only.
        for offset in range(panel.width):
            errors[offset, panel.k0 + offset :] = 0.0
        order = np.argsort(errors.max(axis=0), kind="stable")
        sums = np.cumsum(errors[:, order], axis=1).max(axis=0)
        chosen = np.zeros(stop, dtype=bool)
        chosen[order[: int(np.searchsorted(sums, self.allowed, side="right"))]] = True
        return [bool(is_half) for is_half in chosen]
