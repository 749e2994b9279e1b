"""``--cluster``: the Dask cluster whose workers make products, open as long as the command runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ooc_chol as oc


def add_cluster(parser: argparse._ActionsContainer) -> None:
    """Add ``--cluster``."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS|local[:N]|slurm[:N]",
        help="make products on the workers of a Dask cluster, whose are devices and budget then: that of a scheduler such as "
        "tcp://head:8786, N processes of this machine (one for each GPU, or core), or N jobs of Slurm",
    )


@contextmanager
def with_client(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The argument ``client`` of a call, where a cluster was named."""
    if arguments.cluster is None:
        yield {}
        return
    with oc.open_cluster(arguments.cluster) as client:
        yield {"client": client}
