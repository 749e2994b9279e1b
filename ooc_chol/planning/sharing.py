"""When kernels end on streams that share the processors of one device."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import NamedTuple, final


class _Span(NamedTuple):
    """A stretch of time, and the share of the processors that is busy in it."""

    start: float
    end: float
    share: float


@final
class SharedProcessors:
    """The processors of one device: urgent streams go first, the compute stream has what they leave.

    Notes
    -----
    Kernels that keep a share ``u`` of the processors busy leave ``1 - u``: beside them, a kernel of share ``v`` runs at
    ``min(1, (1 - u) / v)`` of its speed. Kernels of one stream are told in order, but one stream may be told far ahead of
    another. An urgent kernel that meets compute kernels told before it makes a debt of the seconds that it would have cost
    them: the next compute kernel pays it, less what the processors have left while the compute stream stands still before it.
    Of urgent kernels on several streams, one that is told later has what those told before leave, so that together they never
    do more than all processors can. Every number follows from the order of the calls.
    """

    def __init__(self) -> None:
        self._taken: deque[_Span] = deque()  # what urgent kernels take, in order of time, without overlaps
        self._computing: list[_Span] = []
        self._debt = 0.0
        self._free_at = 0.0

    def urgent(self, start: float, seconds: float, share: float) -> float:
        """When a kernel of an urgent stream ends; it starts at ``start``, takes ``seconds`` alone, and others may delay it."""
        end = self._beside_urgent(start, seconds, share)
        kernel = _Span(start, end, share * seconds / (end - start))
        first = bisect_right(self._computing, start, key=lambda other: other.end)
        for at in range(first, len(self._computing)):
            other = self._computing[at]
            if other.start >= kernel.end:
                break
            together = min(kernel.end, other.end) - max(start, other.start)
            self._debt += together * (1.0 - _speed(other.share, kernel.share))
        self._take(kernel)
        return kernel.end

    def compute(self, start: float, seconds: float, share: float) -> float:
        """When a kernel of the compute stream ends that could start at ``start`` and takes ``seconds`` alone."""
        while self._taken and self._taken[0].end <= self._free_at:
            self._taken.popleft()
        debt = max(0.0, self._debt - self._left_over(self._free_at, start)) if self._debt else 0.0
        self._debt = 0.0
        self._free_at = self._beside_urgent(start, seconds + debt, share)
        self._computing.append(_Span(start, self._free_at, share))
        return self._free_at

    def _take(self, kernel: _Span) -> None:
        """Add an urgent kernel to what is taken; where several meet, their shares add up to 1 at most."""
        met = [kernel]
        while self._taken and self._taken[-1].end > kernel.start:
            met.append(self._taken.pop())
        times = sorted({time for span in met for time in (span.start, span.end)})
        for start, end in pairwise(times):
            share = sum(span.share for span in met if span.start <= start and end <= span.end)
            if share:
                self._taken.append(_Span(start, end, min(1.0, share)))

    def _left_over(self, start: float, end: float) -> float:
        """Seconds of all processors that urgent kernels leave between two times."""
        taken = 0.0
        for span in self._taken:
            if span.start >= end:
                break
            taken += max(0.0, min(end, span.end) - max(start, span.start)) * span.share
        return end - start - taken

    def _beside_urgent(self, start: float, seconds: float, share: float) -> float:
        """End of ``seconds`` of work from ``start`` on, slower where urgent kernels run."""
        at, left = start, seconds
        for span in self._taken:
            if at + left <= span.start:
                break
            if span.end <= at:
                continue
            left -= max(0.0, span.start - at)
            at = max(at, span.start)
            speed = _speed(share, span.share)
            if speed * (span.end - at) >= left:
                return at + left / speed
            left -= speed * (span.end - at)
            at = span.end
        return at + left


def _speed(share: float, taken: float) -> float:
    """Speed of a kernel that could use ``share`` of the processors where ``taken`` of them is busy with others."""
    return min(1.0, (1.0 - taken) / share)
