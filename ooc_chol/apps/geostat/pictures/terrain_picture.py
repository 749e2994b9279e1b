"""The picture of the demonstration: true terrain, prediction and errors, held-out heights, and bytes beside the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.terrain import Terrain
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.pictures.plots import add_colour_bar, new_figure

#: The light of both reliefs, and how much higher mountains are made.
_LIGHT = {"azdeg": 315, "altdeg": 45}
_EXAGGERATION = 3.0

#: Colours of land, from valleys to summits.
_LAND = ("#3f6b4b", "#7fa36a", "#c9c58d", "#c29d6b", "#96694a", "#d9d3cf", "#ffffff")

#: Level of the intervals, and the share of errors that the colours tell apart.
_LEVEL = 0.95
_ERROR_SHARE = 0.995

_HIT, _MISS, _BUDGET, _OUTSIDE = "tab:blue", "tab:red", "seagreen", "lightsteelblue"


@dataclass(frozen=True, eq=False)
class TerrainPicture:
    """Data of the picture, in kilometres and metres."""

    terrain: Terrain
    sites: NDArray[np.float64]  #: (n, 2) places of the heights that were fitted
    mean: NDArray[np.float64]  #: (rows, columns) prediction at each height of the terrain
    x: NDArray[np.float64]  #: (c,), (r,) and (r, c) standard error of the smooth field on a grid, its rows from north to south
    y: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    held_out: NDArray[np.float64]  #: (m,) heights that the fit has not seen
    prediction: Prediction  #: Of new observations at their places
    title: str
    subtitle: str
    memory: Sequence[tuple[str, int]]  #: What was stored, used or moved, and its bytes
    budget_bytes: int  #: Memory that was allowed, and what the factor takes
    factor_bytes: int
    memory_text: str  #: Seconds, in words


def terrain_figure(data: TerrainPicture) -> Any:
    """The picture as a Matplotlib figure of six panels. Raises ``MissingExtraError``: Matplotlib is not installed."""
    figure = new_figure((16, 10.6))
    panels = figure.subplots(2, 3)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.12, wspace=0.03, hspace=0.04)
    (truth, predicted, error), (uncertain, scatter, memory) = panels
    heights, n = data.terrain.heights, len(data.sites)
    _draw_relief(truth, data, heights, f"True terrain: {heights.size:,} heights")
    _draw_relief(predicted, data, data.mean, f"Predicted from {n:,} of them ({100 * n / heights.size:.1f} %)")
    _draw_error(error, data)
    _draw_standard_error(uncertain, data)
    _draw_scatter(scatter, data)
    _draw_memory(memory, data)
    for axis in (truth, predicted, error, uncertain):
        axis.set_xlabel("east (km)")
        axis.set_ylabel("north (km)")
    for axis, letter in zip(panels.flat, "abcdef", strict=True):
        title = axis.set_title(f"{letter}   {axis.get_title()}", loc="left", fontsize=12)
        title.set_in_layout(False)  # some are wider than their panel, whose colour bar leaves them room
        axis.set_title("")
    figure.suptitle(f"{data.title}\n", fontsize=18, fontweight="bold")
    figure.text(0.5, 0.945, data.subtitle, ha="center", va="top", fontsize=12)
    return figure


def _extent(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Edges of a raster whose rows go from north to south, half a pixel beyond its middles."""
    half_x, half_y = abs(x[1] - x[0]) / 2, abs(y[1] - y[0]) / 2
    return float(x.min() - half_x), float(x.max() + half_x), float(y.min() - half_y), float(y.max() + half_y)


def _draw_relief(axis: Any, data: TerrainPicture, heights: NDArray[np.float64], title: str) -> None:
    """Heights in the colours of land, lit from the north-west; all reliefs share colours and light."""
    with tb.guarded_imports(blas=False):
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LightSource, LinearSegmentedColormap, Normalize

    terrain = data.terrain
    land = LinearSegmentedColormap.from_list("land", _LAND)
    norm = Normalize(float(terrain.heights.min()), float(terrain.heights.max()))
    metres = 1000 * abs(terrain.x[1] - terrain.x[0]), 1000 * abs(terrain.y[1] - terrain.y[0])
    shaded = LightSource(**_LIGHT).shade(
        heights, cmap=land, norm=norm, blend_mode="soft", vert_exag=_EXAGGERATION, dx=metres[0], dy=metres[1]
    )
    axis.imshow(shaded, extent=_extent(terrain.x, terrain.y), interpolation="bilinear")
    axis.set_title(title)
    add_colour_bar(axis, ScalarMappable(norm, land), "height (m)")


