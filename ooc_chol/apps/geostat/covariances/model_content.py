"""Covariance functions as plain data, for result files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ooc_chol.apps.geostat.covariances.bivariate import BivariateMatern
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges, GeometricAnisotropy, GreatCircle
from ooc_chol.apps.geostat.covariances.matern import Matern
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance
from ooc_chol.apps.geostat.covariances.nested import Nested
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
}

_KEY = "covariance"


def model_content(model: AbstractCovariance) -> dict[str, Any]:
    """A covariance function as plain data for JSON.

    Parameters
    ----------
    model : AbstractCovariance
        One of the classes of this package.

    Returns
    -------
    dict
        The name of the class as ``"covariance"``, and its fields; parts that are covariance functions themselves in the same
        way. Of a Matérn model the effective range too.

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
        content[field.name] = _plain(getattr(model, field.name))
    return content | ({"effective_range": model.effective_range} if isinstance(model, Matern) else {})


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
    return kind(**{field.name: _part(content[field.name], field.type) for field in fields(kind)})  # type: ignore[arg-type]


def _part(value: Any, kind: Any) -> Any:
    """A field: a part that is a covariance function or several, lengths by axis, a whole number or another one."""
    if isinstance(value, Mapping):
        return model_from_content(value)
    if isinstance(value, list | tuple):
        return tuple(model_from_content(part) if isinstance(part, Mapping) else _number(part) for part in value)
    return int(_number(value)) if kind == "int" else _number(value)


def _number(value: Any) -> float:
    """A number as FP64 has it; ``TypeError`` for what only looks like one, such as a text or a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.80} is no number")
    return float(value)
