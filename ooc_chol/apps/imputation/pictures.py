"""Pictures of slices: true, observed, imputed, and how far off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.shared.pictures import PictureFiles, new_figure, require_matplotlib

_FILES = PictureFiles("impute", dpi=100)
#: Slices of a picture where nobody says which.
_SHOWN = 4

#: Files that a new picture may replace.
PICTURES = _FILES.kind
save_figure = _FILES.write


def slices_figure(
    imputed: NDArray[Any],
    observed: NDArray[Any],
    mask: NDArray[np.bool_],
    *,
    true: NDArray[Any] | None = None,
    slices: Sequence[int] | None = None,
    title: str = "",
) -> Any:
    """Slices as images, one a row: what is true, what was observed, what was imputed, and the error.

    Shapes: ``imputed``, ``observed`` (N, m, n), ``mask`` (N,) or (N, m, n), ``true`` (N, m, n). Raises ``oc.OocCholError`` and
    ``ValueError``.
    """
    require_matplotlib()
    if imputed.shape != observed.shape or (true is not None and true.shape != imputed.shape):
        raise ValueError(f"tensors have shapes {imputed.shape}, {observed.shape}; give tensors of one shape (N, m, n)")
    chosen = _some(mask) if slices is None else [int(each) for each in slices]
    if not chosen or not all(0 <= each < len(imputed) for each in chosen):
        raise ValueError(f"slices {chosen} are not among those of a tensor of {len(imputed)}")
    names = ["observed", "imputed"] if true is None else ["true", "observed", "imputed", "imputed - true"]
    rows, columns = imputed.shape[1:]
    height = float(np.clip(2.6 * rows / columns, 0.8, 6.0))
    figure = new_figure((2.9 * len(names), height * len(chosen) + 0.8))
    grid = figure.subplots(len(chosen), len(names), squeeze=False)
    for axes, each in zip(grid, chosen, strict=True):
        seen = np.where(mask[each], observed[each], np.nan).astype(np.float64)
        shown = [seen, imputed[each]] if true is None else [true[each], seen, imputed[each], imputed[each] - true[each]]
        _draw(axes, shown, each)
    for axes, name in zip(grid[0], names, strict=True):
        axes.set_title(name)
    figure.suptitle(title)
    return figure


def _some(mask: NDArray[np.bool_]) -> list[int]:
    """A few slices of which something is missing; where nothing is, the first ones."""
    gaps = np.flatnonzero(~mask.reshape(len(mask), -1).all(axis=1))
    gaps = gaps if len(gaps) else np.arange(len(mask))
    places = np.linspace(0, len(gaps) - 1, min(_SHOWN, len(gaps))).round().astype(int)
    return [int(each) for each in gaps[places]]


def _draw(axes: Any, shown: list[NDArray[Any]], number: int) -> None:
    """A row of images: values in one scale of colours, symmetric about zero where they are of both signs; errors in their own."""
    values, error = shown[:3], shown[3:]
    scale = np.abs(values[0] if error else values[1]).max() or 1.0
    low = -scale if min(float(np.nanmin(each, initial=0.0)) for each in values) < 0 else 0.0
    _draw_alike(axes[: len(values)], values, low, scale, "value")
    if error:
        off = float(np.abs(error[0]).max()) or 1.0
        _draw_alike(axes[len(values) :], error, -off, off, "error")
    axes[0].set_ylabel(f"slice {number}")


def _draw_alike(axes: Any, images: list[NDArray[Any]], low: float, high: float, label: str) -> None:
    """Images in one scale of colours, which a bar at their right shows."""
    for each, image in zip(axes, images, strict=True):
        drawn = each.imshow(image, vmin=low, vmax=high, cmap="RdBu_r" if low < 0 else "viridis", interpolation="nearest")
        each.set_xticks([])
        each.set_yticks([])
        if np.isnan(image).all():
            each.text(0.5, 0.5, "missing", transform=each.transAxes, ha="center", va="center", color="0.4")
    bar = axes[0].figure.colorbar(drawn, ax=list(axes), shrink=0.85, label=label)
    bar.formatter.set_powerlimits((-3, 4))
