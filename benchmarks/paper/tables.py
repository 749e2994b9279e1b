"""Tables of the paper's figures: on the screen, and for documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from benchmarks.read_results import read_result, result_named
from benchmarks.running import markdown, replaced
from ooc_chol.formats import FORMATS

Run: TypeAlias = Mapping[str, Any]
#: Tiles of a format are shown by the bytes of an entry.
_TILES = f"tiles of {' '.join(str(fmt.itemsize) for fmt in FORMATS.values())} bytes"
#: What is said of the order of volumes.
_VOLUMES_TOLD = {True: "so here", False: "NOT so here", None: "nothing to compare here"}


def _short(value: float | None) -> str:
    """Two digits; exponents without zeros."""
    return "" if value is None else f"{value:.1e}".replace("e-0", "e-").replace("e+00", "")


def _seconds(run: Run) -> str:
    seconds = run["seconds"]
    spread = f" ({min(seconds):.4g}-{max(seconds):.4g})" if len(seconds) > 1 else ""
    return f"{median(seconds):.4g}{spread}"


def _error(run: Run) -> str:
    """What the error is certified to be at most; of runs from before there was that, an estimate, as "~2e-5"."""
    if run["certified_bound"] is not None or run.get("estimated_error") is None:
        return _short(run["certified_bound"])
    return f"~{_short(run['estimated_error'])}"


def _divergence(run: Run) -> str:
    """The true one, and its standard error where it is sampled."""
    error = run["kl_standard_error"]
    return _short(run["kl_true"]) + ("" if error is None else f" +- {error:.0e}")


def _moved(*links: str) -> Callable[[Run], str]:
    """GB over some links."""
    return lambda run: f"{sum(run['bytes']['executed'][link] for link in links) / 1e9:.4g}"


#: Cells by their headings; what stands behind a bar tells columns of one heading apart.
_CELLS: dict[str, Callable[[Run], str]] = {
    "n": lambda run: f"{run['n']:,}",
    "nu": lambda run: str(Fraction(run["nu"]).limit_denominator(1000)),
    "correlation": lambda run: run["correlation"],
    "threshold": lambda run: (
        "FP64" if run["precision_threshold"] is None else f"{run['precision_threshold']:g}".replace("e-0", "e-")
    ),
    "policy": lambda run: run["policy"],
    "tile": lambda run: str(run.get("tile_size", "")),
    "seconds": _seconds,
    "TFLOP/s": lambda run: f"{run['tflops']:.4g}",
    "seconds|median": lambda run: f"{median(run['seconds']):.4g}",
    "TFLOP/s|in a document": lambda run: f"**{run['tflops']:.1f}**",
    "of FP64": lambda run: "" if run["fp64_tflops"] is None else f"{run['tflops'] / run['fp64_tflops']:.2f}",
    "GB of A": _moved("source"),
    "GB in": _moved("fetch"),
    "GB in|with A": _moved("source", "fetch"),
    "GB out": _moved("write"),
    "GB in all": lambda run: f"{sum(run['bytes']['executed'].values()) / 1e9:.4g}",
    "exposed": lambda run: f"{100 * run['exposed_copy_share']:.1f} %",
    _TILES: lambda run: " ".join(str(run["formats"].get(name, 0)) for name in FORMATS),
    "moduli": lambda run: "" if run["moduli"] is None else str(run["moduli"]),
    "KL, paper": lambda run: _short(run["kl_paper"]),
    "KL, true": _divergence,
    "log-likelihood": lambda run: _short(run["log_likelihood_error"]),
    "certified": _error,
    "measured": lambda run: _short(run["measured_error"]),
    "logdet error": lambda run: _short(run.get("logdet_error")),
    "again": lambda run: str(len(run["escalations"]) or ""),
}
_MATRIX = ("n", "nu", "correlation")
_ABLATION = ("n", "tile", "policy", "seconds", "TFLOP/s", "GB of A", "GB in", "GB out", "GB in all", "exposed")
_KL = (*_MATRIX, "threshold", _TILES, "KL, paper", "KL, true", "log-likelihood", "certified", "measured", "again")
_MXP = (
    *(*_MATRIX, "threshold", "seconds", "TFLOP/s", "of FP64", "GB in|with A", "GB out", _TILES),
    *("moduli", "certified", "logdet error", "again"),
)
_MXP_GPU = ("correlation", "threshold", "seconds|median", "TFLOP/s|in a document", "of FP64", "certified", "logdet error")


def _matrix(run: Run) -> tuple[str, ...]:
    """Cells that name a matrix."""
    return tuple(_CELLS[name](run) for name in _MATRIX)


def _headings(columns: Sequence[str]) -> list[str]:
    return [name.split("|")[0] for name in columns]


def _rows(runs: Iterable[Run], columns: Sequence[str], about: str = "threshold") -> list[list[str]]:
    """A row for each run; one without a result has its error behind the cell that tells what it is about."""
    fp64: dict[tuple[str, ...], float] = {}
    rows = []
    for run in runs:
        if "error" in run:
            rows.append([*(_CELLS[name](run) for name in columns[: columns.index(about) + 1]), run["error"]])
            continue
        if run["precision_threshold"] is None:
            fp64[_matrix(run)] = run["tflops"]
        rows.append([_CELLS[name]({**run, "fp64_tflops": fp64.get(_matrix(run))}) for name in columns])
    return rows


def ablation_table(content: Mapping[str, Any]) -> str:
    """Figures 6 and 8: a line for each order and policy, then what the paper prints."""
    printed = content["paper"]
    order = " <= ".join(policy.upper() if policy != "async" else policy for policy in printed["volume_order"])
    return "\n".join(
        [
            _aligned(_ABLATION, _rows(content["runs"], _ABLATION, "policy")),
            "",
            _budget_line(content["runs"]),
            f"the paper, V3 in FP64 on one GPU: {_listed(printed['fp64_tflops'], 'TFLOP/s')}",
            f"  bytes both ways at n = 160k with {printed['memory_gb']} GB: {_listed(printed['volume_gb_at_160k'], 'GB')}",
            f"  bytes {order}: {_VOLUMES_TOLD[content['volume_order_holds']]}",
        ]
    )


def kl_table(content: Mapping[str, Any]) -> str:
    """Figure 10: a line for each matrix and threshold."""
    return "\n".join(
        [
            _aligned(_KL, _rows(content["runs"], _KL)),
            "",
            "KL, paper: half of logdet(L L^T) - logdet(A), signed. KL, true: of N(0, L L^T) from N(0, A), +- its standard error",
            "where sampled. The true one of FP64 is the floor. log-likelihood: its error for simulated observations.",
            "certified (~: only estimated), measured: ||A - L L^T||_F / ||A||_F. again: runs that were not good enough.",
        ]
    )


def mxp_table(content: Mapping[str, Any]) -> str:
    """Figures 11 and 12: a line for each matrix and threshold, then what the paper prints."""
    printed = content["paper"]
    told = f"the paper: {_listed(printed['mixed_tflops'], 'TFLOP/s')}; FP64 {_listed(printed['fp64_tflops'], 'TFLOP/s')}"
    table = _aligned(_headings(_MXP), _rows(content["runs"], _MXP))
    return "\n".join([table, "", _budget_line(content["runs"]), told])


def likelihoods_markdown(runs: Iterable[Run]) -> str:
    """The true divergence and the error of a log-likelihood, by matrix and threshold; FP64's own value between."""
    found: dict[tuple[str, ...], dict[str, Run]] = {}
    for run in runs:
        found.setdefault(_matrix(run), {})[_CELLS["threshold"](run)] = run
    thresholds = sorted({name for row in found.values() for name in row} - {"FP64"}, key=float, reverse=True)
    rows = []
    for (_, nu, correlation), row in found.items():
        divergences, errors = (
            [_short(row[name][what]) if name in row else "" for name in thresholds]
            for what in ("kl_true", "log_likelihood_error")
        )
        rows.append([nu, correlation, *divergences, f"{row['FP64']['log_likelihood']:.2f}", *errors])
    divergences, errors = ([f"{what}, {name}" for name in thresholds] for what in ("KL", "error"))
    return markdown(["nu", "correlation", *divergences, "log-likelihood", *errors], *rows)


