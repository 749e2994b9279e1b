"""Products of packed blocks that lie in one GPU's memory, beside cuSPARSE on the same matrix in the same run.

    python benchmarks/sparse_in_core.py --name NAME [--scales 22 25] [--repeats 5] [--block-bytes 1GiB]

R-MAT graphs of GAP's parameters, packed by ``block_csr``, multiply panels through :class:`CudaProductKernels`: as a pattern, and
with float32 and float64 values beside the same columns. cuSPARSE multiplies through CuPy: SpMV and SpMM with 8 columns, both
types. Two yardsticks: a copy on the device, and uniform gathers of rows of 8 float32 from a panel of the matrix's height. Each
scale is a result file, ``benchmarks/results/sparse/NAME-SCALE.json``, with the seconds of every repeat, means of five products.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from cupyx.scipy import sparse

import ooc_chol as oc
from ooc_chol.bench.results import commit, machine, write_json
from ooc_chol.kernels.cuda.products import CudaProductKernels
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.pack import block_csr
from ooc_chol.tasks.row_blocks import RowBlock, ValueKind

RESULTS = Path(__file__).parent / "results" / "sparse"
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


def seconds(run: Callable[[], Any], repeats: int, at_once: int = AT_ONCE) -> list[float]:
    """Seconds of one call in each repeat, by events of the device; one call before is not counted."""
    run()
    found = []
    for _ in range(repeats):
        began, ended = cp.cuda.Event(), cp.cuda.Event()
        began.record()
        for _ in range(at_once):
            run()
        ended.record()
        ended.synchronize()
        found.append(1e-3 * cp.cuda.get_elapsed_time(began, ended) / at_once)
    return found


def yardsticks(n: int, repeats: int) -> dict[str, float]:
    """TB/s of a copy, both ways counted, and uniform gathers a second of rows of 8 float32 from n rows."""
    a = cp.zeros(COPY_BYTES, cp.uint8)
    b = cp.empty_like(a)
    copy = min(seconds(lambda: cp.copyto(b, a), repeats))
    x, rounds = cp.zeros((n, 8), cp.float32), 4
    kernel = cp.RawModule(code=_GATHER, options=("--std=c++17",)).get_function("gather")
    blocks = GATHERS // (8 * rounds) * 2 // 256
    gather = min(seconds(lambda: kernel((blocks,), (256,), (x, np.uint32(n), np.uint32(rounds), x)), repeats))
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
    kernels, stream = CudaProductKernels(precision, columns, most), SimpleNamespace(stream=cp.cuda.get_current_stream())
    workspace = cp.empty(max(1, kernels.workspace_bytes(n)), cp.uint8)
    kernels.bind(n, workspace.data.ptr)
    x = cp.random.default_rng(1).random((n, columns)).astype(precision.storage)
    y = cp.empty((sum(held.block.n_rows for held in blocks), columns), precision.storage)

    def product() -> None:
        for block, data in blocks:
            kernels.multiply(stream, block, data, x, y[block.rows.start : block.rows.stop])

    return seconds(product, repeats), x, y


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
            found = seconds(lambda matrix=matrix, x=x: matrix @ x, repeats)
            print(f"  cuSPARSE {np.dtype(dtype).name}, {columns} columns: {1e3 * min(found):.4g} ms", flush=True)
            yield {"peer": "cuSPARSE", "dtype": np.dtype(dtype).name, "columns": columns, "seconds": found}
        del matrix


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="beginning of the names of the result files")
    parser.add_argument("--scales", nargs="+", type=int, default=[22, 25])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--block-bytes", default=None, help="bytes of a block; by default those of block_csr")
    given = parser.parse_args(words)
    for scale in given.scales:
        with block_csr(oc.rmat(scale, seed=1), block_bytes=given.block_bytes) as a:
            blocks = [Held(block, cp.asarray(a.tier.stored((number, 0)))) for number, block in enumerate(a.blocks.blocks)]
            n, nnz = a.shape[0], a.nnz
        print(f"R-MAT of scale {scale}: {n:,} rows, {nnz:,} entries, {len(blocks)} blocks", flush=True)
        content = {
            "case": f"{given.name}-{scale}",
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(True),
            "matrix": f"rmat({scale}, seed=1)",
            "n": n,
            "entries": nnz,
            "blocks": len(blocks),
            **yardsticks(n, given.repeats),
            "cases": list(cases(blocks, n, given.repeats)),
        }
        print(write_json(content, RESULTS / f"{given.name}-{scale}.json"), flush=True)


if __name__ == "__main__":
    main()
