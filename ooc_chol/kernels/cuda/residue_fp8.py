"""Products of planes of residues by digits in FP8, on the tensor cores of Hopper: slower than int8 there, with the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.modules import compiled_for
from ooc_chol.kernels.cuda.residue_source import FP8_THREADS, FP8_TILE, PRODUCTS_ARCHITECTURE, divisions, fp8_source
from ooc_chol.kernels.interfaces.residues import AbstractResidueProducts


@final
class Fp8ResidueProducts(AbstractResidueProducts):
    """Products on the current device, which is a Hopper: each residue is ``16 a + b`` with digits from -8 to 8.

    K, addresses and strides of the operands are multiples of 16 bytes.
    """

    def __init__(self, moduli: Sequence[int]) -> None:
        module = compiled_for(PRODUCTS_ARCHITECTURE, fp8_source())
        self._kernels = {name: module.get_function(f"multiply_digits_{name}") for name in ("int8", "int32")}
        self._moduli = _by_value(divisions(moduli).ravel())

    def multiply(self, stream: AbstractStream, sums: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool) -> None:
        """Enqueue the products of all planes in one launch."""
        planes, rows, inner = left.shape
        cols = sums.shape[2]
        blocks = planes * -(-rows // FP8_TILE) * -(-cols // FP8_TILE)
        shape = _by_value(np.array([rows, cols, inner, accumulates, lower], dtype=np.int32))
        arguments = (*map(_planes, (left, right, sums)), self._moduli, shape)
        self._kernels[sums.dtype.name]((blocks,), (FP8_THREADS,), arguments, stream=cupy_stream(stream))


def _planes(array: Tile) -> NDArray[np.void]:
    """Address and strides in bytes of rows and planes, which the kernel takes as one."""
    plane_bytes, row_bytes, _ = array.strides
    return _by_value(np.array([array.data.ptr, row_bytes, plane_bytes], dtype=np.int64))


def _by_value(array: NDArray[Any]) -> NDArray[np.void]:
    """An array as one item, which CuPy passes by value."""
    return array.view(np.dtype((np.void, array.nbytes)))
