"""``ooc-chol geostat demo``: real terrain fitted out of core, held-out heights predicted, everything left in a folder."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.files import add_force, check_files
from ooc_chol.apps.geostat.cli.summary import fit_text, score_text
from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.dataset import DataSpec, example_spec, load_dataset, regular_grid
from ooc_chol.apps.geostat.data.io import json_files, text_file, write_json
from ooc_chol.apps.geostat.estimation.fitting import FitResult, fit
from ooc_chol.apps.geostat.estimation.progress import progress_for
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores, score
from ooc_chol.apps.geostat.kriging.prediction import Kriging, kriging
from ooc_chol.apps.geostat.pictures.plots import PICTURES, MapData, MapLabels, draw_maps

#: Share of the heights that the fit does not see.
HELD_OUT_SHARE = 0.1

#: Memory budget as a share of the factor's stored bytes: below one half, so that the run is out of core.
BUDGET_SHARE = 0.45

_MAP_COLUMNS = 90

_FORMAT = "ooc-chol geostat demo"

#: The files that the demonstration leaves behind: estimates and held-out scores; observed and predicted heights and the standard
#: error; plan and executed bytes of the last factorization; its trace for Perfetto.
_RESULT_FILE = "result.json"
_MAPS_FILE = "maps.png"
_REPORT_FILE = "report.txt"
_TRACE_FILE = "trace.pftrace"

#: Files that a new result and report may replace.
_RESULTS = json_files(_FORMAT)
_REPORTS = oc.FileKind(f"report of {_FORMAT}", f"{_FORMAT}\n".encode())


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for the files (default: demo-output)"
    )
    parser.add_argument("--n", type=int, default=4000, help="heights drawn from the terrain (default: 4000)")
    oc.FactorOptions.add_arguments(parser, more={"memory_budget": "here 0.45 of the bytes of the factor, shared"})
    add_force(parser)


def run(options: argparse.Namespace) -> int:
    """Fit, predict, draw and trace, into one folder."""
    oc.output_folder(options.output, option="--output")
    check_files(options, [], demo_outputs(options.output))
    run_demo(options.output, options.n, asked=FactorSettings.from_arguments(options), replace=options.force)
    return 0


def demo_outputs(folder: Path) -> list[oc.Output]:
    """What the demonstration writes, and which files it may replace."""
    kinds = {_RESULT_FILE: _RESULTS, _MAPS_FILE: PICTURES, _REPORT_FILE: _REPORTS, _TRACE_FILE: oc.TRACE_FILES}
    return [oc.Output("--output", folder / name, kind) for name, kind in kinds.items()]


def run_demo(folder: Path, n: int, *, asked: FactorSettings, replace: bool = False) -> None:
    """Fit, predict, score, draw and trace."""
    start = time.perf_counter()
    dataset = load_dataset(example_spec(f"jacksboro:{n}"))
    held, kept = np.split(np.arange(n), [round(n * HELD_OUT_SHARE)])
    fitted = dataset.observations.take(kept)
    settings = demo_settings(fitted.n, asked)
    print(f"{n} heights of the Jacksboro terrain (Matplotlib's elevation model): {fitted.n} to fit, {len(held)} held out")
    print(settings.plan(fitted.n), flush=True)
    progress = progress_for(sys.stderr, dataset.spec.unit)
    try:
        result = fit(fitted, settings=settings, progress=progress)
    finally:
        progress.close()
    print(fit_text(result, dataset.spec.unit), flush=True)
    write_json(folder / _RESULT_FILE, _content(dataset.spec, result), kind=_RESULTS, replace=replace)  # what comes may fail
    with kriging(fitted, result.model, settings=settings, trace=True) as kriged:
        _save_run(kriged, folder, replace=replace)
        scores = score(kriged.predict(dataset.observations.coordinates[held]), dataset.observations.values[held], fitted.values)
        maps = _maps(kriged, dataset.positions, held, kept, dataset.observations.values[kept])
        draw_maps(folder / _MAPS_FILE, *maps, replace=replace)
        factorization = kriged.factor.report.to_dict()
    print(score_text(scores, "m"))
    content = _content(dataset.spec, result, scores, factorization)
    write_json(folder / _RESULT_FILE, content, kind=_RESULTS, replace=replace)
    _print_paths(folder, time.perf_counter() - start)


def demo_settings(n: int, asked: FactorSettings) -> FactorSettings:
    """What is asked, with a budget that runs out of core where there is none."""
    budget = int(BUDGET_SHARE * 8 * n * (n + 1) // 2)
    return asked if asked.memory_budget is not None else replace(asked, memory_budget=budget)


def _save_run(kriged: Kriging, folder: Path, *, replace: bool) -> None:
    """Plan beside executed bytes, and the trace."""
    report = kriged.factor.report
    with text_file(folder / _REPORT_FILE, kind=_REPORTS, replace=replace) as stream:
        stream.write(f"{_FORMAT}\n\n{report.plan}\n\nExecuted\n{report}\n")
    kriged.factor.trace.save(folder / _TRACE_FILE, replace=replace)


def _maps(
    kriged: Kriging,
    positions: NDArray[np.float64],
    held: NDArray[np.intp],
    kept: NDArray[np.intp],
    values: NDArray[np.float64],
) -> tuple[MapData, MapLabels]:
    """Observed, predicted and standard error on a grid of squares."""
    extent = np.ptp(positions, axis=0)
    rows = max(1, round(_MAP_COLUMNS * extent[1] / extent[0]))
    x, y, points = regular_grid(positions, _MAP_COLUMNS, rows)
    grid = kriged.predict(points, target="field")
    mean, error = grid.mean.reshape(rows, -1), grid.standard_error.reshape(rows, -1)
    labels = MapLabels(
        "Jacksboro fault, Tennessee: heights, Matérn kriging and its standard error", "height (m)", "east (km)", "north (km)"
    )
    return MapData(positions[kept], values, x, y, mean, error, positions[held]), labels


def _content(
    spec: DataSpec,
    result: FitResult[Matern],
    scores: HeldOutScores | None = None,
    factorization: dict[str, object] | None = None,
) -> dict[str, Any]:
    """What is known so far, as the JSON file has it."""
    content = {"format": _FORMAT, "version": 1, "data": spec.to_dict(), "fit": result.to_dict()}
    return {**content, "held_out": None if scores is None else vars(scores), "factorization": factorization}


def _print_paths(folder: Path, seconds: float) -> None:
    """Say where each file is."""
    print(f"maps      {folder / _MAPS_FILE}")
    print(f"result    {folder / _RESULT_FILE}")
    print(f"report    {folder / _REPORT_FILE}: the last factorization's plan and what it did")
    print(f"trace     {folder / _TRACE_FILE}: open it at https://ui.perfetto.dev")
    print(f"all in {seconds:.0f} s")
