"""Tables of the paper's figures, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.read_results import read_result, result_named
from benchmarks.running import markdown, replaced
from ooc_chol.formats import FORMATS

#: Tiles of a format are shown by the bytes of an entry.
_TILES = f"tiles of {' '.join(str(fmt.itemsize) for fmt in FORMATS.values())} bytes"
#: What is said of the order of volumes.
_VOLUMES_TOLD = {True: "so here", False: "NOT so here", None: "nothing to compare here"}


def ablation_table(content: Mapping[str, Any]) -> str:
    """Figures 6 and 8: a line for each order and policy, then what the paper prints."""
    heading = ("n", "tile", "policy", "seconds", "TFLOP/s", "GB of A", "GB in", "GB out", "GB in all", "exposed")
    printed = content["paper"]
    order = " <= ".join(policy.upper() if policy != "async" else policy for policy in printed["volume_order"])
    return "\n".join(
        [
            _aligned(heading, [_ablation_row(run) for run in content["runs"]]),
            "",
            _budget_line(content["runs"]),
            f"the paper, V3 in FP64 on one GPU: {_listed(printed['fp64_tflops'], 'TFLOP/s')}",
            f"  bytes both ways at n = 160k with {printed['memory_gb']} GB: {_listed(printed['volume_gb_at_160k'], 'GB')}",
            f"  bytes {order}: {_VOLUMES_TOLD[content['volume_order_holds']]}",
        ]
    )


def _ablation_row(run: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in run:
        return f"{run['n']:,}", "", run["policy"], run["error"]
    moved = run["bytes"]["executed"]
    return (
        f"{run['n']:,}",
        str(run["tile_size"]),
        run["policy"],
        _seconds(run),
        f"{run['tflops']:.4g}",
        *(f"{moved[link] / 1e9:.4g}" for link in ("source", "fetch", "write")),
        f"{sum(moved.values()) / 1e9:.4g}",
        f"{100 * run['exposed_copy_share']:.1f} %",
    )


def kl_table(content: Mapping[str, Any]) -> str:
    """Figure 10: a line for each matrix and threshold."""
    heading = (
        "n", "nu", "correlation", "threshold", _TILES, "KL, paper", "KL, true", "log-likelihood", "certified",
        "measured", "again",
    )  # fmt: skip
    return "\n".join(
        [
            _aligned(heading, [_kl_row(run) for run in content["runs"]]),
            "",
            "KL, paper: half of logdet(L L^T) - logdet(A), signed. KL, true: of N(0, L L^T) from N(0, A), +- its standard error",
            "where sampled. The true one of FP64 is the floor. log-likelihood: its error for simulated observations.",
            "certified (~: only estimated), measured: ||A - L L^T||_F / ||A||_F. again: runs that were not good enough.",
        ]
    )


def _kl_row(run: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in run:
        return (*_matrix(run), _threshold(run), run["error"])
    return (
        *_matrix(run),
        _threshold(run),
        _tiles(run),
        f"{run['kl_paper']:.2e}",
        _with_error(run["kl_true"], run["kl_standard_error"]),
        f"{run['log_likelihood_error']:.2e}",
        _error(run),
        _or_nothing(run["measured_error"]),
        _again(run),
    )


def kl_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """For documents: the true divergence, and the paper's measure in brackets, by matrix and threshold."""
    return _by_threshold(runs, lambda run: f"{_short(run['kl_true'])} ({_short(run['kl_paper'])})")


def log_likelihood_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """For documents: the error of a log-likelihood, by matrix and threshold; FP64's own value beside."""
    return _by_threshold(
        runs, lambda run: _short(run["log_likelihood_error"]), ("FP64", lambda run: f"{run['log_likelihood']:.2f}")
    )


def mxp_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """For documents: speed and bytes by matrix and threshold."""
    heading = (
        "n",
        "correlation",
        "threshold",
        "seconds",
        "GFLOP/s",
        "MB out",
        _TILES,
        "certified",
        "logdet error",
    )
    rows = [
        (
            f"{run['n']:,}", run["correlation"], _threshold(run), _seconds(run), f"{1e3 * run['tflops']:.1f}",
            f"{run['bytes']['executed']['write'] / 1e6:.0f}", _tiles(run), _error(run),
            _short(run.get("logdet_error")),
        )
        for run in runs
    ]  # fmt: skip
    return markdown(heading, *rows)


def mxp_gpu_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """For documents: speed and bytes on GPUs, beside the FP64 run of the same matrix and DGEMM just after."""
    heading = (
        "n", "correlation", "threshold", "seconds", "TFLOP/s", "of FP64", "DGEMM", "GB in + out", _TILES, "moduli",
        "in FP16", "certified", "logdet error",
    )  # fmt: skip
    fp64: dict[tuple[str, str, str], float] = {}
    rows = []
    for run in runs:
        moved = run["bytes"]["executed"]
        if run["precision_threshold"] is None:
            fp64[_matrix(run)] = run["tflops"]
        reference = fp64.get(_matrix(run))
        compared = "" if reference is None else f"{run['tflops'] / reference:.2f}"
        row = [f"{run['n']:,}", run["correlation"], _threshold(run), _seconds(run), f"**{run['tflops']:.1f}**", compared]
        row += [f"{run['dgemm_tflops']['after']:.1f}", f"{moved['fetch'] / 1e9:.0f} + {moved['write'] / 1e9:.0f}", _tiles(run)]
        row += [str(run["moduli"]), f"{100 * run['half_share']:.0f} %"]
        rows.append([*row, _error(run), _short(run.get("logdet_error"))])
    return markdown(heading, *rows)


