"""A factor at a glance: its order, its tiles and their formats, and where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ooc_chol.display.drawing import FORMAT_COLOURS, GREY, LINE_HEIGHT, Drawing, draw_legend, draw_triangle
from ooc_chol.formats import PrecisionFormat
from ooc_chol.tasks.tiling import TileGrid

_WIDTH, _SIDE, _MARGIN = 560, 160, 12


def factor_picture(
    grid: TileGrid, formats: Sequence[PrecisionFormat] | None, counts: Mapping[str, int], where: str | None
) -> Drawing:
    """Tiles in the colours of their ``formats``, of the one in ``counts`` where these are None.

    ``where`` is None once the factor is closed.
    """
    drawing = Drawing(_WIDTH, _SIDE + 2 * _MARGIN, f"Cholesky factor of order {grid.n}")

    def colour_of(i: int, j: int) -> str:
        if where is None:
            return GREY
        return FORMAT_COLOURS[next(iter(counts)) if formats is None else formats[grid.packed(i, j)].name]

    draw_triangle(drawing, (_MARGIN, _MARGIN), _SIDE, grid.nt, colour_of)
    facts = [
        f"L of order {grid.n}",
        f"{grid.nt} x {grid.nt} tiles of {grid.nb}",
        "closed" if where is None else f"in {where}",
    ]
    left = _SIDE + 3 * _MARGIN
    for number, fact in enumerate(facts):
        drawing.words(left, _MARGIN + 13 + number * LINE_HEIGHT, fact)
    legend = [(f"{count} tile{'s' * (count != 1)} in {name}", FORMAT_COLOURS[name]) for name, count in counts.items()]
    draw_legend(drawing, left, _MARGIN + 3.5 * LINE_HEIGHT, legend)
    return drawing
