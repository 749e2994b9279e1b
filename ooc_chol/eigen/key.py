"""Key that names a result to the bit: the contents of A, the request, the basis, the arithmetic; no device, no budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.eigen.asked import Sizes
from ooc_chol.eigen.operator_space import Product
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.memory.pages import allocate_aligned
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.key import arithmetic_facts
from ooc_chol.sparse.operator import Operator
from ooc_chol.tasks.row_blocks import RowBlock

#: Seed and columns of the vectors by whose products a matrix is known that shows nothing else of itself.
_PROBE_SEED, _PROBES = 7, 2


def arithmetic_key(
    matrix: dict[str, Any],
    wanted: Wanted,
    precision: Precision,
    sizes: Sizes,
    *,
    method: str = "lanczos",
    check: bool = True,
    degree: int | None = None,
    start: NDArray[np.float64] | None = None,
    devices: Sequence[str] = ("host:0",),
    **more: Any,
) -> dict[str, Any]:
    """All that a result of :func:`ooc_chol.eigsh` depends on, to the bit; ``more`` is of one method.

    Shapes: ``start`` (n, block).
    """
    return {
        "A": matrix,
        "k": wanted.k,
        "which": wanted.which,
        "tol": wanted.tol.hex(),
        "method": method,
        "check": check,
        "degree": "chosen" if degree is None else degree,
        "precision": precision.value,
        "block": sizes.block,
        "ncv": sizes.columns,
        "start": "random" if start is None else xxhash.xxh3_64_hexdigest(np.ascontiguousarray(start).data),
        **more,
        **arithmetic_facts(devices),
    }


def packed_key(operator: Operator) -> dict[str, Any]:
    """A packed matrix and its diagonals, by all their contents."""
    matrix = operator.matrix
    found: dict[str, Any] = {"shape": list(matrix.shape), "entries": matrix.nnz, "chunk_rows": matrix.blocks.chunk_rows}
    found["checksum"] = _contents(matrix)
    if matrix.order is not None:
        found["order"] = xxhash.xxh3_64_hexdigest(matrix.order.data)
    for name in ("left", "right", "shift"):
        part = getattr(operator, name)
        if isinstance(part, np.ndarray):
            found[name] = xxhash.xxh3_64_hexdigest(part.data)
        elif part is not None:
            found[name] = float(part).hex()
    return found


def _contents(matrix: BlockCSR) -> str:
    """A checksum of lengths of rows, columns and values, in the order of rows.

    Kinds of values count, with the rows at which they change: products with a pattern are of sums, not sums of products.
    """
    rows, columns, values = (xxhash.xxh3_64(seed=seed) for seed in range(3))
    kinds: list[tuple[int, str, str]] = []
    buffer = np.zeros(0, np.uint8)
    for number, block in enumerate(matrix.blocks.blocks):
        data = matrix.tier.stored((number, 0))
        if data is None:
            if buffer.size < block.nbytes:
                buffer = allocate_aligned(whole_pages(matrix.blocks.largest_bytes))
            data = buffer[: block.nbytes]
            matrix.tier.read_stored((number, 0), data)
        parts = block.parts(data)
        rows.update(np.diff(parts.starts).data)
        columns.update(np.ascontiguousarray(parts.columns).data)
        if parts.values is not None:
            values.update(np.ascontiguousarray(parts.values).data)
        if not kinds or kinds[-1][1:] != _kind(block):
            kinds.append((block.first_row, *_kind(block)))
    return "-".join([*(each.hexdigest() for each in (rows, columns, values)), xxhash.xxh3_64_hexdigest(repr(kinds).encode())])


def _kind(block: RowBlock) -> tuple[str, str]:
    return block.kind.value, float(block.value).hex()


def product_key(product: Product, n: int, dtype: np.dtype[Any]) -> dict[str, Any]:
    """A matrix that only multiplies, by what it makes of two random vectors."""
    made = np.asarray(product(np.random.default_rng(_PROBE_SEED).uniform(-1.0, 1.0, (n, _PROBES))), dtype=np.float64)
    return {"shape": [n, n], "dtype": dtype.name, "checksum": xxhash.xxh3_64_hexdigest(np.ascontiguousarray(made).data)}
