"""Pictures of the result files and of recorded traces: those in docs/pictures, or the streams of another trace.

``--trace FILE --devices cuda:1`` draws ``streams.png`` of this trace alone. Needs Matplotlib (``pip install '.[plots]'``).
*rates*: TFLOP/s of each case beside DGEMM, the residue engine's products and other libraries, measured in the same process.
*predictions*: the plan's seconds over the measured ones. *streams*: how busy each stream of a device was over the run, by kind
of operation. *overview*: rates of the link and of the arithmetic over one run, measured and predicted. *mixed*: seconds of a
call over the threshold, beside FP64's (``mixed_families``). *map*: formats of tiles in mixed precision. *certified*: errors of
log-determinants and their half-widths (``certified_families``). *orders*: seconds of whole calls over the order, beside peers
(``whole_calls``). *scaling*: how many times as fast several GPUs are as one (``several_gpus``). *memory*: bytes that plans of
each policy fetch, over the budget. *passes*: milliseconds of products of a packed matrix beside those of other libraries
(``sparse_passes``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks import table, timelines
from benchmarks.drawing import figure_of, save
from benchmarks.mixed_families import FAMILIES
from benchmarks.running import RESULTS, ROOT, Options
from ooc_chol.bench.problem import CovarianceProblem

PICTURES = ROOT / "docs/pictures"
#: Trace and device of each picture of streams in the documents.
STREAMS = {
    "streams-residue.png": ("h200-residue-131072-32g", "cuda:0"),
}
#: Trace of the picture that a reader meets first.
OVERVIEW = "h200-native-131072-24g"
#: Families in mixed precision of the picture.
MIXED = "h100-65536"
#: Colours of the kinds of operations on residues; :mod:`timelines` has the others.
RESIDUE_COLOURS = {
    "product": "#8ab8e0",
    "trsm": "#0b2f5b",
    "potrf": "#b0306a",
    "invert": "#e377c2",
    "reconstruct": "#7b5ea7",
    "convert": "#4d9a9a",
    "diagonal": "#8c8c8c",
    "fold": "#5f7f2f",
    "pull": "#a0522d",
}
#: Most kinds in one row of a legend.
LEGEND_COLUMNS = 7
#: Bars of a case, by what they measure.
COLOURS = {
    "this package": "#2f77b8",
    "DGEMM": "#c9c9c9",
    "INT8 products": "#d9c23c",
    "cuSOLVER": "#76b041",
    "cuSOLVERMg": "#3f7d20",
    "torch": "#ee8a2e",
    "MAGMA": "#b0306a",
}
#: Results of whole calls that are drawn over the order, and in what they ran.
ORDERS = {"h200-cupy": "on the GPU, one H200", "host-2-cores": "in host memory, two cores"}
#: What is drawn over the number of GPUs, and how its marks look.
SCALING = {
    "native": ("FP64, native, n = 131,072", "C0o-"),
    "residue": ("FP64, residues, n = 131,072", "C1o-"),
    "weak 1e-5": ("mixed, 1e-5, n = 131,072", "C2o-"),
    "impute": ("imputation, 1,300 of 512 x 512", "C4s--"),
    "gradient": ("likelihood and gradient, n = 105,569", "C3s--"),
    "eigsh": ("8 eigenpairs, a billion entries", "C5^:"),
}
#: Order and tile of the plans whose bytes are drawn, and their budgets in GiB.
PLANNED = {"n": 65_536, "tile_size": 4_096, "gibibytes": (1, 1.5, 2, 3, 4, 6, 8, 12, 16)}
#: Results of products in core that are drawn, and what they ran on.
PASSES = {"h200-degree-22": "one H200, R-MAT of scale 22", "host-passes-20": "two cores, R-MAT of scale 20"}
#: Their bars, and those of other libraries by the type of their vectors.
PASS_COLOURS = {
    "this package, FDF": "#2f77b8",
    "this package, DDD": "#0b2f5b",
    "cuSPARSE, float64": "#76b041",
    "cuSPARSE, float32": "#c6dfae",
    "SciPy on one thread, float64": "#d9c23c",
}
#: Bins of time in the picture of the streams.
BINS = 160


def bars_of(result: dict[str, Any]) -> dict[str, float]:
    """TFLOP/s of a result and of what was measured beside it, keyed as :data:`COLOURS`; what was not measured is left out."""
    bars = {"this package": float(result["tflops"]), "DGEMM": table.dgemm_of(result)}
    if "product_tflops" in result:
        bars["INT8 products"] = float(result["product_tflops"])
    for name in ("cuSOLVER Xpotrf", "cuSOLVERMg"):
        if (peer := table.best_peer(result, name)) is not None:
            bars[name.split()[0]] = float(peer["tflops"])
    for peer in result["peers"]:
        if peer["name"].startswith("torch") and "tflops" in peer:
            name = "MAGMA" if "MAGMA" in peer["name"] else "torch"
            bars[name] = max(bars.get(name, 0.0), float(peer["tflops"]))
    return bars


def chosen(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results that are drawn: those on GPUs that the table has, in its order."""
    return table.newest(filter(table.on_gpu, results))


