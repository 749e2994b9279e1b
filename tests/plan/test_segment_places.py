"""Every segment of a long row has a place for its sum that no other segment of its block has."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.tasks import GROUP_ENTRIES, SEGMENT_ENTRIES, RowBlock, RowBlocks, ValueKind, work_groups

LONG = st.integers(GROUP_ENTRIES - 2, 5 * SEGMENT_ENTRIES) | st.sampled_from([GROUP_ENTRIES + 1, SEGMENT_ENTRIES + 1])


@given(lengths=st.lists(LONG | st.integers(0, 5), min_size=1, max_size=30))
def test_no_two_segments_share_a_place(lengths):
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.uint32)
    groups, n_segments = work_groups(starts)
    counts, first = np.diff(starts.astype(int)), starts[:-1].astype(int)
    rows = [(row, entry) for row, entry in groups[:-1].tolist() if counts[row] > GROUP_ENTRIES]
    places = [int(first[row]) // GROUP_ENTRIES + (entry - int(first[row])) // SEGMENT_ENTRIES for row, entry in rows]
    block = RowBlock(0, len(lengths), int(starts[-1]), len(groups) - 1, n_segments, ValueKind.PATTERN, 1.0, 0)
    assert len(set(places)) == len(places) == n_segments
    assert max(places, default=-1) < block.segment_places == RowBlocks((len(lengths), 1), [block]).most_segments or not places
