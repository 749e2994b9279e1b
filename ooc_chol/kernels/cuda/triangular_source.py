"""The numbers of the triangular kernels, and their CUDA C. Needs no CuPy."""

from __future__ import annotations

from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.modules import code

#: Rows of a strip that one thread block computes, columns of K in a stage, stages in flight, threads of a block.
ROWS, DEPTH, STAGES, THREADS = 64, 16, 3, 256
#: Order of the blocks that one warp factors; a quarter of a diagonal block.
SMALL = sizes.TRSM_BLOCK // 4
#: Entries behind each row in shared memory: half a warp then reads sixteen different pairs of banks.
PADDING = 4
_PRODUCT_BYTES = 8 * (STAGES * (ROWS + sizes.TRSM_BLOCK) * (DEPTH + PADDING) + ROWS * (sizes.TRSM_BLOCK + PADDING))
#: A diagonal block and its inverse, rows one entry longer.
_SQUARES_BYTES = 8 * 2 * sizes.TRSM_BLOCK * (sizes.TRSM_BLOCK + 1)
#: Bytes of shared memory of each kernel.
SHARED_BYTES = {"trsm": _PRODUCT_BYTES, "invert_blocks": _SQUARES_BYTES, "potrf": max(_PRODUCT_BYTES, _SQUARES_BYTES)}
#: The kernels' files, each using those before it.
FILES = ("strips.cu", "triangular.cu", "potrf.cu")
#: Most thread blocks of POTRF, which wait for each other: two of them fit on a multiprocessor, and every GPU has room for them.
POTRF_BLOCKS = 64


def source() -> str:
    """CUDA C of the kernels: their numbers as macros, then the files, each of which uses those before it."""
    numbers = {
        "BLOCK": sizes.TRSM_BLOCK,
        "ROWS": ROWS,
        "DEPTH": DEPTH,
        "STAGES": STAGES,
        "THREADS": THREADS,
        "PADDING": PADDING,
        "SMALL": SMALL,
    }
    return code(*FILES, **numbers)


def potrf_blocks(n: int) -> int:
    """Thread blocks of POTRF at order ``n``: one for the diagonal, and one for each strip below the first block."""
    return 1 + min(POTRF_BLOCKS - 1, -(-max(0, n - sizes.TRSM_BLOCK) // ROWS))
