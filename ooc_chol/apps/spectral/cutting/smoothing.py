"""Cuts that are refined, smoothed and refined again: borders move further than single vertices take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.cutting.refine import refine_rows
from ooc_chol.apps.spectral.cutting.rows import Rows
from ooc_chol.apps.spectral.cutting.splits import Splits
from ooc_chol.apps.spectral.cutting.target import Refined

#: Steps of diffusion, from fine to coarse: on meshes a border becomes smooth over the square root of so many edges.
STEPS = (4, 16, 64)


def resmoothed(rows: Rows, splits: Splits, start: Refined, *, most_moves: int | None = None) -> Refined:
    """The best of a refined bisection and of those that diffusion of its labels leads to.

    Labels diffuse along the edges, vertices are split by what they have become, and refined. Each of ``STEPS`` starts at the
    best bisection so far, and what is not better is dropped.
    """
    best = start
    for steps in STEPS:
        labels, _ = splits.best(_diffused(rows, best.labels, steps)[None])
        other = refine_rows(rows, labels[0], splits.target, most_moves=most_moves)
        if (splits.target.excess(other.weight), other.cut) < (splits.target.excess(best.weight), best.cut):
            best = other
    return best


def _diffused(rows: Rows, labels: NDArray[np.int8], steps: int) -> NDArray[np.float64]:
    """Labels after steps that each take the mean of a vertex and of its neighbours."""
    places = 2.0 * labels - 1.0
    halves = 0.5 / np.where(rows.graph.degrees > 0, rows.graph.degrees, 1.0)
    for _ in range(steps):
        places = 0.5 * places + halves * (rows.graph.adjacency @ places)
    return np.asarray(places)
