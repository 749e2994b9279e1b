"""The best cut that search and refinement find, and what it was chosen from."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.cutting.refine import refine_rows
from ooc_chol.apps.spectral.cutting.rows import Rows
from ooc_chol.apps.spectral.cutting.search import DEVICE_EDGES, search_cuts
from ooc_chol.apps.spectral.cutting.smoothing import resmoothed
from ooc_chol.apps.spectral.cutting.splits import Splits
from ooc_chol.apps.spectral.cutting.target import Cut, Refined, Target
from ooc_chol.apps.spectral.graphs.graph import Graph

#: The best refined cuts that are smoothed and refined again.
_SMOOTHED = 3


class Best(NamedTuple):
    """The best cut."""

    cut: Cut
    candidates: tuple[str, ...]  #: Where each cut that was refined came from, and what became of it; the best first
    notes: tuple[str, ...]  #: Sentences: where cuts were counted, passes that were ended, weights that cannot be met
    search_seconds: float
    refine_seconds: float


def best_cut(
    graph: Graph,
    vectors: NDArray[np.float64],
    target: Target,
    *,
    search: int = 60,
    refine: bool = True,
    seed: int = 0,
    devices: str | Sequence[str] | int | None = None,
    most_moves: int | None = None,
) -> Best:
    """Search the span of eigenvectors, refine all that the search comes to, smooth the best of these, and take the best.

    Raises ``ValueError``: as for :func:`search_cuts` and :func:`refine`.
    """
    started = perf_counter()
    cuts, notes = search_cuts(graph, vectors, target, search=search, seed=seed, devices=devices)
    searched = perf_counter()
    if refine:
        rows = Rows(graph)
        refined = [refine_rows(rows, one.labels, target, most_moves=most_moves) for one in cuts]
        ends = _smoothed(rows, refined, target, most_moves) if search and graph.n_edges < DEVICE_EDGES else refined
    else:
        refined = ends = [Refined(one.labels, one.cut, one.weight, 0, 0, False) for one in cuts]
    order = _ranking(ends, target)
    first, end = cuts[order[0]], ends[order[0]]
    texts = tuple(_text(cuts[i], refined[i], ends[i], refine) for i in order)
    notes += _notes(graph, target, ends, end)
    return Best(
        Cut(end.labels, end.cut, end.weight, first.how), texts, tuple(notes), searched - started, perf_counter() - searched
    )


def _ranking(ends: list[Refined], target: Target) -> list[int]:
    """Places of bisections, the best first: by balance, then by the cut, then as they came."""
    return sorted(range(len(ends)), key=lambda i: (target.excess(ends[i].weight), ends[i].cut, i))


def _smoothed(rows: Rows, refined: list[Refined], target: Target, most_moves: int | None) -> list[Refined]:
    """Refined bisections, of which the best that differ are smoothed and refined again."""
    splits, ends, seen = Splits(rows.graph, target), list(refined), set[bytes]()
    for i in _ranking(refined, target):
        key = np.packbits(refined[i].labels ^ refined[i].labels[0]).tobytes()
        if key not in seen and len(seen) < _SMOOTHED:
            seen.add(key)
            ends[i] = resmoothed(rows, splits, refined[i], most_moves=most_moves)
    return ends


def _text(cut: Cut, refined: Refined, end: Refined, is_refined: bool) -> str:
    """Text on a candidate before and after refinement."""
    text = f"{cut.how}: cut {cut.cut:g}"
    if is_refined:
        text += f", refined {refined.cut:g}"
    return text if end is refined else f"{text}, smoothed {end.cut:g}"


def _notes(graph: Graph, target: Target, ends: list[Refined], best: Refined) -> list[str]:
    """Notes on the refinement for users."""
    notes = []
    if limited := sum(one.is_limited for one in ends):
        notes.append(
            f"The limit on moves ended passes in {limited} of {len(ends)} refinements of {graph.name}; with more moves "
            "the cut may become smaller."
        )
    if target.excess(best.weight) > 0:
        notes.append(
            f"No set of vertices of {graph.name} was found that weighs {target.weight:g} to within {target.slack:g}: "
            f"part 0 weighs {best.weight:g}."
        )
    return notes
