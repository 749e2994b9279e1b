"""Products of packed blocks that lie in one GPU's memory, beside cuSPARSE on the same matrix in the same run.

R-MAT graphs of GAP's parameters, packed by ``block_csr``, multiply panels through :class:`CudaProductKernels`: as a pattern,
and with float32 and float64 values beside the same columns. cuSPARSE multiplies through CuPy: SpMV and SpMM with 8 columns,
both types. Two yardsticks: a copy on the device, and uniform gathers of rows of 8 float32 from a panel of the matrix's height.
Each scale is a result file, ``NAME-SCALE.json``, with the seconds of every repeat, means of five products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import ooc_chol as oc
from benchmarks.running import Later, Options, Parser, event_seconds
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.pack import block_csr
from ooc_chol.tasks.row_blocks import RowBlock, ValueKind

FOLDER = "sparse"
cp, sparse, products = map(Later, ("cupy", "cupyx.scipy.sparse", "ooc_chol.kernels.cuda.products"))
#: Kind of the values, precision, columns.
CASES = [
    *((ValueKind.PATTERN, Precision.FDF, columns) for columns in (1, 2, 4, 8)),
    (ValueKind.FP32, Precision.FFF, 1),
    (ValueKind.FP32, Precision.FDF, 8),
    *((ValueKind.FP64, Precision.DDD, columns) for columns in (1, 4, 8)),
]
#: Products that are timed together, bytes of the copy, and gathers of a row of 32 bytes.
AT_ONCE, COPY_BYTES, GATHERS = 5, 2 << 30, 1 << 28
_GATHER = r"""
extern "C" __global__ void gather(const float4* x, unsigned n, unsigned rounds, float* out) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (unsigned r = 0; r < rounds; ++r) {
#pragma unroll
        for (unsigned u = 0; u < 8; ++u) {
            unsigned long long z = ((unsigned long long)(thread / 2) * rounds * 8 + r * 8 + u + 1) * 0x9E3779B97F4A7C15ull;
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
            z ^= z >> 27;
            sum += x[(z >> 32) * n / 4294967296ull * 2 + thread % 2].x;
        }
    }
    if (sum == 0.5f) *out = sum;
}
"""


class Held(NamedTuple):
    """A block in the GPU's memory."""

    block: RowBlock
    data: Any


def yardsticks(n: int, repeats: int) -> dict[str, float]:
    """TB/s of a copy, both ways counted, and uniform gathers a second of rows of 8 float32 from n rows."""
    a = cp.zeros(COPY_BYTES, cp.uint8)
    b = cp.empty_like(a)
    copy = min(event_seconds(lambda: cp.copyto(b, a), repeats, AT_ONCE))
    x, rounds = cp.zeros((n, 8), cp.float32), 4
    kernel = cp.RawModule(code=_GATHER, options=("--std=c++17",)).get_function("gather")
    blocks = GATHERS // (8 * rounds) * 2 // 256
    gather = min(event_seconds(lambda: kernel((blocks,), (256,), (x, np.uint32(n), np.uint32(rounds), x)), repeats, AT_ONCE))
    return {"copy_bytes_per_second": 2 * COPY_BYTES / copy, "gathers_per_second": GATHERS / gather}


def with_values(held: Held, kind: ValueKind) -> Held:
    """The block with values of another kind, each in [1, 2), beside the same columns."""
    if kind is held.block.kind:
        return held
    block = held.block._replace(kind=kind, value=1.0)
    data = cp.empty(block.nbytes, cp.uint8)
    to, of = block.parts(data), held.block.parts(held.data)
    for into, from_ in zip(to[:3], of[:3], strict=True):
        into[...] = from_
    to.values[...] = 1 + cp.random.default_rng(block.first_row).random(block.n_entries)
    return Held(block, data)


