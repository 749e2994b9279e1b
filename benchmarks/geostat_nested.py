"""Nested structures on MODIS land-surface temperatures (Heaton et al. 2019): likelihoods and scores of one and of two.

DATA is the folder with modis.npz: indices of pixels and digital numbers, temperature = 0.02 dn - 273.15 degrees C. A subsample
of the training pixels, some full windows and pixels at random, is fitted exactly: an exponential covariance, a Matérn
covariance, a sum of a Matérn and an exponential one, and a sum of two Matérn ones. With each estimate the test pixels of some
regions of 70 x 70 pixels with large gaps are predicted from all training pixels of their region; scores are told apart by the
distance to these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from benchmarks.running import Options, Parser
from ooc_chol.apps import geostat

FOLDER, NAME = "geostat", "nested"
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


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("data", type=Path)
    parser.takes(windows=3, side=30, sparse=1000, regions=8)


def run(options: Options) -> None:
    """Fit, predict, and write the file."""
    data = Modis(options.data)
    observations = data.subsample(options.windows, options.side, options.sparse)
    corners = data.regions(options.regions)
    content: dict[str, Any] = {"n": observations.n, "regions": [list(corner) for corner in corners], "fits": {}}
    for name, result in fits(observations).items():
        found = scores(predicted(data, result.model, corners))
        told = {"model": geostat.model_content(result.model), "evaluations": len(result.evaluations), "scores": found}
        told |= {"loglik": result.loglik, "aic": result.aic, "seconds": result.seconds, "warnings": list(result.warnings)}
        content["fits"][name] = told
        print(f"{result}\n  {found}", flush=True)
        options.write(content)
