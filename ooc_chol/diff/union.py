"""The entries of two patterns together, as those of a sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ooc_chol.diff.canonical import made_canonical
from ooc_chol.diff.memory import IndexArray, index_type
from ooc_chol.diff.pattern import Pattern, trusted


class Union(NamedTuple):
    """The entries of two patterns together."""

    pattern: Pattern
    from_p: IndexArray  #: Place in the union of each entry of p
    from_q: IndexArray  #: Place in the union of each entry of q


def union(p: Pattern, q: Pattern) -> Union:
    """The pattern of ``A + B``. Raises ``ValueError``: the shapes differ."""
    if p.shape != q.shape:
        raise ValueError(f"{p!r} and {q!r} cannot be added: give patterns of one shape")
    if p == q:
        same = IndexArray(np.arange(p.nnz, dtype=index_type(p.nnz)))
        return Union(p, same, same)
    starts = p.indptr.astype(np.int64) + q.indptr
    at_p = np.arange(p.nnz, dtype=np.int64) + q.indptr[p.rows]  # all entries of p of a row, then all of q
    at_q = np.arange(q.nnz, dtype=np.int64) + p.indptr[1:][q.rows]
    columns = np.empty(p.nnz + q.nnz, np.int32)
    columns[at_p], columns[at_q] = p.indices, q.indices
    merged = made_canonical(starts, columns, p.shape, f"{p.name} + {q.name}", trusted)
    kind = index_type(columns.size)
    of_entry = np.arange(columns.size, dtype=kind) if merged.merging is None else merged.merging.rows
    place = np.empty(columns.size, kind)
    place[slice(None) if merged.order is None else merged.order.host] = of_entry
    return Union(merged.pattern, IndexArray(place[at_p]), IndexArray(place[at_q]))
