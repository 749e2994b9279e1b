"""Coordinate reference systems: a name, and what well-known text says of their coordinates."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Words of well-known text, versions 1 and 2, for systems whose coordinates are angles, and for those where they are not.
_ANGLES = re.compile(r"\b(GEOGCS|GEOGCRS|GEOGRAPHICCRS|GEODCRS|GEODETICCRS)\b", flags=re.IGNORECASE)
_LENGTHS = re.compile(r"\b(PROJCS|PROJCRS|PROJECTEDCRS|GEOCCS|ENGCRS|LOCAL_CS)\b|\bCS\s*\[\s*Cartesian\b", flags=re.IGNORECASE)
_UNIT = re.compile(r'\b(?:LENGTH)?UNIT\s*\[\s*"([^"]+)"', flags=re.IGNORECASE)
#: The identifier that closes a definition; those of its parts are further inside.
_IDENTIFIER = re.compile(r'\b(?:ID|AUTHORITY)\s*\[\s*"([^"]+)"\s*,\s*"?([^",\]]+)"?[^\[\]]*\]\s*\]\s*$', flags=re.IGNORECASE)
_VERTICAL = re.compile(r"\b(?:VERT_CS|VERTCRS|VERTICALCRS)\b.*", flags=re.IGNORECASE | re.DOTALL)

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
        names = {authority_code(system.name) or system.name for system in (self, other)}
        is_untold = self.is_geographic and other.is_geographic and LATITUDE_LONGITUDE in names
        return len(names) == 2 and not is_untold


def is_geographic(definition: str) -> bool:
    """Whether well-known text defines longitude and latitude.

    Examples
    --------
    >>> is_geographic('GEOGCS["WGS 84",UNIT["degree",0.0174532925199433]]')
    True
    """
    return bool(_ANGLES.search(definition)) and not _LENGTHS.search(definition)


def length_unit(definition: str) -> str:
    """Unit of the coordinates of a projected system."""
    units = _UNIT.findall(_VERTICAL.sub("", definition))
    return units[-1] if units else ""


def authority_code(definition: str) -> str:
    """The number that an authority has given a system.

    Examples
    --------
    >>> authority_code('GEOGCS["WGS 84",UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]')
    'EPSG:4326'
    """
    match = _IDENTIFIER.search(definition)
    return f"{match[1].upper()}:{match[2].strip()}" if match else ""
