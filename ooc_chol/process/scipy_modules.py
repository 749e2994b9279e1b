"""Compiled modules of SciPy's packages, each by itself: importing ``linalg`` around them takes 130 ms, they take 10."""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import scipy

from ooc_chol.config import blas_threads_asked
from ooc_chol.process.address_space import check_room, guarded_imports, stack_bytes

#: Bytes of the library behind them, and of the buffer that each of its threads maps when it starts.
_LIBRARY_BYTES, _BUFFER_BYTES = 64 << 20, 32 << 20


@cache
def linalg_module(name: str) -> ModuleType:
    """The compiled module ``scipy.linalg.<name>``.

    It does not stay in ``sys.modules``: whoever imports ``scipy.linalg`` afterwards finds the package whole, with this module in
    it. Where the package is there already, or has no such file, the module is imported as usual.

    Raises
    ------
    BudgetError
        The process may not map enough memory for the library: OpenBLAS would ask for ever.
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


def check_blas_room() -> None:
    """Refuse to load SciPy's BLAS where its threads would not get their buffers; asked until it is loaded."""
    if "scipy.linalg" not in sys.modules:
        _check_room()


@cache
def _check_room() -> None:
    threads = blas_threads_asked() or os.cpu_count() or 1
    advice = "compute on fewer cores (OPENBLAS_NUM_THREADS)"
    check_room(_LIBRARY_BYTES + threads * (_BUFFER_BYTES + stack_bytes()), "SciPy's BLAS", advice)


def _file_of(package: str, name: str) -> Path | None:
    """The file of a compiled module of a package of SciPy; None where there is none."""
    folder = Path(scipy.__file__).parent / package
    return next((file for suffix in EXTENSION_SUFFIXES if (file := folder / f"{name}{suffix}").is_file()), None)
