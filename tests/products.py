"""Products of parameters and examples, thinned: all of them are met with ``--thorough`` and the profile of that name."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest


def pairwise(first: Sequence[Any], second: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
    """All combinations of these values, for ``parametrize``; marked ``thorough`` unless needed for a pair of values."""
    values = (first, second, *others)
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
    pairs = {place: set(itertools.combinations(enumerate(place), 2)) for place in places}
    missing, chosen, come = set().union(*pairs.values()), set(), Counter[tuple[int, int]]()
    while missing:
        new = {place: len(pairs[place] & missing) for place in places}
        most = max(new.values())
        # Of equals the one whose numbers have come least often, so that no value rests on few combinations.
        best = min(
            (place for place in places if new[place] == most), key=lambda place: sum(come[each] for each in enumerate(place))
        )
        chosen.add(best)
        missing -= pairs[best]
        come.update(enumerate(best))
    return chosen
