"""Applications: each imports ``ooc_chol`` and ``ooc_chol.toolbox`` only."""

from importlib import import_module
from types import ModuleType

import ooc_chol.toolbox as tb

_NAMES = ("geostat", "imputation", "spectral")


def __getattr__(name: str) -> ModuleType:
    """Import an application."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with tb.guarded_imports():
        return import_module(f"{__name__}.{name}")
