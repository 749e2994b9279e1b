"""Observed, predicted, error: a picture of a comparison on held-out pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.pictures.plots import add_colour_bar, new_figure

#: Share of the errors that the colours tell apart.
_ERROR_SHARE = 0.995

_Array = NDArray[np.float64]


def competition_figure(
    known: tuple[_Array, _Array], held_out: tuple[_Array, _Array], mean: _Array, *, title: str, unit: str = "degrees C"
) -> Any:
    """Pixels that were fitted, the same with predictions of the others, and the errors of these."""
    places = np.concatenate([known[0], held_out[0]])
    axes = [np.unique(places[:, k]) for k in (0, 1)]
    observed, predicted, error = (np.full((len(axes[1]), len(axes[0])), np.nan) for _ in range(3))
    for image, (where, values) in (
        (observed, known),
        (predicted, known),
        (predicted, (held_out[0], mean)),
        (error, (held_out[0], mean - held_out[1])),
    ):
        image[np.searchsorted(axes[1], where[:, 1]), np.searchsorted(axes[0], where[:, 0])] = values
    figure = new_figure((15, 3.7))
    panels = figure.subplots(1, 3, sharey=True)
    low, high = np.nanmin(predicted), np.nanmax(predicted)
    largest = float(np.quantile(np.abs(error[np.isfinite(error)]), _ERROR_SHARE))
    colours = {"cmap": "viridis", "vmin": low, "vmax": high}, {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
    rmse = float(np.sqrt(np.nanmean(error**2)))
    words = (f"observed: {len(known[1]):,} pixels", f"predicted: {len(mean):,} pixels more", f"error: RMSE {rmse:.3f} {unit}")
    for panel, image, how, text in zip(panels, (observed, predicted, error), (colours[0], *colours), words, strict=True):
        shown = panel.pcolormesh(axes[0], axes[1], image, shading="nearest", rasterized=True, **how)
        panel.set_title(text)
        panel.set_aspect("equal")
        panel.set_xlabel("longitude")
        add_colour_bar(panel, shown, unit, extend="both" if how is colours[1] else "neither")
    panels[0].set_ylabel("latitude")
    figure.suptitle(title)
    return figure
