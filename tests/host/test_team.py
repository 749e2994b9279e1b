"""The team of threads behind the host's kernels."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from ooc_chol.toolbox import called_beside, kept_threads, map_in_threads
from tests.inside.process import ThreadTeam, UsersCode
from tests.inside.process import team as teams


@pytest.fixture(params=[1, 2, 3, 7])
def team(request):
    made = ThreadTeam(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_every_job_runs_once(team, count):
    ran = []
    for _ in range(20):
        ran.clear()
        team.run([lambda at=at: ran.append(at) for at in range(count)])
        assert sorted(ran) == list(range(count))


def test_jobs_run_at_once():
    team, barrier = ThreadTeam(3), threading.Barrier(3, timeout=10)
    try:
        team.run([barrier.wait] * 3)  # each waits for the other two
    finally:
        team.close()


def test_a_slow_job_holds_up_nobody_else():
    team, slow = ThreadTeam(2), threading.Event()
    try:
        threads, waited = [], []
        jobs = [lambda: waited.append(slow.wait(30))] + [lambda: threads.append(threading.current_thread())] * 30 + [slow.set]
        team.run(jobs)
        assert waited == [True] and len(threads) == 30
    finally:
        team.close()


def test_the_error_of_a_job_arrives_and_the_team_goes_on(team):
    error = ValueError("job 3")

    def fail():
        raise error

    for _ in range(5):
        with pytest.raises(ValueError, match="job 3") as caught:
            team.run([lambda: None, fail, lambda: None])
        assert caught.value is error
        team.run([lambda: None] * 5)


def test_no_thread_is_left_after_close_and_a_second_close_does_nothing(team):
    team.run([lambda: time.sleep(0.001)] * 10)
    team.close()
    team.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "ooc_chol team"]


def test_a_team_of_nobody_is_refused():
    with pytest.raises(ValueError, match="give at least 1"):
        ThreadTeam(0)


def test_the_users_code_in_a_foreign_thread_leaves_no_thread_behind():
    """GPU drivers call from threads of their own; asked for its object of one, Python makes one that stays."""
    done = threading.Event()

    def foreign() -> None:
        with UsersCode():
            assert float(np.ones(4) @ np.ones(4)) == 4.0
        done.set()

    before = threading.enumerate()
    _thread.start_new_thread(foreign, ())
    assert done.wait(10)
    assert threading.enumerate() == before


def test_no_more_threads_look_at_items_than_are_asked_for():
    together, most, lock = 0, 0, threading.Lock()

    def look(_):
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.002)
        with lock:
            together -= 1
        return threading.get_ident()

    assert set(map_in_threads(look, range(5), threads=1)) == {threading.get_ident()}
    assert most == 1
    assert len(set(map_in_threads(look, range(40), threads=2))) <= 2
    assert most <= 2


def test_no_threads_at_all_are_refused():
    with pytest.raises(ValueError, match="threads is 0"):
        map_in_threads(abs, [1], threads=0)


def test_a_function_is_called_beside_a_block_which_waits_for_it():
    begun, may_end = threading.Event(), threading.Event()

    def ends(word):
        begun.set()
        assert may_end.wait(30)
        return word, threading.get_ident()

    with called_beside(lambda: ends("done")) as result:
        assert begun.wait(30)  # while we are here
        may_end.set()
        assert result() == result() == ("done", result()[1]) and result()[1] != threading.get_ident()
    before = threading.active_count()
    with pytest.raises(KeyError), called_beside(lambda: time.sleep(0.05)):
        raise KeyError("the block's own")
    assert threading.active_count() == before


def test_the_error_of_a_function_beside_is_for_who_asks():
    with called_beside(lambda: 1 // 0) as result:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                result()
    with called_beside(lambda: 1 // 0):
        pass  # nobody asked


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
def test_shares_are_even_and_all_rows_once(rows):
    with closing(ThreadTeam(4)) as team_of_four:
        for nbytes, most in [(0, 1), ((1 << 20) - 1, 1), (1 << 20, 2), (1 << 30, 4)]:
            shares = team_of_four.shares(rows, nbytes)
            assert len(shares) == most
            assert [row for share in shares for row in range(rows)[share]] == list(range(rows))
            lengths = [share.stop - share.start for share in shares]
            assert max(lengths) - min(lengths) <= 1


def of_the_team():
    return {thread for thread in threading.enumerate() if thread.name == "ooc_chol team"}


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(teams, "cores", lambda: 4)


def test_threads_are_kept_for_a_block_and_end_with_it(four_cores):
    with kept_threads():
        assert map_in_threads(abs, [-1, 2, -3]) == [1, 2, 3]
        first = of_the_team()
        assert len(first) == 3
        assert map_in_threads(lambda n: sum(map_in_threads(abs, [-n, n, -n])), range(20)) == [3 * n for n in range(20)]
        with kept_threads():
            assert map_in_threads(abs, [-1, 2]) == [1, 2]
        assert of_the_team() == first
    assert not of_the_team()


def test_turns_at_the_interpreter_are_short_in_such_blocks_alone():
    before = sys.getswitchinterval()
    try:
        for usual, inside in ((0.005, 0.0005), (0.0002, 0.0002)):
            sys.setswitchinterval(usual)
            with kept_threads():
                with kept_threads():
                    assert sys.getswitchinterval() == pytest.approx(inside, rel=0.02)
                assert sys.getswitchinterval() == pytest.approx(inside, rel=0.02)
            assert sys.getswitchinterval() == pytest.approx(usual, rel=0.02)
        with kept_threads():
            sys.setswitchinterval(0.02)
        assert sys.getswitchinterval() == pytest.approx(0.02)  # which somebody else has set
    finally:
        sys.setswitchinterval(before)


def test_kept_threads_are_as_many_at_once_as_a_call_wants(four_cores):
    at_once, most, lock = [0], [0], threading.Lock()

    def count(_):
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.002)
        with lock:
            at_once[0] -= 1

    with kept_threads():
        map_in_threads(count, range(12), threads=2)
    assert most[0] <= 2


def test_no_job_of_a_call_that_failed_goes_on_in_kept_threads(four_cores):
    running, begun = [], threading.Event()

    def work(n):
        if n == 0:
            begun.wait(10)
            raise ValueError("the first")
        running.append(n)
        begun.set()
        time.sleep(0.05)
        running.remove(n)

    with kept_threads():
        for _ in range(3):
            begun.clear()
            with pytest.raises(ValueError, match="the first"):
                map_in_threads(work, range(8))
            assert not running
        assert map_in_threads(abs, [-1, -2]) == [1, 2]


def test_an_interrupt_between_two_jobs_ends_a_call_in_kept_threads(four_cores, monkeypatch):
    """The caller has taken a job that it never runs; helpers end theirs."""
    running, begun, work = [], threading.Event(), teams._Batch.work

    def job(n):
        running.append(n)
        begun.set()
        time.sleep(0.05)
        running.remove(n)

    def interrupted(batch):
        if threading.current_thread() is not threading.main_thread():
            work(batch)
            return
        next(batch._next)
        begun.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(teams._Batch, "work", interrupted)
    with kept_threads():
        with pytest.raises(KeyboardInterrupt):
            map_in_threads(job, range(8))
        assert not running
    assert not of_the_team()


def test_a_failed_block_keeps_no_threads(four_cores):
    with pytest.raises(ValueError, match="inside"), kept_threads():
        map_in_threads(abs, [-1, -2, -3])
        raise ValueError("inside")
    assert not of_the_team()
    assert map_in_threads(abs, [-1, -2]) == [1, 2]
