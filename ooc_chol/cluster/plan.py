"""The plan of a run on a cluster: blocks and their owners, tasks, bytes, memory and seconds; nothing is run and nothing asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.bounds import BOUNDS, arithmetic_seconds, busiest_seconds, chain_seconds, received_bytes, scheduler_seconds
from ooc_chol.cluster.columns import column_seconds
from ooc_chol.cluster.model import BlockCosts, ClusterRates, WorkerRates
from ooc_chol.cluster.owners import BlockOwners
from ooc_chol.cluster.simulation import Case, Outcome, simulate
from ooc_chol.config import format_bytes
from ooc_chol.dense.options import FactorOptions
from ooc_chol.display.prints import brief_repr
from ooc_chol.errors import BudgetError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.kernels.kinds import KernelFacts
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.schedulers.ownership import imbalance
from ooc_chol.tasks.tiling import TileGrid

#: Most blocks of a plan whose seconds are found event by event, and most block rows that a plan chooses by itself.
MOST_SIMULATED, MOST_BLOCK_ROWS = 10_000, 1024
#: Other heights of blocks that the page names.
_MOST_OTHERS = 3
#: Block rows for each worker where nothing is known of rates: enough that chains of tasks are short beside the work.
_ROWS_PER_WORKER = 8


@dataclass(frozen=True)
class Settled:
    """Choices of a call on a cluster beside its blocks; by them a plan serves such a call again, and no other."""

    asked: FactorOptions  #: Those of the call
    options: FactorOptions  #: The same with nothing left open that bits depend on, and the budget of each worker's devices
    fmt: PrecisionFormat
    kernels: KernelFacts  #: What bits depend on, of the workers
    is_run: bool = False  #: In mixed precision: whether a run has come to ``formats``
    #: Formats of the tiles that a run came to, whatever its escalations were; None where it came to FP64
    formats: PrecisionMap | None = None

    __repr__ = brief_repr


@dataclass(frozen=True, repr=False)
class ClusterPlan(AbstractPlan):
    """How a matrix is factored on a cluster; it holds no matrix data and no connection.

    Parameters
    ----------
    case : Case
        The blocks and their owners, what workers and the network do, and where L goes.
    others : tuple of (int, float)
        Heights of blocks, in tile rows, that were looked at as well, and their predicted seconds; empty where the height was
        given, or rates are unknown.
    settled : Settled or None
        Settled choices of the planned call; None where there was none, and no call can take the plan.
    """

    call: ClassVar[str] = "cholesky"

    case: Case
    others: tuple[tuple[int, float], ...] = ()
    settled: Settled | None = None

    @property
    def blocks(self) -> BlockGrid:
        """How the triangle is cut into blocks."""
        return self.case.costs.blocks

    @property
    def owners(self) -> tuple[int, ...]:
        """The worker of each block row."""
        return self.case.owners.rows

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.case.workers)

    @property
    def n_tasks(self) -> int:
        """Number of tasks, one for each block."""
        return self.blocks.n_blocks * (self.blocks.n_blocks + 1) // 2

    @property
    def n_dependencies(self) -> int:
        """Blocks that tasks are given, counted for each task; with L in a Zarr group, those that they must not precede."""
        count = self.blocks.n_blocks
        below = count * (count - 1) // 2
        if self.case.store == "zarr":
            return 2 * below
        return count * (count - 1) * (count - 2) // 3 + 2 * below

    @property
    def flops(self) -> float:
        """Flops counted: ``n**3 / 3``."""
        return self.blocks.tiles.n**3 / 3

    @property
    def stored_bytes(self) -> int:
        """Bytes of L."""
        return _stored_bytes(self.case.costs)

    @cached_property
    def outcome(self) -> Outcome | None:
        """Outcome of the simulation; None where rates are unknown, or there are too many blocks to follow each."""
        return simulate(self.case) if self.has_rates and self.n_tasks <= MOST_SIMULATED else None

    @property
    def has_rates(self) -> bool:
        """True if seconds can be predicted: arithmetic of all workers is known, and storage where L goes there."""
        storage = self.case.store == "memory" or self.case.rates.storage_rate(self.n_workers) is not None
        return storage and all(worker.flops_per_second is not None for worker in self.case.workers)

    @cached_property
    def seconds(self) -> float | None:
        """Predicted seconds of the factorization; None where rates are unknown."""
        if not self.has_rates:
            return None
        run = column_seconds(self.case) if self.outcome is None else self.outcome.seconds
        return max(run, scheduler_seconds(self.case.rates, self.n_tasks, self.n_dependencies))

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Seconds that the run cannot be shorter than, by what limits it; empty where rates are unknown.

        ``arithmetic`` is all flops shared evenly, ``busiest worker`` the tasks of one worker one after the other. ``longest
        chain`` is the diagonal blocks and those below them, which wait for each other. ``network`` and ``storage`` are the bytes
        of one worker, and ``scheduler`` is what Dask's scheduler takes for all tasks.
        """
        if not self.has_rates:
            return {}
        case = self.case
        found = dict.fromkeys(BOUNDS, 0.0)
        found["arithmetic"] = arithmetic_seconds(case, self.flops)
        found["busiest worker"] = busiest_seconds(case)
        found["longest chain"] = chain_seconds(case)
        found["network"] = max(self.received_bytes) / case.rates.network_bytes_per_second
        found["scheduler"] = scheduler_seconds(case.rates, self.n_tasks, self.n_dependencies)
        rate = case.rates.storage_rate(self.n_workers)
        if case.store == "zarr" and rate is not None and self.outcome is not None:
            moved = zip(self.outcome.read_bytes, self.outcome.written_bytes, strict=True)
            found["storage"] = max(max(read, written) for read, written in moved) / rate
        return {name: seconds for name, seconds in found.items() if seconds}

    @property
    def efficiency(self) -> float | None:
        """Seconds of the flops alone, shared evenly by all workers, over the predicted ones; None where rates are unknown."""
        return None if self.seconds is None else self.bounds["arithmetic"] / self.seconds

    @cached_property
    def received_bytes(self) -> tuple[int, ...]:
        """Bytes that each worker receives: blocks of L that it lacks, each once, and blocks of A where they are sent."""
        return received_bytes(self.case)

    @property
    def network_bytes(self) -> int:
        """Bytes over the network between workers, all workers together."""
        return sum(self.received_bytes)

    @property
    def read_bytes(self) -> int | None:
        """Bytes of L read from the Zarr group; 0 where L is in memory, None where there are too many blocks to follow each."""
        if self.case.store == "memory":
            return 0
        return None if self.outcome is None else sum(self.outcome.read_bytes)

    @property
    def written_bytes(self) -> int:
        """Bytes of L written to the Zarr group."""
        return 0 if self.case.store == "memory" else self.stored_bytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes on a worker: its share of L, blocks of others that tasks wait for, and those of the task that runs.

        With L in a Zarr group the tiles that the worker's cache keeps stand in place of its share.
        """
        if self.outcome is not None:
            return max(self.outcome.peak_bytes)
        least = least_bytes(self.case)
        if self.case.store == "memory":
            return least
        return min(least + self.stored_bytes, max(worker.memory_bytes for worker in self.case.workers))

    @property
    def devices(self) -> tuple[str, ...]:
        """Workers by their numbers, as ``owners`` has them."""
        return tuple(f"worker {number}" for number in range(self.n_workers))

    @property
    def budget_bytes(self) -> int:
        """Bytes for blocks and tasks on the worker that has least."""
        return min(worker.memory_bytes for worker in self.case.workers)

    @property
    def host_bytes(self) -> int:
        """Bytes of this process's memory for L: none, the workers keep it."""
        return 0

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes over the network and between workers and a Zarr group; those read are left out where they are not counted."""
        read = {} if self.read_bytes is None else {"read": self.read_bytes}
        return {"network": self.network_bytes, **read, "write": self.written_bytes}

    def figures(self) -> dict[str, object]:
        """The figures of the plan beside the common ones."""
        grid = self.blocks
        return {
            "n": grid.tiles.n,
            "tile_size": grid.tiles.nb,
            "block_tile_rows": grid.height,
            "block_rows": grid.n_blocks,
            "owners": list(self.owners),
            "store": self.case.store,
            "tasks": self.n_tasks,
            "dependencies": self.n_dependencies,
            "flops": self.flops,
            "bounds": self.bounds,
            "efficiency": self.efficiency,
        }

    def facts(self) -> dict[str, object]:
        """Facts for ``repr``."""
        grid = self.blocks
        facts: dict[str, object] = {"n": grid.tiles.n, "tile_size": grid.tiles.nb, "height": grid.height, "tasks": self.n_tasks}
        facts |= {"workers": self.n_workers, "store": self.case.store}
        return facts | ({"seconds": self.seconds} if "seconds" in vars(self) else {})

    def lines(self) -> list[Line]:
        """The lines of the printed page."""
        grid, case = self.blocks, self.case
        title = f"Plan: Cholesky of n = {grid.tiles.n} on {self.n_workers} worker{'s' * (self.n_workers != 1)} of a cluster"
        where = "in the memory of the workers" if case.store == "memory" else "in a Zarr group"
        balance = imbalance(self.owners, self.n_workers)
        return [
            ("", f"{title}, in {grid.tiles.nt} x {grid.tiles.nt} tiles of {grid.tiles.nb}"),
            (
                "blocks",
                f"{grid.n_blocks} block rows of {grid.height} tile rows; the busiest worker has {balance:.3g} x the mean work",
            ),
            ("tasks", f"{self.n_tasks}, with {self.n_dependencies} dependencies; {self.flops:.4g} flops counted"),
            ("L", f"{format_bytes(self.stored_bytes)} {where}"),
            ("network", self._network_text()),
            *([] if case.store == "memory" else [("storage", self._storage_text())]),
            ("memory", self._memory_text()),
            *([("rates", self._rates_text())] if self.has_rates else []),
            ("seconds", self._seconds_text()),
            *([("bounds", self._bounds_text())] if self.bounds else []),
            *([("others", self._others_text())] if self.others else []),
        ]

    def _network_text(self) -> str:
        most = max(self.received_bytes)
        rate = self.case.rates.network_bytes_per_second
        of_a = ", blocks of A included" if self.case.a_is_sent else ""
        total = f"{format_bytes(self.network_bytes)} between workers{of_a}"
        return f"{total}, {format_bytes(most)} into one at most, at {rate / 1e9:.3g} GB/s"

    def _storage_text(self) -> str:
        written = f"{format_bytes(self.written_bytes)} written"
        if self.read_bytes is None:
            return f"{written}; what is read is not counted for so many blocks, or without rates"
        return f"{written}, {format_bytes(self.read_bytes)} read beside what the workers' caches have"

    def _memory_text(self) -> str:
        least = min(worker.memory_bytes for worker in self.case.workers)
        return f"peak {format_bytes(self.peak_bytes)} on a worker, of {format_bytes(least)}"

    def _rates_text(self) -> str:
        """Rates of the slowest worker, on which a run with even shares waits."""
        slowest = min(self.case.workers, key=lambda worker: worker.flops_per_second or 0.0)
        assert slowest.flops_per_second is not None
        panel = slowest.panel_flops_per_second or slowest.flops_per_second
        rates = (
            f"{slowest.flops_per_second / 1e9:.4g} GFLOP/s of products, {panel / 1e9:.4g} of POTRF and TRSM on the slowest worker"
        )
        return f"{rates}; {1e3 * self.case.rates.overhead_seconds:.3g} ms a task beside"

    def _seconds_text(self) -> str:
        if self.seconds is None:
            return "unknown: rates of the workers or of the storage were not measured"
        how = "task by task" if self.outcome is not None else "column by column"
        assert self.efficiency is not None
        rate = self.flops / self.seconds / 1e9
        return f"{self.seconds:.3g} predicted {how}, {rate:.4g} GFLOP/s: {self.efficiency:.0%} of the workers' rate of products"

    def _bounds_text(self) -> str:
        """Limits of the run, the longest first."""
        longest_first = sorted(self.bounds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {seconds:.3g} s" for name, seconds in longest_first)

    def _others_text(self) -> str:
        near = sorted(self.others, key=lambda item: item[1])[:_MOST_OTHERS]
        return ", ".join(f"{height} tile row{'s' * (height != 1)} {seconds:.3g} s" for height, seconds in near)


def settled_of(plan: ClusterPlan) -> Settled:
    """The choices of the call that was planned; there is one (:func:`~ooc_chol.cluster.given.check_kind`)."""
    assert plan.settled is not None
    return plan.settled


def plan_cluster(
    tiles: TileGrid,
    workers: Sequence[WorkerRates],
    rates: ClusterRates,
    *,
    itemsize: int = 8,
    store: str = "memory",
    height: int | None = None,
    heights: Sequence[int] | None = None,
    a_is_sent: bool = False,
    order: str = "columns",
) -> ClusterPlan:
    """Plan a factorization on a cluster: the height of blocks that is predicted to be fastest among those that memory holds.

    Each candidate is predicted column by column, the chosen one event by event where it has at most 10,000 blocks. Heights differ
    by a factor of about 1.4, and no more than 1,024 block rows are looked at. Raises ``BudgetError`` and ``ValueError``.
    """
    if not workers:
        raise ValueError("a cluster has no workers: start some, or wait for them (client.wait_for_workers(1))")
    if store not in ("memory", "zarr"):
        raise ValueError(f"store of a cluster is {store!r}, but L goes to 'memory' or to a 'zarr' group")

    def case_of(height: int) -> Case:
        blocks = BlockGrid(tiles, height)
        owners = BlockOwners(blocks.n_blocks, len(workers))
        return Case(BlockCosts(blocks, itemsize), owners, tuple(workers), rates, store, a_is_sent=a_is_sent, order=order)

    looked_at = [height] if height is not None else heights or candidate_heights(tiles.nt)
    cases = [case_of(each) for each in looked_at]
    fitting = [case for case in cases if _fits(case)]
    if not fitting:
        raise _too_small(min(cases, key=least_bytes))
    if height is not None:
        return ClusterPlan(fitting[0])
    return _fastest([ClusterPlan(case) for case in fitting])


def candidate_heights(nt: int) -> list[int]:
    """Heights of blocks that a plan looks at, in tile rows, ascending by a factor of about 1.4."""
    found = {min(nt, round(2 ** (half / 2))) for half in range(2 * nt.bit_length() + 1)}
    least = -(-nt // MOST_BLOCK_ROWS)
    return sorted(each for each in found if each >= least) or [max(1, nt)]


def _fastest(plans: list[ClusterPlan]) -> ClusterPlan:
    """The plan of the fewest predicted seconds; without rates the one of the largest blocks that are enough for all workers."""
    if not plans[0].has_rates:
        enough = [plan for plan in plans if plan.blocks.n_blocks >= _ROWS_PER_WORKER * plan.n_workers]
        return enough[-1] if enough else plans[0]
    seconds: dict[int, float] = {}
    for plan in plans:
        waiting = scheduler_seconds(plan.case.rates, plan.n_tasks, plan.n_dependencies)
        least = max(busiest_seconds(plan.case), waiting)
        is_hopeless = bool(seconds) and least > min(seconds.values())  # before the columns of a run that cannot win are followed
        seconds[plan.blocks.height] = least if is_hopeless else max(column_seconds(plan.case), waiting)
    best = min(plans, key=lambda plan: seconds[plan.blocks.height])
    return replace(best, others=tuple((at, each) for at, each in seconds.items() if at != best.blocks.height))


def least_bytes(case: Case) -> int:
    """Bytes that the fullest worker needs: its share of L, two block rows that others sent, and the task that runs."""
    working = case.working_bytes()
    if case.store == "zarr":
        return working
    return _share_bytes(case) + 2 * _shared_bytes(case) + working


def _share_bytes(case: Case) -> int:
    """Bytes of L on the worker that keeps most of it."""
    costs, shares = case.costs, [0] * len(case.workers)
    for row, owner in enumerate(case.owners.rows):
        shares[owner] += costs.row_bytes(row, row) + costs.nbytes(BlockPlace(row, row))
    return max(shares)


def _shared_bytes(case: Case) -> int:
    """Bytes of the longest row of blocks that a worker is sent: none where there is one worker."""
    last = case.costs.blocks.n_blocks - 2
    if len(case.workers) == 1 or last < 0:
        return 0
    return case.costs.row_bytes(last, last) + case.costs.nbytes(BlockPlace(last, last))


def _stored_bytes(costs: BlockCosts) -> int:
    return sum(costs.row_bytes(row, row) + costs.nbytes(BlockPlace(row, row)) for row in range(costs.blocks.n_blocks))


def _fits(case: Case) -> bool:
    return least_bytes(case) <= min(worker.memory_bytes for worker in case.workers)


def _too_small(case: Case) -> BudgetError:
    """Error where no height fits; the case is the one that needs least."""
    memory, needed = min(worker.memory_bytes for worker in case.workers), least_bytes(case)
    n_workers, height = len(case.workers), case.costs.blocks.height
    if case.store == "zarr":
        advice = "give the workers more memory, or take smaller tiles (tile_size)"
    else:
        besides = needed - _share_bytes(case)
        stored = _stored_bytes(case.costs)
        enough = -(-stored // (memory - besides)) if memory > besides else None
        more = f"take {enough} workers or more" if enough is not None and enough > n_workers else "take more workers"
        more = more if memory > besides else "give the workers more memory"
        advice = f"{more}, or let L go to a Zarr group (store=); L takes {format_bytes(stored)} on all workers together"
    return BudgetError(f"memory of a worker, of {n_workers}, for blocks of {height} tile rows", needed, memory, advice)
