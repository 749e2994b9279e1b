"""Arrays of other libraries as right-hand sides: where they lie, and giving results in their own kind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ooc_chol.hardware.registry import CUDA


def device_of(b: Any) -> str | None:
    """Name of the GPU in whose memory an array lies; None for arrays of the host, and for anything else."""
    ask = getattr(b, "__dlpack_device__", None)
    if ask is None or isinstance(b, np.ndarray):
        return None
    memory, number = ask()
    return f"{CUDA.name}:{number}" if memory in CUDA.dlpack_types else None


def like(x: Any, b: Any) -> Any:
    """``x``, of NumPy or CuPy, as an array of the library that ``b`` is of, in the same memory: of torch or JAX, else ``x``."""
    library = type(b).__module__.partition(".")[0]
    if library == "torch":
        return sys.modules["torch"].from_dlpack(x)
    if library in ("jax", "jaxlib"):
        return sys.modules["jax"].numpy.from_dlpack(x)
    return x
