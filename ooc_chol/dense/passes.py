"""Names of passes over the tiles of A or L in a trace."""

from __future__ import annotations

from ooc_chol.interfaces import BlockIndex
from ooc_chol.runtime.passes import BlockNames, Pass, Track

#: Streams of passes over L: the one that computes, and the one that brings tiles.
COMPUTES, COPIES = "solve", "solve copy-in"


def _final_version(index: BlockIndex) -> int:
    """Updates of a tile of L, one for each tile column before it, and its own step."""
    return index[1] + 1


_TILES_OF_L = BlockNames("L", "store", copying=(COPIES,), version=_final_version)
_TILES_OF_A = BlockNames("A", "source", copying=(COPIES,))


def track_of_l(run: Pass, device: str) -> Track:
    """Track of ``device`` for a pass over the tiles of L."""
    return run.track(device, _TILES_OF_L)


def track_of_a(run: Pass, device: str) -> Track:
    """Track of ``device`` for a pass over the tiles of A."""
    return run.track(device, _TILES_OF_A)
