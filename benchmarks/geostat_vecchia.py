"""Vecchia's approximation on real and synthetic data: estimates, seconds, gaps to exact, and exact fits from both starts.

DATA is the folder with jason3.csv (wind speeds along satellite tracks, of R's GpGp) and XYZ_10K_15_0017526_23_1.csv (the KAUST
competition's of 2021, of R's exageostatR). Whole files are fitted by the approximation; random samples of 2,000 and windows
also exactly, from the two kinds of starts. Smoothness and nugget are estimated.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import Options, Parser, brief
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.estimation.vecchia import approximated
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import conditioning

FOLDER = "geostat"
#: Observations of a sample, its seed, and repeats of one evaluation.
SAMPLE, SEED, REPEATS = 2000, 1, 5
NAME = "vecchia"

#: Observations up to which an estimate is compared with the exact likelihood.
LARGEST_EXACT = 10_000


def data_sets(folder: Path) -> dict[str, geostat.Observations]:
    """Both files whole, a random sample of each, and a window."""
    table = geostat.read_table(folder / "jason3.csv", ("lon", "lat", "windspeed"))
    sites = geostat.chordal_coordinates(table.columns["lon"], table.columns["lat"])
    jason = geostat.make_observations(sites, table.columns["windspeed"])
    table = geostat.read_table(folder / "XYZ_10K_15_0017526_23_1.csv", ("x", "y", "Measure"))
    kaust = geostat.make_observations(table.stack(("x", "y")), table.columns["Measure"])
    rng = np.random.default_rng(SEED)
    return {
        "jason3": jason,
        "jason3 sample": jason.take(rng.permutation(jason.n)[:SAMPLE]),
        "jason3 window": jason.take(np.flatnonzero(jason.coordinates[:, 0] > 4200.0)[:3000]),
        "KAUST": kaust,
        "KAUST sample": kaust.take(rng.permutation(kaust.n)[:SAMPLE]),
        "KAUST window": kaust.take(np.flatnonzero(np.all(kaust.coordinates < 0.45, axis=1))),
    }


def evaluation_seconds(observations: geostat.Observations, model: geostat.Matern) -> dict[str, Any]:
    """Neighbours, a value, and a value with derivatives: every repeat."""
    correlation = correlation_of(model)
    found: dict[str, list[float]] = {"neighbours": [], "value": [], "derivatives": []}
    for _ in range(REPEATS):
        times = [time.perf_counter()]
        graph = conditioning(observations.coordinates)
        times.append(time.perf_counter())
        for shape in (None, model.parameters):
            approximated(observations, correlation, graph, variance=None, shape=shape)
            times.append(time.perf_counter())
        for name, seconds in zip(found, np.diff(times), strict=True):
            found[name].append(float(seconds))
    return found


def summary(result: geostat.FitResult[geostat.Matern]) -> dict[str, Any]:
    """What is compared."""
    model = result.model
    return {
        **{name: getattr(model, name) for name in ("range", "smoothness", "variance")},
        "nugget_ratio": model.nugget / model.variance,
        "loglik": result.loglik,
        "evaluations": [evaluation.loglik for evaluation in result.evaluations],
        "start_evaluations": result.subset_evaluations,
        "seconds": result.seconds,
        "vecchia": None if result.vecchia is None else result.vecchia.to_dict(),
    }


def measured(observations: geostat.Observations, *, is_small: bool) -> dict[str, Any]:
    """All fits of one data set; the exact ones of small sets only, and no exact value of the largest."""
    check: Any = "score" if is_small else "value" if observations.n <= LARGEST_EXACT else "skip"
    fits = {"vecchia": geostat.fit(observations, smoothness="free", method="vecchia", exact_check=check)}
    if is_small:
        for starts in ("vecchia", "subset"):
            fits[f"exact from {starts}"] = geostat.fit(observations, smoothness="free", starts=starts)
    seconds = evaluation_seconds(observations, fits["vecchia"].model)
    return {"n": observations.n, "seconds": seconds, "fits": {name: summary(result) for name, result in fits.items()}}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("data", type=Path)


def run(options: Options) -> None:
    """Measure every data set."""
    content: dict[str, Any] = {"neighbours": 30, "sets": {}}
    for name, observations in data_sets(options.data).items():
        found = measured(observations, is_small=observations.n <= 3000)
        content["sets"][name] = found
        for how, fit in found["fits"].items():
            print(f"{name} ({found['n']}), {how}: {brief(fit)}", flush=True)
        options.write(content)
