"""Public names of modules that are lists of names: each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ooc_chol.process.address_space import guarded_imports

#: Modules that import ``scipy.linalg``; others load its BLAS when they first call it.
WITH_LINALG = ("api.eigsh", "api.impute", "api.svds", "eigen.", "tensors.")


def public_name(module: str, modules: Mapping[str, str], name: str) -> object:
    """The public name of ``module``, imported from where its table says, below ``ooc_chol``.

    Raises ``AttributeError`` where there is none of that name, and ``BudgetError`` where the process may not map the memory for
    what is imported.
    """
    if name not in modules:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    with guarded_imports(blas=modules[name].startswith(WITH_LINALG)):
        return getattr(import_module(f"ooc_chol.{modules[name]}"), name)
