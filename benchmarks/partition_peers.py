"""Bisections of one graph by one partitioner: what ``partitions.py`` runs, each in a process of its own."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps import spectral
from ooc_chol.apps.spectral.graphs.graph import Graph

#: A partitioner that is ready to run: what it returns are labels, and what is known of them besides.
Ready = Callable[[], tuple[NDArray[Any], dict[str, Any]]]


class How(NamedTuple):
    """What a bisection is asked for."""

    seed: int
    threads: int
    balance: float  #: By how much a part may be heavier than half, as a share of it


def ours(graph: Graph, how: How) -> Ready:
    """``spectral.bisect`` with all defaults but for the balance, on the host."""

    def run() -> tuple[NDArray[Any], dict[str, Any]]:
        found = spectral.bisect(graph, balance=how.balance, seed=how.seed, devices="host:0")
        report = found.report.to_dict()
        facts = {name: report[name] for name in ("method", "passes", "components")}
        parts = {"solve_seconds": "eigenpairs", "search_seconds": "search", "refine_seconds": "refinement"}
        facts |= {name: found.report.seconds.parts[part] for name, part in parts.items()}
        facts |= {"eigenvalues": found.eigenvalues.tolist(), "residuals": found.residuals.tolist()}
        return found.labels, facts

    return run


def pymetis(graph: Graph, how: How) -> Ready:
    """METIS by recursive bisection, which takes an imbalance in thousandths, and none below one."""
    import pymetis

    a = graph.adjacency
    weights: dict[str, Any] = {"adjacency": pymetis.CSRAdjacency(a.indptr.tolist(), a.indices.tolist())}
    if not graph.has_unit_edges:
        weights["eweights"] = a.data.astype(int).tolist()
    if not graph.has_unit_vertices:
        weights["vweights"] = graph.vertex_weights.astype(int).tolist()
    options = pymetis.Options(ufactor=max(1, round(1000 * how.balance)), seed=how.seed)
    return lambda: (np.array(pymetis.part_graph(2, recursive=True, options=options, **weights).vertex_part), {})


def _kahip(graph: Graph, how: How, mode: str) -> Ready:
    """KaHIP in one of its modes."""
    import kahip

    a = graph.adjacency
    lists = (graph.vertex_weights.astype(int), a.indptr, a.data.astype(int), a.indices)
    words = [each.tolist() for each in lists]
    return lambda: (np.array(kahip.kaffpa(*words, 2, how.balance, True, how.seed, getattr(kahip, mode))[1]), {})


def mtkahypar(graph: Graph, how: How) -> Ready:
    """Mt-KaHyPar, its default preset."""
    import mtkahypar

    mtk = mtkahypar.initialize(how.threads, print_warnings=False)
    mtkahypar.set_seed(how.seed)
    context = mtk.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(2, how.balance, mtkahypar.Objective.CUT)
    context.logging = False
    upper = graph.adjacency.tocoo()
    once = upper.row < upper.col
    edges = list(zip(upper.row[once].tolist(), upper.col[once].tolist(), strict=True))
    weights = graph.vertex_weights.astype(int).tolist(), upper.data[once].astype(int).tolist()
    made = mtk.create_graph(context, graph.n, len(edges), edges, *weights)
    return lambda: (np.array(made.partition(context).get_partition()), {})


def _sklearn(graph: Graph, how: How, solver: str) -> Ready:
    """scikit-learn's spectral clustering into two: it has no balance, and takes the largest component's for granted."""
    from sklearn.cluster import SpectralClustering

    made = SpectralClustering(2, affinity="precomputed", eigen_solver=solver, random_state=how.seed, assign_labels="kmeans")
    a = graph.adjacency.astype(np.float64)
    a.indices, a.indptr = a.indices.astype(np.int32), a.indptr.astype(np.int32)
    return lambda: (np.array(made.fit_predict(a)), {})


#: Partitioners by name, with the package that each needs.
PARTITIONERS: dict[str, tuple[str, Callable[[Graph, How], Ready]]] = {
    "ooc_chol": ("numpy", ours),
    "METIS": ("pymetis", pymetis),
    "KaHIP eco": ("kahip", lambda graph, how: _kahip(graph, how, "ECO")),
    "KaHIP strong": ("kahip", lambda graph, how: _kahip(graph, how, "STRONG")),
    "Mt-KaHyPar": ("mtkahypar", mtkahypar),
    "scikit-learn arpack": ("sklearn", lambda graph, how: _sklearn(graph, how, "arpack")),
    "scikit-learn lobpcg": ("sklearn", lambda graph, how: _sklearn(graph, how, "lobpcg")),
    "scikit-learn amg": ("sklearn", lambda graph, how: _sklearn(graph, how, "amg")),
}
#: Those that a seed makes no difference to, but for the start of k-means: one run is enough.
SAME_FOR_ANY_SEED = frozenset(name for name in PARTITIONERS if name.startswith("scikit-learn"))


def installed() -> list[str]:
    """Partitioners whose packages are there."""
    return [name for name, (package, _) in PARTITIONERS.items() if importlib.util.find_spec(package) is not None]


def ready(name: str, graph: Graph, how: How) -> Ready:
    """A partitioner with the graph in its own form."""
    random.seed(how.seed)
    return PARTITIONERS[name][1](graph, how)
