"""Lines of a printed plan and report on files, host memory and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ooc_chol.calls.page import Line
from ooc_chol.config import format_bytes
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.disk import DiskRates
from ooc_chol.dense.programs.file_costs import FileCosts, file_seconds
from ooc_chol.dense.programs.steps import Program
from ooc_chol.tasks.operations import FileLink, StepKind
from ooc_chol.tasks.tiling import TileGrid

#: What goes each way to and from files, in words.
FILE_WORDS = {FileLink.SOURCE: "A read", FileLink.READ: "L read", FileLink.WRITE: "L written"}


def host_text(tiles: tuple[int, int], kept_bytes: int, *, staging_bytes: int, budget_bytes: int) -> str:
    """Text on the part of an L in a file that host memory keeps, ``tiles`` of how many, beside its budget."""
    kept, total = tiles
    text = (
        f"{kept} of {total} tiles of L are kept in host memory, {format_bytes(kept_bytes)}"
        if kept
        else "no tile of L is kept in host memory"
    )
    staging = f", {format_bytes(staging_bytes)} for tiles on their way" if staging_bytes else ""
    budget = f"; host_budget {format_bytes(budget_bytes)}" if budget_bytes else ""
    return f"{text}{staging}{budget}"


def file_text(moved: Mapping[FileLink, int], spared_bytes: int) -> str:
    """The planned bytes from and to files, and those of fetches that host memory spares them."""
    text = ", ".join(f"{format_bytes(moved[way])} of {words}" for way, words in FILE_WORDS.items() if moved[way])
    return text + (f"; {format_bytes(spared_bytes)} of L fetched from host memory" if spared_bytes else "")


def rate_lines(costs: FileCosts, busy: Mapping[str, float]) -> list[Line]:
    """Lines on the rates of files, and on how long each part of the way is busy."""
    longest = max(busy, key=busy.__getitem__)
    text = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in busy.items())
    return [("disk", _disk_text(costs)), ("busy", f"{text}: {longest} longest")]


def _disk_text(costs: FileCosts) -> str:
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


def busy_seconds(programs: Sequence[Program], grid: TileGrid, rates: Rates | None, costs: FileCosts | None) -> dict[str, float]:
    """Predicted seconds for which each part of the way is busy: files, both directions of the busiest device, its kernels."""
    if rates is None:
        return {}
    parts = {"file": 0.0 if costs is None else _file_seconds(programs, costs)}
    each = [_busy_of_device(program, grid, rates, costs) for program in programs]
    return parts | {name: max(of_device[name] for of_device in each) for name in each[0]}


def _file_seconds(programs: Sequence[Program], costs: FileCosts) -> float:
    """Seconds for which the disk is busy, or the direction that takes longer of one whose directions do not meet."""
    ways = file_seconds(costs, [program.steps for program in programs])
    write, read = ways.pop(FileLink.WRITE), sum(ways.values())
    is_duplex = costs.rates.disk is not None and costs.rates.disk.is_duplex
    return max(read, write) if is_duplex else read + write


def _busy_of_device(program: Program, grid: TileGrid, rates: Rates, costs: FileCosts | None) -> dict[str, float]:
    """The seconds of one device's copies and kernels."""
    steps, shares = program.steps, rates.shares()
    moves = {} if costs is None else costs.moves(steps)
    names = {StepKind.FETCH: "into a device", StepKind.WRITE: "out of a device", StepKind.COMPUTE: "kernels"}
    totals = dict.fromkeys(names.values(), 0.0)
    for position, (step, alone) in enumerate(zip(steps, rates.all_seconds(steps, grid), strict=True)):
        if (name := names.get(step.kind)) is not None:
            share = shares[type(step.operation)] if step.kind is StepKind.COMPUTE else 1.0
            totals[name] += moves[position].link if position in moves else share * alone
    return totals
