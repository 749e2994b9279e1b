"""Strips of residues on devices: kept, moved, pulled from another device, or fetched from the store and converted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.dense.programs.residues.strips import DeviceStrips, Strip
from ooc_chol.dense.programs.steps import tile_key
from ooc_chol.interfaces import BlockKey
from ooc_chol.tasks.operations import Convert, Load, Place, Pool, Pull, StepKind, StreamKind
from ooc_chol.tasks.tiling import Index, TileGrid

#: What all conversions and reconstructions read: the exponents of the rows. Slot ``1 + i`` of the pool is the sums of tile row i.
ROWS = Place(Pool.ROWS, 0)

# Names of their own for what nearly every step needs: to look up a member of an enumeration takes a tenth of a microsecond.
_COMPUTE, _FETCH = StepKind.COMPUTE, StepKind.FETCH
_COPY_IN, _TRANSIT = StreamKind.COPY_IN, Pool.TRANSIT
_new_tuple = tuple.__new__


@dataclass(frozen=True, eq=False)
class StripMoves:
    """Adds the steps that bring strips to where products read them."""

    grid: TileGrid
    layout: ResidueLayout  #: Memory of each device
    owners: Sequence[int]  #: Device of each tile row
    devices: Sequence[DeviceStrips]  #: The strips of each device, and its program
    stored_bytes: Callable[[Index], int]  #: Bytes of a tile of L in its store and on a link
    converting: StreamKind  #: Stream on which tiles from the store are converted
    given: frozenset[Index]  #: Tiles of L that are in the store from the start
    # Given tiles whose squares are in the running sums of their rows.
    _counted: set[Index] = field(default_factory=set, init=False)
    _sums_of_rows: list[Place] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._sums_of_rows.extend(Place(Pool.ROWS, 1 + row) for row in range(self.grid.nt))

    def ensure(
        self, device: DeviceStrips, strip: Strip, *, depth: int, needed: Callable[[], set[Strip]], copies: StreamKind
    ) -> int:
        """Slot of ``strip``, its first ``depth`` tile columns valid: kept, pulled from its owner, or fetched and converted.

        Copies go on stream ``copies``: what long products need is complete before the panel starts, and must not stand behind
        what the panel's own rows are still to make.
        """
        home, slot = device.home(strip), device.slot.get(strip)
        if slot is not None and (home is None or slot == home) and device.valid[strip] >= depth:
            return slot
        if home is not None and device.slot.get(strip, home) != home:
            self._move_home(device, strip, home, copies)
        if strip not in device.slot:
            device.put(strip, device.loose_slot(needed()) if home is None else home)
        slot, have = device.slot[strip], device.valid[strip]
        if have < depth:
            holder = self.devices[self.owners[strip.row]]
            if holder is not device and holder.valid.get(strip, 0) >= depth:
                self._pull_strip(device, holder, strip, part=(have, depth), stream=copies)
            else:
                for column in range(have, depth):
                    self._fetch(device, strip, column)
            device.valid[strip] = depth
        return slot

    def convert(
        self, device: DeviceStrips, key: BlockKey, place: Place, *, slot: int, column: int, stream: StreamKind, is_first: bool
    ) -> None:
        """Convert a tile of L to residues, in one tile column of a strip."""
        row, _ = key.coords
        strip, columns = device.places[slot], (column, column + 1)
        work: Convert = _new_tuple(Convert, (place, slot, column, is_first))
        # sums[i] += squares of L[i, k], one tile after the other
        writes = (strip, self._sums_of_rows[row]) if is_first else (strip,)
        device.builder.add(_COMPUTE, stream, key, work, reads=(place, ROWS), writes=writes, columns=columns)

    def pull(self, device: DeviceStrips, holder: DeviceStrips, tile: Index, work: Pull, *, stream: StreamKind) -> None:
        """Copy from another device once it is made there; the slot there is written next only after this copy."""
        version, nbytes = tile[1] + 1, self.layout.fmt.itemsize * self.grid.entries(*tile)
        if work.place.pool is Pool.STRIP:
            version, nbytes = 0, self.layout.entry_bytes * self.grid.size(tile[0]) * (work.stop - work.start) * self.grid.nb
        awaits, columns = holder.builder.makers(work.source, work.stop), (work.start, work.stop)
        builder = device.builder
        position = builder.add(
            StepKind.PULL,
            stream,
            tile_key(tile, version),
            work,
            nbytes=nbytes,
            writes=(work.place,),
            columns=columns,
            awaits=awaits,
        )
        holder.builder.pulled(work.source, builder.device, stream, position)
        builder.announce(position)

    def _move_home(self, device: DeviceStrips, strip: Strip, home: int, stream: StreamKind) -> None:
        """Copy a strip that streamed through before to its place among the panel's own."""
        valid, source = device.valid[strip], device.places[device.slot[strip]]
        work = Pull(device.builder.device, source, device.places[home], 0, valid)
        where = strip.row, strip.chunk
        device.builder.add(_COMPUTE, stream, tile_key(where, 0), work, reads=(source,), writes=(work.place,), columns=(0, valid))
        device.loose.append(source.slot)
        device.slot[strip] = home

    def _fetch(self, device: DeviceStrips, strip: Strip, column: int) -> None:
        """Fetch one tile of L from the store and convert it."""
        builder, (row, chunk) = device.builder, strip
        k = chunk * self.layout.chunk + column
        tile, place = (row, k), builder.take(_TRANSIT)
        key, nbytes, work = tile_key(tile, k + 1), self.stored_bytes(tile), _new_tuple(Load, (place,))
        builder.add(_FETCH, _COPY_IN, key, work, nbytes=nbytes, writes=(place,), awaits=(key,))
        # The squares of a tile from an earlier run count when its row's device meets it first, before its row is finished.
        is_first = tile in self.given and self.devices[self.owners[row]] is device and tile not in self._counted
        if is_first:
            self._counted.add(tile)
        slot = device.slot[strip]
        self.convert(device, key, place, slot=slot, column=column, stream=self.converting, is_first=is_first)
        builder.give(place)

    def _pull_strip(
        self, device: DeviceStrips, holder: DeviceStrips, strip: Strip, *, part: tuple[int, int], stream: StreamKind
    ) -> None:
        """Copy tile columns of a strip from the device that holds it."""
        source, place = holder.places[holder.slot[strip]], device.places[device.slot[strip]]
        work = Pull(holder.builder.device, source, place, *part)
        self.pull(device, holder, (strip.row, strip.chunk), work, stream=stream)
