"""What a cluster of GPUs is predicted to do: efficiency on three networks, in the order that runs and in a proposed one.

Nothing is run and no cluster is needed: all of it is the model of ``ooc_chol/cluster/``. *Plain* is the order that runs,
one task for each block, block rows dealt to the workers. *Parts* is what would help and does not run yet: sums of blocks in
several tasks, of which the early ones need not wait for the last operands, and the blocks of a row dealt to several workers.
Takes minutes; ``--draw`` only draws what an earlier run wrote. ``cluster_model_machines`` is the same for machines of eight GPUs.
"""

from __future__ import annotations

import json
from itertools import product
from math import isqrt
from pathlib import Path
from typing import Any

from benchmarks.drawing import figure_of, save
from benchmarks.read_results import read_result
from benchmarks.running import ROOT, Options, link_from, markdown
from ooc_chol.cluster.blocks import BlockGrid
from ooc_chol.cluster.bounds import scheduler_seconds
from ooc_chol.cluster.model import BlockCosts, ClusterRates, WorkerRates
from ooc_chol.cluster.owners import BlockOwners
from ooc_chol.cluster.plan import ClusterPlan, plan_cluster
from ooc_chol.cluster.simulation import Case, simulate
from ooc_chol.errors import BudgetError
from ooc_chol.tasks.tiling import TileGrid

FOLDER = "cluster"
ORDERS = {"2^17": 2**17, "2^19": 2**19, "2^21": 2**21, "10^7": 10**7}
GPUS = (1, 2, 4, 8, 16, 64, 256, 1000)
NETWORKS = (10e9, 25e9, 100e9)
#: An H200 through residues: long products, POTRF and TRSM of tiles, copies from host memory, as measured on one
#: (docs/measurements.md, docs/lab-notes.md). Seconds of a task beside its work are an assumption,
#: as are those of Dask's scheduler.
FLOPS, PANEL_FLOPS, LINK, OVERHEAD = 100e12, 30e12, 51e9, 0.05
#: Memory of a worker, an eighth of a machine with 2 TiB, to tell which points it would hold; the others are computed, too.
MEMORY, ENDLESS = 256 << 30, 1 << 60
TILE = 4096
#: Block rows that the proposed order is simulated with.
BLOCK_ROWS = (4, 8, 16, 32, 64, 128)


def cluster(n_gpus: int, network: float) -> tuple[list[WorkerRates], ClusterRates]:
    """Workers and what lies between them."""
    return [WorkerRates(ENDLESS, FLOPS, PANEL_FLOPS, LINK)] * n_gpus, ClusterRates(network, overhead_seconds=OVERHEAD)


def plain(n: int, n_gpus: int, network: float) -> dict[str, Any]:
    """The plan of what runs."""
    workers, rates = cluster(n_gpus, network)
    plan = plan_cluster(TileGrid(n, TILE), workers, rates)
    return figures(n, n_gpus, plan.seconds or 0.0, plan.peak_bytes, plan.blocks.n_blocks, plan.n_tasks)


