"""Residue kernels of a GPU on their own, and arrays for them."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from tests.inside.precision import FP64

#: Rows and columns of tiles.
SHAPES = [(1, 1), (5, 3), (97, 130), (16, 1021), (300, 516), (257, 2048)]
#: Rows, columns and K of products.
PRODUCT_SHAPES = [
    *((1, 1, 16), (16, 8, 16), (97, 130, 48), (128, 256, 128), (129, 257, 144), (512, 256, 2048), (300, 1000, 640)),
    *((2048, 4096, 2048), (2032, 2064, 4096), (64, 8192, 32768), (3, 20, 65536)),
]
#: What lies around a view, and must stay.
GUARD = 77


@contextmanager
def cuda_kernels(moduli, diagonal, streams=1, fmt=FP64, units="int8"):
    """Kernels for tiles of one format whose rows have the given diagonal entries, and streams to run them on."""
    import cupy as cp

    from tests.inside.kernels import CUBLAS_WORKSPACE_BYTES, BlasHandle, CudaResidueKernels

    workspaces = [cp.cuda.Memory(CUBLAS_WORKSPACE_BYTES) for _ in range(streams)]
    blas = BlasHandle([memory.ptr for memory in workspaces])
    kernels = CudaResidueKernels(moduli, fmt, units=units)
    kernels.bind(blas)
    kernels.open(len(diagonal))
    opened = [SimpleNamespace(name=f"test {i}", stream=cp.cuda.Stream(non_blocking=True)) for i in range(streams)]
    tile = on_device(np.diag(diagonal).astype(fmt.dtype))
    kernels.set_diagonal(opened[0], 0, tile)
    opened[0].stream.synchronize()
    try:
        yield kernels, opened
    finally:
        cp.cuda.Device().synchronize()
        kernels.close()
        blas.close()


def on_device(array):
    import cupy as cp

    copy = cp.asarray(array)
    cp.cuda.Device().synchronize()  # the streams under test do not wait for the default stream
    return copy


def flagged(kernels, stream):
    kernels.copy_back(stream)
    stream.stream.synchronize()
    return kernels.flagged_row()


def strips(rng, planes, rows, inner):
    """Random residues, with room for orders rounded up to multiples of 16."""
    return rng.integers(-128, 128, (planes, -(-rows // 16) * 16, inner + 32), dtype=np.int8)


def random_residues(rng, shape):
    import cupy as cp

    return cp.asarray(rng.integers(-128, 128, shape, dtype=np.int8))
