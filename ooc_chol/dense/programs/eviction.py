"""Eviction policies: which block leaves a full device first."""

from __future__ import annotations

from ooc_chol.interfaces import AbstractEvictionPolicy


class NextUse(AbstractEvictionPolicy):
    """Evict the block whose next use is farthest away (Belady 1966): the fewest fetches of any policy for blocks of one size."""

    name = "next-use"

    def rank(self, last_use: int, next_use: int) -> int:
        """Rank by the position of the next use."""
        return next_use


class Lru(AbstractEvictionPolicy):
    """Evict the least recently used block."""

    name = "lru"

    def rank(self, last_use: int, next_use: int) -> int:
        """Rank by age, the position of the last use counted backwards."""
        return -last_use


#: Every eviction policy by name.
EVICTION_POLICIES: dict[str, AbstractEvictionPolicy] = {policy.name: policy for policy in (NextUse(), Lru())}
