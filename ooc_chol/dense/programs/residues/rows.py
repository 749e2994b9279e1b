"""The left-looking order through residues: panels, row by row, each row's strips against the panel's own.

For panel ``[k0, k1)`` every device holds the residues of the panel's own rows, strip by strip. Each tile row m below sweeps its
own strips past them once: ``S[m, c] = sum_k q_mk q_ck`` for all c of the panel, in long products. Then the row is finished
column by column: the products inside the panel, ``A[m, c] - S[m, c]`` reconstructed, TRSM, and its residues for what comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, final

from ooc_chol.dense.programs.builder import ProgramBuilder
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.residues.moves import ROWS, StripMoves
from ooc_chol.dense.programs.residues.runs import runs, uses_of
from ooc_chol.dense.programs.residues.strips import DeviceStrips, Strip
from ooc_chol.dense.programs.steps import Program, tile_key
from ooc_chol.interfaces import BlockKey
from ooc_chol.precision.moduli import MOST_TERMS
from ooc_chol.schedulers.residues import Job
from ooc_chol.schedulers.schedule import Schedule
from ooc_chol.tasks.cholesky import finish, flops
from ooc_chol.tasks.operations import (
    INVERSES,
    Diagonal,
    Fold,
    Invert,
    Load,
    Place,
    Pool,
    Potrf,
    Product,
    Pull,
    Reconstruct,
    StepKind,
    Store,
    StreamKind,
    Trsm,
    step_key,
)
from ooc_chol.tasks.panels import Panel
from ooc_chol.tasks.tiling import Index
from ooc_chol.tasks.windows import Window, whole_triangle

#: Streams on which rows are finished, one row after the other on each: one row alone is a chain that leaves a GPU half idle.
FINISHING = (StreamKind.FINISH, StreamKind.FINISH_1, StreamKind.FINISH_2)

# Names of their own for what nearly every step needs: to look up a member of an enumeration takes a tenth of a microsecond.
_GENERATE, _FETCH, _COMPUTE, _WRITE = StepKind.GENERATE, StepKind.FETCH, StepKind.COMPUTE, StepKind.WRITE
_ON_COMPUTE, _COPY_OUT, _SOURCE, _EXCHANGE = StreamKind.COMPUTE, StreamKind.COPY_OUT, StreamKind.SOURCE, StreamKind.EXCHANGE
_TILE = Pool.TILE
_INVERSES = [Place(Pool.INVERSE, slot) for slot in range(INVERSES)]
_new_tuple = tuple.__new__


@dataclass
class _Sums:
    """An accumulator in the making: terms of its sums since a step folded them, as if all products were exact."""

    place: Place
    terms: int = 0

    def copy(self) -> _Sums:
        """One to go on with, for one tile column."""
        return _Sums(self.place, self.terms)

    @property
    def is_empty(self) -> bool:
        """True if nothing was added yet."""
        return not self.terms


class _Swept(NamedTuple):
    """A row after its long products: what is needed to finish it."""

    device: DeviceStrips
    row: int
    columns: range
    sums: _Sums


@final
class ResiduePrograms:
    """Makes the programs of all devices of a factorization through residues.

    Steps of all devices are planned in one order in which each depends on earlier ones only, so that the devices cannot wait on
    each other for ever. ``source_itemsize`` is None when a tile function makes A on the device; ``stored_bytes`` are those of a
    tile of L in its store. ``beside`` each other rows are finished on streams of their own. ``given`` tiles of L are in the store
    from the start; of a ``window`` only the tiles are made.
    """

    def __init__(
        self,
        schedule: Schedule[Job],
        owners: Sequence[int],
        panels: Sequence[Panel],
        layout: ResidueLayout,
        *,
        source_itemsize: int | None,
        stored_bytes: Callable[[Index], int],
        beside: bool = True,
        given: frozenset[Index] = frozenset(),
        window: Window | None = None,
    ) -> None:
        self._grid = grid = schedule.grid
        self._made = window or whole_triangle(grid.nt)
        self._owners = owners
        self._panels = panels
        self._layout, self._flops_factor = layout, layout.fmt.flops_factor
        self._source_itemsize = source_itemsize
        self._stored_bytes = cache(stored_bytes)  # of a tile they are asked for whenever it is fetched
        self._finishing = FINISHING if beside else (StreamKind.COMPUTE,)
        self._converting = StreamKind.CONVERT if beside else StreamKind.COMPUTE
        self._preparing = StreamKind.EXCHANGE if beside else StreamKind.COMPUTE
        self._jobs = schedule.tasks
        self._numbers = [{job: at for at, job in enumerate(jobs)} for jobs in self._jobs]
        self._devices = [
            DeviceStrips(ProgramBuilder(device, layout), layout, uses_of(jobs, panels, layout.chunk))
            for device, jobs in enumerate(self._jobs)
        ]
        self._strips = StripMoves(
            grid,
            layout,
            owners,
            devices=self._devices,
            stored_bytes=self._stored_bytes,
            converting=self._converting,
            given=given,
        )
        self._diagonals_read: list[dict[int, int]] = [{} for _ in self._devices]  # positions of the loads, by row

    def programs(self) -> tuple[Program, ...]:
        """The programs of all devices."""
        for device in self._devices:
            self._scale_rows(device)
        for number, panel in enumerate(self._panels):
            own = range(panel.k0, panel.k0 + panel.width)
            following = self._panels[number + 1] if number + 1 < len(self._panels) else None
            for device in self._devices:
                device.begin(panel, following)
            jobs = [(self._owners[row], Job(number, row)) for row in own]
            self._run_jobs([(device, job) for device, job in jobs if job in self._numbers[device]])
            self._run_rows_below(number, following)
            for device in self._devices:
                for place in device.diagonal.values():
                    device.builder.give(place)
                device.diagonal.clear()
        return tuple(device.builder.build() for device in self._devices)

    def _run_rows_below(self, number: int, following: Panel | None) -> None:
        """The rows below a panel's own: those of the next panel on all devices, and then, while these are copied, the rest."""
        end = self._panels[number].k0 + self._panels[number].width
        behind = end if following is None else end + following.width
        near, rest = (
            [[job for job in jobs if job.panel == number and job.row in rows] for jobs in self._jobs]
            for rows in (range(end, behind), range(behind, self._made.rows.stop))
        )
        if len(self._devices) == 1:  # nobody else makes what is copied: the rows need no border between them
            near, rest = [[]], [near[0] + rest[0]]
        for at, jobs in enumerate(near):
            self._run_jobs([(at, job) for job in jobs])
        for at, jobs in enumerate(rest):
            self._run_jobs([(at, job) for job in jobs], self._pulls_ahead(self._devices[at], end))

    def _pulls_ahead(self, device: DeviceStrips, end: int) -> list[Callable[[], object]]:
        """Copies of the next panel's strips from other devices, where ``device`` has room for that panel beside this one.

        Their rows are final up to column ``end`` once the rows of the next panel are done. At that panel's start the copies would
        stand behind what its own rows hand to each other: those of one device seem to queue, whatever their stream.
        """
        ahead: list[Callable[[], object]] = []
        if device.next_panel is None:
            return ahead
        for row in range(device.next_panel.k0, device.next_panel.k0 + device.next_panel.width):
            holder = self._devices[self._owners[row]]
            for chunk, first in enumerate(range(0, end, self._layout.chunk)):
                strip, depth = Strip(row, chunk), min(self._layout.chunk, end - first)
                if holder is not device and holder.valid.get(strip, 0) >= depth:
                    ahead.append(
                        partial(
                            self._strips.ensure,
                            device,
                            strip,
                            depth=depth,
                            needed=partial(_strips_of, [row], chunk),
                            copies=StreamKind.PEER,
                        )
                    )
        return ahead

    def _scale_rows(self, device: DeviceStrips) -> None:
        """Exponents of all rows that are met, from the diagonal tiles of A; a device needs those of all columns."""
        for row in self._made.met_rows:
            self._diagonals_read[device.builder.device][row] = device.builder.position
            place = self._load_a(device, (row, row), self._converting)
            work = Diagonal(place)
            key = tile_key((row, row), 0)
            device.builder.add(StepKind.COMPUTE, self._converting, key, work, reads=(place,), writes=(ROWS,))
            device.builder.give(place)

    def _run_jobs(self, jobs: Sequence[tuple[int, Job]], ahead: Sequence[Callable[[], object]] = ()) -> None:
        """Sweep each row before the one above it is finished: what a sweep fetches is enqueued while others are finished.

        The steps that ``ahead`` adds are spread evenly over the rows.
        """
        swept: _Swept | None = None
        if not jobs:
            for add in ahead:
                add()
        for at, (number, job) in enumerate(jobs):
            for add in ahead[at * len(ahead) // len(jobs) : (at + 1) * len(ahead) // len(jobs)]:
                add()
            latest = self._sweep_row(number, job)
            if swept is not None:
                self._finish_row(swept)
            swept = latest
        if swept is not None:
            self._finish_row(swept)

    def _sweep_row(self, number: int, job: Job) -> _Swept:
        """The long products of one tile row of one panel."""
        device, panel, row = self._devices[number], self._panels[job.panel], job.row
        device.now = self._numbers[number][job]
        columns = range(panel.k0, min(row + 1, panel.k0 + panel.width))
        accumulator = device.builder.take(Pool.ACCUMULATOR)
        swept = _Swept(device, row, columns, sums=_Sums(accumulator))
        self._sweep(swept)
        device.unfinished.add(Strip(row, panel.k0 // self._layout.chunk))
        return swept

    def _finish_row(self, swept: _Swept) -> None:
        """The tiles of a row made final one after the other."""
        device, row, columns = swept.device, swept.row, swept.columns
        stream = self._finishing[device.rows_finished % len(self._finishing)]
        device.rows_finished += 1
        for column in columns:
            self._finish_tile(swept, column, stream)
        device.unfinished.discard(Strip(row, columns.start // self._layout.chunk))
        device.builder.give(swept.sums.place)

    def _sweep(self, swept: _Swept) -> None:
        """``S[row, c] = sum_k q_row,k q_ck`` over all k before the panel."""
        device, row, columns = swept.device, swept.row, swept.columns
        k0, chunk = columns.start, self._layout.chunk
        for q in range(-(-k0 // chunk)):
            depth = min(chunk, k0 - q * chunk)
            needed = partial(_strips_of, [row, *columns], q)
            ensure = partial(self._strips.ensure, device, depth=depth, needed=needed, copies=StreamKind.PEER)
            left = ensure(Strip(row, q))
            rights = [left if c == row else ensure(Strip(c, q)) for c in columns]
            self._multiply(swept, columns, left, rights, depth=range(depth), base=q * chunk, stream=_ON_COMPUTE, sums=swept.sums)

    def _multiply(
        self,
        swept: _Swept,
        columns: range,
        left: int,
        rights: Sequence[int],
        *,
        depth: range,
        base: int,
        stream: StreamKind,
        sums: _Sums,
    ) -> None:
        """The products of strip ``left`` with those of ``columns`` over ``depth`` of a chunk from tile column ``base`` on.

        Sums that products do not fold are folded before int32 overflows.
        """
        row, k0, terms = swept.row, swept.columns.start, len(depth) * self._grid.nb
        if sums.terms + terms > MOST_TERMS and not self._layout.folds:
            self._fold(
                swept.device,
                (row, columns.start),
                at=columns.start - k0,
                count=len(columns),
                accumulator=sums.place,
                stream=stream,
            )
            sums.terms = self._layout.basis.moduli[0]
        for first, count in runs(rights, row in columns):
            column = columns[first]
            work = Product(
                accumulator=sums.place.slot,
                column=column - k0,
                n_columns=count,
                left=left,
                right=rights[first],
                start=depth.start,
                stop=depth.stop,
                accumulates=sums.terms > 0,
                lower=row == column,
                k=base + depth.start,
            )
            self._product(swept.device, (row, column), work, sums=sums.place, stream=stream)
        sums.terms += terms

    def _product(self, device: DeviceStrips, tile: Index, work: Product, *, sums: Place, stream: StreamKind) -> None:
        """One product of a strip with neighbouring ones; ``tile`` is the first that it adds to."""
        (row, column), grid = tile, self._grid
        rows, inner = grid.size(row), (work.stop - work.start) * grid.nb
        columns = grid.columns(column, work.n_columns)
        counted = self._flops_factor * (rows * rows * inner if work.lower else 2 * rows * columns * inner)
        slots = dict.fromkeys((work.left, *range(work.right, work.right + work.n_columns)))
        reads, extent = tuple([device.places[slot] for slot in slots]), (work.start, work.stop)
        device.builder.add(_COMPUTE, stream, tile_key(tile, 0), work, flops=counted, reads=reads, writes=(sums,), columns=extent)

    def _fold(self, device: DeviceStrips, tile: Index, *, at: int, count: int, accumulator: Place, stream: StreamKind) -> None:
        """Keep the int32 sums of ``count`` tile columns, ``tile``'s the first, from overflowing."""
        work = Fold(accumulator.slot, at, count)
        device.builder.add(_COMPUTE, stream, tile_key(tile, 0), work, writes=(accumulator,))

    def _finish_tile(self, swept: _Swept, column: int, stream: StreamKind) -> None:
        """``A[row, column] - S``, then POTRF or TRSM, its residues, and its way to the store."""
        device, row, k0 = swept.device, swept.row, swept.columns.start
        builder, chunk, sums = device.builder, self._layout.chunk, swept.sums.copy()
        if column > k0:
            strip, base = Strip(row, k0 // chunk), k0 // chunk * chunk
            needed = partial(_strips_of, [row, *range(k0, column + 1)], strip.chunk)
            ensure = partial(self._strips.ensure, device, depth=column - base, needed=needed, copies=_EXCHANGE)
            left = ensure(strip)
            right = left if row == column else ensure(Strip(column, strip.chunk))
            inside = range(k0 - base, column - base)
            self._multiply(swept, range(column, column + 1), left, [right], depth=inside, base=base, stream=stream, sums=sums)
        tile = row, column
        place, final = self._load_a(device, tile, stream), tile_key(tile, column + 1)
        if not sums.is_empty:
            work = Reconstruct(sums.place.slot, column - k0, place)
            builder.add(_COMPUTE, stream, tile_key(tile, column), work, reads=(sums.place, ROWS), writes=(place,))
        if row == column:
            self._potrf(device, final, place, stream)
            self._write(device, final, place)
        else:
            self._trsm(device, final, place, stream)
            self._keep(device, final, place, stream)
            self._write(device, final, place)
            builder.give(place)

    def _load_a(self, device: DeviceStrips, tile: Index, stream: StreamKind) -> Place:
        """Bring a tile of A, or make it on the stream of its row: rows that are finished at once must not wait for each other."""
        place, builder = device.builder.take(_TILE), device.builder
        work: Load = _new_tuple(Load, (place,))
        if self._source_itemsize is None:
            builder.add(_GENERATE, stream, tile_key(tile, 0), work, writes=(place,))
        else:
            nbytes = self._source_itemsize * self._grid.entries(*tile)
            builder.add(_FETCH, _SOURCE, tile_key(tile, 0), work, nbytes=nbytes, writes=(place,))
        return place

    def _potrf(self, device: DeviceStrips, key: BlockKey, place: Place, stream: StreamKind) -> None:
        """POTRF, and what TRSM needs of it; the diagonal tile stays until its panel is done."""
        column = key.coords[0]
        counted = self._flops_factor * flops(finish(column, column), self._grid)
        device.builder.add(_COMPUTE, stream, key, Potrf(place), flops=counted, writes=(place,))
        self._invert(device, column, place, stream)
        device.diagonal[column] = place

    def _invert(self, device: DeviceStrips, column: int, place: Place, stream: StreamKind) -> None:
        """Prepare TRSM with a diagonal tile."""
        if column + 1 == self._made.rows.stop:
            return
        inverse = _INVERSES[column % INVERSES]
        work, key = Invert(place, inverse.slot), tile_key((column, column), column + 1)
        device.builder.add(_COMPUTE, stream, key, work, reads=(place,), writes=(inverse,))

    def _trsm(self, device: DeviceStrips, key: BlockKey, place: Place, stream: StreamKind) -> None:
        """TRSM with the diagonal tile of its column, brought here if another device made it."""
        row, column = key.coords
        if column not in device.diagonal:
            self._bring_diagonal(device, column)
        diagonal, inverse = device.diagonal[column], _INVERSES[column % INVERSES]
        counted = self._flops_factor * flops(finish(row, column), self._grid)
        work: Trsm = _new_tuple(Trsm, (place, diagonal, column % INVERSES))
        device.builder.add(_COMPUTE, stream, key, work, flops=counted, reads=(diagonal, inverse), writes=(place,))

    def _bring_diagonal(self, device: DeviceStrips, column: int) -> None:
        """A diagonal tile from the device that made it, or from the store."""
        place, builder, tile = device.builder.take(Pool.TILE), device.builder, (column, column)
        holder = self._devices[self._owners[column]]
        if column in holder.diagonal:
            work = Pull(holder.builder.device, holder.diagonal[column], place, 0, 1)
            self._strips.pull(device, holder, tile, work, stream=StreamKind.EXCHANGE)
        else:
            key, nbytes = tile_key(tile, column + 1), self._stored_bytes(tile)
            builder.add(StepKind.FETCH, StreamKind.COPY_IN, key, Load(place), nbytes=nbytes, writes=(place,), awaits=(key,))
        device.diagonal[column] = place
        self._invert(device, column, place, self._preparing)

    def _keep(self, device: DeviceStrips, key: BlockKey, place: Place, stream: StreamKind) -> None:
        """Residues of a final tile: for the products inside the panel, and for later panels while there is room."""
        row, column = key.coords
        chunk = self._layout.chunk
        strip, base = Strip(row, column // chunk), column // chunk * chunk
        if strip not in device.slot or device.valid[strip] < column - base:
            self._strips.ensure(
                device, strip, depth=column - base, needed=partial(_strips_of, [row], strip.chunk), copies=_EXCHANGE
            )
        self._strips.convert(device, key, place, slot=device.slot[strip], column=column - base, stream=stream, is_first=True)
        device.valid[strip] = column - base + 1

    def _write(self, device: DeviceStrips, key: BlockKey, place: Place) -> None:
        """The final tile to its store, which may lie over A: a diagonal tile once every device has read that of A."""
        i, j = key.coords
        work, awaits = _new_tuple(Store, (place,)), []
        if i == j and self._source_itemsize is not None:
            others = [other.builder for other in self._devices if other is not device]
            for other in others:
                position = self._diagonals_read[other.device][i]
                other.announce(position)
                awaits.append(step_key(other.device, position))
        device.builder.add(_WRITE, _COPY_OUT, key, work, nbytes=self._stored_bytes((i, j)), reads=(place,), awaits=awaits)


def _strips_of(rows: Sequence[int], chunk: int) -> set[Strip]:
    """The strips of some rows in one chunk, which what is being planned needs."""
    return {Strip(row, chunk) for row in rows}
