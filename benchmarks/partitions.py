"""Bisections of graphs by this package, METIS, KaHIP, Mt-KaHyPar and scikit-learn: cut, imbalance and seconds of each.

FOLDER holds graphs in METIS format (``.graph``, ``.graph.gz``), such as those of Walshaw's archive. Every bisection has a
process of its own, with a time limit; importing, reading the graph and giving it to a partitioner in the form
that this takes are not counted. All are asked for two parts of equal weight, or at most ``--balance`` more; METIS takes 1.001
at least, and scikit-learn none. Cuts and weights are counted here. Seconds are of the wall and of the processor, all threads
together.
"""

from __future__ import annotations

import importlib.util
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array, eye_array, kron

from benchmarks.running import Options, Parser, apart, both_seconds, markdown, versions
from ooc_chol.apps import spectral
from ooc_chol.apps.spectral.graphs.graph import Graph

#: A partitioner that is ready to run: what it returns are labels, and what is known of them besides.
Ready = Callable[[], tuple[NDArray[Any], dict[str, Any]]]


class How(NamedTuple):
    """Arguments of a partition."""

    seed: int
    threads: int
    balance: float  #: By how much a part may be heavier than an even one, as a share of it
    n_parts: int = 2


def ours(graph: Graph, how: How) -> Ready:
    """``spectral.partition`` with all defaults but for the balance, on the host."""

    def run() -> tuple[NDArray[Any], dict[str, Any]]:
        found = spectral.partition(graph, how.n_parts, balance=how.balance, seed=how.seed, devices="host:0")
        report = found.report.to_dict()
        facts = {name: report[name] for name in ("method", "passes", "components")}
        parts = {"solve_seconds": "eigenpairs", "search_seconds": "search", "refine_seconds": "refinement"}
        facts |= {name: found.report.seconds.parts[part] for name, part in parts.items()}
        facts |= {"eigenvalues": found.eigenvalues.tolist(), "residuals": found.residuals.tolist()}
        return found.labels, facts

    return run


def pymetis(graph: Graph, how: How, *, recursive: bool = True) -> Ready:
    """METIS, which takes an imbalance in thousandths, and none below one."""
    import pymetis

    a = graph.adjacency
    weights: dict[str, Any] = {"adjacency": pymetis.CSRAdjacency(a.indptr.tolist(), a.indices.tolist())}
    if not graph.has_unit_edges:
        weights["eweights"] = a.data.astype(int).tolist()
    if not graph.has_unit_vertices:
        weights["vweights"] = graph.vertex_weights.astype(int).tolist()
    options = pymetis.Options(ufactor=max(1, round(1000 * how.balance)), seed=how.seed)
    return lambda: (np.array(pymetis.part_graph(how.n_parts, recursive=recursive, options=options, **weights).vertex_part), {})


def _kahip(graph: Graph, how: How, mode: str) -> Ready:
    """KaHIP in one of its modes."""
    import kahip

    a = graph.adjacency
    lists = (graph.vertex_weights.astype(int), a.indptr, a.data.astype(int), a.indices)
    words = [each.tolist() for each in lists]
    return lambda: (np.array(kahip.kaffpa(*words, how.n_parts, how.balance, True, how.seed, getattr(kahip, mode))[1]), {})


def mtkahypar(graph: Graph, how: How) -> Ready:
    """Mt-KaHyPar, its default preset."""
    import mtkahypar

    mtk = mtkahypar.initialize(how.threads, print_warnings=False)
    mtkahypar.set_seed(how.seed)
    context = mtk.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(how.n_parts, how.balance, mtkahypar.Objective.CUT)
    context.logging = False
    upper = graph.adjacency.tocoo()
    once = upper.row < upper.col
    edges = list(zip(upper.row[once].tolist(), upper.col[once].tolist(), strict=True))
    weights = graph.vertex_weights.astype(int).tolist(), upper.data[once].astype(int).tolist()
    made = mtk.create_graph(context, graph.n, len(edges), edges, *weights)
    return lambda: (np.array(made.partition(context).get_partition()), {})


