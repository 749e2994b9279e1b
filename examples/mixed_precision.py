"""Mixed precision: tiles in FP32, FP16 and FP8 where a threshold allows it, and what is certified of the error."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import ooc_chol as oc


def weakly_correlated(n: int) -> np.ndarray:
    """An exponential covariance matrix of points on a line whose far tiles are small: these may be narrow."""
    points = np.linspace(0.0, 1.0, n)
    return np.exp(-np.abs(points[:, None] - points[None, :]) / 0.02) + 1e-3 * np.eye(n)


def main(arguments: Sequence[str] | None = None) -> None:
    """Factor in FP64 and in mixed precision, and compare bytes, errors and log-determinants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=8000, help="order of the matrix (default: 8000)")
    parser.add_argument("--threshold", type=float, default=1e-6, help="most of ||A - L L.T|| / ||A|| (default: 1e-6)")
    parser.add_argument("--tile-size", type=int, default=256, help="order of a tile (default: 256)")
    options = parser.parse_args(arguments)

    a = weakly_correlated(options.n)
    with oc.cholesky(a, tile_size=options.tile_size) as exact:
        logdet, whole = exact.logdet(), exact.report.plan.stored_bytes

    with oc.cholesky(a, precision_threshold=options.threshold, tile_size=options.tile_size) as factor:
        report, bound = factor.report, factor.report.certified_bound
        print(report)
        print(f"bytes of L         {report.plan.stored_bytes / 1e6:.4g} MB in mixed precision, {whole / 1e6:.4g} MB in FP64")
        print(f"certified          ||A - L L.T||_F / ||A||_F is at most {bound.total:.3g}; {options.threshold:g} was asked for")
        lower = np.tril(np.asarray(factor))
        print(f"measured           {np.linalg.norm(a - lower @ lower.T) / np.linalg.norm(a):.3g}")
        print(f"log-determinant    {factor.logdet():.8g} in mixed precision, {logdet:.8g} in FP64")
        b = np.ones(options.n)
        for name, x in (("solve", factor.solve(b)), ("refine", factor.solve(b, refine=True))):
            print(f"residual of {name:6s} {np.linalg.norm(a @ x - b) / np.linalg.norm(b):.2g}")


if __name__ == "__main__":
    main()
