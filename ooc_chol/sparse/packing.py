"""Rows of a sparse matrix packed into blocks, as runs of them come.

Rows of a chunk are cut into *pieces* of at most an eighth of a block, and of at most :data:`_MOST_PIECE_BYTES`, so that a piece
is looked at while it lies in a core's cache. A piece ends where the next row does not fit, so that pieces depend on the rows
alone and not on the runs in which they come; and so do blocks, which are whole pieces. Until a block is whole, nobody knows how
many rows it has and of which kind its values are: pieces are views of the runs' arrays, and are copied once, when their block
is made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.errors import NonFiniteError, OocCholError, SparseInputError, UnsupportedTypeError
from ooc_chol.memory.blocks import AbstractBlockSink
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.sparse.canonical import place_of
from ooc_chol.sparse.rows import AbstractRows, Rows
from ooc_chol.sparse.values import NO_VALUES, BadValueError, Values, look_at
from ooc_chol.tasks.row_blocks import ALIGNMENT, CHUNK_ROWS, MOST_ENTRIES, BlockParts, RowBlock, RowBlocks, ValueKind
from ooc_chol.tasks.work_groups import work_groups

#: Bytes of a block, of which a matrix has about so many, unless that makes them smaller or larger than these.
N_BLOCKS, LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 64, 16 << 20, 256 << 20
#: Most bytes of a piece, counted with values of float64: such a piece stays in a core's cache.
_MOST_PIECE_BYTES = 2 << 20
#: Bytes of a row and of an entry, with values of float64, of which pieces are counted.
_ROW_BYTES, _ENTRY_BYTES = 4, 12
#: Entries that a team of threads copies in one job.
_COPIED_ENTRIES = 1 << 20

#: ``progress(done, total)``, in entries.
Progress: TypeAlias = Callable[[int, int], None]


class Packed(NamedTuple):
    """Result of packing."""

    blocks: RowBlocks
    dtype: np.dtype[Any]  #: In which the source had its values, float64 where these were no floats
    longest_row: int  #: Entries of the longest row
    rounded: int  #: Values that another type than the source's has changed


def default_block_bytes(expected_bytes: int) -> int:
    """Bytes of a block of a matrix of so many: a 64th, and 16 to 256 MiB."""
    return min(max(expected_bytes // N_BLOCKS, LEAST_BLOCK_BYTES), MOST_BLOCK_BYTES)


def expected_bytes(rows: AbstractRows) -> int:
    """Upper bound of the bytes of all parts of a matrix, its values in float64."""
    return _ENTRY_BYTES * rows.expected_entries + _ROW_BYTES * rows.shape[0] + _group_bytes(rows.shape[0], rows.expected_entries)


def most_bytes(rows: AbstractRows, block_bytes: int, chunk_rows: int = CHUNK_ROWS) -> int:
    """Upper bound of what the blocks of a matrix take, each at a page: of two of a chunk the first one is at least half full."""
    nbytes = expected_bytes(rows)
    count = 2 * (nbytes // max(block_bytes // 2, 1)) + rows.shape[0] // chunk_rows + 2
    return nbytes + count * (PAGE_BYTES + 8 * ALIGNMENT)


def _group_bytes(n_rows: int, n_entries: int) -> int:
    """Upper bound of the bytes of work groups: of two that follow each other one has 1,024 entries, or 2,048 rows."""
    return 8 * (n_entries // 1024 + n_rows // 2048 + 3)


def block_bytes_at_most(n_rows: int, n_entries: int, kind: ValueKind) -> int:
    """Upper bound of the bytes of a block."""
    return 4 * (n_rows + 1) + _group_bytes(n_rows, n_entries) + (4 + kind.itemsize) * n_entries + 4 * ALIGNMENT


@dataclass
class Piece:
    """Consecutive rows of one chunk, views of the runs that they came in."""

    runs: list[Rows] = field(default_factory=list)
    n_rows: int = 0
    n_entries: int = 0
    values: Values = NO_VALUES

    @property
    def weight(self) -> int:
        """Bytes by which pieces are cut."""
        return _ROW_BYTES * self.n_rows + _ENTRY_BYTES * self.n_entries

    def add(self, run: Rows, values: Values) -> None:
        """Take some more rows."""
        self.runs.append(run)
        self.n_rows += run.starts.size - 1
        self.n_entries += run.columns.size
        self.values = self.values.joined(values)


class _Cut(NamedTuple):
    """Rows of a run that go to one piece, and what ends behind them."""

    start: int
    stop: int
    ends_piece: bool
    ends_chunk: bool


@final
class Packer:
    """Packs the rows of one matrix.

    Shapes: ``order`` (n,).
    """

    def __init__(
        self,
        rows: AbstractRows,
        sink: AbstractBlockSink,
        *,
        block_bytes: int,
        chunk_rows: int = CHUNK_ROWS,
        dtype: np.dtype[Any] | None = None,
        progress: Progress | None = None,
        order: NDArray[np.int32] | None = None,
    ) -> None:
        self._order = order
        self._rows, self._sink, self._dtype, self._progress = rows, sink, dtype, progress
        self._block_bytes, self._chunk_rows = block_bytes, chunk_rows
        self._piece_bytes = min(block_bytes // 8, _MOST_PIECE_BYTES)
        self._blocks: list[RowBlock] = []
        self._piece = Piece()
        #: Pieces of whole chunks that wait for more, and those of the chunk that is coming.
        self._waiting: list[Piece] = []
        self._chunk: list[Piece] = []
        self._is_split = False  # part of the chunk is in a block already
        self._next_row = self._first_row = self._offset = self._done = 0
        self._longest_row = self._rounded = 0
        self._has_values = False
        self._are_narrow = True

    def pack(self) -> Packed:
        """Pack all rows.

        Raises ``SparseInputError``, ``NonFiniteError`` and ``UnsupportedTypeError``.
        """
        with closing(ThreadTeam(cores())) as team:
            for run in self._rows.runs():
                self._take(run, team)
                if self._progress is not None:
                    self._progress(self._done, max(self._done, self._rows.expected_entries))
            if self._next_row != self._rows.shape[0]:
                problem = f"{self._next_row} rows came of {self._rows.shape[0]}"
                raise SparseInputError(self._rows.name, "", problem, "the source must hand over all of its rows")
            self._end_piece(team)
            self._end_chunk(team)
            self._make(self._waiting, team)
        blocks = RowBlocks(self._rows.shape, tuple(self._blocks), self._chunk_rows)
        return Packed(blocks, self._type(), self._longest_row, self._rounded)

    def _type(self) -> np.dtype[Any]:
        if self._dtype is not None:
            return self._dtype
        return np.dtype(np.float32 if self._has_values and self._are_narrow else np.float64)

    def _take(self, run: Rows, team: ThreadTeam) -> None:
        """Cut a run, look at its parts by several threads, and deal them to pieces and blocks."""
        self._check(run)
        if run.values is not None:
            self._has_values = True
            self._are_narrow &= run.values.dtype == np.float32
        cuts = list(self._cuts(run.starts))
        parts = team.map(partial(self._looked_at, run), cuts)
        for cut, (part, values, rounded) in zip(cuts, parts, strict=True):
            self._rounded += rounded
            self._piece.add(part, values)
            if cut.ends_piece:
                self._end_piece(team)
            if cut.ends_chunk:
                self._end_chunk(team)
        self._next_row += run.starts.size - 1
        self._done += run.columns.size

    def _check(self, run: Rows) -> None:
        """Refuse a run that is none: this is about the shape of its arrays."""
        if problem := run_problem(run, self._next_row, self._rows):
            raise problem
        if run.starts.size > 1:
            self._longest_row = max(self._longest_row, int(np.diff(run.starts).max()))
        if run.values is not None and (
            run.values.dtype.kind not in "fiub" or run.values.dtype.itemsize > 8 or run.values.dtype == "f2"
        ):
            advice = "convert its values to float64 first"
            raise UnsupportedTypeError(f"a sparse matrix ({self._rows.name})", run.values.dtype.name, advice)

    def _cuts(self, starts: NDArray[np.int64]) -> Iterator[_Cut]:
        """Where pieces and chunks end within a run, the first going on with the piece that is there."""
        n_rows = starts.size - 1
        weights = _ENTRY_BYTES * starts
        weights += _ROW_BYTES * np.arange(n_rows + 1)
        view = cast(Sequence[int], weights.data)
        at, weight = 0, self._piece.weight
        while at < n_rows:
            left = self._chunk_rows - (self._next_row + at) % self._chunk_rows
            end = min(n_rows, at + left)
            stop = max(bisect_right(view, view[at] + self._piece_bytes - weight, at, end + 1) - 1, at)
            if stop == at and not weight:
                stop = at + 1  # a row by itself, however long
            ends_chunk = stop == at + left
            ends_piece = ends_chunk or stop < end
            yield _Cut(at, stop, ends_piece, ends_chunk)
            weight = 0 if ends_piece else weight + view[stop] - view[at]
            at = stop

    def _looked_at(self, run: Rows, cut: _Cut) -> tuple[Rows, Values, int]:
        """The rows of a cut, what their values are, and how many of these were rounded."""
        starts = run.starts[cut.start : cut.stop + 1]
        low, high = int(starts[0]), int(starts[-1])
        part = Rows(
            run.first_row + cut.start, starts - low, run.columns[low:high], None if run.values is None else run.values[low:high]
        )
        check_columns(part, self._rows.shape[1], self._rows.name)
        rounded = 0
        try:
            if self._dtype == np.float32 and part.values is not None and part.values.dtype != np.float32:
                part, rounded = self._rounded_part(part)
            return part, look_at(part.values, part.columns.size), rounded
        except BadValueError as error:
            raise refusal(part, error, self._rows.name, self._place(part, error.at)) from None

    def _rounded_part(self, part: Rows) -> tuple[Rows, int]:
        """The same in float32."""
        assert part.values is not None
        look_at(part.values, part.columns.size)  # refuses what is no finite number, or a whole number that is not exact
        with np.errstate(over="ignore", under="ignore"):
            narrow = part.values.astype(np.float32)
        infinite = np.isinf(narrow)
        if infinite.any():
            at = int(np.argmax(infinite))
            row, column = self._place(part, at)
            advice = f"A[{row}, {column}] is {part.values[at]}, beyond float32: leave dtype out, or scale the matrix"
            raise UnsupportedTypeError("dtype=float32", part.values.dtype.name, advice)
        return part._replace(values=narrow), int(np.count_nonzero(narrow != part.values.astype(np.float64, copy=False)))

    def _place(self, part: Rows, entry: int) -> tuple[int, int]:
        """Row and column of an entry, as the source numbers them."""
        row, column = place_of(part, entry)
        return (row, column) if self._order is None else (int(self._order[row]), int(self._order[column]))

    def _end_piece(self, team: ThreadTeam) -> None:
        """Add the piece to its chunk, once there is room."""
        if not self._piece.n_rows:
            return
        if self._waiting and not self._fits([*self._waiting, *self._chunk, self._piece]):
            self._make(self._waiting, team)
            self._waiting = []
        if self._chunk and not self._waiting and not self._fits([*self._chunk, self._piece]):
            self._make(self._chunk, team)
            self._chunk, self._is_split = [], True
        self._chunk.append(self._piece)
        self._piece = Piece()

    def _end_chunk(self, team: ThreadTeam) -> None:
        """Let the chunk wait for the next ones; the rest of one that is split is a block of its own."""
        if self._is_split:
            self._make(self._chunk, team)
        else:
            self._waiting += self._chunk
        self._chunk, self._is_split = [], False

    def _fits(self, pieces: Sequence[Piece]) -> bool:
        """Tell whether pieces may be one block."""
        n_rows, n_entries = sum(piece.n_rows for piece in pieces), sum(piece.n_entries for piece in pieces)
        if n_entries > MOST_ENTRIES or n_rows >= MOST_ENTRIES:
            return False
        return block_bytes_at_most(n_rows, n_entries, _joined(pieces).stored) <= self._block_bytes

    def _make(self, pieces: Sequence[Piece], team: ThreadTeam) -> None:
        """Make a block of pieces, of which there may be none."""
        if not pieces:
            return
        n_rows, n_entries = sum(piece.n_rows for piece in pieces), sum(piece.n_entries for piece in pieces)
        values = _joined(pieces)
        runs = [run for piece in pieces for run in piece.runs]
        starts = _starts_of(runs, n_rows)
        groups, n_segments = work_groups(starts)
        facts = n_rows, n_entries, len(groups) - 1, n_segments, values.stored, values.number
        block = RowBlock(self._first_row, *facts, self._offset)
        data = self._sink.room(block.nbytes)
        _fill(block, data, (starts, groups), runs, team)
        self._sink.put(data)
        self._blocks.append(block)
        self._first_row += n_rows
        self._offset += -(-block.nbytes // PAGE_BYTES) * PAGE_BYTES


def _joined(pieces: Sequence[Piece]) -> Values:
    return reduce(Values.joined, (piece.values for piece in pieces), NO_VALUES)


def _starts_of(runs: Sequence[Rows], n_rows: int) -> NDArray[np.uint32]:
    """Entries before each row of a block."""
    starts = np.zeros(n_rows + 1, np.uint32)
    row = entry = 0
    for run in runs:
        count = run.starts.size - 1
        np.add(run.starts[1:], entry, out=starts[row + 1 : row + 1 + count], casting="unsafe")
        row, entry = row + count, entry + run.columns.size
    return starts


def _fill(
    block: RowBlock,
    data: NDArray[np.uint8],
    heads: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    runs: Sequence[Rows],
    team: ThreadTeam,
) -> None:
    """Write the bytes of a block, those between its parts being zero."""
    parts = block.parts(data)
    for part, head in zip(parts[:2], heads, strict=True):
        part[...] = head
    jobs = []
    at = 0
    for run in runs:
        for first in range(0, run.columns.size, _COPIED_ENTRIES):
            here = slice(first, min(first + _COPIED_ENTRIES, run.columns.size))
            there = slice(at + here.start, at + here.stop)
            numbers = None if run.values is None else run.values[here]
            jobs.append(partial(_copy, parts, there, run.columns[here], numbers))
        at += run.columns.size
    team.run(jobs)
    at = 0
    for part in parts:
        if part is not None:
            end = at + part.nbytes
            at = -(-end // ALIGNMENT) * ALIGNMENT
            data[end:at] = 0


def _copy(parts: BlockParts, there: slice, columns: NDArray[Any], numbers: NDArray[Any] | None) -> None:
    """Copy columns and values of some entries, None being ones."""
    parts.columns[there] = columns
    if parts.values is not None:
        np.copyto(parts.values[there], 1 if numbers is None else numbers, casting="unsafe")


def run_problem(run: Rows, next_row: int, rows: AbstractRows) -> SparseInputError | None:
    """Problem with the shape of a run's arrays, where ``next_row`` is its first row."""
    n_rows, name = run.starts.size - 1, rows.name
    problem = ""
    if run.first_row != next_row or run.first_row + n_rows > rows.shape[0]:
        problem = f"rows {run.first_row} to {run.first_row + n_rows - 1} came where row {next_row} is next"
    elif run.starts[0] != 0 or run.starts[-1] != run.columns.size:
        problem = f"its run has {run.columns.size} entries, but starts from {run.starts[0]} to {run.starts[-1]}"
    elif run.values is not None and run.values.size != run.columns.size:
        problem = f"its run has {run.columns.size} columns, but {run.values.size} values"
    elif run.columns.dtype != np.int32:
        problem = f"its columns are of type {run.columns.dtype}, not int32"
    elif (counts := np.diff(run.starts)).size and (least := int(counts.min())) < 0:
        at = int(np.argmin(counts))
        problem = f"its entries are {least}: starts of rows decrease from {run.starts[at]} to {run.starts[at + 1]}"
        return SparseInputError(name, f"row {run.first_row + at}", problem, "mend the source")
    return SparseInputError(name, f"row {run.first_row}", problem, "mend the source") if problem else None