def _draw_error(axis: Any, data: TerrainPicture) -> None:
    """Prediction less truth at every height."""
    error = data.mean - data.terrain.heights
    most = float(np.quantile(np.abs(error), _ERROR_SHARE))
    image = axis.imshow(error, extent=_extent(data.terrain.x, data.terrain.y), cmap="RdBu_r", vmin=-most, vmax=most)
    axis.set_title(f"Prediction less truth: {np.sqrt(np.mean(error**2)):.0f} m root mean square")
    add_colour_bar(axis, image, "error of the prediction (m)", extend="both")


def _draw_standard_error(axis: Any, data: TerrainPicture) -> None:
    """Draw the model's standard error, which is small at the sites."""
    most = float(np.quantile(data.standard_error, _ERROR_SHARE))
    extent = _extent(data.x, data.y)
    image = axis.imshow(data.standard_error, extent=extent, cmap="magma", vmin=0.0, vmax=most, interpolation="bilinear")
    axis.set_title(f"Standard error of the field; dots: the {len(data.sites):,} sites")
    axis.scatter(*data.sites.T, s=0.6, c="white", linewidths=0)
    around = _extent(data.terrain.x, data.terrain.y)
    axis.set(xlim=around[:2], ylim=around[2:])
    add_colour_bar(axis, image, "standard error of the field (m)", extend="max")


def _draw_scatter(axis: Any, data: TerrainPicture) -> None:
    """Held-out heights beside their predictions, with intervals of new observations."""
    lower, upper = data.prediction.interval(_LEVEL)
    hit = (lower <= data.held_out) & (data.held_out <= upper)
    ends = float(min(data.held_out.min(), lower.min())) - 20, float(max(data.held_out.max(), upper.max())) + 20
    axis.plot(ends, ends, color="black", linewidth=0.8, zorder=1)
    for those, colour, name in ((hit, _HIT, "holds the height"), (~hit, _MISS, "misses it")):
        bars = np.abs(np.stack([lower, upper]) - data.prediction.mean)[:, those]
        axis.errorbar(
            data.held_out[those],
            data.prediction.mean[those],
            yerr=bars,
            fmt="o",
            color=colour,
            markersize=2.5,
            elinewidth=0.8,
            ecolor=(colour, 0.45),
            label=f"interval {name}: {np.sum(those)}",
        )
    axis.set(xlim=ends, ylim=ends, box_aspect=1.0)
    axis.set_xlabel("true height, held out (m)")
    axis.set_ylabel(f"predicted observation, {100 * _LEVEL:g} % interval (m)")
    axis.set_title(f"{len(hit):,} heights held out: {100 * np.mean(hit):.1f} % in {100 * _LEVEL:g} % intervals")
    axis.legend(loc="upper left", frameon=False, fontsize=10)


def _draw_memory(axis: Any, data: TerrainPicture) -> None:
    """Bytes of the matrix beside those of memory."""
    names, counts = zip(*reversed(data.memory), strict=True)
    megabytes, budget = np.array(counts) / 1e6, data.budget_bytes / 1e6
    colours = [_BUDGET if value <= budget else _OUTSIDE for value in megabytes]
    axis.barh(range(len(names)), megabytes, color=colours, height=0.4)
    axis.axvline(budget, color=_BUDGET, linestyle="--", linewidth=1.5, zorder=0)
    for at, (name, value) in enumerate(zip(names, megabytes, strict=True)):
        axis.text(0.0, at + 0.26, f"{name}: {value:.3g} MB", va="bottom", fontsize=10.5, backgroundcolor="white")
    axis.set(yticks=[], box_aspect=1.0, xlim=(0, 1.03 * megabytes.max()), ylim=(-0.4, len(names) - 0.35))
    axis.spines[["left", "top", "right"]].set_visible(False)
    axis.set_xlabel(f"megabytes; dashed: the {budget:.3g} MB allowed\n{data.memory_text}")
    share = data.budget_bytes / data.factor_bytes
    where = f"Out of core: working memory for {100 * share:.0f} % of L" if share < 1 else "In core: working memory holds all of L"
    axis.set_title(where)
