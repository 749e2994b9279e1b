"""A tree that grows from its root: several threads look at nodes, the largest that waits first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Generic, TypeVar, final

import ooc_chol as oc

Node = TypeVar("Node")

#: Seconds after which one who waits for a node looks up: an interrupt may come just before the system's wait begins.
_LOOK_SECONDS = 0.1


def grow(root: Node, branches: Callable[[Node], Sequence[Node]], size: Callable[[Node], int], threads: int) -> None:
    """Call ``branches`` once of the root and of every node that it returns.

    Parameters
    ----------
    root : Node
        Where the tree begins.
    branches : callable
        Looks at a node, and returns those that grow from it; called by several threads at once.
    size : callable
        How large a node is, hence how long it takes: what grows from large ones takes longest to come to an end.
    threads : int
        Most nodes that are looked at together.

    Raises
    ------
    BaseException
        What a call raised, or an interrupt; of what waits then, nothing is begun.
    """
    waiting = _Waiting(size)
    waiting.put([root])

    def work(_: int) -> None:
        while (found := waiting.take()) is not None:
            try:
                waiting.put(branches(found[0]))
            except BaseException:
                waiting.end()
                raise
            waiting.done()

    oc.map_in_threads(work, range(threads), threads=threads)


@final
class _Waiting(Generic[Node]):
    """Nodes that wait, and how many are being looked at."""

    def __init__(self, size: Callable[[Node], int]) -> None:
        self._size = size
        self._nodes: list[tuple[int, int, Node]] = []
        self._count = self._looked_at = 0
        self._is_over = False
        self._changed = Condition()

    def put(self, nodes: Sequence[Node]) -> None:
        """Add some; equal ones are taken in their order."""
        with self._changed:
            for node in nodes:
                heapq.heappush(self._nodes, (-self._size(node), self._count, node))
                self._count += 1
            self._changed.notify_all()

    def take(self) -> tuple[Node] | None:
        """The largest, once there is one; None when none can come any more."""
        with self._changed:
            while not self._is_over:
                if self._nodes:
                    self._looked_at += 1
                    return (heapq.heappop(self._nodes)[2],)
                if not self._looked_at:
                    return None
                self._changed.wait(_LOOK_SECONDS)
            return None

    def done(self) -> None:
        """A node has been looked at, and what grows from it was put."""
        with self._changed:
            self._looked_at -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody take any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
