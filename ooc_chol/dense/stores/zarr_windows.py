"""Facts that a cluster measured as it made the windows of an L, kept in the Zarr group beside the tiles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np

from ooc_chol.dense.stores.zarr_layout import DOCUMENT, GroupShape, group_document
from ooc_chol.dense.stores.zarr_tables import BlockOf, BlockTable
from ooc_chol.files.object_folders import AbstractObjectFolder
from ooc_chol.tasks.windows import Window

#: Group within the group, of a group for each window.
_WINDOWS = "windows"


@final
class WindowRecords:
    """The groups of windows within one group, and its array of norms."""

    def __init__(self, folder: AbstractObjectFolder, shape: GroupShape) -> None:
        self._folder, self._shape = folder, shape

    def create(self) -> None:
        """Make room for those of all windows."""
        self._write(_WINDOWS, {})

    def is_there(self) -> bool:
        """Tell whether there is room for them."""
        try:
            self._folder.read(f"{_WINDOWS}/{DOCUMENT}")
        except FileNotFoundError:
            return False
        return True

    def save(self, window: Window, blocks: Iterable[BlockOf], facts: Mapping[str, Any]) -> None:
        """Write what was measured of a window; ``norms``, a row for each of its tiles, as an array."""
        given = dict(facts)
        norms = given.pop("norms", None)
        self._write(_name(window), given)
        if norms is None:
            return
        table = BlockTable(self._folder, self._shape.norms)
        for index, row in zip(window.tiles(), np.asarray(norms, np.float64), strict=True):
            table.set(index, row)
        for block in blocks:
            table.write(block)

    def load(self, window: Window) -> dict[str, Any]:
        """Facts of a window that :meth:`save` was given; empty where it was given none."""
        try:
            content = json.loads(self._folder.read(f"{_name(window)}/{DOCUMENT}"))
        except FileNotFoundError:
            return {}
        facts: dict[str, Any] = dict(content["attributes"])
        if self._shape.is_mixed:
            table = BlockTable(self._folder, self._shape.norms)
            facts["norms"] = np.array([table.entry(index) for index in window.tiles()])
        return facts

    def _write(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Write the document of a group."""
        self._folder.write(f"{name}/{DOCUMENT}", [memoryview(group_document(attributes))])


def _name(window: Window) -> str:
    """Name of the group of a window: its first tile row and column."""
    return f"{_WINDOWS}/{window.rows.start}.{window.columns.start}"
