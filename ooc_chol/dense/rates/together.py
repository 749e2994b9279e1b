"""Measure one or more devices of a machine: kernels on the first, copies on all at once, since those share the host's memory.

One thread enqueues for all devices, as in a factorization: threads that share the interpreter lock would measure how long they
wait for it (with four GPUs: TRSM at tiles of 2048 took six times as long as on one).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from ooc_chol.config import whole_pages
from ooc_chol.dense.rates.kernels import measure_kernels, measure_typed_kernels
from ooc_chol.dense.rates.links import link_tiers, measure_links
from ooc_chol.dense.rates.opened import OpenedDevice, set_up
from ooc_chol.dense.rates.residues import ResidueShapes, measure_pull, measure_residues
from ooc_chol.formats import FP64, TYPES
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import ArraySpec, Tile
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.kernels.registry import open_tile_device

#: Share of a figure's seconds for those of types other than float64, of which there are three times as many.
_TYPES_SHARE = 0.5


@dataclass(frozen=True)
class Measurement:
    """Extent of a measurement: devices, sizes and seconds."""

    names: tuple[str, ...]
    tile_size: int  #: Order of a tile
    moduli: int | None  #: Number of moduli of products through residues; None leaves them out
    threads: int  #: Threads of a host device
    seconds: float  #: How long each figure of kernels and of links is measured at least, and how long GPUs multiply before
    link_seconds: float
    warm_seconds: float
    quick: bool = False  #: Whether tiles and files are small, and no load bridges the figures


def pulled_from(names: Sequence[str]) -> str:
    """The device that the first of ``names`` copies from: the next of them, else another GPU that is here, else itself."""
    kind = device_kind(names[0])
    others = names[1:] or (() if kind.shares_processor else [name for name in kind.names() if name != names[0]])
    return others[0] if others else names[0]


def measure_at_once(what: Measurement) -> dict[str, Any]:
    """Figures of the first device's kernels, and of the copies of all devices at once: of those the slowest."""
    shapes = None if what.moduli is None else ResidueShapes.on(what.names[0], what.tile_size, what.moduli)
    with link_tiers(what.names, what.tile_size, quick=what.quick) as tiers, ExitStack() as stack:
        opened = [_open(name, what, shapes if name in what.names[:2] else None, stack) for name in what.names]
        opened[0].device.activate()
        figures: dict[str, Any] = dict(measure_kernels(opened[0], what.warm_seconds))
        if shapes is not None:
            rates = measure_residues(opened[0], shapes)
            figures["residue"] = rates | {"pull": measure_pull(opened[0], shapes, _neighbour(what, opened, shapes, stack))}
        figures["links"] = slowest(measure_links(opened, tiers, what.link_seconds))
        for each in opened:
            each.device.synchronize()  # nobody frees what another one copies
    return figures


def measure_types(what: Measurement) -> dict[str, dict[str, float]]:
    """Figures of the kernels of every other type than float64, on the first device, which is opened anew for each."""
    found: dict[str, dict[str, float]] = {}
    for name, fmt in TYPES.items():
        if fmt == FP64:
            continue
        with closing(open_tile_device(what.names[0], what.threads, fmt=fmt)) as device:
            device.activate()
            seconds = _TYPES_SHARE * what.seconds
            found[name] = measure_typed_kernels(set_up(device, what.tile_size, seconds, quick=what.quick, fmt=fmt))
            device.synchronize()
    return found


def slowest(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """The least of each rate over the devices: a plan must hold on all of them."""
    return {name: min(each[name] for each in figures) for name in figures[0]}


def _open(name: str, what: Measurement, shapes: ResidueShapes | None, stack: ExitStack) -> OpenedDevice:
    """A device with its tiles, and the arrays of ``shapes``."""
    device = stack.enter_context(closing(open_tile_device(name, what.threads, what.moduli)))
    device.activate()
    return set_up(device, what.tile_size, what.seconds, () if shapes is None else shapes.arrays, quick=what.quick)


def _neighbour(what: Measurement, opened: Sequence[OpenedDevice], shapes: ResidueShapes, stack: ExitStack) -> Tile:
    """A strip on the device that the first one copies from."""
    neighbour = pulled_from(what.names)
    if neighbour in what.names:
        return opened[what.names.index(neighbour)].arrays[0][:, shapes.nb : 2 * shapes.nb]
    strip = _strip_on(stack.enter_context(closing(open_tile_device(neighbour))), shapes)
    opened[0].device.activate()
    return strip


def _strip_on(device: TileDevice, shapes: ResidueShapes) -> Tile:
    """A strip in the memory of a device that is not measured."""
    nb = shapes.nb
    spec = ArraySpec(shapes.arrays[0].dtype, (shapes.moduli, nb, shapes.depth * nb))
    return device.allocate(1, whole_pages(8 * nb * nb), nb, (spec,)).arrays[0]
