"""Interfaces of every kernel set, on whatever device: tile kernels, products through residues, solves."""

from typing import TypeAlias

from ooc_chol.interfaces import AbstractDevice
from ooc_chol.kernels.interfaces.residues import AbstractResidueKernels
from ooc_chol.kernels.interfaces.solves import MOST_TARGETS, AbstractSolveKernels
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
    "MOST_TARGETS",
    "NORM_COLUMNS",
    "AbstractFlags",
    "AbstractKernelSet",
    "AbstractResidueKernels",
    "AbstractSolveKernels",
    "AbstractSurvey",
    "AbstractTileNorms",
    "FinalTile",
    "TileDevice",
    "largest_imaginary",
]
