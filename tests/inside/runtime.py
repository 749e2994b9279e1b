"""Internals of ``ooc_chol.runtime`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.memory.promises": ("HOST_PROMISES", "Promises"),
    "ooc_chol.runtime.block_scan": ("AbstractScanned", "BlockScan", "ScanStreams"),
    "ooc_chol.runtime.passes": ("BlockNames", "Pass", "Passes", "device_for_a_pass", "take_turns"),
}
MODULES = {
    "passes": "ooc_chol.runtime.passes",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
