"""Products of packed row blocks with vectors on the host: SciPy's compiled products on pieces of rows, by a team of threads.

SciPy adds the products of a row one after the other to what stands in y, without the interpreter's lock. A long row is cut into
segments, which are rows to SciPy, and their sums are added in order. So a row has the same sum whatever piece it is part of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_uint8
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS, AbstractProductKernels, check_factors, check_panel, check_product
from ooc_chol.precision.triples import Precision
from ooc_chol.process.scipy_modules import sparse_tools
from ooc_chol.process.team import ThreadTeam, pieces
from ooc_chol.tasks.row_blocks import SEGMENT_ENTRIES, BlockParts, RowBlock, ValueKind

#: Entries whose values are widened at once: most of a piece, unless it is a single row. One takes a millisecond, and the calls of
#: Python for it some 50 µs, since what they need has left the caches meanwhile.
MOST_ENTRIES = 262144
#: Entries of the windows in which rows of a piece begin: the last one may end behind it.
_WINDOW_ENTRIES = MOST_ENTRIES - 32768
#: Sums of a piece, which is rows times columns.
_MOST_SUMS = 32768
#: Segments of long rows in a piece, beyond one for each row.
_MOST_SEGMENTS = MOST_ENTRIES // SEGMENT_ENTRIES
_MOST_PARTIAL_SUMS = _MOST_SUMS + max(PANEL_COLUMNS) * _MOST_SEGMENTS
#: Numbers of a panel that one thread widens or scales at once.
_PANEL_PIECE = 1 << 17
_ALIGNMENT = 64

Floats = NDArray[Any]


class _Scratch(NamedTuple):
    """Workspace of one thread."""

    values: Floats  #: (MOST_ENTRIES,) of the type of computing
    starts: NDArray[np.int32]  #: (_MOST_SUMS + 1,)
    sums: Floats  #: (_MOST_SUMS,) of the type of computing
    partial_sums: Floats  #: (_MOST_PARTIAL_SUMS,) of the type of computing
    scaled: NDArray[np.float64]  #: (_MOST_SUMS,)
    shifted: NDArray[np.float64]  #: (_MOST_SUMS,)


@dataclass(frozen=True, slots=True)
class _Product:
    """One block's product: what all its pieces read, and where they write."""

    parts: BlockParts  #: Starts of rows as int32, SciPy's type
    long_rows: list[int]  #: Rows of several segments, ascending
    run: Floats | None  #: Of the value of a pattern; None where values are stored
    compute: np.dtype[Any]  #: Type of computing
    x: Floats  #: (n_columns, b) of the type of computing
    y: Floats
    left: NDArray[np.float64] | float
    shift: NDArray[np.float64] | float

    @property
    def is_plain(self) -> bool:
        """True if y is A x itself."""
        return isinstance(self.left, float) and self.left == 1.0 and not self.is_shifted

    @property
    def is_shifted(self) -> bool:
        return not isinstance(self.shift, float) or self.shift != 0.0


