"""Packed blocks with work groups that end where a test wants, in a GPU's memory, and products of them by the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import scipy.sparse

from tests.inside.kernels import AbstractProductKernels
from tests.inside.tasks import GROUP_ENTRIES, GROUP_ROWS, SEGMENT_ENTRIES, RowBlock, ValueKind

PATTERN, INT8, FP32, FP64 = ValueKind
N_COLUMNS = 20_000
#: Lengths at which another number of lanes adds a row, or another way of cutting it begins, and those beside them.
TURNS = sorted(
    {length + by for length in (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192) for by in (-1, 0, 1)} - {-1}
)
#: Values that a kind holds, and that narrower ones do not.
VALUES = {
    PATTERN: lambda rng, count: np.full(count, 0.1),
    INT8: lambda rng, count: rng.integers(-128, 128, count).astype(float),
    FP32: lambda rng, count: rng.standard_normal(count).astype(np.float32).astype(float),
    FP64: lambda rng, count: rng.standard_normal(count),
}


def matrix(lengths, n_columns, kind, seed=0):
    """A CSR matrix whose rows have these lengths, of random columns."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(n_columns, length, replace=False)) for length in lengths]
    indices = np.concatenate([np.empty(0, np.int32), *columns]).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return scipy.sparse.csr_array((VALUES[kind](rng, len(indices)), indices, starts), shape=(len(lengths), n_columns))


def panel(rows, columns, precision, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(precision.storage)


def lengths_of_all_sorts(short=3000, seed=2):
    """Every turn of the kernels, most rows short as in graphs, long runs of empty ones."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([TURNS, TURNS, rng.integers(0, 6, short), rng.integers(0, 100, 300), rng.integers(0, 3000, 20)])
    return np.concatenate([np.zeros(5000, int), rng.permutation(lengths), np.zeros(3, int)])


def group_starts(starts, ends_early=None):
    """Groups of a block as pairs (row, entry), and how many are segments; ``ends_early(row)`` ends one before it must end."""
    pairs, n_segments, row, n_rows = [], 0, 0, len(starts) - 1
    while row < n_rows:
        first, length = int(starts[row]), int(starts[row + 1] - starts[row])
        if length > GROUP_ENTRIES:
            segments = range(first, first + length, SEGMENT_ENTRIES)
            pairs += [(row, at) for at in segments]
            n_segments += len(segments)
            row += 1
            continue
        pairs.append((row, first))
        row += 1
        while row < n_rows and row - pairs[-1][0] < GROUP_ROWS and starts[row + 1] - first <= GROUP_ENTRIES:
            if ends_early is not None and ends_early(row):
                break
            row += 1
    return [*pairs, (n_rows, int(starts[-1]))], n_segments


def device_block(a, rows, kind, ends_early=None):
    """The block of some rows of a CSR matrix with its work groups, and its bytes on the current GPU."""
    import cupy as cp

    starts = a.indptr[rows.start : rows.stop + 1].astype(np.int64)
    entries, starts = slice(starts[0], starts[-1]), starts - starts[0]
    table, n_segments = group_starts(starts, ends_early)
    values = a.data[entries]
    value = float(values[0]) if kind is ValueKind.PATTERN and len(values) else 1.0
    block = RowBlock(rows.start, len(rows), int(starts[-1]), len(table) - 1, n_segments, kind, value, 0)
    whole = np.zeros(block.nbytes, np.uint8)
    parts = block.parts(whole)
    parts.starts[:], parts.groups[:], parts.columns[:] = starts, table, a.indices[entries]
    if kind is ValueKind.PATTERN:
        assert (values == value).all()
    else:
        parts.values[:] = values
        assert (parts.values == values).all(), "the kind does not hold the values exactly"
    return block, cp.asarray(whole)


@contextmanager
def opened(precision, columns, most_segments) -> Iterator[tuple[AbstractProductKernels, SimpleNamespace]]:
    """Kernels bound to a workspace on the current GPU that is full of NaN, and a stream."""
    import cupy as cp

    from tests.inside.kernels import CudaProductKernels

    kernels = CudaProductKernels(precision, columns, most_segments)
    workspace = cp.full(max(1, kernels.workspace_bytes(1)), 0xFF, np.uint8)
    cp.cuda.Device().synchronize()
    kernels.bind(1, workspace.data.ptr)
    stream = SimpleNamespace(stream=cp.cuda.Stream(non_blocking=True))
    yield kernels, stream
    stream.stream.synchronize()
    kernels.close()


def product(blocks, x, precision, *, y=None, left=1.0, shift=0.0):
    """What the kernels make of all blocks, which cover the rows, and one panel."""
    import cupy as cp

    n_rows = sum(block.n_rows for block, _ in blocks)
    out = cp.asarray(np.full((n_rows, x.shape[1]), np.nan, precision.storage) if y is None else y)
    panel, (left, shift) = cp.asarray(x), (part if isinstance(part, float) else cp.asarray(part) for part in (left, shift))
    most = max((block.segment_places for block, _ in blocks), default=0)
    with opened(precision, x.shape[1], most) as (kernels, stream):
        cp.cuda.Device().synchronize()
        kernels.prepare(stream, panel)
        for block, data in blocks:
            rows = slice(block.rows.start, block.rows.stop)
            of_rows = [part if isinstance(part, float) else part[rows] for part in (left, shift)]
            kernels.multiply(stream, block, data, panel, out[rows], left=of_rows[0], shift=of_rows[1])
        stream.stream.synchronize()
    return out.get()
