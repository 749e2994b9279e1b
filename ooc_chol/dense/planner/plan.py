"""The plan of a factorization: what every device will do, and what it will cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.config import format_bytes, long_time, whole_pages
from ooc_chol.dense.planner.candidate import Candidate
from ooc_chol.dense.planner.plan_picture import plan_picture
from ooc_chol.dense.planner.tier_page import busy_seconds, file_text, host_text, rate_lines
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.programs.file_costs import FileCosts
from ooc_chol.dense.programs.files import FILE, FileTraffic
from ooc_chol.dense.programs.layouts import AbstractMemoryLayout
from ooc_chol.dense.programs.policy import Policy
from ooc_chol.dense.programs.simulate import Timeline, simulate
from ooc_chol.dense.programs.steps import Program
from ooc_chol.dense.stores.layout import TileLayout
from ooc_chol.display.drawing import Drawing
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import ArraySpec
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.schedulers.ownership import imbalance
from ooc_chol.tasks.bounds import beaumont_bytes, compulsory_bytes, tile_bytes_of
from ooc_chol.tasks.cholesky import tile_flops
from ooc_chol.tasks.operations import FileLink, Link
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window, whole_triangle

#: Devices that have a line of their own on the printed page.
_MOST_DEVICES = 7


@dataclass(frozen=True)
class DeviceBudget:
    """How a plan divides the memory of one device."""

    budget_bytes: int  #: Most bytes that the plan may take: what the user allows, or what the device has free
    slot_bytes: int  #: Bytes of a slot: the largest tile, rounded up to 4096
    n_slots: int  #: How many slots the device's memory for tiles has
    prefetch_slots: int  #: How many of these are kept free for tiles in transit
    workspace_bytes: int  #: Bytes that kernels take for themselves, inside the budget


@dataclass(frozen=True, repr=False)
class Plan(AbstractPlan):
    """A frozen description of one factorization; it holds no matrix data and no device.

    Parameters
    ----------
    grid : TileGrid
        How A is cut into tiles: order ``n`` of the matrix, ``nb`` of a tile, and ``nt`` tile rows.
    policy : Policy
        The choices by which tiles move, under one name.
    objective : str
        Quantity that the planner made least, ``"seconds"`` or ``"bytes"``.
    devices : tuple of str
        Names of the devices that take part, such as ``"cuda:0"``.
    owners : tuple of int
        For each tile row the number of the device that makes it, counted in ``devices``.
    panels : tuple of Panel
        First tile column, width and height of a group of rows of each panel, from left to right.
    budgets : tuple of DeviceBudget
        How the memory of each device is divided, in bytes and slots.
    programs : tuple of Program
        The steps of each device in the order in which they are enqueued.
    rates : Rates or None
        Rates behind the predicted seconds, measured or nominal; None where none are known, and no seconds are predicted.
    task_counts : mapping of str to int
        Number of tasks of each kind: POTRF, TRSM, SYRK and GEMM on tiles.
    source : str
        Kind of source of A, such as ``"array"`` or ``"function"``.
    flops_executed : int
        Flops that the kernels of these devices execute, more than are counted where a kernel computes what nobody needs.
    precision : PrecisionMap or None
        Formats of the tiles; None where all is FP64.
    given : frozenset of tuple of int
        Tiles of L that are in the store before the run.
    window : Window or None
        The tiles of L that the run makes, where others make the rest; None for all.
    half_share : float
        Share of the products through residues that is expected to run in FP16, where the run decides so by norms of L.
    probe_arrays : tuple of ArraySpec
        In mixed precision: arrays on each device for random vectors and their products with tiles that leave it, from which the
        certificate follows. None where there is no room for them, and the certificate reads L.
    fmt : PrecisionFormat
        Format of what is stored and computed: FP64, or that of the ``dtype`` that was asked for.
    kept_bytes : int
        Bytes beside the budget that an L which stays on the GPUs takes of each at most; 0 where it goes elsewhere.
    in_file : bool
        True if L goes to a file.
    host_tiles : frozenset of tuple of int
        For an L in a file, the tiles that are also kept in host memory, from when they are written until the run ends: fetches of
        these read no file.
    staging_bytes : int
        Bytes of host memory through which tiles pass on their way between a file and the devices, all devices together.
    host_budget_bytes : int
        For an L in a file, the most bytes of host memory for both.
    asked : tuple of (float, str) or None
        The ``precision_threshold`` and ``precision_rule`` of the call, whatever escalation made of them; None where it gave none.
    candidates : tuple of Candidate
        With a threshold the ways that were compared, each with predicted seconds, bytes of L and expected error.
    """

    call: ClassVar[str] = "cholesky"

    grid: TileGrid
    policy: Policy
    objective: str
    devices: tuple[str, ...]
    owners: tuple[int, ...]
    panels: tuple[Panel, ...]
    budgets: tuple[DeviceBudget, ...]
    programs: tuple[Program, ...]
    rates: Rates | None
    task_counts: Mapping[str, int]
    source: str
    flops_executed: int
    precision: PrecisionMap | None = None
    given: frozenset[tuple[int, int]] = frozenset()
    half_share: float = 0.0
    probe_arrays: tuple[ArraySpec, ...] = ()
    fmt: PrecisionFormat = FP64
    kept_bytes: int = 0
    in_file: bool = False
    host_tiles: frozenset[tuple[int, int]] = frozenset()
    staging_bytes: int = 0
    host_budget_bytes: int = 0
    window: Window | None = None
    asked: tuple[float, str] | None = None
    candidates: tuple[Candidate, ...] = ()

    def asked_for(self, asked: tuple[float, str] | None, candidates: tuple[Candidate, ...] = ()) -> Plan:
        """The plan as the answer to a call with a threshold; what was found of the steps is not found anew.

        Parameters
        ----------
        asked : tuple of (float, str) or None
            Its ``precision_threshold`` and ``precision_rule``.
        candidates : tuple of Candidate
            The ways that were compared.

        Returns
        -------
        Plan
            With the same programs.
        """
        return self._keeping_steps(replace(self, asked=asked, candidates=candidates))

    def _keeping_steps(self, other: Plan) -> Plan:
        """A plan of the same steps with what was found of them here."""
        for name in {"timeline", "flops", "_file_bytes"} & vars(self).keys():
            vars(other)[name] = vars(self)[name]
        return other

    def with_norms(self, precision: PrecisionMap) -> Plan:
        """The plan for a matrix of other norms; where these give the same formats, what was found of the steps is not found anew.

        Parameters
        ----------
        precision : PrecisionMap
            The map of formats. Through residues it may be another one whose largest stored tile takes as many bytes: the steps
            are the same, and move other bytes.

        Returns
        -------
        Plan
            With the same steps.
        """
        rates = self.rates if self.rates is None or self.rates.precision is None else self.rates.of_formats(precision)
        other = replace(self, precision=precision, rates=rates)
        if self.precision is not None and self.precision.formats == precision.formats:
            return self._keeping_steps(other)
        return replace(other, programs=tuple(program.with_bytes(precision.stored_bytes) for program in self.programs))

    @cached_property
    def timeline(self) -> Timeline:
        """When each step starts and ends in the simulator, which checks the plan; without rates all times are 0."""
        with collector_off():
            return simulate(self.programs, self.grid, self.rates, self.given, files=self.file_costs, window=self.window)

    @property
    def seconds(self) -> float | None:
        """Predicted seconds, or None when no rates are known."""
        return self.timeline.seconds if self.rates else None

    @property
    def made(self) -> Window:
        """The tiles of L that the run makes final."""
        return whole_triangle(self.grid.nt) if self.window is None else self.window

    @property
    def pivots_before(self) -> int:
        """Tile columns whose pivots have all been taken once this run is over, here or by runs before."""
        return self.made.columns.stop if self.made.has_diagonal else 0

    @cached_property
    def given_flops(self) -> int:
        """Flops that were counted for given tiles; of a window none are, those belong to other runs."""
        if self.window is not None:
            return 0
        return self.fmt.flops_factor * sum(tile_flops(i, j, self.grid) for i, j in self.given)

    @cached_property
    def flops(self) -> int:
        """Flops that the algorithm counts for all tasks, about ``n**3 / 3``."""
        return sum(program.flops for program in self.programs)

    @property
    def bytes(self) -> dict[str, int]:
        """Planned bytes over each link by its name, all devices together; those of files are among them."""
        return {link.name.lower(): self.link_bytes(link) for link in Link}

    def link_bytes(self, link: Link) -> int:
        """Planned bytes over one link, all devices together.

        Parameters
        ----------
        link : Link
            The kind of copy.

        Returns
        -------
        int
            Bytes of all steps over that link.
        """
        return sum(program.link_bytes[link] for program in self.programs)

    @property
    def file_traffic(self) -> FileTraffic:
        """Which steps read or write a file."""
        return FileTraffic(reads_source=self.source == FILE, has_store=self.in_file, kept=self.host_tiles)

    @property
    def file_costs(self) -> FileCosts | None:
        """Costs of files beyond the rates of single steps; None without rates, and for an L that goes to no file."""
        if self.rates is None or not self.in_file:
            return None
        return FileCosts(self.rates, self.file_traffic, is_staged=not device_kind(self.devices[0]).is_in_host_memory)

    @cached_property
    def _file_bytes(self) -> tuple[int, ...]:
        """Planned bytes over each :class:`FileLink`, all devices together."""
        return tuple(map(sum, zip(*[self.file_traffic.link_bytes(program) for program in self.programs], strict=True)))

    def file_bytes(self, link: FileLink) -> int:
        """Planned bytes read from files or written to them, all devices together; :meth:`link_bytes` counts them, too.

        Parameters
        ----------
        link : FileLink
            A from its file, or L from or to the file of its store.

        Returns
        -------
        int
            Bytes of all steps that way.
        """
        return self._file_bytes[link]

    def stored_tile_bytes(self, index: tuple[int, int]) -> int:
        """Bytes of a tile of L in its store.

        Parameters
        ----------
        index : tuple of int
            Tile row and column.

        Returns
        -------
        int
            Bytes in the tile's format, without those that fill its last page.
        """
        return tile_bytes_of(self.grid, self.fmt)(index) if self.precision is None else self.precision.stored_bytes(index)

    @cached_property
    def host_tile_bytes(self) -> int:
        """Bytes of host memory for the tiles of an L in a file that are kept there, in whole pages."""
        return sum(whole_pages(self.stored_tile_bytes(index)) for index in self.host_tiles)

    @cached_property
    def host_bytes(self) -> int:
        """Bytes of host memory for L; of an L in a file, for tiles that are kept or on their way. 0 where GPUs keep it."""
        if self.in_file:
            return self.host_tile_bytes + self.staging_bytes
        formats = None if self.precision is None else self.precision.formats
        return 0 if self.kept_bytes else TileLayout(self.grid, formats=formats, fmt=self.fmt).end

    @property
    def budget_bytes(self) -> int:
        """Most bytes on each device, without an L that stays there."""
        return self.budgets[0].budget_bytes

    @property
    def busy_seconds(self) -> dict[str, float]:
        """Predicted seconds for which files, both directions of the busiest device and its kernels are busy; empty without rates.

        The longest of them is what the run cannot be shorter than, but for kernels that share the processors.
        """
        return busy_seconds(self.programs, self.grid, self.rates, self.file_costs)

    @property
    def loaded_bytes(self) -> int:
        """Planned bytes of A and L from host memory or a file onto the devices, all together."""
        return self.link_bytes(Link.SOURCE) + self.link_bytes(Link.FETCH)

    @property
    def peak_bytes(self) -> int:
        """Most device bytes in use at once on any device, workspace included."""
        return max(
            program.layout.taken_bytes(program.peak_bytes) + budget.workspace_bytes
            for program, budget in zip(self.programs, self.budgets, strict=True)
        )

    @property
    def needed_bytes(self) -> int:
        """Most device bytes of all slots and the workspace on any device, whether they are in use or not."""
        return max(
            program.layout.arena_bytes + budget.workspace_bytes
            for program, budget in zip(self.programs, self.budgets, strict=True)
        )

    @property
    def memory_budget(self) -> int:
        """The ``memory_budget`` that gives this plan: its budget, and what L takes of each GPU on which it stays."""
        return self.budgets[0].budget_bytes + self.kept_bytes

    @property
    def layout(self) -> AbstractMemoryLayout:
        """How the memory of each device is divided into slots."""
        return self.programs[0].layout

    @property
    def engine(self) -> str:
        """How products are computed: ``"native"``, ``"residue"``, or ``"mixed"`` where tiles have formats of their own.

        ``"library"`` where a library's routine factors the whole matrix as one tile.
        """
        if self.precision is not None:
            return "mixed"
        return self.layout.engine

    @property
    def moduli(self) -> int | None:
        """Number of moduli; None for native FP64."""
        return self.layout.moduli

    @property
    def compulsory_bytes(self) -> int:
        """Bytes of the lower triangle once, of a window those of its tiles."""
        if self.window is None:
            return compulsory_bytes(self.grid, self.fmt.itemsize)
        return self.fmt.itemsize * sum(self.grid.entries(i, j) for i, j in self.window.tiles())

    @property
    def stored_bytes(self) -> int:
        """Bytes of the factor in its store, of a window those of its tiles."""
        if self.window is not None:
            return sum(self.stored_tile_bytes(index) for index in self.window.tiles())
        return self.compulsory_bytes if self.precision is None else self.precision.total_bytes

    @property
    def movement_bound_bytes(self) -> float:
        """The larger of the two lower bounds on loaded bytes.

        Where A is made on the device, reading it once is no bound, and counts off the other one, which may then be zero. In mixed
        precision an entry has no fixed size: only reading A is a bound. A window reads its tiles of A and what it needs of L
        once at least.
        """
        if self.window is not None:
            needed = sum(self.stored_tile_bytes(index) for index in self.given)
            return float(needed if self.is_generated else needed + self.compulsory_bytes)
        if self.precision is not None:
            return 0.0 if self.is_generated else float(self.compulsory_bytes)
        capacity = sum(self.layout.capacity_bytes(budget.prefetch_slots) for budget in self.budgets)
        blocked = beaumont_bytes(self.grid.n, capacity, self.fmt.itemsize)
        if self.is_generated:
            return max(0.0, blocked - self.compulsory_bytes)
        return max(float(self.compulsory_bytes), blocked)

    @property
    def is_generated(self) -> bool:
        """True if A is made on the device, so that it crosses no link."""
        return self.link_bytes(Link.SOURCE) == 0

    @property
    def movement_ratio(self) -> float | None:
        """Loaded bytes over their lower bound; None where the bound is zero."""
        return self.loaded_bytes / self.movement_bound_bytes if self.movement_bound_bytes else None

    def figures(self) -> dict[str, object]:
        """The figures of the plan beside the common ones."""
        return {
            "n": self.grid.n,
            "tile_size": self.grid.nb,
            "tile_rows": self.grid.nt,
            "policy": self.policy.name,
            "engine": self.engine,
            "moduli": self.moduli,
            "objective": self.objective,
            "panels": [list(panel) for panel in self.panels],
            "tasks": dict(self.task_counts),
            "flops": self.flops,
            "flops_executed": self.flops_executed,
            "file_bytes": {link.name.lower(): self.file_bytes(link) for link in FileLink},
            "host_tiles": len(self.host_tiles),
            "host_tile_bytes": self.host_tile_bytes,
            "staging_bytes": self.staging_bytes,
            "bounds": {"compulsory": self.compulsory_bytes, "loaded": self.movement_bound_bytes},
            "rates": None if self.rates is None else self.rates.origin.value,
            "precision_threshold": None if self.precision is None else self.precision.threshold,
            "dtype": self.fmt.dtype.name,
            "formats": {self.fmt.name: self.made.n_tiles} if self.precision is None else self.precision.counts,
            **({"kept_bytes": self.kept_bytes} if self.kept_bytes else {}),
            **({} if self.window is None else {"window": [[span.start, span.stop] for span in self.window]}),
        }

    def facts(self) -> dict[str, object]:
        """Facts for ``repr``."""
        facts: dict[str, object] = {"n": self.grid.n, "tile_size": self.grid.nb, "devices": self.devices, "engine": self.engine}
        facts |= {"policy": self.policy.name, "budget": format_bytes(self.budget_bytes)}
        facts |= {"steps": sum(len(program.steps) for program in self.programs)}
        return facts | ({"seconds": self.seconds} if self.is_simulated else {})

    def picture(self) -> Drawing:
        """The tiles, and bytes beside budget and bounds."""
        seconds = "seconds unknown" if self.seconds is None else f"{self.seconds:.3g} s predicted{long_time(self.seconds)}"
        amounts = {
            "peak on a device": self.peak_bytes,
            "L in its store": self.stored_bytes,
            "loaded": self.loaded_bytes,
            "least to load": round(self.movement_bound_bytes),
            "written": self.link_bytes(Link.WRITE),
            "between devices": self.link_bytes(Link.PEER),
        }
        return plan_picture(
            self.grid,
            words=(f"n = {self.grid.n}, {self.grid.nt} x {self.grid.nt} tiles of {self.grid.nb}, {self.engine}", seconds),
            amounts=amounts,
            budget_bytes=self.budget_bytes,
            precision=self.precision,
            devices=self.devices,
            owners=self.owners,
            widths=[panel.width for panel in self.panels],
        )

    @property
    def is_simulated(self) -> bool:
        """True if the simulator has run, or takes no time: predicted seconds are known without waiting for them."""
        return "timeline" in vars(self) or self.grid.nt == 1

    def lines(self) -> list[Line]:
        """The lines of the printed page."""
        grid = self.grid
        tasks = ", ".join(f"{count} {kind}" for kind, count in self.task_counts.items())
        part = (
            "" if self.window is None else f"tile rows {_span(self.window.rows)} x columns {_span(self.window.columns)} of the "
        )
        title = (
            f"Plan: {part}Cholesky of n = {grid.n} in {grid.nt} x {grid.nt} tiles of {grid.nb} ({self._formats_name()}), "
            f"{self._how()}"
        )
        stored = format_bytes(self.stored_bytes)
        formats = [] if self.precision is None else [("formats", self._formats_text())]
        return [
            ("", title),
            *[("device", line) for line in self._device_lines()],
            ("panels", self._panel_text()),
            *formats,
            *[("candidate", str(each)) for each in self.candidates],
            ("tasks", f"{tasks}; {self.flops:.4g} flops counted, {self.flops_executed:.4g} executed"),
            ("moves", self._moves_text()),
            *self._tier_lines(),
            ("bounds", self.bounds_text()),
            ("memory", f"peak {format_bytes(self.peak_bytes)} on a device; the factor takes {stored} {self._where_text()}"),
            ("seconds", self._seconds_text()),
        ]

    def _formats_name(self) -> str:
        """The word for the formats in the title of the page."""
        return self.fmt.name if self.precision is None else f"mixed, threshold {self.precision.threshold:g}"

    def _formats_text(self) -> str:
        """Tiles of each format, and the error to expect."""
        assert self.precision is not None
        heading, *rows = str(self.precision).splitlines()
        return "\n".join([heading, *(f"{'':13}{row}" for row in rows)])

    def _where_text(self) -> str:
        """Where L goes, in words."""
        if not self.kept_bytes:
            return "in its store"
        return f"more, and stays on {'it' if len(self.devices) == 1 else 'them'}"

    def _how(self) -> str:
        """How products are computed or tiles move, in words for the title of the page."""
        return self.layout.products_text(self.half_share) or f"policy {self.policy.name!r}"

    def _moves_text(self) -> str:
        """The planned bytes over each link, in words."""
        read, fetched, written, pulled = (format_bytes(self.link_bytes(link)) for link in Link)
        total = format_bytes(self.loaded_bytes + self.link_bytes(Link.WRITE))
        text = f"{read} of A read ({self.source}), {fetched} of L fetched again, {written} of L written; {total} in all"
        return f"{text}; {pulled} from device to device" if self.link_bytes(Link.PEER) else text

    def host_text(self) -> str:
        """The part of an L in a file that host memory keeps, beside its budget, in words.

        Returns
        -------
        str
            One line, with bytes in powers of 1000.
        """
        tiles = len(self.host_tiles), self.grid.n_tiles
        return host_text(tiles, self.host_tile_bytes, staging_bytes=self.staging_bytes, budget_bytes=self.host_budget_bytes)

    def _tier_lines(self) -> list[Line]:
        """Lines on an L in a file; none on others."""
        if not self.in_file:
            return []
        moved = {link: self.file_bytes(link) for link in FileLink}
        lines = [("host", self.host_text()), ("file", file_text(moved, self.link_bytes(Link.FETCH) - moved[FileLink.READ]))]
        costs = self.file_costs
        return lines if costs is None else [*lines, *rate_lines(costs, self.busy_seconds)]

    def bounds_text(self) -> str:
        """Loaded bytes beside the larger of their lower bounds, in words.

        Returns
        -------
        str
            One line, with bytes in powers of 1000.
        """
        if self.window is None and len(self.given) == self.grid.n_tiles:
            return "nothing is left to do"
        if self.movement_ratio is None:
            return f"A is made on the device: no load is a must, {format_bytes(self.loaded_bytes)} are planned"
        bound = format_bytes(self.movement_bound_bytes)
        if self.is_generated:
            return (
                f"loads are {self.movement_ratio:.2f} x their bound, {bound} (n³/(3·√2·√S) less the triangle, made on the device)"
            )
        if self.window is not None:
            return f"loads are {self.movement_ratio:.2f} x their bound, {bound} (tiles of A and needed ones of L once)"
        larger = "read once" if self.movement_bound_bytes == self.compulsory_bytes else "n³/(3·√2·√S)"
        both = format_bytes(2 * self.compulsory_bytes)
        return f"loads are {self.movement_ratio:.2f} x the larger bound, {bound} ({larger}); read once and written once: {both}"

    def _seconds_text(self) -> str:
        """Predicted seconds, or why there are none."""
        if self.seconds is None:
            return f"unknown: {self._why_no_seconds()}"
        origin = "" if self.rates is None else self.rates.origin_text()
        return f"{self.seconds:.3g} predicted{long_time(self.seconds)} ({self.flops / self.seconds / 1e9:.4g} GFLOP/s){origin}"

    def _why_no_seconds(self) -> str:
        """Reason for missing predictions, and the command that measures rates, where one does."""
        if self.engine == "library":
            return "a library's routine factors the whole matrix, and rates are of our own kernels"
        if self.source == "slices":
            return "how fast the slices come depends on what is behind them"
        on_host = self.devices[0].startswith("host")
        if on_host and len(self.devices) > 1:
            return "host devices share the cores that rates are measured with for one"
        words = "" if on_host else f" --device {self.devices[0]} --tile-size {self.grid.nb}"
        if on_host and self.moduli is not None:
            words = f" --tile-size {self.grid.nb} --moduli {self.moduli}"
        return f"no rates are measured here for tiles of {self.grid.nb}; `ooc-chol bench rates{words}` measures them"

    def _device_lines(self) -> list[str]:
        """A line for each device, how its memory is divided and what it has to do, and one for their balance."""
        lines = []
        for name, budget, program in zip(self.devices, self.budgets, self.programs, strict=True):
            rows = sum(self.devices[self.owners[row]] == name for row in self.made.rows)
            slots = program.layout.describe(budget.prefetch_slots)
            lines.append(
                f"{name}: budget {format_bytes(budget.budget_bytes)}, {slots}, {rows} tile rows, {len(program.steps)} steps"
            )
        if (left := len(lines) - _MOST_DEVICES) > 0:
            lines[_MOST_DEVICES:] = [f"... and {left} more, the last one {lines[-1]}"]
        if len(self.devices) > 1:
            lines.append(f"work of the busiest device is {self._imbalance():.3f} x the mean")
        return lines

    def _imbalance(self) -> float:
        """Largest over mean work of the devices: of a window, whose rows are alike, by its flops."""
        if self.window is None:
            return imbalance(self.owners, len(self.devices))
        return max(program.flops for program in self.programs) * len(self.devices) / self.flops

    def _panel_text(self) -> str:
        """Widths and heights, equal neighbours joined."""
        runs: list[tuple[int, int, int]] = []
        for panel in self.panels:
            if runs and runs[-1][1:] == (panel.width, panel.height):
                runs[-1] = (runs[-1][0] + 1, panel.width, panel.height)
            else:
                runs.append((1, panel.width, panel.height))
        shown = ", ".join(f"{count} x (w={width}, h={height})" for count, width, height in runs[:8])
        return shown + (f", ... {len(self.panels)} in all" if len(runs) > 8 else "")


def _span(tiles: range) -> str:
    """Tile rows or columns in words."""
    return f"{tiles.start} to {tiles.stop - 1}"