def refusal(run: Rows, error: BadValueError, name: str, place: tuple[int, int] | None = None) -> OocCholError:
    """Error for a value of a run that cannot be stored, at this row and column unless they are the run's."""
    row, column = place or place_of(run, error.at)
    if run.values is not None and run.values.dtype.kind == "f":
        return NonFiniteError(row, column, None)
    problem = f"A[{row}, {column}] is {error.value}, a whole number beyond 2^53, which float64 does not hold exactly"
    return SparseInputError(name, f"row {row}", problem, "convert the values first, by A.astype(np.float64)")


def check_columns(part: Rows, n_columns: int, name: str) -> None:
    """Raise SparseInputError unless columns ascend in each row, and lie inside the matrix."""
    columns = part.columns
    if not columns.size:
        return
    ascends = columns[1:] > columns[:-1]
    inner = part.starts[1:-1]
    ascends[inner[(inner > 0) & (inner < columns.size)] - 1] = True  # a row may begin anywhere
    if not ascends.all():
        row, column = place_of(part, at := int(np.argmin(ascends)) + 1)
        what = "is there twice" if columns[at] == columns[at - 1] else f"comes behind column {columns[at - 1]}"
        raise SparseInputError(
            name, f"row {row}", f"column {column} {what}", "columns of a row ascend: sort them, and add what is twice"
        )
    unsigned = columns.view(np.uint32)  # of negative numbers, larger than any column
    if unsigned.max() >= n_columns:
        row, column = place_of(part, int(np.argmax(unsigned >= n_columns)))
        problem = f"column {column} is outside of the matrix, whose columns are 0 to {n_columns - 1}"
        raise SparseInputError(name, f"row {row}", problem, "mend the entry, or give the matrix a wider shape")
