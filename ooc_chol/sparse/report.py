"""Report of products with a packed matrix: bytes over each link, planned and executed, and seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ooc_chol.calls.page import Line, link_lines
from ooc_chol.calls.report import AbstractPlannedReport, CallBytes, CallSeconds
from ooc_chol.config import format_bytes
from ooc_chol.sparse.elsewhere import ClusterProducts
from ooc_chol.sparse.key import arithmetic_facts, blocks_key
from ooc_chol.sparse.plan import MultiplyPlan, device_text


@dataclass(frozen=True, repr=False)
class MultiplyReport(AbstractPlannedReport):
    """Report of a call of :func:`ooc_chol.multiply`, or of all products of a multiplier until now.

    Parameters
    ----------
    plan : MultiplyPlan
        The plan.
    scans : int
        How often all blocks have passed.
    columns : int
        Columns that were multiplied, all products together.
    executed : mapping of str to int
        Bytes of blocks over each link, counted from the copies that were issued.
    exchanged_bytes : int
        Bytes that the devices copied from each other.
    brought_bytes, returned_bytes : int
        Bytes of X to the devices, and of Y back.
    scan_seconds : tuple of float
        Seconds of each scan, from its first to its last operation that computes.
    total_seconds : float
        Wall clock of the whole call; of a multiplier, of opening it and of all products.
    parts : mapping of str to float
        Seconds of its parts: ``"pack"``, ``"open"`` and ``"run"``.
    cluster : ClusterProducts or None
        Work of a cluster's workers, where there was one: rows by worker, bytes over the network, and seconds.
    """

    call: ClassVar[str] = "multiply"
    resumed: ClassVar[int] = 0

    plan: MultiplyPlan
    scans: int
    columns: int
    executed: Mapping[str, int]
    exchanged_bytes: int
    brought_bytes: int
    returned_bytes: int
    scan_seconds: tuple[float, ...]
    total_seconds: float
    parts: Mapping[str, float]
    cluster: ClusterProducts | None = None

    @property
    def bytes(self) -> CallBytes:
        """Bytes of blocks over each link: as planned for so many scans, and as they were."""
        planned = {f"{self.plan.tier}->{share.device}": share.copied_bytes(self.scans) for share in self.plan.shares}
        return CallBytes(planned, self.executed)

    @property
    def seconds(self) -> CallSeconds:
        """Seconds of the whole call, of its parts, and of all scans by the clocks of the devices: ``parts["scans"]``."""
        first, later = self.plan.seconds, self.plan.later_seconds
        products = self.scans / self.plan.scans if self.plan.scans else 0.0
        predicted = None if first is None or later is None or not products else first + (products - 1) * later
        return CallSeconds(self.total_seconds, {**self.parts, "scans": sum(self.scan_seconds)}, predicted)

    @cached_property
    def key(self) -> Mapping[str, Any]:
        """Arithmetic key: the matrix without its contents, columns, precision, library and versions."""
        plan = self.plan
        found = {"A": blocks_key(plan.blocks, plan.diagonals), "columns": plan.columns, "precision": plan.precision.value}
        if self.cluster is not None:
            return found | arithmetic_facts(("host:0",)) | {"devices": self.cluster.arithmetic}
        return found | arithmetic_facts(plan.devices or ("host:0",))

    @property
    def entries_per_second(self) -> float:
        """Entries times columns of all products, per second of scans; 0 before the first."""
        seconds = sum(self.scan_seconds)
        return self.plan.blocks.n_entries * self.columns / seconds if seconds else 0.0

    def figures(self) -> Mapping[str, object]:
        """Scans, columns, bytes of vectors, and seconds of each scan."""
        return {
            "scans": self.scans,
            "columns": self.columns,
            "bytes_exchanged": self.exchanged_bytes,
            "bytes_brought": self.brought_bytes,
            "bytes_returned": self.returned_bytes,
            "scan_seconds": list(self.scan_seconds),
            "entries_per_second": self.entries_per_second,
            "cluster": None if self.cluster is None else self.cluster.figures(),
        }

    def facts(self) -> Mapping[str, object]:
        """Scans, columns, seconds and bytes."""
        facts = {"scans": self.scans, "columns": self.columns, "seconds": self.total_seconds}
        return facts | {"moved": format_bytes(sum(self.executed.values()))}

    def lines(self) -> Iterator[Line]:
        """The matrix, each device, what moved, and seconds."""
        plan = self.plan
        rows, columns = plan.blocks.shape
        scans = f"{self.scans} scan{'s' * (self.scans != 1)}, {self.columns} column{'s' * (self.columns != 1)} in all"
        yield "", f"Products of a {rows} x {columns} matrix of {plan.blocks.n_entries} entries in {plan.precision.value}: {scans}"
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in plan.kinds.items()) or "none"
        yield "blocks", f"{kinds}; {format_bytes(plan.blocks.nbytes)}"
        for share in plan.shares:
            yield "device", f"{device_text(share)}; peak {format_bytes(share.peak_bytes)} of {format_bytes(plan.budget_bytes)}"
        moved = self.bytes
        yield from link_lines(moved.executed, moved.planned, sum(self.scan_seconds))
        vectors = f"{format_bytes(self.brought_bytes)} in, {format_bytes(self.returned_bytes)} out"
        yield "vectors", f"{vectors}, {format_bytes(self.exchanged_bytes)} among the devices"
        if self.cluster is not None:
            yield from self.cluster.lines()
        yield "seconds", self._seconds_text()

    def _seconds_text(self) -> str:
        if not self.scan_seconds:
            return "no product was made"
        least, most = min(self.scan_seconds), max(self.scan_seconds)
        each = f"{least:.3g} to {most:.3g} a scan" if len(self.scan_seconds) > 1 else f"{most:.3g} s the scan"
        rates = f"{self.entries_per_second:.3g} entries times columns per second"
        return f"{self.total_seconds:.3g} in all, {each}; {rates}"
