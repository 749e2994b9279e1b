"""Coordinate reference systems: a name, and what PROJ knows of their coordinates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ooc_chol.apps.geostat.data.extras import imported

#: Name in the CF conventions of longitude and latitude without a word of the ellipsoid.
LATITUDE_LONGITUDE = "latitude_longitude"


@dataclass(frozen=True)
class Crs:
    """A coordinate reference system."""

    name: str  #: Such as ``"EPSG:4326"``; well-known text where no authority has a number for it
    is_geographic: bool  #: Whether coordinates are longitude and latitude in degrees
    unit: str = ""  #: Unit of the coordinates; may be empty

    @property
    def label(self) -> str:
        """The name for messages: of well-known text the name in it."""
        named = re.match(r'\s*\w+\s*\[\s*"([^"]*)"', self.name)
        return named[1] if named else self.name

    def contradicts(self, other: Crs) -> bool:
        """Whether coordinates in one of the two must be transformed before they are used with those in the other."""
        is_untold = self.is_geographic and other.is_geographic and LATITUDE_LONGITUDE in (self.name, other.name)
        if self.name == other.name or is_untold:
            return False
        ours, theirs = _system(self.name), _system(other.name)
        if ours is None or theirs is None:
            return self.label != other.label
        # x is always first here, whatever a system says of its axes
        return not ours.equals(theirs, ignore_axis_order=True)


def described(definition: str, source: str) -> Crs:
    """What well-known text or the number of an authority says; any other name is kept as it is.

    Examples
    --------
    >>> described("EPSG:28992", "soil.nc")
    Crs(name='EPSG:28992', is_geographic=False, unit='metre')
    """
    system = _system(definition)
    if system is None and "[" not in definition:
        return Crs(definition, False)
    if system is None:
        # whether these are degrees nobody can tell
        raise ValueError(f"{source} has a reference system that PROJ does not understand: {definition}; mend it, or write CSV")
    number = system.to_json_dict().get("id")
    name = f"{number['authority']}:{number['code']}" if number else definition
    if system.is_geographic:
        return Crs(name, True, "degrees")
    return Crs(name, False, system.axis_info[0].unit_name if system.axis_info else "")


def is_east(unit: str) -> bool:
    """Whether a unit is one of longitude in the CF conventions: ``degrees_east`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreeeast", "degreee")


def is_north(unit: str) -> bool:
    """Whether a unit is one of latitude in the CF conventions: ``degrees_north`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreenorth", "degreen")


def _system(definition: str) -> Any:
    """PROJ's object, without a transformation to another datum that comes with it; None for what PROJ does not know."""
    pyproj = imported("pyproj", "reference systems")
    try:
        system = pyproj.CRS(definition)
    except pyproj.exceptions.CRSError:
        return None
    return system.source_crs if system.is_bound else system
