"""Workers that leave while a call asks them, in every phase: the right bits within seconds, or an error of ours."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import ooc_chol as oc
from tests.cluster_machines import AGAIN_SECONDS, cluster_of, kill
from tests.inside.cluster import (
    WorkersLeftError,
    asking,
    connection,
    facts,
    gathered,
    mixed_work,
    planning,
    rates,
    shared_blocks,
    waiting,
)

pytestmark = pytest.mark.usefixtures("no_hang", "dask_threads")

N, NB = 240, 40


def near_one(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """``exp(-|i - j| / 20)``, and one more on the diagonal."""
    out[:] = np.exp(-np.abs(np.subtract.outer(rows, cols)) / 20.0) + np.equal.outer(rows, cols)


def source() -> object:
    return oc.from_function(N, near_one)


@pytest.fixture
def client(clusters: None, monkeypatch):
    """Two workers, of which tests end some: their nannies start others, with threads of this process."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    with cluster_of(2) as client:
        yield client


@pytest.fixture(scope="module")
def bits():
    """L of one machine, by the options that a call has beside its client."""
    made: dict[str, np.ndarray] = {}

    def of(options: dict[str, object]) -> np.ndarray:
        if (name := str(options)) not in made:
            with oc.cholesky(source(), tile_size=NB, **options) as factor:
                made[name] = np.asarray(factor)
        return made[name]

    return of


#: What a call asks workers for, by the names under which it does: facts, the settled options and the key, rates, shared memory.
PHASES = {
    "facts": (facts, "asked_of_all"),
    "one": (asking, "asked_of_all"),
    "shared": (shared_blocks, "asked_of_all"),
    "rates": (planning, "measured_rates"),
    "engine": (mixed_work, "asked_of_one"),
}
#: Options of calls that ask for it.
OPTIONS = {"engine": {"precision_threshold": 1e-6}}


def check(client, bits, options: dict[str, object]) -> None:
    with oc.cholesky(source(), tile_size=NB, client=client, **options) as factor:
        assert np.array_equal(np.asarray(factor), bits(options))


def once(happen, ask, moment: str):
    """``ask``, before or after whose first call something happens; and the list of what happened."""
    told: list[str] = []

    def asked(*given, **options):
        if not told and moment == "before":
            told.append(moment)
            happen()
        answers = ask(*given, **options)
        if not told:
            told.append(moment)
            happen()
        return answers

    return asked, told


def test_a_worker_that_dies_while_it_is_asked_changes_no_bit(client, bits, monkeypatch):
    monkeypatch.setattr(planning, "LEAST_MEASURED_FLOPS", 0)
    for phase, (module, name) in PHASES.items():
        for moment in ("before", "after"):
            client.wait_for_workers(2, timeout=AGAIN_SECONDS)
            with pytest.MonkeyPatch.context() as patched:
                ask, told = once(lambda: kill(client), getattr(module, name), moment)
                patched.setattr(asking, "_TOLD", {})  # a call before may have asked the same workers
                patched.setattr(module, name, ask)
                check(client, bits, OPTIONS.get(phase, {}))
                assert told, phase


def test_workers_that_die_after_they_have_answered_are_asked_for_no_longer(client, bits):
    """Their answers went with them: tasks that are for them alone would be there for ever."""
    for count in (1, 2):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        with pytest.MonkeyPatch.context() as patched:
            waits, told = once(partial(kill, client, count), asking.wait_for, "after")
            patched.setattr(asking, "wait_for", waits)
            check(client, bits, {})
            assert told


def test_others_that_are_there_answer_for_those_that_left(client, bits):
    for leave in (lambda: kill(client, 2), lambda: client.retire_workers(list(client.nthreads())[:1])):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        with pytest.MonkeyPatch.context() as patched:
            ask, told = once(leave, facts.asked_of_all, "before")
            patched.setattr(facts, "asked_of_all", ask)
            check(client, bits, {})
            assert told


