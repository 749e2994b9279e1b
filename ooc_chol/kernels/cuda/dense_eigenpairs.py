"""All eigenpairs of one dense symmetric matrix on a CUDA device: cuSOLVER's divide and conquer, through CuPy."""

from __future__ import annotations

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.cuda import device_number


def dense_eigenpairs(name: str, a: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues, ascending, and eigenvectors in columns; its memory on the device is given back."""
    with cp.cuda.Device(device_number(name)):
        values, vectors = cp.linalg.eigh(cp.asarray(a))
        found = cp.asnumpy(values), cp.asnumpy(vectors)
        del values, vectors
        cp.get_default_memory_pool().free_all_blocks()
    return found
