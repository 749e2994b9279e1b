"""Packages of the extra ``io``: imported where they are needed, for they need not be installed and take a while."""

from __future__ import annotations

import importlib
from typing import Any

import ooc_chol as oc
from ooc_chol.apps.geostat.errors import MissingExtraError


def imported(module: str, what: str) -> Any:
    """A module of the extra ``io``; ``what`` is done by it, such as ``"GeoPackages are read"``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{what} by {package}, which is not installed: {oc.install_hint('io')}") from error
