"""The length over which most sites are spread, whatever a distant site or several clusters do to the extent of all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb

#: Sites are of several scales where their diameter is so many times that of as many, spread evenly, with their near distances.
_SEVERAL_SCALES = 1e4

#: Empty gaps that are left between sites of several scales, in extents of most.
_GAP = 4.0

#: Sites whose nearest neighbours tell how near neighbours are.
_SAMPLE = 4000

#: Nearest sites that are looked at for one at another place.
_LOOKED_AT = 8

_Array = NDArray[np.float64]


def diameter(sites: _Array) -> float:
    """Diagonal of the bounding box."""
    return float(np.linalg.norm(np.ptp(sites, axis=0)))


def search_extent(sites: _Array) -> float:
    """The length whose shares are tried first: the diameter, unless a distant site or several clusters make that none of most."""
    whole, (near, count) = diameter(sites), near_distance(sites)
    even = near * count ** (1.0 / sites.shape[1])
    return even if whole > _SEVERAL_SCALES * even else whole


def near_distance(sites: _Array) -> tuple[float, int]:
    """Median distance of a site to the nearest at another place, and of how many sites."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree  # 0.03 s

    sample = sites[np.linspace(0, len(sites) - 1, min(len(sites), _SAMPLE)).astype(np.intp)]
    distances = cKDTree(sites).query(sample, k=np.arange(1, min(len(sites), _LOOKED_AT) + 1))[0]
    near = float(np.median(np.where(distances > 0.0, distances, np.inf).min(axis=1)))
    if np.isfinite(near):
        return near, len(sites)
    # more sites at most places than were looked at
    places = np.unique(sites, axis=0)
    return (0.0, 1) if len(places) < 2 else near_distance(places)


def closed_up(sites: _Array) -> _Array:
    """The sites; of several scales with the wide empty gaps along each axis narrowed, so that few bits tell all apart."""
    extent = search_extent(sites)
    if extent == diameter(sites):
        return sites
    found = np.empty_like(sites)
    for place, axis in enumerate(sites.T):
        order = np.argsort(axis, kind="stable")
        gaps = np.diff(axis[order], prepend=axis[order[0]])
        excess = np.cumsum(np.where(gaps > _GAP * extent, gaps - _GAP * extent, 0.0))
        found[order, place] = axis[order] - excess
    return found
