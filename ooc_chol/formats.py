"""Storage formats of a tile: the register that the planner, the tiers and the kernels share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrecisionFormat:
    """One way to store the entries of a tile.

    Parameters
    ----------
    name : str
        Name in plans, file headers and reports, such as ``"fp64"``.
    itemsize : int
        Bytes of one entry.
    unit_roundoff : float
        Largest relative error of rounding to nearest.
    """

    name: str
    itemsize: int
    unit_roundoff: float


FP64 = PrecisionFormat("fp64", 8, 2.0**-53)

#: Every format that a tile may have today, by name.
FORMATS: dict[str, PrecisionFormat] = {FP64.name: FP64}
