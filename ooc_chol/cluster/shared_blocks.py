"""Blocks that workers of one machine have in common: one that needs another's maps its memory, and nothing is copied.

Dask asks every type how it is sent. These are sent as the place of their memory to a process at the same address of the network,
and as their bytes to all others, to disk too. The sender keeps a block until the receiver says that it has it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, final

from ooc_chol.cluster.asking import asked_of_all, machine_of
from ooc_chol.cluster.blocks import LBlock
from ooc_chol.cluster.connection import distributed_package
from ooc_chol.memory.shared import SharedAddress, SharedMemory, has_room, is_possible

#: How addresses of workers begin that are processes.
_PROCESSES = ("tcp://", "tls://")
#: What is kept of a block as it is: all but its memory.
_FACTS = tuple(each.name for each in fields(LBlock))


@final
@dataclass(frozen=True)
class SharedBlock(LBlock):
    """A block whose tiles are in memory that others may map."""

    memory: SharedMemory = field(kw_only=True, compare=False, repr=False)  #: What its tiles are parts of

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a block with its bytes."""
        return LBlock, tuple(getattr(self, name) for name in _FACTS)


def shared_block(block: LBlock, memory: SharedMemory) -> SharedBlock:
    """A block whose tiles are parts of ``memory``."""
    return SharedBlock(*(getattr(block, name) for name in _FACTS), memory=memory)


def without_memory(block: LBlock) -> LBlock:
    """The same block, which is sent as its bytes wherever it goes: the client may be on another machine than its scheduler."""
    return LBlock(*(getattr(block, name) for name in _FACTS))


def _sent(block: SharedBlock, context: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """Serialized form of a block: its place, for a process of this machine; ``NotImplementedError`` makes Dask pickle it."""
    if not _stays_here(context):
        raise NotImplementedError("a block goes to another machine, or to disk, as its bytes")
    assert block.tiles is not None
    first = block.memory.bytes.ctypes.data
    spots = {index: (tile.ctypes.data - first, tile.shape, tile.dtype.str) for index, tile in block.tiles.items()}
    facts = {name: getattr(block, name) for name in _FACTS if name != "tiles"}
    return {"block": distributed_package().protocol.pickle.dumps((facts, spots, tuple(block.memory.address)))}, []


def _received(header: Mapping[str, Any], frames: Sequence[bytes]) -> LBlock:
    """The block, in its sender's memory; a copy of it where this process may not open more files."""
    facts, spots, address = distributed_package().protocol.pickle.loads(header["block"])
    memory = SharedMemory.open(SharedAddress(*address))
    tiles = memory.arrays(spots)
    if not has_room():
        return LBlock(**facts, tiles={index: tile.copy() for index, tile in tiles.items()})
    return SharedBlock(**facts, tiles=tiles, memory=memory)


@cache
def _register() -> None:
    """Tell Dask, once in every process that meets such a block."""
    wire = distributed_package().protocol
    wire.dask_serialize.register(SharedBlock)(_sent)
    wire.dask_deserialize.register(SharedBlock)(_received)


if "distributed" in sys.modules:  # as in a worker, which imports this when it is given a block
    _register()


def _stays_here(context: Mapping[str, Any] | None) -> bool:
    """Tell whether both ends of a connection have the same address."""
    if not context or not {"sender", "recipient"} <= context.keys():
        return False
    ends = [str(context[end].get("address", "")) for end in ("sender", "recipient")]
    return all(end.startswith(_PROCESSES) for end in ends) and machine_of(ends[0]) == machine_of(ends[1])


def shares_memory(client: Any, workers: Sequence[str], *, copies: bool = False) -> bool:
    """Tell whether workers of one machine are processes that map each other's memory: each tries.

    False with one on each machine, unless their devices ``copies``: such memory stays page-locked from one task to the next.
    """
    _register()
    machines: dict[str, list[str]] = {}
    for address in workers:
        machines.setdefault(machine_of(address), []).append(address)
    together = [each for some in machines.values() if copies or len(some) > 1 for each in some]
    if not together or not all(each.startswith(_PROCESSES) for each in together):
        return False
    beacons = asked_of_all(client, dict.fromkeys(together, (beacon_here, ())))
    if None in beacons.values():
        return False
    others = {each: [beacons[other] for other in machines[machine_of(each)]] for each in together}
    return all(asked_of_all(client, {each: (sees_here, (others[each],)) for each in together}).values())


def beacon_here() -> SharedAddress | None:
    """A little memory of this process, for others to try; None where the system has none."""
    _register()
    return _beacon().address if is_possible() else None


@cache
def _beacon() -> SharedMemory:
    """That memory, made once."""
    return SharedMemory.create(1)


def sees_here(beacons: Sequence[SharedAddress]) -> bool:
    """Tell whether this process can open the memory of others."""
    try:
        for each in beacons:
            SharedMemory.open(each)
    except ConnectionError:
        return False
    return True
