"""Data of the comparison of Heaton et al. (2019): temperatures from a file, or a simulated twin with gaps of a similar shape."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.competition.trial import HeldOut, read_modis
from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.grids import Grid, grid_over
from ooc_chol.apps.geostat.data.io import read_table
from ooc_chol.apps.geostat.kriging.grid_simulation import simulate_grid
from ooc_chol.apps.geostat.kriging.simulation import simulate

#: Columns of the authors' data frame, as R's ``write.csv`` writes it.
_PLACES, _TRAINING, _ALL = ("Lon", "Lat"), "MaskTemp", "TrueTemp"

#: Pixels of the comparison's lattice, its corner and its step in degrees.
LATTICE = (500, 300)
_CORNER, _STEP = np.array([-95.9115, 34.2952]), 0.0092739

#: Field of the twin, and the mean: near the estimates of an exponential covariance for the temperatures.
TWIN_MODEL = Matern(16.0, 0.3, 0.5)
_MEAN = 30.0

#: A second field whose largest values are the clouds, and the share of pixels under them.
_CLOUDS = Matern(1.0, 0.25, 0.5)
_COVERED = 0.29

#: Pixels up to which a draw takes the factor of their matrix: a small lattice may have no circulant embedding.
_FACTORED = 5_000

_Array = NDArray[np.float64]


def read_competition(path: str | os.PathLike[str]) -> HeldOut:
    """Read temperatures to fit and to predict: those masked, and those with a true one alone, of a CSV file or ``modis.npz``.

    The CSV is ``write.csv(all.sat.temps, "temperatures.csv", row.names = FALSE)`` in R, of the authors' repository.
    """
    if Path(path).suffix.lower() == ".npz":
        return read_modis(path)
    known, true = (read_table(path, (*_PLACES, name)) for name in (_TRAINING, _ALL))
    places = set(map(tuple, known.stack(_PLACES).tolist()))
    test_places = true.stack(_PLACES)
    is_held = np.array([tuple(place) not in places for place in test_places.tolist()], dtype=np.bool_)
    if not is_held.any():
        raise ValueError(f"{path} has no pixel with {_ALL} and without {_TRAINING}: nothing is held out")
    values = true.columns[_ALL][is_held]
    return HeldOut(Path(path).name, known.stack(_PLACES), known.columns[_TRAINING], test_places[is_held], values)


def make_twin(shape: tuple[int, int] = LATTICE, *, seed: int = 0) -> HeldOut:
    """Simulate temperatures on the comparison's lattice, or a smaller one of the same step, and hold out what clouds cover."""
    if min(shape) < 10:
        raise ValueError(f"the lattice of {shape[0]} by {shape[1]} pixels is too small: take 10 and more along each side")
    grid = grid_over(_CORNER, _CORNER + _STEP * (np.array(shape) - 1), shape)
    places = grid.points(0, grid.size)
    values, clouds = _MEAN + _drawn(TWIN_MODEL, grid, seed), _drawn(_CLOUDS, grid, seed + 1)
    is_held = clouds > np.quantile(clouds, 1.0 - _COVERED)
    name = f"simulated twin of {shape[0]} x {shape[1]} pixels, seed {seed}"
    return HeldOut(name, places[~is_held], values[~is_held], places[is_held], values[is_held])


def _drawn(model: Matern, grid: Grid, seed: int) -> _Array:
    """One draw of a field at all pixels."""
    if grid.size <= _FACTORED:
        return np.asarray(simulate(model, grid.points(0, grid.size), seed=seed)[0])
    return np.asarray(simulate_grid(model, grid, seed=seed)[0])
