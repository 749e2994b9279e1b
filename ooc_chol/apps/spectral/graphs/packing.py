"""Components, or vertices, packed by weight: which of them a part of a given weight is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]

#: Most bytes of the tables of sums that :func:`pack` keeps; beyond, components are packed largest first.
_TABLE_BYTES = 1 << 28
#: Most bits that :func:`nearest_sum` shifts in all: a second or so.
_SHIFTED_BITS = 1 << 36
#: Straddlers that are tried.
_MOST_TRIES = 64


class Way(NamedTuple):
    """How components are packed where one of them has to be split."""

    straddler: int  #: The component that is split
    sides: NDArray[np.int8]  #: (c,) 0 or 1; -1 of the straddler and of fillers
    fillers: NDArray[np.intp]  #: Light components, which fill up what the straddler leaves
    least: float  #: Weight of the straddler that side 0 must get at least
    most: float  #: And at most: every weight between them can be filled up


def grain(weights: Weights) -> float:
    """The greatest common divisor of whole weights; 0 where they are not whole."""
    if not len(weights) or weights.max() >= 2.0**53 or np.any(weights != np.rint(weights)):
        return 0.0
    return float(np.gcd.reduce(weights.astype(np.int64)))


def nearest_sum(weights: Weights, wanted: float) -> float | None:
    """The weight nearest to ``wanted`` that some of the vertices have together; None where that takes too long to find out."""
    unit = grain(weights)
    if unit == 0.0:
        return None
    scaled = np.rint(weights / unit).astype(np.int64)
    total, goal = int(scaled.sum()), wanted / unit
    if len(_complete(scaled)) == len(scaled):
        return float(np.clip(np.rint(goal), 0, total)) * unit
    items = _items(scaled)
    if len(items) * total > _SHIFTED_BITS:
        return None
    sums = 1
    for value, _, count in items:
        sums |= sums << (value * count)
    found = _nearest_bit(sums, goal, 0, total)
    assert found is not None  # nothing, and everything, can be had
    return found * unit


def pack(weights: Weights, least: float, most: float) -> NDArray[np.bool_] | None:
    """Some of the weights with a sum from ``least`` to ``most``, as near to the middle as can be; None where none is found.

    Whole weights that are small enough are searched completely, by dynamic programming; others largest first.
    """
    unit = grain(weights)
    if unit > 0.0:
        scaled = np.rint(weights / unit).astype(np.int64)
        items, total = _items(scaled), int(scaled.sum())
        if (len(items) + 1) * total <= 8 * _TABLE_BYTES:
            return _pack_whole(scaled, items, least / unit, most / unit)
    chosen = fill(weights, (least + most) / 2)
    return chosen if least <= weights[chosen].sum() <= most else _pack_upwards(weights, chosen, least, most)


def fill(weights: Weights, wanted: float) -> NDArray[np.bool_]:
    """Weights taken largest first while they fit into ``wanted``; light weights without gaps fill it to the last."""
    chosen, room = np.zeros(len(weights), bool), wanted
    for at in np.argsort(-weights, kind="stable"):
        if weights[at] <= room:
            chosen[at] = True
            room -= weights[at]
    return chosen


def ways(weights: Weights, least: float, most: float, unit: float) -> list[Way]:
    """Ways to pack components so that one straddles: first the one that largest first leaves over, then others, lightest first.

    ``unit`` is the grain of the vertices' weights, in which the straddler can be split.
    """
    middle = (least + most) / 2
    order = np.argsort(-weights, kind="stable")
    usual = _straddler(weights, order, middle)
    others = [at for at in _lightest_first(weights, order) if weights[at] != weights[usual]]
    found = [_way(weights, order, at, middle, unit) for at in (usual, *others)]
    return [way for way in found if way is not None]


def _straddler(weights: Weights, order: NDArray[np.intp], wanted: float) -> int:
    """The first component, largest first, that fits on neither side; the lightest where all of them fit."""
    rooms = [wanted, float(weights.sum()) - wanted]
    for at in order:
        side = int(rooms[1] > rooms[0])
        if weights[at] > rooms[side]:
            return int(at)
        rooms[side] -= weights[at]
    return int(order[-1])


def _lightest_first(weights: Weights, order: NDArray[np.intp]) -> list[int]:
    """One component of each weight, lightest first: of many weights some, evenly spaced."""
    _, firsts = np.unique(weights[order], return_index=True)
    return [int(order[at]) for at in firsts[:: -(-len(firsts) // _MOST_TRIES)]]


def _way(weights: Weights, order: NDArray[np.intp], straddler: int, wanted: float, unit: float) -> Way | None:
    """The other components on sides, largest first, so that the straddler fills up both; None where it is too light for that."""
    sides = np.full(len(weights), -1, np.int8)
    others = order[order != straddler]
    fillers = others[len(others) - len(_complete(np.rint(weights[others] / unit).astype(np.int64))) :] if unit else others[:0]
    rooms = [wanted, float(weights.sum()) - wanted]
    for at in others[: len(others) - len(fillers)]:
        side = int(rooms[1] > rooms[0])
        if weights[at] > rooms[side]:
            return None
        sides[at] = side
        rooms[side] -= weights[at]
    loose, own = float(weights[fillers].sum()), float(weights[straddler])
    low, high = max(0.0, rooms[0] - loose), min(own, rooms[0])
    return Way(straddler, sides, fillers, low, high) if low <= high else None


def _complete(weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lightest weights, ascending, of which every whole number up to their sum is a sum."""
    ascending = np.sort(weights)
    before = np.cumsum(ascending) - ascending
    gaps = np.flatnonzero(ascending > before + 1)
    return ascending[: gaps[0]] if len(gaps) else ascending


