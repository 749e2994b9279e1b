"""Partitions into many parts, as they are usually asked for, by this package, METIS, KaHIP and Mt-KaHyPar: cuts and seconds.

FOLDER holds graphs of Walshaw's archive, and a list of edges. To these come a grid, a mesh and a power-law graph that are made
here. Parts may be 3 % heavier than even ones. METIS counts with the lesser cut of recursive bisection and of its k-way scheme, of
medians over seeds. Each
partitioner has a process of its own for a graph, and cuts are counted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, save_npz
from scipy.spatial import Delaunay

from benchmarks.partitions import PARTITIONERS, installed, one
from benchmarks.running import Options, Parser, apart, markdown, versions
from benchmarks.systems import grid_laplacian

FOLDER, NAME = "spectral", "host-parts"
#: Graphs of the folder: meshes and, from add20 on, irregular ones.
FILES = (
    "uk",
    "3elt",
    "data",
    "whitaker3",
    "crack",
    "4elt",
    "cti",
    "wing_nodal",
    "bcsstk29",
    "add20",
    "memplus",
    "facebook_combined",
)
NAMES = ("ooc_chol", "METIS", "METIS k-way", "KaHIP eco", "KaHIP strong", "Mt-KaHyPar")
#: What is written of a run.
_KEPT = ("seed", "cut", "imbalance", "seconds", "processor_seconds", "n", "edges")
_PACKAGES = ("numpy", "scipy", "pyamg", "pymetis", "kahip", "mtkahypar")


def _made() -> dict[str, csr_array]:
    """Graphs by name."""
    import networkx

    corners = Delaunay(np.random.default_rng(3).random((20000, 2))).simplices
    mesh = _joined(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]))
    power_law = _joined(np.array(networkx.powerlaw_cluster_graph(10_000, 4, 0.3, seed=1).edges))
    grid = grid_laplacian(200, 200)
    grid.setdiag(0)
    return {"grid 200 x 200": abs(grid), "mesh of 20,000": mesh, "power law": power_law}


def _joined(edges: NDArray[Any]) -> csr_array:
    """A graph by its edges."""
    half = csr_array((np.ones(len(edges)), edges.T), shape=(int(edges.max()) + 1,) * 2)
    return csr_array(((half + half.T) > 0).astype(np.float64))


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("graphs_in", nargs="?", type=Path, metavar="FOLDER")
    parser.takes(seeds=[1, 2, 3], parts=[2, 8, 32, 64], graphs=[*FILES, "grid 200 x 200", "mesh of 20,000", "power law"])
    parser.add_argument("--partitioners", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--balance", type=float, default=0.03, help="by how much a part may be heavier (default: 0.03)")
    parser.add_argument(
        "--limit", type=float, default=1200.0, help="seconds that a partitioner may take for a graph (default: 1200)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of BLAS and of those that have own ones (default: 1)")
    parser.add_argument("--note", default="", help="of the machine, such as what else it did")


def run(options: Options) -> dict[str, Any]:
    """Measure all graphs."""
    if options.graphs_in is None:
        raise ValueError("give a folder of graphs, or --update")
    about = {"versions": {name: version for name, version in versions(*_PACKAGES).items() if version}, "note": options.note}
    about |= {name: getattr(options, name) for name in ("seeds", "parts", "balance", "threads")}
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for graph, path in _paths(options, Path(folder)).items():
            rows = {name: _runs(path, name, options) for name in options.partitioners if name in installed()}
            found[graph] = {each: {name: runs[each] for name, runs in rows.items()} for each in map(str, options.parts)}
            for each, cuts in found[graph].items():
                print(graph, each, {name: [run["cut"] for run in runs] for name, runs in cuts.items()}, flush=True)
            if options.name:
                options.write(about | {"graphs": found})
    return about | {"graphs": found}


def _paths(options: Options, folder: Path) -> dict[str, Path]:
    """Files of the graphs by name; those that are made here are written into a folder."""
    made: dict[str, Path] = {}
    for number, (name, matrix) in enumerate(_made().items()):
        made[name] = folder / f"{number}.npz"
        save_npz(made[name], matrix)
    there = {
        path.name.split(".")[0]: path for path in sorted(options.graphs_in.rglob("*")) if path.suffix in (".gz", ".graph", ".txt")
    }
    if missing := [name for name in options.graphs if name not in made | there]:
        raise ValueError(f"{options.graphs_in} has no graph {missing[0]}")
    return {name: (made | there)[name] for name in options.graphs}


def _runs(path: Path, name: str, options: Options) -> dict[str, list[dict[str, Any]]]:
    """Partitions with each seed, by the number of parts."""
    how: dict[str, Any] = {"seconds": options.limit, "threads": options.threads, "must": True}
    return apart(each_of, str(path), name, options.seeds, options.parts, options.threads, options.balance, **how)


def each_of(
    path: str, name: str, seeds: Sequence[int], parts: Sequence[int], threads: int, balance: float
) -> dict[str, list[dict[str, Any]]]:
    """Partitions of one graph by one partitioner."""
    runs = {n_parts: [one(path, name, seed, threads, balance, n_parts) for seed in seeds] for n_parts in parts}
    return {str(n_parts): [{key: run[key] for key in _KEPT} for run in each] for n_parts, each in runs.items()}


def table(content: Mapping[str, Any]) -> str:
    """Geometric means of cuts beside METIS's, for each number of parts, the largest, and seconds."""
    parts = [str(each) for each in content["parts"]]
    names = [
        name for name in PARTITIONERS if all(name in rows for graph in content["graphs"].values() for rows in graph.values())
    ]
    rows: list[list[object]] = [["", *(f"{each} parts" for each in parts), "largest", "s, median", "s, most"]]
    for name in names:
        ratios = {each: [_ratio(graph[each], name) for graph in content["graphs"].values()] for each in parts}
        spent = [run["processor_seconds"] for graph in content["graphs"].values() for each in parts for run in graph[each][name]]
        means = [f"{geometric_mean(ratios[each]):.3f}" for each in parts]
        rows.append([name, *means, f"{max(map(max, ratios.values())):.3f}", f"{median(spent):.2g}", f"{max(spent):.2g}"])
    return markdown(*rows)


def _ratio(rows: Mapping[str, Any], name: str) -> float:
    """A median of cuts beside the lesser one of METIS's."""
    cut = {each: float(median(run["cut"] for run in runs)) for each, runs in rows.items()}
    return cut[name] / min(cut["METIS"], cut["METIS k-way"])


def documented(options: Options) -> dict[str, str]:
    """The table of a page by its mark, from the result file."""
    return {"parts": table(options.read())}
