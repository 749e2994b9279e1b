"""The result file of a fit: what is written, and what prediction reads back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ooc_chol.apps.geostat.covariance import Matern
from ooc_chol.apps.geostat.dataset import DataSpec
from ooc_chol.apps.geostat.fitting import FitResult
from ooc_chol.apps.geostat.io import read_json

_FORMAT = "ooc-chol geostat fit"
_VERSION = 1


@dataclass(frozen=True)
class SavedFit:
    """What prediction needs of a fit.

    Parameters
    ----------
    spec : DataSpec
        Data and columns.
    model : Matern
        The covariance function.
    n : int
        Number of observations that it was fitted to.
    """

    spec: DataSpec
    model: Matern
    n: int


def result_content(spec: DataSpec, result: FitResult) -> dict[str, Any]:
    """A fit as plain data for JSON; the schema is in ``docs/geostat.md``.

    Parameters
    ----------
    spec : DataSpec
        Where the observations come from.
    result : FitResult
        The estimate.

    Returns
    -------
    dict
        With keys ``format``, ``version``, ``data`` and ``fit``.
    """
    return {"format": _FORMAT, "version": _VERSION, "data": spec.to_dict(), "fit": result.to_dict()}


def read_result(path: str | os.PathLike[str]) -> SavedFit:
    """Read a result file.

    Parameters
    ----------
    path : path
        A file with :func:`result_content`.

    Returns
    -------
    SavedFit
        Data specification and model.

    Raises
    ------
    ValueError
        The file is none of these, or of another version.
    OSError
        The file cannot be read.
    """
    content = read_json(path)
    if content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise ValueError(f"{path} is not a result of `ooc-chol geostat fit` of version {_VERSION}")
    try:
        model = content["fit"]["model"]
        matern = Matern(*(float(model[name]) for name in ("variance", "range", "smoothness", "nugget")))
        return SavedFit(DataSpec.from_dict(content["data"]), matern, int(content["fit"]["n"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} lacks a part of a result, or has a wrong one: {error}") from error
