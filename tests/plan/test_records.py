"""Records of a plan's steps: what they tell of streams, so that copies are seen as copies."""

from __future__ import annotations

import pytest

from ooc_chol.tracing import TraceRecord, exposed_copy_seconds, stream_times
from tests.builders import planned
from tests.inside.dense import predicted_records
from tests.plan.rates import UNIT_RATES


def records(n: int, **options: object) -> tuple[TraceRecord, ...]:
    """A prediction in which every operation takes one second."""
    options = {"tile_size": 4, "memory_budget": "16 KiB", "devices": "host:0", **options}
    return predicted_records(planned(n, rates=UNIT_RATES, **options))


def test_the_fetch_before_the_only_kernel_is_exposed_and_the_write_behind_it_is_not():
    assert [record.kind for record in records(4)] == ["fetch", "compute", "write"]
    assert exposed_copy_seconds(records(4)) == pytest.approx(1.0)


@pytest.mark.parametrize("policy", ["planned", "async", "v1", "v2", "v3"])
def test_copies_that_nothing_hides_are_exposed_and_shown_beside_what_computes(policy):
    found = records(20, policy=policy)
    assert 1.0 <= exposed_copy_seconds(found) <= sum(record.kind == "fetch" for record in found)
    assert {record.stream for record in found if record.role.computes} == {"compute"}
    assert [stream for _, stream in stream_times(found)] == ["copy-in", "compute", "copy-out"]
