"""When kernels end on streams that share the processors of one device."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, final


class _Span(NamedTuple):
    """A stretch of time, and the share of the processors that is busy in it."""

    start: float
    end: float
    share: float


#: Share of a kernel's seconds that is not worth another piece.
_NEGLIGIBLE = 1e-12


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
        self._taken: list[_Span] = []  # what urgent kernels take, in order of time, without overlaps
        self._taken_ends: list[float] = []  # their ends, by which spans are found
        self._computing: list[_Span] = []
        self._computing_ends: list[float] = []
        self._debt = 0.0
        self._free_at = 0.0

    def urgent(self, start: float, seconds: float, share: float) -> float:
        """When a kernel of an urgent stream ends; it starts at ``start``, takes ``seconds`` alone, and others may delay it."""
        first = bisect_right(self._taken_ends, start)
        pieces, last = self._beside_urgent(first, start, seconds, share)
        self._add_debt(pieces)
        if last == first and len(pieces) == 1:
            self._taken.insert(first, pieces[0])
            self._taken_ends.insert(first, pieces[0].end)
        else:
            joined = _joined(self._taken[first:last], pieces)
            self._taken[first:last] = joined
            self._taken_ends[first:last] = [span.end for span in joined]
        return pieces[-1].end

    def compute(self, start: float, seconds: float, share: float) -> float:
        """When a kernel of the compute stream ends that could start at ``start`` and takes ``seconds`` alone."""
        if gone := bisect_right(self._taken_ends, self._free_at):
            del self._taken[:gone], self._taken_ends[:gone]
        debt = max(0.0, self._debt - self._left_over(self._free_at, start)) if self._debt else 0.0
        self._debt = 0.0
        first = bisect_right(self._taken_ends, start)
        pieces, _ = self._beside_urgent(first, start, seconds + debt, share)
        self._free_at = pieces[-1].end
        self._computing.append(_Span(start, self._free_at, share))
        self._computing_ends.append(self._free_at)
        return self._free_at

    def _add_debt(self, pieces: list[_Span]) -> None:
        """What compute kernels told before would have lost beside an urgent one."""
        start, end = pieces[0].start, pieces[-1].end
        computing, first = self._computing, bisect_right(self._computing_ends, start)
        for at in range(first, len(computing)):
            other = computing[at]
            if other.start >= end:
                break
            for begins, ends, share in pieces:
                together = (ends if ends < other.end else other.end) - (begins if begins > other.start else other.start)
                if together > 0.0:
                    self._debt += together * (1.0 - _speed(other.share, share))

    def _left_over(self, start: float, end: float) -> float:
        """Seconds of all processors that urgent kernels leave between two times."""
        taken = 0.0
        for at in range(bisect_right(self._taken_ends, start), len(self._taken)):
            span = self._taken[at]
            if span.start >= end:
                break
            taken += max(0.0, min(end, span.end) - max(start, span.start)) * span.share
        return end - start - taken

    def _beside_urgent(self, first: int, start: float, seconds: float, share: float) -> tuple[list[_Span], int]:
        """What work from ``start`` on takes of the processors, piece by piece: less where urgent kernels run.

        Returns the pieces, and the first of the taken spans behind them; ``first`` is the first that ends after ``start``.
        """
        if first == len(self._taken) or self._taken[first].start >= start + seconds:
            return [_Span(start, start + seconds, share)], first  # alone, as most kernels are
        at, left, pieces = start, seconds, []
        for number in range(first, len(self._taken)):
            span = self._taken[number]
            if at < span.start:
                end = min(at + left, span.start)  # the border itself, not what rounding makes of it
                pieces.append(_Span(at, end, share))
                at, left = end, left - (end - at)
                if left <= _NEGLIGIBLE * seconds:
                    return pieces, number
            speed = _speed(share, span.share)
            end = min(at + left / speed, span.end) if speed > 0.0 else span.end
            pieces.append(_Span(at, end, share * speed))
            at, left = end, left - speed * (end - at)
            if left <= _NEGLIGIBLE * seconds:
                return pieces, number + 1
        return [*pieces, _Span(at, at + left, share)], len(self._taken)


def _joined(taken: list[_Span], pieces: list[_Span]) -> list[_Span]:
    """``taken`` with ``pieces`` on top, each of which lies within one taken span or within none."""
    joined: list[_Span] = []
    at = 0
    for piece in pieces:
        if at == len(taken) or piece.end <= taken[at].start:
            joined.append(piece)  # nobody took anything there
            continue
        span = taken[at]
        if span.start < piece.start:
            joined.append(_Span(span.start, piece.start, span.share))
        joined.append(_Span(piece.start, piece.end, span.share + piece.share))
        if piece.end < span.end:
            joined.append(_Span(piece.end, span.end, span.share))
        at += 1
    return joined


def _speed(share: float, taken: float) -> float:
    """Speed of a kernel that could use ``share`` of the processors where ``taken`` of them is busy with others."""
    if taken >= 1.0:
        return 0.0
    left = (1.0 - taken) / share
    return left if left < 1.0 else 1.0
