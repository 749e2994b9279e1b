"""Pairs of sites within a distance, found by a tree and given some at a time, so that memory does not grow with their number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb

#: Pairs held at once, about.
_CHUNK_PAIRS = 2**20

#: Sites whose neighbours are counted to learn how many pairs there are.
_PROBES = 256

#: Indices ``i > j`` of the sites of pairs, and their distances.
Pairs = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]


@dataclass(frozen=True)
class Direction:
    """Pairs that count by where they point.

    Parameters
    ----------
    azimuth : float
        Degrees clockwise from the second axis (from north), opposite directions being one.
    tolerance : float
        Degrees to either side, at most 90: then every pair counts.
    """

    azimuth: float
    tolerance: float = 22.5

    __repr__ = tb.brief_repr

    def __post_init__(self) -> None:
        if not math.isfinite(self.azimuth) or not 0 < self.tolerance <= 90:
            raise ValueError(f"azimuth {self.azimuth} and tolerance {self.tolerance}: a finite angle and one in (0, 90] needed")

    def selects(self, steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which ``(m, 2)`` steps from site to site point this way; those of length zero point every way."""
        angle = np.radians(self.azimuth)
        along = np.abs(steps @ np.array([math.sin(angle), math.cos(angle)]))
        bound = math.cos(math.radians(self.tolerance)) * np.hypot(steps[:, 0], steps[:, 1])
        # a pair on the bound counts, whatever its rounding
        return np.asarray(along >= bound * (1 - 1e-12))


def near_pairs(
    coordinates: NDArray[np.float64],
    reach: float,
    *,
    direction: Direction | None = None,
    origins: NDArray[np.intp] | None = None,
    is_box: bool = False,
) -> Iterator[Pairs]:
    """Pairs within ``reach``, each once, about a million at a time.

    With ``origins``, ascending indices, those of which one site or both are among them: of origins drawn at random, every pair
    comes with one probability. With ``is_box`` no coordinate differs by more than ``reach``, whatever the distance.
    """
    starts = np.arange(len(coordinates)) if origins is None else origins
    is_origin = np.zeros(len(coordinates), dtype=np.bool_)
    is_origin[starts] = True
    tree, norm = _tree(coordinates), math.inf if is_box else 2.0
    for some in _portions(tree, starts, reach, norm):
        found = _tree(coordinates[some]).sparse_distance_matrix(tree, reach, p=norm, output_type="ndarray")
        i, j, distance = some[found["i"]], found["j"].astype(np.intp), found["v"]
        # a pair of two origins is met from both
        kept = (i > j) | ~is_origin[j]
        i, j, distance = i[kept], j[kept], distance[kept]
        if direction is not None:
            kept = direction.selects(coordinates[i] - coordinates[j])
            i, j, distance = i[kept], j[kept], distance[kept]
        yield np.maximum(i, j), np.minimum(i, j), distance


def drawn_origins(
    coordinates: NDArray[np.float64], reach: float, most: int, seed: int, *, is_box: bool = False
) -> NDArray[np.intp] | None:
    """Sites of which all pairs within ``reach`` are about ``most``, drawn at random; None where all pairs are no more."""
    if most < 1:
        raise ValueError(f"max_pairs is {most}, but at least one is needed")
    n = len(coordinates)
    probes = np.random.default_rng([seed, 1]).permutation(n)[:_PROBES]
    tree, norm = _tree(coordinates), math.inf if is_box else 2.0
    neighbours = float(np.mean(tree.query_ball_point(coordinates[probes], reach, p=norm, return_length=True))) - 1.0
    pairs = 0.5 * n * neighbours
    if pairs <= most:
        return None
    # a share f of the sites as origins meets 1 - (1 - f)**2 of the pairs
    count = max(2, round(n * -math.expm1(0.5 * math.log1p(-most / pairs))))
    return np.sort(np.random.default_rng([seed, 2]).choice(n, size=count, replace=False))


def _portions(tree: Any, starts: NDArray[np.intp], reach: float, norm: float) -> Iterator[NDArray[np.intp]]:
    """Consecutive origins, neighbours on the map, whose pairs are about a chunk together."""
    if not len(starts):
        return
    # the order of the tree's leaves keeps each portion compact, which makes the search of its pairs quick
    place = np.empty(tree.n, dtype=np.intp)
    place[tree.indices] = np.arange(tree.n)
    compact = starts[np.argsort(place[starts])]
    probes = compact[:: max(1, len(compact) // _PROBES)]
    counts = tree.query_ball_point(tree.data[probes], reach, p=norm, return_length=True)
    step = max(1, int(_CHUNK_PAIRS / float(np.mean(counts))))
    for begin in range(0, len(compact), step):
        yield compact[begin : begin + step]


def _tree(coordinates: NDArray[np.float64]) -> Any:
    """A tree of sites."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree  # 0.1 s, which only variograms need

    return cKDTree(coordinates)
