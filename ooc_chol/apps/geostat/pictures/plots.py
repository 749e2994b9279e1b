"""Maps side by side: observed, predicted, standard error."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.endings import check_ending, check_output_path
from ooc_chol.apps.geostat.errors import MissingExtraError
from ooc_chol.apps.shared import pictures
from ooc_chol.apps.shared.pictures import PictureFiles

_FILES = PictureFiles("geostat")

#: Share of a map outside the hull of the observations from which on it is hatched.
_LEAST_OUTSIDE = 0.005

#: Files that a new picture may replace.
PICTURES = _FILES.kind


@dataclass(frozen=True, eq=False)
class MapLabels:
    """Words of a map.

    Parameters
    ----------
    title : str
        Above all.
    value : str
        Name and unit of the values, such as ``"height (m)"``.
    x, y : str
        Names and units of the axes.
    aspect : float
        Length of a unit of ``y`` over that of a unit of ``x``.
    """

    title: str
    value: str
    x: str
    y: str
    aspect: float = 1.0

    __repr__ = tb.brief_repr


@dataclass(frozen=True, eq=False)
class MapData:
    """Observations and predictions that maps show, in map coordinates (kilometres or degrees).

    Parameters
    ----------
    sites : (n, 2) array
        Places of the fitted observations.
    values : (n,) array
        Observed values at ``sites``.
    x, y : (columns,), (rows,) arrays
        Axes of the grid, ascending.
    mean, standard_error : (rows, columns) arrays
        Predictions on the grid; NaN where there are none.
    held_out : (m, 2) array or None
        Places that were left out of the fit, drawn as crosses beside the observations.
    target : str
        Target of the standard error: ``"the field"`` or ``"an observation"``.
    quantity : str or None
        Title of the third map where it is no standard error: the array of that name is then what it says, such as a quantile.
    is_share : bool
        True if that is a probability, whose colours go from 0 to 1.
    """

    sites: NDArray[np.float64]
    values: NDArray[np.float64]
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    mean: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    held_out: NDArray[np.float64] | None = None
    target: str = "the field"
    quantity: str | None = None
    is_share: bool = False

    __repr__ = tb.brief_repr


def draw_maps(path: str | os.PathLike[str], data: MapData, labels: MapLabels, *, replace: bool = False) -> None:
    """Draw observed values, kriging mean and standard error side by side; the first two share their colours."""
    save_figure(maps_figure(data, labels), path, replace=replace)


def maps_figure(data: MapData, labels: MapLabels) -> Any:
    """The maps of a prediction as a Matplotlib figure.

    Parameters
    ----------
    data : MapData
        Observations and predictions.
    labels : MapLabels
        Titles and units.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.
    """
    figure = new_figure((16, _height(data, labels)))
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    low, high = _range(data.values, data.mean)
    area = float(np.clip(30_000 / len(data.values), 2.0, 60.0))  # fills the map about evenly whatever the number
    points = axes[0].scatter(*data.sites.T, c=data.values, s=area, vmin=low, vmax=high, cmap="viridis", linewidths=0)
    mean = axes[1].pcolormesh(data.x, data.y, data.mean, vmin=low, vmax=high, cmap="viridis", shading="nearest", rasterized=True)
    ends = {}
    if data.quantity is not None:
        ends = {"vmin": 0.0, "vmax": 1.0} if data.is_share else {"vmin": low, "vmax": high}
    error = axes[2].pcolormesh(data.x, data.y, data.standard_error, cmap="magma", shading="nearest", rasterized=True, **ends)
    axes[0].set_title(f"observed: {len(data.values):,} values" + _crosses(axes[0], data.held_out))
    axes[1].set_title("predicted" + _hatched(axes[1:], data))
    axes[2].set_title(data.quantity or f"standard error of {data.target}")
    for axis, shown, label in zip(axes, (points, mean, error), (*2 * (labels.value,), _third_label(data, labels)), strict=True):
        axis.set_aspect(labels.aspect)
        axis.set_xlabel(labels.x)
        add_colour_bar(axis, shown, label)
    axes[0].set_ylabel(labels.y)
    figure.suptitle(labels.title)
    return figure


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure that pyplot does not know, so that the user's own figures and backend are left alone."""
    require_matplotlib()
    return pictures.new_figure(size)


