"""Room in host memory for the tiles of an L in a file that are kept there."""

from __future__ import annotations

from ooc_chol.config import format_bytes
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import SURELY_FREE
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.registry import device_kind
from ooc_chol.memory.release import RELEASER


def make_room_for_kept(plan: Plan) -> None:
    """Let there be the memory that ``plan`` keeps tiles in, beside its arenas; ``BudgetError`` where that cannot be.

    So little that it is surely there is not asked for.
    """
    needed, arenas = plan.host_bytes + plan.staging_bytes, host_arena_bytes(plan)
    if needed <= SURELY_FREE:
        return
    free = free_host_bytes() - arenas
    # What waits for its release is free as well: the store takes it over, or it is released before anything is allocated.
    allowed = free + RELEASER.pending_bytes
    if needed > allowed:
        more = f", or lower memory_budget ({format_bytes(arenas)} in use)" if arenas else ""
        raise BudgetError(
            "host memory for the tiles of L that are kept", needed, max(0, allowed), f"give a smaller host_budget{more}"
        )
    RELEASER.make_room(needed, free)


def host_arena_bytes(plan: Plan) -> int:
    """Bytes of host memory that the slots of all devices take."""
    if not device_kind(plan.devices[0]).is_in_host_memory:
        return 0
    return len(plan.devices) * plan.layout.arena_bytes
