"""Packages of the extras ``io`` and ``raster``: imported where they are needed, for they need not be there and take a while."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Literal

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.errors import MissingExtraError

#: Extras that bring such packages.
Extra = Literal["io", "raster"]


def imported(module: str, what: str, extra: Extra = "io") -> Any:
    """A module of an extra; ``what`` is done by it, such as ``"GeoPackages are read"``."""
    try:
        with tb.guarded_imports(blas=False):
            return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, what, extra) from error


def require(modules: tuple[str, ...], what: str, extra: Extra = "io") -> None:
    """Find out before the work whether packages are installed, without importing them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _missing(module, what, extra)


def _missing(module: str, what: str, extra: Extra) -> MissingExtraError:
    package = module.partition(".")[0]
    return MissingExtraError(f"{what} by {package}, which is not installed: {tb.install_hint(extra)}")
