"""Lines of a printed plan and report on files, host memory and the links between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ooc_chol.config import format_bytes
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.disk import DiskRates
from ooc_chol.dense.programs.file_costs import FileCosts, file_seconds
from ooc_chol.tasks.operations import FileLink, Link, StepKind

if TYPE_CHECKING:
    from ooc_chol.dense.planner.plan import Plan

#: What goes each way to and from files, in words.
FILE_WORDS = {FileLink.SOURCE: "A read", FileLink.READ: "L read", FileLink.WRITE: "L written"}


def tier_lines(plan: Plan) -> list[tuple[str, str]]:
    """Lines of a plan's page for an L in a file; none for others."""
    if not plan.in_file:
        return []
    lines = [("host", host_text(plan)), ("file", _file_text(plan))]
    costs = plan.file_costs
    return lines if costs is None else [*lines, ("disk", _disk_text(plan, costs)), ("busy", _busy_text(plan))]


def host_text(plan: Plan) -> str:
    """Text on the part of an L in a file that host memory keeps, beside its budget."""
    if not plan.host_tiles:
        kept = "no tile of L is kept in host memory"
    else:
        kept = (
            f"{len(plan.host_tiles)} of {plan.grid.n_tiles} tiles of L are kept in host memory, {format_bytes(plan.host_bytes)}"
        )
    staging = f", {format_bytes(plan.staging_bytes)} for tiles on their way" if plan.staging_bytes else ""
    budget = f"; host_budget {format_bytes(plan.host_budget_bytes)}" if plan.host_budget_bytes else ""
    return f"{kept}{staging}{budget}"


def _file_text(plan: Plan) -> str:
    """The planned bytes from and to files, and the fetches that host memory spares them."""
    moved = [f"{format_bytes(plan.file_bytes(way))} of {words}" for way, words in FILE_WORDS.items() if plan.file_bytes(way)]
    spared = plan.link_bytes(Link.FETCH) - plan.file_bytes(FileLink.READ)
    return ", ".join(moved) + (f"; {format_bytes(spared)} of L fetched from host memory" if spared else "")


def _disk_text(plan: Plan, costs: FileCosts) -> str:
    """The rates behind the seconds of files, and where they come from."""
    disk, rates = costs.rates.disk, costs.rates
    if disk is not None:
        at_once = "at once" if disk.is_duplex else "one after the other"
        of_l = f"{disk.read / 1e9:.3g} GB/s read, {disk.write / 1e9:.3g} GB/s written, {at_once}, measured in {disk.folder}"
        return of_l + _source_text(disk)
    cached = f"{rates.fetch / 1e9:.3g} GB/s read, {rates.write / 1e9:.3g} GB/s written"
    return f"not measured: {cached} are those of the page cache; `ooc-chol bench rates --folder DIR` measures the disk"


def _source_text(disk: DiskRates) -> str:
    """The rate of A's file, and whether it is that of how tiles of A are read."""
    if disk.source is None:
        return ""
    rate = f"; A {disk.source / 1e9:.3g} GB/s"
    if not disk.is_by_rows:
        return f"{rate}, that of whole tiles: by rows it was not measured, `ooc-chol bench rates --folder DIR` does"
    return rate if disk.row_bytes is None else f"{rate} by rows of {format_bytes(disk.row_bytes)}"


def busy_seconds(plan: Plan) -> dict[str, float]:
    """Predicted seconds for which each part of the way is busy: files, both directions of the busiest device, its kernels.

    Empty without rates. The longest of them is what the run cannot be shorter than, but for kernels that share the processors.
    """
    costs, rates = plan.file_costs, plan.rates
    if rates is None:
        return {}
    parts = {"file": 0.0 if costs is None else _file_seconds(plan, costs)}
    each = [_busy_of_device(plan, number, rates, costs) for number in range(len(plan.programs))]
    return parts | {name: max(of_device[name] for of_device in each) for name in each[0]}


def _file_seconds(plan: Plan, costs: FileCosts) -> float:
    """Seconds for which the disk is busy, or the direction that takes longer of one whose directions do not meet."""
    ways = file_seconds(costs, [program.steps for program in plan.programs])
    write, read = ways.pop(FileLink.WRITE), sum(ways.values())
    is_duplex = costs.rates.disk is not None and costs.rates.disk.is_duplex
    return max(read, write) if is_duplex else read + write


def _busy_of_device(plan: Plan, number: int, rates: Rates, costs: FileCosts | None) -> dict[str, float]:
    """The seconds of one device's copies and kernels."""
    steps, shares = plan.programs[number].steps, rates.shares()
    moves = {} if costs is None else costs.moves(steps)
    names = {StepKind.FETCH: "into a device", StepKind.WRITE: "out of a device", StepKind.COMPUTE: "kernels"}
    totals = dict.fromkeys(names.values(), 0.0)
    for position, (step, alone) in enumerate(zip(steps, rates.all_seconds(steps, plan.grid), strict=True)):
        if (name := names.get(step.kind)) is not None:
            share = shares[type(step.operation)] if step.kind is StepKind.COMPUTE else 1.0
            totals[name] += moves[position].link if position in moves else share * alone
    return totals


def _busy_text(plan: Plan) -> str:
    """The seconds of each part of the way, and which is the longest."""
    parts = busy_seconds(plan)
    longest = max(parts, key=parts.__getitem__)
    return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts.items()) + f": {longest} longest"
