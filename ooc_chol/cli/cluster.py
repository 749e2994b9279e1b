"""``--cluster``: the Dask cluster whose workers make products, open as long as the command runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ooc_chol as oc
from ooc_chol.calls.options import add_words


def add_cluster(parser: argparse._ActionsContainer) -> None:
    """Add ``--cluster``."""
    add_words(parser, ["cluster"], more={"cluster": "its workers make products, on devices and within a budget of their own"})


@contextmanager
def with_client(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The argument ``client`` of a call, where a cluster was named."""
    if arguments.cluster is None:
        yield {}
        return
    with oc.open_cluster(arguments.cluster) as client:
        yield {"client": client}
