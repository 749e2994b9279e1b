"""Matrices that lie in a GPU's memory."""

from __future__ import annotations

from typing import Any, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import Tile
from ooc_chol.memory.sources_base import AbstractSource, check_dtype, check_shape


@final
class DeviceSource(AbstractSource):
    """A matrix that lies in a GPU's memory: a CuPy array, or anything that hands one over by DLPack.

    Parameters
    ----------
    a : (n, n) CuPy array, or an object with ``__dlpack__``
        float64 or float32, any strides.
    """

    name = "device-array"
    bytes_per_entry = 0

    def __init__(self, a: Any) -> None:
        self._a: Any = a if isinstance(a, cp.ndarray) else cp.from_dlpack(a)
        self.n = check_shape(self._a.shape, "the array")
        check_dtype(self._a.dtype, "the array")

    def function(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Copy the rectangle on the device, widened to float64."""
        block = self._a[rows.start : rows.stop, cols.start : cols.stop]
        if isinstance(out, np.ndarray):
            out[...] = cp.asnumpy(block)
        else:
            cp.copyto(out, block)

    def _read(self, rows: range, cols: range, out: NDArray[np.float64]) -> None:
        """Copy the rectangle to the host."""
        self.function(rows, cols, out, None)
