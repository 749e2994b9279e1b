"""The built-in example: the elevation model of the Jacksboro fault that comes with Matplotlib, in local kilometres."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.sphere import EARTH_RADIUS_KM
from ooc_chol.apps.geostat.errors import MissingExtraError


@dataclass(frozen=True, eq=False)
class Terrain:
    """Heights on a regular grid.

    Parameters
    ----------
    heights : (rows, columns) array
        Metres above the sea; the first row is the northernmost.
    x : (columns,) array
        Kilometres east of the middle.
    y : (rows,) array
        Kilometres north of the middle, descending.
    """

    heights: NDArray[np.float64]
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    __repr__ = tb.brief_repr

    def sample(
        self, n: int, *, how: Literal["random", "regular"] = "random", seed: int = 0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A subsample of the grid.

        Parameters
        ----------
        n : int
            Number of heights, at most all of them.
        how : {"random", "regular"}
            Exactly ``n`` places at random, none twice, or every ``k``-th row and column: then at most ``n``, with the smallest
            such ``k``.
        seed : int
            Seed of the random choice.

        Returns
        -------
        coordinates : (n, 2) array
            Kilometres east and north.
        heights : (n,) array
            Metres.

        Raises
        ------
        ValueError
            ``n`` is not between 1 and the number of heights, or there is no such way to sample.
        """
        if not 1 <= n <= self.heights.size:
            raise ValueError(f"{n} heights are asked for, but there are 1 to {self.heights.size}")
        if how not in ("random", "regular"):
            raise ValueError(f"how is {how!r}, but there are 'random' and 'regular'")
        rows, columns = self.heights.shape
        if how == "random":
            picked = np.random.default_rng(seed).choice(self.heights.size, size=n, replace=False)
            i, j = np.divmod(picked, columns)
        else:
            step = next(k for k in range(1, rows + columns) if math.ceil(rows / k) * math.ceil(columns / k) <= n)
            i, j = (index.ravel() for index in np.mgrid[0:rows:step, 0:columns:step])
        return np.column_stack([self.x[j], self.y[i]]), self.heights[i, j]


def jacksboro() -> Terrain:
    """The 344 x 403 heights of Matplotlib's ``jacksboro_fault_dem.npz``, 1/1200 degree apart.

    Returns
    -------
    Terrain
        Heights in metres, places in kilometres by a local equirectangular projection about the middle of the map: over its 30 km
        distances differ from those on the sphere by at most 0.2 %.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    """
    try:
        with tb.guarded_imports(blas=False):
            from matplotlib import cbook
    except ImportError as error:
        raise MissingExtraError(
            f"the built-in terrain comes with Matplotlib, which is not installed: {tb.install_hint('plots')}"
        ) from error
    sample: Any = cbook.get_sample_data("jacksboro_fault_dem.npz")  # an open NpzFile
    with sample as data:
        heights = np.asarray(data["elevation"], dtype=np.float64)
        west, north = float(data["xmin"]), float(data["ymin"])  # "ymin" is the latitude of the first row
        longitude = west + float(data["dx"]) * np.arange(heights.shape[1])
        latitude = north - float(data["dy"]) * np.arange(heights.shape[0])
    x = EARTH_RADIUS_KM * np.cos(np.radians(latitude.mean())) * np.radians(longitude - longitude.mean())
    y = EARTH_RADIUS_KM * np.radians(latitude - latitude.mean())
    return Terrain(heights, x, y)
