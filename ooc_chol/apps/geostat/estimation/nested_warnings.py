"""Check whether nested structures can be told apart by the data: from each other, and from the nugget."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, cross_covariance
from ooc_chol.apps.geostat.covariances.nested import RATIO, Nested

#: Correlations of two structures that differ by less than this between all sites are those of one.
_SAME = 0.05

#: A structure with less correlation than this between neighbours, at all but so few of the sites, is a nugget.
_NONE = 0.05
_FEW = 0.05

#: Sites between which structures are compared.
_SITES = 300


def structure_warnings(model: AbstractCovariance, sites: NDArray[np.float64]) -> tuple[str, ...]:
    """Say which structures of a sum are as good as one, or as good as a nugget, at these sites."""
    if not isinstance(model, Nested):
        return ()
    sample = sites[np.unique(np.linspace(0, len(sites) - 1, min(len(sites), _SITES)).astype(int))]
    of_sample = [cross_covariance(_correlation(component), sample, sample) for component in model.components]
    texts: list[str] = []
    for (i, first), (j, second) in combinations(enumerate(of_sample, 1), 2):
        gap = float(np.abs(first - second).max())
        if gap < _SAME:
            texts.append(
                f"structures {i} and {j} are as good as one: their correlations differ by at most {gap:.2g} between the sites, "
                "so that their shares of the variance are not determined; fit one structure less"
            )
    for number, component in enumerate(model.components, 1):
        share = float(np.mean(_neighbour_correlations(component, sites) > _NONE))
        if share < _FEW:
            texts.append(
                f"structure {number} is as good as a nugget: only {100 * share:.2g} % of the sites have a correlation above "
                f"{_NONE:g} by it with their nearest neighbours; fit one structure less"
            )
    return tuple(texts)


def ratio_bound_text(name: str, side: str) -> str:
    """Say that a ratio of variances is at a bound of the search."""
    number = name.removeprefix(RATIO)
    nothing, other = (number, "1") if side == "lower" else ("1", number)
    return (
        f"{name} is at the {side} bound of the search: structure {nothing} is nothing beside structure {other}, and its range "
        "and shape are not determined; fit one structure less"
    )


def _correlation(component: AbstractCovariance) -> AbstractCovariance:
    """The component with variance 1."""
    return component.with_values(variance=1.0)


def _neighbour_correlations(component: AbstractCovariance, sites: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlation of each site with the one that compares nearest."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree  # 0.1 s, which only fits of sums need

    places = component.comparable_sites(sites)
    nearest = cKDTree(places).query(places, k=2)[1][:, 1]
    a, b = np.ascontiguousarray(sites.T)[:, :, None], np.ascontiguousarray(sites[nearest].T)[:, :, None]
    out = np.empty((len(sites), 1, 1))
    _correlation(component).fill(a, b, out)
    return out.ravel()
