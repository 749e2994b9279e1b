"""Counts of the workers' traffic."""

from __future__ import annotations

from typing import Any


def sent_bytes(client: Any) -> int:
    """Bytes that the workers which are there now have sent to other workers since they started."""
    return sum(client.run(_sent_here, on_error="ignore").values())


def _sent_here(dask_worker: Any) -> int:
    """The same of one worker."""
    return int(dask_worker.transfer_outgoing_bytes_total)