@final
class HostProductKernels(AbstractProductKernels):
    """Kernels that take NumPy arrays, for host devices."""

    def __init__(self, precision: Precision, columns: int, most_segments: int, threads: int) -> None:
        self.precision, self.columns, self.most_segments = precision, columns, most_segments
        self._team = ThreadTeam(threads)
        self._tools = sparse_tools()
        self._compute = precision.compute
        self._widens = precision.storage != precision.compute
        self._free: SimpleQueue[_Scratch] = SimpleQueue()
        self._segment_starts = np.arange(0, MOST_ENTRIES, SEGMENT_ENTRIES, dtype=np.int32)
        self._value: float | None = None  # what the run holds
        self._nb = self._used_columns = 0
        self._wide_of: dict[int, Floats] = {}  # widened panels by the addresses of what they are made of

    def workspace_bytes(self, nb: int) -> int:
        """Scratch of all threads, a run of equal values, and in FDF the widened panels: 8 bytes a number."""
        sizes = self._scratch_specs()
        return sum(size for _, size in self._shared_specs(nb)) + self._team.size * sum(size for _, size in sizes)

    def bind(self, nb: int, workspace: int) -> None:
        at = workspace

        def take(specs: list[tuple[np.dtype[Any], int]]) -> Iterator[Floats]:
            nonlocal at
            for dtype, size in specs:
                memory = (c_uint8 * size).from_address(at)
                yield np.ctypeslib.as_array(memory).view(dtype)
                at += size

        self._nb = nb
        self._run, self._wide = take(self._shared_specs(nb))
        for _ in range(self._team.size):
            self._free.put(_Scratch(*take(self._scratch_specs())))

    def close(self) -> None:
        self._team.close()

    def prepare(self, stream: AbstractStream, x: Tile) -> None:
        check_panel(self, "x", x)
        if not self._widens:
            return
        wide = self._room(x)
        enqueue(stream, partial(self._by_rows, lambda rows: np.copyto(wide[rows], x[rows]), x.shape))

    def multiply(
        self,
        stream: AbstractStream,
        block: RowBlock,
        data: Tile,
        x: Tile,
        y: Tile,
        *,
        left: Tile | float = 1.0,
        shift: Tile | float = 0.0,
    ) -> None:
        left, shift = (float(number) if isinstance(number, int) else number for number in (left, shift))
        check_product(self, block, data, x, y)
        for diagonal in (left, shift):
            if not isinstance(diagonal, float) and (diagonal.shape != (block.n_rows,) or diagonal.dtype != np.float64):
                raise ValueError(
                    f"a diagonal of {diagonal.dtype} and shape {diagonal.shape}, where {block.n_rows} float64 are due"
                )
        wide = self._widened(x) if self._widens else x

        def run() -> None:
            parts = block.parts(data)
            parts = parts._replace(starts=parts.starts.view(np.int32))
            self._multiply(_Product(parts, long_rows(parts.starts), self._run_of(block), self._compute, wide, y, left, shift))

        enqueue(stream, run)

    def scale(self, stream: AbstractStream, factors: Tile, x: Tile) -> None:
        check_factors(self, factors, x)

        def scale_rows(rows: slice) -> None:
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                np.multiply(x[rows], factors[rows, None], out=x[rows], dtype=np.float64, casting="same_kind")

        enqueue(stream, partial(self._by_rows, scale_rows, x.shape))

    # the arithmetic, on the stream's thread and the team's

    def _multiply(self, product: _Product) -> None:
        """All pieces of a block, by all threads."""
        bounds = piece_bounds(product.parts.starts, _MOST_SUMS // product.y.shape[1])
        self._team.run([partial(self._multiply_rows, product, first, stop) for first, stop in pairwise(bounds)])

    def _multiply_rows(self, product: _Product, first: int, stop: int) -> None:
        """``y = shift * y + left * (A x)`` for some rows of the block."""
        y = product.y[first:stop]
        with self._scratch() as scratch, np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if product.is_plain and y.dtype == self._compute:
                self._sum(product, first, stop, scratch, y.reshape(-1))
                return
            sums = scratch.sums[: y.size]
            self._sum(product, first, stop, scratch, sums)
            _finish(product, slice(first, stop), sums.reshape(y.shape), scratch)

    def _sum(self, product: _Product, first: int, stop: int, scratch: _Scratch, sums: Floats) -> None:
        """``sums = A x`` for some rows, in the type of computing."""
        starts = product.parts.starts[first : stop + 1]
        begin, end = int(starts[0]), int(starts[-1])
        rows = product.long_rows[bisect_left(product.long_rows, first) : bisect_left(product.long_rows, stop)]
        sums[...] = 0
        for at in range(begin, end, MOST_ENTRIES):  # more than once only where one row is the piece
            part = slice(at, min(at + MOST_ENTRIES, end))
            local = scratch.starts[: len(starts)]
            np.subtract(starts, at, out=local)
            local[0], local[-1] = 0, part.stop - at
            columns, values = product.parts.columns[part], _values(product, part, scratch)
            if rows:
                self._add_segments(local, [row - first for row in rows], columns, values, product.x, scratch, sums)
            else:
                self._add(local, columns, values, product.x, sums)

    def _add_segments(
        self,
        starts: NDArray[np.int32],
        rows: list[int],
        columns: NDArray[np.int32],
        values: Floats,
        x: Floats,
        scratch: _Scratch,
        sums: Floats,
    ) -> None:
        """``sums += A x``: one product whose rows are segments, where rows are long; sums of segments are added in order."""
        b, begins, at = x.shape[1], [], 0
        inner = [self._segment_starts[1 : -(-int(starts[row + 1] - starts[row]) // SEGMENT_ENTRIES)] for row in rows]
        for row, own in zip(rows, inner, strict=True):
            begins += [starts[at : row + 1], own + starts[row]]
            at = row + 1
        local = np.concatenate([*begins, starts[at:]])
        partial_sums = scratch.partial_sums[: (len(local) - 1) * b].reshape(-1, b)
        partial_sums[...] = 0
        self._add(local, columns, values, x, partial_sums.reshape(-1))
        made, at, shift = sums.reshape(-1, b), 0, 0
        for row, own in zip(rows, inner, strict=True):
            made[at:row] = partial_sums[at + shift : row + shift]
            of_row = partial_sums[row + shift : row + shift + len(own) + 1]
            of_row[0] += made[row]  # of earlier parts of the row
            made[row] = np.add.accumulate(of_row, axis=0, out=of_row)[-1]
            at, shift = row + 1, shift + len(own)
        made[at:] = partial_sums[at + shift :]

    def _add(self, starts: NDArray[np.int32], columns: NDArray[np.int32], values: Floats, x: Floats, sums: Floats) -> None:
        """``sums += A x``, SciPy's."""
        n, b = x.shape
        if b == 1:
            self._tools.csr_matvec(len(starts) - 1, n, starts, columns, values, x.reshape(-1), sums)
        else:
            self._tools.csr_matvecs(len(starts) - 1, n, b, starts, columns, values, x.reshape(-1), sums)

    def _run_of(self, block: RowBlock) -> Floats | None:
        """A run of the value of a pattern: blocks come one after the other, and most have the same."""
        if block.kind is not ValueKind.PATTERN:
            return None
        if block.value != self._value:
            with np.errstate(over="ignore"):
                self._run[:] = block.value
            self._value = block.value
        return self._run

    def _by_rows(self, work: Any, shape: tuple[int, int]) -> None:
        """Call ``work(rows)`` for pieces of a panel, by all threads."""
        self._team.run([partial(work, rows) for rows in pieces(shape[0], max(1, _PANEL_PIECE // shape[1]))])

    @contextmanager
    def _scratch(self) -> Iterator[_Scratch]:
        """One of as many as there are threads."""
        scratch = self._free.get()
        try:
            yield scratch
        finally:
            self._free.put(scratch)

    # widened panels, by the thread that enqueues

    def _room(self, x: Tile) -> Floats:
        """Where the widened panel of x goes: where it was before, or behind the others, or where they were."""
        known = self._wide_of.get(x.ctypes.data)
        if known is not None and known.shape == x.shape:
            return known
        if known is not None or self._used_columns + x.shape[1] > self.columns:
            self._wide_of.clear()
            self._used_columns = 0
        if len(x) > self._nb or x.shape[1] > self.columns:
            raise ValueError(f"a panel of shape {x.shape}, but there is room for {self._nb} rows and {self.columns} columns")
        at = self._used_columns * self._nb
        self._used_columns += x.shape[1]
        wide = self._wide[at : at + x.size].reshape(x.shape)
        self._wide_of[x.ctypes.data] = wide
        return wide

    def _widened(self, x: Tile) -> Floats:
        """Widened copy of x that :meth:`prepare` makes."""
        wide = self._wide_of.get(x.ctypes.data)
        if wide is None or wide.shape != x.shape:
            raise ScheduleError("a panel was multiplied that had not been prepared: call prepare(stream, x) when x has changed")
        return wide

    # layout of the workspace, and arguments

    def _shared_specs(self, nb: int) -> list[tuple[np.dtype[Any], int]]:
        """Types and bytes: the run, the widened panels."""
        wide = 8 * nb * self.columns if self._widens else 0
        return [(self._compute, self._compute.itemsize * MOST_ENTRIES), (np.dtype(np.float64), _aligned(wide))]

    def _scratch_specs(self) -> list[tuple[np.dtype[Any], int]]:
        """Types and bytes of one thread's scratch."""
        sums, double, integer = self._compute, np.dtype(np.float64), np.dtype(np.int32)
        counts = (
            *((sums, MOST_ENTRIES), (integer, _MOST_SUMS + 1), (sums, _MOST_SUMS), (sums, _MOST_PARTIAL_SUMS)),
            *((double, _MOST_SUMS), (double, _MOST_SUMS)),
        )
        return [(dtype, _aligned(dtype.itemsize * count)) for dtype, count in counts]


def _values(product: _Product, entries: slice, scratch: _Scratch) -> Floats:
    """Values of some entries in the type of computing."""
    count = entries.stop - entries.start
    if product.run is not None:
        return product.run[:count]
    stored: Floats = product.parts.values[entries]
    if stored.dtype == product.compute:
        return stored
    np.copyto(scratch.values[:count], stored, casting="same_kind")
    return scratch.values[:count]


def _finish(product: _Product, rows: slice, sums: Floats, scratch: _Scratch) -> None:
    """``y = shift * y + left * sums`` in float64, rounded once."""
    y = product.y[rows]
    if product.is_plain:
        y[...] = sums
        return
    scaled = scratch.scaled[: y.size].reshape(y.shape)
    np.multiply(sums, _column(product.left, rows), out=scaled, dtype=np.float64)
    if product.is_shifted:
        shifted = scratch.shifted[: y.size].reshape(y.shape)
        scaled += np.multiply(y, _column(product.shift, rows), out=shifted, dtype=np.float64)
    y[...] = scaled


def _column(diagonal: NDArray[np.float64] | float, rows: slice) -> NDArray[np.float64] | float:
    """Some rows of a diagonal, to be multiplied with rows of a panel."""
    return diagonal if isinstance(diagonal, float) else diagonal[rows, None]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def piece_bounds(starts: NDArray[np.int32], most_rows: int) -> list[int]:
    """Rows at which pieces of a block begin, and at last its number of rows. Shapes: ``starts`` (n_rows + 1,)."""
    n_rows, n_entries = len(starts) - 1, int(starts[-1])
    # Rows of a piece begin in a window of entries: all but the last one end there too. Empty rows at the end have their own.
    windows = np.append(np.arange(0, n_entries, _WINDOW_ENTRIES, dtype=np.int64), n_entries).astype(np.int32)
    bounds = np.union1d(np.searchsorted(starts[:-1], windows), np.arange(0, n_rows, most_rows))
    bounds = np.union1d(bounds, [0, n_rows])
    is_large = np.diff(starts[bounds].astype(np.int64)) > MOST_ENTRIES
    return [int(row) for row in np.union1d(bounds, bounds[1:][is_large] - 1)]


def long_rows(starts: NDArray[np.int32]) -> list[int]:
    """Rows of more than one segment, ascending; each holds an entry whose number is a multiple of a segment's entries."""
    found = np.searchsorted(starts, np.arange(0, int(starts[-1]), SEGMENT_ENTRIES, dtype=np.int64).astype(np.int32), "right") - 1
    return [int(row) for row in np.unique(found[starts[found + 1] - starts[found] > SEGMENT_ENTRIES])]
