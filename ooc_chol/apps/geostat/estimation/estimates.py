"""Estimates with their intervals: as lines of text, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.azimuth import azimuth_of, is_angle, read_name

#: Most estimates that a text or a picture shows, and most warnings.
_MOST_ROWS, _MOST_WARNINGS = 30, 10
#: Pixels: of a picture, its margin, a row, and where names end and where intervals begin and end.
_WIDTH, _MARGIN, _ROW, _NAMES, _LEFT, _RIGHT = 680, 12, 20, 190, 205, 420
_BLUE, _PALE, _GREY = "#2f77b8", "#a9cbe8", "#c3c9d1"


class Row(NamedTuple):
    """One quantity: its estimate, and where they are known its standard error, the ends of its interval and its unit."""

    name: str
    value: float
    error: float | None = None
    lower: float | None = None
    upper: float | None = None
    note: str = ""
    unit: str = ""

    def text(self, digits: int = 6) -> str:
        """The estimate with error and interval, as far as they are known."""
        text = f"{self.value:.{digits}g}" if self.error is None else f"{self.value:.{digits}g} ± {self.error:.2g}"
        if self.lower is not None and self.upper is not None:
            text += f", {self.lower:.{digits}g} to {self.upper:.{digits}g}" if self.is_determined else ", not determined"
        return text + (f" {self.unit}" if self.unit else "") + self.note

    @property
    def is_determined(self) -> bool:
        """True if both ends of the interval are numbers."""
        return self.lower is not None and self.upper is not None and math.isfinite(self.lower) and math.isfinite(self.upper)


def as_read(row: Row) -> Row:
    """The row of an angle as its azimuth in degrees, about which its interval is turned; any other as it is."""
    if not is_angle(row.name):
        return row
    value = azimuth_of(row.value)
    turned = row._replace(name=read_name(row.name), value=value, unit="degrees")
    if row.error is not None:
        turned = turned._replace(error=math.degrees(row.error))
    if row.lower is not None and row.upper is not None:
        ends = value - math.degrees(row.upper - row.value), value + math.degrees(row.value - row.lower)
        turned = turned._replace(lower=ends[0], upper=ends[1])
    return turned


def estimates_text(title: str, rows: Sequence[Row], warnings: Sequence[str] = ()) -> str:
    """A title, a line for each estimate, and the warnings; long lists are cut."""
    lines = [title, *(f"  {_flat(row.name):26s}{row.text()}" for row in rows[:_MOST_ROWS])]
    lines += [f"  ... and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else []
    lines += [f"  warning: {_flat(text)}" for text in warnings[:_MOST_WARNINGS]]
    left = len(warnings) - _MOST_WARNINGS
    return "\n".join([*lines, *([f"  ... and {left} more warnings"] if left > 0 else [])])


def _flat(text: str) -> str:
    """Text of a user on one line."""
    return " ".join(text.split())


def estimates_drawing(title: str, rows: Sequence[Row]) -> tb.Drawing:
    """A row for each estimate: a dot, its interval as a bar from zero on a scale of its own, and the numbers."""
    shown = rows[:_MOST_ROWS]
    drawing = tb.Drawing(_WIDTH, 2 * _MARGIN + _ROW * (1 + len(shown)), title)
    drawing.words(_MARGIN, _MARGIN + 13, title)
    for number, row in enumerate(shown, start=1):
        y = _MARGIN + number * _ROW
        drawing.words(_NAMES, y + 14, row.name, anchor="end")
        _draw_interval(drawing, y, row)
        drawing.words(_RIGHT + 15, y + 14, row.text(digits=4))
    return drawing


def _draw_interval(drawing: tb.Drawing, y: float, row: Row) -> None:
    """The interval of one estimate, between zero and its far end; nothing where there is none."""
    if not row.is_determined or row.lower is None or row.upper is None:
        return
    first, last = min(0.0, row.lower), max(0.0, row.upper)
    scale = (_RIGHT - _LEFT) / ((last - first) or 1.0)
    zero, lower, value, upper = (_LEFT + scale * (at - first) for at in (0.0, row.lower, row.value, row.upper))
    drawing.rectangle(_LEFT, y + 9, _RIGHT - _LEFT, 2, _GREY)
    drawing.rectangle(lower, y + 6, upper - lower, 8, _PALE)
    drawing.rectangle(zero - 0.5, y + 4, 1, 12, "#222")
    drawing.rectangle(value - 2, y + 4, 4, 12, _BLUE)
