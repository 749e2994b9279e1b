"""Parts of arithmetic keys that products with packed matrices and eigensolvers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from ooc_chol.files.positional_io import package_version
from ooc_chol.kernels.kinds import KernelFacts
from ooc_chol.kernels.registry import kernel_facts, kind_of
from ooc_chol.sparse.plan import Diagonals
from ooc_chol.tasks.row_blocks import RowBlocks


def arithmetic_facts(devices: Sequence[str]) -> dict[str, str]:
    """Devices, their library, and versions."""
    return {
        "devices": device_facts(devices, kernel_facts(devices[:1])),
        "versions": f"ooc_chol {package_version()}, numpy {np.__version__}, scipy {scipy.__version__}",
    }


def products_key(arithmetic: str) -> dict[str, str]:
    """Devices elsewhere that multiply; nothing where they are as the host here, and bits are those of this machine."""
    return {} if arithmetic == arithmetic_facts(("host:0",))["devices"] else {"products": arithmetic}


def device_facts(devices: Sequence[str], facts: KernelFacts) -> str:
    """Kind, model and library of devices."""
    return f"{kind_of(devices[0]).name}: {facts.model}, {facts.library}"


def blocks_key(blocks: RowBlocks, diagonals: Diagonals) -> dict[str, Any]:
    """A packed matrix and the diagonals around it, without their contents."""
    vectors = [name for name, is_vector in diagonals._asdict().items() if is_vector]
    found: dict[str, Any] = {"shape": list(blocks.shape), "entries": blocks.n_entries, "chunk_rows": blocks.chunk_rows}
    return found | ({"vectors": vectors} if vectors else {})
