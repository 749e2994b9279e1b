"""Rates of a machine in a pass over packed blocks: they were measured, and plans predict seconds from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ooc_chol.calls.machine import Machine
from ooc_chol.config import format_bytes
from ooc_chol.hardware.rates_file import (
    PASSES,
    Figures,
    check_writable,
    damaged,
    figure,
    kept_rates,
    read_rates,
    warn_of,
    write_rates,
)
from ooc_chol.hardware.registry import is_here
from ooc_chol.kernels.identity import machine_identity
from ooc_chol.tasks.row_blocks import RowBlock

#: Bytes of a row of a panel that one sector of a GPU's memory, or half a cache line, holds.
SECTOR_BYTES = 32


@dataclass(frozen=True)
class PassRates:
    """Rates of one device; those of gathers are of columns spread at random, so that graphs with hubs take less.

    Parameters
    ----------
    link : float
        Bytes per second from host memory, page-locked for a GPU, to the device.
    memory : float
        Bytes per second that a copy within the device reads, and writes beside.
    gathers : float
        Rows of 32 bytes per second that a product gathers at random.
    single_gathers : float
        Numbers of 4 bytes per second that it gathers at random.
    launch : float
        Seconds of the product of a block without entries, enqueued as those of kept blocks are.
    """

    link: float
    memory: float
    gathers: float
    single_gathers: float
    launch: float

    def product_seconds(self, block: RowBlock, row_bytes: int) -> float:
        """Seconds in which a block on the device is multiplied with a panel.

        Parameters
        ----------
        block : RowBlock
            The block.
        row_bytes : int
            Bytes of a row of the panel.

        Returns
        -------
        float
            The longer of gathering and of reading the block, and a launch.
        """
        rate = self.single_gathers if row_bytes <= 4 else self.gathers * SECTOR_BYTES / max(SECTOR_BYTES, row_bytes)
        return max(block.n_entries / rate, block.nbytes / (2 * self.memory)) + self.launch

    def __str__(self) -> str:
        link, memory = format_bytes(self.link), format_bytes(self.memory)
        gathers = f"{self.gathers:.3g} rows of 32 bytes and {self.single_gathers:.3g} numbers of 4 gathered per second"
        return f"link {link}/s, copies {memory}/s, {gathers}, launch {1e6 * self.launch:.3g} us"


def rates_of_figures(figures: Figures) -> PassRates:
    """Stored figures as rates; ``ValueError`` where they are none."""
    try:
        return PassRates(**{name: figure(figures, name) for name in PassRates.__dataclass_fields__})
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise damaged(repr(error)) from error


def pass_rates_of(machine: Machine) -> PassRates | None:
    """Rates of a device that were measured on this machine; None without them, and for several host devices.

    Those share the cores that were measured for one.
    """
    names = machine.names
    if not all(map(is_here, names)) or (len(names) > 1 and machine.kind.is_in_host_memory):
        return None
    identity = machine.identity if len(names) == 1 else machine_identity(names[:1])
    figures: dict[str, Any] | None = machine.rates.get(PASSES, {}).get(identity)
    try:
        return None if figures is None else rates_of_figures(figures)
    except ValueError as error:
        warn_of(error)
        return None


def store_pass_rates(device: str, rates: PassRates) -> None:
    """Keep the rates of a device for later plans."""
    check_writable()
    everything = kept_rates()
    everything.setdefault(PASSES, {})[machine_identity([device])] = asdict(rates)
    write_rates(everything)


def pass_rates_problem() -> str | None:
    """Problem with the rates of passes in the file of rates; None where there is none, or the file cannot be read at all."""
    try:
        for figures in read_rates().get(PASSES, {}).values():
            rates_of_figures(figures)
    except ValueError as error:
        return str(error)
    return None
