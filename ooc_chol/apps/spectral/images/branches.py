"""A tree that grows from its root: several threads look at nodes, the largest that waits first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Generic, TypeVar, final

import ooc_chol.toolbox as tb

Node = TypeVar("Node")

#: Seconds after which one who waits for a node looks up: an interrupt may come just before the system's wait begins.
_LOOK_SECONDS = 0.1


def grow(root: Node, branches: Callable[[Node], Sequence[Node]], size: Callable[[Node], int], threads: int) -> None:
    """Call ``branches`` once of the root and of every node that it returns, by several threads, the largest nodes first.

    An error of a call, or an interrupt, is raised again; of the nodes that wait then, none is begun.
    """
    waiting = _Waiting(root, size)

    def work(_: int) -> None:
        while (node := waiting.take()) is not None:
            try:
                waiting.done(branches(node))
            except BaseException:
                waiting.end()
                raise

    tb.map_in_threads(work, range(threads), threads=threads)


@final
class _Waiting(Generic[Node]):
    """Nodes that wait, and how many are being looked at."""

    def __init__(self, root: Node, size: Callable[[Node], int]) -> None:
        self._size = size
        self._nodes: list[tuple[int, int, Node]] = [(-size(root), 0, root)]
        self._count, self._looked_at = 1, 0
        self._is_over = False
        self._changed = Condition()

    def take(self) -> Node | None:
        """The largest, once there is one; None when none can come any more."""
        with self._changed:
            while not self._is_over:
                if self._nodes:
                    self._looked_at += 1
                    return heapq.heappop(self._nodes)[2]
                if not self._looked_at:
                    return None
                self._changed.wait(_LOOK_SECONDS)
            return None

    def done(self, grown: Sequence[Node]) -> None:
        """A node has been looked at, and others grow from it; of equal ones the first is taken first."""
        with self._changed:
            self._looked_at -= 1
            for node in grown:
                heapq.heappush(self._nodes, (-self._size(node), self._count, node))
                self._count += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody take any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
