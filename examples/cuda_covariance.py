"""A covariance function of your own in CUDA C, made tile by tile on the GPU; without one the same in NumPy, on the host.

The covariance is the rational quadratic one, ``variance * (1 + h**2 / (2 alpha range**2))**-alpha``, with a nugget.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: A thread makes an entry. Points are rows of (x, y); the five first parameters are those of ``oc.toolbox.cuda_source``.
CODE = """
extern "C" __global__ void rational_quadratic(
    double* out, int rows, int cols, long long row0, long long col0,
    const double* points, double range, double alpha, double nugget)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    long long i = row0 + r, j = col0 + c;
    double dx = points[2 * i] - points[2 * j], dy = points[2 * i + 1] - points[2 * j + 1];
    double value = pow(1.0 + (dx * dx + dy * dy) / (2.0 * alpha * range * range), -alpha);
    out[(long long)r * cols + c] = value + (i == j ? nugget : 0.0);
}
"""

RANGE, ALPHA, NUGGET = 0.1, 1.5, 0.01


def covariance(points: np.ndarray) -> Any:
    """The matrix of these points as a source: never stored, each tile made where it is needed."""

    def on_host(rows: range, cols: range, out: np.ndarray, stream: Any) -> None:
        a, b = points[rows.start : rows.stop], points[cols.start : cols.stop]
        squares = (a[:, None, 0] - b[None, :, 0]) ** 2 + (a[:, None, 1] - b[None, :, 1]) ** 2
        np.power(1.0 + squares / (2.0 * ALPHA * RANGE**2), -ALPHA, out=out)
        out[np.equal.outer(np.asarray(rows), np.asarray(cols))] += NUGGET

    on_gpu = tb.cuda_source(CODE, "rational_quadratic", points, RANGE, ALPHA, NUGGET)
    return oc.from_function(len(points), on_host, cuda=on_gpu)


def main(arguments: Sequence[str] | None = None) -> None:
    """Factor the covariance matrix of random points, on a GPU where there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=20_000, help="number of points (default: 20000)")
    parser.add_argument("--memory-budget", help="memory per device, such as '4 GiB' (default: what is free)")
    options = parser.parse_args(arguments)

    problem = oc.devices().cuda_problem
    where = "a GPU runs the CUDA kernel" if problem is None else f"no GPU ({problem}); the host runs the same covariance in NumPy"
    print(where)
    points = np.random.default_rng(0).uniform(size=(options.n, 2))
    with oc.cholesky(covariance(points), memory_budget=options.memory_budget) as factor:
        print(factor.report)
        print(f"log-determinant {factor.logdet():.6f}")
        sample = factor.matmul(np.random.default_rng(1).normal(size=options.n))
    print(f"a draw from that process has variance {sample.var():.3g}")


if __name__ == "__main__":
    main()
