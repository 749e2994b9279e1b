"""Facts on which all workers must agree before a run: package, devices and kernels, and room for their budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ooc_chol.calls.machine import rounded_down
from ooc_chol.cluster.asking import asked_of_all, asked_of_one, machine_of, told_before
from ooc_chol.cluster.blocks import BlockGrid
from ooc_chol.cluster.choosing import settled
from ooc_chol.cluster.connection import worker_addresses
from ooc_chol.cluster.making import key_here
from ooc_chol.cluster.model import ClusterRates
from ooc_chol.cluster.placing import GPU_RESOURCE
from ooc_chol.cluster.plan import ClusterPlan, least_bytes, settled_of
from ooc_chol.config import format_bytes
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.problem import budget_of
from ooc_chol.errors import ClusterError, OocCholError
from ooc_chol.files.positional_io import package_version
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.kinds import CUDA_RESERVE_BYTES
from ooc_chol.hardware.registry import device_kind, memory_info, resolve_devices
from ooc_chol.kernels.kinds import KernelFacts
from ooc_chol.kernels.registry import kernel_facts
from ooc_chol.process.address_space import guarded_imports

#: Part of what Dask lets a worker on the host have that a budget takes unless told: blocks of L lie beside it.
LIMIT_SHARE = 4
#: What a plan of bytes and tasks goes by, of which no seconds are asked.
UNMEASURED = ClusterRates(network_bytes_per_second=1e9)


@dataclass(frozen=True)
class WorkerState:
    """One worker as it says of itself."""

    devices: tuple[str, ...]  #: Names of those that its tasks run on
    kernels: KernelFacts  #: What bits depend on
    budget_bytes: int  #: The budget of each device: what was asked for, or what is free
    is_host: bool  #: Whether that is memory of the worker's process
    version: str  #: Of this package
    memory_limit: int  #: Bytes that Dask lets its process have; 0 for no limit
    free_bytes: int  #: Free bytes of its machine's memory, shared with other workers there
    resources: Mapping[str, float]  #: What it announces to Dask
    gpus: tuple[str, ...] = ()  #: What tells its GPUs from others of its machine, whatever it calls them
    gpu_bytes: int = 0  #: All memory of the smallest of them

    @property
    def room_bytes(self) -> int:
        """Bytes that blocks of L and a task may take."""
        return self.memory_limit or self.free_bytes


class Sharing(NamedTuple):
    """With how many workers one shares what, itself among them."""

    machine: int  #: Its machine
    gpu: int = 1  #: That of its GPUs which most workers compute on


@dataclass(frozen=True)
class ClusterFacts:
    """All workers, which agree, and the options that are settled for them."""

    workers: Mapping[str, WorkerState]  #: By address
    options: FactorOptions  #: With nothing left open that bits depend on, and the budget that all have
    memory_bytes: int  #: Of each worker's memory, for its task and for tiles of a group that it keeps
    shares_memory: bool = False  #: Whether blocks are in memory that others of a machine map

    @property
    def resources(self) -> dict[str, float]:
        """Resources that each task takes of those that all workers announce."""
        announced = all(state.resources.get(GPU_RESOURCE) for state in self.workers.values())
        return {GPU_RESOURCE: 1.0} if announced else {}

    @property
    def copies(self) -> bool:
        """True if devices copy to memory of their own what they compute with."""
        return not any(state.is_host for state in self.workers.values())

    @property
    def kernels(self) -> KernelFacts:
        """Facts that bits depend on, in which all workers agree."""
        return next(iter(self.workers.values())).kernels

    @property
    def sharing(self) -> dict[str, Sharing]:
        """By address, with how many workers each shares its machine and its GPUs."""
        return sharing_of(self.workers)


def state_here(options: FactorOptions, fmt: PrecisionFormat, sharing: int) -> WorkerState | Exception:
    """State of the worker that runs this, one of ``sharing`` on its machine; an error is a result, so that all are known."""
    with guarded_imports(blas=False):
        from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit or 0
    try:
        names = resolve_devices(options.devices)
        is_host = device_kind(names[0]).is_in_host_memory
        budget = budget_of(options, names)
        if options.memory_budget is None and is_host:
            budget = rounded_down(min(budget // sharing, limit // LIMIT_SHARE if limit else budget))
        free = free_host_bytes() // sharing
        resources = dict(worker.state.total_resources)
        gpus = () if is_host else tuple(device_kind(name).identity(name) for name in names)
        gpu_bytes = 0 if is_host else min(memory_info(name)[1] for name in names)
        kernels, version = kernel_facts(names, fmt), package_version()
        return WorkerState(names, kernels, budget, is_host, version, limit, free, resources, gpus, gpu_bytes)
    except (OocCholError, ValueError) as error:
        return error


def agreed_facts(
    client: Any, n: int, options: FactorOptions, fmt: PrecisionFormat, plan: ClusterPlan | None = None
) -> ClusterFacts:
    """Ask every worker, one small task each; ``ClusterError`` where they differ in what bits depend on, or lack room.

    ``WorkersLeftError`` where one leaves meanwhile, and ``ValueError`` where a plan that was given is for other workers; one that
    has gone is waited for a while.
    """
    told = options if plan is None else settled_of(plan).options
    states = agreed_states(client, told, fmt, 1 if plan is None else plan.n_workers)
    if plan is not None:
        check_planned(plan, states)
        check_room(states)
        return ClusterFacts(states, told, _memory_bytes(options, states))
    if options.memory_budget is None:
        states = shared_out(states)
    check_room(states)
    memory = _memory_bytes(options, states)
    options = replace(options, memory_budget=min(state.budget_bytes for state in states.values()))
    question = tuple(states), n, options, fmt
    options = told_before(client, "settled", question, lambda: asked_of_one(client, states, settled, n, options, fmt))
    return ClusterFacts(states, options, memory)


def agreed_states(client: Any, options: FactorOptions, fmt: PrecisionFormat, planned: int = 1) -> dict[str, WorkerState]:
    """Ask every worker for its state, one small task each; ``ClusterError`` where they differ in what bits depend on."""
    addresses = worker_addresses(client, planned)
    machines = Counter(map(machine_of, addresses))
    states = asked_of_all(client, {each: (state_here, (options, fmt, machines[machine_of(each)])) for each in addresses})
    _check_equal({address: state.version for address, state in states.items()}, "the version of ooc_chol")
    for name, words in _WORDS.items():
        _check_equal({address: getattr(state.kernels, name) for address, state in states.items()}, words)
    return states


def check_planned(plan: ClusterPlan, states: Mapping[str, WorkerState]) -> None:
    """Raise ``ValueError`` for the first thing in which workers are not those that a plan is for; their addresses are none."""
    planned = settled_of(plan)
    if len(states) != plan.n_workers:
        raise ValueError(f"the plan is for {plan.n_workers} workers, but the cluster has {len(states)}: {_PLAN_ANEW}")
    for name, words in _WORDS.items():
        there, here = getattr(planned.kernels, name), getattr(next(iter(states.values())).kernels, name)
        if there != here:
            raise ValueError(f"the plan is for workers that differ in {words} ({there!r} there, {here!r} here): {_PLAN_ANEW}")
    is_chosen, least = planned.asked.memory_budget is None, least_bytes(plan.case)
    for address, state in states.items():
        is_bounded = state.is_host and (is_chosen or state.memory_limit)
        needed = max(least, state.budget_bytes) if is_bounded else least
        if needed > state.room_bytes:
            raise ValueError(
                f"the plan takes {format_bytes(needed)} of a worker's memory, but {address} has {format_bytes(state.room_bytes)} "
                f"now: {_PLAN_ANEW}"
            )


def _memory_bytes(options: FactorOptions, states: Mapping[str, WorkerState]) -> int:
    """Bytes of the worker's memory for a task and the tiles that the worker keeps, together.

    On the host that is the budget, where one is given. Else, and beside GPUs, half of what Dask lets a worker have: Python and
    Dask take some themselves, and at four fifths Dask makes a worker pause.
    """
    if options.memory_budget is not None and all(state.is_host for state in states.values()):
        return min(state.budget_bytes for state in states.values())
    return min(state.room_bytes for state in states.values()) // 2


def sharing_of(states: Mapping[str, WorkerState]) -> dict[str, Sharing]:
    """By address, with how many workers each shares its machine and its GPUs."""
    machines = Counter(map(machine_of, states))
    users = Counter((machine_of(address), gpu) for address, state in states.items() for gpu in state.gpus)
    return {
        address: Sharing(machines[machine_of(address)], max((users[machine_of(address), gpu] for gpu in state.gpus), default=1))
        for address, state in states.items()
    }


def shared_out(states: Mapping[str, WorkerState]) -> dict[str, WorkerState]:
    """Workers of which each that shares a GPU has its part of what is free there: each was told all of it.

    Every process leaves as much to its context and libraries as one alone does.
    """
    shared: dict[str, WorkerState] = {}
    for address, sharing in sharing_of(states).items():
        state = shared[address] = states[address]
        if sharing.gpu > 1:
            part = (state.budget_bytes + CUDA_RESERVE_BYTES) // sharing.gpu - CUDA_RESERVE_BYTES
            shared[address] = replace(state, budget_bytes=rounded_down(max(1 << 20, part)))
    return shared


#: What to do where a plan is for other workers.
_PLAN_ANEW = "leave plan out, or plan anew (oc.plan(A, client=client))"
#: What differs, in words.
_WORDS = {
    "model": "the model of its devices",
    "library": "the BLAS library",
    "trsm": "the triangular solve",
    "kernels": "kernels",
}


def _check_equal(values: Mapping[str, str], what: str) -> None:
    """Raise ``ClusterError`` naming those that differ from most."""
    if len(set(values.values())) <= 1:
        return
    usual, _ = Counter(values.values()).most_common(1)[0]
    others = {address: f"{value!r}, not {usual!r}" for address, value in values.items() if value != usual}
    raise ClusterError(
        f"workers differ in {what}, on which bits depend",
        "retire the workers that differ, or make them equal: the same package, libraries and kind of device on all",
        others,
    )


def check_room(states: Mapping[str, WorkerState]) -> None:
    """Raise ``ClusterError`` where Dask would end a worker that takes its budget, or workers of one GPU want more than it has."""
    over = {
        address: f"budget {format_bytes(state.budget_bytes)} for each of {sharing.gpu} workers on a GPU of "
        f"{format_bytes(state.gpu_bytes)}"
        for address, sharing in sharing_of(states).items()
        if (state := states[address]).gpus and state.budget_bytes * sharing.gpu > state.gpu_bytes
    }
    if over:
        advice = "give a smaller memory_budget, or none; or start one worker for each GPU, with CUDA_VISIBLE_DEVICES"
        raise ClusterError("the memory budgets of workers are more than their GPU has", advice, over)
    short = {
        address: f"budget {format_bytes(state.budget_bytes)}, memory limit {format_bytes(state.memory_limit)}"
        for address, state in states.items()
        if state.memory_limit and state.is_host and state.budget_bytes > state.memory_limit
    }
    if short:
        advice = "give a smaller memory_budget, or start workers with a larger --memory-limit"
        raise ClusterError("the memory budget is more than Dask lets workers have", advice, short)


def agreed_key(client: Any, facts: ClusterFacts, blocks: BlockGrid, fmt: PrecisionFormat) -> dict[str, str | int]:
    """The arithmetic key of all tasks, by a worker's devices and the plan of the first block."""
    question = tuple(facts.workers), facts.options, blocks, fmt
    key: dict[str, str | int] = told_before(
        client, "key", question, lambda: asked_of_one(client, facts.workers, key_here, facts.options, blocks, fmt)
    )
    return dict(key)
