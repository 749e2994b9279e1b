"""Rates of a cluster as its client measures them: of every worker's devices, of the network, and of Dask's tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.asking import FACTS_SECONDS, asked_of_all, machine_of
from ooc_chol.cluster.blocks import LBlock
from ooc_chol.cluster.facts import UNMEASURED, ClusterFacts
from ooc_chol.cluster.making import RESIDENT_PART
from ooc_chol.cluster.model import ClusterRates, WorkerRates
from ooc_chol.cluster.speeds import WorkerSpeed, speed_here
from ooc_chol.cluster.waiting import wait_for
from ooc_chol.config import parse_bytes
from ooc_chol.errors import ClusterError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.memory.shared import shared_arrays
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tasks.windows import Window

#: Bytes that go from one worker to another, and back, to be timed; and those of memory that the other maps, which takes as long
#: for few as for many.
_SENT_BYTES, _MAPPED_BYTES = 16 << 20, 256 << 20
#: Empty tasks at once for each worker, and how often they and transfers are tried: the shortest time counts.
_TASKS_OF_A_WORKER, _TRIES = 8, 3

#: What was measured by a client, and of which workers.
_KNOWN: WeakKeyDictionary[Any, tuple[tuple[tuple[str, ...], bool], DaskRates]] = WeakKeyDictionary()


@dataclass(frozen=True)
class DaskRates:
    """Costs of Dask between tasks."""

    network_bytes_per_second: float | None  #: Into one worker; None where there is one
    worker_seconds: float  #: Of a worker, for each task that is there when the one before it ends
    scheduler_seconds: float  #: Of its scheduler, for each task


def measured_rates(
    client: Any, facts: ClusterFacts, tiles: TileGrid, fmt: PrecisionFormat, store: str | None
) -> tuple[list[WorkerRates], ClusterRates]:
    """Rates of the workers and of what lies between them; workers whose rates are not known have none.

    Kernels are measured once in a process of a worker and tile size, the network once for a client and its workers.
    """
    calls = {address: (speed_here, (facts.options, tiles, fmt, sharing, store)) for address, sharing in facts.sharing.items()}
    speeds: dict[str, WorkerSpeed | None] = asked_of_all(client, calls)
    kept = _kept_share(facts, tiles, fmt) if store is None else None
    workers = [replace(_worker_rates(state.room_bytes, speeds[each]), kept_share=kept) for each, state in facts.workers.items()]
    known = [speed for speed in speeds.values() if speed is not None]
    return workers, _cluster_rates(_dask_rates(client, tuple(facts.workers), shares_memory=facts.shares_memory), known)


def _kept_share(facts: ClusterFacts, tiles: TileGrid, fmt: PrecisionFormat) -> float | None:
    """Part of a worker's share of L that its devices keep between tasks; None where they compute in its memory."""
    if not facts.copies:
        return None
    devices = min(len(state.devices) for state in facts.workers.values())
    kept = devices * (parse_bytes(facts.options.memory_budget or 0, "memory_budget") // RESIDENT_PART)
    return min(1.0, kept * len(facts.workers) / sum(fmt.stored_bytes(tiles.entries(i, j)) for i, j in tiles.tiles()))


def _worker_rates(memory_bytes: int, speed: WorkerSpeed | None) -> WorkerRates:
    """One worker as a plan takes it."""
    if speed is None:
        return WorkerRates(memory_bytes)
    return WorkerRates(memory_bytes, speed.flops_per_second, speed.panel_flops_per_second, speed.link_bytes_per_second)


def _cluster_rates(dask: DaskRates, speeds: list[WorkerSpeed]) -> ClusterRates:
    """Rates between the workers; of storage and of the overhead of a run the slowest of all."""
    stores = [speed.storage_bytes_per_second for speed in speeds]
    known = [rate for rate in stores if rate is not None]
    return replace(
        UNMEASURED,
        network_bytes_per_second=dask.network_bytes_per_second or UNMEASURED.network_bytes_per_second,
        storage_bytes_per_second=min(known) if known and len(known) == len(stores) else None,
        overhead_seconds=dask.worker_seconds + max((speed.run_seconds for speed in speeds), default=0.0),
        scheduler_seconds=dask.scheduler_seconds,
    )


def _dask_rates(client: Any, workers: tuple[str, ...], *, shares_memory: bool) -> DaskRates:
    """Known costs of this client and these workers, else a measurement of some tenths of a second."""
    known = _KNOWN.get(client)
    if known is not None and known[0] == (workers, shares_memory):
        return known[1]
    taken = min(_seconds_of(client, lambda: _empty_tasks(client, workers), workers) for _ in range(_TRIES))
    each = taken / _TASKS_OF_A_WORKER
    pair = _far_pair(workers)
    is_mapped = shares_memory and machine_of(pair[0]) == machine_of(pair[1])
    make, nbytes = (_shared_bytes, _MAPPED_BYTES) if is_mapped else (_random_bytes, _SENT_BYTES)
    found = DaskRates(_network_rate(client, pair, make, nbytes), each, each / len(workers))
    _KNOWN[client] = (workers, shares_memory), found
    return found


def _far_pair(workers: tuple[str, ...]) -> tuple[str, str]:
    """Two workers, on two machines where there are so many; one of them twice where it is alone."""
    first = workers[0]
    others = [each for each in workers if machine_of(each) != machine_of(first)] or list(workers[1:]) or [first]
    return first, others[0]


def _empty_tasks(client: Any, workers: tuple[str, ...]) -> list[Any]:
    """Tasks that wait for nothing, on all workers."""
    return [client.submit(_nothing, pure=False, workers=[each], priority=1) for each in workers * _TASKS_OF_A_WORKER]


def _network_rate(client: Any, pair: tuple[str, str], make: Callable[[int], object], nbytes: int) -> float | None:
    """Bytes per second from one worker to another, the slower way, without what a task takes that is sent next to nothing."""
    there, back = pair
    if there == back:
        return None
    return min(_rate_one_way(client, *way, make, nbytes) for way in ((there, back), (back, there)))


def _rate_one_way(client: Any, sender: str, receiver: str, make: Callable[[int], object], nbytes: int) -> float:
    """Bytes per second from one worker to another."""
    nothing, something = (
        min(_transfer_seconds(client, sender, receiver, partial(make, count)) for _ in range(_TRIES)) for count in (1, nbytes)
    )
    return nbytes / max(something - nothing, something / 4)  # a busy machine may have been slow with next to nothing


def _transfer_seconds(client: Any, sender: str, receiver: str, make: Callable[[], object]) -> float:
    """Seconds of a task that another worker's bytes are sent to."""
    sent = client.submit(make, workers=[sender], pure=False, priority=1)
    both = (sender, receiver)
    _waited(client, [sent], both)
    return _seconds_of(client, lambda: [client.submit(_nothing, sent, workers=[receiver], pure=False, priority=1)], both)


def _seconds_of(client: Any, submit: Callable[[], list[Any]], workers: Sequence[str]) -> float:
    """Seconds from the first task submitted to the last one ended."""
    began = time.perf_counter()
    _waited(client, submit(), workers)
    return time.perf_counter() - began


def _waited(client: Any, futures: list[Any], workers: Sequence[str]) -> None:
    """Wait for tasks of workers, which have no errors of their own."""
    try:
        wait_for(client, futures, FACTS_SECONDS, asked=workers)
    except TimeoutError:
        problem = f"workers did not end empty tasks within {FACTS_SECONDS:.0f} seconds"
        raise ClusterError(problem, "look at their logs, or retire them: they are busy or unreachable") from None


def _nothing(given: object = None) -> None:
    """Do nothing, on a worker that has what is given."""


def _shared_bytes(count: int) -> object:
    """A block of so many bytes, which take no memory as nobody touches them, in memory that the other worker maps."""
    from ooc_chol.cluster.shared_blocks import shared_block  # needs Dask

    memory, tiles = shared_arrays({(0, 0): ((count,), np.dtype(np.uint8))})
    return shared_block(LBlock(Window(range(1), range(1)), tiles, None, 0.0, ()), memory)


def _random_bytes(count: int) -> NDArray[np.uint8]:
    """Random bytes, which no compression makes shorter."""
    return np.frombuffer(np.random.default_rng(0).bytes(count), np.uint8)
