"""Coordinate reference systems: a name, and what PROJ knows of their coordinates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extras import imported

#: Name in the CF conventions of longitude and latitude without a word of the ellipsoid.
LATITUDE_LONGITUDE = "latitude_longitude"


@dataclass(frozen=True)
class Crs:
    """A coordinate reference system."""

    name: str  #: Such as ``"EPSG:4326"``; well-known text where no authority has a number for it
    is_geographic: bool  #: Whether coordinates are longitude and latitude in degrees
    unit: str = ""  #: Unit of the coordinates; may be empty

    __repr__ = tb.brief_repr

    @property
    def label(self) -> str:
        """The name for messages: of well-known text the name in it."""
        named = re.match(r'\s*\w+\s*\[\s*"([^"]*)"', self.name)
        return named[1] if named else self.name

    def contradicts(self, other: Crs) -> bool:
        """Tell whether coordinates in one of the two must be transformed before they are used with those in the other."""
        is_untold = self.is_geographic and other.is_geographic and LATITUDE_LONGITUDE in (self.name, other.name)
        if self.name == other.name or is_untold:
            return False
        ours, theirs = _system(self.name), _system(other.name)
        if ours is None or theirs is None:
            # models from before parameters of a projection were told have its name alone
            shorter, longer = sorted((self.label, other.label), key=len)
            return longer != shorter and not longer.startswith(f"{shorter} (")
        # x is always first here, whatever a system says of its axes
        return not ours.equals(theirs, ignore_axis_order=True)


def described(definition: str, source: str) -> Crs:
    """Parse well-known text, PROJ's JSON or the number of an authority; any other name is kept as it is."""
    system, is_json = _system(definition), definition.startswith("{")
    if system is None and not is_json and "[" not in definition:
        return Crs(definition, False)
    if system is None:
        # whether these are degrees nobody can tell
        raise ValueError(
            f"{source} has a reference system that PROJ does not understand: {definition:.300}; mend it, or write CSV"
        )
    number = system.to_json_dict().get("id")
    name = f"{number['authority']}:{number['code']}" if number else system.to_wkt() if is_json else definition
    if system.is_geographic:
        return Crs(name, True, "degrees")
    return Crs(name, False, system.axis_info[0].unit_name if system.axis_info else "")


def mapped(attributes: Mapping[str, Any]) -> Crs:
    """Read a grid mapping of the CF conventions without well-known text: name and parameters of a projection.

    The unit of the coordinates is that of their own variables.

    >>> mapped(
    ...     {
    ...         "grid_mapping_name": "mercator",
    ...         "longitude_of_projection_origin": 30.0,
    ...         "standard_parallel": 0.0,
    ...     }
    ... ).label
    'mercator (longitude_of_projection_origin 30)'
    """
    kind = str(attributes.get("grid_mapping_name", ""))
    plain = {name: _plain(value) for name, value in sorted(attributes.items())}
    numbers = {name: np.ravel(value) for name, value in plain.items() if _is_parameter(name, value)}
    if kind in ("", LATITUDE_LONGITUDE) or not numbers:
        return Crs(kind, kind == LATITUDE_LONGITUDE)
    # a parameter of zero may as well be left out
    told = [" ".join([name, *(f"{number:.7g}" for number in value)]) for name, value in numbers.items() if np.any(value)]
    name = f"{kind} ({', '.join(told)})" if told else kind
    # what is no projection, such as degrees about another pole, is known by the same words
    return Crs(_projection({"projected_crs_name": name, **plain}) or name, False)


def is_east(unit: str) -> bool:
    """Tell whether a unit is one of longitude in the CF conventions: ``degrees_east`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreeeast", "degreee")


def is_north(unit: str) -> bool:
    """Tell whether a unit is one of latitude in the CF conventions: ``degrees_north`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreenorth", "degreen")


def _plain(value: Any) -> Any:
    """An attribute without NumPy; 0.9996 in single precision is 0.9996."""
    array = np.asarray(value)
    return (array.astype(str).astype(np.float64) if array.dtype == np.float32 else array).tolist()


def _is_parameter(name: str, value: object) -> bool:
    """Tell whether an attribute is a number or several, and not one of storage such as ``_FillValue``."""
    return not name.startswith("_") and np.asarray(value).dtype.kind in "iuf"


def _projection(attributes: Mapping[str, Any]) -> str | None:
    """Well-known text of a projection of the CF conventions; None for what PROJ does not know, or not as a projection."""
    pyproj = imported("pyproj", "reference systems are read")
    told = {name: value for name, value in attributes.items() if name not in ("crs_wkt", "spatial_ref")}
    try:
        system = pyproj.CRS.from_cf(told)
    except (pyproj.exceptions.CRSError, LookupError, TypeError, ValueError):
        # parameters are missing, or are no numbers
        return None
    system = system.source_crs if system.is_bound else system
    return str(system.to_wkt()) if system.is_projected else None


def _system(definition: str) -> Any:
    """PROJ's object, without a transformation to another datum that comes with it; None for what PROJ does not know."""
    imported("pyproj", "reference systems are read")
    return _parsed(definition)


@lru_cache(maxsize=64)
def _parsed(definition: str) -> Any:
    """The same: PROJ takes some 15 ms for it."""
    with tb.guarded_imports(blas=False):
        import pyproj

    try:
        system = pyproj.CRS(definition)
    except pyproj.exceptions.CRSError:
        return None
    return system.source_crs if system.is_bound else system
