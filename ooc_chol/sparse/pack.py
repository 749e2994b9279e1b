"""Packing a sparse matrix in row blocks, in host memory or in a file, and opening a packed file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ooc_chol.calls.progress import ProgressReporter, progress_reporter
from ooc_chol.config import PAGE_BYTES, parse_bytes, whole_pages
from ooc_chol.files.outputs import AnyPath
from ooc_chol.memory.block_files import BlockFileWriter, is_packed_file
from ooc_chol.memory.blocks import AbstractBlockSink, BlockMemory
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.pages import allocate_aligned
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.order import check_order
from ooc_chol.sparse.ordered_rows import OrderedRows
from ooc_chol.sparse.packed_files import KIND, Facts, facts_to_json, opened_packed
from ooc_chol.sparse.packing import Packer, default_block_bytes, expected_bytes, most_bytes
from ooc_chol.sparse.rows import AbstractRows, Rows
from ooc_chol.sparse.sources import rows_of
from ooc_chol.tasks.row_blocks import CHUNK_ROWS

#: Fewest bytes of a block that may be asked for.
_LEAST_BLOCK_BYTES = PAGE_BYTES


@final
class PackedRows(AbstractRows):
    """The rows of a packed matrix, to be packed anew: in their order, if they have one."""

    def __init__(self, matrix: BlockCSR) -> None:
        self.name = matrix.path or type(matrix).__name__
        self.shape, self.expected_entries, self.counts = matrix.shape, matrix.nnz, matrix.counts
        self.order = matrix.order
        self._matrix = matrix

    def runs(self) -> Iterator[Rows]:
        """Block by block."""
        return self._matrix.packed_runs()


def block_csr(
    source: Any,
    *,
    store: AnyPath | HostMemory | None = None,
    block_bytes: int | str | None = None,
    zeros: Literal["keep", "drop"] = "keep",
    dtype: DTypeLike | None = None,
    order: Literal["degree"] | None = None,
    replace: bool = False,
    progress: bool | Callable[[int, int, float], None] | None = None,
) -> BlockCSR:
    """Pack a sparse matrix in row blocks, in host memory or in a file; or open a file that holds a packed one.

    Parameters
    ----------
    source : sparse or dense matrix, graph, str, PathLike, AbstractRows or BlockCSR
        A matrix of SciPy, NumPy, pandas, cupyx, PyTorch or JAX, a graph of NetworkX, the name of a file, or what
        :func:`ooc_chol.testing.rmat` and :func:`ooc_chol.edge_list` make. A packed matrix is packed anew; a packed file is opened
        as it is without ``store``.
    store : str, PathLike or HostMemory, optional
        Name of a file to write, by convention ending in ``.oocsr``; it gets its name once it is complete. Or host memory that one
        matrix after the other takes. By default memory that is given up when the matrix is closed.
    block_bytes : int or str, optional
        Bytes of a block, such as ``"64 MiB"``, which only a block of one row exceeds. By default a 64th of the matrix, and 16 to
        256 MiB.
    zeros : {"keep", "drop"}
        Keep or drop entries that are zero.
    dtype : dtype, optional
        float32 rounds every value to it once; float64 says that the matrix is of that, whatever its source is of. By default the
        source's, float64 where that is no type of floats.
    order : {"degree"}, optional
        ``"degree"`` numbers rows and columns of a square matrix by descending entries of their columns, for products: the rows
        of X that most entries read are adjacent then, and stay in a cache. The matrix keeps the order, in 4 bytes a row, and all
        that takes or gives rows or columns of it speaks the numbers of the source. By default a packed matrix keeps the order
        that it has, and any other source is packed as it is.
    replace : bool
        Replace a file at ``store`` that is no packed matrix, too.
    progress : bool or callable, optional
        True shows a bar; a function is called with the entries that are packed, those expected, and the seconds that this took.

    Returns
    -------
    BlockCSR
        The packed matrix; it keeps nothing of its source.

    Raises
    ------
    SparseInputError
        The source is not what it should be, or has more than 2^31 - 1 columns.
    NonFiniteError
        An entry is NaN or infinite.
    UnsupportedTypeError
        The values are no real numbers, or beyond float32 where that was asked for.
    BudgetError
        There is no room for it in host memory.
    OutputError
        ``store`` is the source, or a file that must not be lost.
    TierError
        A file cannot be read or written, is damaged (``DamagedFileError``), or is being written by another run.

    Notes
    -----
    An order is found by one reading of the source, and rows in that order by another one where the source is CSR in memory or a
    random graph, by up to nine else. Vertices of the same degree stay in their order, so that it depends on the matrix alone.

    Values of a block are stored in the narrowest of four kinds that holds every one exactly: none at all where all are one
    number, int8, float32, float64. Blocks are the same whatever runs the source hands over. Host memory is asked for at once,
    for as many entries as the source expects, and what is not needed is never touched.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from scipy.sparse import random_array
    >>> A = random_array((100, 80), density=0.1, rng=1)
    >>> with oc.block_csr(A) as packed:
    ...     (packed.tocsr() != A.tocsr()).nnz
    0
    """
    number_type, order = _number_type(dtype), check_order(order)
    size = None if block_bytes is None else parse_bytes(block_bytes, "block_bytes")
    if size is not None and size < _LEAST_BLOCK_BYTES:
        raise ValueError(f"block_bytes is {block_bytes!r:.80}; give at least {_LEAST_BLOCK_BYTES}")
    if isinstance(source, str | os.PathLike) and is_packed_file(source):
        if store is None:
            if size is not None or number_type is not None or zeros != "keep" or order is not None:
                raise ValueError(f"{source} is a packed matrix, which is opened as it is: leave the options out, or give store=")
            return BlockCSR(*opened_packed(source))
        options = {"zeros": zeros, "dtype": dtype, "order": order, "replace": replace, "progress": progress}
        with BlockCSR(*opened_packed(source)) as opened:
            return block_csr(opened, store=store, block_bytes=size, **options)  # type: ignore[arg-type] # each is of its type
    if isinstance(source, BlockCSR | AbstractRows) and zeros != "keep":
        kind = type(source).__name__
        raise ValueError(f"zeros={zeros!r:.20} is chosen where a {kind} is made: give the source that it was made of")
    rows = PackedRows(source) if isinstance(source, BlockCSR) else rows_of(source, zeros=zeros)
    with progress_reporter(progress, "packing", "entry") as report:
        how = How(size, number_type, report)
        if order is not None and not (isinstance(rows, PackedRows) and rows.order is not None):
            rows = _by_degree(rows)
        if store is None or isinstance(store, HostMemory):
            return packed_in_memory(rows, store, how)
        return packed_in_file(rows, BlockFileWriter(store, [("source", file_of(source))], replace=replace), how)


def file_of(source: Any) -> AnyPath | None:
    """The file that a matrix is read from; None where there is none."""
    if isinstance(source, str | os.PathLike):
        return source
    return source.path if isinstance(source, BlockCSR | AbstractRows) else None


@final
class _Nowhere(AbstractBlockSink):
    """A sink that keeps no block."""

    def __init__(self) -> None:
        self._buffer: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def room(self, nbytes: int) -> NDArray[np.uint8]:
        """The same memory for each."""
        if self._buffer.size < nbytes:
            self._buffer = allocate_aligned(whole_pages(nbytes))
        return self._buffer[:nbytes]

    def put(self, data: NDArray[np.uint8]) -> None:
        """Forget it."""


def facts_of(source: Any, *, anew: bool = False) -> Facts:
    """Facts of what ``block_csr(source)`` would make, without the memory for it: the source is read.

    A packed file has its own, unless it is to be packed ``anew``.
    """
    if isinstance(source, str | os.PathLike) and is_packed_file(source):
        with BlockCSR(*opened_packed(source)) as opened:
            return facts_of_rows(PackedRows(opened)) if anew else opened.facts
    return facts_of_rows(rows_of(source))


def facts_of_rows(rows: AbstractRows, block_bytes: int | None = None) -> Facts:
    """Facts of rows as they would be packed."""
    return _packed(rows, _Nowhere(), block_bytes or default_block_bytes(expected_bytes(rows)), How())


def _by_degree(rows: AbstractRows) -> AbstractRows:
    """Rows numbered by degree; as they are where there are none."""
    n_rows, n_columns = rows.shape
    if n_rows != n_columns:
        problem = f"order='degree' numbers rows and columns alike, but the matrix is {n_rows} x {n_columns}"
        raise ValueError(f"{problem}: leave it out where the matrix is not square")
    return OrderedRows(rows) if n_rows else rows


def _order_of(rows: AbstractRows) -> NDArray[np.int32] | None:
    """The numbers in the source of rows that were numbered anew."""
    return rows.order if isinstance(rows, OrderedRows | PackedRows) else None


def _number_type(dtype: DTypeLike | None) -> np.dtype[Any] | None:
    found = None if dtype is None else np.dtype(dtype).newbyteorder("=")
    if found is not None and found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype is {found.name}; give float32 or float64, or leave it out")
    return found


class How(NamedTuple):
    """How a matrix is packed."""

    block_bytes: int | None = None  #: None: a 64th of it
    dtype: np.dtype[Any] | None = None
    report: ProgressReporter = None
    chunk_rows: int = CHUNK_ROWS


def packed_in_memory(rows: AbstractRows, memory: HostMemory | None = None, how: How = How()) -> BlockCSR:  # noqa: B008 - it is constant
    """Pack rows into host memory, which is given back where that fails."""
    block_bytes = how.block_bytes or default_block_bytes(expected_bytes(rows))
    tier = BlockMemory(most_bytes(rows, block_bytes, how.chunk_rows), memory)
    try:
        return BlockCSR(tier, _packed(rows, tier, block_bytes, how))
    except BaseException:
        tier.close()
        raise


def packed_in_file(rows: AbstractRows, writer: BlockFileWriter, how: How = How()) -> BlockCSR:  # noqa: B008 - it is constant
    """Pack rows into a file, which is removed where that fails, and open it."""
    with writer:
        facts = _packed(rows, writer, how.block_bytes or default_block_bytes(expected_bytes(rows)), how)
        if facts.order is not None:
            data = writer.room(facts.order.nbytes)
            data[...] = facts.order.view(np.uint8)
            writer.put(data)
        writer.complete(KIND, facts_to_json(facts))
    return BlockCSR(*opened_packed(writer.path))


def _packed(rows: AbstractRows, sink: AbstractBlockSink, block_bytes: int, how: How) -> Facts:
    """Pack rows, and tell of it."""
    began = time.perf_counter()

    def tell(done: int, total: int) -> None:
        if how.report is not None:
            how.report(done, total, time.perf_counter() - began)

    order = _order_of(rows)
    packer = Packer(rows, sink, block_bytes=block_bytes, chunk_rows=how.chunk_rows, dtype=how.dtype, progress=tell, order=order)
    packed = packer.pack()
    return Facts(packed.blocks, packed.dtype, rows.counts, packed.longest_row, packed.rounded, order)
