"""Which products of a row run in FP16 or FP8: those that are small enough by the norms that L's tiles are expected to have.

``A_ij - sum_k L_ik L_jk.T``: rounding both factors of product k to FP16 errs by ``u sqrt(2 / 3)`` times what the product of two
random matrices of their norms would be, and the errors of different k are independent. A row's products of one panel are sorted
by that, and the smallest ones run in FP16, the smallest of these in FP8 where there is a kernel for it, as long as the error of
each tile stays within its share of the threshold.

The norms of L's tiles are known only at the end. But a factor of a sample of the matrix, every so many rows of each tile, has
nearly the same norms, scaled: within the sample fewer points stand between two others, so that little of what they share is
explained before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP8, FP16
from ooc_chol.precision.moduli import FP16_TOP
from ooc_chol.precision.norms import FactorNorms
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.panels import Panel

#: Most tiles of K of one product in FP16 or FP8: tensor cores truncate as they add, so that sums are continued in FP32.
NARROW_TILES = 4
#: Terms of such a sum in tiles of order 2048, and its relative errors, in proportion to the terms. In FP16 16 products at a time
#: are added, and what is below FP32's last place is cut off; in FP8 the sum of 32 keeps about 14 bits (hardware anchors: 3 %
#: at K = 16384).
SUM_TERMS = 8192
FP16_SUM_ERROR, FP8_SUM_ERROR = SUM_TERMS / 16 * 2.0**-24, 0.03 * SUM_TERMS / 16384
#: How much of these was seen on an H200: at strong correlation and order 131,072, 3.6e-6 of ``||A||_F`` where all is 2.0e-5.
SEEN_OF_SUM_ERROR = 0.18
#: Share of the threshold that products in FP16 and FP8 may take by expected norms, and what of that those in FP8 may. Expected
#: norms are too large, so that the error is half of that or less, and three times it, as certified, leaves room for storing.
SHARE, FP8_SHARE = 0.4, 0.5
#: Errors whose squares are numbers of FP64.
_LARGEST_ROOT = 1e150
#: Largest number of FP8, E4M3, and the distance of its subnormal numbers.
FP8_LARGEST, FP8_LEAST_STEP = 448.0, 2.0**-9
#: Exponents of entries in FP8 are multiples of this, so that products of neighbouring k have one scale and run as one.
FP8_EXPONENT_STEP = 4
#: Largest ratio of diagonal entries of a tile row in FP8: a panel's exponent fits only rows that are scaled alike.
_MOST_UNEVEN = 16.0
#: Least exponent: tiles of zeros have none.
_LEAST_EXPONENT = -60


class ProductForm(IntEnum):
    """In which form the factors of a product are."""

    RESIDUE = 0
    FP16 = 1  #: FP16, with an exponent a row
    FP8 = 2  #: FP8, with an exponent a panel of rows and tile column besides


class NarrowRun(NamedTuple):
    """How the products of a run were computed, for the estimate of its error.

    ``forms[i, j, k]`` is the :class:`ProductForm` of tiles (i, k) and (j, k); ``exponents[i, k]`` that of tile (i, k) in FP8.
    """

    forms: NDArray[np.int8]
    exponents: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NarrowProducts:
    """Chooses the products in FP16 and FP8."""

    precision: PrecisionMap  #: The formats and the threshold
    norms: FactorNorms  #: Expected norms of L's tiles
    allows_fp8: bool = False  #: Whether FP8 may be chosen, too
    panels: tuple[Panel, ...] = ()  #: All panels, whose rows share exponents in FP8

    @cached_property
    def allowed(self) -> float:
        """Largest squared error of a tile."""
        limit = SHARE * self.precision.threshold * self.precision.norms.total / self.precision.grid.nt
        return limit * limit if limit < _LARGEST_ROOT else 0.0  # beyond it nothing is narrow

    def share(self, width: int) -> tuple[float, float]:
        """Shares of the products in FP16 and in FP8, in panels of ``width`` columns."""
        nt, counts = self.precision.grid.nt, Counter[ProductForm]()
        panels = tuple(Panel(k0, min(width, nt - k0), 1) for k0 in range(0, nt, width))
        choice = replace(self, panels=panels)
        for panel in panels:
            for row in range(panel.k0, nt):
                counts.update(choice.of(panel, row))
        return counts[ProductForm.FP16] / counts.total(), counts[ProductForm.FP8] / counts.total()

    def of(self, panel: Panel, row: int) -> list[ProductForm]:
        """For each tile column k before the end of ``panel``, the form of row ``row``'s products with it.

        One choice for all columns of the panel, which are multiplied at once. A panel's own rows have diagonal tiles, all of
        whose products are exact.
        """
        stop = panel.k0 + panel.width
        forms = np.full(stop, ProductForm.RESIDUE)
        if row < stop:
            return [ProductForm.RESIDUE] * stop
        allowed = self.allowed
        if self.allows_fp8 and self._is_even[[row, *range(panel.k0, stop)]].all():
            allowed -= self._choose(forms, ProductForm.FP8, panel=panel, row=row, allowed=FP8_SHARE * allowed)
        self._choose(forms, ProductForm.FP16, panel=panel, row=row, allowed=allowed)
        return [ProductForm(form) for form in forms]

    def _choose(self, forms: NDArray[np.int_], form: ProductForm, *, panel: Panel, row: int, allowed: float) -> float:
        """Give ``form`` to the smallest products that have none yet, within ``allowed``; returns the squared error taken."""
        stop = len(forms)
        columns, is_fp8 = slice(panel.k0, stop), form is ProductForm.FP8
        errors = self.norms.squared_errors(row, columns, stop, self._lost if is_fp8 else None)
        sizes = self.norms.tiles[row, :stop] * self.norms.tiles[columns, :stop]
        # Column j of the panel has products with k < j only.
        for offset in range(panel.width):
            errors[offset, panel.k0 + offset :] = sizes[offset, panel.k0 + offset :] = 0.0
        order = np.argsort(errors.max(axis=0), kind="stable")
        order = order[forms[order] == ProductForm.RESIDUE]
        # Rounding errors of different k are independent, what sums cut off is not: it has one sign.
        cut = SEEN_OF_SUM_ERROR * self._longer * (FP8_SUM_ERROR if is_fp8 else FP16_SUM_ERROR)
        sums = np.cumsum(errors[:, order], axis=1) + np.square(cut * np.cumsum(sizes[:, order], axis=1))
        largest = sums.max(axis=0)
        count = int(np.searchsorted(largest, allowed, side="right"))
        forms[order[:count]] = form
        return float(largest[count - 1]) if count else 0.0

    @property
    def _longer(self) -> float:
        """By how much sums are longer than those whose errors are known."""
        return max(1.0, NARROW_TILES * self.precision.grid.nb / SUM_TERMS)

    @cached_property
    def exponents(self) -> NDArray[np.int64]:
        """Exponents of entries in FP8: ``[p, k]`` is that of tile column k in the rows of panel number p.

        An entry ``2**h_i L_ik`` in FP16 is ``2**r`` times what it is in FP8, where expected entries are near 1: its numbers go
        from ``2**-6`` to 448.
        """
        of_panel = np.maximum.reduceat(self._powers, [panel.k0 for panel in self.panels], axis=0)
        return (FP8_EXPONENT_STEP * np.rint(of_panel / FP8_EXPONENT_STEP)).astype(np.int64)

    @cached_property
    def exponents_of_rows(self) -> NDArray[np.int64]:
        """The same by tile row and tile column."""
        return np.repeat(self.exponents, [panel.width for panel in self.panels], axis=0)

    @cached_property
    def _powers(self) -> NDArray[np.float64]:
        """Logarithm of a tile's expected root mean square, the largest possible entry of its rows being ``2**FP16_TOP``."""
        grid = self.precision.grid
        sizes = np.array([grid.size(i) for i in range(grid.nt)], dtype=np.float64)
        of_row = np.sqrt(self.precision.norms.traces / sizes)  # the root mean square of a row's norm
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = FP16_TOP - 1 + np.log2(self.norms.tiles / np.sqrt(np.outer(sizes, sizes)) / of_row[:, None])
        powers = np.nan_to_num(powers, nan=_LEAST_EXPONENT, neginf=_LEAST_EXPONENT)
        return np.asarray(np.maximum(powers, _LEAST_EXPONENT), dtype=np.float64)

    @cached_property
    def _is_even(self) -> NDArray[np.bool_]:
        """Whether the rows of each tile row are scaled alike."""
        norms = self.precision.norms
        return np.asarray(norms.largest <= _MOST_UNEVEN * norms.least, dtype=np.bool_)

    @cached_property
    def _lost(self) -> NDArray[np.float64]:
        """What FP8 takes of a tile, over what FP16 does: by rounding, and by FP8's least step where the exponent is large."""
        steps = np.exp2(self.exponents_of_rows - self._powers) * FP8_LEAST_STEP / 2
        return np.sqrt(FP8.unit_roundoff**2 + np.square(steps)) / FP16.unit_roundoff
