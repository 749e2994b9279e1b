"""Blocks of a CSR matrix with chosen rows and kinds of values, which packing would choose by itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tests.inside.tasks import RowBlock, ValueKind


def block_of(a, rows: range, kind: ValueKind) -> tuple[RowBlock, np.ndarray]:
    """The block of some rows of a CSR matrix, and its bytes; work groups, of which the host makes no use, are left out."""
    starts = a.indptr[rows.start : rows.stop + 1].astype(np.int64)
    entries = slice(starts[0], starts[-1])
    values = a.data[entries]
    value = float(values[0]) if kind is ValueKind.PATTERN and len(values) else 1.0
    block = RowBlock(rows.start, len(rows), int(starts[-1] - starts[0]), 0, 0, kind, value, 0)
    data = np.zeros(block.nbytes + 64, np.uint8)
    data = data[-data.ctypes.data % 64 :][: block.nbytes]
    parts = block.parts(data)
    parts.starts[:] = starts - starts[0]
    parts.columns[:] = a.indices[entries]
    if kind is ValueKind.PATTERN:
        assert (values == value).all()
    else:
        parts.values[:] = values
        assert (parts.values == values).all(), "the kind does not hold the values exactly"
    return block, data


def blocks_of(a, bounds: Sequence[int], kinds: Sequence[ValueKind]) -> list[tuple[RowBlock, np.ndarray]]:
    """Blocks between ``bounds``, which take ``kinds`` in turn."""
    return [block_of(a, range(*pair), kinds[number % len(kinds)]) for number, pair in enumerate(pairwise(bounds))]
