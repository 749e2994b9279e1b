"""A table of owners to compare with that of the package."""

from __future__ import annotations


def cyclic_rows(nt: int, n_devices: int) -> tuple[int, ...]:
    """Owner ``m mod n_devices`` of each tile row m, the one-dimensional block-cyclic rule of Ren et al. (2024)."""
    return tuple(m % n_devices for m in range(nt))