def _sklearn(graph: Graph, how: How, solver: str) -> Ready:
    """scikit-learn's spectral clustering: it has no balance, and takes the largest component's for granted."""
    from sklearn.cluster import SpectralClustering

    made = SpectralClustering(
        how.n_parts, affinity="precomputed", eigen_solver=solver, random_state=how.seed, assign_labels="kmeans"
    )
    a = graph.adjacency.astype(np.float64)
    a.indices, a.indptr = a.indices.astype(np.int32), a.indptr.astype(np.int32)
    return lambda: (np.array(made.fit_predict(a)), {})


#: Partitioners by name, with the package that each needs.
PARTITIONERS: dict[str, tuple[str, Callable[[Graph, How], Ready]]] = {
    "ooc_chol": ("numpy", ours),
    "METIS": ("pymetis", pymetis),
    "METIS k-way": ("pymetis", partial(pymetis, recursive=False)),
    "KaHIP eco": ("kahip", lambda graph, how: _kahip(graph, how, "ECO")),
    "KaHIP strong": ("kahip", lambda graph, how: _kahip(graph, how, "STRONG")),
    "Mt-KaHyPar": ("mtkahypar", mtkahypar),
    "scikit-learn arpack": ("sklearn", lambda graph, how: _sklearn(graph, how, "arpack")),
    "scikit-learn lobpcg": ("sklearn", lambda graph, how: _sklearn(graph, how, "lobpcg")),
    "scikit-learn amg": ("sklearn", lambda graph, how: _sklearn(graph, how, "amg")),
}
#: Those that a seed makes no difference to, but for the start of k-means: one run is enough.
SAME_FOR_ANY_SEED = frozenset(name for name in PARTITIONERS if name.startswith("scikit-learn"))

#: Those that pages leave out: their parts are not in balance.
IN_THE_FILE_ALONE = frozenset(name for name in PARTITIONERS if name.startswith("scikit-learn"))
#: Graphs that ``host-uneven.json`` has, and the page in words; they count in the ratio.
MEASURED_SINCE = frozenset(["add20", "memplus"])


def installed() -> list[str]:
    """Partitioners whose packages are there."""
    return [name for name, (package, _) in PARTITIONERS.items() if importlib.util.find_spec(package) is not None]


def ready(name: str, graph: Graph, how: How) -> Ready:
    """A partitioner with the graph in its own form."""
    random.seed(how.seed)
    return PARTITIONERS[name][1](graph, how)


FOLDER, NAME = "spectral", "host-walshaw"
_PACKAGES = ("numpy", "scipy", "pyamg", "pymetis", "kahip", "mtkahypar", "scikit-learn")


