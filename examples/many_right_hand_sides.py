"""One factor, many systems of equations: all columns at once read the factor once, a loop reads it once for each."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import ooc_chol as oc

#: Columns that the loop solves for, from which the time of all is reckoned.
LOOPED = 5


def kernel_matrix(n: int) -> np.ndarray:
    """A covariance matrix of points on a line, well conditioned by a nugget."""
    points = np.linspace(0.0, 1.0, n)
    a = np.exp(-np.abs(points[:, None] - points[None, :]) / 0.1)
    a[np.diag_indices(n)] += 0.01
    return a


def main(arguments: Sequence[str] | None = None) -> None:
    """Factor once, solve for all columns, and say how exact and how fast that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=8000, help="order of the matrix (default: 8000)")
    parser.add_argument("--columns", type=int, default=1000, help="number of right-hand sides (default: 1000)")
    parser.add_argument("--memory-budget", help="memory per device, such as '100 MiB' (default: what is free)")
    options = parser.parse_args(arguments)

    a = kernel_matrix(options.n)
    b = np.random.default_rng(0).normal(size=(options.n, options.columns))
    with oc.cholesky(a, memory_budget=options.memory_budget) as factor:
        print(factor.report)
        start = time.perf_counter()
        x = factor.solve(b)
        together = time.perf_counter() - start
        start = time.perf_counter()
        for column in b.T[:LOOPED]:
            factor.solve(column)
        one = (time.perf_counter() - start) / min(LOOPED, options.columns)
    residual = np.linalg.norm(a @ x - b) / (np.linalg.norm(a) * np.linalg.norm(x))
    print(f"{options.columns} columns at once: {together:.3g} s; one by one they would take {options.columns * one:.3g} s")
    print(f"residual ||A X - B|| / (||A|| ||X||): {residual:.2g}")


if __name__ == "__main__":
    main()
