"""Covariance functions of the plane by direction: covariances along an azimuth, and how far they reach there."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.fall import distance_of_fall
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges, GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import Nested, longest_reach
from ooc_chol.apps.geostat.covariances.radial import AbstractIsotropicCovariance


def is_planar(model: AbstractCovariance) -> bool:
    """Tell whether a covariance function is one of the vector between two sites of the plane."""
    if isinstance(model, Nested):
        return all(map(is_planar, model.components))
    return isinstance(model, AbstractIsotropicCovariance | GeometricAnisotropy) or _is_of_two_axes(model)


def is_directional(model: AbstractCovariance) -> bool:
    """Tell whether it depends on where that vector points, too."""
    if isinstance(model, Nested):
        return is_planar(model) and any(map(is_directional, model.components))
    return isinstance(model, GeometricAnisotropy) or _is_of_two_axes(model)


def directional_covariance(model: AbstractCovariance, distance: ArrayLike, azimuth: float) -> NDArray[np.float64]:
    """Covariance of the smooth field at distances along a direction.

    Parameters
    ----------
    model : AbstractCovariance
        A covariance function of the plane: isotropic, :class:`GeometricAnisotropy`, :class:`AxisRanges` of two axes, or nested.
    distance : array
        Distances of any shape, in the unit of the coordinates.
    azimuth : float
        Degrees clockwise from the second axis, opposite directions being one.

    Returns
    -------
    array
        Covariances, in the shape of ``distance``.

    Raises
    ------
    ValueError
        The model is none of the plane, or the azimuth is not finite.
    """
    check_planar(model)
    if not math.isfinite(azimuth):
        raise ValueError(f"azimuth is {azimuth}, but it must be finite, in degrees clockwise from the second axis")
    h, turn = tb.plain_array("distance", distance, np.float64), math.radians(azimuth)
    steps = np.stack([h.ravel() * math.sin(turn), h.ravel() * math.cos(turn)])
    out = np.empty((1, h.size))
    model.fill(np.zeros((2, 1)), steps, out)
    return out.reshape(h.shape)


def directional_range(model: AbstractCovariance, azimuth: float) -> float:
    """Distance along a direction at which the correlation of the smooth field has fallen to 0.05.

    Parameters
    ----------
    model : AbstractCovariance
        A covariance function of the plane, as for :func:`directional_covariance`.
    azimuth : float
        Degrees clockwise from the second axis (from north).

    Returns
    -------
    float
        In the unit of the coordinates, relative error 1e-13.

    Raises
    ------
    ValueError
        The model is none of the plane, or the azimuth is not finite.

    Examples
    --------
    >>> from ooc_chol.apps.geostat import GeometricAnisotropy, Matern
    >>> model = GeometricAnisotropy.by_azimuth(
    ...     Matern(1.0, 2.0, 0.5), azimuth=30.0, ratio=0.5
    ... )
    >>> (
    ...     round(directional_range(model, 30.0), 4),
    ...     round(directional_range(model, 120.0), 4),
    ... )
    (5.9915, 2.9957)
    """
    check_planar(model)
    return distance_of_fall(lambda h: directional_covariance(model, h, azimuth) / model.variance, start=longest_reach(model))


def check_planar(model: AbstractCovariance) -> None:
    """Raise ``ValueError`` unless a covariance function is one of the plane."""
    if not is_planar(model):
        raise ValueError(
            f"a {type(model).__name__} is no function of the vector between two sites of the plane, so it has no directions there"
        )


def _is_of_two_axes(model: AbstractCovariance) -> bool:
    """Tell whether it has a range for each of two axes."""
    return isinstance(model, AxisRanges) and len(model.ranges) == 2
