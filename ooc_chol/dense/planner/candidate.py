"""One way to factor within a threshold, as plans and their pages tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ooc_chol.config import format_bytes
from ooc_chol.formats import FP64
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.bounds import compulsory_bytes
from ooc_chol.tasks.tiling import TileGrid


@dataclass(frozen=True)
class Candidate:
    """A way to factor within a threshold."""

    name: str  #: What is narrow, in words
    seconds: float | None  #: Predicted seconds of what was still to be done when it was compared; None where no rates are known
    nbytes: int  #: Bytes of L in its store
    error: float  #: Expected ``||A - L L.T||_F / ||A||_F``

    @classmethod
    def in_fp64(cls, grid: TileGrid, seconds: float | None, error: float) -> Self:
        """FP64."""
        return cls("FP64", seconds, compulsory_bytes(grid, FP64.itemsize), error)

    @classmethod
    def of(cls, precision: PrecisionMap, moduli: int | None, seconds: float | None) -> Self:
        """A map of formats, and products through so many moduli."""
        formats = "/".join(name.upper() for name in precision.counts)
        products = "" if moduli is None else f", {moduli} moduli"
        return cls(f"tiles in {formats}{products}", seconds, precision.total_bytes, precision.expected_error(moduli))

    def __str__(self) -> str:
        seconds = "unknown seconds" if self.seconds is None else f"{self.seconds:.3g} s"
        return f"{self.name}: {seconds}, {format_bytes(self.nbytes)}, expected error {self.error:.1e} ||A||_F"
