"""Segments of K and bytes of workspace on CUDA devices: no device is needed to know them."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.kernels import CUDA
from tests.inside.kernels import cuda as sizes

COLUMNS, LENGTHS = st.integers(0, 20_000), st.integers(0, 10_000)


@given(k0=COLUMNS, length=LENGTHS)
def test_segments_cover_k_in_order_and_none_is_longer_than_the_longest(k0, length):
    segments = sizes.k_segments(k0, length)
    assert [first for first, _ in segments] == [0, *accumulate(part for _, part in segments)][: len(segments)]
    assert sum(part for _, part in segments) == length
    assert all(0 < part <= sizes.K_SEGMENT for _, part in segments)


@given(k0=COLUMNS, length=LENGTHS, other=COLUMNS)
def test_segments_end_at_columns_of_the_matrix_whatever_product_they_are_of(k0, length, other):
    edges = {*accumulate(sizes.FIRST_SEGMENTS), *range(sum(sizes.FIRST_SEGMENTS), 40_000, sizes.K_SEGMENT)}
    inside = {k0 + first for first, _ in sizes.k_segments(k0, length)} - {k0}
    assert inside == {edge for edge in edges if k0 < edge < k0 + length}


def test_a_tile_far_from_the_first_columns_is_one_segment():
    assert sizes.k_segments(0, 4096) == [(first, 512) for first in range(0, 4096, 512)]
    assert sizes.k_segments(8192, 4096) == [(0, 4096)]
    assert sizes.k_segments(6144, 2048) == [(0, 2048)]


def test_other_segments_can_be_tried(monkeypatch):
    monkeypatch.setattr(sizes, "FIRST_SEGMENTS", (10, 20))
    monkeypatch.setattr(sizes, "K_SEGMENT", 50)
    assert sizes.k_segments(5, 100) == [(0, 5), (5, 20), (25, 50), (75, 25)]
    assert sizes.segments_text() == "K by 10, 20, then 50"


@pytest.mark.parametrize("nb", [256, 1000, 4096])
def test_each_stream_has_a_workspace_of_its_own(nb):
    assert CUDA.workspace_bytes(nb) == sizes.workspace_bytes(nb, 2)
    for streams in (1, 2, 4):
        more = sizes.workspace_bytes(nb, streams + 1) - sizes.workspace_bytes(nb, streams)
        assert more == sizes.stream_bytes() >= sizes.CUBLAS_WORKSPACE_BYTES + sizes.potrf_workspace_bytes()
        assert more % 256 == 0


@pytest.mark.parametrize("nb", [1, 63, 64, 65, 2048])
def test_inverses_of_a_tile_hold_whole_blocks(nb):
    assert sizes.inverse_bytes(nb) >= 8 * 64 * 64 * -(-nb // 64) > sizes.inverse_bytes(nb) - 4096
