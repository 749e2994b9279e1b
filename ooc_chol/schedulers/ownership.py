"""Which device owns which tile row."""

from __future__ import annotations

from ooc_chol.tasks.windows import Window


def balanced_rows(nt: int, n_devices: int) -> tuple[int, ...]:
    """Owner of each of ``nt`` tile rows: cyclic from the last row on, deals reflected as the sequence of Thue and Morse says.

    Work of tile row m grows as m², so the heaviest rows are dealt out first. A deal of ``n_devices`` rows runs forwards or
    backwards by the parity of the ones in its binary number, which evens out what grows linearly over two deals, and
    quadratically over four. In every panel each device has as many rows as any other, or one more. At 40 rows on four devices the
    busiest has 0.4 % more than the mean; with every other deal reflected, 1.3 %.
    """
    owners = [0] * nt
    for position in range(nt):
        deal, place = divmod(position, n_devices)
        owners[nt - 1 - position] = place if deal.bit_count() % 2 else n_devices - 1 - place
    return tuple(owners)


def window_rows(nt: int, window: Window, n_devices: int) -> tuple[int, ...]:
    """Owner of each of ``nt`` tile rows where only those of ``window`` are made: they are dealt out, others are device 0's."""
    dealt = balanced_rows(len(window.rows), n_devices)
    return (0,) * window.rows.start + dealt + (0,) * (nt - window.rows.stop)


def imbalance(owners: tuple[int, ...], n_devices: int) -> float:
    """Largest over mean work of the devices, the work of tile row m being its ``m²`` leading term (1 is perfect)."""
    work = [0.0] * n_devices
    for m, owner in enumerate(owners):
        work[owner] += m * (m + 1) + 1 / 3
    return max(work) * n_devices / sum(work)
