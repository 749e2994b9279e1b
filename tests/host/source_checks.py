"""What a factor of the matrix of the table of sources must pass, and what the source must still be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
from tests.host.source_table import NUGGET, MakeSource, Matrix, is_single, lapack, matrix
from tests.inside.memory import FunctionSource
from tests.tolerances import factor_norm_bound, logdet_bound, product_bound, solve_bound


def check(factor: oc.CholeskyFactor, threshold: float | None, name: str = "") -> None:
    """Within twice LAPACK's residual, or the bound and the threshold; L close to LAPACK's; and all uses right to as much.

    ``name`` is that of the form in which the matrix came.
    """
    n = factor.n
    a, ours, reference = matrix(n, is_single(name)), np.asarray(factor), lapack(n, is_single(name))
    norm, residual, lapacks = (float(np.linalg.norm(x)) for x in (a, a - ours @ ours.T, a - reference @ reference.T))
    if threshold is None:
        assert residual <= factor_norm_bound(n, lapacks, norm)
    else:
        # Beside the bound what float64 makes of this residual, which is exact for no order.
        assert residual <= float(factor.report.certified_bound) * norm + lapacks
        assert float(factor.report.certified_bound) <= threshold
    # A perturbation E of A moves L by about ||inv(L)|| ||E|| (Sun 1991); inv(L) has norm 10 at most here.
    assert np.abs(ours - reference).max() <= 20 * max(residual, lapacks)
    _check_solves(factor, a, residual)
    _check_values(factor, ours, reference, residual + lapacks)


def _check_solves(factor: oc.CholeskyFactor, a: Matrix, residual: float) -> None:
    """Solutions for one and many right-hand sides, to the residual of the factor."""
    b = np.random.default_rng(factor.n).standard_normal((factor.n, 40))  # enough for a solve on a GPU
    for right in (b, b[:, 0]):
        x = factor.solve(right)
        assert x.shape == right.shape
        size = float(np.linalg.norm(x))
        bound = residual * size + solve_bound(factor.n, float(np.linalg.norm(a)), size)
        assert np.linalg.norm(right - a @ x) <= bound


def _check_values(factor: oc.CholeskyFactor, ours: Matrix, reference: Matrix, error: float) -> None:
    """Log-determinant, to the residuals of both factors together; diagonal; and products."""
    assert np.array_equal(factor.diagonal(), np.diagonal(ours))
    expected = 2 * float(np.log(np.diagonal(reference)).sum())
    assert abs(factor.logdet() - expected) <= logdet_bound(np.diagonal(reference), error, np.sqrt(factor.n) / NUGGET)
    z = np.random.default_rng(factor.n).standard_normal((factor.n, 2))
    assert np.all(np.abs(factor.matmul(z) - ours @ z) <= 2 * product_bound(ours, z))


def check_unchanged(a: Any, make: MakeSource, folder: Path, n: int) -> None:
    """``a`` holds what a source made anew does, bit for bit: also above the diagonal, and beside it in memory."""
    folder.mkdir()
    assert contents(a) == contents(make(folder, n))


def contents(a: Any) -> bytes:
    """All bytes of a matrix in whatever form; none for what is computed."""
    if isinstance(a, FunctionSource):
        return b""
    if isinstance(a, str | Path):
        return Path(a).read_bytes()
    if isinstance(a, np.ndarray):
        while isinstance(a.base, np.ndarray):
            a = a.base
        if a.dtype == object:
            a = a.astype(np.float64)  # not the addresses of the objects
        return np.asarray(a).tobytes("A")
    if isinstance(a, list):
        return np.asarray(a).tobytes()
    if hasattr(a, "to_numpy") and not hasattr(a, "dtype"):
        return bytes(np.ascontiguousarray(a.to_numpy()).tobytes())
    if hasattr(a, "__dlpack_device__"):
        return _of_device(a)
    return np.asarray(a[:, :]).tobytes()


def _of_device(a: Any) -> bytes:
    """The bytes of what hands its memory over by DLPack, on the host or on a GPU."""
    if a.__dlpack_device__()[0] == 1:
        return np.from_dlpack(a).tobytes()
    import cupy as cp

    a = a if isinstance(a, cp.ndarray) else cp.from_dlpack(a)
    with a.device:
        cp.cuda.Device().synchronize()
        return bytes(cp.asnumpy(a).tobytes())
