"""Eigensolvers with a client: workers keep bases and make the products, and this process drives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def with_workers(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Arguments of a call with ``elsewhere``: the workers of its client, for which devices and budget are then."""
    if given["client"] is None:
        yield {**given, "elsewhere": None}
        return
    from ooc_chol.calls.options import checked
    from ooc_chol.cluster.products import products_on_cluster

    checked(memory_budget=given["memory_budget"])
    with products_on_cluster(given["client"], given["devices"], given["memory_budget"]) as workers:
        yield {**given, "elsewhere": workers, "devices": "host:0", "memory_budget": None}
