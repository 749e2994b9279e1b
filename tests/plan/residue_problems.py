"""Random factorizations through residues for the tests of planning: tiles, owners, memory, and their programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.inside.dense import STREAMING, Program, ResidueLayout, ResiduePrograms, residue_panels
from tests.inside.schedulers import ResidueScheduler
from tests.inside.tasks import TileGrid, tile_bytes_of


@dataclass(frozen=True)
class ResidueProblem:
    """Tiles, the devices that own their rows, and the memory that each device has."""

    grid: TileGrid
    owners: tuple[int, ...]
    layout: ResidueLayout
    source_itemsize: int | None = 8
    beside: bool = True

    def programs(self) -> tuple[Program, ...]:
        """The program of each device."""
        panels = residue_panels(self.grid.nt, self.layout.width, self.layout)
        return ResiduePrograms(
            ResidueScheduler().schedule(self.grid, self.owners, panels),
            self.owners,
            panels,
            self.layout,
            source_itemsize=self.source_itemsize,
            stored_bytes=tile_bytes_of(self.grid),
            beside=self.beside,
        ).programs()


def least_strips(nt: int, chunk: int, width: int) -> int:
    """Fewest strips that the planner gives a device."""
    return max(width, -(-nt // chunk)) + STREAMING


def make_problem(
    nt: int,
    *,
    nb: int = 16,
    owners: Sequence[int] | None = None,
    chunk: int = 2,
    width: int = 2,
    more: int = 0,
    folds: bool = False,
    **options,
) -> ResidueProblem:
    """``nt`` whole tile rows, on one device when no owners are given, with ``more`` slots than must be of every kind."""
    strips = least_strips(nt, chunk, width) + more
    layout = ResidueLayout(13, nb, chunk, width, width + 1 + more, 1 + more, strips, 2 + more, folds=folds)
    return ResidueProblem(TileGrid(nt * nb, nb), tuple(owners or (0,) * nt), layout, **options)


@st.composite
def residue_problems(draw: st.DrawFn, *, most_rows: int = 8, most_devices: int = 3) -> ResidueProblem:
    """Any grid, ragged or not, any owners, and memory from barely enough to plenty."""
    nt, nb = draw(st.integers(1, most_rows)), draw(st.integers(1, 5))
    n = nt * nb - draw(st.integers(0, nb - 1))
    owners = tuple(draw(st.lists(st.integers(0, most_devices - 1), min_size=nt, max_size=nt)))
    chunk = draw(st.integers(1, nt))
    width = draw(st.integers(1, chunk))
    tiles, transit, accumulators = width + draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(2, 4))
    strips = least_strips(nt, chunk, width) + draw(st.sampled_from([0, 0, 1, 3, 8, 30]))
    layout = ResidueLayout(13, min(n, nb), chunk, width, tiles, transit, strips, accumulators, folds=draw(st.booleans()))
    itemsize = draw(st.sampled_from([8, 4, None]))
    return ResidueProblem(TileGrid(n, nb), owners, layout, itemsize, draw(st.booleans()))
