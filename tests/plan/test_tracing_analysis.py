"""Every nanosecond of a stream has one owner, and an exposed copy is a copy that was waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.tracing import TraceRecord, exposed_copy_seconds, link_totals, stream_times, waits
from tests.inside.tracing import computing_ns
from tests.plan.simulated_records import Operation, programs, simulate

pytestmark = pytest.mark.plan

ORIGINS = st.sampled_from([0, 123_456_789_012])


def spans_by_stream(records: list[TraceRecord], shortest_ns: int) -> dict[tuple[str, str], list[tuple[int, int]]]:
    entries = [*records, *waits(records, shortest_ns=shortest_ns)]
    streams: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for entry in entries:
        streams.setdefault((entry.device, entry.stream), []).append((entry.start_ns, entry.end_ns))
    return {key: sorted(spans) for key, spans in streams.items()}


@given(program=programs(), origin_ns=ORIGINS)
def test_operations_and_waits_tile_every_stream_from_the_start_of_the_run(program, origin_ns):
    records = simulate(program, origin_ns=origin_ns)
    start = min(record.start_ns for record in records)
    for spans in spans_by_stream(records, shortest_ns=0).values():
        moment = start
        for span_start, span_end in spans:
            assert span_start == moment
            moment = span_end


@given(program=programs())
def test_only_gaps_up_to_a_microsecond_have_no_name(program):
    records = simulate(program)
    start = min(record.start_ns for record in records)
    for spans in spans_by_stream(records, shortest_ns=1_000).values():
        moment = start
        for span_start, span_end in spans:
            assert 0 <= span_start - moment <= 1_000
            moment = span_end


@given(program=programs())
def test_busy_waiting_idle_and_finished_sum_to_the_wall_time(program):
    records = simulate(program)
    wall = max(record.end_ns for record in records) - min(record.start_ns for record in records)
    times = stream_times(records)
    assert set(times) == {(record.device, record.stream) for record in records}
    for (device, stream), parts in times.items():
        own = [record for record in records if (record.device, record.stream) == (device, stream)]
        assert parts.busy_ns == sum(record.end_ns - record.start_ns for record in own)
        assert min(parts.waiting_ns, parts.idle_ns, parts.finished_ns) >= 0
        assert parts.busy_ns + parts.waiting_ns + parts.idle_ns + parts.finished_ns == wall


@given(program=programs())
def test_a_wait_ends_with_its_last_producer_and_idle_time_is_the_launch(program):
    records = simulate(program)
    start = min(record.start_ns for record in records)
    by_step = {(record.device, record.step): record for record in records}
    idle = {(wait.device, wait.step): wait for wait in waits(records, shortest_ns=0) if wait.producer is None}
    for operation, record in zip(program, records, strict=True):
        gap = idle.get((record.device, record.step))
        assert (gap.end_ns - gap.start_ns if gap else 0) == min(operation.launch_ns, record.start_ns - start)
    for wait in waits(records, shortest_ns=0):
        if wait.producer is not None:
            after = by_step[wait.device, wait.step].after
            assert (wait.producer.device, wait.producer.step) in after
            assert wait.end_ns == wait.producer.end_ns == max(by_step[key].end_ns for key in after)


def busy_moments(records: list[TraceRecord]) -> set[tuple[str, int]]:
    """Each nanosecond of each device in which it computes."""
    kernels = [record for record in records if record.stream in ("compute", "finish")]
    return {(record.device, moment) for record in kernels for moment in range(record.start_ns, record.end_ns)}


def exposed_by_counting(records: list[TraceRecord]) -> int:
    """The definition, nanosecond by nanosecond."""
    by_step = {(record.device, record.step): record for record in records}
    start = min(record.start_ns for record in records)
    exposed = set()
    for record in records:
        if record.stream not in ("compute", "finish"):
            continue
        in_front = [r.end_ns for r in records if (r.device, r.stream) == (record.device, record.stream) and r.step < record.step]
        needed = [by_step[key] for key in record.after if by_step[key].kind == "fetch"]
        queues = [
            r
            for fetch in needed
            for r in records
            if (r.device, r.stream) == (fetch.device, fetch.stream) and r.step <= fetch.step
        ]
        fetches = [r for r in queues if r.kind == "fetch"]
        for moment in range(max(in_front, default=start), record.start_ns):
            if any(fetch.start_ns <= moment < fetch.end_ns for fetch in fetches):
                exposed.add((record.device, moment))
    return len(exposed - busy_moments(records))


@given(program=programs(longest_ns=6))
def test_exposed_copy_is_what_its_definition_counts(program):
    records = simulate(program)
    assert round(exposed_copy_seconds(records) * 1e9) == exposed_by_counting(records)


@given(program=programs(longest_ns=6))
def test_a_device_computes_while_any_of_its_streams_does(program):
    records = simulate(program)
    assert computing_ns(records) == len(busy_moments(records))


@given(program=programs())
def test_exposed_copy_is_at_most_the_time_that_devices_stand_still(program):
    records = simulate(program)
    devices = {record.device for record in records if record.stream in ("compute", "finish")}
    wall = max(record.end_ns for record in records) - min(record.start_ns for record in records)
    assert 0 <= round(exposed_copy_seconds(records) * 1e9) <= wall * len(devices) - computing_ns(records)


FETCH, COMPUTE, WRITE = ("host:0", "copy-in"), ("host:0", "compute"), ("host:0", "copy-out")
FINISH = ("host:0", "finish")

EXPOSED = {
    "a fetch that is waited for": ([Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(0,))], 40),
    "a fetch in front of it in the queue": (
        [Operation(*FETCH, 30), Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(1,))],
        70,
    ),
    "a fetch behind the one that is needed": (
        [Operation(*FETCH, 30), Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(0,))],
        30,
    ),
    "hidden behind a computation": ([Operation(*COMPUTE, 50), Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(1,))], 0),
    "half hidden": ([Operation(*COMPUTE, 25), Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(1,))], 15),
    "a fetch that waits for a write": (
        [
            Operation(*COMPUTE, 5),
            Operation(*WRITE, 60, after=(0,)),
            Operation(*FETCH, 40, after=(1,)),
            Operation(*COMPUTE, 10, after=(2,)),
        ],
        40,
    ),
    "generating is no copy": ([Operation(*FETCH, 40, kind="generate"), Operation(*COMPUTE, 10, after=(0,))], 0),
    "two copies at once count once": (
        [Operation(*FETCH, 40), Operation("host:1", "copy-in", 50), Operation(*COMPUTE, 10, after=(0, 1))],
        50,
    ),
    "hidden behind the other computing stream": (
        [Operation(*FINISH, 50), Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(1,))],
        0,
    ),
    "both computing streams wait": (
        [Operation(*FETCH, 40), Operation(*COMPUTE, 10, after=(0,)), Operation(*FINISH, 10, after=(0,))],
        40,
    ),
    "until one of them goes on": (
        [Operation(*FETCH, 20), Operation(*FETCH, 30), Operation(*FINISH, 10, after=(0,)), Operation(*COMPUTE, 10, after=(1,))],
        40,
    ),
    "launching late is no copy": ([Operation(*FETCH, 40), Operation(*COMPUTE, 10, launch_ns=30, after=(0,))], 40),
}


@pytest.mark.parametrize("case", EXPOSED)
def test_exposed_copy(case):
    program, expected_ns = EXPOSED[case]
    assert round(exposed_copy_seconds(simulate(program)) * 1e9) == expected_ns


def test_a_wait_names_whom_it_waited_for():
    records = simulate(
        [
            Operation("host:0", "copy-in", 5_000),
            Operation("host:0", "compute", 5_000, after=(0,)),
            Operation("host:0", "copy-out", 5_000, after=(1,)),
            Operation("host:1", "copy-in", 5_000, after=(2,)),
            Operation("host:1", "compute", 5_000, launch_ns=2_000),
        ]
    )
    told = [(wait.device, wait.stream, wait.cause, wait.label) for wait in waits(records)]
    assert told == [
        ("host:0", "compute", "fetch", "wait for fetch (0, 0)"),
        ("host:0", "copy-out", "compute", "wait for compute (1, 0)"),
        ("host:1", "copy-in", "other device", "wait for write (2, 0) on host:0"),
        ("host:1", "compute", "idle", "idle"),
    ]


def test_streams_come_by_device_number_then_copy_in_computing_ones_copy_out():
    keys = [(device, stream) for device in ("host:10", "host:9") for stream in ("copy-out", "finish", "compute", "copy-in")]
    records = simulate([Operation(*key, 1) for key in keys])
    assert list(stream_times(records)) == sorted(
        keys, key=lambda key: (int(key[0][5:]), ("copy-in", "compute", "finish", "copy-out").index(key[1]))
    )


@given(program=programs())
def test_link_totals_are_the_bytes_and_times_of_the_copies(program):
    records = simulate(program)
    totals = link_totals(records)
    assert set(totals) == {record.link for record in records} - {""}
    for link, total in totals.items():
        copies = [record for record in records if record.link == link]
        assert total.nbytes == sum(copy.nbytes for copy in copies)
        assert total.busy_ns == sum(copy.end_ns - copy.start_ns for copy in copies)


def test_a_start_before_the_end_of_the_operation_in_front_is_moved_to_it():
    first, second = simulate([Operation(*COMPUTE, 100), Operation(*COMPUTE, 100)])
    early = second._replace(start_ns=99)
    assert stream_times([first, early])[COMPUTE].busy_ns == 200
    assert waits([first, early], shortest_ns=0) == ()


CONTRADICTIONS = {
    "ends 5 ns before it starts": lambda a, b: [a._replace(end_ns=a.start_ns - 5), b],
    "step 0 of host:0 has two records": lambda a, b: [a, b._replace(step=0, after=())],
    "step 7 of host:3, which has no record": lambda a, b: [a, b._replace(after=(("host:3", 7),))],
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_records_that_contradict_each_other_are_refused(message):
    records = simulate([Operation(*FETCH, 10), Operation(*COMPUTE, 10, after=(0,))])
    for number in (waits, stream_times, link_totals, exposed_copy_seconds, computing_ns):
        with pytest.raises(ValueError, match=message):
            number(CONTRADICTIONS[message](*records))


def test_no_records_give_no_numbers():
    assert waits([]) == ()
    assert stream_times([]) == link_totals([]) == {}
    assert exposed_copy_seconds([]) == computing_ns([]) == 0
