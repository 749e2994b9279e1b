"""Which products of a row run in FP16, decided as a run goes, by the norms that final tiles of L were found to have.

The order is left-looking: when a row's products with a panel are enqueued, all tiles of L to their left are final. So nothing is
guessed. Rounding both factors of product k to FP16 errs by ``u sqrt(2 / 3)`` times what the product of two random matrices of
their norms would be, and the errors of different k are independent. A row's products with one panel are sorted by that, and the
smallest ones run in FP16 as long as the errors of each tile stay within what is left of its row's share of the threshold: what
one panel does not use the next may. Products inside the panel, and those of its own rows, are exact.

A choice depends on norms rounded up to an eighth of a power of two, since kernels sum squares in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.precision.certified import safety_factor
from ooc_chol.precision.norms import PROBES, FactorNorms
from ooc_chol.precision.products import narrow_of
from ooc_chol.precision.tile_formats import PRODUCTS_PART, PrecisionMap
from ooc_chol.tasks.panels import Panel

#: Steps to a power of two to which norms are rounded up.
_STEPS = 8
#: What FP16 takes of an entry that is subnormal there, over its unit roundoff and the norm of the entry's row: 2**-39 / 2**-11.
_SUBNORMAL = 2.0**-28


@final
class MeasuredProducts:
    """Decides row by row, panel by panel, and remembers what was decided; devices of a run share one."""

    def __init__(self, precision: PrecisionMap, panels: Sequence[Panel]) -> None:
        grid, norms = precision.grid, precision.norms
        self._grid, self._panels = grid, panels
        self._norms = FactorNorms(np.zeros((grid.nt, grid.nt)), np.zeros((grid.nt, grid.nt)))
        limit = PRODUCTS_PART * precision.within / safety_factor(PROBES) * norms.total / grid.nt
        #: Squared error that row i may take: tiles below the diagonal count twice.
        with np.errstate(invalid="ignore"):  # of norms whose squares are no numbers
            self._of_row = np.arange(grid.nt) * (limit * limit)
        self._taken = np.zeros(grid.nt)
        self._floors = _SUBNORMAL * grid.nb * np.sqrt(np.maximum(norms.largest, 0.0))
        self._forms: list[list[NDArray[np.bool_]]] = [[] for _ in range(grid.nt)]

    def learn(self, rows: Sequence[int], first: int, measured: NDArray[np.float64]) -> None:
        """Take the measured numbers of final tiles of some rows: of each (row, first) and those to its right.

        ``measured`` is (rows, tiles, NORM_COLUMNS).
        """
        which, (_, count, numbers) = np.array(rows, np.intp), measured.shape
        heights = np.repeat([self._grid.size(row) for row in rows], count)
        tiles, columns = (each.reshape(-1, count) for each in FactorNorms.of_tiles(measured.reshape(-1, numbers), heights))
        span = slice(first, first + count)
        self._norms.tiles[which, span] = _rounded_up(np.hypot(tiles, self._floors[which, np.newaxis]))
        self._norms.columns[which, span] = _rounded_up(columns)

    def forms(self, number: int, row: int, beside: Sequence[int] = ()) -> NDArray[np.bool_]:
        """For each tile column before panel ``number`` whether ``row``'s products there run in FP16, by norms to its left.

        Rows ``beside`` it, whose norms are known as well, are decided with it, which takes little longer than one.
        """
        for at in range(len(self._forms[row]), number + 1):
            self._decide(self._panels[at], [each for each in (row, *beside) if len(self._forms[each]) == at])
        return self._forms[row][number]

    def _decide(self, panel: Panel, rows: Sequence[int]) -> None:
        """Decide a panel of some rows, of which all panels before are decided."""
        below = [row for row in rows if row >= panel.k0 + panel.width and panel.k0]
        for row in set(rows).difference(below):
            self._forms[row].append(np.zeros(panel.k0, dtype=np.bool_))
        if below:
            allowed = [(self._of_row[row] - self._taken[row]) / (row - panel.k0) for row in below]
            for row, chosen, errors in zip(below, *narrow_of(self._norms, below, panel, allowed, self._grid.nb), strict=True):
                self._taken[row] += errors
                self._forms[row].append(chosen)

    @property
    def share(self) -> float:
        """Share of the products of tiles below the diagonal that were decided to run in FP16."""
        narrow, total = 0, self._grid.nt * (self._grid.nt - 1) * (self._grid.nt - 2) // 6
        for row, of_row in enumerate(self._forms):
            for panel, forms in zip(self._panels, of_row, strict=False):
                narrow += int(forms.sum()) * len(range(panel.k0, min(row, panel.k0 + panel.width)))
        return narrow / max(1, total)

    def products(self) -> NDArray[np.bool_]:
        """``[i, j, k]`` says whether the product of tiles (i, k) and (j, k) ran in FP16."""
        nt = self._grid.nt
        found = np.zeros((nt, nt, nt), dtype=np.bool_)
        for row, of_row in enumerate(self._forms):
            for panel, forms in zip(self._panels, of_row, strict=False):
                found[row, panel.k0 : min(row, panel.k0 + panel.width), : panel.k0] = forms
        return found


def _rounded_up(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Norms rounded up to a step; zeros, and what is no number, as they are."""
    rounded = norms.copy()
    sound = (norms > 0.0) & np.isfinite(norms)
    rounded[sound] = np.exp2(np.ceil(_STEPS * np.log2(norms[sound])) / _STEPS)
    return rounded
