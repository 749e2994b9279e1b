"""Internals of ``ooc_chol.memory`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.memory.locking": ("PieceLocks", "bands", "completed"),
    "ooc_chol.memory.pages": ("HUGE_PAGE_BYTES", "allocate_aligned", "forget", "touch"),
    "ooc_chol.memory.release": ("RELEASER",),
    "ooc_chol.memory.shared": ("KEPT", "SharedAddress", "SharedMemory", "shared_arrays"),
    "ooc_chol.memory.sources": ("as_source",),
    "ooc_chol.memory.sources.array": ("ArraySource", "SliceSource", "has_whole_rows"),
    "ooc_chol.memory.sources.base": ("AbstractSource", "STRIP_BYTES"),
    "ooc_chol.memory.sources.function": ("FunctionSource",),
    "ooc_chol.memory.sources.symmetry": ("find_asymmetry",),
}
MODULES = {
    "base": "ooc_chol.memory.sources.base",
    "host_memory": "ooc_chol.memory.host_memory",
    "locking": "ooc_chol.memory.locking",
    "pages": "ooc_chol.memory.pages",
    "release": "ooc_chol.memory.release",
    "shared": "ooc_chol.memory.shared",
    "sources": "ooc_chol.memory.sources",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
