"""Maps side by side: observed, predicted, standard error."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.data.endings import check_ending, check_output_path
from ooc_chol.apps.geostat.errors import MissingExtraError

_PICTURE_MARK = "ooc_chol geostat picture"

#: Where a format keeps the name of the program that drew it.
_MARKED_IN = {"png": "Software", "svg": "Creator", "pdf": "Creator", "ps": "Creator", "eps": "Creator"}

#: Files that a new picture may replace.
PICTURES = oc.FileKind("picture of ooc-chol geostat", _PICTURE_MARK.encode(), anywhere=True)


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

    __repr__ = oc.brief_repr


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
        Predictions on the grid.
    held_out : (m, 2) array or None
        Places that were left out of the fit, drawn as crosses beside the observations.
    target : str
        What the standard error is one of: ``"the field"`` or ``"an observation"``.
    quantity : str or None
        Title of the third map where it is no standard error: the array of that name is then what it says, such as a quantile.
    is_share : bool
        Whether that is a probability, whose colours go from 0 to 1.
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

    __repr__ = oc.brief_repr


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
    low, high = float(data.values.min()), float(data.values.max())
    points = axes[0].scatter(
        *data.sites.T, c=data.values, s=_marker_area(len(data.values)), vmin=low, vmax=high, cmap="viridis", linewidths=0
    )
    mean = axes[1].pcolormesh(data.x, data.y, data.mean, vmin=low, vmax=high, cmap="viridis", shading="nearest", rasterized=True)
    ends = {}
    if data.quantity is not None:
        ends = {"vmin": 0.0, "vmax": 1.0} if data.is_share else {"vmin": low, "vmax": high}
    error = axes[2].pcolormesh(data.x, data.y, data.standard_error, cmap="magma", shading="nearest", rasterized=True, **ends)
    axes[0].set_title(f"observed: {len(data.values):,} values" + _crosses(axes[0], data.held_out))
    axes[1].set_title("predicted")
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
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


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
    form = Path(path).suffix[1:].lower()
    marked = {"metadata": {_MARKED_IN[form]: _PICTURE_MARK}} if form in _MARKED_IN else {}
    with oc.output_file(path, kind=PICTURES, replace=replace) as part, part.open("wb") as stream:
        figure.savefig(stream, format=form, dpi=120, **marked)


def picture_endings() -> tuple[str, ...]:
    """Endings of the formats that Matplotlib writes."""
    require_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    return tuple(f".{name}" for name in FigureCanvasBase.get_supported_filetypes())


def check_picture(path: str | os.PathLike[str]) -> None:
    """Find out early whether a picture can be drawn into this file."""
    check_output_path(path, picture_endings(), "pictures")


def require_matplotlib() -> None:
    """Find out early whether pictures can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError(f"pictures are drawn by Matplotlib, which is not installed: {oc.install_hint('plots')}")


def _crosses(axis: Any, held_out: NDArray[np.float64] | None) -> str:
    """Crosses where observations were left out, and the words for them."""
    if held_out is None or not len(held_out):
        return ""
    axis.scatter(*held_out.T, s=8, marker="x", c="black", linewidths=0.6)
    return f"; crosses: {len(held_out):,} held out"


def _third_label(data: MapData, labels: MapLabels) -> str:
    """What the colours of the third map are."""
    if data.quantity is None:
        return f"standard error, {labels.value}"
    return "probability" if data.is_share else labels.value


def _height(data: MapData, labels: MapLabels) -> float:
    """Inches that three maps side by side on 15 inches need, within reason."""
    width, height = float(np.ptp(data.x)), labels.aspect * float(np.ptp(data.y))
    return float(np.clip(4.0 * height / width + 1.0, 3.0, 12.0)) if width > 0 else 12.0


def _marker_area(n: int) -> float:
    """Markers that fill the map about evenly whatever their number."""
    return float(np.clip(30_000 / n, 2.0, 60.0))
