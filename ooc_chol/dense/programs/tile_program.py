"""The program of a device that works on tiles: moves and tasks of the residency planner as steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from ooc_chol.dense.programs.builder import ProgramBuilder
from ooc_chol.dense.programs.layouts import TileSlots
from ooc_chol.dense.programs.residency import AbstractResidencySink
from ooc_chol.dense.programs.steps import Program, tile_key
from ooc_chol.errors import ScheduleError
from ooc_chol.schedulers.finishing import FinishingTasks
from ooc_chol.tasks.cholesky import Task, TaskKind
from ooc_chol.tasks.cholesky import flops as task_flops
from ooc_chol.tasks.operations import Gemm, Load, Operation, Place, Pool, Potrf, StepKind, Store, StreamKind, Syrk, Trsm
from ooc_chol.tasks.tiling import Index, TileGrid

# Names of their own for what nearly every step needs: to look up a member of an enumeration takes a tenth of a microsecond.
_COMPUTE, _ON_COMPUTE = StepKind.COMPUTE, StreamKind.COMPUTE
_TRSM, _SYRK, _GEMM = TaskKind.TRSM, TaskKind.SYRK, TaskKind.GEMM
_new_tuple = tuple.__new__


@final
class TileProgram(AbstractResidencySink):
    """Turns moves into steps: every tile has a slot, and a task changes its output in place.

    ``source_itemsize`` is None when a tile function makes A on the device. ``stored_bytes`` are those of a tile of L in its store
    and on a link, ``held_bytes`` those in a slot. Without ``overlaps`` all is on one stream; ``finishing`` tells which tasks run
    on the finish stream, None leaves all on the compute stream. Each flop of a task stands for ``flops_factor`` of real numbers.
    """

    def __init__(
        self,
        grid: TileGrid,
        layout: TileSlots,
        *,
        source_itemsize: int | None,
        stored_bytes: Callable[[Index], int],
        held_bytes: Callable[[Index], int],
        device: int = 0,
        overlaps: bool = True,
        finishing: FinishingTasks | None = None,
        flops_factor: int = 1,
    ) -> None:
        self._grid = grid
        self._finishing, self._flops_factor = finishing, flops_factor
        self._source_itemsize = source_itemsize
        self._stored_bytes, self._held_bytes = stored_bytes, held_bytes
        self._copy_in, self._copy_out = (
            (StreamKind.COPY_IN, StreamKind.COPY_OUT) if overlaps else (StreamKind.COMPUTE, StreamKind.COMPUTE)
        )
        self._finish = StreamKind.FINISH if overlaps else StreamKind.COMPUTE
        self._builder = ProgramBuilder(device, layout)
        self._place_of: dict[Index, Place] = {}

    def build(self) -> Program:
        """The program of all moves so far."""
        return self._builder.build()

    def fetch(self, index: Index, version: int) -> None:
        """Add a fetch, or for A from a tile function a generation, into the slot freed longest ago."""
        try:
            place = self._builder.take(Pool.TILE, self._held_bytes(index))
        except ScheduleError as error:
            raise ScheduleError(f"no free slot for tile {tuple(index)}: {error}") from None
        self._place_of[index] = place
        is_made = version == 0 and self._source_itemsize is None
        kind = StepKind.GENERATE if is_made else StepKind.FETCH
        of_a = (self._source_itemsize or 0) * self._grid.entries(*index)
        nbytes = of_a if version == 0 else self._stored_bytes(index)
        block = tile_key(index, version)
        awaits = (block,) if version > 0 else ()
        self._builder.add(kind, self._copy_in, block, Load(place), nbytes=nbytes, writes=(place,), awaits=awaits)

    def compute(self, task: Task) -> None:
        """Add a task; its output is changed in place."""
        _, i, j, k = task
        output, place_of = (i, j), self._place_of
        place, counted = place_of[output], task_flops(task, self._grid)
        reads = tuple([place_of[tile] for tile in task.reads])
        finishes = self._finishing is not None and self._finishing.takes(task, counted)
        stream, key, work = self._finish if finishes else _ON_COMPUTE, tile_key(output, k + 1), _operation(task, place, reads)
        self._builder.add(_COMPUTE, stream, key, work, flops=counted * self._flops_factor, reads=reads, writes=(place,))

    def write(self, index: Index, version: int) -> None:
        place, block = self._place_of[index], tile_key(index, version)
        self._builder.add(StepKind.WRITE, self._copy_out, block, Store(place), nbytes=self._stored_bytes(index), reads=(place,))

    def evict(self, index: Index) -> None:
        """Free the tile's slot; the step that uses the slot next will wait for what still reads it."""
        self._builder.give(self._place_of.pop(index))


def _operation(task: Task, place: Place, reads: tuple[Place, ...]) -> Operation:
    """The task on the slots of its tiles."""
    kind = task.kind
    if kind is _GEMM:
        gemm: Gemm = _new_tuple(Gemm, (place, *reads, task.k))  # nearly all are: a named tuple takes twice as long by its class
        return gemm
    if kind is _SYRK:
        return Syrk(place, reads[0], task.k)
    return Trsm(place, reads[0]) if kind is _TRSM else Potrf(place, prepares=True)
