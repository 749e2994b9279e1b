"""Vertices numbered by degree: hubs adjacent, so that what products gather of them stays in a cache, and dealt to stripes.

Most entries of a graph whose degrees follow a power law are in the columns of few vertices. Numbered one behind the other, these
share lines of a cache. But then a few chunks of rows would have most entries, too, and devices share rows in whole chunks. So
rows are divided into :data:`STRIPES` stripes of whole chunks, and vertices dealt to them in turn, those of most entries first:
each stripe has about as many entries as any other, and 2, 3, 4, 6, 8, 12 or 24 devices equal shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ooc_chol.tasks.row_blocks import CHUNK_ROWS

#: Runs of chunks, each numbered by descending degree; fewer where there are fewer chunks.
STRIPES = 24
#: Multiples of it, without their whole parts, are spread evenly, however many there are.
_GOLDEN = 0.6180339887498949


class Deal(NamedTuple):
    """Which vertices one stripe gets: those of some ranks by degree, in their order."""

    ranks: slice
    numbers: slice  #: In the new numbering


def deals(n: int, chunk_rows: int = CHUNK_ROWS, stripes: int = STRIPES) -> Iterator[Deal]:
    """How vertices in the order of their degrees are dealt to stripes: one at a time to each that has room left."""
    n_chunks = -(-n // chunk_rows)
    count = max(1, min(stripes, n_chunks))
    ends = [*(n_chunks * number // count * chunk_rows for number in range(count)), n]
    in_turn = _spread(count)
    firsts = [ends[number] for number in in_turn]
    sizes = [ends[number + 1] - ends[number] for number in in_turn]
    rank = dealt = 0
    for size in sorted(set(sizes)):
        open_ones = [first for first, own in zip(firsts, sizes, strict=True) if own >= size]
        step, stop = len(open_ones), rank + (size - dealt) * len(open_ones)
        for number, first in enumerate(open_ones):
            if size > dealt:
                yield Deal(slice(rank + number, stop, step), slice(first + dealt, first + size, 1))
        rank, dealt = stop, size


def _spread(count: int) -> list[int]:
    """Numbers below ``count`` such that any part of them has about its share of the first ones: so hubs are dealt to devices."""
    places = [number * _GOLDEN % 1 for number in range(count)]
    ascending = sorted(places)
    return [ascending.index(place) for place in places]


def dealt(by_degree: Any, out: Any, chunk_rows: int = CHUNK_ROWS, stripes: int = STRIPES) -> None:
    """Deal vertices to stripes: ``out[number]`` becomes the vertex that has that number."""
    for deal in deals(len(by_degree), chunk_rows, stripes):
        out[deal.numbers] = by_degree[deal.ranks]
