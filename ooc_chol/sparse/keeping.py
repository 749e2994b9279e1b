"""Blocks of a packed file that stay in host memory, between devices that do not keep them and the disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest

from ooc_chol.calls.machine import Machine
from ooc_chol.config import parse_bytes, whole_pages
from ooc_chol.memory.kept_blocks import KeptBlocks
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.plan import MultiplyPlan


def with_kept_blocks(operator: Operator, plan: MultiplyPlan, room: int, stack: ExitStack) -> Operator:
    """The operator of a packed file with some blocks in ``room`` bytes of host memory from their first use on.

    They are among those that pass in every product, spread evenly: the link brings them while others are read. ``stack`` gives
    the memory back; the file stays open. An operator that is not of a file, or has no block to keep, is returned as it is.
    """
    matrix = operator.matrix
    passing = [share.blocks[share.n_kept :] for share in plan.shares]
    order = [number for numbers in zip_longest(*passing) for number in numbers if number is not None]
    kept = evenly_kept(order, matrix.tier.sizes, room) if matrix.tier.name == "file" else []
    if not kept:
        return operator
    tier = KeptBlocks(matrix.tier, kept)
    stack.callback(tier.close)
    return Operator(BlockCSR(tier, matrix.facts), left=operator.left, right=operator.right, shift=operator.shift)


def host_room(host_budget: int | str | None, needed: int, machine: Machine) -> int:
    """Bytes of host memory for blocks, beside those that are needed: of what is free half for GPUs, unless a caller says more.

    A host device keeps blocks itself, and gets none unless asked for.
    """
    if host_budget is not None:
        return parse_bytes(host_budget, "host_budget") - needed
    return 0 if machine.kind.is_in_host_memory else max(0, machine.free_host_bytes - needed) // 2


def evenly_kept(order: Sequence[int], sizes: Sequence[int], room: int) -> list[int]:
    """Blocks of an order that fit into so many bytes, as evenly spread as their sizes allow.

    >>> evenly_kept([0, 1, 2, 3], [4096] * 4, 2 * 4096)
    [1, 3]
    """
    total = sum(whole_pages(sizes[number]) for number in order)
    kept, credit, left = list[int](), 0.0, room
    for number in order:
        size = whole_pages(sizes[number])
        credit += size * min(1.0, room / total)
        if size <= min(credit, left):
            kept.append(number)
            credit, left = credit - size, left - size
    return kept
