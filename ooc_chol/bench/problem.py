"""The matrices of the benchmarks: Matérn covariances of jittered grid points in Morton order."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, gamma
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import kv

from ooc_chol.kernels.cuda.source import CudaTileFunction, cuda_source
from ooc_chol.process.team import ThreadTeam

#: The covariance in CUDA C; one thread an entry.
CUDA_CODE = r"""
extern "C" __global__ void exponential(double* out, int rows, int cols, long long row0, long long col0,
                                       const double2* __restrict__ x, double inverse_range, double nugget)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    const double2 left = __ldg(x + i), right = __ldg(x + j);
    const double dx = left.x - right.x, dy = left.y - right.y;
    out[(long long)r * cols + c] = exp(-inverse_range * sqrt(fma(dx, dx, dy * dy))) + (i == j ? nugget : 0.0);
}

// A table has a polynomial of degree 7 for each sixteenth of a binade of h / range: exponent and leading four bits of the
// mantissa number the piece, the other 48 bits are the place in it, exactly.
extern "C" __global__ void matern(double* out, int rows, int cols, long long row0, long long col0, const double2* __restrict__ x,
                                  double inverse_range, double nugget, const double* __restrict__ table, long long first,
                                  long long pieces)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    const double2 left = __ldg(x + i), right = __ldg(x + j);
    const double dx = left.x - right.x, dy = left.y - right.y;
    const long long bits = __double_as_longlong(inverse_range * sqrt(fma(dx, dx, dy * dy)));
    const long long piece = (bits >> 48) - first;
    double value = piece < 0 ? 1.0 : 0.0;
    if (piece >= 0 && piece < pieces) {
        const double s = 0x1p-47 * (double)(bits & ((1LL << 48) - 1)) - 1.0;
        const double* p = table + 8 * piece;
        value = p[7];
        for (int k = 6; k >= 0; --k) value = fma(value, s, p[k]);
    }
    out[(long long)r * cols + c] = value + (i == j ? nugget : 0.0);
}
"""
#: Coefficients of a piece of a table, and mantissa bits that number the pieces of a binade.
_COEFFICIENTS = 8
_PIECE_BITS = 4
_PLACE_BITS = 52 - _PIECE_BITS
#: Binades of a table end here: beyond, a covariance is below 1e-111, and taken for zero.
_END_BINADE = 8


def matern(x: NDArray[np.float64], smoothness: float) -> NDArray[np.float64]:
    """The Matérn correlation ``2**(1 - nu) / gamma(nu) x**nu K_nu(x)`` at distances over the range."""
    with np.errstate(invalid="ignore", over="ignore"):
        values = 2.0 ** (1.0 - smoothness) / gamma(smoothness) * x**smoothness * kv(smoothness, x)
    return np.where(x < 2.0 ** _first_binade(smoothness), 1.0, values)


def _first_binade(smoothness: float) -> int:
    """Binade below which the correlation rounds to 1: ``1 - C(x)`` falls as ``x**min(2 nu, 2)``."""
    return -ceil(54.0 / min(2.0 * smoothness, 2.0))


@dataclass(frozen=True)
class MaternTable:
    """The Matérn correlation as polynomials, for devices that have no Bessel functions.

    ``x**nu K_nu(x)`` is smooth but at 0, so that pieces whose width grows with x need few coefficients: with 16 pieces a binade
    and polynomials of degree 7 the error is that of SciPy's ``kv``, a few 1e-15. Below the first piece it rounds to 1.
    """

    smoothness: float

    @property
    def first(self) -> int:
        """Number of the first piece: the leading 16 bits of its numbers."""
        return (1023 + _first_binade(self.smoothness)) << _PIECE_BITS

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """Polynomials in -1 <= s < 1 over each piece, shape (pieces, 8), lowest powers first."""
        nodes = np.cos(np.pi * (np.arange(_COEFFICIENTS) + 0.5) / _COEFFICIENTS)
        leading = np.arange(self.first, (1023 + _END_BINADE) << _PIECE_BITS, dtype=np.int64)
        left = (leading << _PLACE_BITS).view(np.float64)
        width = ((leading + 1) << _PLACE_BITS).view(np.float64) - left
        values = matern(left[:, None] + width[:, None] * (nodes + 1.0) / 2.0, self.smoothness)
        powers = np.vander(nodes, _COEFFICIENTS, increasing=True)
        return np.ascontiguousarray(np.linalg.solve(powers, values.T).T)

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values that the CUDA kernel computes for distances over the range, but for the rounding of its fused operations."""
        bits = np.ascontiguousarray(x, dtype=np.float64).view(np.int64)
        piece = (bits >> _PLACE_BITS) - self.first
        place = np.ldexp((bits & ((1 << _PLACE_BITS) - 1)).astype(np.float64), 1 - _PLACE_BITS) - 1.0
        inside = self.coefficients[np.clip(piece, 0, len(self.coefficients) - 1)]
        value = inside[..., -1]
        for k in range(_COEFFICIENTS - 2, -1, -1):
            value = value * place + inside[..., k]
        return np.where(piece < 0, 1.0, np.where(piece < len(self.coefficients), value, 0.0))


