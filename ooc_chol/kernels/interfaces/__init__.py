"""What every kernel set offers, on whatever device: tile kernels, products through residues, solves."""

from typing import TypeAlias

from ooc_chol.interfaces import AbstractDevice
from ooc_chol.kernels.interfaces.residues import NOTHING_NARROW, AbstractResidueKernels, NarrowParts
from ooc_chol.kernels.interfaces.solves import AbstractSolveKernels
from ooc_chol.kernels.interfaces.tiles import (
    NORM_COLUMNS,
    AbstractFlags,
    AbstractKernelSet,
    AbstractSurvey,
    AbstractTileNorms,
    FinalTile,
    largest_imaginary,
)

#: A device with tile kernels.
TileDevice: TypeAlias = AbstractDevice[AbstractKernelSet]

__all__ = [
    "NORM_COLUMNS",
    "NOTHING_NARROW",
    "AbstractFlags",
    "AbstractKernelSet",
    "AbstractResidueKernels",
    "AbstractSolveKernels",
    "AbstractSurvey",
    "AbstractTileNorms",
    "FinalTile",
    "NarrowParts",
    "TileDevice",
    "largest_imaginary",
]