def label_of(result: dict[str, Any]) -> str:
    """Name of a case beside its bars."""
    n_gpus = len(result["devices"])
    gpus = f"{n_gpus} GPUs, each" if n_gpus > 1 else "1 GPU,"
    engine = f"{result['engine']} {result['moduli']}" if "moduli" in result else result["engine"]
    source = ", host array" if result["source"] == "host-array" else ""
    return f"{engine}{source}, n = {result['n']:,}\n{gpus} {result['budget_bytes'] / 2**30:.3g} GiB"


def draw_rates(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw a group of bars for each result, one below the other."""
    cases = [(result, bars_of(result)) for result in results]
    places = np.cumsum([0.0, *(len(bars) + 1.0 for _, bars in cases)])
    figure, axis = figure_of(7.2, 0.15 * places[-1] + 0.9)
    drawn: set[str] = set()
    for place, (_, bars) in zip(places, cases, strict=False):
        for number, (name, rate) in enumerate(bars.items()):
            axis.barh(place + number, rate, 0.9, color=COLOURS[name], label=None if name in drawn else name)
            axis.annotate(f"{rate:.0f}", (rate, place + number), (2, 0), textcoords="offset points", va="center", fontsize=8)
            drawn.add(name)
    middles = [place + (len(bars) - 1) / 2 for place, (_, bars) in zip(places, cases, strict=False)]
    axis.set_yticks(middles, [label_of(result) for result, _ in cases], fontsize=8)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(places[-1] - 0.5, -1.0)
    axis.set_xlabel("TFLOP/s, of all GPUs together")
    axis.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    save(figure, path)


def draw_predictions(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw predicted over measured seconds, a line for each case; the band is 15 %."""
    colours = {"native": "#2f77b8", "residue": "#ee8a2e", "mixed": "#76b041"}
    known = [result for result in results if result.get("predicted_seconds") is not None]
    figure, axis = figure_of(7.2, 0.26 * len(known) + 1.2)
    for place, result in enumerate(reversed(known)):
        ratio = result["predicted_seconds"] / median(result["seconds"])
        colour = colours[result["engine"]]
        axis.plot([1.0, ratio], [place, place], color=colour, linewidth=1)
        axis.plot(ratio, place, "o" if len(result["devices"]) == 1 else "s", color=colour)
    axis.axvspan(0.85, 1.15, color="#f0f0f0", zorder=0)
    axis.axvline(1.0, color="#999999", linewidth=0.8, zorder=1)
    names = [f"{result['case']}, {median(result['seconds']):.3g} s" for result in reversed(known)]
    axis.set_yticks(range(len(known)), names, fontsize=7)
    for engine in dict.fromkeys(result["engine"] for result in known):
        axis.plot([], [], "o", color=colours[engine], label=engine)
    axis.plot([], [], "s", color="#999999", label="several GPUs")
    axis.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    axis.set_xlabel("predicted / measured seconds; the band is 15 %")
    save(figure, path)


def described(kind: str, s: float) -> str:
    """Words for a family of :mod:`mixed_families`."""
    return f"exponential, range {1 / s:g}" if kind == "ex" else f"rational quadratic, (1 + {s:g} d²)⁻²"


def draw_mixed(found: dict[str, Any], path: Path) -> None:
    """Seconds of second calls over the threshold, a line a family, and FP64 in the same run as a dashed one."""
    figure, axes = figure_of(7.2, 3.6)
    for number, (family, rows) in enumerate(found["families"].items()):
        colour = f"C{number}"
        thresholds = [name for name in rows if name != "fp64"]
        seconds = [rows[name]["wall"] for name in thresholds]
        label = f"{family}: {described(*FAMILIES[family][:2])}"
        axes.plot([float(name) for name in thresholds], seconds, "o-", color=colour, label=label)
        axes.axhline(rows["fp64"]["wall"], color=colour, linestyle="--", linewidth=1.0)
    axes.plot([], [], "--", color="grey", label="FP64 of each")
    axes.set(xscale="log", xlabel="precision_threshold", ylabel="seconds of a second call", ylim=(0.0, None))
    axes.invert_xaxis()
    axes.legend(fontsize="small", ncols=2)
    axes.set_title(f"order {found['n']:,}, {found['budget']} of an H100", fontsize="medium")
    save(figure, path)


def draw_map(path: Path, n: int = 8192) -> None:
    """Formats of the tiles of a weakly correlated covariance, as ``ooc-chol plan --picture`` draws them."""
    matrix = oc.from_function(n, CovarianceProblem(n, 0.02627).host_tile)
    plan = oc.plan(matrix, precision_threshold=1e-5, tile_size=n // 32, devices="host:0")
    assert plan.precision is not None  # where there is a threshold
    path.write_text(plan.precision.svg(), encoding="utf-8")


def draw_certified(found: dict[str, Any], path: Path) -> None:
    """Errors of log-determinants as they are, and half-widths of their intervals, by family."""
    figure, axes = figure_of(7.2, 4.4)
    (threshold, *_) = next(iter(found["families"].values()))
    names = list(found["families"])
    rows = [found["families"][name][threshold] for name in names]
    places = np.arange(len(names))
    widths = [row["half_width"] for row in rows]
    axes.hlines(places, 1e-7, [1e-7 if width is None else width for width in widths], color="#c9d7e6", linewidth=7)
    axes.plot([row["error_as_it_is"] for row in rows], places, "x", color="#b0306a", label="error of 2 sum log L_ii")
    axes.plot([row["error"] for row in rows], places, "o", color="#0b2f5b", markersize=4, label="error of the certified value")
    axes.plot([], [], color="#c9d7e6", linewidth=7, label="certified half-width")
    for place, width in zip(places, widths, strict=True):
        if width is None:
            axes.annotate("not certified", (1e-7, place), (4, 0), textcoords="offset points", va="center", fontsize="x-small")
    labels = [name.replace("Matern", "Matérn") for name in names]
    axes.set(xscale="log", yticks=places, yticklabels=labels, xlabel="absolute error of the log-determinant", xlim=(1e-7, 1e3))
    axes.invert_yaxis()
    axes.legend(fontsize="small", loc="upper right")
    axes.set_title(f"order {found['n']}, precision_threshold={threshold}, fewest bytes", fontsize="medium")
    save(figure, path)


def draw_orders(folder: Path, path: Path) -> None:
    """Seconds of whole calls over the order, ours and each peer's, on a GPU and on the host."""
    figure, axes = figure_of(7.6, 3.6, 1, len(ORDERS))
    for axis, (name, where) in zip(axes, ORDERS.items(), strict=True):
        lines = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["lines"]
        for who, label, form in (
            ("ours", "this package", "C0o-"),
            ("cupy", "CuPy", "C2s--"),
            ("cuSOLVER", "cuSOLVER, 64 bits", "C3D"),
            ("numpy", "NumPy", "C1s--"),
            ("scipy", "SciPy", "C4^:"),
        ):
            found = [(line["n"], each) for line in lines for peer, each in line["medians"].items() if peer.startswith(who)]
            if found:
                axis.plot(*zip(*found, strict=True), form, markersize=4, linewidth=1.2, label=label)
        axis.set(xscale="log", yscale="log", xlabel="order n", ylabel="seconds of a whole call")
        axis.set_title(f"A and L {where}", fontsize="medium")
        axis.legend(frameon=False, fontsize="small")
        axis.grid(color="#e6e6e6", linewidth=0.6)
    save(figure, path)


def draw_scaling(folder: Path, path: Path) -> None:
    """How many times as fast two and four GPUs are as one, a line for what was computed."""
    figure, axes = figure_of(7.2, 3.6)
    files = (json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("h200x2", "h200x4"))
    walls = [{(line["measured"], line["count"]): median(line["walls"][1:]) for line in found["lines"]} for found in files]
    two, four = (
        {name: found[name, 1] / found[name, count] for name in SCALING} for found, count in zip(walls, (2, 4), strict=True)
    )
    axes.plot([1, 4], [1, 4], color="#bbbbbb", linewidth=1.0, label="as many times as GPUs")
    for name, (label, form) in SCALING.items():
        axes.plot([1, 2, 4], [1.0, two[name], four[name]], form, markersize=4, linewidth=1.2, label=label)
    axes.set(xticks=[1, 2, 4], xlabel="H200s of one machine", ylabel="times as fast as one", ylim=(0.9, 4.1))
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    axes.grid(color="#e6e6e6", linewidth=0.6)
    save(figure, path)


def draw_memory(path: Path) -> None:
    """Bytes that each policy's plan fetches over the memory that it is given, and those of one reading of A."""
    figure, axes = figure_of(7.2, 3.6)
    n, tile_size, budgets = (PLANNED[name] for name in ("n", "tile_size", "gibibytes"))
    for number, policy in enumerate(("async", "v1", "v2", "v3", "planned")):
        given = {"tile_size": tile_size, "devices": "host:0", "policy": policy, "objective": "bytes"}
        plans = [oc.plan(n, memory_budget=round(each * 2**30), **given) for each in budgets]
        fetched = [plan.to_dict()["bytes"]["fetch"] / 1e9 for plan in plans]
        form = {"v3": "--", "planned": "o-"}.get(policy, "-")
        axes.plot(budgets, fetched, form, color=f"C{number}", markersize=4, linewidth=1.4, label=policy)
    ticks = [each for each in budgets if each == int(each)]
    axes.set(xscale="log", xticks=ticks, xticklabels=map(str, ticks), xlabel="memory budget, GiB", ylabel="GB fetched again")
    axes.minorticks_off()
    axes.set_title(f"n = {n:,}: L has {4 * n * (n + 1) / 1e9:.1f} GB", fontsize="medium")
    axes.legend(frameon=False, fontsize="small", loc="center right")
    axes.grid(color="#e6e6e6", linewidth=0.6)
    save(figure, path)


def draw_passes(folder: Path, path: Path) -> None:
    """Milliseconds of a product with one column and with eight, ours in float64 sums beside those of other libraries."""
    figure, axes = figure_of(7.6, 3.2, 1, len(PASSES), sharex=False)
    for axis, (name, where) in zip(axes, PASSES.items(), strict=True):
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        bars: dict[str, dict[int, float]] = {}
        for each in found["passes"]:
            if not each["bytes_a_pass"] and each["columns"] in (1, 8):
                bars.setdefault(f"this package, {each['precision']}", {})[each["columns"]] = 1e3 * each["pass_seconds"]
        for each in found["peers"]:
            label = f"{each['peer']}, {each.get('dtype', 'float64')}"
            bars.setdefault(label, {})[each["columns"]] = 1e3 * min(each["seconds"])
        firsts = {1: 0, 8: len(bars) + 1}  # the place of the first bar
        named = sorted(bars.items(), key=lambda bar: (not bar[0].startswith("this"), bar[0]))
        for number, (label, heights) in enumerate(named):
            places = [firsts[each] + number for each in heights]
            drawn = axis.bar(places, list(heights.values()), 0.9, color=PASS_COLOURS[label], label=label)
            axis.bar_label(drawn, fmt="{:.3g}", fontsize=7)
            for columns in firsts.keys() - heights.keys():
                at = (firsts[columns] + number, 0), (0, 3)
                axis.annotate("not measured", *at, textcoords="offset points", rotation=90, ha="center", va="bottom", fontsize=7)
        axis.set(ylabel="milliseconds of a product", title=where, ylim=(0, 1.1 * max(axis.get_ylim())))
        axis.set_xticks([first + (len(bars) - 1) / 2 for first in firsts.values()], ["1 column", "8 columns"])
        axis.title.set_fontsize("medium")
        axis.legend(frameon=False, fontsize="small", loc="upper left")
    save(figure, path)


def draw_streams(run: timelines.Run, path: Path) -> None:
    """Draw how much of each bin of time every stream worked, by kind."""
    kinds = list(dict.fromkeys(entry.kind for entry in run.measured))
    streams = list(dict.fromkeys(entry.stream for entry in sorted(run.measured, key=lambda entry: _rank(entry.stream))))
    figure, axes = figure_of(9.0, 0.9 * len(streams) + 1.2, len(streams))
    seconds = max(entry.end for entry in run.measured)
    edges = np.linspace(0.0, seconds, BINS + 1)
    for axis, stream in zip(np.atleast_1d(axes), streams, strict=True):
        base = np.zeros(BINS)
        for kind in kinds:
            operations = [entry for entry in run.measured if (entry.stream, entry.kind) == (stream, kind)]
            if operations:
                top = base + timelines.shares(sorted(operations, key=lambda entry: entry.start), edges)
                axis.stairs(top, edges, baseline=base, fill=True, color=_colour(kind), linewidth=0, label=kind)
                base = top
        busy = sum(entry.end - entry.start for entry in run.measured if entry.stream == stream) / seconds
        axis.set(ylim=(0, 1.02), yticks=[0, 1], yticklabels=["0", "100 %"])
        axis.tick_params(labelsize=8)
        axis.set_title(f"{stream}: busy {100 * busy:.0f} %", loc="left", fontsize=8, pad=2)
    handles = {
        label: handle for axis in np.atleast_1d(axes) for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = min(LEGEND_COLUMNS, len(handles))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns, frameon=False, fontsize=7)
    np.atleast_1d(axes)[-1].set_xlabel("seconds; height: share of each bin in which the stream worked")
    save(figure, path)


def draw_overview(run: timelines.Run, result: dict[str, Any], path: Path) -> None:
    """Draw the rates of both directions of the link and of the arithmetic over a run, with those that the plan predicted."""
    lanes = {
        "GB/s\nto the GPU": ("fetch", "nbytes", 1e9),
        "TFLOP/s": (None, "flops", 1e12),
        "GB/s\nfrom the GPU": ("write", "nbytes", 1e9),
    }
    colours = ("#ee8a2e", "#2f77b8", "#3f9d57")
    figure, axes = figure_of(9.0, 4.2, len(lanes))
    measured, predicted = (max(entry.end for entry in entries) for entries in (run.measured, run.predicted))
    edges = np.linspace(0.0, max(measured, predicted), BINS // 2 + 1)
    for axis, colour, (label, (kind, amount, unit)) in zip(axes, colours, lanes.items(), strict=True):
        rates = [
            _rate([entry for entry in entries if kind in (None, entry.kind)], amount, edges) / unit
            for entries in (run.measured, run.predicted)
        ]
        axis.stairs(rates[0], edges, fill=True, color=colour, linewidth=0, label="measured")
        axis.stairs(rates[1], edges, color="black", linewidth=0.9, label="predicted by the plan")
        top = table.dgemm_of(result) if kind is None else float(np.quantile(np.concatenate(rates), 0.99))
        axis.set_ylim(0, 1.15 * top)
        axis.set_ylabel(label, fontsize=8)
        axis.tick_params(labelsize=8)
    axes[1].axhline(table.dgemm_of(result), color="#b0306a", linewidth=0.9, linestyle="--", label="DGEMM on this GPU")
    axes[1].legend(frameon=True, framealpha=0.9, fontsize=8, loc="lower center", ncols=3)
    factor = 4 * result["n"] * (result["n"] + 1) / 1e9
    figure.suptitle(
        f"A factor of {factor:.0f} GB through {result['budget_bytes'] / 2**30:.0f} GiB of an H200: n = {result['n']:,}, FP64, "
        f"{measured:.1f} s, {predicted:.1f} s predicted",
        fontsize=10,
    )
    axes[-1].set_xlabel("seconds", fontsize=8)
    save(figure, path)


def _rate(operations: Sequence[timelines.Operation], amount: str, edges: np.ndarray) -> np.ndarray:
    """Units per second in each bin of time; what an operation does is spread evenly over its seconds."""
    done = np.zeros(len(edges))
    for entry in operations:
        done += getattr(entry, amount) * np.clip((edges - entry.start) / max(entry.end - entry.start, 1e-9), 0.0, 1.0)
    return np.diff(done) / np.diff(edges)


def _rank(stream: str) -> tuple[int, str]:
    """Copies in on top, then what computes, copies out below."""
    return {"copy-in": 0, "copy-out": 2}.get(stream, 1), stream


def _colour(kind: str) -> str:
    """Colour of a kind of operation; black for one that has none yet."""
    return RESIDUE_COLOURS.get(kind) or timelines.COLOURS.get(kind, "#000000")


TAKES = {"results": RESULTS, "trace": Path, "devices": timelines.DEVICE, "output": PICTURES}


def run(options: Options) -> None:
    """Draw all pictures."""
    if options.trace is not None:
        draw_streams(timelines.read_run(options.trace, options.device), options.output / "streams.png")
        return
    results = table.load(options.results)
    draw_rates(chosen(results), options.output / "rates.svg")
    draw_predictions([result for result in results if table.on_gpu(result)], options.output / "predictions.svg")
    mixed = json.loads((options.results / "mixed_families" / f"{MIXED}.json").read_text(encoding="utf-8"))
    draw_mixed(mixed, options.output / "mixed-thresholds.svg")
    draw_map(options.output / "mixed-map.svg")
    certified = json.loads((options.results / "certified" / "families.json").read_text(encoding="utf-8"))
    draw_certified(certified, options.output / "certified-families.svg")
    draw_orders(options.results / "wall", options.output / "orders.svg")
    draw_scaling(options.results / "several_gpus", options.output / "scaling.svg")
    draw_memory(options.output / "memory.svg")
    draw_passes(options.results / "sparse", options.output / "passes.svg")
    (first,) = (result for result in results if result["case"] == OVERVIEW)
    draw_overview(timelines.read_run(ROOT / f"traces/{OVERVIEW}.pftrace.gz"), first, options.output / "overview.png")
    for name, (trace, device) in STREAMS.items():
        draw_streams(timelines.read_run(ROOT / f"traces/{trace}.pftrace.gz", device), options.output / name)
