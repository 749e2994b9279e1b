"""Rows of random graphs made on one CUDA device: a range regenerates all edges, sorts its own and drops duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.cuda import device_number
from ooc_chol.kernels.cuda.graph_source import ENTRIES, THREADS, source
from ooc_chol.tasks.random_graphs import EdgeDraw

#: Blocks of threads on each multiprocessor.
_BLOCKS = 16
#: What the starts of rows without entries hold until the host fills them in.
_NOTHING = np.uint32(0xFFFFFFFF)


@final
class GraphKernels:
    """Memory of its own, which :meth:`close` gives back, and a stream; for one thread at a time.

    Drawn entries take 24 bytes each on the device: keys, as much again to sort them by radix, and columns.
    """

    def __init__(self, device: str, draw: EdgeDraw) -> None:
        self._draw = draw
        self._device = cp.cuda.Device(device_number(device))
        self._memory, self._locked = cp.cuda.MemoryPool(), cp.cuda.PinnedMemoryPool()
        with self._device:
            self._stream = cp.cuda.Stream(non_blocking=True)
            self._blocks = _BLOCKS * self._device.attributes["MultiProcessorCount"]
            self._module = cp.RawModule(code=source(draw), options=("--std=c++17",))
            self._module.compile()
        thresholds = draw.thresholds or (0, 0, 0)
        graph = (np.uint64(draw.key), *map(np.uint32, thresholds), *map(np.uint32, draw.offsets), np.uint64(draw.n_edges))
        self._graph: tuple[Any, ...] = graph

    def close(self) -> None:
        """Give back memory of the device, and the page-locked memory that no array has."""
        with self._device:
            self._memory.free_all_blocks()
            self._locked.free_all_blocks()

    def counts(self) -> tuple[NDArray[np.int64], int]:
        """Drawn entries of each bucket of rows, without loops, and the number of loops."""
        with self._current():
            found = cp.zeros((1 << self._draw.bucket_bits) + 1, np.uint64)
            self._launch("count_entries", self._blocks, *self._graph, found)
            counts = found.get().astype(np.int64)
        return counts[:-1], int(counts[-1])

    def rows(self, rows: range, n_drawn: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Starts of these rows and the columns of their entries, each once; of ``n_drawn`` with duplicates.

        Columns are in page-locked memory of the array's own; pieces of ``most`` entries are used again once they are forgotten.
        """
        with self._current():
            keys = self.sorted_keys(rows, n_drawn)
            counts = cp.empty(-(-max(1, n_drawn) // ENTRIES), np.uint32)
            self._launch("count_distinct", len(counts), keys, np.uint64(n_drawn), counts)
            ends = cp.cumsum(counts, dtype=np.uint32)
            columns, starts = cp.empty(n_drawn, np.int32), cp.full(len(rows) + 1, _NOTHING)
            self._launch("write_distinct", len(counts), keys, np.uint64(n_drawn), ends - counts, columns, starts)
            starts[-1] = ends[-1]
            first = np.minimum.accumulate(starts.get()[::-1])[::-1]  # an empty row begins where the next one does
            return first.astype(np.int64), self._to_host(columns[: int(first[-1])], most)

    def sorted_keys(self, rows: range, n_drawn: int) -> Any:
        """Keys ``(row - rows.start) * 2**scale + column`` of the drawn entries of rows, in order, on the device."""
        with self._current():
            keys, found = cp.empty(n_drawn, np.uint64), cp.zeros(1, np.uint64)
            span = np.uint32(rows.start), np.uint32(len(rows))
            self._launch("gather_entries", self._blocks, *self._graph, *span, keys, np.uint64(n_drawn), found)
            keys.sort()
            assert int(found.get()[0]) == n_drawn  # as counted
            return keys

    def _to_host(self, columns: Any, most: int) -> NDArray[np.int32]:
        locked = np.frombuffer(self._locked.malloc(4 * max(1, most)), np.int32, len(columns))
        if len(columns):
            columns.get(out=locked)
        return locked

    def _launch(self, name: str, blocks: int, *arguments: Any) -> None:
        self._module.get_function(name)((blocks,), (THREADS,), arguments)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make device, stream and memory those of the calling thread."""
        with self._device, self._stream, cp.cuda.using_allocator(self._memory.malloc):
            yield
            self._stream.synchronize()
