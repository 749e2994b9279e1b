"""``ooc_chol.load``: a factor from its file or group, for use in this process or on the workers of a cluster."""

from __future__ import annotations

import os
from typing import Any

from ooc_chol.dense.factor import CholeskyFactor
from ooc_chol.dense.factor import load as load_here


def load(path: str | os.PathLike[str], *, client: Any = None) -> CholeskyFactor:
    """Open a factor that :meth:`CholeskyFactor.save` or ``cholesky(..., store=path)`` wrote.

    Parameters
    ----------
    path : path or str
        The file, which stays open until the factor is closed; tiles are read when they are needed. Or a Zarr group: a local
        folder that ends in ``.zarr``, or a URL such as ``"s3://bucket/L.zarr"``.
    client : distributed.Client, optional
        A client of a Dask cluster on whose workers solves, products and sums run, as long as it is open. They read L from the
        Zarr group, by the same name.

    Returns
    -------
    CholeskyFactor
        The factor; its ``report`` and ``trace`` are None. Of a matrix that is given to its methods it reads the lower triangle,
        with an ``AsymmetryWarning`` where a sample of the other differs.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    TierError
        The file is no factor's, or it is damaged, truncated, incomplete or of a newer version.
    MissingPackageError
        It is a Zarr group, and Zarr, or what reaches its URL, is not installed; or Dask is not, for a client.
    ValueError
        With a client: it is a file, or a group in the memory of this process.
    TypeError
        The client is none, or the address of a scheduler.
    """
    if client is None:
        return load_here(path)
    from ooc_chol.cluster.loading import load_on_cluster

    return load_on_cluster(path, client)