def one(path: str, name: str, seed: int, threads: int, balance: float, n_parts: int = 2) -> dict[str, Any]:
    """A partition of one graph, counted here; what is loaded at a first call has been loaded before."""
    graph, how = spectral.read_graph(Path(path)), How(seed, threads, balance, n_parts)
    np.seterr(all="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ready(name, _warm_up(), how)()
        seconds, (labels, facts) = both_seconds(ready(name, graph, how))
        sizes = graph.part_weights(labels, n_parts)
        shape = {"n": graph.n, "edges": graph.n_edges, "sizes": sizes.tolist()}
        imbalance = float(n_parts * sizes.max() / graph.total_weight - 1)
        return {"seed": how.seed, "cut": graph.cut(labels), "imbalance": imbalance, **seconds, **shape, **facts}


def _warm_up() -> spectral.Graph:
    """A grid of 40 x 40."""
    line = diags_array([1.0, 1.0], offsets=[-1, 1], shape=(40, 40))
    return spectral.as_graph(kron(line, eye_array(40)) + kron(eye_array(40), line))


def limited(path: Path, name: str, options: Options) -> list[dict[str, Any]]:
    """Bisections, each in a process of its own, which ends with the time limit."""
    how = {"seconds": options.limit, "threads": options.threads}
    seeds = options.seeds[:1] if name in SAME_FOR_ANY_SEED else options.seeds
    return [{"seed": each} | apart(one, str(path), name, each, options.threads, options.balance, **how) for each in seeds]


def measured(options: Options) -> dict[str, Any]:
    """All graphs by all partitioners."""
    paths = [path for path in sorted(options.graphs_in.iterdir()) if re.fullmatch(r".*\.graph(\.gz)?", path.name)]
    paths = [path for path in paths if not options.graphs or path.name.split(".")[0] in options.graphs]
    if not paths:
        raise ValueError(f"{options.graphs_in} has no .graph or .graph.gz of these names")
    names = [name for name in options.partitioners if name in installed()]
    print(f"{len(paths)} graphs, {', '.join(names)}, seeds {options.seeds}, {options.limit:g} s at most for each", flush=True)
    found: dict[str, Any] = {}
    for path in paths:
        rows = found.setdefault(path.name.split(".")[0], {})
        for name in names:
            rows[name] = limited(path, name, options)
            shown = [{key: run.get(key) for key in ("cut", "imbalance", "seconds", "failed")} for run in rows[name]]
            print(path.name, name, *shown, flush=True)
    return found


def tables(graphs: Mapping[str, Any]) -> dict[str, str]:
    """The table of a document, by its mark."""
    ordered = sorted((graph for graph in graphs if graph not in MEASURED_SINCE), key=lambda graph: _edges(graphs[graph]))
    names = [name for name in PARTITIONERS if any(name in rows for rows in graphs.values()) and name not in IN_THE_FILE_ALONE]
    cuts = [["graph", "edges", *names]]
    cuts += [[graph, f"{_edges(graphs[graph]):,}", *(_cut(graphs[graph][name]) for name in names)] for graph in ordered]
    cuts.append(["ratio to METIS", "", *(_ratio(graphs, name) for name in names)])
    cuts.append(["seconds, median", "", *(_seconds(graphs, name) for name in names)])
    return {"cuts": markdown(*cuts)}


def _edges(rows: Mapping[str, Any]) -> int:
    return next(int(run["edges"]) for runs in rows.values() for run in runs if "edges" in run)


def _done(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [run for run in runs if "failed" not in run]


def _cut(runs: Sequence[Mapping[str, Any]]) -> str:
    """Median of the cuts, with the largest imbalance in brackets where that is more than one vertex."""
    if not (done := _done(runs)):
        return "-"
    text = f"{median(run['cut'] for run in done):,.0f}"
    worst = max(abs(run["sizes"][0] - run["sizes"][1]) for run in done)
    if worst <= 1:
        return text
    return f"{text} ({100 * max(run['imbalance'] for run in done):.1f} %)"


def _ratio(graphs: Mapping[str, Any], name: str) -> str:
    """Geometric mean of the ratios of median cuts to METIS's."""
    pairs = [(_done(rows[name]), _done(rows["METIS"])) for rows in graphs.values() if "METIS" in rows]
    both = [(median(run["cut"] for run in a), median(run["cut"] for run in b)) for a, b in pairs if a and b]
    unbalanced = [run for rows in graphs.values() for run in _done(rows[name]) if run["imbalance"] > 0.01]
    if not both or unbalanced or len(both) < len(graphs):
        return ""
    return f"{geometric_mean([a / b for a, b in both]):.3f}"


def _seconds(graphs: Mapping[str, Any], name: str) -> str:
    """The median of the graphs' medians, of the processor."""
    done = [median(run["processor_seconds"] for run in runs) for rows in graphs.values() if (runs := _done(rows[name]))]
    return f"{median(done):.2g}" if done else "failed"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("graphs_in", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--graphs", nargs="*", help="names without .graph (default: all)")
    parser.add_argument(
        "--partitioners", nargs="*", choices=PARTITIONERS, default=[name for name in PARTITIONERS if name != "METIS k-way"]
    )
    parser.takes(seeds=[1, 2, 3])
    parser.add_argument("--balance", type=float, default=0.0, help="by how much a part may be heavier than half (default: 0.0)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a bisection may take (default: 120)")
    parser.add_argument("--threads", type=int, default=2, help="of BLAS and of those that have own ones (default: 2)")
    parser.add_argument("--note", default="", help="of the machine, such as what else it did")


def documented(options: Options) -> dict[str, str]:
    """The tables of a page by their marks, from the result file."""
    graphs = options.read()["graphs"]
    return {f"partitions {name}": table for name, table in tables(graphs).items()}


def run(options: Options) -> dict[str, Any]:
    """Measure all graphs."""
    if options.graphs_in is None:
        raise ValueError("give a folder of graphs, or --update")
    installed_now = {name: version for name, version in versions(*_PACKAGES).items() if version}
    about = {"versions": installed_now, "note": options.note, "seeds": options.seeds, "balance": options.balance}
    return about | {"limit_seconds": options.limit, "threads": options.threads, "graphs": measured(options)}
