"""Covariance functions as plain data, for result files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ooc_chol.apps.geostat.covariances.bivariate import BivariateMatern
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges, GeometricAnisotropy, GreatCircle
from ooc_chol.apps.geostat.covariances.matern import Matern
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import Nested, effective_range
from ooc_chol.apps.geostat.covariances.nonstationary import NonstationaryMatern
from ooc_chol.apps.geostat.covariances.power_exponential import PowerExponential
from ooc_chol.apps.geostat.covariances.spacetime import GneitingMatern, SeparableSpaceTime

_NAMES: dict[str, type[AbstractCovariance]] = {
    "matern": Matern,
    "power-exponential": PowerExponential,
    "anisotropic": GeometricAnisotropy,
    "axis-ranges": AxisRanges,
    "great-circle": GreatCircle,
    "separable": SeparableSpaceTime,
    "gneiting": GneitingMatern,
    "bivariate": BivariateMatern,
    "nested": Nested,
    "nonstationary": NonstationaryMatern,
}

_KEY = "covariance"

#: Fields whose unit a reader of the file would not guess.
_WRITTEN = {"angle": "angle_radians"}


def model_content(model: AbstractCovariance) -> dict[str, Any]:
    """A covariance function as plain data for JSON.

    Parameters
    ----------
    model : AbstractCovariance
        One of the classes of this package.

    Returns
    -------
    dict
        The name of the class as ``"covariance"``, and its fields, an angle as ``"angle_radians"``; parts that are covariance
        functions themselves in the same way. Of a Matérn model and of a sum of isotropic functions the effective range
        too, of an anisotropic one its azimuth in degrees and the ranges along and across it.

    Raises
    ------
    TypeError
        It is of another class.

    Examples
    --------
    >>> content = model_content(GreatCircle(Matern(2.0, 300.0, 0.5)))
    >>> content["covariance"], content["base"]["range"]
    ('great-circle', 300.0)
    """
    names = [name for name, kind in _NAMES.items() if type(model) is kind]
    if not names:
        raise TypeError(f"a {type(model).__name__} cannot be written to a result file: only the covariance functions here can")
    content: dict[str, Any] = {_KEY: names[0]}
    for field in fields(model):  # type: ignore[arg-type]  # every class above is a dataclass
        content[_WRITTEN.get(field.name, field.name)] = _plain(getattr(model, field.name))
    return content | _for_readers(model)


def _for_readers(model: AbstractCovariance) -> dict[str, float]:
    """Values that follow from the fields, and are not read back."""
    length = effective_range(model) if isinstance(model, Matern | Nested) else None
    if length is not None:
        return {"effective_range": length}
    if isinstance(model, GeometricAnisotropy):
        return {"azimuth": model.azimuth, "range_major": model.range_major, "range_minor": model.range_minor}
    return {}


def _plain(value: Any) -> Any:
    """A field as plain data; numbers and tuples of them are."""
    if isinstance(value, AbstractCovariance):
        return model_content(value)
    is_sum = isinstance(value, tuple) and all(isinstance(part, AbstractCovariance) for part in value)
    return [model_content(part) for part in value] if is_sum else value


def model_from_content(content: Mapping[str, Any]) -> AbstractCovariance:
    """The covariance function that :func:`model_content` wrote.

    Parameters
    ----------
    content : mapping
        Plain data.

    Returns
    -------
    AbstractCovariance
        A covariance function of the class that the content names.

    Raises
    ------
    ValueError
        There is no such class, or a value is out of its bounds.
    KeyError, TypeError
        A field is missing, or is no number.
    """
    kind = _NAMES.get(content[_KEY])
    if kind is None:
        raise ValueError(f"there is no covariance function {content[_KEY]!r}; there are {', '.join(_NAMES)}")
    read = {field: _WRITTEN.get(field.name, field.name) for field in fields(kind)}  # type: ignore[arg-type]
    # files from before have the names of the fields
    names = {field: name if name in content else field.name for field, name in read.items()}
    return kind(**{field.name: _part(content[name], field.type) for field, name in names.items()})


def _part(value: Any, kind: Any) -> Any:
    """A field: a part that is a covariance function or several, lengths by axis, names, a whole number or another one."""
    if isinstance(value, Mapping):
        return model_from_content(value)
    if kind == "tuple[str, ...]":
        return _names(value)
    if isinstance(value, list | tuple):
        return tuple(model_from_content(part) if isinstance(part, Mapping) else number_of(part) for part in value)
    return int(number_of(value)) if kind == "int" else number_of(value)


def _names(value: Any) -> tuple[str, ...]:
    """Names of covariates; ``TypeError`` for what is no list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{value!r:.80} is no list of names")
    return tuple(value)


def number_of(value: Any) -> float:
    """A number as FP64 has it; ``TypeError`` for what only looks like one, such as a text or a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.80} is no number")
    return float(value)
