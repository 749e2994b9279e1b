"""Tensor cores by which a CUDA device multiplies residues: int8, or FP8 for its tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import cupy as cp
import numpy as np

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda import FOLDING_CAPABILITY
from ooc_chol.kernels.cuda.handles import BlasHandle
from ooc_chol.kernels.cuda.int8 import Int8Products, Planes, rounded_up
from ooc_chol.kernels.cuda.residue_fp8 import Fp8ResidueProducts
from ooc_chol.kernels.cuda.residue_products import ResidueProducts
from ooc_chol.kernels.interfaces.residues import AbstractResidueProducts, ResidueUnits

#: Strips of rows of a lower triangle, each multiplied up to and including its diagonal block: 5/8 of the square.
_LOWER_PARTS = 4


def residue_products(units: ResidueUnits, moduli: Sequence[int], blas: BlasHandle) -> AbstractResidueProducts:
    """Products of residues on the current device, by its tensor cores of one type; those in FP8 are written for Hopper."""
    if units == "int8":
        return _Int8ResidueProducts(moduli, blas)
    if not _is_hopper():
        raise RuntimeError("products of residues in FP8 were asked for on a GPU that has no kernel for them")
    return Fp8ResidueProducts(moduli)


@final
class _Int8ResidueProducts(AbstractResidueProducts):
    """cuBLASLt leaves sums in int32; on Hopper a kernel of our own leaves residues in int8."""

    def __init__(self, moduli: Sequence[int], blas: BlasHandle) -> None:
        self._products = Int8Products(blas)
        self._folding = ResidueProducts(moduli) if _is_hopper() else None

    def multiply(self, stream: AbstractStream, sums: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool) -> None:
        """Multiply plane by plane, and with ``lower`` sums in int32 by strips of rows."""
        if sums.dtype == np.int8:
            if self._folding is None:
                raise RuntimeError("a product reduced in registers was enqueued on a GPU that has no kernel for it")
            self._folding.multiply(stream, sums, left, right, accumulates=accumulates, lower=lower)
            return
        planes, rows, inner = left.shape
        target, above, beside = Planes.of(sums), Planes.of(left), Planes.of(right)
        if not lower:
            shape = planes, rows, sums.shape[2], inner
            self._products.multiply(stream, shape, (target, above, beside), accumulates=accumulates)
            return
        height = rounded_up(-(-rows // _LOWER_PARTS))
        for r0 in range(0, rows, height):
            r1 = min(rows, r0 + height)
            operands = target.below(r0), above.below(r0), beside
            self._products.multiply(stream, (planes, r1 - r0, r1, inner), operands, accumulates=accumulates)

    def close(self) -> None:
        self._products.close()


def _is_hopper() -> bool:
    """Tell whether the kernels of our own run on the current device."""
    return bool(cp.cuda.Device().compute_capability == "{}{}".format(*FOLDING_CAPABILITY))