def add_colour_bar(axis: Any, mappable: Any, label: str, *, extend: str = "neither") -> Any:
    """A colour bar beside a panel, exactly as high as that is."""
    return axis.figure.colorbar(mappable, cax=axis.inset_axes((1.03, 0.0, 0.045, 1.0)), label=label, extend=extend)


def save_figure(figure: Any, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a figure to a file, which appears complete or not at all.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Figure of Matplotlib, such as the functions of this package return.
    path : path
        A PNG, or another format by its ending. A picture of ours is replaced, if it is a PNG, SVG, PDF, PS or EPS.
    replace : bool
        Replace any other file, too.

    Raises
    ------
    ValueError
        Matplotlib has no such format.
    OSError
        The file cannot be written; as ``OutputError``, it exists and is no picture of ours.
    """
    check_ending(path, picture_endings(), "pictures")
    _FILES.write(figure, path, replace=replace)


def picture_endings() -> tuple[str, ...]:
    """Endings of the formats that Matplotlib writes."""
    require_matplotlib()
    return pictures.picture_endings()


def check_picture(path: str | os.PathLike[str]) -> None:
    """Find out early whether a picture can be drawn into this file."""
    check_output_path(path, picture_endings(), "pictures")


def require_matplotlib() -> None:
    """Find out early whether pictures can be drawn."""
    pictures.require_matplotlib(MissingExtraError)


def _crosses(axis: Any, held_out: NDArray[np.float64] | None) -> str:
    """Crosses where observations were left out, and the words for them."""
    if held_out is None or not len(held_out):
        return ""
    axis.scatter(*held_out.T, s=8, marker="x", c="black", linewidths=0.6)
    return f"; crosses: {len(held_out):,} held out"


def _third_label(data: MapData, labels: MapLabels) -> str:
    """Label of the colours of the third map."""
    if data.quantity is None:
        return f"standard error, {labels.value}"
    return "probability" if data.is_share else labels.value


def _range(*shown: NDArray[np.float64]) -> tuple[float, float]:
    """Least and largest of all that shares its colours, so that nothing of it is clipped."""
    return min(float(np.nanmin(one)) for one in shown), max(float(np.nanmax(one)) for one in shown)


def _hatched(axes: Any, data: MapData) -> str:
    """Hatches where a map extrapolates, outside the convex hull of the observations, and the words for them."""
    with tb.guarded_imports():
        from scipy.spatial import ConvexHull, QhullError  # which takes a while to import

    try:
        hull = data.sites[ConvexHull(data.sites).vertices]
    except (QhullError, ValueError):  # all on a line, or fewer than three: there is no inside
        return ""
    (x0, x1), (y0, y1) = ((float(axis[0]), float(axis[-1])) for axis in (data.x, data.y))
    whole = abs((x1 - x0) * (y1 - y0))
    inside = 0.5 * abs(float(np.sum(hull[:, 0] * np.roll(hull[:, 1], 1) - hull[:, 1] * np.roll(hull[:, 0], 1))))
    if whole - inside < _LEAST_OUTSIDE * whole:
        return ""
    with tb.guarded_imports(blas=False):
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path as Outline

    box = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
    outline = Outline.make_compound_path(Outline(box, closed=False), Outline(hull[::-1], closed=False))
    for axis in axes:
        axis.add_patch(PathPatch(outline, facecolor="none", edgecolor="white", hatch="///", linewidth=0.0, alpha=0.6))
    return "; hatched: extrapolated"


def _height(data: MapData, labels: MapLabels) -> float:
    """Inches that three maps side by side on 15 inches need, within reason."""
    width, height = float(np.ptp(data.x)), labels.aspect * float(np.ptp(data.y))
    return float(np.clip(4.0 * height / width + 1.0, 3.0, 12.0)) if width > 0 else 12.0
