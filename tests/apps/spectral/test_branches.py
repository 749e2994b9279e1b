"""A tree that several threads grow: each node once, the largest first, and an error ends it."""

from __future__ import annotations

import threading

import pytest

from tests.inside.spectral import grow

pytestmark = pytest.mark.host


def halves(node: tuple[int, int]) -> list[tuple[int, int]]:
    """Both halves of an interval of integers, where it has two."""
    first, end = node
    middle = (first + end) // 2
    return [(first, middle), (middle, end)] if end - first > 1 else []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_node_is_looked_at_once(threads: int) -> None:
    seen: list[tuple[int, int]] = []

    def branches(node: tuple[int, int]) -> list[tuple[int, int]]:
        seen.append(node)
        return halves(node)

    grow((0, 100), branches, lambda node: node[1] - node[0], threads)
    assert len(seen) == len(set(seen)) == 199
    assert sorted(first for first, end in seen if end - first == 1) == list(range(100))


def test_of_what_waits_the_largest_comes_first() -> None:
    sizes: list[int] = []

    def branches(node: int) -> list[int]:
        sizes.append(node)
        return {9: [2, 5], 5: [4, 1], 4: [3]}.get(node, [])

    grow(9, branches, lambda node: node, 1)
    assert sizes == [9, 5, 4, 3, 2, 1]


def test_several_are_looked_at_together() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def branches(node: int) -> list[int]:
        if node:
            meeting.wait()  # breaks, and raises, where they come one after the other
            return []
        return [1, 2]

    grow(0, branches, lambda node: node, 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_ends_it_and_leaves_no_thread(threads: int) -> None:
    seen: list[int] = []

    def branches(node: int) -> list[int]:
        seen.append(node)
        if node == 2:
            raise ValueError("of this node")
        return [1, 2] if not node else []

    with pytest.raises(ValueError, match="of this node"):
        grow(0, branches, lambda node: node, threads)
    assert seen[:1] == [0]
    assert threads > 1 or seen == [0, 2]
    assert not [thread for thread in threading.enumerate() if thread.name == "ooc_chol team"]
