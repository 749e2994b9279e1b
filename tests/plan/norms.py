"""Norms of tiles, made without a matrix."""

from __future__ import annotations

import numpy as np

from tests.inside.precision import MatrixNorms
from tests.inside.tasks import TileGrid


def norms_of(grid: TileGrid, tiles, *, traces=None, least=1.0, largest=1.0) -> MatrixNorms:
    """Norms with plain diagonals unless told otherwise."""

    def rows(values) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, dtype=float), grid.nt).copy()

    traces = [grid.size(i) for i in range(grid.nt)] if traces is None else traces
    return MatrixNorms(grid, np.asarray(tiles, dtype=float), rows(traces), rows(least), rows(largest))


#: ``||A||_F`` is 4, and ``nt ||A_10|| / ||A||_F`` is 1: formats change where the threshold is a unit roundoff.
EXACT = norms_of(TileGrid(8, 4), [2.0, 2.0, 2.0])
