"""Identity of the machine that measured rates belong to."""

from __future__ import annotations

from collections.abc import Sequence

from ooc_chol.kernels.registry import kernel_facts, kind_of


def machine_identity(devices: str | Sequence[str] = "host:0") -> str:
    """Identity of the rates' machine: model, library, kernels, number of devices; of the host its cores and threads on a tile."""
    names = as_names(devices)
    facts = kernel_facts(names)
    several = f" devices={len(names)}" if len(names) > 1 else ""
    return f"{facts.model} {facts.library}, {facts.trsm}, {facts.kernels}{kind_of(names[0]).rate_facts()}{several}"


def as_names(devices: str | Sequence[str]) -> tuple[str, ...]:
    """One or more names as a tuple."""
    return (devices,) if isinstance(devices, str) else tuple(devices)