def test_with_a_plan_another_worker_is_waited_for(client, bits, monkeypatch):
    monkeypatch.setattr(connection, "AGAIN_SECONDS", AGAIN_SECONDS)
    plan = oc.plan(source(), tile_size=NB, client=client)
    ask, told = once(lambda: kill(client), facts.asked_of_all, "before")
    monkeypatch.setattr(facts, "asked_of_all", ask)
    with oc.cholesky(source(), client=client, plan=plan) as factor:
        assert np.array_equal(np.asarray(factor), bits({}))
        assert told and len(factor.report.workers) == 2


def test_a_worker_that_dies_at_some_moment_changes_no_bit(client, bits):
    for seconds in (0.0, 0.05, 0.3, 0.54):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        dying = threading.Timer(seconds, os.kill, (next(iter(client.run(os.getpid).values())), signal.SIGKILL))
        dying.start()
        check(client, bits, {})
        dying.join()


def test_what_all_workers_had_is_made_again_where_it_is_asked_for(client, bits, monkeypatch):
    """Dask keeps what was lost with them for them alone."""
    monkeypatch.setattr(waiting, "FORGOTTEN_SECONDS", 0.5)
    a = np.empty((N, N))
    near_one(range(N), range(N), a, None)
    client.wait_for_workers(2, timeout=AGAIN_SECONDS)
    with oc.cholesky(a, tile_size=NB, client=client) as factor:
        kill(client, 2)
        assert np.array_equal(np.asarray(factor), bits({}))
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        kill(client, 2)
        x = factor.solve(np.ones(N))
    assert np.allclose(a @ x, 1.0)


class _Forgetful:
    """A client whose workers have nothing to do, and whose scheduler gives out something twice."""

    def __init__(self) -> None:
        self.status, self.left = "running", [0, 1, 1]

    def scheduler_info(self, n_workers: int) -> dict[str, object]:
        return {"workers": {"one": {"status": "running"}, "two": {"status": "running"}}}

    def processing(self) -> dict[str, list[str]]:
        return {"one": [], "two": []}

    def run_on_scheduler(self, function: object) -> int:
        return self.left.pop() if self.left else 0


def test_tasks_that_no_worker_is_given_are_given_out_and_then_an_error(monkeypatch):
    for name, seconds in (("LOOK_SECONDS", 0.0), ("FORGOTTEN_SECONDS", 0.02), ("STALLED_SECONDS", 0.05)):
        monkeypatch.setattr(waiting, name, seconds)
    monkeypatch.setattr(waiting, "check_alive", lambda client: None)
    client = _Forgetful()
    watch, began = waiting.StallWatch(client), time.monotonic()
    with pytest.raises(oc.errors.ClusterError, match="none of what is left"):
        while True:
            watch.look()
            time.sleep(0.005)
    assert not client.left and time.monotonic() - began >= 2 * 0.02 + 0.05


def test_what_takes_what_a_worker_lacks_is_given_to_none():
    def task(key: str, loose: bool, taken: dict[str, float] | None) -> SimpleNamespace:
        return SimpleNamespace(key=key, loose_restrictions=loose, resource_restrictions=taken, state="no-worker")

    tasks = [task("any", True, None), task("theirs", False, None), task("gpu", True, {"GPU": 1}), task("disk", True, {"disk": 2})]
    told: dict[str, str] = {}

    def transitions(recommended: dict[str, str], stimulus_id: str) -> None:
        told.update(recommended)
        for each in tasks:
            each.state = recommended.get(each.key, each.state)

    workers = [SimpleNamespace(resources=each) for each in ({"GPU": 1.0, "disk": 2.0}, {"GPU": 2.0})]
    assert waiting._give_out(SimpleNamespace(unrunnable=tasks, running=workers, transitions=transitions)) == 2
    assert told == {"any": "processing", "gpu": "processing"}


def test_rates_of_workers_that_left_are_asked_for_no_longer(client, monkeypatch):
    monkeypatch.setattr(rates, "_KNOWN", {})
    for name in ("_empty_tasks", "_transfer_seconds"):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        with pytest.MonkeyPatch.context() as patched:
            submit, told = once(lambda: kill(client), getattr(rates, name), "before")
            patched.setattr(rates, name, submit)
            assert oc.plan(source(), tile_size=NB, client=client).n_tasks
            assert told


