"""Policies: how tiles move, as a few independent choices, so that an ablation changes one at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """How a plan moves tiles; it never changes the arithmetic."""

    name: str  #: The word by which users ask for it
    #: The output tile stays on the device until it is final; else it is written back and fetched again around every task
    keeps_accumulator: bool
    eviction: str | None  #: Name of the eviction policy of the operand cache; None fetches operands anew for every task
    overlaps: bool  #: Copies run on streams of their own; else every operation runs on one stream, in order
    #: Panel widths and row-group heights are searched; else every panel is one tile column and rows come one at a time
    widens_panels: bool
    holds_diagonal: bool = False  #: The diagonal tile of the current column is not evicted before the column is final


#: ``sync`` to ``v3`` are those of Ren et al. (2024), each with one thing more than the one before; ``planned`` is ours.
POLICIES: dict[str, Policy] = {
    "sync": Policy("sync", keeps_accumulator=False, eviction=None, overlaps=False, widens_panels=False),
    "async": Policy("async", keeps_accumulator=False, eviction=None, overlaps=True, widens_panels=False),
    "v1": Policy("v1", keeps_accumulator=True, eviction=None, overlaps=True, widens_panels=False),
    "v2": Policy("v2", keeps_accumulator=True, eviction="lru", overlaps=True, widens_panels=False),
    "v3": Policy("v3", keeps_accumulator=True, eviction="lru", overlaps=True, widens_panels=False, holds_diagonal=True),
    "planned": Policy("planned", keeps_accumulator=True, eviction="next-use", overlaps=True, widens_panels=True),
}


def policy_named(name: str) -> Policy:
    """The registered policy ``name``."""
    if name not in POLICIES:
        raise ValueError(f"there is no policy {name!r}; there are {', '.join(map(repr, POLICIES))}")
    return POLICIES[name]
