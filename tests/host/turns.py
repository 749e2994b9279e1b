"""Combinations in turn: fewer than those of all pairs, where no value need meet every value of another parameter."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def in_turn(first: Iterable[Any], *others: Sequence[Any], each: int = 1) -> list[Any]:
    """All combinations, for ``parametrize``; of each value of ``first`` all but ``each`` of them are marked ``thorough``.

    Those of the usual run are the ones whose other values, and pairs of them, have come least often before.
    """
    places = list(itertools.product(*(range(len(values)) for values in others)))
    come, cases = Counter[Any](), []
    for value in first:
        usual = _least_often(places, come, each)
        for place in places:
            rest = (values[number] for values, number in zip(others, place, strict=True))
            cases.append(pytest.param(value, *rest, marks=() if place in usual else pytest.mark.thorough))
    return cases


def _least_often(places: Sequence[tuple[int, ...]], come: Counter[Any], count: int) -> set[tuple[int, ...]]:
    """``count`` of these places, one after the other, each counted in ``come``."""
    chosen: set[tuple[int, ...]] = set()
    for _ in range(min(count, len(places))):
        best = min(
            (place for place in places if place not in chosen), key=lambda place: sum(come[part] for part in _parts(place))
        )
        chosen.add(best)
        come.update(_parts(best))
    return chosen


def _parts(place: tuple[int, ...]) -> list[Any]:
    """Each number with its position, and each pair of these."""
    single = list(enumerate(place))
    return [*single, *itertools.combinations(single, 2)]
