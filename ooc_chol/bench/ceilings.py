"""The rates that bound a factorization: DGEMM on tiles of the same factor, and the INT8 products behind residues."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ooc_chol.dense.factor import CholeskyFactor

#: Columns of the long products of the residue engine.
PRODUCT_COLUMNS = 16384


def dgemm_tflops(factor: CholeskyFactor, devices: Sequence[str], seconds: float) -> list[float]:
    """Rate of DGEMM on two tiles of a factor away from the diagonal, on all devices at once; of one tile, on two of its parts."""
    nb = min(factor.tile_size, max(1, factor.n // 3))
    rows = factor.n // nb
    left, right = (factor.rows(range((rows - 1 - at) * nb, (rows - at) * nb), nb) for at in range(2))
    if devices[0].startswith("cuda:"):
        from ooc_chol.bench.cuda import product_rates

        return product_rates.dgemm_tflops(left, right, seconds, devices)
    out, count = np.empty((nb, nb)), 0
    np.matmul(left, right.T, out=out)
    began = time.perf_counter()
    while count < 3 or time.perf_counter() - began < seconds:
        np.matmul(left, right.T, out=out)
        count += 1
    return [2e-12 * nb**3 * count / (time.perf_counter() - began)]


def product_tflops(nb: int, moduli: int, devices: Sequence[str], seconds: float) -> list[float]:
    """FP64-equivalent rate of the INT8 products at the residue engine's shapes, on all GPUs at once."""
    from ooc_chol.bench.cuda import product_rates

    return product_rates.product_tflops(nb, PRODUCT_COLUMNS, moduli, seconds=seconds, devices=devices)
