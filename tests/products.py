"""Products of parameters and examples, thinned: all of them are met with ``--thorough`` and the profile of that name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest

Combination = tuple[Any, ...]


def pairwise(*values: Sequence[Any]) -> list[Any]:
    """All combinations of ``values``, for ``pytest.mark.parametrize``; marked ``thorough`` unless needed for a pair of values."""
    places = list(itertools.product(*(range(len(each)) for each in values)))
    needed = _covering(places)
    return [
        pytest.param(*(each[number] for each, number in zip(values, place, strict=True)), marks=_marks(place in needed))
        for place in places
    ]


def thorough(*values: Any) -> list[Any]:
    """Values of one parameter that the usual run leaves out."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


def share_of_examples(share: float) -> hypothesis.settings:
    """So much of the examples of the profile, where each is dear."""
    return hypothesis.settings(max_examples=max(1, int(share * hypothesis.settings().max_examples)))


def _marks(is_needed: bool) -> tuple[Any, ...]:
    return () if is_needed else (pytest.mark.thorough,)


def _covering(places: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Some of ``places`` in which every pair of numbers at two positions occurs: each time one with the most new pairs."""
    missing, chosen = set().union(*map(_pairs, places)), set()
    while missing:
        # Of equals the one whose numbers have come least often, so that no value rests on few combinations.
        best = max(places, key=lambda place: (len(_pairs(place) & missing), -sum(_common(place, other) for other in chosen)))
        chosen.add(best)
        missing -= _pairs(best)
    return chosen


def _pairs(place: tuple[int, ...]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    return set(itertools.combinations(enumerate(place), 2))


def _common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return sum(one == other for one, other in zip(left, right, strict=True))
