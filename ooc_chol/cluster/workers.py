"""The workers of a call: what they have, tasks that are each for one of them, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, final

from ooc_chol.calls.machine import Machine
from ooc_chol.cluster.asking import asked_of_one, told_before
from ooc_chol.cluster.connection import worker_addresses
from ooc_chol.cluster.facts import WorkerState, agreed_states, check_room, shared_out
from ooc_chol.cluster.placing import GPU_RESOURCE
from ooc_chol.cluster.request import RETRIES
from ooc_chol.cluster.tasks import Verdict
from ooc_chol.cluster.waiting import asked_anew, clear_words, gathered, losses_named
from ooc_chol.dense.options import FactorOptions
from ooc_chol.formats import FP64
from ooc_chol.process.address_space import guarded_imports
from ooc_chol.sparse.key import device_facts
from ooc_chol.sparse.pass_rates import PassRates, pass_rates_of


@final
class Workers:
    """Workers of a client with devices and a budget each."""

    def __init__(self, client: Any, options: FactorOptions) -> None:
        self.client, self._options = client, options
        self.states: dict[str, WorkerState] = {}  #: By address, as they were asked last
        self.lost: dict[str, None] = {}  #: Those that have gone since
        with self.answering():
            asked_anew(self._ask)

    def _ask(self) -> None:
        states = agreed_states(self.client, self._options, FP64)
        states = shared_out(states) if self._options.memory_budget is None else states
        check_room(states)
        self.states = states

    def renew(self, planned: int = 1) -> bool:
        """Ask anew where other workers are there than when they were asked; tells whether some are.

        For so many as are planned with it waits a while.
        """
        there = worker_addresses(self.client, planned)
        self.lost |= dict.fromkeys(each for each in self.states if each not in there)
        if set(there) == set(self.states):
            return False
        self._ask()
        return True

    @property
    def arithmetic(self) -> str:
        """Kind, model and library of their devices, on which bits depend."""
        state = next(iter(self.states.values()))
        return device_facts(state.devices, state.kernels)

    @property
    def rates(self) -> PassRates | None:
        """Rates of a device that a worker knows of; None where it knows none."""
        devices = next(iter(self.states.values())).devices
        question = tuple(self.states), devices
        ask = partial(asked_of_one, self.client, self.states, rates_here, devices)
        found: PassRates | None = told_before(self.client, "rates", question, ask)
        return found

    @property
    def budget_bytes(self) -> int:
        """The least budget of a device of any worker."""
        return min(state.budget_bytes for state in self.states.values())

    def threads(self, address: str) -> int:
        """Threads of each device of a worker."""
        state = self.states[address]
        return max(1, self.client.nthreads().get(address, 1) // len(state.devices)) if state.is_host else 1

    def submit(self, address: str, call: Callable[..., Any], *arguments: Any, is_beside: bool = False) -> Any:
        """A task for one worker; ``is_beside`` its other tasks it runs once, and takes no part of what it announces."""
        announced = all(state.resources.get(GPU_RESOURCE) for state in self.states.values())
        how: dict[str, Any] = {"resources": {GPU_RESOURCE: 1.0}} if announced and not is_beside else {}
        how["retries"] = 0 if is_beside else RETRIES
        return self.client.submit(call, *arguments, workers=[address], pure=False, priority=1, **how)

    def gathered(self, futures: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Answers of workers, one after the other; an error of one is raised, and nothing stays behind."""
        try:
            for address, future in futures.items():
                answer = gathered(self.client, future, asked=list(futures))
                if isinstance(answer, Verdict):
                    answer.error.add_note(f"on worker {address}")
                    raise answer.error
                yield address, answer
        except BaseException:
            self.forget(futures)
            raise

    def forget(self, futures: dict[str, Any]) -> None:
        """Let tasks not begin that have not."""
        if self.client.status == "running":
            self.client.cancel(list(futures.values()), force=True)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Call errors of Dask by their names inside a block; vectors travel inside tasks on purpose."""
        settings = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
        with guarded_imports(blas=False):
            dask = import_module("dask")
        with losses_named(), clear_words(self.client), dask.config.set(settings):
            yield


def rates_here(devices: Sequence[str]) -> PassRates | None:
    """Rates of devices of the worker that runs this."""
    return pass_rates_of(Machine(devices))
