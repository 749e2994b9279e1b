"""A trial on held-out values: fit, predict every held-out site, score, and time each part; exactly or by Vecchia's approximation.

The comparison of Heaton et al. (2019), *A case study competition among methods for analyzing large spatial data*, JABES 24, has
two such sets: land-surface temperatures seen by MODIS, and a simulated field with the same gaps.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.observations import Observations, make_observations
from ooc_chol.apps.geostat.estimation.fitting import FitResult, fit
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress
from ooc_chol.apps.geostat.estimation.templates import starting_model
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kept_factor import KeptFactor
from ooc_chol.apps.geostat.kriging.checks import coverage, score
from ooc_chol.apps.geostat.kriging.local import local_kriging
from ooc_chol.apps.geostat.kriging.local_check import check_local_kriging
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.prediction import kriging

#: Levels of the intervals whose coverage is counted.
_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)

#: Temperature in degrees Celsius of a digital number of MODIS.
_DEGREES, _ZERO_CELSIUS = 0.02, 273.15

_Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Values to fit, and values to predict."""

    name: str
    sites: _Array
    values: _Array
    test_sites: _Array
    test_values: _Array

    __repr__ = tb.brief_repr

    def thinned(self, n: int | None, m: int | None, *, seed: int = 0) -> HeldOut:
        """So many of either, at random."""
        rng = np.random.default_rng(seed)
        a, b = (
            np.sort(rng.permutation(len(all_of))[: len(all_of) if count is None else count])
            for all_of, count in ((self.values, n), (self.test_values, m))
        )
        return HeldOut(self.name, self.sites[a], self.values[a], self.test_sites[b], self.test_values[b])


#: What the first word of a trial's name fits, and how a picture calls it.
_FITTED: dict[str, tuple[float | Literal["free", "nested"], str]] = {
    "half": (0.5, "exponential covariance"),
    "nested": ("nested", "sum of a Matérn and an exponential covariance"),
    "free": ("free", "Matérn covariance"),
}

#: Names of the trials that :meth:`Trial.named` knows.
TRIALS = ("half-constant", "nested-constant", "free-constant", "half-linear", "free-linear")


@dataclass(frozen=True)
class Trial:
    """What is fitted, and how it is predicted."""

    #: Of the Matérn covariance; or the sum of a Matérn covariance, its smoothness estimated, and an exponential one
    smoothness: float | Literal["free", "nested"] = 0.5
    mean: Literal["constant", "linear"] = "constant"
    method: Literal["exact", "vecchia"] = "exact"
    neighbours: int = 30  #: Of Vecchia's likelihood
    shared: int = 400  #: Data from which a group of sites is predicted with ``method="vecchia"``
    settings: FactorSettings = field(default_factory=FactorSettings)

    @classmethod
    def named(cls, name: str, **how: Any) -> Trial:
        """One of :data:`TRIALS`; ``how`` are the other parameters."""
        smoothness, mean = name.split("-")
        return cls(_FITTED[smoothness][0], "linear" if mean == "linear" else "constant", **how)

    @property
    def name(self) -> str:
        """A name for files: smoothness and mean."""
        return f"{self._word or f'{self.smoothness:g}'}-{self.mean}"

    @property
    def words(self) -> str:
        """What is fitted, and how, for the title of a picture."""
        covariance = _FITTED[self._word][1] if self._word else f"Matérn covariance of smoothness {self.smoothness:g}"
        how = "exactly" if self.method == "exact" else "by Vecchia's approximation"
        return f"{covariance}, {self.mean} mean, {how}"

    @property
    def _word(self) -> str:
        """The word for the smoothness; empty for a number that has none."""
        return next((word for word, (smoothness, _) in _FITTED.items() if smoothness == self.smoothness), "")


def read_modis(path: str | os.PathLike[str]) -> HeldOut:
    """Read MODIS land-surface temperatures of Heaton et al. (2019), as ``modis.npz`` has them; degrees are plane coordinates.

    The file has axes ``lon_axis`` and ``lat_axis`` in degrees, and of ``train`` and ``test`` the places ``_ix`` and ``_iy`` on
    these, and the digital numbers ``_dn``: 105,569 to fit and 42,740 to predict.
    """
    parts = ("train", "test")
    names = {"lon_axis", "lat_axis", *(f"{part}_{name}" for part in parts for name in ("ix", "iy", "dn"))}
    held = tb.input_npz(path, lambda headers: _all_of(names, headers, path))
    lon, lat = held["lon_axis"], held["lat_axis"]
    places = [np.column_stack([lon[held[f"{part}_ix"]], lat[held[f"{part}_iy"]]]) for part in parts]
    values = [held[f"{part}_dn"] * _DEGREES - _ZERO_CELSIUS for part in parts]
    return HeldOut("MODIS land-surface temperature", places[0], values[0], places[1], values[1])


def _all_of(names: set[str], headers: Mapping[str, Any], path: str | os.PathLike[str]) -> set[str]:
    """The arrays of these names, of vectors that a file has."""
    missing = sorted(name for name in names if name not in headers or len(headers[name].shape) != 1)
    if missing:
        raise ValueError(f"{os.fspath(path)} has no vector {missing[0]}: give the data of the comparison, as they are")
    return names