def cusparse_matrix(blocks: Sequence[Held], shape: tuple[int, int]) -> Any:
    """All blocks as CuPy's CSR matrix of float64."""
    parts = [held.block.parts(held.data) for held in blocks]
    firsts = np.cumsum([0, *(held.block.n_entries for held in blocks)])
    starts = [part.starts[:-1].astype(cp.int64) + int(first) for part, first in zip(parts, firsts, strict=False)]
    indptr = cp.concatenate([*starts, cp.asarray(firsts[-1:])]).astype(cp.int32)
    values = cp.concatenate([part.values for part in parts])
    return sparse.csr_matrix((values, cp.concatenate([part.columns for part in parts]), indptr), shape=shape)


def measured(blocks: Sequence[Held], precision: Precision, columns: int, n: int, repeats: int) -> tuple[list[float], Any, Any]:
    """Seconds of a product, x and A x."""
    most = max(held.block.segment_places for held in blocks)
    kernels, stream = (
        products.CudaProductKernels(precision, columns, most),
        SimpleNamespace(stream=cp.cuda.get_current_stream()),
    )
    workspace = cp.empty(max(1, kernels.workspace_bytes(n)), cp.uint8)
    kernels.bind(n, workspace.data.ptr)
    x = cp.random.default_rng(1).random((n, columns)).astype(precision.storage)
    y = cp.empty((sum(held.block.n_rows for held in blocks), columns), precision.storage)

    def product() -> None:
        for block, data in blocks:
            kernels.multiply(stream, block, data, x, y[block.rows.start : block.rows.stop])

    return event_seconds(product, repeats, AT_ONCE), x, y


def cases(pattern: Sequence[Held], n: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Our products, then cuSPARSE's, each checked against cuSPARSE's in float64 where the values are those."""
    stored, blocks = ValueKind.PATTERN, pattern
    for kind, precision, columns in CASES:
        if kind is not stored:
            blocks, stored = [], kind  # the other values' memory first
            blocks = [with_values(held, kind) for held in pattern]
        found, x, y = measured(blocks, precision, columns, n, repeats)
        about = {"kind": kind.value, "precision": precision.value, "columns": columns, "seconds": found}
        if kind is ValueKind.FP64 and columns == 1:
            exact = cusparse_matrix(blocks, (n, n)) @ x[:, 0]
            about["largest_difference"] = float(cp.abs(y[:, 0] - exact).max() / exact.max())
        print(f"  {kind.value} {precision.value} b = {columns}: {1e3 * min(found):.4g} ms", flush=True)
        yield about
        del x, y
    for dtype in (np.float64, np.float32):
        matrix = cusparse_matrix(blocks, (n, n)).astype(dtype, copy=False)
        for columns in (1, 8):
            x = cp.asfortranarray(cp.random.default_rng(1).random((n, columns)).astype(dtype))
            x = x[:, 0] if columns == 1 else x
            found = event_seconds(lambda matrix=matrix, x=x: matrix @ x, repeats, AT_ONCE)
            print(f"  cuSPARSE {np.dtype(dtype).name}, {columns} columns: {1e3 * min(found):.4g} ms", flush=True)
            yield {"peer": "cuSPARSE", "dtype": np.dtype(dtype).name, "columns": columns, "seconds": found}
        del matrix


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(scales=[22, 25], repeats=5, devices="cuda:0")
    parser.add_argument("--block-bytes", help="bytes of a block (default: those of block_csr)")


def files(options: Options) -> list[str]:
    """One for each scale."""
    return [f"{options.name or 'in-core'}-{scale}" for scale in options.scales]


def run(options: Options) -> None:
    """Measure every scale, a file each."""
    for scale, name in zip(options.scales, files(options), strict=True):
        with block_csr(oc.testing.rmat(scale, seed=1), block_bytes=options.block_bytes) as a:
            blocks = [Held(block, cp.asarray(a.tier.stored((number, 0)))) for number, block in enumerate(a.blocks.blocks)]
            n, nnz = a.shape[0], a.nnz
        print(f"R-MAT of scale {scale}: {n:,} rows, {nnz:,} entries, {len(blocks)} blocks", flush=True)
        content = {
            "matrix": f"rmat({scale}, seed=1)",
            "n": n,
            "entries": nnz,
            "blocks": len(blocks),
            **yardsticks(n, options.repeats),
            "cases": list(cases(blocks, n, options.repeats)),
        }
        options.write(content, name)