def mxp_gpu_markdown(runs: Iterable[Run]) -> str:
    """Speed and bytes on GPUs, beside the FP64 run of the same matrix."""
    return markdown(_headings(_MXP_GPU), *_rows(runs, _MXP_GPU))


#: Tables for documents by the name of their place there: how each is made, and of which result files.
DOCUMENTED: dict[str, tuple[Callable[[Iterable[Run]], str], tuple[str, ...]]] = {
    "likelihoods": (likelihoods_markdown, ("host-kl-8192",)),
    # FP64 first of each matrix
    "mxp-h200": (mxp_gpu_markdown, tuple(f"h200-mxp-163840-{name}" for name in ("weak", "medium", "strong"))),
}


def documented(name: str, folder: Path) -> str:
    """The table of that name in :data:`DOCUMENTED`, from the result files in ``folder``."""
    make, cases = DOCUMENTED[name]
    contents = [read_result(folder / f"{case}.json") for case in cases]
    with result_named(folder / f"{cases[0]}.json"):
        return make([run for content in contents for run in content["runs"]])


def with_paper_tables(text: str, folder: Path) -> str:
    """``text`` with the tables of the paper's figures, from the result files in ``folder``, where it has places for them."""
    for name in DOCUMENTED:
        if f"<!-- {name} -->" in text:
            text = replaced(text, name, documented(name, folder))
    return text


def _listed(figures: Mapping[str, float], unit: str) -> str:
    return ", ".join(f"{name} {figure:g}" for name, figure in figures.items()) + f" {unit}"


def _budget_line(runs: Sequence[Run]) -> str:
    """Memory per device at each order, as a share of L's bytes in FP64."""
    budgets = {run["n"]: run for run in runs if "error" not in run}
    parts = [
        f"{run['budget_bytes'] / 1e9:.3g} GB at n = {n:,} ({100 * run['budget_bytes'] / (4 * n * (n + 1)):.0f} % of L in FP64)"
        for n, run in budgets.items()
    ]
    return f"memory of each device: {'; '.join(parts) or 'unknown'}"


def _aligned(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side; a row that ends early, with an error, widens none."""
    lines = [heading, *rows]
    whole = [line for line in lines if len(line) == len(heading)]
    widths = [max(len(line[column]) for line in whole) for column in range(len(heading))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines)
