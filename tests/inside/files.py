"""Internals of files, their locks and checksums that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.interrupts": ("HeldInterrupts",),
    "ooc_chol.memory.access": ("BOUNCE_BYTES", "DirectAccess", "DroppingAccess", "opened_access"),
    "ooc_chol.memory.block_files": ("BlockFile", "BlockFileWriter", "_FIRST", "first_page"),
    "ooc_chol.memory.checksums": ("PIECE_BYTES", "hash_bytes"),
    "ooc_chol.memory.files": ("package_version", "preallocate"),
    "ooc_chol.memory.lock_holder": ("lock_holder",),
    "ooc_chol.memory.object_folders": ("FsspecFolder", "LOCK", "LocalFolder", "ObstoreFolder"),
}
MODULES = {
    "access": "ooc_chol.memory.access",
    "files": "ooc_chol.memory.files",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
