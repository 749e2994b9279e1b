"""Names within the package that tests look at: a table a room, which says the modules that its names are in.

``from tests.inside.dense import TileProgram`` gives the object of the package; nothing but its module is imported. A module that
moves changes a row of a table, and no test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def names_of(
    room: str, names: Mapping[str, Sequence[str]] | None = None, modules: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a room, from its tables: names by module, and whole modules by the names that tests use."""
    places = entries(names or {}, modules or {})

    def __getattr__(key: str) -> Any:
        if key not in places:
            raise AttributeError(f"module {room!r} has no attribute {key!r}")
        module, name = places[key]
        # Looked up each time: a test may have put something else there.
        return import_module(module) if name is None else getattr(import_module(module), name)

    return __getattr__


def entries(names: Mapping[str, Sequence[str]], modules: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """The module and the name there of each entry of a room, ``"run as run_plan"`` where two modules have one; or None."""
    words = [(module, *word.split(" as ")) for module, given in names.items() for word in given]
    return {**{word[-1]: (word[0], word[1]) for word in words}, **{key: (module, None) for key, module in modules.items()}}


def entries_of(room: str) -> dict[str, tuple[str, str | None]]:
    """The module and the name there of each entry of a room."""
    table = vars(import_module(f"tests.inside.{room}"))
    return entries(table.get("NAMES", {}), table.get("MODULES", {}))


def imported(room: str, key: str) -> Any:
    """An entry of a room where its module is imported already, else None."""
    module, name = entries_of(room)[key]
    found = sys.modules.get(module)
    return found if found is None or name is None else getattr(found, name)