def _items(weights: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Weights as bundles: (weight, how many bundles before it are of that weight's members, members), in powers of two."""
    items = []
    values, counts = np.unique(weights, return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        taken, bundle = 0, 1
        while taken < count:
            members = min(bundle, count - taken)
            items.append((value, taken, members))
            taken, bundle = taken + members, 2 * bundle
    return items


def _nearest_bit(sums: int, wanted: float, least: int, most: int) -> int | None:
    """The set bit nearest to ``wanted`` from ``least`` to ``most``, the lower one of two; None where there is none."""
    middle = min(max(int(np.floor(wanted)), least), most)
    below = (sums >> least) & ((1 << (middle - least + 1)) - 1)
    above = (sums >> (middle + 1)) & ((1 << (most - middle)) - 1)
    found = []
    if below:
        found.append(least + below.bit_length() - 1)
    if above:
        found.append(middle + (above & -above).bit_length())
    return min(found, key=lambda bit: abs(bit - wanted), default=None)


def _pack_whole(
    weights: NDArray[np.int64], items: list[tuple[int, int, int]], least: float, most: float
) -> NDArray[np.bool_] | None:
    """By dynamic programming: tables of the sums that the first bundles have, and back through them."""
    low, high = max(0, int(np.ceil(least - 1e-9))), min(int(weights.sum()), int(np.floor(most + 1e-9)))
    if low > high:
        return None
    tables = [1]
    for value, _, count in items:
        tables.append(tables[-1] | (tables[-1] << (value * count)))
    rest = _nearest_bit(tables[-1], (least + most) / 2, low, high)
    if rest is None:
        return None
    members = {value: np.flatnonzero(weights == value) for value in {item[0] for item in items}}
    chosen = np.zeros(len(weights), bool)
    for (value, first, count), before in zip(reversed(items), reversed(tables[:-1]), strict=True):
        if not (before >> rest) & 1:
            chosen[members[value][first : first + count]] = True
            rest -= value * count
    return chosen


def _pack_upwards(weights: Weights, chosen: NDArray[np.bool_], least: float, most: float) -> NDArray[np.bool_] | None:
    """Vertices taken before and the lightest of the rest, where their weight is between the bounds."""
    left = np.flatnonzero(~chosen)
    if not len(left):
        return None
    more = chosen.copy()
    more[left[np.argmin(weights[left])]] = True
    return more if least <= weights[more].sum() <= most else None