def deadly() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_die_of_every_question_end_the_call(client, monkeypatch):
    monkeypatch.setattr(facts, "state_here", lambda *_: deadly())
    with pytest.raises(oc.errors.ClusterError, match=r"workers? left while they were asked"):
        oc.cholesky(source(), tile_size=NB, client=client)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "STALLED_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "WAIT_SECONDS", 0.5)


def fill(fraction: float, dask_worker) -> None:
    """Let a worker have used up its memory, or have room again: Dask looks some times a second."""
    dask_worker.memory_manager.memory_pause_fraction = fraction


def wait_until(client, status: str, workers: list[str]) -> None:
    """Wait until the scheduler has heard of it."""
    until = time.monotonic() + AGAIN_SECONDS
    while any(client.scheduler_info(n_workers=-1)["workers"][each]["status"] != status for each in workers):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_memory_that_fills_ends_a_call_in_any_phase_and_room_changes_no_bit(client, bits, impatient, monkeypatch):
    workers = list(client.nthreads())

    def fill_all(full: list[str]) -> None:
        client.run(fill, 1e-9, workers=full)
        wait_until(client, "paused", full)

    def call(**options) -> None:
        with oc.cholesky(source(), tile_size=NB, client=client, **options) as factor:
            assert np.array_equal(np.asarray(factor), bits({}))

    for count in (1, 2):  # while they are asked: each has a task that nobody else may do
        ask, told = once(partial(fill_all, workers[:count]), facts.asked_of_all, "before")
        with (
            pytest.MonkeyPatch.context() as patched,
            pytest.raises(oc.errors.ClusterError, match=f"paused {count} of 2 workers") as caught,
        ):
            patched.setattr(facts, "asked_of_all", ask)
            call()
        assert told and set(caught.value.workers) == set(workers[:count])
        client.run(fill, 0.8)
        wait_until(client, "running", workers)
    filled: list[int] = []

    def fill_once(done: int, total: int, seconds: float) -> None:
        if done and not filled:  # the last blocks have not been submitted
            filled.append(done)
            fill_all(workers)

    with pytest.raises(oc.errors.ClusterError, match="paused 2 of 2 workers"):  # while blocks are made
        call(progress=fill_once)
    monkeypatch.setattr(waiting, "STALLED_SECONDS", AGAIN_SECONDS)
    free = threading.Timer(0.2, client.run, (fill, 0.8))
    free.start()
    call()  # which waits for room
    free.join()


@pytest.mark.usefixtures("clusters")
def test_what_no_worker_may_do_and_what_nobody_is_there_for_are_errors(impatient):
    with cluster_of(1, processes=False, memory_limit=0) as client:
        with pytest.raises(oc.errors.ClusterError, match="none of what is left"):
            gathered(client, client.submit(abs, -1, resources={"GPU": 1}, pure=False))
        (there,) = client.nthreads()
        with pytest.raises(WorkersLeftError, match=r"1 of 2 workers left") as raised:
            gathered(
                client, client.submit(abs, -1, workers=["tcp://127.0.0.1:1"], pure=False), asked=["tcp://127.0.0.1:1", there]
            )
        assert set(raised.value.workers) == {"tcp://127.0.0.1:1"}
        client.cluster.scale(0)
        with pytest.raises(oc.errors.ClusterError, match="no worker any more"):
            gathered(client, client.submit(abs, -2, pure=False))


@pytest.mark.usefixtures("clusters")
def test_what_is_fetched_for_long_is_no_stall(impatient, monkeypatch):
    with cluster_of(1, processes=False, memory_limit=0) as client:
        future = client.submit(abs, -3, pure=False)
        gather = client._gather

        async def slowly(*given, **options):
            await asyncio.sleep(1.5)
            return await gather(*given, **options)

        monkeypatch.setattr(client, "_gather", slowly)
        assert gathered(client, future) == 3
