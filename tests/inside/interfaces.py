"""Internals of ``ooc_chol.interfaces`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.interfaces.devices": (
        "AbstractArena",
        "AbstractCommonMemory",
        "AbstractDevice",
        "AbstractDeviceMemory",
        "AnyDevice",
        "ArraySpec",
        "NARROW_BUFFERS",
    ),
    "ooc_chol.interfaces.kernels": ("AbstractDeviceKernels",),
    "ooc_chol.interfaces.streams": ("AbstractEvent", "AbstractStream", "Tile", "TileFunction"),
    "ooc_chol.interfaces.tiers": (
        "DeviceBlock",
        "AbstractEvictionPolicy",
        "AbstractRegistrar",
        "AbstractTier",
        "BlockIndex",
        "BlockKey",
        "LockState",
    ),
}

__getattr__ = names_of(__name__, NAMES)
