"""Markdown tables of the result files.

``--update docs/measurements.md docs/ablation.md`` rewrites them in these documents. A document holds a place for them between
``<!-- results -->`` and ``<!-- /results -->``; ``<!-- results gpu host -->`` takes only the tables named: ``wall``, ``gpu``,
``predicted``, ``policies``, ``peers``, ``host`` or ``passes``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from benchmarks.call_table import NOTE as WALL_NOTE
from benchmarks.call_table import call_columns, call_lines
from benchmarks.paper.tables import with_paper_tables
from benchmarks.pass_table import NOTE as PASS_NOTE
from benchmarks.pass_table import pass_columns, pass_lines
from benchmarks.running import RESULTS, Options, Parser, link_from, markdown

Result: TypeAlias = dict[str, Any]
#: Heading of a column, and the text of its cell for one result.
Column: TypeAlias = tuple[str, Callable[[Result], str]]

_PLACE = re.compile(r"<!-- results((?: \w+)*) -->\n.*?<!-- /results -->", flags=re.DOTALL)
_SOURCES = {"device-function": "made on the device", "host-array": "host array", "file": "file"}
#: Names of the tables, in the order of a document that names none.
TABLES = ("wall", "gpu", "predicted", "policies", "peers", "host", "passes")
#: Characters of an error that a table shows.
_ERROR_LENGTH = 100

GPU_NOTE = """\
- *budget*: memory of each GPU; one alone has at most half of L's bytes.
- *whole call*, *inside*: medians in seconds. *Inside* is from the first step to the last byte of L in its store.
- *TFLOP/s*: $n^3 / 3$ over *inside*.
- *of DGEMM*: share of its rate, summed over the GPUs, on two tiles of the factor, just before and just after."""
PREDICTED_NOTE = "*Low by*: the share of the measured seconds that the plan's lack."
PEERS_NOTE = (
    "The whole matrix in device memory, the covariance of the cases beside it, warm, generation apart; the best of two runs "
    "(the median in files from before that rule, which name no devices)."
)
POLICIES_NOTE = (
    "Seconds: median (least to most); predicted: those of the plan. GB: executed, of L and of half-updated tiles. "
    "Exposed: share of the time in which the compute stream stood still for a copy in flight. "
    "kJ: of the GPU during the whole call."
)
HOST_NOTE = """\
- *seconds*: median of the wall clock around the whole call.
- *over dpotrf*: ratio to the rate of LAPACK's, in memory, at order 8,192.
- *memory*: most anonymous resident memory during the call, less that before it."""


def load(folder: Path = RESULTS) -> list[Result]:
    """Every result in ``folder``: the largest matrices first, then by name."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(results, key=lambda result: -result["n"])


def load_calls(folder: Path = RESULTS) -> list[Result]:
    """Every line of the results of whole calls beside those in ``folder``."""
    return call_lines(folder / "wall")


def load_passes(folder: Path = RESULTS) -> list[Result]:
    """Every pass of the results of passes over sparse matrices in ``folder``."""
    return pass_lines(folder / "sparse")


def tables(results: Sequence[Result], link: str, calls: Sequence[Result] = (), passes: Sequence[Result] = ()) -> dict[str, str]:
    """The tables that have rows, by name; ``link`` is the folder of the result files as the document sees it."""
    on_gpus = [result for result in results if on_gpu(result)]
    ours = newest(on_gpus)
    ablations = {_setting(result) for result in on_gpus if result["policy"] != "planned"}
    policies = sorted((result for result in on_gpus if _setting(result) in ablations), key=_moved, reverse=True)
    predicted = sorted((result for result in on_gpus if result.get("predicted_seconds") is not None), key=order)
    on_host = [result for result in results if result not in on_gpus]
    case: Column = ("case", lambda result: f"[{result['case']}]({link}/{result['case']}.json)")
    made = {
        "wall": _table(calls, call_columns(f"{link}/wall"), WALL_NOTE),
        "gpu": _table(ours, _gpu(link), GPU_NOTE),
        "predicted": _table(predicted, [case, *_PREDICTIONS], PREDICTED_NOTE),
        "policies": _table(policies, _POLICY, POLICIES_NOTE),
        "peers": _table(peers_of(on_gpus), _PEERS, PEERS_NOTE),
        "host": _table(on_host, _host(link), HOST_NOTE),
        "passes": _table(passes, pass_columns(f"{link}/sparse"), PASS_NOTE),
    }
    return {name: text for name, text in made.items() if text}


