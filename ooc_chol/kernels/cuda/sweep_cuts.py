"""Sweep cuts of a graph on one CUDA device: the best split points of orders of its vertices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.kernels.cuda import modules

#: Orders that are looked at together, positions of an order that one thread looks at, and threads of a block.
LANES, CHUNK, THREADS = 16, 32, 256
#: The position of vertices that are in no order.
_NOWHERE = np.iinfo(np.int32).max


class SweepCut(NamedTuple):
    """The split with the smallest normalized cut."""

    direction: int
    side: NDArray[np.bool_]  #: (n,), true behind the split point
    cut: float  #: Weights of the edges between both sides


@final
class SweepKernels:
    """The adjacency (n, n) of a graph in device memory of its own, which :meth:`close` gives back; for one thread at a time."""

    def __init__(self, device: int, adjacency: csr_array) -> None:
        self._device, self._memory = cp.cuda.Device(device), cp.cuda.MemoryPool()
        self._n = adjacency.shape[0]
        with self._device:
            self._stream = cp.cuda.Stream(non_blocking=True)
            self._module = modules.load("sweep_cuts.cu", LANES=LANES, CHUNK=CHUNK, THREADS=THREADS)
        with self._current():
            starts, columns = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32, copy=False)
            weights = adjacency.data.astype(np.float64, copy=False)
            self._graph: tuple[Any, ...] = tuple(map(cp.asarray, (starts, columns, weights)))

    def close(self) -> None:
        """Give back memory of the device."""
        self._graph = ()
        with self._device:
            self._memory.free_all_blocks()

    def best(
        self,
        vertices: NDArray[np.integer],
        degrees: NDArray[np.float64],
        vectors: NDArray[np.float64],
        directions: NDArray[np.float64],
        allowed: NDArray[np.bool_],
    ) -> SweepCut | None:
        """The best split along directions of the span of some vectors, the first of equal ones; None where none is allowed.

        Shapes: ``vertices`` (m,) of the subgraph, ``degrees`` (m,) in it, ``vectors`` (m, k), ``directions`` (d, k), and
        ``allowed`` (m,): after which positions of an order it may be split.
        """
        best, found = np.inf, None
        with self._current():
            types = np.int32, np.float64, np.float64, np.uint8
            arrays = zip((vertices, degrees, vectors, allowed), types, strict=True)
            given = tuple(cp.asarray(np.ascontiguousarray(array, dtype)) for array, dtype in arrays)
            for first in range(0, len(directions), LANES):
                some = np.ascontiguousarray(directions[first : first + LANES], np.float64)
                orders, ranks = self._orders(given[0], given[2], some)
                number, size, ncut = self._best_of(orders, ranks, given[0], given[1], given[3])
                if size and ncut < best:
                    best, found = ncut, self._split(ranks, given[0], first, number, size)
        return found

    def components(
        self, vertices: NDArray[np.integer], degrees: NDArray[np.float64], noticed: float, joins: float
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The first vertex of the component of each vertex of a subgraph (m,), and which are noticed (m,): others are alone.

        Noticed is an end of an edge that weighs more than that share of the degree of its other end. An edge joins two of them
        that weighs more than that share of one of their degrees.
        """
        m = len(vertices)
        with self._current():
            own, numbers = self._numbered(vertices)
            sums, is_noticed = cp.asarray(np.ascontiguousarray(degrees, np.float64)), cp.empty(m, np.uint8)
            parents, labels = (cp.empty(m, np.int32) for _ in range(2))
            seen = *self._graph, own, numbers, sums, is_noticed, parents, np.int32(m)
            self._launch("notice", m, *seen, np.float64(noticed))
            self._launch("join_ends", m, *seen, np.float64(joins))
            self._launch("label", m, parents, labels, np.int32(m))
            return cp.asnumpy(labels), cp.asnumpy(is_noticed).view(np.bool_)

    def rows(self, vertices: NDArray[np.integer]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Counts of entries in the row of each vertex (m,) that lead to others of them, (m,), and their sums, (m,)."""
        m = len(vertices)
        with self._current():
            lengths, sums = cp.empty(m, np.int32), cp.empty(m, np.float64)
            self._launch("rows_inside", m, *self._graph, *self._numbered(vertices), lengths, sums, np.int32(m))
            return cp.asnumpy(lengths), cp.asnumpy(sums)

    def across(self, vertices: NDArray[np.integer], side: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Counts of edges of each vertex (m,) to the other side, (m,), and their weights, row by row."""
        m = len(vertices)
        with self._current():
            own, sides = cp.asarray(np.ascontiguousarray(vertices, np.int32)), cp.full(self._n, 2, np.uint8)
            sides[own] = cp.asarray(np.ascontiguousarray(side, np.uint8))
            counts = cp.empty(m, np.int32)
            starts, columns, weights = self._graph
            self._launch("count_across", m, starts, columns, own, sides, counts, np.int32(m))
            found = cp.asnumpy(counts)
            ends = np.cumsum(found, dtype=np.int64)
            across = cp.empty(int(ends[-1]) if m else 0, np.float64)
            self._launch("list_across", m, starts, columns, weights, own, sides, cp.asarray(ends - found), across, np.int32(m))
            return found, cp.asnumpy(across)

    def _numbered(self, vertices: NDArray[np.integer]) -> tuple[Any, Any]:
        """Vertices (m,) on the device, and the number of each vertex of the graph among them (n,), -1 of others."""
        own, numbers = cp.asarray(np.ascontiguousarray(vertices, np.int32)), cp.full(self._n, -1, np.int32)
        self._launch("number", len(vertices), own, numbers, np.int32(len(vertices)))
        return own, numbers

    def _orders(self, vertices: Any, vectors: Any, directions: NDArray[np.float64]) -> tuple[Any, Any]:
        """Orders of vertices along directions (orders, m), equal ones by number, and the position of each vertex (n, LANES)."""
        m, k = vectors.shape
        count = len(directions)
        keys, orders = cp.empty((count, m), np.float64), cp.empty((count, m), np.int64)
        given = vectors, cp.asarray(directions), keys, np.int32(m), np.int32(k), np.int32(count)
        self._launch("project", count * m, *given)
        ranks = cp.full((self._n, LANES), _NOWHERE, np.int32)
        for d in range(count):
            orders[d] = cp.argsort(keys[d], kind="stable")
            self._launch("rank", m, orders[d], vertices, ranks, np.int32(m), np.int32(d))
        return orders, ranks

    def _best_of(self, orders: Any, ranks: Any, vertices: Any, degrees: Any, allowed: Any) -> tuple[int, int, float]:
        """Number of the order, vertices that come first, and the normalized cut."""
        count, m = orders.shape
        chunks = -(-m // CHUNK)
        before = cp.empty((m, LANES), np.float64)
        self._launch("weights_before", m * LANES, *self._graph, vertices, ranks, before, np.int32(m))
        seen = orders, degrees, before
        sums, left, right = (cp.empty((count, chunks, 2), np.float64) for _ in range(3))
        sizes = np.int32(m), np.int32(chunks), np.int32(count)
        self._launch("sum_chunks", count * chunks, *seen, sums, *sizes)
        self._launch("scan_chunks", count * THREADS, sums, left, right, np.int32(chunks))
        ncuts, splits = cp.empty((count, chunks), np.float64), cp.empty((count, chunks), np.int32)
        self._launch("best_of_chunks", count * chunks, *seen, left, right, allowed, ncuts, splits, *sizes)
        of_chunks, places = cp.asnumpy(ncuts), cp.asnumpy(splits)
        number, chunk = np.unravel_index(int(np.argmin(of_chunks)), of_chunks.shape)
        return int(number), int(places[number, chunk]), float(of_chunks[number, chunk])

    def _split(self, ranks: Any, vertices: Any, first: int, number: int, size: int) -> SweepCut:
        """Both sides of a split, and what it cuts, summed from the edges."""
        m = len(vertices)
        sides, across = cp.full(self._n, 2, np.uint8), cp.empty(m, np.float64)
        self._launch("sides_of", m, ranks, vertices, sides, np.int32(m), np.int32(number), np.int32(size))
        self._launch("weights_across", m, *self._graph, vertices, sides, across, np.int32(m))
        cut = float(cp.asnumpy(across).sum()) / 2
        return SweepCut(first + number, cp.asnumpy(sides[vertices]).view(np.bool_), cut)

    def _launch(self, name: str, threads: int, *arguments: Any) -> None:
        """Enqueue a kernel of at least so many threads."""
        if threads:
            self._module.get_function(name)((-(-threads // THREADS),), (THREADS,), arguments)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make device, stream and memory those of the calling thread, until what was enqueued is done."""
        with self._device, self._stream, cp.cuda.using_allocator(self._memory.malloc):
            yield
            self._stream.synchronize()
