"""Options and results of the lowest eigenpairs of a Laplacian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb


@final
@dataclass(frozen=True)
class SolverOptions:
    """How eigenvectors are computed: passed on to ``oc.eigsh``.

    ``preconditioner`` is "auto" (smoothed aggregation by PyAMG where it is installed and its operator complexity is at most 3,
    else the diagonal), "amg" or "diagonal". ``tol`` is relative to the norm of the matrix. ``seed`` starts vectors.
    ``sharp`` says whether residuals shall be small beside a very small lowest eigenvalue, too, and not only below ``tol``, and
    whether a check looks for eigenvalues that were missed, which takes as long as finding them: of segments, which are cut again
    and again, neither is worth it. Graphs of fewer than ``gpu_entries`` entries are solved on the host, also where GPUs are
    named; without smoothed aggregation those of a quarter.
    """

    tol: float = 1e-7
    preconditioner: str = "auto"
    precision: str | None = None
    devices: str | Sequence[str] | None = None
    memory_budget: int | str | None = None
    max_passes: int | None = None
    seed: int = 0
    trace: bool = False
    progress: Any = None
    sharp: bool = True
    gpu_entries: int = 0

    @cached_property
    def are_gpus(self) -> bool:
        """True if the devices that are asked for are GPUs."""
        return any(name.startswith("cuda") for name in tb.resolve_devices(self.devices, must_exist=False))


class Lowest(NamedTuple):
    """The lowest nontrivial eigenpairs of a connected graph, ascending."""

    eigenvalues: NDArray[np.float64]  #: (k,)
    vectors: NDArray[np.float64]  #: (n, k), orthonormal; of normalized problems in the D-norm: ``v.T D v = 1``
    residuals: NDArray[np.float64]  #: (k,), ``||L v - w v||`` relative to the norm of L
    method: str  #: "LOBPCG with smoothed aggregation", "LOBPCG with the diagonal", "block Lanczos", "LAPACK"
    reason: str  #: A clause: why this method; what would be gained by installing PyAMG where it is missing
    passes: int  #: Products of the matrix with a block
    seconds: float
    trace: Any = None  #: ``oc.Trace`` where one was asked for
    is_small: bool = False  #: Whether the host solved it, although GPUs were asked for
