"""What a process holds does not grow, however many calls it makes and however many of them fail; a script makes 300."""

from __future__ import annotations

import pytest

from tests.faults.scenarios import Folder
from tests.faults.soak import soak

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

#: Calls between two looks, which is half a round of all scenarios. What is imported, planned and cached by the second look stays.
BETWEEN, CALLS = 19, 95
#: Bytes that may come and go: arenas of the C library, of which each thread has its own.
SLACK_BYTES = 8 << 20


def test_memory_descriptors_and_threads_stay_flat(tmp_path):
    _, _, before, *later = soak(Folder(tmp_path), CALLS, BETWEEN)
    assert len(later) == 2
    assert {each.descriptors for each in later} == {before.descriptors}
    assert max(each.threads for each in later) <= before.threads + 1  # what releases memory some seconds later
    assert later[-1].resident_bytes <= before.resident_bytes + SLACK_BYTES
