"""The result file of a fit: what is written, and what prediction reads back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.model_content import model_from_content
from ooc_chol.apps.geostat.data.dataset import DataSpec
from ooc_chol.apps.geostat.data.io import json_files, read_json
from ooc_chol.apps.geostat.estimation.fitting import FitResult

_KindT = TypeVar("_KindT")

_FORMAT = "ooc-chol geostat fit"
_VERSION = 1

#: Files that a new result may replace.
RESULTS = json_files(_FORMAT)


@dataclass(frozen=True, eq=False)
class SavedFit:
    """Part of a result file that later commands read of a fit."""

    spec: DataSpec  #: Source and columns of the data that were fitted
    model: AbstractCovariance
    n: int  #: Number of observations that it was fitted to
    coefficients: NDArray[np.float64]  #: (p,) coefficients of the mean
    loglik: float
    estimated: tuple[str, ...]  #: The parameters of ``model`` that were estimated
    reml: bool  #: Whether the restricted likelihood was maximised
    by_vecchia: bool = False  #: Whether Vecchia's approximation was maximised

    __repr__ = tb.brief_repr


def result_content(spec: DataSpec, result: FitResult[Any]) -> dict[str, Any]:
    """A fit as plain data for JSON; the schema is in ``docs/geostat.md``."""
    return {"format": _FORMAT, "version": _VERSION, "data": spec.to_dict(), "fit": result.to_dict()}


def read_result(path: str | os.PathLike[str]) -> SavedFit:
    """Read what ``fit`` wrote; ``ValueError`` for another file, or one that lacks a part."""
    content = read_json(path)
    if content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise ValueError(f"{path} is not a result of `ooc-chol geostat fit` of version {_VERSION}")
    try:
        fit, model = content["fit"], model_from_content(content["fit"]["model"])
        spec = DataSpec.from_dict(content["data"])
        return SavedFit(
            spec,
            model,
            _of(int, fit["n"]),
            _coefficients(fit["mean"], len(spec.terms) + (spec.mean == "constant")),
            _of(float, fit["loglik"]),
            tuple(_of(str, name) for name in _of(list, fit["estimated"])),
            _of(bool, fit["reml"]),
            fit.get("vecchia") is not None,
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} lacks a part of a result, or has a wrong one: {error!s:.300}") from error


def _of(kind: type[_KindT], value: Any) -> _KindT:
    """A value of the kind that stands there in every result."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.80} is no {kind.__name__}")
    return value


def _coefficients(mean: dict[str, Any], count: int) -> NDArray[np.float64]:
    """The coefficients of the mean, one finite number for each of its columns."""
    coefficients = mean["coefficients"]
    numbers = [float(value) for value in coefficients if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(coefficients) != count or len(numbers) != count:
        raise TypeError(f"the mean has {count} columns, and needs a finite coefficient for each, not {coefficients}")
    return np.array(numbers, dtype=np.float64)
