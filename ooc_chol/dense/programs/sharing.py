"""When kernels end on streams that share the processors of one device."""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias, final

#: Start and end of a stretch of time, and the share of the processors that is busy in it: a plain tuple, as one is made a kernel.
_Span: TypeAlias = tuple[float, float, float]

#: Share of a kernel's seconds that is not worth another piece.
_NEGLIGIBLE = 1e-12


@final
class SharedProcessors:
    """The processors of one device: urgent streams go first, the compute stream has what they leave.

    Kernels that keep a share ``u`` of the processors busy leave ``1 - u``: beside them, a kernel of share ``v`` runs at ``min(1,
    (1 - u) / v)`` of its speed. Kernels of one stream are told in order, but one stream may be told far ahead of another. An
    urgent kernel that meets compute kernels told before it makes a debt of the seconds that it would have cost them: the next
    compute kernel pays it, less what the processors have left while the compute stream stands still before it. Of urgent kernels
    on several streams, one that is told later has what those told before leave, so that together they never do more than all
    processors can. Every number follows from the order of the calls.
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
        taken, ends, end = self._taken, self._taken_ends, start + seconds
        first = bisect_right(ends, start)
        if first == len(ends) or taken[first][0] >= end:  # alone, as most kernels are
            span = start, end, share
            if self._free_at > start:
                self._add_debt([span])
            taken.insert(first, span)
            ends.insert(first, end)
            return end
        pieces, last = self._beside_urgent(first, start, seconds, share)
        self._add_debt(pieces)
        joined = _joined(taken[first:last], pieces)
        taken[first:last] = joined
        ends[first:last] = [span[1] for span in joined]
        return pieces[-1][1]

    def compute(self, start: float, seconds: float, share: float) -> float:
        """When a kernel of the compute stream ends that could start at ``start`` and takes ``seconds`` alone."""
        ends = self._taken_ends
        if gone := bisect_right(ends, self._free_at):
            del self._taken[:gone], ends[:gone]
        if self._debt:
            seconds += max(0.0, self._debt - self._left_over(self._free_at, start))
            self._debt = 0.0
        first = bisect_right(ends, start)
        if first == len(ends) or self._taken[first][0] >= start + seconds:  # alone
            end = start + seconds
        else:
            end = self._beside_urgent(first, start, seconds, share)[0][-1][1]
        self._free_at = end
        self._computing.append((start, end, share))
        self._computing_ends.append(end)
        return end

    def _add_debt(self, pieces: list[_Span]) -> None:
        """Add the seconds that compute kernels told before would have lost beside an urgent one."""
        start, end = pieces[0][0], pieces[-1][1]
        computing, first = self._computing, bisect_right(self._computing_ends, start)
        for at in range(first, len(computing)):
            other_start, other_end, other_share = computing[at]
            if other_start >= end:
                break
            for begins, ends, share in pieces:
                together = (ends if ends < other_end else other_end) - (begins if begins > other_start else other_start)
                if together > 0.0:
                    self._debt += together * (1.0 - _speed(other_share, share))

    def _left_over(self, start: float, end: float) -> float:
        """Seconds of all processors that urgent kernels leave between two times."""
        taken = 0.0
        for at in range(bisect_right(self._taken_ends, start), len(self._taken)):
            begins, ends, share = self._taken[at]
            if begins >= end:
                break
            taken += max(0.0, (ends if ends < end else end) - (begins if begins > start else start)) * share
        return end - start - taken

    def _beside_urgent(self, first: int, start: float, seconds: float, share: float) -> tuple[list[_Span], int]:
        """Spans of work from ``start`` on with its share of the processors, piece by piece: less where urgent kernels run.

        Returns the pieces, and the first of the taken spans behind them; ``first`` is the first that ends after ``start``.
        """
        at, left = start, seconds
        pieces: list[_Span] = []
        for number in range(first, len(self._taken)):
            begins, ends, taken = self._taken[number]
            if at < begins:
                if (end := at + left) <= begins:
                    return [*pieces, (at, end, share)], number
                pieces.append((at, begins, share))
                at, left = begins, left - (begins - at)
                if left <= _NEGLIGIBLE * seconds:
                    return pieces, number
            speed = _speed(share, taken)
            # It ends in this span or goes on at its end, at the border itself: what rounding makes of the seconds that are left
            # is no reason for another piece, which might lie behind the rest of a span.
            if speed > 0.0 and (end := at + left / speed) <= ends:
                return [*pieces, (at, end, share * speed)], number + 1
            pieces.append((at, ends, share * speed))
            at, left = ends, left - speed * (ends - at)
            if left <= _NEGLIGIBLE * seconds:
                return pieces, number + 1
        return [*pieces, (at, at + left, share)], len(self._taken)


def _joined(taken: list[_Span], pieces: list[_Span]) -> list[_Span]:
    """``taken`` with ``pieces`` on top, each of which lies within one taken span or within none."""
    joined: list[_Span] = []
    at = 0
    for piece in pieces:
        start, end, share = piece
        if at == len(taken) or end <= taken[at][0]:
            joined.append(piece)  # nobody took anything there
            continue
        begins, ends, others = taken[at]
        if begins < start:
            joined.append((begins, start, others))
        joined.append((start, end, others + share))
        if end < ends:
            joined.append((end, ends, others))
        at += 1
    return joined


def _speed(share: float, taken: float) -> float:
    """Speed of a kernel that could use ``share`` of the processors where ``taken`` of them is busy with others."""
    if taken >= 1.0:
        return 0.0
    left = (1.0 - taken) / share
    return left if left < 1.0 else 1.0