#: Tables for documents by the name of their place there: how each is made, and of which result files.
DOCUMENTED: dict[str, tuple[Callable[[Iterable[Mapping[str, Any]]], str], tuple[str, ...]]] = {
    "kl": (kl_markdown, ("host-kl-4096", "host-kl-8192")),
    "log-likelihood": (log_likelihood_markdown, ("host-kl-4096", "host-kl-8192")),
    "mxp": (mxp_markdown, ("host-mixed-8192",)),
    # FP64 first of each matrix
    "mxp-h200": (mxp_gpu_markdown, tuple(f"h200-mxp-163840-{name}" for name in ("weak", "medium", "medium-1e-5", "strong"))),
    "log-likelihood-h100": (log_likelihood_markdown, ("h100-kl-163840",)),
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


def _by_threshold(
    runs: Iterable[Mapping[str, Any]],
    cell: Callable[[Mapping[str, Any]], str],
    reference: tuple[str, Callable[[Mapping[str, Any]], str]] | None = None,
) -> str:
    """A row for each matrix and a column for each threshold; ``reference`` heads and fills a column of FP64 runs."""
    found: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for run in runs:
        found.setdefault(_matrix(run), {})[_threshold(run)] = run
    columns = sorted({name for row in found.values() for name in row} - {"FP64"}, key=float, reverse=True)
    rows = []
    for matrix, row in found.items():
        beside = [reference[1](row["FP64"])] if reference else []
        rows.append([*matrix, *beside, *(cell(row[name]) if name in row else "" for name in columns)])
    return markdown(["n", "nu", "correlation", *([reference[0]] if reference else []), *columns], *rows)


def _short(value: float | None) -> str:
    """Two digits; exponents without zeros."""
    return "" if value is None else f"{value:.1e}".replace("e-0", "e-").replace("e+00", "")


def mxp_table(content: Mapping[str, Any]) -> str:
    """Figures 11 and 12: a line for each matrix and threshold, then what the paper prints."""
    heading = (
        "n", "nu", "correlation", "threshold", "seconds", "TFLOP/s", "of FP64", "GB in", "GB out", _TILES,
        "moduli", "certified", "logdet error", "again",
    )  # fmt: skip
    fp64 = {_matrix(run): run["tflops"] for run in content["runs"] if run["precision_threshold"] is None and "error" not in run}
    printed = content["paper"]
    return "\n".join(
        [
            _aligned(heading, [_mxp_row(run, fp64.get(_matrix(run))) for run in content["runs"]]),
            "",
            _budget_line(content["runs"]),
            f"the paper: {_listed(printed['mixed_tflops'], 'TFLOP/s')}; FP64 {_listed(printed['fp64_tflops'], 'TFLOP/s')}",
        ]
    )


def _mxp_row(run: Mapping[str, Any], fp64: float | None) -> tuple[str, ...]:
    if "error" in run:
        return (*_matrix(run), _threshold(run), run["error"])
    moved = run["bytes"]["executed"]
    return (
        *_matrix(run),
        _threshold(run),
        _seconds(run),
        f"{run['tflops']:.4g}",
        "" if fp64 is None else f"{run['tflops'] / fp64:.2f}",
        f"{(moved['source'] + moved['fetch']) / 1e9:.4g}",
        f"{moved['write'] / 1e9:.4g}",
        _tiles(run),
        "" if run["moduli"] is None else str(run["moduli"]),
        _error(run),
        _or_nothing(run.get("logdet_error")),
        _again(run),
    )


def _matrix(run: Mapping[str, Any]) -> tuple[str, str, str]:
    """Cells that name a matrix: order, nu and correlation."""
    return f"{run['n']:,}", str(Fraction(run["nu"]).limit_denominator(1000)), run["correlation"]


def _threshold(run: Mapping[str, Any]) -> str:
    threshold = run["precision_threshold"]
    return "FP64" if threshold is None else f"{threshold:g}".replace("e-0", "e-")


def _tiles(run: Mapping[str, Any]) -> str:
    """Number of tiles in each format, the widest first."""
    return " ".join(str(run["formats"].get(name, 0)) for name in FORMATS)


def _error(run: Mapping[str, Any]) -> str:
    """What the error is certified to be at most; of runs from before there was that, an estimate, as "~2e-5"."""
    if run["certified_bound"] is not None or run.get("estimated_error") is None:
        return _short(run["certified_bound"])
    return f"~{_short(run['estimated_error'])}"


def _again(run: Mapping[str, Any]) -> str:
    return str(len(run["escalations"]) or "")


def _seconds(run: Mapping[str, Any]) -> str:
    seconds = run["seconds"]
    spread = f" ({min(seconds):.4g}-{max(seconds):.4g})" if len(seconds) > 1 else ""
    return f"{median(seconds):.4g}{spread}"


def _with_error(value: float | None, error: float | None) -> str:
    return _or_nothing(value) + ("" if error is None else f" +- {error:.0e}")


def _or_nothing(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _listed(figures: Mapping[str, float], unit: str) -> str:
    return ", ".join(f"{name} {figure:g}" for name, figure in figures.items()) + f" {unit}"


def _budget_line(runs: Sequence[Mapping[str, Any]]) -> str:
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
