"""Panels and row groups: how wide to go at each column, and how many rows to update together.

A panel ``[k0, k0 + width)`` is updated by row groups of ``height`` tile rows. A group's ``width * height`` accumulators stay on
the device while k sweeps ``0..k0``; each k needs the panel's ``width`` operand tiles and those of the group one after the other.
``height == 1`` with the panel's own rows resident is the held-rows order; small memories take blocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ooc_chol.tasks.windows import Window, whole_triangle


class Panel(NamedTuple):
    """Tile columns ``[k0, k0 + width)``, updated by groups of ``height`` tile rows."""

    k0: int
    width: int
    height: int


def uniform_panels(nt: int, width: int, height: int) -> tuple[Panel, ...]:
    """Panels of one width (the last may be narrower) and one height."""
    return tuple(Panel(k0, min(width, nt - k0), height) for k0 in range(0, nt, width))


def own_rows_need(k0: int, width: int) -> int:
    """Tiles that the panel's own rows need on the device at once: the triangle of accumulators and one operand column."""
    triangle = width * (width + 1) // 2
    return triangle if k0 == 0 else triangle + width


def tallest_group(width: int, capacity: int) -> int:
    """Most rows of a group: its accumulators, ``width`` operands of the panel and one of its own must fit at once."""
    return (capacity - width - 1) // width


def varying_panels(
    nt: int, capacity: int, n_devices: int = 1, *, sweeps_whole_columns: bool = False, window: Window | None = None
) -> tuple[Panel, ...]:
    """Widths and heights that make the estimated loads least, by dynamic programming from the last column back.

    With R rows from ``k0`` on, a panel streams ``R * k0`` tiles once, and every group reads again what does not stay of the
    panel's own ``width * k0 + width (width + 1) / 2`` tiles. Cost O(nt² capacity) in vectorized steps. Of a ``window`` only the
    columns are cut, and R are its rows: where none of these is a panel's own, no own row is updated, and all R are others.
    """
    made = window or whole_triangle(nt)
    first, end = made.columns.start, made.columns.stop
    best = np.full(end + 1, np.inf)
    best[end] = 0.0
    choice: list[tuple[int, int]] = [(1, 1)] * end
    for k0 in range(end - 1, first - 1, -1):
        for width in range(1, end - k0 + 1):
            need = own_rows_need(k0, width) if made.has_diagonal else 2 * width + 1
            if width > 1 and need > capacity:
                break
            rows = len(made.rows_from(k0)) if made.has_diagonal else len(made.rows) + width
            loads, height = _cheapest_height(
                rows, k0, width, capacity=capacity, n_devices=n_devices, whole_columns=sweeps_whole_columns
            )
            if loads + best[k0 + width] < best[k0]:
                best[k0] = loads + best[k0 + width]
                choice[k0] = (width, height)
    panels, k0 = [], first
    while k0 < end:
        panels.append(Panel(k0, *choice[k0]))
        k0 += choice[k0][0]
    return tuple(panels)


def _cheapest_height(rows: int, k0: int, width: int, *, capacity: int, n_devices: int, whole_columns: bool) -> tuple[float, int]:
    """Least estimated loads of one panel, and the height that gives them; ``rows`` are the panel's own, once, and all others."""
    others = -(-(rows - width) // n_devices)
    streamed = rows * k0 / n_devices
    if others == 0:
        return streamed, 1
    heights = np.arange(1, max(1, min(others, tallest_group(width, capacity))) + 1)
    own = width * k0 + width * (width + 1) // 2
    resident = np.maximum(0, capacity - width * heights - (heights if whole_columns else 0) - 1)
    reloads = -(-others // heights) * np.maximum(0, own - resident)
    at = int(np.argmin(reloads))
    return streamed + float(reloads[at]), int(heights[at])


def candidate_panels(nt: int, capacity: int, n_devices: int = 1) -> list[tuple[Panel, ...]]:
    """Panel shapes worth counting exactly: plain columns, the dynamic program's, and small uniform shapes that fit.

    Plain columns read every tile once when about half of the triangle fits, and come first then; below, the dynamic program's
    shapes are better by far.
    """
    plain = uniform_panels(nt, 1, 1)
    shapes = [varying_panels(nt, capacity, n_devices, sweeps_whole_columns=whole) for whole in (False, True)]
    for width, height in ((2, 1), (2, 2)):
        if own_rows_need(1, width) <= capacity and height <= tallest_group(width, capacity) and width < nt:
            shapes.append(uniform_panels(nt, width, height))
    shapes.insert(0 if 4 * capacity >= nt * nt else len(shapes), plain)
    return list(dict.fromkeys(shapes))


@lru_cache(maxsize=1024)
def window_panels(nt: int, window: Window, capacity: int, n_devices: int = 1) -> tuple[tuple[Panel, ...], ...]:
    """Panel shapes of a window, the best first; the last of them, plain columns, fits whatever does.

    Windows of the same columns and as many rows have the same.
    """
    shapes = [varying_panels(nt, capacity, n_devices, sweeps_whole_columns=whole, window=window) for whole in (False, True)]
    plain = tuple(Panel(k0, 1, 1) for k0 in window.columns)
    return tuple(dict.fromkeys([*shapes, plain]))
