"""Coefficients that devices keep until the host reads them, and where the seconds of a space went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractEvent


class Kept(NamedTuple):
    """Coefficients on the devices."""

    first: int  #: Entry of the log
    columns: int


class KeptFactors(NamedTuple):
    """Three factors of an R: the first, the second, and a third where a column was weak, else zeros."""

    factors: tuple[Kept, Kept, Kept]


@dataclass
class SpaceSeconds:
    """Where the seconds of a space went."""

    passes: float = 0.0  #: Products with A, by events of the devices
    panels: float = 0.0  #: Sums, updates and rotations, by events of the first device
    host: float = 0.0  #: The host waited
    pending: list[tuple[str, list[AbstractEvent], list[AbstractEvent]]] = field(default_factory=list)
    complete: int = 0  #: How many of those that are pending are over

    def waited(self, seconds: float) -> None:
        """The host has waited so long for all that is pending."""
        self.host += seconds
        self.complete = len(self.pending)

    def settle(self) -> None:
        """Add what is complete, which asks the driver for every event."""
        for what, begun, ended in self.pending[: self.complete]:
            seconds = (max(event.time_ns() for event in ended) - min(event.time_ns() for event in begun)) / 1e9
            setattr(self, what, getattr(self, what) + seconds)
        del self.pending[: self.complete]
        self.complete = 0


@final
class CoefficientLog:
    """Where in the log of a device which coefficients are; their numbers stay there until they are read."""

    def __init__(self, block: int, entries: int) -> None:
        self._block, self._entries = block, entries
        self.end = 0  #: Entries in use
        self._kept: dict[str, Kept | KeptFactors] = {}

    def has_room(self, columns: int) -> bool:
        """Tell whether so many rows of coefficients find room."""
        return self.end + columns * self._block <= self._entries

    def keep(self, name: str, columns: int) -> Kept:
        """Room for coefficients under a name."""
        kept = self._kept[name] = self._room(columns)
        return kept

    def keep_factors(self, name: str) -> KeptFactors:
        """Room for three factors under a name."""
        kept = self._kept[name] = KeptFactors((self._room(self._block), self._room(self._block), self._room(self._block)))
        return kept

    def _room(self, columns: int) -> Kept:
        first, self.end = self.end, self.end + columns * self._block
        return Kept(first, columns)

    def read(self, numbers: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """All matrices by their names, from the numbers of the log, which is empty then."""
        flat = numbers.reshape(-1)
        found = {name: self._made(flat, kept) for name, kept in self._kept.items()}
        self._kept.clear()
        self.end = 0
        return found

    def _made(self, numbers: NDArray[np.float64], kept: Kept | KeptFactors) -> NDArray[np.float64]:
        """A matrix, or the product of factors; rows of columns that depend are zero."""
        if isinstance(kept, Kept):
            return self._matrix(numbers, kept).copy()
        first, second, third = (self._matrix(numbers, each) for each in kept.factors)
        r: NDArray[np.float64] = np.einsum("ij,jk->ik", second, first)
        if third.any():
            r = np.einsum("ij,jk->ik", third, r)
        if not (pivots := second.diagonal()).all():
            r[pivots == 0] = 0
        return r

    def _matrix(self, numbers: NDArray[np.float64], kept: Kept) -> NDArray[np.float64]:
        return numbers[kept.first : kept.first + kept.columns * self._block].reshape(kept.columns, self._block)
