"""Units of longitude and latitude by the CF conventions."""

from __future__ import annotations


def is_east(unit: str) -> bool:
    """Whether a unit is one of longitude in the conventions: ``degrees_east`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreeeast", "degreee")


def is_north(unit: str) -> bool:
    """Whether a unit is one of latitude in the conventions: ``degrees_north`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreenorth", "degreen")
