"""Many calls in one process, of all scenarios in turn and some of them failing: what the process holds must not grow."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ooc_chol as oc
from tests.faults.campaign import unseen_errors
from tests.faults.devices import DriverError, wrapped_hosts
from tests.faults.injector import Injector
from tests.faults.scenarios import ENGINES, PASSES, Folder, Scenario
from tests.faults.system import counted_system, system_error

#: Every so many calls one is made to fail, at a place that moves on from one to the next.
_FAILS_EVERY = 3
_FAULTS = (
    ("device:", partial(DriverError, "refused")),
    ("file:", partial(system_error, 5)),
    ("memory:", partial(MemoryError, "refused")),
    ("thread:", partial(RuntimeError, "can't start new thread")),
)


@dataclass(frozen=True)
class Held:
    """What the process holds."""

    resident_bytes: int
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Held:
        """Look, with what nobody refers to any more given back."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), threading.active_count())


def soak(folder: Folder, calls: int, look_every: int, scenarios: Sequence[Scenario] = (*ENGINES, *PASSES)) -> Iterator[Held]:
    """Make so many calls; every so often what the process holds. An error that nobody ordered is raised."""
    injector = Injector()
    rights: dict[str, bytes] = {}
    with wrapped_hosts(injector), counted_system(injector):
        for number in range(calls):
            scenario = scenarios[number % len(scenarios)]
            folder.forget_checkpoint()  # another scenario's, which is none of this one's
            kind, make = _FAULTS[number // _FAILS_EVERY % len(_FAULTS)]
            if number % _FAILS_EVERY == _FAILS_EVERY - 1:
                injector.arm(kind, 1 + 7 * number % 40, make)
            with unseen_errors() as unseen:
                _call(partial(scenario.run, folder), injector, rights, scenario.name)
            injector.disarm()
            assert not unseen, f"call {number}, {scenario.name}: {unseen}"
            if number % look_every == look_every - 1:
                yield Held.now()


def _call(run: Callable[[], bytes], injector: Injector, rights: dict[str, bytes], name: str) -> None:
    """One call, which returns what it returned before unless it was made to fail."""
    try:
        got = run()
    except (oc.OocCholError, MemoryError):
        if not injector.has_failed:
            raise
        return
    assert rights.setdefault(name, got) == got, f"{name} has other bits"
