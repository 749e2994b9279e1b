"""Pictures of data before any model: semivariograms of several directions in one, and maps of lag vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ooc_chol.apps.geostat.pictures.labels import STYLES, FigureWords, distance_label, semivariance_label
from ooc_chol.apps.geostat.pictures.plots import add_colour_bar, new_figure
from ooc_chol.apps.geostat.variography.empirical import Variogram
from ooc_chol.apps.geostat.variography.maps import VariogramMap

#: Pairs from which on a cell of a map says something (Journel and Huijbregts).
_SURE_PAIRS = 30


def directions_figure(variograms: Sequence[Variogram], words: FigureWords) -> Any:
    """Draw semivariograms of several directions in one picture, their numbers of pairs below.

    Parameters
    ----------
    variograms : sequence of Variogram
        One for each direction, such as :func:`~ooc_chol.apps.geostat.directional_variograms` gives.
    words : FigureWords
        Titles and units.

    Returns
    -------
    matplotlib.figure.Figure
        For :func:`~ooc_chol.apps.geostat.save_figure`; its axes are the curves and the numbers of pairs.

    Raises
    ------
    ValueError
        There is no variogram.
    MissingExtraError
        Matplotlib is not installed.
    """
    if not variograms:
        raise ValueError("there is no variogram to draw")
    figure = new_figure((8, 6))
    axis, counts = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for k, one in enumerate(variograms):
        colour, marker = STYLES[k % len(STYLES)]
        name = "all directions" if one.direction is None else f"azimuth {one.direction.azimuth:g}°"
        axis.plot(one.distance, one.semivariance, color=colour, marker=marker, linewidth=1, label=name)
        counts.plot(one.distance, one.pairs, color=colour, marker=marker, markersize=3, linewidth=0.8)
    axis.set_ylim(bottom=0.0)
    axis.set_ylabel(semivariance_label(words))
    axis.set_title(words.title)
    axis.legend(loc="best")
    counts.set_ylabel("pairs")
    counts.set_xlabel(distance_label(words))
    counts.set_xlim(0.0, max(float(one.edges[-1]) for one in variograms))
    return figure


def variogram_map_figure(found: VariogramMap, words: FigureWords, *, axes: tuple[str, str] = ("x", "y")) -> Any:
    """Draw a map of semivariances by lag vector.

    Parameters
    ----------
    found : VariogramMap
        Lags and semivariances; cells without a pair stay white.
    words : FigureWords
        Titles and units.
    axes : (str, str)
        Names of the coordinates.

    Returns
    -------
    matplotlib.figure.Figure
        For :func:`~ooc_chol.apps.geostat.save_figure`.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    """
    figure = new_figure((7.5, 6))
    axis = figure.subplots()
    draw_variogram_map(axis, found, words, axes)
    return figure


def draw_variogram_map(axis: Any, found: VariogramMap, words: FigureWords, axes: tuple[str, str]) -> None:
    """Draw cells, labels, title and colours on the axes of a figure."""
    shown = np.ma.masked_invalid(found.semivariance)
    # cells of few pairs do not set the colours of all others
    sure = shown[found.pairs >= _SURE_PAIRS]
    top = float(sure.max()) if sure.count() else None
    cells = axis.pcolormesh(found.lags, found.lags, shown, vmin=0.0, vmax=top, cmap="viridis", shading="nearest", rasterized=True)
    axis.set_aspect("equal")
    axis.set_xlabel(distance_label(words, f"lag along {axes[0]}"))
    axis.set_ylabel(distance_label(words, f"lag along {axes[1]}"))
    axis.set_title(words.title)
    is_above = top is not None and float(shown.max()) > top
    add_colour_bar(axis, cells, semivariance_label(words), extend="max" if is_above else "neither")
