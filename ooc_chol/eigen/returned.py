"""The pairs that a run ended with, on their way to the caller."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.lanczos import Found
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.process.team import ThreadTeam, cores

#: Rows that a thread takes at once.
_ROWS = 1 << 20


def normalize(vectors: NDArray[Any]) -> None:
    """Divide each column of an (n, k) array by its norm, summed in float64 over parts of the rows in their order, by threads."""
    n = len(vectors)
    parts = [vectors[at : at + _ROWS] for at in range(0, n, _ROWS)]
    with closing(ThreadTeam(cores() if len(parts) > 1 else 1)) as team:
        squares = team.map(lambda part: np.einsum("ij,ij->j", part, part, dtype=np.float64), parts)
        norms = np.maximum(np.sqrt(np.sum(squares, axis=0)), np.finfo(np.float64).tiny)
        team.run([partial(np.divide, part, norms, out=part, casting="same_kind") for part in parts])


def ascending(found: Found, vectors: NDArray[Any]) -> tuple[Found, NDArray[Any]]:
    """Pairs on the host in ascending order."""
    order = np.argsort(found.values, kind="stable")
    if np.array_equal(order, np.arange(len(order))):
        return found, vectors
    found = replace(found, values=found.values[order], residuals=found.residuals[order])
    return found, np.ascontiguousarray(vectors[:, order])


def returned(space: AbstractSpace, found: Found) -> tuple[Found, NDArray[Any]]:
    """Pairs in ascending order, their vectors (n, k) in the type of storage; the first panels of the space are spoilt.

    Vectors are put in order where they lie: on the host each pass over n k numbers takes longer than a product with A.
    """
    count, block = len(found.values), space.block
    order, panels = np.argsort(found.values, kind="stable"), range(-(-count // block))
    if not np.array_equal(order, np.arange(count)):
        moved = np.eye(len(panels) * block)
        moved[:, :count] = moved[:, order]
        space.rotate(panels, moved, panels)
    vectors = space.take(panels, count, space.precision.storage)
    return replace(found, values=found.values[order], residuals=found.residuals[order]), vectors
