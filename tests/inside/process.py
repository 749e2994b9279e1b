"""Internals of a process: threads, BLAS, memory left, forks that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.process.fork_safety": ("LOCK_TYPES",),
    "ooc_chol.process.garbage_collector": ("collector_off",),
    "ooc_chol.process.public_names": ("WITH_LINALG",),
    "ooc_chol.process.scipy_modules": ("linalg_module", "sparse_tools"),
    "ooc_chol.process.team": ("ThreadTeam", "cores"),
    "ooc_chol.process.threads": ("UsersCode",),
}
MODULES = {
    "forked": "ooc_chol.process.fork_safety",
    "forks": "ooc_chol.process.forks",
    "room": "ooc_chol.process.address_space",
    "team": "ooc_chol.process.team",
    "threads": "ooc_chol.process.threads",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
