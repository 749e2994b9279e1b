"""``oc.load`` with a client: a factor in a Zarr group that workers read, whoever wrote it."""

from __future__ import annotations

import os
from typing import Any

from ooc_chol.cluster.blocks import BlockGrid
from ooc_chol.cluster.choosing import LEAST_BLOCK_ROWS
from ooc_chol.cluster.connection import connected, worker_addresses
from ooc_chol.cluster.placing import Placing
from ooc_chol.cluster.solving import ClusterSolver
from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.files.zarr_names import is_zarr


def load_on_cluster(path: str | os.PathLike[str], client: Any) -> CholeskyFactor:
    """Open the factor in a Zarr group, for solves on the workers of a client."""
    if isinstance(client, str):
        raise TypeError(
            f"client is the address {client!r}: give distributed.Client({client!r}), which you close after the factor"
        )
    if not is_zarr(path):
        raise ValueError(
            f"workers read L from a Zarr group, which {os.fspath(path)!r} does not name: leave client out, or save the factor as "
            "a group, L.save('L.zarr')"
        )
    if str(path).startswith("memory:"):
        raise ValueError(f"{path} is in the memory of one process: give a folder or a URL that all workers reach")
    # Only with a client: workers need Zarr anyway.
    from ooc_chol.dense.stores.zarr_store import ZarrStore

    with connected(client):
        workers = worker_addresses(client)
    store = ZarrStore.open(path)
    # The blocks of the cluster that wrote it. One machine writes larger ones, too few for several workers.
    height = max(1, min(store.header.height, -(-store.grid.nt // LEAST_BLOCK_ROWS)))
    blocks = BlockGrid(store.grid, height)
    placing = Placing.of(blocks, workers, {}, 0)
    owners = [workers[owner] for owner in placing.owners]
    solver = ClusterSolver(client, blocks, store.path, store.fmt, owners)
    return CholeskyFactor(store.grid, store, store.arithmetic_key, solver=solver, lower=None)
