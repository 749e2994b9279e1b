"""A sparse matrix in packed row blocks, in host memory or in a file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.errors import ClosedError
from ooc_chol.memory.block_files import BlockFile
from ooc_chol.memory.blocks import AbstractBlockTier
from ooc_chol.process.address_space import check_room
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.sparse.ordered_parts import in_order, ordered_csr, ordered_runs
from ooc_chol.sparse.packed_files import Facts
from ooc_chol.sparse.rows import RowCounts, Rows
from ooc_chol.sparse.values import MOST_WHOLE
from ooc_chol.tasks.row_blocks import BlockParts, RowBlocks, ValueKind

#: Entries whose values are made float64 in one go, by one thread, to be added.
_ADDED_ENTRIES = 1 << 18


@final
class BlockCSR(AbstractClosing):
    """A sparse matrix in packed row blocks; :func:`block_csr` makes one.

    Parameters
    ----------
    tier : AbstractBlockTier
        Holds the bytes of all blocks; the matrix closes it.
    facts : Facts
        Known facts of the matrix beside them.

    Notes
    -----
    It is closed by :meth:`close`, at the end of a ``with`` block, or when nobody holds it any more. All of it can be read by
    several threads at once. What it holds is never changed.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> from scipy.sparse import csr_array
    >>> A = oc.block_csr(csr_array(np.array([[0.0, 2.0], [1.0, 3.0]])))
    >>> A
    BlockCSR(shape=(2, 2), nnz=3, blocks=1, kinds='int8', nbytes='512 B', tier='memory')
    >>> A.row_sums()
    array([2., 4.])
    >>> A.close()
    """

    def __init__(self, tier: AbstractBlockTier, facts: Facts) -> None:
        self._tier: AbstractBlockTier | None = tier
        self._facts = facts

    @property
    def facts(self) -> Facts:
        """Facts of the matrix beside its blocks' bytes."""
        return self._facts

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._facts.blocks.shape

    @property
    def nnz(self) -> int:
        """Entries that are stored, zeros among them."""
        return self._facts.blocks.n_entries

    @property
    def ndim(self) -> int:
        """Two, as SciPy's matrices say it."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that were packed: float32, or float64, also where they were whole numbers or all 1."""
        return self._facts.dtype

    @property
    def blocks(self) -> RowBlocks:
        """Which rows each block has, and where its parts lie in its bytes."""
        return self._facts.blocks

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self._facts.blocks.nbytes

    @property
    def counts(self) -> RowCounts:
        """Counts of the source: duplicates that became one entry, zeros, loops that were left out."""
        return self._facts.counts

    @property
    def longest_row(self) -> int:
        """Entries of the longest row."""
        return self._facts.longest_row

    @property
    def rounded(self) -> int:
        """Values that ``dtype=np.float32`` has changed."""
        return self._facts.rounded

    @property
    def order(self) -> NDArray[np.int32] | None:
        """The row and column that each one of the packed blocks is, (n,), where they were numbered anew; None where not.

        :attr:`blocks`, :attr:`tier` and :meth:`parts` are of packed rows; all else is in the numbers of the source.
        """
        return self._facts.order

    @property
    def closed(self) -> bool:
        """True if it is closed."""
        return self._tier is None

    @property
    def tier(self) -> AbstractBlockTier:
        """Tier that holds the bytes of block b as ``stored((b, 0))``, in place, or ``read_stored((b, 0), out)``.

        Raises
        ------
        ClosedError
            The matrix is closed.
        """
        if self._tier is None:
            raise ClosedError("this matrix is closed: pack or open it again, or keep it open for as long as it is used")
        return self._tier

    @property
    def path(self) -> str | None:
        """Name of its file; None in host memory."""
        return self._tier.path if isinstance(self._tier, BlockFile) else None

    def parts(self, number: int) -> BlockParts:
        """The parts of a block: in place in host memory, else a copy of them.

        Parameters
        ----------
        number : int
            Number of the block, from 0 on.

        Returns
        -------
        BlockParts
            Starts of rows, work groups, columns and values.

        Raises
        ------
        DamagedFileError
            The block is not as it was written.
        ClosedError
            The matrix is closed.
        IndexError
            There is no such block.
        """
        count = len(self.blocks.blocks)
        if not 0 <= number < count:
            raise IndexError(f"there is no block {number}: the matrix has {count}, which are counted from 0")
        tier, block = self.tier, self.blocks.blocks[number]
        data = tier.stored((number, 0))
        if data is None:
            data = np.empty(block.nbytes, np.uint8)
            tier.read_stored((number, 0), data)
        return block.parts(data)

    def tocsr(self, rows: range | None = None) -> csr_array:
        """The matrix, or some rows of it, as one of SciPy's.

        Parameters
        ----------
        rows : range, optional
            Consecutive rows; all by default.

        Returns
        -------
        csr_array
            Matrix of :attr:`dtype`, with the values that were packed, to the bit; canonical.

        Raises
        ------
        BudgetError
            The system has no room for it.
        DamagedFileError
            A block is not as it was written.

        Examples
        --------
        >>> import ooc_chol as oc
        >>> from scipy.sparse import eye_array
        >>> oc.block_csr(eye_array(5).tocsr()).tocsr(rows=range(1, 3)).toarray()
        array([[0., 1., 0., 0., 0.],
               [0., 0., 1., 0., 0.]])
        """
        wanted = range(self.shape[0]) if rows is None else rows
        if not isinstance(wanted, range):
            raise TypeError(f"rows is a {type(rows).__name__}; give consecutive rows, as range(0, 10)")
        if wanted.step != 1 or wanted.start < 0 or wanted.stop > max(self.shape[0], wanted.start):
            raise ValueError(
                f"rows is {rows!r:.80}; give consecutive rows within the {self.shape[0]} of the matrix, as range(0, 10)"
            )
        if self.order is not None:
            return ordered_csr(self, self.order, wanted)
        return self._packed_csr(wanted)

    def _packed_csr(self, wanted: range) -> csr_array:
        """Some rows as they are packed."""
        held = [number for number, block in enumerate(self.blocks.blocks) if _common(block.rows, wanted)]
        most = sum(self.blocks.blocks[number].n_entries for number in held)
        what = f"memory for {len(wanted)} rows in SciPy's form"
        check_room((4 + self.dtype.itemsize) * most + 8 * len(wanted), what, "take fewer of them at a time: tocsr(rows=)")
        indices, values = np.empty(most, np.int32), np.empty(most, self.dtype)
        indptr = np.zeros(len(wanted) + 1, np.int64)
        at = 0
        for number in held:
            block, parts = self.blocks.blocks[number], self.parts(number)
            common = _common(block.rows, wanted)
            low, high = common.start - block.first_row, common.stop - block.first_row
            starts = parts.starts[low : high + 1].astype(np.int64)
            here = slice(int(starts[0]), int(starts[-1]))
            there = slice(at, at + here.stop - here.start)
            indptr[common.start - wanted.start : common.stop - wanted.start + 1] = starts - starts[0] + at
            indices[there] = parts.columns[here]
            values[there] = block.value if parts.values is None else parts.values[here]
            at = there.stop
        index_type = np.int32 if max(at, self.shape[1]) <= np.iinfo(np.int32).max else np.int64
        arrays = values[:at], indices[:at].astype(index_type, copy=False), indptr.astype(index_type, copy=False)
        found = csr_array(arrays, shape=(len(wanted), self.shape[1]))
        found.has_canonical_format = True
        return found

    def row_sums(self) -> NDArray[np.float64]:
        """Sum of each row, such as the degrees of a graph.

        Returns
        -------
        (n_rows,) float64 array
            The values of a row added in float64, in an order that depends on the row alone.

        Examples
        --------
        >>> import ooc_chol as oc
        >>> from scipy.sparse import csr_array
        >>> oc.block_csr(csr_array([[1.0, 1.0], [0.0, 0.5]])).row_sums()
        array([2. , 0.5])
        """
        sums = np.zeros(self.shape[0])
        with closing(ThreadTeam(cores() if self.nnz > _ADDED_ENTRIES else 1)) as team:
            for number, block in enumerate(self.blocks.blocks):
                parts = self.parts(number)
                out = sums[block.first_row : block.first_row + block.n_rows]
                counts = np.diff(parts.starts)
                most = abs(block.value) * max(1, self.longest_row)
                if parts.values is None and block.value.is_integer() and most <= MOST_WHOLE:
                    np.multiply(counts, block.value, out=out)  # exact, as the sum is
                else:
                    team.map(partial(_add_rows, parts, block.value, out), _row_runs(parts.starts))
        return sums if self.order is None else in_order(sums, self.order)

    def runs(self) -> Iterator[Rows]:
        """Its rows, as sources hand them over; those that were numbered anew take several readings of all blocks.

        Yields
        ------
        Rows
            The rows of a block, or of a part of all; columns may be views of what the matrix holds.
        """
        return self.packed_runs() if self.order is None else ordered_runs(self, self.order)

    def packed_runs(self) -> Iterator[Rows]:
        """Rows block by block, in the order and the numbers in which they are packed.

        Yields
        ------
        Rows
            The rows of a block; its columns may be views of what the matrix holds.
        """
        for number, block in enumerate(self.blocks.blocks):
            parts = self.parts(number)
            if parts.values is not None:
                values = parts.values.astype(self.dtype)
            else:
                values = np.full(block.n_entries, block.value, self.dtype)
            yield Rows(block.first_row, parts.starts.astype(np.int64), parts.columns, values)

    def info(self) -> str:
        """A page on what it is: blocks by kind, bytes, entries, and what the source counted.

        Returns
        -------
        str
            Some lines, to be printed.

        Examples
        --------
        >>> import ooc_chol as oc
        >>> from scipy.sparse import csr_array
        >>> print(oc.block_csr(csr_array([[1.0, 1.0], [0.0, 1.0]])).info())
        2 x 2 sparse matrix of float64 in host memory
        entries      3 stored, 75 % of all; longest row 2
        blocks       1 of 384 B to 384 B, 384 B together; 128 bytes an entry
          pattern    1 block, 3 entries, 384 B
        counted      0 duplicates merged, 0 zeros, 0 loops left out
        """
        blocks = self.blocks.blocks
        n_rows, n_columns = self.shape
        where = "closed" if self._tier is None else f"in {self.path}" if self.path else "in host memory"
        share = f", {100 * self.nnz / self.blocks.dense_entries:.3g} % of all" if self.blocks.dense_entries else ""
        sizes = [block.nbytes for block in blocks] or [0]
        an_entry = f"; {self.nbytes / self.nnz:.4g} bytes an entry" if self.nnz else ""
        together = f"{format_bytes(self.nbytes)} together{an_entry}"
        lines = [
            f"{n_rows} x {n_columns} sparse matrix of {self.dtype.name} {where}",
            f"entries      {self.nnz} stored{share}; longest row {self.longest_row}",
            f"blocks       {len(blocks)} of {format_bytes(min(sizes))} to {format_bytes(max(sizes))}, {together}",
        ]
        for kind in ValueKind:
            if own := [block for block in blocks if block.kind is kind]:
                entries, nbytes = sum(block.n_entries for block in own), sum(block.nbytes for block in own)
                plural = "s" * (len(own) > 1)
                lines.append(f"  {kind.value:<10} {len(own)} block{plural}, {entries} entries, {format_bytes(nbytes)}")
        counts = self.counts
        lines.append(f"counted      {counts.duplicates} duplicates merged, {counts.zeros} zeros, {counts.loops} loops left out")
        if self.order is not None:
            lines.append("order        by degree: rows and columns of blocks are numbered anew")
        if self.rounded:
            lines.append(f"rounded      {self.rounded} values, to {self.dtype.name}")
        return "\n".join(lines)

    def close(self) -> None:
        """Give up its memory, or close its file; a second call does nothing."""
        tier, self._tier = self._tier, None
        if tier is not None:
            tier.close()

    #: NumPy does not make an array of one object of it in ``x @ A`` and the like.
    __array_ufunc__ = None

    def __matmul__(self, X: object) -> NoReturn:
        raise TypeError("A @ X would open devices anew each time: write oc.multiply(A, X), or keep them open by oc.multiplier(A)")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a packed matrix holds its memory or its file alone, and is neither copied nor pickled: pack it with store=, and "
            "open that file by oc.block_csr(path) where it is needed"
        )

    def __repr__(self) -> str:
        kinds = Counter(block.kind.value for block in self.blocks.blocks)
        facts: dict[str, object] = {"shape": self.shape, "nnz": self.nnz, "blocks": len(self.blocks.blocks)}
        facts["kinds"] = " ".join(kinds)
        facts["nbytes"] = format_bytes(self.nbytes)
        facts["tier"] = "closed" if self._tier is None else self.path or self._tier.name
        return one_line(self, facts)

    def __del__(self) -> None:
        if sys.is_finalizing() and not isinstance(self._tier, BlockFile):
            return  # the memory goes with the process, and no thread can be started that would unlock it
        with suppress(Exception):  # one whose making failed has no tier
            self.close()


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), max(min(one.stop, other.stop), max(one.start, other.start)))


def _row_runs(starts: NDArray[np.uint32]) -> list[range]:
    """Rows whose values are added in one go."""
    ends, runs, row, n_rows = starts.astype(np.int64), [], 0, len(starts) - 1
    while row < n_rows:
        stop = max(row + 1, int(np.searchsorted(ends, ends[row] + _ADDED_ENTRIES, side="right")) - 1)
        runs.append(range(row, stop))
        row = stop
    return runs


def _add_rows(parts: BlockParts, value: float, out: NDArray[np.float64], rows: range) -> None:
    """Add the values of each of some rows, in float64: the bits depend on the row alone."""
    starts = parts.starts[rows.start : rows.stop + 1].astype(np.int64)
    low, high = starts[0], starts[-1]
    values = np.full(high - low, value) if parts.values is None else parts.values[low:high].astype(np.float64, copy=False)
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    if len(filled):
        out[rows.start + filled] = np.add.reduceat(values, starts[filled] - low)
