"""What is read from factor files, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.inside.dense import CheckedTiles, TileLayout


def tell_reads(monkeypatch: pytest.MonkeyPatch, told: Callable[[TileLayout, tuple[int, int]], object]) -> None:
    """Tell of every tile that is read as a whole from a file, before it is, on the thread that reads it."""
    for name in ("read", "read_unchecked"):
        real = getattr(CheckedTiles, name)

        def read(
            self: CheckedTiles, file: Any, layout: TileLayout, index: Any, *words: Any, real: Any = real, **more: Any
        ) -> None:
            told(layout, (int(index[0]), int(index[1])))
            real(self, file, layout, index, *words, **more)

        monkeypatch.setattr(CheckedTiles, name, read)
