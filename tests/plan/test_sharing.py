"""Kernels on two streams share the processors: nothing is done faster than it can be, and nothing is paid twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.inside.dense import SharedProcessors

SHARES = st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0])
#: Quarters of a second, so that sums are exact.
SECONDS = st.integers(1, 40).map(lambda quarters: quarters / 4)
GAPS = st.integers(0, 40).map(lambda quarters: quarters / 4)


def test_alone_a_kernel_takes_its_own_time():
    processors = SharedProcessors()
    assert processors.compute(1.0, 0.1, 0.3) == 1.0 + 0.1
    assert processors.urgent(0.5, 0.1, 0.3) == 0.5 + 0.1


@pytest.mark.parametrize(("share", "end"), [(0.25, 10 / 0.75), (0.5, 20.0), (1.0, 110.0)])
def test_an_urgent_kernel_leaves_what_it_does_not_use(share, end):
    processors = SharedProcessors()
    processors.urgent(0.0, 100.0, share)
    assert processors.compute(0.0, 10.0, 1.0) == pytest.approx(end)


def test_kernels_that_fit_beside_each_other_do_not_slow_each_other():
    processors = SharedProcessors()
    processors.urgent(0.0, 100.0, 0.4)
    assert processors.compute(0.0, 10.0, 0.6) == 10.0


def test_only_the_time_together_is_shared():
    processors = SharedProcessors()
    processors.urgent(2.0, 4.0, 0.5)
    assert processors.compute(0.0, 10.0, 1.0) == 12.0  # 2 before, 4 at half speed, 6 after


def test_a_debt_is_paid_by_the_next_kernel():
    processors = SharedProcessors()
    assert processors.compute(0.0, 10.0, 1.0) == 10.0
    processors.urgent(2.0, 4.0, 0.5)  # would have made it end at 12
    assert processors.compute(10.0, 10.0, 1.0) == 22.0
    assert processors.compute(22.0, 10.0, 1.0) == 32.0  # once


@pytest.mark.parametrize(("start", "end"), [(11.0, 22.0), (12.0, 22.0), (13.0, 23.0)])
def test_a_debt_is_paid_from_time_in_which_the_compute_stream_stands_still(start, end):
    processors = SharedProcessors()
    processors.compute(0.0, 10.0, 1.0)
    processors.urgent(2.0, 4.0, 0.5)
    assert processors.compute(start, 10.0, 1.0) == end


def test_time_that_urgent_kernels_use_pays_no_debt():
    processors = SharedProcessors()
    processors.compute(0.0, 10.0, 1.0)
    processors.urgent(2.0, 4.0, 0.5)
    processors.urgent(10.0, 2.0, 1.0)
    assert processors.compute(12.0, 10.0, 1.0) == 24.0


def test_urgent_kernels_at_once_take_the_sum_of_their_shares():
    processors = SharedProcessors()
    processors.urgent(0.0, 10.0, 0.25)
    processors.urgent(0.0, 20.0, 0.5)
    # The others leave it a quarter: it takes four times as long.
    assert processors.urgent(5.0, 1.0, 1.0) == pytest.approx(9.0)
    # A quarter of the speed up to 10, but for four seconds without any; half of it up to 20, then all.
    assert processors.compute(0.0, 10.0, 1.0) == pytest.approx(20.0 + 10.0 - 6 / 4 - 5.0)


@example(work=[(0.0, 2.4589525352216675, 1.0), (0.0, 5.0, 0.25), (0.26, 1.0, 1.0), *[(0.0, 1.0, 1.0)] * 3])
@given(work=st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 5), st.floats(0.1, 1)), min_size=1, max_size=12))
def test_urgent_kernels_never_do_more_than_all_processors_can(work):
    processors = SharedProcessors()
    spans = [(start, processors.urgent(start, seconds, share)) for start, seconds, share in work]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    assert sum(seconds * share for _, seconds, share in work) <= (last - first) * (1 + 1e-9)
    assert all(end >= start + seconds - 1e-9 for (start, end), (_, seconds, _) in zip(spans, work, strict=True))


@given(data=st.data())
def test_what_was_told_before_is_never_exceeded(data):
    # Urgent kernels first, then compute kernels: each of these gets exactly its seconds, at the speed that is left.
    processors, urgent, at = SharedProcessors(), [], 0.0
    for _ in range(data.draw(st.integers(0, 6))):
        at += data.draw(GAPS)
        seconds, share = data.draw(SECONDS), data.draw(SHARES)
        urgent.append((at, at + seconds, share))
        at = processors.urgent(at, seconds, share)
    at = 0.0
    for _ in range(data.draw(st.integers(1, 6))):
        start, seconds, share = at + data.draw(GAPS), data.draw(SECONDS), data.draw(SHARES)
        at = processors.compute(start, seconds, share)
        slowed = sum(
            max(0.0, min(at, end) - max(start, begin)) * (1 - min(1.0, (1 - taken) / share)) for begin, end, taken in urgent
        )
        assert at - start - slowed == pytest.approx(seconds)


@given(data=st.data())
def test_the_order_of_telling_does_not_change_the_work_of_a_busy_device(data):
    # A compute stream that never stands still ends when all that both streams need of the processors is done.
    computing = data.draw(st.lists(SECONDS, min_size=1, max_size=6))
    kernels, at = [], 0.0
    for _ in range(data.draw(st.integers(0, 5))):
        at += data.draw(GAPS)
        seconds, share = data.draw(SECONDS), data.draw(SHARES)
        if at + seconds > sum(computing):
            break
        kernels.append((at, seconds, share))
        at += seconds
    first = data.draw(st.integers(0, len(kernels)))
    processors = SharedProcessors()
    for kernel in kernels[:first]:
        processors.urgent(*kernel)
    at = 0.0
    for place, seconds in enumerate(computing):
        if place == len(computing) - 1:
            for kernel in kernels[first:]:
                processors.urgent(*kernel)
        at = processors.compute(at, seconds, 1.0)
    assert at == pytest.approx(sum(computing) + sum(seconds * share for _, seconds, share in kernels))


@given(
    origin=st.sampled_from([0.0, 1.4, 77.7, 3e4]),
    kernels=st.lists(
        st.tuples(st.booleans(), st.integers(0, 3000), st.floats(1e-6, 1e-3), st.sampled_from([0.0755, 0.37, 0.566, 1.0])),
        min_size=2,
        max_size=30,
    ),
)
def test_no_kernel_ends_before_it_starts_however_late_in_a_run(origin, kernels):
    """Seconds of microseconds after hours: what rounding leaves of a kernel is no kernel."""
    processors, free = SharedProcessors(), origin
    for is_urgent, at, seconds, share in kernels:
        start = max(free, origin + at * 1e-6) if not is_urgent else origin + at * 1e-6
        end = (processors.urgent if is_urgent else processors.compute)(start, seconds, share)
        free = free if is_urgent else end
        assert end >= start + seconds * (1 - 1e-6) - 1e-10
        taken = processors._taken
        assert all(one[0] <= one[1] <= two[0] for one, two in itertools.pairwise(taken))
