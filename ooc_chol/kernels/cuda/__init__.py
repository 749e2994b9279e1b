"""The tile kernels of CUDA devices. This module imports without CuPy; :mod:`.tiles` needs it."""

from __future__ import annotations

#: Order of the diagonal blocks that TRSM inverts: 31.9 TFLOP/s at tiles of 4096 on an H200, 30.0 with blocks of 512.
TRSM_BLOCK = 256
#: Diagonal tiles whose inverted blocks are kept: more than the columns of a wide panel, of which each row uses all in turn.
INVERSES_KEPT = 24
#: Longest K of one product: cuBLAS sums K in one accumulator, whose rounding errors grow with it. At order 16384 (Matérn 2.5,
#: nugget 1e-11) the residual is 2.3 times LAPACK's with K = 2048 and 1.8 times with K = 1024, which costs 3.7 % of the rate.
K_SEGMENT = 1024
#: Strips of rows in which a diagonal tile is updated, so that 9/16 of the square is computed: 49.5 TFLOP/s at tiles of 4096 on
#: an H200, 47.8 with four strips.
SYRK_PARTS = 8
#: Bytes of cuBLAS's own workspace; NVIDIA's recommendation for Hopper.
CUBLAS_WORKSPACE_BYTES = 32 << 20


def _aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to 4096."""
    return -(-nbytes // 4096) * 4096


def syrk_flops(n: int, inner: int) -> int:
    """Flops executed by SYRK in strips: each up to and including its diagonal block, whose upper half is computed in vain."""
    part = -(-n // SYRK_PARTS)
    return sum(2 * min(part, n - r0) * min(n, r0 + part) * inner for r0 in range(0, n, part))


def trsm_flops(rows: int, nb: int, largest: int) -> int:
    """Flops executed by TRSM with inverted blocks: the updates, and three square products a block."""
    block = trsm_block(largest)
    widths = [(c0, min(block, nb - c0)) for c0 in range(0, nb, block)]
    return sum(2 * rows * width * (c0 + 3 * width) for c0, width in widths)


def trsm_block(nb: int) -> int:
    """Order of the inverted blocks at tile order ``nb``."""
    return min(nb, TRSM_BLOCK)


def inverse_bytes(nb: int) -> int:
    """Bytes of the inverted diagonal blocks of one tile."""
    block = trsm_block(nb)
    return _aligned(8 * -(-nb // block) * block * block)


def strip_bytes(nb: int) -> int:
    """Bytes of one block column of a tile: TRSM's product before it is refined."""
    return _aligned(8 * nb * trsm_block(nb))


def potrf_workspace_bytes() -> int:
    """Bytes kept for cuSOLVER's POTRF at any tile order; checked when the device is opened (it asks for 384)."""
    return 1 << 20


def workspace_bytes(nb: int) -> int:
    """Bytes of all workspace of one device at tile order ``nb``, inside its budget."""
    return CUBLAS_WORKSPACE_BYTES + potrf_workspace_bytes() + INVERSES_KEPT * inverse_bytes(nb) + strip_bytes(nb)
