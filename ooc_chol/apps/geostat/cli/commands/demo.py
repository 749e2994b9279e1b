"""``ooc-chol geostat demo``: real terrain fitted out of core, held-out heights predicted, everything left in a folder."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.files import add_force, check_files
from ooc_chol.apps.geostat.cli.messages import tried
from ooc_chol.apps.geostat.cli.stepwise import told_batches
from ooc_chol.apps.geostat.cli.summary import fit_text, score_text
from ooc_chol.apps.geostat.cli.units import parameter_units
from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, example_spec, load_dataset
from ooc_chol.apps.geostat.data.io import json_files, text_file, write_json
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.data.terrain import Terrain, jacksboro
from ooc_chol.apps.geostat.estimation.fit_plan import FitPlan
from ooc_chol.apps.geostat.estimation.fitting import FitResult, fit, plan_fit
from ooc_chol.apps.geostat.estimation.progress import SilentProgress, progress_for
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores, score
from ooc_chol.apps.geostat.kriging.prediction import Kriging, kriging
from ooc_chol.apps.geostat.pictures.plots import PICTURES, save_figure
from ooc_chol.apps.geostat.pictures.terrain_picture import TerrainPicture, terrain_figure

#: Share of the heights that the fit does not see.
HELD_OUT_SHARE = 0.1

#: Memory budget as a share of the factor's stored bytes: below one half, so that the run is out of core.
BUDGET_SHARE = 0.45

#: Heights of the terrain from one standard error to the next; a standard error costs ``n**2`` flops, a mean next to nothing.
_ERROR_STEP = 3

#: Points that are predicted between two words of progress.
_BATCH = 4096

_FORMAT = "ooc-chol geostat demo"

#: The files that the demonstration leaves behind: estimates and held-out scores; true and predicted terrain, errors and memory;
#: plan and executed bytes of the last factorization; its trace for Perfetto.
_RESULT_FILE = "result.json"
_MAPS_FILE = "maps.png"
_REPORT_FILE = "report.txt"
_TRACE_FILE = "trace.pftrace"

#: Files that a new result and report may replace.
_RESULTS = json_files(_FORMAT)
_REPORTS = tb.FileKind(f"report of {_FORMAT}", f"{_FORMAT}\n".encode())


#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat demo",
    "ooc-chol geostat demo --n 10000 --output large-demo",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for the files (default: demo-output)"
    )
    parser.add_argument("--n", type=int, default=4000, help="heights drawn from the terrain (default: 4000)")
    oc.FactorOptions.add_arguments(
        parser, more={"memory_budget": "here 0.45 of the bytes of the factor, shared"}, without=["dtype"]
    )
    add_force(parser)


def run(options: argparse.Namespace) -> int:
    """Fit, predict, draw and trace, into one folder."""
    tb.output_folder(options.output, option="--output")
    check_files(options, [], demo_outputs(options.output))
    settings = FactorSettings.from_arguments(options)
    content = run_demo(options.output, options.n, asked=settings, replace=options.force, quiet=options.quiet)
    files = {name: options.output / name for name in (_MAPS_FILE, _RESULT_FILE, _REPORT_FILE, _TRACE_FILE)}
    options.answer = {**content, "files": files}
    return 0


def demo_outputs(folder: Path) -> list[tb.Output]:
    """Files that the demonstration writes, and which of them it may replace."""
    kinds = {_RESULT_FILE: _RESULTS, _MAPS_FILE: PICTURES, _REPORT_FILE: _REPORTS, _TRACE_FILE: tb.TRACE_FILES}
    return [tb.Output("--output", folder / name, kind) for name, kind in kinds.items()]


@dataclass(frozen=True, eq=False)
class _Split:
    """The heights of the demonstration: those that are fitted, and those that are held out."""

    dataset: Dataset
    held: NDArray[np.intp]
    kept: NDArray[np.intp]

    @property
    def fitted(self) -> Observations:
        """The observations that the fit sees."""
        return self.dataset.observations.take(self.kept)

    @property
    def hidden(self) -> NDArray[np.float64]:
        """The heights that it does not see."""
        return self.dataset.observations.values[self.held]


def run_demo(folder: Path, n: int, *, asked: FactorSettings, replace: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Fit, predict, score, draw and trace; what the result file has."""
    start = time.perf_counter()
    dataset = load_dataset(example_spec(f"jacksboro:{n}"))
    split = _Split(dataset, *np.split(np.arange(n), [round(n * HELD_OUT_SHARE)]))
    fitted, terrain = split.fitted, jacksboro()
    settings = demo_settings(fitted.n, asked)
    print(f"{n} heights of the Jacksboro terrain (Matplotlib's elevation model): {fitted.n} to fit, {len(split.held)} held out")
    plan = _planned(fitted, settings)
    print(plan, flush=True)
    result = _fitted(dataset, fitted, plan, quiet=quiet)
    print(fit_text(result, parameter_units(dataset, result.model)), flush=True)
    write_json(folder / _RESULT_FILE, _content(dataset.spec, result), kind=_RESULTS, replace=replace)  # what comes may fail
    with kriging(fitted, result.model, settings=settings, trace=True) as kriged:
        _save_run(kriged, folder, replace=replace)
        picture, scores = _predicted(kriged, split, terrain, quiet=quiet)
        save_figure(terrain_figure(picture), folder / _MAPS_FILE, replace=replace)
        factorization = kriged.factor.report.to_dict()
    print(score_text(scores, "m"))
    content = _content(dataset.spec, result, scores, factorization)
    write_json(folder / _RESULT_FILE, content, kind=_RESULTS, replace=replace)
    _print_paths(folder, time.perf_counter() - start)
    return content


