"""Inverted diagonal blocks of diagonal tiles, kept for the TRSMs of one device on any of its streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import cupy as cp

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.tasks.operations import INVERSES

#: ``invert(stream, l_kk, address)``.
Invert: TypeAlias = Callable[[AbstractStream, Tile, int], None]


class _Place:
    """Memory for one tile's inverses: whose they are, and events behind their making and behind the last use by each stream.

    Streams that follow are behind the making already.
    """

    def __init__(self, address: int) -> None:
        self.address = address
        self.column: int | None = None
        self.maker = 0
        self.following: set[int] = set()
        self.made: Any = cp.cuda.Event(disable_timing=True)
        self.used: dict[int, Any] = {}


@final
class InvertedBlocks:
    """Inverses of the diagonal blocks of diagonal tiles; those of tile ``(k, k)`` lie in place ``k mod 24``.

    Streams wait for each other here by events: (1) who uses inverses waits for who made them; (2) who makes those of another
    column in the same place waits for all who used the old ones, unless ``reuse_is_planned``: programs through residues have
    these places as slots, and wait for who reads a slot before they write it.
    """

    def __init__(self, invert: Invert, nb: int, address: int, *, reuse_is_planned: bool = False) -> None:
        self._invert, self._reuse_is_planned = invert, reuse_is_planned
        self._places = [_Place(address + number * sizes.inverse_bytes(nb)) for number in range(INVERSES)]

    def of(self, stream: AbstractStream, l_kk: Tile, k: int) -> int:
        """Address of the inverses of ``L[k, k]`` for work on ``stream``; made now unless they are kept from an earlier call."""
        place, pointer = self._place(k), cupy_stream(stream).ptr
        if place.column != k:
            self._make(stream, place, l_kk)
            place.column, place.maker, place.following = k, pointer, {pointer}
            place.made.record(cupy_stream(stream))
        elif pointer not in place.following:
            cupy_stream(stream).wait_event(place.made)
            place.following.add(pointer)
        return place.address

    def used(self, stream: AbstractStream, k: int) -> None:
        """Note that the work on ``stream`` so far uses the inverses of column ``k``."""
        if self._reuse_is_planned:
            return
        place, pointer = self._place(k), cupy_stream(stream).ptr
        if pointer not in place.used:
            place.used[pointer] = cp.cuda.Event(disable_timing=True)
        place.used[pointer].record(cupy_stream(stream))

    def _place(self, k: int) -> _Place:
        return self._places[k % len(self._places)]

    def _make(self, stream: AbstractStream, place: _Place, l_kk: Tile) -> None:
        """Invert the diagonal blocks of ``l_kk`` once nobody uses what is in their place."""
        pointer = cupy_stream(stream).ptr
        for user, event in place.used.items():
            if user != pointer:
                cupy_stream(stream).wait_event(event)
        if place.column is not None and place.maker != pointer:  # made ahead, perhaps, and never used
            cupy_stream(stream).wait_event(place.made)
        self._invert(stream, l_kk, place.address)
