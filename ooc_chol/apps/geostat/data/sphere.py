"""The Earth as a sphere: its radius, and points on it whose Euclidean distance is the chord."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb

#: Mean radius of the Earth in kilometres (IUGG R1).
EARTH_RADIUS_KM = 6371.0088


def chordal_coordinates(longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.float64]:
    """Points on a sphere of the Earth's mean radius, in kilometres, so that Euclidean distance is the chord.

    Parameters
    ----------
    longitude, latitude : (n,) array
        Degrees; longitudes may be in -180..180 or 0..360.

    Returns
    -------
    (n, 3) array
        Cartesian coordinates in kilometres.

    Raises
    ------
    ValueError
        A latitude is outside -90..90 or a longitude outside -360..360 (metres, or the two columns exchanged).

    Notes
    -----
    Of the chord a Matérn covariance is positive definite on the sphere at every smoothness, of the great-circle distance only up
    to 1/2 (Gneiting 2013; :class:`~ooc_chol.apps.geostat.covariances.geometry.GreatCircle`). Chord and arc differ by 0.1 % at
    1000 km.
    """
    lon, lat = tb.plain_array("longitude", longitude, np.float64), tb.plain_array("latitude", latitude, np.float64)
    if np.any(np.abs(lat) > 90) or np.any(np.abs(lon) > 360):
        raise ValueError(
            "longitude and latitude must be degrees, with latitude in -90..90 (are the two columns exchanged, or in metres?)"
        )
    lam, phi = np.radians(lon), np.radians(lat)
    return EARTH_RADIUS_KM * np.column_stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
