"""Measure one or more devices of a machine at once: they share power, host memory and links."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from ooc_chol.interfaces import AbstractDevice, ArraySpec, Tile
from ooc_chol.machine import HOST, cuda_names, kind_of, open_device
from ooc_chol.rates.kernels import measure_kernels
from ooc_chol.rates.links import LinkTiers, link_tiers, measure_links
from ooc_chol.rates.opened import OpenedDevice, set_up
from ooc_chol.rates.residues import ResidueShapes, measure_pull, measure_residues


@dataclass(frozen=True)
class Measurement:
    """What to measure, and how long.

    Parameters
    ----------
    names : tuple of str
        The devices.
    tile_size : int
        Order of a tile.
    moduli : int or None
        Number of moduli of products through residues; None leaves them out.
    threads : int
        Threads of a host device.
    seconds, link_seconds, warm_seconds : float
        How long each figure of kernels and of links is measured at least, and how long GPUs multiply before.
    """

    names: tuple[str, ...]
    tile_size: int
    moduli: int | None
    threads: int
    seconds: float
    link_seconds: float
    warm_seconds: float


def pulled_from(names: Sequence[str]) -> str:
    """The device that the first of ``names`` copies from: the next of them, else another GPU that is here, else itself."""
    if len(names) > 1:
        return names[1]
    others = [name for name in cuda_names() if name != names[0]] if kind_of(names[0]) is not HOST else []
    return others[0] if others else names[0]


def measure_at_once(what: Measurement) -> dict[str, Any]:
    """Figures of a device while all devices do the same: of each kind those of the slowest.

    Parameters
    ----------
    what : Measurement
        What to measure.

    Returns
    -------
    dict
        What :func:`~ooc_chol.rates.kernels.measure_kernels` returns, ``links``, and ``residue`` where asked.

    Raises
    ------
    BudgetError
        A device has too little free memory.
    """
    with link_tiers(what.names, what.tile_size) as tiers, ThreadPoolExecutor(len(what.names)) as pool:
        shared = _Shared(what, tiers)
        futures = [pool.submit(shared.measure, number) for number in range(len(what.names))]
        errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return slowest([future.result() for future in futures])


def slowest(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The least of each rate, and the most of the seconds between operations."""
    merged: dict[str, Any] = {}
    for name, first in figures[0].items():
        values = [each[name] for each in figures]
        merged[name] = slowest(values) if isinstance(first, dict) else max(values) if name == "launch" else min(values)
    return merged


class _Shared:
    """What the threads of one measurement share; each thread has one device."""

    def __init__(self, what: Measurement, tiers: LinkTiers) -> None:
        self._what = what
        self._tiers = tiers
        self._barrier = threading.Barrier(len(what.names))
        self._strips: dict[int, Tile] = {}

    def measure(self, number: int) -> dict[str, Any]:
        """Figures of one device; an error stops the others at their next meeting."""
        try:
            with ExitStack() as stack:
                return self._measure(number, stack)
        except BaseException:
            self._barrier.abort()  # else the other devices would wait for ever
            raise

    def _measure(self, number: int, stack: ExitStack) -> dict[str, Any]:
        what, name = self._what, self._what.names[number]
        device = stack.enter_context(closing(open_device(name, what.threads, what.moduli)))
        device.activate()
        shapes = None if what.moduli is None else ResidueShapes.on(name, what.tile_size, what.moduli)
        opened = set_up(device, what.tile_size, what.seconds, () if shapes is None else shapes.arrays)
        self._barrier.wait()
        figures: dict[str, Any] = dict(measure_kernels(opened, what.warm_seconds))
        if shapes is not None:
            figures["residue"] = self._measure_residues(number, opened, shapes, stack)
        place = number / len(what.names)
        figures["links"] = measure_links(opened, self._tiers, place, self._barrier.wait, what.link_seconds)
        self._barrier.wait()  # nobody frees what another one copies
        return figures

    def _measure_residues(self, number: int, opened: OpenedDevice, shapes: ResidueShapes, stack: ExitStack) -> dict[str, float]:
        """Rates of residues, of a copy from the next device too."""
        self._strips[number] = opened.arrays[0][:, shapes.nb : 2 * shapes.nb]
        self._barrier.wait()
        rates = measure_residues(opened, shapes)
        source = self._strips[(number + 1) % len(self._strips)]
        neighbour = pulled_from(self._what.names)
        if neighbour not in self._what.names:
            source = _strip_on(stack.enter_context(closing(open_device(neighbour))), shapes)
        return rates | {"pull": measure_pull(opened, shapes, source)}


def _strip_on(device: AbstractDevice, shapes: ResidueShapes) -> Tile:
    """A strip in the memory of a device that is not measured."""
    nb = shapes.nb
    spec = ArraySpec(shapes.arrays[0].dtype, (shapes.moduli, nb, shapes.depth * nb))
    return device.allocate(1, -(-8 * nb * nb // 4096) * 4096, nb, (spec,)).arrays[0]
