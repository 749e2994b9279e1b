"""A call on a cluster: its arguments, checked, and A as tasks get it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ooc_chol.calls.progress import Progress
from ooc_chol.cluster.given import check_kind
from ooc_chol.cluster.matrices import AbstractClusterMatrix, cluster_matrix
from ooc_chol.cluster.plan import ClusterPlan
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.stores.places import Place, is_file
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import AsymmetryWarning
from ooc_chol.memory.sources.symmetry import find_asymmetry

#: How often Dask runs a task again that could not read or write: storage that others share fails now and then.
RETRIES = 2


@dataclass(frozen=True)
class ClusterCall:
    """The arguments of a call that runs on a cluster; what cannot be had there is refused.

    Raises ``ValueError`` or ``TypeError``: something was given that is not there on a cluster.
    """

    a: Any  #: A as it was given
    client: Any  #: A client, or the address of a scheduler
    options: FactorOptions  #: Those of the call; devices and memory_budget are each worker's
    lower: bool | None = None  #: As for :func:`ooc_chol.cholesky`; ``store`` is a Zarr group
    store: Place = None
    checkpoint: bool = False
    replaces: bool = False
    progress: Progress = None
    refused: Mapping[str, bool] = field(default_factory=dict)  #: Other arguments, and whether each was given
    plan: ClusterPlan | None = None

    def __post_init__(self) -> None:
        options = self.options
        if self.plan is not None:
            check_kind(self.plan)
        given = {
            "policy": options.policy != "planned",
            "host_budget": options.host_budget is not None,
            **self.refused,
        }
        for name in (name for name, is_given in given.items() if is_given):
            raise ValueError(f"{name} is not there on a cluster: {_INSTEAD[name]}")
        if options.precision_threshold is not None and self.store is not None:
            raise ValueError("in mixed precision L stays in the workers' memory: leave store out, and save L (L.save('L.zarr'))")
        if not (self.store is None or is_file(self.store)):
            raise ValueError("on a cluster L stays in the workers' memory (store=None), or goes to a Zarr group (store='L.zarr')")


#: What takes the place of arguments that are for one machine.
_INSTEAD = {
    "policy": "each task is planned on its worker; leave it out",
    "host_budget": "memory_budget is that of each worker, and Dask's memory limit bounds the rest; leave it out",
    "overwrite": "L is on the workers, or in a Zarr group; leave it out",
    "trace": "Dask's dashboard shows tasks as they run, and distributed.performance_report keeps them; leave it out",
}


def opened_matrix(call: ClusterCall) -> AbstractClusterMatrix:
    """A as tasks get it, and a warning where a sample of it is not symmetric."""
    matrix = cluster_matrix(call.a, call.lower)
    if matrix.n < 1:
        raise ValueError(f"A has order {matrix.n}: there is nothing to share out among workers; leave client out")
    if call.lower is None and matrix.sampled is not None and (differs := find_asymmetry(matrix.sampled)) is not None:
        warnings.warn(differs.warning(), AsymmetryWarning, stacklevel=frames_of_the_package() + 1)
    return matrix
