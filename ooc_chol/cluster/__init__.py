"""The same factorization on a cluster: coarse tasks of Dask, each a run of this package on the devices of its worker."""
