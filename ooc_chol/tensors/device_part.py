"""One device of a tensor: what it keeps, the slots through which the rest passes, and what is enqueued there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractEvent, AbstractStream, AbstractTier, BlockIndex, Tile, Turns
from ooc_chol.kernels.interfaces.tensors import PanelSlices, Slices, TensorDevice
from ooc_chol.runtime.passes import BlockNames, Moment, Pass, finish
from ooc_chol.sparse.panels import bring_panel
from ooc_chol.sparse.products import interleaved
from ooc_chol.tensors.plan import TensorPlan
from ooc_chol.tensors.share import TensorShare
from ooc_chol.tensors.storage import GivenPanels, HostBlocks, HostParts

#: Names of streams in a trace.
_COMPUTES, _BRINGS, _SENDS = "compute", "copy-in", "copy-out"
#: Panels whose kernels are captured at most: each capture takes some memory of the device beside the budget.
_MOST_CAPTURED = 512
#: What is done with a group: its number, its slices (s, m, n), and what their thresholds begin with.
UseGroup: TypeAlias = Callable[["TensorPart", int, Slices, Tile | None], Turns]


class PanelTiles(NamedTuple):
    """A panel on a device."""

    z: Tile  #: (r, w) Of the transform, in a slot, or in its own place where the device keeps all slices
    x: Tile  #: (N, w) Of the tensor, in the same slot or in its own place
    mask: Tile  #: (N,) or (N, w)
    estimate: Tile  #: (N, w) Room for U Z
    sums: Tile  #: (2,)


@final
class TensorPart:
    """The memory of one device, and work on it; whoever calls has made the device current."""

    def __init__(self, device: TensorDevice, plan: TensorPlan, share: TensorShare, host: HostParts, run: Pass) -> None:
        self.device, self.share, self._plan, self._problem, self._host = device, share, plan, plan.problem, host
        specs = share.arrays
        arena = device.allocate(0, share.staging_bytes, plan.problem.shape.vertices, list(specs.values()))
        self._arrays: dict[str, Tile] = dict(zip(specs, arena.arrays, strict=True))
        self.computing: AbstractStream = device.create_stream(_COMPUTES)
        self.copying: AbstractStream = device.create_stream(_BRINGS)
        self.sending: AbstractStream = device.create_stream(_SENDS)
        self.track = run.track(device.name, BlockNames("X", plan.tier, copying=(_BRINGS, _SENDS)))
        self.track.resident_bytes = share.peak_bytes
        self._slot_parts, self._slot_bytes = share.slot_parts()
        #: What must be over before a slot is filled again.
        self._used: list[list[AbstractEvent]] = [[] for _ in range(share.ring_slots)]
        self._arrived: dict[int, AbstractEvent] = {}  # behind the copies into each slot
        # Of copies from and to other devices, under way and over, whose seconds are looked at once devices work again.
        self._exchanges: list[tuple[AbstractEvent, AbstractEvent]] = []
        self._exchanged: list[tuple[AbstractEvent, AbstractEvent]] = []
        self.copied: dict[str, int] = {}  #: Bytes by links
        #: What enqueues a step of a panel in a slot, by both and the momentum; None after the first one.
        self._captured: dict[tuple[int, int, float], Callable[[], None] | None] = {}
        self._exchanged_tiles: dict[tuple[int, int], list[tuple[TensorPart, Tile, Tile]]] = {}
        self._panels_seen: dict[tuple[int, int], PanelTiles] = {}  # by slots; kept, since slicing takes longer than looking up
        self._kept_seen: dict[int, Tile] = {}

    @property
    def streams(self) -> tuple[AbstractStream, ...]:
        """All of them."""
        return self.computing, self.copying, self.sending

    def meet(self) -> AbstractEvent:
        """An event behind all that the streams of the device have been given."""
        for stream in (self.copying, self.sending):
            self.computing.wait(stream.record())
        return self.computing.record()

    def kept_panel(self, panel: int) -> Tile:
        """A panel (s, w) of the slices that stay on the device."""
        if panel not in self._kept_seen:
            rows, columns = len(self.share.kept_slices), self._problem.columns(panel)
            own = self._arrays["kept_slices"][rows * columns.start : rows * columns.stop]
            self._kept_seen[panel] = own.reshape(rows, -1)
        return self._kept_seen[panel]

    def _slot(self, slot: int, name: str, shape: tuple[int, ...]) -> Tile:
        """A part of a slot, seen in the shape of what is there."""
        offset, spec = self._slot_parts[name]
        at = slot * self._slot_bytes + offset
        entries = 1
        for length in shape:
            entries *= length
        return self._arrays["ring"][at : at + entries * spec.dtype.itemsize].view(spec.dtype).reshape(shape)

    # groups of slices

    def over_groups(self, use: UseGroup, *, with_warm: bool) -> Turns:
        """Enqueue: use all groups. Those that pass are brought, and returned if what their thresholds begin with is, too."""
        groups, kept = self.share.groups, self.share.kept_groups
        passing = [(group,) for group in groups[kept:]]
        order = interleaved(passing, [(group,) for group in groups[:kept]])
        brought, used = 0, 0
        for (group,) in order:
            if group in groups[:kept]:
                yield from use(self, group, *self._kept_group(group))
                continue
            while brought < min(len(passing), used + len(self._used)):
                self._bring_group(passing[brought][0], brought % len(self._used), with_warm=with_warm)
                brought += 1
            slot, used = used % len(self._used), used + 1
            slices, warm = self._passing_group(group, slot)
            self.computing.wait(self._arrived[slot])
            yield from use(self, group, slices, warm)
            self._send_group(group, slot, is_changed=with_warm)

    def _bring_group(self, group: int, slot: int, *, with_warm: bool) -> None:
        self._free(slot)
        rows, (slices, warm) = self._problem.slices(range(group, group + 1)), self._passing_group(group, slot)
        width = self._problem.shape.width
        self._bring(self._host.z_tier, (rows.start, rows.stop, 0, width), slices.reshape(len(rows), -1), f"slices {group}")
        if warm is not None and with_warm:
            self._bring(self._host.warm_tier, (rows.start, rows.stop), warm.reshape(len(rows), -1), f"warm start {group}")
        self._arrive(slot)

    def _send_group(self, group: int, slot: int, *, is_changed: bool) -> None:
        done = self.computing.record()
        if not is_changed:
            self._used[slot] = [done]
            return
        rows, (slices, warm) = self._problem.slices(range(group, group + 1)), self._passing_group(group, slot)
        self.sending.wait(done)
        index = (rows.start, rows.stop, 0, self._problem.shape.width)
        self._send(slices.reshape(len(rows), -1), self._host.z_tier, index, f"slices {group}")
        if warm is not None:
            self._send(warm.reshape(len(rows), -1), self._host.warm_tier, (rows.start, rows.stop), f"warm start {group}")
        self._used[slot] = [self.sending.record()]

    def _passing_group(self, group: int, slot: int) -> tuple[Tile, Tile | None]:
        shape, count = self._problem.shape, len(self._problem.slices(range(group, group + 1)))
        slices = self._slot(slot, "slices", (count, shape.rows, shape.columns))
        return slices, self._slot(slot, "warm", self._warm_shape(count)) if self._problem.warm_entries else None

    def _kept_group(self, group: int) -> tuple[Slices, Tile | None]:
        own, kept = self._own(group), len(self.share.kept_slices)
        rows = range(own.start, own.stop)
        slices = PanelSlices(self._arrays["kept_slices"], kept, self._problem.columns_of(range(1)), own.start, len(rows))
        if not self._problem.warm_entries:
            return slices, None
        return slices, self._arrays["kept_warm"][own].reshape(self._warm_shape(len(rows)))

    def _warm_shape(self, count: int) -> tuple[int, int, int]:
        order = self._problem.shape.order
        return count, order, self._problem.warm_entries // order

    def counts(self, group: int) -> tuple[Tile, Tile]:
        """Ranks and flags of the slices of a group."""
        rows, counts = self._own(group), self._arrays["counts"]
        return counts[0, rows], counts[1, rows]

    def norms(self, group: int) -> Tile:
        """Norms of the slices of a group."""
        return self._arrays["norms"][self._own(group), 0]

    def _own(self, group: int) -> slice:
        rows, first = self._problem.slices(range(group, group + 1)), self.share.slices.start
        return slice(rows.start - first, rows.stop - first)

    # panels of columns

    def over_panels(self, parts: Sequence[TensorPart], momentum: float) -> Turns:
        """Enqueue: transform each panel back, fill in its missing entries, and transform it."""
        entries = self._arrays["basis"].size
        for panel, tiles, slot in self._panels(lambda panel, slot: self._bring_panel(panel, slot, parts)):
            begun = self.track.now(self.computing)
            self._step_panel(panel, slot, tiles, momentum)
            self.tell_work(begun, f"panel {panel}", 4 * entries * tiles.x.shape[1])
            self._send_panel(panel, slot, tiles, parts, with_x=True)
            yield None

    def _step_panel(self, panel: int, slot: int, tiles: PanelTiles, momentum: float) -> None:
        """Enqueue a step of a panel: its kernels are captured when it comes to the same slot again."""
        key = panel, slot, momentum
        enqueue = self._captured.get(key)
        if enqueue is None:
            enqueue = partial(self._transform_and_fill, tiles, momentum)
            if key in self._captured:
                enqueue = self._captured[key] = self.device.captured(self.computing, enqueue)
            elif len(self._captured) < _MOST_CAPTURED:
                self._captured[key] = None
        enqueue()

    def _transform_and_fill(self, tiles: PanelTiles, momentum: float) -> None:
        """Enqueue the kernels of a step of a panel."""
        kernels, basis = self.device.kernels, self._arrays["basis"]
        kernels.transform(self.computing, basis, tiles.z, tiles.estimate, inverse=True)
        # What is observed is in X already, and stays.
        kernels.fill(self.computing, tiles.estimate, tiles.x, tiles.mask, tiles.x, tiles.sums, momentum=momentum)
        kernels.transform(self.computing, basis, tiles.x, tiles.z)

    def over_given(self, parts: Sequence[TensorPart], given: GivenPanels, *, with_mask: bool) -> Turns:
        """Enqueue: bring each panel of what a caller gave, and transform it."""
        kernels, basis = self.device.kernels, self._arrays["basis"]
        for panel, tiles, slot in self._panels(lambda panel, slot: self._bring_given(panel, slot, given, with_mask=with_mask)):
            begun = self.track.now(self.computing)
            kernels.transform(self.computing, basis, tiles.x, tiles.z)
            self.tell_work(begun, f"transform {panel}", 2 * basis.size * tiles.x.shape[1])
            self._send_panel(panel, slot, tiles, parts, with_x=False)
            yield None

    def _panels(self, bring: Callable[[int, int], None]) -> Iterator[tuple[int, PanelTiles, int]]:
        """Panels in order with their slots: what they need is on its way as far ahead as the ring has room."""
        panels, kept, slots = self.share.panels, self.share.kept_panels, len(self._used)
        order = interleaved([(panel,) for panel in panels[kept:]], [(panel,) for panel in panels[:kept]])
        brought = 0
        for number, (panel,) in enumerate(order):
            while brought < min(len(order), number + slots):
                self._free(brought % slots)
                bring(order[brought][0], brought % slots)
                self._arrive(brought % slots)
                brought += 1
            self.computing.wait(self._arrived[number % slots])
            yield panel, self._tiles(panel, number % slots), number % slots

    def _is_kept(self, panel: int) -> bool:
        return panel in self.share.panels[: self.share.kept_panels]

    def _tiles(self, panel: int, slot: int) -> PanelTiles:
        if (panel, slot) not in self._panels_seen:
            self._panels_seen[panel, slot] = self._see(panel, slot)
        return self._panels_seen[panel, slot]

    def _see(self, panel: int, slot: int) -> PanelTiles:
        shape, width = self._problem.shape, self._problem.columns_of(range(panel, panel + 1))
        of_x, by_entry = (shape.vertices, width), self._problem.mask == "entries"
        z = self.kept_panel(panel) if self.share.has_all_slices else self._slot(slot, "z", (shape.components, width))
        estimate = self._arrays["estimate"][: shape.vertices * width].reshape(of_x)
        sums = self._arrays["sums"][panel - self.share.panels.start]
        if self._is_kept(panel):
            x, mask = self._kept("kept_x", panel), self._kept("kept_mask", panel) if by_entry else self._arrays["mask"]
        else:
            x, mask = self._slot(slot, "x", of_x), self._slot(slot, "mask", of_x) if by_entry else self._arrays["mask"]
        return PanelTiles(z, x, mask, estimate, sums)

    def _kept(self, name: str, panel: int) -> Tile:
        """A panel that stays, (N, w)."""
        height, width = self._problem.shape.vertices, self._problem.columns_of(range(panel, panel + 1))
        at = height * self._problem.columns_of(range(self.share.panels.start, panel))
        return self._arrays[name][at : at + height * width].reshape(height, width)

    def _bring_panel(self, panel: int, slot: int, parts: Sequence[TensorPart]) -> None:
        tiles, columns = self._tiles(panel, slot), self._problem.columns(panel)
        with self._exchanging(self.copying, parts):
            for part, theirs, ours in self._exchanged_with(parts, panel, slot):
                self._copy(self.copying, _BRINGS, theirs, ours, (part, self), f"pull panel {panel}")
        for rows in self._plan.passing_slices:
            if rows:
                index = (rows.start, rows.stop, columns.start, columns.stop)
                self._bring(self._host.z_tier, index, tiles.z[rows.start : rows.stop], f"transform {panel}")
        if not self._is_kept(panel):
            self._bring(self._host.x_tier, (panel,), tiles.x, f"tensor {panel}")
            if self._problem.mask == "entries":
                self._bring_mask(self._host.mask_tier, (panel,), tiles.mask, f"mask {panel}")

    def _bring_given(self, panel: int, slot: int, given: GivenPanels, *, with_mask: bool) -> None:
        tiles = self._tiles(panel, slot)
        if not self._is_kept(panel):
            self._bring(self._host.x_tier, (panel,), tiles.x, f"tensor {panel}")
            return
        self._bring(given, (panel,), tiles.x, f"tensor {panel}")
        if with_mask and self._problem.mask == "entries":
            self._bring_mask(given, (panel,), tiles.mask, f"mask {panel}")

    def _send_panel(self, panel: int, slot: int, tiles: PanelTiles, parts: Sequence[TensorPart], *, with_x: bool) -> None:
        """Return the transform of a panel to where its slices are, and what changed of X."""
        columns = self._problem.columns(panel)
        self.sending.wait(self.computing.record())
        with self._exchanging(self.sending, parts):
            for part, theirs, ours in self._exchanged_with(parts, panel, slot):
                self._copy(self.sending, _SENDS, ours, theirs, (self, part), f"push panel {panel}")
        for rows in self._plan.passing_slices:
            if rows:
                index = (rows.start, rows.stop, columns.start, columns.stop)
                self._send(tiles.z[rows.start : rows.stop], self._host.z_tier, index, f"transform {panel}")
        if with_x and not self._is_kept(panel):
            self._send(tiles.x, self._host.x_tier, (panel,), f"tensor {panel}")
        self._used[slot] = [self.sending.record()]

    def _exchanged_with(self, parts: Sequence[TensorPart], panel: int, slot: int) -> list[tuple[TensorPart, Tile, Tile]]:
        """Devices whose slices of a panel lie elsewhere than the panel, these slices, and the rows of the panel for them."""
        if (panel, slot) not in self._exchanged_tiles:
            z = self._tiles(panel, slot).z
            number = parts.index(self)  # the next device comes first: where all began with one, its link would be shared
            ordered = [*parts[number:], *parts[:number]]
            kept = [(part, part.share.kept_slices) for part in ordered if not (part is self and self.share.has_all_slices)]
            found = [(part, part.kept_panel(panel), z[rows.start : rows.stop]) for part, rows in kept if rows]
            self._exchanged_tiles[panel, slot] = found
        return self._exchanged_tiles[panel, slot]

    @contextmanager
    def _exchanging(self, stream: AbstractStream, parts: Sequence[TensorPart]) -> Iterator[None]:
        """Note when copies from or to other devices began and ended, which a block enqueues."""
        begun = stream.record() if len(parts) > 1 else None
        yield
        if begun is not None:
            self._exchanges.append((begun, stream.record()))

    # slots

    def _free(self, slot: int) -> None:
        """Let copies into a slot wait for its last use."""
        for event in self._used[slot]:
            self.copying.wait(event)
        self._used[slot] = []

    def _arrive(self, slot: int) -> None:
        self._arrived[slot] = self.copying.record()

    # copies

    def _bring(self, tier: AbstractTier, index: BlockIndex, tile: Tile, label: str) -> None:
        begun = self.track.now(self.copying)
        self.device.copy_in(self.copying, tier, index, tile)
        self._tell_copy("fetch", _BRINGS, self.copying, begun, tile, f"{self._plan.tier}->{self.device.name}", label)

    def _bring_mask(self, tier: AbstractTier, index: BlockIndex, tile: Tile, label: str) -> None:
        begun = self.track.now(self.copying)
        self.device.copy_stored(self.copying, tier, index, tile.reshape(-1))
        self._tell_copy("fetch", _BRINGS, self.copying, begun, tile, f"{self._plan.tier}->{self.device.name}", label)

    def _send(self, tile: Tile, tier: AbstractTier, index: BlockIndex, label: str) -> None:
        begun = self.track.now(self.sending)
        self.device.copy_out(self.sending, tile, tier, index)
        self._tell_copy("write", _SENDS, self.sending, begun, tile, f"{self.device.name}->{self._plan.tier}", label)

    def _copy(
        self, stream: AbstractStream, name: str, source: Tile, target: Tile, ends: tuple[TensorPart, TensorPart], label: str
    ) -> None:
        """Copy from one device to another, of which one is this: over a link if the other is not."""
        begun = self.track.now(stream)
        self.device.copy_between(stream, source, target)
        if ends[0] is not ends[1]:
            self._tell_copy("pull", name, stream, begun, target, f"peer->{ends[1].device.name}", label)

    def _tell_copy(
        self, kind: str, name: str, stream: AbstractStream, begun: Moment | None, tile: Tile, link: str, label: str
    ) -> None:
        self.copied[link] = self.copied.get(link, 0) + tile.nbytes
        if self.track.now() is not None:
            span = (begun, stream.record())
            self.track.ran(kind, (), name, span, nbytes=tile.nbytes, fmt=tile.dtype.name, link=link, label=f"{kind} {label}")

    def tell_work(self, begun: Moment | None, label: str, flops: int = 0) -> None:
        """Tell a trace what was enqueued on the computing stream since a moment."""
        if begun is not None:
            self.track.ran("compute", (), _COMPUTES, (begun, self.computing.record()), flops=flops, label=label)

    # numbers of the host

    def bring_basis(self, basis: NDArray[Any]) -> None:
        """Enqueue: the eigenvectors."""
        bring_panel(self.device, self.copying, basis, 0, self._arrays["basis"], self.share.staging_bytes)
        link = f"{self._plan.tier}->{self.device.name}"
        self.copied[link] = self.copied.get(link, 0) + self._arrays["basis"].nbytes

    def bring_slice_mask(self, mask: NDArray[np.uint8]) -> None:
        """Enqueue: which slices are observed."""
        tier = HostBlocks("array", mask, partial(_whole, mask))
        self._bring_mask(tier, (0,), self._arrays["mask"], "mask")

    def bring_warm(self, given: NDArray[np.float64]) -> None:
        """Enqueue: what thresholds of kept slices begin with, (r, d c)."""
        if "kept_warm" not in self._arrays:
            return
        tier, first = HostBlocks("array", given, lambda index: given[index[0] : index[1]]), self.share.slices.start
        for group in self.share.groups[: self.share.kept_groups]:
            rows = self._problem.slices(range(group, group + 1))
            tile = self._arrays["kept_warm"][rows.start - first : rows.stop - first]
            self.device.copy_in(self.copying, tier, (rows.start, rows.stop), tile)

    def clear_warm(self) -> None:
        """Enqueue: thresholds of kept slices begin with zeros, which cross the link for one group."""
        if "kept_warm" not in self._arrays:
            return
        warm, most = self._arrays["kept_warm"], self._problem.group
        zeros = np.broadcast_to(np.float64(0), (min(most, len(warm)), warm.shape[1]))
        self._bring(HostBlocks("array", zeros, partial(_whole, zeros)), (0,), warm[:most], "warm start")
        for at in range(most, len(warm), most):
            part = warm[at : at + most]
            self.device.copy_between(self.copying, warm[: len(part)], part)

    def take_warm(self, out: NDArray[np.float64]) -> None:
        """Enqueue: rows of ``out`` (r, d c) become what the thresholds of kept slices begin with."""
        tier, first = HostBlocks("array", out, lambda index: out[index[0] : index[1]]), self.share.slices.start
        for group in self.share.groups[: self.share.kept_groups]:
            rows = self._problem.slices(range(group, group + 1))
            tile = self._arrays["kept_warm"][rows.start - first : rows.stop - first]
            self.device.copy_out(self.sending, tile, tier, (rows.start, rows.stop))

    def take(self, rows: range, out: NDArray[Any]) -> None:
        """Enqueue: columns of ``out`` become rows of the panels that stay on the device."""
        for panel in self.share.panels[: self.share.kept_panels]:
            columns = self._problem.columns(panel)
            tier = HostBlocks("array", out, partial(_whole, out[:, columns]))
            self.device.copy_out(self.sending, self._kept("kept_x", panel)[rows.start : rows.stop], tier, (panel,))

    def read(self, name: str, out: NDArray[Any]) -> None:
        """Enqueue: an array of the host becomes one of the device's small ones, bit by bit."""
        if name not in self._arrays:
            return
        tile = self._arrays[name]
        seen, target = (tile.view(np.float32), out.view(np.float32)) if tile.dtype == np.int32 else (tile, out)
        self._send(seen, HostBlocks("array", target, partial(_whole, target)), (0,), name)

    def settle(self) -> None:
        """All copies from and to other devices are over."""
        self._exchanged, self._exchanges = self._exchanges, []

    def exchange_seconds(self) -> float:
        """Seconds of the copies from and to other devices that were over at the last :meth:`settle`."""
        found = sum(ended.time_ns() - begun.time_ns() for begun, ended in self._exchanged) / 1e9
        self._exchanged.clear()
        return found

    def forget(self) -> None:
        """Let go of the device's memory, which arrays would keep; nothing is done any more."""
        self._arrays.clear()
        self._panels_seen.clear()
        self._kept_seen.clear()
        self._captured.clear()
        self._exchanged_tiles.clear()

    def finish(self) -> None:
        """Wait for all streams; raise what went wrong on the way."""
        finish(self.device, self.streams)


def _whole(array: NDArray[Any], index: BlockIndex) -> NDArray[Any]:
    """An array that is one block."""
    return array
