"""What the text summary of a trace says."""

from __future__ import annotations

import pytest
from hypothesis import given

from ooc_chol.tracing import Trace
from tests.plan.simulated_records import Operation, programs, simulate

pytestmark = pytest.mark.plan

MILLISECOND = 1_000_000


def small_run(pace: int) -> list:
    """Two fetches, two computations, one write: 10 ms at pace 1."""
    return simulate(
        [
            Operation("host:0", "copy-in", 2 * MILLISECOND // pace),
            Operation("host:0", "compute", 3 * MILLISECOND // pace, after=(0,)),
            Operation("host:0", "copy-in", 4 * MILLISECOND // pace),
            Operation("host:0", "compute", 1 * MILLISECOND // pace, after=(2,)),
            Operation("host:0", "copy-out", 3 * MILLISECOND // pace, after=(3,)),
        ],
        origin_ns=77,
    )


EXPECTED = """\
run: n 100, policy planned, seconds 0.3

whole run                            measured  predicted
wall (ms)                              10.000      5.000
GFLOP/s over the wall time               0.02       0.04
GFLOP/s of a device while computing      0.05       0.10
exposed copy (ms)                       3.000      1.500
exposed copy, share                    30.0 %     30.0 %

stream (ms)       busy   share  waiting   idle  finished  predicted busy
host:0 copy-in   6.000  60.0 %    0.000  0.000     4.000           3.000
host:0 compute   4.000  40.0 %    3.000  0.000     3.000           2.000
host:0 copy-out  3.000  30.0 %    7.000  0.000     0.000           1.500

link               bytes  copying (ms)  GB/s  predicted GB/s
host:0->store  4,000,000         3.000  1.33            2.67
store->host:0  3,200,000         6.000  0.53            1.07

waiting on whom                 ms  share of wall  times  longest (ms)
host:0 copy-out for compute  7.000         70.0 %      1         7.000
host:0 compute for fetch     3.000         30.0 %      2         2.000"""


def test_the_summary_of_a_small_run():
    def scaled(records):
        return tuple(record._replace(nbytes=100_000 * record.nbytes, flops=1000 * record.flops) for record in records)

    trace = Trace(scaled(small_run(1)), scaled(small_run(2)), {"n": 100, "policy": "planned", "seconds": 0.1 + 0.2})
    assert trace.summary() == EXPECTED


def test_without_a_prediction_it_says_so_and_shows_no_column_of_it():
    text = Trace(tuple(small_run(1)), (), {"n": 100}).summary()
    assert "prediction: none" in text
    assert "predicted" not in text


def test_a_run_without_operations():
    assert Trace((), (), {"n": 1}).summary() == "run: n 1\nno operation was recorded"


def test_eight_devices_fit_a_screen_and_what_is_left_out_is_counted():
    streams = ("copy-in", "compute", "copy-out")
    program = [Operation(f"cuda:{d}", stream, 10**9 * (d + 1), launch_ns=5_000) for d in range(8) for stream in streams]
    metadata = {f"option {number}": "x" * 20 for number in range(6)}
    records = tuple(simulate(program))
    lines = Trace(records, records, metadata).summary().splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 50
    assert "... and 12 more streams, which the saved trace shows" in lines
    assert "... and 4 more links, which the saved trace shows" in lines


@given(program=programs())
def test_any_run_has_a_summary_of_at_most_100_columns(program):
    records = tuple(simulate(program))
    for predicted in ((), records):
        assert max(map(len, Trace(records, predicted).summary().splitlines())) <= 100
