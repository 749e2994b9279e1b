"""A matrix in an HDF5 file, written and read in pieces, and its factor in a file of this package: neither is ever in memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

import ooc_chol as oc

#: Rows that are written at once, and order of a chunk of the data set.
ROWS = 512


def write_matrix(path: Path, n: int) -> None:
    """Write a covariance matrix of points on a line, some rows at a time, lower triangle only: no more is read."""
    points = np.linspace(0.0, 1.0, n)
    with h5py.File(path, "w") as file:
        chunk = min(ROWS, n)
        data = file.create_dataset("covariance", (n, n), dtype="f8", chunks=(chunk, chunk))
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            block = np.exp(-np.abs(points[rows, None] - points[None, : rows.stop]) / 0.1)
            block[np.arange(len(block)), np.arange(start, rows.stop)] += 0.01
            data[rows, : rows.stop] = block


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the matrix, factor it out of core into a file, and solve with what is in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000, help="order of the matrix (default: 10000)")
    parser.add_argument("--memory-budget", default="100 MiB", help="memory for tiles (default: 100 MiB)")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files go (default: here)")
    options = parser.parse_args(arguments)

    matrix, store = options.folder / "covariance.h5", options.folder / "covariance.factor"
    write_matrix(matrix, options.n)
    with h5py.File(matrix) as file, oc.cholesky(file["covariance"], memory_budget=options.memory_budget, store=store) as factor:
        print(factor.report)

    with oc.load(store) as factor, h5py.File(matrix) as file:  # any time later, in any process
        x = factor.solve(np.ones(options.n))
        row = file["covariance"][-1]  # the last row is whole in the lower triangle
        print(f"log-determinant {factor.logdet():.6f}; last equation is off by {abs(row @ x - 1.0):.2g}")
    print(f"{matrix}: {matrix.stat().st_size / 1e6:.3g} MB; {store}: {store.stat().st_size / 1e6:.3g} MB")


if __name__ == "__main__":
    main()
