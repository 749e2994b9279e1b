"""Pages: short lines with a name each, which every plan and every report prints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from ooc_chol.config import format_bytes
from ooc_chol.display.drawing import Drawing, notebook_html
from ooc_chol.display.prints import one_line

#: Name and text of a line; a line without a name stands at the left margin.
Line = tuple[str, str]


class AbstractPage(ABC):
    """A record that prints as a page, is one line in a list, and has a picture in a notebook where there is one.

    A dataclass that is one says ``repr=False``.
    """

    @abstractmethod
    def lines(self) -> Iterable[Line]:
        """Lines of the page: a title without a name, then a name of at most ten letters and a text each."""

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``, the most important first."""

    def picture(self) -> Drawing | None:
        """The picture for notebooks; None where the page is all."""
        return None

    def __str__(self) -> str:
        return page_text(self.lines())

    def __repr__(self) -> str:
        return one_line(self, self.facts())

    def _repr_html_(self) -> str | None:
        """HTML for notebooks: the picture, then the page; None where there is no picture, so that the page alone is shown."""
        drawing = self.picture()
        return None if drawing is None else notebook_html(str(self), drawing)


def page_text(lines: Iterable[Line]) -> str:
    """A page of lines, the texts below each other; a name without a text is left out."""
    return "\n".join(f"  {name:<10} {text}" if name else text for name, text in lines if text or not name)


def link_lines(executed: Mapping[str, int], planned: Mapping[str, int], seconds: float, most: int = 2) -> Iterable[Line]:
    """Lines of a report on links: bytes as they were and as planned, and rates.

    Parameters
    ----------
    executed, planned : mapping of str to int
        Bytes by links.
    seconds : float
        Seconds of the run, for rates; 0 for none.
    most : int
        Most links that have a line each; more have one together.

    Returns
    -------
    iterable of (str, str)
        Names and texts.
    """
    if len(executed) > most:
        name = f"{len(executed)} links"
        executed, planned = {name: sum(executed.values())}, {name: sum(planned.values())}
    for link, nbytes in executed.items():
        rate = f", {format_bytes(nbytes / seconds)}/s" if nbytes and seconds else ""
        yield "moved", f"{link} {format_bytes(nbytes)} of {format_bytes(planned.get(link, 0))} planned{rate}"
