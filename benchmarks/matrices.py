"""An exponential covariance of places on a line, as whole rows, a file, or tile functions of the host and of GPUs."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: Rows that are made and written at once.
BAND = 512
_ENTRY = {
    "float32": ("float", "value"),
    "float64": ("double", "value"),
    "complex64": ("float2", "make_float2(value * cos(phase), value * sin(phase))"),
    "complex128": ("double2", "make_double2(value * cos(phase), value * sin(phase))"),
}
_CODE = r"""
extern "C" __global__ void line(TYPE* out, int rows, int cols, long long row0, long long col0, double range, double nugget,
                                double step)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols) {
        const double apart = (double)(row0 + r - col0 - c), phase = step * apart;
        const double value = exp(-fabs(apart) / range) + (apart == 0.0 ? nugget : 0.0);
        out[(long long)r * cols + c] = ENTRY;
    }
}
"""


class Line:
    """Entry (i, j) is ``exp(-|i - j| / range)``, plus a nugget at 0; of complex types times ``exp(1j phase (i - j))``."""

    def __init__(self, n: int, reach: float, nugget: float = 1e-2, *, dtype: str = "float64", phase: float = 0.3) -> None:
        self.n, self.reach, self.nugget, self.dtype, self.phase = n, reach, nugget, dtype, phase

    @property
    def name(self) -> str:
        """The matrix in words."""
        return f"exponential on a line, range {self.reach:g}, nugget {self.nugget:g}"

    @cached_property
    def _entries(self) -> Any:
        """Entries by ``i - j``, of n - 1 down to 1 - n; none is subnormal: these take five times as long."""
        apart = np.arange(self.n - 1, -self.n, -1, dtype=float)
        value = np.exp(np.maximum(-np.abs(apart) / self.reach, -700.0)) + self.nugget * (apart == 0.0)
        return (value * np.exp(1j * self.phase * apart) if self.dtype.startswith("complex") else value).astype(self.dtype)

    def block(self, rows: slice | range, cols: slice | range) -> Any:
        """Rows and columns of the matrix; as quick as a copy."""
        by_row = sliding_window_view(self._entries, cols.stop - cols.start)  # row k is of distances n - 1 - k on
        first = self.n - 1 + cols.start - rows.start
        return by_row[first - (rows.stop - rows.start) + 1 : first + 1][::-1]

    def rows(self) -> Any:
        """The whole matrix."""
        return np.ascontiguousarray(self.block(range(self.n), range(self.n)))

    def fill(self, rows: range, cols: range, out: Any, stream: object = None) -> None:
        """The tile function of the host."""
        out[...] = self.block(rows, cols)

    def on_device(self) -> Any:
        """The tile function in CUDA C."""
        kind, entry = _ENTRY[self.dtype]
        return tb.cuda_source(_CODE.replace("TYPE", kind).replace("ENTRY", entry), "line", self.reach, self.nugget, self.phase)

    def source(self) -> Any:
        """The matrix as tile functions of host and device."""
        return oc.from_function(self.n, self.fill, cuda=self.on_device(), dtype=self.dtype)

    def write(self, path: Path) -> Path:
        """Write the matrix to a ``.npy`` file, whose pages do not stay in the cache; nothing where it is there already."""
        if path.exists():
            return path
        beside = path.with_suffix(".unfinished")
        with beside.open("wb") as file:
            descr = np.dtype(self.dtype).newbyteorder("<").str
            np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (self.n, self.n)})
            for start in range(0, self.n, BAND):
                band = self.block(range(start, min(start + BAND, self.n)), range(self.n))
                file.write(np.ascontiguousarray(band).data)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return beside.rename(path)
