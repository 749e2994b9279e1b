"""Where the strips of residues stand on a device while its program is being made."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from ooc_chol.dense.programs.builder import ProgramBuilder
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.errors import ScheduleError
from ooc_chol.schedulers.schedule import NEVER
from ooc_chol.tasks.operations import Place, Pool
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.windows import Window

#: Strips that stream through at least: one is multiplied, one filled, one about to be.
STREAMING = 3


class Strip(NamedTuple):
    """Tile row ``row``, chunk ``chunk`` of its tile columns."""

    row: int
    chunk: int


def residue_panels(nt: int, width: int, layout: ResidueLayout, window: Window | None = None) -> tuple[Panel, ...]:
    """Panels of at most ``width`` columns that end at chunk boundaries, narrower where their own rows' strips would not fit.

    They cut the columns of ``window``, or all.
    """
    panels, k0 = [], 0
    if window is not None:
        k0, nt = window.columns.start, window.columns.stop
    while k0 < nt:
        room = layout.chunk - k0 % layout.chunk
        strips_a_row = k0 // layout.chunk + 1
        w = max(1, min(width, room, nt - k0, (layout.strips - STREAMING) // strips_a_row))
        if k0 + w < nt and w < room:
            w = max(1, min(w, -(-room // -(-room // w))))  # equal panels within a chunk
        panels.append(Panel(k0, w, 1))
        k0 += w
    return tuple(panels)


class DeviceStrips:
    """Strips and tiles on one device while its program is being made.

    The panel's own strips stand at one end of the slots, chunk by chunk and row by row, so that one product takes all rows of a
    chunk; those of the next panel, as its rows stream through, at the other end where there is room. All other slots are loose:
    rows that stream through, kept by next use for when they stream again or become own rows.
    """

    def __init__(self, builder: ProgramBuilder, layout: ResidueLayout, uses: dict[Strip, list[int]]) -> None:
        self.builder, self.layout = builder, layout
        self.places = [Place(Pool.STRIP, slot) for slot in range(layout.strips)]
        self.uses = uses
        self.now = 0
        self.slot: dict[Strip, int] = {}
        self.valid: dict[Strip, int] = {}
        self.loose: deque[int] = deque()
        self.panel = Panel(0, 1, 1)
        self.next_panel: Panel | None = None
        self.base = self.next_base = 0
        self.diagonal: dict[int, Place] = {}
        self.rows_finished = 0
        self.unfinished: set[Strip] = set()  # current chunk of rows that are swept

    def next_use(self, strip: Strip) -> int:
        """The job after this one that uses ``strip``."""
        jobs = self.uses.get(strip, [])
        at = bisect_right(jobs, self.now)
        return jobs[at] if at < len(jobs) else NEVER

    def begin(self, panel: Panel, following: Panel | None) -> None:
        """Give slots at one end to the strips of ``panel``'s own rows and, if there is room, at the other to the next one's."""
        slots, chunk = self.layout.strips, self.layout.chunk
        self.base = self.next_base if self.next_panel == panel else 0
        self.panel, self.next_panel = panel, None
        taken = panel.width * (panel.k0 // chunk + 1)
        homes = set(range(self.base, self.base + taken))
        if following is not None:
            needed = following.width * (following.k0 // chunk + 1)
            if taken + needed + STREAMING <= slots:
                self.next_panel, self.next_base = following, slots - needed if self.base == 0 else 0
                homes.update(range(self.next_base, self.next_base + needed))
        for strip, slot in list(self.slot.items()):
            if self.next_use(strip) == NEVER or (slot in homes and self.home(strip) != slot):
                self.drop(strip)
        taken_slots = homes | set(self.slot.values())
        kept = [slot for slot in self.loose if slot not in taken_slots]
        fresh = [slot for slot in range(slots) if slot not in taken_slots and slot not in kept]
        self.loose = deque([*kept, *fresh])

    def home(self, strip: Strip) -> int | None:
        """Slot of a strip of the panel's own rows, or the next panel's; None for other rows."""
        row, chunk = strip
        k0, width, _ = self.panel
        if k0 <= row < k0 + width:
            return self.base + chunk * width + row - k0
        if self.next_panel is not None:
            k0, width, _ = self.next_panel
            if k0 <= row < k0 + width:
                return self.next_base + chunk * width + row - k0
        return None

    def put(self, strip: Strip, slot: int) -> None:
        """Let ``strip``, empty as yet, take ``slot``."""
        self.slot[strip] = slot
        self.valid[strip] = 0
        self.builder.occupy(Pool.STRIP)

    def loose_slot(self, needed: set[Strip]) -> int:
        """The loose slot freed longest ago, so that a strip is filled while products still read the one before.

        Strips are dropped early, those whose next use is farthest first, to keep :data:`STREAMING` slots free.
        """
        while len(self.loose) < STREAMING:
            needed = needed | self.unfinished
            others = [strip for strip, slot in self.slot.items() if strip not in needed and self.home(strip) != slot]
            if not others:
                break
            self.drop(max(others, key=lambda strip: (self.next_use(strip), strip)))
        if not self.loose:
            raise ScheduleError(f"{self.layout.strips} strips are too few for these panels; give more memory")
        return self.loose.popleft()

    def drop(self, strip: Strip) -> None:
        """Free the slot of a strip."""
        slot = self.slot.pop(strip)
        del self.valid[strip]
        if self.home(strip) != slot:
            self.loose.append(slot)
        self.builder.vacate(Pool.STRIP)
