"""``--cluster``: the Dask cluster on which a command factors, open as long as the command runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps

import ooc_chol as oc

#: Observations below which a factorization takes less time than a cluster takes to share it out.
QUICK_HERE = 20_000


def on_cluster(run: Callable[[argparse.Namespace], int | None]) -> Callable[[argparse.Namespace], int | None]:
    """The action of a command, with the client of the cluster that was named as ``options.client``."""

    @wraps(run)
    def run_there(options: argparse.Namespace) -> int | None:
        options.client = None
        if getattr(options, "cluster", None) is None:
            return run(options)
        with oc.open_cluster(options.cluster) as options.client:
            try:
                return run(options)
            finally:
                options.client = None

    return run_there


def remark(n: int) -> str | None:
    """Remark on few observations on a cluster; None for many."""
    if n >= QUICK_HERE:
        return None
    return f"one machine factors {n} observations in less time than a cluster takes to share the work out; leave --cluster out"
