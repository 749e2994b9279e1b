"""Report of products with a packed matrix: bytes over each link, planned and executed, and seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.sparse.plan import MultiplyPlan, device_text


@dataclass(frozen=True)
class MultiplyReport:
    """Report of a multiplier until now.

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
    """

    plan: MultiplyPlan
    scans: int
    columns: int
    executed: Mapping[str, int]
    exchanged_bytes: int
    brought_bytes: int
    returned_bytes: int
    scan_seconds: tuple[float, ...]

    @property
    def planned(self) -> dict[str, int]:
        """Bytes of blocks over each link as planned, for as many scans."""
        return {f"{self.plan.tier}->{share.device}": share.copied_bytes(self.scans) for share in self.plan.shares}

    @property
    def executed_bytes(self) -> int:
        """Bytes of blocks over all links."""
        return sum(self.executed.values())

    @property
    def planned_bytes(self) -> int:
        """Bytes of blocks over all links as planned."""
        return sum(self.planned.values())

    @property
    def seconds(self) -> float:
        """Seconds of all scans, without X on its way in and Y out."""
        return sum(self.scan_seconds)

    @property
    def entries_per_second(self) -> float:
        """Entries times columns of all products, per second; 0 before the first."""
        return self.plan.blocks.n_entries * self.columns / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes of blocks per second over all links together; 0 before the first product."""
        return self.executed_bytes / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
        return {
            "plan": self.plan.to_dict(),
            "scans": self.scans,
            "columns": self.columns,
            "bytes_planned": self.planned,
            "bytes_executed": dict(self.executed),
            "bytes_exchanged": self.exchanged_bytes,
            "bytes_brought": self.brought_bytes,
            "bytes_returned": self.returned_bytes,
            "scan_seconds": list(self.scan_seconds),
            "seconds": self.seconds,
            "entries_per_second": self.entries_per_second,
        }

    def __repr__(self) -> str:
        facts = {"scans": self.scans, "columns": self.columns, "seconds": self.seconds}
        return one_line(self, facts | {"moved": format_bytes(self.executed_bytes)})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the printed page."""
        plan = self.plan
        rows, columns = plan.blocks.shape
        scans = f"{self.scans} scan{'s' * (self.scans != 1)}, {self.columns} column{'s' * (self.columns != 1)} in all"
        yield "", f"Products of a {rows} x {columns} matrix of {plan.blocks.n_entries} entries in {plan.precision.value}: {scans}"
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in plan.kinds.items()) or "none"
        yield "blocks", f"{kinds}; {format_bytes(plan.blocks.nbytes)}"
        for share in plan.shares:
            yield "device", f"{device_text(share)}; peak {format_bytes(share.peak_bytes)} of {format_bytes(plan.budget_bytes)}"
        for link, nbytes in self.executed.items():
            yield "moved", f"{link} {format_bytes(nbytes)} of {format_bytes(self.planned[link])} planned"
        vectors = f"{format_bytes(self.brought_bytes)} in, {format_bytes(self.returned_bytes)} out"
        yield "vectors", f"{vectors}, {format_bytes(self.exchanged_bytes)} among the devices"
        yield "seconds", self._seconds_text()

    def _seconds_text(self) -> str:
        if not self.scan_seconds:
            return "no product was made"
        least, most = min(self.scan_seconds), max(self.scan_seconds)
        each = f"{least:.3g} to {most:.3g} a scan" if len(self.scan_seconds) > 1 else f"{most:.3g} s the scan"
        rates = f"{self.entries_per_second:.3g} entries times columns per second"
        moved = f", {format_bytes(self.bytes_per_second)}/s over the links" if self.executed_bytes else ""
        return f"{self.seconds:.3g} in all, {each}; {rates}{moved}"
