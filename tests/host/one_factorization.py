"""Covariances and others, their orders and thresholds, of which mixed precision is to factor nearly each but once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

import ooc_chol as oc
from ooc_chol.apps.geostat import morton_order
from tests.host.matrices import FAMILIES, Matrix
from tests.host.mixed_precision import measured

NB = 32
#: Room for several panels, so that products run in FP16 where that is asked for.
BUDGET = {"native": "200 KiB", "residue": "700 KiB"}
THRESHOLDS = [10.0**-digits for digits in range(3, 9)]
#: Engines, and whether products may run in FP16: what native arithmetic has no word in.
WAYS = [("native", None), ("residue", None), ("residue", True)]
ORDERS = [300, 401, 500]
#: Mean distance of neighbours over the range of correlation.
SPACINGS = [0.1, 0.5, 1.0, 5.0]
#: Their nuggets: what rational quadratic and Gaussian covariances of smooth fields need to be regular in FP64.
NUGGETS = {"exponential": 1e-6, "rational quadratic": 1e-4, "gaussian": 1e-3}


def _of_distance(kind: str, h: Matrix) -> Matrix:
    if kind == "exponential":
        return np.exp(-h)
    return np.exp(-(h**2)) if kind == "gaussian" else np.asarray((1.0 + h**2) ** -2)


def _in_space(kind: str, spacing: float, order: str, n: int) -> Matrix:
    """Sites of the unit cube, in Morton or random order."""
    sites = np.random.default_rng(n).uniform(size=(n, 3))
    sites = sites[morton_order(sites)] if order == "Morton" else sites
    return _of_distance(kind, cdist(sites, sites) * spacing * n ** (1 / 3)) + NUGGETS[kind] * np.eye(n)


def _clustered(kind: str, n: int) -> Matrix:
    """Twenty clusters, in none of which correlation fades."""
    rng = np.random.default_rng(n)
    sites = rng.uniform(size=(20, 3))[rng.integers(0, 20, n)] + 0.01 * rng.standard_normal((n, 3))
    sites = sites[morton_order(sites)]
    return _of_distance(kind, cdist(sites, sites) / 0.1) + NUGGETS[kind] * np.eye(n)


#: Arguments of :func:`_in_space`, by the name of the family.
SPACES = {
    f"{kind}, spacing {spacing:g} of the range, {order} order": (kind, spacing, order)
    for kind in ("exponential", "rational quadratic", "gaussian")
    for spacing in SPACINGS
    for order in ("Morton", "random")
}
CLUSTERED = {f"{kind}, clustered": kind for kind in ("exponential", "rational quadratic")}
NAMES = [*FAMILIES, *SPACES, *CLUSTERED]


def matrix(family: str, n: int) -> Matrix:
    """The matrix of a family and an order."""
    if family in FAMILIES:
        return FAMILIES[family](n)
    return _clustered(CLUSTERED[family], n) if family in CLUSTERED else _in_space(*SPACES[family], n)


class Case(NamedTuple):
    """One call."""

    family: str
    n: int
    threshold: float
    fp64: str
    half_products: bool | None


def cases() -> Iterator[Case]:
    """All of them, neighbours of one matrix."""
    for family in NAMES:
        for n in ORDERS:
            yield from (Case(family, n, threshold, *way) for threshold in THRESHOLDS for way in WAYS)


class Outcome(NamedTuple):
    """Outcome of a case."""

    case: Case
    steps: tuple[str, ...]
    error: float
    bound: float
    share: float


def outcomes(chosen: Iterable[Case], **options: Any) -> Iterator[Outcome]:
    """Factor each case, and measure its error."""
    known: tuple[tuple[str, int], Matrix] | None = None
    for case in chosen:
        if known is None or known[0] != case[:2]:
            known = case[:2], matrix(*case[:2])
        a = known[1]
        with oc.cholesky(
            a,
            precision_threshold=case.threshold,
            tile_size=NB,
            fp64=case.fp64,
            half_products=case.half_products,
            devices="host:0",
            memory_budget=BUDGET[case.fp64],
            **options,
        ) as factor:
            bound, report = float(factor.report.certified_bound), factor.report
            error = measured(np.asarray(factor), a, bound)
            yield Outcome(case, tuple(map(str, report.escalations)), error, bound, report.half_share or 0.0)


def table(found: Iterable[Outcome]) -> str:
    """How often each family was computed again."""
    counted = Counter(outcome.case.family for outcome in found if outcome.steps)
    return "\n".join(f"{count:4} {family}" for family, count in counted.most_common())
