"""The comparison of spatial methods by Heaton et al. (2019, JABES 24), on its data or a simulated twin.

    python -m benchmarks heaton temperatures.csv --output heaton.json --picture heaton.png
    python -m benchmarks heaton --twin 100,60 --models half-constant

Fits, predicts and scores held-out temperatures. The data are yours to give (``all.sat.temps`` of
github.com/finnlindgren/heatoncomparison as CSV), or a twin is simulated.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from benchmarks.competition.data import LATTICE, make_twin, read_competition
from benchmarks.competition.trial import TRIALS, HeldOut, Trial, run_trial
from benchmarks.running import Options, Parser
from ooc_chol.apps.geostat.cli.cluster import on_cluster
from ooc_chol.apps.geostat.cli.files import check_files
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings, seed
from ooc_chol.apps.geostat.data.endings import RESULT, check_output_path
from ooc_chol.apps.geostat.data.io import json_files, write_json
from ooc_chol.apps.geostat.estimation.progress import SilentProgress, progress_for
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.pictures.plots import PICTURES, add_colour_bar, check_picture, new_figure, save_figure

#: Share of the errors that the colours of the picture tell apart.
_ERROR_SHARE = 0.995

#: Of the files; those written by the command of old are replaced as well.
_FORMAT = "ooc-chol bench heaton"
RESULTS = json_files(_FORMAT)

#: Scores of the comparison's tables, by the names that they have there.
_SCORES = {"MAE": "mae", "RMSE": "rmse", "CRPS": "crps", "INT": "interval_score", "CVG": "coverage"}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="CSV with Lon, Lat, MaskTemp and TrueTemp, or modis.npz")
    parser.add_argument(
        "--twin",
        nargs="?",
        const=LATTICE,
        type=_shape,
        metavar="NX,NY",
        help="simulate an exponential field with clouds instead, by default on the comparison's 500,300 pixels",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the twin (default: 0)")
    parser.add_argument(
        "--models",
        default="half-constant,free-constant",
        metavar=",".join(TRIALS),
        help="smoothness 1/2 or estimated, or two structures; constant or linear mean (default: %(default)s)",
    )
    parser.add_argument(
        "--method",
        choices=("vecchia", "exact"),
        default="vecchia",
        help="Vecchia's approximation and neighbourhoods (default), or exact likelihoods and kriging, for GPUs",
    )
    parser.add_argument("--output", type=Path, metavar="RESULT.json", help="write everything here")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw observed, predicted and error of the first model")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_settings(parser)


def run(options: Options) -> int:
    """Run the models one after the other; the file is written after each, so that none is lost."""
    return on_cluster(_compared)(options) or 0


def _compared(options: argparse.Namespace) -> int:
    models = _checked_models(options)
    outputs = [tb.Output("--output", options.output, RESULTS), tb.Output("--picture", options.picture, PICTURES)]
    check_files(options, [("DATA", options.data)], outputs)
    if options.output is not None:
        check_output_path(options.output, RESULT, "results")
    if options.picture is not None:
        check_picture(options.picture)
    data = make_twin(options.twin, seed=options.seed) if options.data is None else read_competition(options.data)
    print(f"{data.name}: {len(data.values):,} values to fit, {len(data.test_values):,} to predict", flush=True)
    settings = factor_settings(options)
    content: dict[str, Any] = {"format": _FORMAT, "version": 1, "data": data.name, "machine": _machine(options), "models": []}
    found: list[Prediction] = []
    print(_heading(), flush=True)
    for name in models:
        trial = Trial.named(name, method=options.method, settings=settings)
        progress = SilentProgress() if options.quiet else progress_for(sys.stderr, "degrees")
        try:
            result = run_trial(data, trial, progress=progress, predicted=found.append)
        finally:
            progress.close()
        content["models"].append(result)
        print(_row(result), flush=True)
        if options.output is not None:
            write_json(options.output, content, kind=RESULTS, replace=options.force or len(found) > 1)
    if options.picture is not None:
        _draw(options, data, found[0], Trial.named(models[0], method=options.method))
    return 0


def _checked_models(options: Options) -> list[str]:
    """The models that are asked for, and either a file or a twin."""
    if (options.data is None) == (options.twin is None):
        raise ValueError("give either DATA (all.sat.temps as CSV, or modis.npz) or --twin")
    models = [name.strip() for name in options.models.split(",")]
    unknown = [name for name in models if name not in TRIALS]
    if unknown:
        raise ValueError(f"--models has {', '.join(map(repr, unknown))}, but there are {', '.join(TRIALS)}")
    return models


def _machine(options: Options) -> dict[str, Any]:
    """What a reader of the seconds must know."""
    devices = [str(device) for device in oc.devices().devices]
    return {
        "ooc_chol": oc.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "devices": devices,
        "asked_devices": options.devices,
        "memory_budget": options.memory_budget,
    }


def _heading() -> str:
    return f"{'model':16s}" + "".join(f"{name:>8s}" for name in _SCORES) + f"{'fit s':>9s}{'whole s':>9s}{'log-likelihood':>16s}"


def _row(result: dict[str, Any]) -> str:
    """A model's line of the table."""
    scores, seconds = result["scores"], result["seconds"]
    numbers = "".join(f"{scores[key]:8.3f}" for key in _SCORES.values())
    return f"{result['model']:16s}{numbers}{seconds['fit']:9.1f}{seconds['all']:9.1f}{result['fit']['loglik']:16.1f}"


