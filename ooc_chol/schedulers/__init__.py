"""Schedulers: who does what in which order. To add one, subclass :class:`AbstractScheduler` and add a line to the register."""

from __future__ import annotations

from typing import Any

from ooc_chol.schedulers.left_looking import LeftLookingScheduler
from ooc_chol.schedulers.residues import ResidueScheduler
from ooc_chol.schedulers.schedule import AbstractScheduler, Schedule
from ooc_chol.schedulers.triangular import TriangularScheduler

#: Every scheduler by name: memory layouts of :mod:`ooc_chol.dense.programs.layouts` name those of their engines.
SCHEDULERS: dict[str, type[AbstractScheduler[Any]]] = {
    LeftLookingScheduler.name: LeftLookingScheduler,
    ResidueScheduler.name: ResidueScheduler,
    TriangularScheduler.name: TriangularScheduler,
}

__all__ = ["SCHEDULERS", "AbstractScheduler", "LeftLookingScheduler", "ResidueScheduler", "Schedule", "TriangularScheduler"]
