"""Internals of files, their locks and checksums that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.files.access": ("BOUNCE_BYTES", "DirectAccess", "DroppingAccess", "opened_access"),
    "ooc_chol.files.checksums": ("PIECE_BYTES", "hash_bytes"),
    "ooc_chol.files.lock_holder": ("lock_holder",),
    "ooc_chol.files.object_folders": ("FsspecFolder", "LOCK", "LocalFolder", "ObstoreFolder"),
    "ooc_chol.files.positional_io": ("package_version", "preallocate"),
    "ooc_chol.memory.block_files": ("BlockFile", "BlockFileWriter", "_FIRST", "first_page"),
    "ooc_chol.process.interrupts": ("HeldInterrupts",),
}
MODULES = {
    "access": "ooc_chol.files.access",
    "files": "ooc_chol.files.positional_io",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
