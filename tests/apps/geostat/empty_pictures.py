"""Pictures in which nothing is drawn, for tests that look at files alone."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure


def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write pictures of their formats that are empty: drawing takes longest, and other tests look at what is drawn."""
    write = Figure.savefig

    def savefig(figure: Figure, *where: Any, **how: Any) -> None:
        figure.clear()
        write(figure, *where, **how)

    monkeypatch.setattr(Figure, "savefig", savefig)