def demo_settings(n: int, asked: FactorSettings) -> FactorSettings:
    """Settings of the caller, with a budget that runs out of core where none is given."""
    budget = int(BUDGET_SHARE * 8 * n * (n + 1) // 2)
    return asked if asked.memory_budget is not None else replace(asked, memory_budget=budget)


#: The fit of the demonstration.
_FIT: dict[str, Any] = {"smoothness": "free", "starts": "vecchia"}


def _planned(fitted: Observations, settings: FactorSettings) -> FitPlan:
    """The plan, with predicted seconds: rates of its tiles are measured where none are known, which takes seconds."""
    plan = plan_fit(fitted, **_FIT, settings=settings)
    each = plan.factorization
    assert each is not None, "an exact fit that cannot factor is refused"
    if each.seconds is not None or each.grid.nt == 1:  # LAPACK or cuSOLVER takes the whole
        return plan
    what = f"{', '.join(each.devices)} in tiles of {each.grid.nb}"
    print(f"measuring the rates of {what}, once, so that plan, report and trace predict seconds", flush=True)

    def measure() -> None:
        oc.rates.measure_rates(each.grid.nb, each.devices)

    return plan_fit(fitted, **_FIT, settings=settings) if tried("predicted seconds", measure) else plan


def _fitted(dataset: Dataset, fitted: Observations, plan: FitPlan, *, quiet: bool) -> FitResult[Matern]:
    """All parameters by maximum likelihood, the smoothness too; Vecchia's approximation says where the search starts."""
    print("fitting range, smoothness, variance and nugget: a start by Vecchia's approximation, then exactly", flush=True)
    progress = SilentProgress() if quiet else progress_for(sys.stderr, dataset.spec.unit)
    try:
        return fit(fitted, **_FIT, plan=plan, progress=progress)
    finally:
        progress.close()


def _save_run(kriged: Kriging, folder: Path, *, replace: bool) -> None:
    """Plan beside executed bytes, and the trace."""
    report = kriged.factor.report
    with text_file(folder / _REPORT_FILE, kind=_REPORTS, replace=replace) as stream:
        stream.write(f"{_FORMAT}\n\n{report.plan}\n\nExecuted\n{report}\n")
    kriged.factor.trace.save(folder / _TRACE_FILE, replace=replace)


def _predicted(kriged: Kriging, split: _Split, terrain: Terrain, *, quiet: bool) -> tuple[TerrainPicture, HeldOutScores]:
    """Heights held out, all of the terrain, and what the picture tells of memory."""
    prediction = kriged.predict(split.dataset.observations.coordinates[split.held])
    x, y = terrain.x[::_ERROR_STEP], terrain.y[::_ERROR_STEP]
    mean, error = np.empty(terrain.heights.size), np.empty(len(x) * len(y))
    everywhere, coarse = _points(terrain.x, terrain.y), _points(x, y)
    for batch in told_batches(len(mean), _BATCH, "predicted heights", quiet=quiet):
        mean[batch] = kriged.predict_mean(everywhere[batch])
    for batch in told_batches(len(error), _BATCH, "standard errors", quiet=quiet):
        error[batch] = kriged.predict(coarse[batch], target="field").standard_error
    report, model, n = kriged.factor.report, kriged.model, len(split.kept)
    assert isinstance(model, Matern), "the demonstration fits no other"
    predicted, seconds = report.plan.seconds, f"one factorization: {report.inside_seconds:.2g} s"
    picture = TerrainPicture(
        terrain=terrain,
        sites=split.dataset.positions[split.kept],
        mean=mean.reshape(terrain.heights.shape),
        x=x,
        y=y,
        standard_error=error.reshape(len(y), len(x)),
        held_out=split.hidden,
        prediction=prediction,
        title=f"Jacksboro fault, Tennessee: {terrain.heights.size:,} heights from {n:,}",
        subtitle=f"Kriging with a Matérn covariance of smoothness {model.smoothness:.3g} and range {model.range:.3g} km, "
        "both by exact maximum likelihood",
        memory=_memory(report, n),
        budget_bytes=sum(budget.budget_bytes for budget in report.plan.budgets),
        factor_bytes=report.plan.stored_bytes,
        memory_text=seconds if predicted is None else f"{seconds}; {predicted:.2g} s were predicted",
    )
    return picture, score(prediction, split.hidden, kriged.observations.values)


def _memory(report: tb.FactorReport, n: int) -> list[tuple[str, int]]:
    """Bytes stored, moved and used, by name."""
    return [
        ("covariance matrix A, made tile by tile, never stored", 8 * n * n),
        ("tiles of L moved out of and into working memory", sum(report.bytes.executed.values())),
        ("its Cholesky factor L", report.plan.stored_bytes),
        ("working memory used at most", sum(report.execution.peak_bytes)),
    ]


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """All points of a raster, row by row."""
    return np.column_stack([axis.ravel() for axis in np.meshgrid(x, y)])


def _content(
    spec: DataSpec, result: FitResult[Matern], scores: HeldOutScores | None = None, factorization: dict[str, object] | None = None
) -> dict[str, Any]:
    """Results known so far, as the JSON file has them."""
    content = {"format": _FORMAT, "version": 1, "data": spec.to_dict(), "fit": result.to_dict()}
    return {**content, "held_out": None if scores is None else vars(scores), "factorization": factorization}


def _print_paths(folder: Path, seconds: float) -> None:
    """Say where each file is."""
    print(f"maps      {folder / _MAPS_FILE}")
    print(f"result    {folder / _RESULT_FILE}")
    print(f"report    {folder / _REPORT_FILE}: the last factorization's plan and what it did")
    print(f"trace     {folder / _TRACE_FILE}: open it at https://ui.perfetto.dev")
    print(f"all in {seconds:.0f} s")
