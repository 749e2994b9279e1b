"""Do 95 % intervals hold what they promise: fits of simulated data sets, and how often their intervals hold the truth.

Sites are new in each set, on a jittered grid of the unit square; the field is Matérn with an estimated constant mean and
nugget. Smoothness is fixed in the first case and estimated in the second. The file has every estimate.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.running import Options, Parser
from ooc_chol.apps import geostat

FOLDER = "geostat"
SMOOTHNESS = 1.5
LEVEL = 0.95
#: Smoothness of the fit in each case.
CASES: dict[str, float | str] = {"fixed": SMOOTHNESS, "free": "free"}
NAME = "coverage"


def truth_with(length: float) -> geostat.Matern:
    """What is simulated; the effective range is 4.7 times the range."""
    return geostat.Matern(variance=1.0, range=length, smoothness=SMOOTHNESS, nugget=0.05)


def observations(true: geostat.Matern, n: int, seed: int) -> geostat.Observations:
    """One simulated data set."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(n)))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    sites = (rng.permutation(grid)[:n] + 0.5 + rng.uniform(-0.4, 0.4, (n, 2))) / side
    return geostat.make_observations(sites, 3.0 + drawn(true, sites, rng))


def drawn(true: geostat.Matern, sites: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A field at sites, by NumPy alone: what is judged does not make its own truth."""
    distances = np.linalg.norm(sites[:, None] - sites[None, :], axis=-1) / true.range
    covariance = true.variance * (1 + distances) * np.exp(-distances)  # Matérn's of smoothness 3/2
    covariance[np.diag_indices_from(covariance)] += true.nugget
    return np.linalg.cholesky(covariance) @ rng.standard_normal(len(sites))


def estimate(true: geostat.Matern, n: int, smoothness: Any, seed: int) -> dict[str, Any]:
    """Fit one data set; the estimates, their intervals, and whether these hold the truth."""
    data = observations(true, n, seed)
    result = geostat.fit(data, smoothness=smoothness, method="fisher", tolerance=1e-3)
    found = geostat.infer(data, result.model, estimated=result.estimated, level=LEVEL)
    truth = {name: getattr(true, name) for name in found.parameters}
    pairs = {name: (estimated, truth[name]) for name, estimated in found.parameters.items()}
    pairs["effective_range"] = found.effective_range, true.effective_range
    pairs["microergodic"] = found.microergodic, true.variance * true.range ** (-2 * true.smoothness)
    record: dict[str, Any] = {"seed": seed, "evaluations": len(result.evaluations), "converged": result.converged}
    for name, (estimated, value) in pairs.items():
        record[name] = {"value": estimated.value, "lower": estimated.lower, "upper": estimated.upper}
        record[name]["holds"] = bool(estimated.lower <= value <= estimated.upper)
    mean, error = float(result.coefficients[0]), float(np.sqrt(result.coefficient_covariance[0, 0]))
    record["mean"] = {"value": mean, "lower": mean - 1.96 * error, "upper": mean + 1.96 * error}
    record["mean"]["holds"] = bool(abs(mean - 3.0) <= 1.96 * error)
    return record


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(sets=200, n=500, processes=1)
    parser.add_argument("--range", type=float, default=0.07, help="in sides of the square")


def run(options: Options) -> None:
    """Run both cases and write the file."""
    true = truth_with(options.range)
    content: dict[str, Any] = {"n": options.n, "sets": options.sets, "level": LEVEL, "truth": vars(true), "cases": {}}
    for name, smoothness in CASES.items():
        began = time.perf_counter()
        with ProcessPoolExecutor(options.processes) as pool:
            runs = list(pool.map(partial(estimate, true, options.n, smoothness), range(options.sets)))
        quantities = [key for key, value in runs[0].items() if isinstance(value, dict)]
        coverage = {key: float(np.mean([run[key]["holds"] for run in runs])) for key in quantities}
        seconds = time.perf_counter() - began
        content["cases"][name] = {"coverage": coverage, "seconds": seconds, "runs": runs}
        print(f"smoothness {name}: " + ", ".join(f"{key} {share:.3f}" for key, share in coverage.items()), f"({seconds:.0f} s)")
        options.write(content)
