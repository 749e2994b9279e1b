"""What the runtime asks of devices, streams, kernels and tiers: CUDA's model, kept by the host device too.

A stream runs its operations in order. An event marks a point in a stream; another stream may wait on it once it is *recorded*.
Nothing here blocks the thread that enqueues, except ``synchronize``. A :data:`Tile` is whatever array the device's kernels
take: a NumPy array on the host, a CuPy array on CUDA; always two-dimensional, row-major and contiguous.
"""

from ooc_chol.interfaces.devices import NARROW_BUFFERS, AbstractArena, AbstractDevice, ArraySpec
from ooc_chol.interfaces.kernels import (
    NORM_COLUMNS,
    AbstractFlags,
    AbstractKernelSet,
    AbstractSurvey,
    AbstractTileNorms,
    FinalTile,
)
from ooc_chol.interfaces.residues import NOTHING_NARROW, AbstractResidueKernels, NarrowParts
from ooc_chol.interfaces.solves import AbstractSolveKernels
from ooc_chol.interfaces.streams import AbstractEvent, AbstractStream, Tile, TileFunction
from ooc_chol.interfaces.tiers import AbstractEvictionPolicy, AbstractTier, BlockKey

__all__ = [
    "NARROW_BUFFERS",
    "NORM_COLUMNS",
    "NOTHING_NARROW",
    "AbstractArena",
    "AbstractDevice",
    "AbstractEvent",
    "AbstractEvictionPolicy",
    "AbstractFlags",
    "AbstractKernelSet",
    "AbstractResidueKernels",
    "AbstractSolveKernels",
    "AbstractStream",
    "AbstractSurvey",
    "AbstractTier",
    "AbstractTileNorms",
    "ArraySpec",
    "BlockKey",
    "FinalTile",
    "NarrowParts",
    "Tile",
    "TileFunction",
]
