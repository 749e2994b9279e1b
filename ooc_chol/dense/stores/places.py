"""Places of L, in the words of ``store=``."""

from __future__ import annotations

import os
from typing import TypeAlias, TypeGuard

from ooc_chol.memory.host_memory import HostMemory

#: Where L goes: a file, memory that many factors take in turn, ``"device"`` for the GPUs that make it, ``"host"`` for memory of
#: the host, or None, which leaves open whether it stays on the GPUs.
Place: TypeAlias = str | os.PathLike[str] | HostMemory | None
#: The words for memory of GPUs and of the host; files of these names are ``"./device"`` and ``"./host"``.
ON_DEVICE, ON_HOST = "device", "host"


def is_file(place: Place) -> TypeGuard[str | os.PathLike[str]]:
    """Tell whether L goes to a file, or to a Zarr group, not to memory."""
    return not (place is None or isinstance(place, HostMemory) or place in (ON_DEVICE, ON_HOST))
