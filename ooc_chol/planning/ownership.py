"""Which device owns which tile row."""

from __future__ import annotations


def balanced_rows(nt: int, n_devices: int) -> tuple[int, ...]:
    """Owner of each of ``nt`` tile rows: cyclic, reflected, counted from the last row.

    Work of tile row m grows as m², so the heaviest rows are dealt out first, and each deal of ``n_devices`` rows runs in the
    opposite direction of the one before.

    Examples
    --------
    >>> balanced_rows(6, 2)
    (0, 1, 1, 0, 0, 1)
    """
    owners = [0] * nt
    for position in range(nt):
        deal, place = divmod(position, n_devices)
        owners[nt - 1 - position] = n_devices - 1 - place if deal % 2 == 0 else place
    return tuple(owners)


def cyclic_rows(nt: int, n_devices: int) -> tuple[int, ...]:
    """Owner ``m mod n_devices`` of each tile row m, the one-dimensional block-cyclic rule of Ren et al. (2024)."""
    return tuple(m % n_devices for m in range(nt))


def imbalance(owners: tuple[int, ...], n_devices: int) -> float:
    """Largest over mean work of the devices, the work of tile row m being its ``m²`` leading term (1 is perfect)."""
    work = [0.0] * n_devices
    for m, owner in enumerate(owners):
        work[owner] += m * (m + 1) + 1 / 3
    return max(work) * n_devices / sum(work)