def _spread(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Put bit b of 16-bit numbers to position 2b."""
    spread = np.zeros_like(bits)
    for bit in range(16):
        spread |= ((bits >> np.uint64(bit)) & np.uint64(1)) << np.uint64(2 * bit)
    return spread


@dataclass(frozen=True)
class CovarianceProblem:
    """A Matérn covariance plus a nugget over n points of the unit square; at nu = 1/2 it is ``exp(-h / range)``."""

    n: int
    correlation_range: float = 0.1  #: Range of the covariance; 0.1 couples most tiles
    nugget: float = 1e-6  #: Added to the diagonal
    smoothness: float = 0.5  #: nu of the Matérn family

    def __post_init__(self) -> None:
        if not (self.correlation_range > 0.0 and self.smoothness > 0.0):
            raise ValueError(f"range {self.correlation_range} and nu {self.smoothness} of a covariance must be positive")

    @property
    def name(self) -> str:
        """Name of the matrix in result files."""
        nu = Fraction(self.smoothness).limit_denominator(1000)
        family = "exponential" if self.smoothness == 0.5 else f"Matern nu {nu}"
        return f"{family}, range {self.correlation_range}, nugget {self.nugget}, jittered grid in Morton order"

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """Points in the unit square in Morton order, shape (n, 2)."""
        side = int(np.ceil(np.sqrt(self.n)))
        grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)[: self.n]
        places = (grid + 0.5 + np.random.default_rng(0).uniform(-0.4, 0.4, grid.shape)) / side
        key = (places * 65535).astype(np.uint64)
        return np.ascontiguousarray(places[np.argsort(_spread(key[:, 0]) | (_spread(key[:, 1]) << np.uint64(1)))])

    def host_tile(self, rows: range, cols: range, out: NDArray[np.float64], stream: Any = None) -> None:
        """Fill a tile on the host, as a tile function."""
        x, y = self.points[rows.start : rows.stop], self.points[cols.start : cols.stop]
        for r0 in range(0, len(rows), 64):
            part = out[r0 : r0 + 64]
            np.subtract.outer(x[r0 : r0 + 64, 0], y[:, 0], out=part)
            other = np.subtract.outer(x[r0 : r0 + 64, 1], y[:, 1])
            np.hypot(part, other, out=part)
            if self.smoothness == 0.5:
                np.multiply(part, -1.0 / self.correlation_range, out=part)
                np.exp(part, out=part)
            else:
                part[...] = matern(part / self.correlation_range, self.smoothness)
        both = np.arange(max(rows.start, cols.start), min(rows.stop, cols.stop))
        out[both - rows.start, both - cols.start] += self.nugget

    def cuda_tile(self) -> CudaTileFunction:
        """Make the tile function for CUDA devices."""
        shared = self.points, 1.0 / self.correlation_range, self.nugget
        if self.smoothness == 0.5:
            return cuda_source(CUDA_CODE, "exponential", *shared)
        table = MaternTable(self.smoothness)
        pieces = table.coefficients
        return cuda_source(CUDA_CODE, "matern", *shared, pieces, np.int64(table.first), np.int64(len(pieces)))

    def block(self, rows: slice, cols: slice) -> NDArray[np.float64]:
        """Compute a rectangle of the matrix, as the check of the residual asks for it."""
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

        with closing(ThreadTeam(threads)) as team:
            team.map(fill, list(reversed(range(0, self.n, 1024))))
        return a
