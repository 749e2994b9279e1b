"""Cases of geostatistics on simulated and on real data: coverage of intervals, nested structures, Vecchia's approximation."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from benchmarks.running import Options, Parser, brief
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.estimation.likelihood import correlation_of
from ooc_chol.apps.geostat.estimation.vecchia import approximated
from ooc_chol.apps.geostat.estimation.vecchia_neighbours import conditioning

FOLDER = "geostat"

SMOOTHNESS = 1.5
LEVEL = 0.95
#: Smoothness of the fit in each case.
SMOOTHNESSES: dict[str, float | str] = {"fixed": SMOOTHNESS, "free": "free"}
NAME_coverage = "coverage"


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


def options_coverage(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(sets=200, n=500, processes=1)
    parser.add_argument("--range", type=float, default=0.07, help="in sides of the square")


def run_coverage(options: Options) -> None:
    """Do 95 % intervals hold what they promise: fits of simulated data sets, and how often their intervals hold the truth.

    Sites are new in each set, on a jittered grid of the unit square; the field is Matérn with an estimated constant mean and
    nugget. Smoothness is fixed in the first case and estimated in the second. The file has every estimate.
    """
    true = truth_with(options.range)
    content: dict[str, Any] = {"n": options.n, "sets": options.sets, "level": LEVEL, "truth": vars(true), "cases": {}}
    for name, smoothness in SMOOTHNESSES.items():
        began = time.perf_counter()
        with ProcessPoolExecutor(options.processes) as pool:
            runs = list(pool.map(partial(estimate, true, options.n, smoothness), range(options.sets)))
        quantities = [key for key, value in runs[0].items() if isinstance(value, dict)]
        coverage = {key: float(np.mean([run[key]["holds"] for run in runs])) for key in quantities}
        seconds = time.perf_counter() - began
        content["cases"][name] = {"coverage": coverage, "seconds": seconds, "runs": runs}
        print(f"smoothness {name}: " + ", ".join(f"{key} {share:.3f}" for key, share in coverage.items()), f"({seconds:.0f} s)")
        options.write(content)


NAME_nested = "nested"
#: Side of a region in pixels, least numbers of its training and test pixels, seed, and where a gap counts as near, in pixels.
REGION, LEAST, SEED, NEAR = 70, 1000, 1, 3.0

_Array = NDArray[np.float64]


class Modis:
    """Training and test pixels: indices, positions in degrees and temperatures."""

    def __init__(self, folder: Path) -> None:
        data = np.load(folder / "modis.npz", allow_pickle=False)
        axes = data["lon_axis"], data["lat_axis"]
        self.pixels = {part: np.column_stack([data[f"{part}_ix"], data[f"{part}_iy"]]).astype(int) for part in ("train", "test")}
        self.sites = {part: np.column_stack([axes[0][p[:, 0]], axes[1][p[:, 1]]]) for part, p in self.pixels.items()}
        self.values = {part: 0.02 * data[f"{part}_dn"] - 273.15 for part in self.pixels}
        self.shape = len(axes[0]), len(axes[1])
        self.step = float(abs(axes[0][1] - axes[0][0]))

    def inside(self, part: str, corner: tuple[int, int], side: int) -> NDArray[np.intp]:
        """Numbers of the pixels of a square."""
        offset = self.pixels[part] - corner
        return np.flatnonzero(np.all((offset >= 0) & (offset < side), axis=1))

    def subsample(self, windows: int, side: int, sparse: int) -> geostat.Observations:
        """Full windows, and pixels at random."""
        rng = np.random.default_rng(SEED)
        chosen: list[NDArray[np.intp]] = [rng.permutation(len(self.values["train"]))[:sparse]]
        while len(chosen) <= windows:
            corner = int(rng.integers(self.shape[0] - side)), int(rng.integers(self.shape[1] - side))
            rows = self.inside("train", corner, side)
            if len(rows) == side * side:
                chosen.append(rows)
        rows = np.unique(np.concatenate(chosen))
        return geostat.make_observations(self.sites["train"][rows], self.values["train"][rows])

    def regions(self, count: int) -> list[tuple[int, int]]:
        """Corners of squares with many test pixels, at random."""
        corners = [(x, y) for x in range(0, self.shape[0] - REGION + 1, REGION) for y in range(0, self.shape[1], REGION)]
        kept = [c for c in corners if min(len(self.inside(part, c, REGION)) for part in ("train", "test")) >= LEAST]
        return [kept[k] for k in np.random.default_rng(SEED).permutation(len(kept))[:count]]


def fits(observations: geostat.Observations) -> dict[str, geostat.FitResult[Any]]:
    """One structure, then two."""
    found = {
        "exponential": geostat.fit(observations, smoothness=0.5, nugget="zero", method="fisher"),
        "Matérn": geostat.fit(observations, smoothness="free", nugget="zero"),
    }
    for name, given in {"Matérn + exponential": {"smoothness_2": 0.5}, "Matérn + Matérn": {}}.items():
        start = geostat.starting_model("matern+matern", observations, values=given, nugget="zero", fixed=tuple(given))
        found[name] = geostat.fit(observations, covariance=start, fixed=tuple(given), nugget="zero")
    return found


def predicted(data: Modis, model: geostat.AbstractCovariance, corners: list[tuple[int, int]]) -> dict[str, _Array]:
    """Errors, standard errors and distances to data, in pixels, of the test pixels of all regions."""
    parts: list[_Array] = []
    for corner in corners:
        train, test = (data.inside(part, corner, REGION) for part in ("train", "test"))
        sites = data.sites["test"][test]
        observations = geostat.make_observations(data.sites["train"][train], data.values["train"][train])
        prediction = geostat.predict(observations, model, sites)
        distance = cKDTree(observations.coordinates).query(sites)[0] / data.step
        parts.append(np.stack([prediction.mean, np.sqrt(prediction.variance), data.values["test"][test], distance]))
    mean, error, value, distance = np.concatenate(parts, axis=1)
    return {"mean": mean, "standard_error": error, "value": value, "distance": distance}


def scores(found: dict[str, _Array]) -> dict[str, dict[str, float]]:
    """Of all test pixels, of those near data and of those in gaps."""
    near = found["distance"] <= NEAR
    return {name: _scores(found, rows) for name, rows in {"all": np.full(near.shape, True), "near": near, "gaps": ~near}.items()}


def _scores(found: dict[str, _Array], rows: NDArray[np.bool_]) -> dict[str, float]:
    """The scores of some of the pixels."""
    mean, error, value = (found[name][rows] for name in ("mean", "standard_error", "value"))
    return dict(vars(geostat.score(geostat.Prediction(mean, error**2, "observation"), value, value)))


def options_nested(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("data", type=Path)
    parser.takes(windows=3, side=30, sparse=1000, regions=8)


def run_nested(options: Options) -> None:
    """Nested structures on MODIS land-surface temperatures (Heaton et al. 2019): likelihoods and scores of one and of two.

    DATA is the folder with modis.npz: indices of pixels and digital numbers, temperature = 0.02 dn - 273.15 degrees C. A
    subsample of the training pixels, some full windows and pixels at random, is fitted exactly: an exponential covariance, a
    Matérn covariance, a sum of a Matérn and an exponential one, and a sum of two Matérn ones. With each estimate the test
    pixels of some regions of 70 x 70 pixels with large gaps are predicted from all training pixels of their region; scores are
    told apart by the distance to these.
    """
    data = Modis(options.data)
    observations = data.subsample(options.windows, options.side, options.sparse)
    corners = data.regions(options.regions)
    content: dict[str, Any] = {"n": observations.n, "regions": [list(corner) for corner in corners], "fits": {}}
    for name, result in fits(observations).items():
        found = scores(predicted(data, result.model, corners))
        told = {"model": geostat.model_content(result.model), "evaluations": len(result.evaluations), "scores": found}
        told |= {"loglik": result.loglik, "aic": result.aic, "warnings": list(result.warnings)}
        told["seconds"] = result.report.seconds.total
        content["fits"][name] = told
        print(f"{result}\n  {found}", flush=True)
        options.write(content)


#: Observations of a sample, and repeats of one evaluation.
SAMPLE, REPEATS = 2000, 5
NAME_vecchia = "vecchia"

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
        "seconds": result.report.seconds.total,
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


def options_vecchia(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("data", type=Path)


def run_vecchia(options: Options) -> None:
    """Vecchia's approximation on real and synthetic data: estimates, seconds, gaps to exact, and exact fits from both starts.

    DATA is the folder with jason3.csv (wind speeds along satellite tracks, of R's GpGp) and XYZ_10K_15_0017526_23_1.csv (the
    KAUST competition's of 2021, of R's exageostatR). Whole files are fitted by the approximation; random samples of 2,000 and
    windows also exactly, from the two kinds of starts. Smoothness and nugget are estimated.
    """
    content: dict[str, Any] = {"neighbours": 30, "sets": {}}
    for name, observations in data_sets(options.data).items():
        found = measured(observations, is_small=observations.n <= 3000)
        content["sets"][name] = found
        for how, fit in found["fits"].items():
            print(f"{name} ({found['n']}), {how}: {brief(fit)}", flush=True)
        options.write(content)
