"""Files of pictures: marked as the application's own, and replaced only where they are."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, final

import ooc_chol as oc
import ooc_chol.toolbox as tb

#: Where a format keeps the name of the program that drew it.
_MARKED_IN = {"png": "Software", "svg": "Creator", "pdf": "Creator", "ps": "Creator", "eps": "Creator"}


@final
class PictureFiles:
    """Pictures of one application."""

    def __init__(self, application: str, *, dpi: int = 120) -> None:
        self._mark, self._dpi = f"ooc_chol {application} picture", dpi
        #: Files that a new picture may replace.
        self.kind = tb.FileKind(f"picture of ooc-chol {application}", self._mark.encode(), anywhere=True)

    def write(self, figure: Any, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write a figure of Matplotlib to a file, which appears complete or not at all. Raises ``ValueError`` and ``OSError``."""
        check_picture(path)
        form = Path(path).suffix[1:].lower()
        marked = {"metadata": {_MARKED_IN[form]: self._mark}} if form in _MARKED_IN else {}
        with tb.output_file(path, kind=self.kind, replace=replace) as part, part.open("wb") as stream:
            figure.savefig(stream, format=form, dpi=self._dpi, **marked)


def require_matplotlib(error: type[oc.OocCholError] = oc.OocCholError) -> None:
    """Raise unless pictures can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise error(f"pictures are drawn by Matplotlib, which is not installed: {tb.install_hint('plots')}")


def picture_endings() -> tuple[str, ...]:
    """Endings of the formats that Matplotlib, which is there, writes."""
    with tb.guarded_imports(blas=False):
        from matplotlib.backend_bases import FigureCanvasBase

    return tuple(f".{name}" for name in FigureCanvasBase.get_supported_filetypes())


def check_picture(path: str | os.PathLike[str]) -> None:
    """Find out early whether pictures can be drawn, and in this format."""
    require_matplotlib()
    known = picture_endings()
    if Path(path).suffix.lower() not in known:
        raise ValueError(f"{path}: pictures end in {', '.join(known)}; give a name that does")


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure that pyplot does not know, so that the user's own figures and backend are left alone."""
    with tb.guarded_imports(blas=False):
        from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")
