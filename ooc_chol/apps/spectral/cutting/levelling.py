"""Parts brought to their target weights at little cost, whatever the vertices weigh."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.cutting.rows import Rows
from ooc_chol.apps.spectral.cutting.target import Target
from ooc_chol.apps.spectral.graphs.packing import grain

#: Weights that sets of moves lead to: so many are kept, or half of them, the nearest to the target. Twelve vertices have no more.
MOST_SUMS = 1 << 12
#: Vertices that may be in a set: with so many sums, some tenths of a second.
MOST_VERTICES = 400


def levelled(rows: Rows, labels: NDArray[np.int8], target: Target) -> NDArray[np.int8]:
    """Labels whose part 0 weighs as near to the target as was found, by moving vertices that cost little one by one.

    The heavier part gives away vertices by their gains as long as it stays the heavier one. Then every weight that sets of moves
    lead to is kept with its cheapest set, until one is within the slack: found for certain where ``MOST_SUMS`` hold all weights.
    """
    weights = rows.graph.vertex_weights
    over = float(weights[labels == 0].sum()) - target.weight
    enough = max(target.slack, _least_difference(weights, over))
    moved = labels.copy()
    gains, _ = rows.gains(labels)
    giving = np.flatnonzero(labels == (0 if over > 0 else 1))
    giving = giving[np.argsort(-gains[giving], kind="stable")]
    moved[giving[np.cumsum(weights[giving]) <= abs(over)]] ^= 1
    over = float(weights[moved == 0].sum()) - target.weight
    if abs(over) <= enough:
        return moved
    gains, _ = rows.gains(moved)
    # Moving a vertex of part 0 takes its weight from part 0, moving another one adds it.
    changes = np.where(moved == 0, -weights, weights)
    moved[_cheapest_set(np.argsort(-gains, kind="stable"), changes, -gains, over, enough)] ^= 1
    return moved


def _least_difference(weights: NDArray[np.float64], over: float) -> float:
    """Least difference from the target that moves can reach, by the common divisor of whole weights."""
    divisor = grain(weights)
    if not divisor:
        return 0.0
    rest = over % divisor
    return min(rest, divisor - rest)


def _cheapest_set(
    order: NDArray[np.intp], changes: NDArray[np.float64], costs: NDArray[np.float64], over: float, enough: float
) -> list[int]:
    """Vertices whose moves bring what part 0 weighs too much nearest to zero; what is near enough ends the search."""
    # Sums that sets of the first vertices lead to, what the sets cost, and which sets they grew from.
    sums, prices = np.array([over]), np.zeros(1)
    grown: list[tuple[int, int, NDArray[np.intp]]] = []
    for vertex in order[:MOST_VERTICES].tolist():
        before = len(sums)
        sums = np.concatenate([sums, sums + changes[vertex]])
        prices = np.concatenate([prices, prices + costs[vertex]])
        kept = _worth_keeping(sums, prices)
        grown.append((vertex, before, kept))
        sums, prices = sums[kept], prices[kept]
        if np.abs(sums).min() <= enough:
            break
    place = int(np.lexsort((prices, np.maximum(enough, np.abs(sums))))[0])
    found = []
    for vertex, before, kept in reversed(grown):
        is_in, place = divmod(int(kept[place]), before)
        if is_in:
            found.append(vertex)
    return found


def _worth_keeping(sums: NDArray[np.float64], prices: NDArray[np.float64]) -> NDArray[np.intp]:
    """The cheapest of equal sums; where there are too many, those nearest to zero."""
    order = np.lexsort((prices, sums))
    kept: NDArray[np.intp] = order[np.concatenate([[True], np.diff(sums[order]) > 0])]
    if len(kept) > MOST_SUMS:
        kept = kept[np.argsort(np.abs(sums[kept]), kind="stable")[: MOST_SUMS // 2]]
    return kept
