"""Interfaces of devices, streams and tiers to a run: CUDA's model, kept by the host device too.

A stream runs its operations in order. An event marks a point in a stream; another stream may wait on it once it is *recorded*.
Nothing here blocks the thread that enqueues, except ``synchronize``. A :data:`Tile` is whatever array the device's kernels
take: a NumPy array on the host, a CuPy array on CUDA; always two-dimensional, row-major and contiguous. What kernels compute is
said elsewhere (:mod:`ooc_chol.kernels.interfaces`): a device knows bytes, streams and the room that its kernels need.
"""

from ooc_chol.interfaces.devices import (
    NARROW_BUFFERS,
    AbstractArena,
    AbstractCommonMemory,
    AbstractDevice,
    AbstractDeviceMemory,
    AnyDevice,
    ArraySpec,
)
from ooc_chol.interfaces.kernels import AbstractDeviceKernels, AbstractStorageKernels, KernelSetT, KernelSetT_co
from ooc_chol.interfaces.streams import AbstractEvent, AbstractStream, Tile, TileFunction, Turns
from ooc_chol.interfaces.tiers import (
    AbstractEvictionPolicy,
    AbstractLocking,
    AbstractRegistrar,
    AbstractTier,
    BlockIndex,
    BlockKey,
    DeviceBlock,
    LockState,
    Tiers,
)

__all__ = [
    "NARROW_BUFFERS",
    "AbstractArena",
    "AbstractCommonMemory",
    "AbstractDevice",
    "AbstractDeviceKernels",
    "AbstractDeviceMemory",
    "AbstractEvent",
    "AbstractEvictionPolicy",
    "AbstractLocking",
    "AbstractRegistrar",
    "AbstractStorageKernels",
    "AbstractStream",
    "AbstractTier",
    "AnyDevice",
    "ArraySpec",
    "BlockIndex",
    "BlockKey",
    "DeviceBlock",
    "KernelSetT",
    "KernelSetT_co",
    "LockState",
    "Tiers",
    "Tile",
    "TileFunction",
    "Turns",
]