def parts(n: int, n_gpus: int, network: float) -> dict[str, Any]:
    """The best of a few simulations of the proposed order."""
    workers, rates = cluster(n_gpus, network)
    columns = max(each for each in range(1, isqrt(n_gpus) + 1) if n_gpus % each == 0)
    found = []
    for n_rows in BLOCK_ROWS:
        if n_rows * TILE > n or (n_rows > 64 and n_gpus < 64):
            continue
        blocks = BlockGrid(TileGrid(n, TILE), -(-n // TILE // n_rows))
        owners = BlockOwners(blocks.n_blocks, n_gpus // columns, columns)
        case = Case(BlockCosts(blocks), owners, tuple(workers), rates, reach=blocks.n_blocks)
        outcome = simulate(case)
        waiting = scheduler_seconds(rates, outcome.n_tasks, ClusterPlan(case).n_dependencies)
        seconds, peak = max(outcome.seconds, waiting), max(outcome.peak_bytes)
        found.append(figures(n, n_gpus, seconds, peak, blocks.n_blocks, outcome.n_tasks))
    return min(found, key=lambda each: each["seconds"])


def figures(n: int, n_gpus: int, seconds: float, peak_bytes: int, n_rows: int, n_tasks: int) -> dict[str, Any]:
    """One point."""
    efficiency = n**3 / 3 / (FLOPS * n_gpus) / seconds
    point = {"n": n, "gpus": n_gpus, "seconds": seconds, "efficiency": efficiency, "gpu_hours": seconds * n_gpus / 3600}
    return point | {"peak_bytes": peak_bytes, "block_rows": n_rows, "tasks": n_tasks, "is_held": peak_bytes <= MEMORY}


def compute() -> dict[str, Any]:
    """All points."""
    lines = []
    for network, (name, n), n_gpus in product(NETWORKS, ORDERS.items(), GPUS):
        for how, predict in (("plain", plain), ("parts", parts)):
            lines.append({"order": how, "network": network, "name": name} | predict(n, n_gpus, network))
            print(json.dumps(lines[-1]), flush=True)
    rates = {
        "flops": FLOPS,
        "panel_flops": PANEL_FLOPS,
        "link": LINK,
        "overhead_seconds": OVERHEAD,
        "memory": MEMORY,
        "tile": TILE,
    }
    return {"case": "cluster-model", "what": "predictions of a model, nothing was run", "rates": rates, "lines": lines}


def draw(result: dict[str, Any], path: Path) -> None:
    """Efficiency against GPUs: a column for each network, a row for each order; points that memory does not hold are hollow."""
    figure, axes = figure_of(10.0, 5.6, 2, len(NETWORKS), sharey=True)
    colours = dict(zip(ORDERS, ("#8ab8e0", "#2f77b8", "#0b2f5b", "#ee8a2e"), strict=True))
    orders = {"plain": "plain order (what runs)", "parts": "sums in parts, grid of owners (a proposal)"}
    for (row, how), (column, network) in product(enumerate(orders), enumerate(NETWORKS)):
        axis = axes[row, column]
        for name, colour in colours.items():
            points = [each for each in result["lines"] if (each["order"], each["network"], each["name"]) == (how, network, name)]
            x, y = ([each[what] for each in points] for what in ("gpus", "efficiency"))
            axis.plot(x, y, color=colour, label=f"n = ${name.replace('^', '^{')}}}$")
            faces = [colour if each["is_held"] else "white" for each in points]
            axis.scatter(x, y, s=16, color=faces, edgecolors=colour, zorder=3)
        axis.set(xscale="log", ylim=(0, 1.05))
        title = f"{'' if column else orders[how]}\n{network / 1e9:.0f} GB/s into each worker"
        axis.set_title(title, fontsize=8, loc="left")
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of 100 TFLOP/s a GPU", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("GPUs", fontsize=8)
    axes[0, 0].legend(fontsize=7, frameon=False)
    figure.suptitle("Predicted, not run. Hollow: more than 256 GiB of memory a worker", fontsize=9)
    save(figure, path, dpi=110)


#: Machines of eight H100s, a worker each: rates of eight times one H200, whose processors are the same, and of the links of two
#: sockets, each measured with four GPUs (docs/measurements.md). Storage, networks and seconds beside the work are assumptions.
MACHINES, MACHINE_GPUS, MACHINE_MEMORY, MACHINE_LINK, STORAGE = (1, 8, 64), 8, 2 << 40, 192e9, 500e9
MACHINE_ORDERS, MACHINE_NETWORKS = (250_000, 500_000, 700_000, 1_000_000, 2_000_000, 3_000_000), (25e9, 100e9, 400e9)
#: Orders that the document shows.
SHOWN = (250_000, 700_000, 3_000_000)


def machines_point(n: int, machines: int, network: float) -> dict[str, Any]:
    """The plan for so many machines: L in their memory, or where they cannot hold it in a Zarr group."""
    worker = WorkerRates(MACHINE_MEMORY, MACHINE_GPUS * FLOPS, MACHINE_GPUS * PANEL_FLOPS, MACHINE_LINK)
    rates = ClusterRates(network, network, STORAGE, overhead_seconds=OVERHEAD)
    store = "memory"
    try:
        plan = plan_cluster(TileGrid(n, TILE), [worker] * machines, rates)
    except BudgetError:
        store, plan = "zarr", plan_cluster(TileGrid(n, TILE), [worker] * machines, rates, store="zarr")
    point = figures(n, MACHINE_GPUS * machines, plan.seconds or 0.0, plan.peak_bytes, plan.blocks.n_blocks, plan.n_tasks)
    del point["is_held"]
    moved = {"network_bytes": plan.network_bytes, "read_bytes": plan.read_bytes, "written_bytes": plan.written_bytes}
    return {"machines": machines, "network": network, "store": store} | point | moved


def run_machines(options: Options) -> dict[str, Any]:
    """Predicted seconds, bytes and efficiency of 1, 8 and 64 machines of eight H100s on three networks; nothing is run."""
    points = product(MACHINE_ORDERS, MACHINES, MACHINE_NETWORKS)
    rates = {"flops": FLOPS, "panel_flops": PANEL_FLOPS, "link": MACHINE_LINK, "storage": STORAGE, "memory": MACHINE_MEMORY}
    about = {"case": "cluster-machines", "what": "predictions of a model, nothing was run", "rates": rates}
    return about | {"overhead_seconds": OVERHEAD, "tile": TILE, "lines": [machines_point(*each) for each in points]}


def documented_machines(options: Options) -> dict[str, str]:
    """Tables of a page by their marks, from the result files: predictions, and those of runs beside what these took."""
    lines = {(line["n"], line["machines"], line["network"]): line for line in options.read()["lines"]}
    rows = []
    for n, machines in product(SHOWN, MACHINES):
        found = [lines[n, machines, network] for network in MACHINE_NETWORKS]
        place = "Zarr" if found[0]["store"] == "zarr" else "memory"
        moved = max(line["network_bytes"] or line["read_bytes"] for line in found)
        slow, *_, fast = found
        cells = [_brief(slow["seconds"]), _brief(fast["seconds"]), f"{fast['efficiency']:.2f}"]
        rows.append([f"{n:,}", machines, place, _terabytes(moved), *cells])
    networks = [f"{MACHINE_NETWORKS[at] / 1e9:.0f} GB/s" for at in (0, -1)]
    heading = ["n", "machines", "L in", "TB moved", *networks, f"share of rate at {networks[-1].split()[0]}"]
    link = link_from(options.update, options.output)
    measured = [row for path in sorted(options.output.glob("*.json")) for row in _measured_rows(path, link)]
    about = ["workers", "n", "predicted, s", "measured, s", "GB planned", "GB sent"]
    return {"cluster machines": markdown(heading, *rows), "cluster measured": markdown(about, *measured)}


def _terabytes(nbytes: int) -> str:
    return f"{nbytes / 1e12:,.0f}" if nbytes >= 1e13 or not nbytes else f"{nbytes / 1e12:.1f}"


def _brief(seconds: float) -> str:
    """Seconds, or hours from two on."""
    return f"{seconds / 3600:.1f} h" if seconds >= 7200 else f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"


def _measured_rows(path: Path, link: str) -> list[list[str]]:
    """The last run of each order and number of workers with a prediction."""
    rows: dict[tuple[int, int], list[str]] = {}
    for line in read_result(path).get("lines", []):
        if not line.get("is_counted", True) or (found := _predicted(line.get("report") or {})) is None:
            continue
        predicted, *moved = found
        taken = f"{predicted:.1f}", f"{line['seconds']:.1f}", *(f"{nbytes / 1e9:.3g}" for nbytes in moved)
        rows[line["n"], line.get("workers", 2)] = [f"[{path.stem}]({link}/{path.name})", f"{line['n']:,}", *taken]
    return list(rows.values())


def _predicted(report: dict[str, Any]) -> tuple[float, int, int] | None:
    """Predicted seconds, and bytes planned and sent over the network, by a report of now or before; None of one process."""
    if moved := report.get("network_bytes"):
        return report.get("predicted_seconds") and (report["predicted_seconds"], moved["planned"], moved["sent"])
    if "sent_bytes" not in report or not isinstance(report["seconds"], dict):
        return None
    return report["seconds"]["predicted"], report["bytes"]["planned"]["network"], report["sent_bytes"]


NAME = "model"
NAME_machines = "machines"
TAKES_machines: dict[str, Any] = {}
TAKES = {"draw": False, "picture": ROOT / "docs/pictures/cluster-model.png"}


def files(options: Options) -> list[str]:
    """None where points are only drawn."""
    return [] if options.draw else [str(options.name)]


def files_machines(options: Options) -> list[str]:
    """The file of the predictions."""
    return [str(options.name)]


def run(options: Options) -> None:
    """Compute or read the points, and draw them."""
    if not options.draw:
        options.write(compute())
    draw(options.read(), options.picture)
