"""Front doors of this system."""

from __future__ import annotations

from tests.conformance import Door

DOORS: list[Door] = []
