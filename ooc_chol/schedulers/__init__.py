"""Schedulers: the order of tasks. To add one, subclass :class:`AbstractScheduler` and add a line to the register."""

from __future__ import annotations

from ooc_chol.schedulers.left_looking import LeftLookingScheduler
from ooc_chol.schedulers.schedule import AbstractScheduler, Schedule

#: Every scheduler by name.
SCHEDULERS: dict[str, type[AbstractScheduler]] = {LeftLookingScheduler.name: LeftLookingScheduler}

__all__ = ["SCHEDULERS", "AbstractScheduler", "LeftLookingScheduler", "Schedule"]
