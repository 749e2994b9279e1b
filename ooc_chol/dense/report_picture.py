"""A report at a glance: the parts of the call, and for what streams were busy, measured beside predicted."""

from __future__ import annotations

from collections.abc import Mapping

from ooc_chol.display.drawing import BLUE, LINE_HEIGHT, PALE, Bar, Drawing, draw_bars, draw_legend

_WIDTH, _MARGIN = 680, 12


def report_picture(
    title: str, parts: Mapping[str, tuple[float, float | None]], busy: Mapping[str, tuple[float, float | None]]
) -> Drawing:
    """Seconds of ``parts`` of the call, then of ``busy`` streams by kind of work: each measured, and predicted or None."""
    height = 2 * _MARGIN + LINE_HEIGHT * (2 + len(parts) + bool(busy) * (1 + len(busy)))
    drawing = Drawing(_WIDTH, height, title)
    drawing.words(_MARGIN, _MARGIN + 13, title)
    draw_legend(drawing, _WIDTH - 210, _MARGIN, [("measured", BLUE)])
    if any(predicted is not None for _, predicted in (*parts.values(), *busy.values())):
        draw_legend(drawing, _WIDTH - 110, _MARGIN, [("predicted", PALE)])
    y = draw_bars(drawing, _MARGIN + 1.5 * LINE_HEIGHT, _rows(parts))
    if busy:
        drawing.words(_MARGIN, y + 17, "busy, all streams together")
        draw_bars(drawing, y + 1.4 * LINE_HEIGHT, _rows(busy))
    return drawing


def _rows(seconds: Mapping[str, tuple[float, float | None]]) -> list[tuple[str, list[Bar]]]:
    """A row for each name, of one bar or two."""
    rows = []
    for name, (measured, predicted) in seconds.items():
        bars = [Bar(measured, BLUE, _time(measured))]
        if predicted is not None:
            bars.append(Bar(predicted, PALE, f"{_time(predicted)} predicted"))
        rows.append((name, bars))
    return rows


def _time(seconds: float) -> str:
    """Three digits, in seconds or milliseconds."""
    return f"{seconds:.3g} s" if seconds >= 0.0995 else f"{1e3 * seconds:.3g} ms"
