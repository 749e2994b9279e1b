"""Products with packed matrices made elsewhere than on devices of this process, and what reports say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ooc_chol.calls.page import Line
from ooc_chol.config import format_bytes
from ooc_chol.display.prints import brief_repr
from ooc_chol.sparse.plan import MultiplyPlan, device_text


@dataclass(frozen=True, repr=False)
class ClusterProducts:
    """Products that workers of a cluster made, each of its rows, and what vectors they kept.

    Parameters
    ----------
    workers : tuple of str
        Addresses of the workers that had rows in the end.
    rows : tuple of str
        The rows that each of them had, in words.
    arithmetic : str
        Model and library of their devices, on which bits depend.
    products : int
        Products with all rows.
    repeated : int
        How often one was begun again, as a worker had gone or had lost its rows.
    lost_workers : tuple of str
        Addresses of workers that went meanwhile.
    matrix_bytes : int
        Bytes of blocks that were sent to workers; 0 where they read a file.
    sent_bytes : int
        Bytes of vectors from the caller to workers, all of them together.
    returned_bytes : int
        Bytes of products, or of eigenvectors, to the caller.
    exchanged_bytes : int
        Bytes of vectors and of their sums from worker to worker; 0 where vectors are the caller's.
    link_bytes : mapping of str to int
        Bytes of blocks over the links of all workers' devices.
    worker_seconds : float
        Seconds of products, and of all else that workers did, of the slowest in each.
    network_seconds : float
        Seconds that the caller waited beside these: the network, the scheduler, and opening rows.
    exchanged_by : str
        Way of bytes from worker to worker: "memory of GPUs", "memory of the host", or "messages"; empty where there were none.
    """

    workers: tuple[str, ...]
    rows: tuple[str, ...]
    arithmetic: str
    products: int
    repeated: int
    lost_workers: tuple[str, ...]
    matrix_bytes: int
    sent_bytes: int
    returned_bytes: int
    exchanged_bytes: int
    link_bytes: Mapping[str, int]
    worker_seconds: float
    network_seconds: float
    exchanged_by: str = ""

    __repr__ = brief_repr

    def figures(self) -> dict[str, Any]:
        """Plain data for a report."""
        return asdict(self)

    def worker_lines(self) -> Iterator[Line]:
        """Rows by worker."""
        for worker, rows in zip(self.workers, self.rows, strict=True):
            yield "worker", f"{worker}: {rows}"

    def lines(self) -> Iterator[Line]:
        """Bytes over the network, and seconds."""
        if not self.products:
            yield "products", "none on the cluster: A is so small that this process multiplies"
            return
        sent = f"{format_bytes(self.matrix_bytes)} of A and {format_bytes(self.sent_bytes)} of vectors to workers"
        between = (
            f", {format_bytes(self.exchanged_bytes)} from worker to worker by {self.exchanged_by}" if self.exchanged_bytes else ""
        )
        yield "network", f"{sent}, {format_bytes(self.returned_bytes)} back{between}"
        again = f"; {self.repeated} begun again, {len(self.lost_workers)} workers lost" if self.repeated else ""
        seconds = f"{self.worker_seconds:.3g} s of the slowest worker, {self.network_seconds:.3g} s beside"
        yield "products", f"{self.products} on the cluster: {seconds}{again}"


def worker_lines(plan: MultiplyPlan) -> Iterator[Line]:
    """Rows by worker, and bytes over the network."""
    for share in plan.shares:
        yield "worker", device_text(share)
    brought, returned = format_bytes(plan.brought_bytes), format_bytes(plan.returned_bytes)
    yield "network", f"{matrix_text(plan)}{brought} of vectors to workers and {returned} back in each product"


def matrix_text(plan: MultiplyPlan) -> str:
    """Bytes of A that workers are sent, in words that others follow; nothing where they read a file."""
    return "" if plan.tier == "file" else f"{format_bytes(plan.blocks.nbytes)} of A once, "


#: What takes the place of arguments that are for one machine.
_INSTEAD = {
    "trace": "Dask's dashboard shows tasks as they run, and the report tells of seconds and bytes; leave it out",
    "plan": "workers plan their own rows; leave it out",
    "sigma": "A is factored on one machine; leave it out, or client",
    "OPinv": "what solves is on one machine; leave it out, or client",
    "M": "it is factored on one machine; leave it out, or client",
    "which='SM'": "A is factored on one machine; leave client out, or take which='SA'",
}


def refuse_on_cluster(**given: bool) -> None:
    """Raise ``ValueError`` for an argument that was given and that is not there on a cluster."""
    for name in (name for name, is_given in given.items() if is_given):
        raise ValueError(f"{name} is not there on a cluster: {_INSTEAD[name]}")