def run_trial(
    data: HeldOut,
    trial: Trial,
    *,
    progress: AbstractFitProgress | None = None,
    predicted: Callable[[Prediction], None] | None = None,
) -> dict[str, Any]:
    """Fit from automatic starts, predict all held-out sites, and score them."""
    centre = data.sites.mean(axis=0)
    is_linear = trial.mean == "linear"
    observations = make_observations(data.sites, data.values, covariates=data.sites - centre if is_linear else None)
    covariates = data.test_sites - centre if is_linear else None
    clock = _Clock()
    # the fit ends at the matrix that exact kriging needs
    with KeptFactor() as kept:
        keeps = trial.method == "exact" and trial.settings.store is None and trial.settings.memory is None
        own = replace(trial, settings=replace(trial.settings, kept=kept)) if keeps else trial
        result = _fitted(observations, own, progress)
        clock.lap("fit")
        predict = _by_neighbours if trial.method == "vecchia" else _exactly
        prediction, more = predict(observations, result, data.test_sites, covariates, own, clock)
    if predicted is not None:
        predicted(prediction)
    return {
        "model": trial.name,
        "method": trial.method,
        "n": observations.n,
        "held_out": len(data.test_values),
        "fit": result.to_dict(),
        "scores": vars(score(prediction, data.test_values, data.values)),
        "coverage": dict(zip(map(str, _LEVELS), coverage(prediction, data.test_values, _LEVELS).tolist(), strict=True)),
        "by_distance": _by_distance(data, prediction),
        "seconds": clock.laps,
        "processor_seconds": clock.processor,
        **more,
    }


def _fitted(observations: Observations, trial: Trial, progress: AbstractFitProgress | None) -> FitResult[Any]:
    """The estimate."""
    how: dict[str, Any] = {"settings": trial.settings, "progress": progress}
    if trial.smoothness == "nested":
        kept = {"smoothness_2": 0.5}
        start = starting_model("matern+matern", observations, values=kept, fixed=tuple(kept))
        how |= {"covariance": start, "fixed": tuple(kept)}
    else:
        how["smoothness"] = trial.smoothness
    if trial.method == "vecchia":
        how |= {"method": "vecchia", "neighbours": trial.neighbours, "exact_check": "skip"}
    else:
        how |= {"method": "fisher", "starts": "vecchia", "neighbours": trial.neighbours}
    return fit(observations, **how)


def _exactly(
    observations: Observations, result: FitResult[Any], sites: _Array, covariates: _Array | None, trial: Trial, clock: _Clock
) -> tuple[Prediction, dict[str, Any]]:
    """Kriging with the factor of all data."""
    with kriging(observations, result.model, settings=trial.settings) as kriged:
        clock.lap("factor")
        prediction = kriged.predict(sites, covariates=covariates)
        clock.lap("predict")
        kriged.predict(sites, covariates=covariates, variance=False)
        clock.lap("means_alone", counts=False)
        return prediction, {"factorization": kriged.factor.report.to_dict()}


def _by_neighbours(
    observations: Observations, result: FitResult[Any], sites: _Array, covariates: _Array | None, trial: Trial, clock: _Clock
) -> tuple[Prediction, dict[str, Any]]:
    """Kriging from neighbourhoods."""
    kriged = local_kriging(observations, result.model, neighbours=trial.shared)
    prediction = kriged.predict(sites, covariates=covariates)
    clock.lap("predict")
    check = check_local_kriging(kriged, sites, covariates=covariates, settings=trial.settings)
    clock.lap("check", counts=False)
    return prediction, {"neighbours": trial.neighbours, "shared_neighbours": kriged.neighbours, "check": check.to_dict()}


class _Clock:
    """Wall and processor seconds of successive parts, and of those that count together."""

    def __init__(self) -> None:
        self._wall, self._used = time.perf_counter(), time.process_time()
        self.laps: dict[str, float] = {"all": 0.0}
        self.processor: dict[str, float] = {"all": 0.0}

    def lap(self, name: str, *, counts: bool = True) -> None:
        """A part ends here."""
        wall, used = time.perf_counter(), time.process_time()
        self.laps[name], self.processor[name] = wall - self._wall, used - self._used
        if counts:
            self.laps["all"] += self.laps[name]
            self.processor["all"] += self.processor[name]
        self._wall, self._used = wall, used


def _by_distance(data: HeldOut, prediction: Prediction) -> list[dict[str, float]]:
    """Errors by the distance of a site from the nearest datum, at its sextiles."""
    with tb.guarded_imports():
        from scipy.spatial import cKDTree

    away = cKDTree(data.sites).query(data.test_sites)[0]
    rows = []
    for low, high in itertools.pairwise(np.unique(np.quantile(away, np.linspace(0, 1, 7)))):
        inside = np.flatnonzero((away >= low) & ((away < high) | (high == away.max())))
        if len(inside):
            found = score(prediction.take(inside), data.test_values[inside], data.values)
            rows.append({"from": low, "to": high, "sites": found.n, "rmse": found.rmse, "coverage": found.coverage})
    return rows
