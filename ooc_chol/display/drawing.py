"""Small pictures for notebooks: SVG of bars, squares and words, written by hand, so that nothing is imported to draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple, final

from ooc_chol.display.prints import one_line, shortened

#: Colours of what is planned or allowed, of what was measured, of what is predicted, and of what needs attention.
GREY, BLUE, PALE, ORANGE = "#c3c9d1", "#2f77b8", "#a9cbe8", "#ee8a2e"
#: Colours of the formats of tiles, the same in every picture.
FORMAT_COLOURS = {
    "fp64": "#0b2f5b",
    "fp32": BLUE,
    "fp16": "#8ab8e0",
    "fp8": ORANGE,
    "complex128": "#3f1f5b",
    "complex64": "#8c6bb1",
}

_INK, _PAPER = "#222", "#fff"
#: Pixels of a line of words, of its letters, and from one letter to the next at least.
LINE_HEIGHT, _FONT_SIZE, _LETTER_WIDTH = 18, 12, 5.6
#: Most tiles that a triangle shows side by side.
_MOST_SHOWN = 40


class Bar(NamedTuple):
    """One bar of a row: how much, its colour, and what is written behind it."""

    amount: float
    colour: str
    text: str


@final
class Drawing:
    """A picture of bars, squares and words, as text of an SVG element.

    Parameters
    ----------
    width, height : int
        Pixels.
    title : str
        Description, for who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def __repr__(self) -> str:
        return one_line(self, {"width": self.width, "height": self.height, "title": self.title})

    def rectangle(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Fill a rectangle.

        Parameters
        ----------
        x, y : float
            Its upper left corner, in pixels.
        width, height : float
            Its sides, in pixels.
        colour : str
            As CSS writes it.
        """
        place = f'x="{x:.4g}" y="{y:.4g}" width="{max(0.0, width):.4g}" height="{height:.4g}"'
        self._parts.append(f'<rect {place} fill="{colour}"/>')

    def words(self, x: float, y: float, text: str, *, anchor: str = "start") -> None:
        """Write a line of words.

        Parameters
        ----------
        x, y : float
            Where its base line begins, in pixels.
        text : str
            Any text; what does not fit is left out.
        anchor : {"start", "middle", "end"}
            Which of its places ``x`` is.
        """
        shown = shortened(text, max(8, int((self.width - x if anchor == "start" else self.width) / _LETTER_WIDTH)))
        self._parts.append(f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}" fill="{_INK}">{_plain(shown)}</text>')

    def path(self, colour: str, places: str) -> None:
        """Fill a path.

        Parameters
        ----------
        colour : str
            As CSS writes it.
        places : str
            The path, in the words of SVG.
        """
        self._parts.append(f'<path fill="{colour}" d="{places}"/>')

    def svg(self) -> str:
        """The picture.

        Returns
        -------
        str
            An ``svg`` element on white, well-formed XML.
        """
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="{_FONT_SIZE}">'
        paper = f'<rect width="{self.width}" height="{self.height}" fill="{_PAPER}"/>'
        return "\n".join([head, f"<title>{_plain(self.title)}</title>", paper, *self._parts, "</svg>"])


def notebook_html(text: str, drawing: Drawing) -> str:
    """A picture above a text, for ``_repr_html_``.

    Parameters
    ----------
    text : str
        Any text; its lines stay as they are.
    drawing : Drawing
        The picture.

    Returns
    -------
    str
        HTML, which is well-formed XML, too.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> drawing = oc.toolbox.Drawing(60, 20, "nothing")
    >>> drawing.words(0, 15, "a < b")
    >>> "a &lt; b" in oc.toolbox.notebook_html("words", drawing)
    True
    """
    return f'<div>{drawing.svg()}<pre style="font-size:85%">{_plain(text)}</pre></div>'


def draw_bars(drawing: Drawing, y: float, rows: Sequence[tuple[str, Sequence[Bar]]], *, left: int = 120) -> float:
    """Draw rows of named bars from ``y`` down, all on one scale; bars of one row share its height. Returns the lower edge."""
    longest = max((bar.amount for _, bars in rows for bar in bars), default=0.0) or 1.0
    room = 0.5 * (drawing.width - left)
    for name, bars in rows:
        drawing.words(left - 8, y + 13, name, anchor="end")
        each = (LINE_HEIGHT - 4) / max(1, len(bars))
        for number, bar in enumerate(bars):
            drawing.rectangle(left, y + 2 + number * each, room * bar.amount / longest, each - 0.5, bar.colour)
        end = max((bar.amount for bar in bars), default=0.0)
        drawing.words(left + room * end / longest + 6, y + 13, "; ".join(bar.text for bar in bars if bar.text))
        y += LINE_HEIGHT
    return y


def draw_legend(drawing: Drawing, x: float, y: float, entries: Iterable[tuple[str, str]]) -> float:
    """Draw colours and what they mean, a line each, from ``y`` down. Returns the lower edge."""
    for text, colour in entries:
        drawing.rectangle(x, y + 3, 12, 12, colour)
        drawing.words(x + 18, y + 13, text)
        y += LINE_HEIGHT
    return y


def draw_triangle(
    drawing: Drawing, corner: tuple[float, float], side: float, nt: int, colour_of: Callable[[int, int], str]
) -> None:
    """Draw the tiles of a lower triangle as squares; of a large one those of every second, third, ... row and column."""
    shown = range(0, nt, -(-nt // _MOST_SHOWN))
    cell = side / len(shown)
    paths: dict[str, list[str]] = {}
    for row, i in enumerate(shown):
        colours = [colour_of(i, j) for j in shown[: row + 1]]
        first = 0
        for column in range(1, row + 2):  # neighbours of one colour become one rectangle
            if column == row + 1 or colours[column] != colours[first]:
                left, right = (corner[0] + cell * at for at in (first, column))
                place = f"M{left:.5g} {corner[1] + cell * row:.5g}H{right:.5g}v{cell:.4g}H{left:.5g}z"
                paths.setdefault(colours[first], []).append(place)
                first = column
    for colour, places in paths.items():
        drawing.path(colour, "".join(places))


def _plain(text: str) -> str:
    """Text for XML, which has no control characters but tabs and ends of lines."""
    return escape("".join(letter for letter in text if letter >= " " or letter in "\t\n"))
