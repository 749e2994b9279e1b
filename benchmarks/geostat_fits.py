"""Whole data sets fitted exactly, with standard errors and held-out values: a JSON file for each.

`jason3`: wind speed along satellite tracks, chordal distances. `kaust`: a simulated set whose truth is known. Both are files of
the shared data. `jacksboro`: the elevation model that comes with Matplotlib, any number of its 138,632 heights. The file has
every evaluation, the estimates with their errors, what the last factorization moved, and the resident memory's peak.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import Options, Parser, link_from, markdown
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.data.dataset import example_spec, load_dataset
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.estimation.progress import progress_for
from ooc_chol.bench.ceilings import dgemm_tflops

FOLDER = "geostat"
_HEADINGS = ("data", "n", "machine", "precision", "fit", "evaluations", "smoothness")


@dataclass(frozen=True, eq=False)
class Case:
    """Data, and what is known about them."""

    observations: geostat.Observations
    unit: str
    nugget: str = "free"
    truth: dict[str, float] | None = None


def jason3(folder: Path | None, n: int | None) -> Case:
    """Wind speeds in m/s along the tracks of Jason-3."""
    columns = _read(folder, "jason3.csv", ("lon", "lat", "windspeed")).columns
    sites = geostat.chordal_coordinates(columns["lon"], columns["lat"])
    return Case(_thinned(geostat.make_observations(sites, columns["windspeed"]), n), "km")


def kaust(folder: Path | None, n: int | None) -> Case:
    """The simulated set of the 2021 KAUST competition; its truth is in the README of the shared data."""
    table = _read(folder, "XYZ_10K_15_0017526_23_1.csv", ("x", "y", "Measure"))
    observations = geostat.make_observations(table.stack(("x", "y")), table.columns["Measure"], mean="zero")
    return Case(_thinned(observations, n), "", "zero", {"variance": 1.5, "range": 0.017526, "smoothness": 2.3})


def jacksboro(folder: Path | None, n: int | None) -> Case:
    """Heights in metres."""
    del folder
    return Case(load_dataset(example_spec(f"jacksboro:{n or 138_632}")).observations, "km")


CASES: dict[str, Callable[[Path | None, int | None], Case]] = {"jason3": jason3, "kaust": kaust, "jacksboro": jacksboro}


def _read(folder: Path | None, name: str, columns: tuple[str, ...]) -> Table:
    if folder is None:
        raise ValueError(f"--data FOLDER is needed: the folder that holds {name}")
    return geostat.read_table(folder / name, columns)


def _thinned(observations: geostat.Observations, n: int | None) -> geostat.Observations:
    """``n`` observations at random, or all."""
    if n is None:
        return observations
    return observations.take(np.sort(np.random.default_rng(0).permutation(observations.n)[:n]))


def measured(options: Options) -> dict[str, Any]:
    """Fit, infer, predict."""
    case = CASES[options.what](options.data, options.n)
    total, rng = case.observations.n, np.random.default_rng(0)
    held, kept = np.split(rng.permutation(total), [round(options.held_out * total)])
    observations = case.observations.take(np.sort(kept))
    kept_factor = None if options.store else geostat.KeptFactor()
    where = {name: getattr(options, name) for name in ("devices", "memory_budget", "store")}
    settings = geostat.FactorSettings(**where, kept=kept_factor)
    how = {"smoothness": options.smoothness, "nugget": case.nugget, "method": options.method}
    how["settings"] = replace(settings, precision_threshold=options.precision_threshold)
    began = time.perf_counter()
    with closing(progress_for(sys.stdout, case.unit)) as progress:
        result = geostat.fit(observations, **how, progress=progress)
    fitted = time.perf_counter()
    found = geostat.infer(observations, result.model, estimated=result.estimated, settings=settings)
    inferred = time.perf_counter()
    content: dict[str, Any] = {
        "n": observations.n,
        "unit_of_range": case.unit,
        "fit": result.to_dict(),
        "inference": found.to_dict(),
        "seconds": {"fit": fitted - began, "standard_errors": inferred - fitted},
    }
    if case.truth is not None:
        estimates = {name: found.parameters[name] for name in case.truth}
        distance = {name: (each.value - case.truth[name]) / each.standard_error for name, each in estimates.items()}
        content |= {"truth": case.truth, "standard_errors_from_truth": distance}
    # with the factor of the fit, where it is kept
    with geostat.kriging(observations, result.model, settings=settings) as kriged:
        if len(held):
            sites, values = case.observations.coordinates[held], case.observations.values[held]
            scores = geostat.score(kriged.predict(sites), values, observations.values)
            content["held_out"] = vars(scores)
        content["seconds"]["kriging"] = time.perf_counter() - inferred
        content["seconds"]["whole"] = time.perf_counter() - began
        content["factorization"] = kriged.factor.report.to_dict()
        content["dgemm_tflops"] = dgemm_tflops(kriged.factor, kriged.factor.report.plan.devices, 1.0)
    if kept_factor is not None:
        kept_factor.close()
    content["peak_resident_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return content


def table(folder: Path, link: str) -> str:
    """The result files as a table, one row each; ``link`` is the folder as the document sees it."""
    lines = [_HEADINGS]
    for case in CASES:
        for path in sorted(folder.glob(f"{case}*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            lines.append(_row(content, f"[{content['case']}]({link}/{path.name})"))
    return markdown(*lines)


def _row(content: dict[str, Any], name: str) -> tuple[str, ...]:
    """One file."""
    on_gpu = content["factorization"]["devices"][0].startswith("cuda")
    machine = "one H200" if on_gpu else f"{content['machine']['cores']} cores"
    return (
        name,
        f"{content['n']:,}",
        f"{machine}, {content['memory_budget']}" if content["memory_budget"] else machine,
        _precision(content),
        _duration(content["seconds"]["fit"]),
        str(len(content["fit"]["evaluations"])),
        _estimate(content["inference"]["estimates"]["smoothness"]),
    )


def _precision(content: dict[str, Any]) -> str:
    """FP64, or the threshold of the search."""
    check = content["fit"]["precision"]
    return "FP64" if check is None else f"mixed, {check['threshold']:g}".replace("e-0", "e-")


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 200 else f"{seconds / 60:.1f} min"


def _estimate(estimate: dict[str, Any]) -> str:
    """Value and standard error."""
    return f"{estimate['value']:.4g} ± {estimate['standard_error']:.2g}"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("what", choices=CASES, nargs="?")
    parser.takes(data=Path, n=int, held_out=0.0, devices=None, memory_budget=None, method=None, store=Path)
    parser.add_argument("--smoothness", default="free", type=lambda text: text if text in ("free", "best") else float(text))
    parser.add_argument("--precision-threshold", type=float, help="of the fit's search; the rest is in FP64")


def documented(options: Options) -> dict[str, str]:
    """The table of a page by its mark, from the result files."""
    return {"geostat fits": table(options.output, link_from(options.update, options.output))}


def usual_name(options: Options) -> str | None:
    """That of the data."""
    return options.what


def run(options: Options) -> dict[str, Any]:
    """Run one case."""
    if options.what is None:
        raise ValueError(f"which data? There are {', '.join(CASES)}; or give --update DOCUMENT")
    about = {name: getattr(options, name) for name in ("memory_budget", "method", "precision_threshold")}
    content = {"case": options.what, **about, **measured(options)}
    for name, each in content["inference"]["estimates"].items():
        print(f"{name}: {each['value']:.6g} +- {each['standard_error']:.2g}")
    print({name: content[name] for name in ("standard_errors_from_truth", "held_out") if name in content})
    print(", ".join(f"{name} {value:.1f} s" for name, value in content["seconds"].items()))
    return content
