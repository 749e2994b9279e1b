"""``ooc-chol impute demo``: a tensor is made on a graph of places, slices are taken away, and imputed."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.imputation.cli.options import FORCE, add_force, add_impute_options, impute_options
from ooc_chol.apps.imputation.graphs import neighbour_graph
from ooc_chol.apps.imputation.pictures import PICTURES, save_figure, slices_figure
from ooc_chol.apps.imputation.scores import neighbour_means, relative_error
from ooc_chol.apps.shared.pictures import check_picture

_FORMAT = "ooc-chol impute demo"
_RESULTS = tb.FileKind(f"result of {_FORMAT}", f'{{\n "format": "{_FORMAT}"'.encode(), endings=(".json",))
_PICTURE, _RESULT = "slices.png", "result.json"

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol impute demo",
    "ooc-chol impute demo --vertices 300 --size 40 --rank 4 --observed 0.5,0.7,0.9 --output larger",
    "ooc-chol impute demo --by entry --observed 0.3 --noise 0.01 --n-lambdas 8",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Make a tensor whose slices are of low rank in the Fourier domain of a graph of random places, take slices or entries "
        "away, impute them, and tell how far that is off, beside means of neighbours. Nothing is downloaded."
    )
    folder = "folder for the files (default: impute-demo)"
    parser.add_argument("--output", type=Path, default=Path("impute-demo"), metavar="DIR", help=folder)
    parser.add_argument("--vertices", type=int, default=200, metavar="N", help="vertices of the graph (default: 200)")
    parser.add_argument("--size", type=int, default=24, metavar="M", help="rows and columns of a slice (default: 24)")
    parser.add_argument("--rank", type=int, default=3, help="rank of slices of the transform (default: 3)")
    shares = "shares that are observed, with commas between (default: 0.7,0.8,0.9)"
    parser.add_argument("--observed", type=_shares, default=(0.7, 0.8, 0.9), metavar="SHARES", help=shares)
    parser.add_argument("--by", choices=("slice", "entry"), default="slice", help="what is missing (default: slice)")
    parser.add_argument("--noise", type=float, default=0.0, help="standard deviation of noise (default: 0; entries have about 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default: 0)")
    add_force(parser)
    add_impute_options(parser)


def run(options: argparse.Namespace) -> int:
    """Make, impute for each share, and draw the last one."""
    since = time.perf_counter()
    if options.vertices < 10:
        raise ValueError(f"--vertices {options.vertices} make no graph of places: take 10 or more")
    if options.n_lambdas == "auto":
        raise ValueError("--n-lambdas auto holds out a part, which the demo does not: give a number")
    tb.output_folder(options.output, option="--output")
    picture, result = options.output / _PICTURE, options.output / _RESULT
    check_picture(picture)
    outputs = [tb.Output("--output", picture, PICTURES), tb.Output("--output", result, _RESULTS)]
    tb.check_outputs(outputs, replace=options.force, ask=FORCE)
    graph = neighbour_graph(np.random.default_rng(options.seed).random((options.vertices, 2)))
    fourier = oc.GraphFourier(graph)
    sizes = (options.size, options.size, options.rank)
    true = oc.testing.low_rank_tensor(fourier, *sizes, noise=options.noise, seed=options.seed)
    print(
        f"{options.vertices} slices of {options.size} x {options.size}, of rank {options.rank} in the Fourier domain", flush=True
    )
    print(f"{'observed':>10}{'error':>12}{'at gaps':>12}{'neighbours':>12}{'lambdas':>9}{'steps':>7}{'seconds':>9}")
    rows: list[dict[str, Any]] = []
    for share in options.observed:
        mask = oc.testing.random_mask(true.shape, share, by=options.by, seed=options.seed)
        found = oc.impute(true, mask, fourier, progress=None if options.quiet else True, **impute_options(options))
        means = neighbour_means(true, mask, graph)
        rows.append(
            _row(
                share,
                found,
                relative_error(found.tensor, true),
                *(relative_error(each, true, ~mask) for each in (found.tensor, means)),
            )
        )
        print(_line(rows[-1]), flush=True)
    title = f"{100 * share:.0f} % of {'slices' if options.by == 'slice' else 'entries'} observed"
    save_figure(slices_figure(found.tensor, true, mask, true=true, title=title), picture, replace=options.force)
    content = {"format": _FORMAT, "version": 1, "vertices": options.vertices, "size": options.size, "rank": options.rank}
    content |= {"by": options.by, "noise": options.noise, "runs": rows}
    with tb.output_file(result, kind=_RESULTS, replace=options.force, ask=FORCE) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    options.answer = {**content, "files": {_PICTURE: picture, _RESULT: result}}
    print(f"files      {picture}, {result}")
    print(f"all in {time.perf_counter() - since:.0f} s")
    return 0


def _row(share: float, found: oc.Imputed, error: float, at_gaps: float, neighbours: float) -> dict[str, Any]:
    """Figures of one imputation."""
    report = found.report
    figures = {"observed": share, "error": error, "error_at_gaps": at_gaps, "error_of_neighbours": neighbours}
    return {**figures, "lambdas": len(report.history), "steps": report.steps, "seconds": report.seconds.total}


def _line(row: dict[str, Any]) -> str:
    """A line of the table."""
    errors = "".join(f"{row[name]:>12.2e}" for name in ("error", "error_at_gaps", "error_of_neighbours"))
    return f"{100 * row['observed']:>8.0f} %{errors}{row['lambdas']:>9}{row['steps']:>7}{row['seconds']:>9.2f}"


def _shares(text: str) -> tuple[float, ...]:
    """Shares with commas between."""
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers with commas between") from None
    if not all(0 < each < 1 for each in found):
        raise argparse.ArgumentTypeError(f"{text!r}: shares that are observed lie between 0 and 1")
    return found