def _draw(options: Options, data: HeldOut, prediction: Prediction, trial: Trial) -> None:
    """The picture of one model."""
    known, held_out = (data.sites, data.values), (data.test_sites, data.test_values)
    figure = competition_figure(known, held_out, prediction.mean, title=f"{data.name}: {trial.words}")
    save_figure(figure, options.picture, replace=options.force)
    print(f"picture in {options.picture}")


def competition_figure(
    known: tuple[NDArray[np.float64], NDArray[np.float64]],
    held_out: tuple[NDArray[np.float64], NDArray[np.float64]],
    mean: NDArray[np.float64],
    *,
    title: str,
    unit: str = "degrees C",
) -> Any:
    """Pixels that were fitted, the same with predictions of the others, and the errors of these."""
    places = np.concatenate([known[0], held_out[0]])
    axes = [np.unique(places[:, k]) for k in (0, 1)]
    observed, predicted, error = (np.full((len(axes[1]), len(axes[0])), np.nan) for _ in range(3))
    for image, (where, values) in (
        (observed, known),
        (predicted, known),
        (predicted, (held_out[0], mean)),
        (error, (held_out[0], mean - held_out[1])),
    ):
        image[np.searchsorted(axes[1], where[:, 1]), np.searchsorted(axes[0], where[:, 0])] = values
    figure = new_figure((15, 3.7))
    panels = figure.subplots(1, 3, sharey=True)
    low, high = np.nanmin(predicted), np.nanmax(predicted)
    largest = float(np.quantile(np.abs(error[np.isfinite(error)]), _ERROR_SHARE))
    colours = {"cmap": "viridis", "vmin": low, "vmax": high}, {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
    rmse = float(np.sqrt(np.nanmean(error**2)))
    words = (f"observed: {len(known[1]):,} pixels", f"predicted: {len(mean):,} pixels more", f"error: RMSE {rmse:.3f} {unit}")
    for panel, image, how, text in zip(panels, (observed, predicted, error), (colours[0], *colours), words, strict=True):
        shown = panel.pcolormesh(axes[0], axes[1], image, shading="nearest", rasterized=True, **how)
        panel.set_title(text)
        panel.set_aspect("equal")
        panel.set_xlabel("longitude")
        add_colour_bar(panel, shown, unit, extend="both" if how is colours[1] else "neither")
    panels[0].set_ylabel("latitude")
    figure.suptitle(title)
    return figure


def _shape(text: str) -> tuple[int, int]:
    columns, _, rows = text.partition(",")
    if not (columns.strip().isdecimal() and rows.strip().isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NX,NY")
    return int(columns), int(rows)
