"""A plan at a glance: its tiles, and its bytes beside the memory that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ooc_chol.config import format_bytes
from ooc_chol.display.drawing import BLUE, FORMAT_COLOURS, GREY, ORANGE, PALE, Bar, Drawing, draw_bars, draw_legend, draw_triangle
from ooc_chol.tasks.operations import Link

if TYPE_CHECKING:
    from ooc_chol.dense.planner.plan import Plan

_WIDTH, _SIDE, _MARGIN = 680, 200, 12
#: Colours of the tile rows of several devices, in turn.
_DEVICE_COLOURS = ("#0b2f5b", BLUE, "#8ab8e0", ORANGE, "#8c6bb1", "#4d9221", "#c51b7d", "#7f7f7f")
#: How many times as long as the next one the bar of the budget may be.
_MOST_OVER = 1.5
#: Most devices that the legend names.
_MOST_NAMED = 5


def plan_picture(plan: Plan) -> Drawing:
    """Tiles by format, device or panel at the left; memory and what crosses links at the right, on one scale."""
    grid = plan.grid
    drawing = Drawing(_WIDTH, _SIDE + 2 * _MARGIN, f"plan of a Cholesky factorization of order {grid.n}")
    colour_of, legend = _tile_colours(plan)
    draw_triangle(drawing, (_MARGIN, _MARGIN), _SIDE, grid.nt, colour_of)
    draw_legend(drawing, _MARGIN + 0.5 * _SIDE, _MARGIN, legend)
    bytes_of = [
        ("peak on a device", plan.peak_bytes, BLUE),
        ("L in its store", plan.stored_bytes, FORMAT_COLOURS["fp64"]),
        ("loaded", plan.loaded_bytes, BLUE),
        ("least to load", round(plan.movement_bound_bytes), PALE),
        ("written", plan.link_bytes(Link.WRITE), BLUE),
        ("between devices", plan.link_bytes(Link.PEER), BLUE),
    ]
    rows = [(name, [Bar(amount, colour, format_bytes(amount))]) for name, amount, colour in bytes_of if amount]
    rows.insert(0, ("memory budget", [_budget_bar(plan, most=max(amount for _, amount, _ in bytes_of))]))
    left = _SIDE + 2 * _MARGIN + 110
    drawing.words(left, _MARGIN + 13, f"n = {grid.n}, {grid.nt} x {grid.nt} tiles of {grid.nb}, {plan.engine}")
    drawing.words(left, _MARGIN + 31, "seconds unknown" if plan.seconds is None else f"{plan.seconds:.3g} s predicted")
    draw_bars(drawing, _MARGIN + 44, rows, left=left)
    return drawing


def _budget_bar(plan: Plan, most: float) -> Bar:
    """The budget of a device: one that is ample must not make all other bars, of ``most`` bytes, invisible."""
    budget = plan.budgets[0].budget_bytes
    cut = "" if budget <= _MOST_OVER * most else ", bar cut off"
    return Bar(min(budget, _MOST_OVER * most), GREY, f"{format_bytes(budget)}{cut}")


def _tile_colours(plan: Plan) -> tuple[Callable[[int, int], str], list[tuple[str, str]]]:
    """The colour of each tile, and what the colours mean."""
    precision, devices = plan.precision, plan.devices
    if precision is not None:
        legend = [(f"{count} {name}", FORMAT_COLOURS[name]) for name, count in precision.counts.items()]
        return lambda i, j: FORMAT_COLOURS[precision.format_of((i, j)).name], legend
    if len(devices) > 1:
        colours = [_DEVICE_COLOURS[number % len(_DEVICE_COLOURS)] for number in range(len(devices))]
        named = list(zip(devices, colours, strict=True))[:_MOST_NAMED]
        return lambda i, j: colours[plan.owners[i]], named
    panel_of = [number for number, panel in enumerate(plan.panels) for _ in range(panel.width)]
    shades = (BLUE, PALE)
    count = f"{len(plan.panels)} panel{'s' * (len(plan.panels) != 1)}"
    return lambda i, j: shades[panel_of[j] % 2], [(count, BLUE)]
