"""The picture of an anisotropic model: its ellipse over the variogram map, and its semivariograms along both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.planar import check_planar, directional_range
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.pictures.labels import GREY, STYLES, VERMILION, FigureWords, distance_label, semivariance_label
from ooc_chol.apps.geostat.pictures.plots import new_figure
from ooc_chol.apps.geostat.pictures.variogram import model_variogram
from ooc_chol.apps.geostat.pictures.variogram_pictures import draw_variogram_map
from ooc_chol.apps.geostat.variography.empirical import Variogram, empirical_variogram
from ooc_chol.apps.geostat.variography.maps import VariogramMap
from ooc_chol.apps.geostat.variography.pairs import Direction

#: Degrees between two directions in which the ellipse is drawn, and the longest radius of a sum is looked for.
_TURN = 1.0

_CURVE_POINTS = 200


def variograms_along_axes(observations: Observations, model: AbstractCovariance, **options: Any) -> tuple[Variogram, Variogram]:
    """Empirical semivariograms along the longest range of a model and across it.

    Parameters
    ----------
    observations : Observations
        The data, at sites with two coordinates.
    model : AbstractCovariance
        A covariance function of the plane.
    **options
        As for :func:`~ooc_chol.apps.geostat.empirical_variogram`.

    Returns
    -------
    along, across : Variogram
        Variograms of pairs that point so to within 22.5 degrees.

    Raises
    ------
    ValueError
        The model is none of the plane, or there are no such pairs.
    """
    check_is_observations(observations)
    along = _longest_azimuth(model)
    first, second = (
        empirical_variogram(observations, direction=Direction(turned % 180.0), **options) for turned in (along, along + 90.0)
    )
    return first, second


def anisotropy_figure(
    found: VariogramMap,
    along_axes: tuple[Variogram, Variogram],
    model: AbstractCovariance,
    words: FigureWords,
    *,
    axes: tuple[str, str] = ("x", "y"),
) -> Any:
    """Draw what shows whether an anisotropic model fits its data.

    Parameters
    ----------
    found : VariogramMap
        Semivariances by lag vector; over it the distance at which the correlation of the model is 0.05 in each direction.
    along_axes : (Variogram, Variogram)
        Points along and across the longer axis, beside the curves of the model.
    model : AbstractCovariance
        A covariance function of the plane.
    words : FigureWords
        Titles and units.
    axes : (str, str)
        Names of the coordinates.

    Returns
    -------
    matplotlib.figure.Figure
        For :func:`~ooc_chol.apps.geostat.save_figure`; its axes are the map, the curves and the bar of colours.

    Raises
    ------
    ValueError
        The model is none of the plane.
    MissingExtraError
        Matplotlib is not installed.
    """
    check_planar(model)
    figure = new_figure((13, 5.5))
    left, right = figure.subplots(1, 2)
    draw_variogram_map(left, found, words, axes)
    _draw_ellipse(left, model, float(found.lags[-1]))
    for variogram, (colour, marker) in zip(along_axes, STYLES[:2], strict=True):
        _draw_direction(right, variogram, model, colour, marker)
    right.axhline(model.sill, color=GREY, linestyle="--", linewidth=1, label=f"sill {model.sill:.4g}")
    right.set_ylim(bottom=0.0)
    right.set_xlim(0.0, max(float(one.edges[-1]) for one in along_axes))
    right.set_xlabel(distance_label(words))
    right.set_ylabel(semivariance_label(words))
    right.legend(loc="best")
    left.set_title(words.title)
    right.set_title("along the longer axis of the model, and across")
    return figure


def _longest_azimuth(model: AbstractCovariance) -> float:
    """Direction of the longest range; of sums and of ranges by axis, to a degree."""
    if isinstance(model, GeometricAnisotropy):
        return model.azimuth
    azimuths, ranges = _reach_by_direction(model)
    return float(azimuths[int(np.argmax(ranges))])


def _reach_by_direction(model: AbstractCovariance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Azimuths in degrees, shape ``(180,)``, and the distance at which the correlation has fallen to 0.05 in each."""
    azimuths = np.arange(0.0, 180.0, _TURN)
    return azimuths, np.array([directional_range(model, float(azimuth)) for azimuth in azimuths])


def _draw_ellipse(axis: Any, model: AbstractCovariance, edge: float) -> None:
    """Where the correlation is 0.05; scaled down, and said so, where that is beyond the map."""
    azimuths, ranges = _reach_by_direction(model)
    shrunk = min(1.0, 0.95 * edge / float(ranges.max()))
    turn, radius = np.radians(np.append(azimuths, azimuths + 180.0)), shrunk * np.tile(ranges, 2)
    x, y = radius * np.sin(turn), radius * np.cos(turn)
    label = "effective range of the model" if shrunk == 1.0 else f"{shrunk:.2g} of the effective range of the model"
    axis.plot(np.append(x, x[0]), np.append(y, y[0]), color="white", linewidth=3)
    axis.plot(np.append(x, x[0]), np.append(y, y[0]), color=VERMILION, linewidth=1.5, label=label)
    axis.legend(loc="upper right")


def _draw_direction(axis: Any, variogram: Variogram, model: AbstractCovariance, colour: str, marker: str) -> None:
    """Points of one direction and the curve of the model there."""
    assert variogram.direction is not None, "variograms_along_axes gives them directions"
    azimuth = variogram.direction.azimuth
    h = np.linspace(0.0, float(variogram.edges[-1]), _CURVE_POINTS + 1)[1:]
    axis.plot(variogram.distance, variogram.semivariance, marker, color=colour, label=f"azimuth {azimuth:.4g}°")
    label = f"model, effective {directional_range(model, azimuth):.4g}"
    axis.plot(h, model_variogram(model, h, azimuth=azimuth), color=colour, label=label)
