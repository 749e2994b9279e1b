"""Refinement of a bisection by moves of single vertices, after Fiduccia and Mattheyses."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.cutting.levelling import levelled
from ooc_chol.apps.spectral.cutting.rows import Rows
from ooc_chol.apps.spectral.cutting.target import Refined, Target
from ooc_chol.apps.spectral.graphs.graph import Graph

#: Share of half of the weight by which parts may be out of balance while vertices move.
ROOM = 0.02
#: A pass ends after this share of the vertices has moved without a better cut, but not before ``PATIENCE`` moves.
PATIENCE_SHARE, PATIENCE = 0.05, 100
#: Edges at vertices that move, in all passes of a refinement: seconds in Python.
MOST_EDGES = 10_000_000
#: Passes of a refinement: they end on their own long before.
MOST_PASSES = 50
#: Graphs of so many vertices have all of them in the queues from the start, not those at the boundary only.
SMALL = 1000


class _Queue:
    """Vertices by gain, the last that came first among equals; what is outdated is found out when it comes to the top."""

    __slots__ = ("keys", "stacks")

    def __init__(self) -> None:
        self.keys: list[float] = []
        self.stacks: dict[float, list[int]] = {}

    def push(self, gain: float, vertex: int) -> None:
        stack = self.stacks.get(gain)
        if stack is None:
            self.stacks[gain] = [vertex]
            heappush(self.keys, -gain)
        else:
            stack.append(vertex)

    def top(self, gains: list[float | None], side: bytearray, mine: int) -> tuple[float, int] | None:
        """The vertex of most gain that may still move, and its gain; it stays."""
        keys, stacks = self.keys, self.stacks
        while keys:
            gain = -keys[0]
            stack = stacks[gain]
            while stack:
                vertex = stack[-1]
                if gains[vertex] == gain and side[vertex] == mine:
                    return gain, vertex
                stack.pop()
            del stacks[gain]
            heappop(keys)
        return None

    def next(self, gains: list[float | None], side: bytearray, mine: int) -> tuple[float, int] | None:
        """The vertex that comes after the one on top, which is put away."""
        self.stacks[-self.keys[0]].pop()
        return self.top(gains, side, mine)


@dataclass
class _Left:
    """Moves, and edges at vertices that move, that the limits leave."""

    moves: int
    edges: int


class _Pass(NamedTuple):
    """Outcome of a pass."""

    moved: list[int]  #: The vertices of the best prefix, in their order
    cut: float
    weight: float
    is_limited: bool


def refine(graph: Graph, labels: NDArray[np.int8], target: Target, *, most_moves: int | None = None) -> Refined:
    """Move single vertices between two parts until no pass of moves lessens the cut.

    Shapes: ``labels`` (n,). A pass moves the vertex of most gain, each at most once, with parts that differ by up to 2 % from the
    target meanwhile, and takes back what follows the best balanced prefix. It ends after n / 20 moves without a better one. Its
    cost is some microseconds for each edge at a vertex that moves. Source: Fiduccia and Mattheyses (1982). Raises ``ValueError``:
    labels of another length or other than 0 and 1, or fewer than one move.
    """
    return refine_rows(Rows(graph), labels, target, most_moves=most_moves)


def refine_rows(rows: Rows, labels: NDArray[np.int8], target: Target, *, most_moves: int | None = None) -> Refined:
    """As :func:`refine`, with rows of neighbours that several refinements share."""
    if most_moves is not None and most_moves < 1:
        raise ValueError(f"most_moves: {most_moves} moves can refine nothing; give 1 or more, or None")
    limit = rows.graph.n * MOST_PASSES if most_moves is None else most_moves
    plain = _passes(rows, _checked(rows.graph, labels), target, limit)
    if rows.graph.has_unit_vertices:
        return plain
    # Few prefixes are balanced where vertices have different weights: first nearly so, then a set of moves that balances.
    wide = target._replace(slack=max(target.slack, float(rows.graph.vertex_weights.max(initial=0.0))))
    rough = _passes(rows, plain.labels, wide, limit)
    exact = _passes(rows, levelled(rows, rough.labels, target), target, limit)
    best = min(plain, exact, key=lambda one: (target.excess(one.weight), one.cut))
    tried = (plain,) if best is plain else (plain, rough, exact)
    is_limited = plain.is_limited or rough.is_limited or exact.is_limited
    passes, moves = plain.passes + rough.passes + exact.passes, sum(one.moves for one in tried)
    return best._replace(passes=passes, moves=moves, is_limited=is_limited)


def _passes(rows: Rows, labels: NDArray[np.int8], target: Target, limit: int) -> Refined:
    """Passes of moves until none gains; sets of moves where single ones do not balance the parts."""
    graph = rows.graph
    labels = labels.copy()
    cut, weight = graph.cut(labels), _weight(graph, labels)
    passes, moves, is_limited, left = 0, 0, False, _Left(limit, MOST_EDGES)
    while passes < MOST_PASSES and not is_limited:
        done = _one_pass(rows, labels, target, (cut, weight), left)
        passes, moves, is_limited = passes + 1, moves + len(done.moved), done.is_limited
        labels[done.moved] ^= 1
        cut, weight = done.cut, done.weight
        if done.moved and not is_limited:
            continue
        if target.excess(weight) == 0:
            break
        level = levelled(rows, labels, target)
        if target.excess(_weight(graph, level)) < target.excess(weight):
            moves += int(np.count_nonzero(level != labels))
            labels, cut, weight = level, graph.cut(level), _weight(graph, level)
        # What is left cannot be helped, and the cut is to lessen all the same.
        target = target._replace(slack=max(target.slack, abs(weight - target.weight) * (1 + 1e-12)))
    return Refined(labels, graph.cut(labels), _weight(graph, labels), passes, moves, is_limited)


def _checked(graph: Graph, labels: NDArray[np.int8]) -> NDArray[np.int8]:
    """The labels, if each is 0 or 1."""
    values = tb.plain_array("labels", labels)
    if values.shape != (graph.n,):
        raise ValueError(
            f"labels has shape {values.shape}, but {graph.name} has {graph.n} vertices: give one label, 0 or 1, to each"
        )
    if np.any(wrong := (values != 0) & (values != 1)):
        first = int(np.argmax(wrong))
        raise ValueError(f"labels[{first}] is {values[first]}, but two parts have labels 0 and 1: relabel them")
    return values.astype(np.int8)


def _weight(graph: Graph, labels: NDArray[np.int8]) -> float:
    """Weight of part 0."""
    return float(graph.vertex_weights[labels == 0].sum())


def _one_pass(rows: Rows, labels: NDArray[np.int8], target: Target, start: tuple[float, float], left: _Left) -> _Pass:
    """Move vertices one after the other, the best first, and say which prefix of the moves is the best."""
    cut, weight = start
    best_cut, best_weight, excess = cut, weight, target.excess(weight)
    weights = rows.graph.vertex_weights.tolist()
    room = max(ROOM * target.total / 2, max(weights, default=0.0) + target.slack)
    # By how much sums of weights that are not whole may differ through rounding.
    tiny = 0.0 if rows.are_whole else 1e-13 * float(rows.graph.degrees.sum())
    queues, gains, side = _queues(rows, labels, excess > 0)
    stacks = queues[0].stacks, queues[1].stacks
    patience = max(PATIENCE, int(PATIENCE_SHARE * rows.graph.n))
    moved: list[int] = []
    kept = 0
    while len(moved) - kept < patience and left.moves > 0 and left.edges > 0:
        choice = _choice(queues, gains, side, weights, weight - target.weight, room if excess == 0 else 0.0)
        if choice is None:
            break
        gain, vertex = choice
        mine = side[vertex]
        side[vertex] = 1 - mine
        gains[vertex] = None
        cut -= gain
        weight += weights[vertex] if mine else -weights[vertex]
        edges = rows.edges(vertex)
        left.moves, left.edges = left.moves - 1, left.edges - len(edges)
        for u, change in edges:
            known = gains[u]
            if known is not None:
                # An edge into the part that was left is cut now, one into the other part is not any more.
                at = side[u]
                gains[u] = known = known + change if at == mine else known - change
                if (stack := stacks[at].get(known)) is not None:
                    stack.append(u)
                else:
                    queues[at].push(known, u)
        moved.append(vertex)
        beyond = max(0.0, abs(weight - target.weight) - target.slack)
        if beyond < excess or (beyond == excess and cut < best_cut - tiny):
            best_cut, best_weight, excess, kept = cut, weight, beyond, len(moved)
    return _Pass(moved[:kept], best_cut, best_weight, left.moves <= 0 or left.edges <= 0)


def _choice(
    queues: tuple[_Queue, _Queue], gains: list[float | None], side: bytearray, weights: list[float], over: float, room: float
) -> tuple[float, int] | None:
    """The move of most gain that leaves part 0 within the room of its target or nearer to it; of equal ones that which balances.

    Until the parts are balanced there is no room, and vertices too heavy to balance them are passed over.
    """
    first = queues[0].top(gains, side, 0)
    while first is not None and weights[first[1]] > over + max(room, over):
        first = queues[0].next(gains, side, 0) if room == 0 else None
    second = queues[1].top(gains, side, 1)
    while second is not None and weights[second[1]] > max(room, -over) - over:
        second = queues[1].next(gains, side, 1) if room == 0 else None
    if first is None or second is None:
        return second if first is None else first
    return first if (first[0], over) >= (second[0], 0.0) else second


def _queues(
    rows: Rows, labels: NDArray[np.int8], all_of_them: bool
) -> tuple[tuple[_Queue, _Queue], list[float | None], bytearray]:
    """Vertices that may move, by part and gain; gains of all vertices; labels that change as vertices move."""
    values, at_boundary = rows.gains(labels)
    gains: list[float | None] = list(rows.numbers(values))
    waiting = range(rows.graph.n) if all_of_them or rows.graph.n <= SMALL else np.flatnonzero(at_boundary).tolist()
    queues = _Queue(), _Queue()
    side = bytearray(labels.tobytes())
    for vertex in waiting:
        gain = gains[vertex]
        assert gain is not None
        queues[side[vertex]].push(gain, vertex)
    return queues, gains, side
