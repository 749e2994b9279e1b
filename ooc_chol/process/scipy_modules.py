"""Compiled modules of SciPy's packages, each by itself: importing ``linalg`` around them takes 130 ms, they take 10."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import scipy

from ooc_chol.process.address_space import check_blas_room, guarded_imports


@cache
def linalg_module(name: str) -> ModuleType:
    """The compiled module ``scipy.linalg.<name>``.

    It does not stay in ``sys.modules``: whoever imports ``scipy.linalg`` afterwards finds the package whole, with this module in
    it. Where the package is there already, or has no such file, the module is imported as usual. Raises ``BudgetError``: the
    process may not map enough memory for the library: OpenBLAS would ask for ever.
    """
    check_blas_room()
    with guarded_imports(blas=False):
        return _module("linalg", name)


@cache
def sparse_tools() -> ModuleType:
    """The compiled module ``scipy.sparse._sparsetools``, by itself as :func:`linalg_module`; it uses no BLAS."""
    with guarded_imports(blas=False):
        return _module("sparse", "_sparsetools")


def _module(package: str, name: str) -> ModuleType:
    """The compiled module ``scipy.<package>.<name>``."""
    full = f"scipy.{package}.{name}"
    file = _file_of(package, name)
    if file is None or f"scipy.{package}" in sys.modules:
        return importlib.import_module(full)
    spec = spec_from_file_location(full, file, loader=ExtensionFileLoader(full, str(file)))
    assert spec is not None and spec.loader is not None  # they were made of a file and a loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop(full, None)  # compiled modules enter themselves; then nobody would make them attributes of their package
    return module


def _file_of(package: str, name: str) -> Path | None:
    """The file of a compiled module of a package of SciPy; None where there is none."""
    folder = Path(scipy.__file__).parent / package
    return next((file for suffix in EXTENSION_SUFFIXES if (file := folder / f"{name}{suffix}").is_file()), None)
