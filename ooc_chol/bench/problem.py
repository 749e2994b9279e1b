"""The matrices of the benchmarks: exponential covariances of jittered grid points in Morton order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.kernels.cuda.source import CudaTileFunction, cuda_source

#: The covariance in CUDA C; one thread an entry.
CUDA_CODE = r"""
extern "C" __global__ void exponential(double* out, int rows, int cols, long long row0, long long col0,
                                       const double* x, double range, double nugget)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    const double dx = x[2 * i] - x[2 * j], dy = x[2 * i + 1] - x[2 * j + 1];
    out[(long long)r * cols + c] = exp(-sqrt(dx * dx + dy * dy) / range) + (i == j ? nugget : 0.0);
}
"""


def _spread(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Put bit b of 16-bit numbers to position 2b."""
    spread = np.zeros_like(bits)
    for bit in range(16):
        spread |= ((bits >> np.uint64(bit)) & np.uint64(1)) << np.uint64(2 * bit)
    return spread


@dataclass(frozen=True)
class CovarianceProblem:
    """``exp(-h / range)`` plus a nugget over n points of the unit square.

    Parameters
    ----------
    n : int
        Order.
    correlation_range : float
        Range of the covariance; 0.1 couples most tiles.
    nugget : float
        Added to the diagonal.
    """

    n: int
    correlation_range: float = 0.1
    nugget: float = 1e-6

    @property
    def name(self) -> str:
        """The matrix, for result files."""
        return f"exponential, range {self.correlation_range}, nugget {self.nugget}, jittered grid in Morton order"

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """Places, shape (n, 2)."""
        side = int(np.ceil(np.sqrt(self.n)))
        grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)[: self.n]
        places = (grid + 0.5 + np.random.default_rng(0).uniform(-0.4, 0.4, grid.shape)) / side
        key = (places * 65535).astype(np.uint64)
        return np.ascontiguousarray(places[np.argsort(_spread(key[:, 0]) | (_spread(key[:, 1]) << np.uint64(1)))])

    def host_tile(self, rows: range, cols: range, out: NDArray[np.float64], stream: Any = None) -> None:
        """Tile function on the host."""
        x, y = self.points[rows.start : rows.stop], self.points[cols.start : cols.stop]
        for r0 in range(0, len(rows), 64):
            part = out[r0 : r0 + 64]
            np.subtract.outer(x[r0 : r0 + 64, 0], y[:, 0], out=part)
            other = np.subtract.outer(x[r0 : r0 + 64, 1], y[:, 1])
            np.hypot(part, other, out=part)
            np.multiply(part, -1.0 / self.correlation_range, out=part)
            np.exp(part, out=part)
        both = np.arange(max(rows.start, cols.start), min(rows.stop, cols.stop))
        out[both - rows.start, both - cols.start] += self.nugget

    def cuda_tile(self) -> CudaTileFunction:
        """Tile function on CUDA devices."""
        return cuda_source(CUDA_CODE, "exponential", self.points, self.correlation_range, self.nugget)

    def block(self, rows: slice, cols: slice) -> NDArray[np.float64]:
        """A rectangle, for the residual check."""
        out = np.empty((rows.stop - rows.start, cols.stop - cols.start))
        self.host_tile(range(rows.start, rows.stop), range(cols.start, cols.stop), out)
        return out

    def array(self, threads: int) -> NDArray[np.float64]:
        """The lower triangle as a dense array, made by several threads; NaN above the diagonal blocks of 1024 rows."""
        a = np.full((self.n, self.n), np.nan)

        def fill(r0: int) -> None:
            r1 = min(self.n, r0 + 1024)
            out = np.empty((r1 - r0, r1))
            self.host_tile(range(r0, r1), range(r1), out)
            a[r0:r1, :r1] = out

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, reversed(range(0, self.n, 1024))))
        return a
