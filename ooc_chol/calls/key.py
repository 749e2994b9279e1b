"""Keys of results: all that their bits depend on, as plain data that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(saved: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[str, str]]:
    """Fields in which two keys differ, by name: as saved, and now; those of a field that has fields each for itself.

    >>> differences({"A": {"n": 3}, "k": 1}, {"A": {"n": 4}, "k": 1})
    {'A: n': ('3', '4')}
    """
    found: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys([*saved, *now]):
        one, other = saved.get(name), now.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            found |= differences(one, other, f"{prefix}{name}: ")
        elif one != other:
            found[prefix + name] = (str(one), str(other))
    return found
