"""Public names: those of ooc_chol itself, and those of its modules, as ``testing.rmat``; ``diff`` has tables of its own."""

from __future__ import annotations

import ast
from operator import attrgetter
from typing import Any

import ooc_chol as oc

#: Modules that have public names.
MODULES = tuple(name for name in oc._MODULES if name != "diff")
#: What code calls the package and one of these.
_CALLED = {"oc": "ooc_chol", "ooc_chol": "ooc_chol", "tb": "ooc_chol.toolbox"}


def public_names() -> dict[str, Any]:
    """Objects by their public names, without modules."""
    names = [name for name in oc.__all__ if name not in oc._MODULES]
    names += [f"{module}.{name}" for module in MODULES for name in getattr(oc, module).__all__ if name not in names]
    return {name: attrgetter(name)(oc) for name in names}


def written_out(node: ast.AST) -> str | None:
    """``ooc_chol.toolbox.Output`` for ``tb.Output``, and ``ooc_chol.cholesky`` for ``oc.cholesky``; None for other code."""
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name):
            return f"{_CALLED[node.value.id]}.{node.attr}" if node.value.id in _CALLED else None
        above = written_out(node.value)
        return f"{above}.{node.attr}" if above is not None and above.removeprefix("ooc_chol.") in MODULES else None
    return None


def module_of(name: str) -> str | None:
    """The module that has a public name, such as ``ooc_chol.toolbox.Output``, by the table of the package or of a module."""
    place, _, last = name.rpartition(".")
    if place != "ooc_chol" and place.removeprefix("ooc_chol.") not in MODULES:
        return None
    table = oc if place == "ooc_chol" else getattr(oc, place.removeprefix("ooc_chol."))
    return f"ooc_chol.{table._MODULE_OF[last]}" if last in getattr(table, "_MODULE_OF", {}) else None
