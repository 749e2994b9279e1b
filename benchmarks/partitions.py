"""Bisections of graphs by this package, METIS, KaHIP, Mt-KaHyPar and scikit-learn: cut, imbalance and seconds of each.

    python benchmarks/partitions.py FOLDER [--graphs crack wing] [--partitioners METIS] [--seeds 1 2 3] [--balance 0.0]
                                    [--limit 120] [--threads 2] [--output benchmarks/results/spectral/host-walshaw.json]
    python benchmarks/partitions.py --update docs/spectral.md      rewrite the tables there from the result file

FOLDER holds graphs in METIS format (``.graph``, ``.graph.gz``), such as those of Walshaw's archive. Every partitioner has a
process of its own for each graph, with a time limit; importing, reading the graph and giving it to a partitioner in the form
that this takes are not counted. All are asked for two parts of equal weight, or at most ``--balance`` more; METIS takes 1.001
at least, and scikit-learn none. Cuts and weights are counted here. Seconds are of the wall and of the processor, all threads
together.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from partition_peers import PARTITIONERS, SAME_FOR_ANY_SEED, How, installed, ready
from scipy.sparse import diags_array, eye_array, kron

from ooc_chol.apps import spectral
from ooc_chol.bench.results import commit, machine, write_json

RESULT = Path(__file__).resolve().parent / "results/spectral/host-walshaw.json"
_PLACE = re.compile(r"(<!-- partitions (\w{4}) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
_PACKAGES = ("numpy", "scipy", "pyamg", "pymetis", "kahip", "mtkahypar", "scikit-learn")


def one(path: Path, name: str, hows: Sequence[How]) -> Iterator[dict[str, Any]]:
    """Bisections of one graph, counted here; what is loaded at a first call has been loaded before."""
    graph = spectral.read_graph(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ready(name, _warm_up(), hows[0])()
        for how in hows:
            run = ready(name, graph, how)
            wall, processor = time.perf_counter(), time.process_time()
            labels, facts = run()
            seconds = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
            sizes = graph.part_weights(labels, 2)
            shape = {"n": graph.n, "edges": graph.n_edges, "sizes": sizes.tolist()}
            imbalance = float(2 * sizes.max() / graph.total_weight - 1)
            yield {"seed": how.seed, "cut": graph.cut(labels), "imbalance": imbalance, **seconds, **shape, **facts}


def _warm_up() -> spectral.Graph:
    """A grid of 40 x 40."""
    line = diags_array([1.0, 1.0], offsets=[-1, 1], shape=(40, 40))
    return spectral.as_graph(kron(line, eye_array(40)) + kron(eye_array(40), line))


def limited(path: Path, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Bisections in a process of their own, which ends with the time limit; what it had done by then counts."""
    seeds = options.seeds[:1] if name in SAME_FOR_ANY_SEED else options.seeds
    words = [
        sys.executable,
        __file__,
        str(path),
        "--one",
        name,
        "--threads",
        str(options.threads),
        "--balance",
        str(options.balance),
    ]
    threads = {each: str(options.threads) for each in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [*words, "--seeds", *map(str, seeds)]
    limit = options.limit * len(seeds)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env={**os.environ, **threads})
        printed, problem = done.stdout, (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:200]
    except subprocess.TimeoutExpired as error:
        printed, problem = (error.stdout or b"").decode(), f"not done in {limit:g} s"
    runs: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines() if line.startswith('{"seed"')]
    return [*runs, *({"seed": seed, "failed": problem} for seed in seeds[len(runs) :])]


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All graphs by all partitioners."""
    paths = [path for path in sorted(options.folder.iterdir()) if re.fullmatch(r".*\.graph(\.gz)?", path.name)]
    paths = [path for path in paths if not options.graphs or path.name.split(".")[0] in options.graphs]
    if not paths:
        raise SystemExit(f"{options.folder} has no .graph or .graph.gz of these names")
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
    """The tables of a document: cuts, and seconds."""
    ordered = sorted(graphs, key=lambda graph: _edges(graphs[graph]))
    names = [name for name in PARTITIONERS if any(name in rows for rows in graphs.values())]
    cuts = [["graph", "edges", *names], ["---"] * (2 + len(names))]
    cuts += [[graph, f"{_edges(graphs[graph]):,}", *(_cut(graphs[graph][name]) for name in names)] for graph in ordered]
    cuts.append(["ratio to METIS", "", *(_ratio(graphs, name) for name in names)])
    times = [["graph", *names], ["---"] * (1 + len(names))]
    times += [[graph, *(_seconds(graphs[graph][name]) for name in names)] for graph in ordered]
    return {"cuts": _markdown(cuts), "time": _markdown(times)}


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


def _seconds(runs: Sequence[Mapping[str, Any]]) -> str:
    """Medians of the seconds, of the wall and of the processor, or why there are none."""
    if done := _done(runs):
        return " / ".join(f"{median(run[name] for run in done):.2g}" for name in ("seconds", "processor_seconds"))
    return str(runs[0]["failed"]) if str(runs[0]["failed"]).startswith("not done") else "failed"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def updated(page: str, graphs: Mapping[str, Any]) -> str:
    """A page with these tables in the places for them."""
    made = tables(graphs)
    new, count = _PLACE.subn(lambda match: f"{match[1]}\n{made[match[2]]}\n{match[3]}", page)
    if count != len(made):
        raise ValueError(f"the page has {count} places <!-- partitions cuts|time --> ... <!-- end -->, not {len(made)}")
    return new


def _versions() -> dict[str, str]:
    """Versions of what is installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Measure all graphs, or one of them, or rewrite a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--graphs", nargs="*", help="names without .graph (default: all)")
    parser.add_argument("--partitioners", nargs="*", choices=PARTITIONERS, default=list(PARTITIONERS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--balance", type=float, default=0.0, help="by how much a part may be heavier than half (default: 0.0)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a bisection may take (default: 120)")
    parser.add_argument("--threads", type=int, default=2, help="of BLAS and of those that have own ones (default: 2)")
    parser.add_argument("--note", default="", help="of the machine, such as what else it did")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--update", type=Path, metavar="DOCUMENT", help="measure nothing; rewrite the tables in this document")
    parser.add_argument("--one", choices=PARTITIONERS, help="FOLDER is one graph: print its figures as JSON")
    options = parser.parse_args()
    if options.update is not None:
        graphs = json.loads(options.output.read_text(encoding="utf-8"))["graphs"]
        options.update.write_text(updated(options.update.read_text(encoding="utf-8"), graphs), encoding="utf-8")
    elif options.folder is None:
        parser.error("give a folder of graphs, or --update")
    elif options.one is not None:
        hows = [How(seed, options.threads, options.balance) for seed in options.seeds]
        for run in one(options.folder, options.one, hows):
            print(json.dumps(run), flush=True)
    else:
        content = {
            "case": options.output.stem,
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(False),
            "versions": _versions(),
            "note": options.note,
            "seeds": options.seeds,
            "balance": options.balance,
            "limit_seconds": options.limit,
            "threads": options.threads,
            "graphs": measured(options),
        }
        print(write_json(content, options.output))


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
