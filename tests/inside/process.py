"""Internals of a process: threads, BLAS, memory left, forks that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.forked": ("LOCK_TYPES",),
    "ooc_chol.runtime.garbage_collector": ("collector_off",),
    "ooc_chol.scipy_modules": ("linalg_module", "sparse_tools"),
    "ooc_chol.team": ("ThreadTeam", "cores"),
    "ooc_chol.threads": ("users_code",),
}
MODULES = {
    "forked": "ooc_chol.forked",
    "forks": "ooc_chol.runtime.forks",
    "room": "ooc_chol.room",
    "threads": "ooc_chol.threads",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
