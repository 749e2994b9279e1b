"""The tile kernels of CUDA devices. This module imports without CuPy; :mod:`.tiles` needs it."""

from __future__ import annotations

from ooc_chol.config import whole_pages
from ooc_chol.tasks.operations import INVERSES

#: Order of the diagonal blocks that TRSM inverts.
TRSM_BLOCK = 64
#: Lengths of the products' segments of K from the first column of the matrix on. cuBLAS sums a segment from zero in one
#: accumulator and subtracts it at the end, so that its rounding errors are those of the partial sum; for smooth covariances that
#: reaches the size of A_ij within the first columns, and is small from there on.
FIRST_SEGMENTS: tuple[int, ...] = (512,) * 8
#: Length of all later segments of K, in columns.
K_SEGMENT = 4096
#: Streams of one device that multiply in native FP64: the long sweeps, and what makes tiles final.
NATIVE_STREAMS = 2
#: Streams of one device that multiply when products run through residues: sweeps, and three that finish rows.
RESIDUE_STREAMS = 4
#: Strips of rows in which a diagonal tile is updated, so that 9/16 of the square is computed: 49.5 TFLOP/s at tiles of 4096 on
#: an H200, 47.8 with four strips.
SYRK_PARTS = 8
#: Compute capability of GPUs whose products through residues run in a kernel of our own (residue_products.cu), that of Hopper.
FOLDING_CAPABILITY = (9, 0)
#: Bytes of cuBLAS's own workspace; NVIDIA's recommendation for Hopper.
CUBLAS_WORKSPACE_BYTES = 32 << 20
#: What the address of a workspace of cuBLAS is a multiple of.
CUBLAS_ALIGNMENT = 256

#: Largest orders that cuSOLVER factors as one tile: of matrices that lie on the device and whose L stays there, and of others,
#: which copies of tiles beside the computation serve better.
MOST_WHOLE_HERE, MOST_WHOLE = 16384, 4096


def whole_bytes(n: int, itemsize: int = 8) -> int:
    """Bytes of a matrix that is one tile, with cuSOLVER's workspace, which is a few hundred columns."""
    return whole_pages(itemsize * n * (n + 512) + CUBLAS_WORKSPACE_BYTES)


def k_segments(k0: int, length: int) -> list[tuple[int, int]]:
    """First columns, counted from ``k0``, and lengths of the segments of a product.

    >>> k_segments(0, 600), k_segments(4096, 4096)
    ([(0, 512), (512, 88)], [(0, 4096)])
    """
    segments, at = [], k0
    while at < k0 + length:
        end = min(_segment_end(at), k0 + length)
        segments.append((at - k0, end - at))
        at = end
    return segments


def _segment_end(column: int) -> int:
    """First column behind the segment that ``column`` is in."""
    end = 0
    for segment in FIRST_SEGMENTS:
        end += segment
        if column < end:
            return end
    return end + ((column - end) // K_SEGMENT + 1) * K_SEGMENT


def segments_text() -> str:
    """The segments of K as the arithmetic key writes them."""
    return f"K by {', '.join(map(str, FIRST_SEGMENTS))}, then {K_SEGMENT}"


def syrk_flops(n: int, inner: int) -> int:
    """Flops executed by SYRK in strips: each up to and including its diagonal block, whose upper half is computed in vain."""
    part = -(-n // SYRK_PARTS)
    return sum(2 * min(part, n - r0) * min(n, r0 + part) * inner for r0 in range(0, n, part))


def trsm_flops(rows: int, nb: int) -> int:
    """Flops executed by TRSM with inverted blocks: the updates, and three square products a block."""
    widths = [(c0, min(TRSM_BLOCK, nb - c0)) for c0 in range(0, nb, TRSM_BLOCK)]
    return sum(2 * rows * width * (c0 + 3 * width) for c0, width in widths)


def inverse_bytes(nb: int) -> int:
    """Bytes of the inverted diagonal blocks of one tile."""
    return whole_pages(8 * -(-nb // TRSM_BLOCK) * TRSM_BLOCK * TRSM_BLOCK)


def potrf_inverses_bytes() -> int:
    """Bytes of the inverses that POTRF makes for itself: of two diagonal blocks in turn."""
    return 2 * 8 * TRSM_BLOCK * TRSM_BLOCK


def potrf_workspace_bytes() -> int:
    """Bytes of POTRF's workspace at any tile order: the inverses, and two counters of thread blocks."""
    return whole_pages(potrf_inverses_bytes() + 8)


def stream_bytes() -> int:
    """Bytes of workspace of one stream: cuBLAS's and POTRF's."""
    return CUBLAS_WORKSPACE_BYTES + potrf_workspace_bytes()


def workspace_bytes(nb: int, streams: int = NATIVE_STREAMS) -> int:
    """Bytes of all workspace of one device at tile order ``nb`` when so many streams multiply, inside its budget."""
    return streams * stream_bytes() + INVERSES * inverse_bytes(nb)


def typed_workspace_bytes(streams: int = NATIVE_STREAMS) -> int:
    """Bytes of all workspace of one device for tiles of another type than float64: cuBLAS's, and what aligns it."""
    return streams * CUBLAS_WORKSPACE_BYTES + CUBLAS_ALIGNMENT
