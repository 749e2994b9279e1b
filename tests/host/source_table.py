"""A matrix in every form in which it may come on the host, LAPACK's factor of it, and the check that all of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

import ooc_chol as oc
from tests.host.matrices import Matrix, exponential, sites
from tests.tolerances import factor_norm_bound

#: Makes a source, in a folder of its own.
MakeSource = Callable[[Path, int], Any]

#: How a factorization computes.
ARITHMETIC: dict[str, dict[str, Any]] = {
    "native": {"fp64": "native"},
    "residue": {"fp64": "residue"},
    "mixed": {"precision_threshold": 1e-7},
}


@cache
def matrix(n: int) -> Matrix:
    """A covariance matrix of condition 1e4 at most, which float32 holds exactly; read-only."""
    places = sites(n)
    exact = exponential(cdist(places, places) / 0.1) + 1e-2 * np.eye(n)
    rounded = exact.astype(np.float32).astype(np.float64)
    rounded.flags.writeable = False
    return rounded


@cache
def lapack(n: int) -> Matrix:
    """LAPACK's factor."""
    return scipy.linalg.cholesky(matrix(n), lower=True)


def check(factor: oc.CholeskyFactor, threshold: float | None) -> None:
    """Within twice LAPACK's residual, or within the bound and the threshold; and close to LAPACK's factor entry by entry."""
    n = factor.n
    a, ours, reference = matrix(n), np.asarray(factor), lapack(n)
    norm, residual, lapacks = (float(np.linalg.norm(x)) for x in (a, a - ours @ ours.T, a - reference @ reference.T))
    if threshold is None:
        assert residual <= factor_norm_bound(n, lapacks, norm)
    else:
        assert residual <= float(factor.report.certified_bound) * norm <= threshold * norm
    # A perturbation E of A moves L by about ||inv(L)|| ||E|| (Sun 1991); inv(L) has norm 10 here.
    assert np.abs(ours - reference).max() <= 20 * max(residual, lapacks)


def _path(folder: Path, n: int, order: str = "C") -> Path:
    np.save(folder / "a.npy", np.array(matrix(n), order=order))
    return folder / "a.npy"


def _part(folder: Path, n: int) -> Matrix:
    np.save(folder / "larger.npy", np.pad(matrix(n), ((3, 2), (5, 1)), constant_values=7.0))
    return np.load(folder / "larger.npy", mmap_mode="r")[3:-2, 5:-1]


def _h5py(folder: Path, n: int) -> Any:
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        file["a"] = matrix(n)
    return h5py.File(folder / "a.h5")["a"]


def _zarr(folder: Path, n: int) -> Any:
    import zarr

    array = zarr.create_array(store=str(folder / "a.zarr"), shape=(n, n), chunks=(100, 100), dtype="float64")
    array[:] = matrix(n)
    return zarr.open_array(str(folder / "a.zarr"), mode="r")


def _function(_: Path, n: int) -> Any:
    def tile_fn(rows: range, cols: range, out: Any, stream: Any) -> None:
        block = matrix(n)[rows.start : rows.stop, cols.start : cols.stop]
        if isinstance(out, np.ndarray):
            out[...] = block
        else:
            import cupy as cp

            out[...] = cp.asarray(np.ascontiguousarray(block))

    return oc.from_function(n, tile_fn)


def _wrong_above(_: Path, n: int) -> Matrix:
    a = matrix(n).copy()
    a[np.triu_indices(n, 1)] = np.nan
    return a


#: Every form on the host, but for those of packages that GPUs are used with.
HOST_SOURCES: dict[str, MakeSource] = {
    "numpy C": lambda _, n: matrix(n),
    "numpy F": lambda _, n: np.asfortranarray(matrix(n)),
    "numpy strided": lambda _, n: np.repeat(matrix(n), 2, axis=1)[:, ::2],
    "numpy reversed": lambda _, n: np.ascontiguousarray(matrix(n)[::-1, ::-1])[::-1, ::-1],
    "numpy float32": lambda _, n: matrix(n).astype(np.float32),
    "numpy, wrong above the diagonal": _wrong_above,
    "npy": _path,
    "npy F": lambda folder, n: _path(folder, n, "F"),
    "memmap": lambda folder, n: np.load(_path(folder, n), mmap_mode="r"),
    "part of a memmap": _part,
    "h5py": _h5py,
    "zarr": _zarr,
    "function": _function,
}
