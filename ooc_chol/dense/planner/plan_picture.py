"""A plan at a glance: its tiles, and its bytes beside the memory that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ooc_chol.config import format_bytes
from ooc_chol.display.drawing import BLUE, FORMAT_COLOURS, GREY, ORANGE, PALE, Bar, Drawing, draw_bars, draw_legend, draw_triangle
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.tiling import TileGrid

_WIDTH, _SIDE, _MARGIN = 680, 200, 12
#: Colours of the tile rows of several devices, in turn.
_DEVICE_COLOURS = ("#0b2f5b", BLUE, "#8ab8e0", ORANGE, "#8c6bb1", "#4d9221", "#c51b7d", "#7f7f7f")
#: How many times as long as the next one the bar of the budget may be.
_MOST_OVER = 1.5
#: Most devices that the legend names.
_MOST_NAMED = 5


#: Colours of the bars, but for those in the colour of what moves.
_BAR_COLOURS = {"L in its store": FORMAT_COLOURS["fp64"], "least to load": PALE}


def plan_picture(
    grid: TileGrid,
    *,
    words: Sequence[str],
    amounts: Mapping[str, int],
    budget_bytes: int,
    precision: PrecisionMap | None,
    devices: Sequence[str],
    owners: Sequence[int],
    widths: Sequence[int],
) -> Drawing:
    """Tiles by format, device or panel at the left; words, then memory and what crosses links at the right, on one scale.

    ``owners`` are the numbers of tile rows' ``devices``, and ``widths`` those of panels, in tile columns.
    """
    drawing = Drawing(_WIDTH, _SIDE + 2 * _MARGIN, f"plan of a Cholesky factorization of order {grid.n}")
    colour_of, legend = _tile_colours(precision, devices, owners, widths)
    draw_triangle(drawing, (_MARGIN, _MARGIN), _SIDE, grid.nt, colour_of)
    draw_legend(drawing, _MARGIN + 0.5 * _SIDE, _MARGIN, legend)
    bars = {name: [Bar(amount, _BAR_COLOURS.get(name, BLUE), format_bytes(amount))] for name, amount in amounts.items() if amount}
    rows = [("memory budget", [_budget_bar(budget_bytes, most=max(amounts.values()))]), *bars.items()]
    left = _SIDE + 2 * _MARGIN + 110
    for line, text in enumerate(words):
        drawing.words(left, _MARGIN + 13 + 18 * line, text)
    draw_bars(drawing, _MARGIN + 44, rows, left=left)
    return drawing


def _budget_bar(budget: int, most: float) -> Bar:
    """The budget of a device: one that is ample must not make all other bars, of ``most`` bytes, invisible."""
    cut = "" if budget <= _MOST_OVER * most else ", bar cut off"
    return Bar(min(budget, _MOST_OVER * most), GREY, f"{format_bytes(budget)}{cut}")


def _tile_colours(
    precision: PrecisionMap | None, devices: Sequence[str], owners: Sequence[int], widths: Sequence[int]
) -> tuple[Callable[[int, int], str], list[tuple[str, str]]]:
    """The colour of each tile, and what the colours mean."""
    if precision is not None:
        legend = [(f"{count} {name}", FORMAT_COLOURS[name]) for name, count in precision.counts.items()]
        return lambda i, j: FORMAT_COLOURS[precision.format_of((i, j)).name], legend
    if len(devices) > 1:
        colours = [_DEVICE_COLOURS[number % len(_DEVICE_COLOURS)] for number in range(len(devices))]
        named = list(zip(devices, colours, strict=True))[:_MOST_NAMED]
        return lambda i, j: colours[owners[i]], named
    panel_of = [number for number, width in enumerate(widths) for _ in range(width)]
    shades = (BLUE, PALE)
    return lambda i, j: shades[panel_of[j] % 2], [(f"{len(widths)} panel{'s' * (len(widths) != 1)}", BLUE)]
