"""Which products of a run are computed in FP16: decided when a row is enqueued, by what devices measured of final tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractEvent
from ooc_chol.precision.measured_products import MeasuredProducts
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.panels import Panel

#: Rows below one that are decided with it where their norms are there: four times as many take twice as long.
_BESIDE = 64


@final
class NarrowDecisions:
    """Decisions that all devices of a run share, made by the thread that enqueues for them.

    ``given`` tiles of L are there before the run, with the ``norms`` that an earlier one measured.
    """

    def __init__(
        self,
        precision: PrecisionMap,
        panels: Sequence[Panel],
        *,
        given: frozenset[tuple[int, int]] = frozenset(),
        norms: NDArray[np.float64] | None = None,
    ) -> None:
        self.products = MeasuredProducts(precision, panels)
        self._panels = panels
        self._sent: dict[tuple[int, int], tuple[AbstractEvent, Callable[[], NDArray[np.float64]]]] = {}
        self._known = [0] * precision.grid.nt  # panels whose tiles' norms are known, by row
        self._number = {k: number for number, panel in enumerate(panels) for k in range(panel.k0, panel.k0 + panel.width)}
        if norms is not None:
            for i, j in sorted(given):
                at = precision.grid.packed(i, j)
                self.products.learn([i], j, norms[np.newaxis, at : at + 1])
        self._given = {(i, self._number[j]) for i, j in given}

    def last_column(self, tile: tuple[int, int]) -> Panel | None:
        """The panel of ``tile`` where that is its row's last one there, and the row is none of the panel's own."""
        panel = self._panels[self._number[tile[1]]]
        stop = panel.k0 + panel.width
        return panel if tile[1] == stop - 1 and tile[0] >= stop else None

    def send(self, row: int, column: int, event: AbstractEvent, read: Callable[[], NDArray[np.float64]]) -> None:
        """Note that ``read`` gives the numbers of a row's tiles in the panel of ``column`` once ``event`` is complete."""
        self._sent[row, self._number[column]] = event, read

    def of(self, row: int, column: int, ks: range) -> list[bool]:
        """Decide for each tile column in ``ks`` if products of ``row`` with the panel of tile column ``column`` run in FP16.

        Waits for norms: those of a row's tiles in the panel before, whose kernels were enqueued a panel ago.
        """
        number = self._number[column]
        panel = self._panels[number]
        if ks.start >= panel.k0 or row < panel.k0 + panel.width:
            return [False] * len(ks)
        late = [each for each in (row, *range(panel.k0, panel.k0 + panel.width)) if self._known[each] < number]
        beside: list[int] = []
        if late:
            last = min(row + _BESIDE, len(self._known) - 1)
            beside = [each for each in range(row + 1, last + 1) if self._is_complete(each, number)]
            self._learn([*late, *beside], number)
        found: list[bool] = self.products.forms(number, row, beside)[ks.start : ks.stop].tolist()
        return found

    def _is_complete(self, row: int, number: int) -> bool:
        """Tell whether the norms of a row's tiles in the panel before are the next to be taken in, and are there."""
        if self._known[row] != number - 1:
            return False
        sent = self._sent.get((row, number - 1))
        return (row, number - 1) in self._given if sent is None else sent[0].query()

    def _learn(self, rows: Sequence[int], number: int) -> None:
        """Take in the norms of some rows' tiles in all panels before one."""
        for before in range(min(self._known[row] for row in rows), number):
            found = {}
            for row in rows:
                if self._known[row] <= before and (row, before) not in self._given:
                    event, read = self._sent.pop((row, before))
                    event.synchronize()
                    found[row] = read()
            if found:
                self.products.learn([*found], self._panels[before].k0, np.stack([*found.values()]))
        for row in rows:
            self._known[row] = number