def updated(text: str, made: dict[str, str]) -> str:
    """``text`` with the tables ``made`` between its marks; names without a table stay empty."""

    def place(match: re.Match[str]) -> str:
        names = match[1].split() or TABLES
        if unknown := set(names) - set(TABLES):
            raise ValueError(f"there is no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
        parts = "\n\n".join(made[name] for name in names if name in made)
        return f"<!-- results{match[1]} -->\n{parts}\n<!-- /results -->"

    new, count = _PLACE.subn(place, text)
    if not count:
        raise ValueError("there is no place between <!-- results --> and <!-- /results -->")
    return new


def update(document: Path, folder: Path = RESULTS) -> bool:
    """Rewrite the tables of ``document``; whether it changed."""
    old = document.read_text(encoding="utf-8")
    made = tables(load(folder), link_from(document, folder), load_calls(folder), load_passes(folder))
    new = with_paper_tables(updated(old, made), folder / "paper")
    document.write_text(new, encoding="utf-8")
    return new != old


def _table(results: Iterable[Result], columns: Sequence[Column], note: str) -> str:
    """One table and its note; empty without results."""
    rows = [[cell(result) for _, cell in columns] for result in results]
    return markdown([heading for heading, _ in columns], *rows) + f"\n\n{note}" if rows else ""


def _case(result: Result) -> tuple[Any, ...]:
    """Fields that results of one case share at any commit."""
    return tuple(result["devices"]), *(result[name] for name in ("engine", "n", "tile_size", "budget_bytes", "source"))


def _setting(result: Result) -> tuple[Any, ...]:
    """What results of different policies must share to be compared."""
    return result["commit"], *_case(result)


def newest(results: Iterable[Result]) -> list[Result]:
    """Results of the planner's own policy, the last of each case, in the order of the table."""
    planned = (result for result in results if result["policy"] == "planned")
    found = {_case(result): result for result in sorted(planned, key=lambda result: str(result["date"]))}
    return sorted(found.values(), key=order)


def on_gpu(result: Result) -> bool:
    """Whether GPUs computed."""
    return bool(result["devices"][0].startswith("cuda"))


def order(result: Result) -> tuple[Any, ...]:
    """Fewer GPUs first, then by engine, then the larger matrix."""
    return len(result["devices"]), result["engine"], -result["n"], result["case"]


def peers_of(results: Iterable[Result]) -> list[Result]:
    """Every measurement of another library once, although the cases of one process share it."""
    found = {
        (peer["name"], peer["n"], len(peer.get("devices", [0])), str(peer.get("seconds", peer.get("error")))): peer
        for result in results
        for peer in result["peers"]
    }
    return [found[key] for key in sorted(found)]


def dgemm_of(result: Result) -> float:
    """DGEMM's rate on all devices of a result, in TFLOP/s: the mean of before and after."""
    return float(result["dgemm_tflops"]["before"] + result["dgemm_tflops"]["after"]) / 2


def best_peer(result: Result, prefix: str = "") -> Result | None:
    """The fastest peer whose name begins with ``prefix``; None where none was measured or all failed."""
    peers = [peer for peer in result["peers"] if peer["name"].startswith(prefix) and "tflops" in peer]
    return max(peers, key=lambda peer: float(peer["tflops"])) if peers else None


def joules_per_tflop(result: Result) -> float:
    """Energy of the whole call for 10¹² of the ``n³/3`` flops, median of the repeats."""
    return 3e12 * float(median(result["joules"])) / result["n"] ** 3


def whole_seconds(result: Result) -> float:
    """Median wall clock of the whole call; files without a field for it have it as their seconds."""
    return float(median(result.get("wall_seconds", result["seconds"])))


def _moved(result: Result) -> int:
    """Executed bytes over all links."""
    return sum(result["bytes"]["executed"].values())


def _seconds(result: Result) -> str:
    seconds = result["seconds"]
    return f"{median(seconds):.4g} ({min(seconds):.4g}-{max(seconds):.4g})"


def over_peer(result: Result, prefix: str = "") -> str:
    """Ratio to the rate of the fastest peer; empty without one."""
    peer = best_peer(result, prefix)
    return "" if peer is None else f"{result['tflops'] / peer['tflops']:.2f}"


def _engine(result: Result) -> str:
    """Engine, number of moduli, share of fall-backs, GPUs where there are several, and A where it is an array."""
    words = [result["engine"]]
    words += [f"{result['moduli']} moduli"] if "moduli" in result else []
    words += [f"{100 * result['fallback_share']:.2g} % native"] if result.get("fallback_share") else []
    words += [f"{len(result['devices'])} GPUs"] if len(result["devices"]) > 1 else []
    words += ["A a host array"] if result["source"] == "host-array" else []
    return ", ".join(words)


def _peer_rate(peer: Result) -> str:
    """Rate of a peer, or why there is none."""
    if "tflops" in peer:
        return f"**{peer['tflops']:.1f}**"
    error = " ".join(peer["error"].replace("|", "/").split())
    return error if len(error) <= _ERROR_LENGTH else f"{error[:_ERROR_LENGTH]}..."


def _gigabytes(result: Result, links: Sequence[str]) -> str:
    """Executed bytes of some links; beside the planned ones where, against the promise, they differ."""
    planned, executed = result["bytes"]["planned"], result["bytes"]["executed"]
    parts = [
        (f"{executed[link] / 1e9:.1f}" if executed[link] else "0")
        + (f" ({planned[link] / 1e9:.1f} planned)" if planned[link] != executed[link] else "")
        for link in links
        if link != "peer" or planned.get(link)
    ]
    return " + ".join(parts)


def _memory(result: Result) -> str:
    if "anonymous_peak_bytes" not in result:
        return ""
    both = zip(result["anonymous_peak_bytes"], result["anonymous_before_bytes"], strict=True)
    return f"{max(peak - before for peak, before in both) / 2**20:.0f} MiB"


def _budget(result: Result) -> str:
    unit, name = (2**30, "GiB") if result["budget_bytes"] >= 2**30 else (2**20, "MiB")
    return f"{result['budget_bytes'] / unit:.4g} {name}"


_EXPOSED: Column = ("exposed", lambda result: f"{100 * result['exposed_copy_share']:.1f} %")
_ENERGY: Column = ("kJ", lambda result: f"{median(result['joules']) / 1e3:.2f}")
_PROBLEM: list[Column] = [("n", lambda result: f"{result['n']:,}"), ("budget", _budget)]


def _gpu(link: str) -> list[Column]:
    """Columns of factorizations on GPUs."""
    return [
        ("engine", lambda result: f"[{_engine(result)}]({link}/{result['case']}.json)"),
        *_PROBLEM,
        ("whole call", lambda result: f"{whole_seconds(result):.4g}"),
        ("inside", lambda result: f"{median(result['seconds']):.4g}"),
        ("TFLOP/s", lambda result: f"**{result['tflops']:.2f}**"),
        ("of DGEMM", lambda result: f"**{result['tflops'] / dgemm_of(result):.3f}**"),
    ]


def _host(link: str) -> list[Column]:
    """Columns of factorizations on the host."""
    return [
        ("A", lambda result: f"[{_SOURCES[result['source']]}]({link}/{result['case']}.json)"),
        *_PROBLEM,
        ("seconds", lambda result: f"{median(result['seconds']):.4g}"),
        ("GFLOP/s", lambda result: f"**{1e3 * result['tflops']:.1f}**"),
        ("over dpotrf", lambda result: f"**{over_peer(result)}**" if result["peers"] else ""),
        ("memory", _memory),
    ]


_PREDICTIONS: list[Column] = [
    ("predicted", lambda result: f"{result['predicted_seconds']:.2f}"),
    ("measured", lambda result: f"{median(result['seconds']):.2f}"),
    ("low by", lambda result: f"{100 * (1 - result['predicted_seconds'] / median(result['seconds'])):.1f} %"),
]
_PEERS: list[Column] = [
    ("library", lambda peer: peer["name"] + (f", blocks of {peer['block']}" if "block" in peer else "")),
    ("GPUs", lambda peer: str(len(peer.get("devices", [0])))),
    ("n", lambda peer: f"{peer['n']:,}"),
    ("TFLOP/s", _peer_rate),
    ("seconds", lambda peer: f"{min(peer['seconds']):.4g}" if "seconds" in peer else ""),
]
_POLICY: list[Column] = [
    ("policy", lambda result: f"`{result['policy']}`"),
    ("seconds", _seconds),
    ("predicted", lambda result: f"{result['predicted_seconds']:.4g}"),
    ("TFLOP/s", lambda result: f"{result['tflops']:.2f}"),
    ("GB in", lambda result: _gigabytes(result, ["fetch"])),
    ("GB out", lambda result: _gigabytes(result, ["write"])),
    _EXPOSED,
    _ENERGY,
]


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(results=RESULTS)
    parser.add_argument("--update", dest="documents", type=Path, nargs="+", default=[], metavar="FILE")


def run(options: Options) -> None:
    """Print the tables, or rewrite them in documents."""
    for document in options.documents:
        print(f"{document}: {'updated' if update(document, options.results) else 'up to date'}")
    if not options.documents:
        link = os.path.relpath(options.results)
        made = tables(load(options.results), link, load_calls(options.results), load_passes(options.results))
        print("\n\n".join(made.values()))
