"""Internals of ``ooc_chol.schedulers`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.schedulers": ("SCHEDULERS",),
    "ooc_chol.schedulers.finishing": ("FinishingTasks",),
    "ooc_chol.schedulers.left_looking": ("LeftLookingScheduler",),
    "ooc_chol.schedulers.ownership": ("balanced_rows", "imbalance", "window_rows"),
    "ooc_chol.schedulers.residues": ("Job", "ResidueScheduler"),
    "ooc_chol.schedulers.schedule": ("AbstractScheduler", "NEVER", "Schedule"),
    "ooc_chol.schedulers.triangular": ("TriangularScheduler",),
}

__getattr__ = names_of(__name__, NAMES)
