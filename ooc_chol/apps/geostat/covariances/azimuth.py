"""Angles as people read and type them: degrees of azimuth, clockwise from north, in the place of radians from the first axis."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeVar

_ValueT = TypeVar("_ValueT", float, float | None)

#: Names of angles, those of parts of a sum with a number, and what people read instead.
_ANGLE = re.compile(r"(?P<before>(?:\w+_)?)angle(?P<after>(?:_\d+)?)")
_AZIMUTH = re.compile(r"(?P<before>(?:\w+_)?)azimuth(?P<after>(?:_\d+)?)")


def azimuth_of(angle: float) -> float:
    """Degrees clockwise from the second axis, from 0 up to 180, of an angle in radians counter-clockwise from the first."""
    # 180 of a tiny negative number, by rounding, is 0
    return ((90.0 - math.degrees(angle)) % 180.0) % 180.0


def angle_of(azimuth: float) -> float:
    """Radians counter-clockwise from the first axis of degrees clockwise from the second."""
    return math.radians(90.0 - azimuth)


def is_angle(name: str) -> bool:
    """Tell whether a parameter is an angle in radians."""
    return _ANGLE.fullmatch(name) is not None


def read_name(name: str) -> str:
    """The name that people read: ``azimuth`` for ``angle``."""
    found = _ANGLE.fullmatch(name)
    return f"{found['before']}azimuth{found['after']}" if found else name


def read_values(values: Mapping[str, float]) -> dict[str, float]:
    """Names and values as people read them: an angle in degrees of azimuth."""
    return {read_name(name): azimuth_of(value) if is_angle(name) else value for name, value in values.items()}


def typed_values(values: Mapping[str, _ValueT]) -> dict[str, _ValueT]:
    """Parameters from what was typed, a value that is None staying so; ``ValueError`` for an angle, whose unit nobody sees."""
    typed: dict[str, _ValueT] = {}
    for name, value in values.items():
        if is_angle(name):
            raise ValueError(f"{name} is given as an azimuth in degrees clockwise from north: {read_name(name)}=27")
        found = _AZIMUTH.fullmatch(name)
        if found is None:
            typed[name] = value
        else:
            typed[f"{found['before']}angle{found['after']}"] = value if value is None else angle_of(value)
    return typed
